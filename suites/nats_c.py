"""nats.c: no registry carries its tests, so the sources are read from SUITES and built by cmake.

Each test is a call of one program, which starts the servers by the path in NATS_TEST_SERVER_EXE.
"""

import os
import re

from common import FAIL, PASS, SKIP, install, lines, path_with, result, tool

COMMIT = "2d4db4a36ecf5cbdf04c836fb823696dd5c2a7fb"
TEST_SECONDS = 180
# The version that the tests may expect of the server; Tidegate announces this one.
SERVER_VERSION = "2.14.0"
SCRIPT = """
for test in "$@"; do
  echo "@@start $test"
  timeout -s KILL %d "$SUITES_PROGRAM" "$test" 2>&1
  echo "@@end $test $?"
done
""" % TEST_SECONDS


class NatsC:
    name = "nats.c"
    version = f"nats.c {COMMIT[:8]}"

    def install(self, place):
        tool("cmake", "apt-get install cmake")
        tool("cc", "apt-get install gcc libssl-dev")
        self.place = place
        source = place.source("nats.c", "test/list_test.txt", f"github.com/nats-io/nats.c at {COMMIT[:8]}")
        self.source = place.copy(source, "sources", "nats.c")
        build = place.work / "nats.c-build"
        install(["cmake", "-S", self.source, "-B", build, "-DNATS_BUILD_STREAMING=OFF", "-DNATS_BUILD_EXAMPLES=OFF",
                 "-DCMAKE_BUILD_TYPE=Release"])
        install(["cmake", "--build", build, "--target", "testsuite", "--parallel", str(os.cpu_count())])
        self.program = next(path for path in (build / "bin", build / "test") for path in [path / "testsuite"] if path.exists())
        self.names = re.findall(r"_test\((\w+)\)", (self.source / "test" / "list_test.txt").read_text())

    def run(self, server, only):
        env = path_with(server, self.place)
        env |= {"TMPDIR": str(self.place.folder("data", self.name, server.kind)), "SUITES_PROGRAM": str(self.program),
                "NATS_TEST_SERVER_EXE": env["PATH"].partition(":")[0] + "/nats-server",
                "NATS_TEST_SERVER_VERSION": f"nats-server version {SERVER_VERSION}"}
        chosen = [name for name in self.names if only is None or name in only]
        tests, output = {}, []
        for line in lines(["sh", "-c", SCRIPT, "sh", *chosen], self.source / "test", env):
            word, _, rest = (line or "").partition(" ")
            if word == "@@start":
                output = []
            elif word == "@@end":
                name, status = rest.split()
                text = "\n".join(output)
                passed = status == "0" and "ALL PASSED" in text
                tests[name] = result(PASS if passed else SKIP if "SKIPPED" in text else FAIL, text)
            elif line is not None:
                output.append(line)
        for name in chosen:
            tests.setdefault(name, result(FAIL, "the test did not run"))
        return tests


SUITE = NatsC()
