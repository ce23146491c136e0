"""A sidecar's life: what keeps it from starting, which loop it runs on, how it drains and stops, what it leaves.

Needs SPILLWAY_BIN; parts need root.
"""
import http.client
import json
import os
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

from harness import BIN, KEY, WATCHDOG_S, at_once, finish, quote_body, read_lines, until

DOWN = "http://127.0.0.1:1"
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def left_behind(place):
    """What lies in both volumes, but for the file that keeps a second sidecar out, and the ledger."""
    names = [path.name for directory in (place.pub, place.rw) for path in directory.iterdir()]
    names += [path.name for path in place.directory.glob("flags.db*")]
    return sorted(name for name in names if name != "sidecar.lock")


def fails_to_start(place, *words, program="spillwayd"):
    """It ends with 1 and says these words; gives all it said."""
    result = subprocess.run([str(BIN / program), "--config", str(place.config_path)], text=True, capture_output=True,
                            timeout=WATCHDOG_S)
    assert result.returncode == 1, result.stderr
    for word in words:
        assert word in result.stderr
    assert KEY not in result.stderr + result.stdout
    return result.stderr


# ---- what keeps it from starting ----

CONFIG = """accounts:
  main:
    provider: taxcloud
    connection: x
    credentials: {api_key_file: KEYFILE}
    limit: {rate: 100/s, burst: 250, pods: 40}
fallback:
  rates: [{file: RATES, as_of: 2025-11-01, source: vendor}]
segment: {pub_dir: PUB, rw_dir: RW}
listen: {admin: "127.0.0.1:ADMIN"}
store: {file: LEDGER}
"""


def write_text(place, text):
    for name, value in (("KEYFILE", place.directory / "api-key"), ("RATES", place.rates), ("PUB", place.pub),
                        ("RW", place.rw), ("ADMIN", place.admin_port), ("LEDGER", place.ledger)):
        text = text.replace(name, str(value))
    place.config_path.write_text(text)


@pytest.mark.parametrize("find, put, where, words", [
    (", pods: 40", "", "", ("accounts.main.limit.pods", "missing")),
    ("pods: 40", "pods: 0", ":6:", ("accounts.main.limit.pods", "out of range")),
    ("pods: 40", "pods: many", ":6:", ("accounts.main.limit.pods",)),
    ("pods: 40", "pods: 1e+06", ":6:", ("accounts.main.limit.pods",)),
    ("burst: 250", "burst: 1e+06", ":6:", ("accounts.main.limit.burst",)),
    ("rate: 100/s", "rate: fast", ":6:", ("accounts.main.limit.rate",)),
    ("rate: 100/s", "rate: -5/s", ":6:", ("accounts.main.limit.rate",)),
    ("    provider: taxcloud\n", "    provider: avalanche\n", ":3:", ("accounts.main.provider", "taxcloud")),
    ("connection: x", "connection: x\n    colour: red", ":5:", ("accounts.main.colour", "is not known")),
    ("connection: x", "connection: x\n    url: http://127.0.0.1", ":5:", ("accounts.main.url", "allow_plain_http")),
    ("connection: x", "connection: x\n    url: https://user:pw@host", ":5:", ("accounts.main.url",)),
    ("connection: x", "connection: x\n    connection: y", ":5:", ("connection",)),
    ("connection: x", "connection: x\n    deadline: 1h", ":5:", ("accounts.main.deadline", "10s")),
    ("connection: x", "connection: x\n    breaker: {cooldown: 60s..30s}", ":5:", ("cooldown",)),
    ("api_key_file: KEYFILE", "api_key_file: /nowhere/key", ":5:", ("api_key_file", "No such file")),
    ("api_key_file: KEYFILE", "api_key_file: KEYFILE, api_key_env: HOME", ":5:", ("credentials", "both")),
    ("api_key_file: KEYFILE", "api_key_env: NO_SUCH_VARIABLE_HERE", ":5:", ("api_key_env", "not set")),
    ("file: RATES", "file: /nowhere/rates.csv", None, ("fallback.rates[0].file", "/nowhere/rates.csv", "No such file")),
    ("as_of: 2025-11-01, ", "", ":8:", ("as_of", "missing")),
    ("as_of: 2025-11-01", "as_of: 2025-13-01", ":8:", ("as_of",)),
    ("rw_dir: RW", "rw_dir: PUB", ":9:", ("segment", "two directories")),
    ("rw_dir: RW", "rw_dir: RW, slots: 4", ":9:", ("segment.slots", "8 to 512")),
    ('admin: "127', 'quote: "0.0.0.0:8390", admin: "127', ":10:", ("listen.quote", "loopback")),
    ('admin: "127', 'control: "10.1.2.3:8392", admin: "127', ":10:", ("listen.control", "loopback")),
    ("  main:\n", "  'a \"quoted\" name':\n", ":2:", ("accounts", "letters")),
    ("  main:\n", '  "two\\nlines":\n', ":2:", ("accounts", "line break")),
    ("accounts:", "accounts: {}\nother:", "", ()),
    ("store:", "\tstore:", "", ()),
])
def test_a_bad_configuration(place, find, put, where, words):
    assert find in CONFIG
    write_text(place, CONFIG.replace(find, put))
    told = fails_to_start(place, *words)
    assert where is None or f"{place.config_path}{where}" in told, told
    assert left_behind(place) == [] and not (place.pub / "sidecar.lock").exists()
    write_text(place, CONFIG)
    result = subprocess.run([str(BIN / "spillwayd"), "--check-config", "--config", str(place.config_path)],
                            capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (0, f"{place.config_path}: good\n"), result.stderr


@pytest.mark.parametrize("as_of, told", [("2014-10-01", "will NOT be served"), ("2199-01-01", "lies"), (None, None)])
def test_the_age_of_a_table_is_told(place, as_of, told):
    write_text(place, CONFIG.replace("2025-11-01", as_of or time.strftime("%Y-%m-%d", time.gmtime())))
    result = subprocess.run([str(BIN / "spillwayd"), "--check-config", "--config", str(place.config_path)],
                            capture_output=True, text=True)
    assert result.returncode == 0 and ("rates.age" in result.stderr) == (told is not None), result.stderr
    assert told is None or told in result.stderr


@pytest.mark.parametrize("content, words", [("", "empty"), ("two keys\n", "holds no key"), ("\n", "holds no key"),
                                            ("one\ntwo\n", "holds no key"), ("k" * 1024, "holds no key"),
                                            (None, "no regular file")])
def test_a_key_that_cannot_be_used(place, content, words):
    write_text(place, CONFIG)
    key = place.directory / "api-key"
    key.unlink()
    if content is None:
        key.mkdir()
    else:
        key.write_text(content)
    fails_to_start(place, f"{place.config_path}:5:", "api_key_file", words)
    assert left_behind(place) == []


def test_a_key_spoilt_later_harms_no_caller(place, backend):
    sidecar = place.sidecar(place.mock("--api-key", KEY))
    assert sidecar.quote().json["decision"] == "live"
    (place.directory / "api-key").write_text("two keys\n")
    until(lambda: sidecar.quote() and "secret.unreadable" in sidecar.log(), "a look at the file")
    assert sidecar.quote().json["decision"] == "live", "the last good one stays in use"
    assert "two keys" not in sidecar.log()


def test_no_configuration_and_wrong_words(place):
    fails_to_start(place, str(place.config_path))
    for words, code in ((["--nonsense"], 2), (["extra"], 2), (["--version"], 0), (["--help"], 0)):
        result = subprocess.run([str(BIN / "spillwayd"), *words], capture_output=True, text=True)
        assert result.returncode == code, words


def test_a_directory_that_is_not_there(place):
    place.rw.rmdir()
    place.config["accounts"]["main"] = place.account(DOWN)
    place.write_config()
    fails_to_start(place, str(place.rw))
    assert [path.name for path in place.pub.iterdir() if path.name != "sidecar.lock"] == []


def test_a_second_sidecar_is_kept_out(place, backend):
    mock = place.mock()
    first = place.sidecar(mock)
    before = sorted(path.name for path in place.pub.iterdir())
    inode = (place.pub / "quote.sock").stat().st_ino, (place.pub / "segment").stat().st_ino
    for program in ("spillwayd", "spillwayd-next"):
        fails_to_start(place, "held by another sidecar", "segment.pub_dir", program=program)
    assert sorted(path.name for path in place.pub.iterdir()) == before
    assert inode == ((place.pub / "quote.sock").stat().st_ino, (place.pub / "segment").stat().st_ino)
    assert first.quote().json["decision"] == "live"


def test_a_port_that_is_taken(place, backend):
    place.config["accounts"]["main"] = place.account(DOWN)
    place.write_config()
    for port in (place.admin_port, place.quote_port, place.control_port):
        with socket.create_server(("127.0.0.1", port)):
            fails_to_start(place, str(port), "listen", "choose")
        assert [name for name in left_behind(place) if name.endswith(".sock") or "tmp" in name] == []
    sidecar = place.sidecar()
    assert sidecar.quote().json["decision"] == "fallback"


@root_only
@pytest.mark.parametrize("small", ["pub", "rw"])
def test_a_volume_that_is_too_small(place, small):
    place.config["accounts"]["main"] = place.account(DOWN)
    place.write_config()
    sizes = dict(line.split() for line in subprocess.run(
        [str(BIN / "spillwayd"), "--config", str(place.config_path), "--print-segment-bytes"], text=True, check=True,
        capture_output=True).stdout.splitlines())
    volume = place.directory / small
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "none", volume], check=True)
    try:
        told = fails_to_start(place, "NO_SPACE", str(volume), sizes[small], "free", "segment.cells")
        assert "segment.rate_records" in told
        assert left_behind(place) == []
        assert os.statvfs(volume).f_bavail * 4096 >= 120 * 1024, "the volume is given back"
    finally:
        subprocess.run(["umount", volume], check=True)
    assert place.sidecar().quote().json["decision"] == "fallback"


# ---- the loop's back-end ----

@pytest.mark.parametrize("answer, reason", [("EPERM", "Operation not permitted"), ("ENOSYS", "not implemented")])
def test_io_uring_refused(place, answer, reason):
    mock = place.mock()
    sidecar = place.sidecar(mock, launcher=[BIN / "deny_uring", answer], config={"loop": {"backend": "auto"}})
    assert sidecar.quote().json["decision"] == "live"
    assert sidecar.metric("spillway_loop_backend", backend="epoll") == 1
    assert sidecar.metric("spillway_loop_backend", backend="io_uring") == 0
    [info] = [dict(labels) for name, labels in sidecar.metrics() if name == "spillway_loop_info"]
    assert info["backend"] == "epoll" and reason in info["reason"]
    warnings = [line for line in sidecar.log().splitlines() if " warn " in line and "loop.backend" in line]
    assert warnings and all("epoll" in line and reason in line for line in warnings), sidecar.log()
    assert len(warnings) == 1, "said once"
    status = json.loads(sidecar.ctl("status", "--json").stdout)
    assert status["loop"]["backend"] == "epoll" and reason in status["loop"]["reason"]


def test_io_uring_demanded_and_refused(place):
    place.config["accounts"]["main"] = place.account(DOWN)
    place.write_config({"loop": {"backend": "io_uring"}})
    result = subprocess.run([str(BIN / "deny_uring"), "EPERM", str(BIN / "spillwayd"), "--config",
                             str(place.config_path)], capture_output=True, text=True, timeout=WATCHDOG_S)
    assert result.returncode == 1 and "io_uring" in result.stderr and "Operation not permitted" in result.stderr
    assert left_behind(place) == []


def test_the_back_end_in_use_is_told(place, backend):
    sidecar = place.sidecar(DOWN)
    assert sidecar.metric("spillway_loop_backend", backend=backend) == 1
    assert f"loop.backend: {backend}" in sidecar.log()


# ---- draining ----

def in_background(work):
    """A thread and the list its result goes into."""
    results = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    return thread, results


def test_sigterm_lets_quotes_in_flight_finish(place, backend):
    mock = place.mock("--latency", "1500ms")
    sidecar = place.sidecar(mock, config={"drain": "10m"})
    idle = socket.socket(socket.AF_UNIX)  # connected and silent: nothing to wait for
    idle.connect(str(place.pub / "quote.sock"))
    callers = [in_background(sidecar.quote) for _ in range(5)]
    until(lambda: mock.stats()["in_flight"] == 5, "five calls in flight")
    sidecar.signal(signal.SIGTERM)
    sidecar.wait_log("drain: signal 15: finishing 5 quotes")
    assert sidecar.admin("/readyz").status == 503
    assert sidecar.admin("/healthz").status == 200
    assert sidecar.metric("spillway_orders", state="placed") == 0
    with pytest.raises(OSError):
        sidecar.quote()
    for thread, results in callers:
        thread.join(WATCHDOG_S)
        assert results[0].json["decision"] == "live"
    assert sidecar.wait_exit() == 0
    idle.close()
    assert [name for name in left_behind(place) if name.endswith(".sock")] == []


# A pod that is taken out of service, or killed, for what is not the sidecar's fault, would be an outage made by us.
def test_ready_whatever_provider_breaker_and_rates_are(place):
    sidecar = place.sidecar(DOWN, config={"fallback": {"rates": [
        {"file": str(place.rates), "as_of": "2014-10-01", "source": "old"}], "on_no_rate": "block"}})
    sidecar.ctl("breaker", "open", "main")
    assert sidecar.quote().status == 503
    assert sidecar.admin("/readyz").status == sidecar.admin("/healthz").status == 200


def test_a_second_signal_stops_at_once(place, backend):
    mock = place.mock()
    mock.script({"action": "stall"})
    sidecar = place.sidecar(mock, account={"deadline": "10s"}, config={"drain": "10m"})

    def ask():
        try:
            return sidecar.quote()
        except (OSError, http.client.HTTPException) as error:  # the connection was closed
            return error
    callers = [in_background(ask) for _ in range(5)]
    until(lambda: mock.stats()["in_flight"] == 5, "five calls in flight")
    sidecar.signal(signal.SIGTERM)
    sidecar.wait_log("drain: signal 15: finishing 5 quotes")
    sidecar.signal(signal.SIGINT)
    assert sidecar.wait_exit() == 0
    assert "second signal 2: stopping at once" in sidecar.log()
    delivered = []
    for thread, results in callers:
        thread.join(WATCHDOG_S)
        if not isinstance(results[0], Exception):
            delivered.append(results[0].json["fallback"]["flag_id"])
    stored = {row[0] for row in place.sql("SELECT flag_id FROM flags")}
    assert set(delivered) <= stored, "what was told is on file"


def test_what_was_told_before_the_stop_is_on_file(place, backend):
    sidecar = place.sidecar(DOWN)
    quotes = [sidecar.quote().json for _ in range(30)]
    for i, quote in enumerate(quotes):
        assert sidecar.order(quote["quote_id"], f"o-{i}", quote["tax"]).status == 202
    sidecar.stop()
    assert {row[0] for row in place.sql("SELECT flag_id FROM flags")} == {
        quote["fallback"]["flag_id"] for quote in quotes}
    assert place.sql("SELECT count(*) FROM orders WHERE order_state = 1") == [(30,)]
    again = place.sidecar()
    assert {flag["state"] for flag in again.flags()} == {"confirmed"}


@root_only
def test_a_thousand_callers_who_hang_up(place, backend):
    mock = place.mock()
    sidecar = place.sidecar(mock, account={"deadline": "10s", "concurrency": 100,
                                           "limit": {"rate": "100000/s", "burst": 100000}})
    fds = Path(f"/proc/{sidecar.pid}/fd")
    assert all(answer.json["decision"] == "live" for answer in at_once(20, lambda i: sidecar.quote()))
    baseline = len(list(fds.iterdir()))
    mock.script({"action": "stall"})
    body = json.dumps(quote_body()).encode()
    request = b"POST /spillway/v1/quote HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    for i in range(1000):
        caller = socket.socket(socket.AF_UNIX)
        caller.connect(str(place.pub / "quote.sock"))
        caller.sendall(request if i % 4 else request[:-100])
        if i % 3 == 0:
            time.sleep(0.002)
        caller.close()
    until(lambda: mock.stats()["in_flight"] == 0, "the calls' end at the provider")
    assert mock.stats()["requests_total"] > 100
    until(lambda: len(list(fds.iterdir())) <= baseline, "the same number of open files as before")
    mock.script()
    outcomes = {answer.json["decision"] for answer in at_once(50, lambda i: sidecar.quote())}
    assert outcomes == {"live"}, "all permits are free"
    assert sidecar.breaker() == "closed"
    sidecar.signal(signal.SIGTERM)
    sidecar.wait_log("drain: signal 15: finishing 0 quotes")
    assert sidecar.wait_exit() == 0


# ---- the application is there first ----

def test_a_client_older_than_the_sidecar(place, backend):
    asks = place.load("acquire", "a", "--pause-us", "2000")
    quotes = place.load("quote", "q", "--pause-us", "2000")
    until(lambda: len(read_lines(quotes)) > 50, "decisions without a sidecar")
    assert left_behind(place) == []
    begun_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    place.sidecar(place.mock())
    until(lambda: len([line for line in read_lines(quotes) if line["decision"] == "live"]) > 20, "live answers")
    lines = finish(quotes)
    early = [line for line in lines if line["told_ns"] < begun_ns]
    assert {(line["decision"], line["reason"], line["status"]) for line in early} == {("none", "not-attached", "OK")}
    assert {line["decision"] for line in lines[-10:]} == {"live"}
    until(lambda: read_lines(asks)[-1]["verdict"] == "ALLOW", "admission")
    verdicts = finish(asks)
    early = [line for line in verdicts if line["told_ns"] < begun_ns]
    assert {line["verdict"] for line in early} == {"NOT_ATTACHED"}
    assert 5 <= sum(line["may_call"] for line in early) < len(early), "bounded: its own few, not all"


def test_more_processes_than_slots(place, backend):
    """The sidecar comes back into a segment without a free slot; who has no slot is served through its door."""
    sidecar = place.sidecar(place.mock(), account={"limit": {"rate": "5/s", "burst": 5}},
                            config={"segment": {"slots": 8}})
    load = [place.load("quote", f"p{i}", "--pause-us", "5000") for i in range(9)]
    until(lambda: sidecar.metric("spillway_attached_processes") == 6, "slots that are taken")
    until(lambda: all(len(read_lines(one)) > 20 for one in load), "quotes")
    for _ in range(3):
        sidecar.kill()
        sidecar = place.sidecar()
        assert "segment: adopted" in sidecar.log()
    since_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    until(lambda: all(any(line["decision"] == "fallback" and line["begun_ns"] > since_ns for line in read_lines(one))
                      for one in load), "fallbacks for all")
    lines = [line for one in load for line in finish(one)]
    told = {line["flag_id"] for line in lines if line["decision"] == "fallback"}
    until(lambda: sidecar.metric("spillway_cells", what="busy") == 0, "draining")
    assert told <= {flag["flag_id"] for flag in sidecar.flags()}


def test_idle_callers_leave_descriptors_to_others(place, backend):
    limited = ["/bin/sh", "-c", 'ulimit -Sn 256; exec "$@"', "sh"]
    sidecar = place.sidecar(place.mock(), launcher=limited)
    idle = [socket.create_connection(("127.0.0.1", place.quote_port)) for _ in range(400)]
    assert sidecar.quote().json["decision"] == "live"
    assert sidecar.flags() == []
    for one in idle:
        one.close()


# ---- metrics ----

def test_metrics_stay_the_same_series_and_add_up(place, backend):
    mock = place.mock()
    sidecar = place.sidecar(mock)
    sidecar.quote()
    before = sidecar.metrics()
    for i in range(100):
        sidecar.quote(decision_id=f"d-{i}", quote_ref=f"q-{i}", customer={"id": f"c-{i}"})
    mock.script({"status": 422})
    sidecar.quote()
    mock.script({"status": 500})
    sidecar.quote()
    after = sidecar.metrics()
    assert set(after) == set(before) and len(after) < 300

    def moved(name, **labels):
        key = name, tuple(sorted({"account": "main", **labels}.items()))
        return after[key] - before[key]
    assert [moved("spillway_quotes_total", decision=d) for d in ("live", "rejected", "fallback", "none")] == [
        100, 1, 1, 0]
    assert moved("spillway_fallbacks_total", type="provider-error") == 1
    assert [moved("spillway_provider_requests_total", result=r) for r in ("ok", "rejected", "error")] == [100, 1, 1]
    for decision in ("live", "rejected", "fallback", "none"):
        buckets = [value for (name, labels), value in after.items()
                   if name == "spillway_quote_seconds_bucket" and ("decision", decision) in labels]
        assert buckets == sorted(buckets)
        assert buckets[-1] == after["spillway_quote_seconds_count", (("account", "main"), ("decision", decision))]
    assert sidecar.admin("/metrics").headers["Content-Type"].startswith("text/plain; version=0.0.4")
