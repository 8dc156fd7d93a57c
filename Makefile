# SPDX-License-Identifier: Apache-2.0
#
# make demo    the demonstration on real data        make test   all tests
# make setup   .venv with everything in it           make lint   ruff, mypy, C warnings, style
# make ext     rebuild the C extension in place      make docs   the documentation site
# make format  apply .clang-format to all C
# make lock    renew requirements.lock               make clean  remove what was built
# make release-check  build and check the wheels and the source archive (tools/release)

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.PHONY: setup ext test test-asan lint lint-python lint-types lint-c lint-prose format installed demo docs wheel lock clean

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
STAMPS := build/stamps
CC ?= cc
PYTEST_ARGS ?=

# ---- set-up --------------------------------------------------------------------------------------

setup: $(STAMPS)/editable $(STAMPS)/packages-tests

$(STAMPS)/packages-required: tools/ensure_packages.sh
	@mkdir -p $(STAMPS)
	@PYTHON="$(PYTHON)" tools/ensure_packages.sh required
	@touch $@

$(STAMPS)/packages-tests: tools/ensure_packages.sh
	@mkdir -p $(STAMPS)
	@PYTHON="$(PYTHON)" tools/ensure_packages.sh tests
	@touch $@

$(STAMPS)/lock: requirements.lock | $(STAMPS)/packages-required
	@test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV)
	@echo "installing the pinned requirements into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	    --require-hashes -r requirements.lock
	@touch $@

# Editable: Python files are used where they stand; the extension is built in place.
$(STAMPS)/editable: pyproject.toml setup.py $(STAMPS)/lock
	@echo "building the C extension and installing penstock (editable)"
	@flock $(STAMPS)/ext.lock $(BIN)/python -m pip install --quiet --disable-pip-version-check \
	    --no-deps --no-build-isolation --editable .
	@touch $@ $(STAMPS)/ext

# The extension follows its C sources.  The lock lets several people build in one tree.
C_FOLDERS := core/include $(wildcard core/src/*) $(wildcard sim/native/*) penstock/_bench/native
C_FILES := $(wildcard $(C_FOLDERS:%=%/*.[ch]) core/fast/*.[ch]) core/build_core.py setup.py

$(STAMPS)/ext: $(C_FILES) | $(STAMPS)/editable
	@flock $(STAMPS)/ext.lock $(BIN)/python setup.py --quiet build_ext --inplace
	@touch $@

ext: $(STAMPS)/ext

# ---- checks --------------------------------------------------------------------------------------

# tests/support/turns.py says how many workers there are, and who takes what; PYTEST_WORKERS=0 runs
# one test after another.
PYTEST_WORKERS ?= auto

test: setup ext
	$(BIN)/python -m pytest --numprocesses $(PYTEST_WORKERS) --no-loadscope-reorder \
	    $(PYTEST_ARGS)

# The loopback tests with an extension under address and undefined-behaviour sanitizers (the native
# tests have their own, and ThreadSanitizer).  Python is not instrumented: leaks are not looked for.
ASAN_LIB = $(CURDIR)/build/asan/lib.linux-$(shell uname -m)-cpython-311
ASAN_TESTS ?= tests/loopback/test_client.py tests/loopback/test_daemon.py

test-asan: setup
	@flock $(STAMPS)/ext.lock env PENSTOCK_BUILD=asan $(BIN)/python setup.py --quiet build \
	    --build-base build/asan
	PYTHONSAFEPATH=1 PYTHONPATH=$(ASAN_LIB) LD_PRELOAD=$$($(CC) -print-file-name=libasan.so) \
	    ASAN_OPTIONS=detect_leaks=0 $(BIN)/python -m pytest $(ASAN_TESTS)

lint: lint-python lint-types lint-c lint-prose

lint-prose: $(STAMPS)/lock
	@$(BIN)/python tools/prose.py
	@$(BIN)/python tools/check_commits.py

lint-python: $(STAMPS)/lock
	$(BIN)/ruff check .

# The package as a user has it, from its wheel: what mypy checks and the reference describes.
installed: $(STAMPS)/lock
	@rm -rf build/lint build/lib* build/bdist* && mkdir -p build/lint/dist
	@flock $(STAMPS)/ext.lock $(BIN)/python -m build --wheel --no-isolation \
	    --outdir build/lint/dist . >build/lint/build.log 2>&1 || { cat build/lint/build.log; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-compile \
	    --target build/lint/site build/lint/dist/*.whl

lint-types: installed
	cd build/lint && PYTHONPATH=site ../../$(BIN)/lint-imports --config ../../pyproject.toml \
	    --cache-dir ../../.import_linter_cache >imports.log || { cat imports.log; exit 1; }
	cd build/lint && MYPYPATH=site ../../$(BIN)/python -m mypy --config-file ../../pyproject.toml \
	    --cache-dir ../../.mypy_cache -p penstock
	cd build/lint && MYPYPATH=site ../../$(BIN)/python -m mypy --config-file ../../pyproject.toml \
	    --cache-dir ../../.mypy_cache ../../tests/typing/api.py

C_ALL = $(shell git ls-files --cached --others --exclude-standard '*.c' '*.h')

format: $(STAMPS)/lock
	@$(BIN)/clang-format -i $(C_ALL)

lint-c: $(STAMPS)/lock
	@$(BIN)/clang-format --dry-run --Werror $(C_ALL)
	@failed=0; for file in $(wildcard $(C_FOLDERS:%=%/*.c)); do \
	    $(CC) -std=gnu11 -O2 -UNDEBUG -Wall -Wextra -Werror -Wshadow -fsyntax-only \
	        $(C_FOLDERS:%=-I%) $$file || failed=1; \
	done; \
	for file in core/fast/*.c; do \
	    $(CC) -std=gnu11 -O2 -UNDEBUG -Wall -Wextra -Werror -Wshadow -fsyntax-only \
	        -DPy_LIMITED_API=0x030B0000 $(C_FOLDERS:%=-I%) \
	        -I$$($(PYTHON) -c 'import sysconfig; print(sysconfig.get_path("include"))') \
	        $$file || failed=1; \
	done; exit $$failed
	@echo "C: no warnings"

# ---- products ------------------------------------------------------------------------------------

# Installs what the demonstration needs; a tree that `make setup` has set up has all of it.
demo: $(if $(wildcard $(STAMPS)/editable),ext,$(STAMPS)/demo-ext) | $(STAMPS)/packages-demo
	@$(BIN)/python -m demo

$(STAMPS)/packages-demo: tools/ensure_packages.sh
	@mkdir -p $(STAMPS)
	@PYTHON="$(PYTHON)" tools/ensure_packages.sh demo
	@touch $@

$(STAMPS)/demo: requirements-demo.lock tools/demo_setup.sh | $(STAMPS)/packages-demo
	@PYTHON="$(PYTHON)" tools/demo_setup.sh $(VENV) build/downloads
	@touch $@ $(STAMPS)/demo-ext

$(STAMPS)/demo-ext: $(C_FILES) $(STAMPS)/demo
	@flock $(STAMPS)/ext.lock $(BIN)/python setup.py --quiet build_ext --inplace
	@touch $@

docs: installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

wheel: $(STAMPS)/lock
	$(BIN)/python -m build --no-isolation

# With the oldest Python there is (PYTHON=...): what it takes, later ones take too.
lock: $(STAMPS)/packages-required
	@test -x build/lock/bin/pip-compile || { "$(PYTHON)" -m venv build/lock && \
	    build/lock/bin/pip install --quiet pip-tools; }
	$(COMPILE) --extra arrow --extra spark --extra demo --extra plots --extra test --extra docs \
	    --output-file requirements.lock pyproject.toml
	$(COMPILE) --extra spark --extra demo --constraint requirements.lock \
	    --output-file requirements-demo.lock pyproject.toml
	$(COMPILE) --constraint requirements.lock \
	    --output-file tools/release/requirements.lock tools/release/requirements.in

COMPILE := build/lock/bin/pip-compile --quiet --allow-unsafe --generate-hashes --no-emit-index-url \
    --no-emit-options --no-annotate --no-header --strip-extras --all-build-deps

include bench/bench.mk
include capi/capi.mk
include tools/plots/plots.mk
include tools/release/release.mk

clean:
	rm -rf build dist *.egg-info site $(VENV) .mypy_cache .import_linter_cache .ruff_cache .pytest_cache .hypothesis
	rm -f penstock/_core*.so penstock/_fast*.so core/_core*.c penstock/_core*.c
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +

# ---- the simulator -------------------------------------------------------------------------------

.PHONY: soak mutants sim-coverage

SOAK_SEEDS ?= 10000
SOAK_START ?= 1
SOAK_PACES ?= 300
SOAK_SPARK_S ?= 1800
SOAK_CHAIN ?= 20000000,100,3600
GRID_SEED ?=
MUTANTS ?= 100
MUTANT_SEEDS ?= 1000
COVERAGE_SEEDS ?= 1000

# As many generated scenarios as asked; exit status 1 and the reproducing command when one fails.
# Then SOAK_PACES readers that change their pace under fc=nak, 10^8 picks of the sender's bands,
# publishers with credits that stop at each instruction, 10^8 messages on each of four overloaded
# streams, half an hour of a publisher that is faster
# than a Spark query, an hour of a chain of two queries whose processes die
# (SOAK_CHAIN=RECORDS,KILLS,SECONDS), and 40 cells of the nak grid on sockets (GRID_SEED=HEX;
# default: the commit).
soak: setup ext
	$(BIN)/penstock sim fuzz --seeds $(SOAK_SEEDS) --start $(SOAK_START) --histogram --keep-going \
	    --shrunk build/shrunk.toml
	PENSTOCK_PACE_SEEDS=$(SOAK_PACES) $(BIN)/python -m pytest -n0 tests/sim/test_paces.py
	$(MAKE) -s -C tests/native $(CURDIR)/build/native/release/test_bands \
	    $(CURDIR)/build/native/release/test_credit_kills \
	    $(CURDIR)/build/native/release/test_overload
	PS_BANDS_PICKS=100000000 build/native/release/test_bands
	PENSTOCK_STOPS=all build/native/release/test_credit_kills
	PENSTOCK_OVERLOAD=100000000 build/native/release/test_overload
	PENSTOCK_SOAK_S=$(SOAK_SPARK_S) $(BIN)/python -m pytest tests/cluster/test_spark_pressure.py
	PENSTOCK_SPARK_SOAK=$(SOAK_CHAIN) $(BIN)/python -m pytest -s tests/cluster/test_spark_soak.py
	PENSTOCK_GRID=full PENSTOCK_GRID_SEED=$(GRID_SEED) $(BIN)/python -m pytest \
	    tests/cluster/test_grid.py

# Wrong cores that the oracles must notice.  Long; MUTANTS=0: all there are.
mutants: setup ext
	$(BIN)/python tools/mutate.py --sample $(MUTANTS) --seeds $(MUTANT_SEEDS) \
	    --json build/mutants.json

# Lines of the protocol core that generated scenarios reach.
sim-coverage: setup
	tools/sim_coverage.sh $(COVERAGE_SEEDS)
