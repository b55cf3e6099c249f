"""nats.js: its npm packages, with tests of ours (nats_js_tests): the tests of its repository run under Deno."""

import json
import shutil
import sys

from common import FAIL, HERE, install, lines, path_with, result, tool


class NatsJs:
    name = "nats.js"
    version = "@nats-io/transport-node, jetstream, kv, obj 3.4.0"

    def install(self, place):
        tool("npm", "Node.js 20 or later")
        self.place = place
        self.source = place.work / "sources" / "nats.js"
        shutil.copytree(HERE / "nats_js_tests", self.source, dirs_exist_ok=True, ignore=shutil.ignore_patterns("node_modules"))
        install(["npm", "ci", "--no-fund", "--no-audit"], cwd=self.source)

    def run(self, server, only):
        folder = self.place.folder("data", self.name, server.kind)
        tests = {}
        for line in lines([sys.executable, HERE / "beside.py", folder, "node", "--test", "--test-concurrency=1",
                           "--test-reporter=./lines.mjs"], self.source, path_with(server, self.place)):
            if line and line.startswith("{"):
                found = json.loads(line)
                tests[found["test"]] = result(found["status"], found["text"])
        return tests or {"all": result(FAIL, "no test has ended")}


SUITE = NatsJs()
