#!/bin/sh
# Measures the cost of TLS between the nodes of a cluster. The script runs three nodes on this machine without TLS and with it, in
# interleaved rounds; the `nats` program publishes. A cell is one kind of publishing with one message size. The script prints every
# cell, then for each the median over the rounds of the ratio with TLS / without.
#
#   bench/peers/install.sh go-nats && cargo build --release && bench/cluster-tls.sh [ROUNDS] [MESSAGES]
set -eu
cd "$(dirname "$0")/.."
rounds=${1:-5}
messages=${2:-200000}
nats=bench/peers/go-nats/bin/nats
ours=${TIDEGATE:-target/release/tidegate}
port=${PORT:-14222}
dir=$(mktemp -d)
cluster=
trap 'test -z "$cluster" || kill "$cluster"; rm -rf "$dir"' EXIT

openssl req -x509 -newkey ed25519 -nodes -days 2 -subj /CN=nodes -keyout "$dir/ca.key" -out "$dir/ca.pem" 2>"$dir/log"
openssl req -newkey ed25519 -nodes -subj /CN=node -addext subjectAltName=IP:127.0.0.1 -keyout "$dir/node.key" -out "$dir/node.csr" 2>"$dir/log"
openssl x509 -req -in "$dir/node.csr" -CA "$dir/ca.pem" -CAkey "$dir/ca.key" -days 2 -copy_extensions copy -out "$dir/node.pem" 2>"$dir/log"

cpu() { # Prints the user and system time of all nodes together, in ticks.
    for node in $nodes; do cat "/proc/$node/stat"; done | awk '{ t += $14 + $15 } END { print t }'
}

cell() { # PLAIN|TLS ROUND KIND BYTES MESSAGES
    before=$(cpu)
    "$nats" -s "$urls" bench js pub "$3" "b$4.$3" --stream="B$4$3" --create --replicas=3 --size="$4" --msgs="$5" \
        --clients=10 --no-progress >"$dir/pub" 2>&1
    rate=$(sed -n 's/.* stats: \([0-9,]*\) msgs\/sec.*/\1/p' "$dir/pub" | head -n 1 | tr -d ,)
    # A tick is 10 ms; the cell has the CPU time in microseconds a message.
    each=$(awk "BEGIN { printf \"%.2f\", ($(cpu) - $before) * 10000 / $5 }")
    echo "$1 $2 $3 $4 $rate $each" | tee -a "$dir/cells"
}

for round in $(seq "$rounds"); do
    for kind in plain tls; do
        flags=
        test $kind = plain || flags="--cluster-tlscert $dir/node.pem --cluster-tlskey $dir/node.key --cluster-tlscacert $dir/ca.pem"
        : >"$dir/out"
        # The flags are several words, so the variable stands without quotes.
        # shellcheck disable=SC2086
        "$ours" cluster --data "$dir/data" --listen "127.0.0.1:$port" --http-port $((port + 100)) --cluster-port $((port + 200)) \
            -- $flags >"$dir/out" 2>"$dir/log" &
        cluster=$!
        until grep -q 'the cluster is ready' "$dir/out"; do
            kill -0 "$cluster" || { cat "$dir/log"; exit 1; }
            sleep 0.05
        done
        urls=$(sed -n 's/the cluster is ready: //p' "$dir/out")
        nodes=$(cat "/proc/$cluster/task/$cluster/children")
        cell $kind "$round" async 1024 "$messages"
        cell $kind "$round" async 65536 $((messages / 40))
        cell $kind "$round" sync 1024 $((messages / 8))
        kill $cluster
        wait $cluster || true
        cluster=
        rm -rf "$dir/data"
    done
done

awk '
    { key = $3 " " $4; rate[$1, $2, key] = $5; cpu[$1, $2, key] = $6; if (!(key in seen)) { seen[key] = 1; order[++n] = key }; rounds = $2 }
    function median(of, k,   r, a, b, t, m, list) {
        for (r = 1; r <= rounds; r++) if (of["plain", r, k] > 0) list[++m] = of["tls", r, k] / of["plain", r, k]
        for (a = 1; a <= m; a++) for (b = a + 1; b <= m; b++) if (list[b] < list[a]) { t = list[a]; list[a] = list[b]; list[b] = t }
        return sprintf("%.2f (%.2f - %.2f)", list[int((m + 1) / 2)], list[1], list[m])
    }
    END {
        print "\nwith TLS / without, median (least - most): messages a second, CPU time of the three nodes a message"
        for (i = 1; i <= n; i++) printf "%-12s %-22s %s\n", order[i], median(rate, order[i]), median(cpu, order[i])
    }' "$dir/cells"
