"""The rate cache through a real sidecar: what live answers teach, what failed ones do not, and tables that change.

Needs SPILLWAY_BIN.
"""
import datetime
import json
import os

import pytest

from harness import SAMPLE, TODAY, until

HEAD = "State,ZipCode,TaxRegionName,TaxRegionCode,CombinedRate,StateRate,CountyRate,CityRate,SpecialRate\n"
NO_TABLE = {"fallback": {"rates": None, "on_no_rate": "block"}}
DEAD = {"status": 500}


def cart(amount="100.00", code=None, **more):
    line = {"id": "1", "amount": amount}
    if code:
        line["tax_code"] = code
    return {"lines": [line], "shipping": None, "customer": None, **more}


def table(path, *rows):
    path.write_text(HEAD + "".join(f"{state},{zip_code},A,X,{rate},{rate},0,0,0\n" for state, zip_code, rate in rows))
    return path


def test_failed_calls_teach_nothing_and_a_rate_is_learned(place, backend):
    """500, a timeout, an empty body, and then 7.25 %: only the last is remembered, and serves when the provider fails."""
    mock = place.mock("--rate", "0.0725")
    mock.script({"to_request": 1, "status": 500}, {"from_request": 2, "to_request": 2, "action": "stall"},
                {"from_request": 3, "to_request": 3, "status": 200, "body": {}})
    sidecar = place.sidecar(mock, account={"deadline": "500ms"}, config=NO_TABLE)
    for type_ in ("provider-error", "provider-timeout", "provider-error"):
        answer = sidecar.quote(**cart())
        assert (answer.status, answer.json["decision"], answer.json["reason"]) == (503, "none", "no-rate")
        assert answer.json["type"] == type_ and answer.json["tax"] is None
        assert sidecar.metric("spillway_rate_records", what="learned") == 0
    live = sidecar.quote(**cart())
    assert (live.json["decision"], live.json["tax"]) == ("live", "7.25")
    mock.script(DEAD)
    answer = sidecar.quote(**cart())
    assert (answer.json["decision"], answer.json["tax"]) == ("fallback", "7.25")
    told = answer.json["fallback"]
    assert (told["match"], told["source"], told["as_of"], told["age_days"]) == ("learned", "learned", str(TODAY), 0)
    assert told["assumed"] == [f"at 0.0725, learned {TODAY}"]
    flag = sidecar.flag(told["flag_id"])
    assert flag["match"] == "learned" and flag["rates"]["combined"]["text"] == "0.0725"
    assert flag.get("verified") is not False, flag
    assert sidecar.metric("spillway_rate_learned_total", what="answers") == 1


def test_a_true_zero_is_learned_and_served(place):
    mock = place.mock("--rate", "0")
    sidecar = place.sidecar(mock, config=NO_TABLE)
    assert sidecar.quote(**cart(), decision_id="z-1").json["tax"] == "0.00"
    mock.script(DEAD)
    answer = sidecar.quote(**cart())
    assert (answer.json["decision"], answer.json["tax"], answer.json["fallback"]["match"]) == (
        "fallback", "0.00", "learned")
    # A named customer's zero may be an exemption that the provider knows of: it is nobody else's.
    mock.script()
    elsewhere = {"ship_to": {"country": "US", "state": "CO", "zip": "80202", "city": "Denver", "line1": "1 Main St"}}
    assert sidecar.quote(**{**cart(**elsewhere), "customer": {"id": "c_9"}}).json["tax"] == "0.00"
    mock.script(DEAD)
    assert sidecar.quote(**cart(**elsewhere)).status == 503


def test_an_exempt_buyer_pays_nothing_and_teaches_nothing(place):
    """Buyer 7 is exempt, with the provider up and down; buyer 8, same address and cart, is not."""
    mock = place.mock("--rate", "0.08")
    sidecar = place.sidecar(mock, config=NO_TABLE)
    seven, eight = {"id": "7", "exemption": "resale"}, {"id": "8"}
    assert sidecar.quote(**{**cart("50.00"), "customer": eight}).json["tax"] == "4.00"
    learned = sidecar.metric("spillway_rate_learned_total", what="answers")
    up = sidecar.quote(**{**cart("50.00"), "customer": seven}).json
    assert up["decision"] == "live"
    assert sidecar.metric("spillway_rate_learned_total", what="answers") == learned
    mock.script(DEAD)
    down = sidecar.quote(**{**cart("50.00"), "customer": seven}).json
    assert (down["tax"], down["fallback"]["match"]) == ("0.00", "exempt")
    assert down["fallback"]["assumed"] == ["resale exemption taken as stated"]
    assert sidecar.quote(**{**cart("50.00"), "customer": eight}).json["tax"] == "4.00"


def test_a_learned_code_beside_the_table(place):
    """Rule `learned`: its own rate once known, the general one before, and after a restart still."""
    mock = place.mock("--rate", "0.05")
    sidecar = place.sidecar(mock, config={"fallback": {"tax_codes": {"20010": "learned"}}})
    mock.script(DEAD)
    before = sidecar.quote(**cart(code="20010")).json
    assert (before["tax"], before["fallback"]["assumed"]) == ("9.20", ["line 1: 20010 at general rate"])
    mock.script()
    until(lambda: sidecar.quote(**cart(code="20010")).json["decision"] == "live", "a live answer")
    found = json.loads(sidecar.ctl("rates", "lookup", "98110-1234", "--tax-code", "20010", "--account", "main",
                                   "--from-state", "TX", "--json").stdout)
    assert (found["match"], found["rates"]["combined"]["text"], found["own_rate"]) == ("learned", "0.05", True)
    sidecar.kill()
    sidecar = place.sidecar()
    mock.script(DEAD)
    after = sidecar.quote(**cart(code="20010")).json
    assert (after["tax"], after["fallback"]["match"]) == ("5.00", "learned")
    assert after["fallback"]["assumed"] == [f"line 1: 20010 at 0.05, learned {TODAY}"]
    flag = sidecar.flag(after["fallback"]["flag_id"])
    assert flag.get("verified") is not False, flag


def test_rows_are_put_in_and_looked_up_by_day_and_code(place):
    sidecar = place.sidecar("http://127.0.0.1:1")
    fresh = table(place.directory / "fresh.csv", ("WA", "98110", "0.1"), ("HI", "96813", "0.045"))
    text = sidecar.ctl("rates", "load", fresh, "--as-of", TODAY, "--source", "correction", "--upsert").stdout
    assert text.startswith("2 rows served")
    assert sidecar.quote(**cart()).json["tax"] == "10.00"
    assert sidecar.quote(**cart(ship_to={"country": "US", "state": "TX", "zip": "79703"})).json["tax"] == "8.25", \
        "what is not named stays"
    shown = json.loads(sidecar.ctl("rates", "show", "--json").stdout)["table"]
    assert (shown["upserts"], shown["replaced"], [one["name"] for one in shown["sources"]]) == (
        2, 1, ["sample", "correction"])
    assert "2 rows put in since the table was replaced" in sidecar.ctl("rates", "show").stdout
    # The Streamlined states' table has days: the look-up asks for one, and so does a quote's date.
    data = SAMPLE.parent.parent / "sst"
    sidecar.ctl("rates", "load", *data.glob("MN*.csv"), "--as-of", "2019-01-01", "--source", "sst-2019q1")
    found = json.loads(sidecar.ctl("rates", "lookup", "55104", "--date", "2019-03-31", "--json").stdout)
    assert (found["match"], found["rates"]["combined"]["text"], found["valid_to"]) == ("zip5", "0.07375", "2019-03-31")
    after = json.loads(sidecar.ctl("rates", "lookup", "55104", "--state", "MN", "--date", "2019-04-01", "--json").stdout)
    assert after["match"] == "state-average" and found["refused"]
    text = sidecar.ctl("rates", "lookup", "55104", "--date", "2019-03-31").stdout
    assert "2018-04-01 to 2019-03-31" in text and "TOO OLD" in text and "digest" in text


@pytest.fixture
def watched(place):
    directory = place.directory / "rates.d"
    directory.mkdir()
    return directory


def rate_of(sidecar, zip_code):
    found = json.loads(sidecar.ctl("rates", "lookup", zip_code, "--json").stdout)
    return found["rates"]["combined"]["text"] if found["match"] != "none" else None


def test_a_watched_directory(place, watched):
    """New files, changed ones, ones that are refused, and the way a mounted configuration map is swapped."""
    table(watched / f"vendor-{TODAY}.csv", ("WA", "98110", "0.1"))
    (watched / "README.txt").write_text("no table")
    sidecar = place.sidecar("http://127.0.0.1:1", config={"fallback": {"rates_dir": str(watched)}})
    assert rate_of(sidecar, "98110") == "0.1", "the directory's goes before the configuration's"
    assert rate_of(sidecar, "79703") == "0.0825"
    assert "README.txt is not taken: let its name end in the day" in sidecar.log()
    table(watched / f"vendor-{TODAY}.csv", ("WA", "98110", "0.11"), ("WA", "98101", "0.12"))
    until(lambda: rate_of(sidecar, "98101") == "0.12", "the changed table")
    assert rate_of(sidecar, "98110") == "0.11" and rate_of(sidecar, "79703") == "0.0825"
    # Refused whole: the table in force stays, and the log says which file and line.
    (watched / f"bad-{TODAY}.csv").write_text(HEAD + "WA,98110,A,X,none,0,0,0,0\n")
    sidecar.wait_log("The table in force stays")
    assert f"bad-{TODAY}.csv:2: 1 of 1 rows are bad" in sidecar.log() and rate_of(sidecar, "98110") == "0.11"
    (watched / f"bad-{TODAY}.csv").unlink()
    # As the kubelet does it: names are links into a directory behind a link, and that one is swapped.
    for number, rate in enumerate(("0.2", "0.21")):
        behind = watched / f"..2026_{number}"
        behind.mkdir()
        table(behind / "table", ("WA", "98003", rate))
        os.symlink(behind.name, watched / "..data.new")
        os.replace(watched / "..data.new", watched / "..data")
        if number == 0:
            os.symlink("..data/table", watched / f"mounted-{TODAY}.csv")
        until(lambda: rate_of(sidecar, "98003") == rate, f"table {number} behind the links")
    shown = json.loads(sidecar.ctl("rates", "show", "--json").stdout)["table"]
    assert [one["name"] for one in shown["sources"]] == ["sample", f"mounted-{TODAY}", f"vendor-{TODAY}"]


def test_a_named_file_is_read_again(place):
    """A single table, as a ConfigMap's key is one: its content changes under its name."""
    sidecar = place.sidecar("http://127.0.0.1:1")
    before = rate_of(sidecar, "98110")
    fresh = place.directory / "fresh.csv"
    table(fresh, ("WA", "98110", "0.13"))
    os.replace(fresh, place.rates)
    until(lambda: rate_of(sidecar, "98110") == "0.13", "the new table")
    assert before != "0.13" and "what fallback.rates names has changed" in sidecar.log()
    place.rates.write_text("no,table\n")
    sidecar.wait_log("The table in force stays")
    assert rate_of(sidecar, "98110") == "0.13"


def test_old_tables_of_a_directory_are_said_and_not_served(place, watched):
    old = TODAY - datetime.timedelta(days=200)
    table(watched / f"vendor-{old}.csv", ("WA", "98003", "0.1"))
    (watched / f"broken-{TODAY}.csv").write_text("no,table\n")
    sidecar = place.sidecar("http://127.0.0.1:1", config={"fallback": {"rates_dir": str(watched)}})
    assert f"vendor-{old} is 200 days old and will NOT be served" in sidecar.log()
    assert "it is left out" in sidecar.log() and f"broken-{TODAY}.csv:1: no column State" in sidecar.log()
    answer = sidecar.quote(**cart(ship_to={"country": "US", "state": "WA", "zip": "98003"}))
    assert (answer.status, answer.json["reason"]) == (503, "rates-too-old")
