#!/bin/bash
{ echo -n '{"reward": 1, "x'; head -c 100000 /dev/zero | tr '\0' 'x'; echo '": 1}'; } >/logs/verifier/reward.json
