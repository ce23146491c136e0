/* import.c: see import.h. */
#include "sidecar/control/import.h"

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shm/spw_flag.h"
#include "sidecar/conf/conf.h"
#include "sidecar/provider/decimal.h"
#include "sidecar/store/store.h"

#define AMOUNT_MAX INT64_C(1000000000000000)

/* What a cell would hold. */
struct parsed {
    struct spw_flag_record record;
    struct spw_line_tax lines[SPW_LINES_MAX_COUNT + 1];
    char assumptions[SPW_ASSUMPTIONS_MAX_BYTES];
    char *request; /* jansson's */
    struct spw_order_record orders[16];
    size_t orders_count;
};

static enum spw_status fault(struct spw_error *err, const char *field, const char *text)
{
    return spw_error_set(err, SPW_STATUS_INVALID, "%s: %s", field, text);
}

/* A text into its field; absent leaves it empty. false: too long, or no text. */
static bool take(const json_t *root, const char *name, char *out, size_t room, struct spw_error *err)
{
    const json_t *value = json_object_get(root, name);
    const char *text = json_string_value(value);
    if (!value || json_is_null(value))
        return true;
    if (!text || strlen(text) >= room) {
        spw_error_set(err, SPW_STATUS_INVALID, "%s: is no text, or longer than %zu bytes", name, room - 1);
        return false;
    }
    snprintf(out, room, "%s", text);
    return true;
}
#define TAKE(root, name, field) take(root, name, field, sizeof(field), err)

/* "6.71", or {"minor": 671, ...}; absent is 0. */
static bool take_amount(const json_t *root, const char *name, int64_t *out, struct spw_error *err)
{
    const json_t *value = json_object_get(root, name), *minor = json_object_get(value, "minor");
    const char *text = json_string_value(value);
    *out = json_is_integer(minor) ? json_integer_value(minor) : 0;
    bool good =
        !value || json_is_null(value) || json_is_integer(minor) ||
        (text && spw_decimal_parse(text, strlen(text), 2, SPW_DECIMAL_HALF_UP, out) == SPW_DECIMAL_EXACT);
    if (good && *out >= -AMOUNT_MAX && *out <= AMOUNT_MAX)
        return true;
    spw_error_set(err, SPW_STATUS_INVALID, "%s: is no amount like \"6.71\"", name);
    return false;
}

static bool take_rate(const json_t *value, const char *name, uint32_t *out, struct spw_error *err)
{
    const json_t *ppb = json_object_get(value, "ppb");
    const char *text = json_string_value(value);
    if (!value || json_is_null(value))
        return true;
    if (json_is_integer(ppb) && json_integer_value(ppb) >= 0 && json_integer_value(ppb) <= UINT32_MAX) {
        *out = (uint32_t)json_integer_value(ppb);
        return true;
    }
    return (text && spw_parse_rate_ppb(text, out, err) == SPW_STATUS_OK) ||
           fault(err, name, "is no rate like \"0.092\"") == SPW_STATUS_OK;
}

static int64_t integer_of(const json_t *root, const char *name)
{
    return json_integer_value(json_object_get(root, name));
}

/* The code of a word; `absent` when there is none. false: a word nobody knows. */
static bool take_word(const json_t *root, const char *name, const char *(*word)(uint32_t), uint32_t count,
                      uint8_t absent, uint8_t *out, struct spw_error *err)
{
    const char *text = json_string_value(json_object_get(root, name));
    *out = absent;
    if (!text)
        return true;
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(word(i), text) == 0) {
            *out = (uint8_t)i;
            return true;
        }
    }
    fault(err, name, "is a word this version does not know");
    return false;
}

static bool take_words(const json_t *root, struct spw_flag_record *r, struct spw_error *err)
{
    return take_word(root, "type", spw_fallback_name, SPW_FALLBACK_COUNT, SPW_FALLBACK_NONE, &r->type, err) &&
           take_word(root, "cause", spw_cause_name, SPW_CAUSE_COUNT, 0, &r->cause, err) &&
           take_word(root, "match", spw_match_name, SPW_MATCH_COUNT, 0, &r->match, err) &&
           take_word(root, "purpose", spw_purpose_name, SPW_PURPOSE_COUNT, SPW_PURPOSE_ORDER, &r->purpose,
                     err) &&
           take_word(root, "rounding", spw_rounding_name, SPW_ROUNDING_COUNT, SPW_ROUNDING_HALF_UP_LINE,
                     &r->rounding, err);
}

static bool take_ids(const json_t *root, struct spw_flag_record *r, struct spw_error *err)
{
    return TAKE(root, "flag_id", r->flag_id) && TAKE(root, "quote_id", r->quote_id) &&
           TAKE(root, "decision_id", r->decision_id) && TAKE(root, "quote_ref", r->quote_ref) &&
           TAKE(root, "account", r->account) && TAKE(root, "integration", r->integration) &&
           TAKE(root, "currency", r->currency) && TAKE(root, "date", r->date);
}

/* Flat as it is handed back, or in parts as it is exported. */
static bool take_place_and_rates(const json_t *root, struct spw_flag_record *r, struct spw_error *err)
{
    const json_t *place = json_object_get(root, "destination"), *rates = json_object_get(root, "rates");
    bool exported = json_is_object(place);
    place = exported ? place : root;
    const char *as_of = json_string_value(json_object_get(rates, "as_of"));
    int32_t day = (int32_t)integer_of(root, "as_of_day");
    if (as_of && spw_parse_date_day(as_of, &day, err) != SPW_STATUS_OK)
        return false;
    r->as_of_day = day;
    r->age_days = (uint32_t)integer_of(rates, "age_days");
    r->stale = json_is_true(json_object_get(rates, "stale"));
    return TAKE(place, "country", r->country) && TAKE(place, "zip", r->zip) &&
           TAKE(place, "state", r->state) && TAKE(rates ? rates : root, "source", r->source) &&
           take_rate(rates ? json_object_get(rates, "combined") : json_object_get(root, "rate"), "rate",
                     &r->combined_ppb, err) &&
           take_rate(json_object_get(rates, "state"), "rates.state", &r->state_ppb, err) &&
           take_rate(json_object_get(rates, "county"), "rates.county", &r->county_ppb, err) &&
           take_rate(json_object_get(rates, "city"), "rates.city", &r->city_ppb, err) &&
           take_rate(json_object_get(rates, "special"), "rates.special", &r->special_ppb, err);
}

static bool take_lines(const json_t *root, struct parsed *p, struct spw_error *err)
{
    const json_t *lines = json_object_get(root, "lines");
    size_t count = json_array_size(lines);
    if (count > SPW_LINES_MAX_COUNT + 1) {
        fault(err, "lines", "there are too many");
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        const json_t *line = json_array_get(lines, i);
        if (!take_amount(line, "taxable", &p->lines[i].taxable_minor, err) ||
            !take_amount(line, "tax", &p->lines[i].tax_minor, err))
            return false;
    }
    p->record.lines_count = (uint32_t)count;
    const json_t *assumptions = json_object_get(root, "assumptions");
    size_t used = 0;
    for (size_t i = 0; i < json_array_size(assumptions); i++) {
        const char *text = json_string_value(json_array_get(assumptions, i));
        size_t bytes = text ? strlen(text) : 0;
        if (!text || bytes + 1 > sizeof p->assumptions - used)
            break;
        memcpy(p->assumptions + used, text, bytes);
        p->assumptions[used + bytes] = '\n';
        used += bytes + 1;
    }
    p->record.assumptions_bytes = (uint32_t)used;
    return true;
}

static bool take_request(const json_t *root, struct parsed *p, struct spw_error *err)
{
    const json_t *request = json_object_get(root, "request");
    p->request = json_dumps(json_is_object(request) ? request : NULL, JSON_COMPACT);
    p->record.request_bytes = p->request ? (uint32_t)strlen(p->request) : 0;
    if (p->record.request_bytes <= SPW_REQUEST_MAX_BYTES)
        return true;
    fault(err, "request", "is longer than a flag holds");
    return false;
}

/* An exported flag brings its orders along. */
static bool take_order(const json_t *from, struct parsed *p, struct spw_error *err)
{
    struct spw_order_record *r = &p->orders[p->orders_count];
    if (!json_is_object(from) || p->orders_count == sizeof p->orders / sizeof p->orders[0])
        return true;
    memset(r, 0, sizeof *r);
    r->op = SPW_ORDER_PLACED;
    memcpy(r->quote_id, p->record.quote_id, sizeof r->quote_id);
    memcpy(r->account, p->record.account, sizeof r->account);
    memcpy(r->currency, p->record.currency, sizeof r->currency);
    r->placed_unix_ms = r->created_unix_ms = integer_of(from, "placed_unix_ms");
    p->orders_count++;
    return TAKE(from, "order_id", r->order_id) &&
           take_amount(from, "tax_collected", &r->tax_collected_minor, err);
}

static bool take_orders(const json_t *root, struct parsed *p, struct spw_error *err)
{
    const json_t *orders = json_object_get(root, "orders"), *one = json_object_get(root, "order");
    size_t count = json_array_size(orders);
    for (size_t i = 0; i < count; i++) {
        if (!take_order(json_array_get(orders, i), p, err))
            return false;
    }
    return count || integer_of(root, "orders_count") != 1 || take_order(one, p, err);
}

static enum spw_status parse(const json_t *root, struct parsed *p, struct spw_error *err)
{
    struct spw_flag_record *r = &p->record;
    if (!take_ids(root, r, err) || !take_words(root, r, err) || !take_place_and_rates(root, r, err) ||
        !take_amount(root, "tax", &r->tax_minor, err) ||
        !take_amount(root, "taxable", &r->taxable_minor, err) ||
        !take_amount(root, "total", &r->total_minor, err) || !take_lines(root, p, err) ||
        !take_request(root, p, err) || !take_orders(root, p, err))
        return SPW_STATUS_INVALID;
    if (!r->flag_id[0] || !r->quote_id[0] || !r->decision_id[0] || !r->account[0])
        return fault(err, "flag_id, quote_id, decision_id, account", "one is missing: it is no flag");
    if (r->type == SPW_FALLBACK_NONE)
        return fault(err, "type", "is missing: it is no flag");
    r->created_unix_ms = integer_of(root, "created_unix_ms");
    if (!r->currency[0])
        memcpy(r->currency, "USD", 4);
    r->origin = 2; /* neither segment nor loop: never verified */
    return SPW_STATUS_OK;
}

static enum spw_status store(struct spw_store *to, const struct parsed *p, bool *known, struct spw_error *err)
{
    const struct spw_cell_prefix prefix = {SPW_CELL_FLAG, sizeof p->record};
    const struct spw_part parts[] = {{&prefix, sizeof prefix},
                                     {&p->record, sizeof p->record},
                                     {p->lines, p->record.lines_count * sizeof p->lines[0]},
                                     {p->assumptions, p->record.assumptions_bytes},
                                     {p->request, p->record.request_bytes}};
    size_t count = 0;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        count += parts[i].count;
    uint8_t *bytes = malloc(count);
    if (!bytes)
        return spw_error_set(err, SPW_STATUS_NO_MEMORY, "import: no memory for one flag");
    count = 0;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (parts[i].count)
            memcpy(bytes + count, parts[i].bytes, parts[i].count);
        count += parts[i].count;
    }
    enum spw_status status = spw_store_flag(to, bytes, count, known, err);
    free(bytes);
    for (size_t i = 0; i < p->orders_count && status == SPW_STATUS_OK; i++)
        status = spw_store_order(to, &p->orders[i], err);
    return status;
}

enum spw_status spw_import_line(struct spw_store *to, const char *text, size_t bytes, bool *known,
                                struct spw_error *err)
{
    json_error_t at;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &at);
    *known = false;
    if (!json_is_object(root)) {
        json_decref(root);
        return spw_error_set(err, SPW_STATUS_PARSE, "no JSON object: %s at byte %d",
                             root ? "a flag is one" : at.text, at.position);
    }
    struct parsed *p = calloc(1, sizeof *p);
    if (!p) {
        json_decref(root);
        return spw_error_set(err, SPW_STATUS_NO_MEMORY, "import: no memory for one flag");
    }
    enum spw_status status = parse(root, p, err);
    if (status == SPW_STATUS_OK)
        status = store(to, p, known, err);
    free(p->request);
    free(p);
    json_decref(root);
    return status;
}
