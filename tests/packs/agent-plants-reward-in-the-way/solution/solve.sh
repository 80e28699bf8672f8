#!/bin/bash
mkdir -p /logs/verifier/reward.json/deep
