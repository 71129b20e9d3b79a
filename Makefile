# Every target sets up what it needs: a virtual environment in .venv, and Java for Spark.
.DEFAULT_GOAL := help
SHELL := /bin/bash

VENV_PYTHON := .venv/bin/python
STAMP := .venv/.setup-done

# Half of the time tests wait for something. Each process has a Spark of its own and takes about 2 GB.
TEST_PROCESSES ?= 2
PYTEST := $(VENV_PYTHON) -m pytest -n $(TEST_PROCESSES) --dist loadgroup

# Spark looks for `java` on the PATH; the set-up links one into .venv/bin if it is not there already.
export PATH := $(CURDIR)/.venv/bin:$(PATH)

.PHONY: help setup demo test test-long test-all bench bench-all bench-recovery bench-checkpoint bench-service bench-sync bench-hosts bench-kafka lint format clean

help: ## Show what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{ printf "  make %-16s %s\n", $$1, $$2 }'

setup: $(STAMP) ## Make .venv with the package and its development tools; find or install Java

$(STAMP): pyproject.toml scripts/setup.sh
	@scripts/setup.sh
	@touch $@

demo: setup ## A small shop: views that follow its orders
	$(VENV_PYTHON) -m examples.demo

test: setup ## All tests but the long ones
	$(PYTEST) -m "not slow"

test-long: setup ## The long ones: crashes at every step, soak runs, many random histories
	$(PYTEST) -m slow

test-all: setup ## Both at once, the longest first: takes less time than one after the other
	$(PYTEST)

bench: setup ## Penstock beside Spark's own ways, answers checked
	$(VENV_PYTHON) -m benchmarks

bench-all: setup ## The same with DuckDB, Pathway and Flink
	$(VENV_PYTHON) -m benchmarks --all

bench-recovery: setup ## How long a pipeline takes to come back after a kill
	$(VENV_PYTHON) -m benchmarks.recovery

bench-service: setup ## The service as its clients see it: starts, one row, many clients, bulk loads
	$(VENV_PYTHON) -m benchmarks.service

bench-checkpoint: setup ## What a checkpoint writes, what it slows down, and a cold start from it
	$(VENV_PYTHON) -m benchmarks.checkpoint

bench-sync: setup ## Checkpoints in an object store: what a push sends, and how fast, beside rclone
	$(VENV_PYTHON) -m benchmarks.sync

bench-hosts: setup ## The orders workload on two hosts beside one, and where tasks found what they read
	$(VENV_PYTHON) -m benchmarks.hosts

bench-kafka: setup ## Messages of Kafka into a view and out of it, beside Structured Streaming and a plain loop
	$(VENV_PYTHON) -m benchmarks.kafka

lint: setup ## ruff and mypy
	$(VENV_PYTHON) -m ruff check .
	$(VENV_PYTHON) -m ruff format --check .
	$(VENV_PYTHON) -m mypy

format: setup ## Put the code in its usual form
	$(VENV_PYTHON) -m ruff check --fix .
	$(VENV_PYTHON) -m ruff format .

clean: ## Remove everything that was made here
	rm -rf .venv build dist .ci/output .mypy_cache .pytest_cache .ruff_cache .hypothesis spark-warehouse
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
