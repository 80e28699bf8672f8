#!/bin/bash
sleep 0.5; echo 0 >/logs/verifier/reward.txt
