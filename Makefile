# A Python with venv and pip, and the package index, is all that these need. PYTHON=python3.13 chooses another Python.

PYTHON ?= python3
VENV := .venv/$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

# SECONDS is a variable that bash makes up by itself: only one that was given to make is meant.
ifeq ($(origin SECONDS),command line)
DEMO_OPTIONS := --seconds $(SECONDS)
endif

.DEFAULT_GOAL := help
.PHONY: help venv demo test check clean

help: ## what one can do here
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(INSTALLED) ## a virtual environment for PYTHON (default python3) with everything installed

demo: $(INSTALLED) ## the example: leader, workers and admin, until Ctrl-C, or for SECONDS=30
	@$(BIN)/python manage.py demo $(DEMO_OPTIONS)

test: $(INSTALLED) ## the tests; ARGS="-k word" for some of them
	@$(BIN)/python -m pytest $(ARGS)

check: $(INSTALLED) ## style, types, imports, migrations, system checks
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python manage.py makemigrations --check --dry-run
	$(BIN)/python manage.py check

clean: ## remove the virtual environments, the private databases and all caches
	@for link in .postgres/pg* .postgres-test/pg*; do \
		if [ -L "$$link" ]; then rm -rf "$$(readlink "$$link")"; rmdir "$$(dirname "$$(readlink "$$link")")" 2>/dev/null; fi; \
	done
	rm -rf .venv .demo .postgres .postgres-test build dist *.egg-info
	rm -rf .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +

$(INSTALLED): pyproject.toml
	@echo "Installing into $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	@touch $@
