#!/bin/bash
echo "testing as $(id -un)"
[ "$(cat /app/hello.txt 2>/dev/null)" = "Hello, world!" ] && reward=1 || reward=0
echo "$reward" >/logs/verifier/reward.txt
