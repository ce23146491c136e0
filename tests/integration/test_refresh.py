"""Rates that providers publish, fetched on a schedule and on demand: AvaTax's table of ZIP codes, TaxJar's summary.

Needs SPILLWAY_BIN.
"""
import json

import pytest

from harness import TODAY, until

CART = {"lines": [{"id": "1", "amount": "100.00"}], "shipping": None, "customer": None}
HEAD = "State,ZipCode,TaxRegionName,TaxRegionCode,CombinedRate,StateRate,CountyRate,CityRate,SpecialRate\n"
ELSEWHERE = {"ship_to": {"country": "US", "state": "TX", "zip": "79703", "city": "Midland", "line1": "1 Main St"}}


def rates_of(place, count):
    path = place.directory / f"published-{count}.csv"
    zips = ["98110", "79703", *(str(10001 + n) for n in range(count - 2))]
    states = ["WA", "TX", *("NY" for _ in range(count - 2))]
    path.write_text(HEAD + "".join(f"{state},{code},A,X,0.061,0.061,0,0,0\n" for state, code in zip(states, zips)))
    return path


def start(place, provider, *options, refresh=None, config=None, **account):
    mock = place.mock(*options)
    changes = {"provider": provider, "connection": None, **account}
    if provider == "avatax":
        (place.directory / "user").write_text("2000012345\n")
        changes |= {"company": "ACME", "credentials": {"api_key_file": None,
                                                       "username_file": str(place.directory / "user"),
                                                       "password_file": str(place.directory / "api-key")}}
    fallback = {"rates": None, "on_no_rate": "state_average", "refresh": [{"account": "main", **(refresh or {})}]}
    return mock, place.sidecar(mock, account=changes, config={"fallback": fallback, **(config or {})})


def shown(sidecar):
    return json.loads(sidecar.ctl("rates", "show", "--json").stdout)


def refresh(sidecar):
    return shown(sidecar)["refreshes"][0]


def number(value):
    return int(value)  # 64-bit numbers are texts in JSON


def served_from(sidecar, source):
    until(lambda: source in [one["name"] for one in shown(sidecar)["table"].get("sources", [])], f"{source} in force")


def test_avatax_table_is_fetched_kept_and_served(place):
    mock, sidecar = start(place, "avatax", "--rates", rates_of(place, 40))
    until(lambda: number(refresh(sidecar)["successes"]) == 1, "the first fetch")
    source = f"main-{TODAY}"
    served_from(sidecar, source)
    told = refresh(sidecar)
    assert (told["account"], told["rows"], told["running"]) == ("main", 40, False) and "error" not in told
    assert number(told["next_unix_ms"]) - number(told["succeeded_unix_ms"]) >= 86_400_000
    assert sidecar.metric("spillway_rate_refreshes_total", account="main", outcome="success") == 1
    assert 0 <= sidecar.metric("spillway_rate_refresh_age_seconds", account="main") < 3600
    mock.script({"status": 500})
    answer = sidecar.quote(**CART).json
    assert (answer["decision"], answer["tax"], answer["fallback"]["source"]) == ("fallback", "6.10", source)
    # A restart has it before anything is fetched, and does not fetch what is of today.
    sidecar.stop()
    sidecar = place.sidecar()
    assert sidecar.quote(**CART).json["fallback"]["source"] == source
    told = refresh(sidecar)
    assert number(told["successes"]) == 0 and number(told["succeeded_unix_ms"]) > 0


def test_taxjar_summary_serves_state_averages(place):
    mock, sidecar = start(place, "taxjar", "--rate", "0.07")
    until(lambda: number(refresh(sidecar)["successes"]) == 1, "the first fetch")
    served_from(sidecar, f"main-{TODAY}")
    assert [path.name for path in (place.directory / "flags.db.rates").iterdir()] == [f"main-{TODAY}.json"]
    mock.script({"status": 500})
    answer = sidecar.quote(**CART).json
    assert (answer["decision"], answer["fallback"]["match"]) == ("fallback", "state-average"), answer


@pytest.mark.parametrize("step,why", [
    ({"status": 503}, "status 503"),
    ({"status": 401}, "status 401"),
    ({"status": 200, "body": {}}, ""),
    ({"status": 200, "body": "ZIP_CODE,STATE_ABBREV\nthis is no table\n"}, ""),
    ({"action": "reset"}, "broke off"),
])
def test_a_failed_fetch_changes_nothing_and_is_told(place, step, why):
    mock, sidecar = start(place, "avatax", "--rates", rates_of(place, 40))
    until(lambda: number(refresh(sidecar)["successes"]) == 1, "the first fetch")
    served_from(sidecar, f"main-{TODAY}")
    before = (place.directory / "flags.db.rates" / f"main-{TODAY}.csv").read_bytes()
    version = shown(sidecar)["table"]["version"]
    mock.script(step)
    assert "is being fetched" in sidecar.ctl("rates", "refresh", "--account", "main").stdout
    until(lambda: number(refresh(sidecar)["failures"]) == 1, "the failure")
    told = refresh(sidecar)
    assert why in told["error"] and number(told["next_unix_ms"]) > number(told["tried_unix_ms"])
    assert shown(sidecar)["table"]["version"] == version
    assert [path.read_bytes() for path in (place.directory / "flags.db.rates").iterdir()] == [before]
    assert sidecar.metric("spillway_rate_refreshes_total", account="main", outcome="failure") == 1
    assert "THE LAST TRY FAILED" in sidecar.ctl("rates", "show").stdout
    mock.script()
    sidecar.ctl("rates", "refresh")
    until(lambda: number(refresh(sidecar)["successes"]) == 2, "the next one")
    assert "error" not in refresh(sidecar)


def test_a_table_that_shrank_is_taken_by_force_alone(place):
    mock, sidecar = start(place, "avatax", "--rates", rates_of(place, 40))
    until(lambda: number(refresh(sidecar)["successes"]) == 1, "the first fetch")
    columns = ("ZIP_CODE,STATE_ABBREV,COUNTY_NAME,CITY_NAME,STATE_SALES_TAX,STATE_USE_TAX,COUNTY_SALES_TAX,"
               "COUNTY_USE_TAX,CITY_SALES_TAX,CITY_USE_TAX,TOTAL_SALES_TAX,TOTAL_USE_TAX,TAX_SHIPPING_ALONE,"
               "TAX_SHIPPING_AND_HANDLING_TOGETHER\n")
    row = "98110,WA,MOCK,MOCK,0.050000,0.050000,0,0,0,0,0.050000,0.050000,N,N\n"
    mock.script({"status": 200, "body": columns + row})
    sidecar.ctl("rates", "refresh")
    until(lambda: number(refresh(sidecar)["failures"]) == 1, "the refusal")
    assert "1 rows, the one before 40" in refresh(sidecar)["error"]
    sidecar.ctl("rates", "refresh", "--force")
    until(lambda: refresh(sidecar).get("rows") == 1, "the forced one")
    mock.script({"status": 500})
    until(lambda: sidecar.quote(**CART).json["tax"] == "5.00", "the short table in force")


def test_a_fetch_takes_a_token(place):
    """The first takes the only one; the second asks nobody, and what is kept stays."""
    mock, sidecar = start(place, "avatax", "--rates", rates_of(place, 40), limit={"rate": "1/h", "burst": 1})
    until(lambda: number(refresh(sidecar)["successes"]) == 1, "the first fetch")
    sidecar.ctl("rates", "refresh")
    until(lambda: number(refresh(sidecar)["failures"]) == 1, "the refusal")
    told = refresh(sidecar)
    assert "no room now" in told["error"] and number(told["next_unix_ms"]) - number(told["tried_unix_ms"]) > 300_000
    assert mock.stats()["requests_total"] == 1


def test_what_is_refreshed_is_checked_at_the_start(place):
    for refreshes, words in (([{"account": "nobody"}], "no account of this configuration"),
                             ([{"account": "main"}], "publishes no rate table"),
                             ([{"every": "24h"}], "is missing")):
        place.config["accounts"]["main"] = place.account("http://127.0.0.1:1")
        place.write_config({"fallback": {"refresh": refreshes}})
        sidecar = place.sidecar(ready=False)
        sidecar.expected_exit = 1
        sidecar.wait_exit()
        assert "fallback.refresh[0].account" in sidecar.log() and words in sidecar.log()


def test_nothing_to_refresh(place):
    sidecar = place.sidecar("http://127.0.0.1:1")
    assert "names no account" in sidecar.ctl("rates", "refresh", code=1).stderr
