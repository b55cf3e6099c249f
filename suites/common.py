"""Parts that all suites share: the servers under test, installed tools, the sandbox of a run, and results."""

import dataclasses
import json
import os
import pathlib
import selectors
import shutil
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
PASS, FAIL, SKIP = "pass", "fail", "skip"

# A test without any line of output for so long hangs. The slowest test of all suites is silent for about a minute.
SILENCE_SECONDS = 300
# A failure keeps the end of its output: enough for the assertion and the server's answer.
TEXT_BYTES = 4000


class Missing(Exception):
    """Says that a tool or a folder of sources is missing, and where to get it."""


@dataclasses.dataclass
class Server:
    """A server under test: its kind (`tidegate` or `nats-server`) and its program."""

    kind: str
    program: pathlib.Path


@dataclasses.dataclass
class Place:
    """The folders of a run, and the programs that it needs."""

    work: pathlib.Path
    sources: pathlib.Path | None
    nats_server: pathlib.Path

    def folder(self, *names):
        """Returns an empty folder below the work folder."""
        made = self.work.joinpath(*names)
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir(parents=True)
        return made

    def source(self, name, file, where):
        """Returns the folder `name` of the sources that no registry carries, if it has `file`."""
        if self.sources is None or not (self.sources / name / file).exists():
            raise Missing(f"{name}: no registry carries these sources: give SUITES=DIR, with {where} in DIR/{name}")
        return self.sources / name

    def copy(self, source, *names):
        """Copies a folder of sources, because runs write beside the tests, and returns the copy."""
        made = self.work.joinpath(*names)
        shutil.rmtree(made, ignore_errors=True)
        shutil.copytree(source, made, symlinks=True)
        for path in [made, *made.rglob("*")]:
            if not path.is_symlink():
                path.chmod(path.stat().st_mode | 0o200)
        return made


def result(status, text=""):
    return {"status": status, "text": text[-TEXT_BYTES:]} if status == FAIL else {"status": status}


def tool(name, why):
    if shutil.which(name) is None:
        raise Missing(f"missing: {name} ({why})")


def install(command, **options):
    """Runs one step of an installation, and shows its output only if it fails."""
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(str(word) for word in command)}: status {done.returncode}\n{done.stdout[-TEXT_BYTES:]}")
    return done.stdout


def sandbox():
    """Returns the words before a command that give it its own network and its own processes, if this user may.

    So the fixed ports of a suite are free, and no server outlives its run. A server that listens on every address tells
    clients of no address of the loopback, so there is one other address (RFC 5737, for documentation).
    """
    words = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c",
             'ip link set lo up && ip address add 192.0.2.1/32 dev lo && "$@"', "sh"]
    if not hasattr(sandbox, "works"):
        sandbox.works = shutil.which("unshare") is not None and subprocess.run(
            words + ["true"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0
        if not sandbox.works:
            print("suites: no namespaces here: the ports 4222 to 4225, 6222 to 6225 and 8222 to 8225 must be free", file=sys.stderr)
    return words if sandbox.works else []


def lines(command, cwd, env=None, silence=SILENCE_SECONDS):
    """Yields the lines of a command in the sandbox, and None if it was silent for too long and was killed."""
    child = subprocess.Popen(sandbox() + [str(word) for word in command], cwd=cwd, env={**os.environ, **(env or {})},
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(child.stdout, selectors.EVENT_READ)
            rest = b""
            while True:
                if not selector.select(silence):
                    yield rest.decode(errors="replace")
                    yield None
                    return
                read = os.read(child.stdout.fileno(), 1 << 16)
                if not read:
                    break
                *whole, rest = (rest + read).split(b"\n")
                for line in whole:
                    yield line.decode(errors="replace")
            if rest:
                yield rest.decode(errors="replace")
    finally:
        if child.poll() is None:
            try:
                os.killpg(child.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        child.wait()
        child.stdout.close()


def path_with(server, place):
    """Returns the environment in which the command `nats-server` starts the server under test."""
    bin_dir = place.work / f"bin-{server.kind}"
    bin_dir.mkdir(parents=True, exist_ok=True)
    link = bin_dir / "nats-server"
    link.unlink(missing_ok=True)
    link.symlink_to(HERE / "wrap" / "nats-server" if server.kind == "tidegate" else server.program)
    return {"PATH": f"{bin_dir}:{os.environ['PATH']}", "TIDEGATE": str(server.program)}


def write_results(place, suite, server, tests, seconds):
    path = place.work / "results" / f"{suite.name}.{server.kind}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({
        "suite": suite.name, "version": suite.version, "server": server.kind, "program": version(server),
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "seconds": round(seconds), "tests": tests,
    }, indent=1, sort_keys=True) + "\n")


def version(server):
    done = subprocess.run([server.program, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return done.stdout.strip()
