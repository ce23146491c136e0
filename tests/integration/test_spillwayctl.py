"""spillwayctl against a real control server: what people read, what machines read, exit codes, help.

Needs SPILLWAY_BIN, the directory of the programs.
"""
import csv
import gzip
import hashlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from test_control import Server

CTL = Path(os.environ.get("SPILLWAY_BIN", "")) / "spillwayctl"
DATA = Path(__file__).resolve().parent.parent / "data" / "zip5"
WATCHDOG_S = 60  # ends a hang; nothing is measured by it
OK, REFUSED, USAGE, UNREACHED = 0, 1, 2, 3
COMMANDS = ("status", "version", "check", "limits list", "limits get", "limits set", "breaker get", "breaker open",
            "breaker close", "breaker auto", "breaker observe", "breaker disable", "breaker reset", "rates load",
            "rates lookup", "rates show", "flags export", "flags find", "replay", "replay convert")


def run(*words, address=None, **more):
    environment = {name: value for name, value in os.environ.items() if name != "SPILLWAY_CONTROL"}
    if address:
        environment["SPILLWAY_CONTROL"] = str(address)
    more.setdefault("stdout", subprocess.PIPE)
    return subprocess.run([str(word) for word in (CTL, *words)], env=environment, stderr=subprocess.PIPE, text=True,
                          timeout=WATCHDOG_S, **more)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    one = Server(tmp_path_factory.mktemp("ctl"))
    yield one
    text = one.text()
    assert one.stop() == 0, text


@pytest.fixture
def ctl(server):
    """ctl(*words) -> stdout; the exit code must be 0 and stderr empty."""
    def call(*words, stderr=""):
        result = run(*words, address=server.path)
        assert (result.returncode, result.stderr) == (OK, stderr)
        return result.stdout
    return call


@pytest.fixture
def refused(server):
    """refused(*words) -> stderr; the exit code must be 1 and stdout empty."""
    def call(*words):
        result = run(*words, address=server.path)
        assert (result.returncode, result.stdout) == (REFUSED, ""), result.stderr
        return result.stderr
    return call


# ---- help and usage ----

def test_help_at_each_level():
    assert all(command in run("--help").stdout for command in COMMANDS)
    for command in COMMANDS:
        words = command.split()
        result = run(*words, "--help")
        assert result.returncode == OK and not result.stderr
        assert result.stdout.startswith(f"Usage: spillwayctl {command}")
        assert "Examples:" in result.stdout and "Exit codes:" in result.stdout and f"spillwayctl {command}" in \
            result.stdout.split("Examples:")[1]
        if len(words) == 2:
            assert command in run(words[0], "--help").stdout


@pytest.mark.parametrize("words, told", [
    ((), "say what to do"),
    (("limits",), "limits what?"),
    (("limits", "drop"), "no command limits drop"),
    (("drop",), "no command drop"),
    (("limits", "get"), "ACCOUNT is missing"),
    (("limits", "get", "a", "b"), "b is one word too many"),
    (("limits", "set", "main"), "nothing to change"),
    (("limits", "set", "main", "--burst"), "--burst needs a value"),
    (("limits", "set", "main", "--burst", "-1"), "whole number"),
    (("limits", "set", "main", "--burst", "1e6"), "whole number"),
    (("limits", "set", "main", "--burst", "99999999999999999999"), "whole number"),
    (("limits", "set", "main", "--burst", "1", "--burst", "2"), "given twice"),
    (("limits", "set", "main", "--dry-run=yes", "--burst", "1"), "takes no value"),
    (("limits", "get", "main", "--burst", "1"), "no option --burst"),
    (("status", "--bogus"), "no option --bogus"),
    (("status", "--timeout", "soon"), "--timeout"),
    (("status", "--timeout", "0s"), "--timeout"),
    (("rates", "load", "x.csv"), "--as-of DATE and --source NAME"),
    (("rates", "load", "x.csv", "--as-of", "2025-13-01", "--source", "v"), "--as-of"),
    (("rates", "lookup"), "say where"),
    (("flags", "export", "--format", "xml"), "jsonl or csv"),
    (("flags", "export", "--format", "csv", "--json"), "exclude"),
    (("flags", "export", "--follow", "maybe"), "yes or no"),
    (("flags", "export", "--after-change", "3", "--after", "3"), "exclude"),
    (("flags", "export", "--out", "x", "--follow", "yes"), "exclude"),
    (("flags", "report"), "--tie-out"),
    (("flags", "report", "--tie-out", "x", "--tolerance", "-1"), "--tolerance"),
])
def test_a_line_that_makes_no_sense(words, told):
    result = run(*words)
    assert (result.returncode, result.stdout) == (USAGE, "")
    assert told in result.stderr and "--help" in result.stderr


def test_no_sidecar(tmp_path):
    for address in (f"unix:{tmp_path}/none.sock", f"{tmp_path}/none.sock", "127.0.0.1:1"):
        result = run("status", "--address", address)
        assert (result.returncode, result.stdout) == (UNREACHED, "") and "SPILLWAY_CONTROL" in result.stderr
    result = run("status", "--json", address=tmp_path / "none.sock")
    assert result.returncode == UNREACHED and json.loads(result.stderr)["error"]["code"] == "UNREACHED"
    assert run("version", address=tmp_path / "none.sock").returncode == OK


def test_a_sidecar_that_does_not_answer_in_time(server):
    result = run("limits", "get", "stuck", "--timeout", "200ms", address=server.path)
    assert result.returncode == UNREACHED and "--timeout" in result.stderr


def test_the_address_may_be_written_in_several_ways(server):
    for address in (server.path, f"unix:{server.path}", f"unix://{server.path}", f"127.0.0.1:{server.port}"):
        assert run("limits", "list", "--address", address).returncode == OK
    assert run(f"--address={server.path}", "limits", "list").returncode == OK


# ---- status and limits ----

def test_status(ctl):
    text = ctl("status")
    assert "0.0.0-test, serving" in text and "4 attached of 256" in text and "writable" in text
    main = next(line.split() for line in text.splitlines() if line.startswith("main "))
    assert main[-4:] == ["12345", "8", "70", "0"]  # fallbacks of the checkouts and of the door
    causes = [line.split() for line in text.split("NOT LIVE BECAUSE")[1].splitlines()[1:] if line.startswith("main ")]
    assert [(line[1], line[2]) for line in causes] == [("8", "no"), ("3", "provider")], text
    assert any(line.split()[:2] == ["main", "100/s"] or line.startswith("main ") for line in text.splitlines())
    status = json.loads(ctl("status", "--json"))
    assert status["version"] == "0.0.0-test" and status["segment"]["generation"] == "0000000000001234"
    assert status["accounts"][0]["decisions"]["allowed"] == 12345
    assert status["accounts"][0]["breaker"]["settings"]["mode"] == "enforce"


def test_limits(ctl, refused):
    before = json.loads(ctl("limits", "get", "main", "--json"))["limit"]
    assert [one["account"] for one in json.loads(ctl("limits", "list", "--json"))["limits"]] == ["main", "stuck"]
    text = ctl("limits", "set", "main", "--rate", "30/s", "--burst", "60", "--dry-run")
    assert "30/s, burst 60" in text and "Nothing was changed" in text
    assert json.loads(ctl("limits", "get", "main", "--json"))["limit"] == before
    text = ctl("limits", "set", "main", "--rate", "30/s", "--burst=60", "--pods", "3", "--expect-version",
               before["version"])
    assert "30/s, burst 60, 3 pods" in text and "this pod" in text and "next start" in text
    after = json.loads(ctl("limits", "get", "main", "--json"))["limit"]
    assert (after["rate"]["text"], after["burst"], after["pods"], after["pod_burst"]) == ("30/s", 60, 3, 20)
    assert "provider_remaining" not in after and after["provider_limit"] == 100
    assert "read it again" in refused("limits", "set", "main", "--burst", "7", "--expect-version", before["version"])
    assert "rate.text" in refused("limits", "set", "main", "--rate", "fast")
    error = json.loads(refused("limits", "set", "main", "--rate", "fast", "--json"))["error"]
    assert (error["code"], error["field"]) == ("INVALID_ARGUMENT", "rate.text")
    assert "none" in refused("limits", "get", "none")


def test_the_reading_port_names_the_socket(server):
    result = run("limits", "set", "main", "--burst", "9", "--address", f"127.0.0.1:{server.port}")
    assert result.returncode == REFUSED and f"unix:{server.path}" in result.stderr


# ---- breaker ----

def test_breaker(ctl):
    for command, word in (("open", "open"), ("close", "closed"), ("observe", "observe"), ("disable", "disabled"),
                          ("auto", "auto")):
        assert "In force" in ctl("breaker", command, "main")
        assert json.loads(ctl("breaker", "get", "main", "--json"))["breaker"]["force"] == word
    ctl("breaker", "open", "main")
    told = ctl("breaker", "get", "main")
    assert re.search(r"^state +open, held by hand$", told, re.M) and "it would be closed" in told, told
    assert "open, held by hand" in ctl("status") and "breaker open, held by hand" in ctl("why")
    ctl("breaker", "auto", "main")
    assert "dry run" in ctl("breaker", "open", "main", "--dry-run")
    assert json.loads(ctl("breaker", "get", "main", "--json"))["breaker"]["force"] == "auto"
    assert "In force" in ctl("breaker", "reset", "main")
    text = ctl("breaker", "get", "main")
    assert "5 answers 429 in a row" in text and "20.00 %" in text and "decides by itself" in text


# ---- rates ----

def table(path, *rows):
    head = "State,ZipCode,TaxRegionName,EstimatedCombinedRate,StateRate,EstimatedCountyRate,EstimatedCityRate," \
           "EstimatedSpecialRate,RiskLevel"
    path.write_text("\n".join((head, *rows)) + "\n")
    return path


def test_rates_are_loaded_and_bad_rows_named(server, tmp_path):
    path = tmp_path / "sample.csv"
    lines = (DATA / "sample.csv").read_text().splitlines()
    lines[5] += ",1,2,3"
    lines[9] = lines[9].replace(",0.", ",-0.", 1)
    path.write_text("\n".join(lines) + "\n")
    result = run("rates", "load", path, "--as-of", "2025-11-01", "--source", "vendor-2025-11", address=server.path)
    bad = [line for line in result.stderr.splitlines() if line.startswith(f"{path}:")]
    assert result.returncode == OK and len(bad) == 2 == len(result.stderr.splitlines())
    assert [line.split(":")[1] for line in bad] == ["6", "10"]
    assert "310 rows served, 2 bad" in result.stdout and "2 rows mended" in result.stdout
    served = int(result.stdout.split()[0])
    shown = json.loads(run("rates", "show", "--json", address=server.path).stdout)["table"]
    assert shown["records"] == served
    assert shown["sources"] == [{"name": "vendor-2025-11", "as_of": "2025-11-01", "rows": served, "age_days": 0,
                                 "stale": False, "refused": False,
                                 "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}]
    as_json = run("rates", "load", path, "--as-of", "2025-11-01", "--source", "v", "--dry-run", "--json",
                  address=server.path)
    reply = json.loads(as_json.stdout)
    assert (reply["rows"], reply["bad"], reply["mended"], reply["dry_run"]) == (served, 2, 2, True)
    assert [json.loads(line)["problem"]["line"] for line in as_json.stderr.splitlines()] == [6, 10]
    assert json.loads(run("rates", "show", "--json", address=server.path).stdout)["table"] == shown
    refused = run("rates", "load", path, "--as-of", "2025-11-01", "--source", "v", "--bad-rows", "0.5%",
                  address=server.path)
    assert refused.returncode == REFUSED and "2 of 312 rows are bad" in refused.stderr


def test_several_files_are_one_source_and_the_highest_rate_of_a_zip_stays(ctl, server, tmp_path):
    one = table(tmp_path / "wa.csv", "WA,98110,BAINBRIDGE,0.092,0.065,0,0.027,0,1", "WA,98101,SEATTLE,0.1,0.065,0,0.035,0,1")
    two = table(tmp_path / "or.csv", "OR,98110,BORDER,0.01,0,0,0.01,0,1")
    packed = tmp_path / "or.csv.gz"
    packed.write_bytes(gzip.compress(two.read_bytes()))
    result = run("rates", "load", one, packed, "--as-of", "2025-11-01", "--source", "states", address=server.path)
    assert result.returncode == OK and result.stderr.count("warning: 98110 lies in several places") == 1
    text = result.stdout
    assert text.startswith("2 rows served, 0 bad\n") and "1 second rows of a ZIP code dropped" in text
    assert "1 ZIP codes over several places with different rates" in text
    found = json.loads(ctl("rates", "lookup", "98110", "--json"))
    assert (found["match"], found["rates"]["combined"], found["state"]) == (
        "zip5", {"text": "0.092", "ppb": 92000000}, "WA")
    text = ctl("rates", "lookup", "98110-1234")
    assert "9.2 %" in text and "states of 2025-11-01" in text
    assert "Nothing is known of 00501" in ctl("rates", "lookup", "00501")


def test_a_file_that_is_refused_replaces_nothing(ctl, refused, tmp_path):
    before = ctl("rates", "show")
    good = table(tmp_path / "good.csv", "WA,98110,B,0.092,0.065,0,0.027,0,1")
    bad = tmp_path / "bad.csv"
    bad.write_text("these,are,no,rates\n1,2,3,4\n")
    for files in ((good, bad), (tmp_path / "missing.csv",), (tmp_path,)):
        text = refused("rates", "load", *files, "--as-of", "2025-11-01", "--source", "v")
        assert str(files[-1]) in text and "nothing was sent" in text
    assert "header.source" in refused("rates", "load", good, "--as-of", "2025-11-01", "--source", "a b")
    assert "expect_version" in refused("rates", "load", good, "--as-of", "2025-11-01", "--source", "v",
                                       "--expect-version", "999")
    assert ctl("rates", "show") == before


def test_more_rows_than_the_table_holds(refused, tmp_path):
    big = table(tmp_path / "big.csv", *(f"WA,{zip5},B,0.092,0.065,0,0.027,0,1" for zip5 in range(10000, 16000)))
    assert "segment.rate_records" in refused("rates", "load", big, "--as-of", "2025-11-01", "--source", "v")


# ---- flags ----

def test_export_as_json_lines(ctl):
    lines = [json.loads(line) for line in ctl("flags", "export").splitlines()]
    assert [one["sequence"] for one in lines] == [1, 2, 3, 4, 5]
    assert lines[0]["tax"] == {"amount": "6.71", "minor": 671} and lines[1]["tax"]["minor"] == -5
    assert lines[0]["request"] == {"ship_to": {"zip": "98110"}} and "request_json" not in lines[0]
    assert lines[0]["order"]["order_id"] == "100048213" and "order" not in lines[1]
    assert [json.loads(line)["sequence"] for line in ctl("flags", "export", "--after", "2", "--limit", "2").splitlines()
            ] == [3, 4]
    assert ctl("flags", "export", "--after", "5") == ""
    changes = [json.loads(line)["change"] for line in ctl("flags", "export", "--after-change", "0").splitlines()]
    assert len(changes) == 5 and changes == sorted(changes)
    assert [json.loads(line)["change"] for line in ctl("flags", "export", "--after-change", changes[2]).splitlines()
            ] == changes[3:]


def test_export_as_csv(ctl):
    rows = list(csv.DictReader(io.StringIO(ctl("flags", "export", "--format", "csv"))))
    assert [row["sequence"] for row in rows] == ["1", "2", "3", "4", "5"] and None not in rows[0]
    assert (rows[0]["tax"], rows[1]["tax"], rows[0]["combined_rate"]) == ("6.71", "-0.05", "0.092")
    assert rows[0]["quote_ref"] == "'=q,\"1\" ?"  # a spreadsheet would have run it
    assert rows[0]["stored_at"] == "2025-11-28T00:00:00.500Z" and rows[1]["placed_at"] == ""
    assert rows[0]["assumptions"] == "line 2: PC040100 at general rate; currency: USD"


def acknowledged(server):
    return json.loads(run("status", "--json", address=server.path).stdout)["store"]["acknowledged_sequence"]


def test_what_was_written_is_acknowledged_and_nothing_else(server, ctl, tmp_path):
    with open("/dev/full", "w") as full:
        result = run("flags", "export", "--ack", "nightly", address=server.path, stdout=full)
    assert result.returncode == REFUSED and "could not be written" in result.stderr and acknowledged(server) == 0
    with open(tmp_path / "flags.jsonl", "w") as file:
        assert run("flags", "export", "--limit", "3", "--ack", "nightly", address=server.path,
                   stdout=file).returncode == OK
    assert len((tmp_path / "flags.jsonl").read_text().splitlines()) == 3 and acknowledged(server) == 3
    assert ctl("flags", "export", "--after", "5", "--ack", "nightly") == ""
    result = run("flags", "export", "--ack", "broken", address=server.path)
    assert result.returncode == REFUSED and "disk I/O" in result.stderr and acknowledged(server) == 3


def test_follow_goes_on_until_it_is_stopped(server):
    environment = {**os.environ, "SPILLWAY_CONTROL": str(server.path)}
    process = subprocess.Popen([CTL, "flags", "export", "--follow", "yes"], env=environment, stdout=subprocess.PIPE,
                               text=True)
    assert [json.loads(process.stdout.readline())["sequence"] for _ in range(5)] == [1, 2, 3, 4, 5]
    time.sleep(1.5)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(WATCHDOG_S) == -signal.SIGTERM
    assert process.stdout.read() == ""
    process.stdout.close()


def test_find(ctl):
    text = ctl("flags", "find", "d-3")
    assert "sequence 3, confirmed" in text and "rate-limit-proactive (bucket-empty)" in text and "6.71 USD" in text
    assert "There is no flag of nothing" in ctl("flags", "find", "nothing")
    found = json.loads(ctl("flags", "find", "all", "--limit", "2", "--json"))
    assert [one["sequence"] for one in found["flags"]] == [5, 4] and found["truncated"] is True
    assert "There are more" in ctl("flags", "find", "all", "--limit", "2")


def test_version(ctl):
    assert ctl("version").startswith("spillwayctl ") and "spillwayctl" in json.loads(ctl("version", "--json"))


def test_the_reference_page_is_what_the_program_says():
    root = Path(__file__).resolve().parent.parent.parent
    page = subprocess.run([sys.executable, root / "sidecar" / "ctl" / "doc.py", CTL], text=True,
                          capture_output=True, check=True).stdout
    assert (root / "docs" / "spillwayctl.md").read_text() == page, "sidecar/ctl/doc.py writes it anew"
