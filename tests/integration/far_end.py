"""The far end for SDK tests: AvaTax, TaxJar and Stripe as far as their SDKs look, with a mode and a memory.

Mode: live, or a status that every calculation gets (400, 429, 503). What was asked is kept in `asked`.
"""
import base64
import http.server
import json
import threading
import urllib.parse

RATE = 0.092


def cents(amount):
    return round(amount * RATE + 1e-9, 2)


def avatax(handler, method, path, body):
    if path == "/api/v2/transactions/create":
        lines = [{"lineNumber": line.get("number", str(i + 1)), "lineAmount": line["amount"], "tax": cents(line["amount"]),
                  "taxableAmount": line["amount"], "taxCalculated": cents(line["amount"]), "isItemTaxable": True,
                  "details": [{"jurisType": "State", "jurisName": "WASHINGTON", "rate": RATE,
                               "tax": cents(line["amount"]), "taxableAmount": line["amount"]}]}
                 for i, line in enumerate(body["lines"])]
        tax = round(sum(line["tax"] for line in lines), 2)
        return 201, {"id": 17, "code": body.get("code", "made-up"), "status": "Saved", "totalTax": tax,
                     "totalTaxCalculated": tax, "totalTaxable": sum(line["lineAmount"] for line in lines),
                     "totalAmount": sum(line["lineAmount"] for line in lines), "lines": lines, "summary": [],
                     "currencyCode": "USD"}
    if path.endswith("/commit"):
        return 200, {"id": 17, "code": path.split("/")[-2], "status": "Committed"}
    return 404, {"error": {"code": "EntityNotFoundError", "message": "not found", "details": []}}


def taxjar(handler, method, path, body):
    if path == "/v2/taxes":
        amount = sum(item["unit_price"] * item["quantity"] for item in body["line_items"])
        items = [{"id": item["id"], "taxable_amount": item["unit_price"] * item["quantity"], "combined_tax_rate": RATE,
                  "tax_collectable": cents(item["unit_price"] * item["quantity"])} for item in body["line_items"]]
        shipping = {"taxable_amount": body["shipping"], "combined_tax_rate": RATE,
                    "tax_collectable": cents(body["shipping"])}
        return 200, {"tax": {"order_total_amount": amount + body["shipping"], "shipping": body["shipping"],
                             "taxable_amount": amount + body["shipping"], "rate": RATE, "has_nexus": True,
                             "amount_to_collect": round(sum(i["tax_collectable"] for i in items)
                                                        + shipping["tax_collectable"], 2),
                             "freight_taxable": True, "tax_source": "destination",
                             "breakdown": {"line_items": items, "shipping": shipping, "combined_tax_rate": RATE}}}
    if path == "/v2/transactions/orders" and method == "POST":
        return 201, {"order": {**body, "user_id": 1}}
    return 404, {"status": 404, "error": "Not Found", "detail": path}


def stripe(handler, method, path, body):
    if path == "/v1/tax/calculations":
        lines, i = [], 0
        while f"line_items[{i}][amount]" in body:
            amount = int(body[f"line_items[{i}][amount]"])
            lines.append({"id": f"li_{i}", "object": "tax.calculation_line_item", "amount": amount, "quantity": 1,
                          "amount_tax": round(amount * RATE), "reference": body.get(f"line_items[{i}][reference]", ""),
                          "tax_behavior": "exclusive", "tax_code": "txcd_99999999"})
            i += 1
        tax = sum(line["amount_tax"] for line in lines)
        return 200, {"id": "taxcalc_live1", "object": "tax.calculation", "currency": body["currency"],
                     "tax_amount_exclusive": tax, "tax_amount_inclusive": 0,
                     "amount_total": tax + sum(line["amount"] for line in lines),
                     "line_items": {"object": "list", "data": lines, "has_more": False, "url": "/v1/tax"},
                     "tax_breakdown": [{"amount": tax, "inclusive": False, "taxability_reason": "standard_rated",
                                        "taxable_amount": sum(line["amount"] for line in lines),
                                        "tax_rate_details": {"country": "US", "state": "WA", "tax_type": "sales_tax",
                                                             "percentage_decimal": "9.2", "rate_type": "percentage"}}]}
    if path == "/v1/tax/transactions/create_from_calculation":
        return 200, {"id": "tax_1", "object": "tax.transaction", "reference": body["reference"]}
    return 404, {"error": {"type": "invalid_request_error", "message": "no such thing"}}


ERRORS = {
    "avatax": lambda status: {"error": {"code": "GetTaxError", "message": "upstream says no", "target": "Unknown",
                                        "details": [{"code": "GetTaxError", "number": 300, "message": "no"}]}},
    "taxjar": lambda status: {"status": status, "error": "Bad Request", "detail": "upstream says no"},
    "stripe": lambda status: {"error": {"type": "invalid_request_error", "message": "upstream says no",
                                        "code": "customer_tax_location_invalid"}}}
# Too many requests, as each says it; Stripe would have its SDK try again.
REFUSALS = {
    "avatax": ({}, {"error": {"code": "RateLimitExceeded", "message": "too many requests", "target": "Unknown",
                              "details": [{"code": "RateLimitExceeded", "number": 4011, "message": "too many"}]}}),
    "taxjar": ({}, {"status": 429, "error": "Too Many Requests", "detail": "too many requests"}),
    "stripe": ({"Stripe-Rate-Limited-Reason": "endpoint-rate", "Stripe-Should-Retry": "true"},
               {"error": {"type": "invalid_request_error", "code": "rate_limit", "message": "too many requests"}})}
CALCULATE = {"avatax": "/api/v2/transactions/create", "taxjar": "/v2/taxes", "stripe": "/v1/tax/calculations"}


class FarEnd:
    def __init__(self, provider, credential):
        self.provider, self.mode, self.asked = provider, "live", []
        self.refuse = 0  # so many calculations by a 429, before the mode counts
        answer = {"avatax": avatax, "taxjar": taxjar, "stripe": stripe}[provider]
        far = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def reply(self, status, body, headers=None):
                text = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.send_header("Request-Id", "req_far")
                for name, value in (headers or {}).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text)

            def do(self):
                raw = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
                path = self.path.split("?")[0]
                if self.headers["Authorization"] != credential:
                    far.asked.append((self.command, path, "without the credential"))
                    return self.reply(401, ERRORS[provider](401))
                far.asked.append((self.command, path, raw))
                if path == CALCULATE[provider] and far.refuse > 0:
                    far.refuse -= 1
                    headers, error = REFUSALS[provider]
                    return self.reply(429, error, headers)
                if path == CALCULATE[provider] and far.mode != "live":
                    return self.reply(far.mode, ERRORS[provider](far.mode))
                body = dict(urllib.parse.parse_qsl(raw)) if provider == "stripe" else json.loads(raw or "{}")
                return self.reply(*answer(self, self.command, path, body))
            do_GET = do_POST = do_PUT = do_DELETE = do

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def paths(self):
        return [path for _, path, _ in self.asked]

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def basic(user, password):
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
