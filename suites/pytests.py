"""Runs tests of pytest in an environment of their own, and goes on after a test that hangs."""

import json
import os
import sys

from common import FAIL, HERE, install, lines, result


def environment(place, name, packages):
    """Returns the Python of a virtual environment with `packages`."""
    folder = place.work / f"python-{name}"
    python = folder / "bin" / "python3"
    wanted = folder / "packages.txt"
    if not wanted.exists() or wanted.read_text() != "\n".join(packages):
        install([sys.executable, "-m", "venv", "--clear", folder])
        install([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages])
        wanted.write_text("\n".join(packages))
    return python


def run(place, name, python, cwd, arguments, only, env, before=()):
    """Runs pytest with `arguments`, behind the words `before`, and returns {test: result} of all tests or `only`."""
    tests = {}
    while True:
        results, chosen = place.folder("pytest", name) / "results.jsonl", place.work / f"{name}.only.json"
        left = None if only is None else sorted(set(only) - set(tests))
        if left == []:
            return tests
        chosen.write_text(json.dumps(left))
        hung = False
        for line in lines([*before, python, "-m", "pytest", "-v", "-p", "pytest_lines", "-p", "no:cacheprovider", *arguments], cwd, {
            **env, "PYTHONPATH": ":".join([str(HERE / "pytest_plugin"), *filter(None, [env.get("PYTHONPATH")])]), "SUITES_RESULTS": str(results),
            "SUITES_ONLY": str(chosen) if left is not None else "",
        }):
            hung = line is None
            last = line
        done, started = {}, []
        for line in results.read_text().splitlines() if results.exists() else []:
            found = json.loads(line)
            if found["status"] == "started":
                started.append(found["test"])
            else:
                done[found["test"]] = result(found["status"], found["text"])
        for test in started:
            done.setdefault(test, result(FAIL, "the test was silent for too long, or ended pytest"))
        tests.update(done)
        if not hung:
            if not tests:
                sys.exit(f"{name}: pytest ran no test; its last line: {last}")
            return tests
        if only is None:
            only = names(python, cwd, arguments, env)


def names(python, cwd, arguments, env):
    """Returns the names of all tests."""
    found = install([python, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *arguments], cwd=cwd, env={**os.environ, **env})
    return [line for line in found.splitlines() if "::" in line]
