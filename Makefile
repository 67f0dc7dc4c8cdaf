# Everything a fresh machine needs is `python3` (3.11 or newer) and `make`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
CONTRACTS := $(patsubst %,tests/contracts/test_%.py,own_rows silence endings paid people) tests/records/test_sources.py tests/test_walk.py
UV     := $(shell command -v uv 2>/dev/null)
PIP    := $(if $(UV),$(UV) pip install --python $(BIN)/python,$(BIN)/python -m pip install) --quiet -c constraints.txt

.PHONY: help demo docs gallery test contracts quick spark nightly test-oldest check format lint spelling types imports tests coverage walk clean bench-foundation bench-speed check-speed audit tools attest attest-full
.DEFAULT_GOAL := help

help:                ## list the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-18s %s\n", $$1, $$2}'

$(READY): pyproject.toml constraints.txt
ifdef UV
	$(UV) venv --quiet --allow-existing --python $(PYTHON) $(VENV)
else
	$(PYTHON) -m venv $(VENV)
endif
	$(PIP) -e '.[dev]'
	@touch $(READY)

demo: $(READY)       ## train private models on a synthetic cohort and show what it costs
	$(BIN)/discreet demo

test: $(READY)       ## run the tests (a few cases of each) and the documentation's examples
	$(BIN)/python -m pytest -q -n 2

contracts: $(READY)  ## every case of the attacks, and of the checks that run over everything registered
	$(BIN)/python -m pytest -q -n 2 --every-case -m "not nightly" tests/attacks $(CONTRACTS)

quick: $(READY)       ## the first case of every test that takes a moment, in a minute, for the inner loop
	$(BIN)/python -m pytest -q -n 2 --quick tests

spark: $(READY)      ## where Java is found, install PySpark and kill processes of Spark and Dask in their fits
	command -v java >/dev/null && $(PIP) -e '.[spark]' || true
	$(BIN)/python -m pytest -q --every-case tests/records/test_spark.py tests/records/test_spark_cluster.py tests/records/test_faults.py

nightly: spark        ## every case of every test (an hour or more)
	$(BIN)/python -m pytest -q -n 2 --every-case

check: format lint spelling types imports docs tests  ## format, lint, spelling, strict types, import contract, documentation, tests, doctests

format: $(READY)
	$(BIN)/ruff format --check .

lint: $(READY)
	$(BIN)/ruff check .

spelling: $(READY)
	$(BIN)/codespell

types: $(READY)
	$(BIN)/mypy

imports: $(READY)
	$(BIN)/lint-imports --no-cache

docs: $(READY)       ## build the documentation site into build/site, warnings as errors
	$(BIN)/python -m sphinx -q -W --keep-going -d build/doctrees docs build/site

tests: test

gallery: $(READY)    ## run the gallery's scripts and store their pages and pictures (a quarter of an hour)
	OPENBLAS_NUM_THREADS=1 NUMBA_NUM_THREADS=1 $(BIN)/python docs/_ext/gallery.py

coverage: $(READY)   ## run the tests with branch coverage; fails below the floor in pyproject.toml
	$(BIN)/python -m pytest -q -n 2 --cov --cov-report=term:skip-covered

walk: $(READY)       ## trace five calls: functions, files, changes of file
	$(BIN)/python -m benchmarks.walk

test-oldest:         ## run the scikit-learn contract on the oldest supported scikit-learn
	$(PYTHON) -m venv $(VENV)-oldest
	$(VENV)-oldest/bin/python -m pip install --quiet scikit-learn==1.6.0 -e '.[dev]'
	$(VENV)-oldest/bin/python -m pytest -q -n 2 tests/estimators/test_sklearn.py tests/estimators

bench-foundation: $(READY)  ## measure accuracy, speed, noise and ledger against the foundation's targets
	$(BIN)/python -m benchmarks.foundation

bench-speed: $(READY)  ## measure passes, steps, memory, start-up, growth with sizes and workers (about a quarter of an hour)
	$(BIN)/python -m benchmarks.speed
	$(BIN)/python -m benchmarks.scale workers

check-speed: $(READY)  ## count instructions on fixed inputs; fails when 30% above the baseline
	$(BIN)/python -m benchmarks.check_speed

audit: $(READY)      ## replay and attack everything shipped, and its half-noise twins (under an hour)
	OPENBLAS_NUM_THREADS=1 NUMBA_NUM_THREADS=1 $(BIN)/python -W ignore -m benchmarks.audit --write --jobs 2

tools: $(READY)      ## install the tools of others that an attestation asks (without them their rows say so)
	-$(PIP) -e '.[attest]'

attest: tools        ## recompute every claim and write build/attestation (under an hour on two cores)
	OPENBLAS_NUM_THREADS=1 NUMBA_NUM_THREADS=1 $(BIN)/python -W ignore -m benchmarks.attest --jobs 2

attest-full: tools   ## the same with every attack and ten thousand kills (overnight)
	OPENBLAS_NUM_THREADS=1 NUMBA_NUM_THREADS=1 $(BIN)/python -W ignore -m benchmarks.attest --jobs 2 --full

clean:               ## remove the environment and caches
	rm -rf $(VENV) $(VENV)-oldest .mypy_cache .ruff_cache .pytest_cache
