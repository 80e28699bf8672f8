#!/bin/bash
a=$(wc -l </app/ticks); sleep 0.4; b=$(wc -l </app/ticks); [ "$a" = "$b" ] && echo 0 >/logs/verifier/reward.txt || echo 1 >/logs/verifier/reward.txt
