#!/bin/bash
a=$(wc -l </app/ticks); sleep 0.5; b=$(wc -l </app/ticks)
[ "$a" = "$b" ] && echo 1 >/logs/verifier/reward.txt || echo 0 >/logs/verifier/reward.txt
