# `make demo` and `make test` are all a fresh machine needs: each sets up its own environment in .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt
# small tensors gain nothing from many threads, and parallel tests lose by them
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1
# each process begins with half of the tests, in their order, so that what a file sets up is set up once
TESTS := -m pytest -n 2 --dist worksteal

# real data for the tests that use it; they skip where there is none
export KINFOLD_TEST_DATA ?= $(abspath $(wildcard ../shared/data))

.PHONY: demo check test test-all test-integrations coverage mutate package lint docs bench bench-evaluate bench-evaluate-classes bench-data \
	bench-training bench-gpu bench-every-loss clean

demo: $(VENV)/core
	$(BIN)/kinfold demo --out results/demo

test: lint
	$(ONE_THREAD) $(BIN)/python $(TESTS) -m "not slow and not integration"

# while you work: lint, types, the contract tests and the tests of the files that differ from main
check: lint
	$(ONE_THREAD) $(BIN)/python $(TESTS) -m "not slow and not integration" $$($(BIN)/python -m tools.changed_tests)

test-all: lint
	$(ONE_THREAD) $(BIN)/python $(TESTS) -m "not integration"

# with the packages of other projects, such as vector databases and training frameworks
test-integrations: $(VENV)/integrations
	$(ONE_THREAD) $(BIN)/python $(TESTS) -m integration

# the tests of `make test`, line by line, in every process that they start; they take about half as long again
coverage: export COVERAGE_FILE = $(abspath $(VENV))/coverage/lines
coverage: $(VENV)/test
	rm -rf $(VENV)/coverage && mkdir $(VENV)/coverage
	$(ONE_THREAD) $(BIN)/coverage run $(TESTS) -m "not slow and not integration"
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

# single lines changed one at a time, and whether the tests notice
mutate: $(VENV)/test
	$(ONE_THREAD) $(BIN)/python -m tools.mutate

# as it would be published: built, installed where nothing else is, used
package: $(VENV)/test
	$(BIN)/python tools/check_package.py --extras

lint: $(VENV)/test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: $(VENV)/docs
	$(BIN)/mkdocs build --strict

bench: $(VENV)/test
	$(BIN)/python -m benchmarks.losses

bench-evaluate: $(VENV)/test
	$(BIN)/python -m benchmarks.evaluate

bench-evaluate-classes: $(VENV)/test
	$(BIN)/python -m benchmarks.evaluate_classes

bench-data: $(VENV)/test
	$(BIN)/python -m benchmarks.data

bench-training: $(VENV)/test
	$(BIN)/python -m benchmarks.training

# correctness, time and memory on a GPU, about 15 minutes; results/gpu/gpu.json is what to send back
bench-gpu: $(VENV)/test
	$(BIN)/python -m benchmarks.gpu $(GPU)
	$(BIN)/python -m benchmarks.gpu_page results/gpu

# make bench-every-loss DATA="features:cub=FEATURES.npz glyphs images:cub=PHOTOS"
bench-every-loss: $(VENV)/test
	$(BIN)/python -m benchmarks.every_loss $(DATA)

$(VENV)/core: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable ".[glyphs,report]"
	touch $@

$(VENV)/test: $(VENV)/core
	$(PIP) --editable ".[test]"
	touch $@

$(VENV)/integrations: $(VENV)/test
	$(PIP) --editable ".[integrations]"
	touch $@

$(VENV)/docs: $(VENV)/core
	$(PIP) --editable ".[docs]"
	touch $@

clean:
	rm -rf $(VENV) site results .mypy_cache .pytest_cache .ruff_cache .hypothesis
