/* reconcile.c: spillwayctl reconcile status, report.
 *
 * Owns: the sums of a day while they are made. Called by: main.c. Thread: one.
 *
 * The report is made from the ledger as it is exported: orders placed on the day (UTC), one line for each account,
 * currency and state of reconciliation. Over- and under-collection have columns of their own and are never netted.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "proto/spillway/v1/control.pb-c.h"
#include "sidecar/conf/conf.h"
#include "sidecar/ctl/client.h"
#include "sidecar/ctl/table.h"
#include "sidecar/message/json.h"

#define REPORT_TIMEOUT_MS UINT64_C(3600000)
#define DAY_MS            INT64_C(86400000)
#define ROWS_MAX_COUNT    4096u
#define KINDS             4

static const char *const kind_names[KINDS] = {"rounding", "rate", "base", "nexus"};

/* ---- status ---- */

static int run_status(struct spw_ctl *ctl)
{
    static const char *const titles[] = {"ACCOUNT", ">PENDING", ">TO FILE", ">EXCEPTIONS", "OLDEST",
                                         ">CALLS",  ">SPARE/S", "FORECAST", "LATE"};
    Spillway__V1__ProgressRequest request = SPILLWAY__V1__PROGRESS_REQUEST__INIT;
    ProtobufCMessage *reply;
    int code = spw_client_unary(ctl, "/spillway.v1.Exceptions/Progress", &request.base,
                                &spillway__v1__progress_reply__descriptor, &reply);
    if (code)
        return code;
    const Spillway__V1__ProgressReply *p = (const Spillway__V1__ProgressReply *)reply;
    if (ctl->json) {
        spw_json_print(spw_json_of_message(reply), false);
    } else if (!p->on) {
        puts("Nothing is reconciled: the configuration has no section reconcile.");
    } else {
        struct spw_table table = {.columns_count = sizeof titles / sizeof titles[0], .titles = titles};
        for (size_t i = 0; i < p->n_accounts; i++) {
            const Spillway__V1__AccountProgress *a = p->accounts[i];
            char oldest[32] = "-", takes[32] = "never";
            if (a->has_oldest_unix_ms)
                spw_format_instant(a->oldest_unix_ms, oldest, sizeof oldest);
            if (a->has_takes_ms)
                spw_format_span(a->takes_ms, takes, sizeof takes);
            spw_table_add(&table, "%s", a->account);
            spw_table_add(&table, "%" PRIu64, a->pending);
            spw_table_add(&table, "%" PRIu64, a->filings);
            spw_table_add(&table, "%" PRIu64, a->exceptions);
            spw_table_add(&table, "%s", oldest);
            spw_table_add(&table, "%" PRIu64, a->calls_needed);
            spw_table_add(&table, "%" PRIu64 ".%03" PRIu64, a->spare_milli_per_s / 1000,
                          a->spare_milli_per_s % 1000);
            spw_table_add(&table, "%s", takes);
            spw_table_add(&table, "%s", a->late ? "LATE" : "no");
        }
        spw_table_print(&table);
    }
    protobuf_c_message_free_unpacked(reply, NULL);
    return spw_ctl_done(ctl, SPW_CTL_OK);
}

/* ---- report ---- */

struct sum {
    char account[64], currency[4], state[32];
    uint64_t count, filed_count, set_aside_count;
    int64_t collected_minor, live_minor, over_minor, under_minor;
    int64_t over_kind_minor[KINDS], under_kind_minor[KINDS];
    int64_t oldest_unix_ms;
};

struct report {
    int32_t day;
    struct sum *sums;
    size_t count;
};

static struct sum *sum_of(struct report *report, const Spillway__V1__Flag *f)
{
    const char *state = f->reconciliation->state ? f->reconciliation->state : "";
    for (size_t i = 0; i < report->count; i++) {
        struct sum *s = &report->sums[i];
        if (strcmp(s->account, f->account) == 0 && strcmp(s->state, state) == 0 &&
            strcmp(s->currency, f->currency ? f->currency : "") == 0)
            return s;
    }
    if (report->count == ROWS_MAX_COUNT)
        return NULL;
    struct sum *s = &report->sums[report->count++];
    snprintf(s->account, sizeof s->account, "%s", f->account);
    snprintf(s->currency, sizeof s->currency, "%s", f->currency ? f->currency : "");
    snprintf(s->state, sizeof s->state, "%s", state);
    return s;
}

static int64_t minor_of(const Spillway__V1__Money *money)
{
    return money ? money->minor : 0;
}

static void split(int64_t minor, int64_t *over, int64_t *under)
{
    if (minor > 0)
        *over += minor;
    else
        *under += minor;
}

static void take_flag(struct report *report, const Spillway__V1__Flag *f)
{
    const Spillway__V1__FlagReconciliation *r = f->reconciliation;
    if (!r || !f->order || !f->account || f->order->placed_unix_ms / DAY_MS != report->day)
        return;
    struct sum *s = sum_of(report, f);
    if (!s)
        return;
    const Spillway__V1__Money *const kinds[KINDS] = {r->rounding_noise, r->rate_difference,
                                                     r->base_difference, r->nexus_difference};
    s->count++;
    s->filed_count += r->filing && strcmp(r->filing, "filed") == 0;
    s->set_aside_count += r->filing && strcmp(r->filing, "failed") == 0;
    s->collected_minor += minor_of(f->order->tax_collected);
    s->live_minor += minor_of(r->live_tax);
    split(minor_of(r->variance), &s->over_minor, &s->under_minor);
    for (int i = 0; i < KINDS; i++)
        split(minor_of(kinds[i]), &s->over_kind_minor[i], &s->under_kind_minor[i]);
    if (!s->oldest_unix_ms || f->order->placed_unix_ms < s->oldest_unix_ms)
        s->oldest_unix_ms = f->order->placed_unix_ms;
}

static int read_flags(struct spw_ctl *ctl, struct report *report)
{
    Spillway__V1__ExportFlagsRequest request = SPILLWAY__V1__EXPORT_FLAGS_REQUEST__INIT;
    struct spw_client *client;
    ProtobufCMessage *reply;
    int code = spw_client_open(ctl, &client);
    if (code)
        return code;
    struct spw_client_call *call = spw_client_begin(client, "/spillway.v1.Flags/Export", REPORT_TIMEOUT_MS);
    spw_client_send(call, &request.base);
    spw_client_send_end(call);
    while ((reply = spw_client_receive(call, &spillway__v1__export_flags_reply__descriptor))) {
        const Spillway__V1__Flag *flag = ((const Spillway__V1__ExportFlagsReply *)reply)->flag;
        if (flag)
            take_flag(report, flag);
        protobuf_c_message_free_unpacked(reply, NULL);
    }
    code = spw_client_end(call);
    spw_client_close(client);
    return code;
}

static const char *money(int64_t minor, char out[32])
{
    spw_format_minor(minor, out, 32);
    return out;
}

static void print_csv(const struct report *report, const char *day)
{
    char t[32];
    printf("day,account,currency,state,orders,collected,live,over,under");
    for (int i = 0; i < KINDS; i++)
        printf(",%s_over,%s_under", kind_names[i], kind_names[i]);
    printf(",filed,set_aside,oldest\n");
    for (size_t i = 0; i < report->count; i++) {
        const struct sum *s = &report->sums[i];
        printf("%s,%s,%s,%s,%" PRIu64, day, s->account, s->currency, s->state, s->count);
        printf(",%s", money(s->collected_minor, t));
        printf(",%s", money(s->live_minor, t));
        printf(",%s", money(s->over_minor, t));
        printf(",%s", money(s->under_minor, t));
        for (int k = 0; k < KINDS; k++) {
            printf(",%s", money(s->over_kind_minor[k], t));
            printf(",%s", money(s->under_kind_minor[k], t));
        }
        spw_format_instant(s->oldest_unix_ms, t, sizeof t);
        printf(",%" PRIu64 ",%" PRIu64 ",%s\n", s->filed_count, s->set_aside_count, t);
    }
}

static json_t *json_money(int64_t minor)
{
    char t[32];
    return json_string(money(minor, t));
}

static void print_json(const struct report *report, const char *day)
{
    json_t *list = json_array();
    for (size_t i = 0; i < report->count; i++) {
        const struct sum *s = &report->sums[i];
        json_t *kinds = json_object();
        for (int k = 0; k < KINDS; k++)
            json_object_set_new(kinds, kind_names[k],
                                json_pack("{s:o, s:o}", "over", json_money(s->over_kind_minor[k]), "under",
                                          json_money(s->under_kind_minor[k])));
        json_array_append_new(
            list,
            json_pack("{s:s, s:s, s:s, s:I, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:I}", "account", s->account,
                      "currency", s->currency, "state", s->state, "orders", (json_int_t)s->count, "collected",
                      json_money(s->collected_minor), "live", json_money(s->live_minor), "over",
                      json_money(s->over_minor), "under", json_money(s->under_minor), "kinds", kinds, "filed",
                      (json_int_t)s->filed_count, "set_aside", (json_int_t)s->set_aside_count,
                      "oldest_unix_ms", (json_int_t)s->oldest_unix_ms));
    }
    spw_json_print(json_pack("{s:s, s:o}", "day", day, "totals", list), false);
}

static void print_text(const struct report *report, const char *day)
{
    static const char *const titles[] = {"ACCOUNT", "STATE",  ">ORDERS", ">COLLECTED", ">LIVE",
                                         ">OVER",   ">UNDER", "",        ">FILED",     ">SET ASIDE"};
    struct spw_table table = {.columns_count = sizeof titles / sizeof titles[0], .titles = titles};
    char t[32];
    printf("Orders placed on fallbacks, %s (UTC)\n\n", day);
    if (!report->count) {
        puts("There were none.");
        return;
    }
    for (size_t i = 0; i < report->count; i++) {
        const struct sum *s = &report->sums[i];
        spw_table_add(&table, "%s", s->account);
        spw_table_add(&table, "%s", s->state);
        spw_table_add(&table, "%" PRIu64, s->count);
        spw_table_add(&table, "%s", money(s->collected_minor, t));
        spw_table_add(&table, "%s", money(s->live_minor, t));
        spw_table_add(&table, "%s", money(s->over_minor, t));
        spw_table_add(&table, "%s", money(s->under_minor, t));
        spw_table_add(&table, "%s", s->currency);
        spw_table_add(&table, "%" PRIu64, s->filed_count);
        spw_table_add(&table, "%" PRIu64, s->set_aside_count);
    }
    spw_table_print(&table);
    for (size_t i = 0; i < report->count; i++) {
        const struct sum *s = &report->sums[i];
        if (strcmp(s->state, "pending") != 0)
            continue;
        spw_format_instant(s->oldest_unix_ms, t, sizeof t);
        printf("\n%s: %" PRIu64 " not reconciled, the oldest placed %s\n", s->account, s->count, t);
    }
}

static int run_report(struct spw_ctl *ctl)
{
    const char *format = spw_ctl_value(ctl, "--format"), *wanted = spw_ctl_value(ctl, "--day");
    struct report report = {.day = (int32_t)((int64_t)time(NULL) * 1000 / DAY_MS)};
    struct spw_error err;
    char day[32];
    format = format ? format : ctl->json ? "json" : "text";
    if (strcmp(format, "text") != 0 && strcmp(format, "csv") != 0 && strcmp(format, "json") != 0)
        return spw_ctl_usage(ctl, "--format: \"%s\" is not known: write text, csv or json", format);
    if (wanted && spw_parse_date_day(wanted, &report.day, &err) != SPW_STATUS_OK)
        return spw_ctl_usage(ctl, "--day: %s", err.text);
    report.sums = calloc(ROWS_MAX_COUNT, sizeof *report.sums);
    int code = report.sums ? read_flags(ctl, &report) : spw_ctl_fail(ctl, SPW_CTL_REFUSED, "no memory");
    spw_format_day(report.day, day, sizeof day);
    if (!code && strcmp(format, "csv") == 0)
        print_csv(&report, day);
    else if (!code && strcmp(format, "json") == 0)
        print_json(&report, day);
    else if (!code)
        print_text(&report, day);
    free(report.sums);
    if (!code && strcmp(format, "text") == 0) {
        puts("");
        return run_status(ctl);
    }
    return code ? code : spw_ctl_done(ctl, SPW_CTL_OK);
}

const struct spw_ctl_command spw_ctl_reconcile_commands[] = {
    {.group = "reconcile",
     .name = "status",
     .arguments = "",
     .summary = "Backlog, spare capacity and forecast of each account.",
     .examples = "  spillwayctl reconcile status\n",
     .run = run_status},
    {.group = "reconcile",
     .name = "report",
     .arguments = "",
     .summary = "A day's totals by account and state, over- and under-collection apart.",
     .examples = "  spillwayctl reconcile report --day 2025-11-28 --format csv > 2025-11-28.csv\n",
     .options = {{"--day", "YYYY-MM-DD", "the day the orders were placed, in UTC; default today"},
                 {"--format", "text|csv|json", "default text, which ends with the status"}},
     .run = run_report},
    {.name = NULL}};
