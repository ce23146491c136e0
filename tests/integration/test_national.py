"""A rate table of the whole country, in the published form and with the published form's faults, loaded by one command.

The table is made from the committed sample: its regions, at every ZIP code of a range. Needs SPILLWAY_BIN.
"""
import gzip
import json
import random

import pytest

from harness import SAMPLE, TODAY

ROWS = 41_071
MENDED = 6  # names with an unquoted comma
DOWN = "http://127.0.0.1:1"


@pytest.fixture(scope="module")
def national(tmp_path_factory):
    """(file, {zip: (state, combined as text)}): as many rows as the published table, six with an unquoted comma."""
    header, *rows = SAMPLE.read_text().splitlines()
    good = [row.split(",") for row in rows if row.count(",") == 8]
    comma = next(row for row in rows if row.count(",") > 8).split(",")
    lines, known = [header], {}
    for i in range(ROWS - MENDED):
        state, _, region, code, *rates = good[i % len(good)]
        zip_code = f"{501 + 2 * i:05}"
        lines.append(",".join([state, zip_code, region, code, *rates]))
        known[zip_code] = state, rates[0]
    for i in range(MENDED):
        lines.insert(1000 + 5000 * i, ",".join([comma[0], f"{502 + 2 * i:05}", *comma[2:]]))
        known[f"{502 + 2 * i:05}"] = comma[0], comma[5]
    path = tmp_path_factory.mktemp("national") / "zip5.csv"
    path.write_text("\n".join(lines) + "\n")
    return path, known


def load(sidecar, path, *options, code=0):
    return sidecar.ctl("rates", "load", path, "--as-of", TODAY, "--source", "national-2026", *options, code=code)


def agrees(sidecar, known, zip_code):
    """Look-up, door and published row say the same."""
    state, combined = known[zip_code]
    ppb = round(float(combined) * 1e6) * 1000
    found = json.loads(sidecar.ctl("rates", "lookup", zip_code, "--json").stdout)
    assert (found["match"], found["state"], found["zip5"]) == ("zip5", state, zip_code)
    assert found["rates"]["combined"]["ppb"] == ppb and found["rates"]["source"] == "national-2026"
    answer = sidecar.quote(ship_to={"country": "US", "state": state, "zip": zip_code}, shipping={"amount": "0"},
                           lines=[{"id": "1", "amount": "100.00"}])
    assert answer.headers["Spillway-Rate-Ppb"] == str(ppb), answer
    assert answer.headers["Spillway-Tax-Minor"] == str((ppb // 1000 * 10000 + 500000) // 1000000)


@pytest.mark.parametrize("packed", [False, True])
def test_one_command_loads_the_country(place, backend, national, packed):
    path, known = national
    if packed:
        path = place.directory / "zip5.csv.gz"
        path.write_bytes(gzip.compress(national[0].read_bytes()))
    sidecar = place.sidecar(DOWN, config={"segment": {"rate_records": 65536}})
    result = load(sidecar, path)
    assert f"{ROWS} rows served, 0 bad" in result.stdout and f"{MENDED} rows mended" in result.stdout
    assert not result.stderr
    described = json.loads(sidecar.ctl("rates", "show", "--json").stdout)["table"]
    assert [(one["name"], one["as_of"], one["rows"]) for one in described["sources"]] == [
        ("national-2026", str(TODAY), ROWS)]
    assert ROWS < sidecar.metric("spillway_rate_records", what="used") <= 65536
    random.seed(1)
    for zip_code in [min(known), max(known), "00502", *random.sample(sorted(known), 25)]:
        agrees(sidecar, known, zip_code)


def test_nothing_is_served_of_a_table_that_is_not_taken(place, backend, national):
    path, _ = national
    sidecar = place.sidecar(DOWN, config={"segment": {"rate_records": 4096}})
    before = sidecar.ctl("rates", "show", "--json").stdout
    assert "segment.rate_records" in load(sidecar, path, code=1).stderr
    load(sidecar, place.directory / "none.csv", code=1)
    load(sidecar, path, "--expect-version", "4711", code=1)
    assert sidecar.ctl("rates", "show", "--json").stdout == before
    assert sidecar.quote().json["tax"] == "6.71"


def test_tables_take_turns(place, backend, national):
    path, known = national
    other = place.directory / "other.csv"
    lines = path.read_text().splitlines()
    doubled = [line.split(",") for line in lines if line.count(",") == 8][1:]
    for cells in doubled:
        cells[4] = "0.200000"
    other.write_text("\n".join([lines[0], *(",".join(cells) for cells in doubled)]) + "\n")
    sidecar = place.sidecar(DOWN, config={"segment": {"rate_records": 65536, "cells": 8192}})
    zip_code = max(known)
    answers = []
    for i in range(6):
        load(sidecar, other if i % 2 else path)
        expected = 200000000 if i % 2 else round(float(known[zip_code][1]) * 1e6) * 1000
        answer = sidecar.quote(ship_to={"country": "US", "state": known[zip_code][0], "zip": zip_code})
        answers.append((int(answer.headers["Spillway-Rate-Ppb"]), expected))
    assert all(got == expected for got, expected in answers), answers


def test_the_file_named_in_the_configuration(place, backend, national):
    path, known = national
    rates = [{"file": str(path), "as_of": str(TODAY), "source": "national-2026"}]
    sidecar = place.sidecar(DOWN, config={"segment": {"rate_records": 65536}, "fallback": {"rates": rates}})
    assert f"{ROWS} rows, 0 bad rows left out" in sidecar.log() and f"{MENDED} rows mended" in sidecar.log()
    for zip_code in random.sample(sorted(known), 5):
        agrees(sidecar, known, zip_code)
    # A table loaded by hand does not outlive a restart; the configuration's does.
    sidecar.ctl("rates", "load", SAMPLE, "--as-of", TODAY, "--source", "by-hand")
    assert sidecar.ctl("rates", "lookup", "98110", "--json").stdout.count("by-hand") == 1
    sidecar.kill()
    sidecar = place.sidecar()
    agrees(sidecar, known, random.choice(sorted(known)))
