"""The HTTP engine under the decision tree: TLS and its authorities, HTTP/2 that asks for calm, proxies, stalled names,
deadlines by the loop's own clock, a provider that lies. Needs SPILLWAY_BIN.
"""
import base64
import collections
import gzip
import http.server
import itertools
import json
import os
import socket
import ssl
import subprocess
import threading
import time
import urllib.request

import pytest

from harness import BIN, KEY, at_once, quote_body, until
from test_decisions import LIVE, fallback, seen, told


def certificate(directory, name="tls", address="IP:127.0.0.1"):
    cert, key = directory / f"{name}.pem", directory / f"{name}.key"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days",
                    "2", "-subj", f"/CN={name}", "-addext", f"subjectAltName={address}", "-keyout", key, "-out", cert],
                   check=True, capture_output=True)
    return cert, key


class Listener:
    """A provider made of one function per connection, each in a thread; counts connections."""

    def __init__(self, serve, tls=None):
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port, self.serve, self.tls = self.socket.getsockname()[1], serve, tls
        self.connections, self.open = 0, []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            self.connections += 1
            self.open.append(connection)
            threading.Thread(target=self.one, args=(connection,), daemon=True).start()

    def one(self, connection):
        try:
            self.serve(self.tls.wrap_socket(connection, server_side=True) if self.tls else connection)
        except OSError:
            pass

    def close(self):
        self.socket.close()
        for connection in self.open:
            connection.close()


@pytest.fixture
def listen():
    made = []

    def make(*arguments):
        made.append(Listener(*arguments))
        return made[-1]
    yield make
    for one in made:
        one.close()


# ---- TLS ----

def test_a_given_authority_is_trusted_and_read_again(place, backend):
    cert, key = certificate(place.directory)
    other, _ = certificate(place.directory, "other")
    trusted = place.directory / "trusted.pem"
    trusted.write_text(other.read_text())
    mock = place.mock("--tls-cert", cert, "--tls-key", key)
    sidecar = place.sidecar(mock.url.replace("http:", "https:"),
                            account={"allow_plain_http": None, "ca_file": str(trusted),
                                     "breaker": {"mode": "disabled"}})
    assert told(sidecar.quote()) == fallback("provider-error", "connect")
    trusted.write_text("no certificate")
    assert told(sidecar.quote()) == fallback("provider-error", "connect")
    trusted.write_text(cert.read_text())
    until(lambda: told(sidecar.quote()) == LIVE, "the new authority")
    assert "ca.rotated" in sidecar.log()


def test_another_hosts_certificate_is_refused(place):
    cert, key = certificate(place.directory, address="IP:127.0.0.2")
    mock = place.mock("--tls-cert", cert, "--tls-key", key)
    sidecar = place.sidecar(mock.url.replace("http:", "https:"), account={"allow_plain_http": None, "ca_file": str(cert)})
    assert told(sidecar.quote()) == fallback("provider-error", "connect") and seen_tls(mock, cert) == 0


def seen_tls(mock, cert):
    context = ssl.create_default_context(cafile=str(cert))
    context.check_hostname = False
    with urllib.request.urlopen(mock.url.replace("http:", "https:") + "/mock/stats", context=context) as answer:
        return json.loads(answer.read())["requests_total"]


def test_an_authority_that_is_none_is_no_start(place):
    (place.directory / "bad.pem").write_text("x\n")
    sidecar = place.sidecar("https://127.0.0.1:1", account={"allow_plain_http": None,
                                                            "ca_file": str(place.directory / "bad.pem")}, ready=False)
    sidecar.expected_exit = 1
    assert sidecar.wait_exit() == 1 and "bad.pem" in sidecar.log() and "PEM" in sidecar.log()


# ---- HTTP/2 that asks for calm (CRL-H2) ----

def frame(kind, flags, stream, payload=b""):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


TAXED = json.dumps({"items": [{"lineItems": [{"index": i, "tax": {"amount": 1, "rate": 0.09}} for i in range(3)]}]}).encode()
BOTH_SENT = threading.Event()


def go_away(connection):
    """The first frame of a request is answered by GOAWAY, error 11, last stream 0."""
    connection.sendall(frame(4, 0, 0))
    data = b""
    while len(data) < 24 + 9:
        data += connection.recv(65536) or exit()
    BOTH_SENT.wait(30)
    connection.sendall(frame(7, 0, 0, (0).to_bytes(4, "big") + (11).to_bytes(4, "big")))
    while connection.recv(65536):
        pass


def test_enhance_your_calm_is_throttling_and_no_loop(place, backend, listen):
    cert, key = certificate(place.directory)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert, key)
    tls.set_alpn_protocols(["h2"])
    stub = listen(go_away, tls)
    sidecar = place.sidecar(f"https://127.0.0.1:{stub.port}",
                            account={"allow_plain_http": None, "ca_file": str(cert), "deadline": "800ms"})
    BOTH_SENT.clear()
    answers = []
    asking = threading.Thread(target=lambda: answers.extend(at_once(2, lambda i: sidecar.quote())))
    asking.start()
    until(lambda: sidecar.metric("spillway_admissions_total", account="main", outcome="allow") == 2, "both calls")
    BOTH_SENT.set()
    asking.join()
    assert all(answer.json["decision"] == "fallback" for answer in answers)
    assert stub.connections <= 4, "at most two attempts each"
    assert {told(answer)[1] for answer in answers} == {"rate-limit-429"}, [told(answer) for answer in answers]
    assert told(sidecar.quote())[1] == "rate-limit-proactive", "the gate is shut for a moment"
    assert sidecar.metric("spillway_provider_requests_total", account="main", result="throttled") == 2


def streams(ended):
    """HTTP/2 for one connection after another: ended(connection, connection's number, request's number, stream) for each
    request that has been sent whole."""
    numbers = itertools.count(1)

    def serve(connection):
        number, data, requests = next(numbers), b"", 0
        connection.sendall(frame(4, 0, 0))
        while more := connection.recv(65536):
            data += more
            if data.startswith(b"PRI"):
                data = data[24:]
            while len(data) >= 9 and len(data) >= 9 + int.from_bytes(data[:3], "big"):
                length, kind, flags, stream = int.from_bytes(data[:3], "big"), data[3], data[4], data[5:9]
                data = data[9 + length:]
                if kind in (0, 1) and flags & 1:
                    requests += 1
                    ended(connection, number, requests, int.from_bytes(stream, "big"))
    return serve


def calculations(answers):
    """A calculation for each request, until answers(connection number, request number) says no."""
    def ended(connection, number, requests, stream):
        if answers(number, requests):
            connection.sendall(frame(1, 4, stream, b"\x88") + frame(0, 1, stream, TAXED))
    return streams(ended)


def reset(error):
    return lambda stream: frame(3, 0, stream, error.to_bytes(4, "big"))


def with_headers(block):
    """Status 200 and this of HPACK, and a body of two bytes."""
    return lambda stream: frame(1, 4, stream, b"\x88" + block) + frame(0, 1, stream, b"{}")


BROKEN_STREAMS = {
    "refused, again and again": (reset(7), fallback("provider-error", "bad-answer"), 2),
    "calm for one stream": (reset(11), fallback("rate-limit-429", "retry-429"), 1),
    "two lengths": (with_headers(b"\x0f\x0d\x012\x0f\x0d\x013"), fallback("provider-error", "bad-answer"), 1),
    "another length": (with_headers(b"\x0f\x0d\x013"), fallback("provider-error", "bad-answer"), 1),
    "chunked": (with_headers(b"\x00\x11transfer-encoding\x07chunked"), fallback("provider-error", "bad-answer"), 1),
    "a line end in a value": (with_headers(b"\x00\x03x-a\x09b\r\nx-e: 1"), fallback("provider-error", "bad-answer"), 1)}


@pytest.mark.parametrize("what", BROKEN_STREAMS)
def test_a_broken_stream_is_a_fallback_and_no_loop(place, backend, listen, what):
    cert, key = certificate(place.directory)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert, key)
    tls.set_alpn_protocols(["h2"])
    answer, wanted, sent = BROKEN_STREAMS[what]
    asked = []

    def ended(connection, number, requests, stream):
        asked.append(stream)
        connection.sendall(answer(stream))
    stub = listen(streams(ended), tls)
    sidecar = place.sidecar(f"https://127.0.0.1:{stub.port}",
                            account={"allow_plain_http": None, "ca_file": str(cert), "breaker": {"mode": "disabled"}})
    assert told(sidecar.quote()) == wanted
    assert len(asked) == sent


def test_a_connection_that_died_in_silence_is_not_used_for_ever(place, backend, listen):
    """HTTP/2 keeps a connection whose streams time out: one that answers nothing is given up."""
    cert, key = certificate(place.directory)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert, key)
    tls.set_alpn_protocols(["h2"])
    stub = listen(calculations(lambda connection, request: connection > 1 or request <= 1), tls)
    sidecar = place.sidecar(f"https://127.0.0.1:{stub.port}",
                            account={"allow_plain_http": None, "ca_file": str(cert), "deadline": "1s",
                                     "breaker": {"mode": "disabled"}})
    assert told(sidecar.quote()) == LIVE
    assert told(sidecar.quote()) == fallback("provider-timeout", "timeout") and stub.connections == 1
    until(lambda: told(sidecar.quote()) == LIVE, "another connection")  # libcurl counts their age in whole seconds
    assert stub.connections == 2
    assert told(sidecar.quote()) == LIVE and stub.connections == 2, "the new one is kept"


# ---- deadlines by the loop's own clock (CRL-H1) ----

def silent(connection):
    while connection.recv(65536):
        pass


@pytest.mark.parametrize("count", [1, 200])
def test_a_silent_provider_ends_at_the_deadline(place, backend, listen, count):
    """No socket moves: the timer alone ends the calls. The time is the sidecar's own; at twice the deadline the HTTP
    client would give up by itself."""
    stub = listen(silent)
    sidecar = place.sidecar(f"http://127.0.0.1:{stub.port}",
                            account={"deadline": "800ms", "connections": 256, "breaker": {"mode": "disabled"}})
    answers = at_once(count, lambda i: sidecar.quote())
    for answer in answers:
        assert told(answer) == fallback("provider-timeout", "timeout")
        assert 799 <= answer.json["provider"]["ms"] < 1600, "at the first turn after it"
    assert sidecar.metric("spillway_provider_requests_total", account="main", result="timeout") == count


def test_connections_are_capped_and_who_waits_keeps_the_deadline(place, backend, listen):
    stub = listen(silent)
    sidecar = place.sidecar(f"http://127.0.0.1:{stub.port}",
                            account={"deadline": "3s", "connections": 4, "breaker": {"mode": "disabled"}})
    answers = []
    asking = threading.Thread(target=lambda: answers.extend(at_once(20, lambda i: sidecar.quote())))
    asking.start()
    until(lambda: sidecar.metric("spillway_admissions_total", account="main", outcome="allow") == 20, "twenty calls")
    until(lambda: stub.connections == 4, "four connections")
    assert stub.connections == 4
    asking.join()
    assert {told(answer) for answer in answers} == {fallback("provider-timeout", "timeout")}


def raw(*chunks, pause=0):
    def serve(connection):
        while True:
            data = b""
            while b"\r\n\r\n" not in data:
                more = connection.recv(65536)
                if not more:
                    return
                data += more
            for chunk in chunks:
                connection.sendall(chunk() if callable(chunk) else chunk)
                time.sleep(pause)
            connection.close()
            return
    return serve


def answer_with(body, headers=b"Content-Type: application/json\r\n", length=None):
    return b"HTTP/1.1 200 OK\r\n" + headers + b"Content-Length: %d\r\n\r\n" % (len(body) if length is None else length) + body


GZIP = base64.b64decode("H4sIAAAAAAACA6tWyixJzS1WsoqOrQUAhS7IFQ0AAAA=")
LIES = {
    "another length": answer_with(b'{"items":[]}', length=4000),
    "another type": answer_with(b"<html></html>", b"Content-Type: text/html\r\n"),
    "a hundred megabytes": (b"HTTP/1.1 200 OK\r\nContent-Length: 104857600\r\n\r\n", lambda: b" " * 4194304),
    "a hundred megabytes in chunks": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
                                      *[b"100000\r\n" + b" " * 1048576 + b"\r\n"] * 3),
    "truncated gzip": answer_with(GZIP[:-12], b"Content-Encoding: gzip\r\n"),
    "no gzip": answer_with(b'{"items":[]}', b"Content-Encoding: gzip\r\n"),
    "NUL bytes": answer_with(b'{"items":[\0]}'),
    "deep JSON": answer_with(b"[" * 200000),
    "a header of a hundred kilobytes": answer_with(b"{}", b"X: " + b"a" * 120000 + b"\r\n"),
    "a thousand content types": answer_with(b"{}", b"Content-Type: a/b\r\n" * 1000),
    "interim answers without end": b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n" * 20000,
    "little that becomes much": answer_with(gzip.compress(b" " * 4194304), b"Content-Encoding: gzip\r\n"),
    "codings upon codings": answer_with(b"hello", b"Content-Encoding: gzip, gzip, gzip, gzip, gzip, gzip\r\n"),
    "no HTTP": b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
    "HTTP/0.9": b'{"items":[]}',
    "an end in the headers": b"HTTP/1.1 200 OK\r\nContent-Type: app",
    "a status that is none": b"HTTP/1.1 99999 OK\r\n\r\n",
    "infinity": answer_with(b'{"items":[{"lineItems":[{"index":0,"tax":{"amount":1e999,"rate":1}}]}]}')}


@pytest.mark.parametrize("lie", LIES)
def test_a_lying_provider_is_a_fallback(place, listen, lie):
    chunks = LIES[lie]
    stub = listen(raw(*(chunks if isinstance(chunks, tuple) else (chunks,))))
    sidecar = place.sidecar(f"http://127.0.0.1:{stub.port}", account={"breaker": {"mode": "disabled"}})
    for _ in range(3):
        assert told(sidecar.quote()) == fallback("provider-error", "bad-answer"), lie
    assert "[[[[" not in sidecar.log() and "Ravine" not in sidecar.log()


# ---- an answer whose end two readers would see in two places (RFC 9112, 6.3) ----

IN_CHUNKS = b"%x\r\n%s\r\n0\r\n\r\n" % (len(TAXED), TAXED)
LONG, CHUNKED = b"Content-Length: %d\r\n" % len(TAXED), b"Transfer-Encoding: chunked\r\n"
EARLY = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n" + CHUNKED + b"Content-Length: 5\r\n\r\n"
FRAMES = {
    "a length and chunks": (LONG + CHUNKED + b"\r\n" + IN_CHUNKS, False),
    "chunks and a length, lower case": ((CHUNKED + LONG).lower() + b"\r\n" + IN_CHUNKS, False),
    "two lengths, the last is right": (b"Content-Length: 5\r\n" + LONG + b"\r\n" + TAXED, False),
    "two lengths in a list": (LONG[:-2] + b", 5\r\n\r\n" + TAXED, False),
    "more than a number": (LONG[:-2] + b"x\r\n\r\n" + TAXED, False),
    "a sign": (b"Content-Length: +%d\r\n\r\n" % len(TAXED) + TAXED, False),
    "chunked twice": (CHUNKED + CHUNKED + b"\r\n" + IN_CHUNKS, False),
    "another coding": (b"Transfer-Encoding: identity\r\n" + LONG + b"\r\n" + TAXED, False),
    "a carriage return within a line": (b"X: a\rContent-Length: 5\r\n" + LONG + b"\r\n" + TAXED, False),
    "a blank before the colon": (b"Transfer-Encoding : chunked\r\n" + LONG + b"\r\n" + TAXED, False),
    "a header named as a status line": (b"Content-Length: 5\r\nHTTP/x: y\r\n" + LONG + b"\r\n" + TAXED, False),
    "a trailer named as a status line": (CHUNKED + b"\r\n" + IN_CHUNKS[:-2] + b"HTTP/x: y\r\n\r\n", True),
    "one length said twice": (LONG + LONG + b"\r\n" + TAXED, True),
    "chunks alone": (CHUNKED + b"\r\n" + IN_CHUNKS, True)}


def in_turn(*answers):
    """One answer a request, the last for all that follow, on as many connections as are made."""
    left = list(answers)

    def serve(connection):
        data = b""
        while more := connection.recv(65536):
            data += more
            head, end, rest = data.partition(b"\r\n\r\n")
            length = int(next((line.split(b":")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")), 0))
            if end and len(rest) >= length:
                data = rest[length:]
                connection.sendall(left.pop(0) if len(left) > 1 else left[0])
    return serve


@pytest.mark.parametrize("frame_of", FRAMES)
def test_an_answer_framed_in_doubt(place, backend, listen, frame_of):
    """Broken, and its connection is not used again. A plain one is taken, and the connection kept; what an interim answer
    says of its length, it says for nobody."""
    frame, plain = FRAMES[frame_of]
    ok = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
    stub = listen(in_turn(EARLY + ok + frame, ok + LONG + b"\r\n" + TAXED))
    sidecar = place.sidecar(f"http://127.0.0.1:{stub.port}", account={"breaker": {"mode": "disabled"}})
    assert told(sidecar.quote()) == (LIVE if plain else fallback("provider-error", "bad-answer"))
    assert told(sidecar.quote()) == LIVE
    assert stub.connections == (1 if plain else 2)
    assert plain or "in doubt where the answer ends" in sidecar.log()


@pytest.mark.parametrize("action", ["reset", "close", "stall", "trickle", "garbage", "wrong-length", "huge"])
def test_another_accounts_calls_are_unharmed(place, backend, action):
    bad, good = place.mock(), place.mock()
    bad.script({"action": action})
    place.config["accounts"]["other"] = place.account(good.url)
    sidecar = place.sidecar(bad, account={"deadline": "1s", "breaker": {"mode": "disabled"}})
    answers = at_once(16, lambda i: sidecar.quote(account=["main", "other"][i % 2]))
    assert {answer.json["decision"] for answer in answers[0::2]} == {"fallback"}
    assert {told(answer) for answer in answers[1::2]} == {LIVE}


def test_a_caller_who_hangs_up_ends_the_call(place, backend, listen):
    ended = threading.Event()

    def serve(connection):
        silent(connection)
        ended.set()
    stub = listen(serve)
    sidecar = place.sidecar(f"http://127.0.0.1:{stub.port}", account={"deadline": "10s"})
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(str(place.pub / "quote.sock"))
        body = json.dumps(quote_body()).encode()
        caller.sendall(b"POST /spillway/v1/quote HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        until(lambda: stub.connections, "the call")
    assert ended.wait(8), "the provider's side of it is closed before its deadline"
    assert sidecar.flags() == []


def test_a_stalled_name_server_holds_nobody_up(place, backend):
    """getaddrinfo() of one name hangs; calls of the other account go on, and the stop is clean."""
    if os.environ.get("SPILLWAY_SANITIZED"):
        pytest.skip("the sanitizer must be the first library: nothing can be preloaded")
    good = place.mock()
    place.config["accounts"]["other"] = place.account(good.url)
    sidecar = place.sidecar("http://stalled.example:8080", account={"deadline": "700ms"},
                            environment={"LD_PRELOAD": str(BIN / "libstall_names.so")})
    answers = at_once(8, lambda i: sidecar.quote(account=["main", "other"][i % 2]))
    assert {told(answer)[:2] for answer in answers[0::2]} == {("fallback", "provider-timeout")}
    assert all(answer.json["provider"]["ms"] < 1400 for answer in answers[0::2])
    assert {told(answer) for answer in answers[1::2]} == {LIVE}


def test_a_provider_that_hangs_up_a_thousand_times(place, backend, listen):
    """URI-H2: nothing is lost by a close: afterwards every call is answered."""
    mock, good = place.mock(), threading.Event()

    def serve(connection):
        data = connection.recv(65536)
        if not good.is_set():
            connection.close()
            return
        with socket.create_connection(("127.0.0.1", mock.port)) as there:
            there.sendall(data)
            back = threading.Thread(target=pump, args=(there, connection), daemon=True)
            back.start()
            pump(connection, there)
            back.join()
    stub = listen(serve)
    sidecar = place.sidecar(f"http://127.0.0.1:{stub.port}", account={
        "breaker": {"mode": "disabled"}, "limit": {"rate": "100000/s", "burst": 100000, "pods": 1}})
    results = at_once(20, lambda i: [told(sidecar.quote()) for _ in range(50)])
    assert {one for result in results for one in result} == {fallback("provider-error", "bad-answer")}
    good.set()
    results = at_once(10, lambda i: [told(sidecar.quote()) for _ in range(10)])
    assert {one for result in results for one in result} == {LIVE}
    assert sidecar.metric("spillway_provider_requests_total", account="main", result="broken") == 1000


# ---- the way out ----

class Proxy(http.server.BaseHTTPRequestHandler):
    """Answers CONNECT, asks for a password, and remembers what was asked."""
    asked = []

    def log_message(self, *_):
        pass

    def do_CONNECT(self):
        Proxy.asked.append((self.path, self.headers.get("Proxy-Authorization"), self.headers.get("X-API-KEY")))
        if self.headers.get("Proxy-Authorization") != "Basic " + base64.b64encode(b"shop:secret-way").decode():
            self.send_response(407)
            self.send_header("Proxy-Authenticate", 'Basic realm="x"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        host, port = self.path.rsplit(":", 1)
        with socket.create_connection((host, int(port))) as there:
            self.send_response(200, "Connection established")
            self.end_headers()
            back = threading.Thread(target=pump, args=(there, self.connection), daemon=True)
            back.start()
            pump(self.connection, there)
            back.join()
        self.close_connection = True


def pump(source, sink):
    try:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def test_calls_leave_by_the_configured_proxy(place, backend):
    Proxy.asked.clear()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    password = place.directory / "proxy"
    password.write_text("shop:wrong-way\n")
    mock = place.mock()
    sidecar = place.sidecar(mock, account={"proxy": f"http://127.0.0.1:{server.server_address[1]}",
                                           "proxy_credentials_file": str(password), "breaker": {"mode": "disabled"}})
    assert told(sidecar.quote()) == fallback("provider-error", "connect") and seen(mock) == 0
    password.write_text("shop:secret-way\n")
    until(lambda: told(sidecar.quote()) == LIVE, "the rotated password")
    assert seen(mock) >= 1 and {path for path, _, _ in Proxy.asked} == {f"127.0.0.1:{mock.port}"}
    assert all(key is None for _, _, key in Proxy.asked), "the account's key is for the provider alone"
    assert "secret-way" not in sidecar.log() and KEY not in sidecar.log()
    server.shutdown()
    server.server_close()


# ---- many orders refused at once ----

class Refusing(http.server.BaseHTTPRequestHandler):
    """429 to everybody, with the time of each call by customer."""
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        customer = body["items"][0]["customerId"]
        if not self.server.calls[customer]:
            self.server.all_here.wait(30)  # all are refused at once
        self.server.calls[customer].append(time.monotonic())
        self.server.keys[customer].append(json.dumps(body, sort_keys=True))
        text = b'{"title":"Too Many Requests","status":429}'
        self.send_response(429)
        self.send_header("Content-Type", "application/problem+json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


class ManyServer(http.server.ThreadingHTTPServer):
    request_queue_size = 512
    daemon_threads = True


def test_two_hundred_orders_refused_at_once_come_back_spread(place, backend):
    server = ManyServer(("127.0.0.1", 0), Refusing)
    server.all_here = threading.Barrier(200)
    server.calls, server.keys = collections.defaultdict(list), collections.defaultdict(list)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sidecar = place.sidecar(f"http://127.0.0.1:{server.server_address[1]}",
                            account={"connections": 256, "deadline": "2500ms", "breaker": {"mode": "disabled"},
                                     "limit": {"rate": "1000/s", "burst": 2000, "pods": 1}},
                            config={"test": {"seed": 20251128}})
    answers = at_once(200, lambda i: sidecar.quote(customer={"id": f"o-{i}"}))
    server.shutdown()
    server.server_close()
    assert {answer.json["fallback"]["type"] for answer in answers} == {"rate-limit-429"}
    assert len(server.calls) == 200 and max(map(len, server.calls.values())) <= 2, "at most one retry each"
    waits = [times[1] - times[0] for times in server.calls.values() if len(times) == 2]
    assert len(waits) > 100 and max(waits) < 2.5, "none after the deadline"
    assert all(len(set(bodies)) == 1 for bodies in server.keys.values()), "the same body and idempotency key"
    first = min(waits)
    bins = collections.Counter(int((wait - first) * 10) for wait in waits)
    mean = len(waits) / 6  # 700 to 1300 ms
    assert max(bins.values()) <= 3 * mean, bins
    assert len({flag["flag_id"] for flag in sidecar.flags()}) <= 200
