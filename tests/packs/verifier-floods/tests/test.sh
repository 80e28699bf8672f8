#!/bin/bash
head -c 30m /dev/zero | tr '\0' 'x'; echo 1 >/logs/verifier/reward.txt
