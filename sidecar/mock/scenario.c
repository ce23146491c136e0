/* scenario.c: see scenario.h. */
#include "sidecar/mock/scenario.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <jansson.h>

#include "sidecar/provider/decimal.h"

#define WAIT_MAX_MS   3600000 /* an hour: longer is a slip of the pen */
#define SHARE_ALL_PPM 1000000u
#define TRICKLE_MS    100
#define SEED          88172645463325252u

static const char *const action_word[] = {
#define SPW_MOCK_X(name, word, text) word,
    SPW_MOCK_ACTION_TABLE(SPW_MOCK_X)
#undef SPW_MOCK_X
};

#define KEYS                                                                                                 \
    "from_ms, to_ms, from_request, to_request, path_contains, share, status, latency_ms, headers, body, "    \
    "action, trickle_ms, random, seed, note"

const char *spw_mock_action_name(uint32_t action)
{
    return action < SPW_MOCK_ACTION_COUNT ? action_word[action] : "unknown";
}

static void step_clean_up(struct spw_mock_step *step)
{
    free(step->path_contains);
    free(step->body);
    for (size_t i = 0; i < step->headers_count; i++) {
        free(step->headers[i].name);
        free(step->headers[i].value);
    }
}

void spw_mock_scenario_clean_up(struct spw_mock_scenario *scenario)
{
    for (size_t i = 0; i < scenario->steps_count; i++)
        step_clean_up(&scenario->steps[i]);
    free(scenario->steps);
    scenario->steps = NULL;
    scenario->steps_count = 0;
}

static enum spw_status refuse(struct spw_error *err, const char *key, const char *remedy)
{
    return spw_error_set(err, SPW_STATUS_PARSE, "%s: %s", key, remedy);
}

static enum spw_status take_whole(const char *key, const json_t *value, int64_t least, int64_t most,
                                  uint64_t *out, struct spw_error *err)
{
    if (!json_is_integer(value) || json_integer_value(value) < least || json_integer_value(value) > most)
        return spw_error_set(err, SPW_STATUS_PARSE, "%s: write a whole number from %lld to %lld", key,
                             (long long)least, (long long)most);
    *out = (uint64_t)json_integer_value(value);
    return SPW_STATUS_OK;
}

static enum spw_status take_share(const char *key, const json_t *value, uint32_t *out, struct spw_error *err)
{
    int64_t ppm = -1;
    if (json_is_number(value) &&
        spw_decimal_from_double(json_number_value(value), 6, &ppm) == SPW_DECIMAL_EXACT && ppm > 0 &&
        ppm <= (int64_t)SHARE_ALL_PPM) {
        *out = (uint32_t)ppm;
        return SPW_STATUS_OK;
    }
    return refuse(err, key, "write a number above 0, up to 1, with at most 6 decimals");
}

static enum spw_status take_action(const json_t *value, enum spw_mock_action *out, struct spw_error *err)
{
    for (uint32_t i = 1; json_is_string(value) && i < SPW_MOCK_ACTION_COUNT; i++)
        if (strcmp(json_string_value(value), action_word[i]) == 0) {
            *out = (enum spw_mock_action)i;
            return SPW_STATUS_OK;
        }
    return refuse(err, "action",
                  "write one of reset, close, stall, trickle, garbage, wrong-length, huge, drop");
}

static bool is_header_text(const char *text, bool is_name)
{
    if (is_name && !*text)
        return false;
    for (const char *p = text; *p; p++) {
        unsigned char c = (unsigned char)*p;
        if (is_name ? c <= 0x20 || c >= 0x7f || c == ':' : c < 0x20 || c == 0x7f)
            return false;
    }
    return true;
}

static enum spw_status take_headers(json_t *value, struct spw_mock_step *step, struct spw_error *err)
{
    const char *name;
    json_t *text;
    if (!json_is_object(value) || json_object_size(value) > SPW_MOCK_HEADERS_MAX_COUNT)
        return refuse(err, "headers", "write an object of at most 16 names and their texts");
    json_object_foreach(value, name, text)
    {
        if (!json_is_string(text) || !is_header_text(name, true) ||
            !is_header_text(json_string_value(text), false))
            return refuse(err, "headers",
                          "a name or text cannot stand in a header; write printable text, and "
                          "numbers in quotes");
        if (strcasecmp(name, "Content-Length") == 0 || strcasecmp(name, "Transfer-Encoding") == 0 ||
            strcasecmp(name, "Connection") == 0)
            return refuse(err, "headers",
                          "Content-Length, Transfer-Encoding and Connection are the server's own; "
                          "use the actions wrong-length or close");
        struct spw_mock_header *h = &step->headers[step->headers_count++];
        h->name = strdup(name);
        h->value = strdup(json_string_value(text));
        if (!h->name || !h->value)
            return spw_error_set(err, SPW_STATUS_NO_MEMORY, "headers: no memory");
    }
    return SPW_STATUS_OK;
}

/* A text goes out as it is, anything else as JSON. */
static enum spw_status take_body(json_t *value, struct spw_mock_step *step, struct spw_error *err)
{
    step->body = json_is_string(value)
                     ? strdup(json_string_value(value))
                     : json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    return step->body ? SPW_STATUS_OK : spw_error_set(err, SPW_STATUS_NO_MEMORY, "body: no memory");
}

static enum spw_status take_key(const char *key, json_t *value, struct spw_mock_step *step,
                                struct spw_error *err)
{
    uint64_t number = 0;
    enum spw_status status = SPW_STATUS_OK;
    if (strcmp(key, "from_ms") == 0)
        return take_whole(key, value, 0, INT64_MAX, &step->from_ms, err);
    if (strcmp(key, "to_ms") == 0)
        return take_whole(key, value, 1, INT64_MAX, &step->to_ms, err);
    if (strcmp(key, "from_request") == 0)
        return take_whole(key, value, 1, INT64_MAX, &step->from_request, err);
    if (strcmp(key, "to_request") == 0)
        return take_whole(key, value, 1, INT64_MAX, &step->to_request, err);
    if (strcmp(key, "share") == 0)
        return take_share(key, value, &step->share_ppm, err);
    if (strcmp(key, "random") == 0)
        return take_share(key, value, &step->random_ppm, err);
    if (strcmp(key, "seed") == 0)
        return take_whole(key, value, 1, INT64_MAX, &step->seed, err);
    if (strcmp(key, "status") == 0) {
        status = take_whole(key, value, 200, 599, &number, err);
        step->has_status = true;
        step->status = (unsigned)number;
        return status;
    }
    if (strcmp(key, "latency_ms") == 0) {
        step->has_latency = true;
        return take_whole(key, value, 0, WAIT_MAX_MS, &step->latency_ms, err);
    }
    if (strcmp(key, "trickle_ms") == 0)
        return take_whole(key, value, 1, WAIT_MAX_MS, &step->trickle_ms, err);
    if (strcmp(key, "headers") == 0)
        return take_headers(value, step, err);
    if (strcmp(key, "body") == 0)
        return take_body(value, step, err);
    if (strcmp(key, "action") == 0)
        return take_action(value, &step->action, err);
    if (strcmp(key, "note") == 0)
        return json_is_string(value) ? SPW_STATUS_OK : refuse(err, key, "write a text");
    if (strcmp(key, "path_contains") == 0) {
        if (!json_is_string(value) || !json_string_length(value))
            return refuse(err, key, "write a text such as \"/carts\"");
        step->path_contains = strdup(json_string_value(value));
        return step->path_contains ? SPW_STATUS_OK
                                   : spw_error_set(err, SPW_STATUS_NO_MEMORY, "%s: no memory", key);
    }
    return spw_error_set(err, SPW_STATUS_PARSE, "unknown key \"%.60s\"; the keys are " KEYS, key);
}

/* What the keys say together. */
static enum spw_status check_step(const struct spw_mock_step *step, struct spw_error *err)
{
    bool has_answer = step->action == SPW_MOCK_ACTION_NONE || step->action == SPW_MOCK_ACTION_TRICKLE ||
                      step->action == SPW_MOCK_ACTION_WRONG_LENGTH || step->action == SPW_MOCK_ACTION_HUGE;
    if (step->to_ms <= step->from_ms)
        return refuse(err, "to_ms", "must be after from_ms, else the step never comes");
    if (step->to_request < step->from_request)
        return refuse(err, "to_request", "must not be before from_request, else the step never comes");
    if (!has_answer && (step->has_status || step->body || step->headers_count))
        return refuse(err, "action", "this one sends no answer; leave out status, headers and body");
    if (step->action == SPW_MOCK_ACTION_HUGE && step->body)
        return refuse(err, "body", "the action huge makes its own body; leave it out");
    if (step->seed && !step->random_ppm)
        return refuse(err, "seed", "belongs to random");
    if (step->trickle_ms && step->action != SPW_MOCK_ACTION_TRICKLE)
        return refuse(err, "trickle_ms", "belongs to the action trickle");
    if (step->has_status && (step->status == 204 || step->status == 304) &&
        (step->body || step->action != SPW_MOCK_ACTION_NONE))
        return refuse(err, "status", "204 and 304 have no body");
    if (step->action == SPW_MOCK_ACTION_NONE && !step->has_status && !step->has_latency && !step->body &&
        !step->headers_count)
        return refuse(err, "step", "does nothing; give it a status, latency_ms, headers, body or action");
    return SPW_STATUS_OK;
}

static enum spw_status read_step(json_t *value, struct spw_mock_step *step, struct spw_error *err)
{
    const char *key;
    json_t *one;
    *step = (struct spw_mock_step){
        .to_ms = UINT64_MAX, .from_request = 1, .to_request = UINT64_MAX, .share_ppm = SHARE_ALL_PPM};
    if (!json_is_object(value))
        return refuse(err, "step", "write an object such as {\"from_ms\":0,\"to_ms\":5000,\"status\":429}");
    json_object_foreach(value, key, one)
    {
        enum spw_status status = take_key(key, one, step, err);
        if (status)
            return status;
    }
    enum spw_status status = check_step(step, err);
    if (!status && step->action == SPW_MOCK_ACTION_TRICKLE && !step->trickle_ms)
        step->trickle_ms = TRICKLE_MS;
    if (!status && !step->seed)
        step->seed = SEED;
    return status;
}

static enum spw_status add_step(struct spw_mock_scenario *s, json_t *value, struct spw_error *err)
{
    if (s->steps_count == SPW_MOCK_STEPS_MAX_COUNT)
        return spw_error_set(err, SPW_STATUS_FULL, "more than %u steps; merge or remove some",
                             SPW_MOCK_STEPS_MAX_COUNT);
    struct spw_mock_step *step = &s->steps[s->steps_count];
    enum spw_status status = read_step(value, step, err);
    s->steps_count++; /* counted also when bad: clean-up frees what it got so far */
    return status;
}

static enum spw_status parse_list(const char *name, const char *text, size_t bytes,
                                  struct spw_mock_scenario *s, struct spw_error *err)
{
    json_error_t error;
    json_t *list = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    size_t i;
    json_t *one;
    enum spw_status status = SPW_STATUS_OK;
    if (!list)
        return spw_error_set(err, SPW_STATUS_PARSE, "%s:%d:%d: %s; correct the JSON there", name, error.line,
                             error.column, error.text);
    json_array_foreach(list, i, one)
    {
        status = add_step(s, one, err);
        if (status) {
            spw_error_prefix(err, "%s: step %zu: ", name, i + 1);
            break;
        }
    }
    json_decref(list);
    return status;
}

static enum spw_status parse_lines(const char *name, const char *text, size_t bytes,
                                   struct spw_mock_scenario *s, struct spw_error *err)
{
    const char *end = text + bytes;
    size_t line = 1;
    for (const char *p = text; p < end; line++) {
        const char *newline = memchr(p, '\n', (size_t)(end - p));
        const char *stop = newline ? newline : end;
        const char *first = p;
        p = newline ? newline + 1 : end;
        while (first < stop && (*first == ' ' || *first == '\t' || *first == '\r'))
            first++;
        if (first == stop)
            continue;
        json_error_t error;
        json_t *one = json_loadb(first, (size_t)(stop - first), JSON_REJECT_DUPLICATES, &error);
        if (!one)
            return spw_error_set(err, SPW_STATUS_PARSE,
                                 "%s:%zu:%d: %s; write one JSON object a line, or one JSON list", name, line,
                                 error.column, error.text);
        enum spw_status status = add_step(s, one, err);
        json_decref(one);
        if (status) {
            spw_error_prefix(err, "%s:%zu: ", name, line);
            return status;
        }
    }
    return SPW_STATUS_OK;
}

enum spw_status spw_mock_scenario_parse(const char *name, const char *text, size_t bytes,
                                        struct spw_mock_scenario *out, struct spw_error *err)
{
    struct spw_mock_scenario s = {0};
    if (bytes > SPW_MOCK_SCENARIO_MAX_BYTES)
        return spw_error_set(err, SPW_STATUS_FULL, "%s: above 1 MiB; shorten it", name);
    s.steps = calloc(SPW_MOCK_STEPS_MAX_COUNT, sizeof *s.steps);
    if (!s.steps)
        return spw_error_set(err, SPW_STATUS_NO_MEMORY, "%s: no memory for the steps", name);
    size_t i = 0;
    while (i < bytes && strchr(" \t\r\n", text[i]) && text[i])
        i++;
    enum spw_status status = i < bytes && text[i] == '[' ? parse_list(name, text, bytes, &s, err)
                                                         : parse_lines(name, text, bytes, &s, err);
    if (status)
        spw_mock_scenario_clean_up(&s);
    else
        *out = s;
    return status;
}

/* xorshift64: even enough for a share of requests. */
static uint32_t draw_ppm(struct spw_mock_step *step)
{
    step->seed ^= step->seed << 13;
    step->seed ^= step->seed >> 7;
    step->seed ^= step->seed << 17;
    return (uint32_t)((step->seed >> 11) % SHARE_ALL_PPM);
}

const struct spw_mock_step *spw_mock_scenario_choose(struct spw_mock_scenario *scenario, uint64_t since_ms,
                                                     uint64_t request_number, const char *path)
{
    for (size_t i = 0; i < scenario->steps_count; i++) {
        struct spw_mock_step *step = &scenario->steps[i];
        if (since_ms < step->from_ms || since_ms >= step->to_ms || request_number < step->from_request ||
            request_number > step->to_request || (step->path_contains && !strstr(path, step->path_contains)))
            continue;
        if (step->random_ppm && draw_ppm(step) >= step->random_ppm)
            continue;
        step->turn_ppm += step->share_ppm;
        if (step->turn_ppm < SHARE_ALL_PPM)
            continue;
        step->turn_ppm -= SHARE_ALL_PPM;
        return step;
    }
    return NULL;
}
