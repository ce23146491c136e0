"""The scripted provider as its users see it: tax, limits, scripts, bad answers, counters, exit codes.

Needs SPILLWAY_BIN, the directory of the programs. Standard library and pytest only.
"""
import json
import os
import signal
import socket
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

BIN = Path(os.environ.get("SPILLWAY_BIN", "")) / "spillway-provider-mock"
SCENARIOS = Path(__file__).resolve().parent.parent / "data" / "scenarios"
CONNECTION = "25eb9b97-5acb-492d-b720-c03e79cf715a"
WATCHDOG_S = 60  # ends a hang; nothing is measured by it


def cart(price=10.00, quantity=1, zip_code="75201", cart_id=None, **more):
    one = {"customerId": "c_7", "currency": {"currencyCode": "USD"}, "deliveredBySeller": False,
           "origin": {"line1": "1 Main St", "city": "Dallas", "state": "TX", "zip": "75201"},
           "destination": {"line1": "100 Ravine Ln", "city": "X", "state": "WA", "zip": zip_code},
           "lineItems": [{"index": 0, "itemId": "a", "price": price, "quantity": quantity, "tic": 0}]}
    if cart_id:
        one["cartId"] = cart_id
    one.update(more)
    return {"items": [one]}


class Mock:
    def __init__(self, *options):
        self.process = subprocess.Popen([BIN, "--listen", "127.0.0.1:0", *map(str, options)],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        first = self.process.stdout.readline()
        if not first.startswith("listening on "):
            raise AssertionError(first + self.process.stderr.read())
        self.url = first.split()[-1]
        self.says = self.process.stdout.readline()
        self.port = int(self.url.rsplit(":", 1)[1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(WATCHDOG_S)
        finally:
            self.process.kill()
            errors = self.process.stderr.read()
            self.process.stdout.close()
            self.process.stderr.close()
        assert code == 0, errors

    def call(self, method, path, body=None, key="k", raw=None, context=None):
        """(status, headers, body as JSON or text)"""
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        headers = {"X-API-KEY": key} if key else {}
        request = urllib.request.Request(self.url + path, data=data, method=method, headers=headers)
        try:
            answer = urllib.request.urlopen(request, timeout=WATCHDOG_S, context=context)
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            text = answer.read()
            try:
                return answer.status, answer.headers, json.loads(text)
            except ValueError:
                return answer.status, answer.headers, text.decode(errors="replace")

    def tax(self, method, tail, body=None, **more):
        return self.call(method, f"/tax/connections/{CONNECTION}/{tail}", body, **more)

    def ping(self):
        return self.tax("GET", "ping")[0]

    def stats(self):
        status, _, body = self.call("GET", "/mock/stats", key=None)
        assert status == 200
        return body

    def script(self, *steps):
        status, _, body = self.call("POST", "/mock/scenario", list(steps), key=None)
        assert status == 200, body
        assert body == {"steps": len(steps)}

    def raw(self, tail="ping"):
        """A connected socket with one whole request sent."""
        s = socket.create_connection(("127.0.0.1", self.port), timeout=WATCHDOG_S)
        s.sendall(f"GET /tax/connections/{CONNECTION}/{tail} HTTP/1.1\r\nHost: x\r\nX-API-KEY: k\r\n\r\n".encode())
        return s


def read_all(s):
    """Everything up to the end, and how it ended."""
    text = b""
    try:
        while True:
            part = s.recv(65536)
            if not part:
                return text, "fin"
            text += part
    except ConnectionResetError:
        return text, "rst"
    finally:
        s.close()


def until(condition):
    """Wait for something that another thread of the server does next."""
    end = time.monotonic() + WATCHDOG_S
    while not condition():
        assert time.monotonic() < end, "did not happen"
        time.sleep(0.01)


def check_identity(stats):
    assert stats["requests_total"] == (sum(stats["by_status"].values()) + sum(stats["by_action"].values())
                                       + stats["in_flight"])
    for second in stats["per_second"]:
        assert second["seen"] >= second["answered_200"] + second["answered_429"]
    if stats["seconds_forgotten"] == 0:
        assert sum(s["seen"] for s in stats["per_second"]) == stats["requests_total"]
        assert max([s["seen"] for s in stats["per_second"]], default=0) == stats["max_per_second"]
    assert stats["max_accepted_in_any_second"] <= stats["accepted_total"]


# ---- tax ----

@pytest.mark.parametrize("rate, price, quantity, tax", [
    ("0.1075", 24.99, 1, 2.69),
    ("0.0725", 2.00, 1, 0.15),   # exactly 0.145: half up
    ("7.25%", 22.00, 1, 1.60),   # exactly 1.595
    ("0.0825", 10.00, 1, 0.83),  # exactly 0.825
    ("0.09025", 10.75, 1.5, 1.46),
    ("0.0825", 0, 3, 0.0),
    ("0", 99.99, 1, 0.0),
    ("0.123456789", 1000000000, 1000000, 123456789000000.0),
])
def test_rounds_half_up_per_line(rate, price, quantity, tax):
    with Mock("--rate", rate) as mock:
        status, _, body = mock.tax("POST", "carts", cart(price, quantity))
        assert status == 200, body
        assert body["items"][0]["lineItems"][0]["tax"]["amount"] == tax


def test_rate_table(tmp_path):
    table = tmp_path / "rates.csv"
    table.write_text("State,ZipCode,TaxRegionName,TaxRegionCode,CombinedRate,StateRate,CountyRate,CityRate,SpecialRate\n"
                     "WA,98110,KITSAP,K,0.092000,0.065000,0,0.027000,0\n"
                     "AK,99501,ALASKA STATE,AAAA,0.000000,0.000000,0,0,0\n")
    with Mock("--rates", table) as mock:
        for zip_code in ("98110", "98110-1234", "981101234"):
            _, _, body = mock.tax("POST", "carts", cart(39.98, zip_code=zip_code))
            assert body["items"][0]["lineItems"][0]["tax"] == {"amount": 3.68, "rate": 0.092}
        _, _, body = mock.tax("POST", "carts", cart(39.98, zip_code="99501"))
        assert body["items"][0]["lineItems"][0]["tax"] == {"amount": 0.0, "rate": 0.0}
        status, headers, body = mock.tax("POST", "carts", cart(39.98, zip_code="10001"))
        assert status == 422
        assert headers["Content-Type"] == "application/problem+json"
        assert body["errors"][0]["location"] == "body.items[0].destination.zip"


def test_exemption():
    with Mock() as mock:
        for exemption, tax in (({"isExempt": True}, 0.0), ({"exemptionId": "e"}, 0.0), ({"isExempt": False}, 0.83), (None, 0.83)):
            _, _, body = mock.tax("POST", "carts", cart(exemption=exemption))
            assert body["items"][0]["lineItems"][0]["tax"]["amount"] == tax


@pytest.mark.parametrize("change, location", [
    (lambda b: b.pop("items"), "body.items"),
    (lambda b: b["items"][0].pop("customerId"), "body.items[0].customerId"),
    (lambda b: b["items"][0].pop("origin"), "body.items[0].origin.zip"),
    (lambda b: b["items"][0]["destination"].update(zip="9811"), "body.items[0].destination.zip"),
    (lambda b: b["items"][0]["currency"].update(currencyCode="EUR"), "body.items[0].currency.currencyCode"),
    (lambda b: b["items"][0].update(lineItems=[]), "body.items[0].lineItems"),
    (lambda b: b["items"][0]["lineItems"][0].update(price="1.00"), "body.items[0].lineItems[0].price"),
    (lambda b: b["items"][0]["lineItems"][0].update(price=-1), "body.items[0].lineItems[0].price"),
    (lambda b: b["items"][0]["lineItems"][0].update(quantity=0), "body.items[0].lineItems[0].quantity"),
    (lambda b: b["items"][0]["lineItems"][0].pop("index"), "body.items[0].lineItems[0].index"),
    (lambda b: b["items"][0]["lineItems"][0].update(tic="x"), "body.items[0].lineItems[0].tic"),
])
def test_bad_cart(change, location):
    with Mock() as mock:
        body = cart()
        change(body)
        status, _, answer = mock.tax("POST", "carts", body)
        assert (status, answer["status"], answer["errors"][0]["location"]) == (422, 422, location)


def test_not_json_and_unknown_paths():
    with Mock() as mock:
        assert mock.tax("POST", "carts", raw=b"{")[0] == 400
        assert mock.tax("POST", "carts", raw=b"[]")[0] == 400
        assert mock.tax("POST", "carts", raw=b"[" * 100000)[0] == 400
        assert mock.tax("POST", "carts", raw=b"x" * (1024 * 1024 + 1))[0] == 413
        assert mock.tax("GET", "nothing")[0] == 404
        assert mock.call("GET", "/")[0] == 404
        assert mock.call("GET", "/mock/nothing")[0] == 404
        assert mock.call("GET", "/mock/scenario")[0] == 405


def test_orders_and_refunds():
    with Mock() as mock:
        assert mock.tax("POST", "carts", cart(cart_id="c1"))[0] == 200
        assert mock.tax("GET", "carts/c1")[2]["cartId"] == "c1"
        assert mock.tax("GET", "carts/none")[0] == 404
        status, _, order = mock.tax("POST", "carts/orders", {"cartId": "c1", "orderId": "o1", "completed": False})
        assert status == 201
        assert order["lineItems"][0]["tax"]["amount"] == 0.83
        assert order["completedDate"] is None
        assert mock.tax("POST", "carts/orders", {"cartId": "c1", "orderId": "o1"})[0] == 400
        assert mock.tax("POST", "carts/orders", {"cartId": "none", "orderId": "o2"})[0] == 404
        status, _, order = mock.tax("PATCH", "orders/o1", {"completedDate": "2025-11-28T12:00:00Z"})
        assert (status, order["completedDate"]) == (200, "2025-11-28T12:00:00Z")
        upload = {"orderId": "u1", "lineItems": [{"index": 0, "price": 10, "quantity": 1, "tax": {"amount": 0.71, "rate": 0.071}}]}
        assert mock.tax("POST", "orders", upload)[0] == 201
        assert mock.tax("POST", "orders", upload)[0] == 400
        assert mock.tax("GET", "orders/u1")[2]["lineItems"][0]["tax"]["amount"] == 0.71
        del upload["lineItems"][0]["tax"]
        assert mock.tax("POST", "orders", upload)[0] == 422
        assert mock.tax("POST", "orders/refunds/none", {})[0] == 404
        first = mock.tax("POST", "orders/refunds/o1", {"idempotencyKey": "i1"})
        again = mock.tax("POST", "orders/refunds/o1", {"idempotencyKey": "i1"})
        assert first[0] == again[0] == 201
        assert first[2] == again[2]
        assert mock.stats()["orders"] == 2


def test_key():
    with Mock("--api-key", "right") as mock:
        assert mock.tax("GET", "ping", key="right")[0] == 200
        for key in ("wrong", None, "right "[:3]):
            status, _, body = mock.tax("GET", "ping", key=key)
            assert (status, body["status"]) == (401, 401)
        stats = mock.stats()
        assert stats["accepted_total"] == 1
        check_identity(stats)
    with Mock() as mock:
        assert mock.tax("GET", "ping", key=None)[0] == 401


# ---- the limit ----

def test_bucket_counts_exactly():
    with Mock("--limit", "5/h", "--algorithm", "bucket") as mock:
        assert "token bucket of 5" in mock.says
        assert [mock.ping() for _ in range(8)] == [200] * 5 + [429] * 3
        status, headers, body = mock.tax("GET", "ping")
        assert (status, body["title"]) == (429, "Too Many Requests")
        assert 1 < int(headers["Retry-After"]) <= 720  # one an hour's fifth
        stats = mock.stats()
        assert stats["limit"]["algorithm"] == "bucket"
        assert stats["limit"]["burst"] == 5
        assert (stats["over_limit"], stats["accepted_total"], stats["by_status"]) == (4, 5, {"200": 5, "429": 4})
        check_identity(stats)


def test_burst_is_the_buckets_size():
    with Mock("--limit", "1/h", "--burst", "3") as mock:
        assert [mock.ping() for _ in range(5)] == [200] * 3 + [429] * 2


def test_fixed_window_counts_exactly():
    with Mock("--limit", "3/h", "--algorithm", "fixed-window") as mock:
        assert "fixed windows" in mock.says
        assert [mock.ping() for _ in range(5)] == [200] * 3 + [429] * 2
        _, headers, _ = mock.tax("GET", "ping")
        assert 1 < int(headers["Retry-After"]) <= 3600
        stats = mock.stats()
        assert stats["limit"]["algorithm"] == "fixed-window"
        assert stats["over_limit"] == 3


def test_limit_zero_refuses_everything():
    with Mock("--limit", "0/s", "--algorithm", "fixed-window") as mock:
        assert [mock.ping() for _ in range(3)] == [429] * 3


def hammer(mock, seconds):
    end = time.monotonic() + seconds
    def run():
        while time.monotonic() < end:
            mock.ping()
    threads = [threading.Thread(target=run) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def test_bucket_over_time():
    with Mock("--limit", "20/s", "--burst", "5") as mock:
        hammer(mock, 2.2)
        stats = mock.stats()
        check_identity(stats)
        assert stats["accepted_total"] <= 5 + 20 * stats["uptime_ms"] / 1000
        assert stats["max_accepted_in_any_second"] <= 5 + 20
        assert stats["by_status"]["429"] == stats["over_limit"] > 0
        assert stats["accepted_total"] > 5  # it refills


def test_fixed_window_over_time():
    with Mock("--limit", "10/s", "--algorithm", "fixed-window") as mock:
        hammer(mock, 2.5)
        stats = mock.stats()
        check_identity(stats)
        assert len(stats["per_second"]) >= 2
        for second in stats["per_second"]:
            assert second["answered_200"] == min(10, second["seen"])
        assert stats["max_accepted_in_any_second"] <= 20  # the seam of two windows is this algorithm's known hole
        assert stats["max_per_second"] > 10
        assert stats["over_limit"] == stats["requests_total"] - stats["accepted_total"]


def test_control_is_not_limited():
    with Mock("--limit", "1/h") as mock:
        for _ in range(5):
            mock.stats()
            mock.script()
        assert mock.ping() == 200
        assert mock.stats()["requests_total"] == 1


def test_limit_headers():
    with Mock("--limit", "3/h", "--headers", "x-ratelimit", "--retry-after", "none") as mock:
        seen = [mock.tax("GET", "ping")[1] for _ in range(4)]
        assert [h["X-RateLimit-Limit"] for h in seen] == ["3"] * 4
        assert [h["X-RateLimit-Remaining"] for h in seen] == ["2", "1", "0", "0"]
        assert all(int(h["X-RateLimit-Reset"]) > time.time() for h in seen)
        assert [h["Retry-After"] for h in seen] == [None] * 4
    with Mock("--limit", "2/h", "--headers", "ietf", "--retry-after", "7") as mock:
        seen = [mock.tax("GET", "ping")[1] for _ in range(3)]
        assert [h["RateLimit-Policy"] for h in seen] == ['"default";q=2;w=3600'] * 3
        assert [h["RateLimit"].split(";t=")[0] for h in seen] == ['"default";r=1', '"default";r=0', '"default";r=0']
        assert [h["Retry-After"] for h in seen] == [None, None, "7"]
    with Mock("--limit", "1/h") as mock:
        for _ in range(2):
            headers = mock.tax("GET", "ping")[1]
            assert not [n for n in headers if "ratelimit" in n.lower()]


# ---- scripts ----

def test_steps_by_request_number():
    with Mock() as mock:
        mock.script({"from_request": 2, "to_request": 3, "status": 429, "headers": {"Retry-After": "3"}},
                    {"from_request": 5, "status": 503, "body": "down"})
        assert [mock.ping() for _ in range(6)] == [200, 429, 429, 200, 503, 503]
        assert mock.tax("GET", "ping")[2] == "down"
        mock.script()  # replaced at once, and numbers count anew
        assert [mock.ping() for _ in range(3)] == [200] * 3
        mock.script({"to_request": 1, "status": 418})
        assert [mock.ping() for _ in range(2)] == [418, 200]
        check_identity(mock.stats())


def test_steps_by_time():
    with Mock() as mock:
        before = time.monotonic()
        mock.script({"to_ms": 300, "status": 503})
        seen = []
        while not seen or seen[-1] != 200:
            seen.append(mock.ping())
        assert time.monotonic() - before >= 0.3
        assert seen[0] == 503
        assert mock.ping() == 200
        mock.script({"from_ms": 600000, "status": 503})
        assert mock.ping() == 200


def test_share_is_exact():
    with Mock() as mock:
        mock.script({"share": 0.25, "status": 500})
        assert [mock.ping() for _ in range(12)].count(500) == 3
        mock.script({"share": 0.75, "status": 500}, {"status": 502})
        seen = [mock.ping() for _ in range(12)]
        assert (seen.count(500), seen.count(502)) == (9, 3)


def test_path_and_answer_of_a_step():
    with Mock() as mock:
        mock.script({"path_contains": "/carts", "body": {"items": []}, "headers": {"X-Test": "1", "Date": "Tue, 14 Jul 2026 12:00:00 GMT"}})
        assert mock.ping() == 200
        status, headers, body = mock.tax("POST", "carts", cart())
        assert (status, body, headers["X-Test"]) == (200, {"items": []}, "1")
        assert headers.get_all("Date") == ["Tue, 14 Jul 2026 12:00:00 GMT"]


def test_scripted_429_is_not_the_limits():
    with Mock("--limit", "100/h", "--headers", "x-ratelimit") as mock:
        mock.script({"status": 429})
        status, headers, body = mock.tax("GET", "ping")
        assert (status, body["detail"]) == (429, "scripted")
        assert headers["Retry-After"] is None
        assert headers["X-RateLimit-Limit"] is None
        assert mock.stats()["over_limit"] == 0


def test_latency():
    with Mock("--latency", "60ms", "--jitter", "20ms") as mock:
        start = time.monotonic()
        assert mock.ping() == 200
        assert time.monotonic() - start >= 0.04
        mock.script({"latency_ms": 150})
        start = time.monotonic()
        assert mock.ping() == 200
        assert time.monotonic() - start >= 0.15


@pytest.mark.parametrize("text, words", [
    ('[{"stat": 429}]', ["step 1", '"stat"', "keys are"]),
    ('[{"status": 429}, {"status": "503"}]', ["step 2", "status", "200 to 599"]),
    ('{"status": 429}\n\n{"status": 99}\n', [":3:", "status"]),
    ('{"status": 429}\n{"status": \n', [":2:"]),
    ('[{"status": 429},]', [":1:"]),
    ('[{"status": 429, "status": 500}]', ["duplicate"]),
    ('[5]', ["step 1", "object"]),
    ('[{}]', ["step 1", "does nothing"]),
    ('[{"from_ms": 5, "to_ms": 5, "status": 500}]', ["to_ms", "from_ms"]),
    ('[{"from_request": 5, "to_request": 4, "status": 500}]', ["to_request"]),
    ('[{"share": 0, "status": 500}]', ["share"]),
    ('[{"share": 1.5, "status": 500}]', ["share"]),
    ('[{"action": "explode"}]', ["action", "wrong-length"]),
    ('[{"action": "reset", "status": 500}]', ["action", "no answer"]),
    ('[{"action": "huge", "body": "x"}]', ["body"]),
    ('[{"status": 500, "trickle_ms": 5}]', ["trickle_ms"]),
    ('[{"status": 500, "headers": {"Content-Length": "5"}}]', ["headers", "wrong-length"]),
    ('[{"status": 500, "headers": {"X": "a\\r\\nY: b"}}]', ["headers"]),
    ('[{"status": 500, "headers": {"X": 5}}]', ["headers"]),
    ('[{"latency_ms": -1}]', ["latency_ms"]),
    ('[{"from_ms": 1.5, "status": 500}]', ["from_ms"]),
    ("[" + ",".join(['{"status": 500}'] * 257) + "]", ["256"]),
])
def test_bad_script(text, words, tmp_path):
    with Mock() as mock:
        mock.script({"status": 418})
        status, _, body = mock.call("POST", "/mock/scenario", raw=text.encode(), key=None)
        assert status == 400
        for word in words:
            assert word in body["detail"]
        assert mock.ping() == 418  # the old script stays in force
    file = tmp_path / "bad.json"
    file.write_text(text)
    run = subprocess.run([BIN, "--listen", "127.0.0.1:0", "--scenario", file], capture_output=True, text=True, timeout=WATCHDOG_S)
    assert run.returncode == 2
    assert str(file) in run.stderr
    for word in words:
        assert word in run.stderr


def test_documented_scripts():
    for file, steps in (("black-friday.json", 4), ("bad-answers.jsonl", 9)):
        with Mock("--scenario", SCENARIOS / file) as mock:
            assert mock.stats()["scenario_steps"] == steps


# ---- bad answers, byte by byte ----

def test_reset():
    with Mock() as mock:
        mock.script({"action": "reset"})
        assert read_all(mock.raw()) == (b"", "rst")
        until(lambda: mock.stats()["by_action"] == {"reset": 1})


def test_close():
    with Mock() as mock:
        mock.script({"action": "close"})
        assert read_all(mock.raw()) == (b"", "fin")
        until(lambda: mock.stats()["by_action"] == {"close": 1})


def test_garbage():
    with Mock() as mock:
        mock.script({"action": "garbage"})
        text, end = read_all(mock.raw())
        assert text and not text.startswith(b"HTTP/")
        until(lambda: mock.stats()["by_action"] == {"garbage": 1})


def test_stall():
    with Mock() as mock:
        mock.script({"action": "stall"})
        s = mock.raw()
        s.settimeout(0.3)
        with pytest.raises(socket.timeout):
            s.recv(1)
        stats = mock.stats()
        assert (stats["in_flight"], stats["by_action"]) == (1, {})
        check_identity(stats)
        s.close()
        until(lambda: mock.stats()["by_action"] == {"stall": 1})
        assert mock.stats()["in_flight"] == 0


def split(text):
    head, _, body = text.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    headers = dict((n.lower(), v.strip()) for n, _, v in (line.partition(":") for line in lines[1:]))
    return lines[0], headers, body


def test_trickle():
    with Mock() as mock:
        mock.script({"action": "trickle", "trickle_ms": 30, "body": "0123456789"})
        s = mock.raw()
        parts = []
        while b"".join(parts).partition(b"\r\n\r\n")[2] != b"0123456789":
            part = s.recv(65536)
            assert part, parts
            parts.append(part)
        s.close()
        first, headers, body = split(b"".join(parts))
        assert first.startswith("HTTP/1.1 200")
        assert headers["content-length"] == "10"
        assert len(parts) > 3  # not in one piece


def test_wrong_length():
    with Mock() as mock:
        mock.script({"action": "wrong-length", "body": "0123456789"})
        first, headers, body = split(read_all(mock.raw())[0])
        assert first.startswith("HTTP/1.1 200")
        assert (headers["content-length"], body) == ("110", b"0123456789")


def test_huge():
    with Mock() as mock:
        mock.script({"action": "huge"})
        s = mock.raw()
        text = b""
        while len(text) < 2 * 1024 * 1024:
            part = s.recv(65536)
            assert part
            text += part
        s.close()
        first, headers, body = split(text)
        assert int(headers["content-length"]) == 64 * 1024 * 1024
        assert body.strip() == b"{"
        assert mock.ping() == 200  # another huge one, read whole: it ends
        assert mock.stats()["by_action"] == {"huge": 2}


# ---- counters ----

def test_counters_under_threads():
    with Mock("--limit", "50/s", "--burst", "10") as mock:
        mock.script({"share": 0.1, "status": 503}, {"share": 0.1, "action": "close"})
        def run(n):
            for i in range(25):
                try:
                    mock.tax("POST", "carts", cart(cart_id=f"t{n}-{i}"))
                except (OSError, urllib.error.URLError):
                    pass
        threads = [threading.Thread(target=run, args=(n,)) for n in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        until(lambda: mock.stats()["in_flight"] == 0)
        stats = mock.stats()
        check_identity(stats)
        assert stats["requests_total"] == 200
        assert stats["accepted_total"] + stats["over_limit"] == 200
        assert stats["by_status"]["200"] == stats["carts_seen"] == len(set(stats["carts"])) == len(stats["carts"])
        assert stats["over_limit"] == stats["by_status"].get("429", 0)


def test_reset_stats():
    with Mock() as mock:
        mock.script({"action": "stall"})
        held = mock.raw()
        until(lambda: mock.stats()["in_flight"] == 1)
        assert mock.call("POST", "/mock/reset-stats", key=None)[0] == 200
        stats = mock.stats()
        assert (stats["requests_total"], stats["in_flight"], stats["per_second"], stats["carts"]) == (0, 0, [], [])
        held.close()  # what was in flight at the reset does not count into the new period
        mock.script()
        assert mock.ping() == 200
        stats = mock.stats()
        assert (stats["by_action"], stats["by_status"], stats["in_flight"]) == ({}, {"200": 1}, 0)


# ---- the program ----

def run(*options):
    return subprocess.run([BIN, *map(str, options)], capture_output=True, text=True, timeout=WATCHDOG_S)


def test_help_and_version():
    done = run("--help")
    assert done.returncode == 0
    for word in ("--limit", "--scenario", "/mock/stats", "Exit codes", "fixed-window"):
        assert word in done.stdout
    assert run("--version").stdout.startswith("spillway-provider-mock ")


@pytest.mark.parametrize("options, word", [
    (["--nope"], "--nope"),
    (["extra"], "extra"),
    (["--limit"], "--limit"),
    (["--limit", "fast"], "--limit"),
    (["--algorithm", "leaky", "--limit", "1/s"], "bucket"),
    (["--headers", "ietf"], "--limit"),
    (["--burst", "5"], "--limit"),
    (["--burst", "0", "--limit", "1/s"], "--burst"),
    (["--burst", "5", "--limit", "1/s", "--algorithm", "fixed-window"], "--burst"),
    (["--limit", "0/s"], "--burst"),
    (["--latency", "40"], "--latency"),
    (["--jitter", "40ms"], "--jitter"),
    (["--retry-after", "soon"], "--retry-after"),
    (["--rate", "8.25"], "--rate"),
    (["--rate", "0.1", "--rates", "x"], "--rates"),
    (["--tls-cert", "x"], "--tls-key"),
    (["--api-key", ""], "--api-key"),
    (["--listen", "9080"], "--listen"),
    (["--listen", "localhost:http"], "--listen"),
])
def test_wrong_command_line(options, word):
    done = run(*options)
    assert done.returncode == 2
    assert word in done.stderr
    assert done.stdout == ""


def test_cannot_run(tmp_path):
    with Mock() as mock:
        done = run("--listen", f"127.0.0.1:{mock.port}")
        assert done.returncode == 1
        assert "--listen" in done.stderr
    assert run("--scenario", tmp_path / "none").returncode == 1
    assert run("--rates", tmp_path / "none").returncode != 0
    bad = tmp_path / "bad.pem"
    bad.write_text("no pem")
    done = run("--listen", "127.0.0.1:0", "--tls-cert", bad, "--tls-key", bad)
    assert done.returncode == 1
    assert "PEM" in done.stderr


@pytest.mark.parametrize("step", [{"action": "stall"}, {"action": "trickle", "trickle_ms": 60000}, {"latency_ms": 600000}])
def test_stops_with_requests_in_flight(step):
    with Mock() as mock:
        mock.script(step)
        held = mock.raw()
        until(lambda: mock.stats()["requests_total"] == 1)
        mock.process.send_signal(signal.SIGTERM)
        assert mock.process.wait(WATCHDOG_S) == 0
        held.close()


def test_tls(tmp_path):
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                    "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert],
                   check=True, capture_output=True)
    with Mock("--tls-cert", cert, "--tls-key", key) as mock:
        assert mock.url.startswith("https://")
        trusted = ssl.create_default_context(cafile=str(cert))
        status, _, body = mock.tax("POST", "carts", cart(), context=trusted)
        assert (status, body["items"][0]["lineItems"][0]["tax"]["amount"]) == (200, 0.83)
        with pytest.raises(urllib.error.URLError):
            mock.tax("GET", "ping", context=ssl.create_default_context())


def test_ipv6_loopback():
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    process = subprocess.Popen([BIN, "--listen", "[::1]:0"], stdout=subprocess.PIPE, text=True)
    try:
        url = process.stdout.readline().split()[-1]
        assert url.startswith("http://[::1]:")
        with urllib.request.urlopen(url + "/mock/stats", timeout=WATCHDOG_S) as answer:
            assert json.load(answer)["requests_total"] == 0
    finally:
        process.terminate()
        assert process.wait(WATCHDOG_S) == 0
        process.stdout.close()
