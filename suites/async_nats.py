"""async-nats: its crate carries the tests, but not the crate by which they start servers; async_nats_servers is ours.

The copy of the crate gets one dependency for tests in its manifest. Its tests are unmodified.
"""

import json
import os
import pathlib
import re

from common import FAIL, HERE, PASS, SKIP, install, lines, path_with, result, tool

VERSION = "0.49.1"
# The tests `compatibility` need another test service. The examples and benches are no tests.
LEFT_OUT = {"compatibility"}
LINE = re.compile(r"test (\S+)(?: - should panic)? \.\.\. ?(ok|FAILED|ignored)?")
STATUS = {"ok": PASS, "FAILED": FAIL, "ignored": SKIP}


class AsyncNats:
    name = "async-nats"
    version = f"async-nats {VERSION}"

    def install(self, place):
        tool("cargo", "Rust")
        self.place = place
        fetcher = place.folder("sources", "async-nats-fetch")
        (fetcher / "src").mkdir()
        (fetcher / "src" / "lib.rs").write_text("")
        (fetcher / "Cargo.toml").write_text(
            f'[package]\nname = "fetch"\nedition = "2021"\n[dependencies]\nasync-nats = "={VERSION}"\n[workspace]\n')
        found = json.loads(install(["cargo", "metadata", "--format-version", "1", "-q"], cwd=fetcher))
        manifest = next(package["manifest_path"] for package in found["packages"] if package["name"] == "async-nats")
        self.source = place.copy(pathlib.Path(manifest).parent, "sources", "async-nats")
        servers = place.copy(HERE / "async_nats_servers", "sources", "async_nats_servers")
        with open(self.source / "Cargo.toml", "a") as file:
            file.write(f'\n[dev-dependencies.nats-server]\npath = "{servers}"\n\n[workspace]\n')
        built = install(["cargo", "test", "--no-run", "--message-format", "json", "-q", "--lib", "--tests"], cwd=self.source,
                        env={**os.environ, "CARGO_TARGET_DIR": str(place.work / "cargo")})
        artifacts = [json.loads(line) for line in built.splitlines() if line.startswith("{")]
        self.binaries = {found["target"]["name"]: found["executable"] for found in artifacts
                         if found.get("executable") and found["profile"]["test"] and found["target"]["name"] not in LEFT_OUT}

    def run(self, server, only):
        tests = {}
        for name, binary in sorted(self.binaries.items()):
            listed = install([binary, "--list", "--format", "terse"], cwd=self.source)
            waiting = [line.removesuffix(": test") for line in listed.splitlines() if line.endswith(": test")]
            waiting = [test for test in waiting if only is None or f"{name}::{test}" in only]
            while waiting:
                done = self.once(server, binary, waiting)
                tests.update({f"{name}::{test}": found for test, found in done.items()})
                left = [test for test in waiting if test not in done]
                if len(left) == len(waiting):
                    tests.update({f"{name}::{test}": result(FAIL, "the program of tests ended before its first test") for test in left})
                    break
                waiting = left
        return tests

    def once(self, server, binary, waiting):
        env = {**path_with(server, self.place), "TMPDIR": str(self.place.folder("data", self.name, server.kind)), "RUST_BACKTRACE": "0"}
        tests, output, running, section = {}, {}, None, None
        for line in lines([binary, "--exact", "--test-threads=1", *waiting], self.source, env):
            if line is None:
                break
            found = LINE.match(line)
            if found:
                running = found[1]
            status = found[2] if found and found[2] else line.rsplit(" ", 1)[-1] if running and section is None else None
            if running and status in STATUS:
                tests[running], running = result(STATUS[status]), None
            headline = re.fullmatch(r"---- (\S+) stdout ----", line)
            if headline:
                section = headline[1]
            elif section:
                output.setdefault(section, []).append(line)
        for test, text in output.items():
            if tests.get(test, {}).get("status") == FAIL:
                tests[test] = result(FAIL, "\n".join(text))
        if running:
            tests[running] = result(FAIL, "the test was silent for too long, or ended the program")
        return tests


SUITE = AsyncNats()
