#!/bin/bash
echo first >>/app/out.txt; echo did first
