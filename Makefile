# Every target sets up what it needs in .venv and can be called on a fresh clone.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
SETUP := .venv/.ready

.PHONY: demo test lint docs bench clean setup
.DEFAULT_GOAL := test

$(SETUP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt hatchling editables
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt --no-build-isolation -e '.[test,lint,docs]'
	touch $@

setup: $(SETUP)

demo: $(SETUP)
	$(BIN)/onesigma demo --out runs/demo

test: $(SETUP)
	$(BIN)/python -m pytest -n 2 -q

lint: $(SETUP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(SETUP)
	$(BIN)/mkdocs build --strict -q

bench: $(SETUP)
	$(BIN)/python benchmarks/run.py

clean:
	rm -rf .venv site .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
