#!/usr/bin/env python3
"""Holds docs/guarantees.md, and the failures of docs/ledger.md, against the tests: each named test is one that ctest knows, each function or model named with
it stands in its source, and each script is there.

    check_guarantees.py BUILD_DIR
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEST = re.compile(r"`((?:unit|prop|model|stress|crash|abi|fuzz|integration|chart|pod)_\w+)`(?: \(([^)]*)\))?")


def source_of(test):
    """The text of the file or files that the test is made of."""
    tier, name = test.split("_", 1)
    places = [f"tests/{tier}/test_{name}.c", f"tests/{tier}/test_{name}.py", f"tests/{tier}/{tier}_{name}.c",
              f"tests/{tier}/check_{name}.py"]
    return "\n".join((ROOT / place).read_text(encoding="utf-8") for place in places if (ROOT / place).exists())


def main():
    listed = subprocess.run(["ctest", "--test-dir", sys.argv[1], "-N"], capture_output=True, text=True, check=True).stdout
    known = set(re.findall(r"Test +#\d+: (\S+)", listed))
    text = (ROOT / "docs/guarantees.md").read_text(encoding="utf-8")
    # Of the ledger's page the table of failures promises something.
    text += (ROOT / "docs/ledger.md").read_text(encoding="utf-8").split("## When something fails")[1]
    faults, tests, parts, rows = [], set(), 0, 0
    for line in text.split("\n"):
        if not line.startswith("| ") or line.startswith(("| promise", "| what | ")):
            continue
        rows += 1
        shown = line.rsplit(" | ", 1)[1] if " | " in line else ""
        found = TEST.findall(shown)
        if not found and "`scripts/" not in shown:
            faults.append(f"no test is named for: {line}")
        for test, inside in found:
            tests.add(test)
            if test not in known:
                faults.append(f"ctest knows no {test}")
                continue
            for part in re.split(r",\s*", inside) if inside and " " not in inside.replace(", ", "") else []:
                parts += 1
                if not re.search(rf"\b{re.escape(part)}\b", source_of(test)):
                    faults.append(f"{test} has no {part}")
    for script in re.findall(r"`(scripts/\w+)", text):
        if not (ROOT / script).exists():
            faults.append(f"there is no {script}")
    for fault in faults:
        print(f"docs/guarantees.md or docs/ledger.md: {fault}")
    print(f"check_guarantees: {rows} promises, {len(tests)} tests, {parts} parts of them, {len(faults)} faults")
    return 1 if faults or rows < 20 else 0


if __name__ == "__main__":
    sys.exit(main())
