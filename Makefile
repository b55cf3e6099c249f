# The commands of this project; each is also what CI runs. `make help` lists them.

CARGO ?= cargo
LOOM_DIR := $(CURDIR)/target/loom

.PHONY: help deps deps-redis deps-peers test check loom bench fuzz audit clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

deps: ## what tests and peers need: crates, Debian packages, the rivals' builds
	$(CARGO) fetch --locked
	@$(MAKE) --no-print-directory deps-redis
	@$(MAKE) --no-print-directory deps-peers

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

test: ## every test (installs what is missing when run as root)
	@if [ "$$(id -u)" = 0 ]; then $(MAKE) --no-print-directory deps; else $(MAKE) --no-print-directory deps-redis || exit 1; \
	  for peer in rust java erlang go redis-rs; do \
	    echo hello | bench/peers/$$peer/start >/dev/null 2>&1 || echo "missing: peer $$peer (bench/peers/install.sh $$peer)"; \
	  done; fi
	$(CARGO) test --locked --workspace --all-features
	@$(MAKE) --no-print-directory loom

loom: ## the ring and the buffers under every interleaving loom finds
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=$(LOOM_DIR) $(CARGO) test --locked -p tidegate --release --test loom_queue

check: ## formatting, clippy and doc with warnings denied
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets --all-features -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --all-features --no-deps

bench: ## the cost of a decision and of an item
	$(CARGO) bench --locked -p tidegate --all-features

fuzz: ## each fuzz target for a minute (needs cargo-fuzz and a nightly toolchain)
	@for target in event_log choice controller link_codec link_receiver link_sender resp command log checkpoint nats nats_config; do \
	  $(CARGO) +nightly fuzz run --fuzz-dir fuzz $$target -- -max_total_time=60 || exit 1; \
	done

audit: ## licences, bans and advisories of every dependency
	@$(CARGO) deny --version >/dev/null 2>&1 || { echo "missing: cargo install --locked cargo-deny"; exit 1; }
	$(CARGO) deny --all-features check licenses bans sources
	@$(CARGO) deny --all-features check advisories || echo "advisories: the database could not be had, or has findings (above)"

clean: ## build output
	$(CARGO) clean
