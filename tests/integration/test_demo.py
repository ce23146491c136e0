"""The demo as people run it, at its shortest: its numbers, what it leaves behind, and that its verdict can be no.

Needs SPILLWAY_BIN, the directory of the programs.
"""
import copy
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

DEMO = Path(__file__).resolve().parents[2] / "scripts" / "demo.d"
WATCHDOG_S = 300  # ends a hang; nothing is measured by it
sys.path.insert(0, str(DEMO))
import verdict  # noqa: E402


@pytest.fixture
def home():
    """A short directory (Unix sockets have short names) where the demo makes its own."""
    path = tempfile.mkdtemp(prefix="dm.")
    yield Path(path)
    shutil.rmtree(path)


def start(home, *options):
    command = (sys.executable, DEMO / "demo.py", "--bin", os.environ["SPILLWAY_BIN"], "--seconds", 20, *options)
    return subprocess.Popen([str(word) for word in command], env={**os.environ, "TMPDIR": str(home)},
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def left_running(home):
    """The command lines that name the directory."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if str(home) in words:
            found.append(words)
    return found


def test_demo(home, backend):
    out = home / "numbers.json"
    demo = start(home, "--backend", backend, "--json", out)
    shown, errors = demo.communicate(timeout=WATCHDOG_S)
    assert demo.returncode == 0, shown + errors
    run = json.loads(out.read_text())
    fallbacks = sum(run["fallback"].values())
    assert run["orders"] == run["live"] + fallbacks + run["rejected"] + run["none"]
    assert run["flags_written"] == run["flags_exported"] == fallbacks
    assert run["live"] > 0
    for kind in ("rate-limit-proactive", "rate-limit-429", "circuit-breaker-open"):
        assert run["fallback"][kind] > 0
    assert run["provider_429"] >= 6 and run["provider_requests"] >= run["live"]
    assert run["max_provider_rps"] <= 10 + 155
    for decision in ("live", "fallback"):
        took = run["quote_latency_ms"][decision]
        assert 0 < took["p50"] <= took["p99"]
    assert f"loop.backend: {backend}" in shown
    told = [shown.index(text) for text in ("429, one retry", "breaker opened", "kill -9", "restarted: segment adopted",
                                           "one probe is sent", "the probe was answered")]
    assert told == sorted(told)
    assert "FAILED" not in shown
    assert [path.name for path in home.iterdir()] == ["numbers.json"]
    assert left_running(home) == []


def test_interrupt(home):
    demo = start(home)
    for line in demo.stdout:
        if " calm " in line:
            break
    assert len(left_running(home)) >= 6
    demo.send_signal(signal.SIGINT)
    _, errors = demo.communicate(timeout=WATCHDOG_S)
    assert demo.returncode == 130, errors
    assert left_running(home) == [] and list(home.iterdir()) == []


def test_killed_demo_leaves_nothing_running(home):
    demo = start(home)
    for line in demo.stdout:
        if " calm " in line:
            break
    demo.kill()
    demo.communicate(timeout=WATCHDOG_S)
    end = time.monotonic() + WATCHDOG_S
    while left_running(home):
        assert time.monotonic() < end, left_running(home)
        time.sleep(0.05)


# ---- the verdict ----

def order(number, decision, **more):
    one = {"caller": "c", "order_id": f"o{number}", "completed": True, "decision": decision, "type": "none",
           "cause": "none", "decision_id": f"d{number}", "quote_id": f"q{number}", "flag_id": "", "reason": "",
           "tax_minor": 671, "latency_us": 1000 * number}
    if decision == "fallback":
        one.update(type="rate-limit-proactive", flag_id=f"f{number}")
    one.update(more)
    return one


def flag_of(one):
    same = {name: one[name] for name in ("flag_id", "type", "decision_id", "quote_id")}
    return {**same, "tax": {"amount": "6.71"},
            "order": {"order_id": one["order_id"], "tax_collected": {"amount": "6.71"}}}


class Run:
    """A good run, to be spoilt."""

    def __init__(self):
        self.results = [order(1, "live"), order(2, "fallback"), order(3, "fallback"), order(4, "rejected"),
                        order(5, "none")]
        self.exported = [flag_of(one) for one in self.results[1:3]]
        self.stats = {"requests_total": 9, "by_status": {"200": 7, "429": 2}, "max_per_second": 15, "over_limit": 0}
        self.started = 5

    def faults(self):
        self.numbers = verdict.numbers(self.results, self.exported, self.stats)
        return {what: fault for what, fault in verdict.check(self.numbers, self.results, self.started, self.exported,
                                                             self.stats, 10, 5) if fault}


COMPLETED, SUM = "every order completed", "orders = live + fallback + rejected + none"
FLAGS = "each delivered fallback has exactly one exported flag"
CONTENT = "each flag holds what its customer was told, and the order's tax"
LIMIT = "the provider never saw more than its limit allows"


def test_good_run():
    run = Run()
    assert run.faults() == {}
    assert run.numbers == {
        "orders": 5, "live": 1, "rejected": 1, "none": 1, "flags_written": 2, "flags_exported": 2,
        "fallback": {**dict.fromkeys(verdict.FALLBACKS, 0), "rate-limit-proactive": 2},
        "provider_requests": 9, "provider_429": 2, "max_provider_rps": 15, "provider_over_limit": 0,
        "quote_latency_ms": {"live": {"p50": 1.0, "p99": 1.0}, "fallback": {"p50": 2.0, "p99": 3.0}}}


@pytest.mark.parametrize("spoil, names, word", [
    (lambda r: setattr(r, "started", 6), {COMPLETED}, "6 begun, 5 ended"),
    (lambda r: r.results[0].update(completed=False), {COMPLETED, SUM}, "not completed: o1"),
    (lambda r: r.results[0].update(decision="surprise"), {SUM}, "5 is not 0 + 2 + 1 + 1"),
    (lambda r: r.exported.pop(), {FLAGS}, "delivered but not exported: f3"),
    (lambda r: r.exported.append(copy.deepcopy(r.exported[0])), {FLAGS}, "exported twice: f2"),
    (lambda r: r.exported.append({**r.exported[0], "flag_id": "f9"}), {FLAGS}, "exported but never delivered: f9"),
    (lambda r: r.results[2].update(flag_id="f2"), {FLAGS, CONTENT}, "given out twice: f2"),
    (lambda r: r.results[2].update(flag_id=""), {FLAGS}, "1 fallbacks without a flag id"),
    (lambda r: r.exported[0].update(type="rate-limit-429"), {CONTENT}, "f2"),
    (lambda r: r.exported[0]["order"]["tax_collected"].update(amount="6.72"), {CONTENT}, "f2"),
    (lambda r: r.exported[0].pop("order"), {CONTENT}, "f2"),
    (lambda r: r.stats.update(over_limit=1), {LIMIT}, "1 requests refused"),
    (lambda r: r.stats.update(max_per_second=16), {LIMIT}, "16 in one second"),
])
def test_spoilt_run(spoil, names, word):
    run = Run()
    spoil(run)
    faults = run.faults()
    assert set(faults) == names
    assert word in " ".join(faults.values())
