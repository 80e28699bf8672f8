#!/bin/bash
cd /logs/verifier && ln -s /etc/passwd password && mkfifo pipe && echo 1 >reward.txt
