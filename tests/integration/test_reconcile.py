"""Placed fallbacks are calculated again and put into the provider's books: once, read back, whatever is killed or lost.

SPW_RECONCILE_FLAGS says how many orders the run of kills has (100). Needs SPILLWAY_BIN.
"""
import csv
import os
import random

import pytest

from harness import until

FLAGS = int(os.environ.get("SPW_RECONCILE_FLAGS", "100"))
PROVIDERS = {
    "avatax": {"company": "ACME", "connection": None},
    "taxjar": {"connection": None},
    "stripe": {"connection": None},
    "taxcloud": {}}
PATH = {"avatax": "avatax/ACME/", "taxjar": "taxjar/orders/", "stripe": "stripe/reference/", "taxcloud": "taxcloud/orders/"}
FORCE = {"Spillway-Force": "rate-limit-proactive"}


ON = {"reconcile": {"within": "60m"}}


def account(place, provider, **more):
    """Changes to an account of the place that make it one of this provider's."""
    changes = {"provider": provider, "allow_force": True, **PROVIDERS[provider], **more}
    if provider == "avatax":
        (place.directory / "user").write_text("2000012345\n")
        changes["credentials"] = {"api_key_file": None, "username_file": str(place.directory / "user"),
                                  "password_file": str(place.directory / "api-key")}
    return changes


def fall_back(sidecar, order_id, tax=None, **changes):
    """A forced fallback, placed as an order; gives its answer."""
    from harness import CUSTOMERS, quote_body
    body = quote_body(customer={"id": f"c_{next(CUSTOMERS)}", "exemption": None}, **changes)
    answer = sidecar.post("/spillway/v1/quote", body, headers=FORCE).json
    assert answer["decision"] == "fallback", answer
    placed = sidecar.order(answer["quote_id"], order_id, tax or answer["tax"])
    assert placed.status == 202, placed
    return answer


def reconciliation(sidecar, flag_id):
    return sidecar.flag(flag_id).get("reconciliation", {})


def settled(sidecar, flag_id):
    def found():
        r = reconciliation(sidecar, flag_id)
        done = r.get("filing") in ("filed", "not-possible", "failed") or r.get("state") == "exception"
        return r if r.get("state", "pending") != "pending" and done else None
    return until(found, f"{flag_id} reconciled and filed")


def documents(mock, provider):
    books = mock.call("GET", "/mock/books", key=None)[2]
    return {name: entry for name, entry in books.items() if name.startswith(PATH[provider])}


@pytest.mark.parametrize("provider", PROVIDERS)
def test_reconciled_and_filed(place, provider):
    mock = place.mock("--rate", "9.2%")
    sidecar = place.sidecar(mock, account=account(place, provider), config=ON)
    answer = fall_back(sidecar, "100048213")
    assert answer["tax"] == "6.71"
    r = settled(sidecar, answer["fallback"]["flag_id"])
    assert (r["state"], r["filing"]) == ("noise", "filed"), r
    live = int(r["live_tax"]["minor"])
    assert int(r["variance"]["minor"]) == 671 - live
    # One rounding a line by the combined rate here, one a line and jurisdiction there: a cent is noise.
    assert live in (671, 672), r
    assert r.get("rounding_noise", {"minor": 0})["minor"] == 671 - live
    books = documents(mock, provider)
    assert [entry["writes"] for entry in books.values()] == [1], books
    assert "100048213" in next(iter(books))


def orders_of(place, sidecar, count):
    return {f"o-{i}": fall_back(sidecar, f"o-{i}")["fallback"]["flag_id"] for i in range(count)}


@pytest.mark.parametrize("provider", PROVIDERS)
def test_failures_lost_replies_and_kills(place, provider):
    """Seven in a hundred requests fail, three are carried out and not answered, and the sidecar is killed three times."""
    count = FLAGS if provider == "taxjar" else max(FLAGS // 4, 20)
    mock = place.mock("--rate", "9.2%")
    mine = account(place, provider, limit={"rate": "400/s", "burst": 40}, breaker={"mode": "observe"})
    sidecar = place.sidecar(mock, account=mine, config={"segment": {"cells": 16384}})
    flags = orders_of(place, sidecar, count)
    mock.script({"random": 0.07, "seed": 7, "status": 503}, {"random": 0.03, "seed": 3, "action": "drop"})
    place.write_config(ON)
    dice = random.Random(11)
    sidecar.kill()
    for part in range(3):
        sidecar = place.sidecar()
        wanted = count * (part + 1) // 5 + dice.randrange(3)
        until(lambda: sum(v for (name, labels), v in sidecar.metrics().items() if name == "spillway_flags_filing"
                          and ("state", "filed") in labels) >= wanted, f"{wanted} filed")
        sidecar.kill()
    sidecar = place.sidecar()
    until(lambda: sidecar.metric("spillway_flags_filing", state="filed") == count, "all of them filed")
    by_id = {flag["flag_id"]: flag for flag in sidecar.flags()}
    assert {by_id[flag]["reconciliation"]["state"] for flag in flags.values()} == {"noise"}
    books = documents(mock, provider)
    assert len(books) == count
    # AvaTax's is create-or-adjust: what a killed sidecar had put on the wire may arrive after its successor has looked and
    # before it sends, and then adjusts the document to what it already says.
    assert {entry["writes"] for entry in books.values()} <= ({1, 2} if provider == "avatax" else {1})
    assert sidecar.metric("spillway_ledger_stuck_rows") == 0
    reconciled = place.sql("SELECT count(*) FROM history WHERE who='reconcile' AND from_state='pending' AND"
                           " to_state<>'pending'")
    assert reconciled == [(count,)]  # each result is posted once


def exceptions(sidecar, *words):
    return list(csv.DictReader(sidecar.ctl("exceptions", "list", "--format", "csv", *words).stdout.splitlines()))


def wait_states(sidecar, **counts):
    def there():
        metrics = sidecar.metrics()
        return all(metrics["spillway_flags_reconciliation", (("state", state.replace("_", "-")),)] == count
                   for state, count in counts.items())
    until(there, str(counts))


def test_over_and_under_are_kept_apart_and_capped(place):
    """The provider's rate is 9.1 % (0.07 over) or 9.3 % (0.08 under); of twenty cents a day two orders take sixteen."""
    mock = place.mock("--rate", "9.3%")
    config = {"reconcile": {"absorb_under": "0.10/order", "absorb_period": "0.20/day", "over_collected": "refund",
                            "filing": "off"}}
    sidecar = place.sidecar(mock, account=account(place, "taxcloud"), config=config)
    for i in range(4):
        fall_back(sidecar, f"u-{i}")
    wait_states(sidecar, absorbed_under=2, exception=2)
    rows = exceptions(sidecar)
    assert [row["variance"] for row in rows] == ["-0.08", "-0.08"]
    assert all( "absorb_period 0.20 is used up" in row["reason"] for row in rows), rows
    mock.__exit__()
    place.mocks.remove(mock)
    lower = place.mock("--rate", "9.1%")
    sidecar.stop()
    sidecar = place.sidecar(lower, account=account(place, "taxcloud"))
    fall_back(sidecar, "o-1")
    fall_back(sidecar, "o-2", tax="3.00")
    wait_states(sidecar, over_collected_refund=1, exception=3)
    report = sidecar.ctl("reconcile", "report", "--format", "csv").stdout.splitlines()
    lines = {line.split(",")[3]: line.split(",") for line in report[1:]}
    head = report[0].split(",")
    at = {name: i for i, name in enumerate(head)}
    assert lines["absorbed-under"][at["under"]] == "-0.16" and lines["absorbed-under"][at["over"]] == "0.00"
    assert lines["over-collected-refund"][at["over"]] == "0.07"
    assert lines["exception"][at["orders"]] == "3"
    assert "main" in sidecar.ctl("reconcile", "status").stdout
    assert sidecar.ctl("reconcile", "report", "--format", "json").stdout


def test_decisions_one_by_one_and_by_file(place):
    mock = place.mock("--rate", "20%")
    sidecar = place.sidecar(mock, account=account(place, "taxjar"), config=ON)
    flags = [fall_back(sidecar, f"o-{i}")["fallback"]["flag_id"] for i in range(4)]
    wait_states(sidecar, exception=4)
    sidecar.ctl("exceptions", "annotate", flags[0], "--note", "asked", "--by", "ann")
    sidecar.ctl("exceptions", "resolve", flags[0], "--decision", "absorb", "--file", "yes", "--by", "ann")
    shown = sidecar.ctl("exceptions", "show", flags[0]).stdout
    assert "absorb" in shown and "ann: exception -> resolved" in shown
    assert settled(sidecar, flags[0])["filing"] == "filed"
    text = sidecar.ctl("exceptions", "list", "--format", "csv").stdout.splitlines()
    at = text[0].split(",").index("decision")

    def upload(words, code):
        rows = list(csv.reader(text))
        for row, word in zip(rows[1:], words):
            row[at] = word
        with open(place.directory / "decided.csv", "w", newline="") as out:
            csv.writer(out).writerows(rows)
        return sidecar.ctl("exceptions", "upload", place.directory / "decided.csv", "--by", "bob", code=code)
    for column, value in (("revision", ""), ("revision", "2.0"), ("file", "perhaps")):
        rows = list(csv.DictReader(text))
        rows[0].update({"decision": "accept", column: value})
        with open(place.directory / "decided.csv", "w", newline="") as out:
            table = csv.DictWriter(out, rows[0])
            table.writeheader()
            table.writerows(rows)
        refused = sidecar.ctl("exceptions", "upload", place.directory / "decided.csv", "--by", "bob", code=1)
        assert f"decided.csv:2: {column}: " in refused.stderr
    (place.directory / "decided.csv").write_text(f"flag_id,decision\n{flags[1]},accept\n")
    refused = sidecar.ctl("exceptions", "upload", place.directory / "decided.csv", "--by", "bob", code=1)
    assert "lacks flag_id, revision or decision" in refused.stderr
    refused = upload(["accept", "acept", "accept"], 1)
    assert "decided.csv:3: decision" in refused.stderr and "nothing was changed" in refused.stderr
    sidecar.ctl("exceptions", "annotate", flags[2], "--note", "changed meanwhile", "--by", "ann")
    refused = upload(["accept", "accept", "accept"], 1)
    assert "decided.csv:3:" in refused.stderr and "revision" in refused.stderr
    wait_states(sidecar, exception=3, resolved=1)
    upload(["Accept", "", " remit "], 0)
    wait_states(sidecar, exception=1, resolved=3)
    upload(["accept", "", "remit"], 0)  # the same again changes nothing
    wait_states(sidecar, exception=1, resolved=3)


def test_what_a_provider_refuses_for_good_is_set_aside(place):
    mock = place.mock("--rate", "9.2%")
    mock.script({"status": 422, "path_contains": "/transactions/orders"})
    sidecar = place.sidecar(mock, account=account(place, "taxjar"), config=ON)
    flag = fall_back(sidecar, "o-1")["fallback"]["flag_id"]
    r = settled(sidecar, flag)
    assert (r["state"], r["filing"]) == ("noise", "failed") and "422" in r["filing_error"], r
    row, = exceptions(sidecar, "--state", "set-aside")
    assert row["flag_id"] == flag
    mock.script()
    sidecar.ctl("exceptions", "resolve", flag, "--decision", "retry", "--by", "ann")
    until(lambda: reconciliation(sidecar, flag)["filing"] == "filed", "the second try")
    assert len(documents(mock, "taxjar")) == 1


def test_yesterday_is_gone_for_taxjar_alone(place):
    mock = place.mock("--rate", "9.2%")
    config = {**ON, "reconcile": {"filing": "off"}}
    place.config["accounts"]["jar"] = place.account(mock.url, **account(place, "taxjar"))
    sidecar = place.sidecar(mock, account=account(place, "taxcloud"), config=config)
    jar = fall_back(sidecar, "o-1", account="jar", date="2025-11-28")["fallback"]["flag_id"]
    cloud = fall_back(sidecar, "o-2", date="2025-11-28")["fallback"]["flag_id"]
    wait_states(sidecar, noise=1, exception=1)
    assert "taxjar cannot calculate for a past date" in reconciliation(sidecar, jar)["reason"]
    assert reconciliation(sidecar, cloud)["state"] == "noise"


def test_orders_of_one_day_share_a_call(place):
    """TaxCloud takes 25 orders a call, all of one day: two days are two calls, not one for each order."""
    mock = place.mock("--rate", "9.2%")
    sidecar = place.sidecar(mock, account=account(place, "taxcloud"))
    for i in range(10):
        fall_back(sidecar, f"o-{i}", date=("2025-11-28", "2025-11-29")[i % 2])
    until(lambda: sidecar.metric("spillway_flags", state="confirmed") == 10, "ten orders")
    sidecar.stop()
    before = mock.stats()["requests_total"]
    sidecar = place.sidecar(config={"reconcile": {"filing": "off"}})
    wait_states(sidecar, noise=10)
    assert mock.stats()["requests_total"] - before == 2


def test_orders_of_an_account_that_is_gone(place):
    """Nobody can be asked any more: exceptions that say so, and once the account is back, tried again."""
    mock = place.mock("--rate", "9.2%")
    place.config["accounts"]["jar"] = place.account(mock.url, **account(place, "taxjar"))
    sidecar = place.sidecar(mock, account=account(place, "taxcloud"))
    gone = fall_back(sidecar, "o-1", account="jar")["fallback"]["flag_id"]
    stays = fall_back(sidecar, "o-2")["fallback"]["flag_id"]
    sidecar.stop()
    jar = place.config["accounts"].pop("jar")
    sidecar = place.sidecar(config=ON)
    wait_states(sidecar, noise=1, exception=1, pending=0)
    assert "account jar is not in the configuration any more" in reconciliation(sidecar, gone)["reason"]
    assert settled(sidecar, stays)["filing"] == "filed"
    sidecar.stop()
    place.config["accounts"]["jar"] = jar
    sidecar = place.sidecar()
    sidecar.ctl("exceptions", "resolve", gone, "--decision", "retry", "--by", "ann")
    assert settled(sidecar, gone)["filing"] == "filed"
    assert len(documents(mock, "taxjar")) == 1
    # The same with one that is calculated and not filed yet.
    mock.script({"status": 503, "path_contains": "/transactions/orders"})
    late = fall_back(sidecar, "o-3", account="jar")["fallback"]["flag_id"]
    until(lambda: reconciliation(sidecar, late).get("filing") == "sent", "the first try")
    sidecar.stop()
    mock.script()
    place.config["accounts"].pop("jar")
    sidecar = place.sidecar()
    until(lambda: reconciliation(sidecar, late)["filing"] == "failed", "given up")
    assert "not in the configuration any more" in reconciliation(sidecar, late)["filing_error"]
    sidecar.stop()
    place.config["accounts"]["jar"] = jar
    sidecar = place.sidecar()
    sidecar.ctl("exceptions", "resolve", late, "--decision", "retry", "--by", "ann")
    until(lambda: reconciliation(sidecar, late)["filing"] == "filed", "the second try")
    assert [entry["writes"] for entry in documents(mock, "taxjar").values()] == [1, 1]


def test_orders_that_are_taken_back(place):
    """Before it was filed nothing is filed; afterwards it is an exception that says so."""
    mock = place.mock("--rate", "9.2%")
    sidecar = place.sidecar(mock, account=account(place, "avatax"))
    early = fall_back(sidecar, "o-1")["fallback"]["flag_id"]
    late = fall_back(sidecar, "o-2")["fallback"]["flag_id"]
    assert sidecar.post("/spillway/v1/orders/o-1/cancel").status in (200, 202)
    until(lambda: sidecar.flag(early)["state"] == "cancelled", "the cancellation")
    sidecar.stop()
    sidecar = place.sidecar(config=ON)
    assert settled(sidecar, late)["filing"] == "filed"
    assert sidecar.post("/spillway/v1/orders/o-2/cancel").status in (200, 202)
    wait_states(sidecar, exception=1)
    assert "taken back after it was filed" in reconciliation(sidecar, late)["reason"]
    assert list(documents(mock, "avatax")) == ["avatax/ACME/o-2"]
    assert "reconciliation" not in sidecar.flag(early)
    refused = sidecar.ctl("exceptions", "resolve", late, "--decision", "retry", "--by", "ann", code=1)
    assert "no order stands on it" in refused.stderr
    assert sidecar.metric("spillway_ledger_orphans") == 0
    sidecar.ctl("exceptions", "resolve", late, "--decision", "accept", "--note", "voided by hand", "--by", "ann")
    wait_states(sidecar, exception=0, resolved=1)
    # A filing that was given up after it had been sent: perhaps it arrived.
    mock.script({"status": 400, "path_contains": "createoradjust"})
    lost = fall_back(sidecar, "o-3")["fallback"]["flag_id"]
    assert settled(sidecar, lost)["filing"] == "failed"
    mock.script()
    assert sidecar.post("/spillway/v1/orders/o-3/cancel").status in (200, 202)
    wait_states(sidecar, exception=1)
    assert "taken back after it was filed" in reconciliation(sidecar, lost)["reason"]


def test_too_little_capacity_alarms_at_once(place):
    mock = place.mock("--rate", "9.2%")
    sidecar = place.sidecar(mock, account=account(place, "taxjar", limit={"rate": "1/min", "burst": 2}),
                            config={"reconcile": {"within": "1m"}})
    for i in range(3):
        fall_back(sidecar, f"o-{i}")
    sidecar.wait_log("reconcile.late: account main:")
    assert "LATE" in sidecar.ctl("reconcile", "status").stdout
