/* wire.c: see wire.h.
 *
 * Money goes out as JSON numbers. jansson prints a double; a whole number of cents divided by 100 is the double nearest
 * to that decimal, and "%.15g" prints every decimal of at most 15 digits back as it was (DBL_DIG), so 3998 cents leave
 * as 39.98. Larger amounts are refused rather than printed inexactly.
 */
#include "sidecar/provider/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include <openssl/evp.h>

#include "shm/spw_rates.h"
#include "shm/spw_text.h"
#include "sidecar/provider/decimal.h"

#define BASIC_MAX_BYTES 2800u /* base64 of two secrets of the greatest length */

enum spw_status spw_wire_no_memory(struct spw_error *err)
{
    return spw_error_set(err, SPW_STATUS_NO_MEMORY,
                         "provider: no memory for the call; raise the memory limit");
}

/* ---- calls ---- */

static bool is_header_text(const char *text)
{
    for (const char *p = text; *p; p++)
        if ((unsigned char)*p <= 0x20 || (unsigned char)*p >= 0x7f)
            return false;
    return true;
}

static enum spw_status check_credential(const struct spw_conf_account *account,
                                        const struct spw_credential *credential, struct spw_error *err)
{
    if (!credential->secret || !credential->secret[0])
        return spw_error_set(err, SPW_STATUS_INVALID,
                             "accounts.%s.credentials: the key is empty; put it into the file or "
                             "variable named there",
                             account->name);
    if (!is_header_text(credential->secret) || (credential->user && !is_header_text(credential->user)))
        return spw_error_set(
            err, SPW_STATUS_INVALID,
            "accounts.%s.credentials: the key holds a blank, line break or other byte that cannot go "
            "into a header; store the key alone",
            account->name);
    return SPW_STATUS_OK;
}

char *spw_wire_join(const char *a, size_t a_bytes, const char *b, const char *c)
{
    size_t room = a_bytes + strlen(b) + strlen(c) + 1;
    char *out = malloc(room);
    if (!out)
        return NULL;
    struct spw_text t = spw_text_on(out, room);
    spw_text_bytes(&t, a, a_bytes);
    spw_text_put(&t, b);
    spw_text_put(&t, c);
    return out;
}

enum spw_status spw_wire_header(struct spw_call *call, const char *name, const char *value,
                                struct spw_error *err)
{
    char *line = call->header_count + 1 < SPW_CALL_HEADERS_MAX_COUNT
                     ? spw_wire_join(name, strlen(name), ": ", value)
                     : NULL;
    if (!line)
        return spw_wire_no_memory(err);
    call->headers[call->header_count++] = line;
    return SPW_STATUS_OK;
}

enum spw_status spw_wire_open(const struct spw_profile *profile, const struct spw_conf_account *account,
                              const struct spw_credential *credential, const char *method, const char *path,
                              struct spw_call *out, struct spw_error *err)
{
    memset(out, 0, sizeof *out);
    enum spw_status status = check_credential(account, credential, err);
    if (status)
        return status;
    const char *base = account->url[0] ? account->url : profile->default_url;
    size_t base_bytes = strlen(base);
    while (base_bytes > 0 && base[base_bytes - 1] == '/')
        base_bytes--;
    out->method = method;
    out->url = spw_wire_join(base, base_bytes, path, "");
    status = out->url ? spw_wire_header(out, "Accept", "application/json", err) : spw_wire_no_memory(err);
    if (status)
        spw_call_clean_up(out);
    return status;
}

enum spw_status spw_wire_close(const struct spw_profile *profile, const struct spw_credential *credential,
                               char *body, const char *content_type, enum spw_status status,
                               struct spw_call *call, struct spw_error *err)
{
    if (!status && body) {
        status = spw_wire_header(call, "Content-Type", content_type, err);
        call->body = body;
        call->body_bytes = strlen(body);
        body = NULL;
    }
    if (!status) {
        char *line = profile->authorize(credential);
        if (line)
            call->headers[call->header_count++] = line;
        else
            status = spw_wire_no_memory(err);
    }
    free(body);
    if (status)
        spw_call_clean_up(call);
    return status;
}

/* The most that texts can come to in JSON: each byte may be written as six. */
static size_t text_room(const char *text)
{
    return text ? 6 * strlen(text) : 0;
}

static size_t address_room(const struct spw_address *a)
{
    return text_room(a->country) + text_room(a->state) + text_room(a->zip) + text_room(a->city) +
           text_room(a->line1);
}

static size_t quote_room(const struct spw_quote_request *quote)
{
    size_t room = 3072 + 2 * address_room(&quote->ship_from) + 2 * address_room(&quote->ship_to) +
                  text_room(quote->customer_id) + text_room(quote->exemption) +
                  text_room(quote->shipping_tax_code);
    for (uint32_t i = 0; i < quote->line_count; i++)
        room += 320 + text_room(quote->lines[i].id) + text_room(quote->lines[i].tax_code);
    return room;
}

enum spw_status spw_wire_body_open(struct spw_wire_body *body, const struct spw_quote_request *const *quotes,
                                   size_t count, struct spw_error *err)
{
    size_t room = 64;
    body->quotes = quotes;
    body->quotes_count = count;
    for (size_t i = 0; i < count; i++)
        room += quote_room(quotes[i]);
    bool is_large = room > sizeof body->own;
    body->large = is_large ? malloc(room) : NULL;
    body->text = spw_text_on(is_large ? body->large : body->own, !is_large     ? sizeof body->own
                                                                 : body->large ? room
                                                                               : 0);
    return is_large && !body->large ? spw_wire_no_memory(err) : SPW_STATUS_OK;
}

static bool is_ascii(const char *text, size_t bytes)
{
    unsigned char all =
        0; /* without a way out of the loop, so that the compiler takes many bytes at a time */
    for (size_t i = 0; i < bytes; i++)
        all |= (unsigned char)text[i];
    return all < 0x80;
}

static bool is_utf8(const char *text, size_t bytes)
{
    size_t i = 0, n = 1;
    for (; i < bytes && n; i += n) {
        size_t some = bytes - i < 128 ? bytes - i : 128;
        n = is_ascii(text + i, some) ? some : spw_utf8_bytes(text + i, bytes - i);
    }
    return i == bytes && n;
}

static bool is_text(const char *text)
{
    return !text || is_utf8(text, strlen(text));
}

static bool is_address_text(const struct spw_address *a)
{
    return is_text(a->country) && is_text(a->state) && is_text(a->zip) && is_text(a->city) &&
           is_text(a->line1);
}

/* Some text is no UTF-8: which? */
static enum spw_status refuse_text(const struct spw_wire_body *body, struct spw_error *err)
{
    char place[32] = "";
    const char *name = "a text of the quote";
    for (size_t k = 0; k < body->quotes_count; k++) {
        const struct spw_quote_request *q = body->quotes[k];
        if (!is_text(q->customer_id) || !is_text(q->exemption))
            name = !is_text(q->customer_id) ? "customer.id" : "customer.exemption";
        if (!is_address_text(&q->ship_from) || !is_address_text(&q->ship_to))
            name = is_address_text(&q->ship_to) ? "ship_from" : "ship_to";
        for (uint32_t i = 0; i < q->line_count && !place[0]; i++) {
            const struct spw_line *line = &q->lines[i];
            if (!is_text(line->id) || !is_text(line->tax_code)) {
                spw_wire_place(i, place);
                name = is_text(line->id) ? ".tax_code" : ".id";
            }
        }
    }
    return spw_error_set(err, SPW_STATUS_INVALID, "%s%s: not UTF-8; send UTF-8", place, name);
}

enum spw_status spw_wire_close_body(const struct spw_profile *profile,
                                    const struct spw_credential *credential, struct spw_wire_body *body,
                                    enum spw_status status, struct spw_call *call, struct spw_error *err)
{
    const struct spw_text *t = &body->text;
    bool is_whole = t->at && !t->overflow;
    char *copy = NULL;
    if (!status && is_whole && !is_utf8(t->at, t->used))
        status = refuse_text(body, err);
    if (!status && is_whole)
        copy = strdup(t->at);
    if (!status && !copy)
        status = spw_wire_no_memory(err);
    free(body->large);
    return spw_wire_close(profile, credential, copy, "application/json", status, call, err);
}

/* ---- credentials ---- */

char *spw_wire_bearer(const struct spw_credential *credential)
{
    return spw_wire_join("Authorization: Bearer ", 22, credential->secret, "");
}

char *spw_wire_basic(const struct spw_credential *credential)
{
    if (!credential->user || !credential->user[0])
        return spw_wire_bearer(credential);
    char plain[2 * SPW_CONF_SECRET_MAX_BYTES + 2];
    unsigned char coded[BASIC_MAX_BYTES];
    char *line = NULL;
    int n = snprintf(plain, sizeof plain, "%s:%s", credential->user, credential->secret);
    if (n <= 0 || (size_t)n >= sizeof plain)
        return NULL;
    EVP_EncodeBlock(coded, (const unsigned char *)plain, n);
    if (asprintf(&line, "Authorization: Basic %s", (const char *)coded) < 0)
        line = NULL;
    explicit_bzero(plain, sizeof plain);
    explicit_bzero(coded, sizeof coded);
    return line;
}

bool spw_wire_header_find(const char *headers, const char *name, char *out, size_t room)
{
    size_t name_bytes = strlen(name);
    for (const char *line = headers; line && *line;) {
        const char *end = line + strcspn(line, "\r\n");
        if (strncasecmp(line, name, name_bytes) == 0 && line[name_bytes] == ':') {
            const char *value = line + name_bytes + 1;
            while (value < end && (*value == ' ' || *value == '\t'))
                value++;
            while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
                end--;
            size_t bytes = (size_t)(end - value);
            if (bytes >= room)
                return false;
            memcpy(out, value, bytes);
            out[bytes] = 0;
            return true;
        }
        while (*end == '\r' || *end == '\n')
            end++;
        line = end;
    }
    return false;
}

/* "dXNlcjpwYXNz" -> "pass"; "dXNlcjo=" -> "user". */
static bool take_basic(const char *coded, char *out, size_t room)
{
    unsigned char plain[BASIC_MAX_BYTES + 4];
    size_t coded_bytes = strlen(coded);
    if (coded_bytes == 0 || coded_bytes > BASIC_MAX_BYTES || coded_bytes % 4)
        return false;
    int n = EVP_DecodeBlock(plain, (const unsigned char *)coded, (int)coded_bytes);
    if (n < 3)
        return false;
    n -= (coded[coded_bytes - 1] == '=') + (coded[coded_bytes - 2] == '=');
    plain[n] = 0;
    const char *text = (const char *)plain;
    const char *colon = strchr(text, ':');
    bool found = false;
    if (strlen(text) == (size_t)n && colon) {
        size_t user_bytes = (size_t)(colon - text);
        const char *token = colon[1] ? colon + 1 : text;
        size_t bytes = colon[1] ? strlen(token) : user_bytes;
        found = bytes > 0 && bytes < room;
        if (found) {
            memcpy(out, token, bytes);
            out[bytes] = 0;
        }
    }
    explicit_bzero(plain, sizeof plain);
    return found;
}

bool spw_wire_token(const char *headers, char *out, size_t room)
{
    char value[BASIC_MAX_BYTES + 16];
    bool found = false;
    if (!spw_wire_header_find(headers, "Authorization", value, sizeof value))
        return false;
    size_t scheme = strcspn(value, " ");
    const char *rest = value + scheme + strspn(value + scheme, " ");
    if (scheme == 6 && strncasecmp(value, "Bearer", 6) == 0) {
        size_t bytes = strlen(rest);
        found = bytes > 0 && bytes < room;
        if (found)
            memcpy(out, rest, bytes + 1);
    } else if (scheme == 5 && strncasecmp(value, "Basic", 5) == 0) {
        found = take_basic(rest, out, room);
    } else if (scheme == 5 && strncasecmp(value, "Token", 5) == 0 && strncmp(rest, "token=\"", 7) == 0) {
        size_t bytes = strcspn(rest + 7, "\"");
        found = bytes > 0 && bytes < room && rest[7 + bytes] == '"' && !rest[8 + bytes];
        if (found) {
            memcpy(out, rest + 7, bytes);
            out[bytes] = 0;
        }
    }
    explicit_bzero(value, sizeof value);
    return found;
}

/* ---- JSON ---- */

struct spw_json *spw_wire_read(const char *body, size_t body_bytes)
{
    struct spw_json *root = spw_json_read(body ? body : "", body ? body_bytes : 0, NULL);
    if (root && root->kind != SPW_JSON_OBJECT) {
        spw_json_free(root);
        root = NULL;
    }
    return root;
}

const struct spw_json *spw_wire_doc_read(struct spw_json_doc *doc, const char *body, size_t body_bytes)
{
    const struct spw_json *root = spw_json_doc_read(doc, body ? body : "", body ? body_bytes : 0, NULL);
    if (!spw_json_is(root, SPW_JSON_OBJECT)) {
        spw_json_doc_clean_up(doc);
        return NULL;
    }
    return root;
}

json_t *spw_wire_parse(const char *body, size_t body_bytes)
{
    json_error_t error;
    json_t *root = json_loadb(body ? body : "", body ? body_bytes : 0, JSON_REJECT_DUPLICATES, &error);
    if (root && !json_is_object(root)) {
        json_decref(root);
        root = NULL;
    }
    return root;
}

json_t *spw_wire_minor(int64_t minor)
{
    return json_real((double)minor / 100);
}

json_t *spw_wire_rate(uint32_t ppb)
{
    return json_real((double)ppb / SPW_WIRE_PPB);
}

json_t *spw_wire_quantity(int64_t quantity_micro)
{
    return quantity_micro % SPW_WIRE_MICRO == 0 ? json_integer(quantity_micro / SPW_WIRE_MICRO)
                                                : json_real((double)quantity_micro / SPW_WIRE_MICRO);
}

bool spw_wire_set_text(json_t *object, const char *key, const char *text)
{
    return !text || !text[0] || json_object_set_new(object, key, json_string(text)) == 0;
}

/* ---- quotes ---- */

/* Currencies whose minor unit is not the hundredth: amounts are hundredths here. */
static bool has_hundredths(const char *currency)
{
    static const char others[] =
        "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF BHD IQD JOD "
        "KWD LYD OMR TND CLF UYW ";
    return strlen(currency) == 3 && !strstr(others, currency);
}

enum spw_status spw_wire_check_quote(const struct spw_quote_request *quote, const char *name,
                                     struct spw_error *err)
{
    int32_t day;
    if (quote->line_count == 0 || quote->line_count > SPW_LINES_MAX_COUNT)
        return spw_error_set(err, SPW_STATUS_INVALID, "lines: %u lines; send 1 to %u", quote->line_count,
                             SPW_LINES_MAX_COUNT);
    if (quote->currency && !has_hundredths(quote->currency))
        return spw_error_set(
            err, SPW_STATUS_INVALID,
            "currency: only currencies of a hundred minor units are quoted through %s; send \"USD\"", name);
    if (quote->date && !spw_date_parse(quote->date, &day))
        return spw_error_set(err, SPW_STATUS_INVALID, "date: no day of the calendar; send YYYY-MM-DD");
    return SPW_STATUS_OK;
}

void spw_wire_place(uint32_t index, char out[32])
{
    struct spw_text t = spw_text_on(out, 32);
    spw_text_put(&t, "lines[");
    spw_text_u64(&t, index);
    spw_text_put(&t, "]");
}

enum spw_status spw_wire_check_line(const struct spw_quote_request *quote, uint32_t index,
                                    bool negative_allowed, const char *name, struct spw_error *err)
{
    bool is_shipping = index == quote->line_count;
    int64_t amount_minor = is_shipping ? quote->shipping_minor : quote->lines[index].amount_minor;
    int64_t quantity_micro = is_shipping ? 0 : quote->lines[index].quantity_micro;
    char place[32] = "shipping";
    if (!is_shipping)
        spw_wire_place(index, place);
    if (amount_minor < 0 && !negative_allowed)
        return spw_error_set(err, SPW_STATUS_INVALID,
                             "%s.amount: an amount below zero is not quoted by %s; take the discount off the "
                             "line it belongs to",
                             place, name);
    if (amount_minor > SPW_WIRE_EXACT_MAX || amount_minor < -SPW_WIRE_EXACT_MAX || quantity_micro < 0 ||
        quantity_micro > SPW_WIRE_EXACT_MAX)
        return spw_error_set(err, SPW_STATUS_INVALID,
                             "%s: amount or quantity is out of range (0 to 15 digits); split the line",
                             place);
    return SPW_STATUS_OK;
}

void spw_wire_split_amount(int64_t amount_minor, bool whole_only, int64_t *price_minor,
                           int64_t *quantity_micro)
{
    if (*quantity_micro == 0)
        *quantity_micro = SPW_WIRE_MICRO;
    spw_wide scaled = (spw_wide)amount_minor * SPW_WIRE_MICRO;
    spw_wide price = scaled / *quantity_micro;
    bool fits = scaled % *quantity_micro == 0 && price <= SPW_WIRE_EXACT_MAX &&
                price >= -(spw_wide)SPW_WIRE_EXACT_MAX &&
                !(whole_only && *quantity_micro % SPW_WIRE_MICRO != 0);
    *price_minor = fits ? (int64_t)price : amount_minor;
    if (!fits)
        *quantity_micro = SPW_WIRE_MICRO;
}

void spw_wire_collected(const struct spw_booking *booking, int64_t *out)
{
    uint32_t count = booking->quote->line_count + 1, largest = 0;
    int64_t sum_minor = 0;
    for (uint32_t i = 0; i < count; i++) {
        out[i] = booking->collected[i].tax_minor;
        sum_minor += out[i];
        if (out[i] > out[largest])
            largest = i;
    }
    out[largest] += booking->tax_collected_minor - sum_minor;
}

void spw_wire_date(const struct spw_quote_request *quote, char out[11])
{
    if (quote->date) {
        snprintf(out, 11, "%.10s", quote->date);
        return;
    }
    time_t day_s = (time_t)spw_address_day(&quote->ship_to, spw_wall_ms()) * 86400;
    struct tm tm;
    gmtime_r(&day_s, &tm);
    if (strftime(out, 11, "%Y-%m-%d", &tm) != 10)
        out[0] = 0;
}
