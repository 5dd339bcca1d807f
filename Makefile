# make demo, make test: both create .venv first. PYTHON picks the interpreter (3.10 or newer).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: venv demo docs test test-unit unit-1 unit-2 unit-3 test-page test-core test-all test-gpu test-rtx tests tests-all lint types check dist changelog clean

venv: $(VENV)/.ok

PYTHON_IS_NEW = @$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	{ echo "edgescope needs Python 3.10 or newer, and '$(PYTHON)' is none. Name one: make PYTHON=python3.12"; exit 1; }

# Each text in quotes is what one `pip install` gets; uv does it where it can be had.
$(VENV)/.ok: pyproject.toml constraints.txt samples.txt
	$(PYTHON_IS_NEW)
	$(PYTHON) tools/environment.py $(VENV) "-e .[dev] -c constraints.txt" "--no-deps -r samples.txt"
	touch $@

demo: venv
	$(BIN)/edgescope demo

# The site: build/site/index.html, which a browser opens as a file. Its own environment needs no engine.
DOCS := build/env
docs: $(DOCS)/.ok
	$(DOCS)/bin/python website/sources.py build/docs
	$(DOCS)/bin/zensical build --strict --clean

$(DOCS)/.ok: pyproject.toml
	$(PYTHON_IS_NEW)
	$(PYTHON) tools/environment.py $(DOCS) "-e .[docs]"
	touch $@

lint: venv
	$(BIN)/ruff format --check src tests benchmarks examples tools website
	$(BIN)/ruff check src tests benchmarks examples tools website

types: venv
	$(BIN)/mypy

# Types are checked beside the tests, which wait now and then; four workers keep two cores busy. `make test` leaves out
# what is marked slow (real trainings, builds and runs of a third of a second of CPU and more): a tenth of the tests takes
# most of the time. Property tests draw 30 examples. Every engine, verb and kind of process has a test that is not slow.
# `make test-all` runs everything.
test: lint
	$(MAKE) --no-print-directory --keep-going --jobs 2 types tests

test-all: lint
	$(MAKE) --no-print-directory --keep-going --jobs 2 types tests-all

# Both halves always run: a failure in one must not hide what the other would have found. A test that fails runs once
# more: many measure real processes, and a neighbour on a shared machine disturbs one now and then. The summary names it,
# $(RERAN) keeps it, and too many in both halves fail the run (tests/reruns.py). With "=", since pytest takes a path that
# exists for tests until it knows the option.
RERAN := .pytest_cache/passed-only-when-rerun
TEST := -m pytest --reruns 1 --reran=$(RERAN) -r fER
# The C library keeps freed memory (a quarter of a gigabyte a process), as where artifacts are built (isolate/fresh.py).
tests tests-all test-unit: export MALLOC_MMAP_MAX_ = 0
tests tests-all test-unit: export MALLOC_TRIM_THRESHOLD_ = 268435456
# The workers share two cores: a thread of PyTorch that spins while it waits takes the time of one that computes.
tests tests-all test-unit: export OMP_WAIT_POLICY = PASSIVE
tests: FAST := and not slow
tests tests-all: $(VENV)/.compiled
	status=0; rm -f $(RERAN); \
	$(BIN)/python $(TEST) -n 4 --dist worksteal -m "not alone and not gpu and not jetson and not page $(FAST)" || status=1; \
	$(BIN)/python $(TEST) -m "alone and not gpu and not jetson and not page $(FAST)" || status=1; \
	exit $$status

# What to run while you write: no test that starts a process, runs a real network or codec, takes long or must be alone.
# A process is denied to the rest. tests/field and tests/project ask of the whole: files of other programs through the
# command line, pages, scripts. Three processes share the files and two cores, so that one works while another waits, and
# know nothing of each other (tests/parting.py); each prints when it is through. Their files are parted by the seconds
# that each took the last time, and plug-ins of pytest that no test uses stay out: each is asked a dozen times about each
# test.
SPENT := .pytest_cache/spent
BARE := $(addprefix -p no:,anyio legacypath doctest junitxml stepwise pastebin setuponly setupplan xdist rerunfailures)
UNIT := not process and not network and not codec and not slow and not alone and not gpu and not jetson and not page
test-unit: $(VENV)/.compiled
	$(BIN)/python tests/parting.py $(SPENT)
	$(MAKE) --no-print-directory --keep-going --output-sync=target --jobs 3 unit-1 unit-2 unit-3

unit-1 unit-2 unit-3:
	$(BIN)/python -m pytest --part $(@:unit-%=%)/3 --spent=$(SPENT) $(BARE) -o cache_dir=.pytest_cache/$@ \
		--ignore=tests/field --ignore=tests/project -m "$(UNIT)"

# Several workers would compile the same files at the same time, a minute each: one reads all tests before them, once.
# uv compiles nothing that it installs, and pytest writes the tests with their asserts in words.
$(VENV)/.compiled: $(VENV)/.ok
	$(BIN)/python -m pytest --collect-only -q > /dev/null
	touch $@

# The whole suite of the core on a copy of this tree without the wings: nothing there may need one.
test-core: venv
	$(BIN)/python tools/core.py build/core
	cd build/core && PYTHONPATH=$(CURDIR)/build/core/src ../../$(BIN)/python -m pytest -n 4 --dist worksteal -m "not alone and not gpu and not jetson and not page"

# The pages in a real browser: Chromium on PATH, else they are skipped. `make docs` first has it look at the site, too.
test-page: venv
	$(BIN)/python -m pip install -q -e '.[page]'
	$(BIN)/python -m pytest -r s -m page

# The tests marked gpu, on a machine that has one; GPU_PYTHON is an interpreter with the dev packages and a torch that drives it.
GPU_PYTHON ?= $(BIN)/python
test-gpu: $(if $(filter $(BIN)/python,$(GPU_PYTHON)),venv)
	PYTHONPATH=src $(GPU_PYTHON) benchmarks/gpu_suite.py

# The real TensorRT-RTX, which builds without a GPU: every network of the zoo in every precision, then the tests marked rtx.
# It is proprietary: who runs this accepts NVIDIA's licence. The first time exports and quantises every network, the rest
# is some minutes; writes published/rtx_builds.json with the commit.
test-rtx: venv
	$(BIN)/python -m pip install -q -e '.[rtx]'
	$(BIN)/python benchmarks/rtx_builds.py

check: test

# Wheel and sdist in dist/, then tried as a stranger would: contents, metadata, installed bare in an empty environment.
dist: venv
	rm -rf dist
	$(BIN)/python -m build
	DIST=dist $(BIN)/python -m pytest tests/project/test_dist.py

# What the next release's section would say; with VERSION=0.2.0 it is written into CHANGELOG.md and changes/ is emptied.
changelog: venv
	$(BIN)/towncrier build $(if $(VERSION),--yes --version $(VERSION),--draft --version next)

clean:
	rm -rf $(VENV) build edgescope-results edgescope-report.html
