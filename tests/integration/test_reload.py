"""The configuration read again under running processes: all of it or nothing, and what it does not change stays.

Needs SPILLWAY_BIN. SPW_SEED (default 1) begins the chance of the SPW_MALFORMED_FILES (default 200) malformed files.
"""
import json
import os
import random
import re
import shutil
import signal
import subprocess

import pytest

from harness import BIN, KEY, WATCHDOG_S, free_port, read_lines, until

MALFORMED = int(os.environ.get("SPW_MALFORMED_FILES", "200"))
SEED = int(os.environ.get("SPW_SEED", "1"))
DOWN = "http://127.0.0.1:1"


def counts(sidecar):
    metrics = sidecar.metrics()
    return (metrics["spillway_config_reloads_total", ()], metrics["spillway_config_reload_failures_total", ()])


def reload(sidecar, taken=True):
    """SIGHUP, and wait until it was taken, or refused."""
    before = counts(sidecar)
    sidecar.signal(signal.SIGHUP)
    until(lambda: counts(sidecar) != before, "a reload")
    assert counts(sidecar) == (before[0] + taken, before[1] + (not taken)), sidecar.log()[-2000:]
    assert sidecar.metric("spillway_config_last_reload_successful") == taken


def edit(place, **account):
    place.write_config({"accounts": {"main": account}})


def limit(sidecar, account="main"):
    reply = json.loads(sidecar.ctl("limits", "get", account, "--json").stdout)["limit"]
    return reply["rate"]["text"], int(reply["burst"]), int(reply["version"])


def acquire(place, count):
    """So many decisions by a process of their own; how many were allowed."""
    one = place.load("acquire", f"a{len(place.programs)}", "--count", count, "--pause-us", "0")
    assert one.wait(WATCHDOG_S) == 0
    return sum(line["may_call"] for line in read_lines(one))


def test_what_the_file_changes_is_in_force(place, backend):
    sidecar = place.sidecar(DOWN, account={"limit": {"rate": "70/s", "burst": 100}})
    edit(place, limit={"rate": "50/s"}, breaker={"consecutive_429": 9}, integrations={"refunds": "batch"},
         deadline="900ms")
    place.write_config({"fallback": {"on_no_rate": "state_average"}, "log": {"level": "debug"}, "drain": "3s"})
    reload(sidecar)
    assert limit(sidecar)[:2] == ("50/s", 100)
    breaker = json.loads(sidecar.ctl("breaker", "get", "main", "--json").stdout)["breaker"]
    assert "9" in json.dumps(breaker), breaker
    assert sidecar.quote(integration="refunds").json["decision"] == "fallback"
    for line in ("accounts.main.limit.rate: 70/s -> 50/s", "accounts.main.integrations.refunds is new: batch",
                 "accounts.main.deadline: 5s -> 900ms", "fallback.on_no_rate: block -> state_average",
                 "log.level: info -> debug", "drain: 10s -> 3s", "7 changes are in force"):
        assert line in sidecar.log(), line


def test_an_account_is_added_with_its_door(place, backend):
    mock = place.mock()
    sidecar = place.sidecar(mock)
    port = free_port()
    place.write_config({"accounts": {"second": place.account(mock.url, limit={"rate": "9/s", "burst": 9})}})
    place.config["accounts"]["second"]["listen"] = f"127.0.0.1:{port}"
    place.write_config()
    reload(sidecar)
    assert limit(sidecar, "second")[:2] == ("9/s", 9)
    # A bucket that is made under way begins empty: what is not known to be unspent is not given out.
    until(lambda: sidecar.quote(account="second").json["decision"] == "live", "a live answer of the new account")
    place.pass_port = port
    assert sidecar.sdk("GET", "/nothing/of/the/kind").status == 403


def test_a_new_account_that_cannot_listen_changes_nothing(place, backend):
    sidecar = place.sidecar(DOWN)
    # The quote door has this port: the check of the file knows, so take one of another program.
    other = place.mock()
    port = int(other.url.rsplit(":", 1)[1])
    place.write_config({"accounts": {"second": place.account(DOWN, listen=f"127.0.0.1:{port}")}})
    edit(place, limit={"rate": "5/s"})
    reload(sidecar, taken=False)
    assert limit(sidecar)[0] == "1000/s"
    assert "accounts.second.listen" in sidecar.log()
    assert sidecar.quote(account="second").status == 404


def test_a_reload_with_the_same_numbers_keeps_bucket_breaker_and_window(place, backend):
    """CFG-H1: ten reloads, five of them with an edit elsewhere, give out nothing (10/s would be 6/min here: slower
    machines may take longer)."""
    sidecar = place.sidecar(DOWN, account={"limit": {"rate": "6/min", "burst": 100}, "concurrency": 4})
    assert acquire(place, 150) in (100, 101)
    version = limit(sidecar)[2]
    before = sidecar.metrics()
    for i in range(10):
        if i % 2:
            edit(place, deadline=f"{1000 + i}ms")
        reload(sidecar)
        assert sidecar.metric("spillway_tokens", account="main") < 100 * 6 / 60
    assert limit(sidecar)[2] == version, "nothing of the limit was touched"
    after = sidecar.metrics()
    for key in before:
        if key[0] in ("spillway_breaker_state", "spillway_healed_words_total"):
            assert before[key] == after[key]
    allowed = "spillway_admissions_total", (("account", "main"), ("outcome", "allow"))
    assert after[allowed] == before[allowed]


def test_an_open_breaker_stays_open(place, backend):
    mock = place.mock()
    sidecar = place.sidecar(mock, account={"breaker": {"cooldown": "1h"}, "retry": {"first": "10ms"}})
    sidecar.ctl("breaker", "open", "main")
    for deadline in ("1s", "1s", "2s"):
        edit(place, deadline=deadline)
        reload(sidecar)
        assert sidecar.quote().json["fallback"]["type"] == "circuit-breaker-open"


def test_what_was_set_at_run_time_stays_until_the_file_changes_it(place, backend):
    sidecar = place.sidecar(DOWN, account={"limit": {"rate": "70/s", "burst": 100}})
    sidecar.ctl("limits", "set", "main", "--rate", "7/min", "--burst", "5")
    edit(place, deadline="1s")
    reload(sidecar)
    assert limit(sidecar)[:2] == ("7/min", 5), "an edit elsewhere is no reason to undo what somebody set at 2 a.m."
    edit(place, limit={"rate": "80/s"})
    reload(sidecar)
    assert limit(sidecar)[:2] == ("80/s", 100)


@pytest.mark.parametrize("change, words", [
    ({"segment": {"cells": 1024}}, ("segment.cells", '"512" to "1024"', "needs a restart")),
    ({"store": {"file": "/nowhere/flags.db"}}, ("store.file", "needs a restart")),
    ({"listen": {"quote": None}}, ("listen.quote", "needs a restart")),
    ({"loop": {"backend": "epoll"}, "listen": {"control": None}}, ("needs a restart",)),
    ({"accounts": {"main": {"url": "https://elsewhere.example", "allow_plain_http": None}}},
     ("accounts.main", "needs a restart")),
    ({"accounts": {"main": {"integrations": {"night": None}}}}, ("accounts.main.integrations.night", "take one away")),
    ({"accounts": {"main": {"limiters": [{"name": "x", "rate": "1/s"}]}}}, ("accounts.main.limiters", "restart")),
    ({"accounts": {"main": {"limit": {"rate": "fast"}}}}, ("accounts.main.limit.rate", "spillway.yaml:")),
    ({"accounts": {"main": {"credentials": {"api_key_file": "/nowhere/key"}}}}, ("api_key_file", "No such file")),
    ({"fallback": {"rates": [{"file": "/nowhere.csv", "as_of": "2026-01-01", "source": "x"}]}}, ("/nowhere.csv",)),
    ({"colour": "red"}, ("colour", "is not known")),
])
def test_what_cannot_be_taken_is_refused_whole(place, change, words):
    sidecar = place.sidecar(DOWN)
    edit(place, limit={"rate": "5/s"})  # good in itself
    place.write_config(change)
    reload(sidecar, taken=False)
    for word in (*words, "Nothing was changed"):
        assert word in sidecar.log(), word
    refusal, = (line for line in sidecar.log().splitlines() if "Nothing was changed" in line)
    assert re.search(r"spillway\.yaml:\d+:\d+: [a-z_]+[.:]", refusal), "the place in the file"
    assert limit(sidecar)[0] == "1000/s"
    assert sidecar.quote().status == 200 and sidecar.admin("/readyz").status == 200


def test_another_account_instead_is_refused(place):
    sidecar = place.sidecar(DOWN)
    place.config["accounts"]["other"] = place.config["accounts"].pop("main")
    place.write_config()
    reload(sidecar, taken=False)
    assert "accounts.main" in sidecar.log() and "needs a restart" in sidecar.log()


def test_a_config_map_is_swapped_behind_the_name(place, backend):
    """As kubelet does it: spillway.yaml -> ..data/spillway.yaml, ..data -> a directory that is renamed over."""
    mount = place.directory / "mount"
    mount.mkdir()
    place.config["accounts"]["main"] = place.account(DOWN)

    def swap(name, rate):
        place.config["accounts"]["main"]["limit"]["rate"] = rate
        (mount / name).mkdir()
        (mount / name / "spillway.yaml").write_text(json.dumps(place.config))
        (mount / "..data_tmp").symlink_to(name)
        (mount / "..data_tmp").rename(mount / "..data")

    swap("..2025_1", "70/s")
    (mount / "spillway.yaml").symlink_to("..data/spillway.yaml")
    place.config_path = mount / "spillway.yaml"
    place.write_config = lambda changes=None: None
    sidecar = place.sidecar()
    assert limit(sidecar)[0] == "70/s"
    swap("..2025_2", "55/s")
    shutil.rmtree(mount / "..2025_1")
    until(lambda: limit(sidecar)[0] == "55/s", "the swapped file in force")
    (mount / "..2025_2" / "spillway.yaml").unlink()  # gone: what is in force stays, and it is no failure
    sidecar.quote()
    assert counts(sidecar) == (1, 0)


def test_credentials_move_to_another_file(place, backend):
    mock = place.mock()
    sidecar = place.sidecar(mock)
    assert sidecar.quote().json["decision"] == "live"
    (place.directory / "new-key").write_text(KEY + "-2\n")
    edit(place, credentials={"api_key_file": str(place.directory / "new-key")})
    reload(sidecar)
    assert sidecar.quote().json["decision"] == "live"
    sidecar.wait_log("new-key was read again")


def test_rate_tables_are_replaced(place, backend):
    sidecar = place.sidecar(DOWN)
    assert sidecar.quote().json["tax"] == "6.71"
    place.rates.with_name("new.csv").write_text(place.rates.read_text().replace("0.092000", "0.102000"))
    place.config["fallback"]["rates"][0]["file"] = str(place.rates.with_name("new.csv"))
    place.write_config()
    reload(sidecar)
    assert sidecar.quote().json["tax"] != "6.71"


def test_show_and_diff_tell_before_a_reload_what_it_will_do(place):
    sidecar = place.sidecar(DOWN, account={"limit": {"rate": "70/s", "burst": 100}})
    assert "would change nothing" in sidecar.ctl("config", "diff", place.config_path).stdout
    sidecar.ctl("limits", "set", "main", "--rate", "7/min", "--burst", "5")
    shown = {value["path"]: value for value in json.loads(sidecar.ctl("config", "show", "--json").stdout)["values"]}
    assert (shown["accounts.main.limit.rate"]["value"], shown["accounts.main.limit.rate"]["fileValue" if "fileValue" in
            shown["accounts.main.limit.rate"] else "file_value"]) == ("7/min", "70/s")
    assert KEY not in json.dumps(shown)
    other = place.directory / "other.yaml"
    edit(place, limit={"rate": "80/s"}, deadline="1s")
    shutil.copy(place.config_path, other)
    changes = {one["path"]: (one["before"], one["after"], "restart" in one)
               for one in json.loads(sidecar.ctl("config", "diff", other, "--json").stdout)["changes"]}
    assert changes == {"accounts.main.limit.rate": ("7/min", "80/s", False),
                       "accounts.main.deadline": ("5s", "1s", False)}
    assert limit(sidecar)[:2] == ("7/min", 5)
    other.write_text(other.read_text().replace('"cells": 512', '"cells": 1024'))
    told = sidecar.ctl("config", "diff", other).stdout
    assert re.search(r"^ *\d+  *segment\.cells ", told, re.M) and "restart" in told and "refused whole" in told
    other.write_text("accounts: {main: {limit: 1}}")
    assert "other.yaml:1:" in sidecar.ctl("config", "diff", other, code=1).stderr


def shown(sidecar):
    """{path: (in force, from, what the file says)}"""
    values = json.loads(sidecar.ctl("config", "show", "--json").stdout)["values"]
    return {one["path"]: (one["value"], one["origin"].removeprefix("CONFIG_ORIGIN_").lower(), one.get("file_value"))
            for one in values}


RATE, BURST, MODE = (f"accounts.main.limit.{name}" for name in ("rate", "burst", "mode"))


def test_show_tells_file_from_overlay_from_runtime(place):
    sidecar = place.sidecar(DOWN, account={"limit": {"rate": "70/s", "burst": 100}})
    assert {origin for _, origin, _ in shown(sidecar).values()} == {"file"}
    sidecar.ctl("limits", "set", "main", "--rate", "90/s", "--persist")
    assert shown(sidecar)[RATE] == ("90/s", "overlay", "70/s")
    assert shown(sidecar)[BURST] == ("100", "overlay", None) and shown(sidecar)[MODE] == ("enforce", "file", None)
    sidecar.ctl("limits", "set", "main", "--rate", "5/s", "--for", "1h")
    assert shown(sidecar)[RATE] == ("5/s", "runtime", "70/s")
    table = sidecar.ctl("config", "show").stdout
    assert re.search(rf"^{RATE} +5/s +runtime +70/s$", table, re.M), table
    sidecar.kill()
    sidecar = place.sidecar()
    assert shown(sidecar)[RATE] == ("90/s", "overlay", "70/s"), "and after a start"
    sidecar.ctl("limits", "set", "main", "--clear")
    assert shown(sidecar)[RATE] == ("90/s", "runtime", "70/s"), "in force until the next start"
    sidecar.kill()
    assert shown(place.sidecar())[RATE] == ("70/s", "file", None)


def test_a_reload_leaves_what_is_kept_and_what_was_set_over_it(place):
    sidecar = place.sidecar(DOWN, account={"limit": {"rate": "70/s", "burst": 100}})
    sidecar.ctl("limits", "set", "main", "--rate", "90/s", "--persist")
    sidecar.ctl("limits", "set", "main", "--rate", "5/s")
    edit(place, deadline="1s")
    reload(sidecar)
    assert limit(sidecar)[0] == "5/s", "an edit elsewhere does not bring the kept limit back over a later one"
    edit(place, limit={"rate": "80/s"})
    assert "would change nothing" in sidecar.ctl("config", "diff", place.config_path).stdout, "it lies over the file"
    reload(sidecar)
    assert limit(sidecar)[0] == "5/s" and shown(sidecar)[RATE] == ("5/s", "runtime", "80/s")
    sidecar.ctl("limits", "set", "main", "--clear")
    edit(place, deadline="2s")
    reload(sidecar)
    assert limit(sidecar)[0] == "5/s", "what is cleared is not in force any more, and nothing else was asked for"
    edit(place, limit={"rate": "60/s"})
    reload(sidecar)
    assert limit(sidecar)[0] == "60/s", "nothing is kept: the file changed it"


def test_a_reload_is_told_to_watchers_and_auditors(place):
    sidecar = place.sidecar(DOWN, account={"limit": {"rate": "70/s", "burst": 100}})
    edit(place, limit={"rate": "80/s"}, deadline="1s")
    reload(sidecar)
    place.write_config({"colour": "red"})
    reload(sidecar, taken=False)
    told = [json.loads(line) for line in
            sidecar.ctl("watch", "--after", "0", "--limit", "3", "--json").stdout.splitlines()]
    changes = [change for reply in told for change in reply["changes"]]
    taken, rate, refused = changes
    assert (taken["kind"], taken["cause"], taken["after"]) == ("config", "reload", "2 settings changed")
    assert (rate["kind"], rate["cause"], rate["who"]) == ("limit", "reload", "sidecar")
    assert rate["before"].startswith("70/s ") and rate["after"].startswith("80/s ")
    assert refused["kind"] == "config" and "refused" in refused["after"] and "colour" in refused["after"]
    assert re.search(r"spillway\.yaml:\d+", refused["after"])
    assert "config" in sidecar.ctl("audit").stdout


def mutate(chance, text):
    """One fault put into a good file: a byte, a line, a word or a number of it."""
    lines = text.split("\n")
    at = chance.randrange(len(lines))
    kind = chance.randrange(7)
    if kind == 0:
        lines[at] = lines[at][:chance.randrange(len(lines[at]) + 1)]
    elif kind == 1:
        del lines[at]
    elif kind == 2:
        lines.insert(at, lines[chance.randrange(len(lines))])
    elif kind == 3:
        lines[at] = re.sub(r"[0-9]+", lambda m: chance.choice(["-1", "99999999999", "0x10", "", "1e9"]), lines[at], count=1)
    elif kind == 4:
        lines[at] = re.sub(r"[a-z_]{3,}", lambda m: m[0][::-1], lines[at], count=1)
    elif kind == 5:
        lines[at] = lines[at].replace(":", chance.choice([" ", "::", ": [", ": {", ": &x "]), 1)
    else:
        place = chance.randrange(len(lines[at]) + 1)
        lines[at] = lines[at][:place] + chance.choice("\x00\t{}[]&*!|>'\"%@`\xff") + lines[at][place:]
    return "\n".join(lines)


def test_malformed_files(place):
    """Each is refused at its place, by --check-config and by a reload alike, and changes nothing."""
    chance = random.Random(SEED)
    sidecar = place.sidecar(DOWN, account={
        "limit": {"rate": "70/s", "burst": 100}, "breaker": {"ratio_429": "20%", "cooldown": "30s..60s"},
        "limiters": [{"name": "x", "rate": "25/s", "endpoints": ["calculate"]}], "retry": {"first": "1s"}},
        config={"fallback": {"nexus": ["WA", "TX"], "max_age": {"warn": "45d"}, "tax_codes": {"default": "general"}}})
    good = place.config_path.read_text()
    shown = limit(sidecar)
    refused = 0
    other = place.directory / "trial.yaml"
    while refused < MALFORMED:
        text = mutate(chance, good)
        other.write_text(text, encoding="latin-1")
        check = subprocess.run([BIN / "spillwayd", "--check-config", "--config", other], text=True, capture_output=True,
                               timeout=WATCHDOG_S)
        if check.returncode == 0:
            continue  # another good file
        refused += 1
        assert check.returncode == 1 and KEY not in check.stderr
        assert re.search(r"trial\.yaml:\d+:\d+: .{10,}", check.stderr), (check.stderr, text)
        if refused % 10 == 0:
            place.config_path.write_text(text, encoding="latin-1")
            reload(sidecar, taken=False)
            assert limit(sidecar) == shown
    place.config_path.write_text(good)
    reload(sidecar)
    assert limit(sidecar) == shown
