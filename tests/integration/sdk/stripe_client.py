"""Stripe's Python SDK as its manual says: base_addresses is the door, the token stands for the secret key."""
import json
import os
import sys

import stripe

action, *words = sys.argv[1:]
client = stripe.StripeClient(os.environ["TOKEN"], base_addresses={"api": os.environ["DOOR"]})
try:
    if action == "calculate":
        answer = client.v1.tax.calculations.create({
            "currency": "usd", "line_items": [{"amount": 3998, "reference": "L1"}], "expand": ["line_items"],
            "customer_details": {"address": {"line1": "100 Ravine Ln NE", "city": "Bainbridge Island", "state": "WA",
                                             "postal_code": "98110-1234", "country": "US"},
                                 "address_source": "shipping"}})
    else:
        answer = client.v1.tax.transactions.create_from_calculation({"calculation": words[0], "reference": words[1]})
    print(json.dumps({"ok": json.loads(str(answer))}))
except stripe.StripeError as error:
    print(json.dumps({"error": {"type": type(error).__name__, "status": error.http_status,
                                "message": error.user_message}}))
