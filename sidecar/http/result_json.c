/* result_json.c: the quote door's answer as JSON.
 *
 * Owns: the answer's fields. Called by: quote_door.c. Thread: any; pure but for allocation.
 *
 * Written as text at once, since every quote waits for it: a tree of values first would cost as much as the whole
 * decision. All texts are UTF-8 by then: the request's were checked on the way in, the rest is made here.
 */
#include <stdlib.h>
#include <string.h>

#include "shm/spw_text.h"
#include "sidecar/http/quote_json.h"

static void comma(struct spw_text *t)
{
    char last = t->used ? t->at[t->used - 1] : '{';
    if (last != '{' && last != '[')
        spw_text_put(t, ",");
}

/* ,"name": */
static void name_put(struct spw_text *t, const char *name)
{
    comma(t);
    spw_text_put(t, "\"");
    spw_text_put(t, name);
    spw_text_put(t, "\":");
}

/* value NULL is null. */
static void text_put(struct spw_text *t, const char *name, const char *value)
{
    name_put(t, name);
    spw_text_json(t, value);
}

static void word_put(struct spw_text *t, const char *name, const char *word)
{
    name_put(t, name);
    spw_text_put(t, word);
}

static void number_put(struct spw_text *t, const char *name, uint64_t value)
{
    name_put(t, name);
    spw_text_u64(t, value);
}

static void decimal_put(struct spw_text *t, const char *name, int64_t value, unsigned digits, bool trim)
{
    name_put(t, name);
    spw_text_put(t, "\"");
    spw_text_decimal(t, value, digits, trim);
    spw_text_put(t, "\"");
}

static void minor_put(struct spw_text *t, const char *name, int64_t value)
{
    decimal_put(t, name, value, 2, false);
}

static void rate_put(struct spw_text *t, const char *name, uint32_t ppb)
{
    decimal_put(t, name, ppb, 9, true);
}

static void lines_put(struct spw_text *t, const struct spw_result *r)
{
    name_put(t, "lines");
    spw_text_put(t, "[");
    for (uint32_t i = 0; i + 1 < r->lines_count; i++) {
        comma(t);
        spw_text_put(t, "{");
        text_put(t, "id", r->request->lines[i].id);
        minor_put(t, "taxable", r->lines[i].taxable_minor);
        minor_put(t, "tax", r->lines[i].tax_minor);
        spw_text_put(t, "}");
    }
    spw_text_put(t, "]");
    if (!r->lines_count)
        return;
    name_put(t, "shipping");
    spw_text_put(t, "{");
    minor_put(t, "taxable", r->lines[r->lines_count - 1].taxable_minor);
    minor_put(t, "tax", r->lines[r->lines_count - 1].tax_minor);
    spw_text_put(t, "}");
}

static void jurisdictions_put(struct spw_text *t, const struct spw_result *r)
{
    uint32_t count = r->decision == SPW_DECISION_LIVE && r->answer ? r->answer->jurisdictions_count : 0;
    if (!count) {
        word_put(t, "jurisdictions", "null");
        return;
    }
    name_put(t, "jurisdictions");
    spw_text_put(t, "[");
    for (uint32_t i = 0; i < count; i++) {
        const struct spw_jurisdiction *j = &r->answer->jurisdictions[i];
        comma(t);
        spw_text_put(t, "{");
        text_put(t, "level", j->level);
        rate_put(t, "rate", j->rate_ppb);
        minor_put(t, "tax", j->tax_minor);
        spw_text_put(t, "}");
    }
    spw_text_put(t, "]");
}

static void assumptions_put(struct spw_text *t, const struct spw_fallback_answer *f)
{
    char one[SPW_ASSUMPTIONS_MAX_BYTES];
    name_put(t, "assumed");
    spw_text_put(t, "[");
    for (const char *at = f->assumptions; *at;) {
        size_t n = strcspn(at, "\n");
        memcpy(one, at, n); /* the whole ends within f->assumptions, which is as large */
        one[n] = 0;
        comma(t);
        spw_text_json(t, one);
        at += n + (at[n] == '\n');
    }
    spw_text_put(t, "]");
}

static void fallback_put(struct spw_text *t, const struct spw_result *r)
{
    const struct spw_fallback_answer *f = r->fallback;
    char day[32] = "";
    bool dated = f->source.name[0] != 0;
    if (dated)
        spw_format_day(f->source.as_of_day, day, sizeof day);
    spw_text_put(t, "{");
    text_put(t, "flag_id", r->flag_id[0] ? r->flag_id : NULL);
    text_put(t, "type", spw_fallback_name(r->type));
    text_put(t, "cause", spw_cause_name(r->cause));
    text_put(t, "match", spw_match_name(f->match));
    name_put(t, "rates");
    spw_text_put(t, "{");
    rate_put(t, "state", f->rate.state_ppb);
    rate_put(t, "county", f->rate.county_ppb);
    rate_put(t, "city", f->rate.city_ppb);
    rate_put(t, "special", f->rate.special_ppb);
    rate_put(t, "combined", f->rate.combined_ppb);
    spw_text_put(t, "}");
    text_put(t, "source", dated ? f->source.name : NULL);
    text_put(t, "as_of", dated ? day : NULL);
    number_put(t, "age_days", f->age_days);
    word_put(t, "stale", f->stale ? "true" : "false");
    text_put(t, "nexus", f->match == SPW_MATCH_NO_NEXUS ? "not-registered" : "registered");
    assumptions_put(t, f);
    number_put(t, "live_again_in_ms", r->live_again_in_ms);
    if (r->handback)
        word_put(t, "handback", r->handback); /* JSON itself */
    spw_text_put(t, "}");
}

static void priced_put(struct spw_text *t, const struct spw_result *r)
{
    bool live = r->decision == SPW_DECISION_LIVE;
    word_put(t, "reused", r->reused ? "true" : "false");
    minor_put(t, "tax", r->tax_minor);
    text_put(t, "currency", r->request->currency ? r->request->currency : "USD");
    text_put(t, "rounding", live ? "provider" : spw_rounding_name(r->fallback->rounding));
    lines_put(t, r);
    jurisdictions_put(t, r);
}

static void provider_put(struct spw_text *t, const struct spw_result *r)
{
    name_put(t, "provider");
    spw_text_put(t, "{");
    text_put(t, "name", r->provider);
    if (r->provider_status)
        number_put(t, "status", r->provider_status);
    else
        word_put(t, "status", "null");
    number_put(t, "attempts", r->attempts);
    number_put(t, "ms", r->provider_ms);
    spw_text_put(t, "}");
}

/* The most that it can come to: each byte of a text may be written as six. */
static size_t room_for(const struct spw_result *r)
{
    size_t room = 4096 + 6 * strlen(r->decision_id);
    for (uint32_t i = 0; i + 1 < r->lines_count; i++)
        room += 160 + 6 * (r->request->lines[i].id ? strlen(r->request->lines[i].id) : 0);
    if (r->answer)
        room += r->answer->jurisdictions_count * (size_t)256 +
                (r->answer->error_json ? strlen(r->answer->error_json) : 0);
    if (r->fallback)
        room += 6 * sizeof r->fallback->assumptions;
    return room + (r->handback ? strlen(r->handback) : 0);
}

char *spw_result_json(const struct spw_result *r)
{
    bool priced = r->decision == SPW_DECISION_LIVE || r->decision == SPW_DECISION_FALLBACK;
    size_t room = room_for(r);
    char *buffer = malloc(room);
    if (!buffer)
        return NULL;
    struct spw_text t = spw_text_on(buffer, room);
    spw_text_put(&t, "{");
    if (priced)
        text_put(&t, "quote_id", r->quote_id);
    text_put(&t, "decision", spw_decision_name(r->decision));
    text_put(&t, "decision_id", r->decision_id);
    if (priced)
        priced_put(&t, r);
    if (r->decision == SPW_DECISION_NONE) {
        word_put(&t, "tax", "null");
        text_put(&t, "reason", r->reason ? r->reason : "unknown");
        text_put(&t, "type", spw_fallback_name(r->type));
        text_put(&t, "cause", spw_cause_name(r->cause));
    }
    provider_put(&t, r);
    if (r->decision == SPW_DECISION_FALLBACK) {
        name_put(&t, "fallback");
        fallback_put(&t, r);
    } else if (priced) {
        word_put(&t, "fallback", "null");
    }
    if (r->decision == SPW_DECISION_REJECTED)
        word_put(&t, "provider_error",
                 r->answer && r->answer->error_json ? r->answer->error_json : "null"); /* JSON itself */
    spw_text_put(&t, "}");
    if (t.overflow) {
        free(buffer);
        return NULL;
    }
    return buffer;
}
