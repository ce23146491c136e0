#!/usr/bin/env python3
"""Holds shm/README.md and shm/spw_layout.h together: every field, offset, size and constant, and no unnamed gap.

The struct tables of the page are compiled into a small program that is asked for offsetof and sizeof; every struct of
the header that is laid out in the files must have its table. One line for each difference, and exit 1.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADING = re.compile(r"^### struct (\w+) \((\d+) bytes\)$")
ROW = re.compile(r"^\| (\d+) \| (\d+) \| (?:struct )?(\w+)([^|]*) \| (\w+) \|.* \| ([a-z-]+) \| [^|]* \|$")
CONSTANT = re.compile(r"^\| (SPW_\w+) \| (\d+) \|$")


def read_page(text):
    structs, constants, syncs, current = {}, {}, set(), None
    for line in text.split("\n"):
        if match := HEADING.match(line):
            current = match.group(1)
            structs[current] = (int(match.group(2)), [])
        elif line.startswith("#"):
            current = None
        elif match := CONSTANT.match(line):
            constants[match.group(1)] = int(match.group(2))
        elif current and (match := ROW.match(line)):
            offset, size, kind, array, field, sync = match.groups()
            structs[current][1].append((field, int(offset), int(size), kind + array))
            syncs.add(sync)
    return structs, constants, syncs - {"-"}


def declared(text):
    """{struct: [(field, type with its array)]} of the header, comments aside."""
    found = {}
    for match in re.finditer(r"\nstruct (\w+) \{\n(.*?)\n\};", re.sub(r"/\*.*?\*/", "", text, flags=re.S), re.S):
        fields = []
        for declaration in match.group(2).split(";"):
            if words := re.match(r"\s*(?:struct )?(\w+)\s+(.*)", declaration, re.S):
                for name in words.group(2).split(","):
                    name = name.strip()
                    field = re.match(r"\w+", name).group(0)
                    fields.append((field, words.group(1) + name[len(field):]))
        found[match.group(1)] = fields
    return found


def measure(structs, constants):
    lines = ['#include <stdio.h>', '#include "shm/spw_map.h"', "int main(void)", "{"]
    for struct, fields in structs.items():
        lines.append(f'    printf("{struct} . %zu 0\\n", sizeof(struct {struct}));')
        for field, _ in fields:
            lines.append(f'    printf("{struct} {field} %zu %zu\\n", offsetof(struct {struct}, {field}),'
                         f" sizeof(((struct {struct} *)0)->{field}));")
    for constant in constants:
        lines.append(f'    printf("{constant} = %llu 0\\n", (unsigned long long){constant});')
    lines += ["    return 0;", "}", ""]
    with tempfile.TemporaryDirectory() as directory:
        source, program = pathlib.Path(directory, "layout.c"), pathlib.Path(directory, "layout")
        source.write_text("\n".join(lines))
        subprocess.run([os.environ.get("CC", "cc"), "-std=c11", "-D_GNU_SOURCE", "-I", ROOT, source, "-o", program],
                       check=True)
        out = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    return {(owner, field): (int(a), int(b)) for owner, field, a, b in (line.split() for line in out.splitlines())}


def main():
    page_structs, constants, syncs = read_page((ROOT / "shm/README.md").read_text(encoding="utf-8"))
    header = declared((ROOT / "shm/spw_layout.h").read_text(encoding="utf-8"))
    faults = [f"struct {name} has no table" for name in header if name not in page_structs]
    faults += [f"struct {name} is not in spw_layout.h" for name in page_structs if name not in header]
    comments = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "shm").glob("*.h"))
    comments += "".join(file.read_text(encoding="utf-8") for file in (ROOT / "sidecar").rglob("*.c"))
    faults += [f"no comment says SYNC {name}" for name in sorted(syncs)
               if not re.search(rf"SYNC (\w[\w-]*, )*{name}[:,]", comments)]
    real = measure({n: f for n, f in header.items()}, constants)
    for name, value in constants.items():
        if real[name, "="][0] != value:
            faults.append(f"{name} is {real[name, '='][0]}, not {value}")
    for name, fields in header.items():
        size, rows = page_structs.get(name, (0, []))
        if not rows:
            continue
        if size != real[name, "."][0]:
            faults.append(f"struct {name} has {real[name, '.'][0]} bytes, not {size}")
        said = {field: (offset, length, kind) for field, offset, length, kind in rows}
        at = 0
        for field, kind in fields:
            offset, length = real[name, field]
            if offset != at:
                faults.append(f"struct {name}: {offset - at} unnamed bytes before {field}")
            at = offset + length
            if said.get(field) != (offset, length, kind):
                faults.append(f"struct {name}.{field} is {(offset, length, kind)}, not {said.get(field)}")
        if at != real[name, "."][0]:
            faults.append(f"struct {name}: {real[name, '.'][0] - at} unnamed bytes at its end")
        for field in said.keys() - {field for field, _ in fields}:
            faults.append(f"struct {name} has no field {field}")
    for fault in faults:
        print(fault)
    count = sum(len(rows) for _, rows in page_structs.values())
    print(f"check_layout: {len(page_structs)} structs, {count} fields, {len(constants)} constants, {len(syncs)} SYNC names,"
          f" {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
