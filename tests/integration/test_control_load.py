"""The control API under load and abuse: a storm of changes, requests made wrong on purpose, SIGTERM in the middle.

SPW_CONTROL_CHANGES (default 1,200) changes from 8 clients; SPW_CONTROL_STOPS (default 6) starts that are stopped under load;
SPW_CONTROL_MALFORMED (default 200) requests. Needs SPILLWAY_BIN.
"""
import os
import random
import threading
import time

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor

from control_stubs import stubs
from harness import WATCHDOG_S, finish, read_lines, until

pb, rpc = stubs("spillway.v1.control")
CHANGES = int(os.environ.get("SPW_CONTROL_CHANGES", "1200"))
STOPS = int(os.environ.get("SPW_CONTROL_STOPS", "6"))
MALFORMED = int(os.environ.get("SPW_CONTROL_MALFORMED", "200"))
SEED = int(os.environ.get("SPW_TEST_SEED", "11"))


def boot_ns():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def connect(place):
    # A connection of its own: grpcio would share one among equal channels.
    return grpc.insecure_channel(f"unix:{place.pub}/control.sock", options=[("grpc.use_local_subchannel_pool", 1)])


def test_a_storm_of_changes_is_obeyed_and_told_in_order(place):
    """8 clients change the limit, 4 processes decide, 3 watch: what is decided is decided under the version then."""
    place.sidecar("http://127.0.0.1:1", account={"limit": {"rate": "1000000/s", "burst": 1000000}})
    load = [place.load("acquire", f"p{i}", "--pause-us", "300") for i in range(4)]
    until(lambda: all(len(read_lines(one)) > 10 for one in load), "decisions before the first change")
    told, ended = [[] for _ in range(3)], []
    watching = [connect(place) for _ in told]
    calls = [rpc.ChangesStub(channel).Watch(pb.WatchChangesRequest(after_version=0), timeout=10 * WATCHDOG_S)
             for channel in watching]

    def watch(index):
        try:
            for reply in calls[index]:
                told[index] += reply.changes
                if index == 2 and len(told[index]) < 1000:
                    time.sleep(0.002)  # a slow one, for a while: what it takes alone lies in its own buffers
        except grpc.RpcError as error:
            ended.append(error.code())
    threads = [threading.Thread(target=watch, args=(i,)) for i in range(3)]
    done = [[] for _ in range(8)]  # (asked_ns, replied_ns, version)

    def change(index):
        with connect(place) as channel:
            limits = rpc.LimitsStub(channel)
            for i in range(CHANGES // 8):
                asked = boot_ns()
                reply = limits.Set(pb.SetLimitRequest(account="main", rate=pb.Rate(
                    text=f"{900000 + index * 10000 + i}/s")), timeout=WATCHDOG_S)
                done[index].append((asked, boot_ns(), reply.limit.version))
    changers = [threading.Thread(target=change, args=(i,)) for i in range(8)]
    begun = time.monotonic()
    for thread in threads + changers:
        thread.start()
    for thread in changers:
        thread.join(10 * WATCHDOG_S)
        assert not thread.is_alive()
    took_s = time.monotonic() - begun
    lines = [line for one in load for line in finish(one)]
    changes = sorted((version, asked, replied) for one in done for asked, replied, version in one)
    assert len(changes) == CHANGES // 8 * 8 and len({version for version, _, _ in changes}) == len(changes)
    until(lambda: all(len(one) >= len(changes) for one in told), "every change told")
    for call in calls:
        call.cancel()
    for thread in threads:
        thread.join(WATCHDOG_S)
    for channel in watching:
        channel.close()
    for one in told:
        assert [c.version for c in one] == list(range(1, len(one) + 1)), "in order, none lost"
        assert [c.account_version for c in one if c.kind == "limit"] == [version for version, _, _ in changes]
    # A decision obeys a version that was in force between its beginning and its end: no older than the newest that was
    # answered before it began, no newer than one asked for before it ended.
    floor = sorted((replied, version) for version, _, replied in changes)
    asked_of = {version: asked for version, asked, _ in changes}
    lines.sort(key=lambda line: line["begun_ns"])
    newest, at = 0, 0
    for line in lines:
        while at < len(floor) and floor[at][0] <= line["begun_ns"]:
            newest = max(newest, floor[at][1])
            at += 1
        assert line["version"] >= newest, (line, newest)
        assert asked_of.get(line["version"], 0) <= line["told_ns"], line
    assert any(line["version"] in asked_of for line in lines)
    print(f"{len(changes) / took_s:.0f} changes a second, {len(lines)} decisions")


def test_a_watcher_that_stands_still_costs_the_others_nothing(place):
    """It takes nothing for a while; the others are told at once, and then it is told all of it, from where it was."""
    place.sidecar("http://127.0.0.1:1", account={"limit": {"rate": "1000000/s", "burst": 1000000}})
    with connect(place) as still, connect(place) as other:
        frozen = rpc.ChangesStub(still).Watch(pb.WatchChangesRequest(after_version=0), timeout=10 * WATCHDOG_S)
        for i in range(300):
            rpc.LimitsStub(other).Set(pb.SetLimitRequest(account="main", rate=pb.Rate(text=f"{i + 1}/s")))
        versions = []
        for reply in frozen:
            versions += [c.version for c in reply.changes]
            if len(versions) >= 300:
                break
        assert versions == list(range(1, 301))
        frozen.cancel()


# ---- wrong on purpose ----

GOOD = [
    ("Limits", "Set", pb.SetLimitRequest(account="main", rate=pb.Rate(text="100/s"), burst=100, pods=1)),
    ("Limits", "Set", pb.SetLimitRequest(account="main", killed=True, for_ms=60000)),
    ("Breakers", "Set", pb.SetBreakerRequest(account="main", settings=pb.BreakerSettings(
        consecutive_429=5, ratio_429_ppm=200000, minimum=20, window_ms=10000, cooldown_min_ms=30000,
        cooldown_max_ms=60000, mode=pb.BREAKER_MODE_ENFORCE))),
    ("Breakers", "Set", pb.SetBreakerRequest(account="main", force=pb.BREAKER_FORCE_OPEN)),
    ("Gates", "Set", pb.SetGateRequest(account="main", shut_for_ms=1000)),
]
# A value that each of these fields refuses, whatever stands in the others.
WRONG = {
    "account": ["", "no such", "nobody", "x" * 64, "\x01", "../main", "main\n"],
    "text": ["", "100", "/s", "-1/s", "1e3/s", "100/fortnight", "100//s", "\u0663/s", "9" * 30 + "/s", " 1/s "],
    "pods": [0], "for_ms": [1, 999, 604800001, 2**64 - 1], "expect_version": [2**63, 2**64 - 1],
    "consecutive_429": [0, 256, 2**32 - 1], "ratio_429_ppm": [0, 1000001, 2**32 - 1],
    "minimum": [0, 1000001], "window_ms": [0, 999, 160001, 2**32 - 1], "cooldown_min_ms": [0, 99, 3600001],
    "cooldown_max_ms": [0, 1, 3600001, 2**32 - 1], "shut_for_ms": [86400001, 2**64 - 1],
}
PATH_OF = {"text": ("rate.text", "rate"), **{name: (f"settings.{name}",) for name in (
    "consecutive_429", "ratio_429_ppm", "minimum", "window_ms", "cooldown_min_ms", "cooldown_max_ms")}}


def spoil(chance):
    """A good request with one field made wrong: (service, method, request, paths that may be blamed)."""
    service, method, good = chance.choice(GOOD)
    request = type(good)()
    request.CopyFrom(good)
    places = []

    def walk(message):
        for field in message.DESCRIPTOR.fields:
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                if message.HasField(field.name):
                    walk(getattr(message, field.name))
            elif field.name in WRONG:
                places.append((message, field.name))
    walk(request)
    message, name = chance.choice(places)
    setattr(message, name, chance.choice(WRONG[name]))
    paths = PATH_OF.get(name, (name,))
    if name.startswith("cooldown"):
        paths = ("settings.cooldown_min_ms", "settings.cooldown_max_ms", "settings.cooldown")
    return service, method, request, paths


def test_malformed_requests_are_told_precisely_and_change_nothing(place):
    place.sidecar("http://127.0.0.1:1")
    chance = random.Random(SEED)
    with connect(place) as channel:
        def everything():
            limit = rpc.LimitsStub(channel).Get(pb.GetLimitRequest(account="main")).limit
            limit.ClearField("tokens_milli")
            return limit, rpc.BreakersStub(channel).Get(pb.GetBreakerRequest(account="main")).breaker
        before = everything()
        for i in range(MALFORMED):
            service, method, request, paths = spoil(chance)
            with pytest.raises(grpc.RpcError) as caught:
                getattr(getattr(rpc, f"{service}Stub")(channel), method)(request, timeout=WATCHDOG_S)
            error = caught.value
            assert error.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND,
                                    grpc.StatusCode.ABORTED), (i, request, error.details())
            field = dict(error.trailing_metadata()).get("spillway-field", "")
            assert any(field == path or field.startswith(path) for path in paths), (i, request, error.details())
            assert error.details().startswith(f"{field}: ") and len(error.details()) > len(field) + 10
        assert everything() == before
        assert not rpc.AuditStub(channel).List(pb.ListAuditRequest()).changes


def test_bytes_that_are_no_message_change_nothing(place):
    sidecar = place.sidecar("http://127.0.0.1:1")
    chance = random.Random(SEED)
    with connect(place) as channel:
        before = rpc.LimitsStub(channel).Get(pb.GetLimitRequest(account="main")).limit
        for _ in range(MALFORMED):
            service, method, good = chance.choice(GOOD)
            request = type(good)()
            request.CopyFrom(good)
            request.dry_run = True  # bytes may happen to be a good request
            data = bytearray(request.SerializeToString())
            for _ in range(chance.randint(1, 4)):
                data[chance.randrange(len(data) - 2)] = chance.randrange(256)
            call = channel.unary_unary(f"/spillway.v1.{service}/{method}")
            try:
                call(bytes(data), timeout=WATCHDOG_S)
            except grpc.RpcError as error:
                assert error.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND,
                                        grpc.StatusCode.ABORTED), (bytes(data), error.details())
        after = rpc.LimitsStub(channel).Get(pb.GetLimitRequest(account="main")).limit
        assert after.version >= before.version and sidecar.process.poll() is None


# ---- stopped in the middle ----

def test_sigterm_under_load_is_a_clean_end(place):
    """Whoever asks is answered or told UNAVAILABLE; the exit code is 0 (what close() of the place looks at)."""
    chance = random.Random(SEED)
    for _ in range(STOPS):
        sidecar = place.sidecar("http://127.0.0.1:1")
        codes, stop = [], threading.Event()

        def ask(index):
            with connect(place) as channel:
                watch = rpc.ChangesStub(channel).Watch(pb.WatchChangesRequest(), timeout=WATCHDOG_S)
                while not stop.is_set():
                    try:
                        rpc.LimitsStub(channel).Set(pb.SetLimitRequest(account="main", burst=1000 + index),
                                                    timeout=WATCHDOG_S)
                    except grpc.RpcError as error:
                        codes.append(error.code())
                        break
                watch.cancel()
        threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        time.sleep(chance.uniform(0.02, 0.3))  # the moment is chance
        sidecar.process.terminate()
        assert sidecar.wait_exit() == 0, sidecar.log()[-2000:]
        stop.set()
        for thread in threads:
            thread.join(WATCHDOG_S)
            assert not thread.is_alive()
        assert set(codes) <= {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}, codes
