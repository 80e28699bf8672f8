#!/bin/bash
echo "{\"reward\": 1, \"lines\": $(wc -l </app/out.txt)}" >/logs/verifier/reward.json
