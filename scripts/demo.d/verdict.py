"""What came of it: the numbers of a run, and the identities that must hold."""
import collections
import math

FALLBACKS = ("rate-limit-proactive", "rate-limit-429", "circuit-breaker-open", "provider-timeout", "provider-error",
             "sidecar-unavailable")


def percentile_ms(latencies_us, percent):
    """Nearest rank; None of nothing."""
    if not latencies_us:
        return None
    return round(sorted(latencies_us)[math.ceil(len(latencies_us) * percent / 100) - 1] / 1000, 3)


def latency(results, decision):
    took = [r["latency_us"] for r in results if r["decision"] == decision]
    return {"p50": percentile_ms(took, 50), "p99": percentile_ms(took, 99)}


def numbers(results, exported, stats):
    """The record of a run. results: finished orders; exported: rows of the ledger; stats: the provider's."""
    decisions = collections.Counter(r["decision"] for r in results)
    types = collections.Counter(r["type"] for r in results if r["decision"] == "fallback")
    return {
        "orders": sum(1 for r in results if r["completed"]),
        "live": decisions["live"],
        "fallback": {kind: types[kind] for kind in FALLBACKS},
        "rejected": decisions["rejected"],
        "none": decisions["none"],
        "flags_written": len({r["flag_id"] for r in results if r["flag_id"]}),
        "flags_exported": len(exported),
        "provider_requests": stats["requests_total"],
        "provider_429": stats["by_status"].get("429", 0),
        "max_provider_rps": stats["max_per_second"],
        "provider_over_limit": stats["over_limit"],
        "quote_latency_ms": {"live": latency(results, "live"), "fallback": latency(results, "fallback")},
    }


def some(names):
    """A few of many."""
    names = sorted(names)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def check_orders(run, results, started):
    unfinished = [r["order_id"] for r in results if not r["completed"]]
    parts = [run["live"], sum(run["fallback"].values()), run["rejected"], run["none"]]
    yield ("every order completed", None if started == run["orders"] == len(results) else
           f"{started} begun, {len(results)} ended, {run['orders']} completed; "
           f"not completed: {some(unfinished) or '-'}")
    yield ("orders = live + fallback + rejected + none", None if run["orders"] == sum(parts) else
           f"{run['orders']} is not {' + '.join(map(str, parts))}")


def check_flags(run, results, exported):
    given = [r["flag_id"] for r in results if r["decision"] == "fallback"]
    found = [row["flag_id"] for row in exported]
    wrong = []
    if "" in given:
        wrong.append(f"{given.count('')} fallbacks without a flag id")
    for what, ids in (("given out twice", given), ("exported twice", found)):
        twice = [one for one, count in collections.Counter(ids).items() if count > 1 and one]
        if twice:
            wrong.append(f"{what}: {some(twice)}")
    if set(given) - set(found):
        wrong.append(f"delivered but not exported: {some(set(given) - set(found))}")
    if set(found) - set(given):
        wrong.append(f"exported but never delivered: {some(set(found) - set(given))}")
    if not run["flags_written"] == run["flags_exported"] == sum(run["fallback"].values()):
        wrong.append(f"{run['flags_written']} written, {run['flags_exported']} exported, "
                     f"{sum(run['fallback'].values())} fallbacks")
    yield ("each delivered fallback has exactly one exported flag", "; ".join(wrong) or None)


def money(minor):
    return "%d.%02d" % divmod(minor, 100)


def check_content(results, exported):
    """The flag says what the customer was told and charged."""
    rows = {row["flag_id"]: row for row in exported}
    wrong = []
    for r in results:
        row = rows.get(r["flag_id"])
        if r["decision"] != "fallback" or not row:
            continue
        order = row.get("order") or {}
        tax = money(r["tax_minor"])
        told = (r["type"], r["decision_id"], r["quote_id"], tax, r["order_id"], tax)
        kept = (row["type"], row["decision_id"], row["quote_id"], row["tax"]["amount"], order.get("order_id"),
                (order.get("tax_collected") or {}).get("amount"))
        if told != kept:
            wrong.append(f"{r['flag_id']}: told {told}, kept {kept}")
    yield ("each flag holds what its customer was told, and the order's tax", some(wrong) or None)


def check_provider(stats, rate_per_s, burst):
    over, most = stats["over_limit"], stats["max_per_second"]
    yield ("the provider never saw more than its limit allows", None if over == 0 and most <= rate_per_s + burst else
           f"{over} requests refused by its own limit; {most} in one second, {rate_per_s} + {burst} allowed")


def check(run, results, started, exported, stats, rate_per_s, burst):
    """(what, fault or None) for every identity."""
    return [*check_orders(run, results, started), *check_flags(run, results, exported),
            *check_content(results, exported), *check_provider(stats, rate_per_s, burst)]
