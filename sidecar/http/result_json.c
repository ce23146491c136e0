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
#include "sidecar/provider/json_write.h"

static void minor_put(struct spw_text *t, const char *name, int64_t value)
{
    spw_json_put_quoted(t, name, value, 2, false);
}

static void rate_put(struct spw_text *t, const char *name, uint32_t ppb)
{
    spw_json_put_quoted(t, name, ppb, 9, true);
}

static void lines_put(struct spw_text *t, const struct spw_result *r)
{
    spw_json_open(t, "lines", "[");
    for (uint32_t i = 0; i + 1 < r->lines_count; i++) {
        spw_json_open(t, NULL, "{");
        spw_json_put_text(t, "id", r->request->lines[i].id);
        minor_put(t, "taxable", r->lines[i].taxable_minor);
        minor_put(t, "tax", r->lines[i].tax_minor);
        spw_text_put(t, "}");
    }
    spw_text_put(t, "]");
    if (!r->lines_count)
        return;
    spw_json_open(t, "shipping", "{");
    minor_put(t, "taxable", r->lines[r->lines_count - 1].taxable_minor);
    minor_put(t, "tax", r->lines[r->lines_count - 1].tax_minor);
    spw_text_put(t, "}");
}

static void jurisdictions_put(struct spw_text *t, const struct spw_result *r)
{
    uint32_t count = r->decision == SPW_DECISION_LIVE && r->answer ? r->answer->jurisdictions_count : 0;
    if (!count) {
        spw_json_put_word(t, "jurisdictions", "null");
        return;
    }
    spw_json_open(t, "jurisdictions", "[");
    for (uint32_t i = 0; i < count; i++) {
        const struct spw_jurisdiction *j = &r->answer->jurisdictions[i];
        spw_json_open(t, NULL, "{");
        spw_json_put_text(t, "level", j->level);
        rate_put(t, "rate", j->rate_ppb);
        minor_put(t, "tax", j->tax_minor);
        spw_text_put(t, "}");
    }
    spw_text_put(t, "]");
}

static void assumptions_put(struct spw_text *t, const struct spw_fallback_answer *f)
{
    char one[SPW_ASSUMPTIONS_MAX_BYTES];
    spw_json_open(t, "assumed", "[");
    for (const char *at = f->assumptions; *at;) {
        size_t n = strcspn(at, "\n");
        memcpy(one, at, n); /* the whole ends within f->assumptions, which is as large */
        one[n] = 0;
        spw_json_comma(t);
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
    spw_json_put_text(t, "flag_id", r->flag_id[0] ? r->flag_id : NULL);
    spw_json_put_text(t, "type", spw_fallback_name(r->type));
    spw_json_put_text(t, "cause", spw_cause_name(r->cause));
    spw_json_put_text(t, "match", spw_match_name(f->match));
    spw_json_open(t, "rates", "{");
    rate_put(t, "state", f->rate.state_ppb);
    rate_put(t, "county", f->rate.county_ppb);
    rate_put(t, "city", f->rate.city_ppb);
    rate_put(t, "special", f->rate.special_ppb);
    rate_put(t, "combined", f->rate.combined_ppb);
    spw_text_put(t, "}");
    spw_json_put_text(t, "source", dated ? f->source.name : NULL);
    spw_json_put_text(t, "as_of", dated ? day : NULL);
    spw_json_put_u64(t, "age_days", f->age_days);
    spw_json_put_word(t, "stale", f->stale ? "true" : "false");
    spw_json_put_text(t, "nexus", f->match == SPW_MATCH_NO_NEXUS ? "not-registered" : "registered");
    assumptions_put(t, f);
    spw_json_put_u64(t, "live_again_in_ms", r->live_again_in_ms);
    if (r->handback)
        spw_json_put_word(t, "handback", r->handback); /* JSON itself */
    spw_text_put(t, "}");
}

static void priced_put(struct spw_text *t, const struct spw_result *r)
{
    bool live = r->decision == SPW_DECISION_LIVE;
    spw_json_put_word(t, "reused", r->reused ? "true" : "false");
    minor_put(t, "tax", r->tax_minor);
    spw_json_put_text(t, "currency", r->request->currency ? r->request->currency : "USD");
    spw_json_put_text(t, "rounding", live ? "provider" : spw_rounding_name(r->fallback->rounding));
    lines_put(t, r);
    jurisdictions_put(t, r);
}

static void provider_put(struct spw_text *t, const struct spw_result *r)
{
    spw_json_open(t, "provider", "{");
    spw_json_put_text(t, "name", r->provider);
    if (r->provider_status)
        spw_json_put_u64(t, "status", r->provider_status);
    else
        spw_json_put_word(t, "status", "null");
    spw_json_put_u64(t, "attempts", r->attempts);
    spw_json_put_u64(t, "ms", r->provider_ms);
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

static void result_put(struct spw_text *t, const struct spw_result *r)
{
    bool priced = r->decision == SPW_DECISION_LIVE || r->decision == SPW_DECISION_FALLBACK;
    spw_text_put(t, "{");
    if (priced)
        spw_json_put_text(t, "quote_id", r->quote_id);
    spw_json_put_text(t, "decision", spw_decision_name(r->decision));
    spw_json_put_text(t, "decision_id", r->decision_id);
    if (priced)
        priced_put(t, r);
    if (r->decision == SPW_DECISION_NONE) {
        spw_json_put_word(t, "tax", "null");
        spw_json_put_text(t, "reason", r->reason ? r->reason : "unknown");
        spw_json_put_text(t, "type", spw_fallback_name(r->type));
        spw_json_put_text(t, "cause", spw_cause_name(r->cause));
    }
    provider_put(t, r);
    if (r->decision == SPW_DECISION_FALLBACK) {
        spw_json_put_name(t, "fallback");
        fallback_put(t, r);
    } else if (priced) {
        spw_json_put_word(t, "fallback", "null");
    }
    if (r->decision == SPW_DECISION_REJECTED)
        spw_json_put_word(t, "provider_error",
                          r->answer && r->answer->error_json ? r->answer->error_json
                                                             : "null"); /* JSON itself */
    spw_text_put(t, "}");
}

char *spw_result_json(const struct spw_result *r)
{
    char own[6144]; /* holds most answers, so that only what one takes is allocated */
    size_t room = room_for(r);
    char *large = room > sizeof own ? malloc(room) : NULL;
    if (room > sizeof own && !large)
        return NULL;
    struct spw_text t = spw_text_on(large ? large : own, large ? room : sizeof own);
    result_put(&t, r);
    if (!t.overflow)
        return large ? large : strdup(own);
    free(large);
    return NULL;
}
