"""Several at once, and what a breaker of things would send: versions, kept changes, dry runs, reloads, roles, bytes.

By grpcio against a whole sidecar. Needs SPILLWAY_BIN.
"""
import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import grpc
import pytest

from control_stubs import stubs
from harness import WATCHDOG_S, at_once, until

pb, rpc = stubs("spillway.v1.control")
DOWN = "http://127.0.0.1:1"
ROOT = Path(__file__).resolve().parent.parent.parent


def connect(place):
    return grpc.insecure_channel(f"unix:{place.pub}/control.sock", options=[("grpc.use_local_subchannel_pool", 1)])


def set_limit(channel, **request):
    return rpc.LimitsStub(channel).Set(pb.SetLimitRequest(**{"account": "main", **request}), timeout=WATCHDOG_S)


def get_limit(channel, account="main"):
    return rpc.LimitsStub(channel).Get(pb.GetLimitRequest(account=account), timeout=WATCHDOG_S).limit


def test_no_change_is_lost_between_a_version_read_and_the_version_expected(place):
    """8 clients count a burst up, each from what it read: as many steps as were answered, and no two from one version."""
    place.sidecar(DOWN, account={"limit": {"rate": "1000/s", "burst": 1000}})

    def count_up(_):
        versions = []
        with connect(place) as channel:
            while len(versions) < 25:
                now = get_limit(channel)
                try:
                    reply = set_limit(channel, burst=now.burst + 1, expect_version=now.version)
                except grpc.RpcError as error:
                    assert error.code() == grpc.StatusCode.ABORTED
                    continue
                assert reply.before.version == now.version
                versions.append(reply.limit.version)
        return versions
    versions = [version for one in at_once(8, count_up) for version in one]
    assert len(set(versions)) == len(versions) == 200
    with connect(place) as channel:
        assert get_limit(channel).burst == 1200


def test_what_is_kept_at_once_is_kept_of_all_and_the_last_of_each(place):
    """8 clients keep limits of two accounts; after a SIGKILL and a start each account is as it was last in force."""
    first = place.sidecar(DOWN, config={"accounts": {"second": place.account(DOWN, integrations={"b": "batch"})}})

    def keep(index):
        with connect(place) as channel:
            for i in range(10):
                reply = set_limit(channel, account=("main", "second")[index % 2], persist=True,
                                  rate=pb.Rate(text=f"{1000 + 100 * index + i}/s"))
                assert reply.survives_restart
    at_once(8, keep)
    with connect(place) as channel:
        last = {name: get_limit(channel, name).rate.text for name in ("main", "second")}
        shown = {one.path: one for one in rpc.ConfigurationStub(channel).Show(pb.ShowConfigRequest()).values}
        for name, rate in last.items():
            value = shown[f"accounts.{name}.limit.rate"]
            assert (value.value, value.origin) == (rate, pb.CONFIG_ORIGIN_OVERLAY), "noted in the order written"
    first.kill()
    place.sidecar()
    with connect(place) as channel:
        assert {name: get_limit(channel, name).rate.text for name in last} == last


def test_a_damaged_overlay_is_told_and_nothing_is_kept(place):
    sidecar = place.sidecar(DOWN)
    kept = Path(f"{place.ledger}.overlay.yaml")
    for damage in (b"\x00\xff" * 100, b"accounts: [", b"accounts:\n  main:\n    limit: {rate: 5/s}\n" * 2, b"x" * 70000):
        kept.write_bytes(damage)
        with connect(place) as channel, pytest.raises(grpc.RpcError) as caught:
            set_limit(channel, rate=pb.Rate(text="77/s"), persist=True)
        assert str(kept) in caught.value.details() and "in force until the next start" in caught.value.details()
        assert kept.read_bytes() == damage
        with connect(place) as channel:
            assert get_limit(channel).rate.text == "77/s"
    failures = sidecar.metric("spillway_config_reload_failures_total")
    sidecar.signal(signal.SIGHUP)
    until(lambda: sidecar.metric("spillway_config_reload_failures_total") == failures + 1, "a reload that is refused")
    assert str(kept) in sidecar.log()
    kept.unlink()


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare") or
                    subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0,
                    reason="needs root, and a kernel that lets root have a mount namespace")
def test_a_full_disk_is_told_and_what_was_kept_stays(place):
    disk = place.directory / "disk"
    disk.mkdir()
    place.ledger = disk / "flags.db"
    sidecar = place.sidecar(DOWN, config={"store": {"file": str(place.ledger)}}, launcher=[
        "unshare", "-m", "sh", "-c", f'mount -t tmpfs -o size=8m none "{disk}" && exec "$@"', "sh"])
    inside = Path(f"/proc/{sidecar.pid}/root{disk}")  # its disk is its own
    kept = inside / "flags.db.overlay.yaml"
    with connect(place) as channel:
        set_limit(channel, rate=pb.Rate(text="90/s"), persist=True)
        before = kept.read_bytes()
        with open(inside / "fill", "wb", buffering=0) as fill, pytest.raises(OSError):
            while True:
                fill.write(b"x" * 4096)
        with pytest.raises(grpc.RpcError) as caught:
            set_limit(channel, rate=pb.Rate(text="80/s"), persist=True)
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "No space left" in caught.value.details() and "in force until the next start" in caught.value.details()
        assert get_limit(channel).rate.text == "80/s" and kept.read_bytes() == before
        (inside / "fill").unlink()
        assert set_limit(channel, rate=pb.Rate(text="80/s"), persist=True).survives_restart
        assert kept.read_bytes() != before


@pytest.mark.parametrize("request_", [
    {"rate": pb.Rate(text="50/s")}, {"burst": 7}, {"rate": pb.Rate(text="0/s"), "burst": 0}, {"pods": 3, "burst": 9},
    {"killed": True}, {"observed_only": True}, {"killed": False}, {"limiter": "side", "rate": pb.Rate(text="3/min")},
    {"limiter": "side", "killed": True}, {"rate": pb.Rate(text="9/s"), "observed_only": True},
    # refused: in the same words
    {"burst": 1, "pods": 2}, {"rate": pb.Rate(text="1/d"), "pods": 2}, {"limiter": "none", "burst": 4},
    {"limiter": "side", "pods": 0}, {"rate": pb.Rate(text="5/s"), "expect_version": 999}, {"pods": 100001}])
def test_a_dry_run_says_what_the_real_run_does(place, request_):
    place.sidecar(DOWN, account={"limit": {"rate": "20/s", "burst": 20},
                                 "limiters": [{"name": "side", "rate": "10/s"}]})

    def outcome(channel, **more):
        try:
            reply = set_limit(channel, **{**request_, **more})
        except grpc.RpcError as error:
            return error.code(), error.details(), dict(error.trailing_metadata()).get("spillway-field")
        for limit in (reply.limit, reply.before):
            for moving in ("tokens_milli", "version"):
                limit.ClearField(moving)
        return reply.limit, reply.before
    with connect(place) as channel:
        before = get_limit(channel)
        foreseen = outcome(channel, dry_run=True)
        assert get_limit(channel).version == before.version
        assert outcome(channel) == foreseen


def test_absent_is_not_zero(place):
    place.sidecar(DOWN, account={"limit": {"rate": "20/s", "burst": 20}})
    with connect(place) as channel:
        for request, field in (({"pods": 0}, "pods"), ({"burst": 0}, "burst"), ({"rate": pb.Rate()}, "rate"),
                               ({"rate": pb.Rate(tokens=0)}, "rate"), ({}, "rate"),
                               ({"everywhere": True, "account": "", "killed": True}, "account"),
                               ({"everywhere": True, "killed": True, "expect_version": 3}, "expect_version")):
            with pytest.raises(grpc.RpcError) as caught:
                set_limit(channel, **request)
            assert caught.value.details().startswith(f"{field}: "), (request, caught.value.details())
        assert set_limit(channel, for_ms=0, expect_version=0, rate=pb.Rate(text="21/s")).limit.burst == 20
        assert not get_limit(channel).HasField("expires_in_ms")


def test_empty_requests_are_refused_and_counted_and_the_next_one_is_answered(place):
    """GRP-H2, of this API: nothing named, an empty name, a name and nothing else. Each is an error somebody can see."""
    sidecar = place.sidecar(DOWN)

    def count(result):
        return sidecar.metric("spillway_control_calls_total", result=result)
    with connect(place) as channel:
        before = get_limit(channel)
        for method, request in (("Limits/Set", b""), ("Limits/Set", b"\x0a\x00"), ("Limits/Set", b"\x0a\x04main"),
                                ("Limits/Get", b""), ("Breakers/Set", b"\x0a\x04main"), ("Gates/Set", b"\x0a\x04main")):
            invalid, answered = count("invalid"), count("answered")
            with pytest.raises(grpc.RpcError) as caught:
                channel.unary_unary(f"/spillway.v1.{method}")(request, timeout=WATCHDOG_S)
            assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
            after = get_limit(channel)
            assert after.version == before.version
            assert (count("invalid"), count("answered")) == (invalid + 1, answered + 1), method
    with grpc.insecure_channel(f"127.0.0.1:{place.control_port}") as plain, pytest.raises(grpc.RpcError):
        set_limit(plain, burst=9)
    assert count("denied") == 1 and count("failed") == 0


def test_bytes_that_a_schema_does_not_know(place):
    """Fields of a later schema are passed over; words outside an enumeration and text that is no UTF-8 are refused."""
    sidecar = place.sidecar(DOWN)
    with connect(place) as channel:
        limits = channel.unary_unary("/spillway.v1.Limits/Set", response_deserializer=pb.SetLimitReply.FromString)
        breakers = channel.unary_unary("/spillway.v1.Breakers/Set")
        diff = channel.unary_unary("/spillway.v1.Configuration/Diff")
        known = pb.SetLimitRequest(account="main", burst=7).SerializeToString()
        later = b"\xfa\x3e\x05later" + b"\xf8\x3e\x2a"  # fields 1007 of two wire types
        assert limits(known + later, timeout=WATCHDOG_S).limit.burst == 7
        for message, call, words in (
                (b"\x0a\x04ma\xffn", limits, "account"), (b"\x0a\x04ma\x00n\x18\x07", limits, "account"),
                (b"\x0a\x04main\x18\x63", breakers, "force"), (b"\x0a\x04main\x18" + b"\xff" * 9 + b"\x01", breakers, "force"),
                (b"\x0a\x04main\x12\x02\x38\x09", breakers, "settings.mode"),
                (b"\x0a\x03a: \x12\x06\xff\xfe\n\x1b[x", diff, "1:"), (b"\x0a\xff\xff\xff\xff\x0f", limits, "the request is no"),
                (b"\x0b" * 200, limits, "the request is no"), (b"\x0a\x04main" * 40000, limits, None)):
            with pytest.raises(grpc.RpcError) as caught:
                call(message, timeout=WATCHDOG_S)
            assert caught.value.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND), caught.value
            assert words is None or words in caught.value.details(), caught.value.details()
        assert get_limit(channel).burst == 7
    assert "\x1b" not in sidecar.log()


def test_reloads_while_reloading_end_with_the_last_file(place):
    sidecar = place.sidecar(DOWN, account={"limit": {"rate": "70/s", "burst": 100}})
    with connect(place) as channel:
        for i in range(40):
            place.write_config({"accounts": {"main": {"limit": {"rate": f"{100 + i}/s"}}}})
            sidecar.signal(signal.SIGHUP)
            if i % 4 == 0:
                set_limit(channel, killed=i % 8 == 0)  # meanwhile
        until(lambda: get_limit(channel).rate.text == "139/s", "the last file in force")
        # A swap under the reader's hands: half of a file is refused or read whole, never taken in part.
        good = place.config_path.read_text()
        for i in range(20):
            place.config_path.write_text(good[:len(good) // 2])
            sidecar.signal(signal.SIGHUP)
            place.config_path.write_text(good)
        sidecar.signal(signal.SIGHUP)
        until(lambda: not json.loads(sidecar.ctl("config", "show", "--json").stdout).get("last_error"), "the good file again")
        assert get_limit(channel).rate.text == "139/s"


def test_for_a_time_over_reload_restart_and_a_later_change(place):
    sidecar = place.sidecar(DOWN, account={"limit": {"rate": "70/s", "burst": 100}})
    with connect(place) as channel:
        set_limit(channel, rate=pb.Rate(text="5/s"), for_ms=1500)
        place.write_config({"accounts": {"main": {"deadline": "1s"}}})
        sidecar.signal(signal.SIGHUP)
        sidecar.wait_log("1 changes are in force")
        assert get_limit(channel).rate.text in ("5/s", "70/s"), "a reload is no reason to go back"
        until(lambda: get_limit(channel).rate.text == "70/s", "its end")
        gone = [c for c in rpc.AuditStub(channel).List(pb.ListAuditRequest()).changes if c.cause == "expiry"]
        assert [c.after.split()[0] for c in gone] == ["70/s"]
        # What a reload changed meanwhile stays.
        set_limit(channel, rate=pb.Rate(text="5/s"), for_ms=5000)
        place.write_config({"accounts": {"main": {"limit": {"rate": "60/s"}}}})
        sidecar.signal(signal.SIGHUP)
        until(lambda: get_limit(channel).rate.text == "60/s", "the reload")
        sidecar.wait_log("has been changed since: it stays")
        assert get_limit(channel).rate.text == "60/s"
        # A start ends it.
        set_limit(channel, rate=pb.Rate(text="5/s"), for_ms=604800000)
    sidecar.kill()
    place.sidecar()
    with connect(place) as channel:
        limit = get_limit(channel)
        assert limit.rate.text == "60/s" and not limit.HasField("expires_in_ms")


def test_a_call_whose_time_is_over_changes_nothing(place):
    """Deadlines so short that some pass on the way, and some that pass while the sidecar stands still: whoever was told of
    an end in time finds it in the journal, and the journal has nothing that nobody asked for."""
    sidecar = place.sidecar(DOWN, account={"limit": {"rate": "1000/s", "burst": 1000}})
    answered, refused = [], []
    with connect(place) as channel:
        for i in range(300):
            stands_still = i % 50 == 49
            if stands_still:
                sidecar.signal(signal.SIGSTOP)
                until(lambda: all(task.read_text().rsplit(")", 1)[1].split()[0] == "T"
                                  for task in Path(f"/proc/{sidecar.pid}/task").glob("*/stat")), "a stopped sidecar")
            try:
                set_limit_in(channel, f"{2000 + i}/s", 0.00002 * (i % 40))
                answered.append(f"{2000 + i}/s")
            except grpc.RpcError as error:
                assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED
                refused.append(f"{2000 + i}/s")
            if stands_still:
                sidecar.signal(signal.SIGCONT)
        told = [c.after.split()[0] for c in rpc.AuditStub(channel).List(pb.ListAuditRequest(limit=1000)).changes]
    assert answered and len(refused) >= 6
    assert set(answered) <= set(told) <= set(answered) | set(refused) and len(set(told)) == len(told)


def set_limit_in(channel, rate, seconds):
    return rpc.LimitsStub(channel).Set(pb.SetLimitRequest(account="main", rate=pb.Rate(text=rate)), timeout=seconds)


# ---- every method and every role ----

RANK = ("nothing", "read", "records", "operate", "admin")


def methods():
    """(path, least role) of each method, as control.proto says it in the first word above it."""
    service, word, found = None, None, []
    for line in (ROOT / "proto" / "spillway" / "v1" / "control.proto").read_text().splitlines():
        if match := re.match(r"service (\w+)", line):
            service = match[1]
        elif match := re.match(r"  // (read|records|operate|admin)\.( |$)", line):
            word = match[1]
        elif match := re.match(r"  rpc (\w+)", line):
            assert word, f"{service}.{match[1]} does not say who may call it"
            found.append((f"/spillway.v1.{service}/{match[1]}", word))
            word = None
    return found


def code_of_empty(channel, path):
    call = channel.stream_stream(path)(iter([b""]), timeout=WATCHDOG_S)
    try:
        next(call, None)
        call.cancel()
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def test_every_method_is_refused_to_lesser_roles_and_to_no_greater_one(tls):
    known = methods()
    assert len(known) > 30 and {role for _, role in known} == set(RANK[1:])
    for name, san, role in (("somebody", None, "nothing"), ("viewer", None, "records"),
                            ("x", "DNS:on-call.example", "operate"), ("y", "URI:spiffe://shop/admin", "admin")):
        with tls.channel(tls.clients.sign(name, san)) as channel:
            for path, least in known:
                code = code_of_empty(channel, path)
                refused = code == grpc.StatusCode.PERMISSION_DENIED
                assert refused == (RANK.index(role) < RANK.index(least)), (path, role, code)
                assert code not in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.UNAVAILABLE), (path, role, code)
    with grpc.insecure_channel(f"127.0.0.1:{tls.sidecar.place.control_port}") as plain:
        for path, least in known:
            assert (code_of_empty(plain, path) == grpc.StatusCode.PERMISSION_DENIED) == (least != "read"), path
