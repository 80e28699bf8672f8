#!/bin/bash
echo $(ls /sys/class/net)
