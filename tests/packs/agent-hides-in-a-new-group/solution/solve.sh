#!/bin/bash
setsid bash -c 'trap "" HUP TERM; exec -a "[kworker]" bash -c "while :; do echo >>/app/ticks; sleep 0.05; done"' >/dev/null 2>&1 &
sleep 0.2
