/* csv.c: a flag as one line of CSV. See csv.h. */
#include "sidecar/ctl/csv.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "sidecar/ctl/table.h"

static void put_quoted(const char *text, const char *before)
{
    putchar('"');
    fputs(before, stdout);
    for (; *text; text++) {
        if (*text == '"')
            putchar('"');
        putchar(*text);
    }
    putchar('"');
}

/* Words and amounts of ours. */
static void put(const char *text)
{
    text = text ? text : "";
    if (strpbrk(text, ",\"\r\n"))
        put_quoted(text, "");
    else
        fputs(text, stdout);
    putchar(',');
}

/* Text of a caller's. */
static void put_foreign(const char *text)
{
    text = text ? text : "";
    if (*text && strchr("=+-@\t\r", *text)) {
        put_quoted(text, "'");
        putchar(',');
    } else {
        put(text);
    }
}

static void put_instant(bool known, int64_t unix_ms)
{
    char text[32] = "";
    if (known)
        spw_format_instant(unix_ms, text, sizeof text);
    put(text);
}

static void put_count(bool known, uint64_t value)
{
    if (known)
        printf("%" PRIu64, value);
    putchar(',');
}

static void put_money(const Spillway__V1__Money *money)
{
    put(money ? money->amount : NULL);
}

static void put_rate(const Spillway__V1__TaxRate *rate)
{
    put(rate ? rate->text : NULL);
}

void spw_csv_print_head(void)
{
    puts("sequence,state,stored_at,created_at,flag_id,quote_id,decision_id,quote_ref,account,integration,"
         "purpose,type,"
         "cause,country,ship_to_state,zip,date,currency,match,combined_rate,state_rate,county_rate,city_rate,"
         "special_rate,source,as_of,age_days,stale,rounding,total,taxable,tax,provider_status,attempts,"
         "breaker,limit,"
         "remaining,order_id,tax_collected,placed_at,written_by,change,reconciliation,live_tax,variance,"
         "filing,"
         "document_id,assumptions");
}

static void put_applied(const Spillway__V1__AppliedRates *r)
{
    static const Spillway__V1__AppliedRates none = SPILLWAY__V1__APPLIED_RATES__INIT;
    r = r ? r : &none;
    put_rate(r->combined);
    put_rate(r->state);
    put_rate(r->county);
    put_rate(r->city);
    put_rate(r->special);
    put(r->source);
    put(r->as_of);
    put_count(r->has_age_days, r->age_days);
    put(!r->has_stale ? "" : r->stale ? "true" : "false");
}

static void put_evidence(const Spillway__V1__FlagEvidence *e)
{
    static const Spillway__V1__FlagEvidence none = SPILLWAY__V1__FLAG_EVIDENCE__INIT;
    e = e ? e : &none;
    put_count(e->has_provider_status, e->provider_status);
    put_count(e->has_attempts, e->attempts);
    put(e->breaker);
    put_count(e->has_limit, e->limit);
    put_count(e->has_remaining, e->remaining);
}

/* The last column: one text, joined. */
static void put_assumptions(const Spillway__V1__Flag *f)
{
    putchar('"');
    for (size_t i = 0; i < f->n_assumptions; i++) {
        fputs(i ? "; " : "", stdout);
        for (const char *p = f->assumptions[i]; *p; p++)
            fputs(*p == '"' ? "\"\"" : (char[]){*p, 0}, stdout);
    }
    puts("\"");
}

/* One row of an order, or of a flag without one. The amounts of the quote are in the first row of several, so that a
 * column's sum is right. */
static void print_row(const Spillway__V1__Flag *f, const Spillway__V1__FlagOrder *order, bool first)
{
    put_count(true, f->sequence);
    put(f->state);
    put_instant(f->has_stored_unix_ms, f->stored_unix_ms);
    put_instant(f->has_created_unix_ms, f->created_unix_ms);
    put(f->flag_id);
    put(f->quote_id);
    put_foreign(f->decision_id);
    put_foreign(f->quote_ref);
    put(f->account);
    put(f->integration);
    put(f->purpose);
    put(f->type);
    put(f->cause);
    put_foreign(f->destination ? f->destination->country : NULL);
    put_foreign(f->destination ? f->destination->state : NULL);
    put_foreign(f->destination ? f->destination->zip : NULL);
    put_foreign(f->date);
    put_foreign(f->currency);
    put(f->match);
    put_applied(f->rates);
    put(f->rounding);
    put_money(first ? f->total : NULL);
    put_money(first ? f->taxable : NULL);
    put_money(first ? f->tax : NULL);
    put_evidence(f->evidence);
    put_foreign(order ? order->order_id : NULL);
    put_money(order ? order->tax_collected : NULL);
    put_instant(order && order->has_placed_unix_ms, order ? order->placed_unix_ms : 0);
    put(f->origin ? f->origin->writer : NULL);
    put_count(f->has_change, f->change);
    static const Spillway__V1__FlagReconciliation none = SPILLWAY__V1__FLAG_RECONCILIATION__INIT;
    const Spillway__V1__FlagReconciliation *r = f->reconciliation ? f->reconciliation : &none;
    put(r->state);
    put_money(first ? r->live_tax : NULL);
    put_money(first ? r->variance : NULL);
    put(r->filing);
    put_foreign(r->document_id);
    put_assumptions(f);
}

void spw_csv_print_flag(const Spillway__V1__Flag *f)
{
    if (f->n_orders < 2) {
        print_row(f, f->order, true);
        return;
    }
    for (size_t i = 0; i < f->n_orders; i++)
        print_row(f, f->orders[i], i == 0);
}
