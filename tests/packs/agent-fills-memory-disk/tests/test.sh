#!/bin/bash
[ -s /dev/shm/filler ] && [ ! -e /app/roomy ] && echo 1 >/logs/verifier/reward.txt || echo 0 >/logs/verifier/reward.txt
