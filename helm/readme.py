#!/usr/bin/env python3
"""The table of values in the chart's README, from values.yaml and its comments.

    helm/readme.py            write it
    helm/readme.py --check    exit 1 when it is not what would be written

A comment stands above its key, at the key's indentation, and describes it; a blank line ends it. Below `config` only what
the chart presets is listed.
"""
import pathlib
import re
import sys

CHART = pathlib.Path(__file__).resolve().parent / "spillway"
README = CHART / "README.md"
BEGIN, END = "<!-- values: written by helm/readme.py -->\n", "<!-- values end -->\n"
KEY = re.compile(r"^(?P<indent> *)(?P<key>[A-Za-z]\w*):(?: (?P<value>.*))?$")


def rows(text):
    """(dotted key, default or "", comment) of each key, in order."""
    path, comment = [], []
    for line in text.splitlines():
        if not line.strip():
            comment = []
        elif line.lstrip().startswith("#"):
            comment.append(line.lstrip(" #"))
        else:
            match = KEY.match(line)
            if not match:
                raise ValueError(f"values.yaml: {line!r} is neither comment nor key")
            del path[len(match["indent"]) // 2:]
            path.append(match["key"])
            yield ".".join(path), match["value"] or "", " ".join(comment)
            comment = []


def table():
    lines = ["| key | default | meaning |\n", "|---|---|---|\n"]
    for key, value, comment in rows((CHART / "values.yaml").read_text()):
        if value or comment:
            comment = comment.replace("|", "\\|")
            lines.append(f"| `{key}` | {f'`{value}`' if value else ''} | {comment} |\n")
    return "".join(lines)


def main():
    old = README.read_text()
    head, rest = old.split(BEGIN)
    new = head + BEGIN + "\n" + table() + "\n" + END + rest.split(END)[1]
    if sys.argv[1:] == ["--check"]:
        if new != old:
            sys.exit("helm/spillway/README.md does not say what values.yaml says: run helm/readme.py")
    else:
        README.write_text(new)


main()
