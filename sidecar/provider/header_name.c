/* header_name.c: see header_name.h. */
#include "sidecar/provider/header_name.h"

#include <stdio.h>
#include <string.h>

uint64_t spw_header_window_ms(const char *word)
{
    static const struct {
        const char *word;
        uint64_t ms;
        bool is_after_number; /* "1m": the letter alone is no word */
    } names[] = {{"second", 1000, false},    {"secondly", 1000, false},  {"sec", 1000, false},
                 {"minute", 60000, false},   {"minutely", 60000, false}, {"min", 60000, false},
                 {"hour", 3600000, false},   {"hourly", 3600000, false}, {"day", 86400000, false},
                 {"daily", 86400000, false}, {"week", 604800000, false}, {"weekly", 604800000, false},
                 {"s", 1000, true},          {"m", 60000, true},         {"h", 3600000, true},
                 {"d", 86400000, true}};
    uint64_t times = 0;
    for (; *word >= '0' && *word <= '9' && times < 10000; word++)
        times = times * 10 + (uint64_t)(*word - '0');
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(word, names[i].word) == 0 && (times || !names[i].is_after_number))
            return names[i].ms * (times ? times : 1);
    return 0;
}

bool spw_header_ends_with(const char *name, const char *tail)
{
    size_t n = strlen(name), t = strlen(tail);
    return n >= t && strcmp(name + n - t, tail) == 0;
}

static bool is_filler(const struct spw_header_name *n, const char *word)
{
    static const char *const fillers[] = {"time",     "size",    "at",   "in",        "on",
                                          "epoch",    "unix",    "date", "timestamp", "utc",
                                          "requests", "request", "secs", "seconds"};
    for (size_t i = 0; i < sizeof fillers / sizeof fillers[0]; i++)
        if (strcmp(word, fillers[i]) == 0)
            return true;
    return strcmp(word, "sec") == 0 && n->is_field_named; /* the unit of a reset, not the window of a limit */
}

static bool take_field(struct spw_header_name *n, const char *word)
{
    static const struct {
        const char *word;
        enum spw_header_field field;
    } words[] = {{"limit", SPW_HEADER_LIMIT},
                 {"max", SPW_HEADER_LIMIT},
                 {"remaining", SPW_HEADER_REMAINING},
                 {"reset", SPW_HEADER_RESET},
                 {"used", SPW_HEADER_USED},
                 {"window", SPW_HEADER_WINDOW},
                 {"next", SPW_HEADER_NEXT},
                 {"interval", SPW_HEADER_WINDOW},
                 {"policy", SPW_HEADER_POLICY},
                 {"bucket", SPW_HEADER_NONE},
                 {"scope", SPW_HEADER_NONE},
                 {"global", SPW_HEADER_NONE},
                 {"resource", SPW_HEADER_NONE},
                 {"type", SPW_HEADER_NONE},
                 {"reason", SPW_HEADER_NONE},
                 {"cost", SPW_HEADER_NONE},
                 {"precision", SPW_HEADER_NONE},
                 {"name", SPW_HEADER_NONE},
                 {"observed", SPW_HEADER_USED},
                 {"count", SPW_HEADER_USED},
                 {"usage", SPW_HEADER_USED},
                 {"total", SPW_HEADER_LIMIT},
                 {"quota", SPW_HEADER_LIMIT},
                 {"capacity", SPW_HEADER_LIMIT},
                 {"left", SPW_HEADER_REMAINING},
                 {"available", SPW_HEADER_REMAINING},
                 {"period", SPW_HEADER_WINDOW},
                 {"duration", SPW_HEADER_WINDOW},
                 {"resettime", SPW_HEADER_NEXT},
                 {"resets", SPW_HEADER_RESET},
                 {"resetat", SPW_HEADER_RESET},
                 {"resetin", SPW_HEADER_RESET},
                 {"resetafter", SPW_HEADER_RESET_AFTER},
                 {"retry", SPW_HEADER_NONE}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(word, words[i].word) == 0) {
            n->field = words[i].field;
            n->is_field_named = true;
            return true;
        }
    if (strcmp(word, "after") == 0 && n->is_field_named && n->field == SPW_HEADER_RESET) {
        n->field = SPW_HEADER_RESET_AFTER;
        return true;
    }
    return false;
}

/* Words that name no field become part of the key. */
static void take_words(struct spw_header_name *n, const char *rest)
{
    bool has_other_words = false;
    char words[SPW_HEADER_NAME_BYTES];
    snprintf(words, sizeof words, "%s", rest);
    char *save = NULL;
    for (char *word = strtok_r(words, "-", &save); word; word = strtok_r(NULL, "-", &save)) {
        if (is_filler(n, word) || take_field(n, word))
            continue;
        if (strcmp(word, "ms") == 0 || strcmp(word, "milliseconds") == 0) {
            n->is_ms = true;
            continue;
        }
        size_t used = strlen(n->key);
        snprintf(n->key + used, sizeof n->key - used, "/%s", word);
        uint64_t window_ms = spw_header_window_ms(word);
        has_other_words = has_other_words || (!window_ms && strcmp(word, "per") != 0);
        if (window_ms)
            n->named_window_ms = window_ms;
    }
    /* "X-RateLimit: 100" and "...-RateLimit-Daily: 1000" are limits; "X-RateLimit-Version: 2" is none. */
    if (!n->is_field_named)
        n->field = has_other_words ? SPW_HEADER_NONE : SPW_HEADER_LIMIT;
}

bool spw_header_name_read(const char *name, struct spw_header_name *out)
{
    static const char *const markers[] = {"ratelimit", "rate-limit"};
    const char *marker = NULL, *rest = NULL;
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < sizeof markers / sizeof markers[0] && !marker; i++)
        if ((marker = strstr(name, markers[i])) != NULL)
            rest = marker + strlen(markers[i]);
    if (!marker && (spw_header_ends_with(name, "-limit") || spw_header_ends_with(name, "-remaining") ||
                    spw_header_ends_with(name, "-reset"))) {
        marker = strstr(name, "limit-"); /* x-app-limit-24hour-reset, x-daylimit-remaining */
        rest = marker ? marker + strlen("limit") : NULL;
    }
    if (!marker)
        return false;
    snprintf(out->key, sizeof out->key, "%.*s", (int)(marker - name), name); /* "", "x-", "x-vendor-" */
    const char *vendor = strrchr(out->key, '-');
    if (vendor && vendor[1])
        out->named_window_ms = spw_header_window_ms(vendor + 1);
    take_words(out, rest);
    return true;
}
