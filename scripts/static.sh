#!/usr/bin/env bash
# Checks a static program, as `make static` builds it: it needs no shared library, serves a stream, takes a publish, and
# finds another node by a host name, for which the C library reads its own files.
#
#     scripts/static.sh BINARY
set -euo pipefail

binary=$(realpath "${1:?expected the path of a program}")
fail() {
    echo "static: $*" >&2
    exit 1
}

# A static program may still move in memory (static-pie); then it has a dynamic section, but no interpreter and no library.
headers=$(readelf --wide --program-headers --dynamic "$binary") || fail "$binary is no program"
! grep -q INTERP <<<"$headers" || fail "$binary asks for an interpreter, so it is not static"
! grep -q NEEDED <<<"$headers" || fail "$binary needs shared libraries: $(grep NEEDED <<<"$headers")"

folder=$(mktemp -d)
servers=()
cleanup() {
    for server in "${servers[@]}"; do
        kill -KILL "$server" || true
        wait "$server" || true
    done 2>/dev/null
    rm -rf "$folder"
}
trap cleanup EXIT
for variable in $(compgen -e); do
    case $variable in NATS_URL | TIDEGATE_* | OTEL_*) unset "$variable" ;; esac
done

# Starts a server with the log NAME, and waits until it is ready.
start() {
    local name=$1
    shift
    "$binary" serve -a 127.0.0.1 -p -1 "$@" >"$folder/$name" 2>&1 &
    servers+=($!)
    until_line "$name" 'Server is ready'
}

# Waits for a line in the log NAME.
until_line() {
    local started=$SECONDS
    until grep -q "$2" "$folder/$1"; do
        [ $((SECONDS - started)) -lt 60 ] || fail "no line \`$2\` in the log: $(cat "$folder/$1")"
        read -rt 0.05 <> <(:) || true
    done
}

# Prints the address behind these words in the log NAME.
address() {
    sed -n "s/.*$2 \([^ ]*\).*/\1/p" "$folder/$1" | head -1
}

start alone --data "$folder/data"
url=$(address alone 'client connections on')
"$binary" stream add S --subjects s -s "$url" >/dev/null
"$binary" pub s 'a message' --stream S -s "$url" >/dev/null
message=$("$binary" consume S --until-end -s "$url")
[ "$message" = 'a message' ] || fail "expected the message back, and got: $message"

# A node without routes would serve alone. Nothing listens at this one.
start one -n one --no-streams --cluster-name static --cluster nats://127.0.0.1:0 --routes nats-route://127.0.0.1:1
port=$(address one "cluster's nodes on")
start two -n two --no-streams --cluster-name static --cluster nats://127.0.0.1:0 -m -1 --routes "nats-route://localhost:${port##*:}"
monitor=$(address two 'http monitor on')
started=$SECONDS
until
    exec 3<>"/dev/tcp/${monitor%:*}/${monitor##*:}"
    printf 'GET /routez HTTP/1.0\r\n\r\n' >&3
    routes=$(cat <&3)
    exec 3>&-
    grep -q '"num_routes": 1' <<<"$routes"
do
    [ $((SECONDS - started)) -lt 60 ] || fail "no route to localhost: $routes $(cat "$folder/two")"
    read -rt 0.05 <> <(:) || true
done
echo "static: $(du -h "$binary" | cut -f1), without shared libraries: it serves, takes a publish, and resolves localhost"
