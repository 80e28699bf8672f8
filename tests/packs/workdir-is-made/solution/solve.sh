#!/bin/bash
pwd >where
