# A Python with venv and pip, and the package index, is all that these need. PYTHON=python3.13 chooses another Python,
# DJANGO=5.2 another Django than the newest, DJANGO=oldest the oldest versions of all that we depend on.

PYTHON ?= python3
VENV := .venv/$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')$(addprefix -django-,$(DJANGO))
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

# SECONDS is a variable that bash makes up by itself: only one that was given to make is meant.
ifeq ($(origin SECONDS),command line)
DEMO_OPTIONS := --seconds $(SECONDS)
endif

# What pip is told beside our own requirements. Django 5.2 needs the extra that has its tasks framework.
ifeq ($(DJANGO),oldest)
CHOICE = --constraint $(VENV)/oldest.txt
else ifeq ($(DJANGO),5.2)
CHOICE = --editable '.[django52]'
else ifneq ($(DJANGO),)
CHOICE = 'Django~=$(DJANGO).0'
endif

# Many tests wait for processes of their own, so that more run side by side than there are cores.
PROCESSES ?= 4

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-matrix check format clean

help: ## what one can do here
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(INSTALLED) ## a virtual environment with everything in it, for PYTHON=python3 and DJANGO=the newest

demo: $(INSTALLED) ## the example: leader, workers and admin, until Ctrl-C, or for SECONDS=30
	@$(BIN)/python manage.py demo $(DEMO_OPTIONS)

test: $(INSTALLED) ## the tests, four side by side; ARGS="-k word" for some of them, PROCESSES=0 for one after the other
	@$(BIN)/python -m pytest -n $(PROCESSES) --dist worksteal $(ARGS)

test-matrix: ## the tests on each supported pair of Python and Django found here; PAIRS="3.12+6.0 3.11+oldest", QUICK=1
	@tools/matrix

check: $(INSTALLED) ## style, types, imports, migrations, system checks
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python manage.py makemigrations --check --dry-run
	$(BIN)/python manage.py check

format: $(INSTALLED) ## lay the code out, and mend what ruff can
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

clean: ## remove the virtual environments, the private databases and all caches
	@for link in .postgres/pg* .postgres-test/pg*; do \
		if [ -L "$$link" ]; then rm -rf "$$(readlink "$$link")"; rmdir "$$(dirname "$$(readlink "$$link")")" 2>/dev/null || :; fi; \
	done
	rm -rf .venv .demo .postgres .postgres-test build dist *.egg-info
	rm -rf .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +

$(INSTALLED): pyproject.toml
	@echo "Installing into $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(PYTHON) tools/oldest >$(VENV)/oldest.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]' $(CHOICE)
	@touch $@
