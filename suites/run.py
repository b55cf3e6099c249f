#!/usr/bin/env python3
"""Runs client suites that others wrote, unmodified, against nats-server and Tidegate, and compares both.

    suites/run.py --tidegate target/release/tidegate --nats-server bench/peers/go-nats/bin/nats-server [--sources DIR] [NAME ...]

A test that fails runs a second time: loaded machines miss timeouts. The exit code is 1 if a test that passes on nats-server
fails on Tidegate and is not in expected/NAME.txt, or if a test of that file passes, or if sources are missing.
"""

import argparse
import collections
import json
import pathlib
import signal
import sys
import time

import async_nats
import commands
import expect
import faststream
import nats_c
import nats_go
import nats_js
import nats_py
import orbit_go
from common import FAIL, PASS, SKIP, Missing, Place, Server, write_results

SUITES = [*nats_go.SUITES, nats_py.SUITE, async_nats.SUITE, *orbit_go.SUITES, nats_js.SUITE, nats_c.SUITE, faststream.SUITE, *commands.SUITES]


def measure(suite, server, place, expected):
    """Runs a suite on one server; tests that fail run again, unless they are expected to."""
    began = time.monotonic()
    tests = suite.run(server, None)
    again = {test for test, found in tests.items() if found["status"] == FAIL and (server.kind != "tidegate" or test not in expected)}
    if again:
        for test, found in suite.run(server, again).items():
            if test in again and found["status"] == PASS:
                tests[test] = {"status": PASS, "second_run": True, "first_text": tests[test].get("text", "")}
    write_results(place, suite, server, tests, time.monotonic() - began)
    return tests


def counts(tests):
    return collections.Counter(found["status"] for found in tests.values())


def row(name, theirs, ours, expected):
    there, here = counts(theirs), counts(ours)
    families = collections.Counter(
        expected[test][0] if test in expected else "unexpected"
        for test, found in ours.items() if found["status"] == FAIL and theirs.get(test, {}).get("status") == PASS)
    shown = ", ".join(f"{family} {count}" for family, count in sorted(families.items()))
    skipped = f" ({here[SKIP]} skipped)" if here[SKIP] else ""
    return f"| {name} | {len(ours)}{skipped} | {there[PASS]} | {here[PASS]} | {shown} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help=f"the suites to run, of {', '.join(suite.name for suite in SUITES)} (default: all)")
    parser.add_argument("--tidegate", required=True, type=pathlib.Path, help="the program tidegate")
    parser.add_argument("--nats-server", required=True, type=pathlib.Path, help="the program nats-server")
    parser.add_argument("--sources", type=pathlib.Path, help="the folder with sources that no registry carries")
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("target/suites"), help="the folder for installed suites, data and results")
    parser.add_argument("--keep-theirs", action="store_true", help="take the results on nats-server from the work folder")
    options = parser.parse_args()
    unknown = set(options.names) - {suite.name for suite in SUITES}
    if unknown:
        parser.error(f"expected names of suites, found {', '.join(sorted(unknown))}")
    place = Place(options.work.resolve(), options.sources and options.sources.resolve(), options.nats_server.resolve())
    place.work.mkdir(parents=True, exist_ok=True)
    # A run that is told to end stops the servers of its sandbox.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    tidegate, nats_server = Server("tidegate", options.tidegate.resolve()), Server("nats-server", place.nats_server)
    rows, problems, others = [], [], 0
    for suite in SUITES:
        if options.names and suite.name not in options.names:
            continue
        expected = expect.read(suite.name)
        others += sum(family == "other" for family, _ in expected.values())
        try:
            print(f"suites: {suite.name}: install", file=sys.stderr, flush=True)
            suite.install(place)
        except Missing as missing:
            problems.append(str(missing))
            rows.append(f"| {suite.name} | not run | | | |")
            continue
        kept = place.work / "results" / f"{suite.name}.nats-server.json"
        if options.keep_theirs and kept.exists():
            theirs = json.loads(kept.read_text())["tests"]
        else:
            print(f"suites: {suite.name}: on nats-server", file=sys.stderr, flush=True)
            theirs = measure(suite, nats_server, place, expected)
        print(f"suites: {suite.name}: on Tidegate", file=sys.stderr, flush=True)
        ours = measure(suite, tidegate, place, expected)
        problems += [f"{suite.name}: {difference}" for difference in expect.compare(expected, theirs, ours)]
        rows.append(row(suite.name, theirs, ours, expected))
    if others > expect.OTHERS_MAX:
        problems.append(f"{others} tests have the family `other`: at most {expect.OTHERS_MAX} may")
    print("| suite | tests | pass on nats-server | pass on Tidegate | pass on nats-server only, by family |\n| --- | --- | --- | --- | --- |")
    print("\n".join(rows))
    print("\n".join(f"suites: {problem}" for problem in problems), file=sys.stderr, end="\n" if problems else "")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
