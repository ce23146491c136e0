/* conf_fallback.c: the rules of the fallback: nexus, rate tables and their age, product codes, rounding.
 *
 * Owns: spw_check_fallback. Called by: conf_check.c. Thread: any; pure. Rate files are named here, and read by rates/.
 */
#include "sidecar/conf/conf_check.h"

#include <stdio.h>
#include <string.h>

#include "sidecar/conf/conf_text.h"

#define MS_PER_DAY           86400000u
#define DAYS_MAX             3650u
#define DEFAULT_CODE         "default"
#define BAD_ROWS_DEFAULT_PPM 50000u
#define BAD_ROWS_MOST_PPM    500000u

/* States, the federal district, territories and the military's "states" of the US postal service. */
static const char STATES[] =
    "AK AL AR AZ CA CO CT DC DE FL GA HI IA ID IL IN KS KY LA MA MD ME MI MN MO MS MT NC ND "
    "NE NH NJ NM NV NY OH OK OR PA RI SC SD TN TX UT VA VT WA WI WV WY AS GU MP PR VI AA AE "
    "AP";

static bool is_state(const char *text)
{
    if (strlen(text) != 2)
        return false;
    for (const char *p = STATES; *p; p += 2 + (p[2] == ' '))
        if (p[0] == text[0] && p[1] == text[1])
            return true;
    return false;
}

static enum spw_status check_nexus(struct spw_check *c, const Spillway__V1__FallbackConfig *in,
                                   struct spw_conf_fallback *out)
{
    out->nexus_all = in->n_nexus == 0;
    if (in->n_nexus > SPW_CONF_STATES_MAX_COUNT)
        return spw_check_fault(c, "nexus", "has %zu entries: at most %u", in->n_nexus,
                               SPW_CONF_STATES_MAX_COUNT);
    for (size_t i = 0; i < in->n_nexus; i++) {
        char field[48], shown[SPW_SHOWN_BYTES];
        snprintf(field, sizeof field, "nexus[%zu]", i);
        const char *state = in->nexus[i];
        spw_text_show(state, strlen(state), shown);
        if (!is_state(state))
            return spw_check_fault(c, field, "%s is no state: write its two capital letters, as WA", shown);
        for (size_t j = 0; j < i; j++)
            if (!strcmp(out->nexus[j], state))
                return spw_check_fault(c, field, "%s is listed twice: remove one", shown);
        memcpy(out->nexus[i], state, 3);
        out->nexus_count++;
    }
    return SPW_STATUS_OK;
}

static enum spw_status check_rate_file(struct spw_check *c, size_t index,
                                       const Spillway__V1__RateFileConfig *in, struct spw_conf_rate_file *out)
{
    char file[48], as_of[48], source[48];
    snprintf(file, sizeof file, "rates[%zu].file", index);
    snprintf(as_of, sizeof as_of, "rates[%zu].as_of", index);
    snprintf(source, sizeof source, "rates[%zu].source", index);
    if (!in->file)
        return spw_check_fault(c, file, "is missing: write the rate table's path");
    if (!in->as_of)
        return spw_check_fault(c, as_of,
                               "is missing: tables do not state their date, so write it, as 2025-11-01");
    if (!in->source)
        return spw_check_fault(c, source, "is missing: write where the table is from, as vendor-2025-11");
    enum spw_status status = spw_check_path(c, file, in->file, out->file, sizeof out->file);
    if (!status)
        status = spw_check_name(c, source, in->source, out->source, sizeof out->source);
    if (status)
        return status;
    status = spw_parse_date_day(in->as_of, &out->as_of_day, c->err);
    return status ? spw_check_place(c, as_of, status) : status;
}

static enum spw_status check_rate_files(struct spw_check *c, const Spillway__V1__FallbackConfig *in,
                                        struct spw_conf_fallback *out)
{
    if (in->n_rates > SPW_CONF_RATE_FILES_MAX_COUNT)
        return spw_check_fault(c, "rates", "has %zu entries: at most %u", in->n_rates,
                               SPW_CONF_RATE_FILES_MAX_COUNT);
    for (size_t i = 0; i < in->n_rates; i++) {
        enum spw_status status = check_rate_file(c, i, in->rates[i], &out->rate_files[i]);
        if (status)
            return status;
        for (size_t j = 0; j < i; j++) {
            char field[48];
            snprintf(field, sizeof field, "rates[%zu].file", i);
            if (!strcmp(out->rate_files[j].file, out->rate_files[i].file))
                return spw_check_fault(c, field, "is listed twice: remove one");
        }
        out->rate_files_count++;
    }
    return SPW_STATUS_OK;
}

enum spw_status spw_check_days(struct spw_check *c, const char *field, const char *text, uint32_t *out_days)
{
    if (!text)
        return SPW_STATUS_OK;
    uint64_t ms;
    enum spw_status status = spw_parse_duration_ms(text, &ms, c->err);
    if (status)
        return spw_check_place(c, field, status);
    if (ms % MS_PER_DAY || ms < MS_PER_DAY || ms / MS_PER_DAY > DAYS_MAX)
        return spw_check_fault(c, field, "is out of range: write whole days, 1d to %ud", DAYS_MAX);
    *out_days = (uint32_t)(ms / MS_PER_DAY);
    return SPW_STATUS_OK;
}

static enum spw_status check_max_age(struct spw_check *c, const Spillway__V1__MaxAgeConfig *in,
                                     struct spw_conf_fallback *out)
{
    out->max_age_warn_days = 45;
    out->max_age_refuse_days = 120;
    if (!in)
        return SPW_STATUS_OK;
    enum spw_status status = spw_check_days(c, "max_age.warn", in->warn, &out->max_age_warn_days);
    if (!status)
        status = spw_check_days(c, "max_age.refuse", in->refuse, &out->max_age_refuse_days);
    if (!status && out->max_age_warn_days > out->max_age_refuse_days)
        return spw_check_fault(
            c, in->refuse ? "max_age.refuse" : "max_age.warn",
            "a table would be refused (%ud) before it is reported as stale (%ud): let warn be the "
            "shorter time",
            out->max_age_refuse_days, out->max_age_warn_days);
    return status;
}

static enum spw_status check_default_rate(struct spw_check *c, const Spillway__V1__FallbackConfig *in,
                                          struct spw_conf_fallback *out)
{
    out->on_no_rate = SPW_NO_RATE_BLOCK;
    if (in->has_on_no_rate &&
        in->on_no_rate == SPILLWAY__V1__FALLBACK_CONFIG__ON_NO_RATE__ON_NO_RATE_STATE_AVERAGE)
        out->on_no_rate = SPW_NO_RATE_STATE_AVERAGE;
    if (in->has_on_no_rate &&
        in->on_no_rate == SPILLWAY__V1__FALLBACK_CONFIG__ON_NO_RATE__ON_NO_RATE_DEFAULT_RATE)
        out->on_no_rate = SPW_NO_RATE_DEFAULT;
    bool used = out->on_no_rate == SPW_NO_RATE_DEFAULT;
    if (used && !in->default_rate)
        return spw_check_fault(c, "default_rate",
                               "is missing: on_no_rate: default_rate needs it, as 0.0825 or 8.25%%");
    if (!used && in->default_rate)
        return spw_check_fault(c, "default_rate",
                               "is used only with on_no_rate: default_rate: set that, or remove this");
    if (!used)
        return SPW_STATUS_OK;
    enum spw_status status = spw_parse_rate_ppb(in->default_rate, &out->default_rate_ppb, c->err);
    return status ? spw_check_place(c, "default_rate", status) : status;
}

static enum spw_tax_code_rule rule_of(Spillway__V1__FallbackConfig__TaxRule rule)
{
    switch (rule) {
    case SPILLWAY__V1__FALLBACK_CONFIG__TAX_RULE__TAX_RULE_EXEMPT:
        return SPW_RULE_EXEMPT;
    case SPILLWAY__V1__FALLBACK_CONFIG__TAX_RULE__TAX_RULE_LEARNED:
        return SPW_RULE_LEARNED;
    case SPILLWAY__V1__FALLBACK_CONFIG__TAX_RULE__TAX_RULE_REFUSE:
        return SPW_RULE_REFUSE;
    default:
        return SPW_RULE_GENERAL;
    }
}

static enum spw_status check_tax_codes(struct spw_check *c, const Spillway__V1__FallbackConfig *in,
                                       struct spw_conf_fallback *out)
{
    out->tax_rule_default = SPW_RULE_GENERAL;
    for (size_t i = 0; i < in->n_tax_codes; i++) {
        const Spillway__V1__FallbackConfig__TaxCodesEntry *entry = in->tax_codes[i];
        enum spw_tax_code_rule rule = rule_of(entry->value);
        if (!strcmp(entry->key, DEFAULT_CODE)) {
            out->tax_rule_default = rule;
            continue;
        }
        if (out->tax_codes_count == SPW_CONF_TAX_CODES_MAX_COUNT)
            return spw_check_fault(c, "tax_codes", "has more than %u codes", SPW_CONF_TAX_CODES_MAX_COUNT);
        struct spw_conf_tax_code *code = &out->tax_codes[out->tax_codes_count];
        char field[SPW_CONF_PATH_BYTES];
        snprintf(field, sizeof field, "tax_codes.%s", entry->key);
        enum spw_status status = spw_check_name(c, field, entry->key, code->code, sizeof code->code);
        if (status)
            return status;
        code->rule = rule;
        out->tax_codes_count++;
    }
    return SPW_STATUS_OK;
}

static enum spw_status check_shipping(struct spw_check *c, const Spillway__V1__FallbackConfig *in,
                                      struct spw_conf_fallback *out)
{
    out->shipping_taxable = in->has_shipping_taxable ? in->shipping_taxable : true;
    for (size_t i = 0; i < in->n_shipping_taxable_in; i++) {
        const Spillway__V1__FallbackConfig__ShippingTaxableInEntry *entry = in->shipping_taxable_in[i];
        char field[96], shown[SPW_SHOWN_BYTES];
        snprintf(field, sizeof field, "shipping_taxable_in.%.40s", entry->key);
        if (!is_state(entry->key))
            return spw_check_fault(c, field, "%s is no state: write its two capital letters, as WA",
                                   spw_text_show(entry->key, strlen(entry->key), shown));
        if (entry->value == out->shipping_taxable)
            continue;
        if (out->shipping_except_count == SPW_CONF_STATES_MAX_COUNT)
            return spw_check_fault(c, "shipping_taxable_in", "has more than %u states",
                                   SPW_CONF_STATES_MAX_COUNT);
        memcpy(out->shipping_except[out->shipping_except_count++], entry->key, 3);
    }
    return SPW_STATUS_OK;
}

/* How tables are read. */
static enum spw_status check_reading(struct spw_check *c, const Spillway__V1__FallbackConfig *in,
                                     struct spw_conf_fallback *out)
{
    out->bad_rows_max_ppm = BAD_ROWS_DEFAULT_PPM;
    out->several = SPW_SEVERAL_HIGHEST;
    if (in->has_several_rates &&
        in->several_rates == SPILLWAY__V1__FALLBACK_CONFIG__SEVERAL_RATES__SEVERAL_RATES_LOWEST)
        out->several = SPW_SEVERAL_LOWEST;
    if (in->has_several_rates &&
        in->several_rates == SPILLWAY__V1__FALLBACK_CONFIG__SEVERAL_RATES__SEVERAL_RATES_FIRST)
        out->several = SPW_SEVERAL_FIRST;
    if (in->bad_rows) {
        enum spw_status status = spw_parse_percent_ppm(in->bad_rows, &out->bad_rows_max_ppm, c->err);
        if (status)
            return spw_check_place(c, "bad_rows", status);
        if (out->bad_rows_max_ppm == 0 || out->bad_rows_max_ppm > BAD_ROWS_MOST_PPM)
            return spw_check_fault(c, "bad_rows", "is out of range: write above 0%% to %u%%",
                                   BAD_ROWS_MOST_PPM / 10000);
    }
    return in->rates_dir
               ? spw_check_path(c, "rates_dir", in->rates_dir, out->rates_dir, sizeof out->rates_dir)
               : SPW_STATUS_OK;
}

static enum spw_status check_rounding(struct spw_check *c, const char *text, struct spw_conf_fallback *out)
{
    out->rounding = SPW_ROUNDING_HALF_UP_LINE;
    if (!text)
        return SPW_STATUS_OK;
    for (uint32_t i = 0; i < SPW_ROUNDING_COUNT; i++) {
        if (!strcmp(text, spw_rounding_name(i))) {
            out->rounding = (enum spw_rounding)i;
            return SPW_STATUS_OK;
        }
    }
    char shown[SPW_SHOWN_BYTES];
    return spw_check_fault(
        c, "rounding", "%s is not known: write one of %s, %s", spw_text_show(text, strlen(text), shown),
        spw_rounding_name(SPW_ROUNDING_HALF_UP_LINE), spw_rounding_name(SPW_ROUNDING_HALF_UP_ORDER));
}

enum spw_status spw_check_fallback(struct spw_check *c, const Spillway__V1__FallbackConfig *in,
                                   struct spw_conf_fallback *out)
{
    static const Spillway__V1__FallbackConfig ABSENT = SPILLWAY__V1__FALLBACK_CONFIG__INIT;
    if (!in)
        in = &ABSENT;
    snprintf(c->base, sizeof c->base, "fallback");
    enum spw_status status = check_nexus(c, in, out);
    if (!status)
        status = check_shipping(c, in, out);
    if (!status)
        status = check_reading(c, in, out);
    if (!status)
        status = check_rate_files(c, in, out);
    if (!status)
        status = check_max_age(c, in->max_age, out);
    if (!status)
        status = check_default_rate(c, in, out);
    if (!status)
        status = check_tax_codes(c, in, out);
    return status ? status : check_rounding(c, in->rounding, out);
}
