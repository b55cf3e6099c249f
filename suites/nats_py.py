"""nats.py: its packages carry no tests, so the sources are read from SUITES; its tests run `nats-server` from PATH.

They run in the root of the repository, because paths of certificates begin there.
"""

import pytests
from common import path_with

COMMIT = "06b677808029274b64e06af9eee7170d3b80a09b"
PACKAGES = ["pytest==9.0.3", "nkeys==0.2.1", "aiohttp==3.13.3"]


class NatsPy:
    name = "nats.py"
    version = f"nats.py 2.15.0 {COMMIT[:8]}"

    def install(self, place):
        self.place = place
        source = place.source("nats.py", "nats/tests/test_client.py", f"github.com/nats-io/nats.py at {COMMIT[:8]}")
        self.source = place.copy(source, "sources", "nats.py")
        self.python = pytests.environment(place, self.name, PACKAGES)

    def run(self, server, only):
        env = {**path_with(server, self.place), "TMPDIR": str(self.place.folder("data", self.name, server.kind)),
               "HOME": str(self.place.work), "PYTHONPATH": str(self.source / "nats" / "src")}
        return pytests.run(self.place, self.name, self.python, self.source, ["nats/tests"], only, env)


SUITE = NatsPy()
