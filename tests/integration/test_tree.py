"""The decision tree over several callers: joined calls, reused carts, decisions asked again, waiting for a token.

Needs SPILLWAY_BIN.
"""
import json
import re
import socket
import threading

import pytest

from far_end import FarEnd
from harness import KEY, UnixConnection, at_once, quote_body, until
from test_decisions import DOWN, LIVE, SLOW, fallback, seen, told
from test_engine import Listener

CART = {"customer": {"id": "c_7", "exemption": None}}


def asked_at_once(sidecar, count, **changes):
    return at_once(count, lambda i: sidecar.quote(decision_id=f"d-{i}", **{**CART, **changes}))


# ---- joined ----

def test_identical_calls_in_flight_are_one(place, backend):
    mock = place.mock("--latency", "400ms")
    sidecar = place.sidecar(mock)
    answers = asked_at_once(sidecar, 12)
    assert {told(answer) for answer in answers} == {LIVE} and seen(mock) == 1
    assert {answer.json["decision_id"] for answer in answers} == {f"d-{i}" for i in range(12)}
    assert len({answer.json["quote_id"] for answer in answers}) == 12
    assert len({answer.json["tax"] for answer in answers}) == 1
    assert sidecar.metric("spillway_quotes_without_call_total", account="main", how="joined") == 11
    assert all(answer.json["reused"] is False for answer in answers)


def test_every_joined_fallback_has_its_own_flag(place, backend):
    mock = place.mock()
    mock.script({"status": 503, **SLOW})
    sidecar = place.sidecar(mock)
    answers = asked_at_once(sidecar, 8)
    assert {told(answer) for answer in answers} == {fallback("provider-error", "status-5xx")} and seen(mock) == 1
    given = {answer.json["fallback"]["flag_id"] for answer in answers}
    until(lambda: {flag["flag_id"] for flag in sidecar.flags()} == given, "eight flags")
    assert len(given) == 8


def test_joined_quotes_share_one_retry(place, backend):
    mock = place.mock()
    mock.script({"to_request": 1, "status": 429, **SLOW})
    sidecar = place.sidecar(mock)
    answers = asked_at_once(sidecar, 6)
    assert {told(answer) for answer in answers} == {LIVE} and seen(mock) == 2
    assert {answer.json["provider"]["attempts"] for answer in answers} == {2}


@pytest.mark.parametrize("change", [
    {"customer": {"id": "c_8", "exemption": None}}, {"customer": {"id": "c_7", "exemption": "resale"}},
    {"date": "2025-11-28"}, {"lines": [{"id": "1", "tax_code": "0", "quantity": "2", "amount": "39.99"}]},
    {"shipping": {"amount": "7.96", "tax_code": "11010"}}, {"ship_to": {"state": "WA", "zip": "98110-1235"}}])
def test_what_changes_the_answer_is_no_identical_cart(place, change):
    """TAX-H3 among them: the exemption belongs in the key."""
    mock = place.mock("--latency", "200ms")
    sidecar = place.sidecar(mock, account={"reuse": "10m"})
    at_once(2, lambda i: sidecar.quote(**{**CART, **(change if i else {})}))
    assert seen(mock) == 2
    sidecar.quote(**{**CART, **change})
    sidecar.quote(**CART)
    assert seen(mock) == 2, "each has its own entry"


def test_who_began_the_call_may_hang_up(place, backend):
    mock = place.mock("--latency", "700ms")
    sidecar = place.sidecar(mock)
    first = UnixConnection(place.pub / "quote.sock")
    first.connect()
    first.request("POST", "/spillway/v1/quote", json.dumps(quote_body(decision_id="leader", **CART)).encode())
    until(lambda: seen(mock) == 1, "the first call")
    answers = []
    thread = threading.Thread(target=lambda: answers.append(sidecar.quote(decision_id="follower", **CART)))
    thread.start()
    until(lambda: sidecar.metric("spillway_quotes_without_call_total", account="main", how="joined") == 1, "joining")
    first.sock.shutdown(socket.SHUT_RDWR)
    first.close()
    thread.join()
    assert told(answers[0]) == LIVE and answers[0].json["decision_id"] == "follower" and seen(mock) == 1
    assert sidecar.flags() == []


def test_each_joined_quote_keeps_its_own_deadline(place, backend):
    mock = place.mock("--latency", "900ms")
    sidecar = place.sidecar(mock)
    answers = at_once(2, lambda i: sidecar.quote(deadline_ms=[300, 5000][i], **CART))
    assert told(answers[0]) == fallback("provider-timeout", "timeout")
    assert told(answers[1]) == LIVE and seen(mock) == 1
    assert sidecar.breaker() == "closed"


def test_nobody_joins_a_retry_that_comes_too_late(place, backend):
    mock = place.mock()
    mock.script({"to_request": 1, "status": 429})
    sidecar = place.sidecar(mock)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(sidecar.quote(**CART)))
    thread.start()
    until(lambda: sidecar.metric("spillway_provider_requests_total", account="main", result="throttled") == 1, "a 429")
    short = sidecar.quote(deadline_ms=300, **CART)
    assert told(short) == fallback("rate-limit-proactive", "gate-shut"), "at once, not at its deadline"
    thread.join()
    assert told(answers[0]) == LIVE and seen(mock) == 2


# ---- a lock is no rate limit ----

def test_a_429_that_speaks_of_a_lock_counts_for_nothing(place, backend):
    """Stripe's, without a reason: tried once more, and neither gate nor breaker shut."""
    far = FarEnd("stripe", f"Bearer {KEY}")
    far.mode = 429
    sidecar = place.sidecar(far.url, account={"provider": "stripe", "connection": None, "deadline": "2s",
                                              "breaker": {"consecutive_429": 2, "minimum": 2}})
    lines = [{"id": "1", "amount": "39.98"}]
    answers = at_once(4, lambda i: sidecar.quote(lines=lines, shipping=None, customer={"id": f"c-{i}"}))
    assert {told(answer)[:2] for answer in answers} == {("fallback", "provider-error")}
    assert len(far.asked) == 8 and sidecar.breaker() == "closed"
    far.mode = "live"
    assert told(sidecar.quote(lines=lines, shipping=None)) == LIVE
    far.close()


def test_a_refusal_for_too_many_at_once_is_told_apart(place, backend):
    """The gate shuts for a moment as for any 429; the log names the limit that is to be mended, once a refusal."""
    def serve(connection):
        data = b""
        while more := connection.recv(65536):
            data += more
            head, _, body = data.partition(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head.lower())
            if length and len(body) >= int(length[1]):
                data = b""
                connection.sendall(b"HTTP/1.1 429 Too Many Requests\r\nStripe-Rate-Limited-Reason: "
                                   b"endpoint-concurrency\r\nContent-Length: 2\r\n\r\n{}")
    stub = Listener(serve)
    sidecar = place.sidecar(f"http://127.0.0.1:{stub.port}", account={"provider": "stripe", "connection": None,
                                                                      "deadline": "800ms"})
    lines = [{"id": "1", "amount": "39.98"}]
    assert told(sidecar.quote(lines=lines, shipping=None)) == fallback("rate-limit-429", "retry-too-late")
    assert told(sidecar.quote(lines=lines, shipping=None))[1] == "rate-limit-proactive"
    assert "provider.concurrency: account main: " in sidecar.log() and "1 in flight and concurrency is 0" in sidecar.log()
    stub.close()


# ---- reused ----

def test_an_identical_cart_is_reused_for_its_time(place, backend):
    mock = place.mock()
    sidecar = place.sidecar(mock, account={"reuse": "1500ms"})
    first = sidecar.quote(purpose="estimate", **CART)
    again = sidecar.quote(purpose="order", quote_ref="other", decision_id="mine", **CART)
    assert told(again) == LIVE and again.json["reused"] is True and first.json["reused"] is False
    assert again.json["tax"] == first.json["tax"] and again.json["lines"] == first.json["lines"]
    assert again.json["quote_id"] != first.json["quote_id"] and again.json["decision_id"] == "mine"
    assert again.json["provider"]["attempts"] == 0 and again.json["provider"]["status"] == 200
    assert seen(mock) == 1
    assert sidecar.metric("spillway_quotes_without_call_total", account="main", how="reused") == 1
    until(lambda: sidecar.quote(**CART).json["reused"] is False, "the end of its time")
    assert seen(mock) == 2


def test_a_fallback_is_never_reused(place, backend):
    mock = place.mock()
    mock.script({"to_request": 1, "status": 503})
    sidecar = place.sidecar(mock, account={"reuse": "10m"})
    assert told(sidecar.quote(**CART)) == fallback("provider-error", "status-5xx")
    answer = sidecar.quote(**CART)
    assert told(answer) == LIVE and answer.json["reused"] is False
    mock.script({"status": 503})
    assert sidecar.quote(**CART).json["reused"] is True, "live answers hold while the provider is down"


# ---- asked again ----

def test_the_same_decision_has_the_same_answer(place, backend):
    mock = place.mock()
    sidecar = place.sidecar(mock)
    first = sidecar.quote(decision_id="once", **CART)
    assert sidecar.quote(decision_id="once", **CART).json == first.json and seen(mock) == 1
    other = sidecar.quote(decision_id="once", **{**CART, "shipping": {"amount": "1.00"}})
    assert other.json["tax"] != first.json["tax"] and seen(mock) == 2, "another cart is another decision"


def test_a_fallback_asked_again_is_the_very_same_with_its_flag(place, backend):
    sidecar = place.sidecar(DOWN)
    first = sidecar.quote(decision_id="once", quote_ref="r", **CART)
    again = sidecar.quote(decision_id="once", quote_ref="r", **CART)
    assert again.json == first.json and again.headers["Spillway-Flag"] == first.headers["Spillway-Flag"]
    sidecar.flag(first.json["fallback"]["flag_id"])
    assert len(sidecar.flags()) == 1
    sidecar.kill()
    sidecar = place.sidecar(place.mock())
    after = sidecar.quote(decision_id="once", quote_ref="r", **CART)
    for body in (first.json, after.json):
        body["provider"].pop("ms")
        body["fallback"].pop("live_again_in_ms")
    assert after.json == first.json, "from the ledger, though the provider answers again"
    assert len(sidecar.flags()) == 1
    assert told(sidecar.quote(decision_id="another", **CART)) == LIVE


def test_the_same_decision_asked_at_once_is_one_decision(place, backend):
    mock = place.mock()
    mock.script({"status": 503, **SLOW})
    sidecar = place.sidecar(mock)
    answers = at_once(5, lambda i: sidecar.quote(decision_id="once", **CART))
    assert len({answer.json["quote_id"] for answer in answers}) == 1
    assert len({answer.json["fallback"]["flag_id"] for answer in answers}) == 1 and seen(mock) == 1
    until(lambda: len(sidecar.flags()) == 1, "the one flag")


# ---- waiting for a token ----

def test_a_quote_may_wait_for_its_token(place, backend):
    mock = place.mock()
    sidecar = place.sidecar(mock, account={"limit": {"rate": "4/s", "burst": 1, "pods": 1}, "wait": "2s"})
    answers = at_once(5, lambda i: sidecar.quote())
    assert {told(answer) for answer in answers} == {LIVE} and seen(mock) == 5
    assert sidecar.metric("spillway_tokens", account="main") < 1


def test_it_waits_no_longer_than_allowed(place, backend):
    mock = place.mock()
    sidecar = place.sidecar(mock, account={"limit": {"rate": "1/min", "burst": 1, "pods": 1}, "wait": "500ms"})
    assert told(sidecar.quote()) == LIVE
    assert told(sidecar.quote()) == fallback("rate-limit-proactive", "bucket-empty") and seen(mock) == 1


# ---- shown on demand ----

def test_a_developer_sees_each_fallback(place, backend):
    mock = place.mock()
    sidecar = place.sidecar(mock, account={"allow_force": True})
    for name in ("rate-limit-proactive", "rate-limit-429", "circuit-breaker-open", "provider-timeout",
                 "provider-error", "sidecar-unavailable"):
        answer = sidecar.post("/spillway/v1/quote", quote_body(), headers={"Spillway-Force": name})
        assert told(answer) == fallback(name, "forced")
        assert sidecar.flag(answer.json["fallback"]["flag_id"])["cause"] == "forced"
    bad = sidecar.post("/spillway/v1/quote", quote_body(), headers={"Spillway-Force": "live"})
    assert bad.status == 400 and "Spillway-Force" in bad.json["detail"] and seen(mock) == 0


def test_forcing_is_refused_where_it_is_not_allowed(place):
    mock = place.mock()
    sidecar = place.sidecar(mock)
    answer = sidecar.post("/spillway/v1/quote", quote_body(), headers={"Spillway-Force": "rate-limit-429"})
    assert answer.status == 403 and "allow_force" in answer.json["detail"]
    assert seen(mock) == 0 and sidecar.flags() == []


# ---- looked up ----

def test_decisions_are_looked_up_by_every_id(place, backend):
    mock = place.mock()
    mock.script({"to_request": 1, "status": 503})
    sidecar = place.sidecar(mock)
    fell = sidecar.quote(decision_id="d-1", quote_ref="cart-1").json
    live = sidecar.quote(decision_id="d-2", quote_ref="cart-1").json
    assert sidecar.order(fell["quote_id"], "o-1", fell["tax"]).status == 202

    def found(ref):
        answer = sidecar.post(f"/spillway/v1/decisions?ref={ref}", method="GET")
        assert answer.status == 200 and answer.json["ref"] == ref
        return answer.json["decisions"]
    until(lambda: [one.get("state") for one in found("d-1")] == ["confirmed"], "the order")
    for ref in ("d-1", fell["quote_id"], fell["fallback"]["flag_id"], "o-1"):
        one, = found(ref)
        assert (one["decision"], one["quote_id"], one["flag_id"], one["tax"], one["order_id"], one["account"]) == (
            "fallback", fell["quote_id"], fell["fallback"]["flag_id"], fell["tax"], "o-1", "main")
    one, = found("d-2")
    assert (one["decision"], one["quote_id"], one["tax"]) == ("live", live["quote_id"], live["tax"])
    assert "flag_id" not in one
    assert {one["decision"] for one in found("cart-1")} == {"live", "fallback"}
    assert found("nobody") == []
    for path in ("/spillway/v1/decisions", "/spillway/v1/decisions?ref=", "/spillway/v1/decisions?ref=a%0ab"):
        assert sidecar.post(path, method="GET").status == 400
    assert sidecar.post("/spillway/v1/decisions?ref=x").status == 405
    assert sidecar.post_tcp("/spillway/v1/decisions?ref=d-1", method="GET").status == 401
