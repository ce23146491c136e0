"""spillwayctl replay from a test: a configuration, events in, answers out; and scripts with their answers beside them.

Needs SPILLWAY_BIN, the directory of the programs. Standard library only.
"""
import json
import os
import subprocess
import textwrap
from fractions import Fraction
from pathlib import Path

CTL = Path(os.environ.get("SPILLWAY_BIN", "")) / "spillwayctl"
WATCHDOG_S = 300  # ends a hang; nothing is measured by it
NS = 10 ** 9


def seconds(ns):
    """1500000000 -> "1.500000000"."""
    return f"{ns // NS}.{ns % NS:09d}"


def nanoseconds(text):
    """"1.5" -> 1500000000, exactly; whole numbers are seconds."""
    value = Fraction(str(text)) * NS
    assert value.denominator == 1
    return int(value)


def account(limit, **more):
    """One account as YAML; limit and the rest as the configuration has them."""
    lines = ["    provider: taxcloud", "    connection: test", "    credentials: {api_key_env: NOBODY_NEEDS_THIS}",
             f"    limit: {limit}"]
    lines += [f"    {key}: {value}" for key, value in more.items()]
    return "\n".join(lines) + "\n"


def configuration(path, accounts):
    """accounts: name -> what account() gave."""
    path.write_text("accounts:\n" + "".join(f"  {name}:\n{text}" for name, text in accounts.items()))
    return path


def run(words, text, **more):
    return subprocess.run([str(w) for w in (CTL, "replay", *words)], input=text, capture_output=True, text=True,
                          timeout=WATCHDOG_S, **more)


class Replay:
    """Events of one account "main" (or of several) through the program; answers as dicts."""

    def __init__(self, directory, limit="{rate: 10/s, burst: 10, pods: 1}", accounts=None, **more):
        self.path = configuration(directory / "replay.yaml", accounts or {"main": account(limit, **more)})

    def __call__(self, events, *words, **more):
        text = "".join((e if isinstance(e, str) else json.dumps(e)) + "\n" for e in events)
        result = run(["--config", self.path, *words], text, **more)
        assert (result.returncode, result.stderr) == (0, "")
        return [json.loads(line) for line in result.stdout.splitlines()]


def acquire(at, **more):
    return {"at": str(at), "op": "acquire", **more}


def peek(at, **more):
    return {"at": str(at), "op": "peek", **more}


def outcome(at, status=200, **more):
    return {"at": str(at), "op": "outcome", "status": status, **more}


def allowed(answers):
    return sum(a["verdict"] == "allow" for a in answers if a["op"] == "acquire")


# ---- scripts: tests/data/replay/*.jsonl ----

def script(path):
    """A script's account as YAML (lines that begin with "#: "), its lines, and what it expects of each event."""
    lines = path.read_text().splitlines()
    yaml = textwrap.indent("\n".join(line[3:] for line in lines if line.startswith("#: ")), "    ") + "\n"
    events = [json.loads(line) for line in lines if line.strip() and not line.startswith("#")]
    return yaml, lines, [event.get("_expect", {}) for event in events]
