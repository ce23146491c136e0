/* rates_summary.c: TaxJar's summary of rates: one average for each state or province, one rate for each country.
 *
 * Owns: that format. Called by: rates.c. Thread: any; pure over bytes.
 *
 *     {"summary_rates": [{"country_code": "US", "region_code": "CA", "minimum_rate": {"label": "State Tax", "rate":
 *     0.065}, "average_rate": {"label": "Tax", "rate": 0.0827}}, {"country_code": "UK", "region_code": null, ...}]}
 *
 * Rates are fractions by definition, as numbers or as text. What is charged is the average; the least rate, a state's
 * own, is kept as its part. "UK" and "EL" are ISO's GB and GR.
 */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "sidecar/rates/rates_reader.h"

bool spw_rates_is_summary(const struct spw_rates_reader *r)
{
    const char *p = r->p;
    while (p < r->end && (*p == ' ' || *p == '\t' || *p == '\r' || *p == '\n'))
        p++;
    return p < r->end && (*p == '{' || *p == '[');
}

static bool read_code(struct spw_rates_reader *r, uint32_t entry, const json_t *object, const char *field,
                      bool may_be_absent, char out[4])
{
    const json_t *value = json_object_get(object, field);
    const char *text = json_string_value(value);
    memset(out, 0, 4);
    if (may_be_absent && (!value || json_is_null(value) || (text && !text[0])))
        return true;
    bool ok = text && strlen(text) == 2;
    for (size_t i = 0; ok && i < 2; i++)
        ok = text[i] >= 'A' && text[i] <= 'Z';
    if (!ok) {
        spw_rates_report(r, entry, field, "entry %u: is no code of two capital letters", entry);
        return false;
    }
    memcpy(out, text, 2);
    return true;
}

/* A fraction, from text or from a number; the nearest part per billion, which is exact for up to nine decimals. */
static bool read_rate(struct spw_rates_reader *r, uint32_t entry, const json_t *object, const char *field,
                      uint32_t *out_ppb)
{
    const json_t *value = json_object_get(json_object_get(object, field), "rate");
    char text[48] = "";
    if (json_is_string(value) && json_string_length(value) < sizeof text)
        snprintf(text, sizeof text, "%s", json_string_value(value));
    else if (json_is_number(value))
        snprintf(text, sizeof text, "%.9f", json_number_value(value));
    struct spw_rates_cell cell = {text, strlen(text)};
    const char *fault = spw_rates_fraction(&cell, out_ppb);
    if (fault)
        spw_rates_report(r, entry, field, "entry %u: %s", entry, fault);
    return !fault;
}

static bool read_entry(struct spw_rates_reader *r, uint32_t entry, const json_t *object,
                       struct spw_rate_row *row)
{
    *row = (struct spw_rate_row){.plus4_lo = SPW_RATES_WHOLE_ZIP, .plus4_hi = SPW_RATES_WHOLE_ZIP};
    if (!read_code(r, entry, object, "country_code", false, row->country) ||
        !read_code(r, entry, object, "region_code", true, row->state) ||
        !read_rate(r, entry, object, "minimum_rate", &row->state_ppb) ||
        !read_rate(r, entry, object, "average_rate", &row->combined_ppb))
        return false;
    if (memcmp(row->country, "UK", 2) == 0)
        memcpy(row->country, "GB", 2);
    if (memcmp(row->country, "EL", 2) == 0)
        memcpy(row->country, "GR", 2);
    const char *name = json_string_value(json_object_get(object, row->state[0] ? "region" : "country"));
    if (name)
        spw_rates_region(name, strlen(name), row);
    return true;
}

enum spw_status spw_rates_read_summary(struct spw_rates_reader *r)
{
    json_error_t error;
    json_t *root = json_loadb(r->p, (size_t)(r->end - r->p), JSON_REJECT_DUPLICATES, &error);
    if (!root)
        return spw_error_set(r->err, SPW_STATUS_PARSE, "%s:%d: column %d: is not the JSON it should be: %s",
                             r->name, error.line, error.column, error.text);
    const json_t *list = json_is_object(root) ? json_object_get(root, "summary_rates") : root;
    enum spw_status status = SPW_STATUS_OK;
    if (!json_is_array(list))
        status = spw_error_set(r->err, SPW_STATUS_PARSE,
                               "%s: has no list \"summary_rates\": save the answer of GET /summary_rates as "
                               "it is",
                               r->name);
    for (size_t i = 0; !status && i < json_array_size(list); i++) {
        struct spw_rate_row row;
        bool good = read_entry(r, (uint32_t)i + 1, json_array_get(list, i), &row);
        r->good_count += good;
        r->bad_count += !good;
        if (good)
            status = spw_rates_push(r, &row, (uint32_t)i + 1);
    }
    json_decref(root);
    return status;
}
