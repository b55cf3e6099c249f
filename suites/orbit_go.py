"""orbit.go: its modules in the registry carry no tests of servers, so the sources are read from SUITES.

The tests embed nats-server as a package. The module natsserver of ours stands in for it and starts processes.
"""

import os

import gotest
from common import HERE, install, path_with

COMMIT = "873426dc99acbe3c29cfb9e6d423d4d8b7dcb842"
# natssysclient is left out: its servers have accounts.
MODULES = ["counters", "jetstreamext", "kvcodec", "natsext", "pcgroups"]


class OrbitGo:
    name = "orbit.go"
    version = f"orbit.go {COMMIT[:8]}"

    def install(self, place):
        gotest.tools(place)
        self.place = place
        source = place.source("orbit.go", "counters/test/counter_test.go", f"github.com/synadia-io/orbit.go at {COMMIT[:8]}")
        self.source = place.copy(source, "sources", "orbit.go")
        self.binaries = {}
        for module in MODULES:
            work = self.source / module / "go.work"
            with open(work, "a") as file:
                file.write(f"\nreplace github.com/nats-io/nats-server/v2 => {HERE / 'natsserver'}\n")
            self.binaries[module] = place.work / f"orbit.go-{module}.test"
            install(["go", "test", "-c", "-vet=off", "-o", self.binaries[module], "."], cwd=self.source / module / "test",
                    env={**os.environ, "GOWORK": str(work)})

    def run(self, server, only):
        tests = {}
        for module, binary in self.binaries.items():
            chosen = None if only is None else {name.partition("/")[2] for name in only if name.startswith(f"{module}/")}
            env = {**path_with(server, self.place), "TMPDIR": str(self.place.folder("data", self.name, server.kind))}
            found = gotest.run(self.place, server, self.name, binary, self.source / module / "test", chosen, standin=False, env=env)
            tests.update({f"{module}/{name}": result for name, result in found.items()})
        return tests


SUITES = [OrbitGo()]
