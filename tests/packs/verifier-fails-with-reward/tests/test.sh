#!/bin/bash
echo "{\"a\": 1, \"b\": 0.5, \"flag\": true}" >/logs/verifier/reward.json; echo 0 >/logs/verifier/reward.txt; exit 3
