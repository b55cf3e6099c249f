# The commands of this project; each is also what CI runs. `make help` lists them.

CARGO ?= cargo
LOOM_DIR := $(CURDIR)/target/loom
# What tests need beyond the default: no way of writing that only measurements take (the feature `lab`).
FEATURES := tidegate/sim,tidegate/tokio,tidegate/futures,tidegate-log/sim,tidegate-server/sim
PRODUCT := --workspace --exclude tidegate-bench --features $(FEATURES)
# With these the tests of the benches share the builds of all crates below tidegate-raft.
SHARED := -p tidegate -p tidegate-log -p tidegate-server
# Tests that miss a tool are noted here and counted at the end; with TIDEGATE_TESTS=all they fail.
export TIDEGATE_TESTS_IGNORED := $(CURDIR)/target/tests-ignored

.PHONY: help built deps deps-redis deps-nats deps-python deps-system deps-peers handlers arena test test-all loom ignored compare compare-benches compare-self check language prove-sync prove-kill prove-failover prove-partitions prove-away measure-move measure-headroom prove-power soak-sim soak-loop soak-churn stream-oracle cluster-oracle suites bench fuzz audit package dashboard dashboard-check dashboard-browser deb examples book measure-tune clean report

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 16

deps: ## what tests need: crates, Debian packages (as root), the `nats` program, nats.py; no rival
	$(CARGO) fetch --locked
	@$(MAKE) --no-print-directory deps-system deps-redis deps-nats deps-python

# The Redis client is tested against a real server.
deps-redis:
	@bench/peers/install.sh redis </dev/null >target-redis-server.log 2>&1 && rm -f target-redis-server.log; \
	command -v redis-server >/dev/null || { echo "missing: redis-server (apt-get install redis-server)"; exit 1; }

# A client that streams and clusters are tested with.
deps-nats:
	@test -x bench/peers/go-nats/bin/nats \
	  || { bench/peers/install.sh nats </dev/null >target-nats.log 2>&1 && rm -f target-nats.log; } \
	  || echo "missing: the nats program (see target-nats.log); by hand: bench/peers/install.sh nats"

# Another client.
NATS_PY := target/nats-py
deps-python:
	@$(NATS_PY)/bin/python3 -c 'import nats' 2>/dev/null \
	  || { python3 -m venv $(NATS_PY) && $(NATS_PY)/bin/pip install -q 'nats-py==2.16.0'; } >target-nats-py.log 2>&1 </dev/null \
	  || echo "missing: nats.py (see target-nats-py.log)"

# Traces of system calls, disks of a node's own, networks of a node's own, a terminal.
deps-system:
	@test "$$(command -v strace ip mkfs.ext4 fsfreeze openssl tmux | wc -l)" = 6 \
	  || { apt-get update -q && apt-get install -y -q --no-install-recommends strace iproute2 e2fsprogs util-linux openssl tmux; } >target-system.log 2>&1 </dev/null \
	  || echo "missing: strace, iproute2, e2fsprogs, util-linux, openssl or tmux (see target-system.log)"

deps-peers: ## the rivals that benches run beside us, and nats-server
	@for peer in rust java erlang go redis-rs go-nats postgres etcd kafka rabbitmq; do \
	  bench/peers/install.sh $$peer </dev/null >target-peers-$$peer.log 2>&1 \
	    && echo "peer $$peer: ready" && rm -f target-peers-$$peer.log \
	    || echo "peer $$peer: not installed (see target-peers-$$peer.log); by hand: bench/peers/install.sh $$peer"; \
	done

# Two jobs: one waits for registries while the other compiles. Without make's flags cargo uses every core.
built: ## the tests of `make test`, compiled
	env -u MAKEFLAGS -u MFLAGS $(CARGO) test --locked --no-run $(PRODUCT) --lib --bins --tests

test: ## every test but those of test-all (installs what is missing when run as root)
	@mkdir -p target && rm -f $(TIDEGATE_TESTS_IGNORED)
	@$(MAKE) --no-print-directory -j2 deps built
	$(CARGO) test --locked $(PRODUCT) --lib --bins --tests
	$(CARGO) test --locked $(PRODUCT) --doc
	$(CARGO) test --locked $(PRODUCT),tidegate-cli/otlp --test otlp
	$(CARGO) test --locked $(PRODUCT),tidegate-cli/otlp --lib serve::otlp
	$(CARGO) test --locked -p tidegate-bench $(SHARED) --features $(FEATURES) --bins --test bench --test report
	@$(MAKE) --no-print-directory loom ignored

test-all: test deps-peers ## test, then rivals, examples, steps of the replication, the proofs and 10,000 seeds: hours
	$(CARGO) test --locked -p tidegate-raft -p tidegate-server --features sim,lab --lib --test store
	$(CARGO) test --locked -p tidegate-cli --features lab --test cluster -- steps nats_server
	$(CARGO) build --locked -p tidegate-cli
	$(CARGO) test --locked -p tidegate-bench --features peers --test peers
	@$(MAKE) --no-print-directory examples
	@$(MAKE) --no-print-directory dashboard-check dashboard-browser check-rules
	@$(MAKE) --no-print-directory prove-kill prove-failover prove-partitions prove-away prove-power
	@$(MAKE) --no-print-directory top-tmux
	@$(MAKE) --no-print-directory soak-sim SEEDS_MAX=10000
	@$(MAKE) --no-print-directory ignored

ignored:
	@if [ -s $(TIDEGATE_TESTS_IGNORED) ]; then sort -u $(TIDEGATE_TESTS_IGNORED); \
	  echo "tests ignored for want of a tool: $$(sort -u $(TIDEGATE_TESTS_IGNORED) | wc -l)"; \
	else echo "tests ignored for want of a tool: 0"; fi

loom: ## the ring and the buffers under every interleaving loom finds
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=$(LOOM_DIR) $(CARGO) test --locked -p tidegate --release --test loom_queue

# Under a terminal of the test's own.
.PHONY: top-tmux
top-tmux: ## `tidegate top` under tmux: sizes, signals, a server that ends, and the terminal given back
	TOP_TMUX=all $(CARGO) test --locked -p tidegate-cli --test top tmux -- --nocapture

PAIRS ?= 15
WITHIN ?= 3
compare: ## OLD=FILE NEW=FILE: two release binaries of tidegate in PAIRS (15) interleaved pairs; NEW may be WITHIN (3) per cent worse
	@test -n "$(OLD)" && test -n "$(NEW)" || { echo "expected OLD=FILE and NEW=FILE, two release binaries of tidegate"; exit 2; }
	$(CARGO) build --locked --release -p tidegate-bench
	target/release/tidegate-bench compare "$(OLD)" "$(NEW)" --pairs $(PAIRS) --within $(WITHIN)

BENCHES ?= mailbox queue topology link redis
compare-benches: ## OLD=FILE NEW=FILE: two release binaries of tidegate-bench over BENCHES (the engine's five), in interleaved pairs
	@test -n "$(OLD)" && test -n "$(NEW)" || { echo "expected OLD=FILE and NEW=FILE, two release binaries of tidegate-bench"; exit 2; }
	scripts/pairs.py "$(OLD)" "$(NEW)" --pairs $(PAIRS) --within $(WITHIN) $(BENCHES)

report: ## every bench with its peers into bench/results/report: most of a day; goes on where it was stopped; ONLY=TEXT measures some steps
	$(CARGO) build --locked --release -p tidegate-cli
	$(CARGO) build --locked --release -p tidegate-bench --features peers
	target/release/tidegate-bench report $(if $(ONLY),--only "$(ONLY)")

handlers: ## real handlers beside the crates that batch: about 4 h; goes on where it was stopped
	$(CARGO) build --locked --release -p tidegate-bench --features peers
	target/release/tidegate-bench handlers --peers --out bench/results/handlers.jsonl

ARENA_CELLS ?= 2000
arena: ## ARENA_CELLS (2000) generated worlds in virtual time: regrets beside rivals and the best settings, then backlogs; keeps its work in target/arena.jsonl
	$(CARGO) build --locked --release -p tidegate-bench
	target/release/tidegate-bench arena --cells $(ARENA_CELLS)
	target/release/tidegate-bench arena --stability --cells $(ARENA_CELLS)

compare-self: ## today's binary compared with itself: the noise of this machine
	$(CARGO) build --locked --release -p tidegate-cli
	@$(MAKE) --no-print-directory compare OLD=target/release/tidegate NEW=target/release/tidegate

prove-sync: ## under strace: no acknowledgement before the sync that covers it
	$(CARGO) test --locked -p tidegate-cli --test stream sync -- --nocapture

KILL_ROUNDS ?= 200
prove-kill: ## 200 times killed under load: what was acknowledged is there, once, in order, unchanged
	KILL_ROUNDS=$(KILL_ROUNDS) $(CARGO) test --locked -p tidegate-cli --test stream kill -- --nocapture

prove-failover: ## a cluster's leader killed 50 times under load: how long publishers waited, at most 2 s
	FAILOVER_ROUNDS=50 FAILOVER_MAX_MS=2000 $(CARGO) test --locked -p tidegate-cli --test cluster leader_killed -- --nocapture

PARTITION_SECONDS ?= 600
prove-partitions: ## ten minutes of nodes cut off, killed and paused, in network namespaces (root)
	PARTITION_SECONDS=$(PARTITION_SECONDS) $(CARGO) test --locked -p tidegate-cli --test cluster cut_off -- --nocapture

AWAY_MIB ?= 4096
prove-away: ## a node away while AWAY_MIB (4096) are written: what the others take meanwhile, how it comes back, and that no publisher waits for 2 s
	AWAY_DEFAULTS=1 AWAY_MAX_MS=2000 AWAY_MIB=$(AWAY_MIB) $(CARGO) test --locked -p tidegate-cli --test cluster away_from -- --nocapture --test-threads 1

MOVE_MIB ?= 1024
measure-move: ## a stream of MOVE_MIB (1024) MiB of 1 KiB messages from one replica to three and back, idle and with 20,000 messages/s: MB/s, and how long publishers wait
	MOVE_MIB=$(MOVE_MIB) $(CARGO) test --locked --release -p tidegate-cli --test cluster measure_move -- --nocapture

HEADROOM_SECONDS ?= 10
HEADROOM_BYTES ?= 16384
HEADROOM_P99 ?= 10ms
measure-headroom: ## the p99 of a server at 0.5 to 1.2 of the rate that `tidegate headroom` predicts for HEADROOM_P99 (10ms) and messages of HEADROOM_BYTES (16384), HEADROOM_SECONDS (10) each
	HEADROOM_SECONDS=$(HEADROOM_SECONDS) HEADROOM_BYTES=$(HEADROOM_BYTES) HEADROOM_P99=$(HEADROOM_P99) $(CARGO) test --locked --release -p tidegate-cli --test stream measure_headroom -- --nocapture

TUNE_CALLERS ?= 16
TUNE_SECONDS ?= 20
TUNE_ROUNDS ?= 10
measure-tune: ## the predictions of `tidegate tune` for the syncs of a server beside the figures under each controller, TUNE_ROUNDS (10) times with TUNE_CALLERS (16) publishers
	$(CARGO) build --locked --release -p tidegate-cli --features lab
	python3 scripts/measure_tune.py target/release/tidegate $(TUNE_CALLERS) $(TUNE_SECONDS) $(TUNE_ROUNDS)

POWER_SECONDS ?= 600
prove-power: ## ten minutes of power lost on one node, two, all, and the cluster forming meanwhile; then each kind of damage to a node's files (root, /dev/fuse)
	POWER_SECONDS=$(POWER_SECONDS) $(CARGO) test --locked -p tidegate-cli --test cluster -- --nocapture --test-threads=1 power_lost damaged_files

SEEDS_MAX ?= 100000
soak-sim: ## the simulated cluster on seeds 1 to SEEDS_MAX (100,000); goes on where it was stopped (target/sim-seeds has what is done)
	SEEDS=1..=$(SEEDS_MAX) SEEDS_DONE=$(CURDIR)/target/sim-seeds $(CARGO) test --locked --release -p tidegate-server --features sim --test sim seeds -- --nocapture

soak-loop: ## simulated event loops under attacks on seeds 1 to SEEDS_MAX (100,000); goes on where it was stopped (target/loop-seeds has what is done)
	SEEDS=1..=$(SEEDS_MAX) SEEDS_DONE=$(CURDIR)/target/loop-seeds $(CARGO) test --locked --release -p tidegate-server --features sim --test busy seeds -- --nocapture

CHURN_ROUNDS ?= 20000
soak-churn: ## streams made and deleted in a loop on simulated servers, CHURN_ROUNDS times (20,000): nothing that they keep grows
	CHURN_ROUNDS=$(CHURN_ROUNDS) $(CARGO) test --locked --release -p tidegate-server --features sim --test busy churn -- --nocapture

stream-oracle: ## the tests of streams against nats-server instead of ours: they ask for nothing it does not do
	STREAM_SERVER=$(CURDIR)/bench/peers/go-nats/bin/nats-server $(CARGO) test --locked -p tidegate-cli --test stream

cluster-oracle: ## the same for the tests of clusters
	STREAM_SERVER=$(CURDIR)/bench/peers/go-nats/bin/nats-server $(CARGO) test --locked -p tidegate-cli --test cluster

SUITE ?=
suites: ## client suites of others, unmodified, against nats-server and ours; SUITES=DIR has the sources that no registry carries; SUITE=NAME runs one
	@test -x bench/peers/go-nats/bin/nats-server || bench/peers/install.sh go-nats
	$(CARGO) build --locked --release -p tidegate-cli
	suites/run.py --tidegate target/release/tidegate --nats-server bench/peers/go-nats/bin/nats-server $(if $(SUITES),--sources "$(SUITES)") $(SUITE)

check: language ## formatting, clippy, doc with warnings denied, the language's ceiling, and the dashboard's bundle
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory dashboard-check; \
	else echo "missing: npm, so the dashboard's bundle is not compared with its source"; fi
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets --all-features -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --all-features --no-deps

language: ## counts of riddles, openers, wide comments and long commit subjects, below a ceiling that only falls
	@scripts/language.py --check

bench: ## the cost of a decision and of an item
	$(CARGO) bench --locked -p tidegate --all-features

FUZZ_SECONDS ?= 60
fuzz: ## each fuzz target for FUZZ_SECONDS (60); new inputs stay in fuzz/target/corpus (needs cargo-fuzz and a nightly toolchain)
	@cd fuzz && for target in $$(sed -n '/\[\[bin\]\]/{n;s/name = "\(.*\)"/\1/p}' Cargo.toml); do \
	  mkdir -p target/corpus/$$target; \
	  $(CARGO) +nightly fuzz run --fuzz-dir . $$target target/corpus/$$target corpus/$$target -- -max_total_time=$(FUZZ_SECONDS) || exit 1; \
	done

audit: ## licences, bans and advisories of every dependency
	@$(CARGO) deny --version >/dev/null 2>&1 || { echo "missing: cargo install --locked cargo-deny"; exit 1; }
	$(CARGO) deny --all-features check licenses bans sources
	@$(CARGO) deny --all-features check advisories || echo "advisories: the database could not be had, or has findings (above)"

package: ## a dry run of publishing each crate: every package builds from its own files (needs a clean work tree)
	$(CARGO) publish --locked --workspace --dry-run

WEB := crates/tidegate-monitor/web
NODE_MODULES := $(WEB)/node_modules/.package-lock.json
$(NODE_MODULES): $(WEB)/package-lock.json
	cd $(WEB) && npm ci --ignore-scripts --no-audit --no-fund

dashboard: $(NODE_MODULES) ## the page of the dashboard, from its source into the bundle that is committed (Node.js 20)
	cd $(WEB) && npm run --silent build

dashboard-check: $(NODE_MODULES) ## the committed bundle is that of its source; the page's tests without a browser
	cd $(WEB) && npm test --silent
	@rm -rf target/dashboard && cd $(WEB) && node build.mjs $(CURDIR)/target/dashboard
	@diff -r crates/tidegate-monitor/dist target/dashboard >/dev/null \
	  || { echo "crates/tidegate-monitor/dist is not the bundle of its source: make dashboard"; exit 1; }

dashboard-browser: $(NODE_MODULES) ## the page in Debian's chromium, at both widths and colour schemes, over made-up figures and a server
	@command -v chromium >/dev/null || { apt-get update -q && apt-get install -y -q --no-install-recommends chromium; } >target-chromium.log 2>&1 </dev/null \
	  || { echo "missing: chromium (see target-chromium.log)"; exit 1; }
	$(CARGO) build --locked -p tidegate-cli
	cd $(WEB) && TIDEGATE="$${CARGO_TARGET_DIR:-$(CURDIR)/target}/debug/tidegate" node --test browser/

deb: ## a Debian package of the program, with its manual pages, completions and systemd unit: target/debian/*.deb
	@command -v cargo-deb >/dev/null || $(CARGO) install --locked cargo-deb
	$(CARGO) build --release --locked -p tidegate-cli
	mkdir -p target/man target/completions
	target/release/tidegate man target/man
	target/release/tidegate completions bash > target/completions/tidegate.bash
	target/release/tidegate completions zsh > target/completions/_tidegate
	target/release/tidegate completions fish > target/completions/tidegate.fish
	$(CARGO) deb --locked --no-build -p tidegate-cli
	packaging/test.sh target/debian/tidegate_*.deb

STATIC := x86_64-unknown-linux-gnu
.PHONY: static
static: ## the program without shared libraries, for a machine or an image without them: target/x86_64-unknown-linux-gnu/release/tidegate, and a test of it
	RUSTFLAGS="-C target-feature=+crt-static" $(CARGO) build --release --locked -p tidegate-cli --target $(STATIC)
	scripts/static.sh $(BUILT)/$(STATIC)/release/tidegate

# Where the examples are built, beside the product's crates, which they share.
BUILT := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
examples: deps-redis deps-python ## each program of examples/ against real servers (SQLite, PostgreSQL, Redis, ours), with checks of the results (needs Go and Node.js)
	@bench/peers/install.sh postgres </dev/null >target-postgres.log 2>&1 && rm -f target-postgres.log || echo "missing: PostgreSQL (see target-postgres.log)"
	$(CARGO) build --locked -p tidegate-cli
	$(CARGO) fmt --manifest-path examples/Cargo.toml --check
	TIDEGATE=$(BUILT)/debug/tidegate $(CARGO) test --locked --manifest-path examples/Cargo.toml --target-dir $(BUILT)
	$(CARGO) clippy --locked --manifest-path examples/Cargo.toml --target-dir $(BUILT) --all-targets -- -D warnings

MDBOOK := $(or $(shell command -v mdbook),$(BUILT)/mdbook/bin/mdbook)
book: ## the book as pages in target/book (needs mdbook, which this installs below target)
	@test -x $(MDBOOK) || $(CARGO) install --locked mdbook@0.5.4 --no-default-features --features search --root $(BUILT)/mdbook
	$(MDBOOK) build book --dest-dir $(BUILT)/book

PROMTOOL := $(or $(shell command -v promtool),$(BUILT)/prometheus/usr/bin/promtool)
.PHONY: check-rules
check-rules: ## the alert rules and the dashboard's expressions under Prometheus's promtool, and the rules over made-up figures (Debian's prometheus, unpacked below target)
	@test -x $(PROMTOOL) || { mkdir -p $(BUILT)/prometheus && cd $(BUILT)/prometheus && apt-get download -q prometheus && dpkg-deb -x prometheus_*.deb .; } >target-prometheus.log 2>&1 </dev/null \
	  || { echo "missing: promtool (see target-prometheus.log)"; exit 1; }
	$(PROMTOOL) check rules observability/alerts.yaml
	$(PROMTOOL) test rules observability/alerts_test.yaml
	PROMTOOL=$(PROMTOOL) $(CARGO) test --locked $(PRODUCT) --test server promtool -- --ignored

clean: ## build output
	$(CARGO) clean
