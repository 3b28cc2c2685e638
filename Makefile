# One command for each thing one does with a clone. `make` alone says which.
.DEFAULT_GOAL := help
SHELL := /bin/bash
VENV := .venv/bin
export PATH := $(CURDIR)/$(VENV):$(PATH)
# Set as in many containers, it has each of the hundreds of commands that the tests start compile all of cellbed anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup setup-test demo test test-core test-rust test-python test-slow audit wheels lint lint-rust lint-python bench docs recorder clean

help:  ## say what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup:  ## install what is missing and compile
	@scripts/setup.sh demo

demo: setup  ## an AI offload over a replayed LTE link, with its report
	@scripts/demo.sh

setup-test:
	@scripts/setup.sh test

test: setup-test  ## lint, type checks, Rust tests, Python tests
	@echo "Rust and Python side by side: the output of each appears when it ends"
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target test-rust test-python

test-rust: lint-rust
	PROPTEST_RNG_SEED=1 cargo test --workspace --quiet --lib --bins --tests
	MAKEFLAGS= cargo test --workspace --quiet --doc

# Most tests wait in real time, so that two processors serve four processes. A file stays in one process with its fixtures.
test-python: lint-python
	$(VENV)/pytest -q -m "not slow" --numprocesses=4 --dist=loadfile || { status=$$?; [ $$status -eq 1 ] || exit $$status; \
	    echo "once more, one by one, those that failed; if they pass now, they need repair"; \
	    $(VENV)/pytest -m "not slow" --last-failed --last-failed-no-failures=none --verbose; }

test-core:  ## the tests of the core alone
	@scripts/setup.sh core
	PROPTEST_RNG_SEED=1 cargo test --quiet --lib --bins --tests
	$(VENV)/pytest -q -m "not slow" --numprocesses=4 --dist=loadfile tests

test-slow: setup-test  ## the tests that take long, and property tests with new seeds
	PROPTEST_CASES=4096 scripts/build.sh test
	$(VENV)/pytest -q -m "slow or hypothesis" --hypothesis-profile=explore --cov=cellbed --cov=cellbed_node --cov-report=term:skip-covered

lint: setup-test lint-rust lint-python  ## format, lint and type checks

lint-rust:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --quiet -- -D warnings

lint-python:
	$(VENV)/ruff format --check --quiet .
	$(VENV)/ruff check --quiet .
	$(VENV)/mypy
	$(VENV)/python scripts/doc_comments.py
	$(VENV)/python scripts/sentences.py
	$(VENV)/python scripts/node_paths.py
	$(VENV)/python scripts/function_sizes.py
	$(VENV)/lint-imports --no-logo --no-cache > /dev/null || $(VENV)/lint-imports --no-logo --no-cache
	$(VENV)/typos
	shellcheck scripts/*.sh .ci/*

audit:  ## licences and sources of all dependencies
	cargo deny check --hide-inclusion-graph licenses bans sources
	$(VENV)/python scripts/licences.py

wheels:  ## wheels and source distributions, with SBOM, in build/dist
	@scripts/setup.sh core
	@scripts/build.sh release
	$(VENV)/auditwheel show build/dist/cellbed-[0-9]*.whl

bench: setup-test  ## figures with targets beside peers, in ten minutes; the file for the next comparison: build/benches
	$(VENV)/python benches/performance.py

docs: setup  ## the documentation as a site, build/site/index.html
	@$(VENV)/uv pip install --quiet --no-config --system-certs --python $(VENV)/python --no-deps -r requirements/docs.txt && $(VENV)/python scripts/docs_site.py

recorder: setup  ## the recorder as one program, which runs wherever the C library is glibc 2.28 or newer
	@$(VENV)/python -c 'from cellbed.recordings.recorder import find_recorder; print(find_recorder())'

clean:  ## remove what was built here, and what killed runs left
	-@test -x $(VENV)/cellbed && $(VENV)/cellbed clean
	rm -rf target .venv build web/node_modules python/cellbed/workloads/video/players .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -rf python/cellbed/_core*.so datacentre/python/cellbed_datacentre/_core*.so python/cellbed/testbed/cellbed-* python/cellbed/report/assets/uPlot* python/cellbed/laws/objects
	rm -f python/cellbed/LICENCES.txt datacentre/python/cellbed_datacentre/LICENCES.txt
	find . -name __pycache__ -prune -exec rm -rf {} +
