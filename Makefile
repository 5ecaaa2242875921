# Everything here needs Python 3.11 to 3.14, make and a C++ compiler; the rest is installed into $(VENV).
.DEFAULT_GOAL := help
SHELL := /bin/bash

PYTHON ?= python3#   makes the virtual environment
VENV ?= .venv
FRAMEWORKS ?= .venv-frameworks#   what the training frameworks need beside it, 0.9 GB
PIP_ARGS ?=#         for example an index of smaller, CPU-only torch wheels: PIP_ARGS="--index-url ..."

# Of chaos, fuzz, endurance and many.
JOBS ?= 2000
FAULTS ?= 100
SEED ?= 1
REQUESTS ?= 20000
ENDURANCE_JOBS ?= 50000
MANY_JOBS ?= 10000

# PY=python3 uses that interpreter as it is: nothing is created, nothing is installed.
ifdef PY
ready :=
else
PY := $(VENV)/bin/python
ready := $(VENV)/.installed
endif

# Three processes for two cores, a file's tests in one: half of a test is waiting. More would be in each other's way at
# what they time, and so would threads that spin while they wait for each other: without the variable it takes twice as long.
PYTEST_PROCESSES ?= 3
# In the order of their names: files of few tests, which are the long ones, would come last and be waited for one by one.
at_once := $(if $(ready),-n $(PYTEST_PROCESSES) --dist loadfile --no-loadscope-reorder)
one_thread := OMP_NUM_THREADS=1

.PHONY: help
help: ## This list.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  PYTHON=python3.12   makes $(VENV) with that interpreter (3.11 to 3.14)"
	@echo "  PY=python3          uses that interpreter as it is and installs nothing: a container, a box without network"
	@echo "  PIP_ARGS=...        more arguments for pip install, for example an index of CPU-only torch wheels"
	@echo "  PORT HOST GPU_DEVICE MAX_WORKERS LOG_LEVEL ENABLE_DEVICE_METRICS CELERY_BROKER_URL   settings of demo and serve"

.PHONY: demo
demo: $(ready) ## Start everything, judge every example, print a table, stop everything.
	@$(PY) -m stack demo

.PHONY: serve
serve: $(ready) ## Start everything and leave it running until Ctrl-C: http://127.0.0.1:8000
	@$(PY) -m stack serve

.PHONY: test
test: $(ready) ## Five minutes of the tests that need no GPU. REDIS_SERVER=/usr/bin/redis-server: with that server
	$(one_thread) $(PY) -m pytest -m "not gpu and not slow and not long" $(at_once)

.PHONY: test-long
test-long: $(ready) ## The long ones that `make test` leaves out (tests/durations.py), without the slow ones.
	$(one_thread) $(PY) -m pytest -m "not gpu and not slow and long" $(at_once)

.PHONY: test-all
test-all: $(ready) ## Every test that needs no GPU.
	$(one_thread) $(PY) -m pytest -m "not gpu" $(at_once)

.PHONY: test-gpu
test-gpu: $(ready) ## The tests that need an NVIDIA GPU: a process for each one that is there.
	$(PY) -m pytest -m gpu $(if $(ready),-n auto --dist loadfile --no-loadscope-reorder)

.PHONY: frameworks
frameworks: $(FRAMEWORKS)/.installed ## examples/rl, each called by the real trl, verl, verifiers and openenv-core.
	$(one_thread) FRAMEWORKS=1 HF_HUB_OFFLINE=1 $(FRAMEWORKS)/bin/python -m pytest tests/frameworks

.PHONY: chaos
chaos: $(ready) ## Kill everything, again and again, under load; print the books. JOBS=2000 FAULTS=100 SEED=1 GPU=
	$(PY) -m tests.chaos --jobs $(JOBS) --faults $(FAULTS) --seed $(SEED) $(if $(GPU),--gpu $(GPU))

.PHONY: fuzz
fuzz: $(ready) ## Requests that nobody would write: no 5xx, no hang, no exception in a log. REQUESTS=20000 SEED=1
	$(PY) -m tests.fuzz --requests $(REQUESTS) --seed $(SEED)

.PHONY: endurance
endurance: $(ready) ## 50,000 no-op jobs on the CPU; is the memory of every process flat? ENDURANCE_JOBS=50000
	$(PY) -m benchmarks.endurance --jobs $(ENDURANCE_JOBS)

.PHONY: many
many: $(ready) ## 10,000 submissions through the client's map, a restart and a crash in between. MANY_JOBS=10000
	PYTHONPATH=client $(PY) -m benchmarks.many --jobs $(MANY_JOBS)

.PHONY: compose
compose: $(ready) ## docker-compose.yml for real, as root on Debian: engine, images, faults, an upgrade; nothing stays.
	$(PY) -m tests.compose

.PHONY: compose-short
compose-short: $(ready) ## The part of it that .ci/run runs: 12 minutes at most. Installs the engine by apt-get.
	$(PY) -m tests.compose --short --install

.PHONY: hashes
hashes: ## hashes/*.txt anew, for constraints.txt: of every file that the index has. Needs uv.
	for group in api flower worker helion tilelang cute_dsl cuda_tile; do \
	  uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
	    --constraint constraints.txt --group $$group $$(case $$group in api | worker) echo --group telemetry;; esac) \
	    --output-file hashes/$$group.txt > /dev/null || exit 1; \
	done
	echo pip | uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
	  --constraint constraints.txt --output-file hashes/pip.txt - > /dev/null

.PHONY: check
check: $(ready) ## Lint, format, types, import rules, architecture.
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(PY) -c "from importlinter.cli import lint_imports_command; lint_imports_command()"
	PYTHONPATH=client $(PY) -c "from importlinter.cli import lint_imports_command; lint_imports_command()" --config client/pyproject.toml
	$(PY) -m mypy --python-version 3.10 -p kernel_eval_client
	$(PY) -m pytest -q tests/test_architecture.py

.PHONY: bench
bench: $(ready) ## What the service itself costs a job: overhead, throughput.
	$(PY) -m benchmarks

.PHONY: format
format: $(ready) ## Format the source and mend what the linter can mend.
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

.PHONY: clean
clean: ## Remove logs and caches; the virtual environment stays.
	rm -rf logs .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . \( -path ./$(VENV) -o -path ./$(FRAMEWORKS) \) -prune -o -name __pycache__ -type d -print0 | xargs -0 rm -rf

# The pip of a fresh environment may be older than dependency groups (25.1), so it is renewed first.
$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15) and "Python 3.11 to 3.14 is needed; name one with PYTHON=...")'
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) --constraint constraints.txt --upgrade pip
	$(VENV)/bin/python -m pip install --quiet $(PIP_ARGS) --constraint constraints.txt --group dev
	touch $@

# It sees the packages of $(PY) behind its own: torch is not installed a second time. The pip is that one's, too.
$(FRAMEWORKS)/.installed: tests/frameworks/packages.txt $(ready)
	$(PY) -m venv --clear --without-pip $(FRAMEWORKS)
	$(PY) -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > \
	  "$$($(FRAMEWORKS)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/behind.pth"
	$(PY) -m pip --python $(FRAMEWORKS)/bin/python install --quiet --disable-pip-version-check --no-deps --no-compile $(PIP_ARGS) --requirement $<
	touch $@
