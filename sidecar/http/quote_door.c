/* quote_door.c: see quote_door.h. */
#include "sidecar/http/quote_door.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "shm/spw_flag.h"
#include "sidecar/http/door.h"
#include "sidecar/http/decisions.h"
#include "sidecar/http/hold.h"
#include "sidecar/http/outgoing.h"
#include "sidecar/http/quote_json.h"
#include "sidecar/http/token.h"

#define CONNECTIONS_MAX  1024
#define SPARES_MAX_COUNT 64u

struct spw_quote_door {
    struct spw_quote_door_options options;
    struct spw_door *unix_door;
    struct spw_door *tcp_door;
    struct spw_token token;
    uint32_t order_hint;
    struct waiting *spares; /* used again: they are large, and the allocator slow with such */
    uint32_t spares_count;
};

/* One quote waiting for its decision. */
struct waiting {
    struct spw_hold_mark mark;
    struct spw_door_request *request;
    struct spw_job *job;
    struct spw_quote_door *door;
    bool durable;                       /* the answer waits for its flag's commit */
    char order_id[SPW_CALLER_ID_BYTES]; /* the order is placed with the answer; "" = not */
    struct waiting *next_spare;
    struct spw_quote_body body; /* last: not cleared for the next use */
};

/* ---- answers ---- */

static void answer_text(struct spw_door_request *request, uint32_t status,
                        const struct spw_door_header *headers, size_t count, char *text)
{
    if (!text) {
        static const char oom[] = "{\"error\":\"no-memory\",\"detail\":\"the sidecar is out of memory\"}";
        spw_door_answer(request, 500, "application/json", NULL, 0, oom, sizeof oom - 1);
        return;
    }
    spw_door_answer(request, status, "application/json", headers, count, text, strlen(text));
    free(text);
}

static void answer_error(struct spw_door_request *request, uint32_t status, const char *error,
                         const char *detail)
{
    answer_text(request, status, NULL, 0, spw_error_json(error, detail));
}

/* The caller's own fault: the same decision, whether the sidecar or the provider found it. */
static void answer_rejected(struct spw_door_request *request, uint32_t status, const char *error,
                            const char *detail)
{
    struct spw_door_header decision = {"Spillway-Decision", spw_decision_name(SPW_DECISION_REJECTED)};
    answer_text(request, status, &decision, 1, spw_error_json(error, detail));
}

static void answer_fault(struct spw_door_request *request, const struct spw_error *err)
{
    switch (err->status) {
    case SPW_STATUS_NOT_FOUND:
        answer_rejected(request, 404, "not-found", err->text);
        break;
    case SPW_STATUS_REFUSED:
        answer_rejected(request, 403, "forbidden", err->text);
        break;
    case SPW_STATUS_INVALID:
    case SPW_STATUS_PARSE:
        answer_rejected(request, 400, "bad-request", err->text);
        break;
    default:
        answer_error(request, 500, "internal", err->text);
    }
}

/* Numbers in headers; on the stack, for as long as the answer is being made. */
struct numbers {
    char tax_minor[24], rate_ppb[24], age_days[24];
    char lines[6 << 10]; /* what the door has room for, and clients read */
};

static void number_text(char out[24], int64_t number)
{
    struct spw_text t = spw_text_on(out, 24);
    spw_text_i64(&t, number);
}

/* "taxable/tax,...": the lines' numbers for callers that read no JSON. false: none, or longer than a header may be. */
static bool lines_text(char *out, size_t room, const struct spw_result *r)
{
    struct spw_text t = spw_text_on(out, room);
    for (uint32_t i = 0; i < r->lines_count; i++) {
        if (i)
            spw_text_put(&t, ",");
        spw_text_i64(&t, r->lines[i].taxable_minor);
        spw_text_put(&t, "/");
        spw_text_i64(&t, r->lines[i].tax_minor);
    }
    return t.used && !t.overflow;
}

/* What a result says in fixed headers. */
static size_t result_headers(const struct spw_result *r, struct numbers *numbers, struct spw_door_header *out)
{
    size_t n = 0;
    bool fallback = r->decision == SPW_DECISION_FALLBACK, live = r->decision == SPW_DECISION_LIVE;
    out[n++] = (struct spw_door_header){"Spillway-Decision", spw_decision_name(r->decision)};
    if (live || fallback) {
        uint32_t ppb = fallback ? r->fallback->rate.combined_ppb : r->answer->rate_ppb;
        number_text(numbers->tax_minor, r->tax_minor);
        number_text(numbers->rate_ppb, ppb);
        out[n++] = (struct spw_door_header){"Spillway-Quote", r->quote_id};
        out[n++] = (struct spw_door_header){"Spillway-Tax-Minor", numbers->tax_minor};
        out[n++] = (struct spw_door_header){"Spillway-Rate-Ppb", numbers->rate_ppb};
        if (lines_text(numbers->lines, sizeof numbers->lines, r))
            out[n++] = (struct spw_door_header){"Spillway-Lines-Minor", numbers->lines};
    }
    if (fallback) {
        number_text(numbers->age_days, r->fallback->age_days);
        out[n++] = (struct spw_door_header){"Spillway-Match", spw_match_name(r->fallback->match)};
        out[n++] = (struct spw_door_header){"Spillway-Age-Days", numbers->age_days};
        out[n++] = (struct spw_door_header){"Spillway-Stale", r->fallback->stale ? "1" : "0"};
        if (r->flag_id[0])
            out[n++] = (struct spw_door_header){"Spillway-Flag", r->flag_id};
    }
    if (fallback || r->decision == SPW_DECISION_NONE) {
        out[n++] = (struct spw_door_header){"Spillway-Type", spw_fallback_name(r->type)};
        out[n++] = (struct spw_door_header){"Spillway-Cause", spw_cause_name(r->cause)};
    }
    if (r->reason)
        out[n++] = (struct spw_door_header){"Spillway-Reason", r->reason};
    return n;
}

/* ---- quotes ---- */

/* NULL without memory. Its body is not parsed yet. */
static struct waiting *waiting_new(struct spw_quote_door *door)
{
    struct waiting *w = door->spares;
    if (w) {
        door->spares = w->next_spare;
        door->spares_count--;
    } else {
        w = malloc(sizeof *w);
    }
    if (w) {
        memset(w, 0, offsetof(struct waiting, body));
        w->door = door;
    }
    return w;
}

static void waiting_free(struct waiting *w)
{
    struct spw_quote_door *door = w->door;
    if (door->spares_count == SPARES_MAX_COUNT) {
        free(w);
        return;
    }
    w->next_spare = door->spares;
    door->spares = w;
    door->spares_count++;
}

static void waiting_end(struct waiting *w)
{
    spw_quote_body_clean_up(&w->body);
    waiting_free(w);
}

/* Does the caller ask for an answer after the commit? */
static bool wants_durable(const struct spw_door_request *request)
{
    const char *wait = spw_door_header(request, "Spillway-Wait");
    return wait && strcmp(wait, "durable") == 0;
}

/* Answer now, or when what has been recorded is durable. */
static void answer_when(struct spw_quote_door *door, struct spw_door_request *request, bool durable,
                        uint32_t status, const struct spw_door_header *headers, size_t count, char *text)
{
    if (!durable || !text || !spw_hold_answer(door->options.store, request, status, headers, count, text))
        answer_text(request, status, headers, count, text);
}

/* The order that came with its quote's request is placed at the tax of this answer. */
static bool place_with(struct waiting *w, const struct spw_result *r)
{
    const struct spw_quote_request *q = &w->body.request;
    struct spw_order_record record = {.op = SPW_ORDER_PLACED, .tax_collected_minor = r->tax_minor};
    record.created_unix_ms = record.placed_unix_ms = spw_wall_ms();
    snprintf(record.quote_id, sizeof record.quote_id, "%s", r->quote_id);
    snprintf(record.order_id, sizeof record.order_id, "%s", w->order_id);
    snprintf(record.account, sizeof record.account, "%s", q->account ? q->account : "");
    snprintf(record.currency, sizeof record.currency, "%s", q->currency ? q->currency : "USD");
    struct spw_quote_door *door = w->door;
    return spw_order_write(spw_state_map(door->options.state), door->order_hint++, &record) == SPW_STATUS_OK;
}

static void quote_decided(void *owner, const struct spw_result *r)
{
    static const uint32_t status_of[SPW_DECISION_COUNT] = {503, 200, 200, 422};
    struct waiting *w = owner;
    struct spw_door_header headers[18];
    struct numbers numbers;
    size_t count = result_headers(r, &numbers, headers);
    bool priced = r->decision == SPW_DECISION_LIVE || r->decision == SPW_DECISION_FALLBACK;
    if (priced && w->order_id[0]) {
        bool placed = place_with(w, r);
        headers[count++] = (struct spw_door_header){"Spillway-Order", placed ? "placed" : "not-recorded"};
    }
    if (w->durable || w->order_id[0])
        spw_store_wake(w->door->options.store);
    spw_door_set_user(w->request, NULL);
    answer_when(w->door, w->request, w->durable && priced, status_of[r->decision], headers, count,
                spw_result_json(r));
    waiting_end(w);
}

/* The headers of a quote that are no part of its body. false: answered. */
static bool read_quote_headers(struct waiting *w, struct spw_door_request *request)
{
    const char *order_id = spw_door_header(request, "Spillway-Order-Id");
    w->durable = wants_durable(request);
    if (!order_id)
        return true;
    if (!order_id[0] || strlen(order_id) >= sizeof w->order_id || !spw_text_is_name(order_id)) {
        answer_rejected(request, 400, "bad-request",
                        "Spillway-Order-Id: 1 to 71 bytes of text without control characters are expected");
        return false;
    }
    snprintf(w->order_id, sizeof w->order_id, "%s", order_id);
    return true;
}

/* A waiting quote of what was asked. NULL: answered. */
static struct waiting *take_quote(struct spw_quote_door *door, struct spw_door_request *request)
{
    struct spw_error err;
    size_t bytes;
    const char *body = spw_door_body(request, &bytes);
    struct waiting *w = waiting_new(door);
    if (!w) {
        answer_text(request, 500, NULL, 0, NULL);
        return NULL;
    }
    if (spw_quote_body_parse(body, bytes, &w->body, &err) != SPW_STATUS_OK) {
        waiting_free(w);
        answer_fault(request, &err);
        return NULL;
    }
    if (!read_quote_headers(w, request)) {
        waiting_end(w);
        return NULL;
    }
    w->request = request;
    return w;
}

static void quote(struct spw_quote_door *door, struct spw_door_request *request)
{
    struct waiting *w = take_quote(door, request);
    if (!w)
        return;
    uid_t uid;
    gid_t gid;
    if (spw_door_peer(request, &uid, &gid) != SPW_STATUS_OK)
        uid = (uid_t)-1;
    spw_door_set_user(request, w);
    struct spw_job *job = NULL;
    struct spw_error err;
    struct spw_trace trace;
    struct spw_ask ask = {.quote = &w->body.request, .uid = uid};
    if (spw_door_header(request, "traceparent")) {
        spw_outgoing_trace(spw_door_headers(request), &trace);
        ask.trace = &trace;
    }
    enum spw_status status = spw_force_read(spw_door_header(request, "Spillway-Force"), &ask.force, &err);
    if (status == SPW_STATUS_OK)
        status = spw_decider_start(door->options.decider, &ask, quote_decided, w, &job, &err);
    if (status != SPW_STATUS_OK) {
        spw_door_set_user(request, NULL);
        answer_fault(request, &err);
        waiting_end(w);
    } else if (spw_door_user(request) == w) {
        w->job = job; /* still in progress */
    }
}

/* The caller hung up: nobody waits for this answer any more. */
static void caller_gone(void *owner, struct spw_door_request *request)
{
    void *user = spw_door_user(request);
    (void)owner;
    if (!user)
        return;
    if (((const struct spw_hold_mark *)user)->held) {
        spw_hold_gone(user);
    } else {
        struct waiting *w = user;
        if (w->job)
            spw_job_cancel(w->job);
        waiting_end(w);
    }
    spw_door_set_user(request, NULL);
    spw_door_answer(request, 499, "text/plain", NULL, 0, "", 0);
}

/* ---- orders ---- */

static void record_order(struct spw_quote_door *door, struct spw_door_request *request,
                         const struct spw_order_record *record)
{
    enum spw_status status = spw_order_write(spw_state_map(door->options.state), door->order_hint++, record);
    if (status == SPW_STATUS_OK) {
        spw_store_wake(door->options.store);
        answer_when(door, request, wants_durable(request), 202, NULL, 0, strdup("{\"recorded\":true}"));
        return;
    }
    struct spw_door_header again = {"Retry-After", "1"};
    answer_text(
        request, 503, &again, 1,
        spw_error_json("no-cell", "no cell is free to record the order: send it again, it is idempotent"));
}

static void order_placed(struct spw_quote_door *door, struct spw_door_request *request)
{
    struct spw_order_record record;
    struct spw_error err;
    size_t bytes;
    const char *body = spw_door_body(request, &bytes);
    if (spw_order_body_parse(body, bytes, &record, &err) != SPW_STATUS_OK)
        answer_fault(request, &err);
    else
        record_order(door, request, &record);
}

/* An id in a path. false: answered. */
static bool take_id(struct spw_door_request *request, const char *what, const char *id, size_t bytes,
                    char *out, size_t room)
{
    if (bytes == 0 || bytes >= room) {
        answer_error(request, 400, "bad-request", what);
        return false;
    }
    for (size_t i = 0; i < bytes; i++) {
        bool plain = (id[i] >= '0' && id[i] <= '9') || (id[i] >= 'A' && id[i] <= 'Z') ||
                     (id[i] >= 'a' && id[i] <= 'z') || strchr("._-~:", id[i]);
        if (!plain) {
            answer_error(request, 400, "bad-request",
                         "the id in the path may hold letters, digits and . _ - ~ : only");
            return false;
        }
    }
    memcpy(out, id, bytes);
    return true;
}

/* A name out of the query. false: answered. */
static bool take_query(struct spw_door_request *request, const char *name, const char *what, char *out,
                       size_t room)
{
    const char *value = spw_door_query(request, name);
    bool ok = !value || (strlen(value) < room && spw_text_is_name(value));
    if (ok && value)
        memcpy(out, value, strlen(value) + 1);
    if (!ok)
        answer_error(request, 400, "bad-request", what);
    return ok;
}

/* id NULL: it stands in the query, where it may be any text. */
static void order_cancelled(struct spw_quote_door *door, struct spw_door_request *request, const char *id,
                            size_t bytes)
{
    struct spw_order_record record = {.op = SPW_ORDER_CANCELLED, .created_unix_ms = spw_wall_ms()};
    static const char bad_id[] = "order_id: at most 71 bytes of text without control characters are expected";
    bool ok = id ? take_id(request, "the order id in the path is empty or too long", id, bytes,
                           record.order_id, sizeof record.order_id)
                 : take_query(request, "order_id", bad_id, record.order_id, sizeof record.order_id);
    if (ok && !record.order_id[0]) {
        answer_error(request, 400, "bad-request", bad_id);
        ok = false;
    }
    if (ok && take_query(request, "account", "account: the name of one is expected", record.account,
                         sizeof record.account))
        record_order(door, request, &record);
}

static void quote_abandoned(struct spw_quote_door *door, struct spw_door_request *request, const char *id,
                            size_t bytes)
{
    struct spw_order_record record = {.op = SPW_ORDER_ABANDONED, .created_unix_ms = spw_wall_ms()};
    if (take_id(request, "the quote id in the path is empty or too long", id, bytes, record.quote_id,
                sizeof record.quote_id))
        record_order(door, request, &record);
}

/* ---- what was decided ---- */

static void decisions(struct spw_quote_door *door, struct spw_door_request *request)
{
    const char *reference = spw_door_query(request, "ref");
    if (!reference || !reference[0] || strlen(reference) >= SPW_CALLER_ID_BYTES ||
        !spw_text_is_name(reference)) {
        answer_error(request, 400, "bad-request",
                     "ref: an id of quote, decision, flag or order, or the caller's reference, is expected");
        return;
    }
    answer_text(request, 200, NULL, 0,
                spw_decisions_json(door->options.decider, door->options.store, reference));
}

/* ---- who and where ---- */

/* May this caller ask? Otherwise it has its answer. */
static bool admit(struct spw_quote_door *door, struct spw_door_request *request)
{
    uid_t uid;
    gid_t gid;
    if (spw_door_peer(request, &uid, &gid) == SPW_STATUS_OK) { /* the socket's mode and group have decided */
        if (!door->options.refuse_own_uid || uid != geteuid())
            return true;
        answer_error(
            request, 403, "forbidden",
            "this socket refuses the sidecar's own user id: run the application under another one, or "
            "leave out listen.require_app_uid_differs");
        return false;
    }
    const char *given = spw_door_header(request, "Authorization");
    if (given && strncmp(given, "Bearer ", 7) == 0 &&
        spw_token_matches(&door->token, given + 7, spw_loop_now_ns(door->options.loop)))
        return true;
    answer_error(request, 401, "unauthorized",
                 "this port asks for \"Authorization: Bearer TOKEN\" with the token from the pub volume");
    return false;
}

/* PREFIX/ID/SUFFIX; *id is where the id begins. */
static bool has_id(const char *path, const char *prefix, const char *suffix, const char **id, size_t *bytes)
{
    size_t n = strlen(path), before = strlen(prefix), after = strlen(suffix);
    if (n <= before + after || strncmp(path, prefix, before) != 0 || strcmp(path + n - after, suffix) != 0)
        return false;
    *id = path + before;
    *bytes = n - before - after;
    return true;
}

static void handle(void *owner, struct spw_door_request *request)
{
    struct spw_quote_door *door = owner;
    const char *path = spw_door_path(request);
    bool post = strcmp(spw_door_method(request), "POST") == 0;
    const char *id = NULL;
    size_t id_bytes = 0;
    bool is_quote = strcmp(path, "/spillway/v1/quote") == 0,
         is_order = strcmp(path, "/spillway/v1/orders") == 0;
    bool is_decisions = strcmp(path, "/spillway/v1/decisions") == 0;
    bool is_cancel = has_id(path, "/spillway/v1/orders/", "/cancel", &id, &id_bytes) ||
                     strcmp(path, "/spillway/v1/orders/cancel") == 0;
    bool is_abandon = !is_cancel && has_id(path, "/spillway/v1/quotes/", "/abandon", &id, &id_bytes);
    if (!admit(door, request))
        return;
    if (!is_quote && !is_order && !is_cancel && !is_abandon && !is_decisions) {
        answer_error(request, 404, "not-found",
                     "POST /spillway/v1/quote, /spillway/v1/quotes/{id}/abandon, /spillway/v1/orders or "
                     "/spillway/v1/orders/{id}/cancel, or GET /spillway/v1/decisions?ref=");
    } else if (is_decisions && strcmp(spw_door_method(request), "GET") != 0) {
        struct spw_door_header allow = {"Allow", "GET"};
        answer_text(request, 405, &allow, 1, spw_error_json("method-not-allowed", "use GET"));
    } else if (is_decisions) {
        decisions(door, request);
    } else if (!post) {
        struct spw_door_header allow = {"Allow", "POST"};
        answer_text(request, 405, &allow, 1, spw_error_json("method-not-allowed", "use POST"));
    } else if (is_quote) {
        quote(door, request);
    } else if (is_order) {
        order_placed(door, request);
    } else if (is_cancel) {
        order_cancelled(door, request, id, id_bytes);
    } else {
        quote_abandoned(door, request, id, id_bytes);
    }
}

/* ---- life ---- */

/* Of each door, and two descriptors for each connection: both doors together leave half of them to the rest. */
static uint32_t connections_max(void)
{
    struct rlimit files;
    uint64_t most = getrlimit(RLIMIT_NOFILE, &files) == 0 ? files.rlim_cur / 8 : 128;
    return most < CONNECTIONS_MAX ? (uint32_t)most : CONNECTIONS_MAX;
}

enum spw_status spw_quote_door_new(const struct spw_quote_door_options *options, struct spw_quote_door **out,
                                   struct spw_error *err)
{
    struct spw_quote_door *door = calloc(1, sizeof *door);
    *out = NULL;
    if (!door)
        return spw_error_set(err, SPW_STATUS_NO_MEMORY,
                             "quote door: no memory: raise the container's memory limit");
    door->options = *options;
    struct spw_door_options d;
    memset(&d, 0, sizeof d);
    d.body_max_bytes = 256 * 1024;
    d.connections_max = connections_max();
    d.handler = handle;
    d.gone = caller_gone;
    d.owner = door;
    d.unix_path = options->unix_path;
    d.unix_mode = 0660;
    d.unix_gid = options->gid == UINT32_MAX ? (gid_t)-1 : (gid_t)options->gid;
    enum spw_status status = spw_door_new(options->loop, &d, &door->unix_door, err);
    if (status == SPW_STATUS_OK && options->listen && options->listen[0]) {
        status = spw_token_open(&door->token, options->token_file, options->gid, err);
        d.unix_path = NULL;
        d.listen = options->listen;
        if (status == SPW_STATUS_OK)
            status = spw_door_new(options->loop, &d, &door->tcp_door, err);
    }
    if (status != SPW_STATUS_OK) {
        spw_quote_door_destroy(door);
        return status;
    }
    *out = door;
    return SPW_STATUS_OK;
}

void spw_quote_door_stop_listening(struct spw_quote_door *door)
{
    spw_door_stop_listening(door->unix_door);
    if (door->tcp_door)
        spw_door_stop_listening(door->tcp_door);
}

uint32_t spw_quote_door_open_count(const struct spw_quote_door *door)
{
    return spw_door_open_count(door->unix_door) + (door->tcp_door ? spw_door_open_count(door->tcp_door) : 0);
}

void spw_quote_door_destroy(struct spw_quote_door *door)
{
    if (!door)
        return;
    if (door->unix_door)
        spw_door_destroy(door->unix_door);
    if (door->tcp_door)
        spw_door_destroy(door->tcp_door);
    spw_token_clean_up(&door->token);
    while (door->spares) {
        struct waiting *w = door->spares;
        door->spares = w->next_spare;
        free(w);
    }
    free(door);
}
