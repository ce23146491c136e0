#!/usr/bin/python3
"""The caller in another language: a shop in Python that asks the sidecar over HTTP on its loopback port.

What a shop needs of this is `ask` and the order after it; the rest is the demo's traffic. Commands on stdin, one line
of JSON for each finished order, and the closing count are those of checkout.c. Standard library only.
"""
import argparse
import json
import random
import select
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

GIVE_UP_S = 30  # an order that could not be finished by then is reported as not completed
WRONG_ZIP_EVERY = 50
BEHIND_MAX_S = 0.2
# The loopback is never behind a proxy, whatever the environment says.
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def post(url, token_file, body):
    """(status, headers, body as JSON). The token is read each time: a sidecar that starts makes a new one."""
    request = urllib.request.Request(url, json.dumps(body).encode(), {
        "Content-Type": "application/json", "Authorization": "Bearer " + Path(token_file).read_text()})
    try:
        with DIRECT.open(request, timeout=3) as answer:
            return answer.status, answer.headers, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, json.load(error)


def ask(url, token_file, body, is_answer):
    """Ask until there is an answer: a sidecar that was killed is back in a moment, and a decision id asked about
    again is the same decision."""
    end = time.monotonic() + GIVE_UP_S
    while time.monotonic() < end:
        try:
            answer = post(url, token_file, body)
            if is_answer(answer):
                return answer
        except (OSError, ValueError):  # nobody there, cut off in the middle, or too slow
            pass
        time.sleep(0.1)
    return None


class Shop:
    def __init__(self, options):
        self.options = options
        self.places = [line.split() for line in Path(options.places).read_text().splitlines()]
        self.results = open(options.results, "a", buffering=1)
        self.started = 0

    def order(self):
        self.started += 1
        name, number = self.options.name, self.started
        zip_code, state = random.choice(self.places)
        if random.randrange(WRONG_ZIP_EVERY) == 0:
            zip_code = "99999"
        lines = []
        for i in range(random.randint(1, 4)):
            pieces, price = random.randint(1, 3), random.randint(199, 15198)
            amount = "%d.%02d" % divmod(pieces * price, 100)
            lines.append({"id": str(i + 1), "quantity": str(pieces), "amount": amount})
        quote = {"account": "taxcloud-demo", "integration": "web", "purpose": "order",
                 "decision_id": f"demo-{name}-{number}", "lines": lines,
                 "ship_from": {"country": "US", "state": "TX", "zip": "75201", "city": "Dallas",
                               "line1": "1500 Marilla St"},
                 "ship_to": {"country": "US", "state": state, "zip": zip_code, "city": "Anytown",
                             "line1": "1 Main St"}}
        asked = time.monotonic()
        answer = ask(self.options.url + "/spillway/v1/quote", self.options.token, quote,
                     lambda a: a[1].get("Spillway-Decision"))
        latency_us = round((time.monotonic() - asked) * 1e6)
        result = {"caller": name, "order_id": f"order-{name}-{number}", "completed": False, "decision": "none",
                  "type": "none", "cause": "none", "decision_id": quote["decision_id"], "quote_id": "", "flag_id": "",
                  "reason": "no answer", "tax_minor": 0, "latency_us": latency_us}
        if answer:
            self.place(answer[1], answer[2], result)
        self.results.write(json.dumps(result) + "\n")

    def place(self, headers, body, result):
        """The answer in the results' words, and the order where there is a tax to charge."""
        result["decision"] = headers["Spillway-Decision"]
        result["cause"] = headers.get("Spillway-Cause", "none")
        result["reason"] = headers.get("Spillway-Reason", "")
        result["completed"] = True
        if result["decision"] not in ("live", "fallback"):
            return  # the customer is asked to look at the address again
        result["quote_id"] = body["quote_id"]
        result["tax_minor"] = int(headers["Spillway-Tax-Minor"])
        if body["fallback"]:
            result["type"] = body["fallback"]["type"]
            result["flag_id"] = body["fallback"]["flag_id"] or ""
        placed = ask(self.options.url + "/spillway/v1/orders", self.options.token,
                     {"quote_id": body["quote_id"], "order_id": result["order_id"], "tax_collected": body["tax"]},
                     lambda a: a[0] == 202)
        result["completed"] = placed is not None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("name", "url", "token", "places", "results"):
        parser.add_argument("--" + name, required=True)
    shop = Shop(parser.parse_args())
    interval, due = 0, 0
    while True:
        wait = max(0, due - time.monotonic()) if interval else None
        if select.select([0], [], [], wait)[0]:
            command = sys.stdin.buffer.raw.readline().split()
            if not command:
                break
            rate = float(command[1])
            interval = 1 / rate if rate else 0
            due = time.monotonic() + interval * random.random()
        elif interval:
            shop.order()
            due = max(due + interval * random.uniform(0.5, 1.5), time.monotonic() - BEHIND_MAX_S)
    print(json.dumps({"started": shop.started}))


main()
