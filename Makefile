# Every target works in a fresh clone that has Python, make and pip, and nothing else: the
# environment is made by whichever target is asked for first.

PYTHON ?= python3
VENV ?= .venv
# Further arguments for pytest, as in: make test ARGS="-k neighbors -x".
ARGS ?=
CORE := lpe_dask tests/core
FULL := tests/full tests/system
TOOLS := docs/paper tests/benchmarks tests/chaos tests/tools
IN_MINUTES := not slow and not lifetimes

BIN := $(VENV)/bin
# Two processes, each with whole files: tests of one file share a cluster. In the order of their
# names: otherwise the files of few tests, some of which are long, would come last. A process that
# dies is not replaced: xdist 3.8 would wait for ever for its files (pytest-xdist issue 1378).
PYTEST := python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --max-worker-restart 0
INSTALLED := $(VENV)/.installed
READY := $(VENV)/.ready
SITE := $(VENV)/.site
SITE_MADE := docs/gallery docs/reference/backreferences docs/reference/generated

OLDEST ?= .venv-oldest
OLDEST_PYTHON ?= $(shell sed -n 's/^requires-python = ">=\(.*\)"/python\1/p' pyproject.toml)

# What the machine has installed must not stand in for a dependency we forgot to declare.
unexport PYTHONPATH PYTHONHOME
export PYTHONNOUSERSITE := 1
# Tests start a hundred processes: each would compile the package and the tests anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-full test-tools test-thorough test-oldest test-pythons lifetimes chaos coverage \
	lint docs docs-check bench finding paper false-alarms promises faults soak clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1: /p' $(firstword $(MAKEFILE_LIST))

# Installs what a user needs, and nothing to test or to lint with.
demo: $(INSTALLED) ## find anomalies in a real table, in some seconds
	rm -rf build/demo
	$(BIN)/lpe-dask demo --output build/demo

# Two processes on two cores: threads of BLAS that wait for work would only slow the other.
test test-full test-tools test-oldest: export OPENBLAS_NUM_THREADS := 1
test: $(READY) ## run some cases of each promise, on two cores, in some minutes
	$(BIN)/$(PYTEST) $(CORE) $(ARGS)

test-full: $(READY) ## run the cases that make test leaves out: products, clusters, commands
	$(BIN)/$(PYTEST) -m "$(IN_MINUTES)" $(FULL) $(ARGS)
	$(BIN)/$(PYTEST) -m "full and $(IN_MINUTES)" $(CORE) $(ARGS)

test-tools: $(READY) ## run the tests of benchmarks, chaos, recipes and the paper's experiments
	$(BIN)/$(PYTEST) -m "$(IN_MINUTES)" $(TOOLS) $(ARGS)

# Hours; make test-thorough TESTS=tests/core/search runs a part.
test-thorough: TESTS := $(CORE) $(FULL) $(TOOLS)
test-thorough: $(READY) ## run all tests, the slow ones too, with more examples of each property
	$(BIN)/$(PYTEST) -m "not lifetimes" --hypothesis-profile thorough --timeout 3600 $(TESTS) $(ARGS)

test-oldest: $(OLDEST)/.ready ## run test and test-full with the oldest Python and dependencies
	$(OLDEST)/bin/$(PYTEST) -m "$(IN_MINUTES)" $(CORE) $(FULL) $(ARGS)

# Those on PATH, or in the folder of pyenv. For all tests with one of them: make clean, and then
# make test PYTHON=python3.13.
test-pythons: $(READY) ## install the package with each Python that is at hand, and try it
	$(BIN)/python -m pytest -m "not lifetimes" tests/tools/test_package.py $(ARGS)

lifetimes: $(READY) ## lose workers in every way there is, for an hour
	$(BIN)/python -m pytest -m lifetimes --timeout 3600 tests/system $(ARGS)

# An hour for all of it; ARGS="--runs 5" does fewer. docs/explanation/reliability.md names the faults. Some
# need nftables and iproute2; nothing needs root.
chaos: $(READY) ## do faults to a cluster while a job runs on it, and check what comes out
	PYTHONPATH=tests $(BIN)/python -m chaos $(ARGS)

# An empty cache of compiled code, because code that builds kernels runs only to fill it.
coverage: $(READY) ## run the tests and demand that every line ran
	cache=$$(mktemp -d) && trap 'rm -rf "$$cache"' EXIT && \
	NUMBA_CACHE_DIR="$$cache" $(BIN)/python -m pytest --cov \
	-m "$(IN_MINUTES)" $(CORE) $(FULL) $(ARGS)

# Half an hour for all of it; make bench ARGS="--list" names the parts, ARGS="--only 'gauss*'" one.
bench: $(READY) ## time the library beside its peers
	$(BIN)/python -m pip install --quiet --editable ".[bench]"
	PYTHONPATH=tests $(BIN)/python -m benchmarks $(ARGS)

# Some minutes; ARGS="--only cardio" reads one table. Others (.npz) beside them are read as well.
finding: $(READY) ## find anomalies in public tables, beside other libraries
	$(BIN)/python -m pip install --quiet --editable ".[bench]"
	PYTHONPATH=tests $(BIN)/python -m benchmarks.finding $(ARGS)

# The data come from OpenML, or with make paper ARGS="--data FOLDER" from files. Some minutes.
paper: $(READY) ## repeat the paper's experiments and write docs/explanation/paper.md from them
	PYTHONPATH=docs $(BIN)/python -m paper build/paper $(ARGS)
	cp build/paper/paper.md docs/explanation
	cp build/paper/paper.csv docs/paper

# Hours for all of it; ARGS="--rows 50,100 --draws 200000" does a part, or more often.
false-alarms: $(READY) ## simulate false alarms where scale or metric are learned
	mkdir -p build
	$(BIN)/python tests/false_alarms.py build/false-alarms.csv $(ARGS)

# Some minutes; ARGS="--sets 4000" draws more nominal sets.
promises: $(READY) ## simulate what is promised for one nominal set
	$(BIN)/python tests/promises.py $(ARGS)
	$(BIN)/python tests/shared_calibration.py $(ARGS)
	$(BIN)/python tests/bounded_alarms.py $(ARGS)

# An hour or two; ARGS="--seed 5 --count 100" draws others.
faults: $(READY) ## put faults into the package, and tell which of them the tests notice
	$(BIN)/python tests/mutations.py build/faults.csv $(ARGS)

# ARGS="--hours 2 --seed 7"; a failure prints what redoes it alone.
soak: $(READY) ## fit and score random tables in one process for an hour, against the definitions
	PYTHONPATH=tests $(BIN)/python tests/soak.py $(ARGS)

lint: $(READY) ## check format, style, types and the direction of imports
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Into build/site, without the network. What examples and API pages are made into is in docs, and
# is made anew: examples would not run again, and those of names that are gone break the build.
docs: $(SITE) ## build the site of the project, its examples too
	rm -rf build/site $(SITE_MADE)
	$(BIN)/python -m sphinx --fresh-env --fail-on-warning --keep-going --quiet -d build/doctrees docs build/site

docs-check: docs $(READY) ## check spelling, links, pages and all examples of the site
	$(BIN)/codespell README.md CONTRIBUTING.md CHANGELOG.md cluster docs jobs lpe_dask
	$(BIN)/$(PYTEST) -m "$(IN_MINUTES)" tests/docs tests/core/test_readme.py $(ARGS)

clean: ## remove the environment and everything that can be made again
	rm -rf $(VENV) $(OLDEST) build dist lpe_dask.egg-info .coverage .hypothesis
	rm -rf $(SITE_MADE)
	rm -rf .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find docs lpe_dask tests -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp comes last: an installation that broke off is tried again, and a change of the
# dependencies is installed before the next target runs.
$(INSTALLED): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(READY): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $@

$(SITE): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --editable ".[docs]"
	touch $@

# Every bound of pyproject.toml as the one version allowed: where bounds contradict each other,
# pip refuses, and does not quietly take a later version, as resolvers to the lowest one do.
$(OLDEST)/.ready: pyproject.toml
	$(OLDEST_PYTHON) -m venv --clear $(OLDEST)
	grep -oE '"[A-Za-z0-9-]+(\[[a-z0-9,]+\])?>=[0-9.]+"' pyproject.toml | tr -d '"' | \
		sed -E 's/(\[.*\])?>=/==/' > $(OLDEST)/bounds.txt
	PIP_CONSTRAINT=$(OLDEST)/bounds.txt \
		$(OLDEST)/bin/python -m pip install --quiet --editable ".[test]"
	touch $@
