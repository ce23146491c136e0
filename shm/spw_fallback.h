/* spw_fallback.h: the answer when the live call cannot be had: cached rate, stated rounding, stated assumptions.
 *
 * Owns: the fallback's arithmetic and rules. Called by: the client header (early fallback, sidecar gone) and the
 * sidecar's decision tree: one code, so that both give the same cent. Thread/process: any; reads the segment only.
 *
 * Integers only. tax = taxable_minor * ppb / 1e9, rounded half up (away from zero for credits), per line or once per
 * order as configured. What is not known is NONE, never zero.
 *
 * A line's rate, first that is known: learned for its tax code (rule `learned`), the table's own record for the code, the
 * general rate; and, where no general rate is known, what was learned for the code whatever its rule. The general rate:
 * ZIP+4, ZIP code, learned for general goods, state average, default rate: the last two as on_no_rate says.
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
    SPW_NO_ANSWER_PLACE,    /* the destination makes no sense */
    SPW_NO_ANSWER_CURRENCY  /* its minor unit is not the hundredth part that amounts are counted in */
};

static inline const char *spw_no_answer_name(uint32_t why)
{
    static const char *const name[] = {"",
                                       "no-rate",
                                       "rates-too-old",
                                       "tax-code-refused",
                                       "rates-unreadable",
                                       "bad-destination",
                                       "bad-currency"};
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

/* ---- rates ---- */

/* What one computation works on. */
struct spw__quoting {
    const struct spw_map *map;
    const struct spw_policy *policy;
    const struct spw_quote_request *q;
    struct spw_place place;
    int32_t today;
    struct spw_text notes;
    bool general;                  /* out->rate is the general rate */
    enum spw_no_answer no_general; /* or why there is none */
};

/* One rate with where it is from. */
struct spw__sourced {
    struct spw_rate_record rate;
    struct spw_source source;
    uint32_t age_days;
    bool stale;
};

static inline bool spw__young_enough(const struct spw__quoting *c, struct spw__sourced *s)
{
    s->age_days = c->today > s->source.as_of_day ? (uint32_t)(c->today - s->source.as_of_day) : 0;
    s->stale = s->age_days > c->policy->warn_age_days;
    return s->age_days <= c->policy->refuse_age_days;
}

static inline void spw__use(struct spw_fallback_answer *out, const struct spw__sourced *s,
                            enum spw_match match)
{
    out->rate = s->rate;
    out->source = s->source;
    out->age_days = s->age_days;
    out->stale = s->stale;
    out->match = match;
}

/* What was learned for a tax code (NULL: general goods), as a record of a source "learned". A rate learned after the day
 * of the sale says nothing of it; the day before is allowed for, since shops and days begin at different hours. */
static inline bool spw__learned(const struct spw__quoting *c, const char *code, struct spw__sourced *s)
{
    struct spw_learned_rate found;
    uint32_t level;
    memset(s, 0, sizeof *s);
    if (!spw_learned_find(c->map, &c->place, spw_learned_subject(c->q->account, &c->q->ship_from, code),
                          &found, &level))
        return false;
    memcpy(s->rate.country, c->place.country, sizeof s->rate.country);
    memcpy(s->rate.state, found.state, sizeof s->rate.state);
    s->rate.state[sizeof s->rate.state - 1] = 0;
    s->rate.level = (uint8_t)level;
    s->rate.zip5 = c->place.zip5;
    s->rate.combined_ppb = found.combined_ppb;
    s->rate.state_ppb = found.state_ppb;
    s->rate.county_ppb = found.county_ppb;
    s->rate.city_ppb = found.city_ppb;
    s->rate.special_ppb = found.special_ppb;
    memcpy(s->source.name, SPW_LEARNED_SOURCE, sizeof SPW_LEARNED_SOURCE);
    s->source.as_of_day = (int32_t)(found.learned_unix_ms / 86400000);
    return (int32_t)c->place.day + 1 >= s->source.as_of_day && spw__young_enough(c, s);
}

/* The table's record for the line's own tax code. */
static inline bool spw__coded(const struct spw__quoting *c, const char *code, struct spw__sourced *s)
{
    static const uint32_t levels[] = {SPW_RATE_ZIP9, SPW_RATE_ZIP5, SPW_RATE_STATE, SPW_RATE_COUNTRY, 0};
    struct spw_place place = c->place;
    place.tax_code_hash = spw_tax_code_hash(code);
    return spw_rates_find(c->map, &place, levels, &s->rate, &s->source) == SPW_RATES_FOUND &&
           spw__young_enough(c, s);
}

/* The general rate for the place, by table, age and policy. */
static inline enum spw_no_answer spw__general_rate(struct spw__quoting *c, struct spw_fallback_answer *out)
{
    static const uint32_t exact[] = {SPW_RATE_ZIP9, SPW_RATE_ZIP5, 0};
    static const uint32_t average[] = {SPW_RATE_STATE, 0};
    static const uint32_t abroad[] = {SPW_RATE_STATE, SPW_RATE_COUNTRY, 0};
    bool us = memcmp(c->place.country, "US", 3) == 0;
    struct spw__sourced s;
    memset(&s, 0, sizeof s);
    enum spw_rates_result result = spw_rates_find(c->map, &c->place, us ? exact : abroad, &s.rate, &s.source);
    if (result == SPW_RATES_BUSY)
        return SPW_NO_ANSWER_TABLE;
    bool old = result == SPW_RATES_FOUND && !spw__young_enough(c, &s);
    if (result == SPW_RATES_FOUND && !old) {
        spw__use(out, &s, spw_rate_match(s.rate.level));
        return SPW_ANSWERED;
    }
    struct spw__sourced other;
    if (spw__learned(c, NULL, &other)) {
        spw__use(out, &other, SPW_MATCH_LEARNED);
        return SPW_ANSWERED;
    }
    if (us && !old && c->policy->on_no_rate == SPW_NO_RATE_STATE_AVERAGE) {
        result = spw_rates_find(c->map, &c->place, average, &s.rate, &s.source);
        if (result == SPW_RATES_BUSY)
            return SPW_NO_ANSWER_TABLE;
        old = result == SPW_RATES_FOUND && !spw__young_enough(c, &s);
        if (result == SPW_RATES_FOUND && !old) {
            spw__use(out, &s, SPW_MATCH_STATE);
            return SPW_ANSWERED;
        }
    }
    if (c->policy->on_no_rate != SPW_NO_RATE_DEFAULT) {
        if (old)
            spw__use(out, &s, SPW_MATCH_NONE); /* says how old */
        return old ? SPW_NO_ANSWER_TOO_OLD : SPW_NO_ANSWER_RATE;
    }
    memset(&s, 0, sizeof s);
    s.rate.combined_ppb = c->policy->default_rate_ppb;
    spw__use(out, &s, SPW_MATCH_DEFAULT);
    return SPW_ANSWERED;
}

/* ---- lines ---- */

enum spw__rate_kind { SPW__RATE_GENERAL, SPW__RATE_LEARNED, SPW__RATE_CODED, SPW__RATE_UNKNOWN };

/* "line 2: PC040100 at 0.05, learned 2025-11-20" */
static inline void spw__assume_own(struct spw__quoting *c, const char *id, const char *code,
                                   const struct spw__sourced *s, bool learned)
{
    char what[160];
    struct spw_text t = spw_text_on(what, sizeof what);
    spw_text_put(&t, "at ");
    spw_text_decimal(&t, s->rate.combined_ppb, 9, true);
    spw_text_put(&t, learned ? ", learned " : ", its own rate of ");
    if (learned)
        spw_text_day(&t, s->source.as_of_day);
    else
        spw_text_put(&t, s->source.name);
    spw__assume(&c->notes, id, code, what);
}

/* The rate of one line; s is filled for what is not the general rate. */
static inline enum spw__rate_kind spw__line_rate(struct spw__quoting *c, const char *id, const char *code,
                                                 uint32_t rule, struct spw__sourced *s)
{
    bool coded = code && code[0];
    if (coded && rule == SPW_RULE_LEARNED && spw__learned(c, code, s)) {
        spw__assume_own(c, id, code, s, true);
        return SPW__RATE_LEARNED;
    }
    if (coded && spw__coded(c, code, s)) {
        spw__assume_own(c, id, code, s, false);
        return SPW__RATE_CODED;
    }
    if (coded && !c->general && spw__learned(c, code, s)) {
        spw__assume_own(c, id, code, s, true);
        return SPW__RATE_LEARNED;
    }
    if (c->general && rule == SPW_RULE_LEARNED)
        spw__assume(&c->notes, id, code, "at general rate");
    return c->general ? SPW__RATE_GENERAL : SPW__RATE_UNKNOWN;
}

static inline bool spw__shipping_taxed(const struct spw_policy *policy, const char *state)
{
    for (uint32_t i = 0; state[0] && i < policy->shipping_except_count && i < SPW_NEXUS_MAX_COUNT; i++) {
        if (memcmp(policy->shipping_except[i], state, 2) == 0)
            return !policy->shipping_taxable;
    }
    return policy->shipping_taxable != 0;
}

/* Thousand-millionths of a minor unit to minor units, half up, away from zero. */
static inline int64_t spw__round_e9(spw_i128 tax_e9)
{
    spw_i128 magnitude = tax_e9 < 0 ? -tax_e9 : tax_e9;
    int64_t minor = (int64_t)((magnitude + 500000000) / 1000000000);
    return tax_e9 < 0 ? -minor : minor;
}

/* The rate of the answer as a whole where lines had rates of their own. */
struct spw__kinds {
    uint32_t count[SPW__RATE_UNKNOWN];
    struct spw__sourced first; /* of those */
};

static inline void spw__answer_rate(const struct spw__quoting *c, const struct spw__kinds *kinds,
                                    struct spw_fallback_answer *out)
{
    uint32_t own = kinds->count[SPW__RATE_LEARNED] + kinds->count[SPW__RATE_CODED];
    if (own == 0)
        return;
    bool learned = kinds->count[SPW__RATE_LEARNED] == own && kinds->count[SPW__RATE_GENERAL] == 0;
    if (learned || !c->general)
        spw__use(out, &kinds->first, SPW_MATCH_LEARNED);
    out->match = learned ? SPW_MATCH_LEARNED : SPW_MATCH_MIXED;
}

/* What of a line is taxed, by nexus, exemption and rules. */
static inline int64_t spw__taxable(struct spw__quoting *c, const struct spw_fallback_answer *out,
                                   const char *id, const char *code, uint32_t rule, bool shipping,
                                   int64_t amount)
{
    if (out->match == SPW_MATCH_NO_NEXUS || out->match == SPW_MATCH_EXEMPT)
        return 0;
    if (rule == SPW_RULE_EXEMPT) {
        spw__assume(&c->notes, id, code, "exempt by rule");
        return 0;
    }
    if (shipping && !spw__shipping_taxed(c->policy, c->place.state)) {
        if (amount)
            spw__assume(&c->notes, NULL, "shipping", "not taxed by rule");
        return 0;
    }
    return amount;
}

/* Taxes of all lines and shipping. Per order: each line gets the growth of the rounded running total, so that the
 * lines add up to the order's tax to the cent. */
static inline enum spw_no_answer spw__fallback_lines(struct spw__quoting *c, struct spw_fallback_answer *out,
                                                     struct spw_line_tax *lines)
{
    const struct spw_quote_request *q = c->q;
    bool zero_rate = out->match == SPW_MATCH_NO_NEXUS || out->match == SPW_MATCH_EXEMPT;
    bool per_order = c->policy->rounding == SPW_ROUNDING_HALF_UP_ORDER;
    struct spw__kinds kinds;
    spw_i128 running_e9 = 0;
    memset(&kinds, 0, sizeof kinds);
    for (uint32_t i = 0; i <= q->line_count; i++) {
        bool shipping = i == q->line_count;
        int64_t amount = shipping ? q->shipping_minor : q->lines[i].amount_minor;
        const char *code = shipping ? q->shipping_tax_code : q->lines[i].tax_code;
        const char *id = shipping ? "shipping" : q->lines[i].id ? q->lines[i].id : "?";
        uint32_t rule = spw__tax_rule(c->policy, code), ppb = 0;
        if (rule == SPW_RULE_REFUSE && !zero_rate)
            return SPW_NO_ANSWER_TAX_CODE;
        int64_t taxable = spw__taxable(c, out, id, code, rule, shipping, amount);
        bool taxed = !zero_rate && (taxable != 0 || (!shipping && rule != SPW_RULE_EXEMPT));
        if (taxed) {
            struct spw__sourced s;
            enum spw__rate_kind kind = spw__line_rate(c, id, code, rule, &s);
            if (kind == SPW__RATE_UNKNOWN)
                return c->no_general;
            if (kind != SPW__RATE_GENERAL &&
                kinds.count[SPW__RATE_LEARNED] + kinds.count[SPW__RATE_CODED] == 0)
                kinds.first = s;
            kinds.count[kind]++;
            ppb = kind == SPW__RATE_GENERAL ? out->rate.combined_ppb : s.rate.combined_ppb;
        }
        int64_t before = spw__round_e9(running_e9);
        running_e9 += (spw_i128)taxable * ppb;
        lines[i].taxable_minor = taxable;
        lines[i].tax_minor = per_order ? spw__round_e9(running_e9) - before : spw_tax_minor(taxable, ppb);
        out->total_minor += amount;
        out->taxable_minor += taxable;
        out->tax_minor += lines[i].tax_minor;
    }
    if (!zero_rate && !c->general && kinds.count[SPW__RATE_LEARNED] + kinds.count[SPW__RATE_CODED] == 0)
        return c
            ->no_general; /* nothing was taxed, and nothing is known of the place: not a zero to vouch for */
    spw__answer_rate(c, &kinds, out);
    return SPW_ANSWERED;
}

/* The rules in force; false only when the publisher kept overtaking. */
static inline bool spw_policy_read(const struct spw_map *map, struct spw_policy *out)
{
    return spw_latch_read(&spw_map_pub(map)->policy_seq,
                          (const uint64_t *)(const void *)spw_policy_at(map, 0),
                          map->pub_section[SPW_PUB_POLICY].stride_bytes / 8, out, sizeof *out / 8);
}

/* What is taken for granted about place and general rate. */
static inline void spw__assume_place(struct spw__quoting *c, const struct spw_fallback_answer *out)
{
    bool matched_zip = c->general && (out->match == SPW_MATCH_ZIP5 || out->match == SPW_MATCH_ZIP9);
    if (c->place.padded) {
        char zip[8];
        struct spw_text t = spw_text_on(zip, sizeof zip);
        for (uint32_t part = 10000; part > c->place.zip5 && part > 1; part /= 10)
            spw_text_put(&t, "0");
        spw_text_u64(&t, c->place.zip5);
        spw__assume(&c->notes, NULL, zip, "read for a ZIP code without its leading zeros");
    }
    if (!c->policy->nexus_all && !c->place.state[0])
        spw__assume(&c->notes, NULL, NULL, "the state is not known: taken for registered");
    if (matched_zip && c->place.state[0] && memcmp(c->place.state, out->rate.state, 2) != 0)
        spw__assume(&c->notes, NULL, out->rate.state,
                    "is the state of the ZIP code, not the one of the address");
    if (c->general && out->match == SPW_MATCH_STATE)
        spw__assume(&c->notes, NULL, c->place.state, "rate of the whole state: its ZIP code is not known");
    if (c->general && out->match == SPW_MATCH_COUNTRY)
        spw__assume(&c->notes, NULL, c->place.country, "rate of the whole country");
    if (c->general && out->match == SPW_MATCH_DEFAULT)
        spw__assume(&c->notes, NULL, NULL, "the default rate: none is known for the destination");
    if (c->general && out->match == SPW_MATCH_LEARNED) {
        struct spw__sourced s;
        memset(&s, 0, sizeof s);
        s.rate = out->rate;
        s.source = out->source;
        spw__assume_own(c, NULL, NULL, &s, true);
    }
}

/* Amounts are counted in hundredths: currencies with other minor units are not served by a guess. */
static inline bool spw_currency_has_cents(const char *currency)
{
    static const char others[] =
        "BHDBIFCLPDJFGNFIQDISKJODJPYKMFKRWKWDLYDMGAMRUOMRPYGRWFTNDUGXUYIVNDVUVXAFXOFXPF";
    for (size_t i = 0; currency && currency[0] && i < sizeof others - 1; i += 3) {
        if (strncmp(currency, others + i, 3) == 0)
            return false;
    }
    return true;
}

/* Compute the fallback for a request. lines: q->line_count + 1 entries, shipping last. The request's own date says which
 * rates hold, or else the day it is at the destination; the instant says how old they are. */
static inline void spw_fallback_compute(const struct spw_map *map, const struct spw_quote_request *q,
                                        int64_t now_unix_ms, struct spw_line_tax *lines,
                                        struct spw_fallback_answer *out)
{
    struct spw_policy policy;
    struct spw__quoting c;
    int32_t sale_day;
    memset(out, 0, sizeof *out);
    memset(&c, 0, sizeof c);
    c.map = map;
    c.policy = &policy;
    c.q = q;
    c.today = (int32_t)(now_unix_ms / 86400000);
    c.notes = spw_text_on(out->assumptions, sizeof out->assumptions);
    if (!spw_policy_read(map, &policy)) {
        out->why_not = SPW_NO_ANSWER_TABLE;
        return;
    }
    out->rounding = (enum spw_rounding)policy.rounding;
    out->why_not = !spw_place_from(&q->ship_to, &c.place) ? SPW_NO_ANSWER_PLACE
                   : !spw_currency_has_cents(q->currency) ? SPW_NO_ANSWER_CURRENCY
                                                          : SPW_ANSWERED;
    if (out->why_not != SPW_ANSWERED)
        return;
    if (!q->date || !spw_date_parse(q->date, &sale_day))
        sale_day = spw_address_day(&q->ship_to, now_unix_ms);
    c.place.day = sale_day > 0 ? (uint32_t)sale_day : 0;
    c.no_general = spw__general_rate(&c, out);
    c.general = c.no_general == SPW_ANSWERED;
    if (!c.place.state[0] && c.general && (out->match == SPW_MATCH_ZIP5 || out->match == SPW_MATCH_ZIP9))
        memcpy(c.place.state, out->rate.state, sizeof c.place.state);
    if (!spw__nexus(&policy, c.place.state) || (q->exemption && q->exemption[0])) {
        bool nexus = spw__nexus(&policy, c.place.state);
        memset(&out->rate, 0, sizeof out->rate);
        out->match = nexus ? SPW_MATCH_EXEMPT : SPW_MATCH_NO_NEXUS;
        if (nexus)
            spw__assume(&c.notes, NULL, q->exemption, "exemption taken as stated");
    } else {
        spw__assume_place(&c, out);
    }
    out->why_not = spw__fallback_lines(&c, out, lines);
    out->assumptions_bytes = c.notes.used;
}

#ifdef __cplusplus
}
#endif

#endif
