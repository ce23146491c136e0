/* convert.c: see convert.h.
 *
 * A line becomes an acquire at its stamp and, where the log says what came back, an outcome as much later as the call
 * took. Outcomes wait in a heap until the log has reached their moment, so that the events come out in order.
 */
#include "sidecar/replay/convert.h"

#include <inttypes.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>

#include "shm/spw_text.h"
#include "sidecar/replay/event.h"
#include "sidecar/replay/lines.h"
#include "sidecar/replay/stamp.h"

#define NS_PER_S          UINT64_C(1000000000)
#define COLUMNS_MAX_COUNT 256u
#define CLIENT_GAVE_UP    499u /* nginx: the caller hung up, which says nothing of the provider */
#define STATUS_MAX        999u

/* What one line of a log says. */
struct record {
    uint64_t at_ns, latency_ns, line;
    uint32_t status;
    bool has_status;
};

struct convert {
    const struct spw_convert_options *options;
    struct spw_convert_counts *counts;
    regex_t match;
    int time_column, status_column, latency_column; /* -1 = there is none */
    struct record *heap;                            /* outcomes to come, the earliest at 0 */
    size_t heap_count, heap_room;
    struct record *second; /* lines of one stamp, for spread */
    size_t second_count, second_room;
    uint64_t last_ns;
};

/* ---- out ---- */

static void put_head(const struct convert *c, struct spw_text *t, uint64_t at_ns, const char *op)
{
    char at[SPW_REPLAY_SECONDS_BYTES];
    spw_replay_seconds_format(at_ns, at);
    spw_text_put(t, "{\"at\":\"");
    spw_text_put(t, at);
    spw_text_put(t, "\",\"op\":\"");
    spw_text_put(t, op);
    spw_text_put(t, "\",\"account\":");
    spw_text_json(t, c->options->account);
}

static void put_id(struct spw_text *t, uint64_t line)
{
    spw_text_put(t, ",\"id\":\"");
    spw_text_u64(t, line);
    spw_text_put(t, "\"");
}

static void write_outcome(const struct convert *c, const struct record *r)
{
    char buffer[1024], latency[SPW_REPLAY_SECONDS_BYTES];
    struct spw_text t = spw_text_on(buffer, sizeof buffer);
    bool gave_up = r->status == CLIENT_GAVE_UP;
    put_head(c, &t, r->at_ns + r->latency_ns, gave_up ? "release" : "outcome");
    put_id(&t, r->line);
    if (!gave_up) {
        spw_text_put(&t, ",\"status\":");
        spw_text_u64(&t, r->status);
    }
    if (r->latency_ns) {
        spw_replay_seconds_format(r->latency_ns, latency);
        spw_text_put(&t, ",\"latency\":\"");
        spw_text_put(&t, latency);
        spw_text_put(&t, "\"");
    }
    spw_text_put(&t, "}\n");
    fwrite(buffer, 1, t.used, c->options->out);
}

static void write_acquire(const struct convert *c, const struct record *r)
{
    char buffer[1024];
    struct spw_text t = spw_text_on(buffer, sizeof buffer);
    put_head(c, &t, r->at_ns, "acquire");
    if (c->options->integration) {
        spw_text_put(&t, ",\"integration\":");
        spw_text_json(&t, c->options->integration);
    }
    put_id(&t, r->line);
    spw_text_put(&t, "}\n");
    fwrite(buffer, 1, t.used, c->options->out);
}

/* ---- the order of time ---- */

static uint64_t end_of(const struct record *r)
{
    return r->at_ns + r->latency_ns;
}

/* Earlier, or as early and from an earlier line. */
static bool before(const struct record *a, const struct record *b)
{
    return end_of(a) != end_of(b) ? end_of(a) < end_of(b) : a->line < b->line;
}

static bool reserve(struct record **list, size_t *room, size_t count)
{
    if (count < *room)
        return true;
    size_t more = *room ? *room * 2 : 256;
    struct record *grown = realloc(*list, more * sizeof *grown);
    if (!grown)
        return false;
    *list = grown;
    *room = more;
    return true;
}

static bool heap_push(struct convert *c, const struct record *r)
{
    if (!reserve(&c->heap, &c->heap_room, c->heap_count))
        return false;
    size_t at = c->heap_count++;
    while (at && before(r, &c->heap[(at - 1) / 2])) {
        c->heap[at] = c->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    c->heap[at] = *r;
    return true;
}

static struct record heap_pop(struct convert *c)
{
    struct record first = c->heap[0], last = c->heap[--c->heap_count];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= c->heap_count)
            break;
        if (child + 1 < c->heap_count && before(&c->heap[child + 1], &c->heap[child]))
            child++;
        if (!before(&c->heap[child], &last))
            break;
        c->heap[at] = c->heap[child];
        at = child;
    }
    c->heap[at] = last;
    return first;
}

/* An outcome as late as the next acquire comes before it: what was given back can be had. */
static void write_outcomes_until(struct convert *c, uint64_t at_ns)
{
    while (c->heap_count && end_of(&c->heap[0]) <= at_ns) {
        struct record r = heap_pop(c);
        write_outcome(c, &r);
    }
}

static bool write_record(struct convert *c, const struct record *r)
{
    write_outcomes_until(c, r->at_ns);
    write_acquire(c, r);
    return !c->options->outcomes || !r->has_status || heap_push(c, r);
}

/* The lines of one whole second, each at its share of it. */
static bool write_second(struct convert *c)
{
    for (size_t i = 0; i < c->second_count; i++) {
        c->second[i].at_ns += (uint64_t)(NS_PER_S * i / c->second_count);
        if (!write_record(c, &c->second[i]))
            return false;
    }
    c->second_count = 0;
    return true;
}

static bool take_record(struct convert *c, struct record *r)
{
    if (r->at_ns < c->last_ns) {
        c->counts->back++;
        r->at_ns = c->last_ns;
    }
    bool new_stamp = r->at_ns != c->last_ns;
    c->last_ns = r->at_ns;
    c->counts->taken++;
    if (!c->options->spread)
        return write_record(c, r);
    if (new_stamp && !write_second(c))
        return false;
    if (r->at_ns % NS_PER_S)
        return write_record(c, r);
    if (!reserve(&c->second, &c->second_room, c->second_count))
        return false;
    c->second[c->second_count++] = *r;
    return true;
}

/* ---- in ---- */

static enum spw_status bad(struct spw_error *err, const char *what, const char *remedy)
{
    return spw_error_set(err, SPW_STATUS_PARSE, "%s: %s", what, remedy);
}

static bool parse_status(const char *text, struct record *r)
{
    char *end;
    unsigned long status = strtoul(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || status > STATUS_MAX || (status && status < 100))
        return false;
    r->status = (uint32_t)status;
    r->has_status = true;
    return true;
}

/* host ident user [time] "request" status bytes ... */
static enum spw_status read_combined(char *line, struct record *r, struct spw_error *err)
{
    char *open = strchr(line, '['), *close = open ? strchr(open, ']') : NULL;
    if (!close)
        return bad(err, "no [time]", "this is no line of the Common or Combined Log Format");
    *close = 0;
    if (!spw_stamp_parse(open + 1, &r->at_ns))
        return bad(err, "[time] is not understood", "write it as [27/Nov/2026:12:00:00 +0000]");
    char *p = strchr(close + 1, '"');
    for (p = p ? p + 1 : NULL; p && *p && *p != '"'; p++)
        p += *p == '\\' && p[1];
    if (!p || *p != '"')
        return SPW_STATUS_OK; /* a line without request and status still has its time */
    p += 1 + strspn(p + 1, " ");
    p[strcspn(p, " ")] = 0;
    (void)parse_status(p, r); /* "-" says nothing */
    return SPW_STATUS_OK;
}

static enum spw_status take_fields(const struct convert *c, const char *time, const char *status,
                                   const char *latency, struct record *r, struct spw_error *err)
{
    const struct spw_convert_options *o = c->options;
    if (!time || !spw_stamp_parse(time, &r->at_ns))
        return bad(err, o->time_field,
                   time ? "is no time: ISO 8601 or unix time is" : "is missing: name the field with --time");
    if (status && *status && strcmp(status, "-") != 0 && !parse_status(status, r))
        return bad(err, o->status_field, "is no HTTP status");
    if (latency && *latency && strcmp(latency, "-") != 0 &&
        !spw_stamp_span_parse(o->latency_field, latency, &r->latency_ns))
        return bad(err, o->latency_field,
                   "is no length of time: seconds, or a name that ends in _ms, _us, _ns");
    return SPW_STATUS_OK;
}

/* The value at a path with dots, as text. */
static const char *json_text(json_t *root, const char *path, char number[SPW_REPLAY_NUMBER_BYTES])
{
    char name[128];
    json_t *value = path ? json_object_get(root, path) : NULL;
    for (json_t *at = root; path && !value && at;) {
        size_t n = strcspn(path, ".");
        if (n >= sizeof name)
            return NULL;
        memcpy(name, path, n);
        name[n] = 0;
        at = json_object_get(at, name);
        if (!path[n])
            value = at;
        path = path[n] ? path + n + 1 : NULL;
    }
    if (json_is_number(value)) {
        (void)spw_replay_number_text(value, number);
        return number;
    }
    return json_string_value(value);
}

static enum spw_status read_json(const struct convert *c, const char *line, size_t bytes, struct record *r,
                                 struct spw_error *err)
{
    json_error_t json_error;
    char time[SPW_REPLAY_NUMBER_BYTES], status[SPW_REPLAY_NUMBER_BYTES], latency[SPW_REPLAY_NUMBER_BYTES];
    json_t *root = json_loadb(line, bytes, 0, &json_error);
    enum spw_status result = json_is_object(root)
                                 ? take_fields(c, json_text(root, c->options->time_field, time),
                                               json_text(root, c->options->status_field, status),
                                               json_text(root, c->options->latency_field, latency), r, err)
                                 : bad(err, "no JSON object", "one a line is expected");
    json_decref(root);
    return result;
}

/* Cut a line at its commas, in place; quotes may hold commas and doubled quotes. */
static size_t split_csv(char *line, char *columns[COLUMNS_MAX_COUNT])
{
    size_t count = 0;
    for (char *p = line; count < COLUMNS_MAX_COUNT;) {
        char *to = p;
        columns[count++] = p;
        bool quoted = *p == '"';
        p += quoted;
        while (*p && (quoted || *p != ',')) {
            if (quoted && *p == '"' && p[1] != '"')
                quoted = false;
            else
                *to++ = *p;
            p += *p == '"' && p[1] == '"' && quoted ? 2 : 1;
        }
        bool more = *p == ',';
        *to = 0;
        if (!more)
            break;
        p++;
    }
    return count;
}

static int column_of(char *const *columns, size_t count, const char *name)
{
    for (size_t i = 0; name && i < count; i++) {
        if (strcmp(columns[i], name) == 0)
            return (int)i;
    }
    return -1;
}

static enum spw_status read_csv_head(struct convert *c, char *line, struct spw_error *err)
{
    char *columns[COLUMNS_MAX_COUNT];
    size_t count = split_csv(line, columns);
    const struct spw_convert_options *o = c->options;
    c->time_column = column_of(columns, count, o->time_field);
    c->status_column = column_of(columns, count, o->status_field);
    c->latency_column = column_of(columns, count, o->latency_field);
    if (c->time_column < 0)
        return spw_error_set(err, SPW_STATUS_INVALID,
                             "%s:1: there is no column \"%.60s\": name the one with the time with --time",
                             o->name, o->time_field);
    return SPW_STATUS_OK;
}

static enum spw_status read_csv(const struct convert *c, char *line, struct record *r, struct spw_error *err)
{
    char *columns[COLUMNS_MAX_COUNT];
    int count = (int)split_csv(line, columns);
    return take_fields(
        c, c->time_column < count ? columns[c->time_column] : NULL,
        c->status_column >= 0 && c->status_column < count ? columns[c->status_column] : NULL,
        c->latency_column >= 0 && c->latency_column < count ? columns[c->latency_column] : NULL, r, err);
}

static enum spw_status read_line(const struct convert *c, struct spw_replay_lines *lines, struct record *r,
                                 struct spw_error *err)
{
    memset(r, 0, sizeof *r);
    r->line = lines->number;
    if (lines->too_long)
        return bad(err, "the line", "is too long");
    switch (c->options->format) {
    case SPW_CONVERT_COMBINED:
        return read_combined(lines->line, r, err);
    case SPW_CONVERT_JSON:
        return read_json(c, lines->line, lines->bytes, r, err);
    default:
        return read_csv(c, lines->line, r, err);
    }
}

static void count_bad(struct convert *c, uint64_t line, const struct spw_error *err)
{
    if (c->counts->bad++)
        return;
    c->counts->first_bad = *err;
    spw_error_prefix(&c->counts->first_bad, "%s:%" PRIu64 ": ", c->options->name, line);
}

static enum spw_status convert_lines(struct convert *c, struct spw_replay_lines *lines, struct spw_error *err)
{
    struct record r;
    bool head = c->options->format == SPW_CONVERT_CSV, ok = true;
    enum spw_status status = SPW_STATUS_OK;
    while (ok && !status && spw_replay_lines_next(lines)) {
        struct spw_error fault = {0};
        if (head) {
            head = false;
            status = read_csv_head(c, lines->line, err);
        } else if (lines->bytes && (!c->options->match || regexec(&c->match, lines->line, 0, NULL, 0) == 0)) {
            c->counts->lines++;
            if (read_line(c, lines, &r, &fault))
                count_bad(c, lines->number, &fault);
            else
                ok = take_record(c, &r);
        }
    }
    if (!status && ok && write_second(c))
        write_outcomes_until(c, UINT64_MAX);
    if (!status && lines->failed)
        status = spw_error_set(err, SPW_STATUS_SYSTEM, "%s: cannot be read: %s", c->options->name,
                               strerror(lines->failed));
    return ok ? status : spw_error_set(err, SPW_STATUS_NO_MEMORY, "no memory: raise the memory limit");
}

enum spw_status spw_convert(const struct spw_convert_options *options, struct spw_convert_counts *counts,
                            struct spw_error *err)
{
    struct convert c = {.options = options, .counts = counts};
    struct spw_replay_lines lines = {.fd = fileno(options->in), .out = options->out};
    memset(counts, 0, sizeof *counts);
    int failed = options->match ? regcomp(&c.match, options->match, REG_EXTENDED | REG_NOSUB) : 0;
    if (failed) {
        char text[128];
        regerror(failed, &c.match, text, sizeof text);
        return spw_error_set(err, SPW_STATUS_INVALID, "--match: %s: write an extended regular expression",
                             text);
    }
    enum spw_status status = convert_lines(&c, &lines, err);
    spw_replay_lines_clean_up(&lines);
    if (options->match)
        regfree(&c.match);
    free(c.heap);
    free(c.second);
    return status;
}
