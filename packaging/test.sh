#!/usr/bin/env bash
# Installs a Debian package of tidegate into a copy of this machine's root file system (an overlay, which
# disappears afterwards), in namespaces of its own, and runs the server as systemd and a Kubernetes chart do.
#
#     packaging/test.sh target/debian/tidegate_*.deb      (root; needs overlayfs and Debian's dpkg)
set -euo pipefail

if [ "${1:-}" != --inside ]; then
    package=$(realpath "$1")
    folder=$(realpath "$(dirname "$0")")
    exec unshare --mount --pid --net --fork --mount-proc "$folder/test.sh" --inside "$package" "$folder"
fi
package=$2
folder=$3

fail() {
    echo "packaging: $*" >&2
    exit 1
}

# The root file system, with all writes in memory.
root=$(mktemp -d)
mount -t tmpfs tidegate-packaging "$root"
mkdir "$root/upper" "$root/work" "$root/merged"
mount -t overlay tidegate-packaging -o "lowerdir=/,upperdir=$root/upper,workdir=$root/work" "$root/merged"
root=$root/merged
for folder_of_the_system in dev proc; do mount --rbind "/$folder_of_the_system" "$root/$folder_of_the_system"; done
mount -t tmpfs tidegate-packaging "$root/tmp"
cp "$package" "$root/tmp/tidegate.deb"
ip link set lo up
# Kernels of small virtual machines lack dummy devices, and every kernel for containers has pairs of veth.
ip link add pod0 type veth peer name pod1
ip addr add 10.1.2.3/24 dev pod0
ip link set pod1 up
ip link set pod0 up

inside() { chroot "$root" "$@"; }
# Starts a program in the background. `server` is then the number of its process, and not of a shell's.
start() { (exec chroot "$root" "$@") & server=$!; }

# Waits until the condition holds, for at most ten seconds.
until_holds() {
    local tries
    for tries in $(seq 100); do
        if "$@" >/dev/null 2>&1; then return; fi
        read -rt 0.1 <> <(:) || true
    done
    fail "ten seconds passed without: $*"
}

answers() {
    exec 3<>"/dev/tcp/$1/8222" || return 1
    printf 'GET %s HTTP/1.0\r\n\r\n' "$2" >&3
    grep -q '"status":"ok"' <&3
}

echo "== the package installs, and its configuration is good"
inside dpkg -i --force-depends /tmp/tidegate.deb >/dev/null
inside tidegate --version
inside test -s /usr/share/man/man1/tidegate-serve.1.gz -o -s /usr/share/man/man1/tidegate-serve.1
inside tidegate serve -t -c /etc/tidegate/tidegate.conf
unit=$(inside find /lib/systemd/system /usr/lib/systemd/system -name tidegate.service | head -1)
[ -n "$unit" ] || fail "the package has no unit"

echo "== the unit's command serves as the package's user, and keeps streams over a kill"
inside install -d -o tidegate -g tidegate -m 700 /var/lib/tidegate
command=$(inside sed -n 's/^ExecStart=//p' "$unit")
serve() { start setpriv --reuid tidegate --regid tidegate --clear-groups $command; }
serve 2>/dev/null
until_holds answers 127.0.0.1 /healthz
inside tidegate stream add S --subjects 's.>' >/dev/null
echo hello | inside tidegate pub --lines - s.a >/dev/null
kill -KILL "$server"
wait "$server" 2>/dev/null || true
serve 2>/dev/null
until_holds answers 127.0.0.1 /healthz
[ "$(inside tidegate consume S --until-end 2>/dev/null)" = hello ] || fail "the message is gone after a kill"
kill -HUP "$server"
until_holds answers 127.0.0.1 /healthz
kill -TERM "$server"
wait "$server" || fail "TERM ended the server with an error"

echo "== the image's command serves with a chart's default configuration, probes and hook"
entry=$(sed -n 's/^ENTRYPOINT \[\(.*\)\]/\1/p' "$folder/Containerfile" | tr -d '",')
inside ln -sf /usr/bin/tidegate /usr/local/bin/nats-server
inside install -d -o tidegate -g tidegate /var/run/nats /etc/nats-config
cat > "$root/etc/nats-config/nats.conf" <<'CONF'
{
  "http_port": 8222,
  "lame_duck_duration": "1s",
  "lame_duck_grace_period": "0.1s",
  "pid_file": "/var/run/nats/nats.pid",
  "port": 4222,
  "server_name": $SERVER_NAME
}
CONF
export TIDEGATE_DATA=/var/lib/tidegate SERVER_NAME=nats-0
start setpriv --reuid tidegate --regid tidegate --clear-groups \
    $entry --config /etc/nats-config/nats.conf 2>"$root/tmp/log"
unset TIDEGATE_DATA SERVER_NAME
for probe in '/healthz?js-enabled-only=true' '/healthz?js-server-only=true' /healthz; do
    until_holds answers 10.1.2.3 "$probe"
done
grep -q -- '--insecure (or' "$root/tmp/log" || fail "the log does not name --insecure"
inside tidegate pub -s 10.1.2.3:4222 a b >/dev/null
inside nats-server -sl=ldm=/var/run/nats/nats.pid
wait "$server" || fail "the lame duck ended with an error"

echo "== nats-server's own command line"
start nats-server -js -sd /var/lib/tidegate -a 127.0.0.1 -p 4333 -m 8222 -DV -P /tmp/pid 2>/dev/null
until_holds answers 127.0.0.1 /healthz
inside nats-server --signal quit=/tmp/pid
wait "$server" || fail "the signal quit ended the server with an error"
inside nats-server -v
echo "the package and the image's command work"
