#!/usr/bin/python3
"""A shop's worst half minute, with the real programs: the provider's limit, its refusals, and the sidecar killed.

Started by scripts/demo, which builds what it needs. Standard library only. docs/demo.md says what to look at.
"""
import argparse
import json
import re
import signal
import sys
import time
from pathlib import Path

import verdict
from watch import SHORT, Watch
from world import CHECKOUTS, COOLDOWN_S, PROVIDER_BURST, RATE_PER_S, SIDECAR_BURST, DemoError, World

FIXED_S = 13  # what refusals, cooldown and restart take, however long the demo
CALM, BUSY, PEAK = 7, 20, 110  # orders a second
DRAIN_S = 20


class Story:
    """The phases, and what must have been seen in them."""

    def __init__(self, world, watch, seconds):
        self.world, self.watch = world, watch
        spare = seconds - FIXED_S
        self.calm_s, self.peak_s, self.recovery_s = spare * 0.25, spare * 0.4, spare * 0.35
        self.checks = []
        # Provider requests since the breaker opened, as they stood before each reading that still found it so.
        self.while_open, self.while_half_open = [], []
        watch.on_breaker = self.breaker_changed

    def saw(self, what, holds, otherwise):
        self.checks.append((what, None if holds else otherwise))

    def phase(self, name, orders_per_s):
        self.watch.phase = name
        if orders_per_s is not None:
            self.world.orders_per_s(orders_per_s)

    def breaker_changed(self, new):
        say = {"open": f"breaker opened: no calls for {COOLDOWN_S} s",
               "half-open": "the cooldown is over: one probe is sent",
               "closed": "the probe was answered: breaker closed"}
        self.watch.event(say[new])
        self.watch.phase = {"open": "open", "half-open": "probe", "closed": "recovery"}[new]

    def decided(self, since, decision, kind=None):
        return sum(1 for r in self.watch.results[since:] if r["decision"] == decision and kind in (None, r["type"]))

    def calm(self):
        self.phase("calm", CALM)
        self.watch.run(self.calm_s)
        live, proactive = self.decided(0, "live"), self.decided(0, "fallback", "rate-limit-proactive")
        self.saw("calm: live", live > 0 and proactive == 0, f"{live} live and {proactive} proactive fallbacks")

    def peak(self):
        since = len(self.watch.results)
        self.watch.event(f"peak: {PEAK} orders/s against a limit of {RATE_PER_S}/s and a burst of {SIDECAR_BURST}")
        self.phase("peak", PEAK)
        self.watch.run(self.peak_s)
        proactive = self.decided(since, "fallback", "rate-limit-proactive")
        self.saw("peak: proactive fallback", proactive > 0, "none")
        self.saw("peak: no 429", not self.world.provider_stats()["by_status"].get("429"), "the provider refused")

    def one_refusal(self):
        self.phase("one 429", CALM)
        before = self.watch.metrics.retries
        for _ in range(4):  # the refused order may be one with a mistyped ZIP code: then one more
            since, retries = len(self.watch.results), self.watch.metrics.retries
            self.world.script({"path_contains": "/carts", "from_request": 1, "to_request": 1, "status": 429})
            self.watch.event("the provider refuses one call, once")
            self.watch.until(lambda r=retries: self.watch.metrics.retries > r, 10, "the retry")
            self.watch.until(lambda s=since: self.watch.retried(s), 5, "the answer to the retry")
            order = self.watch.retried(since)[0]
            self.watch.event(f"429, one retry after a jittered pause: {order['decision']} "
                             f"after {order['latency_us'] / 1e6:.2f} s")
            if order["decision"] == "live":
                break
        retries = self.watch.metrics.retries - before
        refused = self.world.provider_stats()["by_status"]["429"]
        self.saw("one 429: one retry, answered live", order["decision"] == "live" and retries == refused,
                 f"{order['decision']}; {refused} refusals, {retries} retries")
        self.watch.run(1)

    def refusals(self):
        self.phase("429s", BUSY)
        before = self.world.provider_stats()["by_status"].get("429", 0)
        self.world.script({"path_contains": "/carts", "status": 429})
        self.watch.event("the provider refuses every call")
        self.watch.until(lambda: self.watch.breaker == "open", 15, "the opening of the breaker")
        self.opened = time.monotonic()
        refused = self.world.provider_stats()["by_status"]["429"] - before
        self.saw("429s: breaker opens after 5 in a row", refused >= 5, f"it opened after {refused}")

    def breaker_open(self):
        self.phase("open", None)
        self.watch.run(0.3)  # what was on its way has arrived
        self.while_open_from = self.watch.provider_seen
        # The provider is well again; its first answer takes long enough for the probe to be watched.
        self.world.script({"from_request": 1, "to_request": 1, "latency_ms": 700})
        since = len(self.watch.results)
        self.watch.run(self.opened + 2 - time.monotonic())
        by_breaker = self.decided(since, "fallback", "circuit-breaker-open")
        others = self.decided(since, "live") + self.decided(since, "fallback", "rate-limit-proactive")
        self.saw("open: fallback circuit-breaker-open", by_breaker > 0 and others == 0,
                 f"{by_breaker}, and {others} live or proactive")

    def kill(self):
        tokens, at = self.watch.metrics.tokens, self.watch.metrics.before_s
        since = len(self.watch.results)
        self.world.kill_sidecar()
        self.phase("killed", None)
        self.watch.event("kill -9 of the sidecar; the checkouts go on by the segment alone")
        self.watch.run(2)
        decided = len(self.watch.results) - since
        self.saw("killed: orders go on", decided > 0, "none completed without the sidecar")
        self.world.start_sidecar()
        self.phase("restarted", None)
        self.watch.sample()
        m, most = self.watch.metrics, tokens + RATE_PER_S * (time.monotonic() - at) + 0.5
        self.watch.event(f"restarted: segment {'adopted' if m.adopted else 'MADE ANEW'}, breaker {m.breaker}, "
                         f"{m.tokens:.0f} tokens ({tokens:.0f} before; a new bucket holds {SIDECAR_BURST}); "
                         f"{decided} orders meanwhile")
        self.saw("restarted: segment adopted", m.adopted, "it was made anew")
        self.saw("restarted: breaker still open", m.breaker == "open", f"it was {m.breaker}")
        self.saw("restarted: bucket as it was", m.tokens <= most,
                 f"{m.tokens:.1f} tokens, at most {most:.1f} are possible")

    def note_probe(self):
        seen = self.watch.provider_seen - self.while_open_from
        if self.watch.breaker == "open":
            self.while_open.append(seen)
        elif self.watch.breaker == "half-open":
            self.while_half_open.append(seen)
        return self.watch.breaker == "closed"

    def probe(self):
        self.watch.until(self.note_probe, 2 * COOLDOWN_S + 10, "the closing of the breaker")
        self.saw("open: provider requests 0", self.while_open and self.while_open[-1] == 0,
                 f"{self.while_open[-1]}" if self.while_open else "it passed unseen")
        self.saw("half-open: a single probe", self.while_half_open and max(self.while_half_open) == 1,
                 f"{max(self.while_half_open)} calls" if self.while_half_open else "it passed unseen")

    def recovery(self):
        self.world.script()
        self.phase("recovery", CALM)
        since = len(self.watch.results)
        self.watch.run(self.recovery_s)
        live = self.decided(since, "live")
        self.saw("recovery: live", live > 0, "none")

    def tell(self):
        for step in (self.calm, self.peak, self.one_refusal, self.refusals, self.breaker_open, self.kill, self.probe,
                     self.recovery):
            step()


def drained(watch):
    """Wait until no cell is waiting to be stored."""
    watch.phase = "drain"
    watch.until(lambda: watch.metrics and watch.metrics.busy_cells == 0, DRAIN_S, "the storing of all flags")


def print_summary(run, results, checks, seconds):
    fallbacks = sum(run["fallback"].values())
    print(f"\n{run['orders']} orders in {seconds:.0f} s: {run['live']} live, {fallbacks} fallback, "
          f"{run['rejected']} rejected, {run['none']} none (the last two: a mistyped ZIP code, refused by the provider "
          "when live and without a rate in the cache)")
    print(f"  {'':22}   count      p50 ms      p99 ms")
    for name, chosen in [("live", lambda r: r["decision"] == "live"),
                         *((kind, lambda r, kind=kind: r["type"] == kind) for kind in SHORT)]:
        took = [r["latency_us"] for r in results if chosen(r)]
        if took:
            p50, p99 = verdict.percentile_ms(took, 50), verdict.percentile_ms(took, 99)
            print(f"  {name:<22} {len(took):7} {p50:11.3f} {p99:11.3f}")
    print(f"flags: {run['flags_written']} written, {run['flags_exported']} exported")
    print(f"provider: {run['provider_requests']} requests, {run['provider_429']} answered 429 (by script), at most "
          f"{run['max_provider_rps']} in a second; its limit is {RATE_PER_S}/s with a burst of {PROVIDER_BURST}\n")
    for what, fault in checks:
        print(f"  {'FAILED' if fault else 'ok':<7} {what}{': ' + fault if fault else ''}")


def play(world, seconds, json_file):
    """The whole demo; the faults found."""
    world.start_provider()
    world.configure()
    world.start_sidecar()
    log = world.log("spillwayd")
    for line in re.findall(r"^.*(?:loop\.backend|rates\.row|rates\.loaded).*$", log, re.MULTILINE):
        print("spillwayd: " + line)
    world.start_callers()
    print(f"{CHECKOUTS} checkout processes in C over the segment, one shop in Python over HTTP\n")
    watch = Watch(world)
    story = Story(world, watch, seconds)
    story.tell()
    started = world.stop_callers()
    drained(watch)
    took_s = watch.seconds()
    exported, stats = world.export_flags(), world.provider_stats()
    run = verdict.numbers(watch.results, exported, stats)
    stopped = ("sidecar and provider stop cleanly", world.stop_servers())
    checks = [*story.checks, stopped,
              *verdict.check(run, watch.results, started, exported, stats, RATE_PER_S, PROVIDER_BURST)]
    print_summary(run, watch.results, checks, took_s)
    if json_file:
        Path(json_file).write_text(json.dumps(run, indent=2) + "\n")
    return [what for what, fault in checks if fault]


def read_arguments():
    parser = argparse.ArgumentParser(
        prog="scripts/demo",
        description="Live, proactive fallback, 429, breaker open, kill -9, probe, recovery: with the real sidecar, a "
        "scripted provider, and checkout processes.",
        epilog="Exit: 0 all holds, 1 something does not or the demo could not run, 2 wrong arguments, 130 interrupted.")
    parser.add_argument("--json", metavar="FILE", help="write the numbers of the run there")
    parser.add_argument("--backend", choices=("auto", "epoll", "io_uring"), default="auto", help="of the event loop")
    parser.add_argument("--seconds", type=int, default=30, help="about how long it takes, 20 to 600 (default 30)")
    parser.add_argument("--keep", action="store_true", help="leave the directory with logs, ledger and results")
    parser.add_argument("--bin", default="build/release/bin", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not 20 <= options.seconds <= 600:
        parser.error("--seconds: 20 to 600")
    return options


def interrupted(*_):
    raise KeyboardInterrupt


def main():
    options = read_arguments()
    signal.signal(signal.SIGTERM, interrupted)
    world = World(options.bin, options.backend)
    keep, code = True, 1
    try:
        failed = play(world, options.seconds, options.json)
        keep, code = options.keep or bool(failed), 1 if failed else 0
        if failed:
            print(f"\nFAILED: {'; '.join(failed)}\nlogs, ledger and results: {world.dir}", file=sys.stderr)
        elif keep:
            print(f"\nlogs, ledger and results: {world.dir}")
    except (DemoError, OSError) as error:
        print(f"\nFAILED: {error}\nlogs, ledger and results: {world.dir}", file=sys.stderr)
    except KeyboardInterrupt:
        keep, code = options.keep, 130
        print("\ninterrupted", file=sys.stderr)
    finally:
        for one in (signal.SIGINT, signal.SIGTERM):
            signal.signal(one, signal.SIG_IGN)
        world.close(keep)
    return code


sys.exit(main())
