#!/usr/bin/env python3
"""Writes docs/spillwayctl.md from the program's own option tables, that is from its help texts.

    sidecar/ctl/doc.py build/dev/bin/spillwayctl > docs/spillwayctl.md
"""
import re
import subprocess
import sys

HEAD = """# spillwayctl

<!-- Written by sidecar/ctl/doc.py from the program's help texts. Change those, then run
     sidecar/ctl/doc.py build/dev/bin/spillwayctl > docs/spillwayctl.md -->

The command line of one sidecar. It speaks to the control API of the pod it runs in; what it changes reaches that pod
only, until its next start unless `--persist` keeps it. Tables for people, `--json` for machines.

At night: `spillwayctl why` says why orders fall back and prints the command that would help; `--for 2h` lets a change go
back by itself; `spillwayctl audit` says who did what; `spillwayctl watch` tells it as it happens.

From outside the pod, where `listen.control_tls` is configured, with a certificate that has a role there:

```sh
export SPILLWAY_CONTROL=spillway.shop.svc:8393 SPILLWAY_CA=ca.crt SPILLWAY_CERT=me.crt SPILLWAY_KEY=me.key
spillwayctl status
kubectl port-forward POD 8393 & spillwayctl --address 127.0.0.1:8393 --server-name spillway.shop.svc status
```
"""


def help_of(program, *words):
    return subprocess.run([program, *words, "--help"], capture_output=True, text=True, check=True).stdout


def part(text, title):
    """The lines below a title, up to the next empty line."""
    found = re.search(rf"^{title}:\n((?:.+\n)+)", text, re.M)
    return found[1] if found else ""


def main(program):
    top = help_of(program)
    out = [HEAD, "## Common options\n", "```", part(top, "Common options").rstrip(), "```\n", "## Exit codes\n", "```",
           part(top, "Exit codes").rstrip(), "```\n", "## Commands\n"]
    for line in part(top, "Commands").splitlines():
        words = []
        for word in line.split():
            if not re.fullmatch(r"[a-z][a-z-]*", word) or len(words) == 2:
                break
            words.append(word)
        for used in (words, words[:1]):
            try:
                text = help_of(program, *used)
            except subprocess.CalledProcessError:
                continue
            if text.startswith(f"Usage: spillwayctl {' '.join(used)}") and "COMMAND" not in text.splitlines()[0]:
                break
        usage, summary = text.splitlines()[0].removeprefix("Usage: "), text.splitlines()[2]
        out += [f"### {' '.join(used)}\n", f"{summary}\n", "```", usage.rstrip()]
        if part(text, "Options"):
            out += ["", part(text, "Options").rstrip()]
        out += ["", part(text, "Examples").rstrip(), "```\n"]
    print("\n".join(out).rstrip())


if __name__ == "__main__":
    main(sys.argv[1])
