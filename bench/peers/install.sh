#!/bin/sh
# Installs the tools that the peers (the rivals beside which Tidegate is measured) need, and builds the peers.
# `install.sh rust|java|erlang|go|redis-rs|redis|nats|go-nats|postgres|etcd|kafka|rabbitmq` installs one. The script may run
# again at any time.
# Only apt-get needs root, and only if a package is missing.
set -eu
cd "$(dirname "$0")"

# Installs the given Debian packages, unless all are installed.
packages() {
    missing=
    for package in "$@"; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing="$missing $package"
    done
    [ -z "$missing" ] && return
    apt-get update -q
    # The variable has several names, so it stands without quotes.
    # shellcheck disable=SC2086
    apt-get install -y -q --no-install-recommends $missing
}

rust() {
    command -v cargo >/dev/null || { echo "rust: needs cargo" >&2; return 1; }
    # The target directory is fixed, because `start` does not look into the caller's CARGO_TARGET_DIR.
    (cd rust && cargo build --release --locked --target-dir target)
}

java() {
    command -v javac >/dev/null || packages openjdk-17-jdk-headless
    command -v mvn >/dev/null || packages maven
    (cd java && mvn -B -q package)
}

# Unpacks RabbitMQ below the given directory. Debian's package would start the server when it is installed.
unpack_rabbitmq() {
    rm -rf "$1"/_deps
    mkdir -p "$1"/_deps
    (cd "$1"/_deps && { apt-get download -q -o APT::Sandbox::User=root rabbitmq-server || { apt-get update -q && apt-get download -q -o APT::Sandbox::User=root rabbitmq-server; }; })
    dpkg -x "$1"/_deps/rabbitmq-server_*.deb "$1"/_deps/rabbitmq-server
    rm "$1"/_deps/rabbitmq-server_*.deb
}

erlang() {
    packages erlang-base
    # Another version than Debian's: GEN_BATCH_SERVER names a directory with its sources.
    if [ -n "${GEN_BATCH_SERVER:-}" ]; then
        rm -rf erlang/_deps/gen_batch_server
        mkdir -p erlang/_deps/gen_batch_server/ebin
        erlc -o erlang/_deps/gen_batch_server/ebin "$GEN_BATCH_SERVER"/src/gen_batch_server.erl
        cp "$GEN_BATCH_SERVER"/src/gen_batch_server.app.src erlang/_deps/gen_batch_server/ebin/gen_batch_server.app
    # The peer uses only gen_batch_server's code.
    elif [ -z "$(ls -d erlang/_deps/rabbitmq-server/usr/lib/rabbitmq/lib/*/plugins/gen_batch_server-*/ebin 2>/dev/null)" ]; then
        unpack_rabbitmq erlang
    fi
    mkdir -p erlang/_build
    erlc -Wall -Werror -o erlang/_build erlang/src/gbs_peer.erl
}

go_() {
    command -v go >/dev/null || { echo "go: needs Go 1.25 or later (golang.org)" >&2; return 1; }
    # The bench measures the installed Go, so the build must not fetch a newer toolchain that a module asks for.
    (cd go && GOTOOLCHAIN=local go build -trimpath -o _build/peers .)
}

redis_rs() {
    command -v cargo >/dev/null || { echo "redis-rs: needs cargo" >&2; return 1; }
    (cd redis-rs && cargo build --release --locked --target-dir target)
}

# The server against which the Redis clients are measured and tested. The script keeps a server that is already installed.
redis() {
    command -v redis-server >/dev/null || packages redis-server
}

# The `nats` program, a NATS client that drives the benches, at the version of go-nats/go.mod. `go install` cannot build it.
nats() {
    command -v go >/dev/null || { echo "nats: needs go 1.25 or later" >&2; return 1; }
    mkdir -p go-nats/bin
    (cd go-nats && go build -o bin/ github.com/nats-io/natscli/nats)
}

# The rival nats-server and the `nats` program, at the versions of go-nats/go.mod.
go_nats() {
    nats && (cd go-nats && go build -o bin/ github.com/nats-io/nats-server/v2)
}

# The database into which `tidegate-bench handlers` inserts. The bench makes a PostgreSQL cluster of its own.
postgres() {
    command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || packages postgresql
}

# etcd at the version of etcd/go.mod, for `tidegate-bench callers --league`.
etcd() {
    command -v go >/dev/null || { echo "etcd: needs Go 1.26 or later (golang.org)" >&2; return 1; }
    mkdir -p etcd/bin
    (cd etcd && go build -trimpath -o bin/etcd go.etcd.io/etcd/server/v3)
}

# Kafka at the version of kafka/pom.xml, as jars, for `tidegate-bench callers --league`.
kafka() {
    command -v java >/dev/null || packages openjdk-17-jre-headless
    command -v mvn >/dev/null || packages maven
    rm -rf kafka/_build
    (cd kafka && mvn -B -q package)
}

# RabbitMQ with the parts of Erlang that it needs, for `tidegate-bench callers --league`.
rabbitmq() {
    packages erlang-base erlang-asn1 erlang-crypto erlang-eldap erlang-ftp erlang-inets erlang-mnesia erlang-os-mon \
        erlang-parsetools erlang-public-key erlang-runtime-tools erlang-snmp erlang-ssl erlang-syntax-tools erlang-tftp \
        erlang-tools erlang-xmerl
    ls -d rabbitmq/_deps/rabbitmq-server/usr/lib/rabbitmq/lib/rabbitmq_server-* >/dev/null 2>&1 || unpack_rabbitmq rabbitmq
}

case "${1:-all}" in
    rust | java | erlang | redis | nats | postgres | etcd | kafka | rabbitmq) "$1" ;;
    go) go_ ;;
    redis-rs) redis_rs ;;
    go-nats) go_nats ;;
    all) rust && java && erlang && redis && go_ && redis_rs && go_nats && postgres && etcd && kafka && rabbitmq ;;
    *) echo "usage: install.sh [rust|java|erlang|go|redis-rs|redis|nats|go-nats|postgres|etcd|kafka|rabbitmq]" >&2; exit 2 ;;
esac
