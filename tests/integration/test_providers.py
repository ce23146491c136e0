"""Every profile through the whole sidecar: quotes against the scripted provider, which works taxes out by itself."""
import pytest

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
    mock.scenario({"status": 429})
    answer = sidecar.quote(**NO_CODES)
    # A bare 429 of Stripe's is an object in use, not a limit; both end in a fallback.
    assert answer.json["decision"] == "fallback", answer
    mock.scenario({"status": 422})
    answer = sidecar.quote(**NO_CODES)
    assert answer.json["decision"] in ("rejected", "fallback"), answer
    if provider != "taxcloud" or answer.json["decision"] == "rejected":
        assert answer.status in (200, 422)
