# `make` lists the targets. Everything runs in .venv, which is created on first use.
SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install train play tensorboard test scores benchmark peers gpu-check check docs clean

# Without GAME, the command chooses: Pong for a new run, or the game implied by ARGS (--config,
# --preset, a run to resume or to show).
GAME ?=
ARGS ?=
BIN := .venv/bin
CACHES := build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

# The TensorFlow build: gpu if nvidia-smi works, else cpu. DEVICE=cpu or DEVICE=gpu overrides it.
ifndef DEVICE
DEVICE := $(shell nvidia-smi -L >/dev/null 2>&1 && echo gpu || echo cpu)
endif
ifeq ($(filter cpu gpu,$(DEVICE)),)
$(error DEVICE is "$(DEVICE)", must be cpu or gpu: there is no other TensorFlow build to install)
endif
REQUIREMENTS := requirements/$(DEVICE).txt
OTHER_TENSORFLOW := $(if $(filter gpu,$(DEVICE)),tensorflow-cpu,tensorflow)

# The stamp's name depends on everything that decides what .venv contains, and on the checkout's
# path, which .venv/bin/ga3c contains (other packages are called by python -m, not by their scripts).
# If any of these changes, the name changes and the install runs again. A newer modification time
# alone does not trigger it.
PINS := setup.cfg requirements/lock.txt $(REQUIREMENTS)
PINS_SUM := $(firstword $(shell { pwd; cat $(PINS); } | cksum))
STAMP := .venv/.installed-$(DEVICE)-$(PINS_SUM)
INSTALLING := installing pinned versions for $(DEVICE) into .venv
SILENCE := $(if $(filter gpu,$(DEVICE)),about five,one to three) minutes without output

# Runs a command that Ctrl-C ends without an error line from make. The signal reaches make, which it
# ends; this shell, which then reports no failure; and the command. Other signals, which only make
# gets, are passed on as SIGTERM. The sleep lets make see the signal before this shell's end: if it
# finds both at once, it waits for the shell a second time and fails with "No child processes".
define stoppable
@trap 'stopped=yes' INT; trap 'kill $$run' HUP QUIT TERM; \
$(1) & run=$$!; \
wait $$run; code=$$?; while kill -0 $$run 2>/dev/null; do wait $$run; code=$$?; done; \
if [ "$$stopped" ]; then sleep 0.3; else exit $$code; fi
endef

help:  ## list the targets
	@echo "usage: make TARGET [DEVICE=cpu|gpu]   (DEVICE here: $(DEVICE))"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-12s%s\n", $$1, $$2}' Makefile

install: $(STAMP)  ## create .venv with the pinned versions; rerun only if they change
	@echo ".venv is ready ($(DEVICE))"

train: $(STAMP)  ## learn a game: make train GAME=Pong ARGS="..." (see .venv/bin/ga3c train --help)
	$(call stoppable,$(BIN)/ga3c train $(if $(GAME),--game "$(GAME)") $(ARGS))

play: $(STAMP)  ## make a video of the newest run of a game: make play GAME=Pong
	$(call stoppable,$(BIN)/ga3c play $(if $(GAME),--game "$(GAME)") $(ARGS))

tensorboard: $(STAMP)  ## show the curves of all runs in the browser, on this machine only
	@exec $(BIN)/python -m tensorboard.main --logdir runs --host 127.0.0.1 $(ARGS)

# One more test process than cores keeps them busy; each takes up to a gigabyte.
WORKERS ?= $(shell n=$$(nproc); echo $$((n < 8 ? n + 1 : 8)))
BACKEND ?= tensorflow
FOR_jax := JAX_ENABLE_X64=1 PYTEST_TIMEOUT=900
test: $(STAMP)  ## run the whole test suite: make test ARGS="-k queues" BACKEND=jax
	@$(FOR_$(BACKEND)) KERAS_BACKEND=$(BACKEND) exec $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

GAMES ?= Pong
SEEDS ?= 3
STEPS ?= 5000000
scores: $(STAMP)  ## make a score table: make scores GAMES="Pong Boxing" SEEDS=3 STEPS=5000000
	$(call stoppable,$(BIN)/ga3c scores --games $(GAMES) --seeds $(SEEDS) --steps $(STEPS) --out-dir runs/scores $(ARGS))

QUICK := benchmarks/results/quick
BENCHMARK := $(BIN)/ga3c benchmark
benchmark: $(STAMP)  ## measure this machine in less than 10 minutes, and update the README's table
	@mkdir -p $(QUICK)
	@rm -rf $(QUICK)/sweep $(QUICK)/ablation
	$(BENCHMARK) throughput --algorithm a3c --repeats 2 --seconds 8 --out $(QUICK)/throughput.json
	$(BENCHMARK) a3c --networks small large-4 --repeats 2 --seconds 4 --out $(QUICK)/a3c.json
	$(BENCHMARK) ablation --quick --out-dir $(QUICK)/ablation
	$(BENCHMARK) lanes --repeats 1 --seconds 5 --out $(QUICK)/lanes.json
	$(BENCHMARK) sweep --quick --out-dir $(QUICK)/sweep
	$(BIN)/python -m benchmarks.readme $(QUICK)

PEERS := .venv-peers
PEERS_STAMP := $(PEERS)/.installed-$(firstword $(shell cksum requirements/peers.txt))
peers: $(PEERS_STAMP)  ## install the systems that `ga3c benchmark peers` measures into .venv-peers
$(PEERS_STAMP):
	@$(or $(shell command -v python3.11),python3) -m venv --clear $(PEERS)
	@$(PEERS)/bin/pip install -qq --disable-pip-version-check -r requirements/peers.txt
	@$(PEERS)/bin/pip install -qq --disable-pip-version-check --no-deps --ignore-requires-python cleanrl==1.2.0
	@touch $@
	@echo "$(PEERS) is ready: .venv/bin/ga3c benchmark peers --out-dir DIRECTORY"

WHEELS ?= wheels
PYTHON ?= python3
OUT ?= benchmarks/results/gpu-check
gpu-check:  ## measure a GPU without downloads: make gpu-check WHEELS=DIR PYTHON=python3 OUT=DIR
	@if ! ls "$(WHEELS)"/*.whl >/dev/null 2>&1; then \
	    echo "no wheels in $(WHEELS): pip download --no-deps -r requirements/gpu-check.txt -d $(WHEELS)" >&2; \
	    exit 2; \
	fi
	@place=$$(mktemp -d) && trap 'rm -rf "$$place"' EXIT INT TERM && \
	$(PYTHON) -m pip install -q --disable-pip-version-check --no-index --no-deps \
	    --find-links "$(WHEELS)" --target "$$place" -r requirements/gpu-check.txt && \
	PYTHONPATH="$$place" $(PYTHON) -m ga3c benchmark gpu-check --out-dir "$(OUT)" $(ARGS)

check: $(STAMP)  ## check lint, format and types
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy ga3c agents benchmarks

# The pages are symlinked as they lie in the repository, so each link works as it does on GitHub.
# (mkdocs must not be --quiet: --strict would not see the warnings.)
DOCS := .venv-docs
DOCS_STAMP := $(DOCS)/.installed-$(firstword $(shell cksum requirements/docs.txt))
PAGES := build/pages
docs: $(DOCS_STAMP)  ## build README.md and docs/ as a site in site/; a link that leads nowhere fails
	@rm -rf $(PAGES)
	@mkdir -p $(PAGES)/benchmarks
	@ln -s "$(CURDIR)"/*.md "$(CURDIR)/docs" $(PAGES)/
	@ln -s "$(CURDIR)/benchmarks/results" $(PAGES)/benchmarks/
	@NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/python -m mkdocs build --strict
	@echo "the site is built: open site/index.html"
$(DOCS_STAMP):
	@$(or $(shell command -v python3.11),python3) -m venv --clear $(DOCS)
	@$(DOCS)/bin/python -m pip install -qq --disable-pip-version-check -r requirements/docs.txt
	@touch $@

clean:  ## remove caches and build products, but not .venv and runs/
	@rm -rf $(CACHES)
	@find . \( -path ./.venv -o -path ./.git -o -path ./runs \) -prune -o -name __pycache__ -type d -exec rm -rf {} +

$(STAMP):
	@if ! $(BIN)/python -c 'import pip' 2>/dev/null; then \
	    for candidate in python3.11 python3 none; do \
	        $$candidate -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break; \
	    done; \
	    if [ $$candidate = none ]; then \
	        echo "no python3.11, and no python3 of 3.11 or later, on PATH: cannot make .venv" >&2; exit 2; \
	    fi; \
	    echo "$(INSTALLING) (first use, $(SILENCE))"; \
	    $$candidate -m venv --clear .venv; \
	elif [ "$(wildcard .venv/.installed-*)" ]; then \
	    echo "$(INSTALLING) (they have changed, $(SILENCE))"; \
	else \
	    echo "$(INSTALLING) (going on with an installation that was not finished, $(SILENCE))"; \
	fi
	@rm -f .venv/.installed-*
	@# Both builds install the same files, so the other one is removed first.
	@if $(BIN)/python -m pip show -q $(OTHER_TENSORFLOW) 2>/dev/null; then \
	    $(BIN)/python -m pip uninstall -q -y $(OTHER_TENSORFLOW) tensorflow tensorflow-cpu; \
	fi
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -r $(REQUIREMENTS)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $@
