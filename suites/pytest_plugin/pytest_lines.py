"""A plugin of pytest: appends each test's result to $SUITES_RESULTS as JSON, and runs only the tests in $SUITES_ONLY."""

import json
import os

reports = {}


def pytest_collection_modifyitems(config, items):
    if os.environ.get("SUITES_ONLY"):
        with open(os.environ["SUITES_ONLY"]) as file:
            only = set(json.load(file))
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in only])
        items[:] = [item for item in items if item.nodeid in only]


def pytest_runtest_logstart(nodeid):
    append({"test": nodeid, "status": "started"})


def pytest_runtest_logreport(report):
    kept = reports.setdefault(report.nodeid, {"test": report.nodeid, "status": "pass", "text": ""})
    if report.failed:
        kept["status"] = "fail"
        kept["text"] += report.longreprtext + "".join(text for _, text in report.sections)
    elif report.skipped and kept["status"] != "fail":
        kept["status"] = "skip"


def pytest_runtest_logfinish(nodeid):
    append(reports.pop(nodeid, {"test": nodeid, "status": "fail", "text": "no report"}))


def append(line):
    with open(os.environ["SUITES_RESULTS"], "a") as file:
        file.write(json.dumps(line) + "\n")
