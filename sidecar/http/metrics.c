/* metrics.c: the exposition of /metrics, from one table of families.
 *
 * Owns: metric names, types, units, help. Called by: admin.c. Thread: the loop thread.
 *
 * Labels come from the configuration (account, provider) and from closed lists (decision, type, result), never from
 * traffic: the number of series is fixed once the configuration is.
 */
#include "sidecar/http/admin.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* X(symbol, name, type, help) */
#define FAMILIES(X)                                                                                          \
    X(DECISIONS, "spillway_quotes_total", "counter", "Quotes by decision, through the sidecar's doors.")     \
    X(FALLBACKS, "spillway_fallbacks_total", "counter",                                                      \
      "Fallback answers by type, through the sidecar's doors.")                                              \
    X(ADMISSIONS, "spillway_admissions_total", "counter",                                                    \
      "Decisions in the segment over all processes, by outcome.")                                            \
    X(CALLS, "spillway_provider_requests_total", "counter", "Provider calls by outcome.")                    \
    X(RETRIES, "spillway_provider_retries_total", "counter", "Second attempts after a 429.")                 \
    X(WITHOUT_CALL, "spillway_quotes_without_call_total", "counter",                                         \
      "Quotes that needed no call of their own: joined, reused or repeated.")                                \
    X(UNEXPECTED, "spillway_provider_unexpected_429_total", "counter",                                       \
      "429 while the local bucket held tokens: somebody else uses the account, or its limit moved.")         \
    X(LATENCY, "spillway_quote_seconds", "histogram",                                                        \
      "Time from request to answer at the doors, by decision.")                                              \
    X(LIMIT, "spillway_limit_per_second", "gauge",                                                           \
      "Requests a second: configured for the account, and this pod's share.")                                \
    X(OBSERVED, "spillway_observed_limit", "gauge",                                                          \
      "Limit last seen in the provider's headers (their unit).")                                             \
    X(TOKENS, "spillway_tokens", "gauge", "Tokens in hand in this pod's bucket.")                            \
    X(BREAKER, "spillway_breaker_state", "gauge", "1 for the state the circuit breaker is in.")              \
    X(GATE, "spillway_gate_shut_seconds", "gauge", "How much longer the gate stays shut; 0 = open.")         \
    X(HEALED, "spillway_healed_words_total", "counter",                                                      \
      "Impossible bucket words replaced by an empty bucket.")                                                \
    X(FLAGS, "spillway_flags", "gauge", "Fallback flags in the ledger, by state.")                           \
    X(ONLY_IN_POD, "spillway_flags_only_in_pod", "gauge",                                                    \
      "Flags that no consumer has acknowledged as they are now.")                                            \
    X(RECONCILE, "spillway_flags_reconciliation", "gauge",                                                   \
      "Fallback flags in the ledger, by state of reconciliation.")                                           \
    X(FILING, "spillway_flags_filing", "gauge", "Fallback flags in the ledger, by state of filing.")         \
    X(ORPHANS, "spillway_ledger_orphans", "gauge", "Rows that contradict their orders; 0 when healthy.")     \
    X(STUCK, "spillway_ledger_stuck_rows", "gauge",                                                          \
      "Rows that wait longer than they should; 0 when healthy.")                                             \
    X(SHARE, "spillway_placed_fallback_ratio", "gauge",                                                      \
      "Share of the orders placed in the sliding window that were placed on a fallback.")                    \
    X(PLACED, "spillway_placed_in_window", "gauge", "Orders placed in the sliding window, by answer.")       \
    X(ALERT, "spillway_placed_fallback_alert", "gauge",                                                      \
      "1 while that share is above fallback.alert.share and its minimum.")                                   \
    X(ORDERS, "spillway_orders_total", "counter", "Orders told to the ledger, by event.")                    \
    X(COMMITS, "spillway_store_commit_failures_total", "counter",                                            \
      "Commits of the ledger that failed; nothing is lost.")                                                 \
    X(DAMAGED, "spillway_store_damaged_cells_total", "counter", "Cells whose content made no sense.")        \
    X(WRITABLE, "spillway_store_writable", "gauge", "1 when the ledger's last commit went through.")         \
    X(CELLS, "spillway_cells", "gauge", "Flag cells of the segment, all and busy.")                          \
    X(ATTACHED, "spillway_attached_processes", "gauge", "Processes attached to the segment.")                \
    X(RATES, "spillway_rate_records", "gauge",                                                               \
      "Records of the rate table and learned rates, in use and capacity.")                                   \
    X(RATES_LEARNED, "spillway_rate_learned_total", "counter",                                               \
      "Live answers learned from, learned rates evicted.")                                                   \
    X(RATES_AGE, "spillway_rate_source_age_days", "gauge",                                                   \
      "Age of each source of the rate table by its as_of.")                                                  \
    X(RATE_AGE, "spillway_rate_age_seconds", "gauge",                                                        \
      "Age of a source of the rate table since its as_of date.")                                             \
    X(BACKEND, "spillway_loop_backend", "gauge", "1 for the event loop's back-end in use.")                  \
    X(LOOP_INFO, "spillway_loop_info", "gauge", "The back-end in use, and why this one.")                    \
    X(LAG, "spillway_loop_lag_seconds", "gauge", "Longest of the last 64 turns of the event loop.")          \
    X(BUILD, "spillway_build_info", "gauge", "Version and layout; how the segment came about.")

#define FAMILY_ENUM(symbol, name, type, help) M_##symbol,
enum family { FAMILIES(FAMILY_ENUM) M_COUNT };
#undef FAMILY_ENUM
static const struct {
    const char *name, *type, *help;
} family[M_COUNT] = {
#define FAMILY_ROW(symbol, name, type, help) {name, type, help},
    FAMILIES(FAMILY_ROW)
#undef FAMILY_ROW
};

static void begin(FILE *out, enum family f)
{
    fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", family[f].name, family[f].help, family[f].name,
            family[f].type);
}

/* The three escapes of label values. */
static void label_value(FILE *out, const char *value)
{
    for (; *value; value++) {
        if (*value == '\\' || *value == '"')
            fputc('\\', out);
        if (*value == '\n')
            fputs("\\n", out);
        else
            fputc(*value, out);
    }
}

/* One sample; labels are name, value pairs ended by NULL. */
static void sample(FILE *out, const char *name, double value, ...)
{
    va_list labels;
    const char *label, *separator = "{";
    fputs(name, out);
    va_start(labels, value);
    while ((label = va_arg(labels, const char *)) != NULL) {
        fprintf(out, "%s%s=\"", separator, label);
        label_value(out, va_arg(labels, const char *));
        fputc('"', out);
        separator = ",";
    }
    va_end(labels);
    fprintf(out, "%s %.15g\n", *separator == ',' ? "}" : "", value);
}

static void put(FILE *out, enum family f, double value, const char *label, const char *is, const char *label2,
                const char *is2)
{
    sample(out, family[f].name, value, label, is, label2, is2, NULL);
}

static double per_second(const struct spw_rate *rate)
{
    return rate->period_ns ? (double)rate->tokens_count * 1e9 / (double)rate->period_ns : 0;
}

/* ---- by account ---- */

static void decisions(FILE *out, const char *account, const struct spw_decider_counters *c)
{
    for (uint32_t i = 0; i < SPW_DECISION_COUNT; i++)
        put(out, M_DECISIONS, (double)c->decisions[i], "account", account, "decision", spw_decision_name(i));
}

static void fallbacks(FILE *out, const char *account, const struct spw_decider_counters *c)
{
    for (uint32_t i = 1; i < SPW_FALLBACK_COUNT; i++)
        put(out, M_FALLBACKS, (double)c->fallbacks[i], "account", account, "type", spw_fallback_name(i));
}

static void calls(FILE *out, const char *account, const struct spw_decider_counters *c)
{
    static const char *const name[SPW_CALL_RESULTS] = {"ok",     "throttled", "rejected", "error",
                                                       "broken", "timeout",   "connect"};
    for (uint32_t i = 0; i < SPW_CALL_RESULTS; i++)
        put(out, M_CALLS, (double)c->calls[i], "account", account, "result", name[i]);
}

static void retries(FILE *out, const char *account, const struct spw_decider_counters *c)
{
    put(out, M_RETRIES, (double)c->retries, "account", account, NULL, NULL);
}

static void without_call(FILE *out, const char *account, const struct spw_decider_counters *c)
{
    put(out, M_WITHOUT_CALL, (double)c->joined, "account", account, "how", "joined");
    put(out, M_WITHOUT_CALL, (double)c->reused, "account", account, "how", "reused");
    put(out, M_WITHOUT_CALL, (double)c->repeated, "account", account, "how", "repeated");
}

static void unexpected(FILE *out, const char *account, const struct spw_decider_counters *c)
{
    put(out, M_UNEXPECTED, (double)c->unexpected_429, "account", account, NULL, NULL);
}

static void latency(FILE *out, const char *account, const struct spw_decider_counters *c)
{
    for (uint32_t d = 0; d < SPW_DECISION_COUNT; d++) {
        uint64_t sum = 0;
        for (uint32_t b = 0; b <= SPW_LATENCY_BUCKETS; b++) {
            char le[32] = "+Inf";
            sum += c->latency[d][b];
            if (b < SPW_LATENCY_BUCKETS)
                snprintf(le, sizeof le, "%g", spw_latency_bounds_s[b]);
            sample(out, "spillway_quote_seconds_bucket", (double)sum, "account", account, "decision",
                   spw_decision_name(d), "le", le, NULL);
        }
        sample(out, "spillway_quote_seconds_sum", (double)c->latency_sum_us[d] / 1e6, "account", account,
               "decision", spw_decision_name(d), NULL);
        sample(out, "spillway_quote_seconds_count", (double)sum, "account", account, "decision",
               spw_decision_name(d), NULL);
    }
}

typedef void counter_fn(FILE *out, const char *account, const struct spw_decider_counters *c);

static void by_counters(FILE *out, const struct spw_admin_options *s, enum family f, counter_fn *fn)
{
    begin(out, f);
    for (uint32_t i = 0; i < s->conf->accounts_count; i++) {
        const char *account = s->conf->accounts[i].name;
        const struct spw_decider_counters *c = spw_decider_counters(s->decider, account);
        if (c)
            fn(out, account, c);
    }
}

static void admissions(FILE *out, const char *account, const struct spw_account_status *a)
{
    static const char *const name[SPW_STAT_USED] = {
        "allow",      "deny-bucket", "deny-gate",       "deny-breaker",   "deny-concurrency",
        "deny-other", "observed",    "client-fallback", "client-no-rate", "flag-refused"};
    for (uint32_t i = 0; i < SPW_STAT_USED; i++)
        put(out, M_ADMISSIONS, (double)a->decisions[i], "account", account, "outcome", name[i]);
}

static void limits(FILE *out, const char *account, const struct spw_account_status *a)
{
    put(out, M_LIMIT, per_second(&a->limit.limit.rate), "account", account, "scope", "account");
    put(out, M_LIMIT, per_second(&a->limit.pod_rate), "account", account, "scope", "pod");
}

static void observed(FILE *out, const char *account, const struct spw_account_status *a)
{
    if (a->limit.observed_limit_known)
        put(out, M_OBSERVED, (double)a->limit.observed_limit_count, "account", account, NULL, NULL);
}

static void tokens(FILE *out, const char *account, const struct spw_account_status *a)
{
    put(out, M_TOKENS, (double)a->limit.tokens_milli / 1000, "account", account, NULL, NULL);
}

static void breaker(FILE *out, const char *account, const struct spw_account_status *a)
{
    static const char *const name[] = {"closed", "open", "half-open"};
    for (uint32_t i = 0; i < 3; i++)
        put(out, M_BREAKER, strcmp(a->breaker.state, name[i]) == 0, "account", account, "state", name[i]);
}

static void gate(FILE *out, const char *account, const struct spw_account_status *a)
{
    put(out, M_GATE, (double)a->breaker.gate_shut_for_ms / 1000, "account", account, NULL, NULL);
}

static void healed(FILE *out, const char *account, const struct spw_account_status *a)
{
    put(out, M_HEALED, (double)a->limit.healed_count, "account", account, NULL, NULL);
}

typedef void account_fn(FILE *out, const char *account, const struct spw_account_status *a);

static void by_account(FILE *out, const struct spw_admin_options *s, enum family f, account_fn *fn)
{
    begin(out, f);
    for (uint32_t i = 0; i < SPW_CONF_ACCOUNTS_MAX_COUNT; i++) {
        struct spw_account_status a;
        if (spw_state_account_status(s->state, i, spw_loop_now_ns(s->loop), &a) == SPW_STATUS_OK)
            fn(out, a.limit.account, &a);
    }
}

/* ---- by process ---- */

static void ledger(FILE *out, const struct spw_admin_options *s)
{
    struct spw_store_counts c;
    spw_store_counts(s->store, &c);
    begin(out, M_FLAGS);
    for (uint32_t i = 0; i < SPW_FLAG_STATES; i++)
        put(out, M_FLAGS, (double)c.by_state[i], "state", spw_flag_state_name(i), NULL, NULL);
    begin(out, M_ONLY_IN_POD);
    put(out, M_ONLY_IN_POD, (double)c.unacknowledged_count, NULL, NULL, NULL, NULL);
    begin(out, M_RECONCILE);
    for (uint32_t i = 1; i < SPW_RECONCILE_STATES; i++)
        put(out, M_RECONCILE, (double)c.by_reconcile[i], "state", spw_reconcile_state_name(i), NULL, NULL);
    begin(out, M_FILING);
    for (uint32_t i = 1; i < SPW_FILING_STATES; i++)
        put(out, M_FILING, (double)c.by_filing[i], "state", spw_filing_state_name(i), NULL, NULL);
    begin(out, M_ORPHANS);
    put(out, M_ORPHANS, (double)c.orphans_count, NULL, NULL, NULL, NULL);
    begin(out, M_STUCK);
    put(out, M_STUCK, (double)c.stuck_count, NULL, NULL, NULL, NULL);
    begin(out, M_SHARE);
    put(out, M_SHARE, (double)c.window_share_ppm / 1e6, NULL, NULL, NULL, NULL);
    begin(out, M_PLACED);
    put(out, M_PLACED, (double)(c.window_placed_count - c.window_flagged_count), "answer", "live", NULL,
        NULL);
    put(out, M_PLACED, (double)c.window_flagged_count, "answer", "fallback", NULL, NULL);
    begin(out, M_ALERT);
    put(out, M_ALERT, c.alert_on, NULL, NULL, NULL, NULL);
    begin(out, M_ORDERS);
    put(out, M_ORDERS, (double)c.orders_placed_count, "event", "placed", NULL, NULL);
    put(out, M_ORDERS, (double)c.orders_cancelled_count, "event", "cancelled", NULL, NULL);
    begin(out, M_COMMITS);
    put(out, M_COMMITS, (double)c.commit_failures_count, NULL, NULL, NULL, NULL);
    begin(out, M_DAMAGED);
    put(out, M_DAMAGED, (double)c.damaged_count, NULL, NULL, NULL, NULL);
    begin(out, M_WRITABLE);
    put(out, M_WRITABLE, c.writable, NULL, NULL, NULL, NULL);
}

static void segment(FILE *out, const struct spw_admin_options *s)
{
    struct spw_state_status st;
    spw_state_status(s->state, &st);
    begin(out, M_CELLS);
    put(out, M_CELLS, st.cells_count, "what", "all", NULL, NULL);
    put(out, M_CELLS, st.cells_busy_count, "what", "busy", NULL, NULL);
    begin(out, M_ATTACHED);
    put(out, M_ATTACHED, st.attached_count, NULL, NULL, NULL, NULL);
    begin(out, M_BUILD);
    sample(out, family[M_BUILD].name, 1.0, "version", SPW_VERSION, "segment", st.origin, NULL);
}

static void rates(FILE *out, const struct spw_admin_options *s)
{
    struct spw_rates_view v;
    double now_s = (double)spw_wall_ms() / 1000;
    spw_state_rates_view(s->state, &v);
    begin(out, M_RATES);
    put(out, M_RATES, v.records_count, "what", "used", NULL, NULL);
    put(out, M_RATES, v.capacity_count, "what", "capacity", NULL, NULL);
    put(out, M_RATES, v.replaced_count, "what", "replaced", NULL, NULL);
    put(out, M_RATES, v.learned_count, "what", "learned", NULL, NULL);
    put(out, M_RATES, v.learned_capacity_count, "what", "learned-capacity", NULL, NULL);
    begin(out, M_RATES_LEARNED);
    put(out, M_RATES_LEARNED, (double)v.learned_total, "what", "answers", NULL, NULL);
    put(out, M_RATES_LEARNED, (double)v.learned_evicted_total, "what", "evicted", NULL, NULL);
    begin(out, M_RATE_AGE);
    for (uint32_t i = 0; i < v.sources_count; i++)
        put(out, M_RATE_AGE, now_s - (double)v.sources[i].as_of_day * 86400, "source", v.sources[i].name,
            NULL, NULL);
}

static void loop(FILE *out, const struct spw_admin_options *s)
{
    static const char *const name[] = {"io_uring", "epoll"};
    begin(out, M_BACKEND);
    for (int i = 0; i < 2; i++)
        put(out, M_BACKEND, strcmp(spw_loop_backend_name(s->loop), name[i]) == 0, "backend", name[i], NULL,
            NULL);
    begin(out, M_LOOP_INFO);
    put(out, M_LOOP_INFO, 1, "backend", spw_loop_backend_name(s->loop), "reason",
        spw_loop_backend_reason(s->loop));
    begin(out, M_LAG);
    put(out, M_LAG, (double)spw_loop_lag_ns(s->loop) / 1e9, NULL, NULL, NULL, NULL);
}

char *spw_metrics_text(const struct spw_admin_options *s)
{
    char *buffer = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&buffer, &bytes);
    if (!out)
        return NULL;
    by_counters(out, s, M_DECISIONS, decisions);
    by_counters(out, s, M_FALLBACKS, fallbacks);
    by_account(out, s, M_ADMISSIONS, admissions);
    by_counters(out, s, M_CALLS, calls);
    by_counters(out, s, M_RETRIES, retries);
    by_counters(out, s, M_WITHOUT_CALL, without_call);
    by_counters(out, s, M_UNEXPECTED, unexpected);
    by_counters(out, s, M_LATENCY, latency);
    by_account(out, s, M_LIMIT, limits);
    by_account(out, s, M_OBSERVED, observed);
    by_account(out, s, M_TOKENS, tokens);
    by_account(out, s, M_BREAKER, breaker);
    by_account(out, s, M_GATE, gate);
    by_account(out, s, M_HEALED, healed);
    ledger(out, s);
    segment(out, s);
    rates(out, s);
    loop(out, s);
    if (fclose(out) != 0) {
        free(buffer);
        return NULL;
    }
    return buffer;
}
