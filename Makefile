# Every target builds the environment first if it is missing.
# Not named PYTHON: scripts/environment reads that variable to choose the Python to build with.
VENV_PYTHON := .venv/bin/python
ARGS ?=
FUZZ_RECORDS ?= 20000
FUZZ_SEED ?= 1
MUTANTS_SEED ?= 1
FAILOVERS ?= 20
# Builds images: docker, podman or buildah; the first that is there.
ENGINE ?= $(firstword $(foreach name,docker podman buildah,$(if $(shell command -v $(name)),$(name))))
IMAGE_PREFIX ?= drivetrain
VERSION = $(shell awk -F '"' '/^version/ { print $$2 }' pyproject.toml)
# A platform is many processes: without it each of them would compile every module again.
unexport PYTHONDONTWRITEBYTECODE
SOURCES := schemas trainer services deploy tests benchmarks examples scripts

.PHONY: help environment run test test-all test-heavy unit mutants suites weight test-faults failovers test-kubernetes kubernetes-tools test-exchange exchange-tools fuzz check fmt gen bench bench-quick charts lock images

help: ## show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

environment:
	@scripts/environment

run: environment ## start the platform and train a model on it (ARGS=--exit-when-done to leave)
	@$(VENV_PYTHON) -m examples.demo $(ARGS)

test: environment ## every part with real servers, one platform and one series of failures
	@$(VENV_PYTHON) -m pytest tests --ignore=tests/faults/scenarios --ignore=tests/exchange \
		--ignore=tests/kubernetes/scenarios -m "not heavy" --hypothesis-profile=quick -n 3 --no-loadscope-reorder $(ARGS)

test-heavy: environment ## what `make test` leaves out for the sake of time
	@$(VENV_PYTHON) -m pytest tests --ignore=tests/faults/scenarios --ignore=tests/exchange \
		--ignore=tests/kubernetes/scenarios -m heavy -n 2 --no-loadscope-reorder $(ARGS)

test-all: environment ## `make test` and all its heavy variants, every failure, every benchmark in small
	@$(VENV_PYTHON) -m pytest tests --ignore=tests/exchange --ignore=tests/kubernetes/scenarios -n 3 $(ARGS)
	@$(VENV_PYTHON) -m benchmarks.run --quick

suites: environment ## the heavy suites that the changes since BASE ask for (CONTRIBUTING.md)
	@$(VENV_PYTHON) -m scripts.suites --base $(or $(BASE),main) $(ARGS)

weight: environment ## lines per part, against those last recorded (ARGS=--record)
	@$(VENV_PYTHON) -m scripts.weight $(ARGS)

unit: environment ## pure tests, under 10 s
	@$(VENV_PYTHON) -m pytest tests/unit -m "not heavy" --hypothesis-profile=quick \
		--disable-socket --allow-unix-socket $(ARGS)

mutants: environment ## 200 random changes in the cores: which do their own unit tests miss? (MUTANTS_SEED=n)
	@$(VENV_PYTHON) -m tests.mutants --seed $(MUTANTS_SEED) --json tests/mutants/recorded.json $(ARGS)

test-faults: environment ## every failure scenario, with real faults on a running platform
	@$(VENV_PYTHON) -m pytest tests/faults $(ARGS)

test-kubernetes: kubernetes-tools ## a real Kubernetes API server: launcher, charts, training in pods, failures
	@$(VENV_PYTHON) -m pytest tests/kubernetes $(ARGS)

kubernetes-tools: environment ## build etcd, Kubernetes, kwok and helm with Go into ~/.cache, once (10-20 min)
	@$(VENV_PYTHON) -m tests.kubernetes.tools

test-exchange: exchange-tools ## what is exported, read by the tools themselves: MLflow, TensorBoard, pandas
	@$(VENV_PYTHON) -m pytest tests/exchange $(ARGS)

exchange-tools: environment ## install MLflow, TensorBoard and pandas into ~/.cache, once (1 min, 1 GB)
	@$(VENV_PYTHON) -m tests.exchange.tools

failovers: environment ## kill -9 of brokers of a cluster of three: how long a consumer waits (FAILOVERS=n)
	@$(VENV_PYTHON) -m benchmarks.broker_failover --failovers $(FAILOVERS) $(ARGS)

fuzz: environment ## 20,000 malformed records while a job trains (FUZZ_RECORDS=n FUZZ_SEED=n)
	@$(VENV_PYTHON) -m pytest tests/fuzz --fuzz-records $(FUZZ_RECORDS) --fuzz-seed $(FUZZ_SEED) $(ARGS)

check: environment ## check format, lint, types, import contracts, generated files; changes nothing
	@.venv/bin/ruff format --check $(SOURCES)
	@.venv/bin/ruff check $(SOURCES)
	@.venv/bin/mypy
	@.venv/bin/lint-imports
	@$(VENV_PYTHON) schemas/generate.py --check
	@$(VENV_PYTHON) -m deploy.generate --check
	@$(VENV_PYTHON) -m benchmarks.page --check

fmt: environment ## format, and apply ruff's fixes
	@.venv/bin/ruff check --fix $(SOURCES)
	@.venv/bin/ruff format $(SOURCES)

gen: environment ## generate JSON Schemas, AsyncAPI document, event catalogue, values of charts, figures
	@$(VENV_PYTHON) schemas/generate.py
	@$(VENV_PYTHON) -m deploy.generate
	@$(VENV_PYTHON) -m benchmarks.page

bench: environment ## run every benchmark, each against a peer in the same run, and record the figures
	@$(VENV_PYTHON) -m benchmarks.run $(ARGS); status=$$?; $(VENV_PYTHON) -m benchmarks.page; exit $$status

bench-quick: environment ## run every benchmark with small sizes: that each runs, not what it finds (5 min)
	@$(VENV_PYTHON) -m benchmarks.run --quick $(ARGS)

charts: environment ## package the charts into build/charts (needs helm)
	@$(VENV_PYTHON) -m deploy.package build/charts

lock: environment ## resolve requirements.lock again from the pyproject files
	@.venv/bin/uv pip compile --quiet --universal --python-version 3.11.4 --generate-hashes --no-header \
		--no-emit-package drivetrain-schemas --no-emit-package drivetrain \
		--group dev pyproject.toml -o requirements.lock
	@.venv/bin/uv pip compile --quiet --universal --python-version 3.11.4 --generate-hashes --no-header \
		tests/exchange/tools/requirements.in -o tests/exchange/tools/requirements.lock

images: ## build the images of deploy/images (ENGINE=docker|podman|buildah IMAGE_PREFIX=name ARGS=options)
	@test -n "$(ENGINE)" || { echo "images: install docker, podman or buildah, or name one: ENGINE=..." >&2; exit 1; }
	@for name in services training; do \
		$(ENGINE) build $(ARGS) -f deploy/images/$$name/Dockerfile -t $(IMAGE_PREFIX)/$$name:$(VERSION) \
			--build-arg VERSION=$(VERSION) --build-arg REVISION=$$(git rev-parse HEAD) . || exit 1; done
	@$(ENGINE) images | grep -F "$(IMAGE_PREFIX)/"
