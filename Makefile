# Every target makes .venv by itself and is quick when nothing changed. PYTHON= picks the interpreter.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
STAMP_RUN := $(VENV)/.stamp-run
STAMP_DEV := $(VENV)/.stamp-dev
PORT ?=
# For what reads models only: the API document must not depend on which database happens to be set.
NO_DATABASE := DATABASE_URL=sqlite:///:memory:
# One dependency comes as source only; without the option old versions of pip complain about how it is built.
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

# The first interpreter of at least 3.11 that can make virtual environments.
FIND_PYTHON = for candidate in $(PYTHON) python3.13 python3.12 python3.11 python3 python; do \
	if "$$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
		echo "$$candidate"; exit 0; fi; \
	if [ -n "$(PYTHON)" ]; then \
		echo "PYTHON=$(PYTHON) is not a Python of at least 3.11 with venv." >&2; exit 1; fi; \
	done; \
	echo "No Python of at least 3.11 with venv was found. Install one (on Debian: apt-get install python3 python3-venv), or name one with PYTHON=/path/to/python3." >&2; exit 1

.PHONY: help setup run test conformance check tour bench mutate clean requirements schema messages

help: ## Show this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

setup: $(STAMP_DEV) ## Make .venv with everything for running and developing

run: $(STAMP_RUN) ## Run the console with an embedded cluster (PORT= changes the port)
	@exec $(BIN)/python manage.py up $(if $(PORT),--port $(PORT)) $(RUN_ARGS)

test: $(STAMP_DEV) ## Run all tests; the browser's are a run of their own
	@$(BIN)/python .ci/tests.py $(TEST_ARGS)

# A KUBECONFIG of the environment does not count: nobody shall write to a cluster by accident.
conformance: $(STAMP_DEV) ## Hold an API server to the suite of behaviours (KUBECONFIG=FILE; else the embedded cluster)
	@CONFORMANCE_KUBECONFIG="$(if $(filter command,$(firstword $(origin KUBECONFIG))),$(abspath $(KUBECONFIG)))" \
		$(BIN)/python -m pytest tests/conformance $(TEST_ARGS)

check: $(STAMP_DEV) ## Format, lint, types, layers, system checks, migrations, API schema
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python manage.py check --fail-level WARNING
	$(NO_DATABASE) $(BIN)/python manage.py makemigrations --check --dry-run
	@$(NO_DATABASE) $(BIN)/python manage.py spectacular --validate --fail-on-warn --file $(VENV)/schema.yaml
	@diff -u docs/openapi.yaml $(VENV)/schema.yaml \
		|| { echo "docs/openapi.yaml is not what the code says: run 'make schema' and commit it." >&2; exit 1; }

tour: $(STAMP_RUN) ## Do the main job headless through the REST API (TOUR_ARGS="--kubeconfig FILE …")
	@exec $(BIN)/python manage.py tour $(TOUR_ARGS)

bench: $(STAMP_RUN) ## Measure the console and the embedded cluster (BENCH_ARGS=, BENCH_CLUSTER_ARGS=)
	@$(BIN)/python manage.py bench $(BENCH_ARGS)
	@exec $(BIN)/python manage.py benchcluster $(BENCH_CLUSTER_ARGS)

mutate: $(BIN)/python ## Change the rules one small thing at a time and see whether a test notices (minutes)
	@exec $(BIN)/python .ci/mutate.py $(MUTATE_ARGS)

schema: $(STAMP_DEV) ## Write docs/openapi.yaml from the code
	@mkdir -p docs
	$(NO_DATABASE) $(BIN)/python manage.py spectacular --validate --file docs/openapi.yaml

messages: $(STAMP_DEV) ## Collect and compile translations (needs gettext)
	$(BIN)/python manage.py makemessages --locale es --locale zh_Hans --no-location --ignore .venv --ignore var
	$(BIN)/python manage.py compilemessages --ignore .venv --ignore var

requirements: $(STAMP_DEV) ## Resolve requirements*.in into the pinned requirements*.txt
	@for name in requirements requirements-dev; do \
		UV_CUSTOM_COMPILE_COMMAND="make requirements" $(BIN)/uv pip compile --quiet --upgrade --universal \
			--python-version 3.11 --no-config --no-annotate --no-emit-index-url --no-emit-find-links \
			$$name.in --output-file $$name.txt; done

clean: ## Remove .venv and what tools left behind; the console's data in var/ stays
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage .coverage.* \
		htmlcov staticfiles build test-results
	find . -name __pycache__ -type d -not -path './var/*' -prune -exec rm -rf {} +

$(BIN)/python:
	@python=$$($(FIND_PYTHON)); echo "Making $(VENV) with $$python"; "$$python" -m venv --clear $(VENV)

$(STAMP_RUN): requirements.txt | $(BIN)/python
	@echo "Installing what the console needs to run"
	@$(PIP) install --use-pep517 --requirement requirements.txt
	@touch $@

$(STAMP_DEV): requirements-dev.txt $(STAMP_RUN)
	@echo "Installing what its development needs"
	@$(PIP) install --use-pep517 --requirement requirements.txt --requirement requirements-dev.txt
	@touch $@
