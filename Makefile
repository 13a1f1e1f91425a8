# Every target installs its requirements into .venv. You need make, Python 3.11 or later and, if possible, a C++20 compiler.
#   make test ARGS="-k merge"        passes ARGS to pytest (and to the demo and the benchmarks)
#   make test PYTHON=python3.13      builds .venv with that interpreter (after make clean)

PYTHON ?= python3
ARGS ?=
SECONDS ?= 60
VENV := .venv
BIN := $(VENV)/bin
BUILD := build/editable
PIP = $(BIN)/python -m pip --disable-pip-version-check -qq install

# The compiler of the core: CXX if it is set, else the first that PATH has.
COMPILER := $(shell command -v "$${CXX:-c++}" || command -v g++ || command -v clang++)
export CXX := $(if $(COMPILER),$(COMPILER),$(abspath $(BIN))/zig-c++)
export PATH := $(abspath $(BIN)):$(PATH)

# Tests run in several processes with one BLAS thread each. Benchmarks use the default number of threads.
test test-all: export OPENBLAS_NUM_THREADS ?= 1
test test-all: export OMP_NUM_THREADS ?= 1
test test-all: export MKL_NUM_THREADS ?= 1

# Tests start hundreds of processes and rewrite their own assertions: without files of bytecode, all is compiled each time.
test test-all: export PYTHONDONTWRITEBYTECODE :=

# `make test` tries fewer random examples than `make test-all`.
test: export HYPOTHESIS_PROFILE ?= short

# The directory of real data sets. Without it, the tests that need them are skipped.
ifndef ROBUSTFD_DATA
ifneq ($(wildcard ../shared/data/.),)
export ROBUSTFD_DATA := $(abspath ../shared/data)
endif
endif

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help demo build test test-all check sanitize fuzz-core wheel bench numbers fuzz docs docs-test pictures clean

help:
	@echo "make demo       draw a sketch with its certificate and a learner next to its peers (demo.png)"
	@echo "make test       run the tests and doctests"
	@echo "make test-all   also run the slow tests"
	@echo "make check      run ruff, mypy and import-linter, and compare quoted numbers with their files"
	@echo "make sanitize   run the core under sanitizers for SECONDS=60 each"
	@echo "make fuzz-core  fuzz the core with clang's libFuzzer for SECONDS=60"
	@echo "make wheel      build a wheel and run the demo with it in an empty environment"
	@echo "make bench      measure against peers; ARGS=untuned runs one table"
	@echo "make numbers    write the numbers of benchmarks/results into README and the site"
	@echo "make fuzz       fuzz the library for SECONDS=60"
	@echo "make docs       build the site in docs/_build/html"
	@echo "make docs-test  open every page of the built site in Chromium"
	@echo "make pictures   redraw the pictures of the README and the site"
	@echo "make clean      remove .venv, caches and built files"

demo: $(VENV)/.stamp-plot
	@$(BIN)/python examples/demo.py $(ARGS)

# Compile what has changed in the core.
build: $(VENV)/.stamp-test
	@$(BIN)/cmake --build $(BUILD) > $(BUILD)/log || { cat $(BUILD)/log; exit 1; }
	@$(BIN)/cmake --install $(BUILD) --prefix $(VENV)/lib/python*/site-packages > $(BUILD)/log

test: build
	@$(BIN)/python -m pytest -q -n 2 --durations=5 -m "not slow and not browser" $(ARGS)

test-all: build
	@$(BIN)/python -m pytest -q -n 2 --durations=10 -m "not browser" $(ARGS)

check: $(VENV)/.stamp-dev build
	@cp $(BUILD)/_core.pyi src/robustfd/_core.pyi
	@echo "ruff check";    $(BIN)/ruff check .
	@echo "ruff format";   $(BIN)/ruff format --check .
	@echo "mypy";          $(BIN)/mypy
	@echo "import-linter"; $(BIN)/lint-imports
	@echo "numbers";       $(BIN)/python -m benchmarks.quotes --check

# The core alone, under AddressSanitizer and UndefinedBehaviorSanitizer, then under ThreadSanitizer.
sanitize: $(VENV)/.stamp-compiler
	@for which in address,undefined thread; do \
	    folder=build/sanitize-$${which%%,*}; \
	    $(BIN)/cmake -S . -B $$folder -G Ninja -DRFD_SANITIZE=$$which > /dev/null && \
	    $(BIN)/cmake --build $$folder > $$folder/log 2>&1 || { cat $$folder/log; exit 1; }; \
	    echo "sanitizers: $$which"; $$folder/stress $(SECONDS) tests/core/corpus || exit 1; \
	done

# Coverage-guided fuzzing of the parsers and of damaged states, with Clang's libFuzzer. New inputs go to build/fuzz/corpus;
# the smallest set of them with the same coverage is added to tests/core/corpus.
fuzz-core: $(VENV)/.stamp-compiler
	@mkdir -p build/fuzz/corpus build/fuzz/smallest
	@CXX=clang++ $(BIN)/cmake -S . -B build/fuzz -G Ninja -DRFD_SANITIZE=address,undefined -DRFD_FUZZ=ON > /dev/null
	@$(BIN)/cmake --build build/fuzz > build/fuzz/log 2>&1 || { cat build/fuzz/log; exit 1; }
	@build/fuzz/stress -max_total_time=$(SECONDS) -max_len=400 -print_final_stats=1 build/fuzz/corpus tests/core/corpus
	@build/fuzz/stress -merge=1 -max_len=400 build/fuzz/smallest tests/core/corpus build/fuzz/corpus
	@rm -rf tests/core/corpus && mv build/fuzz/smallest tests/core/corpus

# A wheel, and the demo with it in an environment that has nothing else, and no compiler.
wheel: $(VENV)/.stamp-compiler
	@rm -rf build/wheels build/fresh
	@echo "building a wheel ..."
	@$(BIN)/python -m pip --disable-pip-version-check -qq wheel --no-build-isolation --no-deps -Cbuild-dir=$(BUILD) -w build/wheels .
	@$(PYTHON) -m venv build/fresh
	@build/fresh/bin/python -m pip --disable-pip-version-check -qq install build/wheels/*.whl matplotlib
	@cd build/fresh && env -i HOME="$$PWD" PATH="$$PWD/bin" python ../../examples/demo.py
	@ls -l build/wheels/*.whl

bench: $(VENV)/.stamp-plot build
	@$(BIN)/python -m benchmarks.run $(ARGS)

numbers: build
	@$(BIN)/python -m benchmarks.quotes

fuzz: build
	@$(BIN)/python -m fuzz --seconds $(SECONDS) $(ARGS)

docs: $(VENV)/.stamp-docs
	@echo "building the site, which also runs the gallery; takes one to two minutes ..."
	@$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

docs-test: $(VENV)/.stamp-docs
	@$(BIN)/python -m pytest -q -m browser tests/test_browser.py $(ARGS)

pictures: $(VENV)/.stamp-plot
	@$(BIN)/python examples/demo.py && mv demo.png docs/demo.png && $(BIN)/python docs/pictures/halves.py
	@$(BIN)/python examples/drift.py docs/drift.png
	@$(BIN)/python docs/pictures/decision.py
	@$(BIN)/python docs/pictures/reproduction.py

clean:
	rm -rf docs/_build docs/gallery docs/generated docs/sg_execution_times.rst
	rm -rf $(VENV) build dist demo.png .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests benchmarks examples fuzz -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# One stamp file per extra of pyproject.toml, rebuilt when that file changes. The package is installed in editable form:
# Python files take effect at once, and `make build` compiles what has changed in the core.
$(VENV)/.stamp-%: pyproject.toml CMakeLists.txt | $(VENV)/.stamp-compiler
	@echo "setting up $(VENV) for robustfd[$*], which compiles its core ..."
	@$(PIP) --no-build-isolation -Cbuild-dir=$(BUILD) -e ".[$*]"
	@touch $@

# The build tools come from PyPI; setuptools builds PySpark, which is published as source only. Without a C++ compiler on PATH,
# the compiler comes from PyPI, too (ziglang).
$(VENV)/.stamp-compiler: | $(VENV)/pyvenv.cfg
	@$(PIP) "scikit-build-core>=1.0" "nanobind>=2.10" "cmake>=3.26" ninja "setuptools>=70.1"
ifeq ($(COMPILER),)
	@echo "no C++ compiler found: using ziglang from PyPI ..."
	@$(PIP) ziglang || { echo "robustfd needs a C++20 compiler: install g++ or clang++ (Debian: apt install g++)."; exit 1; }
	@for tool in c++ ar ranlib; do \
	    name=$(BIN)/$$(echo $$tool | sed 's/c++/zig-c++/'); \
	    printf '#!/bin/sh\nexec "%s" -m ziglang %s "$$@"\n' "$(abspath $(BIN))/python" $$tool > $$name && chmod +x $$name; \
	done
endif
	@touch $@

$(VENV)/pyvenv.cfg:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "robustfd needs Python 3.11 or later")'
	@echo "creating $(VENV) with $$($(PYTHON) --version) ..."
	@$(PYTHON) -m venv --clear $(VENV)
