# Every target that needs Python runs from .venv, which is made from locks/dev.txt alone.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
CLUSTER ?= local
export CLUSTER
ifdef CI
export DRASIM_NO_SKIP ?= 1
endif

BIN := .venv/bin
FAST := not cluster and not root
LOCK := --universal --python-version 3.11 --generate-hashes --no-annotate --no-header --quiet --upgrade \
        --all-extras --no-emit-package dra-plugin
PYPROJECTS := plugin-api/pyproject.toml driver/pyproject.toml

##@ Use it
.PHONY: demo down image
demo: venv ## start a real Kubernetes, install the driver, take the tour (CLUSTER=local|current|kind)
	PATH="$(CURDIR)/$(BIN):$$PATH" hack/demo

down: venv ## stop the local cluster that `make demo` left running
	$(BIN)/python -m hack.cluster down

image: venv ## build the driver's container image, without Docker
	PATH="$(CURDIR)/$(BIN):$$PATH" hack/image/build

##@ Check it
.PHONY: check test bench
check: format-check lint types imports protos-check ## the fast part: format, lint, types, imports, unit, contract and flow tests
	$(BIN)/pytest -n 2 -m "$(FAST)"

test: binaries check ## everything: `make check`, then the tests on a real Kubernetes (needs root and Go)
	trap '$(BIN)/python -m hack.cluster down --name test' EXIT; $(BIN)/pytest -m "cluster or root"

.PHONY: binaries
binaries: venv ## build the cluster's programs and the image into the cache (nothing to do when they are there)
	$(BIN)/python -m hack.cluster build
	PATH="$(CURDIR)/$(BIN):$$PATH" hack/image/build >/dev/null

bench: venv ## the table of figures, side by side with the Go helper
	$(BIN)/python -m hack.bench

.PHONY: format format-check lint types imports protos protos-check
format: venv ## rewrite the sources in the house format
	$(BIN)/ruff check --select I --fix-only --quiet
	$(BIN)/ruff format

format-check: venv
	$(BIN)/ruff format --check

lint: venv ## ruff with everything on
	$(BIN)/ruff check

types: venv ## mypy, strict
	$(BIN)/mypy

imports: venv ## the one-way import rules and the vendor doors
	$(BIN)/lint-imports

protos: venv ## regenerate plugin-api/dra_plugin/_proto from its .proto files
	$(BIN)/python hack/protos

protos-check: venv
	$(BIN)/python hack/protos --check

##@ Keep it
.PHONY: venv lock clean help
venv: .venv/stamp ## make .venv from the locks (again only when they change)

# One at a time: several `make` in the same tree wait for each other instead of installing twice.
.venv/stamp: locks/dev.txt $(PYPROJECTS)
	@exec 9>.venv.lock && flock 9 && if [ -n "$$(find $^ -newer $@ 2>/dev/null || echo new)" ]; then \
	  $(MAKE) --no-print-directory install-venv; fi

.PHONY: install-venv
install-venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3" >&2; exit 1; }
	@if ! $(PYTHON) -c 'import venv, ensurepip' 2>/dev/null; then \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -qq && apt-get install -y -qq --no-install-recommends python3-venv; \
	  else echo "python3-venv is missing: sudo apt-get install -y python3-venv" >&2; exit 1; fi; fi
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv .venv
	@echo "installing locks/dev.txt into .venv (about 60 packages, a minute, 400 MB)"
	@$(BIN)/python -m pip install --quiet --require-hashes -r locks/dev.txt
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e plugin-api -e driver
	@touch .venv/stamp

lock: venv ## resolve again: newest versions into locks/ (names, versions and hashes only)
	$(BIN)/uv pip compile $(LOCK) $(PYPROJECTS) -o locks/runtime.txt
	$(BIN)/uv pip compile $(LOCK) $(PYPROJECTS) --group pyproject.toml:dev -c locks/runtime.txt -o locks/dev.txt

clean: ## remove what was built in this tree (.venv and caches)
	rm -rf .venv .venv.lock .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

help: ## this list
	@awk 'BEGIN {FS = ":[^#]*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-z-]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
