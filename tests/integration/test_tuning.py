"""Limits changed while processes run: whatever was decided after the reply obeyed the change.

By gRPC, by spillwayctl, and by grpcurl with nothing but reflection where it is installed. Needs SPILLWAY_BIN.
"""
import json
import shutil
import subprocess
import time
from pathlib import Path

import grpc
import pytest

from control_stubs import stubs
from harness import WATCHDOG_S, finish, read_lines, until

pb, rpc = stubs("spillway.v1.control")
GRPCURL = shutil.which("grpcurl") or shutil.which("grpcurl", path=str(Path.home() / "go" / "bin"))


def boot_ns():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def by_grpc(sidecar, rate, burst):
    with grpc.insecure_channel(f"unix:{sidecar.place.pub}/control.sock") as channel:
        reply = rpc.LimitsStub(channel).Set(
            pb.SetLimitRequest(account="main", rate=pb.Rate(text=rate), burst=burst), timeout=WATCHDOG_S)
    return reply.limit.version


def by_ctl(sidecar, rate, burst):
    reply = sidecar.ctl("limits", "set", "main", "--rate", rate, "--burst", burst, "--json")
    return int(json.loads(reply.stdout)["limit"]["version"])


def grpcurl(*words, code=0):
    result = subprocess.run([GRPCURL, "-plaintext", *map(str, words)], capture_output=True, text=True,
                            timeout=WATCHDOG_S)
    assert (result.returncode == 0) == (code == 0), result.stderr
    return result.stdout if code == 0 else result.stderr


def by_grpcurl(sidecar, rate, burst):
    request = json.dumps({"account": "main", "rate": {"text": rate}, "burst": str(burst)})
    reply = json.loads(grpcurl("-d", request, f"unix://{sidecar.place.pub}/control.sock", "spillway.v1.Limits/Set"))
    return int(reply["limit"]["version"])


needs_grpcurl = pytest.mark.skipif(not GRPCURL, reason="grpcurl is neither on the PATH nor in ~/go/bin")


@pytest.mark.parametrize("change", [by_grpc, by_ctl, pytest.param(by_grpcurl, marks=needs_grpcurl)])
def test_every_decision_after_the_reply_obeys_the_change(place, backend, change):
    sidecar = place.sidecar("http://127.0.0.1:1", account={"limit": {"rate": "1000000/s", "burst": 1000000}})
    load = [place.load("acquire", f"p{i}", "--pause-us", "100") for i in range(3)]
    until(lambda: all(len(read_lines(one)) > 100 for one in load), "decisions before the first change")
    changes = []  # (asked_ns, replied_ns, version, rate)
    for i in range(8):
        rate = "1000000/s" if i % 2 else "1/d"
        asked_ns = boot_ns()
        version = change(sidecar, rate, 1000000 if i % 2 else 1)
        replied_ns = boot_ns()
        changes.append((asked_ns, replied_ns, version, rate))
        until(lambda: any(read_lines(one)[-1]["begun_ns"] >= replied_ns for one in load), "a decision after the change")
    lines = [line for one in load for line in finish(one)]
    versions = [version for _, _, version, _ in changes]
    assert versions == sorted(set(versions))
    after = [*(asked_ns for asked_ns, _, _, _ in changes[1:]), boot_ns()]
    for (_, replied_ns, version, rate), until_ns in zip(changes, after):
        later = [line for line in lines if line["begun_ns"] >= replied_ns]
        early = [line for line in later if line["version"] < version]
        assert later and not early, (len(later), version, early[:5], replied_ns)
        during = [line for line in later if line["told_ns"] < until_ns]
        assert {line["version"] for line in during} == {version}
        admitted = sum(line["may_call"] for line in during)
        assert admitted <= 1 if rate == "1/d" else admitted == len(during) > 0, (rate, admitted, len(during))
    assert all(line["version"] < versions[0] for line in lines if line["told_ns"] < changes[0][0])


def test_a_change_reaches_the_door_too(place, backend):
    mock = place.mock()
    sidecar = place.sidecar(mock)
    assert sidecar.quote().json["decision"] == "live"
    by_ctl(sidecar, "1/d", 1)
    decisions = [sidecar.quote().json["decision"] for _ in range(4)]
    assert decisions in (["live"] + ["fallback"] * 3, ["fallback"] * 4)
    by_ctl(sidecar, "1000/s", 1000)
    until(lambda: sidecar.quote().json["decision"] == "live", "a live answer")


def test_a_change_by_hand_ends_with_the_sidecar(place, backend):
    sidecar = place.sidecar("http://127.0.0.1:1", account={"limit": {"rate": "70/s", "burst": 100}})
    by_ctl(sidecar, "7/min", 5)
    sidecar.kill()
    sidecar = place.sidecar()
    assert "segment: adopted" in sidecar.log()
    limit = json.loads(sidecar.ctl("limits", "get", "main", "--json").stdout)["limit"]
    assert (limit["rate"]["text"], int(limit["burst"])) == ("70/s", 100)


def test_an_edited_configuration_keeps_what_was_spent(place, backend):
    """Ten restarts, five of them with an edit elsewhere: a drained bucket stays drained (10/s, 100)."""
    sidecar = place.sidecar("http://127.0.0.1:1", account={"limit": {"rate": "6/min", "burst": 100},
                                                           "breaker": {"mode": "disabled"}})
    begun_ns = boot_ns()
    drain = finish_when_done(place, "--count", "150", "--pause-us", "0")
    assert sum(line["may_call"] for line in drain) in (100, 101)
    for i in range(10):
        sidecar.stop()
        edit = {"deadline": f"{1000 + i}ms"} if i % 2 else {}
        place.config["accounts"]["main"].update(edit)
        sidecar = place.sidecar()
        assert "segment: adopted" in sidecar.log()
        assert sidecar.metric("spillway_tokens", account="main") <= (boot_ns() - begun_ns) / 1e9 * 6 / 60 + 0.001
    more = finish_when_done(place, "--count", "200", "--pause-us", "0")
    assert sum(line["may_call"] for line in [*drain, *more]) <= 100 + (boot_ns() - begun_ns) / 1e9 * 6 / 60


def finish_when_done(place, *options):
    """The lines of a load generator that ends by its count."""
    one = place.load("acquire", "once", *options)
    assert one.wait(WATCHDOG_S) == 0
    return read_lines(one)


def test_limiters_beside_the_limit_are_shown_set_and_switched(place, backend):
    """The list of an account: what one limiter refuses no other is charged for; each has switches."""
    sidecar = place.sidecar("http://127.0.0.1:1", account={
        "limit": {"rate": "0/s", "burst": 100}, "batch_reserve": "0%", "breaker": {"mode": "disabled"},
        "limiters": [{"name": "calculations", "rate": "0/s", "burst": 5, "endpoints": ["calculate"]},
                     {"name": "a-day", "rate": "1000/d", "kind": "window", "mode": "observe"}]})
    def limits():
        told = json.loads(sidecar.ctl("limits", "list", "--json").stdout)["limits"]
        return {limit["limiter"]: limit for limit in told}
    def take(count):
        return sum(line["may_call"] for line in finish_when_done(place, "--count", str(count), "--pause-us", "0"))
    assert take(8) == 5
    told = limits()
    assert list(told)[0] == "account" and told["calculations"]["endpoints"] == "calculate"
    assert told["a-day"]["kind"] == "window" and told["a-day"]["observed_only"] is True
    assert int(told["account"]["tokens_milli"]) == 95_000  # the three refused cost nothing
    assert int(told["a-day"]["tokens_milli"]) == 995_000
    sidecar.ctl("limits", "set", "main", "--limiter", "calculations", "--kill", "on")
    assert limits()["calculations"]["killed"] is True
    assert take(20) == 20
    sidecar.ctl("limits", "set", "main", "--limiter", "calculations", "--kill", "off")
    assert take(3) == 0
    sidecar.ctl("limits", "set", "main", "--everywhere", "--observe", "on")
    assert take(3) == 3
    sidecar.ctl("limits", "set", "main", "--everywhere", "--observe", "off")
    assert take(3) == 0
    assert "main/calculations" in sidecar.ctl("limits", "list").stdout
    sidecar.ctl("limits", "set", "main", "--limiter", "a-day", "--rate", "900/d")
    assert int(limits()["a-day"]["burst"]) == 900


@needs_grpcurl
def test_a_stranger_to_the_schemas_finds_its_way(place, backend):
    sidecar = place.sidecar(place.mock())
    tcp = f"127.0.0.1:{place.control_port}"
    services = grpcurl(tcp, "list").split()
    assert {"spillway.v1.Limits", "spillway.v1.Breakers", "spillway.v1.Rates", "spillway.v1.Flags",
            "spillway.v1.Status", "grpc.health.v1.Health"} <= set(services)
    assert "expect_version" in grpcurl(tcp, "describe", "spillway.v1.SetLimitRequest")
    assert json.loads(grpcurl(tcp, "grpc.health.v1.Health/Check")) == {"status": "SERVING"}
    limits = json.loads(grpcurl(tcp, "spillway.v1.Limits/List"))["limits"]
    assert [(limit["account"], limit["rate"]["text"]) for limit in limits] == [("main", "1000/s")]
    status = json.loads(grpcurl(tcp, "spillway.v1.Status/Get"))
    assert status["loop"]["backend"] == backend and status["serving"] is True
    denied = grpcurl("-d", '{"account":"main","burst":"5"}', tcp, "spillway.v1.Limits/Set", code=1)
    assert "PermissionDenied" in denied
    sidecar.quote()
