#!/bin/bash
head -c 200m /dev/zero | exec tail -c 199m >/dev/null; kill -9 $$
