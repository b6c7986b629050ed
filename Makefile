# Everything below runs without questions in a fresh clone; it needs Python 3.11 or newer with venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Twice quiet: errors only.
PIP := $(BIN)/python -m pip --quiet --quiet --disable-pip-version-check
TORCH := $(shell grep '^torch==' constraints.txt)

.DEFAULT_GOAL := help
.PHONY: help demo test check lint types layers bench notebooks clean

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "%-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/demo.stamp  ## Query and train on a small data set made on the spot
	$(BIN)/daft-twinwds demo

test: $(VENV)/dev.stamp  ## Run the tests and the notebooks, and hold coverage above its floor
	@$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n 2 -m 'not ray' --nbmake tests notebooks
	$(BIN)/coverage run -m pytest -m ray tests/ray
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report

check: lint types layers test  ## All that CI does

lint: $(VENV)/dev.stamp  ## Check style and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/dev.stamp  ## Check types
	$(BIN)/mypy

layers: $(VENV)/dev.stamp  ## Check that lower rooms never import upper ones
	$(BIN)/lint-imports

bench: $(VENV)/dev.stamp  ## Run the benchmarks and print their numbers
	set -e; for script in benchmarks/bench_*.py; do $(BIN)/python $$script; done

notebooks: $(VENV)/dev.stamp  ## Execute the notebooks and keep their outputs
	$(BIN)/pytest --nbmake --overwrite notebooks

clean:  ## Remove the environment, caches and coverage data
	rm -rf $(VENV) .coverage .coverage.* .hypothesis .*_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# torch comes first and exactly: left to the resolver, another build of it may be chosen.
$(VENV)/demo.stamp: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) install '$(TORCH)'
	$(PIP) install -e '.[train]' -c constraints.txt
	@touch $@

$(VENV)/dev.stamp: $(VENV)/demo.stamp
	$(PIP) install -e '.[train,notebooks,dev]' -c constraints.txt
	@touch $@
