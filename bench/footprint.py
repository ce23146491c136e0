#!/usr/bin/env python3
"""bench/footprint.py BIN: what a sidecar costs that does nothing: memory, time to readiness, processor when idle.

TLS on the control API, TLS providers, ten accounts, a rate table of 41,000 ZIP codes. JSON lines; `most` is the target.
Run by scripts/bench footprint.
"""
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BIN = Path(sys.argv[1])
RUNS, IDLE_S = 5, 20


def port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def certificate(directory):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
                    directory / "tls.key", "-out", directory / "tls.crt", "-days", "2", "-subj", "/CN=bench"],
                   check=True, capture_output=True)


def configuration(directory):
    chance = random.Random(1)
    rows = ["State,ZipCode,TaxRegionName,EstimatedCombinedRate,StateRate,EstimatedCountyRate,EstimatedCityRate,"
            "EstimatedSpecialRate,RiskLevel"]
    for zip5 in chance.sample(range(501, 99951), 41000):
        rows.append(f"WA,{zip5:05d},REGION,0.092000,0.065000,0,0.027000,0,1")
    (directory / "rates.csv").write_text("\n".join(rows) + "\n")
    (directory / "key").write_text("bench-key\n")
    for name in ("pub", "rw"):
        (directory / name).mkdir()
    certificate(directory)
    account = {"provider": "taxcloud", "connection": "c", "credentials": {"api_key_file": str(directory / "key")},
               "limit": {"rate": "100/s", "pods": 1}}
    admin = port()
    config = {
        "accounts": {f"account-{i}": account for i in range(10)},
        "fallback": {"rates": [{"file": str(directory / "rates.csv"), "source": "bench",
                                "as_of": time.strftime("%Y-%m-%d", time.gmtime())}]},
        "segment": {"pub_dir": str(directory / "pub"), "rw_dir": str(directory / "rw")},
        "listen": {"quote": f"127.0.0.1:{port()}", "admin": f"127.0.0.1:{admin}", "control_tls": {
            "address": f"127.0.0.1:{port()}", "cert_file": str(directory / "tls.crt"),
            "key_file": str(directory / "tls.key"), "client_ca_file": str(directory / "tls.crt"),
            "roles": {"bench": "admin"}}},
        "store": {"file": str(directory / "flags.db")}}
    (directory / "spillway.yaml").write_text(json.dumps(config))
    return admin


def ready(admin):
    try:
        with socket.create_connection(("127.0.0.1", admin), 1) as s:
            s.sendall(b"GET /readyz HTTP/1.0\r\n\r\n")
            return b" 200 " in s.recv(200)
    except OSError:
        return False


def beyond_segment_bytes(pid, directory):
    """Resident memory that is not the segment's."""
    total, is_segment = 0, False
    for line in open(f"/proc/{pid}/smaps"):
        words = line.split()
        if "-" in words[0] and not words[0].endswith(":"):
            is_segment = str(directory) in line and "segment" in line
        elif words[0] == "Rss:" and not is_segment:
            total += int(words[1]) * 1024
    return total


def processor_s(pid):
    """By the scheduler's own count of each thread: ticks of 10 ms are too coarse for what wakes for microseconds."""
    return sum(int(open(f"/proc/{pid}/task/{task}/schedstat").read().split()[0])
               for task in os.listdir(f"/proc/{pid}/task")) / 1e9


def run(measure_idle):
    with tempfile.TemporaryDirectory(prefix="spillway-bench-", dir="/dev/shm") as name:
        directory = Path(name)
        admin = configuration(directory)
        with open(directory / "log", "w") as log:
            began = time.monotonic()
            process = subprocess.Popen([BIN / "spillwayd", "--config", directory / "spillway.yaml"], stderr=log)
        try:
            while not ready(admin):
                if process.poll() is not None:
                    raise SystemExit((directory / "log").read_text())
                time.sleep(0.001)
            ready_ms = (time.monotonic() - began) * 1000
            time.sleep(2)
            memory = beyond_segment_bytes(process.pid, directory)
            idle = None
            if measure_idle:
                before, began = processor_s(process.pid), time.monotonic()
                time.sleep(IDLE_S)
                idle = (processor_s(process.pid) - before) / (time.monotonic() - began)
            return ready_ms, memory, idle
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def main():
    results = [run(i == 0) for i in range(RUNS)]
    for name, value, most in (
            ("ready_ms", min(r[0] for r in results), 300),
            ("rss_beyond_segment_mib", max(r[1] for r in results) / 2**20, 28),
            ("idle_core_percent", results[0][2] * 100, 0.2)):
        print(json.dumps({"bench": "footprint", "name": name, "value": round(value, 2), "most": most,
                          "runs": 1 if name.startswith("idle") else RUNS}), flush=True)


main()
