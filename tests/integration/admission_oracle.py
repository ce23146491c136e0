"""Admission once more, from what is promised of it and in exact fractions: what spillwayctl replay must answer.

Written from docs/limits.md and docs/replay.md, not from the C code, and with none of its means: no units, no words, no
rounding. World.do(event) takes an event as a dict (times in whole nanoseconds: "ns", "by_ns", "max_wait_ns"; a 429's or
503's "retry_after" in seconds) and says what the answer is; "slack" and "tolerance" are what the promise leaves to
rounding, in ns and tokens: nothing, as long as the rates are whole in nanoseconds and nobody changes them.
"""
from fractions import Fraction

NS, MS, HOUR_NS = 10 ** 9, 10 ** 6, 3600 * 10 ** 9
PERIOD_NS = {"d": 24 * HOUR_NS, "h": HOUR_NS, "min": 60 * NS, "s": NS, "ms": MS}
NEVER = "never"
GATE_MOST_MS, PERMIT_MOST_MS, BEHIND_MS = 86_400_000, 60_000, 3_600_000


def count_and_period(text):
    """ "3/10s" -> (3, 10 s in ns)."""
    count, period = text.split("/")
    digits = "".join(c for c in period if c.isdigit())
    return int(count), int(digits or 1) * PERIOD_NS[period[len(digits):]]


def up(value):
    return -(-value.numerator // value.denominator)


class Limiter:
    """What is earned rises from 0 at `base`; `spent` lies at most a burst behind it."""

    def __init__(self, name, conf, pods, reserve_percent, now, epoch_ns):
        self.name, self.integrations, self.endpoints = name, conf.get("integrations"), conf.get("endpoints")
        self.pods, self.reserve_percent, self.epoch_ns = pods, reserve_percent, epoch_ns
        self.kill = self.observe = False
        self.tolerance, self.changes = Fraction(0), 0
        self._configure(conf, now)
        self.spent = self.earned(now) - self.burst

    def _configure(self, conf, now):
        count, self.period = count_and_period(conf["rate"])
        self.window, self.base, self.text = conf["kind"] == "window", now, conf["rate"]
        burst = self.pods if conf["kind"] == "leaky" else conf.get("burst")
        self.burst = count // self.pods if self.window else max(burst // self.pods, burst > 0)
        self.rate = Fraction(self.burst if self.window else count, self.period * (1 if self.window else self.pods))
        self.reserve = self.burst * self.reserve_percent // 100

    def unit(self):
        """What one rounding may cost, in tokens."""
        if self.window:
            return Fraction(0)
        if self.rate == 0:
            return Fraction(1, NS)
        exact = self.rate.numerator <= 3
        return Fraction(1, self.rate.denominator) if exact else Fraction(self.rate.numerator, self.rate.denominator)

    def set(self, conf, now):
        """Tokens in hand are kept, cut to the new burst; of what is owed, as much as an hour pays."""
        before = (self.window, self.rate, self.burst, self.period if self.window else 0)
        hand, owed, unit = self.hand(now), max(Fraction(0), self.spent - self.earned(now)), self.unit()
        base = self.base
        self._configure(conf, now)
        if before == (self.window, self.rate, self.burst, self.period if self.window else 0):
            self.base = base  # nothing has changed
            return
        self.tolerance, self.changes = self.tolerance + unit + self.unit(), self.changes + 1
        if self.window:  # it counts whole calls
            hand, owed = Fraction(hand.numerator // hand.denominator), Fraction(up(owed))
        most = (HOUR_NS // self.period + 1) * self.burst if self.window else self.rate * HOUR_NS
        self.spent = self.earned(now) + (min(owed, most) if owed else -min(hand, self.burst))

    def earned(self, now):
        if self.window:
            spans = (now + self.epoch_ns) // self.period - (self.base + self.epoch_ns) // self.period
            return Fraction(max(0, spans) * self.burst)
        return self.rate * max(0, now - self.base)

    def when(self, amount):
        """The first instant at which so much is earned; None: never."""
        if amount <= 0:
            return 0 if self.window else self.base
        if self.rate == 0:
            return None
        if self.window:
            spans = (self.base + self.epoch_ns) // self.period + up(Fraction(amount) / self.burst)
            return spans * self.period - self.epoch_ns
        return self.base + up(amount / self.rate)

    def hand(self, now):
        return min(Fraction(self.burst), max(Fraction(0), self.earned(now) - self.spent))

    def ask(self, now, cost, batch, max_wait):
        """(spent afterwards, wait), (None, wait) or (None, NEVER)."""
        keep = self.reserve if batch else 0
        if cost > self.burst - keep:
            return None, NEVER
        spent = max(self.spent, self.earned(now) - self.burst)
        if spent + cost + keep <= self.earned(now):
            return spent + cost, 0
        at = self.when(self.spent + cost + keep)
        if at is None:
            return None, NEVER
        wait = max(0, at - now)
        if wait > max_wait:
            return None, wait
        return max(self.spent, self.earned(at) - self.burst if self.window else self.spent) + cost, wait

    def why_never(self, cost):
        return "rate-zero" if self.rate == 0 else "cost-above-burst" if cost > self.burst else "batch-reserve"


class Account:
    def __init__(self, conf, now, epoch_ns):
        self.conf, self.begun, self.integrations = conf, now, conf["integrations"]
        further = sorted(conf["limiters"].items(), key=lambda item: Fraction(*count_and_period(item[1]["rate"])))
        self.limiters = [Limiter(name, c, conf["pods"], conf["batch_reserve"], now, epoch_ns)
                         for name, c in [*further, ("account", conf["limit"])]]
        self.concurrency, self.permits = conf["concurrency"], {}  # place -> (call, until ms)
        self.probe_ms = conf["deadline_ms"] + 1000
        self.state, self.in_a_row, self.trips, self.epoch, self.until_ms = "closed", 0, 0, 0, 0
        self.outcomes = {}  # tick -> [bad, all]
        self.gate = None  # (source, observation, until ms)
        self.forced, self.kill, self.observe = "auto", False, False
        self.calls = {}  # in the order they began

    def ms(self, ns):
        return max(0, ns - self.begun) // MS

    def ms_up(self, ns):
        return -(-max(0, ns - self.begun) // MS)

    def ns(self, ms):
        return self.begun + ms * MS


class World:
    def __init__(self, accounts, epoch_ns=0):
        self.conf, self.epoch_ns, self.accounts, self.now, self.line = accounts, epoch_ns, None, 0, 0
        self.kill = self.observe = False

    # ---- breaker and gate, looked at or entered ----

    def _gate(self, a, enter):
        """shut, refresh or pass; the wait; and who shut it."""
        ms = a.ms(self.now)
        if not a.gate:
            return "pass", 0, None
        source, observation, until = a.gate
        if ms < until <= ms + GATE_MOST_MS + BEHIND_MS:
            return "shut", a.ns(until) - self.now, source
        if until <= ms and source in ("unknown", "refresh") and enter:
            a.gate = ("refresh", observation, ms + a.probe_ms)
            return "refresh", 0, source
        return "pass", 0, source

    def _breaker(self, a, enter):
        ms = a.ms(self.now)
        if a.forced == "open":
            return "forced", NEVER
        if a.forced in ("closed", "disabled") or a.state == "closed":
            return "pass", 0
        if ms < a.until_ms:
            return ("observed", 0) if a.forced == "observe" else ("refuse", a.ns(a.until_ms) - self.now)
        if enter:
            a.state, a.epoch, a.until_ms = "half-open", a.epoch + 1, ms + a.probe_ms
        return "probe" if enter else "pass", 0

    def _state(self, a, enter, retry):
        gate, gate_wait, source = self._gate(a, enter and not retry)
        shut = gate == "shut" and not (retry and source in ("unknown", "refresh"))
        breaker, wait = self._breaker(a, enter and not shut)
        call = {"refresh": gate == "refresh", "probe": breaker == "probe", "observed": breaker == "observed",
                "epoch": a.epoch - (breaker == "observed")}
        if breaker == "forced":
            return [("breaker-forced", NEVER)], call
        if breaker == "refuse":
            return [("breaker-open", max(wait, gate_wait))], call
        return [("gate-shut", gate_wait)] if shut else [], call

    # ---- a decision ----

    def _applying(self, a, event):
        who, what = event.get("integration", next(iter(a.integrations))), event.get("endpoint", "calculate")
        return [x for x in a.limiters if not (self.kill or a.kill or x.kill) and
                (x.integrations is None or who in x.integrations) and (x.endpoints is None or what in x.endpoints)]

    def _busy(self, a):
        ms = a.ms(self.now)
        return {i: until for i, (_, until) in a.permits.items() if ms < until <= ms + PERMIT_MOST_MS + BEHIND_MS}

    def _decide(self, a, event):
        """(call, reasons): the first reason is the cause, the longest wait is the hint."""
        cost, retry = event.get("cost", 1), event.get("retry", False)
        batch = a.integrations[event.get("integration", next(iter(a.integrations)))] == "batch"
        most = min(HOUR_NS, (PERMIT_MOST_MS - a.probe_ms) * MS if a.concurrency else HOUR_NS)
        reasons, call = self._state(a, False, retry)
        if a.concurrency and len(self._busy(a)) >= a.concurrency:
            reasons.append(("concurrency", a.ns(min(self._busy(a).values())) - self.now))
        charges, late, late_wait = [], None, 0
        for x in self._applying(a, event):
            observe = self.observe or a.observe or x.observe
            spent, wait = x.ask(self.now, cost, batch, 0 if observe else min(event.get("max_wait_ns", 0), most))
            if spent is not None:
                charges.append((x, spent))
                late, late_wait = ((x, spent), wait) if wait > late_wait else (late, late_wait)
            elif observe:
                call["observed"] = True
            else:
                empty = "batch-reserve" if batch and x.hand(self.now) >= cost else "bucket-empty"
                reasons.append((x.why_never(cost) if wait == NEVER else empty, wait))
        call.update(start=self.now + late_wait if late else None, taken=self.now, retry=retry, charges=[])
        if reasons or event["op"] == "peek":
            return call, reasons
        for x, spent in [late] if late else charges:
            call["charges"].append((x, x.changes, x.spent, spent))
            x.spent = spent
        call.update({k: v for k, v in self._state(a, True, retry)[1].items() if k != "observed"})
        if a.concurrency:
            place = min(i for i in range(a.concurrency) if i not in self._busy(a))
            a.permits[place] = (self._id(event), a.ms(self.now) + a.probe_ms + -(-late_wait // MS))
        return call, reasons

    # ---- how a call ends ----

    def _probe_back(self, a, call):
        if call["probe"] and a.state == "half-open" and a.epoch == call["epoch"]:
            a.state, a.epoch, a.until_ms = "open", a.epoch + 1, a.ms(self.now)
        if call["refresh"] and a.gate and a.gate[0] == "refresh" and a.gate[2] == a.ms(call["taken"]) + a.probe_ms:
            a.gate = ("refresh", a.gate[1], a.ms(self.now))

    def _outcome(self, a, epoch, kind):
        """kind: ok, throttled or failed."""
        if a.forced == "disabled":
            return
        breaker, bad = a.conf["breaker"], kind != "ok"
        tick_ms = breaker["window_ms"] // 10
        tick = a.ms(self.now) // tick_ms
        for old in [t for t in a.outcomes if t % 16 == tick % 16 and t != tick]:
            del a.outcomes[old]  # sixteen places there are
        count = a.outcomes.setdefault(tick, [0, 0])
        count[0] += bad
        count[1] += 1
        if a.epoch != epoch or a.state == "open":
            return
        if a.state == "half-open" and not bad:
            a.state, a.in_a_row, a.trips, a.epoch, a.until_ms = "closed", 0, 0, a.epoch + 1, a.ms(self.now)
            a.outcomes[tick] = [0, 0]
            return
        a.in_a_row = a.in_a_row + 1 if kind == "throttled" else 0
        since = a.until_ms // tick_ms  # of a closed breaker: when it closed
        of_window = [c for t, c in a.outcomes.items() if max(since, tick - 9) <= t <= tick]
        n_bad, n_all = sum(c[0] for c in of_window), sum(c[1] for c in of_window)
        share = n_all >= breaker["minimum"] and n_bad * 100 > breaker["ratio"] * n_all
        if a.state == "half-open" or (bad and (a.in_a_row >= breaker["consecutive"] or share)):
            a.trips = min(15, a.trips + 1)
            cooldown = min(breaker["cooldown_ms"][0] * 2 ** (a.trips - 1), breaker["cooldown_ms"][1])
            a.state, a.in_a_row, a.epoch = "open", 0, a.epoch + 1
            a.until_ms = a.ms_up(self.now) + cooldown

    def _newer(self, a, sent, than):
        return 0 < ((a.ms(sent) >> 6) - than) % 2 ** 21 < 2 ** 20

    def _shut(self, a, wait_s, source, sent):
        ms = a.ms(self.now)
        until, observation = min(a.ms_up(self.now + int(wait_s * NS)), ms + GATE_MOST_MS), a.ms(sent) >> 6
        if a.gate:
            newer = a.gate[2] <= ms or self._newer(a, sent, a.gate[1])
            if not newer and until <= a.gate[2] and a.gate[0] != "refresh":
                return
            observation = observation if newer else a.gate[1]
        a.gate = (source, observation, until)

    def _open(self, a, call):
        if a.gate and not (call["refresh"] and a.gate[0] == "refresh"):
            told = a.gate[0] == "retry-after" and a.ms(self.now) < a.gate[2]
            if told or not self._newer(a, call["taken"], a.gate[1]):
                return
        a.gate = None

    def _answered(self, a, event, call, out):
        status, after = event["status"], event.get("retry_after")
        bad = status in (0, 408) or status >= 500
        out["verdict"] = "live" if 200 <= status < 300 else "rejected" if 400 <= status < 500 else "fallback"
        if status in (0, 401, 403, 404, 405, 408, 429) or status >= 500:
            out.update(verdict="fallback", type="provider-error", cause="status-5xx" if status >= 500 else "bad-answer")
        if status == 0:
            out.update(type="provider-timeout", cause="timeout")
        if status == 429:  # the pause has jitter
            out.update(type="rate-limit-429", cause="retry-429" if call["retry"] else None, wait_ns=None)
        self._outcome(a, call["epoch"], "throttled" if status == 429 else "failed" if bad else "ok")
        if status == 429:
            self._shut(a, min(after or 1, GATE_MOST_MS // 1000), "retry-after" if after else "unknown", call["taken"])
        elif status >= 500 and after:
            self._shut(a, min(after, GATE_MOST_MS // 1000), "retry-after", call["taken"])
        elif not bad and status not in (401, 403):
            self._open(a, call)

    def _end(self, a, event, out):
        key = event.get("id", next(iter(a.calls), None))
        call = a.calls.get(key)
        if call is None and ("id" in event or event["op"] == "release"):
            out["verdict"] = "not-open"
            return
        if call is None:
            call = {"taken": self.now, "epoch": a.epoch, "probe": False, "refresh": False, "retry": False}
        if event["op"] == "outcome":
            self._answered(a, event, call, out)
        else:
            given_up = call["start"] is not None and call["start"] > self.now
            out["verdict"] = "given-up" if given_up else "released"
            self._probe_back(a, call)
            for x, changes, before, after in call["charges"] if given_up else []:
                if changes == x.changes:  # what was taken under another limit does not come back
                    assert x.spent == after, "only the newest reservation's giving back is simple enough for an oracle"
                    x.spent = before
        a.permits = {i: p for i, p in a.permits.items() if p[0] != key}
        a.calls.pop(key, None)

    # ---- events ----

    def _id(self, event):
        return event.get("id", str(self.line))

    def _set(self, a, event):
        named = next(x for x in a.limiters if x.name == event.get("limiter", "account"))
        if "limit" in event:
            named.set(event["limit"], self.now)
        whose = self if event.get("everywhere") else named if "limiter" in event else a
        whose.kill, whose.observe = event.get("kill", whose.kill), event.get("observe", whose.observe)
        a.forced = event.get("forced", a.forced)
        if event.get("reset"):
            a.state, a.in_a_row, a.trips, a.epoch = "closed", 0, 0, a.epoch + 1
            a.until_ms, a.gate, a.outcomes = a.ms(self.now), None, {}

    def _ask(self, a, event, out):
        call, reasons = self._decide(a, event)
        out["observed"] = True if call["observed"] else None
        if reasons:
            waits = [wait for _, wait in reasons]
            out.update(verdict="deny", cause=reasons[0][0], wait_ns=NEVER if NEVER in waits else max(waits))
            out["type"] = "circuit-breaker-open" if out["cause"].startswith("breaker") else "rate-limit-proactive"
            if event.get("retry"):
                out.update(type="rate-limit-429", cause="retry-no-token")
            return
        out.update(verdict="allow", start_at_ns=call["start"], wait_ns=call["start"] - self.now if call["start"] else 0)
        if event["op"] == "acquire":
            a.calls[self._id(event)] = call
            out["probe"] = True if call["probe"] else None

    def do(self, event):
        self.now = event.get("ns", self.now) + event.get("by_ns", 0)
        self.line += 1
        if self.accounts is None:
            self.accounts = {name: Account(c, self.now, self.epoch_ns) for name, c in self.conf.items()}
        a = self.accounts[event["account"]]
        out = dict.fromkeys(("type", "cause", "start_at_ns", "probe", "observed"))
        out.update(verdict={"set": "set", "advance": "advanced"}.get(event["op"]), wait_ns=0)
        if event["op"] in ("acquire", "peek"):
            self._ask(a, event, out)
        elif event["op"] in ("outcome", "release"):
            self._end(a, event, out)
        elif event["op"] == "set":
            self._set(a, event)
        self._see(a, event, out)
        return out

    def _see(self, a, event, out):
        ms, applying = a.ms(self.now), self._applying(a, event)
        out["tokens"] = min((x.hand(self.now) for x in applying), default=None)
        out["tolerance"] = max((x.tolerance for x in a.limiters), default=Fraction(0))
        out["slack"] = max((2 + up(x.tolerance / x.rate) if x.tolerance and x.rate else 0 for x in a.limiters))
        out["breaker"] = {"open": "open", "closed": "closed", "disabled": "closed"}.get(a.forced, a.state)
        shut = a.gate and ms < a.gate[2] <= ms + GATE_MOST_MS + BEHIND_MS
        out["gate_until_ns"] = a.ns(a.gate[2]) if shut else None
        out["open"] = len(a.calls)
