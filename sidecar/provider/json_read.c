/* json_read.c: see json_read.h.
 *
 * The block holds the values, then a copy of the document in which texts are unescaped where they lie: an escape is
 * never shorter than what it stands for, and the quote behind a text gives room for its NUL. How many values there can be
 * is known before: each but the first stands behind a comma, a bracket or a brace.
 */
#include "sidecar/provider/json_read.h"

#include <endian.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "shm/spw_text.h"
#include "sidecar/provider/decimal.h"

/* Members of an object that are compared each with each; more are sorted first. */
#define FEW_MEMBERS 16u
#define ZEROS_BYTES 8u /* behind the document */

struct reader {
    char *at, *end; /* zeros of our own follow */
    const char *start;
    struct spw_json *values;
    uint32_t used;
    uint32_t depth;
    const char *what; /* what is wrong, at `at` */
};

static bool fail(struct reader *r, const char *what)
{
    r->what = what;
    return false;
}

static void skip_blanks(struct reader *r)
{
    while ((unsigned char)*r->at <= ' ' && /* most often there is none */
           (*r->at == ' ' || *r->at == '\n' || *r->at == '\r' || *r->at == '\t'))
        r->at++;
}

/* ---- texts ---- */

/* Four hex digits. */
static bool read_hex(struct reader *r, uint32_t *out)
{
    *out = 0;
    for (int i = 0; i < 4; i++, r->at++) {
        char c = *r->at;
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return fail(r, "four hex digits are expected behind \\u");
        *out = *out << 4 | (uint32_t)digit;
    }
    return true;
}

static char *put_utf8(char *to, uint32_t code)
{
    if (code < 0x80) {
        *to++ = (char)code;
    } else if (code < 0x800) {
        *to++ = (char)(0xC0 | code >> 6);
        *to++ = (char)(0x80 | (code & 0x3F));
    } else {
        if (code < 0x10000) {
            *to++ = (char)(0xE0 | code >> 12);
        } else {
            *to++ = (char)(0xF0 | code >> 18);
            *to++ = (char)(0x80 | (code >> 12 & 0x3F));
        }
        *to++ = (char)(0x80 | (code >> 6 & 0x3F));
        *to++ = (char)(0x80 | (code & 0x3F));
    }
    return to;
}

/* Behind "\u". Two surrogates are one character; one alone is none. */
static bool read_unicode(struct reader *r, char **to)
{
    uint32_t code, low;
    if (!read_hex(r, &code))
        return false;
    if (code >= 0xD800 && code <= 0xDBFF) {
        if (r->at[0] != '\\' || r->at[1] != 'u')
            return fail(r, "half a character in a text");
        r->at += 2;
        if (!read_hex(r, &low))
            return false;
        if (low < 0xDC00 || low > 0xDFFF)
            return fail(r, "half a character in a text");
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    } else if (code >= 0xDC00 && code <= 0xDFFF) {
        return fail(r, "half a character in a text");
    }
    if (code == 0)
        return fail(r, "a NUL in a text");
    *to = put_utf8(*to, code);
    return true;
}

/* Behind the backslash. */
static bool read_escape(struct reader *r, char **to)
{
    static const char names[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    const char *name = *r->at ? strchr(names, *r->at) : NULL;
    if (*r->at == 'u') {
        r->at++;
        return read_unicode(r, to);
    }
    if (!name)
        return fail(r, "an escape that is none in a text");
    *(*to)++ = meant[name - names];
    r->at++;
    return true;
}

/* ASCII that stands for itself in a text: how many bytes of it there are from here on. Looks at eight at a time, into the
 * zeros behind the document, too. In `stops` the top bit of each byte says whether it is another; of those behind the
 * first one it may err. */
static size_t plain_bytes(const char *at)
{
    const uint64_t ones = UINT64_C(0x0101010101010101), tops = ones << 7;
    for (size_t n = 0;; n += sizeof ones) {
        uint64_t eight;
        memcpy(&eight, at + n, sizeof eight);
        eight = le64toh(eight);
        uint64_t quotes = eight ^ ones * '"', backslashes = eight ^ ones * '\\'; /* are zero there */
        uint64_t stops = (eight | (eight - ones * 0x20) | (quotes - ones) | (backslashes - ones)) & tops;
        if (stops)
            return n + (size_t)__builtin_ctzll(stops) / 8;
    }
}

/* Up to the closing quote, unescaped to *to, which moves. */
static bool unescape(struct reader *r, char **to)
{
    while (*r->at != '"') {
        unsigned char c = (unsigned char)*r->at;
        if (c == '\\') {
            r->at++;
            if (!read_escape(r, to))
                return false;
        } else if (c >= 0x20 && c < 0x80) {
            *(*to)++ = *r->at++;
        } else {
            size_t n = c < 0x20 ? 0 : spw_utf8_bytes(r->at, (size_t)(r->end - r->at));
            if (n == 0)
                return fail(r, r->at == r->end ? "the document ends within a text"
                               : c < 0x20      ? "a control byte in a text"
                                               : "not UTF-8");
            memmove(*to, r->at, n);
            *to += n;
            r->at += n;
        }
    }
    return true;
}

/* From the opening quote. */
static bool read_text(struct reader *r, const char **text, size_t *bytes)
{
    char *start = r->at + 1, *to = start + plain_bytes(start);
    r->at = to; /* most texts are plain and stay where they lie */
    if (*to != '"' && !unescape(r, &to))
        return false;
    *text = start;
    *bytes = (size_t)(to - start);
    *to = 0; /* the quote, or what stood before it */
    r->at++;
    return true;
}

/* ---- numbers ---- */

static bool skip_digits(struct reader *r)
{
    const char *start = r->at;
    while (*r->at >= '0' && *r->at <= '9')
        r->at++;
    return r->at > start;
}

/* Does an int64_t or a double hold it? Short ones need no look. */
static bool is_in_range(const struct spw_json *v, bool has_exponent)
{
    char own[400], *end;
    if (v->text_bytes <= (v->kind == SPW_JSON_INTEGER ? 18 : has_exponent ? 0 : 300))
        return true;
    if (v->text_bytes >= sizeof own)
        return false;
    memcpy(own, v->text, v->text_bytes);
    own[v->text_bytes] = 0;
    errno = 0;
    if (v->kind == SPW_JSON_REAL)
        return isfinite(strtod(own, &end));
    (void)strtoll(own, &end, 10);
    return errno == 0;
}

static bool read_number(struct reader *r, struct spw_json *v)
{
    bool has_exponent = false;
    v->kind = SPW_JSON_INTEGER;
    v->text = r->at;
    if (*r->at == '-')
        r->at++;
    if (*r->at == '0')
        r->at++;
    else if (!skip_digits(r))
        return fail(r, "a value is expected");
    if (*r->at == '.') {
        v->kind = SPW_JSON_REAL;
        r->at++;
        if (!skip_digits(r))
            return fail(r, "a digit is expected behind the point");
    }
    if (*r->at == 'e' || *r->at == 'E') {
        v->kind = SPW_JSON_REAL;
        has_exponent = true;
        r->at++;
        if (*r->at == '+' || *r->at == '-')
            r->at++;
        if (!skip_digits(r))
            return fail(r, "a digit is expected in the exponent");
    }
    v->text_bytes = (size_t)(r->at - v->text);
    return is_in_range(v, has_exponent) || fail(r, "a number too large");
}

/* ---- objects and arrays ---- */

static bool same_key(const struct spw_json *a, const struct spw_json *b)
{
    return a->key_bytes == b->key_bytes && memcmp(a->key, b->key, a->key_bytes) == 0;
}

static int by_key(const void *a, const void *b)
{
    const struct spw_json *x = *(const struct spw_json *const *)a, *y = *(const struct spw_json *const *)b;
    if (x->key_bytes != y->key_bytes)
        return x->key_bytes < y->key_bytes ? -1 : 1;
    return memcmp(x->key, y->key, x->key_bytes);
}

/* Of many members; NULL memory counts as a fault. */
static bool check_sorted(struct reader *r, const struct spw_json *object)
{
    /* NOLINTBEGIN(bugprone-sizeof-expression): pointers are what is sorted */
    const struct spw_json **all = malloc(object->count * sizeof *all), *member = spw_json_first(object);
    if (!all)
        return fail(r, "no memory");
    uint32_t count = 0;
    for (; member && count < object->count; member = spw_json_next(object, member))
        all[count++] = member;
    qsort(all, count, sizeof *all, by_key);
    /* NOLINTEND(bugprone-sizeof-expression) */
    bool twice = false;
    for (uint32_t i = 1; i < count; i++)
        twice = twice || same_key(all[i - 1], all[i]);
    free(all);
    return !twice || fail(r, "a member comes twice");
}

static bool comes_before(const struct spw_json *object, const struct spw_json *member)
{
    const struct spw_json *one = spw_json_first(object);
    while (one != member && !same_key(one, member))
        one = spw_json_next(object, one);
    return one != member;
}

/* Only names of one length and one first letter are compared, or of few others that share their bit. */
static bool check_members(struct reader *r, const struct spw_json *object)
{
    uint64_t seen = 0;
    if (object->count > FEW_MEMBERS)
        return check_sorted(r, object);
    for (const struct spw_json *one = spw_json_first(object); one; one = spw_json_next(object, one)) {
        uint64_t bit = UINT64_C(1) << (((unsigned char)one->key[0] + 5 * one->key_bytes) & 63);
        if ((seen & bit) && comes_before(object, one))
            return fail(r, "a member comes twice");
        seen |= bit;
    }
    return true;
}

static bool read_value(struct reader *r, const char *key, size_t key_bytes);

static bool read_member(struct reader *r)
{
    const char *key;
    size_t bytes;
    if (*r->at != '"')
        return fail(r, "a member's name in quotes is expected");
    if (!read_text(r, &key, &bytes))
        return false;
    skip_blanks(r);
    if (*r->at != ':')
        return fail(r, "':' is expected");
    r->at++;
    skip_blanks(r);
    return read_value(r, key, bytes);
}

/* From the opening bracket or brace. */
static bool read_inside(struct reader *r, struct spw_json *v)
{
    bool is_object = *r->at++ == '{';
    const char close = is_object ? '}' : ']';
    v->kind = is_object ? SPW_JSON_OBJECT : SPW_JSON_ARRAY;
    if (++r->depth > SPW_JSON_DEPTH_MAX)
        return fail(r, "nested too deep");
    skip_blanks(r);
    while (v->count || *r->at != close) {
        if (!(is_object ? read_member(r) : read_value(r, NULL, 0)))
            return false;
        v->count++;
        skip_blanks(r);
        if (*r->at == close)
            break;
        if (*r->at != ',')
            return fail(r, is_object ? "',' or '}' is expected" : "',' or ']' is expected");
        r->at++;
        skip_blanks(r);
    }
    r->at++;
    r->depth--;
    v->values = (uint32_t)(r->values + r->used - v);
    return !is_object || check_members(r, v);
}

static bool read_word(struct reader *r, const char *word, size_t bytes)
{
    if ((size_t)(r->end - r->at) < bytes || memcmp(r->at, word, bytes) != 0)
        return fail(r, "a value is expected");
    r->at += bytes;
    return true;
}

static bool read_value(struct reader *r, const char *key, size_t key_bytes)
{
    struct spw_json *v = &r->values[r->used++];
    *v = (struct spw_json){.values = 1, .key = key, .key_bytes = (uint32_t)key_bytes};
    switch (*r->at) {
    case '{':
    case '[':
        return read_inside(r, v); /* NOLINT(clang-analyzer-unix.Malloc): the reader holds all values */
    case '"':
        v->kind = SPW_JSON_TEXT;
        return read_text(r, &v->text, &v->text_bytes);
    case 't':
        v->kind = SPW_JSON_TRUE;
        return read_word(r, "true", 4);
    case 'f':
        v->kind = SPW_JSON_FALSE;
        return read_word(r, "false", 5);
    case 'n':
        v->kind = SPW_JSON_NULL;
        return read_word(r, "null", 4);
    default:
        return read_number(r, v);
    }
}

static bool read_document(struct reader *r)
{
    skip_blanks(r);
    if (*r->at != '{' && *r->at != '[')
        return fail(r, "an object or an array is expected");
    if (!read_value(r, NULL, 0))
        return false;
    skip_blanks(r);
    return r->at == r->end || fail(r, "something behind the end of the document");
}

static size_t values_max(const char *bytes, size_t count)
{
    size_t values = 1;
    for (size_t at = 0; at < count;) {
        uint8_t some = 0; /* no more than a byte holds, so that the compiler adds up many at a time */
        for (size_t end = count - at > UINT8_MAX ? at + UINT8_MAX : count; at < end; at++)
            some = (uint8_t)(some + (bytes[at] == ',' || bytes[at] == '[' || bytes[at] == '{'));
        values += some;
    }
    return values;
}

/* In the document as it was given: texts before the fault are unescaped by now. */
static void locate(const struct reader *r, const char *bytes, struct spw_json_fault *fault)
{
    size_t place = (size_t)(r->at - r->start);
    fault->what = r->what;
    fault->line = fault->column = 1;
    for (size_t i = 0; i < place; i++) {
        fault->column = bytes[i] == '\n' ? 1 : fault->column + 1;
        fault->line += bytes[i] == '\n';
    }
}

/* In room where it is enough, else allocated. room: aligned for any value. */
static struct spw_json *read_in(void *room, size_t room_bytes, const char *bytes, size_t count,
                                struct spw_json_fault *fault)
{
    struct spw_json_fault ignored;
    struct reader r = {.what = ""};
    size_t values = values_max(bytes, count), block_bytes = values * sizeof *r.values + count + ZEROS_BYTES;
    fault = fault ? fault : &ignored;
    *fault = (struct spw_json_fault){1, 1, "too large, or no memory"};
    if (block_bytes <= room_bytes)
        r.values = room;
    else if (count < UINT32_MAX / 2)
        r.values = malloc(block_bytes);
    if (!r.values)
        return NULL;
    r.start = r.at = (char *)(r.values + values);
    r.end = r.at + count;
    if (count)
        memcpy(r.at, bytes, count);
    memset(r.end, 0, ZEROS_BYTES);
    if (read_document(&r))
        return r.values;
    locate(&r, bytes, fault);
    if ((void *)r.values != room)
        free(r.values);
    return NULL;
}

struct spw_json *spw_json_read(const char *bytes, size_t count, struct spw_json_fault *fault)
{
    return read_in(NULL, 0, bytes, count, fault);
}

void spw_json_free(struct spw_json *root)
{
    free(root);
}

const struct spw_json *spw_json_doc_read(struct spw_json_doc *doc, const char *bytes, size_t count,
                                         struct spw_json_fault *fault)
{
    doc->root = read_in(doc->room, sizeof doc->room, bytes, count, fault);
    return doc->root;
}

void spw_json_doc_clean_up(struct spw_json_doc *doc)
{
    if (doc->root != doc->room)
        free(doc->root);
    doc->root = NULL;
}

/* ---- looking into it ---- */

const struct spw_json *spw_json_find(const struct spw_json *object, const char *key, size_t key_bytes)
{
    if (!spw_json_is(object, SPW_JSON_OBJECT))
        return NULL;
    const struct spw_json *member = spw_json_first(object);
    while (member && (member->key_bytes != key_bytes || memcmp(member->key, key, key_bytes) != 0))
        member = spw_json_next(object, member);
    return member;
}

const char *spw_json_text(const struct spw_json *value)
{
    return spw_json_is(value, SPW_JSON_TEXT) ? value->text : NULL;
}

int64_t spw_json_integer(const struct spw_json *value)
{
    if (!spw_json_is(value, SPW_JSON_INTEGER))
        return 0;
    bool is_negative = value->text[0] == '-';
    uint64_t magnitude = 0; /* an int64_t holds it: it was read */
    for (size_t i = is_negative; i < value->text_bytes; i++)
        magnitude = magnitude * 10 + (uint64_t)(value->text[i] - '0');
    return (int64_t)(is_negative ? 0 - magnitude : magnitude);
}

/* A decimal of at most 15 digits is what it is; what a double would have kept of a longer one counts, so that the noise
 * of a peer that computes in doubles is taken off. */
bool spw_json_number(const struct spw_json *value, unsigned scale, int64_t *out)
{
    char own[400];
    if (!spw_json_is(value, SPW_JSON_INTEGER) && !spw_json_is(value, SPW_JSON_REAL))
        return false;
    bool is_integer = value->kind == SPW_JSON_INTEGER;
    if ((is_integer || value->text_bytes <= 16) &&
        spw_decimal_parse(value->text, value->text_bytes, scale, SPW_DECIMAL_HALF_UP, out) != SPW_DECIMAL_BAD)
        return true;
    if (is_integer || value->text_bytes >= sizeof own) /* what is left has an exponent, or many digits */
        return false;
    memcpy(own, value->text, value->text_bytes);
    own[value->text_bytes] = 0;
    return spw_decimal_from_double(strtod(own, NULL), scale, out) != SPW_DECIMAL_BAD;
}

bool spw_json_decimal(const struct spw_json *value, unsigned scale, int64_t *out)
{
    if (spw_json_is(value, SPW_JSON_TEXT))
        return spw_decimal_parse(value->text, value->text_bytes, scale, SPW_DECIMAL_HALF_UP, out) !=
               SPW_DECIMAL_BAD;
    return spw_json_number(value, scale, out);
}

/* ---- writing it again ---- */

static void dump(struct spw_text *t, const struct spw_json *v)
{
    static const char *const words[] = {"null", "false", "true"};
    if (v->kind == SPW_JSON_TEXT) {
        spw_text_json(t, v->text);
    } else if (v->kind == SPW_JSON_INTEGER || v->kind == SPW_JSON_REAL) {
        spw_text_bytes(t, v->text, v->text_bytes);
    } else if (v->kind <= SPW_JSON_TRUE) {
        spw_text_put(t, words[v->kind]);
    } else {
        spw_text_put(t, v->kind == SPW_JSON_OBJECT ? "{" : "[");
        for (const struct spw_json *one = spw_json_first(v); one; one = spw_json_next(v, one)) {
            if (one != v + 1)
                spw_text_put(t, ",");
            if (one->key) {
                spw_text_json(t, one->key);
                spw_text_put(t, ":");
            }
            dump(t, one);
        }
        spw_text_put(t, v->kind == SPW_JSON_OBJECT ? "}" : "]");
    }
}

char *spw_json_dump(const struct spw_json *value)
{
    size_t room = 16; /* each byte of a text may be written as six */
    for (uint32_t i = 0; value && i < value->values; i++)
        room += 6 * ((size_t)value[i].key_bytes + value[i].text_bytes) + 16;
    char *buffer = value ? malloc(room) : NULL;
    if (!buffer)
        return NULL;
    struct spw_text t = spw_text_on(buffer, room);
    dump(&t, value);
    return buffer;
}
