#!/bin/bash
[ -e /app/full ] && echo 1 >/logs/verifier/reward.txt || echo 0 >/logs/verifier/reward.txt
