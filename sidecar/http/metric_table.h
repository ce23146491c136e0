/* metric_table.h: every metric there is: the one table that the exposition and docs/metrics.md are made from.
 *
 * Owns: names, types, units, labels, help. Called by: exposition.c, metrics.c, metrics_doc.py (which reads this file as
 * text: one SPW_METRIC a metric). Thread: any.
 *
 * Labels come from the configuration (account, limiter, source) and from closed lists (decision, type, outcome), never from
 * traffic: the number of series is fixed once the configuration is. The help says where the number comes from:
 * [segment] counts of shared memory over all processes, which outlive the sidecar; [doors] quotes and calls through this
 * sidecar since its start; [ledger] rows of the ledger's file; [sidecar] this process.
 *
 * SPW_METRIC(symbol, name, type, unit, labels, help)
 */
#ifndef SPW_HTTP_METRIC_TABLE_H
#define SPW_HTTP_METRIC_TABLE_H

/* A table is read row by row. */
/* clang-format off */
#define SPW_METRIC_TABLE(SPW_METRIC) \
SPW_METRIC(QUOTES, "spillway_quotes_total", COUNTER, "quotes", "account,decision", \
    "Quotes by decision. [doors]") \
SPW_METRIC(FALLBACKS, "spillway_fallbacks_total", COUNTER, "quotes", "account,type", \
    "Fallback answers by type. [doors]") \
SPW_METRIC(MATCHES, "spillway_fallback_matches_total", COUNTER, "quotes", "account,match", \
    "Fallback answers by how their rate was found. [doors]") \
SPW_METRIC(WITHOUT_CALL, "spillway_quotes_without_call_total", COUNTER, "quotes", "account,how", \
    "Quotes that needed no call of their own: joined, reused or repeated. [doors]") \
SPW_METRIC(LATENCY, "spillway_quote_seconds", HISTOGRAM, "seconds", "account,decision", \
    "Time from request to answer, by decision. [doors]") \
SPW_METRIC(ADMISSIONS, "spillway_admissions_total", COUNTER, "decisions", "account,outcome", \
    "Decisions of all processes by outcome: the demand that the limit meets. [segment]") \
SPW_METRIC(CALLS, "spillway_provider_requests_total", COUNTER, "calls", "account,result", \
    "Provider calls by outcome. [doors]") \
SPW_METRIC(RETRIES, "spillway_provider_retries_total", COUNTER, "calls", "account", \
    "Second attempts after a 429. [doors]") \
SPW_METRIC(UNEXPECTED, "spillway_provider_unexpected_429_total", COUNTER, "calls", "account", \
    "429 while the local bucket held tokens: somebody else uses the account, or its limit moved. [doors]") \
SPW_METRIC(LIMIT, "spillway_limit_per_second", GAUGE, "requests per second", "account,scope", \
    "Limit as configured (scope account), and what this pod obeys of it (scope pod: its share, or what was adopted from the provider's headers). [segment]") \
SPW_METRIC(OBSERVED, "spillway_observed_limit", GAUGE, "the provider's unit", "account", \
    "Limit last seen in the provider's headers; absent until there was one. [segment]") \
SPW_METRIC(MISMATCH, "spillway_limit_mismatch", GAUGE, "0 or 1", "account", \
    "1 while the limit in the provider's headers differs from the configured one. [segment]") \
SPW_METRIC(ADOPTED, "spillway_limit_adopted", GAUGE, "0 or 1", "account", \
    "1 while the pod obeys the lower limit of the provider's headers. [segment]") \
SPW_METRIC(TOKENS, "spillway_tokens", GAUGE, "tokens", "account", \
    "Tokens in hand in this pod's bucket. [segment]") \
SPW_METRIC(BURST, "spillway_bucket_burst", GAUGE, "tokens", "account", \
    "Tokens that this pod's bucket holds when full. [segment]") \
SPW_METRIC(LIMITER_TOKENS, "spillway_limiter_tokens", GAUGE, "tokens", "account,limiter", \
    "Tokens in hand in each limiter of the account's list. [segment]") \
SPW_METRIC(SWITCH, "spillway_limiter_switch", GAUGE, "0 or 1", "account,limiter,switch", \
    "1 while a limiter is off (kill) or only counts (observe). [segment]") \
SPW_METRIC(BREAKER, "spillway_breaker_state", GAUGE, "0 or 1", "account,state", \
    "1 for the state of the circuit breaker; forced open is open, forced closed, disabled and observe are closed. [segment]") \
SPW_METRIC(BREAKER_SWITCH, "spillway_breaker_switch", GAUGE, "0 or 1", "account,switch", \
    "1 while the breaker is forced open or closed, disabled, or only counts (observe). [segment]") \
SPW_METRIC(BREAKER_OPEN, "spillway_breaker_open_seconds", GAUGE, "seconds", "account", \
    "How much longer the breaker lets nobody call; 0 = closed, or the next call is the probe; +Inf = forced open. [segment]") \
SPW_METRIC(TRIPS, "spillway_breaker_trips", GAUGE, "trips", "account", \
    "Times in a row that the breaker opened without closing in between. [segment]") \
SPW_METRIC(GATE, "spillway_gate_shut_seconds", GAUGE, "seconds", "account", \
    "How much longer the gate stays shut; 0 = open. [segment]") \
SPW_METRIC(HEALED, "spillway_healed_words_total", COUNTER, "words", "account", \
    "Impossible bucket words replaced by an empty bucket. [segment]") \
SPW_METRIC(ORDERS, "spillway_orders", GAUGE, "orders", "state", \
    "Orders in the ledger by state; a cancelled one can be placed again. [ledger]") \
SPW_METRIC(PLACED_ORDERS, "spillway_orders_placed_total", COUNTER, "orders", "account,decision,type", \
    "Orders placed since the start, by the decision of their quote and its type; account unknown: a live quote that nobody remembers. [ledger]") \
SPW_METRIC(SHARE, "spillway_placed_fallback_ratio", GAUGE, "ratio", "", \
    "Share of the orders placed in the sliding window that were placed on a fallback. [ledger]") \
SPW_METRIC(PLACED, "spillway_placed_in_window", GAUGE, "orders", "answer", \
    "Orders placed in the sliding window, by answer. [ledger]") \
SPW_METRIC(ALERT, "spillway_placed_fallback_alert", GAUGE, "0 or 1", "", \
    "1 while that share is above fallback.alert.share and its minimum, in this pod. [ledger]") \
SPW_METRIC(FLAGS, "spillway_flags", GAUGE, "rows", "state", \
    "Fallback flags by state. [ledger]") \
SPW_METRIC(ONLY_IN_POD, "spillway_flags_only_in_pod", GAUGE, "rows", "", \
    "Flags that no consumer has acknowledged as they are now. [ledger]") \
SPW_METRIC(ONLY_IN_POD_AGE, "spillway_oldest_only_in_pod_seconds", GAUGE, "seconds", "", \
    "How long the one of them that waits longest has been as it is; 0 = none waits. [ledger]") \
SPW_METRIC(RECONCILE, "spillway_flags_reconciliation", GAUGE, "rows", "state", \
    "Fallback flags by state of reconciliation. [ledger]") \
SPW_METRIC(OLDEST, "spillway_oldest_unreconciled_seconds", GAUGE, "seconds", "", \
    "How long ago the oldest order was placed whose fallback waits to be reconciled; 0 = none waits. [ledger]") \
SPW_METRIC(BACKLOG, "spillway_reconcile_backlog", GAUGE, "rows", "account,what", \
    "What waits to be reconciled (pending) or filed (filings), and what is under way now; absent without a section reconcile. [ledger]") \
SPW_METRIC(LATE, "spillway_reconcile_late", GAUGE, "0 or 1", "account", \
    "1 while the oldest row is, or with the capacity that checkout leaves will be, older than reconcile.within. [sidecar]") \
SPW_METRIC(FORECAST, "spillway_reconcile_forecast_seconds", GAUGE, "seconds", "account", \
    "How long the backlog takes with the capacity that checkout leaves; +Inf = none is left. [sidecar]") \
SPW_METRIC(RECONCILED, "spillway_reconcile_events_total", COUNTER, "events", "account,what", \
    "Calls of reconciliation, second attempts, rows reconciled, rows filed, filings given up. [sidecar]") \
SPW_METRIC(VARIANCE, "spillway_variance_minor_total", COUNTER, "minor units", "kind,direction", \
    "Collected minus live tax of what was reconciled since the start, by what it is made of; over = too much was collected. [ledger]") \
SPW_METRIC(FILING, "spillway_flags_filing", GAUGE, "rows", "state", \
    "Fallback flags by state of filing. [ledger]") \
SPW_METRIC(ORPHANS, "spillway_ledger_orphans", GAUGE, "rows", "", \
    "Rows that contradict their orders; 0 when healthy. [ledger]") \
SPW_METRIC(STUCK, "spillway_ledger_stuck_rows", GAUGE, "rows", "", \
    "Rows that wait longer than they should; 0 when healthy. [ledger]") \
SPW_METRIC(COMMITS, "spillway_store_commit_failures_total", COUNTER, "commits", "", \
    "Commits of the ledger that failed; nothing is lost. [ledger]") \
SPW_METRIC(DAMAGED, "spillway_store_damaged_cells_total", COUNTER, "cells", "", \
    "Cells whose content made no sense. [ledger]") \
SPW_METRIC(WRITABLE, "spillway_store_writable", GAUGE, "0 or 1", "", \
    "1 when the ledger's last commit went through. [ledger]") \
SPW_METRIC(SPOOL, "spillway_spool_lines_total", COUNTER, "lines", "result", \
    "Lines of handed-back flags read from the spool directory: imported, known before, or bad. [sidecar]") \
SPW_METRIC(CONTROL, "spillway_control_calls_total", COUNTER, "calls", "result", \
    "Calls of the control API that ended: answered, invalid (the request made no sense, or is based on another version), denied (no such method for this caller, or too much at once) or failed. [sidecar]") \
SPW_METRIC(CELLS, "spillway_cells", GAUGE, "cells", "what", \
    "Flag cells of the segment, all and busy. [segment]") \
SPW_METRIC(ATTACHED, "spillway_attached_processes", GAUGE, "processes", "", \
    "Checkout processes attached to the segment. [segment]") \
SPW_METRIC(RATES, "spillway_rate_records", GAUGE, "records", "what", \
    "Records of the rate table and learned rates, in use and capacity. [segment]") \
SPW_METRIC(RATES_LEARNED, "spillway_rate_learned_total", COUNTER, "records", "what", \
    "Live answers learned from, learned rates evicted. [segment]") \
SPW_METRIC(RATE_AGE, "spillway_rate_age_seconds", GAUGE, "seconds", "source", \
    "Age of a source of the rate table since its as_of date. [segment]") \
SPW_METRIC(RATE_WARN, "spillway_rate_age_warn_seconds", GAUGE, "seconds", "", \
    "fallback.max_age.warn: older rates are served and marked stale. [sidecar]") \
SPW_METRIC(RATE_REFUSE, "spillway_rate_age_refuse_seconds", GAUGE, "seconds", "", \
    "fallback.max_age.refuse: older rates are not served. [sidecar]") \
SPW_METRIC(REFRESH_AGE, "spillway_rate_refresh_age_seconds", GAUGE, "seconds", "account", \
    "Since the table of fallback.refresh that is kept was fetched; absent until there is one. [sidecar]") \
SPW_METRIC(REFRESHES, "spillway_rate_refreshes_total", COUNTER, "fetches", "account,outcome", \
    "Fetches of published rates since the start, by outcome. [sidecar]") \
SPW_METRIC(BACKEND, "spillway_loop_backend", GAUGE, "0 or 1", "backend", \
    "1 for the event loop's back-end in use. [sidecar]") \
SPW_METRIC(LOOP_INFO, "spillway_loop_info", GAUGE, "1", "backend,reason", \
    "The back-end in use, and why this one. [sidecar]") \
SPW_METRIC(LAG, "spillway_loop_lag_seconds", GAUGE, "seconds", "", \
    "Longest of the last 64 turns of the event loop. [sidecar]") \
SPW_METRIC(RELOADS, "spillway_config_reloads_total", COUNTER, "reloads", "", \
    "Reloads of the configuration that were taken. [sidecar]") \
SPW_METRIC(RELOAD_FAILURES, "spillway_config_reload_failures_total", COUNTER, "reloads", "", \
    "Reloads of the configuration that were refused; the one before stayed in force. [sidecar]") \
SPW_METRIC(RELOAD_SUCCESSFUL, "spillway_config_last_reload_successful", GAUGE, "0 or 1", "", \
    "0 while the configuration's file is one that was refused: the one before is in force, until the next start. [sidecar]") \
SPW_METRIC(RELOADED, "spillway_config_last_reload_success_seconds", GAUGE, "seconds", "", \
    "When the configuration in force was last read with success, since 1970. [sidecar]") \
SPW_METRIC(BUILD, "spillway_build_info", GAUGE, "1", "version,segment", \
    "Version; how the segment came about. [sidecar]")
/* clang-format on */

#endif
