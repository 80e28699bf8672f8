#!/bin/bash
echo '{"accuracy": 0.5}' >/logs/verifier/reward.json
