# make bench     sets everything up and runs the main job     (DATASET=, GRID=, LOADERS=, REPEAT=, LABELS=, CONSUMER_MS=, RETRY=1, RESULTS=)
# make advise    measures the loaders on your data and prints the best settings, with code   (DATASET=, LABELS=, WITHIN=, GRID=, LOADERS=, RESULTS=)
# make test      sets everything up and runs the tests; make test-slow runs those that take minutes each
# make fuzz      reads damaged stores with our reader and with the formats' own libraries, and compares   (MINUTES=1, SEED=)
# make setup     makes .venv                                   (EXTRAS=native installs our loader and the suite alone)
# make prepare   generates or downloads a data set             (DATASET=, PROJECT=)
# make figures   draws tables and figures again from the records, without measuring      (RESULTS=, DATASETS=)
# make asv       compares the speed of HEAD with that of where it left BASE; fails for a regression   (BASE=origin/main, FACTOR=1.15)
# make report    writes one HTML page of all that lies in a results folder      (RESULTS=)
# make train     trains the same models in every order of the cells, and compares      (DATASET=, ARMS=, SEEDS=, GENES=, RESULTS=)
# make steps     trains a transformer on the minibatches of loaders: step, wait, MFU   (DATASET=, LOADERS=, SIZE=, DEVICE=, SECONDS=, WORKERS=, RESULTS=)
# make ceiling   measures what the disk, decoding and copying allow without a loader   (DATASET=, LOADERS=, RESULTS=)
# make status    prints what the results hold, and what is doubtful in them
# make doctor    prints which loaders import, and what this machine allows
# make help      prints this list

DATASET ?= tahoe-mini
BASE ?= origin/main
FACTOR ?= 1.15
MINUTES ?= 1
PYTHON := .venv/bin/python
# The choice is kept: after `EXTRAS=native make setup`, `make bench` installs no more.
EXTRAS ?= $(or $(shell cat .venv/.extras 2>/dev/null),all$(comma)dev)
comma := ,
STAMP = .venv/.setup-$(subst $(comma),-,$(EXTRAS))
# Loaders that cannot be installed beside the others: each has its own environment in .venvs/ and its own lock.
APART := cellarium mosaic
wanted := $(subst $(comma), ,$(EXTRAS))
beside := $(filter-out $(APART),$(wanted))
apart := $(if $(filter all,$(wanted)),$(APART),$(filter $(APART),$(wanted)))
flag = $(if $($(1)),--$(2) $($(1)))

# If it is set, every process compiles every library again, which doubles the time to a worker's first minibatch.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup bench advise figures report ceiling train steps asv asv-publish test-asv test test-slow fuzz status doctor prepare lock check help
.DEFAULT_GOAL := bench

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile

setup: $(STAMP) .venv/.compiled $(apart:%=.venvs/%/.setup)
	@:

bench: setup
	@$(PYTHON) -m harness bench --dataset "$(DATASET)" $(call flag,GRID,grid) $(call flag,LOADERS,loaders) \
		$(call flag,REPEAT,repeat) $(call flag,LABELS,labels) $(call flag,CONSUMER_MS,consumer-ms) \
		$(call flag,RESULTS,results) $(if $(RETRY),--retry)

advise: setup
	@$(PYTHON) -m harness advise --dataset "$(DATASET)" $(call flag,LABELS,labels) $(call flag,WITHIN,within) \
		$(call flag,GRID,grid) $(call flag,LOADERS,loaders) $(call flag,RESULTS,results)

figures: setup
	@$(PYTHON) -m harness figures $(call flag,RESULTS,results) $(call flag,DATASETS,datasets)

asv: setup
	@$(PYTHON) -m harness.suite.regressions compare "$(BASE)" "$(FACTOR)"

# The history of these measurements, as a site under .asv/html.
asv-publish: setup
	@$(PYTHON) -m harness.suite.regressions publish

# Proof that no alarm is false and no regression missed: 8 minutes.
test-asv: setup
	@PYTHONPATH=. $(PYTHON) tests/project/asv_proof.py

ceiling: setup
	@$(PYTHON) -m harness ceiling --dataset "$(DATASET)" $(call flag,LOADERS,loaders) $(call flag,RESULTS,results)

report: setup
	@$(PYTHON) -m harness report $(call flag,RESULTS,results)

train: setup
	@$(PYTHON) -m harness train --dataset "$(DATASET)" $(call flag,ARMS,arms) $(call flag,SEEDS,seeds) \
		$(call flag,GENES,genes) $(call flag,RESULTS,results)

steps: setup
	@$(PYTHON) -m harness steps "$(DATASET)" $(call flag,LOADERS,loaders) $(call flag,SIZE,size) $(call flag,DEVICE,device) \
		$(call flag,SECONDS,seconds) $(call flag,WORKERS,workers) $(call flag,RESULTS,results)

# Most tests wait for a process that imports a library.
IN_PARALLEL := -n auto --maxprocesses 4
test: setup
	@$(PYTHON) -c 'import pytest' 2>/dev/null || { echo "error: the tests need: EXTRAS=$(EXTRAS),dev make setup" >&2; exit 2; }
	@$(PYTHON) -m pytest $(IN_PARALLEL)

test-slow: setup
	@$(PYTHON) -m pytest $(IN_PARALLEL) -m slow

# Failures are kept under .fuzz/, each with the command that reproduces it.
fuzz: setup
	@$(PYTHON) -m tests.fuzz --minutes "$(MINUTES)" $(call flag,SEED,seed)

status: setup
	@$(PYTHON) -m harness status

doctor: setup
	@$(PYTHON) -m harness doctor

prepare: setup
	@$(PYTHON) -m harness prepare "$(DATASET)" $(call flag,PROJECT,project)

# Style, and the library's types.
check: setup
	@$(PYTHON) -m ruff check .
	@$(PYTHON) -m ruff format --check .
	@$(PYTHON) -m mypy

# After a change of the dependencies in pyproject.toml; UPGRADE=--upgrade takes the newest releases.
compile = $(PYTHON) -m uv pip compile pyproject.toml --universal --python-version 3.12 --generate-hashes --no-header \
	--no-annotate --no-emit-index-url --no-emit-find-links --quiet $(UPGRADE) --all-extras --group suite --group dev
lock: $(STAMP)
	$(compile) --group all -o requirements.lock
	$(foreach loader,$(APART),$(subst --all-extras ,,$(compile)) --group $(loader) -o requirements-$(loader).lock;)

# The stamp is touched last, so that an interrupted installation is resumed. The lock's hashes hold as constraints.
# Byte code is compiled here, so that no loader's opening is timed while Python compiles its library.
$(STAMP): pyproject.toml requirements.lock
	@set -e; \
	if ! test -x $(PYTHON); then \
		found=; \
		for p in python3.13 python3.12 "$$HOME"/.local/bin/python3.1[2-9] \
			"$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/3.1[2-9]*/bin/python3 python3; do \
			if "$$p" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 12))' 2>/dev/null; then found=$$p; break; fi; \
		done; \
		if test -z "$$found"; then \
			echo "error: Python 3.12 or newer is needed. Get one with: python3 -m pip install uv && python3 -m uv python install 3.12" >&2; \
			echo "       (or pyenv install 3.12, or your system's package manager), then the same command again." >&2; exit 2; \
		fi; \
		echo "making .venv with $$("$$found" --version)"; \
		rm -rf .venv; \
		"$$found" -m venv .venv; \
	fi; \
	echo "installing $(EXTRAS) from requirements.lock$(if $(findstring all,$(EXTRAS)), (several GB on Linux: PyTorch brings CUDA))"; \
	$(PYTHON) -m pip install --quiet --disable-pip-version-check uv 2>/dev/null || $(PYTHON) -m pip install uv; \
	$(PYTHON) -m uv pip install --quiet --compile-bytecode --python $(PYTHON) --constraint requirements.lock --editable . \
		--group suite $(beside:%=--group %)
	@rm -f .venv/.setup-*
	@echo "$(EXTRAS)" > .venv/.extras
	@touch $@

# The compiled loops for gzip in h5ad; numba keeps those that have not changed.
.venv/.compiled: $(STAMP) $(wildcard loadstone/*.py loadstone/*/*.py loadstone/*/*/*.py)
	@echo "compiling our loader's loops, which takes a quarter of a minute"
	@$(PYTHON) -m loadstone.compile
	@touch $@

# If one cannot be installed, its rows are skipped, with the command to try again.
.venvs/%/.setup: pyproject.toml requirements-%.lock | $(STAMP)
	@echo "installing $* into .venvs/$*, since it will not install beside the others"; \
	for p in $(PYTHON) "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/3.12*/bin/python3; do \
		if "$$p" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 12))' 2>/dev/null; then found=$$p; break; fi; \
	done; \
	$(PYTHON) -m uv venv --quiet --clear --python "$${found:-3.12}" .venvs/$* \
		&& $(PYTHON) -m uv pip install --quiet --compile-bytecode --python .venvs/$*/bin/python --constraint requirements-$*.lock \
			--editable . --group suite --group dev --group $* \
		&& touch $@ || { rm -rf .venvs/$*; echo "warning: $* could not be installed; it will not be measured" >&2; }
