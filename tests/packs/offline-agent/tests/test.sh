#!/bin/bash
echo "{\"agent_devices\": $(wc -w </logs/agent/oracle.txt), \"verifier_devices\": $(ls /sys/class/net | wc -l)}" >/logs/verifier/reward.json
