/* spw_text.h: writing the normalised request as JSON, and the small texts around it. No allocation, no locale.
 *
 * Owns: struct spw_text, a bounded buffer. Called by: the client header and the doors. Thread: any; pure.
 */
#ifndef SPW_TEXT_H
#define SPW_TEXT_H

#include <string.h>

#include "shm/spw_quote.h"
#include "shm/spw_atomic.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Appends never run over: what does not fit sets overflow and is dropped whole. */
struct spw_text {
    char *at;
    size_t used, room;
    bool overflow;
};

static inline struct spw_text spw_text_on(char *buffer, size_t room)
{
    struct spw_text t;
    t.at = buffer;
    t.used = 0;
    t.room = room;
    t.overflow = room == 0;
    if (room)
        buffer[0] = 0;
    return t;
}

/* Where the caller writes so many bytes; NULL = they do not fit. */
static inline char *spw__text_take(struct spw_text *t, size_t count)
{
    if (t->overflow || count + 1 > t->room - t->used) {
        t->overflow = true;
        return NULL;
    }
    char *to = t->at + t->used;
    t->used += count;
    to[count] = 0;
    return to;
}

static inline void spw_text_bytes(struct spw_text *t, const char *bytes, size_t count)
{
    char *to = spw__text_take(t, count);
    if (to)
        memcpy(to, bytes, count);
}

static inline void spw_text_put(struct spw_text *t, const char *text)
{
    spw_text_bytes(t, text, strlen(text));
}

static inline void spw_text_u64(struct spw_text *t, uint64_t value)
{
    char digits[24];
    size_t n = sizeof digits;
    do {
        digits[--n] = (char)('0' + value % 10);
        value /= 10;
    } while (value);
    spw_text_bytes(t, digits + n, sizeof digits - n);
}

static inline void spw_text_i64(struct spw_text *t, int64_t value)
{
    if (value < 0)
        spw_text_put(t, "-");
    spw_text_u64(t, value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
}

/* value / 10^digits as a decimal: minor units are (value, 2), ppb (value, 9). trim: no trailing zeros. */
static inline void spw_text_decimal(struct spw_text *t, int64_t value, unsigned digits, bool trim)
{
    uint64_t magnitude = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    char text[48]; /* written from its end */
    size_t at = sizeof text;
    for (; trim && digits && magnitude % 10 == 0; digits--)
        magnitude /= 10;
    if (digits) {
        for (; digits; digits--, magnitude /= 10)
            text[--at] = (char)('0' + magnitude % 10);
        text[--at] = '.';
    }
    do {
        text[--at] = (char)('0' + magnitude % 10);
        magnitude /= 10;
    } while (magnitude);
    if (value < 0)
        text[--at] = '-';
    spw_text_bytes(t, text + at, sizeof text - at);
}

/* Bytes of the well-formed character at `at`, of which `left` > 0 bytes are there; 0 = none begins here (RFC 3629: no
 * overlong form, no surrogate, up to U+10FFFF). */
static inline size_t spw_utf8_bytes(const char *at, size_t left)
{
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *text = (const unsigned char *)at;
    if (text[0] < 0x80)
        return 1;
    size_t n = text[0] >= 0xF0 ? 4 : text[0] >= 0xE0 ? 3 : 2;
    if (text[0] < 0xC2 || text[0] > 0xF4 || left < n)
        return 0;
    uint32_t code = text[0] & (0xFFu >> (n + 1));
    for (size_t i = 1; i < n; i++) {
        if ((text[i] & 0xC0) != 0x80)
            return 0;
        code = code << 6 | (text[i] & 0x3Fu);
    }
    return code < least[n] || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF) ? 0 : n;
}

static inline bool spw_is_control(char c)
{
    return (unsigned char)c < 0x20 || c == 0x7F;
}

/* Whole UTF-8 without control bytes: fit to be an id or a name. The ledger takes no other. */
static inline bool spw_utf8_is_name(const char *text, size_t count)
{
    for (size_t i = 0; i < count;) {
        size_t n = spw_utf8_bytes(text + i, count - i);
        if (n == 0 || spw_is_control(text[i]))
            return false;
        i += n;
    }
    return true;
}

/* NULL is none, and none is fine. */
static inline bool spw_text_is_name(const char *text)
{
    return !text || spw_utf8_is_name(text, strlen(text));
}

/* The first field of a request that goes into a flag as an id or name and is none; NULL = all are. */
static inline const char *spw_request_bad_name(const struct spw_quote_request *q)
{
    return !spw_text_is_name(q->decision_id)       ? "decision_id"
           : !spw_text_is_name(q->quote_ref)       ? "quote_ref"
           : !spw_text_is_name(q->account)         ? "account"
           : !spw_text_is_name(q->integration)     ? "integration"
           : !spw_text_is_name(q->currency)        ? "currency"
           : !spw_text_is_name(q->date)            ? "date"
           : !spw_text_is_name(q->ship_to.country) ? "ship_to.country"
           : !spw_text_is_name(q->ship_to.state)   ? "ship_to.state"
           : !spw_text_is_name(q->ship_to.zip)     ? "ship_to.zip"
                                                   : NULL;
}

/* Bytes up to the first that a JSON string must escape, or to the end. */
static inline size_t spw__json_plain(const char *text)
{
    size_t n = 0;
    while ((unsigned char)text[n] >= 0x20 && text[n] != '"' && text[n] != '\\')
        n++;
    return n;
}

/* A JSON string with its quotes; NULL becomes null. Control bytes are escaped, other bytes pass as they are. */
static inline void spw_text_json(struct spw_text *t, const char *text)
{
    static const char hex[] = "0123456789abcdef";
    if (!text) {
        spw_text_put(t, "null");
        return;
    }
    size_t plain = spw__json_plain(text);
    char *whole = text[plain] ? NULL : spw__text_take(t, plain + 2);
    if (whole) { /* nearly every text */
        whole[0] = whole[plain + 1] = '"';
        memcpy(whole + 1, text, plain);
        return;
    }
    spw_text_bytes(t, "\"", 1);
    while (*text) {
        plain = spw__json_plain(text);
        spw_text_bytes(t, text, plain);
        text += plain;
        if (!*text)
            break;
        unsigned char c = (unsigned char)*text++;
        if (c == '"' || c == '\\') {
            char two[2] = {'\\', (char)c};
            spw_text_bytes(t, two, 2);
        } else {
            char six[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
            spw_text_bytes(t, six, 6);
        }
    }
    spw_text_bytes(t, "\"", 1);
}

/* "name": */
static inline void spw__json_name(struct spw_text *t, const char *name)
{
    size_t n = strlen(name);
    char *to = spw__text_take(t, n + 3);
    if (!to)
        return;
    memcpy(to + 1, name, n + 1);
    to[0] = to[n + 1] = '"';
    to[n + 2] = ':';
}

static inline void spw__json_field(struct spw_text *t, const char *name, const char *value)
{
    if (!value)
        return;
    if (t->used && t->at[t->used - 1] != '{')
        spw_text_put(t, ",");
    spw__json_name(t, name);
    spw_text_json(t, value);
}

static inline void spw__json_address(struct spw_text *t, const char *name, const struct spw_address *a)
{
    if (!a->country && !a->state && !a->zip && !a->city && !a->line1)
        return;
    spw_text_put(t, ",\"");
    spw_text_put(t, name);
    spw_text_put(t, "\":{");
    spw__json_field(t, "country", a->country);
    spw__json_field(t, "state", a->state);
    spw__json_field(t, "zip", a->zip);
    spw__json_field(t, "city", a->city);
    spw__json_field(t, "line1", a->line1);
    spw_text_put(t, "}");
}

/* The normalised request as the quote door takes it and as a flag keeps it. Returns its bytes, 0 when it does not
 * fit. */
static inline size_t spw_request_json(const struct spw_quote_request *q, char *buffer, size_t room)
{
    struct spw_text t = spw_text_on(buffer, room);
    spw_text_put(&t, "{");
    spw__json_field(&t, "account", q->account);
    spw__json_field(&t, "integration", q->integration);
    spw__json_field(&t, "decision_id", q->decision_id);
    spw__json_field(&t, "purpose", spw_purpose_name(q->purpose));
    spw__json_field(&t, "quote_ref", q->quote_ref);
    spw__json_field(&t, "currency", q->currency ? q->currency : "USD");
    spw__json_field(&t, "date", q->date);
    if (q->deadline_ms) {
        spw_text_put(&t, ",\"deadline_ms\":");
        spw_text_u64(&t, q->deadline_ms);
    }
    spw__json_address(&t, "ship_from", &q->ship_from);
    spw__json_address(&t, "ship_to", &q->ship_to);
    if (q->customer_id || q->exemption) {
        spw_text_put(&t, ",\"customer\":{");
        spw__json_field(&t, "id", q->customer_id);
        spw__json_field(&t, "exemption", q->exemption);
        spw_text_put(&t, "}");
    }
    if (q->shipping_minor || q->shipping_tax_code) {
        spw_text_put(&t, ",\"shipping\":{\"amount\":\"");
        spw_text_decimal(&t, q->shipping_minor, 2, false);
        spw_text_put(&t, "\"");
        spw__json_field(&t, "tax_code", q->shipping_tax_code);
        spw_text_put(&t, "}");
    }
    spw_text_put(&t, ",\"lines\":[");
    for (uint32_t i = 0; i < q->line_count; i++) {
        const struct spw_line *line = &q->lines[i];
        spw_text_put(&t, i ? ",{" : "{");
        spw__json_field(&t, "id", line->id);
        spw__json_field(&t, "tax_code", line->tax_code);
        spw_text_put(&t, line->id || line->tax_code ? ",\"quantity\":\"" : "\"quantity\":\"");
        spw_text_decimal(&t, line->quantity_micro ? line->quantity_micro : 1000000, 6, true);
        spw_text_put(&t, "\",\"amount\":\"");
        spw_text_decimal(&t, line->amount_minor, 2, false);
        spw_text_put(&t, "\"}");
    }
    spw_text_put(&t, "]}");
    return t.overflow ? 0 : t.used;
}

/* "98110", "98110-1234", "981101234", " 98110 ", "98110-" -> ZIP5 and, where given, the +4. false: no US ZIP code. */
static inline bool spw_zip_parse(const char *text, uint32_t *zip5, uint32_t *plus4, bool *has_plus4)
{
    uint32_t five = 0, four = 0, digits = 0;
    bool dash = false, ended = false;
    if (!text)
        return false;
    for (; *text; text++) {
        if (*text == ' ' || *text == '\t') {
            ended = digits > 0;
        } else if (*text == '-' && digits == 5 && !dash && !ended) {
            dash = true;
        } else if (*text >= '0' && *text <= '9' && digits < 9 && !ended) {
            uint32_t d = (uint32_t)(*text - '0');
            if (digits < 5)
                five = five * 10 + d;
            else
                four = four * 10 + d;
            digits++;
        } else {
            return false;
        }
    }
    if (digits != 5 && digits != 9)
        return false;
    *zip5 = five;
    *plus4 = four;
    *has_plus4 = digits == 9;
    return true;
}

/* A day as "2025-11-01"; days since 1970-01-01, 0 and later. */
static inline void spw_text_day(struct spw_text *t, int32_t day)
{
    uint32_t z = (uint32_t)(day < 0 ? 0 : day) + 719468, era = z / 146097, in_era = z % 146097;
    uint32_t year = (in_era - in_era / 1460 + in_era / 36524 - in_era / 146096) / 365;
    uint32_t of_year = in_era - (365 * year + year / 4 - year / 100); /* counted from the first of March */
    uint32_t m = (5 * of_year + 2) / 153, d = of_year - (153 * m + 2) / 5 + 1;
    m = m < 10 ? m + 3 : m - 9;
    spw_text_u64(t, year + era * 400 + (m <= 2));
    spw_text_put(t, m < 10 ? "-0" : "-");
    spw_text_u64(t, m);
    spw_text_put(t, d < 10 ? "-0" : "-");
    spw_text_u64(t, d);
}

/* Days since 1970-01-01 of "YYYY-MM-DD"; false when it is no date. */
static inline bool spw_date_parse(const char *text, int32_t *day)
{
    static const uint8_t month_days[12] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int32_t part[3] = {0, 0, 0};
    static const uint8_t digits[3] = {4, 2, 2};
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < digits[i]; k++, text++) {
            if (*text < '0' || *text > '9')
                return false;
            part[i] = part[i] * 10 + (*text - '0');
        }
        if (i < 2 && *text++ != '-')
            return false;
    }
    int32_t y = part[0], m = part[1], d = part[2];
    bool leap = (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;
    if (*text || y < 1970 || m < 1 || m > 12 || d < 1 || d > month_days[m - 1] + (m == 2 && leap))
        return false;
    int32_t before = y - 1, total = before * 365 + before / 4 - before / 100 + before / 400 - 719162;
    for (int32_t i = 1; i < m; i++)
        total += month_days[i - 1] + (i == 2 && leap);
    *day = total + d - 1;
    return true;
}

#ifdef __cplusplus
}
#endif

#endif
