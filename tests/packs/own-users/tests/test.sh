#!/bin/bash
id -u; [ "$(stat -c %U /logs/agent/mine)" = agent ] && echo 1 >/logs/verifier/reward.txt
