/* metrics.c: where the numbers of /metrics come from, family by family of metric_table.h.
 *
 * Owns: nothing. Called by: admin.c. Thread: the loop thread.
 *
 * Everything is read once a scrape; the store's numbers are a copy that its thread made, so a scrape waits for no disk.
 */
#include "sidecar/http/admin.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sidecar/http/exposition.h"
#include "sidecar/reconcile/engine.h"

/* One scrape. */
struct scrape {
    FILE *out;
    const struct spw_admin_options *from;
    uint64_t now_ns;
    uint32_t accounts_count;
    struct spw_account_status accounts[SPW_CONF_ACCOUNTS_MAX_COUNT];
    struct spw_store_counts ledger;
    struct spw_store_watched watched;
    struct spw_rates_view rates;
    struct spw_state_status segment;
};

static double per_second(const struct spw_rate *rate)
{
    return rate->period_ns ? (double)rate->tokens_count * 1e9 / (double)rate->period_ns : 0;
}

#define PUT(metric, ...)       spw_metric_put(s->out, SPW_METRIC_##metric, __VA_ARGS__)
#define BEGIN(metric)          spw_metric_begin(s->out, SPW_METRIC_##metric)
#define PUT_ONE(metric, value) (BEGIN(metric), PUT(metric, value))

/* ---- what passed the doors ---- */

typedef void counters_fn(const struct scrape *s, const char *account, const struct spw_decider_counters *c);

static void by_counters(const struct scrape *s, enum spw_metric metric, counters_fn *fn)
{
    spw_metric_begin(s->out, metric);
    for (uint32_t i = 0; i < s->from->conf->accounts_count; i++) {
        const char *account = s->from->conf->accounts[i].name;
        const struct spw_decider_counters *c = spw_decider_counters(s->from->decider, account);
        if (c)
            fn(s, account, c);
    }
}

static void quotes(const struct scrape *s, const char *account, const struct spw_decider_counters *c)
{
    for (uint32_t i = 0; i < SPW_DECISION_COUNT; i++)
        PUT(QUOTES, (double)c->decisions[i], account, spw_decision_name(i));
}

static void fallbacks(const struct scrape *s, const char *account, const struct spw_decider_counters *c)
{
    for (uint32_t i = 1; i < SPW_FALLBACK_COUNT; i++)
        PUT(FALLBACKS, (double)c->fallbacks[i], account, spw_fallback_name(i));
}

static void matches(const struct scrape *s, const char *account, const struct spw_decider_counters *c)
{
    for (uint32_t i = 1; i < SPW_MATCH_COUNT; i++)
        PUT(MATCHES, (double)c->matches[i], account, spw_match_name(i));
}

static void without_call(const struct scrape *s, const char *account, const struct spw_decider_counters *c)
{
    PUT(WITHOUT_CALL, (double)c->joined, account, "joined");
    PUT(WITHOUT_CALL, (double)c->reused, account, "reused");
    PUT(WITHOUT_CALL, (double)c->repeated, account, "repeated");
}

static void latency(const struct scrape *s, const char *account, const struct spw_decider_counters *c)
{
    for (uint32_t d = 0; d < SPW_DECISION_COUNT; d++) {
        unsigned long long counts[SPW_LATENCY_BUCKETS + 1];
        for (uint32_t b = 0; b <= SPW_LATENCY_BUCKETS; b++)
            counts[b] = c->latency[d][b];
        struct spw_metric_histogram h = {.bounds = spw_latency_bounds_s,
                                         .counts = counts,
                                         .bounds_count = SPW_LATENCY_BUCKETS,
                                         .sum = (double)c->latency_sum_us[d] / 1e6};
        spw_metric_put_histogram(s->out, SPW_METRIC_LATENCY, &h, account, spw_decision_name(d));
    }
}

static void calls(const struct scrape *s, const char *account, const struct spw_decider_counters *c)
{
    static const char *const name[SPW_CALL_RESULTS] = {"ok",     "throttled", "rejected", "error",
                                                       "broken", "timeout",   "connect"};
    for (uint32_t i = 0; i < SPW_CALL_RESULTS; i++)
        PUT(CALLS, (double)c->calls[i], account, name[i]);
}

static void retries(const struct scrape *s, const char *account, const struct spw_decider_counters *c)
{
    PUT(RETRIES, (double)c->retries, account);
}

static void unexpected(const struct scrape *s, const char *account, const struct spw_decider_counters *c)
{
    PUT(UNEXPECTED, (double)c->unexpected_429, account);
}

static void doors(const struct scrape *s)
{
    by_counters(s, SPW_METRIC_QUOTES, quotes);
    by_counters(s, SPW_METRIC_FALLBACKS, fallbacks);
    by_counters(s, SPW_METRIC_MATCHES, matches);
    by_counters(s, SPW_METRIC_WITHOUT_CALL, without_call);
    by_counters(s, SPW_METRIC_LATENCY, latency);
    by_counters(s, SPW_METRIC_CALLS, calls);
    by_counters(s, SPW_METRIC_RETRIES, retries);
    by_counters(s, SPW_METRIC_UNEXPECTED, unexpected);
}

/* ---- limits, breaker, gate ---- */

typedef void account_fn(const struct scrape *s, const char *account, const struct spw_account_status *a);

static void by_account(const struct scrape *s, enum spw_metric metric, account_fn *fn)
{
    spw_metric_begin(s->out, metric);
    for (uint32_t i = 0; i < s->accounts_count; i++)
        fn(s, s->accounts[i].limit.account, &s->accounts[i]);
}

static void admissions(const struct scrape *s, const char *account, const struct spw_account_status *a)
{
    static const char *const name[SPW_STAT_USED] = {
        "allow",      "deny-bucket", "deny-gate",       "deny-breaker",   "deny-concurrency",
        "deny-other", "observed",    "client-fallback", "client-no-rate", "flag-refused"};
    for (uint32_t i = 0; i < SPW_STAT_USED; i++)
        PUT(ADMISSIONS, (double)a->decisions[i], account, name[i]);
}

static void limits(const struct scrape *s, const char *account, const struct spw_account_status *a)
{
    PUT(LIMIT, per_second(&a->limit.limit.rate), account, "account");
    PUT(LIMIT, per_second(&a->limit.pod_rate), account, "pod");
}

static void observed(const struct scrape *s, const char *account, const struct spw_account_status *a)
{
    if (a->limit.observed_limit_known)
        PUT(OBSERVED, (double)a->limit.observed_limit_count, account);
}

static void mismatch(const struct scrape *s, const char *account, const struct spw_account_status *a)
{
    PUT(MISMATCH, (double)a->limit.observed_limit_differs, account);
}

static void adopted(const struct scrape *s, const char *account, const struct spw_account_status *a)
{
    PUT(ADOPTED, (double)a->limit.observed_limit_adopted, account);
}

static void tokens(const struct scrape *s, const char *account, const struct spw_account_status *a)
{
    PUT(TOKENS, (double)a->limit.tokens_milli / 1000, account);
}

static void burst(const struct scrape *s, const char *account, const struct spw_account_status *a)
{
    PUT(BURST, (double)a->limit.pod_burst_count, account);
}

/* What decisions obey. */
static const char *obeyed_state(const struct spw_breaker_view *b)
{
    if (b->forced[0])
        return strcmp(b->forced, "open") == 0 ? "open" : "closed";
    return b->state;
}

static void breaker(const struct scrape *s, const char *account, const struct spw_account_status *a)
{
    static const char *const name[] = {"closed", "open", "half-open"};
    const char *obeyed = obeyed_state(&a->breaker);
    for (uint32_t i = 0; i < 3; i++)
        PUT(BREAKER, (double)(strcmp(obeyed, name[i]) == 0), account, name[i]);
}

static void breaker_switch(const struct scrape *s, const char *account, const struct spw_account_status *a)
{
    static const char *const name[] = {"open", "closed", "disabled", "observe"};
    for (uint32_t i = 0; i < 4; i++)
        PUT(BREAKER_SWITCH, (double)(strcmp(a->breaker.forced, name[i]) == 0), account, name[i]);
}

/* Without calls a breaker's word stays open after its time, which keeps nobody from calling. */
static void breaker_open(const struct scrape *s, const char *account, const struct spw_account_status *a)
{
    double left_s = (double)a->breaker.open_for_ms / 1000;
    if (a->breaker.forced[0])
        left_s = strcmp(a->breaker.forced, "open") == 0 ? (double)INFINITY : 0;
    PUT(BREAKER_OPEN, left_s, account);
}

static void trips(const struct scrape *s, const char *account, const struct spw_account_status *a)
{
    PUT(TRIPS, (double)a->breaker.trips_count, account);
}

static void gate(const struct scrape *s, const char *account, const struct spw_account_status *a)
{
    PUT(GATE, (double)a->breaker.gate_shut_for_ms / 1000, account);
}

static void healed(const struct scrape *s, const char *account, const struct spw_account_status *a)
{
    PUT(HEALED, (double)a->limit.healed_count, account);
}

/* Place 0 is the account-wide limiter, which has metrics of its own for all but its switches. */
static void by_limiter(const struct scrape *s, enum spw_metric metric)
{
    spw_metric_begin(s->out, metric);
    for (uint32_t i = 0; i < SPW_CONF_ACCOUNTS_MAX_COUNT; i++) {
        struct spw_limit_view v;
        for (uint32_t place = 0;
             spw_state_limiter_at(s->from->state, i, place, s->now_ns, &v) == SPW_STATUS_OK; place++) {
            if (metric == SPW_METRIC_SWITCH) {
                PUT(SWITCH, (double)((v.switches & SPW_SWITCH_KILL) != 0), v.account, v.limiter, "kill");
                PUT(SWITCH, (double)((v.switches & SPW_SWITCH_OBSERVE) != 0), v.account, v.limiter,
                    "observe");
            } else if (place > 0) {
                PUT(LIMITER_TOKENS, (double)v.tokens_milli / 1000, v.account, v.limiter);
            }
        }
    }
}

static void accounts(const struct scrape *s)
{
    by_account(s, SPW_METRIC_ADMISSIONS, admissions);
    by_account(s, SPW_METRIC_LIMIT, limits);
    by_account(s, SPW_METRIC_OBSERVED, observed);
    by_account(s, SPW_METRIC_MISMATCH, mismatch);
    by_account(s, SPW_METRIC_ADOPTED, adopted);
    by_account(s, SPW_METRIC_TOKENS, tokens);
    by_account(s, SPW_METRIC_BURST, burst);
    by_limiter(s, SPW_METRIC_LIMITER_TOKENS);
    by_limiter(s, SPW_METRIC_SWITCH);
    by_account(s, SPW_METRIC_BREAKER, breaker);
    by_account(s, SPW_METRIC_BREAKER_SWITCH, breaker_switch);
    by_account(s, SPW_METRIC_BREAKER_OPEN, breaker_open);
    by_account(s, SPW_METRIC_TRIPS, trips);
    by_account(s, SPW_METRIC_GATE, gate);
    by_account(s, SPW_METRIC_HEALED, healed);
}

/* ---- the ledger ---- */

/* 0: never, or in the future by a clock that was set. */
static double seconds_since(int64_t unix_ms)
{
    int64_t age_ms = unix_ms ? spw_wall_ms() - unix_ms : 0;
    return age_ms > 0 ? (double)age_ms / 1000 : 0.0;
}

/* The configured accounts, and one more for orders whose account is not known: as many series whatever is ordered. */
static void placed_of(const struct scrape *s, const char *account)
{
    static const struct spw_placed_account none;
    const struct spw_placed_account *row = &none;
    for (uint32_t i = 0; i < SPW_PLACED_ACCOUNTS_COUNT; i++) {
        const struct spw_placed_account *at = &s->watched.accounts[i];
        if ((i == 0) == (account[0] == 0) && strcmp(at->name, account) == 0)
            row = at;
    }
    for (uint32_t type = 0; type < SPW_FALLBACK_COUNT; type++)
        PUT(PLACED_ORDERS, (double)row->placed_count[type], account,
            spw_decision_name(type == SPW_FALLBACK_NONE ? SPW_DECISION_LIVE : SPW_DECISION_FALLBACK),
            spw_fallback_name(type));
}

static void orders(const struct scrape *s)
{
    const struct spw_store_counts *c = &s->ledger;
    BEGIN(ORDERS);
    PUT(ORDERS, (double)(c->orders_placed_count - c->orders_cancelled_count), "placed");
    PUT(ORDERS, (double)c->orders_cancelled_count, "cancelled");
    BEGIN(PLACED_ORDERS);
    for (uint32_t i = 0; i < s->from->conf->accounts_count; i++)
        placed_of(s, s->from->conf->accounts[i].name);
    placed_of(s, "");
    PUT_ONE(SHARE, (double)c->window_share_ppm / 1e6);
    BEGIN(PLACED);
    PUT(PLACED, (double)(c->window_placed_count - c->window_flagged_count), "live");
    PUT(PLACED, (double)c->window_flagged_count, "fallback");
    PUT_ONE(ALERT, (double)c->alert_on);
}

/* One family of what reconciliation says by account. */
static void reconcile_family(const struct scrape *s, enum spw_metric metric)
{
    uint32_t count = s->from->reconcile ? spw_reconcile_accounts_count(s->from->reconcile) : 0;
    spw_metric_begin(s->out, metric);
    for (uint32_t i = 0; i < count; i++) {
        struct spw_reconcile_status r;
        spw_reconcile_status(s->from->reconcile, i, &r);
        bool never = r.forecast.takes_ms == SPW_FORECAST_NEVER_MS;
        if (metric == SPW_METRIC_LATE) {
            PUT(LATE, (double)r.forecast.late, r.account);
        } else if (metric == SPW_METRIC_FORECAST) {
            PUT(FORECAST, never ? (double)INFINITY : (double)r.forecast.takes_ms / 1000, r.account);
        } else if (metric == SPW_METRIC_BACKLOG) {
            PUT(BACKLOG, (double)r.pending_count, r.account, "pending");
            PUT(BACKLOG, (double)r.filings_count, r.account, "filings");
            PUT(BACKLOG, (double)r.under_way_count, r.account, "under-way");
        } else {
            PUT(RECONCILED, (double)r.calls_total, r.account, "calls");
            PUT(RECONCILED, (double)r.retries_total, r.account, "retries");
            PUT(RECONCILED, (double)r.reconciled_total, r.account, "reconciled");
            PUT(RECONCILED, (double)r.filed_total, r.account, "filed");
            PUT(RECONCILED, (double)r.filing_failed_total, r.account, "filing-failed");
        }
    }
}

static void reconciliation(const struct scrape *s)
{
    static const char *const kind[SPW_VARIANCE_KINDS] = {"rounding", "rate", "base", "nexus"};
    const struct spw_store_counts *c = &s->ledger;
    BEGIN(RECONCILE);
    for (uint32_t i = 1; i < SPW_RECONCILE_STATES; i++)
        PUT(RECONCILE, (double)c->by_reconcile[i], spw_reconcile_state_name(i));
    PUT_ONE(OLDEST, seconds_since(s->watched.oldest_pending_unix_ms));
    reconcile_family(s, SPW_METRIC_BACKLOG);
    reconcile_family(s, SPW_METRIC_LATE);
    reconcile_family(s, SPW_METRIC_FORECAST);
    reconcile_family(s, SPW_METRIC_RECONCILED);
    BEGIN(VARIANCE);
    for (uint32_t i = 0; i < SPW_VARIANCE_KINDS; i++) {
        PUT(VARIANCE, (double)c->variance_over_minor[i], kind[i], "over");
        PUT(VARIANCE, (double)c->variance_under_minor[i], kind[i], "under");
    }
    BEGIN(FILING);
    for (uint32_t i = 1; i < SPW_FILING_STATES; i++)
        PUT(FILING, (double)c->by_filing[i], spw_filing_state_name(i));
}

static void spool(const struct scrape *s)
{
    uint64_t lines[3] = {0};
    if (s->from->spool_counts)
        s->from->spool_counts(s->from->spool_owner, lines);
    BEGIN(SPOOL);
    PUT(SPOOL, (double)lines[0], "imported");
    PUT(SPOOL, (double)lines[1], "known");
    PUT(SPOOL, (double)lines[2], "bad");
}

static void control(const struct scrape *s)
{
    static const char *const results[4] = {"answered", "invalid", "denied", "failed"};
    uint64_t calls[4] = {0};
    if (s->from->control_counts)
        s->from->control_counts(s->from->control_owner, calls);
    BEGIN(CONTROL);
    for (uint32_t i = 0; i < 4; i++)
        PUT(CONTROL, (double)calls[i], results[i]);
}

static void ledger(const struct scrape *s)
{
    const struct spw_store_counts *c = &s->ledger;
    orders(s);
    BEGIN(FLAGS);
    for (uint32_t i = 0; i < SPW_FLAG_STATES; i++)
        PUT(FLAGS, (double)c->by_state[i], spw_flag_state_name(i));
    PUT_ONE(ONLY_IN_POD, (double)c->unacknowledged_count);
    PUT_ONE(ONLY_IN_POD_AGE, seconds_since(s->watched.oldest_unacknowledged_unix_ms));
    reconciliation(s);
    PUT_ONE(ORPHANS, (double)c->orphans_count);
    PUT_ONE(STUCK, (double)c->stuck_count);
    PUT_ONE(COMMITS, (double)c->commit_failures_count);
    PUT_ONE(DAMAGED, (double)c->damaged_count);
    PUT_ONE(WRITABLE, (double)c->writable);
    spool(s);
    control(s);
}

/* ---- segment, rates, process ---- */

static void rates(const struct scrape *s)
{
    const struct spw_rates_view *v = &s->rates;
    double now_s = (double)spw_wall_ms() / 1000;
    BEGIN(RATES);
    PUT(RATES, (double)v->records_count, "used");
    PUT(RATES, (double)v->capacity_count, "capacity");
    PUT(RATES, (double)v->replaced_count, "replaced");
    PUT(RATES, (double)v->learned_count, "learned");
    PUT(RATES, (double)v->learned_capacity_count, "learned-capacity");
    BEGIN(RATES_LEARNED);
    PUT(RATES_LEARNED, (double)v->learned_total, "answers");
    PUT(RATES_LEARNED, (double)v->learned_evicted_total, "evicted");
    BEGIN(RATE_AGE);
    for (uint32_t i = 0; i < v->sources_count; i++)
        PUT(RATE_AGE, now_s - (double)v->sources[i].as_of_day * 86400, v->sources[i].name);
    PUT_ONE(RATE_WARN, (double)s->from->conf->fallback.max_age_warn_days * 86400);
    PUT_ONE(RATE_REFUSE, (double)s->from->conf->fallback.max_age_refuse_days * 86400);
}

static void refreshes(const struct scrape *s)
{
    const struct spw_rates_refreshes *all = spw_state_refreshes(s->from->state);
    double now_s = (double)spw_wall_ms() / 1000;
    BEGIN(REFRESH_AGE);
    for (uint32_t i = 0; i < all->count; i++) {
        if (all->list[i].succeeded_unix_ms)
            PUT(REFRESH_AGE, now_s - (double)all->list[i].succeeded_unix_ms / 1000, all->list[i].account);
    }
    BEGIN(REFRESHES);
    for (uint32_t i = 0; i < all->count; i++) {
        PUT(REFRESHES, (double)all->list[i].successes_count, all->list[i].account, "success");
        PUT(REFRESHES, (double)all->list[i].failures_count, all->list[i].account, "failure");
    }
}

static void process(const struct scrape *s)
{
    static const char *const name[] = {"io_uring", "epoll"};
    const struct spw_loop *loop = s->from->loop;
    BEGIN(CELLS);
    PUT(CELLS, (double)s->segment.cells_count, "all");
    PUT(CELLS, (double)s->segment.cells_busy_count, "busy");
    PUT_ONE(ATTACHED, (double)s->segment.attached_count);
    rates(s);
    refreshes(s);
    BEGIN(BACKEND);
    for (int i = 0; i < 2; i++)
        PUT(BACKEND, (double)(strcmp(spw_loop_backend_name(loop), name[i]) == 0), name[i]);
    BEGIN(LOOP_INFO);
    PUT(LOOP_INFO, 1.0, spw_loop_backend_name(loop), spw_loop_backend_reason(loop));
    PUT_ONE(LAG, (double)spw_loop_lag_ns(loop) / 1e9);
    PUT_ONE(RELOADS, (double)s->from->live->reloads_count);
    PUT_ONE(RELOAD_FAILURES, (double)s->from->live->failures_count);
    PUT_ONE(RELOAD_SUCCESSFUL, (double)(s->from->live->last_error[0] == 0));
    PUT_ONE(RELOADED, (double)s->from->live->last_success_unix_s);
    BEGIN(BUILD);
    PUT(BUILD, 1.0, SPW_VERSION, s->segment.origin);
}

static void collect(struct scrape *s, const struct spw_admin_options *from)
{
    s->from = from;
    s->now_ns = spw_loop_now_ns(from->loop);
    for (uint32_t i = 0; i < SPW_CONF_ACCOUNTS_MAX_COUNT; i++) {
        if (spw_state_account_status(from->state, i, s->now_ns, &s->accounts[s->accounts_count]) ==
            SPW_STATUS_OK)
            s->accounts_count++;
    }
    spw_store_counts(from->store, &s->ledger);
    spw_store_watched(from->store, &s->watched);
    spw_state_status(from->state, &s->segment);
    spw_state_rates_view(from->state, &s->rates);
}

char *spw_metrics_text(const struct spw_admin_options *from)
{
    char *buffer = NULL;
    size_t bytes = 0;
    struct scrape *s = calloc(1, sizeof *s);
    if (s && (s->out = open_memstream(&buffer, &bytes)) != NULL) {
        collect(s, from);
        doors(s);
        accounts(s);
        ledger(s);
        process(s);
        if (fclose(s->out) != 0) {
            free(buffer);
            buffer = NULL;
        }
    }
    free(s);
    return buffer;
}
