"""spillwayctl headers explain, by itself: no sidecar, no configuration. The samples are those of the unit test."""
import decimal
import json
import pathlib
import subprocess

import pytest

import harness

VECTORS = json.loads((harness.TESTS / "data/headers/vectors.json").read_text(), parse_float=decimal.Decimal)
KEYS = ["limit", "remaining", "reset_at", "window_s", "retry_at"]
N = 1700000000


def explain(lines, *options, end="\r\n"):
    text = "".join(line + end for line in lines)
    done = subprocess.run([str(harness.BIN / "spillwayctl"), "headers", "explain", *options], input=text.encode(),
                          capture_output=True, timeout=30, env={})
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def understood(lines, *options, end="\r\n"):
    code, out, err = explain(lines, "--json", *options, end=end)
    assert code == 0, err
    return json.loads(out, parse_float=decimal.Decimal)


def test_vectors():
    # The unit test has all of them. Here those seen in the wild, and every third of their siblings: a process each.
    for i, v in enumerate(VECTORS):
        if i % 3 and not v["name"][0].isdigit() and not v["name"].startswith("HDR"):
            continue
        end = ["\r\n", "\n"][i % 2]  # the unit test has both for each
        options = ["--status", str(v["status"]), "--now", str(v.get("now", N))]
        if "reset_unit" in v:
            options += ["--reset-unit", v["reset_unit"]]
        seen = understood(v["headers"], *options, end=end)
        assert list(seen) == KEYS + ["rules"], v["name"]
        for key in KEYS:
            wanted = None if v[key] is None else decimal.Decimal(v[key])
            assert seen[key] == wanted, (v["name"], key, seen)
            assert (seen["rules"][key] is None) == (seen[key] is None), v["name"]


def test_whole_numbers_are_printed_whole():
    _, out, _ = explain(["Retry-After: 2.0"], "--now", str(N), "--json")
    assert '"retry_at":1700000002,' in out
    _, out, _ = explain(["X-RateLimit-Reset: 0.85"], "--now", str(N), "--json")
    assert '"reset_at":1700000000.85,' in out


def test_status_line_tells_the_status():
    assert understood(["HTTP/1.1 429 Too Many Requests", "X-RateLimit-Reset: 5"], "--now", str(N))["retry_at"] == N + 5
    assert understood(["HTTP/1.1 200 OK", "X-RateLimit-Reset: 5"], "--now", str(N))["retry_at"] is None
    assert understood(["HTTP/1.1 200 OK", "X-RateLimit-Reset: 5"], "--status", "429", "--now",
                      str(N))["retry_at"] == N + 5


@pytest.mark.parametrize("end", ["\r\n", "\n"])
def test_the_last_answer_counts_and_its_body_does_not(end):
    lines = ["HTTP/1.1 302 Found", "X-RateLimit-Remaining: 9", "", "HTTP/1.1 429 Too Many Requests", "Retry-After: 3", "",
             "X-RateLimit-Remaining: 8"]
    seen = understood(lines, "--now", str(N), end=end)
    assert (seen["remaining"], seen["retry_at"]) == (None, N + 3)
    assert understood(["X-RateLimit-Remaining: 9", "", "Retry-After: 3"], "--now", str(N), end=end)["retry_at"] == N + 3


def test_a_recorded_answer_is_read_as_of_its_date():
    lines = ["Date: Mon, 05 Aug 2019 09:27:00 GMT", "RateLimit-Reset: 5", "RateLimit-Remaining: 0"]
    assert understood(lines, "--now", str(N))["reset_at"] == 1564997225
    _, out, _ = explain(lines)
    assert "read as of its own Date" in out


def test_text_names_rules_and_judges_refusals():
    code, out, _ = explain(["Retry-After: 2", "X-RateLimit-Limit: 30", "X-RateLimit-Used: 12"], "--now", str(N))
    assert code == 0
    assert "R2" in out and "R9" in out and "18" in out and "unknown" in out
    _, out, _ = explain(["Date: Tue, 14 Nov 2023 22:13:20 GMT"], "--provider", "stripe", "--status", "429")
    assert "object in use" in out
    _, out, _ = explain(["Stripe-Rate-Limited-Reason: endpoint-concurrency"], "--provider", "stripe", "--status", "429")
    assert "too many at once" in out


@pytest.mark.parametrize("options, word", [
    (["--provider", "nobody"], "avatax, taxjar, stripe, taxcloud, http"),
    (["--status", "99"], "--status"),
    (["--status", "x"], "--status"),
    (["--now", "yesterday"], "--now"),
    (["--reset-unit", "weeks"], "--reset-unit"),
    (["one-word-too-many"], "too many"),
])
def test_wrong_options(options, word):
    code, out, err = explain(["A: b"], *options)
    assert (code, out) == (2, "") and word in err


def test_odd_input():
    assert understood([])["limit"] is None
    done = subprocess.run([str(harness.BIN / "spillwayctl"), "headers", "explain", "--json"],
                          input=bytes(range(256)) * 20, capture_output=True, timeout=30)
    assert done.returncode == 0 and json.loads(done.stdout)["limit"] is None
    done = subprocess.run([str(harness.BIN / "spillwayctl"), "headers", "explain"], input=b"A: b\n" * 100000,
                          capture_output=True, timeout=30)
    assert done.returncode == 1 and b"one answer" in done.stderr
