# Two commands do everything on a fresh machine: `make demo` and `make test`.
SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Separate environments: checkov needs other releases of shared dependencies, and the oldest CDK conflicts with the newest.
CHECKOV := build/checkov
LOWEST := build/lowest
OLD_URLLIB3 := build/urllib3
MKDOCS := build/mkdocs
MERMAID := build/mermaid
CHROMIUM := build/chromium
READERS := build/readers
REFERENCE := build/reference
LOCALSTACK := build/localstack
PYRIGHT := build/pyright
ARM64 := build/arm64
DYNALITE := build/dynalite
RECORDED := build/recorded/complete
RECORDING := -p tests.truth.recording
# jsii warns at every start that Node 20 is no longer supported. The CDK still supports it.
export JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION := 20,22,24
export JSII_SILENCE_WARNING_DEPRECATED_NODE_VERSION := 20,22,24
# Without byte code, each process compiles all tests again: 4 seconds.
unexport PYTHONDONTWRITEBYTECODE
# A logged traceback without columns takes a quarter of the time. The unit tests log thousands.
export PYTHONNODEBUGRANGES := 1
export PATH := $(CURDIR)/$(BIN):$(CURDIR)/node_modules/.bin:$(PATH)

# What takes long is for `make thorough`.
QUICK := -m "not thorough"
# They mostly wait.
EXAMPLE_WORKERS := -n 2

.PHONY: help setup demo pictures fanout load approval check test environments parts smoke lint types deployed examples synth combinations ordinary unit unit-a-to-c unit-d-to-z integration kinds packaging protocol bench prove truth thorough late-workers outputs sql-rounds breaker faults drills docs audit-run audit-oracle worker-run waiting-run wheel test-wheel format lock clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(READY) ## Python environment and CDK CLI (done by every other target)

$(READY): requirements.txt pyproject.toml package-lock.json scripts/setup.sh
	@scripts/setup.sh $(VENV)
	@touch $@

build/%/.ready: scripts/%-requirements.txt | $(READY)
	@$(BIN)/python -m venv --clear $(@D)
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-compile --require-hashes -r $<
	@touch $@

# Not an environment: some tests put this folder first on their path.
$(OLD_URLLIB3)/.ready: scripts/urllib3-requirements.txt | $(READY)
	@rm -rf $(@D)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(@D) --require-hashes -r $<
	@touch $@

# Draws the diagrams of the documentation site without a network. A package without dependencies.
$(MERMAID)/.ready: Makefile | $(READY)
	@npm install --prefix $(@D) --silent --ignore-scripts --no-audit --no-fund @mermaid-js/tiny@11.17.2
	@touch $@

# A headless browser for the tests of the HTML pages: 70 MB from the npm registry, unpacked by the package's own code. The
# variable makes it unpack the libraries too, which a machine may lack.
$(CHROMIUM)/.ready: Makefile | $(READY)
	@rm -rf $(@D)
	@npm install --prefix $(@D) --silent --ignore-scripts --no-audit --no-fund @sparticuz/chromium@147.0.0
	@mkdir $(@D)/browser && cd $(@D) && TMPDIR=$$PWD/browser AWS_EXECUTION_ENV=AWS_Lambda_nodejs20.x \
		node --input-type=module -e 'import browser from "@sparticuz/chromium"; await browser.executablePath()'
	@rm -rf $(@D)/node_modules/@sparticuz/chromium/bin
	@touch $@

# Programs that read pictures, for the tests of outputs: 20 MB from the npm registry, without its scripts.
$(READERS)/.ready: Makefile | $(READY)
	@npm install --prefix $(@D) --silent --ignore-scripts --no-audit --no-fund sharp@0.35.5 pngjs@7.0.0 jpeg-js@0.4.4 \
		@cwasm/lodepng@0.1.9 @cwasm/jpeg-turbo@0.1.3
	@touch $@

# A type checker that is stricter than mypy about the CDK's interfaces, without its optional dependency.
$(PYRIGHT)/.ready: Makefile | $(READY)
	@npm install --prefix $(@D) --silent --ignore-scripts --no-audit --no-fund --omit=optional pyright@1.1.414
	@touch $@

# A DynamoDB that shares no code with the others. Its binary parts are in the packages.
$(DYNALITE)/.ready: Makefile | $(READY)
	@npm install --prefix $(@D) --silent --ignore-scripts --no-audit --no-fund dynalite@4.0.0
	@touch $@

# Python for Arm in an emulator, on Debian only.
$(ARM64)/.ready: scripts/arm64.sh | $(READY)
	@scripts/arm64.sh $(@D)
	@touch $@

demo: $(READY) ## the main job on a local AWS; FILES=path for your own files
	@python -m examples.demo $(if $(FILES),--files "$(FILES)")

pictures: $(READY) ## 200 pictures under faults, three consumers, and a montage of their outputs (some minutes)
	@python -m examples.pictures

fanout: $(READY) ## two pipelines on one bucket, and a replay of its events (about two minutes)
	@python -m examples.fanout

load: $(READY) ## CSV files into PostgreSQL, with copies, losses and late workers (some minutes)
	@python -m examples.load

approval: $(READY) ## invoices wait for a person in a durable function, and one is overwritten meanwhile (about two minutes)
	@python -m examples.approval

# Print the output of each target when it ends. A failed target does not stop the others.
SIDE_BY_SIDE := $(MAKE) --no-print-directory --output-sync=target --keep-going

check: $(READY) ## before each commit: ruff, import-linter, mypy, unit tests
	@$(SIDE_BY_SIDE) --jobs=2 types unit-a-to-c unit-d-to-z lint

test: $(READY) ## all that a change at hand can break, in some minutes
	@$(SIDE_BY_SIDE) --jobs=3 environments
	@$(SIDE_BY_SIDE) --jobs=3 parts

environments: $(OLD_URLLIB3)/.ready $(MKDOCS)/.ready $(MERMAID)/.ready $(CHROMIUM)/.ready $(READERS)/.ready

# The deployed stack and the main job wait for some of their time, so they begin first.
parts: smoke examples types ordinary synth integration unit kinds packaging protocol lint

thorough: $(READY) ## what is wide or slow: all deployed stories, faults, strangers, the oldest CDK, all random examples
	@$(SIDE_BY_SIDE) --jobs=2 environments $(CHECKOV)/.ready $(LOWEST)/.ready $(PYRIGHT)/.ready
	@$(SIDE_BY_SIDE) --jobs=4 thorough-deployed deployed thorough-stacks thorough-examples thorough-engine thorough-kinds

# Deployed tests mostly wait, so four parts run at a time.
thorough-deployed: $(READY)
	@pytest suite tests/local -m thorough

thorough-examples: $(READY)
	@pytest tests/examples -m thorough

# All random examples. Without it, tests take a quarter of them.
thorough-stacks thorough-engine thorough-kinds: export THOROUGH := 1
thorough-stacks: $(READY)
	@pytest tests/synth tests/packaging -m "thorough or wide"

thorough-engine: $(READY)
	@pytest tests/unit tests/integration tests/protocol -m "thorough or wide"

thorough-kinds: $(READY)
	@pytest tests/kinds tests/pairs -m "thorough or wide"

lint: $(READY) ## ruff and import-linter
	@ruff check . && ruff format --check .
	@lint-imports --no-cache

types: $(READY) ## mypy, strict
	@mypy
	@mypy app.py benchmarks examples tests

# All processes record their requests for `make truth`. pytest needs the root for the plugin.
deployed: export PYTHONPATH := $(CURDIR)/tests/truth/hook:$(CURDIR)
deployed: $(READY) $(OLD_URLLIB3)/.ready ## all stories of deployed stacks on the local AWS, with a recording for `make truth`
	@pytest tests/local $(QUICK) $(RECORDING)

$(RECORDED): $(shell find constructs lambda_src tools tests/local examples/catalogue -name '*.py')
	@$(MAKE) --no-print-directory deployed

truth: $(READY) $(REFERENCE)/.ready $(LOCALSTACK)/.ready $(DYNALITE)/.ready $(ARM64)/.ready $(RECORDED) ## what is assumed of AWS: permissions, models, quotas, recordings
	@pytest tests/truth

smoke: $(READY) ## one deployed stack with each kind of work, on the local AWS
	@pytest suite $(QUICK)

examples: $(READY) $(CHROMIUM)/.ready ## the main job on the local AWS, in its short form
	@pytest tests/examples $(QUICK) $(EXAMPLE_WORKERS)

synth: $(READY) ## tests of synthesised templates
	@pytest tests/synth $(QUICK)

combinations: $(READY) $(LOWEST)/.ready ## a pipeline in more than a hundred apps, on the oldest and the newest CDK (some minutes)
	@python -m tests.synth.combinations

ordinary: $(READY) ## the ordinary pipeline in seconds: read these tests first
	@pytest tests/ordinary $(QUICK)

unit: $(READY) ## unit tests
	@pytest tests/unit $(QUICK)

# The two halves of `make check`. The workers of xdist would take a seventh more time.
unit-a-to-c: $(READY)
	@pytest tests/unit/[a-c]*/ $(QUICK)

unit-d-to-z: $(READY)
	@pytest tests/unit/[d-z]*/ tests/unit/test_*.py $(QUICK)

integration: $(READY) $(OLD_URLLIB3)/.ready $(MERMAID)/.ready $(CHROMIUM)/.ready $(READERS)/.ready ## tests with databases, a browser, threads and processes
	@pytest tests/integration $(QUICK)

kinds: $(READY) ## the same promises in each cell of kinds, runners and hosts
	@pytest tests/kinds tests/pairs $(QUICK)

packaging: $(READY) $(MKDOCS)/.ready $(MERMAID)/.ready ## tests of the wheel, the layer and the documents
	@pytest tests/packaging $(QUICK)

protocol: $(READY) $(OLD_URLLIB3)/.ready ## the short form of the proof of the protocol
	@pytest tests/protocol $(QUICK)

prove: $(READY) $(OLD_URLLIB3)/.ready ## the whole proof of the protocol: every world explored, every seeded defect found; MINUTES=n to stop then
	@python -m tests.protocol.prove $(if $(MINUTES),--minutes $(MINUTES))

late-workers: $(READY) ## 200 rounds of chaos with workers that write after their successor's commit (about a minute)
	@python -m tests.protocol.late_workers

outputs: $(READY) ## 500 rounds of late workers that write S3 outputs on a local AWS, and all orders of their requests (some minutes)
	@python -m tests.protocol.output_rounds

sql-rounds: $(READY) ## 150 rounds of workers that are killed or late at each statement of a SQL transaction (a minute or two)
	@python -c "from tests.integration.sql_rounds import main; raise SystemExit(main())"

breaker: $(READY) ## bad files and outages in virtual time, all worlds (about half an hour)
	@python -m tests.protocol.breaker_runs

docs: $(MKDOCS)/.ready $(MERMAID)/.ready ## the documentation site, in build/site
	@NO_MKDOCS_2_WARNING=1 $(MKDOCS)/bin/mkdocs build --strict

faults: $(READY) $(OLD_URLLIB3)/.ready ## deployed pipelines under faults, in full (some minutes); SHORT=1 for half of the faults, TIMES=10 in a row, DEFECTS=1 to see each one found
	@python -m tests.local.faults $(if $(SHORT),--ten-minutes) $(if $(TIMES),--times $(TIMES)) $(if $(DEFECTS),--defects)

drills: $(READY) ## lose rows, table, queue, notification, stack, bucket, code and workers of a deployed pipeline, rename it and roll it back, each with its repair (some minutes)
	@mkdir -p build
	@pytest -v --junitxml=build/drills.xml tests/local/operations/test_drills.py tests/local/operations/test_rename.py \
		tests/local/operations/test_stack_takeover.py tests/local/operations/test_upgrade.py
	@python -m scripts.drills_page build/drills.xml

audit-run: $(READY) ## the audit of 20,000 objects of which S3 lost some, on a local AWS (OBJECTS=n for another number), and of a million synthetic ones
	@python -m tests.local.audit_run $(OBJECTS)
	@python -m tests.local.audit_run.synthetic

worker-run: $(READY) ## 400 objects handled by workers outside of Lambda that are killed and stopped (about two minutes)
	@python -m tests.local.worker_run

waiting-run: $(READY) ## 20,000 files that wait beside 2,000 that are ready, at a limit of messages in flight, with and without copies (an hour)
	@python -m tests.local.waiting_run

audit-oracle: $(READY) ## the audit against an oracle written from docs/audit.md, in 5,000 random worlds (some minutes)
	@ORACLE_WORLDS=5000 pytest -q tests/unit/audit/test_oracle.py tests/integration/test_audit_join.py

bench: $(READY) ## what a change costs, in full (about half an hour), in build/bench.json; BENCH="cpu cold" for some of it
	@python -m benchmarks $(BENCH)

wheel: $(READY) ## the wheel and the source distribution, in dist/
	@rm -rf dist && python -m build --no-isolation

# The next target that needs the checkout creates its environment again.
test-wheel: $(READY) $(OLD_URLLIB3)/.ready ## tests of the wheel in dist/: unit, integration, synth, packaging
	@rm $(READY)
	@python -m pip install --quiet --disable-pip-version-check --no-deps --no-index --force-reinstall dist/*.whl
	@pytest tests/unit tests/integration tests/synth tests/packaging --ignore=tests/synth/test_checkov.py \
		--ignore=tests/synth/test_compatibility.py --ignore=tests/packaging/test_site.py --ignore=tests/packaging/test_sbom.py

format: $(READY) ## ruff's formatter and its safe fixes
	@ruff format . && ruff check --fix .

lock: ## write requirements.txt from pyproject.toml, and the hashes of each pin
	@scripts/lock.sh

clean: ## remove all files that the other targets made
	rm -rf $(VENV) node_modules cdk.out build dist .mypy_cache .ruff_cache .hypothesis
