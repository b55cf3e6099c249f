#!/usr/bin/env python3
"""Runs a command beside a server with streams on port 4222: beside.py DIR COMMAND... The server is the `nats-server` in PATH."""

import pathlib
import socket
import subprocess
import sys
import time

START_SECONDS = 20
PORT = 4222


def wait_for(server, log):
    deadline = time.monotonic() + START_SECONDS
    while server.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", PORT), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    sys.exit(f"the server does not accept clients on port {PORT}:\n{log.read_text()}")


def main():
    folder, command = pathlib.Path(sys.argv[1]), sys.argv[2:]
    log = folder / "server.log"
    with open(log, "w") as file:
        server = subprocess.Popen(["nats-server", "-js", "-a", "127.0.0.1", "-p", str(PORT), "-sd", str(folder / "store")],
                                  stdin=subprocess.DEVNULL, stdout=file, stderr=file)
    try:
        wait_for(server, log)
        sys.exit(subprocess.run(command).returncode)
    finally:
        server.terminate()
        try:
            server.wait(timeout=15)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


main()
