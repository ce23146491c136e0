"""The demo's directory and processes: made, started, killed, and gone at the end whatever happens."""
import ctypes
import datetime
import gzip
import http.client
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
RATES = HERE.parents[1] / "tests" / "data" / "zip5" / "national-sample.csv.gz"
WATCHDOG_S = 30

# The provider's limit, and the sidecar's: the same rate, and a burst that leaves room for calls which are admitted one
# by one and arrive together, being held up on their way. Five tokens are half a second of that.
RATE_PER_S = 10
PROVIDER_BURST = 155
SIDECAR_BURST = 150
COOLDOWN_S = 8
CHECKOUTS = 4

CONFIG = """\
accounts:
  taxcloud-demo:
    provider: taxcloud
    url: {provider}
    allow_plain_http: true            # the scripted provider on loopback
    connection: 25eb9b97-5acb-492d-b720-c03e79cf715a
    credentials: {{api_key_file: {dir}/api-key}}
    limit: {{rate: {rate}/s, burst: {burst}, pods: 1}}
    breaker: {{consecutive_429: 5, cooldown: {cooldown}s..{cooldown2}s}}
    integrations: {{checkout: checkout, web: checkout}}
fallback:
  rates: [{{file: {rates}, as_of: {today}, source: zip5-2014-sample}}]
segment: {{pub_dir: {dir}/pub, rw_dir: {dir}/rw}}
listen: {{quote: "127.0.0.1:{quote_port}", admin: "127.0.0.1:{admin_port}"}}
store: {{file: {dir}/store/flags.db}}
loop: {{backend: {backend}}}
"""


class DemoError(Exception):
    """The demo cannot go on; the text says why."""


def free_port():
    """Below the ports the kernel hands out by itself, so that no outgoing connection gets it by chance."""
    while True:
        port = random.randrange(10000, 32000)
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


def die_with_parent():
    """In the child: a demo that is itself killed leaves nothing behind. PR_SET_PDEATHSIG is 1."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def request(port, method, path, body=None):
    """(status, text) of a service on loopback; OSError when nobody answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WATCHDOG_S)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except http.client.HTTPException as error:
        raise OSError(str(error)) from error
    finally:
        connection.close()


class World:
    def __init__(self, bin_dir, backend):
        self.bin = Path(bin_dir)
        self.backend = backend
        self.dir = Path(tempfile.mkdtemp(prefix="spillway-demo."))
        self.processes = []  # all ever started, for the end
        self.callers = []
        self.sidecar = None
        self.results = []
        for name in ("pub", "rw", "store", "log", "results"):
            (self.dir / name).mkdir()

    # ---- processes ----

    def start(self, name, *command, **more):
        log = open(self.dir / "log" / (name + ".log"), "ab")
        try:
            process = subprocess.Popen([str(word) for word in command], stderr=log, preexec_fn=die_with_parent,
                                       start_new_session=True, text=True, **more)
        except OSError as error:
            raise DemoError(f"{command[0]}: {error.strerror}") from error
        finally:
            log.close()
        process.name = name
        self.processes.append(process)
        return process

    def log(self, name):
        return (self.dir / "log" / (name + ".log")).read_text(errors="replace")

    def fail_of(self, process):
        """What to say of a process that should be running and is not."""
        code, log = process.returncode, self.log(process.name).strip().splitlines()
        how = f"was killed by signal {-code}" if code < 0 else f"ended with {code}"
        return DemoError(f"{process.name} {how}; last words: {log[-1] if log else 'none'}")

    def check_alive(self):
        for process in [self.provider, *self.callers, *([self.sidecar] if self.sidecar else [])]:
            if process.poll() is not None:
                raise self.fail_of(process)

    # ---- provider ----

    def start_provider(self):
        self.provider = self.start(
            "provider", self.bin / "spillway-provider-mock", "--listen", "127.0.0.1:0", "--rates", RATES,
            "--limit", f"{RATE_PER_S}/s", "--burst", PROVIDER_BURST, "--latency", "40ms", "--jitter", "20ms",
            stdout=subprocess.PIPE)
        first = self.provider.stdout.readline()
        if not first.startswith("listening on "):
            self.provider.wait(WATCHDOG_S)
            raise self.fail_of(self.provider)
        self.provider_url = first.split()[-1]
        self.provider_port = int(self.provider_url.rsplit(":", 1)[1])

    def script(self, *steps):
        """Give the provider a script, in force at once; none = it behaves."""
        status, text = request(self.provider_port, "POST", "/mock/scenario", json.dumps(steps))
        if status != 200:
            raise DemoError(f"the provider refuses its script: {text}")

    def provider_stats(self):
        return json.loads(request(self.provider_port, "GET", "/mock/stats")[1])

    # ---- sidecar ----

    def configure(self):
        (self.dir / "api-key").write_text("key-of-the-demo\n")
        (self.dir / "api-key").chmod(0o600)
        self.quote_port, self.admin_port = free_port(), free_port()
        # The rates are of 2014 and dated today, since a sidecar rightly refuses to use a table that old.
        (self.dir / "spillway.yaml").write_text(CONFIG.format(
            dir=self.dir, provider=self.provider_url, rate=RATE_PER_S, burst=SIDECAR_BURST, cooldown=COOLDOWN_S,
            cooldown2=2 * COOLDOWN_S, rates=RATES, quote_port=self.quote_port, admin_port=self.admin_port,
            today=datetime.datetime.now(datetime.timezone.utc).date(), backend=self.backend))

    def start_sidecar(self):
        """Start it and wait until it is ready."""
        process = self.start("spillwayd", self.bin / "spillwayd", "--config", self.dir / "spillway.yaml",
                             stdout=subprocess.DEVNULL)
        end = time.monotonic() + WATCHDOG_S
        while True:
            if process.poll() is not None:
                raise self.fail_of(process)
            try:
                if request(self.admin_port, "GET", "/readyz")[0] == 200:
                    break
            except OSError:
                pass
            if time.monotonic() > end:
                raise DemoError(f"spillwayd was not ready after {WATCHDOG_S} s")
            time.sleep(0.02)
        self.sidecar = process

    def kill_sidecar(self):
        process, self.sidecar = self.sidecar, None
        process.kill()
        process.wait(WATCHDOG_S)

    def export_flags(self):
        """Every flag of the ledger, by the command line."""
        ctl = subprocess.run([self.bin / "spillwayctl", "--address", f"unix:{self.dir}/pub/control.sock", "flags",
                              "export", "--format", "jsonl"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             timeout=WATCHDOG_S, check=False)
        if ctl.returncode != 0:
            raise DemoError(f"spillwayctl flags export ended with {ctl.returncode}: {ctl.stderr.strip()}")
        return [json.loads(line) for line in ctl.stdout.splitlines()]

    # ---- callers ----

    def start_callers(self):
        with gzip.open(RATES, "rt") as table:
            rows = [line.split(",") for line in table.read().splitlines()[1:]]
        places = self.dir / "places"
        places.write_text("".join(f"{row[1]} {row[0]}\n" for row in rows if len(row) == 9))
        for i in range(CHECKOUTS):
            self.start_caller(f"checkout-{i + 1}", self.bin / "demo_checkout", "--pub", self.dir / "pub", "--rw",
                              self.dir / "rw", "--places", places)
        self.start_caller("python-http", sys.executable, HERE / "http_caller.py", "--url",
                          f"http://127.0.0.1:{self.quote_port}", "--token", self.dir / "pub" / "token", "--places",
                          places)

    def start_caller(self, name, *command):
        results = self.dir / "results" / (name + ".jsonl")
        results.touch()
        self.results.append(results)
        self.callers.append(self.start(name, *command, "--name", name, "--results", results, stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE))

    def orders_per_s(self, total):
        for caller in self.callers:
            try:
                caller.stdin.write(f"rate {total / len(self.callers)}\n")
                caller.stdin.flush()
            except BrokenPipeError:
                caller.wait(WATCHDOG_S)
                raise self.fail_of(caller) from None

    def stop_callers(self):
        """Let every caller finish its order; how many orders they began."""
        started = 0
        callers, self.callers = self.callers, []
        for caller in callers:
            caller.stdin.close()
        for caller in callers:
            last = caller.stdout.readline()
            if caller.wait(2 * WATCHDOG_S) != 0 or not last:
                raise self.fail_of(caller)
            started += json.loads(last)["started"]
        return started

    # ---- the end ----

    def stop_servers(self):
        """SIGTERM to sidecar and provider; what is wrong with how they ended."""
        wrong = []
        for process in (self.sidecar, self.provider):
            process.terminate()
        for process in (self.sidecar, self.provider):
            try:
                if process.wait(WATCHDOG_S) != 0:
                    wrong.append(f"{process.name} ended with {process.returncode}")
            except subprocess.TimeoutExpired:
                wrong.append(f"{process.name} did not end within {WATCHDOG_S} s")
        return "; ".join(wrong) or None

    def close(self, keep):
        for process in self.processes:
            if process.poll() is None:
                process.terminate()
        end = time.monotonic() + 3
        for process in self.processes:
            try:
                process.wait(max(0.01, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            for stream in (process.stdin, process.stdout):
                if stream:
                    stream.close()
        if not keep:
            shutil.rmtree(self.dir, ignore_errors=True)
