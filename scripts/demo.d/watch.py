"""What the demo shows while it runs: one line a second, and a line at each event.

Everything comes from where an operator or a shop would look: the sidecar's /metrics, the provider's own counters, and
the callers' results files.
"""
import collections
import json
import re
import time

from world import DemoError, request

SAMPLE_EVERY_S = 0.1
RETRY_AT_LEAST_US = 600_000  # the retry comes after 0.7 to 1.3 s; no other answer of the provider takes that long
HEAD = ("   time  phase      live/s  fallback/s and other ends            provider/s  429/s  breaker    gate   "
        "tokens  sidecar")
SHORT = {"rate-limit-proactive": "proactive", "rate-limit-429": "after-429", "circuit-breaker-open": "breaker",
         "provider-timeout": "timeout", "provider-error": "error", "sidecar-unavailable": "no-sidecar"}
METRIC = re.compile(r"^(spillway_\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)


class Metrics:
    """One reading of /metrics, asked for at before_s of the monotonic clock."""

    def __init__(self, text, before_s):
        self.before_s = before_s
        values = {(name, labels): float(value) for name, labels, value in METRIC.findall(text)}

        def one(name, *labels):
            found = [v for (n, l), v in values.items() if n == "spillway_" + name and all(x in l for x in labels)]
            return found[0] if found else 0
        self.breaker = next(s for s in ("closed", "open", "half-open") if one("breaker_state", f'state="{s}"'))
        self.gate_shut_s = one("gate_shut_seconds")
        self.tokens = one("tokens")
        self.retries = int(one("provider_retries_total"))
        self.busy_cells = int(one("cells", 'what="busy"'))
        self.adopted = bool(one("build_info", 'segment="adopted"'))


class Watch:
    def __init__(self, world):
        self.world = world
        self.began = time.monotonic()
        self.phase = ""
        self.results = []         # every finished order
        self.metrics = None       # the last reading, None while there is no sidecar
        self.provider_seen = 0    # provider requests when the last reading began
        self.breaker = "closed"   # as last read
        self.on_breaker = lambda state: None
        self.files = [open(path, encoding="utf-8") for path in world.results]
        self.shown_at = 0         # second of the last line
        self.shown = (0, 0, 0)    # results, provider requests and 429s at the last line
        print(HEAD, flush=True)

    def seconds(self):
        return time.monotonic() - self.began

    def event(self, text):
        print(f"{self.seconds():6.1f}s  >> {text}", flush=True)

    def read_results(self):
        """Each order is one whole line; the tail of a line being written waits for the next time."""
        for file in self.files:
            while True:
                at = file.tell()
                line = file.readline()
                if not line.endswith("\n"):
                    file.seek(at)
                    break
                self.results.append(json.loads(line))

    def sample(self):
        self.world.check_alive()
        stats = self.world.provider_stats()  # before the metrics: what it says was true while they still held
        self.provider_seen = stats["requests_total"]
        try:
            before_s = time.monotonic()
            self.metrics = Metrics(request(self.world.admin_port, "GET", "/metrics")[1], before_s)
        except OSError as error:
            if self.world.sidecar:
                raise DemoError(f"/metrics of the running sidecar: {error}") from error
            self.metrics = None
        self.read_results()
        if self.metrics and self.metrics.breaker != self.breaker:
            self.breaker = self.metrics.breaker
            self.on_breaker(self.breaker)
        if int(self.seconds()) > self.shown_at:
            self.shown_at = int(self.seconds())
            self.line(stats)

    def line(self, stats):
        refused = stats["by_status"].get("429", 0)
        new = collections.Counter(r["decision"] if r["decision"] != "fallback" else SHORT[r["type"]]
                                  for r in self.results[self.shown[0]:])
        live = new.pop("live", 0)
        requests, refusals = self.provider_seen - self.shown[1], refused - self.shown[2]
        self.shown = (len(self.results), self.provider_seen, refused)
        others = ", ".join(f"{kind} {count}" for kind, count in new.most_common()) or "-"
        m = self.metrics
        if m:
            gate = f"{m.gate_shut_s:.1f} s" if m.gate_shut_s else "open"
            state = f"{m.breaker:<9}  {gate:<5} {m.tokens:7.1f}  up"
        else:
            state = f"{'?':<9}  {'?':<5} {'?':>7}  DOWN"
        print(f"{self.seconds():6.1f}s  {self.phase:<9} {live:7}  {others:<35} {requests:10}  {refusals:5}  {state}",
              flush=True)

    def run(self, seconds):
        self.until(lambda: False, seconds, None)

    def until(self, condition, most_s, what):
        """Go on until the condition holds; not within most_s is an error that names `what` (None = no error)."""
        end = time.monotonic() + most_s
        while True:
            self.sample()
            if condition():
                return
            left = end - time.monotonic()
            if left <= 0:
                if what:
                    raise DemoError(f"{what} did not happen within {most_s:.0f} s")
                return
            time.sleep(min(left, SAMPLE_EVERY_S))

    def retried(self, since):
        """The orders from this one on that the provider answered to the one retry."""
        return [r for r in self.results[since:]
                if r["decision"] in ("live", "rejected") and r["latency_us"] >= RETRY_AT_LEAST_US]
