"""Every profile through the whole sidecar: quotes against the scripted provider, which works taxes out by itself."""
import pytest

from harness import until

ACCOUNTS = {
    "avatax": {"company": "ACME", "connection": None, "credentials": {"api_key_file": None}},
    "taxjar": {"connection": None},
    "stripe": {"connection": None},
    "taxcloud": {},
}
NO_CODES = {"lines": [{"id": "1", "quantity": "2", "amount": "39.98"}, {"id": "2", "quantity": "1", "amount": "25.00"}],
            "shipping": {"amount": "7.95"}}


def start(place, provider, *options):
    mock = place.mock("--rate", "9.2%", *options)
    changes = {"provider": provider, **ACCOUNTS[provider]}
    if provider == "avatax":
        (place.directory / "user").write_text("2000012345\n")
        changes["credentials"] = {"api_key_file": None, "username_file": str(place.directory / "user"),
                                  "password_file": str(place.directory / "api-key")}
    return mock, place.sidecar(mock, account=changes)


@pytest.mark.parametrize("provider", ACCOUNTS)
def test_live_quote(place, provider):
    mock, sidecar = start(place, provider, "--api-key", "key-that-nobody-may-see")
    answer = sidecar.quote(**NO_CODES)
    assert answer.status == 200, answer
    assert answer.json["decision"] == "live", answer
    assert answer.json["tax"] == "6.71"
    assert [line["tax"] for line in answer.json["lines"]] == ["3.68", "2.30"]
    assert answer.json["shipping"]["tax"] == "0.73"
    assert answer.json["provider"]["name"] == provider


@pytest.mark.parametrize("provider", ACCOUNTS)
def test_refused_by_the_limit_and_by_the_request(place, provider):
    mock, sidecar = start(place, provider)
    mock.script({"status": 422})
    answer = sidecar.quote(**NO_CODES)
    assert (answer.status, answer.json["decision"]) == (422, "rejected"), answer
    assert "scripted" in str(answer.json["provider_error"])
    mock.script({"status": 429, "headers": {"Retry-After": "9"}})
    answer = sidecar.quote(**NO_CODES)
    assert (answer.status, answer.json["decision"]) == (200, "fallback"), answer
    assert answer.json["fallback"]["type"] == "rate-limit-429"
    assert answer.json["tax"] == "6.71"


def test_stripe_lock_is_no_limit(place):
    """A 429 of Stripe's that gives no reason is an object in use: the breaker does not count it."""
    mock, sidecar = start(place, "stripe")
    body = {"error": {"type": "invalid_request_error", "code": "lock_timeout", "message": "in use"}}
    mock.script({"status": 429, "body": body})

    def asked_six_times():
        assert sidecar.quote(**NO_CODES, deadline_ms=300).json["decision"] == "fallback"
        return mock.stats()["requests_total"] >= 6  # the endpoint's own limiter lets five through at once
    until(asked_six_times, "six calls")  # so the gate is not shut either
    assert sidecar.breaker() == "closed"
