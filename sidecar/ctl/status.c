/* status.c: spillwayctl status | version.
 *
 * Owns: nothing. Called by: main.c. Thread: one.
 */
#include <inttypes.h>
#include <stdio.h>

#include "proto/spillway/v1/control.pb-c.h"
#include "sidecar/ctl/breaker.h"
#include "sidecar/ctl/client.h"
#include "sidecar/message/json.h"
#include "sidecar/ctl/table.h"

static int get(struct spw_ctl *ctl, ProtobufCMessage **reply)
{
    Spillway__V1__GetStatusRequest request = SPILLWAY__V1__GET_STATUS_REQUEST__INIT;
    return spw_client_unary(ctl, "/spillway.v1.Status/Get", &request.base,
                            &spillway__v1__get_status_reply__descriptor, reply);
}

static void add_store(struct spw_table *table, const Spillway__V1__StoreStatus *s)
{
    spw_table_add(table, "flags");
    spw_table_add(table,
                  "%" PRIu64 " stored: %" PRIu64 " provisional, %" PRIu64 " confirmed, %" PRIu64
                  " cancelled, %" PRIu64 " superseded, %" PRIu64 " abandoned, %" PRIu64 " unplaced",
                  s->flags, s->provisional, s->confirmed, s->cancelled, s->superseded, s->abandoned,
                  s->unplaced);
    spw_table_add(table, "orders");
    spw_table_add(table,
                  "%" PRIu64 " placed lately, %" PRIu64 " of them on a fallback%s; %" PRIu64
                  " to reconcile, %" PRIu64 " exceptions",
                  s->window_placed, s->window_flagged, s->alert ? ": ALERT, above fallback.alert" : "",
                  s->pending, s->exceptions);
    spw_table_add(table, "ledger");
    spw_table_add(table,
                  "%s, newest %" PRIu64 ", %" PRIu64 " only in this pod, %" PRIu64 " damaged, %" PRIu64
                  " failed commits",
                  s->writable ? "writable" : "NOT WRITABLE", s->newest_sequence, s->only_in_pod, s->damaged,
                  s->commit_failures);
    if (s->orphans || s->stuck_rows) {
        spw_table_add(table, "%s", "");
        spw_table_add(table, "NOT SOUND: %" PRIu64 " orphans, %" PRIu64 " stuck rows (docs/ledger.md)",
                      s->orphans, s->stuck_rows);
    }
}

static const char *rates_age(const Spillway__V1__RateSource *source)
{
    return source->refused ? ": TOO OLD, not served: rates load" : source->stale ? ": stale: rates load" : "";
}

static void add_rates(struct spw_table *table, const Spillway__V1__RatesTable *r)
{
    spw_table_add(table, "rates");
    spw_table_add(table, "%u of %u places%s, version %" PRIu64 ", %u of %u learned", r->records, r->capacity,
                  r->nearly_full ? " (NEARLY FULL: raise segment.rate_records)" : "", r->version, r->learned,
                  r->learned_capacity);
    for (size_t i = 0; i < r->n_sources; i++) {
        spw_table_add(table, "%s", "");
        spw_table_add(table, "%s of %s, %u rows, %u days old%s", r->sources[i]->name, r->sources[i]->as_of,
                      r->sources[i]->rows, r->sources[i]->age_days, rates_age(r->sources[i]));
    }
}

static void print_sidecar(const Spillway__V1__GetStatusReply *s)
{
    char up[32];
    struct spw_table table = {.columns_count = 2};
    spw_format_span(s->uptime_ms, up, sizeof up);
    spw_table_add(&table, "sidecar");
    spw_table_add(&table, "%s, %s, up %s", s->version, s->serving ? "serving" : "NOT SERVING", up);
    if (s->loop) {
        spw_table_add(&table, "loop");
        spw_table_add(&table, "%s (%s), longest turn %" PRIu64 ".%03" PRIu64 " ms", s->loop->backend,
                      s->loop->reason, s->loop->lag_ns / 1000000, s->loop->lag_ns / 1000 % 1000);
    }
    if (s->segment) {
        spw_table_add(&table, "segment");
        spw_table_add(&table, "%s; generation %s", s->segment->origin, s->segment->generation);
        spw_table_add(&table, "processes");
        spw_table_add(&table, "%u attached of %u; %u of %u flag cells in use", s->segment->attached,
                      s->segment->slots, s->segment->cells_busy, s->segment->cells);
    }
    if (s->store)
        add_store(&table, s->store);
    if (s->rates)
        add_rates(&table, s->rates);
    spw_table_print(&table);
}

static void add_account(struct spw_table *table, const Spillway__V1__AccountStatus *a)
{
    const Spillway__V1__Limit *l = a->limit;
    const Spillway__V1__Breaker *b = a->breaker;
    const Spillway__V1__DecisionCounts *d = a->decisions;
    if (!l || !b || !d || !l->rate || !l->pod_rate)
        return;
    char breaker[64], gate[32];
    spw_breaker_words(b, breaker, sizeof breaker);
    spw_format_span(b->gate_shut_for_ms, gate, sizeof gate);
    spw_table_add(table, "%s", l->account);
    spw_table_add(table, "%s", l->rate->text);
    spw_table_add(table, "%s", l->pod_rate->text);
    spw_table_add(table, "%" PRIu64 " of %" PRIu64, l->tokens_milli / 1000, l->pod_burst);
    spw_table_add(table, "%s", breaker);
    spw_table_add(table, "%s%s", b->gate_shut_for_ms ? "shut " : "open", b->gate_shut_for_ms ? gate : "");
    spw_table_add(table, "%" PRIu64, d->allowed);
    spw_table_add(table, "%" PRIu64,
                  d->denied_bucket + d->denied_gate + d->denied_breaker + d->denied_concurrency +
                      d->denied_other);
    spw_table_add(table, "%" PRIu64, d->fallbacks + d->door_fallbacks);
    spw_table_add(table, "%" PRIu64, d->no_rate + d->door_no_rate);
}

/* Why quotes were not answered live, and what helps; since the segment was made, or the sidecar's start. */
static void add_causes(struct spw_table *table, const Spillway__V1__AccountStatus *a)
{
    const Spillway__V1__DecisionCounts *d = a->decisions;
    if (!a->limit || !d)
        return;
    const struct {
        uint64_t count;
        const char *why, *help;
    } causes[] = {
        {d->denied_bucket, "no token left", "limits set, if the provider allows more"},
        {d->denied_gate, "gate shut", "the provider asked for a pause: breaker get"},
        {d->denied_breaker, "breaker open", "breaker get; breaker reset closes it"},
        {d->denied_concurrency, "too many calls in flight", "concurrency in the configuration"},
        {d->denied_other, "other refusals", "flags export: cause"},
        {d->after_429, "provider answered 429", "limits set: the provider's limit is lower than ours"},
        {d->after_timeout, "provider too slow", "deadline in the configuration"},
        {d->after_error, "provider failed", "the sidecar's log: provider.error, provider.broken"},
        {d->flags_refused, "no cell free for the flag", "ledger, above: is it writable?"},
    };
    for (size_t i = 0; i < sizeof causes / sizeof *causes; i++) {
        if (!causes[i].count)
            continue;
        spw_table_add(table, "%s", a->limit->account);
        spw_table_add(table, "%" PRIu64, causes[i].count);
        spw_table_add(table, "%s", causes[i].why);
        spw_table_add(table, "%s", causes[i].help);
    }
}

static void print_accounts(const Spillway__V1__GetStatusReply *status)
{
    static const char *const titles[] = {"ACCOUNT", "RATE",     "THIS POD", ">TOKENS",    "BREAKER",
                                         "GATE",    ">ALLOWED", ">DENIED",  ">FALLBACKS", ">NO RATE"};
    static const char *const cause_titles[] = {"ACCOUNT", ">TIMES", "NOT LIVE BECAUSE", "WHAT HELPS"};
    struct spw_table table = {.columns_count = sizeof titles / sizeof *titles, .titles = titles};
    struct spw_table causes = {.columns_count = sizeof cause_titles / sizeof *cause_titles,
                               .titles = cause_titles};
    for (size_t i = 0; i < status->n_accounts; i++) {
        add_account(&table, status->accounts[i]);
        add_causes(&causes, status->accounts[i]);
    }
    printf("\n");
    spw_table_print(&table);
    if (!causes.cells_count)
        return;
    printf("\n");
    spw_table_print(&causes);
}

static int run_status(struct spw_ctl *ctl)
{
    ProtobufCMessage *reply;
    int code = get(ctl, &reply);
    if (code)
        return code;
    const Spillway__V1__GetStatusReply *status = (const Spillway__V1__GetStatusReply *)reply;
    if (ctl->json) {
        spw_json_print(spw_json_of_message(reply), false);
    } else {
        print_sidecar(status);
        print_accounts(status);
    }
    protobuf_c_message_free_unpacked(reply, NULL);
    return SPW_CTL_OK;
}

static int run_version(struct spw_ctl *ctl)
{
    if (ctl->json)
        spw_json_print(json_pack("{s:s}", "spillwayctl", SPW_VERSION), false);
    else
        printf("spillwayctl %s\n", SPW_VERSION);
    return SPW_CTL_OK;
}

const struct spw_ctl_command spw_ctl_status_commands[] = {
    {.name = "status",
     .arguments = "",
     .summary = "What to look at first: ledger, rates, limits, breakers, and why quotes fell back.",
     .examples = "  spillwayctl status\n  spillwayctl status --address 127.0.0.1:8391 --json\n",
     .run = run_status},
    {.name = "version",
     .arguments = "",
     .summary = "The version of this program; the sidecar's is in status.",
     .examples = "  spillwayctl version\n",
     .run = run_version},
    {.name = NULL}};
