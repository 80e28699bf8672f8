#!/bin/bash
echo "Hello, world!" >/app/hello.txt
mkdir -p /logs/artifacts && cp /app/hello.txt /logs/artifacts/
echo solved
