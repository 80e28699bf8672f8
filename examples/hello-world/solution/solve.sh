#!/bin/bash
# What the oracle agent runs: it proves that the task can be solved.
set -euo pipefail

echo "Hello, world!" > /app/hello.txt
echo "wrote /app/hello.txt"
