#!/bin/sh
# Core publish/subscribe through nats-server and `tidegate serve`, in interleaved rounds, driven by the `nats` program.
# Prints every cell, then for each the median over the rounds of ours / theirs, and the servers' CPU time a round.
#
#   bench/peers/install.sh go-nats && cargo build --release && bench/nats-core.sh [ROUNDS] [MESSAGES]
set -eu
cd "$(dirname "$0")/.."
rounds=${1:-5}
messages=${2:-1000000}
peers=bench/peers/go-nats/bin
ours=${TIDEGATE:-target/release/tidegate}
port=${PORT:-14222}
dir=$(mktemp -d)
server=
trap 'test -z "$server" || kill "$server"; rm -rf "$dir"' EXIT

rate() { # FILE: messages a second of a report
    sed -n 's/.* stats: \([0-9,]*\) msgs\/sec.*/\1/p' "$1" | tail -n 1 | tr -d ,
}

cell() { # SYSTEM ROUND SUBSCRIBERS BYTES
    url=nats://127.0.0.1:$port
    "$peers/nats" -s "$url" bench sub bench --clients="$3" --size="$4" --msgs="$messages" --no-progress >"$dir/sub" 2>&1 &
    sub=$!
    # Subscribers announce themselves before they subscribe: ask the server whether it has them all.
    until [ "$(curl -s "http://127.0.0.1:$((port + 1))/subsz" | sed -n 's/.*"num_subscriptions": *\([0-9]*\).*/\1/p')" -ge "$(($3 + base))" ]; do
        sleep 0.05
    done
    "$peers/nats" -s "$url" bench pub bench --size="$4" --msgs="$messages" --no-progress >"$dir/pub" 2>&1
    wait "$sub"
    echo "$1 $2 1:$3 $4 $(rate "$dir/pub") $(rate "$dir/sub")"
}

for round in $(seq "$rounds"); do
    for system in nats-server tidegate; do
        : >"$dir/log"
        if [ $system = tidegate ]; then
            "$ours" serve -p "$port" -m $((port + 1)) 2>"$dir/log" &
        else
            "$peers/nats-server" -a 127.0.0.1 -p "$port" -m $((port + 1)) 2>"$dir/log" &
        fi
        server=$!
        until grep -q 'Server is ready' "$dir/log"; do sleep 0.05; done
        # nats-server has subscriptions of its own.
        base=$(curl -s "http://127.0.0.1:$((port + 1))/subsz" | sed -n 's/.*"num_subscriptions": *\([0-9]*\).*/\1/p')
        for subscribers in 1 4; do
            for bytes in 16 128 1024; do
                cell $system "$round" $subscribers $bytes
            done
        done
        # User and system time, in ticks.
        echo "$system $round cpu - $(awk '{print $14 + $15}' "/proc/$server/stat") -"
        kill $server
        wait $server || true
        server=
    done
done | tee "$dir/cells"

awk '
    { key = $3 " " $4; value[$1, $2, key] = $3 == "cpu" ? $5 : $6; if (!(key in seen)) { seen[key] = 1; order[++n] = key }; rounds = $2 }
    END {
        print "\nours / theirs, median (least - most): messages a second at the subscribers, CPU time of the server"
        for (i = 1; i <= n; i++) {
            k = order[i]; m = 0
            for (r = 1; r <= rounds; r++) if (value["nats-server", r, k] > 0) list[++m] = value["tidegate", r, k] / value["nats-server", r, k]
            for (a = 1; a <= m; a++) for (b = a + 1; b <= m; b++) if (list[b] < list[a]) { t = list[a]; list[a] = list[b]; list[b] = t }
            printf "%-10s %.2f (%.2f - %.2f)\n", k, list[int((m + 1) / 2)], list[1], list[m]
        }
    }' "$dir/cells"
