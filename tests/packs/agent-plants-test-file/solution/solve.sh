#!/bin/bash
echo in the way >/tests
