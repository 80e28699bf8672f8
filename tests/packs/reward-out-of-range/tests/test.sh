#!/bin/bash
echo 7.5 >/logs/verifier/reward.txt
