#!/bin/sh
# Measures publish/subscribe without JetStream through nats-server and `tidegate serve`, in interleaved rounds; the `nats` program
# publishes and subscribes. A cell is a number of subscribers with one message size. The script prints every cell, then for each the
# median over the rounds of the ratio ours / theirs, and the same ratio of the servers' CPU time in a round.
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

rate() { # FILE: prints the messages a second that a report of `nats bench` names
    sed -n 's/.* stats: \([0-9,]*\) msgs\/sec.*/\1/p' "$1" | tail -n 1 | tr -d ,
}

cell() { # SYSTEM ROUND SUBSCRIBERS BYTES
    url=nats://127.0.0.1:$port
    "$peers/nats" -s "$url" bench sub bench --clients="$3" --size="$4" --msgs="$messages" --no-progress >"$dir/sub" 2>&1 &
    sub=$!
    # `nats bench` says that its subscribers are ready before they subscribe, so the script asks the server for their number.
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
        # The number of subscriptions that the server makes for itself; nats-server has some.
        base=$(curl -s "http://127.0.0.1:$((port + 1))/subsz" | sed -n 's/.*"num_subscriptions": *\([0-9]*\).*/\1/p')
        for subscribers in 1 4; do
            for bytes in 16 128 1024; do
                cell $system "$round" $subscribers $bytes
            done
        done
        # The user and system time of the server in this round, in ticks.
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
