#!/bin/bash
id -un; echo mine >/logs/agent/mine; echo no >/etc/passwd 2>/dev/null || echo refused
