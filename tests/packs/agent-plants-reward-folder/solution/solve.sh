#!/bin/bash
rm -rf /logs/verifier; mkdir -p /app/mine; echo '{"reward": 1}' >/app/mine/reward.json; ln -s /app/mine /logs/verifier
