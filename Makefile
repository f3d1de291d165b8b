# `make demo` and `make test` set up a private environment on first use; `make check` is what CI runs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help demo test test-all check lint types setup results clean

help:
	@echo "make demo    set up, then optimise every shipped example on the device that is there"
	@echo "make test    set up, then run the tests"
	@echo "make test-all  the slow ones too: the whole corpus at every case"
	@echo "make check   set up, then what CI runs: ruff, mypy, pytest"
	@echo "make setup   the environment alone, in $(VENV)"
	@echo "make results write README's table again from benchmarks/results"

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt .ci/setup
	PYTHON="$(PYTHON)" .ci/setup $(VENV)
	touch $@

# Each file stays in one of several processes. One more of them than there are cores: a judge waits a lot, and three on
# two cores took 203 s for what two took 244.
PARALLEL = -n $$(($$(nproc) < 4 ? $$(nproc) + 1 : 4)) --dist loadfile

DEVICE = $$($(BIN)/python -c 'import torch; print("cuda:0" if torch.cuda.is_available() else "cpu")')

demo: setup
	$(BIN)/kernelwright demo --device "$(DEVICE)" $(DEMO)

test: setup
	$(BIN)/python -m pytest $(PARALLEL)

test-all: setup
	$(BIN)/python -m pytest -m ""

check: lint types test

lint: setup
	$(BIN)/ruff check src tests examples tasks benchmarks

types: setup
	$(BIN)/mypy

results: setup
	$(BIN)/python benchmarks/readme_table.py

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .mypy_cache
