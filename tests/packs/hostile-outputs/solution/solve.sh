#!/bin/bash
cd /logs/artifacts && echo kept >kept.txt && mkdir deep && echo deep >deep/kept.txt
ln -s /etc/passwd link; ln -s ../../../../../../etc up; mkfifo pipe; ln kept.txt hard.txt
ln -s /logs/verifier /logs/agent/loop
