#!/bin/bash
if then fi
