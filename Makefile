# Needs only GNU make and one Python that tools/stacks.py supports; environments live in .venv/.
#   make test PYTEST_ARGS="-k merge"    some tests only
#   make test STACKS=3.12               one stack only (also for demo, docs, lint and bench)

PYTHON ?= python3
PYTEST_ARGS ?=
STACKS ?=
QUICK ?=
EXPERIMENTS ?=
PARTITIONS ?=
export STACKS PARTITIONS

stacks := $(PYTHON) tools/stacks.py
one_thread := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1

.PHONY: help demo test notebooks docs paper lint format bench stacks clean

help:
	@echo "make demo    run the demonstration: split, sample, merge, compare"
	@echo "make test    run the tests on every supported Python that is found"
	@echo "make notebooks  run the notebooks in their quick setting, on one Python of each stack"
	@echo "make paper   run the paper's experiments, hours; with QUICK=1 minutes; goes on where it stopped"
	@echo "make docs    build the documentation into docs/_build/html"
	@echo "make lint    check style; make format mends what can be mended"
	@echo "make bench   measure the merge"
	@echo "make stacks  list the interpreters that make test would use"
	@echo "make clean   remove environments and everything built (not .paper, the experiments' draws)"

demo:
	@$(stacks) run pymc,plots -m arviz_swiss.demo

test:
	@$(stacks) test $(PYTEST_ARGS)

# The longest first, so that no core waits for the other at the end.
longest := hierarchical quickstart paper/mixed_effects paper/logistic_real trust cluster
all_notebooks := $(wildcard notebooks/*.ipynb notebooks/paper/*.ipynb)
in_order := $(longest:%=notebooks/%.ipynb)
in_order += $(filter-out $(in_order),$(all_notebooks))

# A store of its own, so that nothing that an earlier run has kept is taken for this one's result.
notebooks:
	@folder=$$(mktemp -d); \
	QUICK=1 ARVIZ_SWISS_COMPILE_CACHE=1 PAPER_STORE=$$folder $(stacks) notebooks --nbmake --nbmake-timeout=900 \
		$(in_order); \
	status=$$?; rm -rf $$folder; exit $$status

paper:
	@$(one_thread) $(stacks) run test,pymc,plots,fast notebooks/paper/run.py \
		$(if $(filter-out 0,$(QUICK)),--quick) $(EXPERIMENTS)

docs:
	rm -rf docs/api docs/_build docs/notebooks
	@$(stacks) run docs,pymc,dask,plots -m sphinx -W --keep-going -q -b html docs docs/_build/html

lint:
	@status=0; \
	$(stacks) run test -m ruff check . || status=1; \
	$(stacks) run test -m ruff format --check . || status=1; \
	exit $$status

format:
	@$(stacks) run test -m ruff check --fix .
	@$(stacks) run test -m ruff format .

bench:
	@$(one_thread) $(stacks) run pymc,plots benchmarks/merge.py
	@$(one_thread) $(stacks) run test,pymc,dask,plots,fast -m pytest -q -m speed tests

stacks:
	@$(stacks) list

clean:
	rm -rf .venv docs/_build docs/api docs/notebooks build dist .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
