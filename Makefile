# `make serve` and `make test` need python3 (3.11 or later, with venv) and make; they install everything else into .venv.

PYTHON ?= python3
BIN := .venv/bin

.PHONY: help serve install test extended check lint types architecture bench bench-quick bench-statistics bench-storage month profile wheel release container soak fuzz kills batch-kills sessions templates public-client agents ai-sdk gemini media realtime mcp memory fairness stock-server drills browser screenshots console-assets clean requirements pages catalogue

# Set everything up and serve on http://127.0.0.1:4001.
serve: install
	@$(BIN)/python -m gateway.operator.command serve

# List the targets, each with the first line of the comment above it.
help:
	@awk '/^# / && !about {about = substr($$0, 3)} /^[a-z][a-z-]*:/ {sub(":.*", ""); printf "%-20s %s\n", $$0, about} \
		!/^# / && !/^[A-Z_]+ *[?]?=/ {about = ""}' Makefile

# The libraries of the server and of the command-line client, which `./manage` and `./llmgateway` run with.
install: .venv/serve.stamp

# Compiled modules are always cached: pytest and every process of a test load thousands of them.
export PYTHONDONTWRITEBYTECODE :=

# Three processes more than cores, because tests wait, and at most eight (tests/support/forked.py).
PARALLEL = --processes=$(shell $(BIN)/python -c "import os; print(min(8, os.cpu_count() + 3))")

# The suite except for the tests of `extended` and `browser`; it includes `architecture` and `types`.
test: lint .venv/tools.stamp .venv/clickhouse.stamp
	$(BIN)/pytest $(PARALLEL) -m "not soak and not browser and not extended"

# Storms of requests, outages, killed processes, and walks through every operation or case. CI runs it after `test`.
extended: .venv/test.stamp .venv/tools.stamp .venv/clickhouse.stamp
	$(BIN)/pytest $(PARALLEL) -m "extended and not soak and not browser"

# Between two edits: `make test` also runs slow tests and those that need their own server.
check: lint
	$(BIN)/pytest $(PARALLEL) tests/test_architecture.py tests/test_types.py tests/unit -q -m "not soak and not postgresql and not slow and not extended" \
		--hypothesis-profile=few

# ruff's checks and its format.
lint: .venv/test.stamp
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

# mypy over gateway/ and cli/.
types: .venv/test.stamp
	$(BIN)/mypy gateway
	cd cli && ../$(BIN)/mypy

# Rules on imports between layers, on libraries and on the size of files.
architecture: .venv/test.stamp
	$(BIN)/pytest tests/test_architecture.py -q

# Everything that one run can measure; a part beyond its limits does not stop the others. It writes docs/performance.md.
BENCH_PARTS = "run --publish" lanes lines uploads "rollups --rows 20000" client pairs prompts workers residence
bench: .venv/test.stamp .venv/tools.stamp
	@status=0; for part in $(BENCH_PARTS); do $(BIN)/python -m bench.$$part || status=1; done; exit $$status

# Two minutes: the gateway, its lower bound and the Go peer.
bench-quick: .venv/test.stamp
	$(BIN)/python -m bench.run --targets ferrogw,relay,gateway --phases plain,streams,50-rps,10-streams-per-s --rounds 2 --seconds 2

# A flame graph of plain requests in bench/build/profile.svg; see `python -m bench.profiling --help` for others.
profile: .venv/test.stamp
	$(BIN)/python -m bench.profiling

# Statistics, the request log, removals and the console's pages over five million rows of a year, on both stores: some
# forty minutes each.
bench-statistics: .venv/test.stamp
	$(BIN)/python -m bench.rollups
	$(BIN)/python -m bench.rollups --postgresql
	$(BIN)/python -m bench.console --crowd
	$(BIN)/python -m bench.console --crowd --postgresql

# The bytes of a request in tables, indexes and the log of each store, for plain, streamed and agents' requests: some
# ten minutes.
bench-storage: .venv/test.stamp
	$(BIN)/python -m bench.storage

# A month of ROWS rows on both stores: the FOCUS export equals the ledger, and all sums equal the rows; some fifteen
# minutes each for the default.
ROWS ?= 5000000
month: .venv/test.stamp
	ROWS=$(ROWS) $(BIN)/pytest tests/soak/test_month.py -m soak -s

# The server's wheel, and the client's.
wheel: .venv/test.stamp
	$(BIN)/hatchling build -t wheel -d dist
	cd cli && ../$(BIN)/hatchling build -t wheel -d ../dist

# Everything that a publisher uploads, in dist/release: wheels, source archives, the list of components (SBOM), the
# context of the container and the chart. deploy/release.toml has the settings.
release: .venv/test.stamp
	$(BIN)/python deploy/release.py

# Run the steps of deploy/Dockerfile in an empty environment and start the result with its entry point.
container: .venv/test.stamp
	$(BIN)/pytest tests/soak/test_container.py -m soak

# Tests that take minutes to hours, and the memory of a long run.
soak: .venv/test.stamp
	$(BIN)/pytest tests -m soak
	$(BIN)/python -m bench.flat_memory

# Play every session of agents that change the model: each pair of models with each feature on each surface.
sessions: .venv/test.stamp
	EVERY_SESSION=1 $(BIN)/pytest tests/sessions -q --processes=$(shell nproc)

# Send REQUESTS through two nodes while a random worker is killed every ten seconds, on both stores, with ClickHouse:
# minutes for the default, hours for a million.
REQUESTS ?= 20000
kills: .venv/test.stamp .venv/clickhouse.stamp
	REQUESTS=$(REQUESTS) $(BIN)/pytest tests/soak/test_many_requests.py -m soak -s

# Send a batch of LINES through two nodes on PostgreSQL with Redis while a worker is killed every ten seconds, with
# small requests beside it; prints its time, the growth of memory and the delays.
LINES ?= 4000
batch-kills: .venv/test.stamp
	LINES=$(LINES) $(BIN)/pytest tests/soak/$(if $(NATIVE),test_native_lines.py,test_many_lines.py) -m soak -s

# Run all property tests on new examples; then the parsers of callers' and providers' data, requests that the API
# description allows, and requests to the OAuth endpoints for FUZZ_S seconds. `make test` runs a few fixed examples of each.
FUZZ_S ?= 600
ENDPOINTS = $(addprefix tests/flows/test_, management_description.py media_description.py oauth_errors.py)
fuzz: .venv/test.stamp
	$(BIN)/pytest tests/unit -m "hypothesis and not soak" -q --hypothesis-profile=explore
	end=$$(($$(date +%s) + $(FUZZ_S))); while [ $$(date +%s) -lt $$end ]; do \
		$(BIN)/pytest tests/fuzz $(ENDPOINTS) -q --hypothesis-profile=fuzz || exit 1; done

# Measure success rates and delays for one provider fault after the other, and then for outages of an installation:
# database, Redis, disk, catalogue, restarts.
drills: .venv/test.stamp .venv/tools.stamp .venv/pgbouncer.stamp
	$(BIN)/pytest tests/drills -s -m "soak or not soak"

# Measure the memory that a worker takes for large requests of each kind, and what its budgets count; then how long
# others wait while requests with many parts arrive.
memory: .venv/test.stamp
	$(BIN)/pytest tests/drills/test_memory_budgets.py tests/drills/test_fairness.py -s -m soak -k "memory or uploads"

# Measure how long small requests and those of 200 KB wait while another organization floods the worker with each kind of
# work: many parts, answers of 62 MB, streams of tiny events, long stored conversations, slow readers and others.
fairness: .venv/test.stamp
	$(BIN)/pytest tests/drills/test_fairness.py -s -m soak

# Each template of the command-line client: made, installed from the package registries, tested, and run once.
templates: .venv/test.stamp
	$(BIN)/pytest cli/tests/test_installed_templates.py -m "soak or extended"

# The published command-line client through all of its commands; needs node 20 or later and npm.
public-client: .venv/test.stamp
	$(BIN)/python tests/public_client/walk.py

# Claude Code, Codex and opencode (from npm, pinned) write a file through the gateway on every family of upstreams, set up
# by hand and started by the command-line client. Codex and the OpenAI SDK hold conversations over WebSockets.
agents: .venv/test.stamp .venv/tools.stamp
	$(BIN)/pytest tests/agents

# The AI SDK's major versions 5, 6 and 7 (from npm, pinned, with their own node) over fakes of every upstream format.
ai-sdk: .venv/test.stamp
	$(BIN)/pytest tests/ai_sdk

# The official clients of embeddings, images, sound, moderation, rerank, files, batches and background responses (from
# npm and the package index, pinned).
media: .venv/test.stamp
	$(BIN)/pytest tests/media_clients

# Gemini's clients for Node, @google/genai and @ai-sdk/google (from npm, pinned), over strict fakes of three vendors.
gemini: .venv/test.stamp
	$(BIN)/pytest tests/gemini_clients

# The realtime clients of Node and Python (from npm and the package index, pinned) over a strict fake of a provider.
realtime: .venv/test.stamp
	$(BIN)/pytest tests/realtime_clients

# Clients of chat, media, realtime and MCP against the application under gunicorn's own gevent worker.
stock-server: .venv/test.stamp
	STOCK_GUNICORN=1 $(BIN)/pytest tests/flows/test_stock_gunicorn.py tests/media_clients tests/realtime_clients tests/mcp_clients

# MCP's published clients (both generations of the TypeScript SDK, Inspector, mcp-remote) and its conformance suite (from npm, pinned).
mcp: .venv/test.stamp
	$(BIN)/pytest tests/mcp_clients

# Single sign-on with a published OpenID provider (from npm, pinned).
identity-providers: .venv/test.stamp
	$(BIN)/pytest tests/identity_providers

# In a real Chromium (Debian: apt-get install chromium) a page calls the gateway from another origin, a person authorizes
# an application and uses the console, and a video is played. Axe examines each page at three widths, light and dark.
browser: .venv/test.stamp
	EVERY_VIEW=1 $(BIN)/pytest tests/flows/test_chromium*.py tests/flows/test_console_screens.py tests/media_clients/test_chromium.py -rs

# Each page of the console at three widths, light and dark, in .screenshots/; five of them are in the documentation.
screenshots: .venv/test.stamp
	SCREENSHOTS=.screenshots $(BIN)/pytest tests/flows/test_console_screens.py tests/flows/test_chromium_reference.py \
		tests/flows/test_chromium_sso.py tests/flows/test_chromium_playground.py -q -rs
	$(BIN)/python tests/support/document_pictures.py .screenshots docs/images

# Fetch the files of npm packages that the console serves, in the versions of assets/vendored.toml.
console-assets:
	$(PYTHON) deploy/vendor_assets.py

.venv/bin/python:
	@$(PYTHON) -c "import gateway"
	$(PYTHON) -m venv .venv

.venv/serve.stamp: requirements.txt requirements-cli.txt | .venv/bin/python
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r requirements.txt -r requirements-cli.txt
	@touch $@

# Compile the modules that every pytest process imports once, so that the processes do not all compile them.
COMPILED = _pytest cryptography flask gevent httpx httpx2 hypothesis jinja2 joserfc openai opentelemetry psycopg pydantic \
	pygments redis requests rich urllib3 werkzeug yaml

# uv takes seconds where pip takes most of a minute. uv does not read pip's settings, so pip installs if they configure an
# index.
.venv/test.stamp: requirements-dev.txt | .venv/bin/python
	@sed -n '/^uv==/,/[^\\]$$/p' requirements-dev.txt > .venv/uv.txt
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r .venv/uv.txt
	@$(BIN)/uv pip install --quiet --require-hashes -r requirements-dev.txt || \
		$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.txt
	@cd .venv/lib/python3*/site-packages && "$(CURDIR)/$(BIN)/python" -m compileall -q -j 0 $(COMPILED) "$(CURDIR)/gateway" || true
	@touch $@ .venv/serve.stamp

# Unpack promtool (for the alert rules) and nginx from Debian packages into .venv; installing the packages would start
# servers. Tests that need them are skipped on systems other than Debian if they are not on PATH.
.venv/tools.stamp: | .venv/bin/python
	@folder=$$(mktemp -d); cd "$$folder"; for pair in prometheus:bin/promtool nginx:sbin/nginx; do \
		name=$${pair##*/}; if PATH="$$PATH:/usr/sbin" command -v $$name >/dev/null; then continue; fi; \
		{ apt-get download $${pair%%:*} || { timeout 60 apt-get update && apt-get download $${pair%%:*}; }; } >/dev/null 2>&1; \
		dpkg-deb --fsys-tarfile $${pair%%:*}_*.deb 2>/dev/null | tar -xO ./usr/$${pair#*:} >program 2>/dev/null \
			&& install -m 755 program "$(CURDIR)/$(BIN)/$$name" || echo "$$name is not here: what needs it is skipped"; \
	done; cd /; rm -rf "$$folder"
	@touch $@

# Debian's PgBouncer with its libraries, unpacked for the drills, which are skipped without it.
.venv/pgbouncer.stamp: | .venv/bin/python
	@folder=$$(mktemp -d); cd "$$folder"; packages="pgbouncer libc-ares2 libevent-2.1-7"; \
		{ apt-get download $$packages || { timeout 60 apt-get update && apt-get download $$packages; }; } >/dev/null 2>&1; \
		for package in *.deb; do dpkg-deb -x "$$package" "$(CURDIR)/.venv/pgbouncer" 2>/dev/null; done; cd /; rm -rf "$$folder"
	@test -x .venv/pgbouncer/usr/sbin/pgbouncer || echo "PgBouncer is not here: its drill is skipped"
	@touch $@

# The engine of ClickHouse, which only its own tests load. They are skipped where it does not exist.
.venv/clickhouse.stamp: requirements-clickhouse.txt .venv/test.stamp
	@$(BIN)/uv pip install --quiet --no-deps --require-hashes --target .venv/clickhouse -r requirements-clickhouse.txt \
		|| echo "chdb-core is not here: the tests with ClickHouse are skipped"
	@touch $@

# Regenerate the tables of docs/ that come from the code; read the difference before you commit it.
pages: .venv/test.stamp
	WRITE_GOLDENS=1 $(BIN)/pytest -q tests/test_documents.py tests/unit/surfaces/management/test_access_table.py

# Regenerate the requirement files from the two pyproject.toml, including hashes. Extras stay in them: pip refuses a file with
# hashes that pins `google-auth` where a library needs `google-auth[requests]`.
COMPILE = $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-strip-extras --no-emit-index-url \
	--no-emit-find-links --no-header --no-annotate -q
requirements: .venv/test.stamp
	$(COMPILE) pyproject.toml cli/pyproject.toml --extra test --extra catalogue --extra otel -o requirements-dev.txt
	$(COMPILE) pyproject.toml -c requirements-dev.txt -o requirements.txt
	$(COMPILE) pyproject.toml --extra otel -c requirements-dev.txt -o requirements-otel.txt
	$(COMPILE) cli/pyproject.toml -c requirements-dev.txt -o requirements-cli.txt
	$(BIN)/python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['build-system']['requires'], sep='\n')" | \
		$(COMPILE) - -c requirements-dev.txt -o requirements-build.txt

# Build the catalogue of models from its sources.
catalogue: .venv/test.stamp
	$(BIN)/python -m gateway.operator.command catalogue build

# Remove what the targets made, .venv too.
clean:
	rm -rf .venv bench/build data/bench .pytest_cache .hypothesis .ruff_cache .mypy_cache
