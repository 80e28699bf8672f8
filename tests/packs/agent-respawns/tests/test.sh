#!/bin/bash
sleep 0.5; [ -e /tmp/alive ] && rm /tmp/alive; sleep 0.5; [ -e /tmp/alive ] && echo '{"forged": 1}' || echo 0 >/logs/verifier/reward.txt
