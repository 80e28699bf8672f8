#!/bin/bash
exit 4
