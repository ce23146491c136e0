"""The pass-through door as a provider's own client meets it: TaxCloud's requests and answers, and what is refused.

Needs SPILLWAY_BIN.
"""
import http.client
import itertools
import json
import re
import socket
import stat
import threading

import pytest

from harness import KEY, WATCHDOG_S, exchange, until
from test_decisions import DOWN, seen
from test_engine import Listener, answer_with
from test_mock import CONNECTION

TAX = f"/tax/connections/{CONNECTION}"


def cart(cart_id=None, customer="c_7", amount=39.98, zip_code="98110-1234"):
    one = {"customerId": customer, "currency": {"currencyCode": "USD"}, "deliveredBySeller": False,
           "origin": {"line1": "1500 Marilla St", "city": "Dallas", "state": "TX", "zip": "75201",
                      "countryCode": "US"},
           "destination": {"line1": "100 Ravine Ln NE", "city": "Bainbridge Island", "state": "WA", "zip": zip_code,
                           "countryCode": "US"},
           "lineItems": [{"index": 0, "itemId": "A", "price": amount, "quantity": 1, "tic": 0}]}
    if cart_id:
        one["cartId"] = cart_id
    return {"items": [one]}


def start(place, url=None, account=None, **more):
    return place.sidecar(url if url is not None else place.mock("--rate", "0.092"),
                         account={"listen": f"127.0.0.1:{place.pass_port}", **(account or {})}, **more)


def tax_of(answer):
    return answer.json["items"][0]["lineItems"][0]["tax"]["amount"]


# ---- live ----

def test_a_live_answer_is_passed_byte_for_byte(place, backend):
    mock = place.mock("--api-key", KEY, "--rate", "0.092")
    body = '{"items": [ {"lineItems":[{"index":0,"itemId":"A","tax":{"amount":3.68,"rate":0.092}}]} ], "odd":1 }'
    mock.script({"status": 200, "body": body, "headers": {"Content-Type": "application/json; x=1", "X-Odd": "yes",
                                                          "X-RateLimit-Remaining": "7"}})
    sidecar = start(place, mock)
    answer = sidecar.sdk("POST", TAX + "/carts", cart())
    assert (answer.status, answer.text) == (200, body)
    assert answer.headers["Content-Type"] == "application/json; x=1" and answer.headers["X-Odd"] == "yes"
    assert answer.headers["X-RateLimit-Remaining"] == "7"
    assert answer.headers["Spillway-Decision"] == "live" and answer.headers["Spillway-Tax-Minor"] == "368"
    assert sidecar.flags() == [] and seen(mock) == 1


def test_the_token_is_swapped_for_the_key(place, backend):
    """The provider takes the account's key alone, and no header that an SDK made up."""
    mock = place.mock("--api-key", KEY)
    sidecar = start(place, mock)
    for headers in ({}, {"Authorization": "Bearer other"}, {"Cookie": "a=b", "X-Forwarded-For": "1.2.3.4"}):
        assert sidecar.sdk("POST", TAX + "/carts", cart(), headers=headers).status == 200
    bearer = exchange_with(sidecar, "POST", TAX + "/carts", cart(), {"Authorization": f"Bearer {sidecar.token()}"})
    assert bearer.status == 200
    assert KEY not in bearer.text and KEY not in str(bearer.headers)


def exchange_with(sidecar, method, path, body, headers):
    connection = http.client.HTTPConnection("127.0.0.1", sidecar.place.pass_port, timeout=WATCHDOG_S)
    return exchange(connection, method, path, body, {"Content-Type": "application/json", **headers})


def test_look_ups_and_pings_are_passed_and_take_a_token(place, backend):
    mock = place.mock()
    sidecar = start(place, mock, account={"limit": {"rate": "1/h", "burst": 3, "pods": 1}})
    assert sidecar.sdk("GET", TAX + "/ping").status == 200
    assert sidecar.sdk("POST", TAX + "/carts", cart("cart-1")).status == 200
    assert sidecar.sdk("GET", TAX + "/carts/cart-1").json["cartId"] == "cart-1"
    refused = sidecar.sdk("GET", TAX + "/carts/cart-1")
    assert refused.status == 429 and int(refused.headers["Retry-After"]) > 0
    assert refused.json["status"] == 429 and "bucket-empty" in refused.json["detail"]
    assert seen(mock) == 3


def test_an_upstream_error_is_the_providers_own(place, backend):
    mock = place.mock()
    sidecar = start(place, mock)
    problem = {"title": "Bad", "status": 400, "detail": "zip", "errors": []}
    mock.script({"status": 400, "body": json.dumps(problem), "headers": {"Content-Type": "application/problem+json"}})
    for method, path, body in (("POST", "/carts", cart()), ("POST", "/orders", {"orderId": "o"}),
                               ("GET", "/orders/o", None)):
        answer = sidecar.sdk(method, TAX + path, body)
        assert answer.status == 400 and answer.json == problem
        assert answer.headers["Content-Type"] == "application/problem+json"
    assert sidecar.flags() == []


# ---- fallback ----

def test_a_fallback_has_the_providers_form_and_a_flag(place, backend):
    sidecar = start(place, DOWN)
    answer = sidecar.sdk("POST", TAX + "/carts", cart("cart-1"))
    assert answer.status == 200 and tax_of(answer) == 3.68
    assert answer.json["items"][0]["cartId"] == "cart-1" and answer.json["connectionId"] == CONNECTION
    assert answer.json["spillway"]["type"] == "provider-error"
    headers = answer.headers
    assert (headers["Spillway-Decision"], headers["Spillway-Type"], headers["Spillway-Cause"]) == (
        "fallback", "provider-error", "connect")
    assert headers["Spillway-Tax-Minor"] == "368" and headers["Spillway-Rate-Ppb"] == "92000000"
    flag = sidecar.flag(headers["Spillway-Flag"])
    assert flag["quote_ref"] == "cart-1" and flag["tax"]["amount"] == "3.68"
    assert flag["request"]["ship_to"]["line1"] == "100 Ravine Ln NE"


def test_a_429_is_retried_and_then_answered_from_the_cache(place, backend):
    mock = place.mock()
    mock.script({"status": 429})
    sidecar = start(place, mock)
    answer = sidecar.sdk("POST", TAX + "/carts", cart())
    assert answer.status == 200 and tax_of(answer) == 3.68 and seen(mock) == 2
    assert answer.headers["Spillway-Type"] == "rate-limit-429"


def test_no_rate_known_is_an_error_of_the_providers_form(place, backend):
    sidecar = start(place, DOWN)
    answer = sidecar.sdk("POST", TAX + "/carts", cart(zip_code="00001"))
    assert answer.status == 503 and answer.json["status"] == 503 and "no tax rate" in answer.json["detail"]
    assert "items" not in answer.json and sidecar.flags() == []


NO_TAX = '{"items":[{"lineItems":[{"index":0,"itemId":"A","tax":null}]}]}'


@pytest.mark.parametrize("answer", [{"status": 200, "body": "<html>ok</html>"}, {"status": 200, "body": ""},
                                    {"status": 200, "body": "{}"}, {"action": "garbage"}, {"status": 200, "body": NO_TAX}, {"action": "reset"},
                                    {"action": "wrong-length"}, {"status": 500}, {"status": 401}])
def test_a_broken_answer_never_reaches_the_sdk(place, answer):
    mock = place.mock()
    mock.script(answer)
    sidecar = start(place, mock)
    told = sidecar.sdk("POST", TAX + "/carts", cart())
    assert told.status == 200 and tax_of(told) == 3.68 and told.headers["Spillway-Decision"] == "fallback"


def lying(index=7, tax=3.68, currency="USD", items=1):
    """An answer whose line is called as nobody asked, so that only its sums can be looked at."""
    line = {"index": index, "itemId": "A", "tax": {"amount": tax, "rate": 0.092}}
    return json.dumps({"items": [{"currency": {"currencyCode": currency}, "lineItems": [line]}] * items})


def test_a_tax_that_cannot_be_one_never_reaches_the_sdk(place):
    mock = place.mock()
    sidecar = start(place, mock)
    for body, is_live in ((lying(), True), (lying(tax=0), True), (lying(tax=39.98), True), (lying(tax=-3.68), False),
                          (lying(tax=39.99), False), (lying(tax=1e30), False), (lying(tax="3.68"), False),
                          (lying().replace("3.68", "NaN"), False), (lying().replace("3.68", "1e999"), False),
                          (lying(currency="EUR"), False), (lying(items=2), False),
                          (lying().replace('"amount"', '"amount": 1, "amount"'), False)):
        mock.script({"status": 200, "body": body})
        told = sidecar.sdk("POST", TAX + "/carts", cart())
        assert told.headers["Spillway-Decision"] == ("live" if is_live else "fallback"), body
        assert tax_of(told) == (json.loads(body)["items"][0]["lineItems"][0]["tax"]["amount"] if is_live else 3.68)
        if is_live:
            assert told.headers["Spillway-Tax-Minor"] == str(round(tax_of(told) * 100))
        sidecar.ctl("breaker", "reset", "main")


def test_a_calculation_of_several_carts_has_no_fallback(place, backend):
    """It cannot be told as one quote: passed on, or refused."""
    mock = place.mock("--rate", "0.092")
    sidecar = start(place, mock)
    both = {"items": [cart("a")["items"][0], cart("b")["items"][0]]}
    assert len(sidecar.sdk("POST", TAX + "/carts", both).json["items"]) == 2
    mock.script({"action": "reset"})
    assert sidecar.sdk("POST", TAX + "/carts", both).status == 502
    assert sidecar.flags() == []


def test_an_idempotency_key_makes_one_decision(place, backend):
    sidecar = start(place, DOWN)
    first = sidecar.sdk("POST", TAX + "/carts", cart("c"), headers={"Idempotency-Key": "k-1"})
    again = sidecar.sdk("POST", TAX + "/carts", cart("c"), headers={"Idempotency-Key": "k-1"})
    assert again.text == first.text and again.headers["Spillway-Flag"] == first.headers["Spillway-Flag"]
    other = sidecar.sdk("POST", TAX + "/carts", cart("c"), headers={"Idempotency-Key": "k-2"})
    assert other.headers["Spillway-Flag"] != first.headers["Spillway-Flag"]
    until(lambda: len(sidecar.flags()) == 2, "two flags")


# ---- records ----

def convert(sidecar, cart_id, order_id):
    return sidecar.sdk("POST", TAX + "/carts/orders", {"cartId": cart_id, "orderId": order_id, "completed": True})


def test_a_record_is_never_sent_twice(place, backend):
    """A kept connection that takes a request and closes: a calculation is asked again on a fresh one, a record is not."""
    asked, body = [], json.dumps({"items": [{"lineItems": [{"index": 0, "tax": {"amount": 3.68, "rate": 0.092}}]}]})
    numbers = itertools.count(1)

    def serve(connection):
        data, count, number = b"", 0, next(numbers)
        while more := connection.recv(65536):
            data += more
            head, _, rest = data.partition(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head.lower())
            if not length or len(rest) < int(length[1]):
                continue
            asked.append((number, head.split(b" ")[1].decode()))
            data, count = b"", count + 1
            if count > 1:
                return connection.shutdown(socket.SHUT_RDWR)
            connection.sendall(answer_with(body.encode()))
    stub = Listener(serve)
    sidecar = start(place, f"http://127.0.0.1:{stub.port}")
    assert sidecar.sdk("POST", TAX + "/carts", cart()).headers["Spillway-Decision"] == "live"
    told = convert(sidecar, "c-9", "o-9")
    assert [path for _, path in asked] == [TAX + "/carts", TAX + "/carts/orders"]
    # A connection kept for more than two seconds is not used for a record at all.
    assert told.status == (502 if asked[1][0] == 1 else 200), "what became of it is not known"
    for _ in range(3):
        assert sidecar.sdk("POST", TAX + "/carts", cart()).headers["Spillway-Decision"] == "live", "replaced once"
    assert [path for _, path in asked].count(TAX + "/carts/orders") == 1
    stub.close()


def test_a_commit_of_a_live_cart_is_passed(place, backend):
    mock = place.mock()
    sidecar = start(place, mock)
    assert sidecar.sdk("POST", TAX + "/carts", cart("cart-1")).status == 200
    assert convert(sidecar, "cart-1", "o-1").status == 201
    assert mock.tax("GET", "orders/o-1")[0] == 200
    until(lambda: sidecar.metric("spillway_orders", state="placed") == 1, "the order in the ledger")
    assert sidecar.flags() == []


@pytest.mark.parametrize("restart", [False, True])
def test_a_commit_of_a_fallback_is_recorded_and_not_faked(place, restart):
    sidecar = start(place, DOWN)
    fell = sidecar.sdk("POST", TAX + "/carts", cart("cart-1"))
    sidecar.flag(fell.headers["Spillway-Flag"])
    mock = place.mock()
    if restart:
        sidecar.stop()
        sidecar = start(place, mock)
    answer = convert(sidecar, "cart-1", "o-1")
    assert answer.status == 201 and answer.json["orderId"] == "o-1" and answer.json["completedDate"] is None
    assert answer.json["completed"] is False and answer.json["spillway"]["fallback"] is True
    assert answer.headers["Spillway-Recorded"] == "order"
    assert answer.headers["Spillway-Flag"] == fell.headers["Spillway-Flag"]
    until(lambda: sidecar.flag(fell.headers["Spillway-Flag"])["state"] == "confirmed", "the order")
    flag = sidecar.flag(fell.headers["Spillway-Flag"])
    assert flag["order"]["order_id"] == "o-1" and flag["order"]["tax_collected"]["amount"] == "3.68"
    assert mock.tax("GET", "orders/o-1")[0] == 404
    assert convert(sidecar, "cart-1", "o-1").status == 201, "told again, it is the same order"
    refund = sidecar.sdk("POST", TAX + "/orders/refunds/cart-1", {})
    assert refund.status in (429, 404)


def test_a_cart_that_is_live_after_all_is_passed(place, backend):
    mock = place.mock()
    mock.script({"to_request": 1, "status": 503})
    sidecar = start(place, mock)
    assert sidecar.sdk("POST", TAX + "/carts", cart("cart-1")).headers["Spillway-Decision"] == "fallback"
    assert sidecar.sdk("POST", TAX + "/carts", cart("cart-1")).headers["Spillway-Decision"] == "live"
    answer = convert(sidecar, "cart-1", "o-1")
    assert answer.status == 201 and "spillway" not in answer.json
    assert mock.tax("GET", "orders/o-1")[0] == 200


def test_a_record_is_never_answered_from_a_cache(place, backend):
    sidecar = start(place, DOWN)
    answer = sidecar.sdk("POST", TAX + "/orders", {"orderId": "o-9"})
    assert answer.status == 502 and answer.json["status"] == 502
    mock = place.mock()
    mock.script({"status": 503})
    sidecar.stop()
    sidecar = start(place, mock, account={"breaker": {"minimum": 1, "ratio_429": "1%"}})
    for _ in range(3):
        sidecar.sdk("GET", TAX + "/ping")
    answer = sidecar.sdk("POST", TAX + "/orders/refunds/o-1", {})
    assert answer.status == 429 and int(answer.headers["Retry-After"]) >= 1 and "breaker-open" in answer.text


def test_a_stop_lets_what_is_under_way_finish(place, backend):
    mock = place.mock("--latency", "800ms")
    sidecar = start(place, mock)
    answers = []
    bodies = [("/carts", cart("cart-1")), ("/orders", {"orderId": "o-1", "customerId": "c", "lineItems": []})]
    threads = [threading.Thread(target=lambda one=one: answers.append(sidecar.sdk("POST", TAX + one[0], one[1])))
               for one in bodies]
    for thread in threads:
        thread.start()
    until(lambda: seen(mock) == 2, "both calls")
    sidecar.stop()
    for thread in threads:
        thread.join()
    assert len(answers) == 2 and all(answer.status < 500 for answer in answers)


def test_a_limit_of_records_is_no_limit_of_calculations(place, backend):
    mock = place.mock("--rate", "0.092")
    sidecar = start(place, mock, account={"limiters": [{"name": "records", "rate": "1/h", "burst": 1,
                                                        "endpoints": ["record"]}]})
    assert sidecar.sdk("POST", TAX + "/orders", {"orderId": "o-1"}).status != 429
    assert sidecar.sdk("POST", TAX + "/orders", {"orderId": "o-2"}).status == 429
    assert sidecar.sdk("GET", TAX + "/ping").status == 200
    for i in range(3):
        told = sidecar.sdk("POST", TAX + "/carts", cart(f"c-{i}"))
        assert told.headers["Spillway-Decision"] == "live"
    assert seen(mock) == 5


# ---- any other API ----

def test_any_other_api_is_limited_and_never_answered_from_a_cache(place, backend):
    mock = place.mock("--api-key", KEY)
    sidecar = place.sidecar(mock, account={
        "provider": "http", "connection": None, "listen": f"127.0.0.1:{place.pass_port}", "credential_header": "X-API-KEY",
        "routes": [f"GET {TAX}/ping", f"POST {TAX}/carts"], "deadline": "600ms",
        "limit": {"rate": "1/h", "burst": 3, "pods": 1}})
    assert sidecar.sdk("GET", TAX + "/ping").status == 200
    assert sidecar.sdk("POST", TAX + "/carts", cart()).status == 200
    assert sidecar.sdk("GET", TAX + "/carts/1").status == 403 and sidecar.sdk("DELETE", TAX + "/ping").status == 403
    mock.script({"action": "stall"})
    assert sidecar.sdk("POST", TAX + "/carts", cart()).status == 504, "its deadline"
    refused = sidecar.sdk("POST", TAX + "/carts", cart())
    assert refused.status == 429 and refused.json["error"]["status"] == 429 and refused.headers["Retry-After"]
    assert sidecar.sdk("GET", TAX + "/ping", token="wrong").status == 401
    assert seen(mock) == 3 and sidecar.flags() == []
    assert sidecar.quote().status == 400, "it calculates no tax"


def test_another_apis_own_header_for_the_key(place):
    """The SDK puts the token there; the API gets the key there, once, and no header that names another method."""
    asked = []

    def serve(connection):
        while data := connection.recv(65536):
            asked.append(data.decode())
            connection.sendall(answer_with(b"{}"))
    stub = Listener(serve)
    sidecar = place.sidecar(f"http://127.0.0.1:{stub.port}", account={
        "provider": "http", "connection": None, "listen": f"127.0.0.1:{place.pass_port}",
        "credential_header": "X-Shop-Key: Key", "routes": ["GET /v1/x"]})
    token = sidecar.token()
    for headers in ({"X-Shop-Key": f"Key {token}", "X-HTTP-Method-Override": "DELETE"}, {"X-Shop-Key": token},
                    {"Authorization": f"Bearer {token}", "X-Shop-Key": "another"}, {"Api-Key": token}):
        assert exchange_with(sidecar, "GET", "/v1/x", None, headers).status == 200
    for headers in ({}, {"X-Shop-Key": KEY}, {"X-Shop-Key": f"Other {token}"}):
        assert exchange_with(sidecar, "GET", "/v1/x", None, headers).status == 401
    stub.close()
    assert len(asked) == 4
    for text in asked:
        assert text.count("X-Shop-Key:") == 1 and f"X-Shop-Key: Key {KEY}\r\n" in text
        assert token not in text and "another" not in text and "Override" not in text


# ---- who may ask ----

def test_a_wrong_token_is_the_providers_401(place, backend):
    mock = place.mock()
    sidecar = start(place, mock)
    assert stat.S_IMODE((place.pub / "token").stat().st_mode) == 0o640
    token = sidecar.token()
    for wrong in ("", "x", token[:-1], token + "0", token[::-1], KEY):
        for path in ("/carts", "/nothing"):
            answer = sidecar.sdk("POST", TAX + path, cart(), token=wrong)
            assert answer.status == 401 and answer.json["status"] == 401 and answer.json["title"] == "Unauthorized"
            assert token not in answer.text and KEY not in answer.text
    assert seen(mock) == 0 and token not in sidecar.log()


def test_the_token_stays_over_a_restart(place, backend):
    sidecar = start(place)
    token = sidecar.token()
    assert re.fullmatch("[0-9a-f]{64}", token)
    sidecar.kill()
    assert start(place).token() == token


def test_a_token_of_ones_own(place):
    own = place.directory / "own-token"
    own.write_text("a-token-of-the-shop\n")
    sidecar = start(place, account={"token_file": str(own)})
    assert sidecar.sdk("GET", TAX + "/ping", token="a-token-of-the-shop").status == 200
    assert sidecar.sdk("GET", TAX + "/ping").status == 401, "the pod's token is not this door's"


def test_the_integration_is_named_by_header(place):
    sidecar = start(place, DOWN)
    answer = sidecar.sdk("POST", TAX + "/carts", cart(), headers={"Spillway-Integration": "night"})
    assert sidecar.flag(answer.headers["Spillway-Flag"])["integration"] == "night"
    for path, body in (("/carts", cart()), ("/orders", {"orderId": "o"})):
        wrong = sidecar.sdk("POST", TAX + path, body, headers={"Spillway-Integration": "nobody"})
        assert wrong.status == 400 and "nobody" in wrong.text


def test_a_developer_sees_a_fallback_at_this_door_too(place):
    sidecar = start(place, account={"allow_force": True})
    answer = sidecar.sdk("POST", TAX + "/carts", cart(), headers={"Spillway-Force": "provider-timeout"})
    assert answer.headers["Spillway-Type"] == "provider-timeout" and answer.headers["Spillway-Cause"] == "forced"
    sidecar.stop()
    sidecar = start(place)
    answer = sidecar.sdk("POST", TAX + "/carts", cart(), headers={"Spillway-Force": "provider-timeout"})
    assert answer.status == 403 and "allow_force" in answer.text


# ---- the security list ----

FORBIDDEN = [
    ("POST", TAX + "/other"), ("DELETE", TAX + "/carts"), ("GET", TAX + "/carts"), ("POST", "/"), ("GET", "/healthz"),
    ("POST", "/tax/connections/another/carts"), ("POST", TAX + "/carts/"), ("POST", TAX + "//carts"),
    ("POST", "//evil.example" + TAX + "/carts"), ("POST", "/" + TAX + "/carts"),
    ("POST", TAX + "/../" + CONNECTION + "/carts"), ("POST", TAX + "/x/../carts"), ("POST", TAX + "/./carts"),
    ("GET", TAX + "/carts/.."), ("GET", TAX + "/carts/%2e%2e"), ("GET", TAX + "/carts/%2E%2E"),
    ("GET", TAX + "/carts/%252e%252e"), ("GET", TAX + "/carts/a%2fb"), ("GET", TAX + "/carts/a%2f..%2f..%2fx"),
    ("GET", TAX + "/carts/%5c"), ("GET", TAX + "/carts/a%00b"), ("GET", TAX + "/carts/a%0d%0ab"),
    ("GET", TAX + "/carts/a%7fb"), ("GET", TAX + "/carts/%"), ("GET", TAX + "/carts/%2"), ("GET", TAX + "/carts/%zz"),
    ("GET", TAX + "/carts/a%23b"), ("GET", TAX + "/carts/a%3fb"), ("GET", TAX + "/carts/a%20b"),
    ("GET", TAX + "/carts/;x"), ("GET", TAX + "/carts/.%3bx"), ("GET", TAX + "/carts/user%40host"), ("GET", "/@evil.example" + TAX + "/carts/1"),
    ("POST", "/http://evil.example/carts"), ("GET", TAX + "/carts/%c0%ae%c0%ae"),
    ("GET", "//" + TAX + "/ping"), ("GET", "/%2f" + TAX + "/ping"), ("GET", TAX + "/carts/..%2f1"), ("GET", TAX + "/carts/%2e"),
    ("GET", TAX + "/carts/a%2e%2e"), ("GET", TAX + "/carts/.%2e/1"), ("GET", TAX + "/%2e./carts/1"), ("GET", TAX + "/carts/..;/1"),
    ("GET", TAX + "/carts;x=1/1"), ("GET", TAX + "/carts/1;/../2"), ("GET", TAX + "/carts/..%5c1"), ("GET", TAX + "/carts\\1"),
    ("GET", TAX + "/carts/%u002e"), ("GET", TAX + "/carts/%%32%65"), ("GET", TAX + "/carts/%2525"), ("GET", TAX + "/carts/a%09b"),
    ("GET", TAX + "/carts/%e2%80%a6"), ("GET", TAX + "/carts/%c0%af"), ("GET", TAX + "/carts/%ff"), ("GET", TAX + "/carts/a%0a"),
    ("GET", TAX + "/carts/http://[::1]"), ("GET", "/@2130706433" + TAX + "/carts/1"), ("GET", "//0x7f.1" + TAX + "/carts/1"),
    ("GET", "//[fe80::1%25eth0]" + TAX + "/carts/1"), ("GET", TAX.upper() + "/ping"), ("GET", TAX + "/ping/"), ("GET", TAX + "/ping//"),
    ("GET", TAX + "/ping?x=%0d%0aX-A:%20b"), ("GET", TAX + "/ping?x=%00"), ("GET", TAX + "/ping?a=b&%7F"), ("GET", TAX + "/ping?%0A"),
    ("CONNECT", TAX + "/carts"), ("TRACE", TAX + "/ping"), ("OPTIONS", TAX + "/carts"), ("post", TAX + "/carts")]


def test_nothing_but_allowed_methods_and_paths(place, backend):
    mock = place.mock()
    sidecar = start(place, mock)
    for method, path in FORBIDDEN:
        answer = sidecar.sdk(method, path, cart() if method.upper() == "POST" else None)
        assert answer.status in (400, 403), (method, path, answer)
    assert seen(mock) == 0
    assert sidecar.sdk("GET", TAX + "/ping").status == 200


def raw(place, text):
    """The status line's number of each answer on one connection, until it is closed."""
    with socket.create_connection(("127.0.0.1", place.pass_port), WATCHDOG_S) as s:
        s.sendall(text)
        s.shutdown(socket.SHUT_WR)
        data = b""
        while chunk := s.recv(65536):
            data += chunk
    return [int(number) for number in re.findall(rb"HTTP/1\.1 (\d+)", data)], data


def test_requests_that_could_be_read_in_two_ways(place, backend):
    """Smuggling by lengths and codings, absolute forms, control bytes: refused whole, nothing reaches the provider."""
    mock = place.mock()
    sidecar = start(place, mock)
    key = f"X-API-KEY: {sidecar.token()}\r\n"
    body = json.dumps(cart())
    hidden = f"GET {TAX}/ping HTTP/1.1\r\nHost: x\r\n{key}\r\n"
    head = f"POST {TAX}/carts HTTP/1.1\r\nHost: x\r\n{key}Content-Type: application/json\r\n"
    chunked = f"{len(body):x}\r\n{body}\r\n0\r\n\r\n"
    attacks = [
        head + f"Content-Length: {len(body)}\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked,
        head + "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n" + chunked + hidden,
        head + f"Content-Length: {len(body)}\r\nContent-Length: 0\r\n\r\n{body}{hidden}",
        head + f"Content-Length: {len(body)}\r\nContent-Length: {len(body)}\r\n\r\n{body}",
        head + f"Content-Length: +{len(body)}\r\n\r\n{body}",
        head + f"Content-Length: {len(body)}, {len(body)}\r\n\r\n{body}",
        head + "Content-Length: -1\r\n\r\n" + body,
        head + "Transfer-Encoding: chunked, identity\r\n\r\n" + chunked,
        head + "Transfer-Encoding: gzip\r\n\r\n" + body,
        head + "Transfer-Encoding:\x0bchunked\r\n\r\n" + chunked,
        head.replace("HTTP/1.1", "HTTP/1.0") + "Transfer-Encoding: chunked\r\n\r\n" + chunked,
        f"GET http://evil.example{TAX}/ping HTTP/1.1\r\nHost: x\r\n{key}\r\n",
        f"GET https://127.0.0.1:{mock.port}{TAX}/ping HTTP/1.1\r\nHost: x\r\n{key}\r\n",
        *(f"GET {scheme}{TAX}/ping HTTP/1.1\r\nHost: x\r\n{key}\r\n"
          for scheme in ("HTTP://evil.example", "http:", "http:/evil.example", "http://user@evil.example", "http://2130706433",
                         "http://0x7f000001", "http://0177.0.0.1", "http://127.1", "http://[::1]", "http://[fe80::1%25eth0]",
                         "http://[::ffff:127.0.0.1]", "gopher://evil.example", "file://", "@evil.example", "?", "\\", "%2f")),
        f"GET evil.example:80 HTTP/1.1\r\nHost: x\r\n{key}\r\n",
        f"GET * HTTP/1.1\r\nHost: x\r\n{key}\r\n",
        f"GET {TAX}/ping HTTP/1.1\r\nHost: x\r\nHost: y\r\n{key}\r\n",
        f"GET {TAX}/ping#frag HTTP/1.1\r\nHost: x\r\n{key}\r\n",
        f"GET {TAX}/pi\x01ng HTTP/1.1\r\nHost: x\r\n{key}\r\n",
        f"GET {TAX}/ping HTTP/1.1\r\nHost: x\r\n{key}X-A: a\x01b\r\n\r\n",
        f"GET {TAX}/ping HTTP/1.1\r\nHost: x\r\n{key}X A: b\r\n\r\n",
    ]
    for attack in attacks:
        statuses, data = raw(place, attack.encode("latin-1"))
        assert all(400 <= status < 600 for status in statuses), (attack, data)
        assert seen(mock) == 0, attack
    assert sidecar.sdk("POST", TAX + "/carts", cart()).status == 200


def test_where_a_request_goes_is_configuration_alone(place, backend):
    """SSRF forms: Host, forwarding headers, queries with addresses; the provider sees its own name."""
    mock, other = place.mock(), place.mock()
    sidecar = start(place, mock)
    there = f"127.0.0.1:{other.port}"
    for headers in ({"Host": there}, {"X-Forwarded-Host": there}, {"Forwarded": f"host={there}"},
                    {"X-Original-URL": f"http://{there}/"}, {"X-Rewrite-URL": f"http://{there}/"},
                    {"Proxy-Authorization": "Basic eDp5"}, {"Connection": "X-API-KEY"}):
        assert sidecar.sdk("GET", TAX + f"/ping?url=http://{there}/", headers=headers).status == 200
    assert seen(other) == 0 and seen(mock) == 7


def test_what_belongs_to_one_connection_goes_no_further(place):
    """Neither way; and no header whose underscores a server may take for hyphens."""
    asked = []

    def serve(connection):
        while data := connection.recv(65536):
            asked.append(data.decode())
            connection.sendall(b"HTTP/1.1 200 OK\r\nX-Hop: 1\r\nConnection: keep-alive, X-Hop\r\nKeep-Alive: timeout=5\r\n"
                               b"Proxy-Status: x\r\nTE: x\r\nX-Kept: 1\r\nContent-Length: 2\r\n\r\n{}")
    stub = Listener(serve)
    sidecar = start(place, f"http://127.0.0.1:{stub.port}")
    answer = sidecar.sdk("GET", TAX + "/ping", headers={
        "Connection": "keep-alive, X-Mine", "X-Mine": "1", "TE": "trailers", "Keep-Alive": "timeout=9", "X_API_KEY": "another",
        "Content_Length": "9", "X-Passed": "1"})
    stub.close()
    assert answer.status == 200 and answer.headers["X-Kept"] == "1"
    assert not {"X-Hop", "TE", "Proxy-Status"} & set(answer.headers) and answer.headers["Keep-Alive"] is None
    assert "X-Passed: 1\r\n" in asked[0]
    for name in ("X-Mine", "TE:", "Keep-Alive", "X_API_KEY", "Content_Length"):
        assert name not in asked[0], asked


def test_no_redirect_is_followed(place, backend):
    mock, other = place.mock(), place.mock()
    mock.script({"status": 302, "headers": {"Location": f"{other.url}{TAX}/ping"}, "body": ""})
    sidecar = start(place, mock)
    sidecar.sdk("GET", TAX + "/ping")
    fell = sidecar.sdk("POST", TAX + "/carts", cart())
    assert fell.headers["Spillway-Decision"] == "fallback" and seen(other) == 0


def test_the_environments_proxies_and_netrc_are_ignored(place, backend):
    other = place.mock()
    (place.directory / ".netrc").write_text("default login x password y\n")
    mock = place.mock("--api-key", KEY)
    environment = {name: other.url for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY")}
    sidecar = start(place, mock, environment={**environment, "HOME": str(place.directory)})
    assert sidecar.sdk("GET", TAX + "/ping").status == 200 and seen(other) == 0


def test_a_provider_cannot_speak_for_the_sidecar(place):
    """Names of ours and cookies in an answer of the provider's are dropped."""
    mock = place.mock("--rate", "0.092")
    sidecar = start(place, mock)
    answer = json.dumps({"ok": True})
    mock.script({"status": 200, "body": answer, "headers": {"Spillway-Decision": "forged", "Set-Cookie": "a=b",
                                                            "X-Fine": "1"}})
    told = sidecar.sdk("GET", TAX + "/ping")
    assert told.text == answer and told.headers["X-Fine"] == "1"
    assert told.headers["Spillway-Decision"] is None and told.headers["Set-Cookie"] is None


def test_what_is_too_large_or_too_many(place, backend):
    mock = place.mock()
    sidecar = start(place, mock)
    assert sidecar.sdk("POST", TAX + "/carts", b" " * (1 << 20) + b"{}").status == 413
    many = {f"X-{i}": "1" for i in range(80)}
    assert sidecar.sdk("GET", TAX + "/ping", headers=many).status in (400, 431)
    assert sidecar.sdk("GET", TAX + "/ping").status == 200 and seen(mock) == 1


@pytest.mark.parametrize("beginning", [b"", b"POST /tax HTTP/1.1\r\nHost: x\r\nX-A: ",
                                       b"POST /tax HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"])
def test_connections_that_never_ask_shut_no_port(place, backend, beginning):
    """More than a port has places for, as long as they like: who has a whole request is answered all the same."""
    mock = place.mock("--rate", "0.092")
    sidecar = start(place, mock)
    kept = http.client.HTTPConnection("127.0.0.1", place.pass_port, timeout=WATCHDOG_S)
    asked = []

    def ask():
        kept.request("GET", TAX + "/ping", headers={"X-API-KEY": sidecar.token()})
        answer = kept.getresponse()
        answer.read()
        asked.append((answer.status, kept.sock.getsockname()))
    ask()
    silent = []
    try:
        for i in range(400):
            silent.append(socket.create_connection(("127.0.0.1", place.pass_port), WATCHDOG_S))
            silent[-1].sendall(beginning)
            if i % 100 == 99:
                assert sidecar.sdk("POST", TAX + "/carts", cart()).headers["Spillway-Decision"] == "live"
        ask()
        assert asked[0] == asked[1] and asked[0][0] == 200, "a kept connection is the last to give way"
        silent[0].settimeout(WATCHDOG_S)
        try:
            assert silent[0].recv(1) == b"", "the oldest gave way"
        except ConnectionResetError:
            pass
    finally:
        for one in silent:
            one.close()
        kept.close()


def telling(headers, asked):
    """A provider that answers each request without a body with these header lines; the requests are kept in asked."""
    def serve(connection):
        data = b""
        while more := connection.recv(65536):
            data += more
            if data.endswith(b"\r\n\r\n"):
                asked.append(data)
                data = b""
                connection.sendall(answer_with(b"{}", headers))
    return Listener(serve)


def test_headers_that_find_no_room(place, backend):
    """A caller's are refused by name; of a provider's, what is too large is left out, and the answer arrives."""
    asked, large = [], b"X-Long: " + b"a" * 7000 + b"\r\nX-Half: " + b"a" * 5500 + b"\r\nX-Fine: 1\r\n"
    stub = telling(large, asked)
    sidecar = start(place, f"http://127.0.0.1:{stub.port}")
    assert sidecar.sdk("GET", TAX + "/ping", headers={"X-Long": "a" * 9000}).status == 431
    for filling in ({}, {"X-Fill": "b" * 7500}, {f"X-Fill-{i}": "b" * 100 for i in range(45)}):
        told = sidecar.sdk("GET", TAX + "/ping", headers=filling)
        assert told.status == 200 and told.text == "{}" and told.headers["X-Fine"] == "1"
        assert told.headers["X-Long"] is None and len(told.headers["X-Half"]) == 5500
    stub.close()
    assert len(asked) == 3


def test_a_request_whose_headers_pass_leaves_room_for_its_answer(place):
    """Whatever of the room goes into how many headers, and into cookies: the answer has all of the provider's, or nothing
    was sent to him."""
    asked, many = [], b"".join(b"X-Told-%02d: %s\r\n" % (i, b"a" * 127) for i in range(42))
    stub = telling(many, asked)
    sidecar = start(place, f"http://127.0.0.1:{stub.port}")
    told = []
    for count in (1, 16, 55):
        for size in range(4000, 9200, 400):
            told.append(sidecar.sdk("GET", TAX + "/ping", headers={f"X-{i:02}": "b" * (size // count) for i in range(count)}))
    for cookies in (1, 20, 40):
        told.append(sidecar.sdk("GET", TAX + "/ping?" + "a&" * cookies, headers={"Cookie": "; ".join(["a=" + "b" * 60] * cookies)}))
    stub.close()
    taken = [answer for answer in told if answer.status == 200]
    assert {answer.status for answer in told} == {200, 431} and len(taken) == len(asked)
    assert all(sum(name.startswith("X-Told-") for name in answer.headers) == 42 for answer in taken)


def test_an_answer_of_many_content_types(place, backend):
    body = '{"items": [{"lineItems": [{"index": 0, "itemId": "A", "tax": {"amount": 3.68, "rate": 0.092}}]}]}'
    stub = Listener(lambda connection: connection.recv(65536) and connection.sendall(
        answer_with(body.encode(), b"Content-Type: application/json\r\n" * 500)))
    sidecar = start(place, f"http://127.0.0.1:{stub.port}")
    told = sidecar.sdk("POST", TAX + "/carts", cart())
    stub.close()
    assert told.text == body and told.headers.get_all("Content-Type") == ["application/json"]


def test_bodies_and_keys_are_in_no_log(place):
    mock = place.mock()
    sidecar = start(place, mock, config={"log": {"level": "debug"}})
    mock.script({"to_request": 1, "status": 200, "body": "Ravine in an answer"}, {"status": 400, "body": "Ravine"})
    for _ in range(3):
        sidecar.sdk("POST", TAX + "/carts", cart())
        sidecar.sdk("POST", TAX + "/orders", cart())
    for secret in ("Ravine", "98110-1234", sidecar.token(), KEY):
        assert secret not in sidecar.log()
