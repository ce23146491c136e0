"""spillwayctl replay: the scripts of tests/data/replay, and what takes too many events to be written down.

Needs SPILLWAY_BIN, the directory of the programs.
"""
import json
import os
import subprocess

import pytest

from harness import TESTS
from replaying import (CTL, NS, Replay, account, acquire, allowed, configuration, nanoseconds, outcome, peek, run, script,
                       seconds)

SCRIPTS = sorted((TESTS / "data" / "replay").glob("*.jsonl"))


@pytest.mark.parametrize("path", SCRIPTS, ids=[p.stem for p in SCRIPTS])
def test_script(tmp_path, path):
    yaml, lines, expected = script(path)
    base = "    credentials: {api_key_env: NOBODY_NEEDS_THIS}\n"
    if "provider: " not in yaml:
        base += "    provider: taxcloud\n    connection: test\n"
    conf = configuration(tmp_path / "c.yaml", {"main": base + yaml})
    result = run(["--config", conf], "\n".join(lines))
    assert (result.returncode, result.stderr) == (0, "")
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(answers) == len(expected)
    for answer, wanted in zip(answers, expected):
        got = {field: answer.get(field) for field in wanted}
        assert got == wanted, f"{path.name}:{answer['line']}: {answer}"


# ---- many events ----

@pytest.mark.parametrize("limit,quiet_s,burst,hint_ns", [
    ("{rate: 20/s, burst: 100, pods: 1}", 12 * 3600, 100, 50_000_000),
    ("{rate: 20/s, burst: 100, pods: 1}", 400 * 86400, 100, 50_000_000),
    ("{rate: 7/min, burst: 250, pods: 1}", 3650 * 86400, 250, 8_571_428_572),
    ("{rate: 1/d, burst: 3, pods: 1}", 3650 * 86400, 3, 86_400 * NS),
    ("{rate: 10000000/s, burst: 40, pods: 1}", 3650 * 86400, 40, 100),
    ("{rate: 100/s, burst: 250, pods: 40}", 30 * 86400, 6, 400_000_000)])
def test_quiet_spell(tmp_path, limit, quiet_s, burst, hint_ns):
    """Full and no fuller after any quiet time; then every token at that instant, and the exact hint."""
    events = [acquire(0) for _ in range(burst)] + [peek(quiet_s)] + [acquire(quiet_s) for _ in range(burst + 2)]
    answers = Replay(tmp_path, limit)(events)
    assert answers[burst]["remaining"] == burst and answers[burst]["remaining_milli"] == burst * 1000
    verdicts = [a["verdict"] for a in answers[burst + 1:]]
    assert verdicts == ["allow"] * burst + ["deny"] * 2
    assert [a["wait_ns"] for a in answers[-2:]] == [hint_ns, hint_ns]
    assert [a["remaining"] for a in answers[burst + 1:-2]] == list(range(burst - 1, -1, -1))


@pytest.mark.parametrize("limit,burst,step_ns,polls,admitted", [
    ("{rate: 10/s, burst: 5, pods: 1}", 5, NS // 1000, 60_000, 600),
    ("{rate: 7/min, burst: 5, pods: 1}", 5, NS // 100, 60_000, 70),
    ("{rate: 170/s, burst: 5, pods: 1}", 5, 77_777, 60_000, 793),  # 4.66662 s x 170
    ("{rate: 40000/min, burst: 5, pods: 1}", 5, 99_991, 60_000, 3999),
    ("{rate: 10000000/s, burst: 5, pods: 1}", 5, 7, 60_000, 4200)])
def test_polling_loses_nothing(tmp_path, limit, burst, step_ns, polls, admitted):
    """How often one looks changes nothing of what is earned, not even the last fraction of a token."""
    events = [acquire(0, cost=burst)] + [acquire(seconds(i * step_ns)) for i in range(1, polls + 1)]
    assert allowed(Replay(tmp_path, limit)(events)) == 1 + admitted


def test_polling_one_a_day(tmp_path):
    """One a day, asked ten times a second for a day: none before, one at its end. SPW_REPLAY_ROUNDS asks that often,
    else it is once a second."""
    step_ns = NS // 10 if os.environ.get("SPW_REPLAY_ROUNDS") else NS
    polls = 86400 * NS // step_ns
    answers = Replay(tmp_path, "{rate: 1/d, burst: 1, pods: 1}")(
        [acquire(0)] + [acquire(seconds(i * step_ns)) for i in range(1, polls + 2)])
    passed = [a["at"] for a in answers if a["verdict"] == "allow"]
    assert passed == ["0.000000000", "86400.000000000"]


def test_rate_zero_thousand_times(tmp_path):
    for burst in (5, 0):
        answers = Replay(tmp_path, f"{{rate: 0/s, burst: {burst}, pods: 1}}")(
            [acquire(at) for at in (0, 315_576_000) for _ in range(1000)])
        assert [a["verdict"] for a in answers] == ["allow"] * burst + ["deny"] * (2000 - burst)
        assert {a["wait_ns"] for a in answers[burst:]} == {"never"}


def test_one_probe_for_all(tmp_path):
    """400 callers at the end of the cooldown: one asks, the others are told at once; its failure shuts for as long."""
    replay = Replay(tmp_path, "{rate: 10000/s, burst: 10000, pods: 1}",
                    breaker="{ratio_429: 50%, minimum: 20, window: 10s, cooldown: 5s..5s}")
    start = [e for _ in range(20) for e in (acquire(0), outcome(0, 503))]
    answers = replay(start + [acquire(5) for _ in range(400)] + [outcome("5.2", 503)] +
                     [acquire("10.199999999"), acquire("10.2")])
    assert [a["breaker"] for a in answers[39::40][:1]] == ["open"]
    crowd = answers[40:440]
    assert allowed(crowd) == 1
    assert {a["type"] for a in crowd if a["verdict"] == "deny"} == {"circuit-breaker-open"}
    assert [a["verdict"] for a in answers[441:]] == ["deny", "allow"] and answers[440]["breaker"] == "open"


def test_bad_input_is_not_failure(tmp_path):
    replay = Replay(tmp_path, "{rate: 10000/s, burst: 10000, pods: 1}",
                    breaker="{ratio_429: 50%, minimum: 20, window: 10s, cooldown: 5s..5s}")
    times = [seconds(i * 5 * NS // 210) for i in range(210)]
    statuses = [200 if i % 21 == 20 else (400, 422)[i % 2] for i in range(210)]
    events = [e for at, s in zip(times, statuses) for e in (acquire(at), outcome(at, s))]
    events += [e for _ in range(20) for e in (acquire(16), outcome(16, 503))]
    answers = replay(events)
    assert {a["breaker"] for a in answers[:420]} == {"closed"}
    assert [a["verdict"] for a in answers[1:420:2]] == ["live" if s == 200 else "rejected" for s in statuses]
    assert [a["breaker"] for a in answers[420:][1::2]] == ["closed"] * 19 + ["open"]


@pytest.mark.parametrize("kind,wide,narrow", [
    ("bucket", "rate: 100/min, burst: 100", "rate: 5/min, burst: 5"),
    ("window", "rate: 100/min, kind: window", "rate: 5/min, kind: window"),
    ("leaky", "rate: 100/min, burst: 100", "rate: 5/min, kind: leaky")])
def test_refused_call_drains_no_wider_limit(tmp_path, kind, wide, narrow):
    """Store 99 asks eight times and gets five; the others get all that is left of the account's hundred."""
    stores = ["store-99", "store-1", "store-2"]
    replay = Replay(tmp_path, f"{{{wide}, pods: 1}}",
                    limiters=f"[{{name: narrow, {narrow}, integrations: [store-99]}}]",
                    integrations=f"{{{', '.join(s + ': checkout' for s in stores)}}}")
    answers = replay([acquire(0, integration="store-99") for _ in range(8)] +
                     [acquire(0, integration=stores[1 + i % 2]) for i in range(100)])
    passed = 1 if kind == "leaky" else 5
    assert [a["verdict"] for a in answers[:8]] == ["allow"] * passed + ["deny"] * (8 - passed)
    assert [a["verdict"] for a in answers[8:]] == ["allow"] * (100 - passed) + ["deny"] * passed


@pytest.mark.parametrize("permits", [1, 8, 256])
def test_permits_come_back(tmp_path, permits):
    """Those who waited in vain take nothing with them: after every round all permits are there again."""
    rounds = 1000 if permits == 8 else 40
    events = []
    for r in range(rounds):
        events += [acquire(r, id=f"{r}-{i}") for i in range(permits)]
        events += [acquire(r, max_wait="50ms", id=f"late-{r}-{i}") for i in range(permits)]
        events += [{"at": f"{r}.1", "op": "release", "id": f"{r}-{i}"} for i in range(permits)]
    answers = Replay(tmp_path, "{rate: 10000000/s, burst: 100000, pods: 1}", concurrency=permits)(events)
    for r in range(rounds):
        mine = answers[r * 3 * permits:(r + 1) * 3 * permits]
        assert [a["verdict"] for a in mine] == ["allow"] * permits + ["deny"] * permits + ["released"] * permits
        assert {a["cause"] for a in mine[permits:2 * permits]} == {"concurrency"} and mine[-1]["open"] == 0


@pytest.mark.parametrize("zone", ["America/Los_Angeles", "Asia/Jerusalem", "UTC"])
def test_dates_know_no_zone(tmp_path, zone):
    answers = Replay(tmp_path)([acquire(1782448100), outcome(
        1782448100, 429, headers={"Retry-After": "Fri, 26 Jun 2026 04:30:00 GMT"})], env={"TZ": zone})
    assert answers[1]["gate_until"] == "1782448200.000000000"


def test_epoch_is_the_wall_clock_of_zero(tmp_path):
    events = [acquire(0), outcome(0, 429, headers={"Retry-After": "Fri, 26 Jun 2026 04:30:00 GMT"})]
    assert Replay(tmp_path)(events, "--epoch", "1782448100")[1]["gate_until"] == "100.000000000"


def test_any_number_of_accounts(tmp_path):
    """More than a segment holds: each with its own bucket, breaker and gate."""
    names = [f"shop-{i}" for i in range(300)]
    replay = Replay(tmp_path, accounts={n: account(f"{{rate: {i + 1}/s, burst: {i + 1}, pods: 1}}")
                                        for i, n in enumerate(names)})
    events = [acquire(0, account=n, cost=i + 1) for i, n in enumerate(names)]
    events += [acquire(0, account=n) for n in names]
    events += [outcome(0, 429, account="shop-7", headers={"Retry-After": "9"})]
    events += [peek(1, account=n) for n in names]
    answers = replay(events)
    assert {a["verdict"] for a in answers[:300]} == {"allow"}
    assert [a["wait_ns"] for a in answers[300:600]] == [-(-NS // (i + 1)) for i in range(300)]
    assert [a["gate_until"] for a in answers[601:]] == ["9.000000000" if n == "shop-7" else None for n in names]
    assert [a["remaining"] for a in answers[601:]] == list(range(1, 301))


# ---- the program around it ----

def test_needs_nothing_but_its_input(tmp_path):
    """No sidecar, no directory to write to, no secret; the same answer every time, also read one line at a time."""
    conf = configuration(tmp_path / "c.yaml", {"main": account("{rate: 3/s, burst: 2, pods: 1}")})
    events = tmp_path / "e.jsonl"
    events.write_text("".join(json.dumps(acquire(seconds(i * 123_456_789))) + "\n" for i in range(50)))
    before = set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()
    first = run(["--config", conf, events], "", cwd="/proc/self")
    assert first.returncode == 0 and first.stdout.count("\n") == 50
    assert run(["--config", conf], events.read_text(), cwd="/proc/self").stdout == first.stdout
    if os.path.isdir("/dev/shm"):
        assert not [n for n in set(os.listdir("/dev/shm")) - before if "replay" in n]


def test_answers_while_it_is_asked(tmp_path):
    """An answer comes before the next question: a script may decide by it what to ask."""
    conf = configuration(tmp_path / "c.yaml", {"main": account("{rate: 7/min, burst: 1, pods: 1}")})
    with subprocess.Popen([CTL, "replay", "--config", conf], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as program:
        def ask(event):
            program.stdin.write(json.dumps(event) + "\n")
            program.stdin.flush()
            return json.loads(program.stdout.readline())
        at = 0
        assert ask(acquire(0))["verdict"] == "allow"
        for _ in range(20):
            told = ask(acquire(seconds(at)))
            assert told["verdict"] == "deny"
            at += told["wait_ns"]
            assert ask(acquire(seconds(at - 1)))["wait_ns"] == 1
            assert ask(acquire(seconds(at)))["verdict"] == "allow"
        program.stdin.close()
        assert program.wait() == 0


BAD = [
    ('{"op":"acquire","cost":-1}', "cost: write a whole number"),
    ('{"op":"acquire","cost":"1.5"}', "cost: write a whole number"),
    ('{"op":"acquire","cost":1.5}', "cost: write a whole number"),
    ('{"op":"acquire","at":"-1"}', "at: -1: write seconds from 0"),
    ('{"op":"acquire","at":"1.0000000001"}', "at: 1.0000000001: write seconds"),
    ('{"op":"acquire","at":"1e3"}', "at: 1e3: write seconds"),
    ('{"op":"acquire","at":1784030400.123456789}', "write it as text"),
    ('{"op":"acquire","account":"other"}', 'there is no account "other"'),
    ('{"op":"acquire","integration":"other"}', 'has no integration "other"'),
    ('{"op":"acquire","max-wait":"1s"}', "max-wait: there is no such field"),
    ('{"op":"acquire","max_wait":"soon"}', "max_wait: soon: write a time"),
    ('{"op":"take"}', "op: take is not known: acquire, peek"),
    ('{"account":"main"}', "op: is missing"),
    ('{"op":"outcome"}', "status: is missing"),
    ('{"op":"outcome","status":42}', "status: write an HTTP status"),
    ('{"op":"outcome","status":429,"headers":{"A":"b\\r\\nC: d"}}', "headers: A: write its value"),
    ('{"op":"outcome","status":429,"headers":["nothing"]}', 'headers: entry 0: write "Name: value"'),
    ('{"op":"set","rate":"fast"}', 'rate: "fast" is no rate'),
    ('{"op":"set","rate":"10/s","burst":0}', "burst: 0 is less than one token"),
    ('{"op":"set","breaker":{"window":"1h"}}', "breaker.window: is out of range"),
    ('{"op":"set","breaker":{"windows":"1s"}}', "breaker.windows: is not known"),
    ('{"op":"set","forced":"ajar"}', "forced: ajar is not known"),
    ('{"op":"advance"}', "at: is missing"),
    ('{"op":"acquire","op":"peek"}', "duplicate"),
    ('[]', "no object"),
    ('{"op":"acquire"', "write one JSON object a line"),
    ('nothing', "write one JSON object a line"),
    ('{"at":"400000000","op":"peek"}', "3750 days after the first event"),
    ('{"op":"acquire","at":"99999999999999999999"}', "at: 99999999999999999999: write seconds"),
    ('{"op":"acquire","cost":99999999999999999999}', "too big integer"),
    ('{"op":"acquire","id":"\\ud800"}', "invalid Unicode"),
    ('{"op":"acquire"} {"op":"acquire"}', "end of file expected"),
    ('\0{"op":"acquire"}', "write one JSON object a line"),
    ('{"op":"set","concurrency":257}', "concurrency: 257: write 0 (not limited) to 256"),
    ('{"op":"set","limiter":"other","rate":"1/s"}', 'has no limiter "other"'),
    ('{"op":"set","everywhere":true,"kill":true,"rate":"1/s"}', "everywhere: is for kill and observe alone"),
    ('{"_":"' + "x" * (1 << 20) + '","op":"acquire"}', "is longer than 1048576 bytes"),
]


@pytest.mark.parametrize("line,told", BAD, ids=[str(i) for i in range(len(BAD))])
def test_bad_line(tmp_path, line, told):
    """The place, the field and the remedy; by default nothing after it is done, with --keep-going all of it is."""
    conf = configuration(tmp_path / "c.yaml", {"main": account("{rate: 10/s, burst: 10, pods: 1}")})
    events = tmp_path / "e.jsonl"
    events.write_text('{"op":"acquire"}\n# a comment\n\n' + line + '\n{"op":"acquire"}\n')
    stopped = run(["--config", conf, events], "")
    assert stopped.returncode == 1 and stopped.stdout.count("\n") == 1
    assert f"{events}:4: " in stopped.stderr and told in stopped.stderr
    went_on = run(["--config", conf, "--keep-going", events], "")
    answers = [json.loads(a) for a in went_on.stdout.splitlines()]
    assert went_on.returncode == 1 and "1 of 3 lines" in went_on.stderr
    assert [a["line"] for a in answers] == [1, 4, 5]
    assert told in answers[1]["error"]["message"] and f"{events}:4: " in answers[1]["error"]["message"]
    assert answers[2]["remaining"] == 8  # the bad line took nothing


@pytest.mark.parametrize("first", [True, False])
def test_a_refused_set_leaves_the_clock_alone(tmp_path, first):
    """Nor does it begin the segments, which are made at the first event's time."""
    conf = configuration(tmp_path / "c.yaml", {"main": account("{rate: 10/s, burst: 1, pods: 1}")})
    bad = {"at": "50", "wall": 1784030400, "op": "set", "limiter": "other", "rate": "1/s"}
    events = [bad, acquire(0), peek("0.05")] if first else [acquire(0), bad, {"op": "peek"}, peek("0.05")]
    result = run(["--config", conf, "--keep-going"], "".join(json.dumps(e) + "\n" for e in events))
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    assert "error" in answers[0 if first else 1]
    assert [a.get("at") for a in answers[-2:]] == ["0.000000000", "0.050000000"]
    assert (answers[-1]["verdict"], answers[-1]["wait_ns"]) == ("deny", 50_000_000)


def test_forms_of_a_file(tmp_path):
    """What an editor or another system makes of line ends; from a file or a pipe, the same."""
    conf = configuration(tmp_path / "c.yaml", {"main": account("{rate: 10/s, burst: 10, pods: 1}")})
    one, path = b'{"op":"acquire"}', tmp_path / "e.jsonl"
    longest = b'{"_":"' + b"x" * ((1 << 20) - 24) + b'","op":"acquire"}'
    for data, count in ((b"", 0), (b"\n \n\t\r\n", 0), (one, 1), (one + b"\r", 1), (one + b"\r\n" + one + b"\r\n", 2),
                        (b"\xef\xbb\xbf" + one + b"\n", 1), (b"# none\n\n" + one + b"\n#", 1), (longest + b"\n" + one, 2)):
        path.write_bytes(data)
        told = [subprocess.run([CTL, "replay", "--config", conf, *words], input=data, capture_output=True, timeout=300)
                for words in ([], ["-"], [path])]
        assert [(t.returncode, t.stderr, t.stdout.count(b"\n")) for t in told] == [(0, b"", count)] * 3
        assert told[0].stdout == told[1].stdout == told[2].stdout
    path.write_bytes(one + b'\n{"op":"acquire","id":"\xff"}\n')
    told = subprocess.run([CTL, "replay", "--config", conf, path], capture_output=True, timeout=300)
    assert told.returncode == 1 and b"e.jsonl:2: " in told.stderr and b"unable to decode byte 0xff" in told.stderr


def test_command_line(tmp_path):
    conf = configuration(tmp_path / "c.yaml", {"main": account("{rate: 10/s, burst: 10, pods: 1}")})
    assert run([], "").returncode == 2
    assert run(["--config", tmp_path / "none.yaml"], "").returncode == 1
    assert run(["--config", conf, tmp_path / "none.jsonl"], "").returncode == 1
    assert run(["--config", conf, "--epoch", "now"], "").returncode == 2
    with open("/dev/full", "w") as full:
        result = subprocess.run([CTL, "replay", "--config", conf], input='{"op":"peek"}\n', stdout=full,
                                stderr=subprocess.PIPE, text=True)
    assert result.returncode == 1 and "could not be written" in result.stderr


def test_open_calls_are_bounded(tmp_path):
    """Calls that nobody ends are forgotten when their permits have run out, not kept for ever."""
    answers = Replay(tmp_path, "{rate: 1000/s, burst: 1000, pods: 1}")(
        [acquire(seconds(i * 1_000_000)) for i in range(80_000)])
    assert allowed(answers) == 80_000
    assert answers[-1]["open"] == 65_536


def test_summary(tmp_path):
    conf = configuration(tmp_path / "c.yaml", {"main": account("{rate: 10/s, burst: 10, pods: 1}"),
                                               "quiet": account("{rate: 10/s, burst: 10, pods: 1}")})
    events = [acquire(0, account="main") for _ in range(14)] + [outcome("0.2", 503, account="main", latency="200ms")]
    events += [outcome("0.3", 429, account="main", latency="300ms")] + [acquire("0.4", account="main")]
    text = "".join(json.dumps(e) + "\n" for e in events)
    lines = run(["--config", conf, "--summary", "--json"], text).stdout.splitlines()
    assert len(lines) == 1
    told = json.loads(lines[0])
    assert (told["account"], told["acquires"], told["allowed"]) == ("main", 15, 10)
    assert told["refused"] == {"bucket-empty": 4, "gate-shut": 1}
    assert told["fallbacks"] == {"rate-limit-proactive": 5, "rate-limit-429": 1, "provider-error": 1}
    assert told["fallback_ppm"] == 7 * 1_000_000 // 15
    assert (told["peak_asked"], told["peak_allowed"], told["peak_open"]) == (15, 10, 10)
    assert (told["gate_closings"], told["lowest_remaining_milli"], told["longest_latency_ns"]) == (1, 0, 300_000_000)
    table = run(["--config", conf, "--summary"], text).stdout
    assert "46.66%" in table and "refused: bucket-empty" in table and "fallback: rate-limit-429" in table


# ---- access logs ----

def convert(text, *words, stderr=""):
    result = run(["convert", "--account", "main", *words], text)
    assert (result.returncode, result.stderr) == (0, stderr)
    return [json.loads(line) for line in result.stdout.splitlines()]


COMBINED = r'''10.0.0.1 - - [27/Nov/2026:12:00:00 +0000] "POST /checkout HTTP/1.1" 200 512 "-" "curl"
10.0.0.1 - bob [27/Nov/2026:13:00:00 +0100] "POST /checkout?q=\"x\" HTTP/1.1" 429 512
10.0.0.1 - - [27/Nov/2026:12:00:00 +0000] "GET / HTTP/1.1" 200 1
10.0.0.1 - - [27/Nov/2026:07:00:01 -0500] "POST /checkout HTTP/1.1" 499 0
'''


def test_combined_log():
    at = "1795780800.000000000"
    assert convert(COMBINED, "--format", "combined", "--match", "POST /checkout", "--integration", "web") == [
        {"at": at, "op": "acquire", "account": "main", "integration": "web", "id": "1"},
        {"at": at, "op": "outcome", "account": "main", "id": "1", "status": 200},
        {"at": at, "op": "acquire", "account": "main", "integration": "web", "id": "2"},
        {"at": at, "op": "outcome", "account": "main", "id": "2", "status": 429},
        {"at": "1795780801.000000000", "op": "acquire", "account": "main", "integration": "web", "id": "4"},
        {"at": "1795780801.000000000", "op": "release", "account": "main", "id": "4"}]
    spread = convert(COMBINED, "--format", "combined", "--no-outcomes", "--spread")
    assert [e["at"][-12:] for e in spread] == ["00.000000000", "00.333333333", "00.666666666", "01.000000000"]


def test_json_log():
    log = "\n".join(json.dumps(line) for line in [
        {"t": "2026-11-27T12:00:00.25Z", "answer": {"status": 200, "took_ms": 143}},
        {"t": 1795780800.3, "answer": {"status": "503", "took_ms": "5"}},
        {"t": 1795780800350, "answer": {"took_ms": 1}},
        {"t": "2026-11-27T13:00:01+01:00", "answer": {"status": 0, "took_ms": 1800}}])
    events = convert(log, "--format", "json", "--time", "t", "--status", "answer.status", "--latency",
                     "answer.took_ms")
    assert [(e["at"][8:], e["op"], e["id"]) for e in events] == [
        ("00.250000000", "acquire", "1"), ("00.300000000", "acquire", "2"), ("00.305000000", "outcome", "2"),
        ("00.350000000", "acquire", "3"), ("00.393000000", "outcome", "1"), ("01.000000000", "acquire", "4"),
        ("02.800000000", "outcome", "4")]
    assert events[4]["latency"] == "0.143000000" and events[6]["status"] == 0


def test_csv_log():
    log = 'when,"the ""code""",took_us\n2026-11-27 12:00:00,200,1500\n"2026-11-27T12:00:01Z",-,\n'
    assert convert(log, "--format", "csv", "--time", "when", "--status", 'the "code"', "--latency", "took_us") == [
        {"at": "1795780800.000000000", "op": "acquire", "account": "main", "id": "2"},
        {"at": "1795780800.001500000", "op": "outcome", "account": "main", "id": "2", "status": 200,
         "latency": "0.001500000"},
        {"at": "1795780801.000000000", "op": "acquire", "account": "main", "id": "3"}]


def test_log_with_faults():
    """What cannot be read is left out and told; a stamp that goes back is taken as of the moment before it."""
    log = ('{"time":"2026-11-27T12:00:05Z"}\nnonsense\n{"time":"yesterday"}\n{"no":1}\n{"time":"2026-11-27T12:00:04Z"}\n'
           '{"time":"2026-02-30T12:00:00Z"}\n')
    events = convert(log, "--format", "json", stderr=(
        "spillwayctl: 1 stamps lie before the line before them and were taken as of its moment\n"
        "spillwayctl: 4 of 6 lines could not be read and were left out; the first: standard input:2: no JSON object: "
        "one a line is expected\n"))
    assert [e["at"] for e in events] == ["1795780805.000000000"] * 2
    for words, code in ((["--format", "xml"], 2), (["--format", "json", "--match", "("], 1), (["--format", "csv"], 1)):
        assert run(["convert", "--account", "main", *words], "a,b\n1,2\n").returncode == code
    assert run(["convert", "--format", "json"], "").returncode == 2
    assert run(["convert", "--account", "main", "--format", "json"], "nonsense\n").returncode == 1


def test_log_through_replay(tmp_path):
    """The two together: what would these limits have done to that log?"""
    log = "".join(json.dumps({"time": 1795780800 + i / 100, "status": 503 if 300 <= i < 600 else 200,
                              "request_time": 0.05}) + "\n" for i in range(1000))
    events = run(["convert", "--account", "main", "--format", "json"], log).stdout
    conf = configuration(tmp_path / "c.yaml", {"main": account("{rate: 50/s, burst: 100, pods: 1}")})
    told = json.loads(run(["--config", conf, "--summary", "--json"], events).stdout)
    assert told["acquires"] == 1000 and told["breaker_openings"] >= 1
    assert told["refused"].keys() >= {"bucket-empty", "breaker-open"}
    assert told["not_open"] == told["acquires"] - told["allowed"]  # the answers of calls that were not made


# ---- the documentation's examples ----

def example(name):
    text = (TESTS.parent / "docs" / "replay.md").read_text()
    return text.split(f"<!-- example: {name} -->\n```", 1)[1].split("\n", 1)[1].split("```", 1)[0]


def test_examples_of_the_documentation(tmp_path):
    conf = tmp_path / "spillway.yaml"
    conf.write_text(example("config"))
    assert run(["--config", conf], example("events")).stdout == example("answers")
    assert run(["--config", conf, "--summary"], example("events")).stdout == example("summary")
    assert run(["convert", "--format", "combined", "--account", "main"], example("log")).stdout == example("log events")


# ---- how an event may be written ----

@pytest.mark.parametrize("words,same", [
    ({"max_wait": "300ms"}, {"max_wait": 300_000_000}), ({"max_wait": "300ms"}, {"max_wait": "0.3"}),
    ({"max_wait": "300ms"}, {"max_wait": 0.3}), ({"max_wait": "300ms"}, {"max_wait": "300000us"}),
    ({"max_wait": "300ms"}, {"max_wait": "300000000ns"}), ({"max_wait": "300ms"}, {"max_wait_ms": 300}),
    ({"max_wait": "300ms"}, {"max_wait_ns": 300_000_000}), ({"cost": 3}, {"cost": "3"}), ({"cost": 3}, {"cost": 3.0})])
def test_acquire_in_other_words(tmp_path, words, same):
    replay = Replay(tmp_path, "{rate: 10/s, burst: 3, pods: 1}")
    events = [[acquire(0), acquire("0.05", cost=2), acquire("0.1", **w), acquire("0.1", **w)] for w in (words, same)]
    assert replay(events[0]) == replay(events[1])


@pytest.mark.parametrize("words,same", [
    ({"headers": {"Retry-After": "7"}}, {"headers": [{"name": "Retry-After", "value": "7"}]}),
    ({"headers": {"Retry-After": "7"}}, {"headers": [["Retry-After", 7]]}),
    ({"headers": {"Retry-After": "7"}}, {"headers": "Retry-After: 7\n"}),
    ({"status": 429}, {"status": "429"}), ({"timeout": True}, {"status": None}), ({"timeout": True}, {"status": "timeout"}),
    ({"latency": "143ms"}, {"latency_ms": 143})])
def test_outcome_in_other_words(tmp_path, words, same):
    answers = [Replay(tmp_path)([acquire(0), {"at": "1", "op": "outcome", **({} if "timeout" in w else {"status": 429}), **w},
                                 peek(1)]) for w in (words, same)]
    assert answers[0] == answers[1]
    assert answers[0][1]["verdict"] == "fallback"


@pytest.mark.parametrize("words,same", [
    ({"rate": "3/s"}, {"rate": 3}), ({"rate": "0/s"}, {"rate": 0}), ({"rate": "0/s"}, {"rate": "0"}),
    ({"rate": "3/s"}, {"limit": {"rate": "3/s"}}), ({"rate": "3/s"}, {"limit": "3/s"})])
def test_set_in_other_words(tmp_path, words, same):
    answers = [Replay(tmp_path)([acquire(0, cost=10), {"at": "0", "op": "set", **w}, acquire(0)]) for w in (words, same)]
    assert answers[0] == answers[1]
    assert answers[0][2]["verdict"] == "deny"


def test_a_number_is_the_decimal_it_was_written_as(tmp_path):
    told = ["7", "7.5", "0.000000001", "12.123456789", "1784030400.123456", "1784030400.000001", "1784030400.999999"]
    replay = Replay(tmp_path)
    assert [replay([f'{{"at":{at},"op":"peek"}}'])[0]["at"] for at in told] == [seconds(nanoseconds(at)) for at in told]


def test_every_answer_has_a_wait(tmp_path):
    """wait_ns is a number or "never", of whatever event."""
    answers = Replay(tmp_path)([acquire(0), outcome(0), {"op": "advance", "by": "1s"}, {"op": "set", "rate": "0/s"},
                                acquire(1, cost=11), {"op": "release"}, peek(1)])
    assert [a["wait_ns"] for a in answers] == [0, 0, 0, 0, "never", 0, 0]
