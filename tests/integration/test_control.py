"""The control API on the wire: every method, streams, errors, roles, cancel, deadlines, health, reflection, stop.

Runs control_server (the real server over a state and a ledger made for the purpose) and Debian's grpcio, an
implementation of gRPC's wire that shares only the core with ours. Needs SPILLWAY_BIN; a part needs root.
"""
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import grpc
import pytest

from control_stubs import stubs

BIN = Path(os.environ.get("SPILLWAY_BIN", "")) / "control_server"
WATCHDOG_S = 60  # ends a hang; nothing is measured by it
pb, rpc = stubs("spillway.v1.control")
health_pb, health_rpc = stubs("grpc.health.v1.health")


class Server:
    def __init__(self, directory, *options, tcp=True):
        self.path = Path(directory) / "control.sock"
        command = [BIN, "--unix", self.path, *(("--tcp", "127.0.0.1:0") if tcp else ()), *options]
        self.log = open(Path(directory) / "log", "w+")
        self.process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, stderr=self.log,
                                        text=True)
        first = self.process.stdout.readline().split()
        if first[:1] != ["ready"]:
            raise AssertionError(f"it did not start: {self.text()}")
        self.port = int(first[1])

    def text(self):
        self.log.flush()
        return Path(self.log.name).read_text()

    def unix(self):
        return grpc.insecure_channel(f"unix:{self.path}")

    def tcp(self):
        return grpc.insecure_channel(f"127.0.0.1:{self.port}")

    def stop(self):
        """SIGTERM, then the exit code: a sanitizer's finding is not 0."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(WATCHDOG_S)
        finally:
            self.process.kill()
            self.process.stdout.close()
            self.log.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    one = Server(tmp_path_factory.mktemp("control"))
    yield one
    text = one.text()
    assert one.stop() == 0, text


@pytest.fixture
def own(tmp_path):
    """make(*options) -> a Server of the test's own; all must end with 0."""
    made = []

    def make(*options, **more):
        made.append(Server(tmp_path, *options, **more))
        return made[-1]
    yield make
    for one in made:
        text = one.text()
        assert one.stop() == 0, text


@pytest.fixture
def channel(server):
    with server.unix() as one:
        yield one


def refused(call, code, *words):
    """The call fails with this code and a text that holds these words; gives the error."""
    with pytest.raises(grpc.RpcError) as caught:
        call()
    error = caught.value
    assert error.code() == code, error.details()
    for word in words:
        assert word in error.details()
    return error


def trailer(error, key):
    return dict(error.trailing_metadata()).get(key)


# ---- limits ----

def test_limits_are_listed_without_the_removed_one(channel):
    limits = rpc.LimitsStub(channel).List(pb.ListLimitsRequest()).limits
    assert [one.account for one in limits] == ["main", "stuck"]
    assert limits[0].rate.period_ns == 1_000_000_000 and limits[0].rate.text
    assert limits[0].provider_limit == 100 and not limits[0].HasField("provider_remaining")


def test_a_limit_is_changed_field_by_field(channel):
    limits = rpc.LimitsStub(channel)
    before = limits.Get(pb.GetLimitRequest(account="main")).limit
    reply = limits.Set(pb.SetLimitRequest(account="main", rate=pb.Rate(text="300/min"),
                                          expect_version=before.version))
    assert reply.before == before
    assert (reply.limit.rate.tokens, reply.limit.rate.period_ns) == (300, 60_000_000_000)
    assert reply.limit.burst == before.burst and reply.limit.pods == before.pods
    assert reply.limit.version == before.version + 1
    assert (reply.reach, reply.HasField("survives_restart"), reply.survives_restart) == ("this pod", True, False)
    assert limits.Get(pb.GetLimitRequest(account="main")).limit == reply.limit
    limits.Set(pb.SetLimitRequest(account="main", rate=pb.Rate(tokens=7, period_ns=10**9), burst=9, pods=3))
    after = limits.Get(pb.GetLimitRequest(account="main")).limit
    assert (after.rate.tokens, after.burst, after.pods, after.pod_burst) == (7, 9, 3, 3)


def test_a_dry_run_changes_nothing(channel):
    limits = rpc.LimitsStub(channel)
    before = limits.Get(pb.GetLimitRequest(account="main")).limit
    reply = limits.Set(pb.SetLimitRequest(account="main", burst=4000, dry_run=True))
    assert reply.dry_run and reply.limit.burst == 4000
    assert limits.Get(pb.GetLimitRequest(account="main")).limit == before


def test_an_old_version_is_refused(channel):
    error = refused(lambda: rpc.LimitsStub(channel).Set(
        pb.SetLimitRequest(account="main", burst=500, expect_version=999)), grpc.StatusCode.ABORTED, "read")
    assert trailer(error, "spillway-status") == "CONFLICT"
    assert trailer(error, "spillway-field") == "expect_version"


@pytest.mark.parametrize("request_, field", [
    (pb.SetLimitRequest(burst=1), "account"),
    (pb.SetLimitRequest(account="a b", burst=1), "account"),
    (pb.SetLimitRequest(account="x" * 64, burst=1), "account"),
    (pb.SetLimitRequest(account="main"), "rate"),
    (pb.SetLimitRequest(account="main", rate=pb.Rate()), "rate"),
    (pb.SetLimitRequest(account="main", rate=pb.Rate(text="fast")), "rate.text"),
    (pb.SetLimitRequest(account="main", rate=pb.Rate(tokens=5)), "rate"),
    (pb.SetLimitRequest(account="main", rate=pb.Rate(text="5/s", tokens=6, period_ns=10**9)), "rate"),
    (pb.SetLimitRequest(account="main", rate=pb.Rate(tokens=5, period_ns=0)), "rate"),
    (pb.SetLimitRequest(account="main", rate=pb.Rate(tokens=2**64 - 1, period_ns=1)), "rate"),
    (pb.SetLimitRequest(account="main", burst=2**63), "burst"),
    (pb.SetLimitRequest(account="main", pods=0), "pods"),
])
def test_a_bad_limit_is_named_by_its_field(channel, request_, field):
    before = rpc.LimitsStub(channel).Get(pb.GetLimitRequest(account="main")).limit
    error = refused(lambda: rpc.LimitsStub(channel).Set(request_), grpc.StatusCode.INVALID_ARGUMENT, f"{field}: ")
    assert trailer(error, "spillway-field") == field
    assert rpc.LimitsStub(channel).Get(pb.GetLimitRequest(account="main")).limit == before


def test_an_unknown_account_is_not_found(channel):
    for call in (lambda: rpc.LimitsStub(channel).Get(pb.GetLimitRequest(account="none")),
                 lambda: rpc.LimitsStub(channel).Set(pb.SetLimitRequest(account="none", burst=3)),
                 lambda: rpc.BreakersStub(channel).Get(pb.GetBreakerRequest(account="none")),
                 lambda: rpc.BreakersStub(channel).Set(pb.SetBreakerRequest(account="none", reset=True))):
        refused(call, grpc.StatusCode.NOT_FOUND, "none")


# ---- breakers ----

def test_a_breaker_is_held_and_let_go(channel):
    breakers = rpc.BreakersStub(channel)
    for force in (pb.BREAKER_FORCE_OPEN, pb.BREAKER_FORCE_CLOSED, pb.BREAKER_FORCE_DISABLED, pb.BREAKER_FORCE_OBSERVE,
                  pb.BREAKER_FORCE_AUTO):
        reply = breakers.Set(pb.SetBreakerRequest(account="main", force=force))
        assert reply.breaker.force == force
        assert breakers.Get(pb.GetBreakerRequest(account="main")).breaker == reply.breaker
    assert reply.before.force == pb.BREAKER_FORCE_OBSERVE and reply.reach == "this pod"


def test_breaker_settings_are_changed_field_by_field(channel):
    breakers = rpc.BreakersStub(channel)
    before = breakers.Get(pb.GetBreakerRequest(account="main")).breaker.settings
    settings = pb.BreakerSettings(consecutive_429=9, mode=pb.BREAKER_MODE_OBSERVE)
    after = breakers.Set(pb.SetBreakerRequest(account="main", settings=settings)).breaker.settings
    assert (after.consecutive_429, after.mode) == (9, pb.BREAKER_MODE_OBSERVE)
    assert (after.window_ms, after.cooldown_max_ms) == (before.window_ms, before.cooldown_max_ms)
    breakers.Set(pb.SetBreakerRequest(account="main", settings=before))


@pytest.mark.parametrize("request_, field", [
    (pb.SetBreakerRequest(account="main"), "settings"),
    (pb.SetBreakerRequest(account="main", settings=pb.BreakerSettings(consecutive_429=0)),
     "settings.consecutive_429"),
    (pb.SetBreakerRequest(account="main", settings=pb.BreakerSettings(window_ms=5)), "settings.window_ms"),
    (pb.SetBreakerRequest(account="main", settings=pb.BreakerSettings(cooldown_min_ms=70000)), "settings.cooldown_min_ms"),
    (pb.SetBreakerRequest(account="main", settings=pb.BreakerSettings(mode=pb.BREAKER_MODE_UNSPECIFIED)),
     "settings.mode"),
])
def test_a_bad_breaker_is_named_by_its_field(channel, request_, field):
    error = refused(lambda: rpc.BreakersStub(channel).Set(request_), grpc.StatusCode.INVALID_ARGUMENT)
    assert trailer(error, "spillway-field") == field


# ---- rates ----

def row(zip5=98110, **more):
    fields = {"state": "WA", "state_ppb": 65_000_000, "city_ppb": 27_000_000, "combined_ppb": 92_000_000}
    fields.update(more)
    return pb.RateRow(zip5=zip5, **fields)


def header(source="vendor-2025-11", as_of="2025-11-01", **more):
    return pb.ReplaceRatesRequest(header=pb.RatesHeader(source=source, as_of=as_of, **more))


def rows(*list_):
    return pb.ReplaceRatesRequest(rows=pb.RateRows(rows=list_))


def end(count):
    return pb.ReplaceRatesRequest(end=pb.RatesEnd(rows=count))


def replace(channel, *parts, **more):
    return rpc.RatesStub(channel).Replace(iter(parts), timeout=WATCHDOG_S, **more)


def test_a_table_is_replaced_in_whole_and_looked_up(channel):
    before = rpc.RatesStub(channel).Describe(pb.DescribeRatesRequest()).table
    reply = replace(channel, header(sha256=b"\xab" * 32), rows(*(row(z) for z in range(98001, 99001))),
                    rows(*(row(z) for z in range(99001, 99501))), header("patch", "2025-11-15"),
                    rows(row(98110, combined_ppb=100_000_000, region="Bainbridge Island")), end(1501))
    assert reply.rows == 1501 and reply.table.version == before.version + 1
    assert [(s.name, s.as_of, s.rows) for s in reply.table.sources] == [
        ("vendor-2025-11", "2025-11-01", 1500), ("patch", "2025-11-15", 1)]
    assert reply.table.sources[0].sha256 == "ab" * 32 and not reply.table.sources[1].HasField("sha256")
    found = rpc.RatesStub(channel).Lookup(pb.LookupRateRequest(zip="98110-1234"))
    assert (found.match, found.zip5, found.rates.combined.text) == ("zip5", "98110", "0.1")
    assert found.rates.combined.ppb == 100_000_000 and found.rates.age_days == 27
    nothing = rpc.RatesStub(channel).Lookup(pb.LookupRateRequest(zip="00501"))
    assert nothing.match == "none" and not nothing.HasField("rates")


def test_a_dry_run_replaces_nothing(channel):
    before = rpc.RatesStub(channel).Describe(pb.DescribeRatesRequest()).table
    reply = replace(channel, header(dry_run=True), rows(row()), end(1))
    assert reply.dry_run and reply.rows == 1
    assert rpc.RatesStub(channel).Describe(pb.DescribeRatesRequest()).table == before


@pytest.mark.parametrize("parts, field", [
    ((rows(row()), end(1)), "rows"),
    ((end(0),), "header"),
    ((header(), end(0)), "rows"),
    ((header(), rows(row()), end(2)), "end.rows"),
    ((header(), rows(row()), pb.ReplaceRatesRequest(end=pb.RatesEnd())), "end.rows"),
    ((header(), rows(row())), "end"),
    ((), "end"),
    ((pb.ReplaceRatesRequest(),), "part"),
    ((header(source="a/b"), rows(row()), end(1)), "header.source"),
    ((header(as_of="November"), rows(row()), end(1)), "header.as_of"),
    ((header(as_of="2025-02-30"), rows(row()), end(1)), "header.as_of"),
    ((pb.ReplaceRatesRequest(header=pb.RatesHeader(source="a")), rows(row()), end(1)), "header.as_of"),
    ((header(sha256=b"short"), rows(row()), end(1)), "header.sha256"),
    ((header(), rows(row()), header(dry_run=True), rows(row()), end(2)), "header"),
    (tuple(header() for _ in range(17)), "header"),
    ((header(), rows(row(), row(500)), end(2)), "rows[1].zip5"),
    ((header(), rows(row(), row()), rows(row(99951)), end(3)), "rows[2].zip5"),
    ((header(), rows(row(state="wa")), end(1)), "rows[0].state"),
    ((header(), rows(row(country="USA")), end(1)), "rows[0].country"),
    ((header(), rows(row(combined_ppb=1_000_000_001)), end(1)), "rows[0].combined_ppb"),
    ((header(), rows(row(state_ppb=4_000_000_000)), end(1)), "rows[0].state_ppb"),
    ((header(), rows(pb.RateRow(state="WA", zip5=98110)), end(1)), "rows[0].combined_ppb"),
    ((header(), rows(row(plus4_lo=5)), end(1)), "rows[0].plus4_hi"),
    ((header(), rows(row(plus4_lo=9, plus4_hi=5)), end(1)), "rows[0].plus4_lo"),
    ((header(), rows(row(plus4_lo=9, plus4_hi=10000)), end(1)), "rows[0].plus4_hi"),
    ((header(), rows(pb.RateRow(combined_ppb=1, plus4_lo=1, plus4_hi=1, state="WA")), end(1)), "rows[0].zip5"),
    ((header(), rows(pb.RateRow(combined_ppb=1)), end(1)), "rows[0].state"),
    ((header(), rows(row(country="CA", state="ON")), end(1)), "rows[0].zip5"),
    ((header(), rows(row(valid_from_day=20000, valid_to_day=19999)), end(1)), "rows[0].valid_to_day"),
    ((header(), rows(row(valid_from_day=2_000_000_000)), end(1)), "rows[0].valid_from_day"),
    ((header(), rows(row(tax_code="")), end(1)), "rows[0].tax_code"),
    ((header(), rows(row(tax_code="x" * 32)), end(1)), "rows[0].tax_code"),
])
def test_a_bad_table_is_refused_whole_and_its_place_named(channel, parts, field):
    before = rpc.RatesStub(channel).Describe(pb.DescribeRatesRequest()).table
    error = refused(lambda: replace(channel, *parts), grpc.StatusCode.INVALID_ARGUMENT, f"{field}: ")
    assert trailer(error, "spillway-field") == field
    assert rpc.RatesStub(channel).Describe(pb.DescribeRatesRequest()).table == before


def upsert(channel, *parts):
    return rpc.RatesStub(channel).Upsert(iter(parts), timeout=WATCHDOG_S)


def test_rows_are_put_into_the_table(channel):
    before = replace(channel, header(), rows(row(98101), row(98102)), end(2)).table
    reply = upsert(channel, header("fix", "2025-11-20"), rows(row(98103, combined_ppb=95_000_000)),
                   rows(pb.RateRow(state="WA", combined_ppb=90_000_000)), end(2))
    assert (reply.rows, reply.table.version, reply.table.records, reply.table.upserts) == (2, before.version, 4, 2)
    found = rpc.RatesStub(channel).Lookup(pb.LookupRateRequest(zip="98103", date="2025-11-28", tax_code="PC040100"))
    assert found.rates.combined.text == "0.095" and not found.own_rate
    assert rpc.RatesStub(channel).Lookup(pb.LookupRateRequest(zip="98101")).match == "zip5", "what is not named stays"


@pytest.mark.parametrize("parts, field", [
    ((header(), rows(row()), header("second"), rows(row()), end(2)), "header"),
    ((header(), rows(row(99951)), end(1)), "rows[0].zip5"),
    ((header(), rows(row()), end(2)), "end.rows"),
    ((rows(row()), end(1)), "rows"),
])
def test_bad_rows_are_not_put_in(channel, parts, field):
    before = rpc.RatesStub(channel).Describe(pb.DescribeRatesRequest()).table
    refused(lambda: upsert(channel, *parts), grpc.StatusCode.INVALID_ARGUMENT, f"{field}: ")
    assert rpc.RatesStub(channel).Describe(pb.DescribeRatesRequest()).table == before


def test_a_look_up_on_no_day_is_refused(channel):
    refused(lambda: rpc.RatesStub(channel).Lookup(pb.LookupRateRequest(zip="98101", date="28.11.2025")),
            grpc.StatusCode.INVALID_ARGUMENT, "date: ")
    assert rpc.RatesStub(channel).Lookup(pb.LookupRateRequest(country="MX")).match == "none"


def test_more_rows_than_the_table_holds_are_refused(channel):
    many = tuple(rows(*(row() for _ in range(1000))) for _ in range(6))
    refused(lambda: replace(channel, header(), *many, end(6000)), grpc.StatusCode.RESOURCE_EXHAUSTED,
            "segment.rate_records")


def test_another_version_of_the_table_is_refused(channel):
    refused(lambda: replace(channel, header(expect_version=4711), rows(row()), end(1)), grpc.StatusCode.ABORTED,
            "header.expect_version")


def test_a_newer_replacement_sets_an_older_one_aside(channel):
    go_on = threading.Event()
    arrived = threading.Event()

    def slow():
        yield header("old")
        yield rows(row())
        arrived.set()
        go_on.wait(WATCHDOG_S)
        yield end(1)
    older = rpc.RatesStub(channel).Replace.future(slow(), timeout=WATCHDOG_S)
    assert arrived.wait(WATCHDOG_S)
    assert replace(channel, header("new"), rows(row()), end(1)).table.sources[0].name == "new"
    refused(older.result, grpc.StatusCode.ABORTED, "another replacement")
    go_on.set()
    assert rpc.RatesStub(channel).Describe(pb.DescribeRatesRequest()).table.sources[0].name == "new"


def test_a_stream_that_breaks_replaces_nothing(server, channel):
    before = rpc.RatesStub(channel).Describe(pb.DescribeRatesRequest()).table
    stop = threading.Event()

    def broken():
        yield header("broken")
        yield rows(row())
        stop.wait(WATCHDOG_S)
    with server.unix() as other:
        call = rpc.RatesStub(other).Replace.future(broken(), timeout=WATCHDOG_S)
        rpc.LimitsStub(other).List(pb.ListLimitsRequest())
        call.cancel()
        stop.set()
    assert rpc.RatesStub(channel).Describe(pb.DescribeRatesRequest()).table == before


@pytest.mark.parametrize("request_, field", [
    (pb.LookupRateRequest(), "zip"),
    (pb.LookupRateRequest(zip="9811"), "zip"),
    (pb.LookupRateRequest(zip="98110-12"), "zip"),
    (pb.LookupRateRequest(zip="98110", state="Washington"), "state"),
    (pb.LookupRateRequest(zip="98110", country="us"), "country"),
])
def test_a_bad_look_up_is_named_by_its_field(channel, request_, field):
    error = refused(lambda: rpc.RatesStub(channel).Lookup(request_), grpc.StatusCode.INVALID_ARGUMENT)
    assert trailer(error, "spillway-field") == field


# ---- flags ----

def export(channel, **request):
    return [one.flag for one in rpc.FlagsStub(channel).Export(pb.ExportFlagsRequest(**request), timeout=WATCHDOG_S)]


def test_a_flag_carries_what_it_needs_to_be_calculated_again(channel):
    first, second = export(channel, limit=2)
    assert (first.sequence, first.flag_id, first.quote_id) == (1, f"sf_{1:032x}", f"sq_{1:032x}")
    assert (first.type, first.cause, first.match) == ("rate-limit-proactive", "bucket-empty", "zip5")
    assert (first.tax.amount, first.tax.minor, first.currency) == ("6.71", 671, "USD")
    assert (second.tax.amount, second.tax.minor) == ("-0.05", -5)
    assert [(l.taxable.minor, l.tax.amount) for l in first.lines] == [(3998, "3.68"), (2500, "2.30"), (795, "0.73")]
    assert (first.rates.combined.text, first.rates.source, first.rates.as_of) == ("0.092", "vendor-2025-11",
                                                                                "2025-11-01")
    assert list(first.assumptions) == ["line 2: PC040100 at general rate", "currency: USD"]
    assert first.state == "confirmed" and first.order.order_id == "100048213"
    assert second.state == "provisional" and not second.HasField("order")
    assert first.evidence.limit == 100 and not first.evidence.HasField("remaining")
    assert first.origin.writer == "segment" and first.origin.slot == 7
    assert first.quote_ref == '=q,"1" ?'  # a byte that was no UTF-8
    assert first.verified and first.revision == 2 and first.orders_count == 1
    assert not first.HasField("unverified_reason")
    assert second.HasField("verified") and not second.verified and second.orders_count == 0
    assert second.unverified_reason == "the source is another"


def test_an_export_is_complete_and_resumes(own):
    with own("--flags", "20000").unix() as channel:
        sequences = [one.sequence for one in export(channel)]
        assert sequences == list(range(1, 20001))
        assert [one.sequence for one in export(channel, after_sequence=19990)] == list(range(19991, 20001))
        assert [one.sequence for one in export(channel, after_sequence=100, limit=65)] == list(range(101, 166))
        assert export(channel, after_sequence=20000) == []


def test_an_export_by_change_resumes_by_change(own):
    with own("--flags", "1000").unix() as channel:
        flags = export(channel, after_change=0)
        assert [one.change for one in flags] == list(range(2, 2001, 2))
        assert [one.sequence for one in flags] == list(range(1000, 0, -1))
        assert [one.change for one in export(channel, after_change=101, limit=70)] == list(range(102, 242, 2))
        assert export(channel, after_change=2000) == []
        refused(lambda: export(channel, after_change=2001), grpc.StatusCode.NOT_FOUND, "newest change is 2000")
        error = refused(lambda: export(channel, after_change=0, after_sequence=0), grpc.StatusCode.INVALID_ARGUMENT)
        assert trailer(error, "spillway-field") == "after_change"


def rss_kib(pid):
    return int(next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines()
                    if line.startswith("VmRSS")).split()[1])


@pytest.mark.skipif("SPILLWAY_SANITIZED" in os.environ,
                    reason="the address sanitizer keeps freed memory: the resident size says nothing there")
def test_a_reader_that_stops_reading_costs_a_bounded_amount(own):
    one = own("--flags", "1000000")
    with one.unix() as channel:
        export(channel, limit=1000)
        before = rss_kib(one.process.pid)
        stream = rpc.FlagsStub(channel).Export(pb.ExportFlagsRequest(), timeout=WATCHDOG_S)
        next(stream)
        for _ in range(20):  # others are served all the while
            rpc.LimitsStub(channel).List(pb.ListLimitsRequest())
            time.sleep(0.05)
        grown = rss_kib(one.process.pid) - before
        stream.cancel()
    # A million flags of 1 kB are 1 GB; a page is 256 KiB.
    assert grown < 64 * 1024
    assert one.process.poll() is None


def test_acknowledge(channel):
    flags = rpc.FlagsStub(channel)
    reply = flags.Acknowledge(pb.AcknowledgeFlagsRequest(consumer="nightly", sequence=3))
    assert (reply.consumer, reply.sequence) == ("nightly", 3)
    assert rpc.StatusStub(channel).Get(pb.GetStatusRequest()).store.acknowledged_sequence == 3
    refused(lambda: flags.Acknowledge(pb.AcknowledgeFlagsRequest(consumer="nightly", sequence=99)),
            grpc.StatusCode.NOT_FOUND, "newest")
    refused(lambda: flags.Acknowledge(pb.AcknowledgeFlagsRequest(consumer="nightly")),
            grpc.StatusCode.INVALID_ARGUMENT, "sequence: ")
    refused(lambda: flags.Acknowledge(pb.AcknowledgeFlagsRequest(sequence=1)),
            grpc.StatusCode.INVALID_ARGUMENT, "consumer: ")
    refused(lambda: flags.Acknowledge(pb.AcknowledgeFlagsRequest(consumer="broken", sequence=1)),
            grpc.StatusCode.INTERNAL, "disk I/O")


def test_find(own):
    with own("--flags", "150").unix() as channel:
        flags = rpc.FlagsStub(channel)
        found = flags.Find(pb.FindFlagsRequest(reference="d-7"))
        assert [one.sequence for one in found.flags] == [7] and not found.truncated
        assert not flags.Find(pb.FindFlagsRequest(reference="nothing of the kind")).flags
        found = flags.Find(pb.FindFlagsRequest(reference="all"))
        assert [one.sequence for one in found.flags] == list(range(150, 130, -1)) and found.truncated
        assert len(flags.Find(pb.FindFlagsRequest(reference="all", limit=100)).flags) == 100
        for bad in (pb.FindFlagsRequest(), pb.FindFlagsRequest(reference="x" * 72)):
            refused(lambda: flags.Find(bad), grpc.StatusCode.INVALID_ARGUMENT, "reference: ")
        for bad in (0, 101):
            refused(lambda: flags.Find(pb.FindFlagsRequest(reference="all", limit=bad)),
                    grpc.StatusCode.INVALID_ARGUMENT, "limit: ")


# ---- status ----

def test_status(channel):
    status = rpc.StatusStub(channel).Get(pb.GetStatusRequest())
    assert status.version == "0.0.0-test" and status.serving
    assert status.loop.backend in ("io_uring", "epoll") and status.loop.reason
    assert status.segment.generation == "0000000000001234" and status.segment.attached == 4
    assert [one.limit.account for one in status.accounts] == ["main", "stuck"]
    assert status.accounts[0].decisions.allowed == 12345 and status.accounts[0].decisions.fallbacks == 67
    assert status.store.flags == 5 and status.store.writable and status.rates.capacity == 5000


# ---- what is no request ----

def raw(channel, path, kind="unary_unary"):
    return getattr(channel, kind)(path)


def test_an_unknown_method_is_unimplemented(channel):
    for path in ("/spillway.v1.Limits/Drop", "/no.such/Service", "/x"):
        refused(lambda: raw(channel, path)(b"", timeout=WATCHDOG_S), grpc.StatusCode.UNIMPLEMENTED, path)


@pytest.mark.parametrize("path", ["/spillway.v1.Limits/Get", "/spillway.v1.Flags/Find", "/spillway.v1.Status/Get",
                                  "/grpc.health.v1.Health/Check"])
def test_a_body_that_is_no_message_is_invalid(channel, path):
    refused(lambda: raw(channel, path)(b"\xff\xff\xff\xff", timeout=WATCHDOG_S), grpc.StatusCode.INVALID_ARGUMENT)


def test_a_part_that_is_no_message_ends_the_stream(channel):
    call = raw(channel, "/spillway.v1.Rates/Replace", "stream_unary")
    refused(lambda: call(iter([header().SerializeToString(), b"\xff\xff"]), timeout=WATCHDOG_S),
            grpc.StatusCode.INVALID_ARGUMENT, "ReplaceRatesRequest")


def test_a_message_above_the_limit_is_refused(channel):
    refused(lambda: raw(channel, "/spillway.v1.Limits/Get")(b"\0" * (4 * 1024 * 1024 + 1), timeout=WATCHDOG_S),
            grpc.StatusCode.RESOURCE_EXHAUSTED)


def test_a_compressed_request_is_refused(channel):
    refused(lambda: raw(channel, "/spillway.v1.Limits/Get")(b"\0" * 4096, compression=grpc.Compression.Gzip,
                                                           timeout=WATCHDOG_S), grpc.StatusCode.UNIMPLEMENTED)


def test_garbage_on_the_socket_harms_nobody(server, channel):
    for bytes_ in (b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 64, b"\0" * 4096, b""):
        with socket.socket(socket.AF_UNIX) as one:
            one.connect(str(server.path))
            one.sendall(bytes_)
    assert rpc.LimitsStub(channel).List(pb.ListLimitsRequest()).limits


# ---- deadlines and cancelling ----

def test_a_deadline_passes_while_the_loop_is_held_up_and_nothing_is_changed(server, channel):
    limits = rpc.LimitsStub(channel)
    holder = limits.Get.future(pb.GetLimitRequest(account="stuck"), timeout=WATCHDOG_S)
    time.sleep(0.2)
    refused(lambda: limits.Set(pb.SetLimitRequest(account="main", burst=3999), timeout=0.1),
            grpc.StatusCode.DEADLINE_EXCEEDED)
    assert holder.result().limit.account == "stuck"
    assert limits.Get(pb.GetLimitRequest(account="main")).limit.burst != 3999


def test_a_cancelled_change_that_was_not_begun_is_not_made(channel):
    limits = rpc.LimitsStub(channel)
    holder = limits.Get.future(pb.GetLimitRequest(account="stuck"), timeout=WATCHDOG_S)
    time.sleep(0.2)
    late = limits.Set.future(pb.SetLimitRequest(account="main", burst=3998), timeout=WATCHDOG_S)
    time.sleep(0.2)
    assert late.cancel()
    holder.result()
    assert limits.Get(pb.GetLimitRequest(account="main")).limit.burst != 3998


def test_an_export_is_cancelled(own):
    one = own("--flags", "1000000")
    with one.unix() as channel:
        stream = rpc.FlagsStub(channel).Export(pb.ExportFlagsRequest(), timeout=WATCHDOG_S)
        next(stream)
        stream.cancel()
        assert rpc.StatusStub(channel).Get(pb.GetStatusRequest()).store.flags == 1000000


# ---- who may do what ----

MUTATING = {
    "Limits.Set": lambda c: rpc.LimitsStub(c).Set(pb.SetLimitRequest(account="main", burst=77)),
    "Limits.Set dry": lambda c: rpc.LimitsStub(c).Set(pb.SetLimitRequest(account="main", burst=77, dry_run=True)),
    "Breakers.Set": lambda c: rpc.BreakersStub(c).Set(pb.SetBreakerRequest(account="main", reset=True)),
    "Rates.Replace": lambda c: replace(c, header(), rows(row()), end(1)),
    "Flags.Acknowledge": lambda c: rpc.FlagsStub(c).Acknowledge(
        pb.AcknowledgeFlagsRequest(consumer="x", sequence=1)),
}
READING = {
    "Limits.List": lambda c: rpc.LimitsStub(c).List(pb.ListLimitsRequest()),
    "Limits.Get": lambda c: rpc.LimitsStub(c).Get(pb.GetLimitRequest(account="main")),
    "Breakers.Get": lambda c: rpc.BreakersStub(c).Get(pb.GetBreakerRequest(account="main")),
    "Rates.Lookup": lambda c: rpc.RatesStub(c).Lookup(pb.LookupRateRequest(zip="98110")),
    "Rates.Describe": lambda c: rpc.RatesStub(c).Describe(pb.DescribeRatesRequest()),
    "Status.Get": lambda c: rpc.StatusStub(c).Get(pb.GetStatusRequest()),
    "Health.Check": lambda c: health_rpc.HealthStub(c).Check(health_pb.HealthCheckRequest()),
}
RECORDS = {
    "Flags.Export": lambda c: export(c, limit=1),
    "Flags.Find": lambda c: rpc.FlagsStub(c).Find(pb.FindFlagsRequest(reference="d-1")),
}


def test_loopback_reads_and_changes_nothing(server):
    with server.tcp() as channel:
        for call in READING.values():
            call(channel)
        for call in (*MUTATING.values(), *RECORDS.values()):
            refused(lambda: call(channel), grpc.StatusCode.PERMISSION_DENIED, f"unix:{server.path}")


AS_ANOTHER = """
import os, sys
sys.path.insert(0, {here!r})
from test_control import *
os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
with grpc.insecure_channel("unix:" + sys.argv[1]) as channel:
    for call in (*READING.values(), *RECORDS.values()):
        call(channel)
    for call in MUTATING.values():
        refused(lambda: call(channel), grpc.StatusCode.PERMISSION_DENIED, "root")
print("as expected")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_another_user_reads_records_and_changes_nothing():
    # Not in pytest's own directory: another pytest that starts now would close that to others again.
    with tempfile.TemporaryDirectory(prefix="spillway-control-") as directory:
        os.chmod(directory, 0o755)
        one = Server(directory)
        os.chown(one.path, -1, 65534)
        result = subprocess.run([sys.executable, "-c", AS_ANOTHER.format(here=str(Path(__file__).parent)),
                                 one.path, "65534"], capture_output=True, text=True, timeout=WATCHDOG_S)
        text = one.text()
        assert one.stop() == 0, text
    assert result.stdout == "as expected\n", result.stderr


def test_the_socket_is_for_its_owner_and_group(server):
    status = server.path.stat()
    assert stat.S_ISSOCK(status.st_mode) and stat.S_IMODE(status.st_mode) == 0o660


def test_connections_are_limited_and_come_back(own):
    one = own(tcp=False)
    held = []
    for _ in range(40):
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(one.path))
        held.append(connection)
    time.sleep(0.3)
    shut = 0
    for connection in held:
        connection.setblocking(False)
        try:
            while data := connection.recv(4096):
                pass
            shut += 1
        except BlockingIOError:
            pass
    assert shut == 40 - 32
    for connection in held:
        connection.close()
    deadline = time.monotonic() + WATCHDOG_S
    while True:  # gRPC takes a moment to see that they are gone
        with one.unix() as channel:
            try:
                assert rpc.LimitsStub(channel).List(pb.ListLimitsRequest(), timeout=5).limits
                break
            except grpc.RpcError:
                assert time.monotonic() < deadline


# ---- health ----

def test_health_check(channel):
    health = health_rpc.HealthStub(channel)
    for service in ("", "spillway.v1.Limits", "spillway.v1.Flags", "grpc.health.v1.Health"):
        assert health.Check(health_pb.HealthCheckRequest(service=service)).status == 1
    refused(lambda: health.Check(health_pb.HealthCheckRequest(service="none")), grpc.StatusCode.NOT_FOUND)


def test_health_watch_tells_each_change(own):
    one = own()
    with one.unix() as channel, one.tcp() as other:
        health = health_rpc.HealthStub(channel)
        streams = [health.Watch(health_pb.HealthCheckRequest(), timeout=WATCHDOG_S),
                   health_rpc.HealthStub(other).Watch(health_pb.HealthCheckRequest(service="spillway.v1.Status"),
                                                      timeout=WATCHDOG_S)]
        unknown = health.Watch(health_pb.HealthCheckRequest(service="none"), timeout=WATCHDOG_S)
        assert [next(s).status for s in streams] == [1, 1] and next(unknown).status == 3
        for expected in (2, 1, 2):
            one.process.send_signal(signal.SIGUSR1)
            assert [next(s).status for s in streams] == [expected, expected]
            assert health.Check(health_pb.HealthCheckRequest()).status == expected
            assert not rpc.StatusStub(channel).Get(pb.GetStatusRequest()).serving == (expected == 2)


def test_watchers_are_limited(own):
    one = own()
    channels = [grpc.insecure_channel(f"unix:{one.path}", options=[("grpc.use_local_subchannel_pool", 1)])
                for _ in range(5)]
    streams = []
    for number in range(64):
        streams.append(health_rpc.HealthStub(channels[number % 5]).Watch(health_pb.HealthCheckRequest(),
                                                                          timeout=WATCHDOG_S))
        next(streams[-1])
    refused(lambda: next(health_rpc.HealthStub(channels[4]).Watch(health_pb.HealthCheckRequest(),
                                                                  timeout=WATCHDOG_S)),
            grpc.StatusCode.RESOURCE_EXHAUSTED)
    streams[0].cancel()
    for one_channel in channels:
        one_channel.close()


# ---- reflection ----

@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_reflection(channel, version):
    messages, services = stubs(f"grpc.reflection.{version}.reflection")
    from google.protobuf import descriptor_pb2, descriptor_pool

    def ask(*requests):
        return list(services.ServerReflectionStub(channel).ServerReflectionInfo(
            iter(messages.ServerReflectionRequest(host="h", **one) for one in requests), timeout=WATCHDOG_S))
    listed, by_symbol, by_method, by_file, unknown, extension, nothing = ask(
        {"list_services": "*"}, {"file_containing_symbol": "spillway.v1.Flags"},
        {"file_containing_symbol": "spillway.v1.Limits.Set"}, {"file_by_filename": "spillway/v1/control.proto"},
        {"file_containing_symbol": "spillway.v1.None"}, {"all_extension_numbers_of_type": "spillway.v1.Flag"}, {})
    names = {one.name for one in listed.list_services_response.service}
    assert names == {"spillway.v1.Limits", "spillway.v1.Breakers", "spillway.v1.Changes", "spillway.v1.Audit",
                     "spillway.v1.Gates", "spillway.v1.Accounts", "spillway.v1.Configuration",
                     "spillway.v1.Exceptions",
                     "spillway.v1.Rates", "spillway.v1.Flags",
                     "spillway.v1.Orders", "spillway.v1.Status", "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection",
                     "grpc.reflection.v1alpha.ServerReflection"}
    assert listed.valid_host == "h" and listed.original_request.list_services == "*"
    assert by_symbol.file_descriptor_response == by_method.file_descriptor_response == \
        by_file.file_descriptor_response
    pool = descriptor_pool.DescriptorPool()
    for bytes_ in reversed(by_file.file_descriptor_response.file_descriptor_proto):
        pool.Add(descriptor_pb2.FileDescriptorProto.FromString(bytes_))
    assert {m.name for m in pool.FindServiceByName("spillway.v1.Flags").methods} == {
        "Export", "Acknowledge", "Find", "Import"}
    assert unknown.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]
    assert extension.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]
    assert nothing.error_response.error_code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    for symbol in ("spillway.v1.Flag.sequence", "spillway.v1.BREAKER_FORCE_OPEN", "spillway.v1.ReplaceRatesRequest.part",
                   "grpc.health.v1.HealthCheckResponse.ServingStatus", "grpc.health.v1.HealthCheckResponse.SERVING"):
        assert ask({"file_containing_symbol": symbol})[0].file_descriptor_response.file_descriptor_proto, symbol


# ---- start and stop ----

def test_a_living_socket_is_not_taken_and_a_dead_one_is(own, tmp_path):
    first = own()
    second = subprocess.run([BIN, "--unix", first.path], capture_output=True, text=True, timeout=WATCHDOG_S)
    assert second.returncode == 1 and "BUSY" in second.stderr and "stop that one" in second.stderr
    with first.unix() as channel:
        assert rpc.LimitsStub(channel).List(pb.ListLimitsRequest()).limits
    first.process.kill()
    first.process.wait()
    assert first.path.exists()
    directory = tmp_path / "next"
    directory.mkdir()
    os.symlink(first.path, directory / "control.sock")
    again = subprocess.Popen([BIN, "--unix", first.path], stdout=subprocess.PIPE, text=True)
    assert again.stdout.readline().startswith("ready")
    again.terminate()
    assert again.wait(WATCHDOG_S) == 0
    assert not first.path.exists()
    again.stdout.close()
    first.stop = lambda: 0  # it was killed


@pytest.mark.parametrize("options, words", [
    (("--unix", "relative.sock"), "absolute"),
    (("--unix", "/tmp/" + "x" * 100), "shorter"),
    (("--unix", "/nonexistent/c.sock"), "/nonexistent"),
    (("--unix", "{dir}/file"), "no socket"),
    (("--unix", "{dir}/c.sock", "--tcp", "0.0.0.0:0"), "loopback"),
    (("--unix", "{dir}/c.sock", "--tcp", "127.0.0.1.example.com:80"), "loopback"),
    (("--unix", "{dir}/c.sock", "--tcp", "127.0.0.1:99999"), "loopback"),
    (("--unix", "{dir}/c.sock", "--tcp", "127.0.0.1:{taken}"), "free port"),
])
def test_what_cannot_be_served_is_told_and_leaves_nothing(tmp_path, options, words):
    (tmp_path / "file").write_text("not a socket")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        command = [part.format(dir=tmp_path, taken=taken.getsockname()[1]) for part in options]
        result = subprocess.run([BIN, *command], capture_output=True, text=True, timeout=WATCHDOG_S)
    assert result.returncode == 1 and words in result.stderr, result.stderr
    assert not (tmp_path / "c.sock").exists() and (tmp_path / "file").read_text() == "not a socket"


def test_stop_ends_streams_and_answers_what_is_in_progress(own):
    one = own()
    with one.unix() as channel:
        watch = health_rpc.HealthStub(channel).Watch(health_pb.HealthCheckRequest(), timeout=WATCHDOG_S)
        assert next(watch).status == 1
        slow = rpc.LimitsStub(channel).Get.future(pb.GetLimitRequest(account="stuck"), timeout=WATCHDOG_S)
        time.sleep(0.1)
        one.process.send_signal(signal.SIGTERM)
        assert slow.result().limit.account == "stuck"
        told = []
        with pytest.raises(grpc.RpcError) as ended:
            told.extend(one_.status for one_ in watch)
        assert ended.value.code() == grpc.StatusCode.UNAVAILABLE
        assert one.process.wait(WATCHDOG_S) == 0
    assert not one.path.exists()


def test_stop_under_load_never_aborts(tmp_path):
    """A rollout sends SIGTERM while calls are being made: exit 0, and each caller has an answer or UNAVAILABLE."""
    for round_ in range(12):
        directory = tmp_path / str(round_)
        directory.mkdir()
        one = Server(directory, "--flags", "5000")
        codes = set()

        def load(channel, number):
            calls = (READING["Limits.List"], READING["Status.Get"], MUTATING["Limits.Set"], RECORDS["Flags.Export"],
                     MUTATING["Rates.Replace"], lambda c: raw(c, "/no/Such")(b"", timeout=WATCHDOG_S))
            for turn in range(100000):
                try:
                    calls[(turn + number) % len(calls)](channel)
                except grpc.RpcError as error:
                    codes.add(error.code())
                    if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
                        return
        channels = [one.unix() for _ in range(4)]
        threads = [threading.Thread(target=load, args=(channels[n % 4], n)) for n in range(8)]
        for thread in threads:
            thread.start()
        time.sleep(0.05 + 0.02 * round_)
        text = one.text()
        assert one.stop() == 0, text
        for thread in threads:
            thread.join(10)
        for channel in channels:  # grpcio 1.51 can miss that the peer of a stream has gone; closing ends such a call
            channel.close()
        for thread in threads:
            thread.join(WATCHDOG_S)
            assert not thread.is_alive()
        # ABORTED: a replacement set aside by another; RESOURCE_EXHAUSTED: streams of one connection.
        assert codes <= {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.UNIMPLEMENTED,
                         grpc.StatusCode.ABORTED}, codes
