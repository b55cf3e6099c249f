#!/usr/bin/env bash
# Follows README.md as a newcomer does after the build: runs the commands of its `sh` blocks as they stand there,
# in order, and opens the dashboard. Fails if a command does, if the published message does not come back, or if
# all of it takes longer than two minutes. A command that the script cannot run is an error, too, so that the
# README and this script cannot drift apart.
#
#     scripts/first_hour.sh [BINARY]      # target/release/tidegate if not given
#
# The README uses fixed ports, so the commands run in a network namespace of their own, or in this one if the system
# gives none and the ports are free. Exit code 77: neither is so.
set -euo pipefail

project=$(realpath "$(dirname "$0")/..")
if [ "${1:-}" != --inside ]; then
    binary=$(realpath "${1:-$project/target/release/tidegate}")
    [ -x "$binary" ] || { echo "first hour: $binary is no program: build it first" >&2; exit 2; }
    apart=(unshare --net)
    [ "$(id -u)" = 0 ] || apart=(unshare --user --map-root-user --net)
    if ! "${apart[@]}" ip link set lo up 2>/dev/null; then
        for port in 4222 8222; do
            if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
                echo "first hour: no network namespace here, and port $port is taken" >&2
                exit 77
            fi
        done
        apart=()
    fi
    exec timeout --foreground 120 "${apart[@]}" "$0" --inside "$binary"
fi
binary=$2
ip link set lo up 2>/dev/null || true

folder=$(mktemp -d)
server=
cleanup() {
    if [ -n "$server" ]; then
        kill -KILL "$server" || true
        wait "$server" || true
    fi 2>/dev/null
    rm -rf "$folder"
}
trap cleanup EXIT
mkdir "$folder/bin" "$folder/home"
ln -s "$binary" "$folder/bin/tidegate"
export PATH=$folder/bin:$PATH HOME=$folder/home
for variable in $(compgen -e); do
    case $variable in NATS_URL | TIDEGATE_*) unset "$variable" ;; esac
done
cd "$folder/home"

fail() {
    echo "first hour: $*" >&2
    exit 1
}

# Starts the server of a line, and waits until it is ready.
start() {
    [ -z "$server" ] || fail "a second server: $1"
    : >"$folder/log"
    (eval "exec $1") >"$folder/log" 2>&1 &
    server=$!
    until grep -Eq 'Server is ready|the cluster is ready' "$folder/log"; do
        kill -0 "$server" 2>/dev/null || fail "the server ended: $(cat "$folder/log")"
        read -rt 0.05 <> <(:) || true
    done
}

# Prints what the URL gives, with the headers.
get() {
    local rest=${1#http://}
    local address=${rest%%/*}
    exec 3<>"/dev/tcp/${address%%:*}/${address##*:}" || return 0
    printf 'GET /%s HTTP/1.0\r\nHost: %s\r\n\r\n' "${rest#*/}" "$address" >&3
    cat <&3
    exec 3>&-
}

readme=$project/README.md
commands=$(awk '/^```sh$/ { block = 1; next } /^```/ { block = 0 } block && NF' "$readme")
message= consumed= served= built=
while IFS= read -r line; do
    echo "\$ $line"
    case $line in
    "cargo install "*"crates/tidegate-cli"* | "cargo build "*) built=yes ;; # The build, which made the binary.
    "tidegate serve"* | "tidegate cluster"*)
        start "$line"
        served=yes
        ;;
    "tidegate "*)
        output=$(eval "$line") || fail "it ended with $?: $line"
        [ -z "$output" ] || echo "$output"
        case $line in
        "tidegate pub "*)
            eval "set -- $line"
            message=${*: -1}
            ;;
        "tidegate consume "*)
            [ -n "$message" ] && [ "$output" = "$message" ] || fail "expected the message \`$message\`, got: $output"
            consumed=yes
            ;;
        esac
        ;;
    *) fail "expected a command of cargo or tidegate in the README, and found: $line" ;;
    esac
done <<<"$commands"
[ -n "$built" ] || fail "the README does not say how to build the program"
[ -n "$served" ] || fail "the README starts no server"
[ -n "$consumed" ] || fail "the README reads no message back"

dashboard=$(grep -Eo 'http://[0-9a-z.:]+/dashboard' "$readme" | head -1)
[ -n "$dashboard" ] || fail "the README does not name the dashboard"
page=$(get "$dashboard")
[[ "$page" == *" 200 "*"<html"* ]] || fail "$dashboard gave: $page"
script=$(grep -Eo 'src="[^"]+"' <<<"$page" | head -1)
script=${script#src=\"}
script=$(get "${dashboard%/dashboard}/${script%\"}" | head -1)
[[ "$script" == *" 200 "* ]] || fail "the dashboard's program gave: $script"
echo "$dashboard opens"

kill -TERM "$server"
wait "$server" || fail "the server ended with an error: $(cat "$folder/log")"
server=
[ -d tidegate-data ] || fail "the README says that the streams are in ./tidegate-data"
echo "a server, a message and the dashboard: $SECONDS s after the build"
