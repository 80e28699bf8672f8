#!/bin/bash
echo '{"reward": {"value": 1}}' >/logs/verifier/reward.json
