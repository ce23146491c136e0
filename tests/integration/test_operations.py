"""What an operator does at night: why, limits for a time, kill and observe, gate, breaker. Needs SPILLWAY_BIN.

By grpcio and spillwayctl against a whole sidecar.
"""
import json
import re
import shlex
import time

import grpc
import pytest

from control_stubs import stubs
from harness import WATCHDOG_S, finish, read_lines, until

pb, rpc = stubs("spillway.v1.control")
WIDE = {"limit": {"rate": "1000000/s", "burst": 1000000}}


@pytest.fixture
def sidecar(place):
    return place.sidecar("http://127.0.0.1:1", account=WIDE)


@pytest.fixture
def channel(sidecar):
    with grpc.insecure_channel(f"unix:{sidecar.place.pub}/control.sock") as one:
        yield one


def limit_of(channel, **more):
    return rpc.LimitsStub(channel).Get(pb.GetLimitRequest(account="main", **more), timeout=WATCHDOG_S).limit


def set_limit(channel, **request):
    return rpc.LimitsStub(channel).Set(pb.SetLimitRequest(**request), timeout=WATCHDOG_S)


def refused(call, code, field):
    with pytest.raises(grpc.RpcError) as caught:
        call()
    assert caught.value.code() == code and caught.value.details().startswith(f"{field}: "), caught.value.details()
    assert dict(caught.value.trailing_metadata())["spillway-field"] == field


def boot_ns():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


# ---- for a time ----

def test_a_limit_set_for_a_time_goes_back_by_itself(channel):
    before = limit_of(channel)
    reply = set_limit(channel, account="main", rate=pb.Rate(text="5/s"), burst=5, for_ms=1000)
    assert 0 < reply.limit.expires_in_ms <= 1000 and not before.HasField("expires_in_ms")
    until(lambda: limit_of(channel).rate.text == before.rate.text, "the old rate")
    after = limit_of(channel)
    assert after.burst == before.burst and after.version > reply.limit.version
    assert not after.HasField("expires_in_ms")
    last = rpc.AuditStub(channel).List(pb.ListAuditRequest(account="main", limit=1)).changes[0]
    assert (last.who, last.cause) == ("sidecar", "expiry")


def test_another_set_cancels_the_going_back(channel):
    set_limit(channel, account="main", rate=pb.Rate(text="5/s"), for_ms=1000)
    assert not set_limit(channel, account="main", rate=pb.Rate(text="6/s")).limit.HasField("expires_in_ms")
    # What was set for longer goes back later: once it has, the first would have.
    set_limit(channel, account="main", killed=True, for_ms=1500)
    until(lambda: not limit_of(channel).killed, "the switch back")
    assert limit_of(channel).rate.text == "6/s"


def test_a_second_time_goes_back_to_what_was_before_the_first(channel):
    set_limit(channel, account="main", rate=pb.Rate(text="5/s"), for_ms=600000)
    set_limit(channel, account="main", rate=pb.Rate(text="6/s"), for_ms=1000)
    until(lambda: limit_of(channel).rate.text == "1000000/s", "what was first")


def test_a_breaker_held_for_a_time_lets_go(channel):
    breakers = rpc.BreakersStub(channel)
    reply = breakers.Set(pb.SetBreakerRequest(account="main", force=pb.BREAKER_FORCE_OPEN, for_ms=1000))
    assert 0 < reply.breaker.expires_in_ms <= 1000
    until(lambda: breakers.Get(pb.GetBreakerRequest(account="main")).breaker.force == pb.BREAKER_FORCE_AUTO)


@pytest.mark.parametrize("for_ms", [1, 999, 604800001, 2**63])
def test_a_time_out_of_range_is_refused(channel, for_ms):
    before = limit_of(channel)
    refused(lambda: set_limit(channel, account="main", rate=pb.Rate(text="5/s"), for_ms=for_ms),
            grpc.StatusCode.INVALID_ARGUMENT, "for_ms")
    refused(lambda: rpc.BreakersStub(channel).Set(
        pb.SetBreakerRequest(account="main", force=pb.BREAKER_FORCE_OPEN, for_ms=for_ms)),
            grpc.StatusCode.INVALID_ARGUMENT, "for_ms")
    assert limit_of(channel).rate == before.rate and limit_of(channel).version == before.version


# ---- switches ----

@pytest.mark.parametrize("words", [["main"], ["main", "--limiter", "account"], ["--everywhere"]])
@pytest.mark.parametrize("switch", ["kill", "observe"])
def test_one_command_switches_at_the_next_decision(place, words, switch):
    sidecar = place.sidecar("http://127.0.0.1:1", account={"limit": {"rate": "1/d", "burst": 1}})
    load = place.load("acquire", "p", "--pause-us", "500")
    until(lambda: len(read_lines(load)) > 20, "decisions")
    assert sum(line["may_call"] for line in read_lines(load)) <= 1
    sidecar.ctl(switch, *words)
    replied_ns = boot_ns()
    until(lambda: [x for x in read_lines(load) if x["begun_ns"] > replied_ns][20:], "decisions after it")
    shown = sidecar.ctl("limits", "list").stdout
    assert ("off" if switch == "kill" else "observe") in shown
    asked_ns = boot_ns()
    sidecar.ctl(switch, *words, "--off")
    back_ns = boot_ns()
    until(lambda: [x for x in read_lines(load) if x["begun_ns"] > back_ns][20:], "decisions after that")
    lines = finish(load)
    during = [x for x in lines if x["begun_ns"] > replied_ns and x["told_ns"] < back_ns]
    assert during and all(x["may_call"] for x in during if x["told_ns"] < asked_ns)
    assert not any(x["may_call"] for x in lines if x["begun_ns"] > back_ns)


@pytest.mark.parametrize("words", [["kill", "main"], ["observe", "--everywhere"], ["breaker", "open", "main"]])
def test_a_change_says_how_long_it_holds(sidecar, words):
    assert sidecar.ctl(*words).stdout.endswith("\nIn force in this pod, until its next start.\n")
    told = sidecar.ctl(*words, "--for", "2h").stdout
    assert re.search(r"\nIn force in this pod; goes back by itself in [12] h \d+ min\.\n$", told), told
    assert sidecar.ctl(*words, "--for", "2h", "--dry-run").stdout.endswith("\nNothing was changed (dry run).\n")


# ---- gate and breaker ----

def test_a_gate_is_shut_by_hand_and_opened(channel, sidecar):
    gates = rpc.GatesStub(channel)
    dry = gates.Set(pb.SetGateRequest(account="main", shut_for_ms=60000, dry_run=True))
    assert dry.gate.shut_for_ms == 60000 and gates.Get(pb.GetGateRequest(account="main")).gate.shut_for_ms == 0
    shut = gates.Set(pb.SetGateRequest(account="main", shut_for_ms=60000, expect_version=dry.gate.version)).gate
    assert 0 < shut.shut_for_ms <= 60000 and shut.source == "by-hand"
    answer = sidecar.quote()
    assert answer.json["decision"] != "live" and answer.json["provider"]["attempts"] == 0, answer
    refused(lambda: gates.Set(pb.SetGateRequest(account="main", shut_for_ms=0, expect_version=dry.gate.version)),
            grpc.StatusCode.ABORTED, "expect_version")
    assert "open" in sidecar.ctl("gate", "open", "main").stdout
    assert gates.Get(pb.GetGateRequest(account="main")).gate.shut_for_ms == 0
    refused(lambda: gates.Set(pb.SetGateRequest(account="main")), grpc.StatusCode.INVALID_ARGUMENT, "shut_for_ms")
    refused(lambda: gates.Set(pb.SetGateRequest(account="main", shut_for_ms=86400001)),
            grpc.StatusCode.INVALID_ARGUMENT, "shut_for_ms")


def test_a_breaker_is_tripped_and_reset(channel):
    breakers = rpc.BreakersStub(channel)
    would = breakers.Set(pb.SetBreakerRequest(account="main", trip=True, dry_run=True)).breaker
    assert would.state == "open" and breakers.Get(pb.GetBreakerRequest(account="main")).breaker.state == "closed"
    tripped = breakers.Set(pb.SetBreakerRequest(account="main", trip=True)).breaker
    assert tripped.state == "open" and tripped.open_for_ms > 0 and tripped.force == pb.BREAKER_FORCE_AUTO
    assert [b.state for b in breakers.List(pb.ListBreakersRequest()).breakers] == ["open"]
    reset = breakers.Set(pb.SetBreakerRequest(account="main", reset=True)).breaker
    assert reset.state == "closed" and reset.epoch > tripped.epoch
    refused(lambda: breakers.Set(pb.SetBreakerRequest(account="main", reset=True, trip=True)),
            grpc.StatusCode.INVALID_ARGUMENT, "trip")


def test_accounts_are_listed_without_secrets(channel):
    accounts = rpc.AccountsStub(channel).List(pb.ListAccountsRequest()).accounts
    assert [a.name for a in accounts] == ["main"] and accounts[0].limiters[0] == "account"
    assert accounts[0] == rpc.AccountsStub(channel).Get(pb.GetAccountRequest(account="main")).account
    assert [(i.name, getattr(i, "class")) for i in accounts[0].integrations]
    refused(lambda: rpc.AccountsStub(channel).Get(pb.GetAccountRequest(account="nobody")),
            grpc.StatusCode.NOT_FOUND, "account")


# ---- why ----

def test_a_newcomer_finds_out_why_and_raises_the_limit(place):
    """Knows --help and nothing else: runs what it says first, then what that proposes, then looks again."""
    sidecar = place.sidecar("http://127.0.0.1:1", account={"limit": {"rate": "20/s", "burst": 20}})
    load = place.load("acquire", "p", "--pause-us", "5000")
    until(lambda: len(read_lines(load)) > 600, "decisions")
    text = sidecar.ctl("--help").stdout
    first = shlex.split(text[text.index("Orders fall back?"):].splitlines()[1])
    assert first[0] == "spillwayctl"
    shown = sidecar.ctl(*first[1:]).stdout
    sentence = re.match(r"main: ([0-9.]+)/s wanted, 20\.0/s allowed, 0 provider 429; ([0-9.]+) % fell back", shown)
    assert sentence and float(sentence[1]) > 20 and float(sentence[2]) > 10, shown
    assert "no token left" in shown
    proposed = re.findall(r"spillwayctl (limits set .*?)  +would change fallback ([0-9.]+) % -> ([0-9.]+) %", shown)
    assert len(proposed) == 2 and all(float(before) > float(after) for _, before, after in proposed), shown
    assert float(proposed[-1][2]) == 0
    sidecar.ctl(*shlex.split(proposed[-1][0]))
    raised_ns = boot_ns()
    until(lambda: len([x for x in read_lines(load) if x["begun_ns"] > raised_ns]) > 300, "decisions under the new limit")
    later = [x for x in finish(load) if x["begun_ns"] > raised_ns]
    assert sum(x["may_call"] for x in later) > 0.9 * len(later)
    account = json.loads(sidecar.ctl("why", "--account", "main", "--over", "1s", "--json").stdout)["accounts"][0]
    assert account["window_ms"] >= 1000 and int(account["allowed_per_s_milli"]) > 20000


def test_why_says_what_a_rate_would_do(channel, sidecar):
    why = rpc.StatusStub(channel).Why(pb.WhyRequest(account="main", rate=pb.Rate(text="7/s")))
    assert why.accounts[0].changes[0].command == "spillwayctl limits set main --rate 7/s"
    refused(lambda: rpc.StatusStub(channel).Why(pb.WhyRequest(account="nobody")), grpc.StatusCode.NOT_FOUND, "account")
    refused(lambda: rpc.StatusStub(channel).Why(pb.WhyRequest(window_ms=999)), grpc.StatusCode.INVALID_ARGUMENT,
            "window_ms")
    assert sidecar.ctl("why", "--over", "1h", code=2).stderr.startswith("spillwayctl: --over")
