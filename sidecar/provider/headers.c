/* headers.c: what an answer's headers say about the provider's rate limit, in every dialect seen in the wild.
 *
 * Owns: the choice among dialects, windows and clocks. Called by: http/decide.c. Thread: any; pure.
 *
 * Rules, in the order they decide:
 *   R1 names have no case. R2 retry: Retry-After, else (on a refusal: 429, 403, 503 with nothing left) the reset of the
 *   governing window; within a dialect Reset-After comes before Reset. Of several Retry-After the longest counts. R3 spans count from the answer's Date when it is near to receipt, else
 *   from receipt; instants are always measured from Date. R4 a bare number below 1e9 is a span in seconds, below 1e12
 *   epoch seconds, above that epoch milliseconds; names ending in -Ms are spans in milliseconds, below 1e12. R5 what is negative,
 *   too large, empty or malformed is unknown, never 0. R6 of several windows the one with the smallest
 *   remaining/limit governs (limits unknown: the smallest remaining). R7 the first member of a Limit list is the
 *   limit in force, its window comes from the first member with the same quota. R8 an unknown window stays unknown.
 *   R9 used/limit gives remaining = limit - used.
 * Where two dialects are equally tight the newer one is believed, and what it leaves out (window, reset) is taken from
 * an older one that tells the same quota. Empty members of lists are overlooked (RFC 9110), but for the IETF fields,
 * which are ignored whole when malformed (RFC 9651).
 */
#include "sidecar/provider/provider.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "sidecar/provider/decimal.h"
#include "sidecar/provider/header_lines.h"
#include "sidecar/provider/header_name.h"
#include "sidecar/provider/instant.h"
#include "sidecar/provider/quota.h"

#define NAME_MAX_BYTES    SPW_HEADER_NAME_BYTES
#define VALUE_MAX_BYTES   512u
#define GROUPS_MAX_COUNT  12u
#define MEMBERS_MAX_COUNT 16u
#define COUNT_MAX         1000000000000000 /* 1e15: more is a sentinel for "no limit" or nonsense */
#define SKEW_LIMIT_MS     300000
#define INSTANT_FROM_MS   1000000000000 /* R4 */
#define INSTANT_FROM_S    1000000000
#define MS_PER_S          1000
#define US_PER_MS         1000

enum dialect {
    DIALECT_IETF_LIST,
    DIALECT_IETF_DICTIONARY,
    DIALECT_IETF_FIELDS,
    DIALECT_X,
    DIALECT_CALL_LIMIT
};
static const char *const dialect_text[] = {"ratelimit", "ratelimit-07", "ratelimit-06", "x-ratelimit",
                                           "call-limit"};

/* What each value is read by, dialect by dialect: limit, remaining, reset, window. */
struct rules {
    const char *limit, *remaining, *reset, *window;
};
static const struct rules dialect_rules[] = {
    {"RateLimit-Policy: q of the policy with the same name", "RateLimit: r of the tightest member (R6)",
     "RateLimit: t of the same member, seconds from now (R2, R3)",
     "RateLimit-Policy: w of the policy with the same name"},
    {"RateLimit: limit=", "RateLimit: remaining=", "RateLimit: reset=, seconds from now (R2, R3)",
     "RateLimit-Policy: w of the first policy with the same quota (R7)"},
    {"RateLimit-Limit: its first number (R7)", "RateLimit-Remaining", "RateLimit-Reset (R2, R3, R4)",
     "w of the first policy with the same quota (R7)"},
    {"...-RateLimit-Limit of the tightest window (R6, R7)",
     "...-RateLimit-Remaining of the tightest window (R6)", "...-RateLimit-Reset (R2, R3, R4)",
     "the window named beside the limit (R7)"},
    {"...-Call-Limit: behind the slash (R9)", "...-Call-Limit: limit less used (R9)", "", ""}};
#define RULE_USED        "limit less used (R9)"
#define RULE_RESET_AFTER "...-Reset-After, which comes before ...-Reset (R2)"
#define RULE_NEXT        "the instant of the next call"
#define RULE_NAMED       "the name of the header (secondly, minute, day)"
#define RULE_OTHER       "another header of the answer that tells the same quota"

struct text {
    size_t n;
    bool too_long; /* then it is malformed: cutting could change a number */
    char p[VALUE_MAX_BYTES];
};

/* The lines that belong together: one vendor's, one window's. */
struct group {
    char key[NAME_MAX_BYTES];
    bool is_ms, is_after_ms;  /* the name of the reset, or of Reset-After, ends in -Ms or says milliseconds */
    uint64_t named_window_ms; /* "-minute", "-daily" */
    struct text fields[SPW_HEADER_FIELDS_COUNT];
};

struct window {
    enum dialect dialect;
    struct rules rules;
    bool has_limit, has_remaining, has_reset, has_window;
    uint64_t limit_count, remaining_count, window_ms;
    struct spw_instant reset;
};

struct
    windows { /* cleared one by one, as the groups below: clearing all costs more than reading the headers */
    size_t count;
    struct window at[2 * MEMBERS_MAX_COUNT + GROUPS_MAX_COUNT];
};

/* The longest wait told, of each kind: which of the two is longer is known once Date is. */
struct wait {
    bool has_span, has_point;
    struct spw_instant span, point;
};

struct reading {
    enum spw_reset_unit reset_unit;
    size_t groups_count;
    bool has_date, from_cache;
    int64_t date_unix_ms;
    int64_t received_unix_ms;
    struct wait retry, vendor_retry;
    struct text ratelimit, policy, call_limit; /* joined lines */
    struct group groups[GROUPS_MAX_COUNT];
};

/* ---- lines into fields ---- */

static void clear(struct text *t)
{
    t->n = 0;
    t->too_long = false;
    t->p[0] = 0;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static void join(struct text *t, const char *value, size_t bytes)
{
    size_t comma = t->n ? 2 : 0;
    if (t->n + comma + bytes >= sizeof t->p) {
        t->too_long = true;
        return;
    }
    memcpy(t->p + t->n, ", ", comma);
    memcpy(t->p + t->n + comma, value, bytes);
    t->n += comma + bytes;
    t->p[t->n] = 0;
}

static bool later(const struct spw_instant *a, const struct spw_instant *b)
{
    return a->is_span == b->is_span ? a->ms > b->ms : false;
}

/* The next member of a list that is not empty, blanks around it taken off; moves *p behind it. */
static bool next_member(const char **p, const char *end, const char **start, size_t *bytes)
{
    while (*p < end) {
        const char *comma = memchr(*p, ',', (size_t)(end - *p));
        const char *from = *p, *to = comma ? comma : end;
        *p = comma ? comma + 1 : end;
        while (from < to && is_blank(*from))
            from++;
        while (to > from && is_blank(to[-1]))
            to--;
        if (from < to) {
            *start = from;
            *bytes = (size_t)(to - from);
            return true;
        }
    }
    return false;
}

static bool parse_instant(const struct reading *r, const char *text, size_t bytes, enum spw_reset_unit unit,
                          struct spw_instant *out)
{
    return spw_instant_parse(text, bytes, unit, r->received_unix_ms, out);
}

/* The instants in a value: one, or several parts between commas (a date may hold one, so two parts may be one instant).
 * 0 when any part is none: one bad part makes the list untrustworthy. */
static size_t take_instants(const struct reading *r, const char *text, size_t bytes, enum spw_reset_unit unit,
                            struct spw_instant *out, size_t room)
{
    const char *p = text, *member, *rest;
    size_t count = 0, n, rest_bytes;
    if (parse_instant(r, text, bytes, unit, &out[0]))
        return 1;
    while (next_member(&p, text + bytes, &member, &n)) {
        if (count == room)
            return 0;
        if (!parse_instant(r, member, n, unit, &out[count]) &&
            (!next_member(&p, text + bytes, &rest, &rest_bytes) ||
             !parse_instant(r, member, (size_t)(rest - member) + rest_bytes, unit, &out[count])))
            return 0;
        count++;
    }
    return count;
}

static bool take_longest(const struct reading *r, const char *text, size_t bytes, enum spw_reset_unit unit,
                         struct spw_instant *out)
{
    struct spw_instant all[MEMBERS_MAX_COUNT];
    size_t count = take_instants(r, text, bytes, unit, all, MEMBERS_MAX_COUNT);
    for (size_t i = 0; i < count; i++)
        if (i == 0 || later(&all[i], out))
            *out = all[i];
    return count > 0;
}

static void take_retry(const struct reading *r, const char *value, size_t bytes, enum spw_reset_unit unit,
                       struct wait *out)
{
    struct spw_instant all[MEMBERS_MAX_COUNT];
    size_t count = take_instants(r, value, bytes, unit, all, MEMBERS_MAX_COUNT);
    for (size_t i = 0; i < count; i++) {
        bool *has = all[i].is_span ? &out->has_span : &out->has_point;
        struct spw_instant *longest = all[i].is_span ? &out->span : &out->point;
        if (!*has || later(&all[i], longest))
            *longest = all[i];
        *has = true;
    }
}

static void group_init(struct group *g, const char *key)
{
    snprintf(g->key, sizeof g->key, "%s", key);
    g->is_ms = g->is_after_ms = false;
    g->named_window_ms = 0;
    for (size_t i = 0; i < SPW_HEADER_FIELDS_COUNT; i++)
        clear(&g->fields[i]);
}

static struct group *group_of(struct reading *r, const char *key)
{
    for (size_t i = 0; i < r->groups_count; i++)
        if (strcmp(r->groups[i].key, key) == 0)
            return &r->groups[i];
    if (r->groups_count == GROUPS_MAX_COUNT)
        return NULL;
    struct group *g = &r->groups[r->groups_count++];
    group_init(g, key);
    return g;
}

/* "total=100; remaining=97; resets=51" in one value: the fields of a group that no name tells apart. */
static bool take_pairs(struct group *g, const char *value, size_t bytes)
{
    static const struct {
        const char *word;
        enum spw_header_field field;
    } words[] = {{"limit", SPW_HEADER_LIMIT},         {"total", SPW_HEADER_LIMIT},
                 {"remaining", SPW_HEADER_REMAINING}, {"reset", SPW_HEADER_RESET},
                 {"resets", SPW_HEADER_RESET},        {"used", SPW_HEADER_USED},
                 {"window", SPW_HEADER_WINDOW}};
    bool found = false;
    for (const char *p = value, *end = value + bytes; p < end;) {
        const char *stop = p;
        while (stop < end && *stop != ';' && *stop != ',')
            stop++;
        while (p < stop && is_blank(*p))
            p++;
        const char *equals = memchr(p, '=', (size_t)(stop - p));
        for (size_t i = 0; equals && i < sizeof words / sizeof words[0]; i++)
            if ((size_t)(equals - p) == strlen(words[i].word) &&
                strncasecmp(p, words[i].word, (size_t)(equals - p)) == 0) {
                join(&g->fields[words[i].field], equals + 1, (size_t)(stop - equals - 1));
                found = true;
            }
        p = stop + (stop < end);
    }
    return found;
}

/* A name that says neither a field nor a custom may still have a value that does. */
static void take_unnamed(struct reading *r, const struct spw_header_name *n, const char *value, size_t bytes)
{
    struct group told;
    group_init(&told, n->key);
    if (!take_pairs(&told, value, bytes))
        return;
    struct group *g = group_of(r, n->key);
    if (g)
        take_pairs(g, value, bytes);
}

static void take_named(struct reading *r, const struct spw_header_name *n, const char *value, size_t bytes)
{
    if (!n->is_field_named && memchr(value, '=', bytes)) {
        take_unnamed(r, n, value, bytes);
        return;
    }
    struct group *g = n->field == SPW_HEADER_NONE ? NULL : group_of(r, n->key);
    if (!g)
        return;
    g->is_ms = g->is_ms || (n->is_ms && n->field == SPW_HEADER_RESET);
    g->is_after_ms = g->is_after_ms || (n->is_ms && n->field == SPW_HEADER_RESET_AFTER);
    if (n->named_window_ms)
        g->named_window_ms = n->named_window_ms;
    if (n->field == SPW_HEADER_WINDOW && n->is_ms) { /* keep the unit with the number */
        char with_unit[64];
        int k = snprintf(with_unit, sizeof with_unit, "%.*sms", (int)(bytes < 40 ? bytes : 40), value);
        join(&g->fields[SPW_HEADER_WINDOW], with_unit, (size_t)k);
        return;
    }
    join(&g->fields[n->field], value, bytes);
}

/* A name with "limit" in it. */
static void take_limit_line(struct reading *r, const char *name, const char *value, size_t bytes)
{
    struct spw_header_name n;
    if (strcmp(name, "ratelimit") == 0) {
        join(&r->ratelimit, value, bytes);
    } else if (strcmp(name, "ratelimit-policy") == 0) {
        join(&r->policy, value, bytes);
    } else if (spw_header_ends_with(name, "-call-limit")) {
        join(&r->call_limit, value, bytes);
    } else if (spw_header_ends_with(name, "-limit-info")) { /* "api-usage=18/5000" */
        const char *equals = memchr(value, '=', bytes);
        const char *from = equals ? equals + 1 : value;
        join(&r->call_limit, from, bytes - (size_t)(from - value));
    } else if (spw_header_name_read(name, &n)) {
        take_named(r, &n, value, bytes);
    }
}

/* Most lines of an answer are none of these, and are to cost little. */
static void take_line(void *owner, const char *name, const char *value, size_t bytes)
{
    struct reading *r = owner;
    if (strcmp(name, "date") == 0) {
        r->has_date =
            spw_instant_parse_date(value, bytes, r->received_unix_ms, &r->date_unix_ms) || r->has_date;
    } else if (strcmp(name, "age") == 0) {
        int64_t age;
        if (spw_decimal_parse(value, bytes, 0, SPW_DECIMAL_UP, &age) != SPW_DECIMAL_BAD && age > 0)
            r->from_cache = true;
    } else if (strstr(name, "retry-after")) {
        bool is_standard = strcmp(name, "retry-after") == 0;
        bool is_ms = spw_header_ends_with(name, "-ms") || spw_header_ends_with(name, "-milliseconds");
        take_retry(r, value, bytes, is_ms ? SPW_RESET_DELTA_MS : SPW_RESET_AUTO,
                   is_standard ? &r->retry : &r->vendor_retry);
    } else if (strstr(name, "limit")) {
        take_limit_line(r, name, value, bytes);
    }
}

/* ---- fields into windows ---- */

static struct window *add_window(struct windows *all, enum dialect dialect)
{
    if (all->count == sizeof all->at / sizeof all->at[0])
        return NULL;
    struct window *w = &all->at[all->count++];
    memset(w, 0, sizeof *w);
    w->dialect = dialect;
    w->rules = dialect_rules[dialect];
    return w;
}

static bool take_count(const char *text, size_t bytes, enum spw_decimal_mode rounding, uint64_t *out)
{
    int64_t value;
    const char *parameters = memchr(text, ';', bytes); /* "96;w=21600": the number is the member's value */
    if (parameters)
        bytes = (size_t)(parameters - text);
    while (bytes > 0 && is_blank(text[bytes - 1]))
        bytes--;
    while (bytes > 0 && is_blank(text[0])) {
        text++;
        bytes--;
    }
    if (bytes == 0 || spw_decimal_parse(text, bytes, 0, rounding, &value) == SPW_DECIMAL_BAD ||
        text[0] == '-' || value >= COUNT_MAX)
        return false;
    *out = (uint64_t)value;
    return true;
}

/* A limit is a whole number of calls: "0.0167" is a rate in a unit nobody tells, and no limit of zero. */
static bool take_limit(const char *text, size_t bytes, uint64_t *out)
{
    int64_t up;
    return take_count(text, bytes, SPW_DECIMAL_DOWN, out) &&
           (*out > 0 || spw_decimal_parse(text, bytes, 0, SPW_DECIMAL_UP, &up) == SPW_DECIMAL_EXACT);
}

/* "0, 4821": returns how many counts there are, 0 when any of them is none. */
static size_t take_counts(const struct group *g, enum spw_header_field field, uint64_t *out, size_t room)
{
    /* What is left is not told too large. */
    enum spw_decimal_mode rounding = field == SPW_HEADER_USED ? SPW_DECIMAL_UP : SPW_DECIMAL_DOWN;
    const struct text *t = &g->fields[field];
    const char *p = t->p, *end = t->p + t->n, *member;
    size_t count = 0, bytes;
    while (!t->too_long && next_member(&p, end, &member, &bytes)) {
        if (count == room || !take_count(member, bytes, rounding, &out[count]))
            return 0;
        count++;
    }
    return count;
}

static void set_seconds(struct window *w, const struct spw_quota *q)
{
    if (q->has_window && q->window_s < COUNT_MAX) {
        w->has_window = true;
        w->window_ms = q->window_s * MS_PER_S;
    }
}

/* R7: the window of the first member that has one and the same quota. */
static void window_by_quota(struct window *w, const struct spw_quota *members, size_t count)
{
    for (size_t i = 0; i < count && w->has_limit && !w->has_window; i++)
        if (members[i].has_limit && members[i].limit_count == w->limit_count)
            set_seconds(w, &members[i]);
}

static void take_window_text(struct window *w, const struct group *g)
{
    struct spw_instant span;
    const struct text *t = &g->fields[SPW_HEADER_WINDOW];
    if (t->n && !t->too_long && spw_instant_parse(t->p, t->n, SPW_RESET_DELTA_S, 0, &span) && span.is_span &&
        span.ms > 0) {
        w->has_window = true;
        w->window_ms = (uint64_t)span.ms;
    } else if (t->n && !t->too_long && spw_header_window_ms(t->p)) {
        w->has_window = true;
        w->window_ms = spw_header_window_ms(t->p);
    } else if (g->named_window_ms) {
        w->has_window = true;
        w->window_ms = g->named_window_ms;
        w->rules.window = RULE_NAMED;
    }
}

/* The unit of a group's reset, or of its Reset-After, which is a span whatever its size. */
static enum spw_reset_unit unit_of(const struct reading *r, const struct group *g,
                                   enum spw_header_field field)
{
    if (field == SPW_HEADER_RESET_AFTER)
        return g->is_after_ms || r->reset_unit == SPW_RESET_DELTA_MS ? SPW_RESET_DELTA_MS : SPW_RESET_DELTA_S;
    return g->is_ms ? SPW_RESET_DELTA_MS : r->reset_unit;
}

/* "...-Reset-Ms: 1700000060000": milliseconds, and an instant for all that. */
static void settle_kind(const struct group *g, enum spw_header_field field, struct spw_instant *i)
{
    if (g->is_ms && field == SPW_HEADER_RESET && i->is_span && i->ms >= INSTANT_FROM_MS)
        i->is_span = false;
}

/* R2 inside a group: Reset-After, else Reset, else Next. Several values: the longest, for want of a pairing. */
static bool group_reset(const struct reading *r, const struct group *g, struct spw_instant *out,
                        const char **rule)
{
    static const enum spw_header_field order[] = {SPW_HEADER_RESET_AFTER, SPW_HEADER_RESET, SPW_HEADER_NEXT};
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) {
        const struct text *t = &g->fields[order[i]];
        if (!t->n || t->too_long || !take_longest(r, t->p, t->n, unit_of(r, g, order[i]), out))
            continue;
        settle_kind(g, order[i], out);
        if (order[i] != SPW_HEADER_RESET)
            *rule = order[i] == SPW_HEADER_NEXT ? RULE_NEXT : RULE_RESET_AFTER;
        return true;
    }
    return false;
}

/* A count below zero is a sentinel for "no such limit", unless a reset stands beside it; a group of tokens or bytes
 * does not count requests ("api-token" is whose limit it is). */
static bool group_counts_requests(const struct group *g)
{
    const struct text *reset = &g->fields[SPW_HEADER_RESET];
    bool has_reset = reset->n && strspn(reset->p, "0") != reset->n;
    if (g->fields[SPW_HEADER_LIMIT].p[0] == '-' ||
        (g->fields[SPW_HEADER_REMAINING].p[0] == '-' && g->fields[SPW_HEADER_LIMIT].n == 0 && !has_reset))
        return false;
    return (!strstr(g->key, "/token") || strstr(g->key, "/api/token")) && !strstr(g->key, "/bytes");
}

/* R9: what is left of each limit by what was used of it, "600, 30000" with "314, 27536". */
static size_t take_unused(const struct group *g, uint64_t *out, size_t room)
{
    uint64_t limits[MEMBERS_MAX_COUNT];
    size_t count = take_counts(g, SPW_HEADER_USED, out, room);
    if (take_counts(g, SPW_HEADER_LIMIT, limits, MEMBERS_MAX_COUNT) != count)
        return 0;
    for (size_t i = 0; i < count; i++)
        out[i] = out[i] < limits[i] ? limits[i] - out[i] : 0;
    return count;
}

static size_t take_quotas(const struct text *t, bool is_strict, struct spw_quota out[MEMBERS_MAX_COUNT])
{
    return t->too_long ? 0 : spw_quota_parse(t->p, t->n, is_strict, out, MEMBERS_MAX_COUNT);
}

static const struct text *policy_of(const struct reading *r, const struct group *g, enum dialect dialect)
{
    return dialect == DIALECT_X ? &g->fields[SPW_HEADER_POLICY] : &r->policy;
}

/* Several windows in one header: "0, 4821" with "12, 41000". */
static void add_paired(const struct reading *r, const struct group *g, enum dialect dialect,
                       const uint64_t *remaining, size_t count, const char *remaining_rule,
                       struct windows *all)
{
    uint64_t limits[MEMBERS_MAX_COUNT];
    struct spw_quota quotas[MEMBERS_MAX_COUNT], policies[MEMBERS_MAX_COUNT];
    struct spw_instant resets[MEMBERS_MAX_COUNT];
    struct spw_instant longest;
    const struct text *reset = &g->fields[SPW_HEADER_RESET];
    size_t limits_count = take_counts(g, SPW_HEADER_LIMIT, limits, MEMBERS_MAX_COUNT);
    size_t quotas_count = take_quotas(&g->fields[SPW_HEADER_LIMIT], false, quotas);
    size_t policies_count = take_quotas(policy_of(r, g, dialect), false, policies);
    size_t resets_count = reset->too_long
                              ? 0
                              : take_instants(r, reset->p, reset->n, unit_of(r, g, SPW_HEADER_RESET), resets,
                                              MEMBERS_MAX_COUNT);
    const char *rule = dialect_rules[dialect].reset;
    bool has_longest = group_reset(r, g, &longest, &rule);
    for (size_t i = 0; i < count; i++) {
        struct window *w = add_window(all, dialect);
        if (!w)
            return;
        w->has_remaining = true;
        w->remaining_count = remaining[i];
        if (remaining_rule)
            w->rules.remaining = remaining_rule;
        w->has_limit = limits_count == count;
        w->limit_count = w->has_limit ? limits[i] : 0;
        window_by_quota(w, quotas, quotas_count);
        window_by_quota(w, policies, policies_count);
        w->has_reset = resets_count == count || has_longest;
        if (w->has_reset) {
            w->reset = resets_count == count ? resets[i] : longest;
            settle_kind(g, SPW_HEADER_RESET, &w->reset);
        }
        w->rules.reset = rule;
    }
}

static void add_group(const struct reading *r, const struct group *g, struct windows *all)
{
    enum dialect dialect = g->key[0] == 0 ? DIALECT_IETF_FIELDS : DIALECT_X;
    if (!group_counts_requests(g))
        return;
    uint64_t remaining[MEMBERS_MAX_COUNT], limits_told[MEMBERS_MAX_COUNT];
    size_t remaining_count = take_counts(g, SPW_HEADER_REMAINING, remaining, MEMBERS_MAX_COUNT);
    bool is_used = remaining_count == 0;
    if (is_used)
        remaining_count = take_unused(g, remaining, MEMBERS_MAX_COUNT);
    size_t equal_count = 1; /* one value told twice is no second window */
    while (equal_count < remaining_count && remaining[equal_count] == remaining[0])
        equal_count++;
    if (equal_count == remaining_count &&
        take_counts(g, SPW_HEADER_LIMIT, limits_told, MEMBERS_MAX_COUNT) != remaining_count)
        remaining_count = 1;
    if (remaining_count > 1) {
        add_paired(r, g, dialect, remaining, remaining_count, is_used ? RULE_USED : NULL, all);
        return;
    }
    struct window *w = add_window(all, dialect);
    if (!w)
        return;
    struct spw_quota limits[MEMBERS_MAX_COUNT], policies[MEMBERS_MAX_COUNT];
    const struct text *limit = &g->fields[SPW_HEADER_LIMIT];
    size_t limits_count = take_quotas(limit, false, limits);
    if (limits_count && limits[0].has_limit && limits[0].limit_count < COUNT_MAX) {
        w->has_limit = true;
        w->limit_count = limits[0].limit_count;
    } else {
        w->has_limit = take_limit(limit->p, limit->n, &w->limit_count);
    }
    take_window_text(w, g);
    window_by_quota(w, limits, limits_count);
    window_by_quota(w, policies, take_quotas(policy_of(r, g, dialect), false, policies));
    uint64_t used;
    if (remaining_count && !is_used) {
        w->has_remaining = true;
        w->remaining_count = remaining[0];
    } else if (w->has_limit && take_counts(g, SPW_HEADER_USED, &used, 1) == 1) {
        w->has_remaining = true;
        w->remaining_count = used < w->limit_count ? w->limit_count - used : 0;
        w->rules.remaining = RULE_USED;
    }
    w->has_reset = group_reset(r, g, &w->reset, &w->rules.reset);
}

static void set_reset_s(struct window *w, const struct spw_quota *q)
{
    uint64_t s = q->reset_in_s >= INSTANT_FROM_MS ? q->reset_in_s / MS_PER_S : q->reset_in_s;
    if (!q->has_reset)
        return;
    w->has_reset = true; /* R4: a span, unless it is the instant that some send against the draft */
    w->reset.is_span = q->reset_in_s < INSTANT_FROM_S;
    w->reset.ms = (int64_t)s * MS_PER_S;
    w->reset.us = w->reset.ms * US_PER_MS;
}

/* RateLimit (draft 7 dictionary, or list from draft 8) joined with RateLimit-Policy by name. */
static void add_ietf(const struct reading *r, struct windows *all)
{
    struct spw_quota states[MEMBERS_MAX_COUNT], policies[MEMBERS_MAX_COUNT];
    size_t states_count = take_quotas(&r->ratelimit, true, states);
    size_t policies_count = take_quotas(&r->policy, true, policies);
    bool has_states = false;
    for (size_t i = 0; i < states_count; i++) {
        const struct spw_quota *s = &states[i];
        bool is_foreign = s->is_foreign;
        struct window *w = NULL;
        if (s->has_remaining || s->is_dictionary)
            w = add_window(all, s->is_dictionary ? DIALECT_IETF_DICTIONARY : DIALECT_IETF_LIST);
        has_states = has_states || s->has_remaining || s->is_dictionary;
        if (!w)
            continue;
        w->has_remaining = s->has_remaining && s->remaining_count < COUNT_MAX;
        w->remaining_count = s->remaining_count;
        w->has_limit = s->is_dictionary && s->has_limit && s->limit_count < COUNT_MAX;
        w->limit_count = s->limit_count;
        set_reset_s(w, s);
        if (s->is_dictionary)
            window_by_quota(w, policies, policies_count);
        for (size_t k = 0; !s->is_dictionary && k < policies_count; k++) {
            const struct spw_quota *p = &policies[k];
            if (strcmp(p->name, s->name) != 0)
                continue;
            is_foreign = is_foreign || p->is_foreign;
            w->has_limit = p->has_limit && p->limit_count < COUNT_MAX;
            w->limit_count = p->limit_count;
            set_seconds(w, p);
            break;
        }
        if (is_foreign)
            all->count--;
    }
    if (has_states)
        return;
    bool has_fields = false; /* RateLimit-Limit and its kind use the bare policies themselves */
    for (size_t i = 0; i < r->groups_count; i++)
        has_fields = has_fields || r->groups[i].key[0] == 0;
    for (size_t k = 0; k < policies_count; k++) { /* a policy alone still tells the limit */
        struct window *w = policies[k].has_limit && !policies[k].is_foreign &&
                                   policies[k].limit_count < COUNT_MAX && (policies[k].name[0] || !has_fields)
                               ? add_window(all, DIALECT_IETF_LIST)
                               : NULL;
        if (!w)
            continue;
        w->has_limit = true;
        w->limit_count = policies[k].limit_count;
        set_seconds(w, &policies[k]);
    }
}

/* "40/40": used of limit, once or in a list. */
static void add_call_limit(const struct reading *r, struct windows *all)
{
    const struct text *t = &r->call_limit;
    const char *p = t->p, *end = t->p + (t->too_long ? 0 : t->n), *member;
    size_t bytes;
    while (next_member(&p, end, &member, &bytes)) {
        const char *slash = memchr(member, '/', bytes);
        uint64_t used, limit;
        struct window *w;
        if (!slash || !take_count(member, (size_t)(slash - member), SPW_DECIMAL_UP, &used) ||
            !take_count(slash + 1, (size_t)(member + bytes - slash - 1), SPW_DECIMAL_DOWN, &limit) ||
            !(w = add_window(all, DIALECT_CALL_LIMIT)))
            continue;
        w->has_limit = w->has_remaining = true;
        w->limit_count = limit;
        w->remaining_count = used < limit ? limit - used : 0;
    }
}

/* ---- the window that governs ---- */

/* R6. Is a tighter than b? Ties in one dialect go to the longer wait. */
static bool tighter(const struct window *a, const struct window *b)
{
    spw_wide left = a->remaining_count, right = b->remaining_count;
    if (a->has_limit &&
        b->has_limit) { /* a.rem / a.limit < b.rem / b.limit, without dividing: limits may be 0 */
        left *= (spw_wide)b->limit_count;
        right *= (spw_wide)a->limit_count;
        if (a->limit_count == 0 || b->limit_count == 0) {
            left = a->limit_count;
            right = b->limit_count;
        }
    }
    if (left != right)
        return left < right;
    return a->dialect == b->dialect && a->has_reset && b->has_reset && later(&a->reset, &b->reset);
}

static const struct window *choose(const struct windows *all)
{
    const struct window *best = NULL;
    for (size_t i = 0; i < all->count;
         i++) { /* the tightest; dialects come newest first, so ties are theirs */
        const struct window *w = &all->at[i];
        if (w->has_remaining && (!best || tighter(w, best)))
            best = w;
    }
    for (size_t i = 0; !best && i < all->count; i++) /* else the smallest limit of all */
        if (all->at[i].has_limit) {
            best = &all->at[i];
            for (size_t k = i + 1; k < all->count; k++)
                if (all->at[k].has_limit && all->at[k].limit_count < best->limit_count)
                    best = &all->at[k];
        }
    for (size_t i = 0; !best && i < all->count; i++) /* else whatever tells a time */
        if (all->at[i].has_reset || all->at[i].has_window)
            best = &all->at[i];
    return best;
}

/* What the governing window leaves out, from another that tells the same quota, or from one that tells a time alone. */
static struct window complete(const struct windows *all, const struct window *best)
{
    struct window w = *best;
    for (size_t i = 0; i < all->count; i++) {
        const struct window *other = &all->at[i];
        bool is_time_alone = !other->has_limit && !other->has_remaining && other->dialect == w.dialect;
        bool is_same =
            w.has_limit && other->has_limit && other->limit_count == w.limit_count &&
            (!other->has_remaining || !w.has_remaining || other->remaining_count == w.remaining_count);
        if (other == best || (!is_same && !is_time_alone))
            continue;
        if (!w.has_window && other->has_window) {
            w.has_window = true;
            w.window_ms = other->window_ms;
            w.rules.window = RULE_OTHER;
        }
        if (!w.has_reset && other->has_reset) {
            w.has_reset = true;
            w.reset = other->reset;
            w.rules.reset = RULE_OTHER;
        }
    }
    return w;
}

/* ---- clocks ---- */

struct placed {
    int64_t unix_ms, unix_us;
    uint64_t in_ms;
};

static struct placed place(const struct reading *r, const struct spw_instant *i, int64_t received_unix_ms,
                           uint64_t skew_limit_ms)
{
    int64_t date = r->has_date ? r->date_unix_ms : received_unix_ms;
    if (!i->is_span)
        return (struct placed){i->ms, i->us, i->ms > date ? (uint64_t)(i->ms - date) : 0};
    uint64_t skew =
        date > received_unix_ms ? (uint64_t)(date - received_unix_ms) : (uint64_t)(received_unix_ms - date);
    int64_t base = skew <= skew_limit_ms ? date : received_unix_ms;
    return (struct placed){base + i->ms, base * US_PER_MS + i->us, (uint64_t)i->ms};
}

static void tell_window(const struct reading *r, const struct window *w, int64_t received_unix_ms,
                        uint64_t skew_limit_ms, struct spw_rate_signals *out)
{
    out->dialect = dialect_text[w->dialect];
    out->has_limit = w->has_limit;
    out->limit_count = w->has_limit ? w->limit_count : 0;
    out->limit_rule = w->has_limit ? w->rules.limit : "";
    out->has_remaining = w->has_remaining;
    out->remaining_count = w->has_remaining ? w->remaining_count : 0;
    out->remaining_rule = w->has_remaining ? w->rules.remaining : "";
    out->has_window = w->has_window;
    out->window_ms = w->has_window ? w->window_ms : 0;
    out->window_rule = w->has_window ? w->rules.window : "";
    out->has_reset = w->has_reset;
    if (!w->has_reset)
        return;
    struct placed at = place(r, &w->reset, received_unix_ms, skew_limit_ms);
    out->reset_unix_ms = at.unix_ms;
    out->reset_unix_us = at.unix_us;
    out->reset_in_ms = at.in_ms;
    out->reset_rule = w->rules.reset;
}

/* R2. A refusal without Retry-After means: come back at the reset. 403 is how some refuse for the rate, and 503 with
 * nothing left. */
static void tell_retry(const struct reading *r, uint32_t status, int64_t received_unix_ms,
                       uint64_t skew_limit_ms, struct spw_rate_signals *out)
{
    bool is_refusal =
        status == 429 || status == 403 || (status == 503 && out->has_remaining && out->remaining_count == 0);
    bool is_standard = r->retry.has_span || r->retry.has_point;
    const struct wait *retry = is_standard ? &r->retry : &r->vendor_retry;
    if (retry->has_span || retry->has_point) {
        struct placed at = {0};
        if (retry->has_point)
            at = place(r, &retry->point, received_unix_ms, skew_limit_ms);
        if (retry->has_span) {
            struct placed span = place(r, &retry->span, received_unix_ms, skew_limit_ms);
            at = retry->has_point && at.in_ms > span.in_ms ? at : span;
        }
        out->has_retry = true;
        out->retry_unix_ms = at.unix_ms;
        out->retry_unix_us = at.unix_us;
        out->retry_in_ms = at.in_ms;
        out->retry_rule = is_standard ? "Retry-After (R2)" : "the vendor's own Retry-After (R2)";
    } else if (out->has_reset && is_refusal) {
        out->has_retry = true;
        out->retry_unix_ms = out->reset_unix_ms;
        out->retry_unix_us = out->reset_unix_us;
        out->retry_in_ms = out->reset_in_ms;
        out->retry_rule = "the reset, since this is a refusal (R2)";
    }
}

void spw_headers_read_as(const char *headers, size_t headers_bytes, uint32_t status, int64_t received_unix_ms,
                         const struct spw_headers_options *options, struct spw_rate_signals *out)
{
    struct reading r;
    struct windows all;
    memset(&r, 0, offsetof(struct reading, ratelimit));
    r.reset_unit = options ? options->reset_unit : SPW_RESET_AUTO;
    r.received_unix_ms = received_unix_ms;
    clear(&r.ratelimit), clear(&r.policy), clear(&r.call_limit);
    all.count = 0;
    uint64_t skew_limit_ms = options && options->skew_limit_ms ? options->skew_limit_ms : SKEW_LIMIT_MS;
    memset(out, 0, sizeof *out);
    out->dialect = out->limit_rule = out->remaining_rule = "";
    out->reset_rule = out->window_rule = out->retry_rule = "";
    if (headers)
        spw_header_lines_each(headers, headers_bytes, take_line, &r);
    out->has_date = r.has_date;
    out->date_unix_ms = r.date_unix_ms;
    if (r.from_cache)
        return; /* the signals are of another moment */
    add_ietf(&r, &all);
    for (int ietf = 1; ietf >= 0; ietf--) /* newest dialect first */
        for (size_t i = 0; i < r.groups_count; i++)
            if ((r.groups[i].key[0] == 0) == (ietf == 1))
                add_group(&r, &r.groups[i], &all);
    add_call_limit(&r, &all);
    const struct window *best = choose(&all);
    if (best) {
        struct window whole = complete(&all, best);
        tell_window(&r, &whole, received_unix_ms, skew_limit_ms, out);
    }
    tell_retry(&r, status, received_unix_ms, skew_limit_ms, out);
}

void spw_headers_read(const char *headers, size_t headers_bytes, uint32_t status, int64_t received_unix_ms,
                      struct spw_rate_signals *out)
{
    spw_headers_read_as(headers, headers_bytes, status, received_unix_ms, NULL, out);
}
