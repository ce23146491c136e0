"""/metrics of a real sidecar: valid for the official checker, the same series whatever passes, numbers that add up; the
alerts and the dashboard made of them, in a real Prometheus."""
import collections
import http.client
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
import urllib.parse
from pathlib import Path

import pytest
import yaml

from harness import BIN, WATCHDOG_S, UnixConnection, exchange, free_port, parse_metrics, quote_body, until

ROOT = Path(__file__).resolve().parent.parent.parent
RULES = ROOT / "helm/spillway/files/rules.yaml"
DASHBOARD = ROOT / "helm/spillway/files/dashboard.json"
sys.path.insert(0, str(ROOT / "sidecar/http"))
import metrics_doc  # noqa: E402

CALLERS = int(os.environ.get("SPW_METRIC_CALLERS", "3000"))  # the soak: 100000
DESTINATIONS = CALLERS // 10


def table():
    """{name: labels} as the table in the source has them."""
    return {name: tuple(sorted(label for label in labels.split(",") if label))
            for name, _, _, labels, _ in metrics_doc.ROW.findall(metrics_doc.TABLE.read_text())}


def promtool(*words, text=None):
    if not shutil.which("promtool"):
        pytest.skip("promtool is not installed (package prometheus)")
    return subprocess.run(["promtool", *map(str, words)], input=text, text=True, capture_output=True,
                          timeout=WATCHDOG_S)


def assert_bound(samples, accounts, limiters=0):
    """As many series as docs/metrics.md says, and not many less."""
    page = " ".join((ROOT / "docs/metrics.md").read_text().split())
    of = [int(n) for n in re.search(r"at most (\d+) of a sidecar, (\d+) of each account, (\d+) of each limiter", page).groups()]
    sources = sum(name == "spillway_rate_age_seconds" for name, _ in samples)
    bound = of[0] + of[1] * accounts + of[2] * limiters + sources
    assert bound - 20 < len(samples) <= bound


def test_every_family_of_the_table_is_there_and_no_other(place):
    mock = place.mock()
    mock.script({"headers": {"X-RateLimit-Limit": "100", "X-RateLimit-Remaining": "90", "X-RateLimit-Reset": "1"}})
    sidecar = place.sidecar(mock, {"limiters": [{"name": "calc", "rate": "50/s", "burst": 50, "endpoints": ["calculate"]}]},
                            {"reconcile": {"within": "60m"}})
    assert sidecar.quote().json["decision"] == "live"
    text = sidecar.admin("/metrics").text
    samples, types = parse_metrics(text)
    shown = {}
    for name, labels in samples:
        if name not in types:
            name = re.sub("_(bucket|sum|count)$", "", name)
        shown[name] = tuple(sorted(label for label, _ in labels if label != "le"))
    # Those of a rate refresh need an account whose provider publishes rates: test_refresh.py.
    assert shown == {name: labels for name, labels in table().items() if not name.startswith("spillway_rate_refresh")}
    assert_bound(samples, accounts=1, limiters=1)
    checked = promtool("check", "metrics", text=text)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_callers_and_destinations_leave_the_series_alone(place):
    """Every quote has its own customer, ids and order, every tenth its own destination, as many as there are."""
    mock = place.mock()
    sidecar = place.sidecar(mock, {"limit": {"rate": "100000/s", "burst": 100000}})
    sidecar.quote()
    before = sidecar.metrics()

    def rss():
        return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{sidecar.pid}/status").read_text())[1])
    connection = UnixConnection(place.pub / "quote.sock")
    numbers = random.Random(275)
    placed = collections.Counter()
    for i in range(CALLERS):
        to = {"state": "WA", "zip": f"{98000 + numbers.randrange(700)}-{1000 + i % DESTINATIONS % 9000}",
              "city": f"Town {i % DESTINATIONS}", "line1": f"{i} \"Main\" \\ St"}
        body = quote_body(customer={"id": f"c-{i}"}, decision_id=f"d-{i}", quote_ref=f"q-{i}", ship_to=to)
        # Half are served from the cache: its flag and its order are rows, not series.
        headers = {"Spillway-Order-Id": f"o-{i}"}
        connection.request("POST", "/spillway/v1/quote", json.dumps(body).encode(), headers)
        answer = connection.getresponse()
        decision = json.loads(answer.read())["decision"]
        assert answer.status in (200, 503), f"{answer.status}"
        if answer.getheader("Spillway-Order") == "placed":
            placed[decision] += 1
        if i == CALLERS // 2:
            half_kb = rss()  # what is remembered for a while is full by now
            mock.script({"status": 500})
    connection.close()
    assert placed["live"] > 0 < placed["fallback"], placed
    until(lambda: sidecar.metric("spillway_orders", state="placed") == placed.total(), f"the orders: {placed}")
    text = sidecar.admin("/metrics").text
    after = parse_metrics(text)[0]
    assert set(after) == set(before)
    assert_bound(after, accounts=1)
    assert not re.search(r'="[^"]*(\b[cdqo]-\d|Town|98\d\d\d)', text)
    if CALLERS >= 100000:
        assert rss() - half_kb < 1024, "fifty thousand more callers are in no memory"


def test_orders_count_by_account_decision_and_type(place):
    mock, other = place.mock(), place.mock()
    place.config["accounts"]["second"] = place.account(other.url)
    sidecar = place.sidecar(mock)

    def placed(account, decision="live", kind="none"):
        return sidecar.metric("spillway_orders_placed_total", account=account, decision=decision, type=kind)
    live = [sidecar.quote(account=account).json for account in ("main", "main", "second")]
    mock.script({"status": 500})
    fallback = sidecar.quote().json
    assert [quote["decision"] for quote in live] == ["live"] * 3 and fallback["decision"] == "fallback"
    # Nobody says an account: each belongs to its quote's. The last quote is of another sidecar, or of before the start.
    for i, quote in enumerate([*live, fallback]):
        assert sidecar.order(quote["quote_id"], f"o-{i}", quote["tax"]).status == 202
    assert sidecar.order("sq_nobody-remembers", "o-9", "1.00").status == 202
    until(lambda: placed("") == 1, "the last order")
    assert (placed("main"), placed("second")) == (2, 1)
    assert placed("main", "fallback", "provider-error") == 1
    assert placed("second", "fallback", "provider-error") == 0
    # Told again, and cancelled: it was placed once.
    assert sidecar.order(live[0]["quote_id"], "o-0", live[0]["tax"]).status == 202
    assert sidecar.post("/spillway/v1/orders/o-0/cancel").status == 202
    until(lambda: sidecar.metric("spillway_orders", state="cancelled") == 1, "the cancellation")
    assert placed("main") == 2
    assert sidecar.metric("spillway_fallback_matches_total", account="main", match="zip5") == 1


def test_what_waits_to_be_reconciled_has_an_age(place):
    mock = place.mock()
    mock.script({"status": 500})
    sidecar = place.sidecar(mock)
    assert sidecar.metric("spillway_oldest_unreconciled_seconds") == 0
    quote = sidecar.quote().json
    assert sidecar.order(quote["quote_id"], "o-1", quote["tax"], placed_at="2026-01-02T03:04:05Z").status == 202
    until(lambda: sidecar.metric("spillway_oldest_unreconciled_seconds") > 86400, "the oldest order's age")
    assert sidecar.metric("spillway_flags_reconciliation", state="pending") == 1
    assert sidecar.metric("spillway_rate_age_warn_seconds") == 45 * 86400


def test_flags_in_one_pod_only_have_an_age_that_an_export_ends(place):
    mock = place.mock()
    mock.script({"status": 500})
    sidecar = place.sidecar(mock)

    def age():
        return sidecar.metric("spillway_oldest_only_in_pod_seconds")
    assert age() == 0
    sidecar.quote()
    until(age, "the flag's age")
    sidecar.quote()
    until(lambda: sidecar.metric("spillway_flags_only_in_pod") == 2, "the second flag")
    [(oldest_ms,)] = place.sql("SELECT min(changed_unix_ms) FROM flags")
    before_s, shown_s, after_s = time.time(), age(), time.time()
    assert before_s - 0.01 <= oldest_ms / 1000 + shown_s <= after_s + 0.01, "it is the first one's"
    sidecar.ctl("flags", "export", "--out", place.directory / "flags.jsonl", "--ack", "nightly")
    until(lambda: age() == 0, "the export")


def test_a_breaker_that_is_overruled_shows_what_calls_obey(place):
    mock = place.mock()
    sidecar = place.sidecar(mock, {"breaker": {"cooldown": "1h"}})

    def shown():
        switches = [name for name in ("open", "closed", "disabled", "observe")
                    if sidecar.metric("spillway_breaker_switch", account="main", switch=name)]
        return sidecar.breaker(), switches, sidecar.metric("spillway_breaker_open_seconds", account="main")
    assert shown() == ("closed", [], 0)
    sidecar.ctl("breaker", "open", "main")
    assert shown() == ("open", ["open"], float("inf"))
    assert sidecar.quote().json["fallback"]["cause"] == "breaker-forced"
    sidecar.ctl("breaker", "auto", "main")
    sidecar.ctl("breaker", "trip", "main")
    state, switches, left_s = shown()
    assert (state, switches) == ("open", []) and 0 < left_s <= 3600
    sidecar.ctl("breaker", "observe", "main")
    assert shown() == ("closed", ["observe"], 0)


# ---- alerts and dashboard ----

def test_each_alert_fires_and_does_not_fire():
    checked = promtool("check", "rules", "--lint-fatal", RULES)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    tested = promtool("test", "rules", ROOT / "tests/data/rules/rules_test.yaml")
    assert tested.returncode == 0, tested.stdout + tested.stderr
    names = set(re.findall(r"- alert: (\w+)", RULES.read_text()))
    assert names == set(re.findall(r"alertname: (\w+)", (ROOT / "tests/data/rules/rules_test.yaml").read_text()))


def test_each_alert_has_its_runbook_and_a_severity():
    rules = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    headings = set(re.findall(r"^### (\w+)$", (ROOT / "docs/operations.md").read_text(), re.M))
    for rule in rules:
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert rule["annotations"]["runbook"] == f"docs/operations.md#{rule['alert'].lower()}"
    assert {rule["alert"] for rule in rules} <= headings


def test_the_commands_of_the_runbooks_exist():
    """Each spillwayctl line of docs/operations.md: the command is known, and so is each of its options."""
    lines = re.findall(r"^spillwayctl (.*?)(?:\s+#.*)?$", (ROOT / "docs/operations.md").read_text(), re.M)
    assert len(lines) > 20
    for line in lines:
        words = re.sub(r"--address \S+ ", "", line).split()
        command = words[:2] if words[0] in ("limits", "breaker", "rates", "flags", "headers", "reconcile", "exceptions") else words[:1]
        told = subprocess.run([str(BIN / "spillwayctl"), *command, "--help"], text=True, capture_output=True,
                              timeout=WATCHDOG_S)
        assert told.returncode == 0, line
        for option in (word for word in words if word.startswith("--")):
            assert f" {option} " in told.stdout, f"{line}: no {option}"


def test_rules_and_dashboard_name_only_metrics_of_the_table():
    known = set(table())
    for path in (RULES, DASHBOARD):
        for name in set(re.findall(r"\bspillway_[a-z0-9_]+\b", path.read_text())):
            assert name in known or re.sub("_(bucket|sum|count)$", "", name) in known, f"{path.name}: {name}"


class Prometheus:
    """The real one, scraping every second what is given."""

    def __init__(self, place, port):
        self.port = free_port()
        config = {"global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": [str(RULES)],
                  "scrape_configs": [{"job_name": "shop", "static_configs": [
                      {"targets": [f"127.0.0.1:{port}"], "labels": {"namespace": "shop", "pod": "checkout-0"}}]}]}
        path = place.directory / "prometheus.yml"
        path.write_text(json.dumps(config))
        self.log_path = place.directory / "prometheus.log"
        with open(self.log_path, "w") as log:
            self.process = subprocess.Popen(
                ["prometheus", f"--config.file={path}", f"--web.listen-address=127.0.0.1:{self.port}",
                 f"--storage.tsdb.path={place.directory}/tsdb"], stdout=log, stderr=log)
        place.programs.append(self.process)
        self.process.expected_exit = 0
        until(self.is_up, "the scrape")

    def ask(self, path, **query):
        answer = exchange(http.client.HTTPConnection("127.0.0.1", self.port, timeout=WATCHDOG_S), "GET",
                          f"/api/v1/{path}?{urllib.parse.urlencode(query)}")
        assert answer.status == 200, answer
        return answer.json["data"]

    def query(self, text):
        return self.ask("query", query=text)["result"]

    def is_up(self):
        assert self.process.poll() is None, self.log_path.read_text()
        try:
            ready = exchange(http.client.HTTPConnection("127.0.0.1", self.port, timeout=WATCHDOG_S), "GET", "/-/ready")
            return ready.status == 200 and any(float(r["value"][1]) == 1 for r in self.query('up{job="shop"}'))
        except OSError:
            return False


def dashboard_queries():
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", []):
            text = target["expr"].replace("$__rate_interval", "30s")
            yield panel["title"], text.replace("$namespace", ".*").replace("$account", ".*")


def test_a_real_prometheus_answers_the_dashboard_and_fires_the_alert(place):
    if not shutil.which("prometheus"):
        pytest.skip("prometheus is not installed (package prometheus)")
    mock = place.mock()
    sidecar = place.sidecar(mock, config={"reconcile": {"within": "60m"}})
    prometheus = Prometheus(place, place.admin_port)
    alerts = 'ALERTS{alertname="FallbackShareHigh", alertstate="firing"}'

    def order(count, tag):
        for i in range(count):
            body = quote_body(customer={"id": f"{tag}-{i}"})
            answer = sidecar.post("/spillway/v1/quote", body, headers={"Spillway-Order-Id": f"{tag}-{i}"})
            assert answer.headers["Spillway-Order"] == "placed"
    order(100, "live")
    until(lambda: prometheus.query('sum(spillway_orders_placed_total{decision="live"}) == 100'), "the live orders")
    assert prometheus.query(alerts) == []
    mock.script({"status": 500})
    order(60, "cached")
    [alert] = until(lambda: prometheus.query(alerts), "the alert")
    assert (alert["metric"]["account"], alert["metric"]["severity"]) == ("main", "page")
    assert "pod" not in alert["metric"]
    queries = list(dashboard_queries())
    assert len(queries) > 40
    for title, text in queries:
        assert prometheus.query(text), f"{title}: nothing answers {text}"
    # A rule whose series do not exist never fires.
    for selector in set(re.findall(r"spillway_\w+(?:\{[^}]*\})?", "".join(
            rule["expr"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]))):
        assert prometheus.query(selector), f"nothing answers {selector}"
    problems = [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"] if rule["health"] != "ok"]
    assert problems == []
