# The commands of this project; each is also what CI runs. `make help` lists them.

CARGO ?= cargo
LOOM_DIR := $(CURDIR)/target/loom

.PHONY: help deps deps-redis deps-peers deps-python deps-strace test check loom prove-sync prove-kill prove-failover prove-partitions prove-away measure-move prove-power soak-sim stream-oracle cluster-oracle bench fuzz audit clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

deps: ## what tests and peers need: crates, Debian packages, the rivals' builds
	$(CARGO) fetch --locked
	@$(MAKE) --no-print-directory deps-redis
	@$(MAKE) --no-print-directory deps-peers
	@$(MAKE) --no-print-directory deps-python deps-strace

# The Redis client is tested against a real server.
deps-redis:
	@bench/peers/install.sh redis </dev/null >target-redis-server.log 2>&1 && rm -f target-redis-server.log; \
	command -v redis-server >/dev/null || { echo "missing: redis-server (apt-get install redis-server)"; exit 1; }

# Tests do without the rivals, so their absence is told and does not stop anything.
deps-peers:
	@for peer in rust java erlang go redis-rs go-nats; do \
	  bench/peers/install.sh $$peer </dev/null >target-peers-$$peer.log 2>&1 \
	    && echo "peer $$peer: ready" && rm -f target-peers-$$peer.log \
	    || echo "peer $$peer: not installed (see target-peers-$$peer.log); by hand: bench/peers/install.sh $$peer"; \
	done

# A client the streams are tested with; without it those tests say so and pass.
NATS_PY := target/nats-py
deps-python:
	@$(NATS_PY)/bin/python3 -c 'import nats' 2>/dev/null \
	  || { python3 -m venv $(NATS_PY) && $(NATS_PY)/bin/pip install -q 'nats-py==2.16.0'; } >target-nats-py.log 2>&1 </dev/null \
	  || echo "nats.py: not installed (see target-nats-py.log)"

# What proves the order of syncs and acknowledgements; without it that test says so and passes.
deps-strace:
	@command -v strace >/dev/null || { apt-get update -q && apt-get install -y -q --no-install-recommends strace; } >target-strace.log 2>&1 </dev/null \
	  || echo "strace: not installed (see target-strace.log)"

test: ## every test (installs what is missing when run as root)
	@if [ "$$(id -u)" = 0 ]; then $(MAKE) --no-print-directory deps; else $(MAKE) --no-print-directory deps-redis || exit 1; \
	  for peer in rust java erlang go redis-rs; do \
	    echo hello | bench/peers/$$peer/start >/dev/null 2>&1 || echo "missing: peer $$peer (bench/peers/install.sh $$peer)"; \
	  done; fi
	$(CARGO) test --locked --workspace --all-features
	@$(MAKE) --no-print-directory loom

loom: ## the ring and the buffers under every interleaving loom finds
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=$(LOOM_DIR) $(CARGO) test --locked -p tidegate --release --test loom_queue

prove-sync: ## under strace: no acknowledgement before the sync that covers it
	$(CARGO) test --locked -p tidegate-cli --test stream sync -- --nocapture

prove-kill: ## 200 times killed under load: what was acknowledged is there, once, in order, unchanged
	KILL_ROUNDS=200 $(CARGO) test --locked -p tidegate-cli --test stream kill -- --nocapture

prove-failover: ## a cluster's leader killed 50 times under load: how long publishers waited, at most 2 s
	FAILOVER_ROUNDS=50 FAILOVER_MAX_MS=2000 $(CARGO) test --locked -p tidegate-cli --test cluster leader_killed -- --nocapture

prove-partitions: ## ten minutes of nodes cut off, killed and paused, in network namespaces (root)
	PARTITION_SECONDS=600 $(CARGO) test --locked -p tidegate-cli --test cluster cut_off -- --nocapture

AWAY_MIB ?= 4096
prove-away: ## a node away while AWAY_MIB (4096) are written: what the others take meanwhile, how it comes back, and that no publisher waits for 2 s
	AWAY_DEFAULTS=1 AWAY_MAX_MS=2000 AWAY_MIB=$(AWAY_MIB) $(CARGO) test --locked -p tidegate-cli --test cluster away_from -- --nocapture --test-threads 1

MOVE_MIB ?= 1024
measure-move: ## a stream of MOVE_MIB (1024) MiB of 1 KiB messages from one replica to three and back, idle and with 20,000 messages/s: MB/s, and how long publishers wait
	MOVE_MIB=$(MOVE_MIB) $(CARGO) test --locked --release -p tidegate-cli --test cluster measure_move -- --nocapture

prove-power: ## ten minutes of power lost on one node, two, all, and the cluster forming meanwhile; then each kind of damage to a node's files (root, /dev/fuse)
	POWER_SECONDS=600 $(CARGO) test --locked -p tidegate-cli --test cluster -- --nocapture --test-threads=1 power_lost damaged_files

SEEDS_MAX ?= 100000
soak-sim: ## the simulated cluster on seeds 1 to SEEDS_MAX (100,000); goes on where it was stopped (target/sim-seeds has what is done)
	SEEDS=1..=$(SEEDS_MAX) SEEDS_DONE=$(CURDIR)/target/sim-seeds $(CARGO) test --locked --release -p tidegate-server --all-features --test sim seeds -- --nocapture

stream-oracle: ## the tests of streams against nats-server instead of ours: they ask for nothing it does not do
	STREAM_SERVER=$(CURDIR)/bench/peers/go-nats/bin/nats-server $(CARGO) test --locked -p tidegate-cli --test stream

cluster-oracle: ## the same for the tests of clusters
	STREAM_SERVER=$(CURDIR)/bench/peers/go-nats/bin/nats-server $(CARGO) test --locked -p tidegate-cli --test cluster

check: ## formatting, clippy and doc with warnings denied
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets --all-features -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --all-features --no-deps

bench: ## the cost of a decision and of an item
	$(CARGO) bench --locked -p tidegate --all-features

fuzz: ## each fuzz target for a minute (needs cargo-fuzz and a nightly toolchain)
	@for target in event_log choice controller link_codec link_receiver link_sender resp command log checkpoint nats nats_config consumer entry streams api ingest cluster_wire raft_message catch_up; do \
	  $(CARGO) +nightly fuzz run --fuzz-dir fuzz $$target -- -max_total_time=60 || exit 1; \
	done

audit: ## licences, bans and advisories of every dependency
	@$(CARGO) deny --version >/dev/null 2>&1 || { echo "missing: cargo install --locked cargo-deny"; exit 1; }
	$(CARGO) deny --all-features check licenses bans sources
	@$(CARGO) deny --all-features check advisories || echo "advisories: the database could not be had, or has findings (above)"

clean: ## build output
	$(CARGO) clean
