"""TaxJar's Python SDK as its manual says: api_url is the door, the token stands for the API key."""
import json
import os
import sys

import taxjar

action, *words = sys.argv[1:]
client = taxjar.Client(api_key=os.environ["TOKEN"], api_url=os.environ["DOOR"])
PLACE = {"from_country": "US", "from_zip": "75201", "from_state": "TX", "from_city": "Dallas", "to_country": "US",
         "to_zip": "98110-1234", "to_state": "WA", "to_city": "Bainbridge Island", "to_street": "100 Ravine Ln NE"}
ITEMS = [{"id": "1", "quantity": 1, "unit_price": 39.98}]
try:
    if action == "calculate":
        answer = client.tax_for_order({**PLACE, "shipping": 0, "line_items": ITEMS})
        print(json.dumps({"ok": {"amount_to_collect": answer.amount_to_collect, "rate": answer.rate}}))
    else:
        answer = client.create_order({**PLACE, "transaction_id": words[0], "transaction_date": "2025-11-28",
                                      "amount": 39.98, "shipping": 0, "sales_tax": 3.68, "line_items": ITEMS})
        print(json.dumps({"ok": {"transaction_id": answer.transaction_id}}))
except taxjar.exceptions.TaxJarResponseError as error:
    print(json.dumps({"error": {"status": error.full_response["response"]["status"],
                                "detail": error.full_response["response"]["detail"]}}))
