#!/bin/bash
mkdir -p /app/mine && echo 'reward=1' >/app/mine/part-z.sh && ln -s /app/mine /tests
