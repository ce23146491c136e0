/* quota.c: see quota.h. A small reader of RFC 9651 lists and dictionaries, as far as rate-limit fields use them. */
#include "sidecar/provider/quota.h"

#include <string.h>

#define INTEGER_DIGITS_MAX  15u /* RFC 9651 */
#define FRACTION_DIGITS_MAX 3

enum value_kind { VALUE_NONE, VALUE_INTEGER, VALUE_TEXT, VALUE_OTHER };

struct value {
    enum value_kind kind;
    uint64_t integer;
    char text[SPW_QUOTA_NAME_BYTES];
};

struct reader {
    const char *p;
    const char *end;
    bool is_strict; /* as RFC 9651 wants it; else blanks and capitals where the drafts before 4 have them */
};

static bool is_alpha(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_token(char c)
{
    return is_alpha(c) || is_digit(c) || (c && strchr("!#$%&'*+-.^_`|~:/", c));
}

static void skip_blanks(struct reader *r)
{
    while (r->p < r->end && (*r->p == ' ' || *r->p == '\t'))
        r->p++;
}

static bool next_is(const struct reader *r, char c)
{
    return r->p < r->end && *r->p == c;
}

static bool take_integer(struct reader *r, struct value *out)
{
    const char *start = r->p;
    out->kind = VALUE_INTEGER;
    out->integer = 0;
    if (next_is(r, '-')) { /* legal in the grammar, never in a quota */
        out->kind = VALUE_OTHER;
        start = ++r->p;
    }
    while (r->p < r->end && is_digit(*r->p) && r->p - start < (long)INTEGER_DIGITS_MAX)
        out->integer = out->integer * 10 + (uint64_t)(*r->p++ - '0');
    if (r->p == start || (r->p < r->end && is_digit(*r->p)))
        return false;
    if (next_is(r, '.')) { /* a decimal: known, and not what a quota is written in */
        out->kind = VALUE_OTHER;
        start = ++r->p;
        while (r->p < r->end && is_digit(*r->p))
            r->p++;
        return r->p > start && r->p - start <= FRACTION_DIGITS_MAX;
    }
    return true;
}

static bool take_string(struct reader *r, struct value *out)
{
    size_t n = 0;
    out->kind = VALUE_TEXT;
    for (r->p++; r->p < r->end && *r->p != '"'; r->p++) {
        if (*r->p == '\\' && (++r->p == r->end || (*r->p != '"' && *r->p != '\\')))
            return false;
        if ((unsigned char)*r->p < 0x20 || (unsigned char)*r->p >= 0x7f)
            return false;
        if (n + 1 < sizeof out->text)
            out->text[n++] = *r->p;
    }
    out->text[n] = 0;
    return r->p++ < r->end;
}

static bool take_token(struct reader *r, struct value *out)
{
    size_t n = 0;
    out->kind = VALUE_TEXT;
    for (; r->p < r->end && is_token(*r->p); r->p++)
        if (n + 1 < sizeof out->text)
            out->text[n++] = *r->p;
    out->text[n] = 0;
    return true;
}

/* ":base64:", whatever it stands for: the partition key is not used here. */
static bool take_bytes(struct reader *r, struct value *out)
{
    out->kind = VALUE_OTHER;
    for (r->p++; r->p < r->end; r->p++)
        if (!is_alpha(*r->p) && !is_digit(*r->p) && *r->p != '+' && *r->p != '/' && *r->p != '=')
            break;
    return r->p < r->end && *r->p++ == ':';
}

static bool take_value(struct reader *r, struct value *out)
{
    memset(out, 0, sizeof *out);
    if (r->p == r->end)
        return false;
    if (is_digit(*r->p) || *r->p == '-')
        return take_integer(r, out);
    if (*r->p == '"')
        return take_string(r, out);
    if (*r->p == ':')
        return take_bytes(r, out);
    if (is_alpha(*r->p) || *r->p == '*')
        return take_token(r, out);
    if ((*r->p == '@' || *r->p == '%') && r->p + 1 < r->end) { /* RFC 9651: a date, a display string */
        bool is_date = *r->p++ == '@';
        bool is_good = is_date ? take_integer(r, out) : *r->p == '"' && take_string(r, out);
        out->kind = VALUE_OTHER;
        return is_good;
    }
    if (*r->p == '?' && r->p + 1 < r->end && (r->p[1] == '0' || r->p[1] == '1')) {
        out->kind = VALUE_OTHER;
        r->p += 2;
        return true;
    }
    return false;
}

static bool is_capital(char c)
{
    return c >= 'A' && c <= 'Z';
}

/* A key: lower-case letters, digits, "_-.*". */
static bool take_key(struct reader *r, char *key, size_t room)
{
    size_t n = 0;
    while (r->p < r->end && (is_alpha(*r->p) || is_digit(*r->p) || *r->p == '_' || *r->p == '-' ||
                             *r->p == '.' || *r->p == '*')) {
        if (r->is_strict && (is_capital(*r->p) || (n == 0 && !is_alpha(*r->p) && *r->p != '*')))
            return false;
        if (n + 1 < room)
            key[n++] = *r->p;
        r->p++;
    }
    key[n] = 0;
    return n > 0;
}

static void set_parameter(struct spw_quota *q, const char *key, const struct value *v)
{
    bool is_count = v->kind == VALUE_INTEGER;
    if (is_count && (strcmp(key, "q") == 0 || strcmp(key, "limit") == 0)) {
        q->has_limit = true;
        q->limit_count = v->integer;
    } else if (is_count && (strcmp(key, "r") == 0 || strcmp(key, "remaining") == 0)) {
        q->has_remaining = true;
        q->remaining_count = v->integer;
    } else if (is_count && (strcmp(key, "t") == 0 || strcmp(key, "reset") == 0)) {
        q->has_reset = true;
        q->reset_in_s = v->integer;
    } else if (is_count && v->integer > 0 && (strcmp(key, "w") == 0 || strcmp(key, "window") == 0)) {
        q->has_window = true;
        q->window_s = v->integer;
    } else if (strcmp(key, "qu") == 0 && v->kind == VALUE_TEXT && strcmp(v->text, "requests") != 0) {
        q->is_foreign = true;
    }
    /* Other parameters, and known ones of another type, are comments. */
}

/* Behind the semicolon, or behind the blanks that may follow an item. */
static bool next_parameter(struct reader *r)
{
    const char *here = r->p;
    skip_blanks(r);
    if (!next_is(r, ';') || (r->is_strict && r->p != here))
        return false;
    r->p++;
    skip_blanks(r);
    return true;
}

/* ";w=60;comment=\"fixed\"" into q, or nowhere when q is NULL. */
static bool take_parameters(struct reader *r, struct spw_quota *q)
{
    while (next_parameter(r)) {
        char key[32];
        struct value v = {.kind = VALUE_NONE};
        if (!take_key(r, key, sizeof key))
            return false;
        if (next_is(r, '=')) {
            r->p++;
            if (!take_value(r, &v))
                return false;
        }
        if (q)
            set_parameter(q, key, &v);
    }
    return true;
}

static bool take_separator(struct reader *r)
{
    if (!next_is(r, ','))
        return false;
    const char *comma = r->p++;
    skip_blanks(r);
    if (r->p < r->end)
        return true;
    r->p = comma; /* a trailing comma is malformed: the field does not end where it should */
    return false;
}

static size_t parse_dictionary(struct reader *r, struct spw_quota *q)
{
    memset(q, 0, sizeof *q);
    q->is_dictionary = true;
    do {
        char key[32];
        struct value v;
        if (!take_key(r, key, sizeof key))
            return 0;
        v.kind = VALUE_NONE; /* a key alone is true */
        if (next_is(r, '=')) {
            r->p++;
            if (!take_value(r, &v))
                return 0;
        }
        if (!take_parameters(r, NULL))
            return 0;
        set_parameter(q, key, &v);
    } while (take_separator(r));
    return r->p == r->end ? 1 : 0;
}

size_t spw_quota_parse(const char *text, size_t bytes, bool is_strict, struct spw_quota *out, size_t room)
{
    struct reader r = {text, text + bytes, is_strict};
    skip_blanks(&r);
    while (r.end > r.p && (r.end[-1] == ' ' || r.end[-1] == '\t'))
        r.end--;
    if (r.p == r.end || room == 0)
        return 0;
    struct reader ahead = r;
    char key[32];
    if (is_alpha(*ahead.p) && take_key(&ahead, key, sizeof key) && next_is(&ahead, '='))
        return parse_dictionary(&r, out);
    size_t count = 0;
    do {
        struct spw_quota q = {0};
        struct value v;
        if (!take_value(&r, &v) || !take_parameters(&r, &q))
            return 0;
        if (v.kind == VALUE_INTEGER) {
            q.has_limit = true;
            q.limit_count = v.integer;
        } else if (v.kind == VALUE_TEXT) {
            memcpy(q.name, v.text, sizeof q.name);
        } else {
            return 0;
        }
        if (count < room)
            out[count++] = q;
    } while (take_separator(&r));
    return r.p == r.end ? count : 0;
}
