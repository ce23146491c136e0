"""The quote door: live and fallback answers, faults of the caller, who may ask, orders.

Needs SPILLWAY_BIN.
"""
import http.server
import json
import os
import re
import socket
import stat
import threading

import pytest

from harness import DALLAS, KEY, RATES, TODAY, WASHINGTON, Place, at_once, quote_body, until

DOWN = "http://127.0.0.1:1"  # nobody listens there


# ---- answers ----

def test_a_live_answer_and_the_call_it_made(place, backend):
    mock = place.mock("--rate", "0.092", "--api-key", KEY)
    sidecar = place.sidecar(mock)
    answer = sidecar.quote(decision_id="d-1", quote_ref="q-88121", date="2025-11-28",
                           customer={"id": "c_7", "exemption": None})
    assert answer.status == 200, answer
    body = answer.json
    assert re.fullmatch("sq_[0-9a-f]{32}", body.pop("quote_id"))
    assert body["provider"].pop("ms") >= 0
    assert body == {"decision": "live", "decision_id": "d-1", "reused": False, "tax": "6.71", "currency": "USD",
                    "rounding": "provider", "fallback": None, "jurisdictions": None,
                    "provider": {"name": "taxcloud", "status": 200, "attempts": 1},
                    "lines": [{"id": "1", "taxable": "39.98", "tax": "3.68"},
                              {"id": "2", "taxable": "25.00", "tax": "2.30"}],
                    "shipping": {"taxable": "7.95", "tax": "0.73"}}
    headers = answer.headers
    assert headers["Spillway-Decision"] == "live" and headers["Spillway-Tax-Minor"] == "671"
    assert headers["Spillway-Rate-Ppb"] == "92000000" and headers["Spillway-Flag"] is None
    assert headers["Spillway-Lines-Minor"] == "3998/368,2500/230,795/73"
    assert mock.stats()["carts_seen"] == 1
    _, _, cart = mock.tax("GET", "carts/d-1", key=KEY)
    for line in cart["lineItems"]:
        line.pop("tax")
    assert cart == {
        "cartId": "d-1", "customerId": "c_7", "currency": {"currencyCode": "USD"}, "deliveredBySeller": False,
        "origin": {"line1": "1500 Marilla St", "city": "Dallas", "state": "TX", "zip": "75201", "countryCode": "US"},
        "destination": {"line1": "100 Ravine Ln NE", "city": "Bainbridge Island", "state": "WA", "zip": "98110-1234",
                        "countryCode": "US"},
        "lineItems": [{"index": 0, "itemId": "1", "price": 19.99, "quantity": 2, "tic": 0},
                      {"index": 1, "itemId": "2", "price": 25, "quantity": 1, "tic": 20010},
                      {"index": 2, "itemId": "shipping", "price": 7.95, "quantity": 1, "tic": 11010}]}


def test_the_numbers_of_many_lines_in_a_header(place):
    """As many as the header has room for; the answer arrives whole in any case."""
    sidecar = place.sidecar(DOWN)
    for amount, has_header in (("100.00", True), ("9999999999999.00", False)):
        answer = sidecar.quote(lines=[{"amount": amount}] * 512)
        assert answer.status == 200 and [line["taxable"] for line in answer.json["lines"]] == [amount] * 512
        numbers = answer.headers["Spillway-Lines-Minor"]
        assert (len(numbers.split(",")) == 513) if has_header else numbers is None


def test_a_fallback_answer_and_its_flag(place, backend):
    """The design's example: one rounding per line at the combined rate gives 6.71."""
    rules = {"tax_codes": {"default": "general", "20010": "learned"}, "nexus": ["CA", "NY", "TX", "WA", "MN"]}
    sidecar = place.sidecar(DOWN, config={"fallback": rules})
    answer = sidecar.quote(decision_id="d-2", quote_ref="q-88121", date="2025-11-28")
    assert answer.status == 200, answer
    body, headers = answer.json, answer.headers
    flag_id, quote_id = body["fallback"].pop("flag_id"), body.pop("quote_id")
    assert re.fullmatch("sf_[0-9a-f]{32}", flag_id) and re.fullmatch("sq_[0-9a-f]{32}", quote_id)
    assert body["provider"].pop("ms") >= 0
    assert body == {
        "decision": "fallback", "decision_id": "d-2", "reused": False,
        "provider": {"name": "taxcloud", "status": None, "attempts": 1},
        "tax": "6.71", "currency": "USD", "rounding": "half-up/line",
        "lines": [{"id": "1", "taxable": "39.98", "tax": "3.68"}, {"id": "2", "taxable": "25.00", "tax": "2.30"}],
        "shipping": {"taxable": "7.95", "tax": "0.73"}, "jurisdictions": None,
        "fallback": {"type": "provider-error", "cause": "connect", "match": "zip5", "source": "sample",
                     "rates": {"state": "0.065", "county": "0", "city": "0.027", "special": "0",
                               "combined": "0.092"},
                     "as_of": str(TODAY), "age_days": 0, "stale": False, "nexus": "registered",
                     "assumed": ["line 2: 20010 at general rate"], "live_again_in_ms": 0}}
    assert (headers["Spillway-Decision"], headers["Spillway-Type"], headers["Spillway-Cause"]) == (
        "fallback", "provider-error", "connect")
    assert (headers["Spillway-Flag"], headers["Spillway-Quote"]) == (flag_id, quote_id)
    assert (headers["Spillway-Tax-Minor"], headers["Spillway-Rate-Ppb"]) == ("671", "92000000")
    assert (headers["Spillway-Match"], headers["Spillway-Age-Days"], headers["Spillway-Stale"]) == ("zip5", "0", "0")
    flag = sidecar.flag(flag_id)
    assert (flag["quote_id"], flag["decision_id"], flag["quote_ref"]) == (quote_id, "d-2", "q-88121")
    assert (flag["type"], flag["cause"], flag["match"], flag["purpose"]) == (
        "provider-error", "connect", "zip5", "order")
    assert (flag["state"], flag["account"], flag["integration"], flag["date"]) == (
        "provisional", "main", "web", "2025-11-28")
    assert flag["tax"]["amount"] == "6.71" and flag["total"]["amount"] == "72.93"
    assert flag["rates"]["source"] == "sample" and flag["rates"]["combined"]["text"] == "0.092"
    assert [line["tax"]["amount"] for line in flag["lines"]] == ["3.68", "2.30", "0.73"]
    assert flag["origin"]["writer"] == "loop" and flag["evidence"]["attempts"] == 1
    assert flag["request"]["ship_to"]["line1"] == "100 Ravine Ln NE"


def test_fallbacks_are_exact_to_the_cent(place, backend):
    """Price x rate of the table, half up, in whole numbers."""
    sidecar = place.sidecar(DOWN)
    rows = [line.split(",") for line in RATES.splitlines()[1::40]]
    rows = [row for row in rows if len(row) == 9]
    assert len(rows) > 5
    for row in rows:
        answer = sidecar.quote(ship_to={"country": "US", "state": row[0], "zip": row[1]}, shipping={"amount": "0"},
                               lines=[{"id": "1", "amount": "1234.56"}])
        assert answer.status == 200, answer
        micro = int(row[4].replace(".", ""))  # six digits behind the point
        assert len(row[4].split(".")[1]) == 6
        cents, rest = divmod(123456 * micro, 1000000)
        expected = cents + (rest >= 500000)
        assert answer.headers["Spillway-Tax-Minor"] == str(expected), row


def test_what_the_provider_rejects_is_the_callers_own_fault(place, backend):
    mock = place.mock()
    mock.script({"status": 422, "body": json.dumps({"status": 422, "errors": [{"location": "zip"}]}),
                 "headers": {"Content-Type": "application/problem+json"}})
    sidecar = place.sidecar(mock)
    answer = sidecar.quote()
    assert (answer.status, answer.json["decision"]) == (422, "rejected"), answer
    assert answer.json["provider_error"]["errors"] == [{"location": "zip"}]
    assert answer.headers["Spillway-Decision"] == "rejected"
    assert "tax" not in answer.json and answer.headers["Spillway-Tax-Minor"] is None
    assert sidecar.flags() == []
    mock.script()
    assert sidecar.quote().json["decision"] == "live"


# ---- faults of the caller ----

def with_line(**changes):
    return {"lines": [{**{"id": "1", "amount": "39.98"}, **changes}]}


@pytest.mark.parametrize("changes, place_of_it", [
    ({"surprise": 1}, "surprise: unknown field"),
    ({"account": None}, "account: is missing"),
    ({"account": 7}, "account: text"),
    ({"account": "x" * 64}, "account: text of at most 63"),
    ({"purpose": "fun"}, "purpose: "),
    ({"currency": "EUR"}, "currency: "),
    ({"date": "2025-02-30"}, "date: "),
    ({"date": "28.11.2025"}, "date: "),
    ({"deadline_ms": "1500"}, "deadline_ms: "),
    ({"deadline_ms": 0}, "deadline_ms: "),
    ({"deadline_ms": 1.5}, "deadline_ms: "),
    ({"deadline_ms": 60001}, "deadline_ms: "),
    ({"decision_id": "x" * 72}, "decision_id: text of at most 71"),
    ({"decision_id": "tab\t1"}, "decision_id: text without control"),
    ({"quote_ref": "line\nline"}, "quote_ref: text without control"),
    ({"ship_to": {**WASHINGTON, "state": "W\x7f"}}, "ship_to.state: text without control"),
    ({"quote_ref": ["q"]}, "quote_ref: text"),
    ({"ship_to": "98110"}, "ship_to: an object"),
    ({"ship_to": {**WASHINGTON, "planet": "Earth"}}, "ship_to.planet: unknown field"),
    ({"ship_to": {**WASHINGTON, "zip": 98110}}, "ship_to.zip: text"),
    ({"ship_to": {"country": "US", "state": "WA"}}, "ship_to: state and zip are needed"),
    ({"ship_to": {**WASHINGTON, "country": "DE"}}, "ship_to.country: "),
    ({"ship_from": {**DALLAS, "state": None}}, "ship_from: state and zip are needed"),
    ({"customer": {"id": 7}}, "customer.id: text"),
    ({"customer": {"name": "x"}}, "customer.name: unknown field"),
    ({"shipping": {"amount": 7.95}}, "shipping.amount: a decimal in quotes"),
    ({"shipping": {"amount": "7.955"}}, "shipping.amount: a decimal in quotes"),
    ({"shipping": ["7.95"]}, "shipping: an object"),
    ({"lines": []}, "lines: a list of 1 to 512"),
    ({"lines": {}}, "lines: a list of 1 to 512"),
    ({"lines": [{"id": str(i), "amount": "1.00"} for i in range(513)]}, "lines: a list of 1 to 512"),
    ({"lines": ["x"]}, "lines[0]: an object"),
    (with_line(amount=39.98), "lines[0].amount: a decimal in quotes"),
    (with_line(amount=None), "lines[0].amount: is missing"),
    (with_line(amount="39,98"), "lines[0].amount: "),
    (with_line(amount="1e3"), "lines[0].amount: "),
    (with_line(amount="NaN"), "lines[0].amount: "),
    (with_line(amount=""), "lines[0].amount: "),
    (with_line(amount="-"), "lines[0].amount: "),
    (with_line(amount="9" * 30), "lines[0].amount: "),
    (with_line(amount="10000000000000.01"), "lines[0].amount: "),
    (with_line(amount="5."), "lines[0].amount: "),
    (with_line(amount="39.985"), "lines[0].amount: "),  # thousandths are not rounded by guess
    (with_line(quantity="9999999999999999"), "lines[0].quantity: "),
    (with_line(quantity=2), "lines[0].quantity: a decimal in quotes"),
    (with_line(quantity="0"), "lines[0].quantity: more than 0"),
    (with_line(quantity="-1"), "lines[0].quantity: more than 0"),
    (with_line(quantity="1.0000001"), "lines[0].quantity: "),
    (with_line(price="1.00"), "lines[0].price: unknown field"),
    (with_line(tax_code="P0000000"), "lines[0]"),
    (with_line(amount="-5.00"), "lines[0].amount: "),
])
def test_a_bad_quote_is_refused_with_its_place(bad_door, changes, place_of_it):
    sidecar, mock = bad_door
    refused(sidecar, mock, quote_body(**changes), place_of_it)


@pytest.mark.parametrize("text, place_of_it", [
    (b"", "the body"),
    (b"{", "the body, line 1"),
    (b'{"account":\n\n"main",]', "the body, line 3"),
    (b"[]", "the body: a JSON object is expected"),
    (b"null", "the body, line 1 column 1"),
    (b'{"account":"main","account":"main"}', "the body, line 1"),
    (b'{"account":"ma\xff\xfein"}', "the body, line 1"),
    (b'{"account":"ma\\u0000in"}', "the body, line 1"),
    (b"[" * 5000, "the body, line 1"),
    (json.dumps(quote_body(account="none")).encode(), "account: there is no account \"none\""),
    (json.dumps(quote_body(integration="none")).encode(), "integration: "),
])
def test_a_body_that_is_no_quote(bad_door, text, place_of_it):
    sidecar, mock = bad_door
    refused(sidecar, mock, text, place_of_it)


def refused(sidecar, mock, body, place_of_it):
    before = mock.stats()["requests_total"]
    answer = sidecar.post("/spillway/v1/quote", body)
    assert answer.status == (404 if "there is no account" in place_of_it or place_of_it == "integration: " else 400)
    assert place_of_it in answer.json["detail"], answer
    assert answer.headers["Spillway-Decision"] == "rejected"
    assert mock.stats()["requests_total"] == before
    assert sidecar.flags() == []


@pytest.fixture(scope="module")
def bad_door():
    """One sidecar for all faults: it must not notice them."""
    place = Place()
    mock = place.mock()
    sidecar = place.sidecar(mock)
    yield sidecar, mock
    assert sidecar.quote().json["decision"] == "live"
    place.close(False)


def test_what_is_too_large(place, backend):
    mock = place.mock()
    sidecar = place.sidecar(mock)
    assert sidecar.post("/spillway/v1/quote", b" " * (256 * 1024 + 1)).status == 413
    long = [{"id": str(i), "tax_code": "0", "amount": "1.00", "quantity": "1"} for i in range(512)]
    assert sidecar.quote(lines=long).json["tax"] == "41.62"  # 512 x 0.08 and 0.66 for shipping: half up each
    wide = [{"id": "x" * 60 + str(i), "tax_code": "0", "amount": "1.00", "quantity": "1"} for i in range(512)]
    answer = sidecar.quote(lines=wide)
    assert answer.status == 400 and "split it" in answer.json["detail"]
    assert sidecar.quote().json["decision"] == "live"


# ---- paths, methods, who may ask ----

# ---- no value ends a header ----

def with_line_ends(end):
    """A quote for each text of the caller's that might reach a header, the provider's or the answer's."""
    text = f"a{end}X-Evil: 1"
    yield from ({name: text} for name in ("decision_id", "quote_ref", "integration", "account", "currency", "date", "purpose"))
    yield from ({"ship_to": {**WASHINGTON, name: text}} for name in ("line1", "city", "zip", "state", "country"))
    yield from ({"customer": {"id": "c", "exemption": None, name: text}} for name in ("id", "exemption"))
    for name in ("id", "tax_code", "quantity", "amount"):
        yield {"lines": [{"id": "1", "tax_code": "0", "quantity": "1", "amount": "39.98", name: text}]}


@pytest.mark.parametrize("provider", ["taxcloud", "taxjar", "stripe", "avatax"])
def test_no_value_ends_a_header(place, provider):
    heads = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version, disable_nagle_algorithm = "HTTP/1.1", True

        def log_message(self, *_):
            pass

        def do_POST(self):
            heads.append(self.headers)
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200, "OK")
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

    far = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=far.serve_forever, daemon=True).start()
    (place.directory / "user").write_text("account\n")
    account = {"provider": provider, "breaker": {"mode": "disabled"}}
    if provider != "taxcloud":
        account["connection"] = None
    if provider == "avatax":
        account.update(company="ACME", credentials={"api_key_file": None, "username_file": str(place.directory / "user"),
                                                    "password_file": str(place.directory / "api-key")})
    sidecar = place.sidecar(f"http://127.0.0.1:{far.server_address[1]}", account=account)
    for end in ("\r\n", "\n", "\r", "\u0085", "\u2028", "\u560d\u560a", "%0d%0a"):
        for changes in with_line_ends(end):
            answer = sidecar.quote(**changes)
            assert answer.status in (200, 400, 404, 503) and answer.headers["X-Evil"] is None, changes
    far.shutdown()
    far.server_close()
    assert heads and all(head["X-Evil"] is None for head in heads)
    assert not any(line.startswith("X-Evil") for line in sidecar.log().splitlines())


def test_other_paths_and_methods(place, backend):
    sidecar = place.sidecar(DOWN)
    for path in ("/", "/spillway/v1", "/spillway/v1/quotes", "/spillway/v1/quote/", "/spillway/v1/orders/", "/quote",
                 "/spillway/v1/orders/x/y/z", "/spillway/v1/../v1/quote", "//spillway/v1/quote"):
        assert sidecar.post(path, quote_body()).status in (400, 404), path
    for path in ("/spillway/v1/quote", "/spillway/v1/orders", "/spillway/v1/orders/1/cancel"):
        for method in ("GET", "PUT", "DELETE"):
            answer = sidecar.post(path, method=method)
            assert (answer.status, answer.headers["Allow"]) == (405, "POST"), (method, path)
    assert sidecar.admin("/nothing").status == 404
    assert sidecar.admin("/metrics", "POST").status == 405
    assert sidecar.admin("/healthz").text == "ok\n"


def test_loopback_asks_for_the_token(place, backend):
    sidecar = place.sidecar(place.mock())
    path, body = "/spillway/v1/quote", quote_body()
    token_path = place.pub / "token"
    assert stat.S_IMODE(token_path.stat().st_mode) == 0o640
    assert stat.S_IMODE((place.pub / "quote.sock").stat().st_mode) == 0o660
    token = token_path.read_text()
    assert re.fullmatch("[0-9a-f]{64}", token)
    wrong = [{}, {"Authorization": "Bearer"}, {"Authorization": "Bearer "}, {"Authorization": token},
             {"Authorization": f"Basic {token}"}, {"Authorization": f"Bearer {token[:-1]}"},
             {"Authorization": f"Bearer {token}0"}, {"Authorization": f"Bearer {token[::-1]}"}, {"X-API-KEY": token}]
    for headers in wrong:
        for where in (path, "/spillway/v1/orders", "/nothing"):
            answer = sidecar.post_tcp(where, body, headers=headers)
            assert answer.status == 401, headers
            assert token not in answer.text
    answer = sidecar.post_tcp(path, body, headers={"Authorization": f"Bearer {token}"})
    assert (answer.status, answer.json["decision"]) == (200, "live")
    assert token not in sidecar.log()


def test_requests_made_to_confuse(place, backend):
    """Two lengths, chunks with a length, absolute form: refused, and the door goes on."""
    sidecar = place.sidecar(place.mock())
    body = json.dumps(quote_body())
    length = f"Content-Length: {len(body)}\r\n"
    for head in (f"POST /spillway/v1/quote HTTP/1.1\r\nHost: x\r\n{length}Content-Length: 5\r\n",
                 f"POST /spillway/v1/quote HTTP/1.1\r\nHost: x\r\n{length}Transfer-Encoding: chunked\r\n",
                 f"POST http://evil/spillway/v1/quote HTTP/1.1\r\nHost: x\r\n{length}",
                 f"POST /spillway/v1/%2e%2e/quote HTTP/1.1\r\nHost: x\r\n{length}",
                 f"POST /spillway/v1/quote\x01 HTTP/1.1\r\nHost: x\r\n{length}", "\x00\x01\x02\r\n"):
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(60)
            s.connect(str(place.pub / "quote.sock"))
            s.sendall((head + "Connection: close\r\n\r\n" + body).encode())
            answer = s.recv(4096).decode()
            assert not answer or re.match("HTTP/1.[01] 4", answer), (head, answer)
    assert sidecar.quote().json["decision"] == "live"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_strangers_cannot_reach_the_socket(place, backend):
    place.sidecar(DOWN)
    place.directory.chmod(0o755)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            try:
                socket.socket(socket.AF_UNIX).connect(str(place.pub / "quote.sock"))
            except PermissionError:
                code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_the_sidecars_own_user_can_be_refused(place, backend):
    sidecar = place.sidecar(place.mock(), config={"listen": {"require_app_uid_differs": True}})
    for path in ("/spillway/v1/quote", "/spillway/v1/orders"):
        answer = sidecar.post(path, quote_body())
        assert (answer.status, answer.json["error"]) == (403, "forbidden"), answer
        assert "require_app_uid_differs" in answer.json["detail"]
    token = (place.pub / "token").read_text()
    answer = sidecar.post_tcp("/spillway/v1/quote", quote_body(), headers={"Authorization": f"Bearer {token}"})
    assert (answer.status, answer.json["decision"]) == (200, "live")


# ---- orders ----

def test_orders_are_idempotent_and_can_be_cancelled(place, backend):
    sidecar = place.sidecar(DOWN)
    answer = sidecar.quote()
    quote_id, flag_id = answer.json["quote_id"], answer.json["fallback"]["flag_id"]
    for _ in range(3):
        told = sidecar.order(quote_id, "100048213", "6.71", placed_at="2025-11-28T10:15:00Z")
        assert (told.status, told.json) == (202, {"recorded": True})
    flag = until(lambda: [f for f in sidecar.flags() if f["state"] == "confirmed"], "the order")[0]
    assert flag["flag_id"] == flag_id and len(sidecar.flags()) == 1
    assert flag["order"]["order_id"] == "100048213" and flag["order"]["tax_collected"]["amount"] == "6.71"
    assert int(flag["order"]["placed_unix_ms"]) == 1764324900000
    assert sidecar.metric("spillway_orders", state="placed") == 1
    for _ in range(2):
        assert sidecar.post("/spillway/v1/orders/100048213/cancel").status == 202
    until(lambda: sidecar.flag(flag_id)["state"] == "cancelled", "the cancelling")
    assert sidecar.metric("spillway_orders", state="cancelled") == 1


@pytest.mark.parametrize("change, place_of_it", [
    ({"quote_id": None}, "quote_id: is missing"),
    ({"order_id": ""}, "order_id: is missing"),
    ({"order_id": "x" * 72}, "order_id: text of at most 71"),
    ({"order_id": "a\r\nb"}, "order_id: text without control"),
    ({"quote_id": "sq_\t"}, "quote_id: text without control"),
    ({"currency": "U\x01"}, "currency: text without control"),
    ({"tax_collected": None}, "tax_collected: is missing"),
    ({"tax_collected": 6.71}, "tax_collected: a decimal in quotes"),
    ({"placed_at": "yesterday"}, "placed_at: "),
    ({"placed_at": "2025-11-28T10:15:00"}, "placed_at: "),
    ({"placed_at": "2025-11-31T10:15:00Z"}, "placed_at: "),
    ({"placed_at": "Fri, 28 Nov 2025 10:15:00 GMT"}, "placed_at: "),
    ({"colour": "red"}, "colour: unknown field"),
])
def test_a_bad_order_is_refused_with_its_place(bad_door, change, place_of_it):
    body = {"quote_id": "sq_" + "0" * 32, "order_id": "1", "tax_collected": "6.71", **change}
    body = {name: value for name, value in body.items() if value is not None}
    answer = bad_door[0].post("/spillway/v1/orders", body)
    assert answer.status == 400 and place_of_it in answer.json["detail"], answer


@pytest.mark.parametrize("order", ["a b", "a%20b", "x" * 72, "%2e%2e", "a%0d%0ab", "%c3%a9"])
def test_a_bad_order_in_the_path_is_refused(bad_door, order):
    answer = bad_door[0].post(f"/spillway/v1/orders/{order.replace(' ', '%20')}/cancel")
    assert answer.status in (400, 404), answer
    assert bad_door[0].metric("spillway_orders", state="cancelled") == 0


def test_many_at_once_are_each_answered_their_own(place, backend):
    mock = place.mock("--rate", "0.10", "--latency", "30ms")
    sidecar = place.sidecar(mock)

    def one(i):
        amount = f"{i + 1}00.00"
        return sidecar.quote(decision_id=f"m-{i}", shipping=None, lines=[{"id": "1", "amount": amount}]).json
    answers = at_once(32, one)
    assert [(a["decision"], a["decision_id"], a["tax"]) for a in answers] == [
        ("live", f"m-{i}", f"{i + 1}0.00") for i in range(32)]
