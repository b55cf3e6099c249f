#!/usr/bin/env python3
"""The command lines of the `nats` program in commands/, against one server and against three nodes.

    commands.py FILE FOLDER NATS NODE... starts the servers, runs the lines of FILE and prints a JSON line for each.
"""

import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import time

from common import FAIL, HERE, PASS, install, lines, path_with, result

START_SECONDS = 60
# A command that takes longer hangs. The slowest commands, the benches, take some seconds.
COMMAND_SECONDS = 60
USER, SYSTEM = "nats://127.0.0.1:4222", "nats://sys:sys@127.0.0.1:4222"
FILES = {
    "stream.json": '{"name":"FROM_FILE","subjects":["from-file.>"],"retention":"limits","storage":"file","num_replicas":1,'
                   '"max_consumers":-1,"max_msgs":-1,"max_bytes":-1,"max_age":0,"max_msg_size":-1,"discard":"old"}',
    "consumer.json": '{"durable_name":"FROM_FILE","ack_policy":"explicit","deliver_policy":"all","replay_policy":"instant"}',
}


class Commands:
    """The command lines of one file, run in its order on fresh servers with the names `nodes`."""

    version = "nats 0.4.0"

    def __init__(self, name, file, nodes):
        self.name, self.file, self.nodes = name, HERE / "commands" / file, nodes

    def install(self, place):
        self.place = place
        self.nats = place.nats_server.parent / "nats"
        if not self.nats.exists():
            install([HERE.parent / "bench" / "peers" / "install.sh", "nats"])

    def run(self, server, only):
        """Runs every command, also if `only` names some, because a command needs those before it."""
        folder = self.place.folder("data", self.name, server.kind)
        tests = {}
        for line in lines([sys.executable, HERE / "commands.py", self.file, folder, self.nats, *self.nodes], folder,
                          path_with(server, self.place)):
            if line and line.startswith("{"):
                found = json.loads(line)
                tests[found["test"]] = result(found["status"], found["text"])
        return tests or {"all": result(FAIL, "no command has ended")}


SUITES = [Commands("nats", "single.txt", ["single"]), Commands("nats-cluster", "cluster.txt", ["n1", "n2", "n3"])]


def read(file):
    """Returns the commands of a file, each with the regular expression that its output must contain."""
    found = []
    for line in pathlib.Path(file).read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            command, _, pattern = line.partition(" -> ")
            found.append((command.strip(), pattern.strip()))
    return found


def configuration(folder, nodes, at):
    """Returns the configuration of the node at the place `at` of `nodes`."""
    text = f"""server_name: {nodes[at]}
listen: 127.0.0.1:{4222 + at}
http: 127.0.0.1:{8222 + at}
server_tags: ["node:{nodes[at]}", "ssd"]
jetstream {{ store_dir: "{folder / nodes[at]}" }}
accounts {{ $SYS {{ users = [ {{ user: sys, password: sys }} ] }} }}
"""
    if len(nodes) > 1:
        routes = ", ".join(f'"nats://127.0.0.1:{6222 + other}"' for other in range(len(nodes)))
        text += f"cluster {{ name: C, listen: 127.0.0.1:{6222 + at}, routes: [ {routes} ] }}\n"
    return text


def start(folder, nodes):
    servers = []
    for at, name in enumerate(nodes):
        config, log = folder / f"{name}.conf", open(folder / f"{name}.log", "w")
        config.write_text(configuration(folder, nodes, at))
        servers.append(subprocess.Popen(["nats-server", "-c", str(config)], stdin=subprocess.DEVNULL, stdout=log, stderr=log))
    deadline = time.monotonic() + START_SECONDS
    for at in range(len(nodes)):
        while not answers(8222 + at):
            if time.monotonic() > deadline:
                sys.exit(f"the server does not become ready:\n{(folder / (nodes[at] + '.log')).read_text()}")
            time.sleep(0.1)
    return servers


def answers(port):
    """Tells whether the monitor at `port` says that its server is ready."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
            return b"200" in connection.recv(100).split(b"\r\n")[0]
    except OSError:
        return False


def tools(folder, nats):
    """Writes `nats` and `nats-sys` into a folder for PATH, and returns the environment of the commands."""
    found = folder / "bin"
    found.mkdir()
    for name, url in (("nats", USER), ("nats-sys", SYSTEM)):
        path = found / name
        path.write_text(f'#!/bin/sh\nNATS_URL={url} exec {nats} --timeout=10s "$@"\n')
        path.chmod(0o755)
    return {**os.environ, "PATH": f"{found}:{os.environ['PATH']}", "NATS_URL": USER, "HOME": str(folder), "NO_COLOR": "1"}


def run(command, pattern, folder, environment):
    """Runs one command, and returns its status and its output."""
    try:
        done = subprocess.run(["sh", "-c", command], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=COMMAND_SECONDS)
    except subprocess.TimeoutExpired as expired:
        return FAIL, f"no end within {COMMAND_SECONDS} s\n{(expired.stdout or b'').decode(errors='replace')}"
    output = done.stdout.decode(errors="replace")
    # Some commands print an error of the server and end with 0.
    wrong = done.returncode != 0 or not re.search(pattern, output)
    return (FAIL if wrong else PASS), f"exit code {done.returncode}, expected {pattern!r}\n{output}"


def main():
    file, folder, nats, nodes = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3], sys.argv[4:]
    work = folder / "work"
    work.mkdir()
    for name, text in FILES.items():
        (work / name).write_text(text)
    (work / "big.bin").write_bytes(bytes(range(256)) * 4096)
    servers = start(folder, nodes)
    try:
        environment = tools(folder, nats)
        for command, pattern in read(file):
            status, text = run(command, pattern, work, environment)
            print(json.dumps({"test": command, "status": status, "text": text}), flush=True)
    finally:
        for server in servers:
            server.terminate()
        for server in servers:
            try:
                server.wait(timeout=15)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


if __name__ == "__main__":
    main()
