/* event.c: one line of a replay: JSON text into a plain struct.
 *
 * Owns, called by, thread: see event.h. A field that is not known is refused, so that a slip of the pen is not
 * mistaken for a setting; one whose name begins with '_' belongs to whoever wrote the file.
 */
#include "sidecar/replay/event.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shm/spw_layout.h"
#include "sidecar/replay/stamp.h"

#define NS_PER_S      UINT64_C(1000000000)
#define NS_PER_MS     UINT64_C(1000000)
#define SPAN_MAX_NS   (UINT64_C(3660) * 86400 * NS_PER_S)
#define HEADERS_BYTES 65536u /* more than any answer's */

static const char *const op_names[SPW_REPLAY_OPS] = {"acquire", "peek", "confirm", "release",
                                                     "outcome", "set",  "advance"};

const char *spw_replay_op_name(enum spw_replay_op op)
{
    return op < SPW_REPLAY_OPS ? op_names[op] : "unknown";
}

/* What the line is read with. */
struct read {
    struct spw_replay_reader *reader;
    struct spw_replay_event *out;
    struct spw_error *err;
    const char *field;
};

static bool fault(struct read *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool fault(struct read *r, const char *format, ...)
{
    char text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    spw_error_set(r->err, SPW_STATUS_INVALID, "%s: %s", r->field, text);
    return false;
}

/* ---- numbers and times ---- */

bool spw_replay_seconds_parse(const char *text, uint64_t *out_ns)
{
    uint64_t whole = 0, part = 0, unit = NS_PER_S;
    const char *p = text;
    if (*p < '0' || *p > '9')
        return false;
    for (; *p >= '0' && *p <= '9'; p++) {
        whole = whole * 10 + (uint64_t)(*p - '0');
        if (whole > SPW_REPLAY_AT_MAX_NS / NS_PER_S)
            return false;
    }
    if (*p == '.') {
        if (p[1] < '0' || p[1] > '9')
            return false;
        for (p++; *p >= '0' && *p <= '9'; p++) {
            uint64_t digit = (uint64_t)(*p - '0');
            unit /= 10;
            if (unit == 0 && digit) /* finer than a nanosecond */
                return false;
            part += digit * unit;
        }
    }
    if (*p)
        return false;
    *out_ns = whole * NS_PER_S + part;
    return true;
}

void spw_replay_seconds_format(uint64_t ns, char out[SPW_REPLAY_SECONDS_BYTES])
{
    uint64_t whole = ns / NS_PER_S, part = ns % NS_PER_S;
    char digits[SPW_REPLAY_SECONDS_BYTES];
    unsigned n = 0, at = 0;
    do {
        digits[n++] = (char)('0' + whole % 10);
        whole /= 10;
    } while (whole);
    while (n)
        out[at++] = digits[--n];
    out[at++] = '.';
    for (unsigned i = 9; i-- > 0;) {
        out[at + i] = (char)('0' + part % 10);
        part /= 10;
    }
    out[at + 9] = 0;
}

/* A double keeps 15 digits faithfully; of unix seconds with microseconds, which are 16, no two are the same double. */
bool spw_replay_number_text(const json_t *value, char out[SPW_REPLAY_NUMBER_BYTES])
{
    if (json_is_integer(value)) {
        snprintf(out, SPW_REPLAY_NUMBER_BYTES, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        return true;
    }
    double d = json_real_value(value);
    for (int digits = 15; digits <= 16; digits++) {
        snprintf(out, SPW_REPLAY_NUMBER_BYTES, "%.*g", digits, d);
        if (strchr(out, 'e'))
            snprintf(out, SPW_REPLAY_NUMBER_BYTES, "%.9f", d);
        if (strtod(out, NULL) == d)
            return true;
    }
    return false;
}

/* Seconds as text ("1.5") or as a JSON number. */
static bool take_seconds(struct read *r, const json_t *value, uint64_t *out_ns)
{
    char number[SPW_REPLAY_NUMBER_BYTES];
    const char *text = json_string_value(value);
    if (json_is_number(value)) {
        if (!spw_replay_number_text(value, number))
            return fault(r, "%.17g has more digits than a JSON number keeps: write it as text, \"%.17g\"",
                         json_real_value(value), json_real_value(value));
        text = number;
    }
    if (!text || !spw_replay_seconds_parse(text, out_ns))
        return fault(r, "%.40s: write seconds from 0 with at most nine decimals, as \"1.500000000\"",
                     text ? text : "no text and no number");
    return true;
}

/* "80us", "7ns": finer than the configuration has it. */
static bool fine_span(const char *text, uint64_t *out_ns)
{
    size_t digits = strspn(text, "0123456789");
    bool us = strcmp(text + digits, "us") == 0;
    if (digits < 1 || digits > 15 || (!us && strcmp(text + digits, "ns") != 0))
        return false;
    *out_ns = strtoull(text, NULL, 10) * (us ? 1000 : 1);
    return true;
}

/* A number whose field's name ends in its unit: max_wait_ms. */
static bool has_unit(const char *field)
{
    size_t n = strlen(field);
    return n > 3 && (strcmp(field + n - 3, "_ns") == 0 || strcmp(field + n - 3, "_ms") == 0);
}

/* "250ms" as in the configuration, "0.25" or 0.25 seconds, or a JSON whole number of nanoseconds. */
static bool take_span(struct read *r, const json_t *value, uint64_t *out_ns)
{
    struct spw_error ignored;
    uint64_t ms;
    const char *text = json_string_value(value);
    char number[SPW_REPLAY_NUMBER_BYTES];
    if (has_unit(r->field))
        return (json_is_number(value) && spw_replay_number_text(value, number) &&
                spw_stamp_span_parse(r->field, number, out_ns)) ||
               fault(r, "write a number of the unit in the field's name");
    if (json_is_integer(value) && json_integer_value(value) >= 0) {
        *out_ns = (uint64_t)json_integer_value(value);
        return true;
    }
    if (json_is_real(value) && spw_replay_number_text(value, number))
        text = number;
    if (text && (spw_replay_seconds_parse(text, out_ns) || fine_span(text, out_ns)))
        return true;
    if (!text || spw_parse_duration_ms(text, &ms, &ignored) || ms > SPAN_MAX_NS / NS_PER_MS)
        return fault(r,
                     "%.40s: write a time as \"250ms\" or \"30s\", seconds as \"0.25\", or whole nanoseconds",
                     text ? text : "no time");
    *out_ns = ms * NS_PER_MS;
    return true;
}

/* A JSON whole number (some write 1 as 1.0), or its digits as text. */
static bool take_whole(struct read *r, const json_t *value, uint64_t least, uint64_t most, uint64_t *out)
{
    const char *text = json_string_value(value);
    size_t digits = text ? strlen(text) : 0;
    double real = json_real_value(value);
    bool exact =
        json_is_real(value) && real >= 0 && real <= 9007199254740992.0 && real == (double)(uint64_t)real;
    bool ok = (json_is_integer(value) && json_integer_value(value) >= 0) || exact;
    if (ok)
        *out = exact ? (uint64_t)real : (uint64_t)json_integer_value(value);
    else if (digits >= 1 && digits <= 19 && strspn(text, "0123456789") == digits)
        ok = (*out = strtoull(text, NULL, 10)) != 0 || *text == '0';
    return (ok && *out >= least && *out <= most) ||
           fault(r, "write a whole number, %" PRIu64 " to %" PRIu64, least, most);
}

static bool take_text(struct read *r, const json_t *value, const char **out)
{
    *out = json_string_value(value);
    if (!*out || !**out)
        return fault(r, "write it as text");
    return true;
}

static bool take_bool(struct read *r, const json_t *value, bool *out)
{
    if (!json_is_boolean(value))
        return fault(r, "write true or false");
    *out = json_is_true(value);
    return true;
}

/* ---- fields ---- */

static bool read_at(struct read *r, json_t *value)
{
    r->out->has_at = true;
    return take_seconds(r, value, &r->out->at_ns);
}

static bool read_wall(struct read *r, json_t *value)
{
    uint64_t ns = 0;
    r->out->has_wall = true;
    if (!take_seconds(r, value, &ns))
        return false;
    r->out->wall_ms = (int64_t)(ns / NS_PER_MS);
    return true;
}

static bool read_by(struct read *r, json_t *value)
{
    r->out->has_by = true;
    return take_span(r, value, &r->out->by_ns);
}

static bool read_op(struct read *r, json_t *value)
{
    const char *text = json_string_value(value);
    for (unsigned i = 0; text && i < SPW_REPLAY_OPS; i++) {
        if (strcmp(text, op_names[i]) == 0) {
            r->out->op = (enum spw_replay_op)i;
            return true;
        }
    }
    return fault(r, "%.40s is not known: acquire, peek, confirm, release, outcome, set or advance",
                 text ? text : "it");
}

static bool read_account(struct read *r, json_t *value)
{
    return take_text(r, value, &r->out->account);
}

static bool read_integration(struct read *r, json_t *value)
{
    return take_text(r, value, &r->out->integration);
}

static bool read_id(struct read *r, json_t *value)
{
    const char *text = json_string_value(value);
    int n = 0;
    if (json_is_integer(value))
        n = snprintf(r->out->id, sizeof r->out->id, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else if (text)
        n = snprintf(r->out->id, sizeof r->out->id, "%s", text);
    r->out->has_id = true;
    if (n < 1 || (size_t)n >= sizeof r->out->id)
        return fault(r, "write text of 1 to %u bytes, or a whole number", SPW_REPLAY_ID_BYTES - 1);
    return true;
}

static bool read_cost(struct read *r, json_t *value)
{
    return take_whole(r, value, 0, INT64_MAX, &r->out->cost);
}

static bool read_max_wait(struct read *r, json_t *value)
{
    return take_span(r, value, &r->out->max_wait_ns);
}

/* true, or the how manieth further try it is. */
static bool read_retry(struct read *r, json_t *value)
{
    uint64_t tries = 1;
    if (json_is_integer(value) ? !take_whole(r, value, 0, 1000, &tries)
                               : !take_bool(r, value, &r->out->retry))
        return false;
    if (json_is_integer(value))
        r->out->retry = tries > 0;
    r->out->tries = (uint32_t)tries;
    return true;
}

static bool read_endpoint(struct read *r, json_t *value)
{
    static const char *const names[SPW_ENDPOINTS_COUNT] = {"calculate", "record", "other", "refund"};
    const char *text = json_string_value(value);
    for (unsigned i = 0; text && i < SPW_ENDPOINTS_COUNT; i++) {
        if (strcmp(text, names[i]) == 0) {
            r->out->endpoint = (enum spw_endpoint)i;
            return true;
        }
    }
    return fault(r, "%.40s is not known: calculate, record, refund or other", text ? text : "it");
}

/* null, 0 and "timeout": there was no answer. */
static bool read_status(struct read *r, json_t *value)
{
    uint64_t status = 0;
    const char *text = json_string_value(value);
    bool none = json_is_null(value) || (text && strcmp(text, "timeout") == 0);
    if (!none && !take_whole(r, value, 0, 999, &status))
        return false;
    if (status && status < 100)
        return fault(r, "write an HTTP status, or 0 for no answer");
    r->out->has_status = true;
    r->out->status = (uint32_t)status;
    return true;
}

static bool read_timeout(struct read *r, json_t *value)
{
    return take_bool(r, value, &r->out->timeout);
}

static bool read_latency(struct read *r, json_t *value)
{
    return take_span(r, value, &r->out->latency_ns);
}

/* Stripe's and others' error code alone, in the form it comes in. */
static bool read_code(struct read *r, json_t *value)
{
    if (!json_is_string(value))
        return fault(r, "write it as text");
    free(r->reader->body);
    json_t *body = json_pack("{s:{s:O}}", "error", "code", value);
    r->reader->body = json_dumps(body, JSON_COMPACT);
    json_decref(body);
    r->out->body = r->reader->body;
    r->out->body_bytes = r->out->body ? strlen(r->out->body) : 0;
    return r->out->body ? true : fault(r, "no memory: raise the memory limit");
}

/* As text, or as the object it is. */
static bool read_body(struct read *r, json_t *value)
{
    r->out->body = json_string_value(value);
    if (!r->out->body) {
        free(r->reader->body);
        r->out->body = r->reader->body = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    }
    r->out->body_bytes = r->out->body ? strlen(r->out->body) : 0;
    return r->out->body ? true : fault(r, "no memory: raise the memory limit");
}

/* ---- headers ---- */

static bool put_bytes(struct read *r, const char *bytes, size_t count)
{
    struct spw_replay_reader *reader = r->reader;
    if (reader->headers_bytes + count > HEADERS_BYTES)
        return fault(r, "are longer than %u bytes: leave out what says nothing of limits", HEADERS_BYTES);
    if (reader->headers_bytes + count > reader->headers_room) {
        size_t room = reader->headers_room ? reader->headers_room * 2 : 1024;
        while (room < reader->headers_bytes + count)
            room *= 2;
        char *grown = realloc(reader->headers, room);
        if (!grown)
            return fault(r, "no memory: raise the memory limit");
        reader->headers = grown;
        reader->headers_room = room;
    }
    memcpy(reader->headers + reader->headers_bytes, bytes, count);
    reader->headers_bytes += count;
    return true;
}

/* One line of a header. A line's end inside it would make two. */
static bool put_header(struct read *r, const char *name, const json_t *value)
{
    char number[SPW_REPLAY_NUMBER_BYTES];
    const char *text = json_string_value(value);
    if (json_is_number(value)) {
        (void)spw_replay_number_text(value, number); /* no header of limits has more than fifteen digits */
        text = number;
    }
    if (!text || strpbrk(text, "\r\n") || strpbrk(name, ":\r\n") || !*name)
        return fault(r, "%.60s: write its value as text or a number, one line each", name);
    return put_bytes(r, name, strlen(name)) && put_bytes(r, ": ", 2) && put_bytes(r, text, strlen(text)) &&
           put_bytes(r, "\r\n", 2);
}

/* ["Name: value", ...], [["Name", "value"], ...] or [{"name": "Name", "value": "value"}, ...]: what repeats a name. */
static bool put_header_list(struct read *r, const json_t *list)
{
    size_t i;
    json_t *entry;
    json_array_foreach(list, i, entry)
    {
        const char *line = json_string_value(entry);
        bool pair = json_array_size(entry) == 2;
        const char *name =
            json_string_value(pair ? json_array_get(entry, 0) : json_object_get(entry, "name"));
        if (line && strchr(line, ':') && !strpbrk(line, "\r\n")) {
            if (!put_bytes(r, line, strlen(line)) || !put_bytes(r, "\r\n", 2))
                return false;
        } else if (name) {
            if (!put_header(r, name, pair ? json_array_get(entry, 1) : json_object_get(entry, "value")))
                return false;
        } else {
            return fault(r, "entry %zu: write \"Name: value\" or [\"Name\", \"value\"]", i);
        }
    }
    return true;
}

/* {"Name": "value"} or {"Name": ["one line", "another"]}. */
static bool put_header_object(struct read *r, json_t *object)
{
    const char *name;
    json_t *value;
    json_object_foreach(object, name, value)
    {
        size_t i;
        json_t *one;
        if (!json_is_array(value) && !put_header(r, name, value))
            return false;
        json_array_foreach(value, i, one)
        {
            if (!put_header(r, name, one))
                return false;
        }
    }
    return true;
}

static bool read_headers(struct read *r, json_t *value)
{
    r->reader->headers_bytes = 0;
    bool ok = json_is_object(value)  ? put_header_object(r, value)
              : json_is_array(value) ? put_header_list(r, value)
              : json_is_string(value)
                  ? put_bytes(r, json_string_value(value), strlen(json_string_value(value)))
                  : fault(r, "write an object of names and values, a list of lines, or the block as text");
    r->out->headers = r->reader->headers;
    r->out->headers_bytes = r->reader->headers_bytes;
    return ok;
}

/* ---- set ---- */

/* As in the configuration; a whole number, and a bare "0", are so many a second. */
static bool read_rate(struct read *r, json_t *value)
{
    struct spw_error err;
    char number[SPW_REPLAY_NUMBER_BYTES + 2];
    const char *text = number;
    bool bare = json_is_string(value) && strcmp(json_string_value(value), "0") == 0;
    if (json_is_integer(value) || bare)
        snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT "/s", json_integer_value(value));
    else if (!take_text(r, value, &text))
        return false;
    if (spw_parse_rate(text, &r->out->change.rate, &err))
        return fault(r, "%s", err.text);
    r->out->change.has_rate = true;
    return true;
}

static bool read_burst(struct read *r, json_t *value)
{
    r->out->change.has_burst = true;
    return take_whole(r, value, 0, INT64_MAX, &r->out->change.burst_count);
}

static bool read_pods(struct read *r, json_t *value)
{
    uint64_t pods = 0;
    r->out->change.has_pods = true;
    if (!take_whole(r, value, 1, UINT32_MAX, &pods))
        return false;
    r->out->change.pods_count = (uint32_t)pods;
    return true;
}

static bool read_kind(struct read *r, json_t *value)
{
    static const char *const names[] = {"bucket", "leaky",
                                        "window"}; /* in the order of enum spw_limiter_kind */
    const char *text = json_string_value(value);
    for (unsigned i = 0; text && i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(text, names[i]) == 0) {
            r->out->change.kind = (enum spw_limiter_kind)i;
            r->out->change.has_kind = true;
            return true;
        }
    }
    return fault(r, "%.40s is not known: bucket, leaky or window", text ? text : "it");
}

static bool read_concurrency(struct read *r, json_t *value)
{
    uint64_t count = 0;
    r->out->change.has_concurrency = true;
    if (!take_whole(r, value, 0, UINT32_MAX, &count))
        return false;
    r->out->change.concurrency_count = (uint32_t)count;
    return true;
}

/* {"rate": ..., "burst": ..., "pods": ..., "kind": ...} as in the configuration. */
static bool read_limit(struct read *r, json_t *value)
{
    static const struct {
        const char *name;
        bool (*read)(struct read *r, json_t *value);
    } parts[] = {{"rate", read_rate}, {"burst", read_burst}, {"pods", read_pods}, {"kind", read_kind}};
    const char *name;
    json_t *part;
    if (json_is_string(value))
        return read_rate(r, value);
    if (!json_is_object(value))
        return fault(r, "write a rate, or an object of rate, burst, pods and kind");
    json_object_foreach(value, name, part)
    {
        bool known = false, ok = true;
        for (size_t i = 0; i < sizeof parts / sizeof parts[0] && !known; i++) {
            known = strcmp(name, parts[i].name) == 0;
            if (known)
                ok = parts[i].read(r, part);
        }
        if (!known)
            return fault(r, "%.40s is not known: rate, burst, pods and kind are", name);
        if (!ok)
            return false;
    }
    return true;
}

static bool read_breaker(struct read *r, json_t *value)
{
    if (!json_is_object(value))
        return fault(r, "write an object of settings, as in the configuration");
    r->out->change.breaker = value;
    return true;
}

static bool read_limiter(struct read *r, json_t *value)
{
    return take_text(r, value, &r->out->change.limiter);
}

static bool read_forced(struct read *r, json_t *value)
{
    static const char *const names[] = {"auto", "open", "closed", "disabled", "observe"};
    const char *text = json_string_value(value);
    for (int i = 0; text && i < (int)(sizeof names / sizeof names[0]); i++) {
        if (strcmp(text, names[i]) == 0) {
            r->out->change.forced = i; /* in the order of enum spw_forced */
            return true;
        }
    }
    return fault(r, "%.40s is not known: auto, open, closed, disabled or observe", text ? text : "it");
}

static bool read_switch(struct read *r, json_t *value, int *out)
{
    bool on = false;
    if (!take_bool(r, value, &on))
        return false;
    *out = on;
    return true;
}

static bool read_kill(struct read *r, json_t *value)
{
    return read_switch(r, value, &r->out->change.kill);
}

static bool read_observe(struct read *r, json_t *value)
{
    return read_switch(r, value, &r->out->change.observe);
}

static bool read_everywhere(struct read *r, json_t *value)
{
    return take_bool(r, value, &r->out->change.everywhere);
}

static bool read_reset(struct read *r, json_t *value)
{
    return take_bool(r, value, &r->out->change.reset);
}

/* ---- the line ---- */

static const struct {
    const char *name;
    bool (*read)(struct read *r, json_t *value);
} fields[] = {{"at", read_at},
              {"op", read_op},
              {"account", read_account},
              {"integration", read_integration},
              {"cost", read_cost},
              {"id", read_id},
              {"status", read_status},
              {"headers", read_headers},
              {"latency", read_latency},
              {"latency_ns", read_latency},
              {"latency_ms", read_latency},
              {"retry", read_retry},
              {"endpoint", read_endpoint},
              {"max_wait", read_max_wait},
              {"max_wait_ns", read_max_wait},
              {"max_wait_ms", read_max_wait},
              {"wall", read_wall},
              {"by", read_by},
              {"by_ns", read_by},
              {"by_ms", read_by},
              {"timeout", read_timeout},
              {"code", read_code},
              {"body", read_body},
              {"rate", read_rate},
              {"burst", read_burst},
              {"pods", read_pods},
              {"kind", read_kind},
              {"concurrency", read_concurrency},
              {"limit", read_limit},
              {"limiter", read_limiter},
              {"breaker", read_breaker},
              {"forced", read_forced},
              {"kill", read_kill},
              {"observe", read_observe},
              {"everywhere", read_everywhere},
              {"reset", read_reset}};
#define FIELDS_COUNT (sizeof fields / sizeof fields[0])

static bool unknown_field(struct read *r)
{
    char known[400];
    size_t used = 0;
    for (size_t i = 0; i < FIELDS_COUNT && used < sizeof known; i++)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", fields[i].name);
    return fault(r, "there is no such field; known are %s, and any that begins with '_'", known);
}

static bool read_field(struct read *r, json_t *value)
{
    bool status = strcmp(r->field, "status") == 0;
    if ((json_is_null(value) && !status) || r->field[0] == '_')
        return true; /* null is the same as not given */
    for (size_t i = 0; i < FIELDS_COUNT; i++) {
        if (strcmp(fields[i].name, r->field) == 0)
            return fields[i].read(r, value);
    }
    return unknown_field(r);
}

static enum spw_status whole_event(struct read *r)
{
    const struct spw_replay_event *e = r->out;
    if (e->op == SPW_REPLAY_OUTCOME && !e->has_status && !e->timeout)
        return spw_error_set(r->err, SPW_STATUS_INVALID,
                             "status: is missing: write the answer's status, or \"timeout\": true");
    const struct spw_replay_change *c = &e->change;
    if (e->op == SPW_REPLAY_SET && c->everywhere &&
        ((c->kill < 0 && c->observe < 0) || c->has_rate || c->has_burst || c->has_pods || c->has_kind ||
         c->has_concurrency || c->breaker || c->limiter || c->forced >= 0 || c->reset))
        return spw_error_set(r->err, SPW_STATUS_INVALID,
                             "everywhere: is for kill and observe alone: write what else is to be set, for "
                             "one account, as another event");
    if (e->op == SPW_REPLAY_ADVANCE && !e->has_at && !e->has_by)
        return spw_error_set(r->err, SPW_STATUS_INVALID,
                             "at: is missing: write at, or by as \"12h\": where the clock shall go");
    return SPW_STATUS_OK;
}

enum spw_status spw_replay_event_read(struct spw_replay_reader *reader, const char *line, size_t bytes,
                                      struct spw_replay_event *out, struct spw_error *err)
{
    json_error_t json_error;
    struct read r = {.reader = reader, .out = out, .err = err};
    memset(out, 0, sizeof *out);
    out->op = SPW_REPLAY_OPS;
    out->cost = 1;
    out->change.forced = out->change.kill = out->change.observe = -1;
    json_decref(reader->root);
    reader->root = json_loadb(line, bytes, JSON_REJECT_DUPLICATES, &json_error);
    if (!json_is_object(reader->root))
        return spw_error_set(err, SPW_STATUS_PARSE, "column %d: %s: write one JSON object a line",
                             reader->root ? 1 : json_error.column,
                             reader->root ? "no object" : json_error.text);
    json_t *value;
    json_object_foreach(reader->root, r.field, value)
    {
        if (!read_field(&r, value))
            return err ? err->status : SPW_STATUS_INVALID;
    }
    if (out->op == SPW_REPLAY_OPS)
        return spw_error_set(err, SPW_STATUS_INVALID,
                             "op: is missing: acquire, peek, confirm, release, outcome, set or advance");
    return whole_event(&r);
}

void spw_replay_reader_clean_up(struct spw_replay_reader *reader)
{
    json_decref(reader->root);
    free(reader->headers);
    free(reader->body);
    memset(reader, 0, sizeof *reader);
}
