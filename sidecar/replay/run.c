/* run.c: see run.h. */
#include "sidecar/replay/run.h"

#include <inttypes.h>

#include "shm/spw_text.h"
#include "sidecar/replay/lines.h"

#define OUT_BYTES 2048u

/* ,"name":value */
static void put_name(struct spw_text *t, const char *name)
{
    spw_text_put(t, ",\"");
    spw_text_put(t, name);
    spw_text_put(t, "\":");
}

static void put_text(struct spw_text *t, const char *name, const char *value)
{
    put_name(t, name);
    spw_text_json(t, value);
}

static void put_number(struct spw_text *t, const char *name, uint64_t value)
{
    put_name(t, name);
    spw_text_u64(t, value);
}

static void put_seconds(struct spw_text *t, const char *name, bool known, uint64_t ns)
{
    char text[SPW_REPLAY_SECONDS_BYTES];
    put_name(t, name);
    if (known)
        spw_replay_seconds_format(ns, text);
    spw_text_put(t, known ? "\"" : "null");
    spw_text_put(t, known ? text : "");
    spw_text_put(t, known ? "\"" : "");
}

static void put_wait(struct spw_text *t, const struct spw_replay_result *r)
{
    put_name(t, "wait_ns");
    if (r->wait_ns == SPW_FOREVER_NS)
        spw_text_put(t, "\"never\"");
    else
        spw_text_u64(t, r->wait_ns);
}

static void put_remaining(struct spw_text *t, const struct spw_replay_result *r)
{
    if (r->remaining_known) {
        put_number(t, "remaining", r->remaining_milli / 1000);
        put_number(t, "remaining_milli", r->remaining_milli);
    } else {
        spw_text_put(t, ",\"remaining\":null,\"remaining_milli\":null");
    }
}

static void put_result(struct spw_text *t, uint64_t line, const struct spw_replay_result *r)
{
    spw_text_put(t, "{\"line\":");
    spw_text_u64(t, line);
    put_seconds(t, "at", true, r->at_ns);
    put_text(t, "op", spw_replay_op_name(r->op));
    put_text(t, "account", r->account);
    put_text(t, "id", r->id);
    put_text(t, "verdict", r->verdict);
    put_text(t, "type", r->type == SPW_FALLBACK_NONE ? NULL : spw_fallback_name(r->type));
    put_text(t, "cause", r->cause == SPW_CAUSE_NONE ? NULL : spw_cause_name(r->cause));
    put_wait(t, r);
    put_remaining(t, r);
    put_text(t, "breaker", r->breaker);
    put_seconds(t, "gate_until", r->gate_shut, r->gate_until_ns);
    if (r->has_start)
        put_number(t, "start_at_ns", r->start_at_ns);
    if (r->probe)
        spw_text_put(t, ",\"probe\":true");
    if (r->observed)
        spw_text_put(t, ",\"observed\":true");
    if (r->forced && *r->forced)
        put_text(t, "forced", r->forced);
    if (r->op == SPW_REPLAY_SET)
        put_number(t, "version", r->version);
    put_number(t, "open", r->open_count);
    spw_text_put(t, "}\n");
}

static void put_error(struct spw_text *t, uint64_t line, const struct spw_error *err)
{
    spw_text_put(t, "{\"line\":");
    spw_text_u64(t, line);
    spw_text_put(t, ",\"error\":{\"code\":");
    spw_text_json(t, spw_status_name(err->status));
    put_text(t, "message", err->text);
    spw_text_put(t, "}}\n");
}

/* One line; *used says whether it was an event at all. */
static enum spw_status do_line(struct spw_replay *replay, const struct spw_replay_lines *lines,
                               struct spw_replay_reader *reader, struct spw_replay_result *result, bool *used,
                               struct spw_error *err)
{
    struct spw_replay_event event;
    char id[24];
    size_t blank = strspn(lines->line, " \t");
    *used = lines->too_long || (blank < lines->bytes && lines->line[blank] != '#');
    if (!*used)
        return SPW_STATUS_OK;
    if (lines->too_long)
        return spw_error_set(err, SPW_STATUS_INVALID, "is longer than %zu bytes: an event is shorter",
                             SPW_REPLAY_LINES_MAX_BYTES);
    struct spw_text t = spw_text_on(id, sizeof id);
    spw_text_u64(&t, lines->number);
    enum spw_status status = spw_replay_event_read(reader, lines->line, lines->bytes, &event, err);
    return status ? status : spw_replay_do(replay, &event, id, result, err);
}

static void answer(const struct spw_replay *replay, const struct spw_replay_options *options, uint64_t line,
                   const struct spw_replay_result *result)
{
    char buffer[OUT_BYTES];
    if (options->tally && result->account)
        spw_replay_tally_add(&options->tally[result->account_index], result,
                             spw_replay_account_deadline_ms(replay, result->account_index));
    if (!options->out)
        return;
    struct spw_text t = spw_text_on(buffer, sizeof buffer);
    put_result(&t, line, result);
    fwrite(buffer, 1, t.used, options->out);
}

static void answer_error(const struct spw_replay_options *options, uint64_t line, const struct spw_error *err)
{
    char buffer[OUT_BYTES * 3]; /* every byte of the text may need six */
    FILE *out = options->out ? options->out : stderr;
    struct spw_text t = spw_text_on(buffer, sizeof buffer);
    put_error(&t, line, err);
    fwrite(buffer, 1, t.used, out);
}

enum spw_status spw_replay_run(struct spw_replay *replay, const struct spw_replay_options *options,
                               struct spw_replay_counts *counts, struct spw_error *err)
{
    struct spw_replay_lines lines = {.fd = fileno(options->in), .out = options->out};
    struct spw_replay_reader reader = {0};
    struct spw_replay_result result = {0};
    enum spw_status status = SPW_STATUS_OK;
    memset(counts, 0, sizeof *counts);
    while (!status && (!options->out || !ferror(options->out)) && spw_replay_lines_next(&lines)) {
        bool used;
        struct spw_error fault = {0};
        status = do_line(replay, &lines, &reader, &result, &used, &fault);
        counts->events += used;
        if (status) {
            counts->errors++;
            *err = fault;
            spw_error_prefix(err, "%s:%" PRIu64 ": ", options->name, lines.number);
            if (options->keep_going)
                answer_error(options, lines.number, err);
            if (options->keep_going)
                status = SPW_STATUS_OK;
        } else if (used) {
            answer(replay, options, lines.number, &result);
        }
    }
    if (!status && lines.failed)
        status = spw_error_set(err, SPW_STATUS_SYSTEM, "%s: cannot be read: %s", options->name,
                               strerror(lines.failed));
    spw_replay_lines_clean_up(&lines);
    spw_replay_reader_clean_up(&reader);
    return status;
}
