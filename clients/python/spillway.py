"""A quote from Spillway for Python 3.8 or later, without a package. Environment: SPILLWAY_URL, SPILLWAY_TOKEN_FILE, and
SPILLWAY_SPOOL, a file such as /run/spillway/spool/web.jsonl. None: the shop's last resort is to be used."""
import json
import os
import time
import urllib.request


class Rejected(Exception):
    """The request is wrong (an address, a code): ask the customer, charge nothing."""


LOCAL = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # never through a proxy of the environment


# caller:
def quote(request):
    try:
        with open(os.environ["SPILLWAY_TOKEN_FILE"]) as file:
            headers = {"Authorization": "Bearer " + file.read().strip()}
        body = json.load(LOCAL.open(urllib.request.Request(
            os.environ["SPILLWAY_URL"] + "/spillway/v1/quote", json.dumps(request).encode(), headers), timeout=2.5))
        line = (body["fallback"] or {}).get("handback")  # no ledger had room for the flag: it is ours to keep
    except Exception as error:
        if getattr(error, "code", 0) == 422:
            raise Rejected(error.read().decode()) from None
        body, line = None, {"unquoted": request, "at": time.time(), "why": str(error)}
    if line:
        with open(os.environ["SPILLWAY_SPOOL"], "a") as spool:
            spool.write(json.dumps(line) + "\n")
    return body
# :caller


if __name__ == "__main__":  # a request a line
    import sys
    for text in sys.stdin:
        try:
            print(json.dumps(quote(json.loads(text))))
        except Rejected as error:
            print("rejected", error)
