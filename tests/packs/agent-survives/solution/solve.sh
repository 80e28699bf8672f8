#!/bin/bash
while :; do date +%s%N >>/app/ticks; sleep 0.1; done
