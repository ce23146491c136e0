#!/usr/bin/env python3
"""Refuses an include that runs against the arrows between the parts (docs/architecture.md).

    shm <- clients    shm <- sidecar    proto <- sidecar/control    control -> state <- http, never back

Prints one line per violation and exits 1. A new room must be entered in ROOMS before it may include anything.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# What each room of the sidecar may include besides itself, obs and shm. "proto" is the generated code.
ROOMS = {
    "obs": set(),
    "net": set(),
    "loop": set(),
    "conf": {"proto", "provider"},  # profile names and paths; a profile takes plain conf structs and links nothing back
    "provider": {"conf"},
    "rates": {"conf"},
    "state": {"conf", "rates"},
    "store": {"loop"},
    "reconcile": {"conf", "provider", "state", "store"},  # what needs http is handed in as functions
    "http": {"conf", "loop", "net", "provider", "reconcile", "state", "store"},
    "message": {"proto"},
    "control": {"conf", "loop", "message", "net", "proto", "provider", "rates", "reconcile", "state",
                "store"},
    "replay": {"conf", "provider", "state"},
    "ctl": {"conf", "message", "proto", "provider", "rates", "replay"},
    "mock": {"conf", "net", "provider", "rates"},
}

# The contract headers stand in any program: the C library and the kernel's own headers, nothing else.
# stdatomic.h is not among them: g++ refuses _Atomic in C headers, and it can hide a lock.
LIBC = re.compile(
    r"^(assert|ctype|dirent|errno|fcntl|inttypes|limits|poll|pthread|sched|signal|stdarg|stdbool|stddef|stdint|stdio"
    r"|stdlib|string|strings|time|unistd|arpa/inet|netinet/(in|tcp)|netdb|(sys|linux)/[a-z_0-9]+)\.h$")

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')


def part_of(path):
    """The part a path from the root belongs to: shm, clients, proto, a room's name, or "sidecar" for main.c."""
    parts = pathlib.PurePosixPath(path).parts
    if path.endswith((".pb-c.h", ".pb-c.c")):
        return "proto"
    if parts[0] == "sidecar":
        return parts[1] if len(parts) > 2 else "sidecar"
    return parts[0]


def allowed_parts(part):
    if part in ("shm", "clients"):
        return {"shm"} | {part}
    return {part, "obs", "shm"} | ROOMS[part]


def faults_of(file):
    name = file.relative_to(ROOT).as_posix()
    part = part_of(name)
    if part == "sidecar":  # main.c and its like tie the rooms together
        return
    if part not in ROOMS and part not in ("shm", "clients"):
        yield f"{name}: sidecar/{part}/ is not in the table of tests/check_includes.py: say there what it may include"
        return
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        ours, system = match.groups()
        if system and part in ("shm", "clients") and not LIBC.match(system):
            yield f"{name}:{number}: <{system}>: {part}/ includes the C library only"
        if not ours:
            continue
        if ours.startswith(".") or "/" not in ours and not (part == "clients" and (file.parent / ours).exists()):
            yield f'{name}:{number}: "{ours}": write the path from the root of the repository'
        elif "/" in ours and part_of(ours) not in allowed_parts(part):
            yield f'{name}:{number}: "{ours}": {part} may include {", ".join(sorted(allowed_parts(part)))} only'


def main():
    files = [f for top in ("shm", "clients", "sidecar") for f in sorted((ROOT / top).rglob("*.[ch]"))]
    faults = [fault for file in files for fault in faults_of(file)]
    for fault in faults:
        print(fault)
    print(f"check_includes: {len(files)} files, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
