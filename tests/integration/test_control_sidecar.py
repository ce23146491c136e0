"""Control API and spillwayctl against a whole sidecar: what is set is in force, what fell back can be exported.

spillwayd, the scripted provider and spillwayctl run as they ship. Needs SPILLWAY_BIN.
"""
import http.client
import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import grpc
import pytest

from control_stubs import stubs

BIN = Path(os.environ.get("SPILLWAY_BIN", ""))
DATA = Path(__file__).resolve().parent.parent / "data" / "zip5"
WATCHDOG_S = 60  # ends a hang; nothing is measured by it
pb, rpc = stubs("spillway.v1.control")
health_pb, health_rpc = stubs("grpc.health.v1.health")

CONFIG = """
accounts:
  main:
    provider: taxcloud
    url: {provider}
    allow_plain_http: true
    connection: test
    credentials: {{api_key_file: {dir}/key}}
    limit: {{rate: 1000/s, burst: 2000, pods: 2}}
    integrations: {{shop: checkout}}
fallback:
  rates: [{{file: {rates}, as_of: {as_of}, source: vendor}}]
segment: {{pub_dir: {dir}/pub, rw_dir: {dir}/rw, rate_records: 1024}}
listen: {{admin: "127.0.0.1:{admin}", control: "127.0.0.1:{control}"}}
store: {{file: {dir}/flags.db}}
drain: 5s
"""


class UnixHTTP(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=WATCHDOG_S)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(WATCHDOG_S)
        self.sock.connect(self.path)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as one:
        return one.getsockname()[1]


def end(process):
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        return process.wait(WATCHDOG_S)
    finally:
        process.kill()


class Sidecar:
    def __init__(self, directory):
        self.dir = directory
        self.mock = subprocess.Popen([BIN / "spillway-provider-mock", "--listen", "127.0.0.1:0"],
                                     stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        provider = self.mock.stdout.readline().split()[-1]
        for name in ("pub", "rw"):
            (directory / name).mkdir()
        (directory / "key").write_text("test-key\n")
        self.port = free_port()
        day = time.strftime("%Y-%m-%d", time.gmtime(time.time() - 86400))
        (directory / "spillway.yaml").write_text(CONFIG.format(
            provider=provider, dir=directory, rates=DATA / "sample.csv", as_of=day, admin=free_port(),
            control=self.port))
        self.socket = directory / "pub" / "control.sock"
        self.start()

    def start(self):
        self.log = open(self.dir / "log", "a+")
        self.process = subprocess.Popen([BIN / "spillwayd", "--config", self.dir / "spillway.yaml"],
                                        stdout=self.log, stderr=self.log)
        deadline = time.monotonic() + WATCHDOG_S
        while self.ctl("status", check=False).returncode:
            assert self.process.poll() is None and time.monotonic() < deadline, self.text()
            time.sleep(0.05)

    def text(self):
        return (self.dir / "log").read_text()

    def stop(self):
        code = end(self.process)
        self.log.close()
        return code

    def ctl(self, *words, check=True):
        result = subprocess.run([str(w) for w in (BIN / "spillwayctl", *words, "--address", self.socket)],
                                capture_output=True, text=True, timeout=WATCHDOG_S)
        if check:
            assert result.returncode == 0, result.stderr
        return result

    def json(self, *words):
        return json.loads(self.ctl(*words, "--json").stdout)

    def channel(self):
        return grpc.insecure_channel(f"unix:{self.socket}")

    def post(self, path, body):
        door = UnixHTTP(self.dir / "pub" / "quote.sock")
        door.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = door.getresponse()
        text = answer.read()
        door.close()
        return answer.status, json.loads(text) if text else None

    def quote(self, decision, zip_code="98110"):
        return self.post("/spillway/v1/quote", {
            "account": "main", "integration": "shop", "decision_id": decision, "purpose": "order",
            "quote_ref": "ref-" + decision, "currency": "USD",
            "ship_from": {"country": "US", "state": "TX", "zip": "75201", "city": "Dallas", "line1": "1 Main St"},
            "ship_to": {"country": "US", "state": "WA", "zip": zip_code, "city": "B", "line1": "100 Ravine Ln"},
            "customer": {"id": "c_7", "exemption": None}, "shipping": {"amount": "0.00"},
            "lines": [{"id": "1", "quantity": "1", "amount": "100.00"}]})


@pytest.fixture
def sidecar(tmp_path):
    one = Sidecar(tmp_path)
    yield one
    assert one.stop() == 0, one.text()
    assert end(one.mock) == 0
    one.mock.stdout.close()


def wait_for(fn):
    """fn() once it is true, within the watchdog."""
    deadline = time.monotonic() + WATCHDOG_S
    while not (value := fn()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return value


def test_a_limit_is_in_force_when_the_reply_comes_and_gone_at_the_next_start(sidecar):
    before = sidecar.json("limits", "get", "main")["limit"]
    assert (before["rate"]["text"], before["pod_burst"], before["pods"]) == ("1000/s", 1000, 2)
    assert sidecar.quote("d-live")[1]["decision"] == "live"
    reply = sidecar.json("limits", "set", "main", "--rate", "2/h", "--burst", "2", "--expect-version",
                         before["version"])
    assert reply["limit"]["version"] > before["version"] and reply["survives_restart"] is False
    assert reply["limit"]["tokens_milli"] == 1000  # what was in hand, cut to this pod's share of the new burst
    assert sidecar.quote("d-last")[1]["decision"] == "live"
    status, answer = sidecar.quote("d-none-left")
    assert (status, answer["decision"], answer["fallback"]["cause"]) == (200, "fallback", "bucket-empty")
    sidecar.ctl("limits", "set", "main", "--rate", "0/s", "--burst", "0")
    answer = sidecar.quote("d-never")[1]
    assert (answer["fallback"]["type"], answer["fallback"]["cause"]) == ("rate-limit-proactive", "rate-zero")
    refused = sidecar.ctl("limits", "set", "main", "--rate", "5/s", "--expect-version", before["version"], check=False)
    assert refused.returncode == 1 and "ABORTED" in refused.stderr
    assert sidecar.stop() == 0
    sidecar.start()
    assert sidecar.json("limits", "get", "main")["limit"]["rate"]["text"] == "1000/s"


def test_a_dry_run_is_not_in_force(sidecar):
    sidecar.ctl("limits", "set", "main", "--rate", "0/s", "--dry-run")
    sidecar.ctl("breaker", "open", "main", "--dry-run")
    assert sidecar.quote("d-1")[1]["decision"] == "live"


def test_a_breaker_held_open_makes_flags_that_are_found_exported_and_acknowledged(sidecar):
    sidecar.ctl("breaker", "open", "main")
    answers = [sidecar.quote(f"d-{n}")[1] for n in range(5)]
    assert {(a["decision"], a["fallback"]["type"]) for a in answers} == {("fallback", "circuit-breaker-open")}
    wait_for(lambda: sidecar.json("status")["store"]["newest_sequence"] == 5)
    lines = [json.loads(line) for line in sidecar.ctl("flags", "export").stdout.splitlines()]
    assert [one["sequence"] for one in lines] == [1, 2, 3, 4, 5]
    assert {one["decision_id"] for one in lines} == {f"d-{n}" for n in range(5)}
    first = lines[0]
    assert first["flag_id"] in {a["fallback"]["flag_id"] for a in answers}
    assert first["tax"]["amount"] == answers[0]["tax"] and first["state"] == "provisional"
    assert first["cause"] == "breaker-forced" and first["rates"]["source"] == "vendor"
    assert first["request"]["ship_to"]["zip"] == "98110"
    found = sidecar.json("flags", "find", "ref-d-3")["flags"]
    assert [one["decision_id"] for one in found] == ["d-3"] and "sequence" in sidecar.ctl("flags", "find", "d-3").stdout
    sidecar.post("/spillway/v1/orders", {"quote_id": answers[3]["quote_id"], "order_id": "100048213",
                                         "tax_collected": answers[3]["tax"], "placed_at": "2025-11-28T10:00:00Z"})
    order = wait_for(lambda: sidecar.json("flags", "find", "d-3")["flags"][0].get("order"))
    assert (order["order_id"], order["tax_collected"]["amount"]) == ("100048213", answers[3]["tax"])
    assert "100048213" in sidecar.ctl("flags", "export", "--format", "csv", "--ack", "nightly").stdout
    assert sidecar.json("status")["store"]["acknowledged_sequence"] == 5
    sidecar.ctl("breaker", "auto", "main")
    assert sidecar.quote("d-after")[1]["decision"] == "live"


def test_rates_are_replaced_in_whole_and_serve_the_next_fallback(sidecar, tmp_path):
    new = tmp_path / "new.csv"
    new.write_text("State,ZipCode,TaxRegionName,EstimatedCombinedRate,StateRate,EstimatedCountyRate,EstimatedCityRate,"
                   "EstimatedSpecialRate,RiskLevel\nWA,98110,BAINBRIDGE,0.2,0.1,0,0.1,0,1\n")
    before = sidecar.json("rates", "show")["table"]
    day = time.strftime("%Y-%m-%d", time.gmtime())
    sidecar.ctl("rates", "load", new, "--as-of", day, "--source", "patched", "--dry-run")
    assert sidecar.json("rates", "show")["table"] == before
    text = sidecar.ctl("rates", "load", new, "--as-of", day, "--source", "patched", "--expect-version",
                       before["version"]).stdout
    assert text.startswith("1 rows served, 0 bad")
    found = sidecar.json("rates", "lookup", "98110-1234")
    assert (found["match"], found["rates"]["combined"]["text"], found["rates"]["age_days"]) == ("zip5", "0.2", 0)
    assert sidecar.json("rates", "lookup", "98111", "--state", "WA")["match"] == "state-average"
    sidecar.ctl("breaker", "open", "main")
    answer = sidecar.quote("d-rate")[1]
    assert answer["tax"] == "20.00" and answer["fallback"]["source"] == "patched"
    big = tmp_path / "big.csv"
    big.write_text(new.read_text() + "".join(f"WA,{z},B,0.1,0.1,0,0,0,1\n" for z in range(10000, 12000)))
    refused = sidecar.ctl("rates", "load", big, "--as-of", day, "--source", "big", check=False)
    assert refused.returncode == 1 and "segment.rate_records" in refused.stderr
    assert sidecar.json("rates", "lookup", "98110")["rates"]["combined"]["text"] == "0.2"


def test_a_table_that_is_too_old_is_called_so_everywhere(sidecar, tmp_path):
    new = tmp_path / "new.csv"
    new.write_text("State,ZipCode,TaxRegionName,EstimatedCombinedRate,StateRate,EstimatedCountyRate,EstimatedCityRate,"
                   "EstimatedSpecialRate,RiskLevel\nWA,98110,BAINBRIDGE,0.2,0.1,0,0.1,0,1\n")
    assert "TOO OLD" in sidecar.ctl("rates", "load", new, "--as-of", "2014-10-01", "--source", "old").stdout
    for words in (("status",), ("rates", "show"), ("rates", "lookup", "98110")):
        assert "TOO OLD" in sidecar.ctl(*words).stdout, words
    source, = sidecar.json("status")["rates"]["sources"]
    assert source["refused"] and source["stale"] and source["age_days"] > 4000
    sidecar.ctl("breaker", "open", "main")
    assert sidecar.quote("d-old")[1]["reason"] == "rates-too-old"
    assert "NOT LIVE BECAUSE" in sidecar.ctl("status").stdout
    assert sidecar.json("status")["accounts"][0]["decisions"]["door_no_rate"] == 1
    ahead = sidecar.ctl("rates", "load", new, "--as-of", "2199-01-01", "--source", "slip", check=False)
    assert ahead.returncode == 1 and "header.as_of: 2199-01-01 lies" in ahead.stderr


def test_status_health_and_the_reading_port(sidecar):
    status = sidecar.json("status")
    assert status["serving"] and status["segment"]["origin"] and status["rates"]["sources"][0]["name"] == "vendor"
    assert [one["limit"]["account"] for one in status["accounts"]] == ["main"]
    with grpc.insecure_channel(f"127.0.0.1:{sidecar.port}") as channel:
        assert health_rpc.HealthStub(channel).Check(health_pb.HealthCheckRequest()).status == 1
        assert rpc.LimitsStub(channel).List(pb.ListLimitsRequest()).limits[0].account == "main"
        with pytest.raises(grpc.RpcError) as caught:
            rpc.LimitsStub(channel).Set(pb.SetLimitRequest(account="main", burst=5))
        assert caught.value.code() == grpc.StatusCode.PERMISSION_DENIED
        assert str(sidecar.socket) in caught.value.details()


def test_a_second_sidecar_is_refused_and_harms_nobody(sidecar):
    second = subprocess.run([BIN / "spillwayd", "--config", sidecar.dir / "spillway.yaml"], capture_output=True,
                            text=True, timeout=WATCHDOG_S)
    assert second.returncode == 1
    assert sidecar.json("status")["serving"]


def test_a_watcher_is_told_that_it_stops(sidecar):
    with sidecar.channel() as channel:
        watch = health_rpc.HealthStub(channel).Watch(health_pb.HealthCheckRequest(), timeout=WATCHDOG_S)
        assert next(watch).status == 1
        sidecar.process.send_signal(signal.SIGTERM)
        with pytest.raises(grpc.RpcError) as ended:
            assert all(one.status == 2 for one in watch)
        assert ended.value.code() == grpc.StatusCode.UNAVAILABLE
    assert sidecar.process.wait(WATCHDOG_S) == 0
    result = sidecar.ctl("status", check=False)
    assert result.returncode == 3
