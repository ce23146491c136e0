"""Trace context: a caller's trace goes on to the provider as a child of its span and into the log of its decision."""
import http.server
import json
import re
import socket
import threading

import pytest

from harness import quote_body, until
from test_pass import TAX, cart

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"


class FarEnd(http.server.ThreadingHTTPServer):
    """A provider that answers a status and keeps the headers it was asked with."""
    daemon_threads = True

    def __init__(self):
        self.asked, self.statuses = [], []

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(handler):
                handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
                self.asked.append(handler.headers)
                handler.send_response(self.statuses.pop(0) if self.statuses else 500)
                handler.send_header("Content-Length", "2")
                handler.end_headers()
                handler.wfile.write(b"{}")
            do_GET = do_POST = answer

            def log_message(self, *words):
                pass
        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


@pytest.fixture
def far_end():
    server = FarEnd()
    yield server
    server.shutdown()
    server.server_close()


def child(headers):
    """The span a call was sent with: of the caller's trace, and not the caller's own."""
    [parent] = headers.get_all("traceparent")
    found = re.fullmatch(f"00-{TRACE}-([0-9a-f]{{16}})-01", parent)
    assert found and found[1] not in (SPAN, "0" * 16)
    return found[1]


def test_a_quote_is_a_child_of_the_callers_span(place, far_end):
    sidecar = place.sidecar(far_end.url, config={"log": {"format": "json", "level": "debug"}})
    far_end.statuses = [429, 500]
    answer = sidecar.post("/spillway/v1/quote", quote_body(), headers={"traceparent": PARENT, "tracestate": "a=1,b=2"})
    assert answer.json["decision"] == "fallback" and answer.json["provider"]["attempts"] == 2
    first, second = (child(headers) for headers in far_end.asked)
    assert first != second, "each attempt is a span of its own"
    assert [headers.get_all("tracestate") for headers in far_end.asked] == [["a=1,b=2"]] * 2

    def lines():
        parsed = [json.loads(line) for line in sidecar.log().splitlines()]
        return {line["event"]: line for line in parsed if line.get("trace_id") == TRACE}
    until(lambda: "quote.decided" in lines(), "the decision's line")
    for event in ("provider.error", "quote.decided"):
        assert lines()[event]["span_id"] == second
    assert answer.json["quote_id"] in lines()["quote.decided"]["message"]


@pytest.mark.parametrize("headers", [
    {}, {"tracestate": "a=1"}, {"traceparent": ""}, {"traceparent": "nonsense"}, {"traceparent": PARENT.upper()},
    {"traceparent": f"00-{'0' * 32}-{SPAN}-01"}, {"traceparent": PARENT + "-more"}, {"traceparent": PARENT * 40}])
def test_without_a_valid_trace_none_is_made(place, far_end, headers):
    sidecar = place.sidecar(far_end.url)
    assert sidecar.post("/spillway/v1/quote", quote_body(), headers=headers).json["decision"] == "fallback"
    assert [(asked["traceparent"], asked["tracestate"]) for asked in far_end.asked] == [(None, None)]
    assert "trace_id" not in sidecar.log()


def raw(place, head):
    """A quote with header lines that no client library would send; the answer's first line."""
    body = json.dumps(quote_body()).encode()
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(30)
        s.connect(str(place.pub / "quote.sock"))
        s.sendall(b"POST /spillway/v1/quote HTTP/1.1\r\nHost: x\r\n" + head +
                  f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
        return s.makefile("rb").readline()


def test_no_header_can_be_slipped_in(place, far_end):
    sidecar = place.sidecar(far_end.url)
    good = f"traceparent: {PARENT}\r\n".encode()
    # Twice is no parent; two lists are one; a list with bytes of no list is left out alone.
    assert b"200" in raw(place, good + good)
    assert far_end.asked.pop()["traceparent"] is None
    assert b"200" in raw(place, good + b"tracestate: a=1\r\ntracestate: b=2\r\n")
    assert far_end.asked[-1].get_all("tracestate") == ["a=1,b=2"] and child(far_end.asked.pop())
    for state in (b"a=1\xff", b"a=" + b"x" * 600, b"only-a-key", ",".join(f"k{i}=1" for i in range(33)).encode()):
        assert b"200" in raw(place, good + b"tracestate: " + state + b"\r\n")
        assert far_end.asked[-1]["tracestate"] is None and child(far_end.asked.pop())
    # A line feed or another control byte in a header: the door refuses it, or what follows it is a header to the door alone.
    for evil in (b"a=1\nX-Evil: 1", b"a=1\rX-Evil: 1", b"a=1\r\n X-Evil: 1", b"a=1\x00X-Evil: 1"):
        before = len(far_end.asked)
        raw(place, good + b"tracestate: " + evil + b"\r\n")
        for asked in far_end.asked[before:]:
            assert asked["X-Evil"] is None and asked["tracestate"] in (None, "a=1")
    assert sidecar.quote().json["decision"] == "fallback"


def test_an_sdks_trace_goes_on_as_a_child(place, far_end):
    sidecar = place.sidecar(far_end.url, {"listen": f"127.0.0.1:{place.pass_port}"})
    far_end.statuses = [200]
    path = f"{TAX}/ping"
    headers = {"traceparent": PARENT, "tracestate": "a=1", "X-Sdk": "one"}
    assert sidecar.sdk("GET", path, headers=headers).status == 200
    asked = far_end.asked.pop()
    assert child(asked) and asked.get_all("tracestate") == ["a=1"] and asked["X-Sdk"] == "one"
    # A calculation goes through the decision tree: it falls back here, under the same trace.
    assert sidecar.sdk("POST", f"{TAX}/carts", cart(), headers=headers).headers["Spillway-Decision"] == "fallback"
    asked = far_end.asked.pop()
    assert child(asked) and asked.get_all("tracestate") == ["a=1"]
    assert f"trace_id={TRACE}" in sidecar.log()
    far_end.statuses = [200]
    assert sidecar.sdk("GET", path, headers={"traceparent": "broken", "tracestate": "a=1"}).status == 200
    asked = far_end.asked.pop()
    assert asked["traceparent"] is None and asked["tracestate"] is None
