/* headers.c: spillwayctl headers: what an answer's rate headers are understood to say. See ctl.h.
 *
 * Owns: nothing. Called by: main.c. Thread: one. Needs neither a configuration nor a running sidecar: the reading is the
 * sidecar's own (provider/headers.c), on bytes from stdin.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "sidecar/ctl/ctl.h"
#include "sidecar/provider/decimal.h"
#include "sidecar/provider/instant.h"
#include "sidecar/provider/provider.h"

#define INPUT_MAX_BYTES (256u * 1024u)
#define US_PER_S        1000000
/* An answer whose Date is days away from now was recorded then: it is read as of its own time. */
#define RECORDED_FROM_MS INT64_C(86400000)

struct question {
    char *input;         /* stdin, to be freed */
    const char *headers; /* the block in it that counts, NUL-terminated like the whole */
    size_t headers_bytes;
    const struct spw_profile *profile;
    uint32_t status;
    bool has_now;
    int64_t now_ms;
    enum spw_reset_unit reset_unit;
};

static int read_input(const struct spw_ctl *ctl, struct question *q)
{
    q->input = calloc(1, INPUT_MAX_BYTES + 2);
    if (!q->input) {
        spw_ctl_fail(ctl, SPW_CTL_REFUSED, "no memory");
        return SPW_CTL_REFUSED;
    }
    q->headers = q->input;
    q->headers_bytes = fread(q->input, 1, INPUT_MAX_BYTES + 1, stdin);
    if (ferror(stdin))
        return spw_ctl_fail(ctl, SPW_CTL_REFUSED,
                            "stdin cannot be read: give the headers by < FILE or a pipe");
    if (q->headers_bytes > INPUT_MAX_BYTES)
        return spw_ctl_fail(ctl, SPW_CTL_REFUSED, "more than %u bytes: give one answer's headers",
                            INPUT_MAX_BYTES);
    return 0;
}

static size_t line_bytes(const char *line, const char *end)
{
    const char *newline = memchr(line, '\n', (size_t)(end - line));
    return newline ? (size_t)(newline - line) + 1 : (size_t)(end - line);
}

static bool is_empty_line(const char *line, size_t bytes)
{
    return (bytes == 1 && line[0] == '\n') || (bytes == 2 && line[0] == '\r' && line[1] == '\n');
}

/* What curl -i prints may hold several answers (a redirect, 100 Continue) and a body: the last answer's headers count.
 * Without a status line it is all taken for headers. */
static void choose_block(struct question *q)
{
    const char *end = q->input + q->headers_bytes, *start = NULL;
    bool is_first = true; /* of a block */
    for (const char *line = q->input; line < end;) {
        size_t bytes = line_bytes(line, end);
        if (is_first && bytes > 5 && strncasecmp(line, "HTTP/", 5) == 0)
            start = line;
        is_first = is_empty_line(line, bytes);
        line += bytes;
    }
    if (!start)
        return;
    const char *stop = start;
    while (stop < end && !is_empty_line(stop, line_bytes(stop, end)))
        stop += line_bytes(stop, end);
    q->headers = start;
    q->headers_bytes = (size_t)(stop - start);
    q->input[stop - q->input] = 0;
}

static int take_unit(const struct spw_ctl *ctl, enum spw_reset_unit *unit)
{
    static const struct {
        const char *word;
        enum spw_reset_unit unit;
    } units[] = {{"auto", SPW_RESET_AUTO},        {"delta_s", SPW_RESET_DELTA_S},
                 {"s", SPW_RESET_DELTA_S},        {"delta_ms", SPW_RESET_DELTA_MS},
                 {"ms", SPW_RESET_DELTA_MS},      {"epoch_s", SPW_RESET_EPOCH_S},
                 {"epoch_ms", SPW_RESET_EPOCH_MS}};
    const char *text = spw_ctl_value(ctl, "--reset-unit");
    char word[16];
    if (!text)
        return 0;
    snprintf(word, sizeof word, "%s", text);
    for (char *p = word; *p; p++)
        *p = *p == '-' ? '_' : *p;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (strcmp(word, units[i].word) == 0) {
            *unit = units[i].unit;
            return 0;
        }
    return spw_ctl_usage(ctl, "--reset-unit %s: write auto, delta_s, delta_ms, epoch_s or epoch_ms", text);
}

/* "HTTP/1.1 429 Too Many Requests" at the start tells the status when --status does not. */
static uint32_t status_line(const char *headers)
{
    const char *p = headers;
    if (strncasecmp(p, "HTTP/", 5) != 0)
        return 200;
    p += strcspn(p, " \r\n");
    p += strspn(p, " ");
    if (strspn(p, "0123456789") != 3)
        return 200;
    return (uint32_t)strtoul(p, NULL, 10);
}

static int take_options(const struct spw_ctl *ctl, struct question *q)
{
    const char *name = spw_ctl_value(ctl, "--provider"), *now = spw_ctl_value(ctl, "--now");
    uint64_t status = 0;
    int64_t now_ms;
    bool given;
    q->profile = spw_profile_find(name ? name : "http");
    if (!q->profile)
        return spw_ctl_usage(ctl, "--provider %s: write one of %s", name, spw_profile_names());
    if (!spw_ctl_number(ctl, "--status", 100, 599, &status, &given))
        return SPW_CTL_USAGE;
    q->status = given ? (uint32_t)status : status_line(q->headers);
    if (now && (spw_decimal_parse(now, strlen(now), 3, SPW_DECIMAL_UP, &now_ms) == SPW_DECIMAL_BAD ||
                now_ms < 0 || now_ms > INT64_C(253402300799999)))
        return spw_ctl_usage(ctl, "--now %s: write the moment of receipt in unix seconds", now);
    q->has_now = now != NULL;
    if (now)
        q->now_ms = now_ms;
    return take_unit(ctl, &q->reset_unit);
}

static int64_t wall_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* Also tells, when the answer is read as of its own Date. */
static bool understand(const struct question *q, struct spw_rate_signals *s)
{
    struct spw_headers_options options = {.reset_unit = q->reset_unit};
    int64_t now_ms = q->has_now ? q->now_ms : wall_ms();
    spw_headers_read_as(q->headers, q->headers_bytes, q->status, now_ms, &options, s);
    int64_t apart_ms = s->has_date ? s->date_unix_ms - now_ms : 0;
    bool recorded = apart_ms > RECORDED_FROM_MS || apart_ms < -RECORDED_FROM_MS;
    if (recorded)
        spw_headers_read_as(q->headers, q->headers_bytes, q->status, s->date_unix_ms, &options, s);
    return recorded;
}

/* Seconds with as many decimals as there are: "1700000000", "1700000000.85". */
static void format_us(int64_t us, char *out, size_t room)
{
    int n = snprintf(out, room, "%" PRId64 ".%06" PRId64, us / US_PER_S, us % US_PER_S);
    while (n > 0 && out[n - 1] == '0')
        out[--n] = 0;
    if (n > 0 && out[n - 1] == '.')
        out[--n] = 0;
}

struct row {
    const char *key, *label, *rule;
    bool known;
    char text[32];
};
#define ROWS_COUNT 5u

static void make_rows(const struct spw_rate_signals *s, struct row rows[ROWS_COUNT])
{
    rows[0] = (struct row){.key = "limit", .label = "limit", .rule = s->limit_rule, .known = s->has_limit};
    rows[1] = (struct row){
        .key = "remaining", .label = "remaining", .rule = s->remaining_rule, .known = s->has_remaining};
    rows[2] =
        (struct row){.key = "reset_at", .label = "reset at", .rule = s->reset_rule, .known = s->has_reset};
    rows[3] =
        (struct row){.key = "window_s", .label = "window", .rule = s->window_rule, .known = s->has_window};
    rows[4] =
        (struct row){.key = "retry_at", .label = "retry at", .rule = s->retry_rule, .known = s->has_retry};
    snprintf(rows[0].text, sizeof rows[0].text, "%" PRIu64, s->limit_count);
    snprintf(rows[1].text, sizeof rows[1].text, "%" PRIu64, s->remaining_count);
    format_us(s->reset_unix_us, rows[2].text, sizeof rows[2].text);
    format_us((int64_t)s->window_ms * 1000, rows[3].text, sizeof rows[3].text);
    format_us(s->retry_unix_us, rows[4].text, sizeof rows[4].text);
}

/* The rules are texts of ours without anything that JSON would have to escape. */
static void print_json(const struct row rows[ROWS_COUNT])
{
    printf("{");
    for (size_t i = 0; i < ROWS_COUNT; i++)
        printf("\"%s\":%s,", rows[i].key, rows[i].known ? rows[i].text : "null");
    printf("\"rules\":{");
    for (size_t i = 0; i < ROWS_COUNT; i++) {
        const char *quote = rows[i].known ? "\"" : "";
        printf("%s\"%s\":%s%s%s", i ? "," : "", rows[i].key, quote, rows[i].known ? rows[i].rule : "null",
               quote);
    }
    printf("}}\n");
}

/* What the breaker would make of a refusal; the body is not known here. */
static void print_judgement(const struct question *q)
{
    static const char *const throttles[] = {"too many in a time", "too many at once",
                                            "an object in use, which says nothing about limits"};
    struct spw_answer answer;
    if (q->status < 400)
        return;
    q->profile->judge(NULL, q->status, q->headers, q->headers_bytes, "", 0, &answer);
    if (answer.kind == SPW_ANSWER_THROTTLED || answer.kind == SPW_ANSWER_BUSY)
        printf("status %u   %s\n", q->status, throttles[answer.throttle]);
    else
        printf("status %u   not about limits\n", q->status);
}

static void print_text(const struct question *q, const struct spw_rate_signals *s, bool recorded,
                       const struct row rows[ROWS_COUNT])
{
    for (size_t i = 0; i < ROWS_COUNT; i++) {
        if (rows[i].known)
            printf("%-10s %-20s %s\n", rows[i].label, rows[i].text, rows[i].rule);
        else
            printf("%-10s unknown\n", rows[i].label);
    }
    print_judgement(q);
    if (recorded)
        printf("note       read as of its own Date, which is more than a day from now\n");
    else if (s->has_date)
        printf("note       instants are measured from the answer's own Date\n");
}

static int run_explain(struct spw_ctl *ctl)
{
    struct question q = {0};
    struct spw_rate_signals signals;
    struct row rows[ROWS_COUNT];
    int code = read_input(ctl, &q);
    if (!code) {
        choose_block(&q);
        code = take_options(ctl, &q);
    }
    if (!code) {
        bool recorded = understand(&q, &signals);
        make_rows(&signals, rows);
        if (ctl->json)
            print_json(rows);
        else
            print_text(&q, &signals, recorded, rows);
    }
    free(q.input);
    return code;
}

const struct spw_ctl_command spw_ctl_headers_commands[] = {
    {.group = "headers",
     .name = "explain",
     .arguments = "",
     .summary =
         "What the rate headers of an answer, given on stdin, are understood to say, and by which rule.",
     .examples = "  curl -sD - -o /dev/null https://api.example.com/v1/x | spillwayctl headers explain\n"
                 "  spillwayctl headers explain --provider stripe --status 429 --json < headers.txt\n",
     .options = {{"--provider", "NAME", "avatax, taxjar, stripe, taxcloud or http (default: http)"},
                 {"--status", "N", "status of the answer (default: its status line's, else 200)"},
                 {"--now", "EPOCH", "when it was received, in unix seconds (default: now)"},
                 {"--reset-unit", "UNIT",
                  "of a bare number in a reset header: auto, delta_s, delta_ms, epoch_s, epoch_ms"}},
     .run = run_explain},
    {.name = NULL},
};
