# Needs only GNU make and one Python, 3.11 or later. tox, which pyproject.toml configures, makes one
# environment per target in .venv/, and again when what it depends on has changed.
#   make test PYTEST_ARGS="-k merge -x"     some tests only
#   make test-all STACKS="3.11 3.13"        these Pythons only (also for test and notebooks)
#   make docs PYTHON=/opt/python3.12/bin/python3    another Python

PYTHON ?= python3
PYTEST_ARGS ?=
STACKS ?=
QUICK ?=
EXPERIMENTS ?=

# Two words: the version of the Python that calls, and where it lies.
this := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2], sys.base_prefix + "/bin")')
stack := $(firstword $(this))
tox_folder := .venv/tox-$(stack)

# pyenv's shims stand on PATH whether their Pythons run or not, so the Pythons themselves go first.
pyenv := $(wildcard $(or $(PYENV_ROOT),$(HOME)/.pyenv)/versions/3.1[1-9]*/bin)
empty :=
space := $(empty) $(empty)
comma := ,
path := $(subst $(space),:,$(lastword $(this)) $(pyenv)):$(PATH)
tox := PATH="$(path)" UV_PYTHON_DOWNLOADS=never $(tox_folder)/bin/tox run -q

# Pythons that STACKS names must be there; of the others those are taken that are.
on = $(tox) $(if $(STACKS),--skip-missing-interpreters false) \
	-e $(subst $(space),$(comma),$(strip $(or $(STACKS),$(1)))) --

.PHONY: help demo test test-all notebooks docs claims paper lint format bench dist clean

help:
	@echo "make demo       run the demonstration: 200,000 rows, divided and whole, compared"
	@echo "make test       run the tests on this Python ($(stack))"
	@echo "make test-all   run them on every supported Python that is found"
	@echo "make lint       check style, imports and types; make format mends the style"
	@echo "make claims     compare the figures of README and docs with what is measured; QUICK=1 in a minute"
	@echo "make docs       build the documentation into docs/_build/html"
	@echo "make notebooks  run the notebooks in their quick setting, on one Python of each stack"
	@echo "make paper      run the paper's experiments, hours; with QUICK=1 minutes; goes on where it stopped"
	@echo "make bench      measure the merge"
	@echo "make dist       build the package, check it, and try it in empty environments"
	@echo "make clean      remove environments and everything built (not .paper, the experiments' draws)"

$(tox_folder)/bin/tox:
	@echo "Installing tox for Python $(stack)"
	@$(PYTHON) -m venv $(tox_folder)
	@$(tox_folder)/bin/python -m pip install -qq tox tox-uv

demo lint bench: $(tox_folder)/bin/tox
	@$(tox) -e $@

test: $(tox_folder)/bin/tox
	@$(call on,$(stack)) $(PYTEST_ARGS)

# Pythons beyond the first of a stack have its ArviZ and PyMC: these tests would find what differs.
newest := arviz_swiss/base arviz_swiss/data arviz_swiss/merging tests/data tests/merging \
	tests/test_package.py tests/parallel/test_store.py tests/parallel/test_partition.py \
	tests/parallel/test_executors.py tests/pymc/test_sample.py tests/pymc/test_sample_batches.py

runs = $(shell PATH="$(path)" python$(1) -c "print(True)" 2>&1 | grep -x True)
newer = $(foreach version,3.13 3.14,$(if $(call runs,$(version)),$(version)))

test-all: $(tox_folder)/bin/tox
ifneq ($(STACKS),)
	@$(call on) $(PYTEST_ARGS)
else
	@status=0; \
	$(call on,3.11 3.12) $(PYTEST_ARGS) || status=$$?; \
	$(if $(newer),$(call on,$(newer)) $(or $(PYTEST_ARGS),$(newest)) || status=$$?;) \
	exit $$status
endif

# Longest first, each with a short one behind it: xdist hands every worker two at once.
longest := quickstart paper/scalability paper/mixed_effects paper/logistic_simulated \
	hierarchical other_samplers trust paper/logistic_real cluster
all_notebooks := $(wildcard notebooks/*.ipynb notebooks/paper/*.ipynb)
in_order := $(longest:%=notebooks/%.ipynb)
in_order += $(filter-out $(in_order),$(all_notebooks))

# The paper's experiments compare methods, which the tests hold on every stack: one is enough here.
on_both := $(filter-out notebooks/paper/%,$(in_order))
run_notebooks = -n 3 --dist load --maxschedchunk 1 --nbmake --nbmake-timeout=900

# A store of its own, so that nothing that an earlier run has kept is taken for this one's result.
# Three workers for two cores, as notebooks also wait for the processes that they start.
notebooks: $(tox_folder)/bin/tox
	@folder=$$(mktemp -d); status=0; \
	export QUICK=1 PAPER_STORE=$$folder; \
	$(if $(STACKS),$(call on) $(run_notebooks) $(in_order) || status=$$?;, \
	$(if $(call runs,3.11),$(call on,3.11) $(run_notebooks) $(on_both) || status=$$?;) \
	$(if $(call runs,3.12),$(call on,3.12) $(run_notebooks) $(in_order) || status=$$?;)) \
	rm -rf $$folder; exit $$status

claims: $(tox_folder)/bin/tox
	@$(tox) -e claims -- $(if $(filter-out 0,$(QUICK)),--quick)

paper: $(tox_folder)/bin/tox
	@$(tox) -e paper -- $(if $(filter-out 0,$(QUICK)),--quick) $(EXPERIMENTS)

docs: $(tox_folder)/bin/tox
	rm -rf docs/api docs/_build docs/notebooks
	@$(tox) -e docs

# The wheel on every Python that is named or found.
dist: $(tox_folder)/bin/tox
	rm -rf dist
	@$(tox) -e dist -- $(or $(STACKS),3.11 3.12 $(newer))

format: $(tox_folder)/bin/tox
	@$(tox) -e format

clean:
	rm -rf .venv docs/_build docs/api docs/notebooks build dist
	rm -rf .pytest_cache .ruff_cache .mypy_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
