"""The bucket's laws, told to spillwayctl replay and checked against exact fractions.

    never early     a call is let through only when burst + rate x time, exactly, has a token for it
    never late      it is refused only when that has none, but for two nanoseconds' worth of rounding, and as much of
                    either rate at each change
    exact hints     waiting exactly as told passes, one nanosecond less is refused
    looking is free looks in between change no answer
    changes         a new rate counts from its own moment on; tokens in hand are kept, cut to the new burst

Each run prints its seed; SPW_SEED repeats it, SPW_REPLAY_ROUNDS lengthens it. Needs SPILLWAY_BIN.
"""
import os
import random
from fractions import Fraction

import pytest

from replaying import NS, Replay, acquire, nanoseconds, peek, seconds

DAY_S = 86400
TEN_YEARS_NS = 3652 * DAY_S * NS
ROUNDS = int(os.environ.get("SPW_REPLAY_ROUNDS", "1"))
# The usual run is the same each time; a longer one begins anywhere.
SEED = int(os.environ.get("SPW_SEED", "0")) or (
    random.randrange(1, 1 << 32) if "SPW_REPLAY_ROUNDS" in os.environ else 1)
# The rates the promise names, and some that divide badly.
RATES = ["1/d", "7/min", "3/s", "170/s", "40000/min", "3000000/s", "10000000/s"]
ODD_RATES = ["1/h", "13/7s", "3/10s", "999983/s", "997/min", "1/23h", "9999991/s", "7/3ms"]
PERIOD_NS = {"d": DAY_S * NS, "h": 3600 * NS, "min": 60 * NS, "s": NS, "ms": NS // 1000}


def per_ns(text):
    """ "7/min" as exact tokens per nanosecond."""
    count, period = text.split("/")
    digits = "".join(c for c in period if c.isdigit())
    return Fraction(int(count), int(digits or 1) * PERIOD_NS[period[len(digits):]])


class Model:
    """The bucket as it is promised: exact, and full at first."""

    def __init__(self, rate, burst):
        self.rate, self.burst, self.at, self.tokens = per_ns(rate), burst, 0, Fraction(burst)
        self.slack = 2 * self.rate  # what rounding may have cost, in tokens

    def to(self, at):
        self.tokens = min(Fraction(self.burst), self.tokens + self.rate * (at - self.at))
        self.at = at

    def change(self, rate, burst):
        self.slack += 2 * (self.rate + per_ns(rate))
        self.rate, self.burst = per_ns(rate), burst
        self.tokens = min(self.tokens, Fraction(burst))

    def wait(self, cost):
        """Whole nanoseconds until it has them."""
        missing = cost - self.tokens
        return 0 if missing <= 0 else -(-missing.numerator * self.rate.denominator //
                                         (missing.denominator * self.rate.numerator))

    def check(self, event, answer):
        cost = event["cost"]
        wait = self.wait(cost)
        if cost > self.burst:
            assert answer["wait_ns"] == "never", (event, answer)
        elif answer["verdict"] == "allow":
            assert wait == 0, f"early by {wait} ns: {event} {answer}"
            if event["op"] == "acquire":
                self.tokens -= cost
        else:
            assert wait <= answer["wait_ns"] <= wait + self.slack / self.rate + 1, (event, answer, wait)


def random_steps(rng, rate, count):
    """Times from 0 to ten years: bursts at one instant, steps of about a token, and long silences."""
    at, token_ns = 0, int(1 / per_ns(rate)) + 1
    for _ in range(count):
        yield at
        at += rng.choice([0, 0, rng.randrange(1, 3), rng.randrange(token_ns) + 1, token_ns,
                          rng.randrange(3 * token_ns) + 1, rng.randrange(TEN_YEARS_NS // count)])


def random_events(rng, rate, burst, count):
    top = rng.choice([1, 2, burst, burst + 1])
    return [{**acquire(seconds(at), cost=rng.randint(1, max(1, top))), "ns": at}
            for at in random_steps(rng, rate, count)]


def told(events):
    return [{k: v for k, v in e.items() if k != "ns"} for e in events]


@pytest.mark.parametrize("rate", RATES + ODD_RATES)
def test_exact_for_ten_years(tmp_path, rate):
    """Random costs and times against the model, then every hint tried to the nanosecond by looks in between."""
    print("SPW_SEED", SEED)
    rng = random.Random(f"{SEED} {rate}")
    for _ in range(ROUNDS):
        # A burst holds a year and a half of its rate at most.
        burst = rng.choice([b for b in (1, 2, 3, 17, 250, 4096) if b <= per_ns(rate) * 500 * DAY_S * NS])
        replay = Replay(tmp_path, f"{{rate: {rate}, burst: {burst}, pods: 1}}")
        events = random_events(rng, rate, burst, 1500)
        answers = replay(told(events))
        model = Model(rate, burst)
        for event, answer in zip(events, answers):
            model.to(event["ns"])
            model.check(event, answer)
        try_hints(replay, events, answers)


def try_hints(replay, events, answers):
    """One nanosecond before the hint is over the answer is 1, at its end it is yes; nothing else changes."""
    merged = []
    for i, (event, answer) in enumerate(zip(events, answers)):
        merged.append((event, answer))
        wait = answer["wait_ns"]
        until = events[i + 1]["ns"] if i + 1 < len(events) else None
        if answer["verdict"] == "deny" and wait != "never" and (until is None or event["ns"] + wait < until):
            early, due = (peek(seconds(event["ns"] + wait - k), cost=event["cost"]) for k in (1, 0))
            merged += [(early, {"verdict": "deny", "wait_ns": 1}), (due, {"verdict": "allow", "wait_ns": 0})]
    for (event, wanted), got in zip(merged, replay(told(e for e, _ in merged))):
        assert (got["verdict"], got["wait_ns"]) == (wanted["verdict"], wanted["wait_ns"]), (event, got)


@pytest.mark.parametrize("rate,burst,pods", [("1/d", 1, 1), ("7/min", 3, 1), ("170/s", 5, 1), ("100/s", 250, 40),
                                             ("40000/min", 7, 3), ("10000000/s", 1000, 7)])
def test_bound_of_the_greedy(tmp_path, rate, burst, pods):
    """A caller that takes whatever it gets: never above burst + rate x time, never a token below, at ten instants over
    ten years, with costs as large as the bucket."""
    share, pod_burst = per_ns(rate) / pods, max(1, burst // pods)
    token_ns, polls = int(1 / share) + 1, 600
    span = polls * token_ns // 3
    events, instants = [], [(TEN_YEARS_NS - span) * i // 10 for i in range(11)]
    replay = Replay(tmp_path, f"{{rate: {rate}, burst: {burst}, pods: {pods}}}")
    for i, at in enumerate(instants):
        events += [acquire(seconds(at), cost=pod_burst)] * (2 if i else 1)
        events += [acquire(seconds(at + k * token_ns // 3)) for k in range(1, polls)]
    answers = replay(sorted(events, key=lambda e: nanoseconds(e["at"])))
    for since in range(len(instants)):
        begin = instants[since]
        taken, last = 0, begin
        for event, answer in zip(events, answers):
            at = nanoseconds(event["at"])
            if begin <= at and (since + 1 == len(instants) or at < instants[since + 1]) and \
                    answer["verdict"] == "allow":
                taken += event.get("cost", 1)
                last = at
            assert taken <= pod_burst + share * (last - begin)
        assert taken >= pod_burst + share * ((polls - 1) * token_ns // 3) - 1


CHANGES = {
    "slow": (["3/s", "7/min", "170/s", "1/s", "13/7s"], 2, 60),
    "fast": (["40000/min", "3000000/s", "170/s", "10000000/s"], 100_000, 40)}


@pytest.mark.parametrize("name", CHANGES)
def test_changes_under_load(tmp_path, name):
    """Rates change while a caller takes all it gets: what passes stays below the integral of the rate (and the burst),
    and within 0.9995 of it."""
    rates, burst, changes = CHANGES[name]
    rng = random.Random(f"{SEED} {name}")
    print("SPW_SEED", SEED)
    events, at, integral, marks = [], 0, Fraction(0), []
    rate = rates[0]
    for i in range(changes):
        cost = 1 if name == "slow" else max(1, burst // 4)
        length = int(cost * 400 / per_ns(rate)) + rng.randrange(NS)
        step = int(cost / per_ns(rate) / 2) + 1
        for k in range(0, length, step):
            events.append({**acquire(seconds(at + k), cost=cost), "ns": at + k})
        # The last of it, as small as they come, so that what is left over does not count against the rate.
        events += [{**acquire(seconds(at + length), cost=c), "ns": at + length}
                   for c in ([1] * 2 if name == "slow" else [burst // 8, burst // 16, burst // 32, burst // 64] * 2)]
        integral += per_ns(rate) * length
        marks.append((len(events), integral))
        at += length
        rate = rng.choice([r for r in rates if r != rate])
        events.append({"at": seconds(at), "op": "set", "rate": rate, "ns": at})
    answers = Replay(tmp_path, f"{{rate: {rates[0]}, burst: {burst}, pods: 1}}")(told(events))
    taken, mark = 0, iter(marks)
    count, until = next(mark)
    for i, (event, answer) in enumerate(zip(events, answers), 1):
        if answer["verdict"] == "allow":
            taken += event["cost"]
        if i == count:
            assert taken <= burst + until
            count, until = next(mark, (0, 0))
    assert taken >= integral * Fraction(9995, 10000)


def test_changes_against_the_model(tmp_path):
    """Random changes of rate and burst between random takes, exactly."""
    rng = random.Random(SEED)
    print("SPW_SEED", SEED)
    for _ in range(8 * ROUNDS):
        rate, burst = rng.choice(RATES[1:] + ODD_RATES), rng.choice([1, 5, 100])
        events, at, model = [], 0, Model(rate, burst)
        first = (rate, burst)
        for _ in range(600):
            at += rng.choice([0, rng.randrange(int(2 / per_ns(rate)) + 2), rng.randrange(10 * NS)])
            if rng.random() < 0.05:
                rate, burst = rng.choice(RATES[1:] + ODD_RATES), rng.choice([1, 5, 100])
                events.append({"at": seconds(at), "op": "set", "rate": rate, "burst": burst, "ns": at})
            else:
                events.append({**acquire(seconds(at), cost=rng.randint(1, burst)), "ns": at})
        answers = Replay(tmp_path, f"{{rate: {first[0]}, burst: {first[1]}, pods: 1}}")(told(events))
        for event, answer in zip(events, answers):
            model.to(event["ns"])
            if event["op"] == "set":
                model.change(event["rate"], event["burst"])
            else:
                model.check(event, answer)


def test_all_or_nothing(tmp_path):
    """Two limiters and the account's own: a call passes when each that applies to it has the tokens, a refused one
    charges none, and the hint is the longest of all."""
    rng = random.Random(SEED)
    print("SPW_SEED", SEED)
    for _ in range(6 * ROUNDS):
        rates = [rng.choice(["3/s", "7/min", "13/7s", "170/s"]) for _ in range(3)]
        bursts = [rng.choice([1, 3, 20]) for _ in range(3)]
        models = [Model(rate, burst) for rate, burst in zip(rates, bursts)]
        replay = Replay(
            tmp_path, f"{{rate: {rates[0]}, burst: {bursts[0]}, pods: 1}}",
            limiters=f"[{{name: all, rate: {rates[1]}, burst: {bursts[1]}}}, "
                     f"{{name: web, rate: {rates[2]}, burst: {bursts[2]}, integrations: [web]}}]",
            integrations="{web: checkout, app: checkout}")
        events, at = [], 0
        for _ in range(800):
            at += rng.choice([0, 1, rng.randrange(NS // 10), rng.randrange(3 * NS)])
            events.append({**acquire(seconds(at), cost=rng.randint(1, min(bursts)),
                                     integration=rng.choice(["web", "app"])), "ns": at})
        for event, answer in zip(events, replay(told(events))):
            mine = models if event["integration"] == "web" else models[:2]
            for model in models:
                model.to(event["ns"])
            waits = [m.wait(event["cost"]) for m in mine]
            if answer["verdict"] == "allow":
                assert max(waits) == 0, (event, answer, waits)
                for m in mine:
                    m.tokens -= event["cost"]
            else:
                most = max(w + m.slack / m.rate + 1 for w, m in zip(waits, mine))
                assert max(waits) <= answer["wait_ns"] <= most, (event, answer, waits)


def test_time_may_go_back(tmp_path):
    """An instant that was passed already earns nothing a second time, wherever the clock has been in between."""
    rng = random.Random(SEED)
    print("SPW_SEED", SEED)
    for rate in RATES[1:]:
        token_ns = int(1 / per_ns(rate)) + 1
        times, latest = [0], 0
        for _ in range(2000):
            times.append(max(0, latest + rng.randrange(-20 * token_ns, 4 * token_ns)))
            latest = max(latest, times[-1])
        answers = Replay(tmp_path, f"{{rate: {rate}, burst: 4, pods: 1}}")([acquire(seconds(t)) for t in times])
        taken, latest = 0, 0
        for at, answer in zip(times, answers):
            latest = max(latest, at)
            taken += answer["verdict"] == "allow"
            assert taken <= 4 + per_ns(rate) * latest
