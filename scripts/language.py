#!/usr/bin/env python3
"""Counts the language of comments, docs, help, messages and commits, and holds it below a ceiling that only falls.

A riddle is a word or phrase that hides the actor of a sentence behind a pronoun (*whoever*, *what is*, *nobody*, *one that*):
CONTRIBUTING.md, Plain English. The areas:

  comments   comments of all Rust files: documentation, the help of flags among it, and plain ones
  messages   string literals of the product: errors, log lines, output
  docs       Markdown outside of code
  openers    sentences of comments and docs that open with What, Whether, Who, Whoever, When or Of
  long       comment lines wider than 110 columns
  commits    subjects of commits longer than 72 characters

`scripts/language.py` prints the counts. `--check` compares them with scripts/language.ceiling, which may name lower numbers than
an earlier version of it, and never higher ones. `--lower` writes today's counts there where they are lower. `--show AREA` prints
each finding. `--sample [SEED]` draws 20 comments, 10 log lines and 10 flag helps, for a reader who does not know the code and
names the actor, the action and the reason of each.
"""

import pathlib
import random
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CEILING = ROOT / "scripts" / "language.ceiling"
RIDDLE = re.compile(
    r"\b(whoever|whatever|whose|somebody|nobody|anybody|everybody|anew|one that"
    r"|what (?:is|was|it|comes|waits|they|others|follows))\b",
    re.IGNORECASE,
)
OPENER = re.compile(r"^(What|Whether|Who|Whoever|When|Of)\b")
STRING = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
RAW_STRING = re.compile(r'r(#+)"(.*?)"\1', re.DOTALL)
TESTS = re.compile(r"#\[cfg\((?:all\()?test\b.*?\]\n\s*mod tests \{")
LOG_CALL = re.compile(r"\b(?:log|tracing)?(?:::)?(?:error|warn|info|debug)!\(")
COLUMNS = 110
SUBJECT = 72


def tracked(*patterns):
    out = subprocess.run(["git", "ls-files", "-z", *patterns], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [ROOT / name for name in out.split("\0") if name and (ROOT / name).is_file()]


def comment_blocks(text):
    """Yields each run of comment lines as (number of its first line, its text)."""
    block, first = [], 0
    for number, line in enumerate(text.splitlines(), 1):
        found = re.match(r"\s*//[/!]?\s?(.*)", line)
        if found:
            first = first or number
            block.append(found.group(1))
        elif block:
            yield first, "\n".join(block)
            block, first = [], 0
    if block:
        yield first, "\n".join(block)


def prose(markdown):
    """Returns Markdown text without code and without words in italics (quotations), with as many lines as before."""
    fenced = False
    lines = []
    for line in markdown.splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
            line = ""
        lines.append("" if fenced else re.sub(r"`[^`]*`", "`code`", line))
    quoted = re.compile(r"(?<![*\w])\*(?![*\s])([^*]+)\*(?!\*)")
    return quoted.sub(lambda found: "*" + "\n" * found.group(1).count("\n") + "*", "\n".join(lines))


def sentences(text):
    text = re.sub(r"```.*?```", " ", text, flags=re.DOTALL)
    return [s.strip(" *|-#\n") for s in re.split(r"[.!?:;]\s|\n\s*\n", text) if s.strip(" *|-#\n")]


def is_test(path):
    parts = path.relative_to(ROOT).parts
    return bool({"tests", "benches", "examples", "fuzz"} & set(parts)) or path.name in ("tests.rs", "model.rs")


def gather():
    """Returns the number of words by area, and the findings by area as (place, text)."""
    words = dict.fromkeys(["comments", "messages", "docs", "openers"], 0)
    found = {area: [] for area in ["comments", "messages", "docs", "openers", "long", "commits"]}

    def read(area, name, first, text):
        words[area] += len(re.findall(r"[A-Za-z']+", text))
        for match in RIDDLE.finditer(text):
            line = first + text.count("\n", 0, match.start())
            found[area].append((f"{name}:{line}", match.group(0)))

    def open_sentences(name, first, text):
        for sentence in sentences(text):
            words["openers"] += 1
            if OPENER.match(sentence):
                line = first + text.count("\n", 0, max(text.find(sentence[:40]), 0))
                found["openers"].append((f"{name}:{line}", sentence[:70].replace("\n", " ")))

    for path in tracked("*.rs"):
        name, text = str(path.relative_to(ROOT)), path.read_text()
        for first, block in comment_blocks(text):
            read("comments", name, first, block)
            open_sentences(name, first, block)
        for number, line in enumerate(text.splitlines(), 1):
            if line.lstrip().startswith("//") and len(line) > COLUMNS:
                found["long"].append((f"{name}:{number}", f"{len(line)} columns"))
        if not is_test(path):
            for number, literal in literals(text):
                read("messages", name, number, literal)
    for path in tracked("*.md"):
        name = str(path.relative_to(ROOT))
        text = prose(path.read_text())
        read("docs", name, 1, text)
        open_sentences(name, 1, text)
    log = subprocess.run(["git", "log", "--no-merges", "--format=%h %s"], cwd=ROOT, capture_output=True, text=True).stdout
    for line in log.splitlines():
        commit, _, subject = line.partition(" ")
        if len(subject) > SUBJECT:
            found["commits"].append((commit, f"{len(subject)} characters: {subject[:60]}"))
    return words, found


def literals(text):
    """Yields the string literals outside of comments and raw strings, as (line, text)."""
    code = re.sub(r"^\s*//[^\n]*", "", text, flags=re.MULTILINE)
    code = RAW_STRING.sub(lambda raw: "\n" * raw.group(0).count("\n"), code.replace("'\"'", "' '"))
    for literal in STRING.finditer(code):
        yield code.count("\n", 0, literal.start()) + 1, literal.group(1)


def log_lines(text):
    """Yields the format strings of the calls that log, as (line, text)."""
    for call in LOG_CALL.finditer(text):
        literal = STRING.search(text, call.end(), call.end() + 400)
        # If a log line consists of a placeholder only, its words are in another literal.
        if literal and len(re.findall(r"\b[a-z]+\b", re.sub(r"\{[^}]*\}", "", literal.group(1)))) > 1:
            yield text.count("\n", 0, call.start()) + 1, re.sub(r"\\\n\s*", "", literal.group(1))


def flag_helps(text):
    """Yields the comments above the fields from which clap makes flags, as (line, text)."""
    for field in re.finditer(r"((?:^\s*///.*\n)+)\s*#\[(?:arg|command)\(", text, re.MULTILINE):
        lines = [line.strip().removeprefix("///").strip() for line in field.group(1).strip().splitlines()]
        yield text.count("\n", 0, field.start(1)) + 1, " ".join(lines)


def sample(seed):
    """Draws comments, log lines and flag helps of the product."""
    pools = {"comment": [], "log line": [], "flag help": []}
    for path in tracked("crates/*/src/**/*.rs", "crates/*/src/*.rs"):
        if is_test(path):
            continue
        name, text = str(path.relative_to(ROOT)), path.read_text()
        product = TESTS.split(text)[0]
        pools["comment"] += [(f"{name}:{n}", block) for n, block in comment_blocks(product) if len(block) > 30]
        pools["log line"] += [(f"{name}:{n}", line) for n, line in log_lines(product)]
        if "clap" in text:
            pools["flag help"] += [(f"{name}:{n}", line) for n, line in flag_helps(product)]
    draw = random.Random(seed)
    print(f"seed {seed}")
    for (kind, pool), count in zip(pools.items(), (20, 10, 10)):
        for place, text in draw.sample(sorted(set(pool)), min(count, len(pool))):
            print(f"\n{kind}  {place}\n" + "\n".join("    " + line for line in text.splitlines()))


def parse(text):
    lines = (line.split("#")[0].split() for line in text.splitlines())
    return {line[0]: int(line[1]) for line in lines if len(line) == 2}


def earlier_ceilings():
    """Yields each version of the ceiling in the history, as (commit, numbers by area)."""
    name = str(CEILING.relative_to(ROOT))
    log = subprocess.run(["git", "log", "--format=%H", "--", name], cwd=ROOT, capture_output=True, text=True).stdout
    for commit in log.split():
        shown = subprocess.run(["git", "show", f"{commit}:{name}"], cwd=ROOT, capture_output=True, text=True)
        if shown.returncode == 0:
            yield commit[:9], parse(shown.stdout)


def main(arguments):
    if arguments[:1] == ["--sample"] and len(arguments) <= 2:
        seed = arguments[1] if arguments[1:] else str(random.randrange(10**6))
        if not seed.isdecimal():
            print(f"language: expected a number as seed, found {seed}", file=sys.stderr)
            return 2
        sample(int(seed))
        return 0
    words, found = gather()
    now = {area: len(all_) for area, all_ in found.items()}
    if arguments[:1] == ["--show"]:
        if arguments[1:] and arguments[1] in found:
            for place, text in found[arguments[1]]:
                print(f"{place}: {text}")
            return 0
        print(f"language: expected --show and one of {', '.join(found)}", file=sys.stderr)
        return 2
    for area, value in now.items():
        rate = ""
        if area == "openers":
            rate = f"{100 * value / words[area]:.1f} % of the sentences"
        elif area in words:
            rate = f"{1000 * value / words[area]:.1f} in 1000 words"
        print(f"{area:9} {value:>6}   {rate}".rstrip())
    if arguments == ["--lower"]:
        ceiling = parse(CEILING.read_text()) if CEILING.exists() else {}
        lower = {area: min(value, ceiling.get(area, value)) for area, value in now.items()}
        lines = [f"{area} {value}" for area, value in lower.items()]
        head = "# The most that scripts/language.py may count. Numbers here only fall: scripts/language.py --lower\n"
        CEILING.write_text(head + "\n".join(lines) + "\n")
        return 0
    if arguments == ["--check"]:
        ceiling, wrong = parse(CEILING.read_text()), []
        for area, value in now.items():
            if value > ceiling.get(area, -1):
                wrong.append(f"{area}: {value}, and the ceiling is {ceiling.get(area, -1)} (--show {area})")
        for commit, earlier in earlier_ceilings():
            for area, value in ceiling.items():
                if value > earlier.get(area, value):
                    wrong.append(f"{area}: the ceiling rose to {value}, and was {earlier[area]} in {commit}")
        for line in wrong:
            print(f"language: {line}", file=sys.stderr)
        return 1 if wrong else 0
    if arguments:
        print(__doc__, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
