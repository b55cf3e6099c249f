"""Runs compiled Go tests beside the stand-in for the test service, and goes on after a test that ends the program."""

import json
import re

from common import FAIL, HERE, PASS, SKIP, install, lines, result, tool

STATUS = {"pass": PASS, "fail": FAIL, "skip": SKIP}


def tools(place):
    """Builds the stand-in, and the Go tool that turns the output of tests into JSON."""
    tool("go", "Go 1.25 or later")
    install(["go", "build", "-o", place.work / "standin", "."], cwd=HERE / "standin")
    install(["go", "build", "-o", place.work / "test2json", "cmd/test2json"], cwd=HERE / "standin")


def module(place, path, version):
    """Returns a copy of a module, which the Go module proxy carries with its tests."""
    found = json.loads(install(["go", "mod", "download", "-json", f"{path}@{version}"], cwd=HERE / "standin"))
    return place.copy(found["Dir"], "sources", f"{path.replace('/', '+')}@{version}")


def names(binary, cwd):
    return [line for line in install([binary, "-test.list", "."], cwd=cwd).splitlines() if line.startswith("Test")]


def run(place, server, suite, binary, cwd, only, standin=True, env=None):
    """Runs the tests of one binary, all or `only`, and returns {name: result}."""
    waiting = [name for name in names(binary, cwd) if only is None or name in only]
    tests = {}
    while waiting:
        done = once(place, server, suite, binary, cwd, waiting, standin, env)
        tests.update(done)
        left = [name for name in waiting if name not in done]
        if len(left) == len(waiting):
            tests.update({name: result(FAIL, "the program of tests ended before its first test") for name in left})
            break
        waiting = left
    return tests


def once(place, server, suite, binary, cwd, waiting, standin, env):
    command = [place.work / "test2json", "-t", binary, "-test.v=test2json", "-test.timeout=60m",
               "-test.run", f"^({'|'.join(waiting)})$"]
    if standin:
        command = [place.work / "standin", "-program", server.program, "-kind", server.kind, "-nats-server", place.nats_server,
                   "-dir", place.folder("data", suite, server.kind), "--", *command]
    started, tests, output, rest = [], {}, {}, []
    for line in lines(command, cwd, env):
        if line is None:
            rest.append("the test was silent for too long")
            break
        try:
            event = json.loads(line)
        except ValueError:
            rest.append(line)
            continue
        name = event.get("Test", "").split("/")[0]
        if event["Action"] == "output":
            (output.setdefault(name, []) if name else rest).append(event["Output"].rstrip("\n"))
        elif event["Action"] == "run" and "/" not in event["Test"]:
            started.append(name)
        elif event["Action"] in STATUS and name and "/" not in event["Test"]:
            tests[name] = result(STATUS[event["Action"]], told(output.get(name, [])))
    for name in started:
        if name not in tests:
            tests[name] = result(FAIL, told(output.get(name, []) + rest))
    return tests


def told(output):
    """Returns the lines of a test without those that only name it."""
    return "\n".join(line for line in output if not re.match(r"\s*(=== (RUN|PAUSE|CONT|NAME)|--- (PASS|SKIP))", line))
