"""libspillway.so from another language: Python's ctypes, also across fork (as pre-loading web servers use it).

The segment is a real one, held by a process of its own. Needs SPILLWAY_BIN.
"""
import ctypes
import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

BIN = Path(os.environ.get("SPILLWAY_BIN", ""))

CONFIG = """
accounts:
  main:
    provider: taxcloud
    connection: test
    credentials: {{api_key_env: TAXCLOUD_TEST_KEY}}
    limit: {{rate: {rate}, burst: {burst}, pods: 1}}
    concurrency: 8
    integrations: {{web: checkout}}
fallback: {{on_no_rate: block}}
segment: {{pub_dir: {dir}/pub, rw_dir: {dir}/rw, slots: 64, cells: 64, rate_records: 1024}}
"""

ALLOW, DENY, NEVER, NOT_ATTACHED, BAD_HANDLE = range(5)
DENY_UNATTACHED = 1


class Decision(ctypes.Structure):
    _fields_ = [("verdict", ctypes.c_int32), ("may_call", ctypes.c_int32), ("cause", ctypes.c_int32),
                ("observed", ctypes.c_int32), ("wait_ns", ctypes.c_uint64), ("start_at_ns", ctypes.c_uint64),
                ("version", ctypes.c_uint64)]


Ticket = ctypes.c_uint64 * 8
Reservation = ctypes.c_uint64 * 40


def library():
    lib = ctypes.CDLL(str(BIN / "libspillway.so"))
    lib.spillway_new.restype = ctypes.c_void_p
    lib.spillway_new.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int]
    lib.spillway_destroy.argtypes = [ctypes.c_void_p]
    lib.spillway_destroy.restype = None
    lib.spillway_status.argtypes = [ctypes.c_void_p]
    lib.spillway_acquire.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint64,
                                     Ticket, ctypes.POINTER(Decision)]
    lib.spillway_reserve.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint64,
                                     ctypes.c_uint64, Reservation, ctypes.POINTER(Decision)]
    lib.spillway_confirm.argtypes = [ctypes.c_void_p, Reservation, ctypes.POINTER(Decision)]
    lib.spillway_give_up.argtypes = [ctypes.c_void_p, Reservation]
    lib.spillway_give_up.restype = None
    lib.spillway_report.argtypes = [ctypes.c_void_p, Ticket, ctypes.c_uint32, ctypes.c_int64]
    lib.spillway_report.restype = None
    lib.spillway_rate_ppb.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    lib.spillway_rate_ppb.restype = ctypes.c_int64
    lib.spillway_order_placed.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int64,
                                          ctypes.c_char_p]
    lib.spillway_order_cancelled.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    for name in ("spillway_cause_name", "spillway_status_text"):
        getattr(lib, name).restype = ctypes.c_char_p
        getattr(lib, name).argtypes = [ctypes.c_int]
    return lib


LIB = library()


class Client:
    """What a binding in any language comes down to."""

    def __init__(self, directory, unattached=DENY_UNATTACHED):
        self.handle = LIB.spillway_new(f"{directory}/pub".encode(), f"{directory}/rw".encode(), unattached)
        assert self.handle

    def acquire(self, account="main", tokens=1, max_wait_ns=0):
        ticket, decision = Ticket(), Decision()
        may_call = LIB.spillway_acquire(self.handle, account.encode(), b"web", tokens, max_wait_ns, ticket,
                                        ctypes.byref(decision))
        assert bool(may_call) == bool(decision.may_call)
        return ticket, decision

    def report(self, ticket, status=200, retry_after_ms=-1):
        LIB.spillway_report(self.handle, ticket, status, retry_after_ms)

    def close(self):
        LIB.spillway_destroy(self.handle)


class Holder:
    def __init__(self, directory, rate="0/s", burst=1000):
        for name in ("pub", "rw"):
            (directory / name).mkdir(exist_ok=True)
        config = directory / "spillway.yaml"
        config.write_text(CONFIG.format(dir=directory, rate=rate, burst=burst))
        self.process = subprocess.Popen([BIN / "segment_holder", config], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, bufsize=1,
                                        env={**os.environ, "TAXCLOUD_TEST_KEY": "test"})
        assert self.process.stdout.readline().startswith("ready")

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        return self.process.stdout.readline().strip()

    def status(self):
        words = self.ask("status").split()
        return dict(zip(words[::2], words[1::2]))

    def stop(self):
        self.process.stdin.close()
        assert self.process.wait(30) == 0
        self.process.stdout.close()


@pytest.fixture
def holder(tmp_path):
    one = Holder(tmp_path)
    one.directory = tmp_path
    yield one
    one.stop()


def test_opened_before_fork(holder):
    client = Client(holder.directory)
    assert LIB.spillway_status(client.handle) == 0
    tickets = [client.acquire()[0] for _ in range(3)]
    for ticket in tickets[:2]:
        client.report(ticket)
    children = []
    for _ in range(4):
        pid = os.fork()
        if pid == 0:
            taken, tries = 0, 0
            while taken < 100 and tries < 1_000_000:
                ticket, decision = client.acquire()
                tries += 1
                if decision.may_call:
                    client.report(ticket)
                    taken += 1
            os._exit(0 if taken == 100 else 1)
        children.append(pid)
    for pid in children:
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    status = holder.status()
    assert int(status["tokens"]) == (1000 - 403) * 1000
    assert int(status["permits"]) == 7
    client.report(tickets[2])
    assert int(holder.status()["permits"]) == 8
    client.close()


def test_reservations(tmp_path):
    holder = Holder(tmp_path, rate="2/s", burst=1)
    client = Client(tmp_path)
    begun = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    made = []
    for _ in range(4):
        reservation, decision = Reservation(), Decision()
        assert LIB.spillway_reserve(client.handle, b"main", b"web", 0, 1, 5_000_000_000, reservation,
                                    ctypes.byref(decision)) == 1
        made.append((reservation, decision))
    starts = [decision.start_at_ns for _, decision in made]
    assert starts[0] == 0 and starts[2] - starts[1] == starts[3] - starts[2] == 500_000_000
    client_report = LIB.spillway_report
    client_report(client.handle, ctypes.cast(made[0][0], ctypes.POINTER(Ticket)).contents, 200, -1)
    for reservation, _ in made[:1:-1]:  # the two newest are not wanted any more
        LIB.spillway_give_up(client.handle, reservation)
    early = Decision()
    if time.clock_gettime_ns(time.CLOCK_BOOTTIME) < starts[1] - 20_000_000:
        assert LIB.spillway_confirm(client.handle, made[1][0], ctypes.byref(early)) == 0
        assert early.verdict == 1 and 0 < early.wait_ns <= starts[1] - begun
    while LIB.spillway_confirm(client.handle, made[1][0], ctypes.byref(early)) == 0:
        time.sleep(early.wait_ns / 1e9)
    assert time.clock_gettime_ns(time.CLOCK_BOOTTIME) >= starts[1]
    again, decision = Reservation(), Decision()
    LIB.spillway_reserve(client.handle, b"main", b"web", 0, 1, 5_000_000_000, again, ctypes.byref(decision))
    late = time.clock_gettime_ns(time.CLOCK_BOOTTIME) >= starts[2]
    assert decision.start_at_ns == starts[2] or late  # as if the two had never been
    client_report(client.handle, ctypes.cast(made[1][0], ctypes.POINTER(Ticket)).contents, 200, -1)
    LIB.spillway_give_up(client.handle, again)
    assert int(holder.status()["permits"]) == 8
    client.close()
    holder.stop()


def test_whatever_a_binding_passes(holder):
    """Null pointers, odd addresses, minus one, names that are too long, statuses that do not exist: an answer, no crash; and
    errno is the caller's."""
    raw = ctypes.CDLL(str(BIN / "libspillway.so"), use_errno=True)
    pointer, text, u64 = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint64
    raw.spillway_acquire.argtypes = [pointer, text, text, u64, u64, pointer, pointer]
    raw.spillway_reserve.argtypes = [pointer, text, text, ctypes.c_int, u64, u64, pointer, pointer]
    raw.spillway_confirm.argtypes = [pointer, pointer, pointer]
    raw.spillway_give_up.argtypes = [pointer, pointer]
    raw.spillway_report.argtypes = [pointer, pointer, ctypes.c_uint32, ctypes.c_int64]
    raw.spillway_rate_ppb.argtypes, raw.spillway_rate_ppb.restype = [pointer, text], ctypes.c_int64
    raw.spillway_order_placed.argtypes = [pointer, text, text, ctypes.c_int64, text]
    raw.spillway_status.argtypes = raw.spillway_destroy.argtypes = [pointer]
    client, room = Client(holder.directory), ctypes.create_string_buffer(400)
    odd, decision = ctypes.addressof(room) + 1, Decision()
    assert raw.spillway_acquire(None, b"main", b"web", 1, 0, odd, ctypes.byref(decision)) == 0
    assert (decision.verdict, decision.may_call) == (BAD_HANDLE, 0)
    assert raw.spillway_acquire(client.handle, b"main", b"web", 1, 0, None, ctypes.byref(decision)) == 0
    assert raw.spillway_reserve(client.handle, b"main", b"web", 0, 1, 0, None, None) == 0
    assert raw.spillway_confirm(client.handle, None, None) == raw.spillway_confirm(None, odd, None) == 0
    raw.spillway_give_up(client.handle, None)
    raw.spillway_report(client.handle, None, 200, -1)
    raw.spillway_report(None, odd, 200, -1)
    assert raw.spillway_rate_ppb(None, b"98110") < 0 and raw.spillway_rate_ppb(client.handle, None) < 0
    assert raw.spillway_status(None) < 0 and raw.spillway_order_placed(client.handle, None, None, 0, None) < 0
    raw.spillway_destroy(None)
    assert raw.spillway_acquire(client.handle, None, None, 1, 0, odd, odd + 100) == 0
    for name in (b"m" * 64, b"main" + b"x" * 60, b""):
        assert raw.spillway_acquire(client.handle, name, b"web", 1, 0, odd, ctypes.byref(decision)) == 0
        assert decision.verdict == BAD_HANDLE
    assert int(holder.status()["tokens"]) == 1_000_000 and int(holder.status()["permits"]) == 8  # none of it took any
    ctypes.set_errno(77)
    for endpoint in (-1, 4, 2 ** 31 - 1):
        assert raw.spillway_reserve(client.handle, b"main", b"web", endpoint, 1, 2 ** 64 - 1, odd, odd + 330 - 8) == 1
        raw.spillway_give_up(client.handle, odd)
    assert raw.spillway_acquire(client.handle, b"main", b"w" * 200, 1, 0, odd, None) == 1
    raw.spillway_report(client.handle, odd, 2 ** 32 - 1, -2 ** 63)
    raw.spillway_report(client.handle, odd, 200, 2 ** 63 - 1)
    assert raw.spillway_acquire(client.handle, b"main", b"web", 2 ** 64 - 1, 0, odd, ctypes.byref(decision)) == 0
    assert (decision.verdict, decision.wait_ns) == (NEVER, 2 ** 64 - 1)
    assert ctypes.get_errno() == 77
    assert int(holder.status()["tokens"]) == 999_000 and int(holder.status()["permits"]) == 8
    client.close()


def test_errno_is_left_alone_while_nothing_is_there(tmp_path):
    raw = ctypes.CDLL(str(BIN / "libspillway.so"), use_errno=True)
    raw.spillway_acquire.argtypes = LIB.spillway_acquire.argtypes
    client, ticket, decision = Client(tmp_path), Ticket(), Decision()
    for _ in range(3):
        ctypes.set_errno(77)
        assert raw.spillway_acquire(client.handle, b"main", b"web", 1, 0, ticket, ctypes.byref(decision)) == 0
        assert (decision.verdict, ctypes.get_errno()) == (NOT_ATTACHED, 77)
        time.sleep(0.11)  # it looks for a segment at most every 100 ms: the next acquire does
    client.close()


def test_threads_share_one_handle(holder):
    client = Client(holder.directory)
    allowed = []

    def work():
        mine = 0
        for _ in range(400):
            ticket, decision = client.acquire()
            if decision.may_call:
                mine += 1
                client.report(ticket)
        allowed.append(mine)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(allowed) == 1000
    ticket, decision = client.acquire()
    assert (decision.verdict, decision.wait_ns) == (NEVER, 2**64 - 1)
    assert LIB.spillway_cause_name(decision.cause) == b"rate-zero"
    client.close()


def test_rates_and_orders(holder):
    client = Client(holder.directory)
    assert LIB.spillway_rate_ppb(client.handle, b"98110") == -4
    assert holder.ask("rates 98110 92000000") == "ok"
    assert LIB.spillway_rate_ppb(client.handle, b"98110-1234") == 92000000
    assert LIB.spillway_status_text(LIB.spillway_rate_ppb(client.handle, b"nonsense")).decode()
    assert LIB.spillway_order_placed(client.handle, b"sq_1", b"o-1", 671, b"USD") == 0
    assert LIB.spillway_order_cancelled(client.handle, b"o-1") == 0
    assert LIB.spillway_order_placed(client.handle, b"", b"o-1", 671, b"USD") < 0
    assert client.acquire("nobody")[1].verdict == BAD_HANDLE
    client.close()


def test_a_429_shuts_the_gate_for_everybody(holder):
    one, other = Client(holder.directory), Client(holder.directory)
    ticket, decision = one.acquire()
    assert decision.verdict == ALLOW
    one.report(ticket, 429, 3_600_000)
    for client in (one, other):
        decision = client.acquire()[1]
        assert decision.verdict == DENY
        assert 3_500 * 10**9 < decision.wait_ns <= 3_601 * 10**9
        assert LIB.spillway_cause_name(decision.cause) == b"gate-shut"
        client.close()


def test_before_and_after_the_sidecar(tmp_path):
    client = Client(tmp_path)
    assert LIB.spillway_status(client.handle) == -5
    assert client.acquire()[1].verdict == NOT_ATTACHED
    holder = Holder(tmp_path, rate="1000/s", burst=1000)
    deadline = 100
    while client.acquire()[1].verdict == NOT_ATTACHED and deadline:
        threading.Event().wait(0.02)
        deadline -= 1
    ticket, decision = client.acquire()
    assert decision.verdict == ALLOW
    client.report(ticket)
    holder.stop()
    assert client.acquire()[1].verdict == ALLOW  # decides on without it
    client.close()


def test_only_its_own_names_are_exported():
    symbols = subprocess.run(["nm", "-D", "--defined-only", BIN / "libspillway.so"], capture_output=True, text=True,
                             check=True).stdout.split("\n")
    names = {line.split()[-1] for line in symbols if line}
    assert names and all(name.startswith("spillway_") for name in names), names


def test_a_path_too_long_is_refused():
    assert LIB.spillway_new(b"x" * 400, b"y", 0) is None
