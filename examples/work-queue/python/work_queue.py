"""A work queue in Python: `work_queue.py add 100` adds jobs, `work_queue.py work` does jobs until none is left."""

import asyncio
import json
import os
import sys
from urllib.request import urlopen

import nats
from nats.errors import TimeoutError


async def add(js, count):
    # No publish waits for another: the server syncs those together that arrive during a sync.
    await asyncio.gather(*(js.publish("jobs.python", f"job {i}".encode()) for i in range(count)))
    print(f"python: {count} jobs are synced")
    print_batching()


async def work(js):
    # All workers, in every language, share this consumer: each job goes to one of them.
    workers = await js.pull_subscribe("", durable="workers", stream="JOBS")
    done = 0
    while True:
        try:
            jobs = await workers.fetch(16, timeout=1)
        except TimeoutError:
            break
        for job in jobs:
            print(f"python: {job.subject} {job.data.decode()}")
            # The acknowledgement removes the job. If a crash loses it, the job comes again, to any worker.
            await job.ack()
            done += 1
    print(f"python: {done} jobs are done")


def print_batching():
    """Prints what the server's controller decided for its syncs."""
    with urlopen(os.environ.get("MONITOR_URL", "http://127.0.0.1:8222") + "/varz") as answer:
        syncs = json.load(answer)["batching"]["log_syncs"]
    print("the server's syncs: {batches} for {items} writes, limit {limit}, by reason {by_reason}".format(**syncs))


async def main(args):
    client = await nats.connect(os.environ.get("NATS_URL", "nats://127.0.0.1:4222"))
    match args:
        case ["add", count]:
            await add(client.jetstream(), int(count))
        case ["work"]:
            await work(client.jetstream())
        case _:
            sys.exit("expected `add COUNT` or `work`")
    # The acknowledgements leave before the program does.
    await client.drain()


asyncio.run(main(sys.argv[1:]))
