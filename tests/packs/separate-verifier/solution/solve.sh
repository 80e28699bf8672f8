#!/bin/bash
echo 42 >/app/answer.txt; echo left >/app/other.txt
setsid bash -c "while :; do echo 1 >/logs/verifier/reward.txt; sleep 0.05; done" >/dev/null 2>&1 &
