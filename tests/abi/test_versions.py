"""Clients and segments of different versions, in processes of their own.

Today's client and every frozen one, against the sidecar's segment as it is and as a later minor version would make it;
segments of another major version or layout, damaged ones, unfinished ones; and one replaced under running clients.
Needs SPILLWAY_BIN; SPILLWAY_CLIENTS names the client programs.
"""
import os
import shutil
import signal
import struct
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FROZEN = sorted((ROOT / "tests/abi/frozen").glob("*.h"))
BIN = Path(os.environ.get("SPILLWAY_BIN", ""))
CLIENTS = os.environ.get("SPILLWAY_CLIENTS", "abi_client").split(",")
HOLDERS = ["segment_holder", "segment_holder_next"]
WATCHDOG_S = 60  # ends a hang; nothing is measured by it

CONFIG = """
accounts:
  main:
    provider: taxcloud
    connection: test
    credentials: {{api_key_env: TAXCLOUD_TEST_KEY}}
    limit: {{rate: {rate}, burst: {burst}, pods: 1}}
    concurrency: 64
{more}    deadline: 300ms
    integrations: {{web: checkout}}
fallback: {{on_no_rate: block}}
segment: {{pub_dir: {dir}/pub, rw_dir: {dir}/rw, slots: 64, cells: 64, rate_records: 1024}}
"""

# Offsets of shm/README.md.
MAGIC, MAJOR, MINOR, OLDEST, HASH, READY, RETIRED = 0, 8, 12, 16, 32, 384, 392
SECTIONS, ACCOUNTS_STRIDE = 128, 136


class Program:
    def __init__(self, *command):
        self.process = subprocess.Popen([str(c) for c in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, bufsize=1, env={**os.environ, "TAXCLOUD_TEST_KEY": "test"})
        self.first = self.read()

    def read(self):
        return self.process.stdout.readline().strip()

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        return self.read()

    def stop(self, how=None):
        if how:
            self.process.send_signal(how)
        else:
            self.process.stdin.close()
        code = self.process.wait(WATCHDOG_S)
        self.process.stdout.close()
        assert code == (-how if how else 0)


@pytest.fixture
def world(tmp_path):
    for name in ("pub", "rw"):
        (tmp_path / name).mkdir()
    programs = []

    class World:
        directory = tmp_path

        def holder(self, name, rate="0/s", burst=20, more=""):
            config = tmp_path / "spillway.yaml"
            config.write_text(CONFIG.format(dir=tmp_path, rate=rate, burst=burst, more=more))
            programs.append(Program(BIN / name, config))
            assert programs[-1].first.startswith("ready"), programs[-1].first
            return programs[-1]

        def client(self, name):
            programs.append(Program(BIN / name, tmp_path / "pub", tmp_path / "rw"))
            return programs[-1]

        def poke(self, file, offset, value):
            with open(tmp_path / file / "segment", "r+b") as f:
                f.seek(offset)
                f.write(value)

        def peek(self, file, offset, form):
            with open(tmp_path / file / "segment", "rb") as f:
                f.seek(offset)
                return struct.unpack("<" + form, f.read(struct.calcsize("<" + form)))[0]

    yield World()
    for program in programs:
        if program.process.poll() is None:
            program.process.kill()
            program.process.wait()


def counts(line):
    words = line.split()
    return {name: int(value) for name, value in zip(words[::2], words[1::2])}


@pytest.mark.parametrize("holder_name", HOLDERS)
@pytest.mark.parametrize("client_name", CLIENTS)
def test_minor_versions_understand_each_other(world, client_name, holder_name):
    holder = world.holder(holder_name)
    later = holder_name.endswith("_next")
    assert world.peek("pub", MINOR, "I") == 1 + later
    assert world.peek("pub", ACCOUNTS_STRIDE, "I") == 512 + (64 if later else 0)
    assert holder.ask("rates 98110 92000000") == "ok"
    client = world.client(client_name)
    assert client.first == "OK"
    assert counts(client.ask("acquire 50")) == {"allow": 20, "deny": 30, "unattached": 0, "other": 0}
    assert client.ask("rate 98110-1234") == "92000000"
    assert client.ask("rate 98111") == "NOT_FOUND"
    decision, kind, tax, flag = client.ask("quote d-1").split()
    assert (decision, kind, tax) == ("fallback", "rate-limit-proactive", "920")
    told = holder.ask("flags").split()
    assert told[:2] == ["flag", flag] and "d-1" in told and "920" in told
    assert holder.read() == "ok"
    assert client.ask("order o-1") == "OK"
    assert holder.ask("forced 1") == "ok"
    assert counts(client.ask("acquire 5"))["deny"] == 5
    assert client.ask("quote d-2").split()[1] == "circuit-breaker-open"
    status = holder.ask("status").split()
    assert status[status.index("attached") + 1] == "1"
    assert status[status.index("permits") + 1] == "64"


@pytest.mark.parametrize("client_name", CLIENTS)
def test_a_list_of_limiters_binds_clients_of_every_version(world, client_name):
    """A client of 1.0 knows neither scopes nor windows: it charges every limiter, and never passes a window."""
    old = client_name.endswith("1_0")
    world.holder("segment_holder", burst=20, more="""    limiters:
      - {name: books, rate: 0/s, burst: 3, endpoints: [record]}
      - {name: narrow, rate: 0/s, burst: 7}
""")
    assert counts(world.client(client_name).ask("acquire 50"))["allow"] == (3 if old else 7)


@pytest.mark.parametrize("client_name", CLIENTS)
def test_a_window_binds_clients_of_every_version(world, client_name):
    old = client_name.endswith("1_0")
    holder = world.holder("segment_holder", burst=20,
                          more="    limiters: [{name: daily, rate: 12/d, kind: window}]\n")
    client, new = world.client(client_name), world.client("abi_client")
    assert counts(client.ask("acquire 50"))["allow"] == (0 if old else 12)
    assert counts(new.ask("acquire 50"))["allow"] == (12 if old else 0)
    assert counts(client.ask("acquire 50")) == {"allow": 0, "deny": 50, "unattached": 0, "other": 0}
    status = holder.ask("status").split()
    assert int(status[status.index("tokens") + 1]) == 8000  # what was refused cost the account nothing


@pytest.mark.parametrize("client_name", CLIENTS)
@pytest.mark.parametrize("file, offset, value, told", [
    ("pub", MAJOR, struct.pack("<III", 2, 0, 2), "VERSION_MISMATCH"),
    ("rw", MAJOR, struct.pack("<III", 2, 0, 2), "VERSION_MISMATCH"),
    ("pub", HASH, struct.pack("<Q", 0x1234), "VERSION_MISMATCH"),  # a field was moved in the middle of a record
    ("pub", MAGIC, b"\x00", "CORRUPT"),
    ("rw", MAGIC, b"\xff\xff", "CORRUPT"),
    ("pub", READY, struct.pack("<Q", 0), "NOT_READY"),
    ("pub", SECTIONS, struct.pack("<Q", 1 << 60), "CORRUPT"),
])
def test_what_cannot_be_read_is_named(world, client_name, file, offset, value, told):
    world.holder("segment_holder").stop()
    world.poke(file, offset, value)
    client = world.client(client_name)
    assert client.first == told
    assert counts(client.ask("acquire 100")) == {"allow": 0, "deny": 0, "unattached": 100, "other": 0}
    assert client.ask("rate 98110") == "NO_SEGMENT"
    # The next start of the sidecar makes a new one, and the client comes to it by itself.
    world.holder("segment_holder")
    deadline = time.monotonic() + WATCHDOG_S
    while client.ask("where").startswith("0 ") and time.monotonic() < deadline:
        time.sleep(0.01)
    assert counts(client.ask("acquire 1"))["unattached"] == 0


@pytest.mark.parametrize("client_name", CLIENTS)
def test_a_later_major_version_that_still_serves_this_one(world, client_name):
    world.holder("segment_holder").stop()
    for file in ("pub", "rw"):
        world.poke(file, MAJOR, struct.pack("<III", 2, 3, 1))
    assert world.client(client_name).first == "OK"


@pytest.mark.parametrize("how", [None, signal.SIGKILL], ids=["stopped", "killed"])
@pytest.mark.parametrize("first, second", [HOLDERS, HOLDERS[::-1]], ids=["upgrade", "downgrade"])
def test_replaced_under_running_clients(world, first, second, how):
    rate, burst = 200, 50
    begun = time.monotonic()
    holder = world.holder(first, rate=f"{rate}/s", burst=burst)
    clients = [world.client(name) for name in CLIENTS for _ in range(2)]
    assert holder.ask("rates 98110 92000000") == "ok"
    for client in clients:
        assert client.ask("start") == "ok"
    for turn in range(3):
        time.sleep(0.3)
        before = {client.ask("where").split()[0] for client in clients}
        assert len(before) == 1 and before != {"0"}
        holder.stop(how)
        time.sleep(0.1)
        holder = world.holder(second if turn % 2 == 0 else first, rate=f"{rate}/s", burst=burst)
        assert "replaced" in holder.first
        deadline, waiting, ready = time.monotonic() + WATCHDOG_S, list(clients), time.monotonic()
        while waiting:
            waiting = [c for c in waiting if c.ask("where").split()[0] in before | {"0"}]
            assert time.monotonic() < deadline, "a client did not move over"
            time.sleep(0.005)
        print(f"{len(clients)} clients moved within {time.monotonic() - ready:.3f} s")
    total = [counts(client.ask("stop")) for client in clients]
    took = time.monotonic() - begun
    admitted = sum(one["allow"] for one in total)
    print(f"{admitted} admitted of {burst + rate * took:.0f}; {total}")
    assert admitted <= burst + rate * took
    assert admitted >= burst + rate * 0.6  # they were not shut out either
    assert sum(one["other"] for one in total) == 0


@pytest.mark.parametrize("how", [None, signal.SIGKILL], ids=["stopped", "killed"])
def test_an_open_breaker_and_a_drained_bucket_move_over(world, how):
    holder = world.holder("segment_holder", rate="1/d", burst=50)
    client = world.client(CLIENTS[0])
    assert counts(client.ask("acquire 200"))["allow"] == 50
    for name in ("segment_holder_next", "segment_holder", "segment_holder_next"):
        holder.stop(how)
        holder = world.holder(name, rate="1/d", burst=50)
        assert "replaced" in holder.first
        status = holder.ask("status").split()
        assert int(status[status.index("tokens") + 1]) < 1000
    assert holder.ask("trip") == "ok"
    for name in ("segment_holder", "segment_holder_next"):
        holder.stop(how)
        holder = world.holder(name, rate="1/d", burst=50)
        status = holder.ask("status").split()
        assert status[status.index("breaker") + 1] == "open"


@pytest.mark.parametrize("client_name", CLIENTS)
def test_flags_of_a_replaced_segment_wait_for_the_store(world, client_name):
    holder = world.holder("segment_holder")
    assert holder.ask("rates 98110 92000000") == "ok"
    client = world.client(client_name)
    client.ask("acquire 50")
    flag = client.ask("quote d-1").split()[3]
    holder.stop()
    holder = world.holder("segment_holder_next")
    found = []
    while (line := holder.ask("flags") if not found else holder.read()) != "ok":
        found.append(line)
    assert any(flag in line for line in found), found


@pytest.mark.parametrize("client_name", CLIENTS)
def test_a_next_major_version_takes_no_client_of_this_one_along(world, client_name):
    """Upgraded under a running client it serves nobody of before, by name and never with a silent ALLOW; back again, the
    client comes back by itself."""
    holder = world.holder("segment_holder", rate="1/d")
    client = world.client(client_name)
    assert counts(client.ask("acquire 5"))["allow"] == 5
    holder.stop(signal.SIGKILL)
    holder = world.holder("segment_holder_next_major", rate="1/d")
    assert world.peek("pub", MAJOR, "I") == 2 and world.peek("pub", OLDEST, "I") == 2
    assert counts(client.ask("acquire 100")) == {"allow": 0, "deny": 0, "unattached": 100, "other": 0}
    assert world.client(client_name).first == "VERSION_MISMATCH"
    holder.stop(signal.SIGKILL)
    holder = world.holder("segment_holder", rate="1/d")
    assert "replaced" in holder.first
    deadline = time.monotonic() + WATCHDOG_S
    while client.ask("where").startswith("0 ") and time.monotonic() < deadline:
        time.sleep(0.01)
    # What it cannot read it does not carry over: the bucket starts EMPTY, not full.
    assert counts(client.ask("acquire 100")) == {"allow": 0, "deny": 100, "unattached": 0, "other": 0}


PART = """#include "{header}"
int {name}(const char *pub, const char *rw);
int {name}(const char *pub, const char *rw)
{{
    static struct spw_client client;
    static struct spw_ref ref;
    struct spw_attach_options options = {{pub, rw, SPW_UNATTACHED_DENY, 0, 0}};
    struct spw_ticket ticket;
    int allowed = 0;
    if (spw_attach(&client, &options) != SPW_STATUS_OK)
        return -1000;
    spw_ref_init(&ref, "main", "web");
    for (int i = 0; i < 15; i++)
        allowed += spw_acquire(&client, &ref, 1, 0, &ticket).verdict == SPW_ALLOW;
    return allowed;
}}
"""


@pytest.mark.skipif(not FROZEN, reason="no header of an earlier release")
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_two_versions_of_the_header_in_one_program(world, tmp_path, compiler):
    """A library brought the header of an earlier release along: both attach, and share one bucket."""
    if not shutil.which(compiler):
        pytest.skip(f"no {compiler}")
    world.holder("segment_holder", rate="1/d", burst=20)
    sources = []
    for name, header in (("today", ROOT / "clients/c/spillway.h"), ("earlier", FROZEN[0])):
        sources.append(tmp_path / f"{name}.c")
        sources[-1].write_text(PART.format(header=header, name=name))
    sources.append(tmp_path / "main.c")
    sources[-1].write_text("#include <stdio.h>\nint today(const char *, const char *);\n"
                           "int earlier(const char *, const char *);\n"
                           "int main(int n, char **v)\n{\n    int a = today(v[1], v[2]), b = earlier(v[1], v[2]);\n"
                           '    printf("%d %d\\n", a, b);\n    return n != 3;\n}\n')
    program = tmp_path / "both"
    done = subprocess.run([compiler, "-std=c11", "-O2", *sources, "-o", program, "-pthread"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:2000]
    ran = subprocess.run([program, tmp_path / "pub", tmp_path / "rw"], capture_output=True, text=True)
    assert ran.stdout.split() == ["15", "5"]
