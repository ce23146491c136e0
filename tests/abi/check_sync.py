#!/usr/bin/env python3
"""Reviews the memory order of everything that is shared: each access is explained, each name has two sides.

A comment "SYNC name: order: why" stands at each atomic access outside shm/spw_atomic.h, on its line, up to 6 lines
above it in the same function, or up to 2 below (in a call that is broken over lines). Statistics say so instead. A name is one of
    paired   it stands on a releasing side (release, acq_rel) and on an acquiring side (acquire, acq_rel)
    lone     its reading sides are relaxed, and one of them says why that suffices: "lone word(s)", "self-contained",
             "statistics"
The names of shm/ and sidecar/state/ are those of the table "Orders" in shm/README.md.

Prints the names by kind; one line per fault, and exits 1.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
ACCESS = re.compile(r"\b(__atomic_\w+|spw_(load(32)?_acq|load_rlx|store(32)?_rel|store_rlx|cas|exchange|fence_(acq|rel)))\s*\(")
# Counting orders nothing, and a bulk copy belongs to the latch or sequence around it, whose fences are checked.
COMMENT = re.compile(r"/\*.*?\*/", re.S)
SYNC = re.compile(r"SYNC ([a-z][a-z0-9, -]*):(.*?)(?=SYNC [a-z]|$)", re.S)
LONE = re.compile(r"lone words?|self-contained|statistics")
ABOVE, BELOW = 6, 2


def files():
    yield from sorted((ROOT / "shm").glob("*.h"))
    yield from sorted(f for f in (ROOT / "sidecar").rglob("*.[ch]"))


def comments_of(text):
    """(first line, last line, text) of each comment, lines from 1."""
    for match in COMMENT.finditer(text):
        first = text.count("\n", 0, match.start()) + 1
        words = re.sub(r"\s*\n\s*\*?\s*", " ", match.group(0).strip("/* "))
        yield first, first + match.group(0).count("\n"), words


def accesses_of(text):
    code = COMMENT.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)), text)
    for number, line in enumerate(code.split("\n"), 1):
        if ACCESS.search(line):
            yield number, line


def start_of_function(lines, number):
    """The line of the nearest "{" in the first column at or above: comments before it explain another function."""
    while number > 1 and not lines[number - 1].startswith("{"):
        number -= 1
    return number


def main():
    names, faults, accesses = {}, [], 0
    for file in files():
        text, where = file.read_text(encoding="utf-8"), file.relative_to(ROOT).as_posix()
        if where == "shm/spw_atomic.h":
            continue
        lines = text.split("\n")
        explained = []
        for first, last, words in comments_of(text):
            for name_list, rest in SYNC.findall(words):
                for name in re.split(r",\s*", name_list):
                    sides = names.setdefault(name, {"release": [], "acquire": [], "relaxed": [], "why": False})
                    place = f"{where}:{first}"
                    both = "acq_rel" in rest
                    if both or "release" in rest:
                        sides["release"].append(place)
                    if both or "acquire" in rest:
                        sides["acquire"].append(place)
                    if "relaxed" in rest:
                        sides["relaxed"].append(place)
                        sides["why"] |= LONE.search(rest) is not None
                    if not re.search(r"acq_rel|release|acquire|relaxed", rest):
                        faults.append(f"{place}: SYNC {name} names no order: acquire, release, acq_rel or relaxed")
            if "SYNC " in words or "tatistics" in words:
                explained.append((first, last))
        for number, line in accesses_of(text):
            accesses += 1
            top = start_of_function(lines, number)
            if not any(max(top, number - ABOVE) <= last and first <= number + BELOW for first, last in explained):
                faults.append(f"{where}:{number}: no SYNC comment for: {line.strip()}")
    paired, lone = [], []
    for name, sides in sorted(names.items()):
        if sides["release"] and sides["acquire"]:
            paired.append(name)
        elif sides["relaxed"] and sides["why"] and not sides["acquire"]:
            lone.append(name)
        else:
            missing = "acquiring" if sides["release"] else "releasing"
            places = ", ".join(sides["release"] + sides["acquire"] + sides["relaxed"])
            faults.append(f"SYNC {name} has no {missing} side ({places})")
    table = (ROOT / "shm/README.md").read_text(encoding="utf-8").split("## Orders")[1].split("\n## ")[0]
    listed = {name.strip() for row in re.findall(r"^\| ([a-z, -]+) \|", table, re.M) for name in row.split(",")} - {"name"}
    shared = {name for name, sides in names.items()
              if any(place.startswith(("shm/", "sidecar/state/")) for place in
                     sides["release"] + sides["acquire"] + sides["relaxed"])}
    faults += [f"shm/README.md, Orders: SYNC {name} is missing" for name in sorted(shared - listed)]
    faults += [f"shm/README.md, Orders: no code says SYNC {name}" for name in sorted(listed - set(names))]
    for fault in faults:
        print(fault)
    print(f"check_sync: {accesses} accesses; paired: {', '.join(paired)}; lone: {', '.join(lone)}; {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
