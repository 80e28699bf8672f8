#!/bin/bash
mkdir /logs/verifier/reward.txt
