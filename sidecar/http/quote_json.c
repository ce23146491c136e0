/* quote_json.c: see quote_json.h. */
#include "sidecar/http/quote_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shm/spw_text.h"
#include "sidecar/provider/decimal.h"
#include "sidecar/provider/instant.h"

/* ---- reading ---- */

static bool known_fields(json_t *object, const char *path, const char *const *names, struct spw_error *err)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        bool known = false;
        for (size_t i = 0; names[i] && !known; i++)
            known = strcmp(names[i], key) == 0;
        if (!known) {
            spw_error_set(err, SPW_STATUS_INVALID, "%s%s%.40s: unknown field: docs/http.md has them all",
                          path, path[0] ? "." : "", key);
            return false;
        }
    }
    return true;
}

/* Text of at most room - 1 bytes; absent or null leaves *out NULL. */
static bool text_field(json_t *object, const char *path, const char *name, size_t room, const char **out,
                       struct spw_error *err)
{
    json_t *value = json_object_get(object, name);
    *out = NULL;
    if (!value || json_is_null(value))
        return true;
    if (!json_is_string(value) || json_string_length(value) >= room) {
        spw_error_set(err, SPW_STATUS_INVALID, "%s%s%s: text of at most %zu bytes is expected", path,
                      path[0] ? "." : "", name, room - 1);
        return false;
    }
    *out = json_string_value(value);
    return true;
}

/* The same for what the ledger keeps as an id or name: it takes no other. */
static bool name_field(json_t *object, const char *name, size_t room, const char **out, struct spw_error *err)
{
    if (!text_field(object, "", name, room, out, err))
        return false;
    if (!spw_text_is_name(*out))
        spw_error_set(err, SPW_STATUS_INVALID, "%s: text without control characters is expected", name);
    return spw_text_is_name(*out);
}

/* "39.98" -> 3998 at two digits. Text, so that no binary fraction comes in. */
static bool decimal_field(json_t *object, const char *path, const char *name, unsigned digits,
                          int64_t missing, int64_t *out, struct spw_error *err)
{
    json_t *value = json_object_get(object, name);
    *out = missing;
    if (!value || json_is_null(value))
        return true;
    const char *text = json_is_string(value) ? json_string_value(value) : "";
    int64_t number;
    if (spw_decimal_parse(text, strlen(text), digits, SPW_DECIMAL_HALF_UP, &number) != SPW_DECIMAL_EXACT ||
        number > SPW_AMOUNT_MAX_MINOR || number < -SPW_AMOUNT_MAX_MINOR) {
        spw_error_set(err, SPW_STATUS_INVALID,
                      "%s%s%s: a decimal in quotes with at most %u digits behind the point is "
                      "expected, like \"39.98\"",
                      path, path[0] ? "." : "", name, digits);
        return false;
    }
    *out = number;
    return true;
}

static bool object_field(json_t *root, const char *name, json_t **out, struct spw_error *err)
{
    *out = json_object_get(root, name);
    if (*out && json_is_null(*out))
        *out = NULL;
    if (*out && !json_is_object(*out)) {
        spw_error_set(err, SPW_STATUS_INVALID, "%s: an object is expected", name);
        return false;
    }
    return true;
}

static bool read_address(json_t *root, const char *name, struct spw_address *out, struct spw_error *err)
{
    static const char *const fields[] = {"country", "state", "zip", "city", "line1", NULL};
    json_t *a;
    if (!object_field(root, name, &a, err))
        return false;
    if (!a)
        return true;
    return known_fields(a, name, fields, err) && text_field(a, name, "country", 3, &out->country, err) &&
           text_field(a, name, "state", 4, &out->state, err) &&
           text_field(a, name, "zip", 16, &out->zip, err) &&
           text_field(a, name, "city", 128, &out->city, err) &&
           text_field(a, name, "line1", 256, &out->line1, err);
}

static bool read_line(json_t *line, size_t index, struct spw_line *out, struct spw_error *err)
{
    static const char *const fields[] = {"id", "tax_code", "quantity", "amount", NULL};
    char path[32];
    snprintf(path, sizeof path, "lines[%zu]", index);
    if (!json_is_object(line)) {
        spw_error_set(err, SPW_STATUS_INVALID, "%s: an object is expected", path);
        return false;
    }
    if (!known_fields(line, path, fields, err) || !text_field(line, path, "id", 64, &out->id, err) ||
        !text_field(line, path, "tax_code", 32, &out->tax_code, err) ||
        !decimal_field(line, path, "quantity", 6, 1000000, &out->quantity_micro, err) ||
        !decimal_field(line, path, "amount", 2, INT64_MIN, &out->amount_minor, err))
        return false;
    if (out->amount_minor == INT64_MIN || out->quantity_micro <= 0) {
        spw_error_set(err, SPW_STATUS_INVALID, "%s.%s", path,
                      out->quantity_micro <= 0
                          ? "quantity: more than 0 is expected"
                          : "amount: is missing; the line's extended amount, like \"39.98\"");
        return false;
    }
    return true;
}

static bool read_lines(json_t *root, struct spw_quote_body *body, struct spw_error *err)
{
    json_t *lines = json_object_get(root, "lines");
    size_t count = json_array_size(lines);
    if (count == 0 || count > SPW_LINES_MAX_COUNT) {
        spw_error_set(err, SPW_STATUS_INVALID, "lines: a list of 1 to %u lines is expected",
                      SPW_LINES_MAX_COUNT);
        return false;
    }
    body->lines = calloc(count, sizeof *body->lines);
    if (!body->lines) {
        spw_error_set(err, SPW_STATUS_NO_MEMORY, "quote: no memory: raise the container's memory limit");
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (!read_line(json_array_get(lines, i), i, &body->lines[i], err))
            return false;
    }
    body->request.lines = body->lines;
    body->request.line_count = (uint32_t)count;
    return true;
}

static bool read_purpose(json_t *root, struct spw_quote_request *q, struct spw_error *err)
{
    const char *text;
    if (!text_field(root, "", "purpose", 16, &text, err))
        return false;
    q->purpose = SPW_PURPOSE_ESTIMATE;
    for (uint32_t i = 0; text && i < SPW_PURPOSE_COUNT; i++) {
        if (strcmp(text, spw_purpose_name(i)) == 0) {
            q->purpose = (enum spw_purpose)i;
            return true;
        }
    }
    if (text)
        spw_error_set(err, SPW_STATUS_INVALID, "purpose: \"estimate\" or \"order\" is expected");
    return !text;
}

static bool read_rest(json_t *root, struct spw_quote_request *q, struct spw_error *err)
{
    static const char *const customer_fields[] = {"id", "exemption", NULL};
    static const char *const shipping_fields[] = {"amount", "tax_code", NULL};
    json_t *customer, *shipping, *deadline = json_object_get(root, "deadline_ms");
    int32_t day;
    if (!object_field(root, "customer", &customer, err) || !object_field(root, "shipping", &shipping, err))
        return false;
    if (customer && (!known_fields(customer, "customer", customer_fields, err) ||
                     !text_field(customer, "customer", "id", 128, &q->customer_id, err) ||
                     !text_field(customer, "customer", "exemption", 64, &q->exemption, err)))
        return false;
    if (shipping && (!known_fields(shipping, "shipping", shipping_fields, err) ||
                     !decimal_field(shipping, "shipping", "amount", 2, 0, &q->shipping_minor, err) ||
                     !text_field(shipping, "shipping", "tax_code", 32, &q->shipping_tax_code, err)))
        return false;
    if (deadline && !json_is_null(deadline)) {
        json_int_t ms = json_integer_value(deadline);
        if (!json_is_integer(deadline) || ms < 1 || ms > 60000) {
            spw_error_set(err, SPW_STATUS_INVALID, "deadline_ms: a whole number from 1 to 60000 is expected");
            return false;
        }
        q->deadline_ms = (uint32_t)ms;
    }
    if (q->date && !spw_date_parse(q->date, &day)) {
        spw_error_set(err, SPW_STATUS_INVALID, "date: a date like \"2025-11-28\" is expected");
        return false;
    }
    if (q->currency && strcmp(q->currency, "USD") != 0) {
        spw_error_set(err, SPW_STATUS_INVALID, "currency: only USD is served");
        return false;
    }
    return true;
}

static json_t *load(const char *bytes, size_t count, struct spw_error *err)
{
    json_error_t json_error;
    json_t *root = json_loadb(bytes, count, JSON_REJECT_DUPLICATES, &json_error);
    if (root && json_is_object(root))
        return root;
    if (root)
        spw_error_set(err, SPW_STATUS_PARSE, "the body: a JSON object is expected");
    else
        spw_error_set(err, SPW_STATUS_PARSE, "the body, line %d column %d: %.120s", json_error.line,
                      json_error.column, json_error.text);
    json_decref(root);
    return NULL;
}

enum spw_status spw_quote_body_parse(const char *bytes, size_t count, struct spw_quote_body *out,
                                     struct spw_error *err)
{
    static const char *const fields[] = {"account",  "integration", "decision_id", "purpose",   "quote_ref",
                                         "currency", "date",        "deadline_ms", "ship_from", "ship_to",
                                         "customer", "shipping",    "lines",       NULL};
    struct spw_quote_request *q = &out->request;
    memset(out, 0, sizeof *out);
    out->root = load(bytes, count, err);
    if (!out->root)
        return err->status;
    json_t *r = out->root;
    if (known_fields(r, "", fields, err) && text_field(r, "", "account", SPW_NAME_BYTES, &q->account, err) &&
        text_field(r, "", "integration", SPW_NAME_BYTES, &q->integration, err) &&
        text_field(r, "", "decision_id", SPW_CALLER_ID_BYTES, &q->decision_id, err) &&
        text_field(r, "", "quote_ref", SPW_CALLER_ID_BYTES, &q->quote_ref, err) &&
        text_field(r, "", "currency", 4, &q->currency, err) && text_field(r, "", "date", 11, &q->date, err) &&
        read_purpose(r, q, err) && read_address(r, "ship_from", &q->ship_from, err) &&
        read_address(r, "ship_to", &q->ship_to, err) && read_rest(r, q, err) && read_lines(r, out, err)) {
        if (q->decision_id && !q->decision_id[0])
            q->decision_id = NULL;
        if (q->account)
            return SPW_STATUS_OK;
        spw_error_set(err, SPW_STATUS_INVALID,
                      "account: is missing; the name of an account of the configuration");
    }
    spw_quote_body_clean_up(out);
    return err->status;
}

void spw_quote_body_clean_up(struct spw_quote_body *body)
{
    json_decref(body->root);
    free(body->lines);
    memset(body, 0, sizeof *body);
}

enum spw_status spw_order_body_parse(const char *bytes, size_t count, struct spw_order_record *out,
                                     struct spw_error *err)
{
    static const char *const fields[] = {"quote_id", "order_id",  "tax_collected",
                                         "currency", "placed_at", NULL};
    const char *quote_id = NULL, *order_id = NULL, *currency = NULL, *placed_at = NULL;
    memset(out, 0, sizeof *out);
    json_t *r = load(bytes, count, err);
    if (!r)
        return err->status;
    bool ok = known_fields(r, "", fields, err) && name_field(r, "quote_id", SPW_ID_BYTES, &quote_id, err) &&
              name_field(r, "order_id", SPW_CALLER_ID_BYTES, &order_id, err) &&
              name_field(r, "currency", 4, &currency, err) &&
              text_field(r, "", "placed_at", 40, &placed_at, err) &&
              decimal_field(r, "", "tax_collected", 2, INT64_MIN, &out->tax_collected_minor, err);
    out->created_unix_ms = spw_wall_ms();
    out->placed_unix_ms = out->created_unix_ms;
    if (ok &&
        (!quote_id || !quote_id[0] || !order_id || !order_id[0] || out->tax_collected_minor == INT64_MIN)) {
        spw_error_set(err, SPW_STATUS_INVALID, "%s: is missing",
                      !quote_id || !quote_id[0]   ? "quote_id"
                      : !order_id || !order_id[0] ? "order_id"
                                                  : "tax_collected");
        ok = false;
    }
    if (ok && placed_at &&
        !(placed_at[0] >= '0' && placed_at[0] <= '9' && /* not the forms of HTTP headers */
          spw_instant_parse_date(placed_at, strlen(placed_at), &out->placed_unix_ms))) {
        spw_error_set(err, SPW_STATUS_INVALID,
                      "placed_at: an instant like \"2025-11-28T10:15:00Z\" is expected");
        ok = false;
    }
    if (ok) {
        out->op = SPW_ORDER_PLACED;
        snprintf(out->quote_id, sizeof out->quote_id, "%s", quote_id);
        snprintf(out->order_id, sizeof out->order_id, "%s", order_id);
        snprintf(out->currency, sizeof out->currency, "%s", currency ? currency : "USD");
    }
    json_decref(r);
    return ok ? SPW_STATUS_OK : err->status;
}

/* ---- writing ---- */

static json_t *decimal(int64_t value, unsigned digits, bool trim)
{
    char buffer[40];
    struct spw_text t = spw_text_on(buffer, sizeof buffer);
    spw_text_decimal(&t, value, digits, trim);
    return json_string(buffer);
}

static json_t *minor(int64_t value)
{
    return decimal(value, 2, false);
}

static json_t *rate(uint32_t ppb)
{
    return decimal(ppb, 9, true);
}

static void put_lines(json_t *root, const struct spw_result *r)
{
    json_t *lines = json_array();
    for (uint32_t i = 0; i + 1 < r->lines_count; i++) {
        const char *id = r->request->lines[i].id;
        json_array_append_new(lines, json_pack("{s:s?, s:o, s:o}", "id", id, "taxable",
                                               minor(r->lines[i].taxable_minor), "tax",
                                               minor(r->lines[i].tax_minor)));
    }
    json_object_set_new(root, "lines", lines);
    if (r->lines_count) {
        const struct spw_line_tax *s = &r->lines[r->lines_count - 1];
        json_object_set_new(
            root, "shipping",
            json_pack("{s:o, s:o}", "taxable", minor(s->taxable_minor), "tax", minor(s->tax_minor)));
    }
}

static void put_jurisdictions(json_t *root, const struct spw_result *r)
{
    bool live = r->decision == SPW_DECISION_LIVE && r->answer;
    json_t *list = live && r->answer->jurisdictions_count ? json_array() : json_null();
    for (uint32_t i = 0; live && i < r->answer->jurisdictions_count; i++) {
        const struct spw_jurisdiction *j = &r->answer->jurisdictions[i];
        json_array_append_new(list, json_pack("{s:s, s:o, s:o}", "level", j->level, "rate", rate(j->rate_ppb),
                                              "tax", minor(j->tax_minor)));
    }
    json_object_set_new(root, "jurisdictions", list);
}

static json_t *assumptions(const struct spw_fallback_answer *f)
{
    json_t *list = json_array();
    const char *at = f->assumptions;
    while (*at) {
        size_t n = strcspn(at, "\n");
        json_array_append_new(list, json_stringn(at, n));
        at += n + (at[n] == '\n');
    }
    return list;
}

static json_t *fallback_object(const struct spw_result *r)
{
    const struct spw_fallback_answer *f = r->fallback;
    char day[16] = "";
    bool dated = f->source.name[0] != 0;
    if (dated)
        spw_format_day(f->source.as_of_day, day, sizeof day);
    json_t *rates = json_pack("{s:o, s:o, s:o, s:o, s:o}", "state", rate(f->rate.state_ppb), "county",
                              rate(f->rate.county_ppb), "city", rate(f->rate.city_ppb), "special",
                              rate(f->rate.special_ppb), "combined", rate(f->rate.combined_ppb));
    json_t *o = json_pack("{s:s?, s:s, s:s, s:s, s:o, s:s?, s:s?, s:I, s:b, s:s, s:o, s:I}", "flag_id",
                          r->flag_id[0] ? r->flag_id : NULL, "type", spw_fallback_name(r->type), "cause",
                          spw_cause_name(r->cause), "match", spw_match_name(f->match), "rates", rates,
                          "source", dated ? f->source.name : NULL, "as_of", dated ? day : NULL, "age_days",
                          (json_int_t)f->age_days, "stale", f->stale, "nexus",
                          f->match == SPW_MATCH_NO_NEXUS ? "not-registered" : "registered", "assumed",
                          assumptions(f), "live_again_in_ms", (json_int_t)r->live_again_in_ms);
    if (r->handback) {
        json_error_t ignored;
        json_object_set_new(o, "handback", json_loads(r->handback, 0, &ignored));
    }
    return o;
}

static json_t *provider_object(const struct spw_result *r)
{
    json_t *status = r->provider_status ? json_integer(r->provider_status) : json_null();
    return json_pack("{s:s, s:o, s:I, s:I}", "name", r->provider, "status", status, "attempts",
                     (json_int_t)r->attempts, "ms", (json_int_t)r->provider_ms);
}

char *spw_result_json(const struct spw_result *r)
{
    json_t *root = json_object();
    bool priced = r->decision == SPW_DECISION_LIVE || r->decision == SPW_DECISION_FALLBACK;
    if (priced)
        json_object_set_new(root, "quote_id", json_string(r->quote_id));
    json_object_set_new(root, "decision", json_string(spw_decision_name(r->decision)));
    json_object_set_new(root, "decision_id", json_string(r->decision_id));
    if (priced) {
        json_object_set_new(root, "reused", json_boolean(r->reused));
        json_object_set_new(root, "tax", minor(r->tax_minor));
        json_object_set_new(root, "currency",
                            json_string(r->request->currency ? r->request->currency : "USD"));
        json_object_set_new(root, "rounding",
                            json_string(r->decision == SPW_DECISION_LIVE
                                            ? "provider"
                                            : spw_rounding_name(r->fallback->rounding)));
        put_lines(root, r);
        put_jurisdictions(root, r);
    }
    if (r->decision == SPW_DECISION_NONE) {
        json_object_set_new(root, "tax", json_null());
        json_object_set_new(root, "reason", json_string(r->reason ? r->reason : "unknown"));
        json_object_set_new(root, "type", json_string(spw_fallback_name(r->type)));
        json_object_set_new(root, "cause", json_string(spw_cause_name(r->cause)));
    }
    json_object_set_new(root, "provider", provider_object(r));
    if (priced)
        json_object_set_new(root, "fallback",
                            r->decision == SPW_DECISION_FALLBACK ? fallback_object(r) : json_null());
    if (r->decision == SPW_DECISION_REJECTED) {
        json_error_t ignored;
        json_t *error = r->answer && r->answer->error_json
                            ? json_loads(r->answer->error_json, JSON_DECODE_ANY, &ignored)
                            : NULL;
        json_object_set_new(root, "provider_error", error ? error : json_null());
    }
    char *text = json_dumps(root, JSON_COMPACT | JSON_ENSURE_ASCII);
    json_decref(root);
    return text;
}

char *spw_error_json(const char *error, const char *detail)
{
    json_t *root = json_pack("{s:s, s:s}", "error", error, "detail", detail);
    char *text = root ? json_dumps(root, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
    json_decref(root);
    return text;
}
