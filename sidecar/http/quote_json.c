/* quote_json.c: see quote_json.h. */
#include "sidecar/http/quote_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "shm/spw_text.h"
#include "sidecar/provider/decimal.h"
#include "sidecar/provider/instant.h"

/* ---- reading ---- */

#define MEMBERS_MAX 13u

/* An object's members by the place of their names in `names`; NULL = left out. */
struct members {
    const char *path; /* where the object stands; "" = it is the body */
    const char *const *names;
    const struct spw_json *values[MEMBERS_MAX];
};

/* Of names, count are known; others are refused. Most callers write them in the order of docs/http.md. */
static bool take_members(const struct spw_json *object, const char *path, const char *const *names,
                         size_t count, struct members *out, struct spw_error *err)
{
    size_t next = 0;
    *out = (struct members){.path = path, .names = names};
    for (const struct spw_json *one = spw_json_first(object); one; one = spw_json_next(object, one)) {
        size_t looks = 0;
        for (; looks < count && strcmp(names[next], one->key) != 0; looks++)
            next = (next + 1) % count;
        if (looks == count) {
            spw_error_set(err, SPW_STATUS_INVALID, "%s%s%.40s: unknown field: docs/http.md has them all",
                          path, path[0] ? "." : "", one->key);
            return false;
        }
        out->values[next] = one;
        next = (next + 1) % count;
    }
    return true;
}

/* Text of at most room - 1 bytes; absent or null leaves *out NULL. */
static bool text_field(const struct members *m, unsigned field, size_t room, const char **out,
                       struct spw_error *err)
{
    const struct spw_json *value = m->values[field];
    *out = NULL;
    if (!value || spw_json_is(value, SPW_JSON_NULL))
        return true;
    if (!spw_json_is(value, SPW_JSON_TEXT) || value->text_bytes >= room) {
        spw_error_set(err, SPW_STATUS_INVALID, "%s%s%s: text of at most %zu bytes is expected", m->path,
                      m->path[0] ? "." : "", m->names[field], room - 1);
        return false;
    }
    *out = value->text;
    return true;
}

/* The same for what the ledger keeps as an id or name: it takes no other. */
static bool name_field(const struct members *m, unsigned field, size_t room, const char **out,
                       struct spw_error *err)
{
    if (!text_field(m, field, room, out, err))
        return false;
    if (!spw_text_is_name(*out))
        spw_error_set(err, SPW_STATUS_INVALID, "%s: text without control characters is expected",
                      m->names[field]);
    return spw_text_is_name(*out);
}

/* "39.98" -> 3998 at two digits. Text, so that no binary fraction comes in. */
static bool decimal_field(const struct members *m, unsigned field, unsigned digits, int64_t missing,
                          int64_t *out, struct spw_error *err)
{
    const struct spw_json *value = m->values[field];
    *out = missing;
    if (!value || spw_json_is(value, SPW_JSON_NULL))
        return true;
    int64_t number;
    if (!spw_json_is(value, SPW_JSON_TEXT) ||
        spw_decimal_parse(value->text, value->text_bytes, digits, SPW_DECIMAL_HALF_UP, &number) !=
            SPW_DECIMAL_EXACT ||
        number > SPW_AMOUNT_MAX_MINOR || number < -SPW_AMOUNT_MAX_MINOR) {
        spw_error_set(err, SPW_STATUS_INVALID,
                      "%s%s%s: a decimal in quotes with at most %u digits behind the point is "
                      "expected, like \"39.98\"",
                      m->path, m->path[0] ? "." : "", m->names[field], digits);
        return false;
    }
    *out = number;
    return true;
}

static bool object_field(const struct members *m, unsigned field, const struct spw_json **out,
                         struct spw_error *err)
{
    *out = m->values[field];
    if (*out && spw_json_is(*out, SPW_JSON_NULL))
        *out = NULL;
    if (*out && !spw_json_is(*out, SPW_JSON_OBJECT)) {
        spw_error_set(err, SPW_STATUS_INVALID, "%s: an object is expected", m->names[field]);
        return false;
    }
    return true;
}

enum { COUNTRY, STATE, ZIP, CITY, LINE1, ADDRESS_COUNT };
static const char *const address_names[ADDRESS_COUNT] = {"country", "state", "zip", "city", "line1"};

static bool read_address(const struct members *root, unsigned field, struct spw_address *out,
                         struct spw_error *err)
{
    const struct spw_json *address;
    struct members m;
    if (!object_field(root, field, &address, err))
        return false;
    if (!address)
        return true;
    return take_members(address, root->names[field], address_names, ADDRESS_COUNT, &m, err) &&
           text_field(&m, COUNTRY, 3, &out->country, err) && text_field(&m, STATE, 4, &out->state, err) &&
           text_field(&m, ZIP, 16, &out->zip, err) && text_field(&m, CITY, 128, &out->city, err) &&
           text_field(&m, LINE1, 256, &out->line1, err);
}

enum { LINE_ID, LINE_TAX_CODE, LINE_QUANTITY, LINE_AMOUNT, LINE_COUNT };
static const char *const line_names[LINE_COUNT] = {"id", "tax_code", "quantity", "amount"};

static bool read_line(const struct spw_json *line, size_t index, struct spw_line *out, struct spw_error *err)
{
    char path[32];
    struct members m;
    struct spw_text place = spw_text_on(path, sizeof path);
    spw_text_put(&place, "lines[");
    spw_text_u64(&place, index);
    spw_text_put(&place, "]");
    if (!spw_json_is(line, SPW_JSON_OBJECT)) {
        spw_error_set(err, SPW_STATUS_INVALID, "%s: an object is expected", path);
        return false;
    }
    if (!take_members(line, path, line_names, LINE_COUNT, &m, err) ||
        !text_field(&m, LINE_ID, 64, &out->id, err) ||
        !text_field(&m, LINE_TAX_CODE, 32, &out->tax_code, err) ||
        !decimal_field(&m, LINE_QUANTITY, 6, 1000000, &out->quantity_micro, err) ||
        !decimal_field(&m, LINE_AMOUNT, 2, INT64_MIN, &out->amount_minor, err))
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

static bool read_lines(const struct spw_json *lines, struct spw_quote_body *body, struct spw_error *err)
{
    size_t count = spw_json_count(lines);
    if (count == 0 || count > SPW_LINES_MAX_COUNT) {
        spw_error_set(err, SPW_STATUS_INVALID, "lines: a list of 1 to %u lines is expected",
                      SPW_LINES_MAX_COUNT);
        return false;
    }
    if (count > sizeof body->few / sizeof body->few[0])
        body->many = malloc(count * sizeof *body->many);
    struct spw_line *all = count > sizeof body->few / sizeof body->few[0] ? body->many : body->few;
    if (!all) {
        spw_error_set(err, SPW_STATUS_NO_MEMORY, "quote: no memory: raise the container's memory limit");
        return false;
    }
    size_t i = 0;
    SPW_JSON_EACH(line, lines)
    {
        if (!read_line(line, i, &all[i], err))
            return false;
        i++;
    }
    body->request.lines = all;
    body->request.line_count = (uint32_t)count;
    return true;
}

enum {
    ACCOUNT,
    INTEGRATION,
    DECISION_ID,
    PURPOSE,
    QUOTE_REF,
    CURRENCY,
    DATE,
    DEADLINE_MS,
    SHIP_FROM,
    SHIP_TO,
    CUSTOMER,
    SHIPPING,
    LINES,
    QUOTE_COUNT
};
static const char *const quote_names[QUOTE_COUNT] = {
    "account",     "integration", "decision_id", "purpose",  "quote_ref", "currency", "date",
    "deadline_ms", "ship_from",   "ship_to",     "customer", "shipping",  "lines"};
_Static_assert(QUOTE_COUNT <= MEMBERS_MAX, "no other object has more");

static bool read_purpose(const struct members *root, struct spw_quote_request *q, struct spw_error *err)
{
    const char *text;
    if (!text_field(root, PURPOSE, 16, &text, err))
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

static bool read_customer(const struct members *root, struct spw_quote_request *q, struct spw_error *err)
{
    enum { ID, EXEMPTION, COUNT };
    static const char *const names[COUNT] = {"id", "exemption"};
    const struct spw_json *customer;
    struct members m;
    if (!object_field(root, CUSTOMER, &customer, err))
        return false;
    return !customer || (take_members(customer, "customer", names, COUNT, &m, err) &&
                         text_field(&m, ID, 128, &q->customer_id, err) &&
                         text_field(&m, EXEMPTION, 64, &q->exemption, err));
}

static bool read_shipping(const struct members *root, struct spw_quote_request *q, struct spw_error *err)
{
    enum { AMOUNT, TAX_CODE, COUNT };
    static const char *const names[COUNT] = {"amount", "tax_code"};
    const struct spw_json *shipping;
    struct members m;
    if (!object_field(root, SHIPPING, &shipping, err))
        return false;
    return !shipping || (take_members(shipping, "shipping", names, COUNT, &m, err) &&
                         decimal_field(&m, AMOUNT, 2, 0, &q->shipping_minor, err) &&
                         text_field(&m, TAX_CODE, 32, &q->shipping_tax_code, err));
}

static bool read_rest(const struct members *root, struct spw_quote_request *q, struct spw_error *err)
{
    const struct spw_json *deadline = root->values[DEADLINE_MS];
    int32_t day;
    if (!read_customer(root, q, err) || !read_shipping(root, q, err))
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

static bool load(const char *bytes, size_t count, struct spw_json_doc *doc, struct spw_error *err)
{
    struct spw_json_fault fault;
    const struct spw_json *root = spw_json_doc_read(doc, bytes, count, &fault);
    if (root && root->kind == SPW_JSON_OBJECT)
        return true;
    if (root)
        spw_error_set(err, SPW_STATUS_PARSE, "the body: a JSON object is expected");
    else
        spw_error_set(err, SPW_STATUS_PARSE, "the body, line %u column %u: %s", fault.line, fault.column,
                      fault.what);
    spw_json_doc_clean_up(doc);
    return false;
}

enum spw_status spw_quote_body_parse(const char *bytes, size_t count, struct spw_quote_body *out,
                                     struct spw_error *err)
{
    struct spw_quote_request *q = &out->request;
    struct members m;
    out->many = NULL;
    memset(q, 0, sizeof *q);
    if (!load(bytes, count, &out->doc, err))
        return err->status;
    if (take_members(out->doc.root, "", quote_names, QUOTE_COUNT, &m, err) &&
        text_field(&m, ACCOUNT, SPW_NAME_BYTES, &q->account, err) &&
        text_field(&m, INTEGRATION, SPW_NAME_BYTES, &q->integration, err) &&
        text_field(&m, DECISION_ID, SPW_CALLER_ID_BYTES, &q->decision_id, err) &&
        text_field(&m, QUOTE_REF, SPW_CALLER_ID_BYTES, &q->quote_ref, err) &&
        text_field(&m, CURRENCY, 4, &q->currency, err) && text_field(&m, DATE, 11, &q->date, err) &&
        read_purpose(&m, q, err) && read_address(&m, SHIP_FROM, &q->ship_from, err) &&
        read_address(&m, SHIP_TO, &q->ship_to, err) && read_rest(&m, q, err) &&
        read_lines(m.values[LINES], out, err)) {
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
    spw_json_doc_clean_up(&body->doc);
    free(body->many);
    body->many = NULL;
}

enum spw_status spw_order_body_parse(const char *bytes, size_t count, struct spw_order_record *out,
                                     struct spw_error *err)
{
    enum { QUOTE_ID, ORDER_ID, TAX_COLLECTED, CURRENCY_USED, PLACED_AT, COUNT };
    static const char *const names[COUNT] = {"quote_id", "order_id", "tax_collected", "currency",
                                             "placed_at"};
    struct spw_json_doc doc;
    struct members m;
    const char *quote_id = NULL, *order_id = NULL, *currency = NULL, *placed_at = NULL;
    memset(out, 0, sizeof *out);
    if (!load(bytes, count, &doc, err))
        return err->status;
    bool ok = take_members(doc.root, "", names, COUNT, &m, err) &&
              name_field(&m, QUOTE_ID, SPW_ID_BYTES, &quote_id, err) &&
              name_field(&m, ORDER_ID, SPW_CALLER_ID_BYTES, &order_id, err) &&
              name_field(&m, CURRENCY_USED, 4, &currency, err) &&
              text_field(&m, PLACED_AT, 40, &placed_at, err) &&
              decimal_field(&m, TAX_COLLECTED, 2, INT64_MIN, &out->tax_collected_minor, err);
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
    spw_json_doc_clean_up(&doc);
    return ok ? SPW_STATUS_OK : err->status;
}

char *spw_error_json(const char *error, const char *detail)
{
    json_t *root = json_pack("{s:s, s:s}", "error", error, "detail", detail);
    char *text = root ? json_dumps(root, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
    json_decref(root);
    return text;
}
