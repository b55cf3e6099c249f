#!/usr/bin/env python3
"""Measures the predictions of `tidegate tune` on a real server.

Usage: measure_tune.py PROGRAM [CALLERS] [SECONDS] [ROUNDS]. PROGRAM is a build of `tidegate` with the feature `lab`.
Each round records the syncs of a server under load, predicts other controllers from the trace, and then runs the server with
each of these controllers. The script prints the measured figures of the boundary `sync` beside the predicted ones, and at its
end the median error of all rounds with its range. The load is CALLERS connections that each publish a message of 100 bytes
and wait for its acknowledgement.
"""

import asyncio
import json
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

# The controllers to compare, with the limit of a sync that stands for each.
CONTROLLERS = {"greedy": 2**63, "fixed:16": 16, "fixed:4": 4}


async def answer(reader):
    while True:
        line = await reader.readline()
        if line.startswith(b"MSG"):
            return await reader.readexactly(int(line.split()[-1]) + 2)
        if not line or line.startswith(b"-ERR"):
            raise RuntimeError(f"the server answers {line!r}")


async def connect(port, name):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    await reader.readline()
    writer.write(b'CONNECT {"verbose":false}\r\nSUB _R.%d 1\r\n' % name)
    return reader, writer


async def publish(port, name, until):
    reader, writer = await connect(port, name)
    message = b"PUB load.a _R.%d 100\r\n%s\r\n" % (name, b"x" * 100)
    while time.monotonic() < until:
        writer.write(message)
        if b'"seq"' not in await answer(reader):
            raise RuntimeError("the server refuses a message")
    writer.close()


async def load(port, callers, seconds):
    reader, writer = await connect(port, callers)
    stream = b'{"name":"LOAD","subjects":["load.>"]}'
    writer.write(b"PUB $JS.API.STREAM.CREATE.LOAD _R.%d %d\r\n%s\r\n" % (callers, len(stream), stream))
    await answer(reader)
    until = time.monotonic() + seconds
    await asyncio.gather(*(publish(port, name, until) for name in range(callers)))


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def record(program, callers, seconds, flags):
    """Runs a server with these flags under load, and returns what `tune` says about its syncs."""
    with tempfile.TemporaryDirectory() as directory:
        trace = pathlib.Path(directory) / "trace.log"
        port = free_port()
        words = [program, "-q", "serve", "-p", str(port), "--data", f"{directory}/data", "--record", trace, *flags]
        server = subprocess.Popen(words)
        try:
            for _ in range(600):
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                if server.poll() is not None:
                    raise RuntimeError("the server does not start")
                time.sleep(0.1)
            asyncio.run(load(port, callers, seconds))
        finally:
            server.send_signal(signal.SIGINT)
            server.wait()
        controllers = [word for name in CONTROLLERS for word in ("--controller", name)]
        tune = [program, "-q", "tune", "--trace", trace, "--boundary", "sync", "--json", *controllers]
        said = subprocess.run(tune, capture_output=True, text=True)
        if said.returncode != 0:
            raise RuntimeError(said.stdout + said.stderr)
        return json.loads(said.stdout)["boundaries"][0]


def main():
    program = sys.argv[1]
    callers, seconds, rounds = (int(sys.argv[i]) if len(sys.argv) > i else n for i, n in ((2, 16), (3, 20), (4, 10)))
    errors = {}
    for number in range(rounds):
        recorded = record(program, callers, seconds, [])
        source = recorded["source"]
        print(f"round {number + 1}: {source['kind']} {source.get('callers', '')}")
        by_name = {p["controller"]: p for p in recorded["predictions"]}
        pairs = [("knee", by_name["knee"], recorded["recorded"])]
        for name, limit in CONTROLLERS.items():
            measured = record(program, callers, seconds, ["--sync-limit", str(limit)])["recorded"]
            pairs.append((name, by_name[name], measured))
        for name, predicted, measured in pairs:
            cells = []
            for key in ("items_per_s", "p99_us"):
                if predicted[key] is None or measured[key] is None:
                    cells.append(f"{key} not known")
                    continue
                error = predicted[key] / measured[key] - 1
                errors.setdefault((name, key), []).append(error)
                cells.append(f"{key} predicted {predicted[key]:.0f} measured {measured[key]:.0f} ({error:+.0%})")
            print(f"  {name:8} {', '.join(cells)}", flush=True)
    print("median error of all rounds, and its range:")
    for (name, key), found in sorted(errors.items()):
        print(f"  {name:8} {key:12} {statistics.median(found):+.0%} ({min(found):+.0%} to {max(found):+.0%})")


if __name__ == "__main__":
    main()
