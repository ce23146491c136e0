"""What a checkout process that an attacker has taken over can and cannot do: the trust statement, line by line.

The sidecar runs as one user, the attacker as another, in one group, in a mount namespace where `pub` is read-only, as in
a pod (docs/threat-model.md). Needs root for that, SPILLWAY_BIN, unshare and setpriv.
"""
import json
import os
import shutil
import subprocess
import sys

import pytest

from harness import BIN, KEY, WATCHDOG_S, until

SIDECAR_UID, APP_UID, GROUP = 23456, 12345, 54321

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("setpriv") or not shutil.which("unshare") or
    subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0,
    reason="needs root, setpriv, and a kernel that lets root have a mount namespace")

# Runs as the attacker: tries each, and says how it ended: "done" or the error's name.
ATTACKER = r"""
import ctypes, errno, json, mmap, os, signal, socket, sys
pub, rw, ledger, secret, config, pid = sys.argv[1:6] + [int(sys.argv[6])]
outcome = {}
def attempt(name, work):
    try:
        outcome[name] = work() or "done"
    except OSError as error:
        outcome[name] = errno.errorcode[error.errno]
def opened(path, flags):
    os.close(os.open(path, flags))
def ptrace():
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(16, pid, None, None) != 0:
        raise OSError(ctypes.get_errno(), "ptrace")
def connected(path):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(path)
def map_write(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        mmap.mmap(fd, 4096, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    finally:
        os.close(fd)
pub_segment, rw_segment = os.path.join(pub, "segment"), os.path.join(rw, "segment")
attempt("read pub", lambda: opened(pub_segment, os.O_RDONLY))
attempt("write pub", lambda: opened(pub_segment, os.O_RDWR))
attempt("map pub for writing", lambda: map_write(pub_segment))
attempt("chmod pub", lambda: os.chmod(pub_segment, 0o666))
attempt("replace pub", lambda: os.rename(pub_segment, pub_segment + ".x"))
attempt("make a file in pub", lambda: opened(os.path.join(pub, "evil"), os.O_CREAT | os.O_WRONLY))
attempt("replace the control socket", lambda: os.unlink(os.path.join(pub, "control.sock")))
attempt("write rw", lambda: opened(rw_segment, os.O_RDWR))
attempt("connect to the quote door", lambda: connected(os.path.join(pub, "quote.sock")))
attempt("read the secret", lambda: opened(secret, os.O_RDONLY))
attempt("write the configuration", lambda: opened(config, os.O_WRONLY))
attempt("read the ledger", lambda: opened(ledger, os.O_RDONLY))
attempt("write the ledger", lambda: opened(ledger, os.O_RDWR))
for name in ("environ", "mem", "maps"):
    attempt("read its " + name, lambda: open(f"/proc/{pid}/{name}", "rb").read(64) and None)
attempt("list its files", lambda: os.listdir(f"/proc/{pid}/fd") and None)
attempt("signal it", lambda: os.kill(pid, signal.SIGTERM))
attempt("trace it", ptrace)
print(json.dumps(outcome))
"""


@pytest.fixture
def attacked(place):
    """A sidecar under a user of its own, and run(program text): what the attacker prints."""
    for path in (place.directory, place.pub, place.rw, place.directory / "api-key", place.rates):
        os.chown(path, SIDECAR_UID, GROUP)
    place.directory.chmod(0o771)
    place.pub.chmod(0o770)
    place.rw.chmod(0o770)
    (place.directory / "api-key").chmod(0o400)
    mock = place.mock()
    sidecar = place.sidecar(mock, config={"segment": {"gid": GROUP}}, launcher=[
        "setpriv", f"--reuid={SIDECAR_UID}", f"--regid={GROUP}", "--clear-groups", "--"])
    assert sidecar.quote().json["decision"] == "live"

    def run(text, uid=APP_UID, gid=GROUP):
        script = place.directory / "attacker.py"
        script.write_text(text)
        script.chmod(0o755)
        words = [place.pub, place.rw, place.ledger, place.directory / "api-key", place.config_path, sidecar.pid]
        result = subprocess.run(
            ["unshare", "-m", "sh", "-c", 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec "$@"',
             "sh", str(place.pub), "setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups", "--no-new-privs",
             "--bounding-set=-all", "--", sys.executable, str(script), *map(str, words)],
            text=True, capture_output=True, timeout=WATCHDOG_S)
        assert result.returncode == 0, result.stderr
        assert KEY not in result.stdout
        return json.loads(result.stdout)
    return sidecar, run


CAN = ("read pub", "write rw", "connect to the quote door")
REFUSED = ("EACCES", "EPERM", "EROFS")


def test_what_a_compromised_checkout_process_can_and_cannot_do(attacked):
    sidecar, run = attacked
    outcome = run(ATTACKER)
    assert len(outcome) == 19
    for name, how in outcome.items():
        if name in CAN:
            assert how == "done", (name, how)
        else:
            assert how in REFUSED, (name, how)
    assert sidecar.quote().json["decision"] == "live"


def test_the_sidecars_own_user_cannot_look_into_it_either(attacked):
    """PR_SET_DUMPABLE 0: not even a process of the same user id reads memory or environment, or traces it."""
    _, run = attacked
    outcome = run(ATTACKER.replace('attempt("signal it", lambda: os.kill(pid, signal.SIGTERM))\n', ""), uid=SIDECAR_UID)
    for name in ("read its environ", "read its mem", "list its files", "trace it"):
        assert outcome[name] in REFUSED, (name, outcome[name])


def test_a_stranger_outside_the_group_can_do_nothing(attacked):
    _, run = attacked
    text = ATTACKER.replace('os.path.join(pub, "segment"), os.path.join(rw, "segment")',
                            'pub + "/x", rw + "/x"')
    assert text != ATTACKER
    for name, how in run(text, gid=APP_UID).items():
        assert how in REFUSED, (name, how)


def test_scribbling_over_rw_moves_no_rate_and_no_limit(attacked, place):
    """It can spend the pod's share, move breaker and gate, deny service: and nothing else."""
    sidecar, run = attacked
    before = sidecar.ctl("limits", "get", "main", "--json").stdout
    limit = json.loads(before)["limit"]
    run(r"""
import json, os, sys
with open(os.path.join(sys.argv[2], "segment"), "r+b") as file:
    file.seek(4096)
    file.write(os.urandom(16384))
print(json.dumps({}))
""")
    after = json.loads(sidecar.ctl("limits", "get", "main", "--json").stdout)["limit"]
    assert (after["rate"], after["burst"]) == (limit["rate"], limit["burst"])
    assert sidecar.admin("/readyz").status == 200
    answer = sidecar.quote()
    assert answer.status in (200, 503)
    if answer.json["decision"] == "fallback":
        assert answer.json["tax"] == "6.71"


SPENDER = r"""
import json, os, subprocess, sys
def acquire(*words):
    out = subprocess.run(["LOADGEN", "acquire", "--name", "evil", *words], check=True, text=True,
                         env={**os.environ, "SPILLWAY_PUB_DIR": sys.argv[1], "SPILLWAY_RW_DIR": sys.argv[2]},
                         stdout=subprocess.PIPE).stdout
    return [json.loads(line) for line in out.splitlines()]
print(json.dumps({"asked": acquire("--pause-us", "0", "--count", "4000"),
                  "lied": acquire("--pause-us", "500", "--count", "3000", "--answer", "503")}))
"""


def test_it_can_spend_the_pods_share_and_open_the_breaker_and_a_person_undoes_that(attacked):
    sidecar, run = attacked
    done = run(SPENDER.replace("LOADGEN", str(BIN / "loadgen")))
    asked = done["asked"]
    allowed = [one for one in asked if one["may_call"]]
    elapsed_s = (asked[-1]["told_ns"] - asked[0]["begun_ns"]) / 1e9
    assert 0 < len(allowed) <= 1000 + 1000 * elapsed_s + 1, "the pod's share and no more"
    # Outcomes are taken from whoever reports them: a lie opens the breaker of this pod.
    assert any(one["may_call"] for one in done["lied"]) and done["lied"][-1]["cause"] == "breaker-open", done["lied"][-1]
    assert sidecar.quote().json["fallback"]["type"] == "circuit-breaker-open"
    sidecar.ctl("breaker", "reset", "main")
    until(lambda: sidecar.quote().json["decision"] == "live", "a live answer once tokens are back")
