# make            lists the targets
# make depth      the whole way from nothing to a degradation figure
# make test       the test suite
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
STUDY ?= results/depth

.PHONY: help install depth smoke report figures lint format test test-slow test-faults bench clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort | awk -F '\t' '{printf "  make %-11s  %s\n", $$1, $$2}'

install: $(STAMP)  ## create .venv and install plainres in it (does nothing when nothing changed)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "plainres needs Python >= 3.11; name one with: make PYTHON=/path/to/python3.11"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV): a few minutes the first time (PyTorch is large)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

depth: install  ## run the default study (40 runs, about 3 minutes on 2 cores) and draw its figures
	$(BIN)/python -m run +sweep=depth

smoke: install  ## run every stage once, in under 20 seconds
	$(BIN)/python -m run +sweep=smoke

report: install  ## write tables and figures of a finished study anew from its files (STUDY=results/depth)
	$(BIN)/plainres report $(STUDY)

figures: install  ## redraw every published figure from its CSV: results/published is all that it reads
	$(BIN)/python scripts/redraw.py

lint: install  ## ruff and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: install  ## let ruff format and fix what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test: install  ## the default test suite (under 5 minutes on 2 cores)
	$(BIN)/python -m pytest -n auto

test-slow: install  ## what the default suite leaves out: packaging, a sample of the fault injection
	$(BIN)/python -m pytest -m slow -n auto

test-faults: install  ## the long fault injection: 50 kills of a sweep, a full disk at every write (docs/reliability.md)
	$(BIN)/python -m pytest -m faults --durations=0

bench: install  ## speed beside what one would write by hand, as ratios with targets (8 minutes)
	$(BIN)/python benchmarks/bench.py

clean:  ## delete caches and builds; never results
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
