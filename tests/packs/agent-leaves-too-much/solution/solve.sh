#!/bin/bash
truncate -s 5g /logs/artifacts/large
