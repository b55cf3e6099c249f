"""The tests that may fail on Tidegate: expected/NAME.txt, by families with a reason, and the comparison with a run."""

import re

from common import FAIL, HERE, PASS

# Features of nats-server that Tidegate does not have.
FAMILIES = {
    "accounts": "accounts for tenants, imports, exports",
    "nkeys-jwt": "NKeys, JWT, operators",
    "leaf-nodes": "leaf nodes",
    "websocket": "WebSocket clients",
    "gateways": "gateways and super-clusters",
    "mqtt": "MQTT clients",
    "schedules": "scheduled messages",
    "counters": "counters",
    "priority-groups": "priority groups of consumers",
    "s2": "compression of streams",
    "other": "anything else, each with its reason",
}
OTHERS_MAX = 10


def read(name):
    """Returns {test: (family, reason)} of a suite. A line `[family] reason` opens a list of tests."""
    path = HERE / "expected" / f"{name}.txt"
    expected, section = {}, None
    for number, line in enumerate(path.read_text().splitlines() if path.exists() else [], 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        opened = re.fullmatch(r"\[([a-z0-9-]+)\] (.+)", line)
        if opened:
            section = opened.groups()
            if section[0] not in FAMILIES:
                raise SystemExit(f"{path}:{number}: expected a family ({', '.join(FAMILIES)}), found {section[0]!r}")
        elif section is None:
            raise SystemExit(f"{path}:{number}: expected `[family] reason` before the first test")
        elif line in expected:
            raise SystemExit(f"{path}:{number}: {line} is listed twice")
        else:
            expected[line] = section
    return expected


def compare(expected, theirs, ours):
    """Returns the differences between a run and the expectation, as lines.

    `theirs` and `ours` are the results on nats-server and on Tidegate. Tests that nats-server fails count nothing.
    """
    found = []
    for test, result in sorted(ours.items()):
        passed_there = theirs.get(test, {}).get("status") == PASS
        if result["status"] == FAIL and passed_there and test not in expected:
            found.append(f"{test}: passes on nats-server and fails on Tidegate")
        if result["status"] == PASS and test in expected:
            found.append(f"{test}: passes, but stands among the tests that fail ({expected[test][0]})")
    found += [f"{test}: stands among the tests that fail, but is no test of this suite" for test in expected if test not in ours]
    found += [f"{test}: ran on nats-server only" for test in sorted(theirs) if test not in ours]
    return found
