# Two commands: `make demo` runs the main job, `make test` runs all tests. Each sets up first.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: help setup agent test test-trust test-agent test-versions test-kubernetes kubernetes test-yarn yarn try-yarn kafka try-kafka lint unit tests docs dist demo demo-lab browser dashboard-pictures bench bench-live bench-agent bench-apps bench-fleet bench-fleet-day bench-traces bench-sweep bench-policies bench-papers-live storm fence soak fuzz mutants claims future java clean clean-all

help: ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(READY) ## create .venv with Tidegate and everything that its tests need

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Tidegate needs Python 3.11 or later: run make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv .venv
	PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	$(BIN)/python -m tidegate.simulation.kernels.ahead
	@touch $@

AGENT := src/tidegate/spark/agent/tidegate-agent.jar

agent: setup java $(AGENT) ## compile the agent, a plugin for Spark drivers of any language

$(AGENT): $(READY) scripts/build_agent.py $(wildcard agent/java/io/tidegate/spark/*.java)
	$(BIN)/python scripts/build_agent.py

java: ## find Java, or install it where possible
	@sh scripts/ensure-java.sh

browser: ## find Chromium for the dashboard's tests, or install it where possible
	@sh scripts/ensure-browser.sh

test: setup java agent browser try-kafka try-yarn lint tests ## lint, types, layers, doctests and all tests

kafka: setup java ## fetch Spark's Kafka connector and a broker from Maven Central
	$(BIN)/python -m tidegate.spark.local.kafka_jars

try-kafka: setup java
	@$(BIN)/python -m tidegate.spark.local.kafka_jars || echo "Tests against Kafka are skipped."

yarn: setup java ## fetch the daemons of YARN from Maven Central
	$(BIN)/python -m tests.clusters.yarn --fetch

try-yarn: setup java
	@$(BIN)/python -m tests.clusters.yarn --fetch || echo "Tests on YARN are skipped."

lint: setup
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --quiet --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

unit: setup ## tests that need neither Java nor a browser (about four minutes)
	$(BIN)/pytest -m "not java and not browser and not kubernetes" --durations=10

tests: setup
	$(BIN)/python scripts/run_tests.py

dist: setup java agent ## build wheel and source archive, and follow the tutorial with the wheel alone
	$(BIN)/python scripts/dist.py

docs: setup ## build the documentation in out/site; broken links and undocumented settings fail
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

demo: setup java ## the main job, live: a Spark cluster that follows an exchange day (some minutes)
	$(BIN)/tidegate demo --out out/demo --dashboard

demo-lab: setup ## without Spark: a control loop, then a backtest with pictures (a minute)
	$(BIN)/python examples/first_loop.py
	$(BIN)/python examples/first_backtest.py out/demo-lab.html

dashboard-pictures: setup browser ## renew the pictures of docs/guides/dashboard.md and the baselines of the tests
	$(BIN)/python -m tests.browser.pictures

bench: setup ## decisions, the simulator compared with SimPy and Ciw, the bound; ratios in one run; writes docs/measured/speed.md (minutes)
	$(BIN)/python benchmarks/speed.py --write
	$(BIN)/python benchmarks/decisions.py
	$(BIN)/python benchmarks/simulation.py --quick
	$(BIN)/python benchmarks/bound.py

bench-live: setup java ## live on Spark: static, Spark's own allocation and Tidegate (two and a half hours; resumes)
	$(BIN)/python benchmarks/live.py
	$(BIN)/python benchmarks/live_overhead.py

test-trust: setup java ## four queries live; kill -9, a damaged journal, a full disk, a taken port, a second copy (ten minutes)
	$(BIN)/pytest -m trust tests/apps
	$(BIN)/python -m tests.trust.faults

test-agent: setup java agent ## a jar, attached controllers and Spark Connect with the agent on a standalone cluster (minutes)
	$(BIN)/pytest -m agent --durations=10 tests/clusters/agent

test-versions: setup java agent ## live on Spark 3.5 to 4.3, each from the package index (a quarter of an hour; ONLY=3.5)
	$(BIN)/python -m tests.versions.run $(if $(ONLY),--only $(ONLY))

test-yarn: setup java agent yarn ## submitted jobs on a real YARN, with slower faults than in make test (minutes)
	$(BIN)/pytest -m "java or yarn" --durations=10 tests/clusters/test_yarn.py tests/clusters/test_yarn_faults.py

kubernetes: setup ## build the API server of Kubernetes into the cache, once (needs Go; five minutes of CPU)
	$(BIN)/python -m tests.clusters.kubernetes.programs

test-kubernetes: setup java agent kubernetes ## submitted jobs and deploy/kubernetes on a real API server (a quarter of an hour)
	$(BIN)/pytest -m kubernetes --durations=10 tests/clusters/kubernetes

bench-agent: setup java agent ## what the agent costs a driver with 200 executors and 20 queries (a quarter of an hour)
	$(BIN)/python benchmarks/agent.py

bench-apps: setup java ## every application at full speed and its profile, into docs/apps (half an hour)
	$(BIN)/python benchmarks/apps.py --write

bench-sweep: setup java ## 10,000 fluid trading days on Spark compared with one process (minutes)
	$(BIN)/python benchmarks/sweep.py

bench-policies: setup ## every policy on open traces and generated days (hours; resumes; TRACES=folder, ONLY=name, WORLD=batches)
	$(BIN)/python benchmarks/policies.py $(TRACES) $(if $(ONLY),--only $(ONLY)) $(if $(WORLD),--world $(WORLD))

storm: setup java agent try-kafka ## random faults on real Spark into docs/measured/storm.jsonl (hours; resumes; WORLD=fleet SEED=1 SEEDS=20 FAULTS=20)
	$(BIN)/python -m tests.storm $(if $(WORLD),--world $(WORLD)) $(if $(SEED),--seed $(SEED)) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(FAULTS),--faults $(FAULTS))

fence: setup java agent try-kafka ## cut off and suspend servers of a fleet in network namespaces; writes docs/measured/fence.md (an hour or more; SEED=1 RUNS=200; continues; as root)
	$(BIN)/python -m tests.fleet.partitions --seed $(or $(SEED),1) --runs $(or $(RUNS),200); code=$$?; $(BIN)/python -m tests.fleet.partitions --page; exit $$code

fuzz: setup ## random words, files and requests, other ones each time (minutes; CASES=5000)
	TIDEGATE_FUZZ=$(or $(CASES),5000) $(BIN)/pytest --durations=10 tests/fuzz tests/guards/test_clock_properties.py

soak: setup ## thirty simulated days of the control loop with faults (ten minutes; resumes; SEED=1 SEEDS=1 DAYS=30)
	$(BIN)/python -m tests.soak --seed $(or $(SEED),1) --seeds $(or $(SEEDS),1) --days $(or $(DAYS),30)

mutants: setup ## change the code in one place, and see whether a test fails (an hour; resumes; SAMPLE=50 SEED=1 ONLY=loop)
	$(BIN)/python scripts/mutants.py --sample $(or $(SAMPLE),50) --seed $(or $(SEED),1) $(if $(ONLY),--only $(ONLY))

bench-fleet: setup java ## the FUGU experiment on real hosts and in the simulator (about twenty minutes)
	$(BIN)/python benchmarks/fleet.py

bench-fleet-day: setup java ## 35 queries on six hosts for an hour, beside the simulator (about an hour and a half)
	$(BIN)/python benchmarks/fleet_day.py --report docs/measured/fleet-day.md

bench-traces: setup java ## logs to traces: rows a second and core, and linearity (minutes)
	$(BIN)/python benchmarks/traces.py

bench-papers-live: setup java ## experiments of the papers live on Spark, into docs/measured/papers-live.md (two hours; resumes)
	$(BIN)/python benchmarks/papers_live.py

claims: setup ## repeat the papers' experiments and write docs/measured/claims.md (an hour; resumes)
	$(BIN)/tidegate reproduce all --keep out/bench-papers --claims docs/measured/claims.md --report out/papers.html

future: setup ## answer the questions that the papers left open and write docs/measured/future.md (a quarter of an hour)
	$(BIN)/tidegate reproduce future --page docs/measured/future.md

clean: ## remove the files that setup and tests created; out/bench-* stays, which took hours
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
	rm -f src/tidegate/spark/agent/tidegate-agent.jar
	if [ -d out ]; then find out -mindepth 1 -maxdepth 1 ! -name 'bench-*' -exec rm -rf {} +; fi

clean-all: clean ## the same, and what the benchmarks measured
	rm -rf out
