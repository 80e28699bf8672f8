#!/bin/bash
for part in /tests/part-*.sh; do . "$part"; done; echo "$reward" >/logs/verifier/reward.txt
