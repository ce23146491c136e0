"""The ledger from outside: exports with checksum and totals, acknowledgement, the sink of a pod that ends, orders by
gRPC, the tie-out against a shop's list, the alert. Needs SPILLWAY_BIN.
"""
import contextlib
import ctypes
import csv
import hashlib
import json
import os
import pathlib
import sqlite3
import subprocess
import time
import urllib.parse

import grpc
import pytest

from control_stubs import stubs
from harness import BIN, quote_body, until

INVALID, TIMEOUT = -1, -14
MANY = int(os.environ.get("SPW_LEDGER_FLAGS", "5000"))
# A page cache of SQLite's is 2 MiB, a page of the export 64 flags. A sanitizer keeps what was freed: nothing is to be seen.
MORE_MAX_KIB = 2**40 if os.environ.get("SPILLWAY_SANITIZED") else 32 * 1024
DRAINED = {"limit": {"rate": "0/s", "burst": None}}  # every quote is a fallback


@pytest.fixture
def drained(place):
    """A sidecar that answers everything from its rates."""
    return place.sidecar(place.mock("--rate", "0.092"), account=DRAINED)


def fallback(sidecar, **changes):
    answer = sidecar.quote(**changes).json
    assert answer["decision"] == "fallback"
    return answer


def order(sidecar, number, tax="6.71"):
    answer = fallback(sidecar)
    assert sidecar.order(answer["quote_id"], f"o-{number}", tax).status == 202
    return answer


def confirmed(sidecar, count):
    until(lambda: sidecar.metric("spillway_flags", state="confirmed") == count, f"{count} confirmed flags")


def only_in_pod(sidecar):
    return sidecar.metric("spillway_flags_only_in_pod")


def manifest_of(path):
    manifest = json.loads((path.parent / f"{path.name}.manifest.json").read_text())
    content = path.read_bytes()
    assert manifest["file"] == path.name
    assert manifest["bytes"] == len(content)
    assert manifest["sha256"] == hashlib.sha256(content).hexdigest()
    return manifest


def test_an_export_has_checksum_and_totals(drained, place):
    for i in range(3):
        order(drained, i)
    twice = fallback(drained)
    drained.order(twice["quote_id"], "o-left", "3.00")
    drained.order(twice["quote_id"], "=cmd|' /C calc'!A0", "3.71")
    confirmed(drained, 4)
    out = place.directory / "flags.csv"
    drained.ctl("flags", "export", "--format", "csv", "--out", out, "--ack", "nightly")
    manifest = manifest_of(out)
    assert (manifest["complete"], manifest["contiguous"], manifest["flags"]) == (True, True, 4)
    assert (manifest["first_sequence"], manifest["last_sequence"]) == (1, 4)
    assert manifest["by_flag_state"] == {"confirmed USD": {
        "flags": 4, "orders": 5, "taxable": "291.72", "tax": "26.84", "tax_collected": "26.84",
        "over_collected": "0.00", "under_collected": "0.00"}}
    assert list(manifest["by_ship_to"]) == ["US-WA USD"]
    with open(out, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 5, "one row an order"
    assert sum(float(row["tax_collected"]) for row in rows) == pytest.approx(26.84)
    assert sum(float(row["tax"] or 0) for row in rows) == pytest.approx(26.84), "a quote's amounts count once"
    assert [row["order_id"] for row in rows if row["order_id"][0] not in "o"] == ["'=cmd|' /C calc'!A0"]
    assert {row["reconciliation"] for row in rows} == {"pending"}
    assert only_in_pod(drained) == 0
    assert not list(place.directory.glob("*.partial"))


def test_acknowledged_by_change_is_told_again_when_it_changes(drained, place):
    answer = fallback(drained)
    drained.flag(answer["fallback"]["flag_id"])
    out = place.directory / "changes.jsonl"

    def export(after):
        drained.ctl("flags", "export", "--after-change", after, "--out", out, "--ack", "books")
        lines = [json.loads(line) for line in out.read_text().splitlines()]
        assert manifest_of(out)["flags"] == len(lines)
        return lines

    first, = export(0)
    assert (first["state"], only_in_pod(drained)) == ("provisional", 0)
    drained.order(answer["quote_id"], "o-1", "6.71")
    confirmed(drained, 1)
    drained.ctl("flags", "export", "--after-change", first["change"], "--limit", 1)  # nobody takes it
    second, = export(first["change"])
    assert (second["flag_id"], second["state"], second["order"]["order_id"]) == (first["flag_id"], "confirmed", "o-1")
    assert second["revision"] == first["revision"] + 1
    assert only_in_pod(drained) == 0
    assert export(second["change"]) == []


def test_a_file_that_cannot_be_written_acknowledges_nothing(drained, place):
    order(drained, 1)
    confirmed(drained, 1)
    full = place.directory / "no" / "such" / "flags.jsonl"
    result = drained.ctl("flags", "export", "--out", full, "--ack", "nightly", code=1)
    assert str(full) in result.stderr and "nothing was acknowledged" in result.stderr
    result = drained.ctl("flags", "export", "--out", "/dev/full/x", "--ack", "nightly", code=1)
    assert place.sql("SELECT count(*) FROM acknowledgements") == [(0,)]
    assert only_in_pod(drained) == 1


def test_a_pod_that_ends_leaves_what_nobody_has_taken(place, backend):
    sink = place.directory / "sink"
    sink.mkdir()
    sidecar = place.sidecar(place.mock("--rate", "0.092"), account=DRAINED,
                            config={"store": {"sink": {"file": str(sink)}}})
    for i in range(3):
        order(sidecar, i)
    confirmed(sidecar, 3)
    sidecar.ctl("flags", "export", "--limit", 1, "--ack", "nightly")
    exported = [json.loads(line) for line in sidecar.ctl("flags", "export", "--after", 1).stdout.splitlines()]
    last = fallback(sidecar)  # perhaps still in its cell when the signal comes
    sidecar.stop()
    written, = sink.glob("spillway-flags-*.jsonl")
    manifest = manifest_of(written)
    assert (manifest["complete"], manifest["flags"], manifest["first_sequence"]) == (True, 3, 2)
    lines = [json.loads(line) for line in written.read_text().splitlines()]
    assert lines[:2] == exported, "the sink writes what an export prints"
    assert lines[2]["flag_id"] == last["fallback"]["flag_id"]
    assert place.sql("SELECT change FROM acknowledgements WHERE consumer='sink'") == place.sql(
        "SELECT max(change) FROM flags")
    assert "sink: 3 flags" in sidecar.log()
    # On a volume that stays, the next pod writes nothing twice, but what its order has changed since.
    again = place.sidecar()
    assert only_in_pod(again) == 0
    again.order(last["quote_id"], "o-last", "6.71")
    until(lambda: only_in_pod(again) == 1, "the changed row, only here")
    again.stop()
    second, = set(sink.glob("spillway-flags-*.jsonl")) - {written}
    line, = second.read_text().splitlines()
    assert (json.loads(line)["flag_id"], json.loads(line)["state"]) == (last["fallback"]["flag_id"], "confirmed")
    place.sidecar().stop()
    assert len(list(sink.iterdir())) == 4


def test_a_pod_that_ends_without_a_sink_keeps_its_file(place):
    sidecar = place.sidecar(place.mock("--rate", "0.092"), account=DRAINED)
    order(sidecar, 1)
    sidecar.stop()
    assert place.sql("SELECT flag_state, order_id FROM flags") == [(1, "o-1")]
    assert only_in_pod(place.sidecar()) == 1


def test_a_sink_that_is_full_loses_nothing(place):
    sink = place.directory / "sink"
    sink.mkdir()
    sidecar = place.sidecar(place.mock("--rate", "0.092"), account=DRAINED,
                            config={"store": {"sink": {"file": str(sink)}}})
    order(sidecar, 1)
    confirmed(sidecar, 1)
    sink.rmdir()
    sidecar.stop()
    assert "sink.failed" in sidecar.log() and "keep its volume" in sidecar.log()
    assert place.sql("SELECT count(*) FROM flags") == [(1,)]
    assert place.sql("SELECT count(*) FROM acknowledgements") == [(0,)]
    sink.mkdir()


def test_orders_by_grpc(drained, place):
    pb, services = stubs("spillway.v1.control")
    with grpc.insecure_channel(f"unix:{place.pub}/control.sock") as channel:
        orders = services.OrdersStub(channel)
        placed, gone = fallback(drained), fallback(drained)
        orders.Place(pb.PlaceOrderRequest(quote_id=placed["quote_id"], order_id="g-1",
                                                             tax_collected="6.71"))
        # durable when the reply is there, whatever became of the flag's cell
        assert place.sql("SELECT order_id, order_state, tax_collected_minor FROM orders") == [("g-1", 1, 671)]
        orders.Abandon(pb.AbandonQuoteRequest(quote_id=gone["quote_id"]))
        until(lambda: sorted(flag["state"] for flag in drained.flags()) == ["abandoned", "confirmed"], "both states")
        listed = list(orders.List(pb.ListOrdersRequest()))
        assert [(one.order.order_id, one.order.state, one.order.tax_collected.amount, one.order.flag_id)
                for one in listed] == [("g-1", "placed", "6.71", placed["fallback"]["flag_id"])]
        orders.Cancel(pb.CancelOrderRequest(order_id="g-1"))
        got = orders.Get(pb.GetOrderRequest(order_id="g-1"))
        assert [one.state for one in got.orders] == ["cancelled"]
        for request, field in ((pb.PlaceOrderRequest(order_id="x", tax_collected="1"), "quote_id"),
                               (pb.PlaceOrderRequest(quote_id="q", tax_collected="1"), "order_id"),
                               (pb.PlaceOrderRequest(quote_id="q", order_id="x", tax_collected="1,00"),
                                "tax_collected")):
            with pytest.raises(grpc.RpcError, match=field):
                orders.Place(request)


def test_the_tie_out_finds_every_difference(drained, place):
    for i in range(4):
        order(drained, i)
    fallback_id = order(drained, "gone")["fallback"]["flag_id"]
    assert drained.post("/spillway/v1/orders/o-gone/cancel").status == 202
    confirmed(drained, 4)
    books = place.directory / "orders.csv"
    books.write_text("\ufefforder_id,state,tax\r\no-0,paid,6.71\r\n\"o-1\",paid,6.70\r\no-2,paid,\"6.71\"\r\n"
                     "o-3,cancelled,6.71\r\nshop-only,paid,1.00\r\n")
    report = json.loads(drained.ctl("--json", "flags", "report", "--tie-out", books, code=1).stdout)
    assert (report["shop_orders"], report["ledger_orders"], report["agreeing"]) == (4, 4, 2)
    assert [one["order_id"] for one in report["missing_orders"]] == ["shop-only"]
    assert [one["order_id"] for one in report["extra_orders"]] == ["o-3"]
    different, = report["different_orders"]
    assert (different["order_id"], different["shop"], different["ledger"], different["difference"]) == (
        "o-1", "6.70", "6.71", "0.01")
    assert (report["shop_tax"], report["ledger_tax"], report["difference"]) == ("21.12", "26.84", "5.72")
    assert report["ledger_cancelled"] == 1 and fallback_id
    books.write_text("order_id,tax_collected\n" + "".join(f"o-{i},6.7{i % 2}\n" for i in range(4)))
    drained.ctl("flags", "report", "--tie-out", books, code=1)
    text = drained.ctl("flags", "report", "--tie-out", books, "--tolerance", "0.01").stdout
    assert "agreeing  4" in text
    # As spreadsheets write it: a byte order mark, CRLF, quotation marks, spaces, other columns, a line that was taken back.
    books.write_text("\ufeff" + '"order_id" , "customer, name",tax_collected, state\r\n' + "".join(
        f'o-{i} ,"a ""b""\r\nc", 6.71 ,\r\n' for i in range(4)) + "o-gone,,1.00,Canceled\r\n\r\n", encoding="utf-8", newline="")
    assert "agreeing  4" in drained.ctl("flags", "report", "--tie-out", books).stdout
    for content, fault in (("", ":1: is empty"), ("id,tax\n", "lacks order_id"), ("order_id,tax\na,$5\n", ":2: "),
                           ("order_id,tax\na,1\na,1\n", "one line an order"), ('order_id,tax\n"a,1\n', "quotation")):
        books.write_text(content)
        assert fault in drained.ctl("flags", "report", "--tie-out", books, code=1).stderr


def test_the_share_of_placed_fallbacks_alarms(place):
    sidecar = place.sidecar(place.mock("--rate", "0.092"), account=DRAINED,
                            config={"fallback": {"alert": {"share": "50%", "minimum": 2}}})
    assert sidecar.metric("spillway_placed_fallback_alert") == 0
    order(sidecar, 1)
    order(sidecar, 2)
    confirmed(sidecar, 2)
    until(lambda: sidecar.metric("spillway_placed_fallback_alert") == 1, "the alert")
    assert sidecar.metric("spillway_placed_fallback_ratio") == 1
    assert "alert.fallback_share" in sidecar.log()
    assert "ALERT" in sidecar.ctl("status").stdout
    assert sidecar.metric("spillway_ledger_orphans") == sidecar.metric("spillway_ledger_stuck_rows") == 0
    sidecar.order("sq_live1", "o-live1", "1.00")
    sidecar.order("sq_live2", "o-live2", "1.00")
    until(lambda: sidecar.metric("spillway_placed_fallback_alert") == 0, "half of them is not above a half")


# ---- many ----

def copies(place, count):
    """The ledger's first flag, which is ordered from, `count` times: as a season leaves it behind."""
    columns = [row[1] for row in place.sql("PRAGMA table_info(flags)")]
    new = {"sequence": "n", "change": "n", "flag_id": "printf('sf_%032x', n)", "quote_id": "printf('sq_%032x', n)",
           "decision_id": "printf('d-%d', n)", "order_id": "printf('o-%d', n)"}
    with contextlib.closing(sqlite3.connect(place.ledger)) as db, db:
        db.execute("PRAGMA synchronous=OFF")
        newest, = db.execute("SELECT max(change) FROM flags").fetchone()
        db.execute("UPDATE flags SET change=1")
        db.execute("CREATE TEMP TABLE numbers AS WITH RECURSIVE c(n) AS (SELECT 2 UNION ALL SELECT n+1 FROM c WHERE n<?)"
                   " SELECT n FROM c", (count,))
        db.execute(f"INSERT INTO flags({','.join(columns)}) SELECT {','.join(new.get(c, c) for c in columns)}"
                   " FROM flags, numbers WHERE sequence=1")
        db.execute("INSERT INTO orders SELECT n, printf('o-%d', n), account, order_state, printf('sq_%032x', n), currency,"
                   " tax_collected_minor, placed_unix_ms, placed_created_unix_ms, cancelled_created_unix_ms"
                   " FROM orders, numbers WHERE order_row=1")
        db.execute("INSERT INTO order_quotes SELECT n, printf('sq_%032x', n) FROM numbers")
        db.execute("UPDATE ledger SET newest_sequence=?, newest_change=?", (count, max(count, newest)))


def peak_kib(pid):
    """The most memory this process has had; 0 when it is over."""
    try:
        lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    except ProcessLookupError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0)


def ctl_peak_kib(place, *words):
    """What this command took at the most, looked at until it ends."""
    with open(place.directory / "printed", "w") as out:
        process = subprocess.Popen([str(BIN / "spillwayctl"), *map(str, words)], stdout=out,
                                   env={**os.environ, "SPILLWAY_CONTROL": f"unix:{place.pub}/control.sock"})
        most_kib = 0
        while process.poll() is None:
            most_kib = max(most_kib, peak_kib(process.pid))
            time.sleep(0.001)
    assert process.returncode == 0, (place.directory / "printed").read_text()[-2000:]
    return most_kib


def test_an_export_of_many_flags_takes_no_memory_for_them(drained, place):
    """SPW_LEDGER_FLAGS of them; what was needed is printed (pytest -s)."""
    order(drained, 1)
    confirmed(drained, 1)
    empty_kib = max(ctl_peak_kib(place, "flags", "export") for _ in range(3))
    drained.stop()
    copies(place, MANY)
    sidecar = place.sidecar()
    before_kib, out = peak_kib(sidecar.pid), place.directory / "many"
    for words in (["--format", "jsonl", "--out", f"{out}.jsonl"], ["--format", "csv", "--out", f"{out}.csv"]):
        begun = time.monotonic()
        ctl_kib = ctl_peak_kib(place, "flags", "export", *words) - empty_kib
        sidecar_kib = peak_kib(sidecar.pid) - before_kib
        print(f"{MANY} flags, {words[1]}: {MANY / (time.monotonic() - begun):.0f}/s, {sidecar_kib} KiB more in the sidecar,"
              f" {ctl_kib} KiB more in spillwayctl")
        assert ctl_kib < MORE_MAX_KIB and sidecar_kib < MORE_MAX_KIB
        manifest = manifest_of(pathlib.Path(words[3]))
        assert (manifest["complete"], manifest["contiguous"], manifest["flags"], manifest["last_sequence"]) == (
            True, True, MANY, MANY)
    books = place.directory / "books.csv"
    with open(books, "w", encoding="utf-8") as file:
        file.write("order_id,tax_collected\n")
        file.writelines(f"o-{i},6.71\n" for i in range(MANY, 0, -1))
    tie_kib = ctl_peak_kib(place, "flags", "report", "--tie-out", books) - empty_kib
    print(f"tie-out of {MANY} orders: {tie_kib} KiB more in spillwayctl, {peak_kib(sidecar.pid) - before_kib} in the sidecar")
    assert f"agreeing  {MANY}\n" in (place.directory / "printed").read_text()
    assert tie_kib < MORE_MAX_KIB + MANY * 256 // 1024  # the shop's list is held: about 120 bytes a line
    assert peak_kib(sidecar.pid) - before_kib < MORE_MAX_KIB
    with open(books, "a", encoding="utf-8") as file:
        file.write("o-shop-only,1.00\n")
    text = sidecar.ctl("flags", "report", "--tie-out", books, code=1).stdout
    assert "o-shop-only" in text and "difference of the totals -1.00" in text


# ---- flags that come without a cell ----

def handed_back(place, count):
    """What callers are handed back while no cell is free: the sidecar is stopped and another holds them all."""
    lines = []
    for i in range(count):
        tag = f"{i:032x}"
        lines.append({"flag_id": f"sf_{tag}", "quote_id": f"sq_{tag}", "decision_id": f"d-{i}", "account": "main",
                      "integration": "web", "type": "sidecar-unavailable", "cause": "no-sidecar", "match": "zip5",
                      "currency": "USD", "source": "sample", "created_unix_ms": 1764331200000 + i,
                      "as_of_day": 20393, "tax": "6.71", "taxable": "72.93", "rate": "0.092",
                      "request": {"ship_to": {"state": "WA", "zip": "98110"}}})
    return lines


def write_lines(path, lines):
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))


def test_handed_back_lines_are_imported_once(drained, place):
    cause = fallback(drained)["fallback"]["cause"]
    lines = [{**line, "cause": cause} for line in handed_back(place, 250)]
    bad = ["not json", {**lines[0], "flag_id": "sf_other", "type": "no-such-type"}, {"flag_id": "sf_x"},
           {**lines[0], "flag_id": "sf_y", "tax": "6,71"}]
    path, aside = place.directory / "back.jsonl", place.directory / "bad.jsonl"
    write_lines(path, lines[:1] + bad + lines[1:])
    result = drained.ctl("--json", "flags", "import", path, "--bad", aside, code=1)
    assert json.loads(result.stdout) == {"imported": 250, "known": 0, "bad": 4}
    for number in range(2, 6):
        assert f"{path}:{number}: " in result.stderr
    kept = [line for line in aside.read_text().splitlines() if not line.startswith("#")]
    assert kept == [line if isinstance(line, str) else json.dumps(line) for line in bad]
    write_lines(path, lines)
    assert json.loads(drained.ctl("--json", "flags", "import", path).stdout) == {
        "imported": 0, "known": 250, "bad": 0}
    flag = drained.flag(lines[7]["flag_id"])
    assert (flag["tax"]["amount"], flag["rates"]["combined"]["text"], flag["verified"], flag["origin"]["writer"]) == (
        "6.71", "0.092", False, "import")
    assert flag["request"] == lines[7]["request"]
    drained.order(lines[7]["quote_id"], "o-7", "6.71")
    confirmed(drained, 1)


def test_an_export_is_imported_by_another_ledger(drained, place):
    order(drained, 1)
    twice = fallback(drained)
    drained.order(twice["quote_id"], "o-2", "3.00")
    drained.order(twice["quote_id"], "o-3", "3.71")
    fallback(drained)
    confirmed(drained, 2)
    until(lambda: len(drained.flags()) == 3, "three flags")
    out = place.directory / "all.jsonl"
    drained.ctl("flags", "export", "--out", out)
    before = {flag["flag_id"]: flag for flag in drained.flags()}
    drained.stop()
    place.ledger.rename(place.directory / "old.db")
    other = place.sidecar()
    assert other.flags() == []
    other.ctl("flags", "import", out)
    confirmed(other, 2)
    after = {flag["flag_id"]: flag for flag in other.flags()}
    assert set(after) == set(before)
    for flag_id, flag in before.items():
        for same in ("state", "quote_id", "decision_id", "account", "type", "cause", "match", "tax", "taxable", "total",
                     "lines", "assumptions", "request", "destination", "rounding", "created_unix_ms"):
            assert after[flag_id].get(same) == flag.get(same), same
        assert after[flag_id]["rates"]["combined"] == flag["rates"]["combined"]
        assert after[flag_id].get("orders") == flag.get("orders")


def test_the_spool_is_imported(place):
    spool = place.directory / "spool"
    spool.mkdir()
    lines = handed_back(place, 20)
    sidecar = place.sidecar(place.mock("--rate", "0.092"), account=DRAINED, config={"store": {"spool_dir": str(spool)}})
    cause = fallback(sidecar)["fallback"]["cause"]
    lines = [{**line, "cause": cause} for line in lines]
    write_lines(spool / "host-1.jsonl", lines[:10] + ["torn {"])
    write_lines(spool / ".hidden.jsonl", ["x"])
    write_lines(spool / "notes.txt", ["x"])
    until(lambda: list((spool / "done").glob("*-host-1.jsonl")), "the first file done")
    write_lines(spool / "host-1.jsonl", lines)  # the same name, some of it known
    until(lambda: len(list((spool / "done").glob("*-host-1.jsonl"))) == 2, "the second file done")
    ids = [flag["flag_id"] for flag in sidecar.flags()]
    assert sorted(ids)[:20] == sorted(line["flag_id"] for line in lines) and len(ids) == 21
    bad, = (spool / "bad").iterdir()
    assert bad.read_text().splitlines()[1] == "torn {"
    assert "spool.bad_line" in sidecar.log()
    assert {path.name for path in spool.iterdir()} == {"taken", "done", "bad", ".hidden.jsonl", "notes.txt"}


# ---- durable, placed with the quote, abandoned ----

def test_an_answer_that_waits_is_durable(drained, place):
    for i in range(20):
        answer = drained.post("/spillway/v1/quote", quote_body(decision_id=f"d-{i}", purpose="order"),
                              headers={"Spillway-Wait": "durable", "Spillway-Order-Id": f"o-{i}"})
        assert (answer.status, answer.headers["Spillway-Durable"], answer.headers["Spillway-Order"]) == (200, "1", "placed")
        assert place.sql(f"SELECT flag_state, order_id, tax_collected_minor FROM flags WHERE"
                         f" flag_id='{answer.json['fallback']['flag_id']}'") == [(1, f"o-{i}", 671)]
    answer = drained.post("/spillway/v1/orders/o-3/cancel", headers={"Spillway-Wait": "durable"})
    assert (answer.status, answer.headers["Spillway-Durable"]) == (202, "1")
    assert place.sql("SELECT order_state FROM orders WHERE order_id='o-3'") == [(2,)]
    for bad in ("", "x" * 72):
        answer = drained.post("/spillway/v1/quote", quote_body(), headers={"Spillway-Order-Id": bad})
        assert answer.status == 400 and "Spillway-Order-Id" in answer.text


def test_an_answer_that_cannot_be_durable_is_given_all_the_same(drained, place):
    fallback(drained)
    with contextlib.closing(sqlite3.connect(place.ledger, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        answer = drained.post("/spillway/v1/quote", quote_body(decision_id="held"), headers={"Spillway-Wait": "durable"})
        assert (answer.status, answer.json["decision"], answer.headers["Spillway-Durable"]) == (200, "fallback", "0")
        until(lambda: drained.metric("spillway_store_writable") == 0, "the alarm")
        assert "store.not_writable" in drained.log()
        assert fallback(drained), "checkout goes on"
        assert drained.admin("/readyz").status == drained.admin("/healthz").status == 200
        holder.execute("ROLLBACK")
    drained.flag(answer.json["fallback"]["flag_id"])
    until(lambda: drained.metric("spillway_store_writable") == 1, "the alarm's end")


def test_any_order_can_be_cancelled(place):
    """Ids that no path can hold, and an id that orders of two accounts have."""
    mock = place.mock("--rate", "0.092")
    place.config["accounts"]["other"] = place.account(mock.url, **DRAINED)
    sidecar = place.sidecar(mock, account=DRAINED)
    ids = ["a/b c", "é☃", "=1+1", "plain"]
    for name in ids:
        sidecar.order(fallback(sidecar)["quote_id"], name, "6.71")
    for account in ("main", "other"):
        answer = fallback(sidecar, account=account)
        sidecar.flag(answer["fallback"]["flag_id"])  # an order that names no account is of its quote's: once that is known
        sidecar.order(answer["quote_id"], "twice", "6.71")
    confirmed(sidecar, 6)

    def cancel(status=202, **query):
        answer = sidecar.post("/spillway/v1/orders/cancel?" + urllib.parse.urlencode(query))
        assert answer.status == status, answer
    for name in ids:
        cancel(order_id=name)
    until(lambda: sidecar.metric("spillway_flags", state="cancelled") == 4, "four cancelled")
    assert sidecar.post("/spillway/v1/orders/twice/cancel").status == 202
    sidecar.wait_log("orders of several accounts have this id, and it names no account")
    confirmed(sidecar, 2)
    assert sidecar.post("/spillway/v1/orders/twice/cancel?account=other").status == 202
    confirmed(sidecar, 1)
    assert place.sql("SELECT account FROM orders WHERE order_state=1") == [("main",)]
    for query in ({}, {"order_id": ""}, {"order_id": "x" * 72}, {"order_id": "a\nb"}, {"order_id": "a", "account": "x" * 99}):
        cancel(400, **query)


def test_a_quote_is_abandoned_by_http(drained):
    answer = fallback(drained)
    assert drained.post(f"/spillway/v1/quotes/{answer['quote_id']}/abandon").status == 202
    until(lambda: drained.metric("spillway_flags", state="abandoned") == 1, "the abandoned flag")
    assert drained.post("/spillway/v1/quotes/a%20b/abandon").status == 400
    drained.order(answer["quote_id"], "o-late", "6.71")
    confirmed(drained, 1)


def test_quotes_without_an_order_are_given_up(place):
    sidecar = place.sidecar(place.mock("--rate", "0.092"), account=DRAINED, config={"store": {"unplaced_after": "1s"}})
    fallback(sidecar, purpose="order")
    fallback(sidecar, purpose="estimate")
    until(lambda: sidecar.metric("spillway_flags", state="unplaced") == 1, "the unplaced flag")
    until(lambda: sidecar.metric("spillway_flags", state="abandoned") == 1, "the abandoned estimate")
    assert sidecar.metric("spillway_ledger_stuck_rows") == 0


def test_a_process_waits_until_what_it_recorded_is_durable(drained, place):
    if os.environ.get("SPILLWAY_SANITIZED"):
        pytest.skip("the sanitizer must be the first library: Python cannot load ours (integration_ffi does, prepared for it)")
    lib = ctypes.CDLL(str(BIN / "libspillway.so"))
    lib.spillway_new.restype = ctypes.c_void_p
    lib.spillway_new.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int]
    client = ctypes.c_void_p(lib.spillway_new(str(place.pub).encode(), str(place.rw).encode(), 1))
    for i in range(20):
        quote = fallback(drained)["quote_id"]
        assert lib.spillway_order_placed(client, quote.encode(), f"c-{i}".encode(), ctypes.c_int64(671), b"USD") == 0
        assert lib.spillway_wait_durable(client, 60000) == 0
        assert place.sql(f"SELECT quote_id FROM orders WHERE order_id='c-{i}'") == [(quote,)]
    drained.kill()
    assert lib.spillway_quote_abandoned(client, b"sq_x") == 0
    assert lib.spillway_wait_durable(client, 20) == TIMEOUT, "nobody is there to bring it to disk"
    place.sidecar()
    assert lib.spillway_wait_durable(client, 60000) == 0
    assert place.sql("SELECT quote_id FROM abandoned") == [("sq_x",)]
    assert lib.spillway_quote_abandoned(client, b"") == INVALID
    lib.spillway_destroy(client)
