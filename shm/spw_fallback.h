/* spw_fallback.h: the answer when the live call cannot be had: cached rate, stated rounding, stated assumptions.
 *
 * Owns: the fallback's arithmetic and rules. Called by: the client header (early fallback, sidecar gone) and the
 * sidecar's decision tree: one code, so that both give the same cent. Thread/process: any; reads the segment only.
 *
 * Integers only. tax = taxable_minor * ppb / 1e9, rounded half up (away from zero for credits), per line or once per
 * order as configured. What is not known is NONE, never zero.
 */
#ifndef SPW_FALLBACK_H
#define SPW_FALLBACK_H

#include "shm/spw_gcra.h"
#include "shm/spw_latch.h"
#include "shm/spw_rates.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Why there is no answer. */
enum spw_no_answer {
    SPW_ANSWERED,
    SPW_NO_ANSWER_RATE,     /* the table knows nothing for the place and the policy is to block */
    SPW_NO_ANSWER_TOO_OLD,  /* the table is older than max_age.refuse */
    SPW_NO_ANSWER_TAX_CODE, /* a line's tax code is set to refuse */
    SPW_NO_ANSWER_TABLE,    /* the table could not be read whole */
    SPW_NO_ANSWER_PLACE     /* the destination makes no sense */
};

static inline const char *spw_no_answer_name(uint32_t why)
{
    static const char *const name[] = {
        "", "no-rate", "rates-too-old", "tax-code-refused", "rates-unreadable", "bad-destination"};
    return why < sizeof name / sizeof name[0] ? name[why] : "unknown";
}

struct spw_fallback_answer {
    enum spw_no_answer why_not; /* SPW_ANSWERED: all below is set */
    enum spw_match match;
    struct spw_rate_record rate; /* the rates applied; zero for no-nexus and exempt */
    struct spw_source source;
    uint32_t age_days;
    bool stale;
    enum spw_rounding rounding;
    int64_t total_minor; /* lines and shipping before tax */
    int64_t taxable_minor;
    int64_t tax_minor;
    size_t assumptions_bytes;
    char assumptions[SPW_ASSUMPTIONS_MAX_BYTES]; /* one a line */
};

/* amount * ppb / 1e9, half up. */
static inline int64_t spw_tax_minor(int64_t taxable_minor, uint32_t ppb)
{
    uint64_t magnitude = taxable_minor < 0 ? 0 - (uint64_t)taxable_minor : (uint64_t)taxable_minor;
    uint64_t tax = (uint64_t)(((spw_u128)magnitude * ppb + 500000000u) / 1000000000u);
    return taxable_minor < 0 ? -(int64_t)tax : (int64_t)tax;
}

static inline uint32_t spw__tax_rule(const struct spw_policy *policy, const char *code)
{
    for (uint32_t i = 0; code && i < policy->tax_codes_count && i < SPW_TAX_CODES_MAX_COUNT; i++) {
        if (strncmp(policy->tax_codes[i].code, code, sizeof policy->tax_codes[i].code) == 0)
            return policy->tax_codes[i].rule;
    }
    return code ? policy->tax_rule_default : (uint32_t)SPW_RULE_GENERAL;
}

static inline bool spw__nexus(const struct spw_policy *policy, const char *state)
{
    if (policy->nexus_all || !state[0])
        return true; /* an unknown state is not taken for one without nexus */
    for (uint32_t i = 0; i < policy->nexus_count && i < SPW_NEXUS_MAX_COUNT; i++) {
        if (strncmp(policy->nexus[i], state, 2) == 0)
            return true;
    }
    return false;
}

static inline void spw__assume(struct spw_text *t, const char *line_id, const char *code, const char *what)
{
    size_t before = t->used;
    if (line_id) {
        spw_text_put(t, "line ");
        spw_text_put(t, line_id);
        spw_text_put(t, ": ");
    }
    if (code) {
        spw_text_put(t, code);
        spw_text_put(t, " ");
    }
    spw_text_put(t, what);
    spw_text_put(t, "\n");
    if (t->overflow) { /* an assumption that does not fit is dropped whole; the flag still holds the request */
        t->used = before;
        t->at[before] = 0;
    }
}

/* The rate for the place, by table, age and policy. */
static inline enum spw_no_answer spw__fallback_rate(const struct spw_map *map,
                                                    const struct spw_policy *policy,
                                                    const struct spw_place *place, int32_t today,
                                                    struct spw_fallback_answer *out)
{
    static const uint32_t exact[] = {SPW_RATE_ZIP9, SPW_RATE_ZIP5, 0};
    static const uint32_t average[] = {SPW_RATE_STATE, 0};
    static const uint32_t country[] = {SPW_RATE_COUNTRY, 0};
    bool us = memcmp(place->country, "US", 3) == 0;
    enum spw_rates_result result = spw_rates_find(map, place, us ? exact : country, &out->rate, &out->source);
    if (result == SPW_RATES_NOT_FOUND && policy->on_no_rate == SPW_NO_RATE_STATE_AVERAGE)
        result = spw_rates_find(map, place, average, &out->rate, &out->source);
    if (result == SPW_RATES_BUSY)
        return SPW_NO_ANSWER_TABLE;
    enum spw_no_answer why = SPW_NO_ANSWER_RATE;
    if (result == SPW_RATES_FOUND) {
        out->age_days = today > out->source.as_of_day ? (uint32_t)(today - out->source.as_of_day) : 0;
        out->stale = out->age_days > policy->warn_age_days;
        if (out->age_days <= policy->refuse_age_days) {
            out->match = spw_rate_match(out->rate.level);
            return SPW_ANSWERED;
        }
        why = SPW_NO_ANSWER_TOO_OLD;
    }
    if (policy->on_no_rate != SPW_NO_RATE_DEFAULT)
        return why;
    memset(&out->rate, 0, sizeof out->rate);
    memset(&out->source, 0, sizeof out->source);
    out->rate.combined_ppb = policy->default_rate_ppb;
    out->match = SPW_MATCH_DEFAULT;
    out->age_days = 0;
    out->stale = false;
    return SPW_ANSWERED;
}

/* Taxes of all lines and shipping. Per order: each line gets the growth of the rounded running total, so that the
 * lines add up to the order's tax to the cent. */
static inline enum spw_no_answer spw__fallback_lines(const struct spw_policy *policy,
                                                     const struct spw_quote_request *q,
                                                     struct spw_fallback_answer *out,
                                                     struct spw_line_tax *lines, struct spw_text *notes)
{
    int64_t running = 0;
    for (uint32_t i = 0; i <= q->line_count; i++) {
        bool shipping = i == q->line_count;
        int64_t amount = shipping ? q->shipping_minor : q->lines[i].amount_minor;
        const char *code = shipping ? q->shipping_tax_code : q->lines[i].tax_code;
        const char *id = shipping ? "shipping" : q->lines[i].id ? q->lines[i].id : "?";
        uint32_t rule = spw__tax_rule(policy, code);
        bool zero_rate = out->match == SPW_MATCH_NO_NEXUS || out->match == SPW_MATCH_EXEMPT;
        if (rule == SPW_RULE_REFUSE && !zero_rate)
            return SPW_NO_ANSWER_TAX_CODE;
        int64_t taxable = amount;
        if (zero_rate || rule == SPW_RULE_EXEMPT || (shipping && !policy->shipping_taxable))
            taxable = 0;
        if (!zero_rate && rule == SPW_RULE_EXEMPT)
            spw__assume(notes, id, code, "exempt by rule");
        if (!zero_rate && rule == SPW_RULE_LEARNED)
            spw__assume(notes, id, code, "at general rate");
        int64_t before = spw_tax_minor(running, out->rate.combined_ppb);
        running += taxable;
        lines[i].taxable_minor = taxable;
        lines[i].tax_minor = policy->rounding == SPW_ROUNDING_HALF_UP_ORDER
                                 ? spw_tax_minor(running, out->rate.combined_ppb) - before
                                 : spw_tax_minor(taxable, out->rate.combined_ppb);
        out->total_minor += amount;
        out->taxable_minor += taxable;
        out->tax_minor += lines[i].tax_minor;
    }
    return SPW_ANSWERED;
}

/* The rules in force; false only when the publisher kept overtaking. */
static inline bool spw_policy_read(const struct spw_map *map, struct spw_policy *out)
{
    return spw_latch_read(&spw_map_pub(map)->policy_seq,
                          (const uint64_t *)(const void *)spw_policy_at(map, 0),
                          map->pub_section[SPW_PUB_POLICY].stride_bytes / 8, out, sizeof *out / 8);
}

/* Compute the fallback for a request. lines: q->line_count + 1 entries, shipping last. today: days since 1970-01-01. */
static inline void spw_fallback_compute(const struct spw_map *map, const struct spw_quote_request *q,
                                        int32_t today, struct spw_line_tax *lines,
                                        struct spw_fallback_answer *out)
{
    struct spw_policy policy;
    struct spw_place place;
    memset(out, 0, sizeof *out);
    struct spw_text notes = spw_text_on(out->assumptions, sizeof out->assumptions);
    if (!spw_policy_read(map, &policy)) {
        out->why_not = SPW_NO_ANSWER_TABLE;
        return;
    }
    out->rounding = (enum spw_rounding)policy.rounding;
    if (!spw_place_from(&q->ship_to, &place)) {
        out->why_not = SPW_NO_ANSWER_PLACE;
        return;
    }
    out->why_not = spw__fallback_rate(map, &policy, &place, today, out);
    bool matched_zip =
        out->why_not == SPW_ANSWERED && (out->match == SPW_MATCH_ZIP5 || out->match == SPW_MATCH_ZIP9);
    if (!place.state[0] && matched_zip)
        memcpy(place.state, out->rate.state, sizeof place.state);
    if (!spw__nexus(&policy, place.state)) {
        memset(&out->rate, 0, sizeof out->rate);
        out->match = SPW_MATCH_NO_NEXUS;
        out->why_not = SPW_ANSWERED;
    } else if (q->exemption && q->exemption[0]) {
        memset(&out->rate, 0, sizeof out->rate);
        out->match = SPW_MATCH_EXEMPT;
        out->why_not = SPW_ANSWERED;
        spw__assume(&notes, NULL, q->exemption, "exemption taken as stated");
    } else if (matched_zip && place.state[0] && memcmp(place.state, out->rate.state, 2) != 0) {
        spw__assume(&notes, NULL, out->rate.state,
                    "is the state of the ZIP code, not the one of the address");
    }
    if (out->why_not != SPW_ANSWERED)
        return;
    out->why_not = spw__fallback_lines(&policy, q, out, lines, &notes);
    out->assumptions_bytes = notes.used;
}

#ifdef __cplusplus
}
#endif

#endif
