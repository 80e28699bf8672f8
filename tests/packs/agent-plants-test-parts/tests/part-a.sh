reward=0
