"""An application that does its worst to the volume it may write to, under a running sidecar.

Cut the mapped file and whoever touches it is killed by the kernel: the sidecar ends once, says why, and its next start
makes a new segment instead of ending again. Words overwritten at random are healed or refused. Needs SPILLWAY_BIN.
"""
import os
import random
import signal
import sys

import pytest

from harness import until

HEADER_BYTES = 512


@pytest.fixture
def shop(place):
    place.provider = place.mock("--rate", "0.092")
    place.config["accounts"] = {"main": place.account(place.provider.url, limit={"rate": "100/s", "burst": 100})}
    place.running = place.sidecar()
    assert place.running.quote().json["decision"] == "live"
    return place


def file_of(place):
    return place.rw / "segment"


def generation_of(path):
    with open(path, "rb") as f:
        return f.read(48)[40:]


def heartbeat_ns(place):
    with open(place.pub / "segment", "rb") as f:
        return int.from_bytes(f.read(408)[400:], sys.byteorder)


def starts_anew(place, generation):
    """One more start is enough: a fresh segment, live quotes, and it stays."""
    place.running = place.sidecar()
    assert "segment: replaced" in place.running.log() or "segment: created" in place.running.log()
    assert generation_of(file_of(place)) != generation
    begun_ns = heartbeat_ns(place)
    until(lambda: heartbeat_ns(place) > begun_ns + 1_200_000_000, "heartbeats, and sweeps with them")
    until(lambda: place.running.quote().json["decision"] == "live", "a token")
    assert place.running.process.poll() is None


@pytest.mark.parametrize("left_bytes", [0, 4096])
def test_cut_under_the_sidecar(shop, left_bytes):
    path = file_of(shop)
    generation = generation_of(path)
    os.truncate(path, left_bytes)
    assert shop.running.wait_exit() == -signal.SIGBUS
    shop.running.expected_exit = -signal.SIGBUS
    assert "the next start makes a new segment" in shop.running.log()
    starts_anew(shop, generation)


def test_cut_and_stretched_back(shop):
    """As long as it was, but empty: what the header does not vouch for is not adopted."""
    path = file_of(shop)
    generation, size = generation_of(path), path.stat().st_size
    shop.running.kill()
    os.truncate(path, 0)
    os.truncate(path, size)
    starts_anew(shop, generation)


def test_removed(shop):
    path = file_of(shop)
    generation = generation_of(path)
    shop.running.kill()
    path.unlink()
    starts_anew(shop, generation)


@pytest.mark.parametrize("seed", range(3))
def test_words_overwritten(shop, seed):
    """Every kind of word behind the header, at random, while the sidecar runs; then a start that adopts what is left."""
    chance = random.Random(seed)
    path = file_of(shop)
    size = path.stat().st_size
    values = [b"\xff" * 8, b"\0" * 8, None]
    with open(path, "r+b", buffering=0) as f:
        for _ in range(20000):
            f.seek(chance.randrange(HEADER_BYTES // 8, size // 8) * 8)
            f.write(chance.choice(values) or chance.randbytes(8))
    assert shop.running.quote().status in (200, 503)
    assert shop.running.admin("/metrics").status == 200
    assert shop.running.process.poll() is None
    shop.running.kill()
    shop.running = shop.sidecar()
    assert shop.running.quote().status in (200, 503)
    assert shop.running.process.poll() is None
