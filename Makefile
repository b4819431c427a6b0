# One command per task; `make` alone lists them. PYTHON=python3.13 picks the interpreter of a new environment.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
RUNS   := $(VENV)/.holdfast-run
TESTS  := $(VENV)/.holdfast-setup
SITE   := build/docs-env
JOBS   ?= 3

export PIP_DISABLE_PIP_VERSION_CHECK = 1

.DEFAULT_GOAL := help
.PHONY: help setup run static test-fast check browser test test-pythons bench bench-http bench-images bench-generation bench-observability \
	bench-dispatch bench-peers soak mutate docs lock clean

help: ## List these targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

setup: $(TESTS) ## Create the environment in .venv for developers: every dependency pinned by hash, and the project in it.

# What `holdfast` needs to run, and no more. pip is the last thing venv installs: where it is missing, the environment
# was never finished.
$(RUNS): pyproject.toml constraints/runtime.txt constraints/build.txt
	@test -x $(BIN)/pip || { \
	  $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo 'Holdfast needs Python 3.11 or newer; name one: make $(or $(MAKECMDGOALS),setup) PYTHON=python3.12' >&2; exit 1; }; \
	  $(PYTHON) -c 'import ensurepip' 2>/dev/null || { \
	    echo '$(PYTHON) cannot make virtual environments: it has no ensurepip (on Debian and Ubuntu, install' \
	      'python3-venv), or name another interpreter: make $(or $(MAKECMDGOALS),setup) PYTHON=python3.12' >&2; exit 1; }; \
	  echo 'Creating $(VENV)'; $(PYTHON) -m venv --clear $(VENV); }
	@echo 'Installing what Holdfast needs to run into $(VENV), once:'
	$(BIN)/python -m pip install --require-hashes -r constraints/runtime.txt -r constraints/build.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

# The same environment, with what tests, checks and benchmarks need besides.
$(TESTS): $(RUNS) constraints/dev.txt
	@echo 'Installing what tests and checks need into $(VENV), once; databases and brokers among it:'
	$(BIN)/python -m pip install --require-hashes -r constraints/dev.txt
	@touch $@

run: $(RUNS) ## Run everything in one process on SQLite, with example jobs, and say what to type next.
	@$(BIN)/holdfast dev

static: setup
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m ruff check .
	$(BIN)/python -m mypy
	$(BIN)/lint-imports --no-logo

test-fast: setup
	$(BIN)/python -m pytest -q -m 'not slow' --store sqlite $(wildcard tests/pure tests/docs tests/engine)

check: static test-fast ## Before each commit: format, lint, types, import contracts, fast tests on SQLite; under a minute.

browser: setup ## Find a Chromium for the tests that look at pages, or install one into .cache/browser, once: 220 MB.
	@$(BIN)/python -m tests.servers.browser

test: static browser ## Everything: the static checks, then every test on SQLite and PostgreSQL (JOBS=3 in parallel).
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

test-pythons: ## Run the fast tests on each Python from 3.11 to 3.14 that is here or that uv can install, in .cache/pythons.
	@$(PYTHON) tests/pythons.py

bench: setup ## Measure what each microsecond of a job goes to, the core verbs on both stores, and what hooks cost.
	$(BIN)/python -m benchmarks.budget
	$(BIN)/python -m benchmarks.core
	$(BIN)/python -m benchmarks.hooks

bench-http: setup ## Measure the server: requests beside a bare endpoint, remote workers, idle streams, a large upload.
	$(BIN)/python -m benchmarks.http
	$(BIN)/python -m benchmarks.remote
	$(BIN)/python -m benchmarks.streams
	$(BIN)/python -m benchmarks.upload

bench-images: setup ## Measure the image service beside bare loops with Pillow and a bare endpoint for uploads.
	$(BIN)/python -m benchmarks.images

bench-generation: setup ## Measure POST /generations beside POST /jobs, and first pages of statements.
	$(BIN)/python -m benchmarks.generation

bench-observability: setup ## Measure what metrics, logs and traces cost a worker.
	$(BIN)/python -m benchmarks.observability

bench-dispatch: setup ## Measure brokers beside the database: wake-ups, results, throughput, idle workers, outages.
	$(BIN)/python -m benchmarks.dispatch
	$(BIN)/python -m benchmarks.latency
	$(BIN)/python -m benchmarks.idle
	$(BIN)/python -m benchmarks.outage

bench-peers: setup ## Measure Holdfast beside its peers, each in an environment of its own; rewrites docs/performance.md.
	$(BIN)/python -m benchmarks.peers --publish

soak: setup ## Run in full what `make test` samples (SEED=1), random faults for SECONDS=600, HISTORIES=10000, growth (SCALE=1).
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal --soak -m sampled --seed $(or $(SEED),1)
	$(BIN)/python -m tests.known.outages.churn --seed $(or $(SEED),1) --seconds $(or $(SECONDS),600)
	$(BIN)/python -m tests.extension.histories --seed $(or $(SEED),1) --histories $(or $(HISTORIES),10000)
	$(BIN)/python -m benchmarks.growth --scale $(or $(SCALE),1)

mutate: setup ## Break the code on purpose, one place at a time, and see that a test notices each.
	$(BIN)/python -m tests.mutation.run --all

# An environment of its own: tests do not need MkDocs.
$(SITE)/.ready: constraints/docs.txt
	$(PYTHON) -m venv --clear $(SITE)
	$(SITE)/bin/python -m pip install --quiet --require-hashes -r constraints/docs.txt
	@touch $@

docs: $(SITE)/.ready ## Build the documentation site into build/site, and say how to read it; a broken link fails.
	NO_MKDOCS_2_WARNING=1 $(SITE)/bin/python -m mkdocs build --quiet --strict
	@echo 'Built. To read it, type the next line and open http://127.0.0.1:8000 in a browser:'
	@echo '  $(PYTHON) -m http.server 8000 --bind 127.0.0.1 --directory build/site'

# Pins that still fit are kept; `make lock UPGRADE=--upgrade` takes the newest of each.
COMPILE = "$$tool"/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--annotation-style line --custom-compile-command 'make lock' $(UPGRADE)

lock: ## Write constraints/ again from pyproject.toml: every dependency, exact and by hash.
	@set -e; tool=$$(mktemp -d); trap 'rm -rf "$$tool"' EXIT; \
	$(PYTHON) -m venv "$$tool"; "$$tool"/bin/pip install --quiet uv; \
	$(COMPILE) -o constraints/runtime.txt pyproject.toml; \
	$(COMPILE) -o constraints/dev.txt --group dev --all-extras -c constraints/runtime.txt pyproject.toml; \
	$(COMPILE) -o constraints/build.txt --group build -c constraints/dev.txt; \
	$(COMPILE) -o constraints/all.txt --all-extras -c constraints/dev.txt pyproject.toml; \
	$(COMPILE) -o constraints/docs.txt --group docs

clean: ## Remove the environment, caches and build results.
	rm -rf $(VENV) .cache build dist .pytest_cache .hypothesis .mypy_cache .ruff_cache .import_linter_cache
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
