"""Who may do what: roles by user id and by certificate, and where a secret may not be seen.

Needs SPILLWAY_BIN and openssl; parts need root.
"""
import os
import re
import shutil
import signal
import stat
import subprocess

import grpc
import pytest

from certificates import Authority
from control_stubs import stubs
from harness import BIN, WATCHDOG_S, free_port

pb, rpc = stubs("spillway.v1.control")
health, health_rpc = stubs("grpc.health.v1.health")
DOWN = "http://127.0.0.1:1"
APP_UID = 12345
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
needs_openssl = pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")

# One call of each kind, and the least role that may make it.
CALLS = {
    "Health.Check": ("read", lambda c: health_rpc.HealthStub(c).Check(health.HealthCheckRequest(), timeout=WATCHDOG_S)),
    "Limits.List": ("read", lambda c: rpc.LimitsStub(c).List(pb.ListLimitsRequest(), timeout=WATCHDOG_S)),
    "Breakers.Get": ("read", lambda c: rpc.BreakersStub(c).Get(pb.GetBreakerRequest(account="main"),
                                                              timeout=WATCHDOG_S)),
    "Rates.Describe": ("read", lambda c: rpc.RatesStub(c).Describe(pb.DescribeRatesRequest(), timeout=WATCHDOG_S)),
    "Status.Get": ("read", lambda c: rpc.StatusStub(c).Get(pb.GetStatusRequest(), timeout=WATCHDOG_S)),
    "Flags.Export": ("records", lambda c: list(rpc.FlagsStub(c).Export(pb.ExportFlagsRequest(), timeout=WATCHDOG_S))),
    "Orders.List": ("records", lambda c: list(rpc.OrdersStub(c).List(pb.ListOrdersRequest(), timeout=WATCHDOG_S))),
    "Limits.Set": ("operate", lambda c: rpc.LimitsStub(c).Set(
        pb.SetLimitRequest(account="main", rate=pb.Rate(text="1000/s"), burst=1000), timeout=WATCHDOG_S)),
    "Breakers.Set": ("operate", lambda c: rpc.BreakersStub(c).Set(pb.SetBreakerRequest(account="main", reset=True),
                                                                 timeout=WATCHDOG_S)),
    "Rates.Replace": ("admin", lambda c: rpc.RatesStub(c).Replace(iter([]), timeout=WATCHDOG_S)),
    "Flags.Import": ("admin", lambda c: rpc.FlagsStub(c).Import(pb.ImportFlagsRequest(), timeout=WATCHDOG_S)),
}
RANK = ("nothing", "read", "records", "operate", "admin")


def code_of(call, channel):
    """Of the answer; what the request itself is worth does not matter here."""
    try:
        got = call(channel)
        if hasattr(got, "__next__"):
            list(got)
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def check_role(channel, role):
    for name, (least, call) in CALLS.items():
        code = code_of(call, channel)
        if RANK.index(role) >= RANK.index(least):
            assert code not in (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAVAILABLE,
                                grpc.StatusCode.UNIMPLEMENTED), (name, role, code)
        else:
            assert code == grpc.StatusCode.PERMISSION_DENIED, (name, role, code)


def connects(tls, *words):
    with tls.channel(*words) as channel:
        return code_of(CALLS["Limits.List"][1], channel)


@needs_openssl
def test_each_certificate_has_its_role(tls):
    for name, san, role in (("viewer", None, "records"), ("x", "DNS:on-call.example", "operate"),
                            ("y", "URI:spiffe://shop/admin", "admin"), ("somebody", "DNS:else.example", "nothing"),
                            ("viewer.example", None, "nothing"), ("Viewer", None, "nothing")):
        with tls.channel(tls.clients.sign(name, san)) as channel:
            check_role(channel, role)


@needs_openssl
def test_wrong_expired_and_missing_certificates_are_refused(tls):
    stranger = Authority(tls.directory, "strangers")
    good = tls.clients.sign("viewer")
    assert connects(tls, good) == grpc.StatusCode.OK
    for client in (None, stranger.sign("viewer"), tls.clients.sign("viewer-old", days=-1), tls.servers.sign("viewer")):
        assert connects(tls, client) == grpc.StatusCode.UNAVAILABLE, client
    assert connects(tls, good, stranger) == grpc.StatusCode.UNAVAILABLE, "the client checks the sidecar too"
    with grpc.insecure_channel(f"127.0.0.1:{tls.port}") as plain:
        assert code_of(CALLS["Health.Check"][1], plain) == grpc.StatusCode.UNAVAILABLE
    assert "PRIVATE KEY" not in tls.sidecar.log()


@needs_openssl
def test_certificates_are_rotated_under_a_running_sidecar(tls):
    old = tls.clients.sign("viewer")
    with tls.channel(old) as kept:
        assert code_of(CALLS["Limits.List"][1], kept) == grpc.StatusCode.OK
        clients, servers = Authority(tls.directory, "clients2"), Authority(tls.directory, "servers2")
        tls.install(*servers.sign("spillway", "IP:127.0.0.1"), clients.cert)
        assert connects(tls, clients.sign("viewer"), servers) == grpc.StatusCode.OK
        assert connects(tls, old, servers) == grpc.StatusCode.UNAVAILABLE, "its authority is trusted no more"
        assert code_of(CALLS["Limits.List"][1], kept) == grpc.StatusCode.OK, "a connection lives on"
    assert "the new ones are in use" in tls.sidecar.log()
    tls.key.write_text("no key")
    assert connects(tls, clients.sign("viewer"), servers) == grpc.StatusCode.OK, "the last good ones stay in use"
    tls.sidecar.wait_log("cannot be used together")


@needs_openssl
def test_a_key_of_another_certificate_is_no_start(place):
    authority = Authority(place.directory, "a")
    cert, _ = authority.sign("one")
    _, key = authority.sign("two")
    place.config["accounts"]["main"] = place.account(DOWN)
    place.write_config({"listen": {"control_tls": {
        "address": f"127.0.0.1:{free_port()}", "cert_file": str(cert), "key_file": str(key),
        "client_ca_file": str(authority.cert), "roles": {"x": "read"}}}})
    for words in ((), ("--check-config",)):
        result = subprocess.run([BIN / "spillwayd", *words, "--config", place.config_path], text=True,
                                capture_output=True, timeout=WATCHDOG_S)
        assert result.returncode == 1 and "listen.control_tls: " in result.stderr, result.stderr
    assert re.search(r"spillway\.yaml:\d+:\d+: listen\.control_tls: ", result.stderr), result.stderr
    (place.directory / "no.pem").write_bytes(b"\x00\x01no certificate")
    for name in ("cert_file", "key_file", "client_ca_file"):
        good = place.config["listen"]["control_tls"][name]
        place.write_config({"listen": {"control_tls": {name: str(place.directory / "no.pem")}}})
        result = subprocess.run([BIN / "spillwayd", "--check-config", "--config", place.config_path], text=True,
                                capture_output=True, timeout=WATCHDOG_S)
        assert result.returncode == 1 and re.search(rf"yaml:\d+:\d+: listen\.control_tls\.{name}: ", result.stderr)
        assert "no.pem holds no" in result.stderr
        place.write_config({"listen": {"control_tls": {name: good}}})


def test_plain_tcp_reads_and_nothing_more(place):
    sidecar = place.sidecar(DOWN)
    with grpc.insecure_channel(f"127.0.0.1:{place.control_port}") as channel:
        check_role(channel, "read")
    place.write_config({"listen": {"control": "0.0.0.0:8392"}})
    result = subprocess.run([BIN / "spillwayd", "--check-config", "--config", place.config_path], text=True,
                            capture_output=True, timeout=WATCHDOG_S)
    assert result.returncode == 1 and "loopback" in result.stderr
    assert sidecar.admin("/readyz").status == 200


# gRPC does not outlive a fork: the call is made by a program of its own.
AS_ROLE = """
import sys
sys.path.insert(0, {tests!r})
import grpc
from test_security import CALLS, check_role
with grpc.insecure_channel("unix:" + {path!r}) as channel:
    check_role(channel, {role!r})
"""


@root_only
@pytest.mark.parametrize("uid, role", [(0, "admin"), (1001, "operate"), (1002, "admin"), (APP_UID, "records")])
def test_each_user_id_has_its_role(place, uid, role):
    place.directory.chmod(0o755)
    place.pub.chmod(0o755)
    place.sidecar(DOWN, config={"segment": {"gid": 54321}, "listen": {
        "control_uids": {"1001": "operate", "1002": "admin", "1003": "read"}}})
    path = place.pub / "control.sock"
    tests = os.path.dirname(__file__)
    assert stat.S_IMODE(path.stat().st_mode) == 0o660 and path.stat().st_gid == 54321
    result = subprocess.run(["/usr/bin/python3", "-c", AS_ROLE.format(tests=tests, path=str(path), role=role)],
                            user=uid, group=54321, extra_groups=[], text=True, capture_output=True, timeout=WATCHDOG_S)
    assert result.returncode == 0, result.stderr[-2000:]


# ---- where a secret may not be seen ----

def test_no_secret_is_readable_anywhere(place):
    secret = "env-secret-that-nobody-may-see"
    mock = place.mock()
    sidecar = place.sidecar(mock, account={"credentials": {"api_key_file": None, "api_key_env": "SPW_KEY"}},
                            environment={"SPW_KEY": secret, "TAXCLOUD_KEY": ""})
    sidecar.quote()
    sidecar.quote(ship_to={"state": "ZZ"})
    sidecar.post("/spillway/v1/quote", b"{")
    for path in ("/metrics", "/healthz", "/nothing"):
        assert secret not in sidecar.admin(path).text
    for words in (("status",), ("limits", "list"), ("status", "--json")):
        assert secret not in sidecar.ctl(*words).stdout
    for name in ("cmdline", "maps", "status", "environ"):
        try:
            text = open(f"/proc/{sidecar.pid}/{name}", "rb").read()
        except PermissionError:
            continue
        if name == "environ" and os.geteuid() == 0:
            continue  # root may read everything
        assert secret.encode() not in text, name
    for directory in (place.pub, place.rw):
        for path in directory.iterdir():
            if path.is_file():
                assert secret.encode() not in path.read_bytes(), path
    assert secret.encode() not in place.ledger.read_bytes()
    assert secret not in sidecar.log()


def test_there_is_no_core_and_no_ptrace(place):
    sidecar = place.sidecar(DOWN)
    limits = open(f"/proc/{sidecar.pid}/limits").read()
    assert [line.split()[4:6] for line in limits.splitlines() if line.startswith("Max core")] == [["0", "0"]]
    # Not dumpable: its files of /proc are root's, whoever it runs as.
    assert os.stat(f"/proc/{sidecar.pid}/mem").st_uid == 0
    sidecar.signal(signal.SIGABRT)
    assert sidecar.wait_exit() == -signal.SIGABRT
    sidecar.expected_exit = -signal.SIGABRT
    assert not list(place.directory.glob("core*")) and not list(place.pub.glob("core*"))


@root_only
def test_nothing_that_was_made_is_open_to_others(place):
    place.sidecar(DOWN, config={"segment": {"gid": 54321}})
    for path in [*place.pub.iterdir(), *place.rw.iterdir(), *place.directory.glob("flags.db*")]:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode & 0o007 == 0, (path, oct(mode))
        if path.parent == place.pub and stat.S_ISREG(path.stat().st_mode):
            assert mode & 0o030 == 0, ("the group only reads", path, oct(mode))


# ---- spillwayctl by certificate ----

def ctl(tls, *words, client=None, ca=None, environment=None):
    """spillwayctl at the TLS door."""
    files = [] if client is None else ["--ca", (ca or tls.servers).cert, "--cert", client[0], "--key", client[1]]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SPILLWAY_C")}
    return subprocess.run([BIN / "spillwayctl", *words, "--address", f"127.0.0.1:{tls.port}", *files],
                          capture_output=True, text=True, timeout=WATCHDOG_S, env={**clean, **(environment or {})})


@needs_openssl
def test_spillwayctl_by_certificate(tls):
    admin, viewer = tls.clients.sign("y", "URI:spiffe://shop/admin"), tls.clients.sign("viewer")
    assert "main" in ctl(tls, "limits", "list", client=viewer).stdout
    refused = ctl(tls, "limits", "set", "main", "--rate", "5/s", client=viewer)
    assert refused.returncode == 1 and "PERMISSION_DENIED" in refused.stderr and "roles" in refused.stderr
    done = ctl(tls, "limits", "set", "main", "--rate", "5/s", client=admin)
    assert done.returncode == 0, done.stderr
    audit = ctl(tls, "audit", "--by-hand", "--json", client=viewer)
    assert '"certificate y"' in audit.stdout, audit.stdout
    by_environment = ctl(tls, "status", environment={
        "SPILLWAY_CA": str(tls.servers.cert), "SPILLWAY_CERT": str(viewer[0]), "SPILLWAY_KEY": str(viewer[1])})
    assert by_environment.returncode == 0, by_environment.stderr


@needs_openssl
def test_spillwayctl_tells_which_file_is_wrong(tls):
    good, other = tls.clients.sign("viewer"), tls.clients.sign("other")
    old, stranger = tls.clients.sign("viewer-old", days=-1), Authority(tls.directory, "strangers")
    empty = tls.directory / "empty"
    empty.write_text("")
    for client, ca, code, words in (
            (None, None, 3, ("listen.control_tls", "--ca")),
            (stranger.sign("viewer"), None, 3, ("client_ca_file",)),
            (good, stranger, 3, ("--ca",)),
            (old, None, 1, ("--cert", "has expired")),
            ((good[0], other[1]), None, 1, ("--key", "is not the key")),
            ((good[1], good[1]), None, 1, ("--cert", "holds no certificate")),
            ((good[0], "/nowhere/key"), None, 1, ("--key /nowhere/key", "No such file")),
            ((empty, good[1]), None, 1, ("--cert", "is empty"))):
        answer = ctl(tls, "status", client=client, ca=ca)
        assert answer.returncode == code, (client, answer)
        assert all(word in answer.stderr for word in words) and "PRIVATE" not in answer.stderr, answer.stderr
    for words, told in ((("--cert", good[0]), "--ca is missing"), (("--ca", good[0], "--cert", good[0]), "--key is missing"),
                        (("--address", "unix:/nowhere", "--ca", good[0]), "HOST:PORT")):
        answer = ctl(tls, "status", *words) if "--address" not in words else subprocess.run(
            [BIN / "spillwayctl", "status", *words], capture_output=True, text=True, timeout=WATCHDOG_S)
        assert answer.returncode == 2 and told in answer.stderr, answer


@needs_openssl
def test_spillwayctl_behind_a_port_forward(tls):
    """The name in the certificate is another than the host's."""
    viewer = tls.clients.sign("viewer")
    cert, key = tls.servers.sign("elsewhere", "DNS:spillway.pod")
    tls.install(cert, key, tls.clients.cert)
    wrong = ctl(tls, "status", client=viewer)
    assert wrong.returncode == 3 and "--server-name" in wrong.stderr, wrong
    assert ctl(tls, "status", "--server-name", "spillway.pod", client=viewer).returncode == 0
