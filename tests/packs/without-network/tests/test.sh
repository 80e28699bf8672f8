#!/bin/bash
[ "$(echo /sys/class/net/*)" = /sys/class/net/lo ] && [ "$(cat /app/seen)" = /sys/class/net/lo ] && echo 1 >/logs/verifier/reward.txt || echo 0 >/logs/verifier/reward.txt
