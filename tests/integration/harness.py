"""A sidecar and its scripted provider in a directory of their own: started, asked, killed, stopped, and looked into.

Every test gets a `place` (conftest.py), which ends what it started and checks that all of it ended well. Needs
SPILLWAY_BIN, the directory of the programs. Standard library, pytest and the programs themselves.
"""
import ctypes
import datetime
import functools
import http.client
import itertools
import json
import os
import random
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from test_mock import CONNECTION, Mock

BIN = Path(os.environ.get("SPILLWAY_BIN", ""))
TESTS = Path(__file__).resolve().parent.parent
SAMPLE = TESTS / "data" / "zip5" / "sample.csv"
WATCHDOG_S = 60  # ends a hang; nothing is measured by it
KEY = "key-that-nobody-may-see"
# The published sample, with Bainbridge Island at the design's 9.2 %.
RATES = re.sub("WA,98110,.*", "WA,98110,BAINBRIDGE ISLAND,TEST,0.092000,0.065000,0,0.027000,0", SAMPLE.read_text())
TODAY = datetime.datetime.now(datetime.timezone.utc).date()


def until(condition, what="it"):
    """Wait for what another process does next; gives what the condition gave."""
    end = time.monotonic() + WATCHDOG_S
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < end, f"{what} did not happen"
        time.sleep(0.01)


PORTS_PER_BLOCK = 200
block_owners = []  # a socket at the first port of each block that is this process's: other tests run beside it
block_ports = []   # not handed out yet


def free_port():
    """Below the ports the kernel hands out by itself, and in a block that no other process hands ports out of, so that
    nobody gets it before it is used."""
    while True:
        if not block_ports:
            first = random.randrange(10000, 32000, PORTS_PER_BLOCK)
            owner = socket.socket()
            try:
                owner.bind(("127.0.0.1", first))
            except OSError:
                owner.close()
                continue
            block_owners.append(owner)
            block_ports.extend(range(first + 1, first + PORTS_PER_BLOCK))
        port = block_ports.pop()
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


@functools.cache
def uring_refused():
    """Why this kernel gives no io_uring; "" when it does."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.syscall(425, 2, ctypes.create_string_buffer(120))
    if fd >= 0:
        os.close(fd)
        return ""
    return os.strerror(ctypes.get_errno())


# ---- what is asked ----

WASHINGTON = {"country": "US", "state": "WA", "zip": "98110-1234", "city": "Bainbridge Island",
              "line1": "100 Ravine Ln NE"}
DALLAS = {"country": "US", "state": "TX", "zip": "75201", "city": "Dallas", "line1": "1500 Marilla St"}


def quote_body(**changes):
    """The example of the design, with TaxCloud's product codes. A change to None leaves the field out."""
    body = {"account": "main", "integration": "web", "purpose": "order", "currency": "USD",
            "ship_from": DALLAS, "ship_to": WASHINGTON, "customer": {"id": "c_7", "exemption": None},
            "shipping": {"amount": "7.95", "tax_code": "11010"},
            "lines": [{"id": "1", "tax_code": "0", "quantity": "2", "amount": "39.98"},
                      {"id": "2", "tax_code": "20010", "quantity": "1", "amount": "25.00"}]}
    body.update(changes)
    return {name: value for name, value in body.items() if value is not None}


CUSTOMERS = itertools.count(100)


class Answer:
    def __init__(self, status, headers, text):
        self.status, self.headers, self.text = status, headers, text
        try:
            self.json = json.loads(text)
        except ValueError:
            self.json = None

    def __repr__(self):
        return f"{self.status} {self.text[:600]}"


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("spillway", timeout=WATCHDOG_S)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(WATCHDOG_S)
        self.sock.connect(self.path)


def exchange(connection, method, path, body=None, headers=None):
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    try:
        connection.request(method, path, data, headers or {})
        answer = connection.getresponse()
        return Answer(answer.status, answer.headers, answer.read().decode())
    finally:
        connection.close()


def at_once(count, work):
    """work(i) in `count` threads begun together; the results in order."""
    results, together = [None] * count, threading.Barrier(count)

    def one(i):
        together.wait(WATCHDOG_S)
        results[i] = work(i)
    threads = [threading.Thread(target=one, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WATCHDOG_S)
        assert not thread.is_alive()
    return results


# ---- /metrics ----

SAMPLE_LINE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? ([+-]?(?:[0-9.]+(?:e[+-]?[0-9]+)?|Inf)|NaN)')
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"(,|$)')


def parse_metrics(text):
    """The exposition read strictly: {(name, ((label, value), ...)): number} and {family: type}."""
    samples, types, helped, family, closed = {}, {}, set(), None, set()
    assert text.endswith("\n")
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            name = line.split(" ", 3)[2]
            assert name not in helped, f"{name} has two HELP lines"
            helped.add(name)
            continue
        if line.startswith("# TYPE "):
            _, _, family, kind = line.split(" ")
            assert family in helped and family not in types and kind in ("counter", "gauge", "histogram")
            types[family] = kind
            continue
        found = SAMPLE_LINE.fullmatch(line)
        assert found, f"no sample: {line}"
        name, rest, labels = found[1], found[2] or "", []
        while rest:
            label = LABEL.match(rest)
            assert label, f"no label: {line}"
            labels.append((label[1], label[2]))
            rest = rest[label.end():]
        suffixes = ("_bucket", "_sum", "_count") if types[family] == "histogram" else ("",)
        assert name in [family + suffix for suffix in suffixes], f"{name} stands among {family}"
        assert family not in closed or family == list(types)[-1]
        assert types[family] != "counter" or name.endswith("_total")
        assert len({label for label, _ in labels}) == len(labels)
        key = (name, tuple(sorted(labels)))
        assert key not in samples, f"{key} stands there twice"
        samples[key] = float(found[3])
        closed.add(family)
    return samples, types


# ---- the sidecar ----

def merge(base, changes):
    """A copy of base with changes laid over it, maps within maps; None takes a key away."""
    merged = dict(base)
    for key, value in changes.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict) and isinstance(merged.get(key), dict):
            merged[key] = merge(merged[key], value)
        else:
            merged[key] = value
    return merged


class Sidecar:
    """spillwayd on the place's directory and configuration. JSON is YAML enough for its file."""

    def __init__(self, place, program="spillwayd", launcher=(), ready=True, environment=None):
        self.place, self.directory = place, place.directory
        self.log_path = self.directory / f"log-{len(place.sidecars)}"
        with open(self.log_path, "w") as log:
            self.process = subprocess.Popen(
                [*map(str, launcher), str(BIN / program), "--config", str(place.config_path)],
                stdout=log, stderr=log, env={**os.environ, "TAXCLOUD_KEY": KEY, **(environment or {})})
        place.sidecars.append(self)
        self.expected_exit = 0
        if ready:
            self.wait_ready()

    @property
    def pid(self):
        return self.process.pid

    def log(self):
        return self.log_path.read_text()

    def wait_ready(self):
        def ready():
            assert self.process.poll() is None, f"it ended: {self.log()}"
            try:
                return self.admin("/readyz").status == 200
            except OSError:
                return False
        until(ready, "readiness")

    def wait_log(self, text):
        until(lambda: text in self.log(), f"\"{text}\" in the log")

    def wait_exit(self):
        return self.process.wait(WATCHDOG_S)

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        """SIGKILL: nothing of it runs any more when this returns."""
        self.process.kill()
        self.process.wait()
        self.expected_exit = -signal.SIGKILL

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
        assert self.process.wait(WATCHDOG_S) == self.expected_exit, self.log()[-4000:]

    # -- the doors --

    def quote(self, body=None, **changes):
        """A quote for a customer of its own unless one is given: identical carts would share a call."""
        changes.setdefault("customer", {"id": f"c_{next(CUSTOMERS)}", "exemption": None})
        return self.post("/spillway/v1/quote", quote_body(**changes) if body is None else body)

    def post(self, path, body=None, method="POST", headers=None):
        return exchange(UnixConnection(self.place.pub / "quote.sock"), method, path, body, headers)

    def post_tcp(self, path, body=None, method="POST", headers=None):
        return exchange(http.client.HTTPConnection("127.0.0.1", self.place.quote_port, timeout=WATCHDOG_S), method,
                        path, body, headers)

    def token(self):
        return (self.place.pub / "token").read_text()

    def sdk(self, method, path, body=None, token=None, headers=None):
        """A request at the pass-through door of `main` (account: listen), as an SDK sends it."""
        sent = {"X-API-KEY": self.token() if token is None else token, "Content-Type": "application/json"}
        return exchange(http.client.HTTPConnection("127.0.0.1", self.place.pass_port, timeout=WATCHDOG_S), method,
                        path, body, {**sent, **(headers or {})})

    def order(self, quote_id, order_id, tax, **more):
        return self.post("/spillway/v1/orders",
                         {"quote_id": quote_id, "order_id": order_id, "tax_collected": tax, **more})

    def admin(self, path, method="GET"):
        return exchange(http.client.HTTPConnection("127.0.0.1", self.place.admin_port, timeout=WATCHDOG_S), method,
                        path)

    def metrics(self):
        answer = self.admin("/metrics")
        assert answer.status == 200
        return parse_metrics(answer.text)[0]

    def metric(self, name, **labels):
        return self.metrics()[name, tuple(sorted(labels.items()))]

    def breaker(self, account="main"):
        metrics = self.metrics()
        states = [state for state in ("closed", "open", "half-open")
                  if metrics["spillway_breaker_state", (("account", account), ("state", state))] == 1]
        assert len(states) == 1
        return states[0]

    # -- the command line --

    def ctl(self, *words, code=0):
        result = subprocess.run([str(BIN / "spillwayctl"), *map(str, words)], text=True, timeout=WATCHDOG_S,
                                capture_output=True,
                                env={**os.environ, "SPILLWAY_CONTROL": f"unix:{self.place.pub}/control.sock"})
        assert result.returncode == code, f"{words}: {result.returncode} {result.stdout[-500:]} {result.stderr[-500:]}"
        return result

    def flags(self):
        """Every flag of the ledger as spillwayctl exports it; sequences must be contiguous."""
        flags = [json.loads(line) for line in self.ctl("flags", "export").stdout.splitlines()]
        assert [int(flag["sequence"]) for flag in flags] == list(range(1, len(flags) + 1))
        return flags

    def flag(self, flag_id):
        """The flag of this id, once it is in the ledger."""
        def found():
            return [flag for flag in self.flags() if flag["flag_id"] == flag_id]
        one, = until(found, f"flag {flag_id} in the ledger")
        return one


class Place:
    """A directory with configuration, rates, secrets and both volumes; on tmpfs where there is one."""

    def __init__(self, backend=None):
        base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.directory = Path(tempfile.mkdtemp(prefix="spw-", dir=base))
        self.pub, self.rw = self.directory / "pub", self.directory / "rw"
        self.ledger = self.directory / "flags.db"
        self.config_path = self.directory / "spillway.yaml"
        self.quote_port, self.admin_port, self.control_port = free_port(), free_port(), free_port()
        self.pass_port = free_port()
        self.sidecars, self.mocks, self.programs = [], [], []
        for directory in (self.pub, self.rw):
            directory.mkdir(mode=0o770)
        (self.directory / "api-key").write_text(KEY + "\n")
        self.rates = self.directory / "rates.csv"
        self.rates.write_text(RATES)
        self.config = {
            "accounts": {},
            "fallback": {"rates": [{"file": str(self.rates), "as_of": str(TODAY), "source": "sample"}]},
            "segment": {"pub_dir": str(self.pub), "rw_dir": str(self.rw), "slots": 64, "cells": 512,
                        "rate_records": 1024},
            "listen": {"quote": f"127.0.0.1:{self.quote_port}", "admin": f"127.0.0.1:{self.admin_port}",
                       "control": f"127.0.0.1:{self.control_port}"},
            "store": {"file": str(self.ledger)}, "log": {"format": "text"}}
        backend = backend or os.environ.get("SPW_TEST_BACKEND")
        if backend:
            self.config["loop"] = {"backend": backend}

    def mock(self, *options):
        mock = Mock(*options)
        self.mocks.append(mock)
        return mock

    def account(self, url, **changes):
        return merge({"provider": "taxcloud", "url": url, "allow_plain_http": True, "connection": CONNECTION,
                      "credentials": {"api_key_file": str(self.directory / "api-key")},
                      "limit": {"rate": "1000/s", "burst": 1000, "pods": 1}, "deadline": "5s",
                      "integrations": {"web": "checkout", "night": "batch"}}, changes)

    def write_config(self, changes=None):
        self.config = merge(self.config, changes or {})
        self.config_path.write_text(json.dumps(self.config, indent=2))

    def sidecar(self, mock=None, account=None, config=None, **more):
        """Start it: `main` at the mock with these changes of the account, and of the rest of the configuration."""
        if mock is not None:
            url = mock if isinstance(mock, str) else mock.url
            self.config["accounts"]["main"] = self.account(url, **(account or {}))
        self.write_config(config)
        return Sidecar(self, **more)

    def program(self, *command):
        """A C program of the tests, in the background; its standard output goes to a file."""
        path = self.directory / f"out-{len(self.programs)}"
        with open(path, "w") as out:
            process = subprocess.Popen([str(BIN / command[0]), *map(str, command[1:])], stdout=out,
                                       env={**os.environ, "SPILLWAY_PUB_DIR": str(self.pub),
                                            "SPILLWAY_RW_DIR": str(self.rw)})
        process.output, process.expected_exit = path, 0
        self.programs.append(process)
        return process

    def load(self, mode, name, *options):
        """The load generator under the given name."""
        return self.program("loadgen", mode, "--name", name, *options)

    def sql(self, text):
        """From the ledger's file, which another process may be writing."""
        with sqlite3.connect(f"file:{self.ledger}?mode=ro", uri=True, timeout=WATCHDOG_S) as db:
            return db.execute(text).fetchall()

    def close(self, failed):
        try:
            for process in self.programs:
                end(process, process.expected_exit, failed)
            for sidecar in self.sidecars:
                if failed:
                    end(sidecar.process, None, failed)
                else:
                    sidecar.stop()
                assert failed or KEY not in sidecar.log()
            for mock in self.mocks:
                end(mock.process, None, True) if failed else mock.__exit__()
        finally:
            for process in [*self.programs, *(s.process for s in self.sidecars), *(m.process for m in self.mocks)]:
                process.kill()
            if not failed:
                shutil.rmtree(self.directory)


def end(process, code, failed):
    if process.poll() is None:
        process.terminate()
    got = process.wait(WATCHDOG_S)
    assert failed or got == code, f"{process.args} ended with {got}"


def finish(process):
    """Let a load generator end by itself; gives its lines. One that has not begun yet would die of the signal."""
    until(lambda: read_lines(process) or process.poll() is not None, "its first line")
    process.terminate()
    assert process.wait(WATCHDOG_S) == 0
    return read_lines(process)


def read_lines(process):
    """The whole lines written so far."""
    text = process.output.read_text()
    return [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()]


