#!/bin/bash
[ ! -e /app/other.txt ] && [ "$(cat /app/answer.txt)" = 42 ] && echo 0.75 >/logs/verifier/reward.txt || echo 0.25 >/logs/verifier/reward.txt
