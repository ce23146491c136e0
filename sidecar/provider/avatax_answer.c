/* avatax_answer.c: reading what AvaTax answers: calculations, errors, documents in the books.
 *
 * Owns: the reading rules. Called by: the profile. Thread: any; pure over (status, body).
 *
 * AvaTax tells a limit by an error code, and which HTTP status such an error rides on is written nowhere: the codes
 * are looked for in every answer. Its rate limit has no header of its own that is known.
 */
#include "sidecar/provider/avatax.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sidecar/provider/answer.h"
#include "sidecar/provider/sums.h"
#include "sidecar/provider/wire.h"

struct limit_code {
    const char *code;
    int number;
    enum spw_throttle throttle;
};
static const struct limit_code limit_codes[] = {
    {"RequestLimitExceeded", 1715, SPW_THROTTLE_RATE},
    {"ConcurrentRequestLimitExceeded", 1716, SPW_THROTTLE_CONCURRENCY},
    {"RateLimitExceededError", 1723, SPW_THROTTLE_RATE},
    {"RateLimitExceeded", 4011, SPW_THROTTLE_RATE},
};
/* About the account's credentials and settings: nothing a shopper can mend. */
static const char *const account_codes[] = {"AuthenticationException", "AuthenticationIncomplete",
                                            "AuthorizationException",  "PermissionRequired",
                                            "SubscriptionRequired",    "CompanyNotFoundError",
                                            "AccountInactive",         "TermsConditionsRequired"};

static const char *code_of(const struct spw_json *error)
{
    const char *code = spw_json_text(spw_json_get(error, "code"));
    return code ? code : "";
}

static bool is_limit(const struct spw_json *object, enum spw_throttle *throttle)
{
    int64_t number = spw_json_integer(spw_json_get(object, "number"));
    for (size_t i = 0; i < sizeof limit_codes / sizeof limit_codes[0]; i++)
        if (strcmp(code_of(object), limit_codes[i].code) == 0 || number == limit_codes[i].number) {
            *throttle = limit_codes[i].throttle;
            return true;
        }
    return false;
}

static bool tells_limit(const struct spw_json *error, enum spw_throttle *throttle)
{
    if (is_limit(error, throttle))
        return true;
    SPW_JSON_EACH(detail, spw_json_get(error, "details"))
    {
        if (is_limit(detail, throttle))
            return true;
    }
    return false;
}

static bool is_account_fault(const struct spw_json *error)
{
    for (size_t i = 0; i < sizeof account_codes / sizeof account_codes[0]; i++)
        if (strcmp(code_of(error), account_codes[i]) == 0)
            return true;
    return false;
}

/* false: no 2xx with an answer in it; told in *out. */
static bool judge_status(uint32_t status, const struct spw_json *root, struct spw_answer *out)
{
    const struct spw_json *error = spw_json_get(root, "error");
    enum spw_throttle throttle = SPW_THROTTLE_RATE;
    bool has_error = spw_json_is(error, SPW_JSON_OBJECT);
    if (status == 429 || (has_error && tells_limit(error, &throttle))) {
        if (has_error)
            (void)tells_limit(error, &throttle);
        spw_answer_fail(out, SPW_ANSWER_THROTTLED, "AvaTax asks for fewer requests (status %u)", status);
        out->throttle = throttle;
    } else if (status == 401 || status == 403 || (has_error && is_account_fault(error))) {
        spw_answer_fail(out, SPW_ANSWER_ERROR,
                        "AvaTax refused the account (status %u, %.60s); check accounts.*.credentials and "
                        "company",
                        status, code_of(error));
    } else if (status < 200 || (status >= 300 && status < 400) || status >= 500 ||
               spw_answer_status_is_of_the_way(status)) {
        spw_answer_fail(out, SPW_ANSWER_ERROR, "AvaTax answered status %u", status);
    } else if (status >= 400 && has_error) {
        spw_answer_reject(out, root, status);
    } else if (status >= 400) {
        spw_answer_fail(out, SPW_ANSWER_ERROR,
                        "status %u without AvaTax's error form: something in between answered", status);
    } else if (has_error) {
        spw_answer_fail(out, SPW_ANSWER_BROKEN, "a success that holds an error (%.60s)", code_of(error));
    } else {
        return true;
    }
    return false;
}

/* ---- calculations ---- */

static const char *level_of(const struct spw_json *part)
{
    static const struct {
        const char *type, *level;
    } levels[] = {{"State", "state"},     {"STA", "state"},  {"County", "county"},   {"CTY", "county"},
                  {"City", "city"},       {"CIT", "city"},   {"Country", "country"}, {"CNT", "country"},
                  {"Special", "special"}, {"STJ", "special"}};
    const char *type = spw_json_text(spw_json_get(part, "jurisType"));
    if (!type)
        type = spw_json_text(spw_json_get(part, "jurisdictionType"));
    for (size_t i = 0; type && i < sizeof levels / sizeof levels[0]; i++)
        if (strcmp(type, levels[i].type) == 0)
            return levels[i].level;
    return "special";
}

/* The line's parts: its combined rate, and each into the list of jurisdictions. false: a part is no number. */
static bool read_details(const struct spw_json *line, int64_t *combined_ppb, struct spw_answer *out)
{
    *combined_ppb = 0;
    SPW_JSON_EACH(part, spw_json_get(line, "details"))
    {
        int64_t rate_ppb, tax_minor;
        if (!spw_json_number(spw_json_get(part, "rate"), 9, &rate_ppb) ||
            !spw_json_number(spw_json_get(part, "tax"), 2, &tax_minor) || rate_ppb < 0 ||
            rate_ppb > SPW_WIRE_PPB) {
            spw_answer_fail(out, SPW_ANSWER_BROKEN, "a tax detail has no rate or tax that is a number");
            return false;
        }
        if (tax_minor)
            *combined_ppb += rate_ppb;
        spw_answer_add_jurisdiction(out, level_of(part), rate_ppb, tax_minor);
    }
    if (*combined_ppb > SPW_WIRE_PPB)
        *combined_ppb = 0; /* not to be told as one rate; the tax itself is checked on its own */
    return true;
}

/* lineNumber is what build gave: 1 to count. */
static bool read_index(const struct spw_json *line, size_t *index)
{
    const struct spw_json *number = spw_json_get(line, "lineNumber");
    const char *text = spw_json_text(number);
    char *end = NULL;
    unsigned long value = text && *text >= '1' && *text <= '9' ? strtoul(text, &end, 10) : 0;
    if (!text || !end || *end || value > SPW_LINES_MAX_COUNT + 1)
        return false;
    *index = value - 1;
    return true;
}

static bool read_line(struct spw_answer_reader *r, const struct spw_json *line, uint32_t first_ppb_at[2])
{
    size_t index;
    int64_t tax_minor, taxable_minor = 0, combined_ppb;
    const struct spw_json *taxable = spw_json_get(line, "taxableAmount");
    if (!read_index(line, &index)) {
        spw_answer_fail(r->out, SPW_ANSWER_BROKEN, "a line has no \"lineNumber\" that was asked for");
        return false;
    }
    if (!spw_json_number(spw_json_get(line, "tax"), 2, &tax_minor) ||
        (taxable && !spw_json_number(taxable, 2, &taxable_minor))) {
        spw_answer_fail(r->out, SPW_ANSWER_BROKEN, "line %zu has no number \"tax\" or \"taxableAmount\"",
                        index);
        return false;
    }
    if (!read_details(line, &combined_ppb, r->out) ||
        !spw_answer_reader_line(r, index, taxable != NULL, taxable_minor, tax_minor, combined_ppb))
        return false;
    if (combined_ppb && tax_minor && index < first_ppb_at[0]) { /* the first taxed line in the order asked */
        first_ppb_at[0] = (uint32_t)index;
        first_ppb_at[1] = (uint32_t)combined_ppb;
    }
    return true;
}

static int64_t asked_total_minor(const struct spw_quote_request *quote)
{
    int64_t sum_minor = quote->shipping_minor;
    for (uint32_t i = 0; i < quote->line_count; i++)
        if (__builtin_add_overflow(sum_minor, quote->lines[i].amount_minor, &sum_minor))
            return INT64_MIN;
    return sum_minor;
}

static void read_transaction(struct spw_answer_reader *r, const struct spw_json *root)
{
    const char *asked = r->quote->currency ? r->quote->currency : "USD";
    const char *currency = spw_json_text(spw_json_get(root, "currencyCode"));
    const struct spw_json *lines = spw_json_get(root, "lines"), *amount = spw_json_get(root, "totalAmount");
    int64_t total_minor, amount_minor = 0;
    uint32_t first_ppb_at[2] = {UINT32_MAX, 0};
    if (currency && strcmp(currency, asked) != 0) {
        spw_answer_fail(r->out, SPW_ANSWER_BROKEN, "the answer is not in the currency asked for");
        return;
    }
    if (!spw_json_number(spw_json_get(root, "totalTax"), 2, &total_minor)) {
        spw_answer_fail(r->out, SPW_ANSWER_BROKEN, "there is no number \"totalTax\"");
        return;
    }
    if (amount &&
        (!spw_json_number(amount, 2, &amount_minor) || amount_minor != asked_total_minor(r->quote))) {
        spw_answer_fail(r->out, SPW_ANSWER_BROKEN, "\"totalAmount\" is not what was asked for");
        return;
    }
    if (!spw_json_is(lines, SPW_JSON_ARRAY)) {
        spw_answer_fail(r->out, SPW_ANSWER_BROKEN, "there is no list \"lines\"");
        return;
    }
    SPW_JSON_EACH(line, lines)
    {
        if (!read_line(r, line, first_ppb_at))
            return;
    }
    spw_answer_reader_finish(r, total_minor);
    if (r->out->kind == SPW_ANSWER_OK)
        r->out->rate_ppb = first_ppb_at[1];
}

void spw_avatax_read(const struct spw_quote_request *quote, uint32_t status, const char *headers,
                     size_t headers_bytes, const char *body, size_t body_bytes, struct spw_answer *out)
{
    struct spw_answer_reader r;
    (void)headers;
    (void)headers_bytes;
    if (!spw_answer_reader_init(&r, quote, out))
        return;
    struct spw_json_doc doc;
    const struct spw_json *root = spw_wire_doc_read(&doc, body, body_bytes);
    if (judge_status(status, root, out)) {
        if (root)
            read_transaction(&r, root);
        else
            spw_answer_fail(out, SPW_ANSWER_BROKEN, "the body is not the JSON object it should be");
    }
    spw_json_doc_clean_up(&doc);
}

void spw_avatax_judge(const struct spw_route *route, uint32_t status, const char *headers,
                      size_t headers_bytes, const char *body, size_t body_bytes, struct spw_answer *out)
{
    struct spw_json *root = spw_wire_read(body, body_bytes);
    int64_t total_minor;
    (void)headers;
    (void)headers_bytes;
    spw_answer_clear(out);
    if (status == 404 && route && route->kind != SPW_ROUTE_CALCULATE && !root)
        out->kind = SPW_ANSWER_REJECTED; /* a document that does not exist */
    else if (judge_status(status, root, out) && route && route->kind == SPW_ROUTE_CALCULATE &&
             (!spw_json_number(spw_json_get(root, "totalTax"), 2, &total_minor)))
        spw_answer_fail(out, SPW_ANSWER_BROKEN, "no calculation in the answer");
    spw_answer_clean_up(out);
    spw_json_free(root);
}

void spw_avatax_check(const struct spw_quote_request *quote, const char *body, size_t body_bytes,
                      struct spw_answer *out)
{
    struct spw_sums sums;
    struct spw_json *root = spw_wire_read(body, body_bytes);
    spw_sums_init(&sums, quote, 2, out);
    bool is_good = spw_sums_currency(&sums, spw_json_text(spw_json_get(root, "currencyCode")));
    SPW_JSON_EACH(line, spw_json_get(root, "lines"))
    {
        is_good =
            is_good && spw_sums_line(&sums, spw_json_get(line, "lineAmount"),
                                     spw_json_get(line, "taxableAmount"), NULL, spw_json_get(line, "tax"));
    }
    if (is_good)
        spw_sums_finish(&sums, spw_json_get(root, "totalTax"), true);
    spw_json_free(root);
}

/* ---- the books ---- */

static void read_document(bool is_back, uint32_t status, const char *body, size_t body_bytes,
                          struct spw_booked_answer *out)
{
    struct spw_answer answer = {.kind = SPW_ANSWER_OK};
    struct spw_json *root = spw_wire_read(body, body_bytes);
    memset(out, 0, sizeof *out);
    out->booked = SPW_BOOKED_FAILED;
    if (is_back && status == 404) {
        out->booked = SPW_BOOKED_MISSING;
        snprintf(out->detail, sizeof out->detail, "AvaTax has no such document");
    } else if (judge_status(status, root, &answer)) {
        const char *state = spw_json_text(spw_json_get(root, "status"));
        out->has_tax = spw_json_number(spw_json_get(root, "totalTax"), 2, &out->tax_minor);
        if (state && strcmp(state, "Cancelled") == 0) {
            out->booked = SPW_BOOKED_REJECTED;
            snprintf(out->detail, sizeof out->detail, "the document was voided in AvaTax");
        } else if (out->has_tax) {
            out->booked = SPW_BOOKED;
        } else {
            snprintf(out->detail, sizeof out->detail, "a success without \"totalTax\"");
        }
    } else {
        const char *code = code_of(spw_json_get(root, "error"));
        snprintf(out->detail, sizeof out->detail, "AvaTax answered status %u %.60s", status, code);
        if (answer.kind == SPW_ANSWER_THROTTLED)
            out->booked = SPW_BOOKED_THROTTLED;
        else if (answer.kind == SPW_ANSWER_REJECTED)
            out->booked = strcmp(code, "DuplicateEntry") == 0 ? SPW_BOOKED_ALREADY : SPW_BOOKED_REJECTED;
    }
    spw_answer_clean_up(&answer);
    spw_json_free(root);
}

void spw_avatax_read_book(const struct spw_booking *booking, uint32_t status, const char *body,
                          size_t body_bytes, struct spw_booked_answer *out)
{
    (void)booking;
    read_document(false, status, body, body_bytes, out);
}

void spw_avatax_read_book_back(const struct spw_booking *booking, uint32_t status, const char *body,
                               size_t body_bytes, struct spw_booked_answer *out)
{
    (void)booking;
    read_document(true, status, body, body_bytes, out);
}
