#!/bin/bash
dd if=/dev/zero bs=1M count=200 | exec tail -c 199m >/dev/null; kill -9 $$
