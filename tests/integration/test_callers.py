"""The callers of clients/, each with its own runtime: live, fallback, rejected, none; and whatever else may go wrong ends in
the shop's last resort and a line in the spool."""
import http.server
import json
import os
import re
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from harness import WATCHDOG_S, free_port, quote_body, until

CLIENTS = Path(__file__).resolve().parent.parent.parent / "clients"
SOURCE = {"node": "node/spillway.js", "python": "python/spillway.py", "php": "php/spillway.php",
          "java": "java/Spillway.java", "go": "go/spillway.go"}
RUN = {"node": ["node"], "python": ["/usr/bin/python3"], "php": ["php"]}


@pytest.fixture(scope="module", params=sorted(SOURCE))
def caller(request, tmp_path_factory):
    """The command that runs a caller, compiled where it has to be."""
    language, source = request.param, CLIENTS / SOURCE[request.param]
    tmp_path = tmp_path_factory.mktemp(language)
    tool = {"java": "javac", "go": "go"}.get(language) or RUN[language][0]
    if not shutil.which(tool):
        pytest.skip(f"{tool} is not installed: the caller in {language} was not run")
    if language == "java":
        subprocess.run(["javac", "-d", tmp_path, source], check=True, timeout=4 * WATCHDOG_S)
        return ["java", "-XX:TieredStopAtLevel=1", "-cp", str(tmp_path), "Spillway"]
    if language == "go":
        subprocess.run(["go", "build", "-o", tmp_path / "spillway", source], check=True, timeout=4 * WATCHDOG_S,
                       env={"HOME": str(tmp_path), **os.environ, "CGO_ENABLED": "0", "GO111MODULE": "off"})
        return [str(tmp_path / "spillway")]
    return [*RUN[language], str(source)]


class Shop:
    def __init__(self, place, command):
        self.command, self.spool, self.place = command, place.directory / "spool" / "web.jsonl", place
        self.spool.parent.mkdir()

    def ask(self, *requests, url=None, token=None):
        """What each request came to: the answer, None for the last resort, or the text of the rejection."""
        environment = {**os.environ, "SPILLWAY_URL": url or f"http://127.0.0.1:{self.place.quote_port}",
                       "SPILLWAY_TOKEN_FILE": str(token or self.place.pub / "token"),
                       "SPILLWAY_SPOOL": str(self.spool), "http_proxy": f"http://127.0.0.1:{free_port()}"}
        lines = "".join(json.dumps(request) + "\n" for request in requests)
        ran = subprocess.run(self.command, input=lines, text=True, capture_output=True, env=environment,
                             timeout=4 * WATCHDOG_S)
        assert ran.returncode == 0 and ran.stderr == "", ran.stderr
        told = ran.stdout.splitlines()
        assert len(told) == len(requests), ran.stdout
        return [text if text.startswith("rejected") else json.loads(text) for text in told]

    def spooled(self):
        return [json.loads(line) for line in self.spool.read_text().splitlines()] if self.spool.exists() else []


def decision(answer):
    return {name.lower(): value for name, value in answer.items()}["decision"]


class Oddities(http.server.BaseHTTPRequestHandler):
    """What no sidecar should do: a flag handed back, no JSON, no answer."""
    stop = threading.Event()

    def do_POST(self):
        what = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["case"]
        if what == "stall":
            self.stop.wait(WATCHDOG_S)
            return
        body = {"handback": json.dumps({"quote_id": "sq_1", "decision": "fallback", "tax": "6.71", "provider": None,
                                        "fallback": {"type": "provider-error", "handback": {"flag_id": "sf_1"}}},
                                       separators=(",", ":")), "garbage": "<html>"}[what].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass


def test_every_answer_has_its_way(place, caller):
    mock = place.mock()
    mock.script({"from_request": 2, "to_request": 2, "status": 422}, {"from_request": 3, "status": 500})
    place.sidecar(mock)
    shop = Shop(place, caller)
    nowhere = {"country": "US", "state": "OR", "zip": "97201", "city": "Portland", "line1": "1 \"Main\" \\ St é"}
    live, rejected, fallback, none = shop.ask(
        quote_body(customer={"id": "1"}), quote_body(customer={"id": "2"}), quote_body(customer={"id": "3"}),
        quote_body(customer={"id": "4"}, ship_to=nowhere))
    assert (decision(live), decision(fallback)) == ("live", "fallback")
    assert rejected.startswith("rejected") and "422" in rejected
    assert none is None
    [line] = shop.spooled()
    assert line["unquoted"]["ship_to"] == nowhere and line["at"] and "503" in line["why"]


def test_whatever_else_goes_wrong_is_the_last_resort(place, caller):
    sidecar = place.sidecar(place.mock())
    shop = Shop(place, caller)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Oddities)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        cases = [{"case": name} for name in ("handback", "garbage", "stall")]
        handed, garbage, stalled = shop.ask(*cases, url=f"http://127.0.0.1:{server.server_address[1]}")
    finally:
        Oddities.stop.set()
        server.shutdown()
        server.server_close()
        Oddities.stop.clear()
    assert decision(handed) == "fallback" and garbage is None and stalled is None
    assert shop.spooled()[0] == {"flag_id": "sf_1"}, "the flag is kept as it was handed back"
    assert [line["unquoted"]["case"] for line in shop.spooled()[1:]] == ["garbage", "stall"]
    (place.directory / "wrong").write_text("no-token")
    assert shop.ask(quote_body(), token=place.directory / "wrong") == [None]
    assert shop.ask(quote_body(), token=place.directory / "missing") == [None]
    sidecar.stop()
    assert shop.ask(quote_body()) == [None]
    assert [line["unquoted"] for line in shop.spooled()[3:]] == [quote_body()] * 3


def test_what_was_spooled_is_taken_up_by_the_sidecar(place):
    """A last-resort line is no flag: the sidecar keeps it aside for a person, and counts it."""
    spool = place.directory / "taken"
    spool.mkdir()
    sidecar = place.sidecar(place.mock(), config={"store": {"spool_dir": str(spool)}})
    (spool / "web.jsonl").write_text(json.dumps({"unquoted": quote_body(), "at": "now", "why": "status 503"}) + "\n")
    until(lambda: sidecar.metric("spillway_spool_lines_total", result="bad") == 1, "the line kept aside")
    [kept] = (spool / "bad").iterdir()
    assert '"unquoted"' in kept.read_text()


def test_each_caller_is_fifteen_lines_and_shown_as_it_is():
    for name in SOURCE.values():
        body = re.search(r" caller:\n(.*?)\n?[^\n]*:caller", (CLIENTS / name).read_text(), re.S)[1]
        assert len(body.splitlines()) <= 15, name
        assert max(map(len, body.splitlines())) <= 130, name
