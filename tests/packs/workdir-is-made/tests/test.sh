#!/bin/bash
[ "$(cat /somewhere/else/where)" = /somewhere/else ] && echo 1 >/logs/verifier/reward.txt || echo 0 >/logs/verifier/reward.txt
