#!/usr/bin/env python3
"""Writes docs/metrics.md from sidecar/http/metric_table.h, the one source of the metrics.

    metrics_doc.py            prints the page
    metrics_doc.py --check    compares it with docs/metrics.md; exits 1 and says so when they differ
"""
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
TABLE = HERE / "metric_table.h"
PAGE = HERE.parent.parent / "docs/metrics.md"
ROW = re.compile(r'SPW_METRIC\(\w+, "(\w+)", (\w+), "([^"]*)", "([^"]*)", \\\n    "([^"]*)"\)')

HEAD = """# Metrics

<!-- Written by sidecar/http/metrics_doc.py from sidecar/http/metric_table.h. Change that file, then run
     sidecar/http/metrics_doc.py > docs/metrics.md -->

`GET /metrics` on `listen.admin` (default 0.0.0.0:9090), Prometheus' text format:
`curl -s 127.0.0.1:9090/metrics | promtool check metrics`.

Label values come from the configuration (account, limiter, source) and from closed lists, never from traffic: no customer,
address, order or key is in them, and the number of series is fixed once the configuration is
(`ctest -R integration_metrics`): at most 75 of a sidecar, 138 of each account, 3 of each limiter in its list, 3 of each account of
`fallback.refresh`, one of each rate source. Counters begin again at 0 when what they count begins again; where that is, the last column
says: **segment** is shared memory over all processes of the pod and outlives the sidecar, **doors** are quotes and calls
through this sidecar since its start, **ledger** is the flag store's file, **sidecar** this process.

Of several pods with one account, add up: `sum by (account) (...)`. Alerts that are made of these are in
`helm/spillway/files/rules.yaml`, what to do about them in [operations.md](operations.md).

| metric | type | unit | labels | what it says | from |
|---|---|---|---|---|---|
"""


def page():
    text = TABLE.read_text()
    rows = ROW.findall(text)
    assert len(rows) == text.count("\nSPW_METRIC("), "a row of the table is not written like the others"
    lines = []
    for name, kind, unit, labels, help_text in rows:
        said, source = re.fullmatch(r"(.*) \[(\w+)\]", help_text).groups()
        shown = ", ".join(f"`{label}`" for label in labels.split(",") if label) or "–"
        lines.append(f"| `{name}` | {kind.lower()} | {unit} | {shown} | {said} | {source} |\n")
    return HEAD + "".join(lines)


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        if not PAGE.exists() or PAGE.read_text() != page():
            sys.exit("docs/metrics.md is not what sidecar/http/metric_table.h says: run "
                     "sidecar/http/metrics_doc.py > docs/metrics.md")
    else:
        sys.stdout.write(page())
