"""The providers' own SDKs, unmodified, each by its own documented setting, against a pass-through door.

Live, then on a fallback, then on an error of the provider's, then commits of both. Needs SPILLWAY_BIN and the SDKs that
scripts/bootstrap puts into .sdks; a test whose SDK is not there is skipped and says so.
"""
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from far_end import CALCULATE, FarEnd, basic
from harness import KEY, WATCHDOG_S, until

HERE = Path(__file__).resolve().parent
SDKS = HERE.parent.parent / ".sdks"


class Shop:
    """One SDK in a process of its own for each call, as a shop's worker has it."""

    def __init__(self, place, provider, script):
        self.place, self.script = place, script
        self.far = FarEnd(provider, basic("account", KEY) if provider == "avatax" else f"Bearer {KEY}")
        account = {"provider": provider, "connection": None, "retry": {"first": "100ms"}, "listen": f"127.0.0.1:{place.pass_port}",
                   "company": "ACME" if provider == "avatax" else None}
        if provider == "avatax":
            (place.directory / "user").write_text("account\n")
            account["credentials"] = {"api_key_file": None, "username_file": str(place.directory / "user"),
                                      "password_file": str(place.directory / "api-key")}
        self.sidecar = place.sidecar(self.far.url, account=account)

    def __call__(self, *words):
        program = ["node"] if self.script.endswith(".js") else ["/usr/bin/python3"]
        result = subprocess.run(
            [*program, str(HERE / "sdk" / self.script), *words], capture_output=True, text=True, timeout=WATCHDOG_S,
            env={**os.environ, "SDKS": str(SDKS), "DOOR": f"http://127.0.0.1:{self.place.pass_port}",
                 "TOKEN": self.sidecar.token(), "PYTHONPATH": str(SDKS / "python"), "NODE_NO_WARNINGS": "1"})
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout.splitlines()[-1])

    def asked(self):
        """Calculations that reached the sidecar, and those that reached the provider."""
        quotes = sum(n for (name, _), n in self.sidecar.metrics().items() if name == "spillway_quotes_total")
        return int(quotes), self.far.paths().count(CALCULATE[self.far.provider])

    def minor(self, cart):
        """The tax of one more calculation, in cents, as the SDK hands it to the shop; and what was asked for it."""
        before = self.asked()
        answer = self("calculate", cart)["ok"]
        answer = answer.get("tax", answer)
        tax = answer.get("tax_amount_exclusive")
        if tax is None:
            tax = round(100 * answer.get("totalTax", answer.get("amount_to_collect")))
        return tax, tuple(now - then for now, then in zip(self.asked(), before))

    def flag(self):
        """The newest flag."""
        return until(lambda: self.sidecar.flags(), "a flag")[-1]


def needs(script):
    name = script.split(".")[0].replace("_client", "")
    if script.endswith(".js"):
        if not shutil.which("node"):
            pytest.skip("node is not installed: scripts/bootstrap")
        where = SDKS / "node_modules" / name
    else:
        where = SDKS / "python" / name
    if not where.is_dir():
        pytest.skip(f"the SDK {name} is not in {where.parent}: scripts/bootstrap")


@pytest.fixture
def shop(place, request):
    provider, script = request.param
    needs(script)
    one = Shop(place, provider, script)
    yield one
    one.far.close()


def by(*scripts):
    return pytest.mark.parametrize("shop", [(s.split(".")[0].replace("_client", ""), s) for s in scripts],
                                   indirect=True, ids=scripts)


@by("avatax.js")
def test_avatax(shop):
    live = shop("calculate", "cart-1")["ok"]
    assert live["totalTax"] == 3.68 and live["code"] == "cart-1" and shop.sidecar.flags() == []
    shop.far.mode = 503
    fell = shop("calculate", "cart-2")["ok"]
    assert fell["totalTax"] == 3.68 and fell["code"] == "cart-2" and fell["lines"][0]["tax"] == 3.68
    assert fell["status"] == "Temporary" and "Spillway" in fell["messages"][0]["summary"]
    assert shop.flag()["type"] == "provider-error"
    shop.far.mode = 400
    assert shop("calculate", "cart-3")["error"]["code"] == "GetTaxError"
    shop.far.mode = "live"
    assert shop("commit", "cart-1")["ok"]["status"] == "Committed"
    asked = len(shop.far.asked)
    commit = shop("commit", "cart-2")["ok"]
    assert commit["code"] == "cart-2" and commit["status"] == "Temporary", "accepted, and not said to be in the books"
    assert len(shop.far.asked) == asked, "AvaTax does not know it"
    until(lambda: shop.flag()["state"] == "confirmed", "the order")
    assert shop.flag()["order"]["order_id"] == "cart-2"


@by("avatax.js", "taxjar.js", "taxjar_client.py", "stripe.js", "stripe_client.py")
def test_a_provider_that_refuses_for_its_rate(shop):
    """The sidecar tries once more, the SDK never: not even Stripe's, which its provider would have try again."""
    def gate_is_open():
        return shop.sidecar.metric("spillway_gate_shut_seconds", account="main") == 0

    shop.far.refuse = 1
    assert shop.minor("cart-1") == (368, (1, 2)) and shop.sidecar.flags() == []
    until(gate_is_open, "the gate")
    shop.far.refuse = 100
    assert shop.minor("cart-2") == (368, (1, 2))
    flag = shop.flag()
    assert (flag["type"], flag["cause"], flag["tax"]["amount"]) == ("rate-limit-429", "retry-429", "3.68")
    assert (flag["evidence"]["attempts"], flag["evidence"]["provider_status"]) == (2, 429)
    until(gate_is_open, "the gate")
    shop.far.refuse = 0
    assert shop.minor("cart-3") == (368, (1, 1)) and len(shop.sidecar.flags()) == 1


@by("avatax.js")
def test_an_avatax_invoice_is_a_sale_at_once(shop):
    assert shop("invoice", "inv-1")["ok"]["status"] == "Saved"
    until(lambda: shop.sidecar.metric("spillway_orders", state="placed") == 1, "the live order")
    shop.far.mode = 503
    fell = shop("invoice", "inv-2")["ok"]
    assert fell["totalTax"] == 3.68 and fell["type"] == "SalesInvoice" and fell["status"] == "Temporary"
    assert shop("invoice", "inv-2")["ok"]["messages"] == fell["messages"], "asked again: the very same flag"
    until(lambda: shop.flag()["state"] == "confirmed", "the order")
    flag, = shop.sidecar.flags()
    assert flag["order"]["order_id"] == "inv-2" and flag["purpose"] == "order"


@by("taxjar.js", "taxjar_client.py")
def test_taxjar(shop):
    live = shop("calculate")["ok"]
    assert live.get("tax", live)["amount_to_collect"] == 3.68 and shop.sidecar.flags() == []
    assert shop("commit", "order-1")["ok"].get("order", {"transaction_id": "order-1"})["transaction_id"] == "order-1"
    shop.far.mode = 503
    fell = shop("calculate")["ok"]
    assert fell.get("tax", fell)["amount_to_collect"] == 3.68
    flag = shop.flag()
    assert flag["type"] == "provider-error" and flag["tax"]["amount"] == "3.68"
    shop.far.mode = 400
    error = shop("calculate")["error"]
    assert error["status"] == 400 and "upstream says no" in error["detail"]
    shop.far.mode = "live"
    assert "ok" in shop("commit", "order-2", flag["quote_id"]), "TaxJar takes what was collected, live or not"
    assert shop.far.paths().count("/v2/transactions/orders") == 2
    if shop.script.endswith(".js"):
        until(lambda: shop.flag()["state"] == "confirmed", "the order named by Spillway-Quote")
        assert shop.flag()["order"]["order_id"] == "order-2"


@by("stripe.js", "stripe_client.py")
def test_stripe(shop):
    live = shop("calculate")["ok"]
    assert live["tax_amount_exclusive"] == 368 and live["id"] == "taxcalc_live1" and shop.sidecar.flags() == []
    shop.far.mode = 503
    before = len(shop.far.asked)
    fell = shop("calculate")["ok"]
    assert fell["tax_amount_exclusive"] == 368 and fell["object"] == "tax.calculation"
    assert fell["line_items"]["data"][0]["amount_tax"] == 368
    assert len(shop.far.asked) == before + 1, "no retry of the SDK's own is provoked"
    flag = shop.flag()
    assert flag["type"] == "provider-error" and flag["tax"]["amount"] == "3.68"
    shop.far.mode = 400
    error = shop("calculate")["error"]
    assert error["status"] == 400 and "upstream says no" in error["message"]
    assert error["type"] in ("StripeInvalidRequestError", "InvalidRequestError")
    shop.far.mode = "live"
    assert shop("commit", live["id"], "order-1")["ok"]["object"] == "tax.transaction"
    before = len(shop.far.asked)
    refused = shop("commit", fell["id"], "order-2")["error"]
    assert refused["status"] == 429 and "ledger" in refused["message"], "recorded, and no transaction is made up"
    assert len(shop.far.asked) == before
    until(lambda: shop.flag()["state"] == "confirmed", "the order")
    assert shop.flag()["order"]["order_id"] == "order-2"


@by("stripe.js")
def test_stripe_is_not_asked_thrice_when_nothing_is_known(shop):
    """No rate for the place, breaker open: an error of Stripe's form that its SDK does not try again."""
    shop.sidecar.stop()
    shop.far.mode = 503
    (shop.place.directory / "rates.csv").write_text(shop.place.rates.read_text().replace("WA,98110", "WA,98111"))
    shop.sidecar = shop.place.sidecar()
    before = len(shop.far.asked)
    assert shop("calculate")["error"]["status"] == 503
    assert len(shop.far.asked) == before + 1
