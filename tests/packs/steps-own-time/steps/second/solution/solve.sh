#!/bin/bash
touch /app/second
