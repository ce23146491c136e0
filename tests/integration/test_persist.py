"""What is set by hand and kept: laid over the configuration at each start, checked with it, taken away again.

By grpcio and spillwayctl against a whole sidecar. Needs SPILLWAY_BIN.
"""
import os
import subprocess
from pathlib import Path

import grpc
import pytest
import yaml

from control_stubs import stubs
from harness import BIN, WATCHDOG_S

pb, rpc = stubs("spillway.v1.control")


def overlay_of(place):
    return Path(f"{place.ledger}.overlay.yaml")


class Opened:
    def __init__(self, sidecar):
        self.channel = grpc.insecure_channel(f"unix:{sidecar.place.pub}/control.sock",
                                             options=[("grpc.use_local_subchannel_pool", 1)])

    def set(self, **request):
        return rpc.LimitsStub(self.channel).Set(pb.SetLimitRequest(**request), timeout=WATCHDOG_S)

    def limit(self):
        return rpc.LimitsStub(self.channel).Get(pb.GetLimitRequest(account="main"), timeout=WATCHDOG_S).limit

    def breaker(self):
        return rpc.BreakersStub(self.channel).Get(pb.GetBreakerRequest(account="main"), timeout=WATCHDOG_S).breaker


def test_what_is_kept_outlives_a_restart_and_what_is_not_does_not(place):
    first = place.sidecar("http://127.0.0.1:1", account={"limit": {"rate": "100/s", "burst": 200}})
    one = Opened(first)
    assert one.set(account="main", rate=pb.Rate(text="150/s"), burst=300, persist=True).survives_restart
    rpc.BreakersStub(one.channel).Set(pb.SetBreakerRequest(
        account="main", settings=pb.BreakerSettings(consecutive_429=7, ratio_429_ppm=123456), persist=True))
    assert not one.set(account="main", rate=pb.Rate(text="5/s")).survives_restart
    kept = overlay_of(place)
    assert kept.stat().st_mode & 0o777 == 0o600
    assert yaml.safe_load(kept.read_text())["accounts"]["main"]["limit"]["rate"] == "150/s"
    first.kill()
    two = Opened(place.sidecar())
    limit, breaker = two.limit(), two.breaker()
    assert (limit.rate.text, limit.burst) == ("150/s", 300)
    assert (breaker.settings.consecutive_429, breaker.settings.ratio_429_ppm) == (7, 123456)
    # A switch is kept as the limiter's mode, beside what was kept before.
    assert two.set(account="main", observed_only=True, persist=True).survives_restart
    place.sidecars[-1].kill()
    three = Opened(place.sidecar())
    assert three.limit().observed_only and three.limit().rate.text == "150/s"
    assert "--clear" in place.sidecars[-1].ctl("limits", "set", "--help").stdout
    place.sidecars[-1].ctl("limits", "set", "main", "--clear")
    assert not kept.exists() and three.limit().rate.text == "150/s"
    place.sidecars[-1].kill()
    four = Opened(place.sidecar())
    assert four.limit().rate.text == "100/s" and not four.limit().observed_only
    assert four.breaker().settings.consecutive_429 == 5


@pytest.mark.parametrize("request_, field", [
    ({"rate": pb.Rate(text="5/s"), "for_ms": 1000}, "persist"), ({"killed": True, "everywhere": True}, "persist"),
    ({"rate": pb.Rate(text="5/s"), "limiter": "account"}, "persist"), ({"clear": True}, "persist"),
    ({"rate": pb.Rate(text="5/s"), "clear": True, "persist": False}, "clear")])
def test_what_cannot_be_kept_is_refused(place, request_, field):
    one = Opened(place.sidecar("http://127.0.0.1:1"))
    before = one.limit().rate
    with pytest.raises(grpc.RpcError) as caught:
        one.set(**{"account": "main", "persist": True, **request_})
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.details().startswith(f"{field}: ")
    assert one.limit().rate == before and not overlay_of(place).exists()


def test_a_dry_run_keeps_nothing(place):
    one = Opened(place.sidecar("http://127.0.0.1:1"))
    one.set(account="main", rate=pb.Rate(text="5/s"), persist=True, dry_run=True)
    assert not overlay_of(place).exists()


def test_what_no_longer_fits_the_configuration_is_told_with_both_places(place):
    first = place.sidecar("http://127.0.0.1:1", account={"limit": {"rate": "100/s", "burst": 200, "pods": 2}})
    Opened(first).set(account="main", rate=pb.Rate(text="150/s"), burst=10, pods=10, persist=True)
    first.stop()
    kept = overlay_of(place)
    kept.write_text(kept.read_text().replace("burst: 10", "burst: 9"))
    answer = subprocess.run([BIN / "spillwayd", "--config", place.config_path], capture_output=True, text=True,
                            timeout=WATCHDOG_S, env={**os.environ, "TAXCLOUD_KEY": "k"})
    assert answer.returncode == 1 and str(kept) in answer.stderr and "burst" in answer.stderr, answer.stderr
    kept.write_text("accounts: [")
    answer = subprocess.run([BIN / "spillwayd", "--config", place.config_path], capture_output=True, text=True,
                            timeout=WATCHDOG_S, env={**os.environ, "TAXCLOUD_KEY": "k"})
    assert answer.returncode == 1 and str(kept) in answer.stderr
    kept.unlink()


def test_a_disk_that_refuses_is_told(place):
    """A directory stands where the file would be written."""
    one = Opened(place.sidecar("http://127.0.0.1:1"))
    Path(f"{overlay_of(place)}.tmp").mkdir()
    with pytest.raises(grpc.RpcError) as caught:
        one.set(account="main", rate=pb.Rate(text="5/s"), persist=True)
    assert "in force until the next start" in caught.value.details() and one.limit().rate.text == "5/s"
