#!/bin/bash
echo '{"style": 1, "speed": 0.5}' >/logs/verifier/reward.json
