"""FastStream: its packages carry no tests, so the sources are read from SUITES; its tests need a server on port 4222."""

import sys

import pytests
from common import HERE, path_with

COMMIT = "7c9a125dfdf20cc45b64aac26b53559057443da1"
PACKAGES = [
    "pytest==9.0.3", "pytest-asyncio==1.3.0", "pytest-timeout==2.4.0", "pytest-rerunfailures==16.1", "freezegun==1.5.5",
    "dirty-equals==0.11", "fastapi==0.140.0", "pydantic-settings==2.14.2", "PyYAML==6.0.3", "email-validator==2.3.0", "msgspec==0.20.0",
    "uvicorn==0.43.0", "psutil==7.2.2", "prometheus-client==0.24.1", "opentelemetry-sdk==1.37.0", "httpx==0.28.1", "nats-py==2.15.0",
]


class FastStream:
    name = "FastStream"
    version = f"FastStream {COMMIT[:8]}"

    def install(self, place):
        self.place = place
        source = place.source("faststream", "tests/brokers/nats/test_consume.py", f"github.com/ag2ai/faststream at {COMMIT[:8]}")
        self.source = place.copy(source, "sources", "faststream")
        self.python = pytests.environment(place, self.name, [*PACKAGES, f"{self.source}[nats,rabbit,cli]"])

    def run(self, server, only):
        folder = self.place.folder("data", self.name, server.kind)
        env = {**path_with(server, self.place), "TMPDIR": str(folder)}
        return pytests.run(self.place, self.name, self.python, self.source, ["-m", "not slow", "tests/brokers/nats"], only, env,
                           before=[sys.executable, HERE / "beside.py", folder])


SUITE = FastStream()
