#!/usr/bin/env python3
"""A preprocessor of mdBook: turns links to files outside of the book into links to the repository.

Most pages include a document of the repository, whose relative links fit that document's place. A link to another document is a
page of the book, under the same name. Every other relative link leads to a file of the repository.
"""

import json
import pathlib
import re
import sys

URL = "https://github.com/tidegate/tidegate/blob/main/"
BOOK = pathlib.Path(__file__).resolve().parent
LINK = re.compile(r"\]\((?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?\)")


def rewritten(link):
    path, fragment = link.group(1), link.group(2) or ""
    if "/" not in path and (BOOK / "src" / path).is_file():
        return link.group(0)
    # Documents and pages are at different depths, and both name the root by steps upwards.
    from_root = re.sub(r"^(\.\./)+", "", path)
    return f"]({URL}{from_root}{fragment})" if (BOOK.parent / from_root).exists() else link.group(0)


def rewrite(item):
    if isinstance(item, dict) and "Chapter" in item:
        chapter = item["Chapter"]
        chapter["content"] = LINK.sub(rewritten, chapter["content"])
        for inner in chapter["sub_items"]:
            rewrite(inner)


def main():
    if sys.argv[1:2] == ["supports"]:
        return
    _, book = json.load(sys.stdin)
    for item in book.get("items", book.get("sections", [])):
        rewrite(item)
    json.dump(book, sys.stdout)


main()
