#!/usr/bin/env python3
"""Writes docs/configuration.md from the comments of spillway/v1/config.proto, the one source of the schema.

    config_doc.py            prints the page
    config_doc.py --check    compares it with docs/configuration.md; exits 1 and says so when they differ
"""
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
SCHEMA = HERE / "spillway/v1/config.proto"
PAGE = HERE.parent / "docs/configuration.md"

MESSAGE = re.compile(r"^message (\w+) \{$")
FIELD = re.compile(r"^  (?:optional |repeated )?(map<string, (?P<value>\w+)>|\w+) (?P<name>\w+) = \d+")
REPEATED = re.compile(r"^  repeated ")

HEAD = """# Configuration

<!-- Written by proto/config_doc.py from proto/spillway/v1/config.proto. Change that file, then run
     proto/config_doc.py > docs/configuration.md -->

One YAML file. `spillwayd --check-config --config FILE` names its first fault: file, line, column, path, and the remedy.
A file that works is `tests/data/config/minimal.yaml`; one with every key is `tests/data/config/full.yaml`.

Secrets are never in the file: it names the file or the environment variable that holds them. Anchors, aliases, tags,
tabs, repeated keys, a second document, empty values and files above 1 MiB are refused; so is any number that is not
plain digits where a count belongs (`1e+06` is what a template engine makes of a million). Words such as `yes` are not
`true`.
"""


def read_schema(text):
    """[(message, comment, [(field, type, is_map, is_list, comment)])] and the comment that opens the file."""
    messages, opening, comment = [], None, []
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("//"):
            comment.append(stripped[2:].strip())
            continue
        if opening is None and stripped.startswith("syntax"):
            opening = list(comment)
        message, field = MESSAGE.match(line), FIELD.match(line)
        if message:
            messages.append((message.group(1), " ".join(comment), []))
        elif field and messages:
            value = field.group("value")
            messages[-1][2].append((field.group("name"), value or field.group(1), bool(value),
                                    bool(REPEATED.match(line)), " ".join(comment)))
        comment = []
    return opening, messages


def paths_of(messages):
    """Message name -> where it stands in the file, the whole file being ""."""
    by_name = {name: fields for name, _, fields in messages}
    paths = {"Config": ""}
    todo = ["Config"]
    while todo:
        name = todo.pop(0)
        for field, kind, is_map, is_list, _ in by_name[name]:
            if kind in by_name:
                paths[kind] = paths[name] + field + (".NAME." if is_map else "[]." if is_list else ".")
                todo.append(kind)
    return paths


def cell(text):
    return text.replace("|", "\\|").replace("<", "&lt;")


def page():
    opening, messages = read_schema(SCHEMA.read_text())
    paths = paths_of(messages)
    out = [HEAD]
    opening = "\n".join(opening)
    out.append("## Units\n\n" + " ".join(opening[opening.index("Units. ") + 7:].split("\n\n")[0].split()) + "\n")
    for name, comment, fields in messages:
        out.append(f"## `{paths[name].rstrip('.')}`\n\n{comment}\n" if paths[name] else "## The whole file\n")
        out.append("| key | meaning, unit, range, default, what is refused |\n|---|---|")
        out.extend(f"| `{field}` | {cell(text)} |" for field, _, _, _, text in fields)
        out.append("")
    return "\n".join(out)


def main():
    text = page()
    if sys.argv[1:] != ["--check"]:
        sys.stdout.write(text)
        return 0
    if PAGE.read_text() == text:
        return 0
    print(f"{PAGE} differs from {SCHEMA}: run proto/config_doc.py > docs/configuration.md")
    return 1


if __name__ == "__main__":
    sys.exit(main())
