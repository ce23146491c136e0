"""The watch of every change, and the audit: versions in order, none lost, who did it; a watcher that falls behind.

By grpcio against a whole sidecar; in one part against control_server. Needs SPILLWAY_BIN.
"""
import os
import threading
import time

import grpc
import pytest

from control_stubs import stubs
from harness import WATCHDOG_S, until

pb, rpc = stubs("spillway.v1.control")


@pytest.fixture
def sidecar(place):
    return place.sidecar("http://127.0.0.1:1", account={"limit": {"rate": "1000/s", "burst": 1000}})


@pytest.fixture
def channel(sidecar):
    with grpc.insecure_channel(f"unix:{sidecar.place.pub}/control.sock") as one:
        yield one


def set_rate(channel, rate, **more):
    return rpc.LimitsStub(channel).Set(pb.SetLimitRequest(account="main", rate=pb.Rate(text=rate), **more),
                                       timeout=WATCHDOG_S)


class Watcher:
    """Takes what comes until it is ended."""

    def __init__(self, channel, **request):
        self.call = rpc.ChangesStub(channel).Watch(pb.WatchChangesRequest(**request), timeout=WATCHDOG_S)
        self.snapshots, self.changes, self.error = [], [], None
        self.thread = threading.Thread(target=self._take)
        self.thread.start()

    def _take(self):
        try:
            for reply in self.call:
                if reply.HasField("snapshot"):
                    self.snapshots.append(reply.snapshot)
                self.changes += reply.changes
        except grpc.RpcError as error:
            self.error = error

    def end(self):
        self.call.cancel()
        self.thread.join(WATCHDOG_S)
        assert not self.thread.is_alive()


def test_a_watch_begins_with_a_snapshot_and_tells_what_follows(channel):
    watcher = Watcher(channel)
    until(lambda: watcher.snapshots, "the snapshot")
    first = watcher.snapshots[0]
    assert [limit.account for limit in first.limits] == ["main"] and first.limits[0].rate.text == "1000/s"
    assert first.breakers[0].state == "closed" and len(first.journal) == 16
    reply = set_rate(channel, "2000/s")
    rpc.BreakersStub(channel).Set(pb.SetBreakerRequest(account="main", force=pb.BREAKER_FORCE_OPEN))
    rpc.LimitsStub(channel).Set(pb.SetLimitRequest(account="main", killed=True))
    until(lambda: len(watcher.changes) >= 3, "three changes")
    watcher.end()
    limit, breaker, switches = watcher.changes[:3]
    assert [c.version for c in watcher.changes] == [first.version + 1 + i for i in range(len(watcher.changes))]
    assert (limit.kind, limit.account, limit.limiter) == ("limit", "main", "account")
    assert limit.before.startswith("1000/s ") and limit.after.startswith("2000/s ")
    assert limit.account_version == reply.limit.version and limit.cause == "Limits.Set"
    assert breaker.kind == "breaker" and "by hand open" in breaker.after and "by hand" not in breaker.before
    assert (switches.kind, switches.before, switches.after) == ("switches", "enforce", "off")
    assert {c.who for c in watcher.changes} == {f"uid {os.getuid()}"}


def test_a_watch_goes_on_where_it_was(channel):
    for i in range(200):
        set_rate(channel, f"{1001 + i}/s")
    watcher = Watcher(channel, after_version=150)
    until(lambda: len(watcher.changes) == 50, "fifty changes")
    assert [c.version for c in watcher.changes] == list(range(151, 201)) and not watcher.snapshots
    set_rate(channel, "5/s")
    until(lambda: len(watcher.changes) == 51, "one more")
    watcher.end()


@pytest.mark.parametrize("request_", [{"after_version": 99}, {"after_version": 0, "journal": "0" * 16}])
def test_another_journal_ends_in_a_snapshot_and_out_of_range(channel, request_):
    watcher = Watcher(channel, **request_)
    watcher.thread.join(WATCHDOG_S)
    assert watcher.error.code() == grpc.StatusCode.OUT_OF_RANGE and "snapshot" in watcher.error.details()
    assert len(watcher.snapshots) == 1 and not watcher.changes


def test_only_one_account_is_told(channel):
    watcher = Watcher(channel, account="nobody")
    until(lambda: watcher.snapshots, "the snapshot")
    set_rate(channel, "7/s")
    other = Watcher(channel, after_version=0, account="main")
    until(lambda: other.changes, "the change")
    assert not watcher.changes
    watcher.end()
    other.end()


def test_the_audit_tells_who_did_what_newest_first(sidecar, channel):
    begun_ms = int(time.time() * 1000)
    for rate in ("5/s", "6/s", "7/s"):
        set_rate(channel, rate)
    changes = rpc.AuditStub(channel).List(pb.ListAuditRequest(account="main")).changes
    assert [c.after.split()[0] for c in changes] == ["7/s", "6/s", "5/s"]
    assert all(begun_ms <= c.unix_ms <= time.time() * 1000 + 1 for c in changes)
    page = rpc.AuditStub(channel).List(pb.ListAuditRequest(limit=1, before_version=changes[0].version)).changes
    assert [c.version for c in page] == [changes[1].version]
    with pytest.raises(grpc.RpcError) as caught:
        rpc.AuditStub(channel).List(pb.ListAuditRequest(limit=1001))
    assert caught.value.details().startswith("limit: ")
    assert "audit.change" in sidecar.log() and "6/s" in sidecar.log()
    table = sidecar.ctl("audit", "--by-hand").stdout
    assert "Limits.Set" in table and table.splitlines()[0].split()[0] == "VERSION"


def test_a_dry_run_and_a_refusal_are_no_change(channel):
    set_rate(channel, "9/s", dry_run=True)
    with pytest.raises(grpc.RpcError):
        set_rate(channel, "no rate")
    with pytest.raises(grpc.RpcError):
        set_rate(channel, "9/s", expect_version=12345)
    assert not rpc.AuditStub(channel).List(pb.ListAuditRequest(by_hand=True)).changes


def test_spillwayctl_watches(sidecar, channel):
    set_rate(channel, "9/s")
    set_rate(channel, "10/s")
    lines = sidecar.ctl("watch", "--after", "0", "--limit", "2").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["1", "2"] and "9/s burst" in lines[0]


def test_a_watcher_behind_65536_changes_is_told_so_and_goes_on_from_a_snapshot(place):
    """A switch of everything is 128 changes here. What it did get is in order and without a gap."""
    limiters = [{"name": f"l{i}", "rate": "1000/s"} for i in range(7)]
    accounts = {f"a{i}": place.account("http://127.0.0.1:1", limiters=limiters, integrations={f"i{i}": "checkout"})
                for i in range(16)}
    place.sidecar(config={"accounts": accounts, "log": {"level": "error"}})
    path = f"unix:{place.pub}/control.sock"
    # Without a probe of the way's capacity the window stays at its 64 KiB, and the sidecar has to wait for the reader.
    small = [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 65536), ("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(path) as channel, grpc.insecure_channel(path, options=small) as slow:
        frozen = rpc.ChangesStub(slow).Watch(pb.WatchChangesRequest(after_version=0), timeout=WATCHDOG_S)
        for i in range(3 * 65536 // 128 // 2):  # half of it beyond what is kept
            rpc.LimitsStub(channel).Set(pb.SetLimitRequest(everywhere=True, killed=i % 2 == 0), timeout=WATCHDOG_S)
        changes, snapshots = [], []
        with pytest.raises(grpc.RpcError) as caught:
            for reply in frozen:
                assert not snapshots, "the snapshot is the last"
                snapshots += [reply.snapshot] if reply.HasField("snapshot") else []
                changes += [change.version for change in reply.changes]
        assert caught.value.code() == grpc.StatusCode.OUT_OF_RANGE and "no longer kept" in caught.value.details()
        assert changes and changes == list(range(1, len(changes) + 1))
        snapshot, = snapshots
        newest = rpc.AuditStub(channel).List(pb.ListAuditRequest(limit=1)).changes[0].version
        assert snapshot.version == newest >= 3 * 65536 // 2 and len(snapshot.limits) == 128
        late = Watcher(channel, after_version=1)
        late.thread.join(WATCHDOG_S)
        assert late.error.code() == grpc.StatusCode.OUT_OF_RANGE and not late.changes
        with pytest.raises(grpc.RpcError):
            set_rate(channel, "5/s")  # no account main: nothing is told
        after = Watcher(channel, after_version=snapshot.version, journal=snapshot.journal)
        rpc.LimitsStub(channel).Set(pb.SetLimitRequest(account="a3", rate=pb.Rate(text="5/s")), timeout=WATCHDOG_S)
        until(lambda: after.changes, "the next change")
        assert [(c.version, c.account) for c in after.changes] == [(newest + 1, "a3")] and not after.snapshots
        after.end()
