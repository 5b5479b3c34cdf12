# Every target builds .venv first, from Python 3.11+ and nothing else.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
DEMO   := $(VENV)/.demo
JOBS   ?= 2

# Tests start many short processes: what is compiled once is not compiled again.
unexport PYTHONDONTWRITEBYTECODE
# Freed memory is kept for the next array, so that its pages need not be asked for again.
export MALLOC_TRIM_THRESHOLD_ := 1000000000
export MALLOC_MMAP_THRESHOLD_ := 1000000000
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist worksteal -q

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow test-hooks bench bench-compile bench-rivals suites float32 in-context relations retrieval finite neighbours studies studies-full fuzz goldens lint tables claims clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(DEMO): EXTRAS := plot
$(READY): EXTRAS := studies,test
$(DEMO) $(READY): pyproject.toml constraints.txt
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'attnfun needs Python 3.11 or newer')"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[$(EXTRAS)]"
	touch $@

demo: $(or $(wildcard $(READY)),$(DEMO)) ## compile, verify, evaluate and draw one function (writes demo.safetensors, demo.png)
	$(BIN)/python -m attnfun.lab.demo

test: $(READY) ## ruff, mypy and the tests (slow ones left out), mypy beside the tests
	$(BIN)/ruff check src tests benchmarks docs
	@$(BIN)/mypy > $(VENV)/mypy.txt 2>&1 & types=$$!; \
	$(PYTEST) -m "not slow"; tests=$$?; \
	wait $$types; types=$$?; cat $(VENV)/mypy.txt; exit $$((tests ? tests : types))

test-slow: $(READY) ## the slow tests, and all examples of the property tests (about half an hour)
	ATTNFUN_THOROUGH=1 $(PYTEST) -m "slow or drawn"

test-hooks: $(READY) ## the tests of hooks, hub and nnsight (first installs transformer-lens and nnsight, about 600 MB, into .venv)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[hooks,hub]' 'nnsight>=0.8'
	$(PYTEST) tests/hooks tests/house/test_first_hour.py

bench: $(READY) ## the table of what the project must show
	$(BIN)/python benchmarks/table.py

.PHONY: bench-speed
bench-speed: $(READY) ## evaluation by the compiled kernels against torch, NumPy and SciPy, in ratios of one run (writes docs/performance.md; ten minutes, 4 GB)
	$(BIN)/python benchmarks/speed.py --output docs/performance.md --section speed
	$(BIN)/python benchmarks/speed_tokens.py --output docs/performance.md --section speed-tokens

RIVALS := build/rivals-env
$(RIVALS)/.ready: pyproject.toml constraints.txt benchmarks/rivals.txt
	test -x $(RIVALS)/bin/python || $(PYTHON) -m venv $(RIVALS)
	$(RIVALS)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[studies,fast]' -r benchmarks/rivals.txt
	touch $@

bench-rivals: $(RIVALS)/.ready ## attnfun beside MLP, KAN, kernels, forests, interpolation, torch; growth (writes docs/performance.md; about half an hour, goes on where it was stopped)
	ATTNFUN_FAST=1 $(RIVALS)/bin/python benchmarks/rivals.py --jobs $(JOBS)

suites: $(READY) ## the five shipped suites at 1e-6 of their range (writes benchmarks/suites-1e-6.md)
	$(BIN)/attnfun suite classic feynman genz special composites --eps 1e-6 --relative --jobs $(JOBS) --timeout 300 --output benchmarks/suites-1e-6.md

bench-compile: BASE = 95c5ada
bench-compile: $(READY) ## CPU time of the shipped suites and of named requests at the commit BASE and here, in turns (writes docs/performance.md; about ten minutes)
	$(BIN)/python benchmarks/compile.py --base $(BASE) --repeats 2 --output docs/performance.md --section compile

float32: $(READY) ## the same built for float32: proved at 1e-4, measured in torch (writes benchmarks/float32.md)
	$(BIN)/python benchmarks/float32.py --jobs $(JOBS) --output benchmarks/float32.md

in-context: $(READY) ## ridge, lasso and logistic regression in context: needed, predicted and proved depths
	$(BIN)/python benchmarks/in_context.py --output benchmarks/in_context.md

relations: $(READY) ## ranks and towers of relations, every certificate attacked (about ten minutes)
	$(BIN)/python benchmarks/relations.py

retrieval: $(READY) ## heads over keys: proved against measured, on random keys and on digits (a few minutes)
	$(BIN)/python benchmarks/retrieval.py
	$(BIN)/attnfun reproduce retrieval-real --full --out build/studies

finite: $(READY) ## dimensions that finite relevance relations need (a few minutes)
	$(BIN)/python benchmarks/finite_relations.py

neighbours: $(READY) ## furthest and nearest neighbours: proved, predicted and measured (a few minutes)
	$(BIN)/python benchmarks/neighbours.py

studies: $(READY) ## every study at quick size, and one page of all of them (writes attnfun-studies/ and docs/studies.md; under 20 minutes)
	$(BIN)/attnfun reproduce all --quick --jobs $(JOBS) --out attnfun-studies; status=$$?; \
	$(BIN)/attnfun report attnfun-studies --markdown docs/studies.md && exit $$status

studies-full: $(READY) ## every study at full size: more seeds, steps and settings (writes build/studies-full/ and docs/studies-full.md; about an hour on two cores)
	$(BIN)/attnfun reproduce all --full --resume --jobs $(JOBS) --out build/studies-full; status=$$?; \
	$(BIN)/attnfun report build/studies-full --markdown docs/studies-full.md && exit $$status

fuzz: $(READY) ## 2,000 soundness cases against the checker, with figures
	$(BIN)/python tests/certify/test_fuzz.py

BASE ?= HEAD
goldens: $(READY) ## the same requests over all kinds at the commit BASE and here, bit for bit (about two minutes)
	$(BIN)/python tests/goldens/goldens.py --base $(BASE)

lint: $(READY) ## ruff and mypy
	$(BIN)/ruff check src tests benchmarks docs
	$(BIN)/mypy

.PHONY: docs test-docs
$(VENV)/.docs: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs,hooks,plot]'
	touch $@

docs: export NO_MKDOCS_2_WARNING := 1
docs: $(VENV)/.docs ## the site: pages, reference, gallery, tutorials as run (writes build/site; a few minutes, after about 500 MB of packages the first time)
	$(BIN)/python docs/site/pages.py
	$(BIN)/python -m mkdocs build --strict --quiet

test-docs: docs ## the same, then every link, and every page in headless Chromium (apt-get install chromium)
	$(BIN)/python docs/site/check.py

tables: $(READY) ## write the shipped keys of squares, logs, powers and exponentials (about five minutes)
	$(BIN)/python -m attnfun.kinds.function.build.unary.make_tables

claims: $(READY) ## write CLAIMS.md from the code's own registry
	$(BIN)/python -m attnfun.lab.claims > CLAIMS.md.new && mv CLAIMS.md.new CLAIMS.md

.PHONY: dist test-dist
DIST := build/dist-env
$(DIST)/bin/hatchling: pyproject.toml
	test -x $(DIST)/bin/python || $(PYTHON) -m venv $(DIST)
	$(DIST)/bin/python -m pip install --quiet --disable-pip-version-check "hatchling>=1.27"
	touch $@

dist: $(DIST)/bin/hatchling ## the wheel and the sdist (writes dist/)
	rm -rf dist
	$(DIST)/bin/hatchling build -d dist -t sdist -t wheel

test-dist: dist ## both installed alone into fresh environments of every Python 3.11+ that is found, and used
	$(DIST)/bin/python tests/wheels/check.py dist

clean: ## remove the environment and everything generated
	rm -rf $(VENV) build dist demo.png demo.safetensors attnfun-studies .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
