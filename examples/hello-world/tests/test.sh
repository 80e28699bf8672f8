#!/bin/bash
# The verifier: writes 1 or 0 to /logs/verifier/reward.txt. Its own exit code is not the score.
set -uo pipefail

expected="Hello, world!"
found="$(cat /app/hello.txt 2>/dev/null)"
if [ "$found" = "$expected" ]; then
    echo "hello.txt is as asked for"
    echo 1 > /logs/verifier/reward.txt
else
    echo "hello.txt should hold '$expected', and holds '$found'"
    echo 0 > /logs/verifier/reward.txt
fi
