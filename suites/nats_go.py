"""nats.go: its Go module carries the tests, which ask a test service for servers; the stand-in answers in its place."""

import gotest
from common import install

PATH, VERSION = "github.com/nats-io/nats.go", "v1.53.1"


class NatsGo:
    version = f"{PATH} {VERSION}"

    def __init__(self, name, folder):
        self.name, self.folder = name, folder

    def install(self, place):
        gotest.tools(place)
        self.place, self.binary = place, place.work / f"{self.name}.test"
        self.source = gotest.module(place, PATH, VERSION)
        # The tests with the prefix TestNoRace are long measurements.
        install(["go", "test", "-c", "-modfile=go_test.mod", "-tags=internal_testing,skip_no_race_tests", "-vet=off",
                 "-o", self.binary, f"./{self.folder}"], cwd=self.source)

    def run(self, server, only):
        return gotest.run(self.place, server, self.name, self.binary, self.source / self.folder, only)


SUITES = [NatsGo("nats.go-jetstream", "jetstream/test"), NatsGo("nats.go", "test"), NatsGo("nats.go-micro", "micro/test")]
