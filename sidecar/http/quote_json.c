/* quote_json.c: see quote_json.h. */
#include "sidecar/http/quote_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "shm/spw_text.h"
#include "sidecar/obs/zeroed.h"
#include "sidecar/provider/decimal.h"
#include "sidecar/provider/instant.h"

/* ---- reading ---- */

static bool known_fields(const struct spw_json *object, const char *path, const char *const *names,
                         struct spw_error *err)
{
    const struct spw_json *one = spw_json_first(object);
    for (; one; one = spw_json_next(object, one)) {
        bool known = false;
        for (size_t i = 0; names[i] && !known; i++)
            known = strcmp(names[i], one->key) == 0;
        if (!known) {
            spw_error_set(err, SPW_STATUS_INVALID, "%s%s%.40s: unknown field: docs/http.md has them all",
                          path, path[0] ? "." : "", one->key);
            return false;
        }
    }
    return true;
}

/* Text of at most room - 1 bytes; absent or null leaves *out NULL. */
static bool text_field(const struct spw_json *object, const char *path, const char *name, size_t room,
                       const char **out, struct spw_error *err)
{
    const struct spw_json *value = spw_json_get(object, name);
    *out = NULL;
    if (!value || spw_json_is(value, SPW_JSON_NULL))
        return true;
    if (!spw_json_is(value, SPW_JSON_TEXT) || value->text_bytes >= room) {
        spw_error_set(err, SPW_STATUS_INVALID, "%s%s%s: text of at most %zu bytes is expected", path,
                      path[0] ? "." : "", name, room - 1);
        return false;
    }
    *out = spw_json_text(value);
    return true;
}

/* The same for what the ledger keeps as an id or name: it takes no other. */
static bool name_field(const struct spw_json *object, const char *name, size_t room, const char **out,
                       struct spw_error *err)
{
    if (!text_field(object, "", name, room, out, err))
        return false;
    if (!spw_text_is_name(*out))
        spw_error_set(err, SPW_STATUS_INVALID, "%s: text without control characters is expected", name);
    return spw_text_is_name(*out);
}

/* "39.98" -> 3998 at two digits. Text, so that no binary fraction comes in. */
static bool decimal_field(const struct spw_json *object, const char *path, const char *name, unsigned digits,
                          int64_t missing, int64_t *out, struct spw_error *err)
{
    const struct spw_json *value = spw_json_get(object, name);
    *out = missing;
    if (!value || spw_json_is(value, SPW_JSON_NULL))
        return true;
    const char *text = spw_json_is(value, SPW_JSON_TEXT) ? spw_json_text(value) : "";
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

static bool object_field(const struct spw_json *root, const char *name, const struct spw_json **out,
                         struct spw_error *err)
{
    *out = spw_json_get(root, name);
    if (*out && spw_json_is(*out, SPW_JSON_NULL))
        *out = NULL;
    if (*out && !spw_json_is(*out, SPW_JSON_OBJECT)) {
        spw_error_set(err, SPW_STATUS_INVALID, "%s: an object is expected", name);
        return false;
    }
    return true;
}

static bool read_address(const struct spw_json *root, const char *name, struct spw_address *out,
                         struct spw_error *err)
{
    static const char *const fields[] = {"country", "state", "zip", "city", "line1", NULL};
    const struct spw_json *a;
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

static bool read_line(const struct spw_json *line, size_t index, struct spw_line *out, struct spw_error *err)
{
    static const char *const fields[] = {"id", "tax_code", "quantity", "amount", NULL};
    char path[32];
    struct spw_text place = spw_text_on(path, sizeof path);
    spw_text_put(&place, "lines[");
    spw_text_u64(&place, index);
    spw_text_put(&place, "]");
    if (!spw_json_is(line, SPW_JSON_OBJECT)) {
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

static bool read_lines(const struct spw_json *root, struct spw_quote_body *body, struct spw_error *err)
{
    const struct spw_json *lines = spw_json_get(root, "lines");
    size_t count = spw_json_count(lines);
    if (count == 0 || count > SPW_LINES_MAX_COUNT) {
        spw_error_set(err, SPW_STATUS_INVALID, "lines: a list of 1 to %u lines is expected",
                      SPW_LINES_MAX_COUNT);
        return false;
    }
    body->lines = spw_zeroed(count * sizeof *body->lines);
    if (!body->lines) {
        spw_error_set(err, SPW_STATUS_NO_MEMORY, "quote: no memory: raise the container's memory limit");
        return false;
    }
    size_t i = 0;
    SPW_JSON_EACH(line, lines)
    {
        if (!read_line(line, i, &body->lines[i], err))
            return false;
        i++;
    }
    body->request.lines = body->lines;
    body->request.line_count = (uint32_t)count;
    return true;
}

static bool read_purpose(const struct spw_json *root, struct spw_quote_request *q, struct spw_error *err)
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

static bool read_rest(const struct spw_json *root, struct spw_quote_request *q, struct spw_error *err)
{
    static const char *const customer_fields[] = {"id", "exemption", NULL};
    static const char *const shipping_fields[] = {"amount", "tax_code", NULL};
    const struct spw_json *customer, *shipping, *deadline = spw_json_get(root, "deadline_ms");
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
    if (deadline && !spw_json_is(deadline, SPW_JSON_NULL)) {
        int64_t ms = spw_json_integer(deadline);
        if (!spw_json_is(deadline, SPW_JSON_INTEGER) || ms < 1 || ms > 60000) {
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

static struct spw_json *load(const char *bytes, size_t count, struct spw_error *err)
{
    struct spw_json_fault fault;
    struct spw_json *root = spw_json_read(bytes, count, &fault);
    if (root && root->kind == SPW_JSON_OBJECT)
        return root;
    if (root)
        spw_error_set(err, SPW_STATUS_PARSE, "the body: a JSON object is expected");
    else
        spw_error_set(err, SPW_STATUS_PARSE, "the body, line %u column %u: %s", fault.line, fault.column,
                      fault.what);
    spw_json_free(root);
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
    const struct spw_json *r = out->root;
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
    spw_json_free(body->root);
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
    struct spw_json *r = load(bytes, count, err);
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
          spw_instant_parse_date(placed_at, strlen(placed_at), out->created_unix_ms, &out->placed_unix_ms))) {
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
    spw_json_free(r);
    return ok ? SPW_STATUS_OK : err->status;
}

char *spw_error_json(const char *error, const char *detail)
{
    json_t *root = json_pack("{s:s, s:s}", "error", error, "detail", detail);
    char *text = root ? json_dumps(root, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
    json_decref(root);
    return text;
}
