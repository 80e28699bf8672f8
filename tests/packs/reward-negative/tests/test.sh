#!/bin/bash
echo -3 >/logs/verifier/reward.txt
