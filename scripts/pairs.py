#!/usr/bin/env python3
"""Compares two release binaries of tidegate-bench in interleaved pairs, and shows which rows the newer one changes.

    scripts/pairs.py OLD NEW --pairs 7 mailbox queue topology link redis

Each pair runs one round of every named bench by OLD and by NEW, in turns: OLD goes first in the odd pairs. A row of a
bench is a case and a controller. Its figures are ratios new / old within a pair: operations a second, the 99th
percentile, and CPU time an operation. The table has the median of each with its 95 % interval, by order statistics; with
fewer than six pairs the interval is the whole range. "worse" marks a row if the interval of its throughput lies below
1 - WITHIN / 100.
"""

import argparse
import json
import math
import statistics
import subprocess
import sys


def rows(binary, bench, only):
    command = [binary, bench, "--json", "--rounds", "1"] + (["--only", only] if only else [])
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")
    return {(bench, row["case"], row["controller"] or ""): row for row in json.loads(done.stdout)["rows"]}


def cpu(row):
    """Returns the CPU time of one operation, in the unit of the bench, which both binaries share."""
    for name in ("cpu_ns_a_message", "client_cpu_us"):
        if row.get(name):
            return row[name]
    items = (row.get("batches") or 0) * (row.get("batch_mean") or 0)
    return row["cpu_s"] / items if row.get("cpu_s") and items else None


def interval(values):
    """Returns the median of `values` and its 95 % interval by order statistics, as (median, low, high)."""
    values, n = sorted(values), len(values)
    inside, skip = 1.0, 0
    while skip < n // 2:
        inside -= 2 * math.comb(n, skip) / 2**n
        if inside < 0.95:
            break
        skip += 1
    first = max(skip - 1, 0)
    return statistics.median(values), values[first], values[n - 1 - first]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("benches", nargs="+")
    parser.add_argument("--pairs", type=int, default=7, help="the number of interleaved pairs (default 7)")
    parser.add_argument("--within", type=float, default=3, help="the loss of throughput, in per cent, that counts as no change (default 3)")
    parser.add_argument("--only", default="", help="run only the cells with this text in their names")
    options = parser.parse_args()
    ratios = {}
    for bench in options.benches:
        for pair in range(options.pairs):
            order = [options.old, options.new] if pair % 2 == 0 else [options.new, options.old]
            found = {binary: rows(binary, bench, options.only) for binary in order}
            old, new = found[options.old], found[options.new]
            for key in old.keys() & new.keys():
                figures = ratios.setdefault(key, {"rate": [], "p99": [], "cpu": []})
                for name, of in (("rate", lambda r: r["ops_per_s"]), ("p99", lambda r: r["p99_us"]), ("cpu", cpu)):
                    if of(old[key]) and of(new[key]):
                        figures[name].append(of(new[key]) / of(old[key]))
            print(f"{bench}: pair {pair + 1} of {options.pairs}", file=sys.stderr)
    print("| bench | case | controller | new / old | p99 | CPU an operation | |\n| --- | --- | --- | --- | --- | --- | --- |")
    for key in sorted(ratios):
        shown, verdict = [], ""
        for name in ("rate", "p99", "cpu"):
            if not ratios[key][name]:
                shown.append("")
                continue
            median, low, high = interval(ratios[key][name])
            shown.append(f"{median:.2f} ({low:.2f} to {high:.2f})")
            if name == "rate":
                within = options.within / 100
                verdict = "worse" if high < 1 - within else "not worse" if low >= 1 - within else "not resolved"
        print("| " + " | ".join([*key, *shown, verdict]) + " |")


if __name__ == "__main__":
    main()
