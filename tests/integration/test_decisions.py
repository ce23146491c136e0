"""The decision tree against a provider that misbehaves by script: which decision, type, cause, how many calls.

Needs SPILLWAY_BIN.
"""
import datetime
import json
import sqlite3
import time

import pytest

from harness import TODAY, WASHINGTON, at_once, until

SLOW = {"latency_ms": 300}


def told(answer):
    """(decision, type, cause) of an answer of the door."""
    body = answer.json
    if body["decision"] in ("fallback", "none"):
        of = body["fallback"] if body["decision"] == "fallback" else body
        return body["decision"], of["type"], of["cause"]
    return body["decision"], None, None


LIVE = ("live", None, None)
REJECTED = ("rejected", None, None)


def fallback(type_, cause):
    return "fallback", type_, cause


def seen(mock):
    return mock.stats()["requests_total"]


# ---- 429 and its one retry ----

def test_one_429_is_retried_and_the_answer_is_live(place, backend):
    mock = place.mock()
    mock.script({"to_request": 1, "status": 429})
    sidecar = place.sidecar(mock)
    answer = sidecar.quote()
    assert told(answer) == LIVE and answer.json["provider"]["attempts"] == 2
    assert seen(mock) == 2 and sidecar.metric("spillway_provider_retries_total", account="main") == 1


def test_429_twice_is_no_third_call(place, backend):
    mock = place.mock()
    mock.script({"status": 429})
    sidecar = place.sidecar(mock)
    answer = sidecar.quote()
    assert told(answer) == fallback("rate-limit-429", "retry-429")
    assert answer.json["provider"]["attempts"] == seen(mock) == 2 and answer.json["provider"]["status"] == 429
    flag = sidecar.flag(answer.json["fallback"]["flag_id"])
    assert (flag["evidence"]["attempts"], flag["evidence"]["provider_status"]) == (2, 429)


def test_a_retry_takes_a_token_of_its_own(place, backend):
    mock = place.mock()
    mock.script({"status": 429})
    sidecar = place.sidecar(mock, account={"limit": {"rate": "1/d", "burst": 1}})
    assert told(sidecar.quote()) == fallback("rate-limit-429", "retry-no-token")
    assert seen(mock) == 1


def test_a_large_retry_after_parks_nobody(place, backend):
    mock = place.mock()
    mock.script({"status": 429, "headers": {"Retry-After": "3600"}})
    sidecar = place.sidecar(mock, account={"deadline": "300ms"})
    first = sidecar.quote()
    assert told(first) == fallback("rate-limit-429", "retry-too-late")
    for answer in at_once(50, lambda i: sidecar.quote()):
        assert told(answer) == fallback("rate-limit-proactive", "gate-shut")
        assert 3590_000 < answer.json["fallback"]["live_again_in_ms"] <= 3600_000
    assert seen(mock) == 1 and len(sidecar.flags()) >= 1
    until(lambda: len(sidecar.flags()) == 51, "51 flags")
    assert 3590 < sidecar.metric("spillway_gate_shut_seconds", account="main") <= 3600


@pytest.mark.parametrize("value, least_ms, most_ms", [("0.503", 503, 1000), ("2.0", 2000, 2000),
                                                      ("0", 1000, 1000), ("soon", 1000, 1000)])
def test_odd_waits(place, value, least_ms, most_ms):
    mock = place.mock()
    mock.script({"to_request": 1, "status": 429, "headers": {"Retry-After": value}})
    sidecar = place.sidecar(mock, account={"deadline": "100ms"})
    begun = time.monotonic()
    assert told(sidecar.quote()) == fallback("rate-limit-429", "retry-too-late")
    assert 0 < sidecar.quote().json["fallback"]["live_again_in_ms"] <= most_ms + 1  # rounded up
    until(lambda: told(sidecar.quote()) == LIVE, "opening of the gate")
    assert time.monotonic() - begun >= least_ms / 1000


# ---- failures ----

@pytest.mark.parametrize("step, cause", [
    ({"status": 500}, "status-5xx"),
    ({"status": 503}, "status-5xx"),
    ({"action": "garbage"}, "bad-answer"),
    ({"action": "wrong-length"}, "bad-answer"),
    ({"action": "huge"}, "bad-answer"),
    ({"status": 200, "body": ""}, "bad-answer"),
    ({"status": 200, "body": "{}"}, "bad-answer"),
    ({"status": 200, "body": "[" * 100000}, "bad-answer"),
    ({"status": 200, "body": '{"items":[{"lineItems":[]}]}'}, "bad-answer"),
    ({"status": 302, "headers": {"Location": "http://127.0.0.1:1/"}}, "bad-answer"),
])
def test_broken_answers_fall_back_and_harm_nothing(place, backend, step, cause):
    mock = place.mock()
    mock.script({**step, "to_request": 3})
    sidecar = place.sidecar(mock, account={"breaker": {"mode": "disabled"}})
    for _ in range(3):
        answer = sidecar.quote()
        assert answer.status == 200 and told(answer) == fallback("provider-error", cause), answer
        assert answer.json["provider"]["attempts"] == 1 and answer.json["tax"] == "6.71"
    assert told(sidecar.quote()) == LIVE
    assert seen(mock) == 4


@pytest.mark.parametrize("action", ["reset", "close"])
def test_a_connection_cut_falls_back(place, backend, action):
    mock = place.mock()
    mock.script({"action": action})
    sidecar = place.sidecar(mock, account={"breaker": {"mode": "disabled"}})
    for _ in range(3):
        decision, type_, cause = told(sidecar.quote())
        assert (decision, type_) == ("fallback", "provider-error") and cause in ("bad-answer", "connect")
    mock.script()
    assert told(sidecar.quote()) == LIVE


@pytest.mark.parametrize("step", [{"action": "stall"}, {"action": "trickle", "trickle_ms": 200}])
def test_a_silent_provider_times_out_at_the_deadline(place, backend, step):
    mock = place.mock()
    mock.script(step)
    sidecar = place.sidecar(mock, account={"deadline": "700ms", "breaker": {"mode": "disabled"}})

    def one(i):
        begun = time.monotonic()
        answer = sidecar.quote(deadline_ms=400 if i % 2 else None)
        return time.monotonic() - begun, answer
    for i, (took, answer) in enumerate(at_once(8, one)):
        assert told(answer) == fallback("provider-timeout", "timeout")
        assert took >= (0.4 if i % 2 else 0.7)
    until(lambda: mock.stats()["in_flight"] == 0, "the calls' end at the provider")


def test_a_key_that_is_refused_is_no_fault_of_the_caller(place, backend):
    mock = place.mock("--api-key", "another")
    sidecar = place.sidecar(mock)
    answer = sidecar.quote()
    assert told(answer) == fallback("provider-error", "bad-answer"), answer
    assert sidecar.flag(answer.json["fallback"]["flag_id"])["evidence"]["provider_status"] == 401


def test_a_new_key_in_its_file_is_used(place, backend):
    mock = place.mock("--api-key", "the-new-key")
    sidecar = place.sidecar(mock, account={"breaker": {"mode": "disabled"}})
    assert told(sidecar.quote()) == fallback("provider-error", "bad-answer")
    (place.directory / "api-key").write_text("the-new-key\n")
    until(lambda: told(sidecar.quote()) == LIVE, "use of the new key")
    assert "the-new-key" not in sidecar.log()


# ---- the breaker ----

def open_by_429(mock, sidecar, count=5):
    """So many calls in flight together, each answered 429."""
    mock.script({"status": 429, **SLOW})
    before = seen(mock)
    answers = at_once(count, lambda i: sidecar.quote(deadline_ms=900))
    assert seen(mock) - before == count
    return answers


def test_five_429_in_a_row_open_the_breaker_and_one_probe_closes_it(place, backend):
    mock = place.mock()
    sidecar = place.sidecar(mock, account={"breaker": {"cooldown": "3s"}})
    for answer in open_by_429(mock, sidecar):
        assert told(answer)[:2] == ("fallback", "rate-limit-429")
    assert sidecar.breaker() == "open"
    mock.script(SLOW)
    for answer in at_once(10, lambda i: sidecar.quote()):
        assert told(answer) == fallback("circuit-breaker-open", "breaker-open")
        assert 0 < answer.json["fallback"]["live_again_in_ms"] <= 3000
    assert seen(mock) == 5
    until(lambda: sidecar.ctl("breaker", "get", "main", "--json") and open_for_ms(sidecar) == 0, "the cooldown's end")
    answers = [told(answer) for answer in at_once(20, lambda i: sidecar.quote())]
    assert seen(mock) == 6, "one probe"
    assert answers.count(LIVE) == 1
    assert answers.count(fallback("circuit-breaker-open", "breaker-open")) == 19
    assert sidecar.breaker() == "closed"
    assert all(told(answer) == LIVE for answer in at_once(5, lambda i: sidecar.quote()))


def open_for_ms(sidecar):
    breaker = json.loads(sidecar.ctl("breaker", "get", "main", "--json").stdout)["breaker"]
    return int(breaker.get("open_for_ms", 0))


def test_a_probe_that_fails_opens_it_again(place, backend):
    mock = place.mock()
    sidecar = place.sidecar(mock, account={"breaker": {"cooldown": "1500ms..6s"}})
    open_by_429(mock, sidecar)
    mock.script({"status": 500})
    until(lambda: open_for_ms(sidecar) == 0, "the cooldown's end")
    assert told(sidecar.quote())[:2] == ("fallback", "provider-error")
    assert sidecar.breaker() == "open" and open_for_ms(sidecar) > 1500
    assert told(sidecar.quote()) == fallback("circuit-breaker-open", "breaker-open")
    assert seen(mock) == 6


def test_four_429_do_not_open_it(place, backend):
    mock = place.mock()
    sidecar = place.sidecar(mock)
    open_by_429(mock, sidecar, count=4)
    assert sidecar.breaker() == "closed"


def test_bad_input_does_not_open_the_breaker_and_failures_do(place, backend):
    mock = place.mock()
    mock.script({"share": 0.5, "status": 400}, {"status": 422})
    sidecar = place.sidecar(mock, account={"breaker": {"ratio_429": "50%", "minimum": 20}})
    for answer in at_once(20, lambda i: [sidecar.quote() for _ in range(10)]):
        assert {told(one) for one in answer} == {REJECTED}
    mock.script()
    assert {told(sidecar.quote()) for _ in range(10)} == {LIVE}
    assert sidecar.breaker() == "closed" and sidecar.flags() == []
    # The 210 good outcomes must have left the window of ten seconds, or 20 bad ones are no 50 %.
    mock.script({"status": 503})
    for _ in range(30):
        at_once(20, lambda i: sidecar.quote())
        if sidecar.breaker() == "open":
            break
        time.sleep(0.5)
    assert sidecar.breaker() == "open"


@pytest.mark.parametrize("mode", ["observe", "disabled"])
def test_a_breaker_that_only_observes_stops_no_call(place, mode):
    mock = place.mock()
    sidecar = place.sidecar(mock, account={"breaker": {"mode": mode, "cooldown": "1h"}})
    open_by_429(mock, sidecar)
    mock.script()
    until(lambda: told(sidecar.quote()) == LIVE, "a live answer once the gate is open")


def test_a_breaker_held_by_hand(place, backend):
    mock = place.mock()
    sidecar = place.sidecar(mock)
    sidecar.ctl("breaker", "open", "main")
    assert told(sidecar.quote()) == fallback("circuit-breaker-open", "breaker-forced")
    assert seen(mock) == 0
    sidecar.ctl("breaker", "auto", "main")
    assert told(sidecar.quote()) == LIVE


# ---- limits ----

def test_what_remains_below_the_buffer(place, backend):
    mock = place.mock("--limit", "5/s", "--burst", "10", "--headers", "x-ratelimit")
    sidecar = place.sidecar(mock, account={"header_buffer": "50%"})
    answers = [sidecar.quote() for _ in range(12)]
    outcomes = [told(answer) for answer in answers]
    low = fallback("rate-limit-proactive", "remaining-below-buffer")
    assert set(outcomes) == {LIVE, low}
    first = outcomes.index(low)
    # Of ten tokens four are left after the sixth call, but for what is refilled meanwhile.
    assert 6 <= first <= 9 and set(outcomes[first:]) == {low}
    evidence = sidecar.flag(answers[-1].json["fallback"]["flag_id"])["evidence"]
    assert int(evidence["limit"]) == 10 and int(evidence["remaining"]) < 5
    until(lambda: told(sidecar.quote()) == LIVE, "opening by itself")
    assert mock.stats()["over_limit"] == 0


def test_an_empty_bucket(place, backend):
    mock = place.mock()
    sidecar = place.sidecar(mock, account={"limit": {"rate": "1/d", "burst": 3}})
    assert [told(sidecar.quote()) for _ in range(3)] == [LIVE] * 3
    answer = sidecar.quote()
    assert told(answer) == fallback("rate-limit-proactive", "bucket-empty")
    assert 86_000_000 < answer.json["fallback"]["live_again_in_ms"] <= 86_400_000
    assert seen(mock) == 3 and answer.json["provider"]["attempts"] == 0


def test_a_burst_of_callers_never_gets_more_than_the_bucket(place, backend):
    mock = place.mock()
    sidecar = place.sidecar(mock, account={"limit": {"rate": "1/d", "burst": 20}})
    outcomes = [told(answer) for answer in at_once(40, lambda i: sidecar.quote())]
    assert outcomes.count(LIVE) == seen(mock) == 20


def test_batch_leaves_the_reserve_to_checkout(place, backend):
    mock = place.mock()
    sidecar = place.sidecar(mock, account={"limit": {"rate": "1/d", "burst": 10}, "batch_reserve": "50%"})
    batch = [told(sidecar.quote(integration="night")) for _ in range(7)]
    assert batch == [LIVE] * 5 + [fallback("rate-limit-proactive", "batch-reserve")] * 2
    assert [told(sidecar.quote()) for _ in range(6)] == [LIVE] * 5 + [fallback("rate-limit-proactive", "bucket-empty")]


def test_pods_share_the_limit(place, backend):
    mock = place.mock()
    sidecar = place.sidecar(mock, account={"limit": {"rate": "40/d", "burst": 40, "pods": 10}})
    assert [told(sidecar.quote()) for _ in range(5)] == [LIVE] * 4 + [
        fallback("rate-limit-proactive", "bucket-empty")]


def test_rate_zero_never_calls(place, backend):
    mock = place.mock()
    sidecar = place.sidecar(mock, account={"limit": {"rate": "0/s", "burst": None}})
    burst = 0
    while told(sidecar.quote()) == LIVE:
        burst += 1
        assert burst <= 1
    decision, type_, cause = told(sidecar.quote())
    assert (decision, type_) == ("fallback", "rate-limit-proactive") and cause in ("rate-zero", "bucket-empty")
    assert seen(mock) == burst


def test_calls_in_flight_are_capped(place, backend):
    mock = place.mock("--latency", "700ms")
    sidecar = place.sidecar(mock, account={"concurrency": 3})
    outcomes = [told(answer) for answer in at_once(8, lambda i: sidecar.quote())]
    assert outcomes.count(LIVE) == 3
    assert outcomes.count(fallback("rate-limit-proactive", "concurrency")) == 5
    assert told(sidecar.quote()) == LIVE


# ---- when there is no live answer ----

DOWN = "http://127.0.0.1:1"
NOWHERE = {"country": "US", "state": "WA", "zip": "99999"}
NO_STATE_KNOWN = {"country": "US", "state": "GU", "zip": "96910"}


def test_no_rate_known_is_not_zero(place, backend):
    sidecar = place.sidecar(DOWN)
    answer = sidecar.quote(ship_to=NOWHERE, decision_id="d-1")
    assert answer.status == 503
    body = answer.json
    body.pop("provider")
    assert body == {"decision": "none", "decision_id": "d-1", "tax": None, "reason": "no-rate",
                    "type": "provider-error", "cause": "connect"}
    assert answer.headers["Spillway-Decision"] == "none" and answer.headers["Spillway-Tax-Minor"] is None
    assert answer.headers["Spillway-Reason"] == "no-rate"
    assert sidecar.flags() == []


def test_a_state_average(place, backend):
    sidecar = place.sidecar(DOWN, config={"fallback": {"on_no_rate": "state_average"}})
    answer = sidecar.quote(ship_to=NOWHERE).json
    assert (answer["fallback"]["match"], answer["fallback"]["source"]) == ("state-average", "sample")
    assert 0 < float(answer["fallback"]["rates"]["combined"]) < 0.12
    assert sidecar.quote(ship_to=NO_STATE_KNOWN).status == 503


def test_a_default_rate(place, backend):
    sidecar = place.sidecar(DOWN, config={"fallback": {"on_no_rate": "default_rate", "default_rate": "0.10"}})
    answer = sidecar.quote(ship_to=NOWHERE)
    fallback_ = answer.json["fallback"]
    assert (answer.json["tax"], fallback_["match"], fallback_["rates"]["combined"]) == ("7.30", "default-rate", "0.1")
    assert (fallback_["source"], fallback_["as_of"]) == (None, None)
    assert sidecar.quote().json["tax"] == "6.71"  # where a rate is known, it is used
    assert "rates" not in sidecar.flag(fallback_["flag_id"]) or \
        "source" not in sidecar.flag(fallback_["flag_id"])["rates"]


def test_states_without_nexus_are_untaxed_by_rule(place, backend):
    sidecar = place.sidecar(DOWN, config={"fallback": {"nexus": ["NY", "TX"]}})
    answer = sidecar.quote().json
    assert (answer["tax"], answer["fallback"]["match"], answer["fallback"]["nexus"]) == (
        "0.00", "no-nexus", "not-registered")
    assert sidecar.flag(answer["fallback"]["flag_id"])["match"] == "no-nexus"


def test_tax_code_rules(place, backend):
    rules = {"default": "general", "20010": "exempt", "30070": "refuse", "11010": "exempt"}
    sidecar = place.sidecar(DOWN, config={"fallback": {"tax_codes": rules}})
    answer = sidecar.quote().json
    assert [line["tax"] for line in answer["lines"]] == ["3.68", "0.00"]
    assert (answer["shipping"], answer["tax"]) == ({"taxable": "0.00", "tax": "0.00"}, "3.68")
    assert "line 2: 20010 exempt by rule" in answer["fallback"]["assumed"]
    refused = sidecar.quote(lines=[{"id": "1", "amount": "5.00", "tax_code": "30070"}])
    assert (refused.status, refused.json["reason"]) == (503, "tax-code-refused")
    assert len(sidecar.flags()) <= 1


def test_exemptions_are_taken_as_stated(place, backend):
    mock = place.mock()
    sidecar = place.sidecar(mock)
    for customer, tax in (({"id": "7", "exemption": "resale"}, "0.00"), ({"id": "8", "exemption": None}, "6.02")):
        assert sidecar.quote(customer=customer).json["tax"] == tax
    mock.script({"status": 500})
    exempt = sidecar.quote(customer={"id": "7", "exemption": "resale"}).json
    assert (exempt["tax"], exempt["fallback"]["match"]) == ("0.00", "exempt")
    assert "resale exemption taken as stated" in exempt["fallback"]["assumed"]
    assert sidecar.quote(customer={"id": "8"}).json["tax"] == "6.71"


@pytest.mark.parametrize("zip_code", ["98110-2104", "981102104", " 98110 ", "98110-", "98110"])
def test_a_longer_zip_finds_the_five_digits(place, zip_code):
    """The provider's own check of the ZIP is not what this is about: it is down."""
    sidecar = place.sidecar(DOWN)
    answer = sidecar.quote(ship_to={**WASHINGTON, "zip": zip_code}, shipping={"amount": "0"},
                           lines=[{"id": "1", "amount": "100.00"}])
    assert answer.status == 200, answer
    assert (answer.json["tax"], answer.json["fallback"]["match"]) == ("9.20", "zip5")


def test_rates_grow_old(place, backend):
    rates = {"file": str(place.rates), "source": "sample"}
    old = {"rates": [{**rates, "as_of": str(TODAY - datetime.timedelta(days=50))}]}
    sidecar = place.sidecar(DOWN, config={"fallback": old})
    answer = sidecar.quote().json["fallback"]
    assert (answer["age_days"], answer["stale"]) in ((50, True), (51, True))
    sidecar.stop()
    older = {"rates": [{**rates, "as_of": str(TODAY - datetime.timedelta(days=121))}]}
    sidecar = place.sidecar(config={"fallback": older})
    answer = sidecar.quote()
    assert (answer.status, answer.json["reason"]) == (503, "rates-too-old")


def test_rounding_once_per_order(place, backend):
    sidecar = place.sidecar(DOWN, config={"fallback": {"rounding": "half-up/order"}})
    lines = [{"id": str(i), "amount": "0.05"} for i in range(10)]  # 0.0046 each: nothing, or five cents in all
    answer = sidecar.quote(lines=lines, shipping={"amount": "0.00"}).json
    assert (answer["tax"], answer["rounding"]) == ("0.05", "half-up/order")
    assert round(sum(float(line["tax"]) for line in answer["lines"]), 2) == 0.05


def test_a_cart_that_is_never_placed_stays_provisional(place, backend):
    sidecar = place.sidecar(DOWN)
    cart = sidecar.quote(purpose="estimate", quote_ref="q-1").json
    order = sidecar.quote(purpose="order", quote_ref="q-1").json
    assert sidecar.order(order["quote_id"], "o-1", order["tax"]).status == 202
    until(lambda: [flag["state"] for flag in sidecar.flags()] == ["provisional", "confirmed"], "one order placed")
    flags = sidecar.flags()
    assert flags[0]["quote_id"] == cart["quote_id"] and "order" not in flags[0]
    assert [flag["purpose"] for flag in flags] == ["estimate", "order"]
    assert len(sidecar.ctl("flags", "find", "q-1", "--json").stdout) > 0


def test_one_decision_has_one_flag(place, backend):
    sidecar = place.sidecar(DOWN)
    for _ in range(5):
        assert sidecar.quote(decision_id="the-same").status == 200
    sidecar.quote(decision_id="another")
    until(lambda: {flag["decision_id"] for flag in sidecar.flags()} == {"the-same", "another"}, "both")
    assert len(sidecar.flags()) == 2


def test_no_free_cell_hands_the_flag_back(place, backend):
    """The ledger's file cannot be written: cells fill, and nothing is said that is not recorded."""
    sidecar = place.sidecar(DOWN, config={"segment": {"cells": 64}})
    sidecar.quote()
    until(lambda: len(sidecar.flags()) == 1, "the first flag")
    with sqlite3.connect(place.ledger) as db:
        db.execute("BEGIN EXCLUSIVE")
        answers = [sidecar.quote(decision_id=f"f-{i}") for i in range(80)]
        handed = [a.json["fallback"]["handback"] for a in answers if a.json["decision"] == "fallback"
                  and a.json["fallback"]["flag_id"] is None]
        assert handed and all(answer.status == 200 for answer in answers)
        assert handed[-1]["decision_id"] == "f-79" and handed[-1]["tax"] == "6.71", handed[-1]
        db.rollback()
    until(lambda: len(sidecar.flags()) == 81 - len(handed), "the recorded ones")
