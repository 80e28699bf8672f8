#!/bin/bash
mkdir -p /logs/artifacts && truncate -s 5120m /logs/artifacts/large
