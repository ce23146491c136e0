/* native.c: see native.h. */
#include "sidecar/provider/native.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shm/spw_text.h"
#include "sidecar/provider/decimal.h"
#include "sidecar/provider/wire.h"

#define OWN_TEXTS_BYTES  64u /* texts that come from us: a day */
#define LINE_TEXTS_BYTES 24u /* a line's own number when the caller gave none */

enum spw_status spw_native_refuse(struct spw_error *err, const char *format, ...)
{
    char text[200];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return spw_error_set(err, SPW_STATUS_INVALID, "%s", text);
}

enum spw_status spw_native_open(struct spw_native_builder *b, const struct spw_conf_account *account,
                                size_t body_bytes, size_t lines_count, struct spw_native_quote *out,
                                struct spw_error *err)
{
    memset(b, 0, sizeof *b);
    memset(out, 0, sizeof *out);
    if (lines_count == 0 || lines_count > SPW_LINES_MAX_COUNT)
        return spw_native_refuse(err, "%zu lines: 1 to %u can be quoted", lines_count, SPW_LINES_MAX_COUNT);
    /* No escape of JSON or of a form is shorter than what it stands for, so the body bounds its texts, NULs included:
     * each had at least quotes or an equals sign around it. */
    b->room = body_bytes + OWN_TEXTS_BYTES + lines_count * LINE_TEXTS_BYTES;
    b->lines_room = (uint32_t)lines_count;
    b->err = err;
    b->out = out;
    size_t lines_bytes = lines_count * sizeof *out->lines;
    out->lines = malloc(lines_bytes + b->room);
    if (!out->lines)
        return spw_wire_no_memory(err);
    memset(out->lines, 0, lines_bytes);
    b->texts = (char *)(out->lines + lines_count);
    out->quote.lines = out->lines;
    out->quote.account = account->name;
    out->quote.currency = "USD";
    return SPW_STATUS_OK;
}

const char *spw_native_text(struct spw_native_builder *b, const char *text)
{
    if (!text || !text[0])
        return NULL;
    size_t bytes = strlen(text) + 1;
    if (bytes > b->room - b->used) {
        b->failed = true;
        return NULL;
    }
    char *copy = b->texts + b->used;
    memcpy(copy, text, bytes);
    b->used += bytes;
    return copy;
}

const char *spw_native_number(struct spw_native_builder *b, int64_t number)
{
    char digits[24];
    struct spw_text t = spw_text_on(digits, sizeof digits);
    spw_text_i64(&t, number);
    return spw_native_text(b, digits);
}

struct spw_line *spw_native_line(struct spw_native_builder *b)
{
    struct spw_quote_request *q = &b->out->quote;
    if (q->line_count == b->lines_room) {
        b->failed = true;
        return NULL;
    }
    return &b->out->lines[q->line_count++];
}

enum spw_status spw_native_address(struct spw_native_builder *b, const char *name, const char *country,
                                   const char *state, const char *zip, const char *city, const char *line1,
                                   struct spw_address *out)
{
    char upper[3] = "";
    if (country && strcmp(country, "US") != 0 && strcmp(country, "USA") != 0 && strcmp(country, "us") != 0)
        return spw_native_refuse(b->err, "%s: cached rates are those of US places", name);
    if (!zip || !zip[0])
        return spw_native_refuse(b->err, "%s: no ZIP, by which cached rates are found", name);
    if (!state || strlen(state) != 2)
        return spw_native_refuse(b->err, "%s: no state of two letters", name);
    for (size_t i = 0; i < 2; i++)
        upper[i] = (char)(state[i] >= 'a' && state[i] <= 'z' ? state[i] - 32 : state[i]);
    out->country = "US";
    out->state = spw_native_text(b, upper);
    out->zip = spw_native_text(b, zip);
    out->city = spw_native_text(b, city);
    out->line1 = spw_native_text(b, line1);
    return SPW_STATUS_OK;
}

enum spw_status spw_native_date(struct spw_native_builder *b, const char *name, const char *text)
{
    char day_text[11];
    int32_t day;
    if (!text)
        return SPW_STATUS_OK;
    snprintf(day_text, sizeof day_text, "%s", text);
    if (!spw_date_parse(day_text, &day) || (strlen(text) > 10 && text[10] != 'T' && text[10] != ' '))
        return spw_native_refuse(b->err, "%s: no day of the calendar", name);
    b->out->quote.date = spw_native_text(b, day_text);
    return SPW_STATUS_OK;
}

enum spw_status spw_native_currency(struct spw_native_builder *b, const char *name, const char *text)
{
    if (text && strcmp(text, "USD") != 0 && strcmp(text, "usd") != 0)
        return spw_native_refuse(b->err, "%s: cached rates are in US dollars", name);
    return SPW_STATUS_OK;
}

enum spw_status spw_native_close(struct spw_native_builder *b, enum spw_status status)
{
    if (!status && b->failed)
        status = spw_native_refuse(b->err, "the request holds more than a quote can");
    if (!status && b->out->quote.line_count == 0)
        status = spw_native_refuse(b->err, "no lines");
    if (status)
        spw_native_quote_clean_up(b->out);
    return status;
}

bool spw_native_amount(int64_t price_micro, int64_t quantity_micro, int64_t less_micro, int64_t *minor)
{
    const spw_wide unit = (spw_wide)10000 * SPW_WIRE_MICRO; /* of a minor unit in millionths of millionths */
    spw_wide product = (spw_wide)price_micro * quantity_micro - (spw_wide)less_micro * SPW_WIRE_MICRO;
    spw_wide magnitude = product < 0 ? -product : product;
    spw_wide rounded = (magnitude + unit / 2) / unit;
    if (rounded > SPW_AMOUNT_MAX_MINOR)
        return false;
    *minor = product < 0 ? -(int64_t)rounded : (int64_t)rounded;
    return true;
}

/* ---- documents ---- */

bool spw_native_take_document(const char *text, char out[SPW_CALLER_ID_BYTES])
{
    if (!text || !text[0] || strlen(text) >= SPW_CALLER_ID_BYTES)
        return false;
    memcpy(out, text, strlen(text) + 1);
    return true;
}

bool spw_native_path_document(const char *path, const char *name, char out[SPW_CALLER_ID_BYTES])
{
    size_t name_bytes = strlen(name);
    for (const char *p = strchr(path, '/'); p; p = strchr(p + 1, '/')) {
        if (strncmp(p + 1, name, name_bytes) != 0 || p[1 + name_bytes] != '/')
            continue;
        const char *id = p + name_bytes + 2;
        size_t bytes = strcspn(id, "/");
        if (bytes == 0 || bytes >= SPW_CALLER_ID_BYTES)
            return false;
        memcpy(out, id, bytes);
        out[bytes] = 0;
        return true;
    }
    return false;
}

/* ---- answers ---- */

size_t spw_native_split(const struct spw_native_fallback *fallback, int64_t tax_minor,
                        struct spw_native_part out[SPW_NATIVE_PARTS_MAX_COUNT])
{
    const struct spw_native_part all[] = {{"state", fallback->state_ppb, 0},
                                          {"county", fallback->county_ppb, 0},
                                          {"city", fallback->city_ppb, 0},
                                          {"special", fallback->special_ppb, 0}};
    uint64_t sum_ppb =
        (uint64_t)fallback->state_ppb + fallback->county_ppb + fallback->city_ppb + fallback->special_ppb;
    if (fallback->combined_ppb == 0)
        return 0;
    if (sum_ppb != fallback->combined_ppb) { /* only the combined rate is known */
        out[0] = (struct spw_native_part){"state", fallback->combined_ppb, tax_minor};
        return 1;
    }
    size_t count = 0;
    int64_t given_minor = 0;
    uint64_t upto_ppb = 0;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (all[i].ppb == 0)
            continue;
        upto_ppb += all[i].ppb;
        /* Each part gets the growth of the share up to it, so that the parts add up. */
        int64_t upto_minor = (int64_t)((spw_wide)tax_minor * (spw_wide)upto_ppb / (spw_wide)sum_ppb);
        out[count] = all[i];
        out[count++].tax_minor = upto_minor - given_minor;
        given_minor = upto_minor;
    }
    return count;
}

int64_t spw_native_taxable_minor(const struct spw_native_quote *quote,
                                 const struct spw_native_fallback *fallback)
{
    int64_t sum_minor = 0;
    for (uint32_t i = 0; i <= quote->quote.line_count; i++)
        sum_minor += fallback->lines[i].taxable_minor;
    return sum_minor;
}

int64_t spw_native_amount_minor(const struct spw_native_quote *quote)
{
    int64_t sum_minor = 0;
    for (uint32_t i = 0; i < quote->quote.line_count; i++)
        sum_minor += quote->quote.lines[i].amount_minor;
    return sum_minor;
}

void spw_native_now(int64_t now_unix_ms, char *out, size_t room)
{
    time_t now = (time_t)(now_unix_ms / 1000);
    struct tm tm;
    gmtime_r(&now, &tm);
    if (strftime(out, room, "%Y-%m-%dT%H:%M:%SZ", &tm) == 0)
        out[0] = 0;
}

json_t *spw_native_mark(const struct spw_native_fallback *fallback)
{
    return json_pack("{s:b, s:s, s:s, s:s, s:s}", "fallback", 1, "type", fallback->type, "cause",
                     fallback->cause, "quote_id", fallback->quote_id, "flag_id", fallback->flag_id);
}

enum spw_status spw_native_answer_json(uint32_t status, json_t *root, struct spw_native_answer *out,
                                       struct spw_error *err)
{
    memset(out, 0, sizeof *out);
    out->body = root ? json_dumps(root, SPW_WIRE_JSON_STYLE) : NULL;
    json_decref(root);
    if (!out->body)
        return spw_wire_no_memory(err);
    out->status = status;
    out->content_type = "application/json";
    out->body_bytes = strlen(out->body);
    return SPW_STATUS_OK;
}
