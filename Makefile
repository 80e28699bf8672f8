# Seatrial. Nothing has to be installed first but make and a Python >= 3.12 (see deploy/find-python.sh).
SHELL := /bin/sh
.DEFAULT_GOAL := help
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST := $(BIN)/pytest
.PHONY: help setup demo up down test test-long bench check lint types imports fmt lock schema clean

help: ## say what each target does
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' Makefile

setup: $(STAMP) ## make the virtual environment and install everything by its hash

# uv is installed by its hash too: its lines of the lock file are handed to pip.
$(STAMP): requirements.lock pyproject.toml deploy/find-python.sh
	@test -x $(BIN)/python || { python=$$(sh deploy/find-python.sh) && echo "making $(VENV) with $$python" && "$$python" -m venv $(VENV); }
	@awk '/^uv==/{on=1} on{print} on&&!/\\$$/{exit}' requirements.lock > $(VENV)/uv.txt
	@$(BIN)/uv --version 2>/dev/null | grep -qF "$$(sed -n 's/^uv==\([0-9.]*\).*/uv \1/p' $(VENV)/uv.txt)" \
		|| { echo "installing uv"; $(BIN)/pip install -q --disable-pip-version-check --require-hashes -r $(VENV)/uv.txt; }
	@echo "installing $$(grep -c '==' requirements.lock) packages"
	@$(BIN)/uv pip sync -q --python $(BIN)/python --require-hashes requirements.lock
	@$(BIN)/uv pip install -q --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

demo: setup ## one run from nothing: start, push, build, run, follow, score, archive checked
	@$(BIN)/python -m app.local.demo

up: setup ## start all processes of this machine in the foreground
	@$(BIN)/seatrial up

down: ## stop what `make demo` or `seatrial up` started
	@test ! -x $(BIN)/seatrial || $(BIN)/seatrial down

# Two processes share the tests by file: most of them wait for time limits, leases and restarts, not for a processor.
test: setup engine harness ## everything that a change must pass
	@$(PYTEST) -n 2 --dist loadfile
	@$(MAKE) --no-print-directory check

.PHONY: engine harness
engine: setup # a container engine and the test base image
	@$(BIN)/python -m app.local.baseimage

harness: setup # the harness environment of the tests
	@$(BIN)/python harbor-patches/build.py --home .seatrial/harness

test-long: setup engine harness ## the tests of hours
	@$(PYTEST) -m long --timeout=0

bench: setup engine harness ## the measurements of tests/benchmarks
	@$(BIN)/python -m tests.benchmarks

check: lint types imports ## the checks that run nothing

lint: setup
	@$(BIN)/ruff check -q .
	@$(BIN)/ruff format -q --check .

types: setup
	@$(BIN)/pyright

imports: setup
	@$(BIN)/lint-imports --no-cache

fmt: setup ## format, and mend what the linter can
	@$(BIN)/ruff check -q --fix . || true
	@$(BIN)/ruff format -q .

lock: setup ## write requirements.lock again from pyproject.toml
	@$(BIN)/uv pip compile -q --universal --python-version 3.12 --generate-hashes --no-emit-index-url --no-header \
		--upgrade --group dev pyproject.toml -o requirements.lock

schema: setup ## write db/schema.sql and deploy/schemas again, from the migrations and the catalogue of events
	@$(BIN)/python db/dump_schema.py
	@$(BIN)/python -m app.bus.schemas deploy/schemas

clean: down ## remove what make made in this folder; data of `seatrial up` stays
	@rm -rf $(VENV) .seatrial .pytest_cache .ruff_cache .hypothesis .import_linter_cache dist build
