#!/bin/bash
echo second >>/app/out.txt; echo did second
