"""Any gRPC client works: grpcurl with nothing but reflection, and programs in Go, Node and Python. Needs SPILLWAY_BIN.

The Go and Node programs are built by tests/integration/clients/build, which scripts/bootstrap runs.
"""
import datetime
import json
import os
import shutil
import subprocess
from pathlib import Path

import grpc
import pytest

from certificates import Authority
from control_stubs import stubs
from harness import WATCHDOG_S

pb, rpc = stubs("spillway.v1.control")
health_pb, health_rpc = stubs("grpc.health.v1.health")
ROOT = Path(__file__).resolve().parent.parent.parent
CLIENTS = ROOT / ".sdks" / "clients"
GRPCURL = shutil.which("grpcurl") or shutil.which("grpcurl", path=os.pathsep.join(
    (str(Path.home() / "go" / "bin"), str(ROOT / ".venv" / "bin"))))
NODE = shutil.which("node")
TODAY = datetime.datetime.now(datetime.timezone.utc).date().isoformat()

# What each method is asked; "code" where the answer is a refusal of a pod that has nothing yet.
ASKED = {
    "Limits.List": {}, "Limits.Get": {"account": "main"}, "Limits.Set": {"account": "main", "rate": {"text": "90/s"}},
    "Breakers.List": {}, "Breakers.Get": {"account": "main"}, "Breakers.Set": {"account": "main", "reset": True},
    "Gates.Get": {"account": "main"}, "Gates.Set": {"account": "main", "shut_for_ms": 0},
    "Accounts.List": {}, "Accounts.Get": {"account": "main"},
    "Changes.Watch": {"after_version": 1000000}, "Audit.List": {},
    "Rates.Lookup": {"zip": "98110"}, "Rates.Describe": {},
    "Rates.Replace": [{"header": {"source": "v", "as_of": TODAY}},
                      {"rows": {"rows": [{"state": "WA", "zip5": 98110, "combined_ppb": 92000000}]}},
                      {"end": {"rows": 1}}],
    "Rates.Upsert": [{"header": {"source": "v", "as_of": TODAY}},
                     {"rows": {"rows": [{"state": "WA", "zip5": 98111, "combined_ppb": 92000000}]}},
                     {"end": {"rows": 1}}],
    "Configuration.Show": {}, "Configuration.Diff": {"text": "YTogMQ=="},
    "Status.Get": {}, "Status.Why": {},
    "Flags.Export": {}, "Flags.Acknowledge": {"consumer": "test", "sequence": 0}, "Flags.Find": {"reference": "none"},
    "Orders.Place": {"quote_id": "sq_1", "order_id": "o1", "tax_collected": "1.00"},
    "Orders.Cancel": {"order_id": "o1"}, "Orders.Abandon": {"quote_id": "sq_2"}, "Orders.List": {},
    "Orders.Get": {"order_id": "o1"},
}
# Reached, and refused for what this pod has not: the answer is Spillway's own text.
MAY_REFUSE = {"Changes.Watch": "OutOfRange", "Flags.Acknowledge": None, "Configuration.Diff": None, "Flags.Find": None, "Flags.Import": None,
              "Orders.Get": None, "Rates.Lookup": None, "Flags.Export": None}


def grpcurl(reach, *words, data=None):
    """reach: the socket, or options and HOST:PORT."""
    command = [GRPCURL, "-max-time", str(WATCHDOG_S)]
    if data is not None:
        command += ["-d", data]
    reach = reach if isinstance(reach, list) else ["-plaintext", f"unix://{reach}"]
    return subprocess.run([*command, *map(str, reach), *words], capture_output=True, text=True, timeout=WATCHDOG_S)


@pytest.fixture
def socket(place):
    return place.sidecar("http://127.0.0.1:1").place.pub / "control.sock"


@pytest.mark.skipif(not GRPCURL, reason="grpcurl is neither on the PATH, nor in ~/go/bin or .venv/bin")
def test_grpcurl_lists_and_calls_every_method(socket):
    call_every_method(socket)


@pytest.mark.skipif(not GRPCURL or not shutil.which("openssl"), reason="grpcurl or openssl is not installed")
def test_grpcurl_by_mutual_tls(tls):
    def reach(ca, cert, key):
        return ["-cacert", ca.cert, "-cert", cert, "-key", key, f"127.0.0.1:{tls.port}"]
    admin, stranger = tls.clients.sign("y", "URI:spiffe://shop/admin"), Authority(tls.directory, "strangers")
    for wrong in (reach(stranger, *admin), reach(tls.servers, *stranger.sign("y", "URI:spiffe://shop/admin")),
                  reach(tls.servers, *tls.clients.sign("old", "URI:spiffe://shop/admin", days=-1))):
        answer = grpcurl(wrong, "list")
        assert answer.returncode != 0 and not answer.stdout, answer
    denied = grpcurl(reach(tls.servers, *tls.clients.sign("somebody")), "list")
    assert denied.returncode != 0 and "PermissionDenied" in denied.stderr, denied
    call_every_method(reach(tls.servers, *admin))


def call_every_method(socket):
    services = grpcurl(socket, "list").stdout.split()
    assert "spillway.v1.Limits" in services and "grpc.health.v1.Health" in services
    called = []
    for service in services:
        methods = grpcurl(socket, "list", service)
        assert methods.returncode == 0 and methods.stdout.split(), methods.stderr
        if not service.startswith("spillway."):
            continue
        for method in methods.stdout.split():
            name = method.removeprefix("spillway.v1.")
            described = grpcurl(socket, "describe", method)
            assert described.returncode == 0 and "rpc " in described.stdout, described.stderr
            asked = ASKED.get(name, {})
            data = "\n".join(map(json.dumps, asked if isinstance(asked, list) else [asked]))
            answer = grpcurl(socket, "/".join(method.rsplit(".", 1)), data=data)
            if name in ASKED and name not in MAY_REFUSE:
                assert answer.returncode == 0, (name, answer.stderr)
            else:
                refusal = answer.returncode != 0
                assert not refusal or "Code: " in answer.stderr, (name, answer.stderr)
                assert "Unimplemented" not in answer.stderr and "PermissionDenied" not in answer.stderr, answer.stderr
            called.append(name)
    assert set(ASKED) <= set(called), set(ASKED) - set(called)
    health = json.loads(grpcurl(socket, "grpc.health.v1.Health/Check", data="{}").stdout)
    assert health == {"status": "SERVING"}


@pytest.mark.skipif(not GRPCURL, reason="grpcurl is neither on the PATH, nor in ~/go/bin or .venv/bin")
def test_grpcurl_watches(socket):
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        rpc.LimitsStub(channel).Set(pb.SetLimitRequest(account="main", rate=pb.Rate(text="70/s")))
    answer = subprocess.run([GRPCURL, "-plaintext", "-max-time", "1", "-d", '{"after_version": 0}', f"unix://{socket}",
                             "spillway.v1.Changes/Watch"], capture_output=True, text=True, timeout=WATCHDOG_S)
    assert json.loads(answer.stdout)["changes"][0]["after"].startswith("70/s")
    assert "DeadlineExceeded" in answer.stderr


def looked(seen):
    assert seen["health"] == "SERVING" and seen["set"] == "150/s" and seen["rates"] == 1 and seen["flags"] == 0
    assert seen["watched"][0].startswith("150/s burst 300") and seen["watched"][1] == seen["version"]
    assert seen["refused"] == [3, "rate.text"]


def run(*command):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=WATCHDOG_S,
                          env={**os.environ, "NODE_PATH": str(CLIENTS / "node_modules")})


CLIENT = {"node": [NODE, Path(__file__).parent / "clients" / "node" / "client.js", ROOT / "proto"],
          "go": [CLIENTS / "client"]}
LANGUAGES = [
    pytest.param("node", marks=pytest.mark.skipif(
        not NODE or not (CLIENTS / "node_modules" / "@grpc" / "proto-loader").exists(),
        reason="no Node, or tests/integration/clients/build could not install @grpc/grpc-js")),
    pytest.param("go", marks=pytest.mark.skipif(
        not (CLIENTS / "client").exists(), reason="tests/integration/clients/build could not build the Go client"))]


@pytest.mark.parametrize("language", LANGUAGES)
def test_another_language(socket, language):
    answer = run(*CLIENT[language], f"unix:{socket}")
    assert answer.returncode == 0, answer.stderr
    looked(json.loads(answer.stdout))


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")
@pytest.mark.parametrize("language", LANGUAGES)
def test_another_language_by_mutual_tls(tls, language):
    """The same, each refusal told; only then is anything asked for."""
    stranger = Authority(tls.directory, "strangers")
    admin = tls.clients.sign("y", "URI:spiffe://shop/admin")
    for ca, (cert, key), words in (
            (stranger, admin, ("Unavailable", "UNAVAILABLE")),
            (tls.servers, stranger.sign("y", "URI:spiffe://shop/admin"), ("Unavailable", "UNAVAILABLE")),
            (tls.servers, tls.clients.sign("old", "URI:spiffe://shop/admin", days=-1), ("Unavailable", "UNAVAILABLE")),
            (tls.servers, tls.clients.sign("somebody"), ("PermissionDenied", "PERMISSION_DENIED"))):
        answer = run(*CLIENT[language], f"127.0.0.1:{tls.port}", ca.cert, cert, key)
        assert answer.returncode != 0 and any(word in answer.stderr for word in words), (cert, answer)
    answer = run(*CLIENT[language], f"127.0.0.1:{tls.port}", tls.servers.cert, *admin)
    assert answer.returncode == 0, answer.stderr
    looked(json.loads(answer.stdout))


def test_python(socket):
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        looked(look(channel))


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")
def test_python_by_mutual_tls(tls):
    with tls.channel(tls.clients.sign("y", "URI:spiffe://shop/admin")) as channel:
        looked(look(channel))


def look(channel):
    seen = {}
    seen["health"] = health_pb.HealthCheckResponse.ServingStatus.Name(
        health_rpc.HealthStub(channel).Check(health_pb.HealthCheckRequest()).status)
    watch = rpc.ChangesStub(channel).Watch(pb.WatchChangesRequest(), timeout=WATCHDOG_S)
    assert next(watch).HasField("snapshot")
    limits = rpc.LimitsStub(channel)
    limit = limits.Set(pb.SetLimitRequest(account="main", rate=pb.Rate(text="150/s"), burst=300)).limit
    seen.update(set=limit.rate.text, version=limit.version)
    change = next(watch).changes[0]
    seen["watched"] = [change.after, change.account_version]
    watch.cancel()
    with pytest.raises(grpc.RpcError) as caught:
        limits.Set(pb.SetLimitRequest(account="main", rate=pb.Rate(text="no rate")))
    seen["refused"] = [caught.value.code().value[0], dict(caught.value.trailing_metadata())["spillway-field"]]
    seen["rates"] = rpc.RatesStub(channel).Replace(iter([
        pb.ReplaceRatesRequest(header=pb.RatesHeader(source="py-test", as_of=TODAY)),
        pb.ReplaceRatesRequest(rows=pb.RateRows(rows=[pb.RateRow(state="WA", zip5=98110, combined_ppb=92000000)])),
        pb.ReplaceRatesRequest(end=pb.RatesEnd(rows=1))])).rows
    seen["flags"] = len(list(rpc.FlagsStub(channel).Export(pb.ExportFlagsRequest())))
    return seen
