"""The scripted provider as AvaTax, TaxJar and Stripe: calculations, books, errors, dropped replies, dice."""
import base64
import collections
import http.client
import json
import urllib.parse

import pytest

from test_mock import Mock

BEARER = {"Authorization": "Bearer key-1"}
TO = {"region": "WA", "postalCode": "98110", "country": "US"}


def ask(mock, method, path, body=None, headers=BEARER):
    """(status, JSON, headers); status 0 when the connection ended without an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", mock.port, timeout=60)
    data = body if isinstance(body, (str, bytes)) or body is None else json.dumps(body)
    try:
        connection.request(method, path, data, headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        is_json = answer.headers["Content-Type"] == "application/json"
        return answer.status, json.loads(text) if is_json else text, answer.headers
    except (http.client.RemoteDisconnected, ConnectionResetError):
        return 0, None, {}
    finally:
        connection.close()


def transaction(code="d-1", kind="SalesInvoice", amount=39.98, **more):
    return {"type": kind, "code": code, "companyCode": "ACME", "date": "2025-11-28", "customerCode": "c",
            "addresses": {"singleLocation": TO}, "lines": [{"number": "1", "amount": amount}], **more}


def order(key="o-1", **more):
    return {"transaction_id": key, "transaction_date": "2025-11-28", "to_zip": "98110", "amount": 47.93,
            "shipping": 7.95, "sales_tax": 4.41, **more}


def calculation(**more):
    return urllib.parse.urlencode({"currency": "usd", "line_items[0][amount]": 3998, "line_items[0][reference]": "0",
                                   "customer_details[address][postal_code]": "98110", "shipping_cost[amount]": 795,
                                   **more})


@pytest.fixture(scope="module")
def mock():
    with Mock("--rate", "9.2%", "--api-key", "key-1") as mock:
        yield mock


def books(mock):
    return ask(mock, "GET", "/mock/books")[1]


def test_avatax(mock):
    create = "/api/v2/transactions/create"
    basic = {"Authorization": "Basic " + base64.b64encode(b"2000:key-1").decode()}
    status, answer, _ = ask(mock, "POST", create, transaction(kind="SalesOrder"), basic)
    assert (status, answer["totalTax"], answer["status"]) == (201, 3.68, "Temporary")
    assert answer["lines"][0]["details"][0]["rate"] == 0.092
    assert "avatax/ACME/d-1" not in books(mock)  # an estimate leaves nothing behind
    assert ask(mock, "POST", create, transaction())[0] == 201
    status, answer, _ = ask(mock, "POST", create, transaction())
    assert (status, answer["error"]["code"]) == (400, "DuplicateEntry")
    override = transaction(commit=True)
    override["lines"][0]["taxOverride"] = {"type": "TaxAmount", "taxAmount": 3.70}
    status, answer, _ = ask(mock, "POST", "/api/v2/transactions/createoradjust", {"createTransactionModel": override})
    assert (status, answer["totalTax"], answer["totalTaxCalculated"]) == (200, 3.7, 3.68)
    document = "/api/v2/companies/ACME/transactions/d-1"
    assert ask(mock, "GET", document)[1]["totalTax"] == 3.7
    assert books(mock)["avatax/ACME/d-1"]["writes"] == 2
    assert ask(mock, "POST", document + "/refund", {"refundTransactionCode": "r-1"})[0] == 201
    assert ask(mock, "POST", document + "/void", {"code": "DocVoided"})[1]["status"] == "Cancelled"
    assert ask(mock, "POST", document + "/commit", {"commit": True})[1]["error"]["code"] == "DocStatusError"
    assert ask(mock, "GET", "/api/v2/companies/ACME/transactions/none")[0] == 404
    assert ask(mock, "POST", create, {"companyCode": "ACME", "lines": [{}]})[1]["error"]["code"] == "InvalidAddress"
    assert ask(mock, "GET", "/api/v2/utilities/ping")[1]["authenticated"]
    status, text, _ = ask(mock, "GET", "/api/v2/taxratesbyzipcode/download/2025-11-28")
    assert status == 200 and text.splitlines()[0].startswith("ZIP_CODE,STATE_ABBREV") and "\n98110,WA," in text


def test_taxjar(mock):
    taxes = {"to_zip": "98110", "to_state": "WA", "to_country": "US", "shipping": 7.95,
             "line_items": [{"id": "1", "quantity": 2, "unit_price": 19.99}]}
    status, answer, _ = ask(mock, "POST", "/v2/taxes", taxes)
    assert status == 200 and answer["tax"]["amount_to_collect"] == 4.41
    assert answer["tax"]["breakdown"]["line_items"] == [{"id": "1", "taxable_amount": 39.98, "tax_collectable": 3.68,
                                                         "combined_tax_rate": 0.092}]
    assert ask(mock, "POST", "/v2/taxes", {**taxes, "exemption_type": "wholesale"})[1]["tax"]["amount_to_collect"] == 0
    assert ask(mock, "POST", "/v2/transactions/orders", order())[1]["order"]["sales_tax"] == 4.41
    status, answer, _ = ask(mock, "POST", "/v2/transactions/orders", order())
    assert status == 422 and "already" in answer["detail"]
    assert ask(mock, "PUT", "/v2/transactions/orders/o-1", order(sales_tax=4.4))[1]["order"]["sales_tax"] == 4.4
    assert ask(mock, "GET", "/v2/transactions/orders/o-1")[1]["order"]["sales_tax"] == 4.4
    refund = order("r-1", transaction_reference_id="o-1")
    assert ask(mock, "POST", "/v2/transactions/refunds", refund)[0] == 201
    assert ask(mock, "DELETE", "/v2/transactions/orders/o-1")[0] == 200
    assert ask(mock, "GET", "/v2/transactions/orders/o-1")[0] == 404
    assert ask(mock, "GET", "/v2/rates/98110-1234")[1]["rate"]["combined_rate"] == "0.092000"
    assert ask(mock, "GET", "/v2/summary_rates")[1]["summary_rates"][0]["average_rate"]["rate"] == 0.092
    assert ask(mock, "GET", "/v2/categories")[0] == 200
    assert ask(mock, "POST", "/v2/taxes", "{")[1]["error"] == "Bad Request"


def test_stripe(mock):
    calculations = "/v1/tax/calculations"
    keyed = {**BEARER, "Idempotency-Key": "k-1"}
    status, first, _ = ask(mock, "POST", calculations, calculation(), keyed)
    assert status == 200 and first["tax_amount_exclusive"] == 441 and first["amount_total"] == 3998 + 795 + 441
    assert first["line_items"]["data"][0]["tax_breakdown"][0]["tax_rate_details"]["percentage_decimal"] == "9.2"
    assert ask(mock, "POST", calculations, calculation(), keyed)[1] == first  # the stored answer
    status, answer, _ = ask(mock, "POST", calculations, calculation(currency="eur"), keyed)
    assert (status, answer["error"]["type"]) == (400, "idempotency_error")
    assert ask(mock, "GET", f"{calculations}/{first['id']}/line_items")[1]["total_count"] == 1
    record = "/v1/tax/transactions/create_from_calculation"
    body = urllib.parse.urlencode({"calculation": first["id"], "reference": "o-1"})
    status, made, _ = ask(mock, "POST", record, body)
    assert (status, made["reference"]) == (200, "o-1")
    assert ask(mock, "GET", f"/v1/tax/transactions/{made['id']}")[1] == made
    status, answer, _ = ask(mock, "POST", record, body)
    assert (status, answer["error"]["param"]) == (400, "reference")
    body = urllib.parse.urlencode({"calculation": "taxcalc_none", "reference": "o-2"})
    assert ask(mock, "POST", record, body)[1]["error"]["code"] == "resource_missing"
    body = urllib.parse.urlencode({"original_transaction": made["id"], "reference": "r-1", "mode": "full"})
    assert ask(mock, "POST", "/v1/tax/transactions/create_reversal", body)[1]["type"] == "reversal"


@pytest.mark.parametrize("path, where", [
    ("/api/v2/utilities/ping", lambda e: e["error"]["code"]),
    ("/v2/categories", lambda e: e["error"]),
    ("/v1/tax/calculations/x", lambda e: e["error"]["type"]),
])
def test_each_has_its_own_errors(mock, path, where):
    status, answer, _ = ask(mock, "GET", path, headers={"Authorization": "Bearer another"})
    assert status == 401 and where(answer)
    ask(mock, "POST", "/mock/scenario", [{"status": 429}])
    status, answer, headers = ask(mock, "GET", path)
    ask(mock, "POST", "/mock/scenario", [])
    assert status == 429 and where(answer) and "Stripe-Rate-Limited-Reason" not in headers


def test_stripe_tells_why_its_limit_refuses():
    with Mock("--limit", "1/h") as mock:
        assert ask(mock, "GET", "/v1/tax/calculations/x")[0] == 404
        status, answer, headers = ask(mock, "GET", "/v1/tax/calculations/x")
        assert (status, answer["error"]["code"]) == (429, "rate_limit")
        assert headers["Stripe-Rate-Limited-Reason"] == "endpoint-rate"


def test_a_dropped_reply_was_carried_out(mock):
    ask(mock, "POST", "/mock/scenario", [{"to_request": 1, "action": "drop"}])
    assert ask(mock, "POST", "/v2/transactions/orders", order("dropped"))[0] == 0
    assert ask(mock, "POST", "/v2/transactions/orders", order("dropped"))[0] == 422
    assert books(mock)["taxjar/orders/dropped"]["writes"] == 1
    assert ask(mock, "GET", "/mock/stats")[1]["by_action"]["drop"] == 1
    ask(mock, "POST", "/mock/scenario", [])


def test_dice_are_the_same_in_every_run(mock):
    def run(seed):
        ask(mock, "POST", "/mock/scenario", [{"random": 0.07, "seed": seed, "status": 500}])
        return [ask(mock, "GET", "/v2/categories")[0] for _ in range(300)]
    first = run(7)
    assert run(7) == first != run(8)
    assert 5 <= collections.Counter(first)[500] <= 50
    ask(mock, "POST", "/mock/scenario", [])
    refused = ask(mock, "POST", "/mock/scenario", [{"seed": 7, "status": 500}])
    assert refused[0] == 400
