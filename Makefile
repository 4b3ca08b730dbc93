# halfseen: `make help` lists what can be made.

SHELL := bash
PYTHON ?= python3
VENV ?= .venv
WORKERS ?= 2
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
SOURCES := src papers tests docs examples tools conftest.py $(wildcard benchmarks)

.DEFAULT_GOAL := help
.PHONY: help venv demo reproduce test test-slow test-laws check format bench bench-peers tables screenshots docs release clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: $(INSTALLED)  ## make .venv with everything for development (PYTHON=python3.12 chooses another python)

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and f"halfseen needs Python 3.11 or newer, {sys.executable} is {v[0]}.{v[1]}: make venv PYTHON=...")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: venv  ## impute the bundled penguins table: a completed file and a report in demo/
	@mkdir -p demo
	$(BIN)/halfseen impute src/halfseen/data/samples/penguins.csv -o demo/penguins.imputed.csv \
	  --seed 0 --report demo/penguins.report.html --overwrite
	@echo "completed table: $(CURDIR)/demo/penguins.imputed.csv"
	@echo "report:          $(CURDIR)/demo/penguins.report.html"

# Two workers with one thread each: more threads than cores would only make them wait for each other. A worker
# begins with half of the tests in their order, so that most of what tests share is made once.
test test-slow: export OMP_NUM_THREADS = 1
unexport PYTHONDONTWRITEBYTECODE  # or each process would compile the tests again
test test-slow test-laws: export TIMEFORMAT = %0lR elapsed, %0lU of processor time
PYTEST := time $(BIN)/pytest -n $(WORKERS) --dist worksteal

test: check  ## all checks, then the tests and doctests (not the slow ones)
	$(PYTEST) --durations=10

test-slow: venv  ## the tests marked slow
	$(PYTEST) -m slow --durations=10

# The checks of scikit-learn do not depend on instructions: they run for representatives of each family with one
# thread (`test`), and for every class with two.
test-laws: venv  ## the conformance laws on the instructions of other processors, with one thread and with two
	export ATEN_CPU_CAPABILITY=default OMP_NUM_THREADS=1; $(PYTEST) -m laws -k "not scikit_learn" tests/conformance
	export ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2 OMP_NUM_THREADS=2; $(PYTEST) -m laws tests/conformance

check: venv  ## lint, format, types, layers, spelling; changes nothing
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell $(SOURCES) README.md CONTRIBUTING.md CHANGELOG.md changelog.d

format: venv  ## let ruff mend what it can
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

reproduce: venv  ## run the experiment of a paper again: make reproduce NAME=neumiss SCALE=small (no NAME lists all)
	$(BIN)/python -m papers $(NAME) --scale $(or $(SCALE),smoke)

bench: venv  ## run every benchmark: cost and accuracy beside scikit-learn's
	@set -e; for file in $(filter-out benchmarks/harness.py,$(wildcard benchmarks/*.py)); do \
	  echo "== $$file"; $(BIN)/python $$file; \
	done

bench-peers: venv  ## compare with other tools, each in its own environment (.venv-peers; SCALE=smoke, small or large)
	$(BIN)/python benchmarks/peers/peers.py --scale $(or $(SCALE),small)

tables: venv  ## write tables of stored results into README and the guides
	$(BIN)/python docs/fill_tables.py

screenshots: venv  ## write the pictures of reports and examples that the docs show (needs chromium)
	$(BIN)/python docs/report_screenshots.py
	$(BIN)/python docs/example_pictures.py

docs: venv  ## build the documentation; a warning is an error
	@rm -rf docs/api/generated  # pages of names that are gone
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html
	@echo "documentation: $(CURDIR)/docs/_build/html/index.html"

release:  ## gather the changelog, build wheel and sdist, check them in fresh environments (nothing is uploaded)
	$(PYTHON) tools/release.py $(OPTIONS)

clean:  ## remove what the other targets made, .venv apart
	rm -rf demo build dist docs/_build docs/gallery docs/api/generated docs/sg_execution_times.rst
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src papers tests docs examples -name __pycache__ -prune -exec rm -rf {} +
