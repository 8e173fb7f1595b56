# The commands of the README and of CI.
PYTHON ?= python3
BIN    := .venv/bin

.PHONY: install run test suite check bench bench-page soak docs site sdk fuzz lock clean

install: .venv/.run-ready

run: install
	@exec $(BIN)/plaza serve

# Temporary files are kept in memory if it has room for 4 GB: tests start hundreds of databases.
TEST_TMPDIR := $(shell df --output=avail /dev/shm 2>/dev/null | awk 'NR == 2 && $$1 > 4000000 { print "/dev/shm" }')

# The installations run beside each other, and the checks beside the tests: much of both uses one core, or waits.
test:
	$(MAKE) --no-print-directory --jobs=4 check suite

# Four processes for two cores, one test file each at a time: many tests wait for servers and browsers.
suite: .venv/.test-ready .venv/.browser-ready .venv/.proxies-ready .venv/.promtool-ready tests/upstash/node_modules/.ready tests/oidc/node_modules/.ready tests/sdk/node_modules/.ready tests/events/node_modules/.ready
	TMPDIR=$(or $(TEST_TMPDIR),$(TMPDIR),/tmp) $(BIN)/python -m pytest -p xdist -n 4 --dist loadfile --no-loadscope-reorder

# The checks that need no server: style, types, imports between packages, terms, class names.
check: .venv/.test-ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.wording
	$(BIN)/python -m tests.naming

# The CPU of every path beside peers, in about ten minutes. `make bench ARGS=--quick` shows that it works, `python -m bench NAME` runs another benchmark.
bench: .venv/.test-ready bench/peers/node/node_modules/.ready
	$(BIN)/python -m bench $(ARGS)

# All figures of docs/performance.md, on an idle machine, in about twenty minutes.
bench-page: .venv/.test-ready bench/peers/node/node_modules/.ready
	for name in performance latency scaling syscalls; do $(BIN)/python -m bench $$name --store || exit 1; done

# A mixed load for hours, with the memory of the service and of Valkey: not in CI. docs/operations.md shows a result.
MINUTES ?= 120
RATE ?= 50
soak: .venv/.test-ready
	$(BIN)/python -m bench.soak --minutes $(MINUTES) --rate $(RATE)

# The pages of docs/ that are generated from the code.
docs: .venv/.test-ready
	$(BIN)/python -m plaza.docgen docs

# Clients for Python and TypeScript in sdk/, made from the OpenAPI document. docs/sdk.md shows how to use them.
sdk: .venv/.test-ready tests/sdk/node_modules/.ready
	$(BIN)/python -m tests.sdk.generate sdk

# Generated requests to every operation as anonymous, user and admin: a few of them are in `make test`, 20,000 here.
fuzz: .venv/.test-ready
	$(BIN)/python -m tests.openapi.fuzz --cases 20000

# The versions of constraints.txt that Plaza needs to run, with their hashes: for pip install --require-hashes.
lock: .venv/.test-ready
	$(BIN)/uv pip compile pyproject.toml --extra all --constraint constraints.txt --universal --generate-hashes \
	  --no-header --no-annotate --no-emit-index-url --quiet --output-file requirements.lock

# The documentation as a site, in site/. Open site/index.html; it needs no web server and no network.
site: .venv/.test-ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

clean:
	rm -rf .venv .hypothesis .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .schemathesis site sdk tests/*/node_modules bench/peers/node/node_modules

.venv/.created:
	$(PYTHON) -m venv .venv
	@touch $@

# Pinned versions; the build runs in the environment itself, so it is pinned too. Modules are compiled with all cores, also
# where PYTHONDONTWRITEBYTECODE is set: each start would compile them again.
PIP     := $(BIN)/pip install --quiet --no-compile --constraint constraints.txt
COMPILE := $(BIN)/python -m compileall -qq -j 0 .venv/lib src || true
.venv/.run-ready: .venv/.created pyproject.toml constraints.txt
	$(PIP) setuptools
	$(PIP) --no-build-isolation --editable '.[all]'
	$(COMPILE)
	@touch $@

.venv/.test-ready: .venv/.created pyproject.toml constraints.txt
	$(PIP) setuptools
	$(PIP) --no-build-isolation --editable '.[dev]'
	$(COMPILE)
	@touch .venv/.run-ready $@

# $(call debian,PROGRAMS,PACKAGES) installs Debian's packages unless the programs exist, one call at a time. Only root can do
# so. No service is started.
debian = @missing=; for each in $(1); do PATH="$$PATH:/usr/sbin" command -v $$each || missing=1; done >/dev/null; [ -z "$$missing" ] || \
  { [ "$$(id -u)" = 0 ] && flock Makefile sh -ec ' \
      policy=/usr/sbin/policy-rc.d; \
      [ -e $$policy ] || { printf "%s\n" "\#!/bin/sh" "exit 101" > $$policy; chmod 755 $$policy; trap "rm $$policy" EXIT; }; \
      apt-get -qq update; DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes $(2) >/dev/null'; } || \
  { echo "This needs Debian packages. Run: apt-get install $(2)"; exit 1; }

.venv/.browser-ready: .venv/.created
	$(call debian,chromium,chromium)
	@touch $@

.venv/.proxies-ready: .venv/.created
	$(call debian,nginx haproxy,--no-install-recommends nginx haproxy)
	@touch $@

# promtool checks the alert rules. It is one file of Debian's package 'prometheus', which would also start a server.
.venv/.promtool-ready: .venv/.created
	@command -v promtool >/dev/null || { mkdir -p .venv/promtool && cd .venv/promtool && \
	  flock ../../Makefile sh -c 'apt-get -qq download prometheus 2>/dev/null || { apt-get -qq update && apt-get -qq download prometheus; }' && \
	  dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin/promtool && mv usr/bin/promtool ../bin/ && rm -r ../promtool; } || \
	  { echo "The tests need promtool: install Debian's package 'prometheus', then run this again."; exit 1; }
	@touch $@

# Node's packages for tests and benchmarks: Upstash's TypeScript client, an OpenID provider, and what makes a TypeScript client of Plaza. Node is Debian's package, these are pinned.
%/node_modules/.ready: %/package.json
	$(call debian,npm,nodejs npm)
	npm install --prefix $* --no-package-lock --no-audit --no-fund --silent
	@touch $@
