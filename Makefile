# `make test` and `make demo` do everything, set-up included; they need python3 (3.11 or newer) with venv and pip.
# `make quick` is for the edit loop: it leaves out the slow tests and most examples of property tests.
PYTHON ?= python3
WORKERS ?= 2
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Numba does not notice that a kernel called from another file has changed, so its cache is kept per state of all kernels.
KERNELS := $(shell find src -path '*_kernels*.py' | sort | xargs cat | cksum | cut -d ' ' -f 1)
export NUMBA_CACHE_DIR := $(CURDIR)/.numba_cache/$(KERNELS)
# Tests start many processes, each of which would compile all sources anew.
unexport PYTHONDONTWRITEBYTECODE

# The tests of a file stay together: they share fixtures, and none of them is surprised by another file's. One that hangs ends its process.
# Files come in the order of tests/conftest.py, the longest first, not those with the most tests first.
PYTEST = $(BIN)/pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder --max-worker-restart 0

.PHONY: test quick demo lint types unit package lock docs pictures graph walk bench nightly format clean

test: lint types unit

demo: $(STAMP)
	$(BIN)/ranktrial demo

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python tools/import_graph.py --check

types: $(STAMP)
	$(BIN)/mypy

unit: $(STAMP)
	$(PYTEST)

quick: $(STAMP)
	$(PYTEST) -m 'not slow' --hypothesis-profile quick

# Wheel and sdist, tried in an empty environment.
package: $(STAMP)
	$(BIN)/python tools/try_package.py

# The newest versions of everything, as pip finds them now, with hashes of all their files, for the installs that follow.
lock:
	rm -rf $(VENV)-lock && $(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/python -m pip install --quiet --upgrade pip
	$(VENV)-lock/bin/python -m pip install --quiet --editable '.[dev]'
	$(VENV)-lock/bin/python tools/lock.py
	rm -rf $(VENV)-lock

# The site in docs/_build/html, with reference pages from the code itself; a warning is an error.
docs: $(STAMP)
	$(BIN)/sphinx-build --fail-on-warning --keep-going --fresh-env --quiet docs docs/_build/html

# Goes through the tutorial and takes its pictures; needs Chromium.
pictures: $(STAMP)
	$(BIN)/python tools/pictures.py

graph: $(STAMP)
	$(BIN)/python tools/import_graph.py

walk: $(STAMP)
	$(BIN)/python tools/walk.py

bench: $(STAMP)
	$(BIN)/python -m benchmarks

# Kills, faults, generated requests and a soak, for an hour and a half on an idle machine; writes docs/research/nightly.md. Not for CI.
nightly: $(STAMP)
	$(BIN)/python tools/nightly.py

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .numba_cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache docs/_build

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --require-hashes --requirement constraints.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable '.[dev]'
	touch $@
