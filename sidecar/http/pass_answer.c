/* pass_answer.c: what an SDK is answered: the provider's own words, or a fallback in the provider's own form.
 *
 * Owns: the headers of an answer. Called by: pass_door.c. Thread: the loop thread.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "shm/spw_text.h"
#include "sidecar/http/pass_internal.h"

#define HEADERS_MAX_COUNT 64u
#define THEIRS_MAX_BYTES  (6u << 10) /* there is room for them whatever the request took: request_check.c */
#define NUMBER_BYTES      24

/* Headers being gathered. */
struct headers {
    size_t count, numbers_count;
    char *theirs; /* a copy of the provider's, names and values cut out of it */
    char numbers[4][NUMBER_BYTES];
    struct spw_door_header list[HEADERS_MAX_COUNT];
};

static void headers_init(struct headers *h)
{
    h->count = h->numbers_count = 0;
    h->theirs = NULL;
}

static void put(struct headers *h, const char *name, const char *value)
{
    if (h->count < HEADERS_MAX_COUNT && value)
        h->list[h->count++] = (struct spw_door_header){name, value};
}

static void put_number(struct headers *h, const char *name, int64_t value)
{
    if (h->numbers_count < sizeof h->numbers / sizeof h->numbers[0]) {
        char *text = h->numbers[h->numbers_count++];
        struct spw_text t = spw_text_on(text, NUMBER_BYTES);
        spw_text_i64(&t, value);
        put(h, name, text);
    }
}

static void headers_free(struct headers *h)
{
    free(h->theirs);
}

/* What makes the provider's SDKs leave it at this answer. */
static void put_no_retry(struct headers *h, const struct spw_profile *profile)
{
    if (profile->no_retry_header)
        put(h, profile->no_retry_header, "false");
}

static void answer_native(struct spw_door_request *request, struct spw_native_answer *answer,
                          struct headers *h)
{
    spw_door_answer(request, answer->status, answer->content_type, h->list, h->count, answer->body,
                    answer->body_bytes);
    spw_native_answer_clean_up(answer);
    headers_free(h);
}

void spw_pass_answer_error(struct spw_pass_account *account, struct spw_door_request *request,
                           uint32_t status, uint64_t retry_after_s, const char *message)
{
    static const char plain[] = "{\"error\":\"spillway\"}";
    struct headers h;
    struct spw_native_answer answer;
    struct spw_error err;
    headers_init(&h);
    memset(&answer, 0, sizeof answer);
    put_no_retry(&h, account->profile);
    if (retry_after_s)
        put_number(&h, "Retry-After", (int64_t)retry_after_s);
    if (account->profile->native_error(status, message, &answer, &err) == SPW_STATUS_OK) {
        answer.status = status;
        answer_native(request, &answer, &h);
        return;
    }
    spw_door_answer(request, status, "application/json", h.list, h.count, plain, sizeof plain - 1);
    headers_free(&h);
}

/* The provider's headers, but for those that belong to its connection or are too large; gives its content type. */
static const char *put_theirs(struct headers *h, const char *block)
{
    const char *content_type = NULL;
    size_t bytes = 0;
    struct spw_header_part part;
    const char *connection = spw_header_connection(block);
    block = h->theirs = strdup(block);
    while (block && (block = spw_header_next(block, &part)) && h->count + 12 < HEADERS_MAX_COUNT) {
        size_t more = part.name_bytes + part.value_bytes + 4;
        if (bytes + more > THEIRS_MAX_BYTES)
            continue;
        bytes += more;
        bool is_type = part.name_bytes == 12 && strncasecmp(part.name, "Content-Type", 12) == 0;
        bool passes = !is_type && spw_header_passes_back(connection, &part);
        h->theirs[part.name + part.name_bytes - h->theirs] = 0;
        h->theirs[part.value + part.value_bytes - h->theirs] = 0;
        if (is_type && !content_type)
            content_type = part.value;
        if (passes)
            put(h, part.name, part.value);
    }
    return content_type;
}

static void put_result(struct headers *h, const struct spw_result *r)
{
    bool fallback = r->decision == SPW_DECISION_FALLBACK;
    put(h, "Spillway-Decision", spw_decision_name(r->decision));
    if (r->decision != SPW_DECISION_LIVE && !fallback)
        return;
    put(h, "Spillway-Quote", r->quote_id);
    put_number(h, "Spillway-Tax-Minor", r->tax_minor);
    if (!fallback)
        return;
    put(h, "Spillway-Type", spw_fallback_name(r->type));
    put(h, "Spillway-Cause", spw_cause_name(r->cause));
    put(h, "Spillway-Flag", r->flag_id[0] ? r->flag_id : NULL);
    if (r->fallback)
        put_number(h, "Spillway-Rate-Ppb", r->fallback->rate.combined_ppb);
}

void spw_pass_answer_live(struct spw_passing *p, const struct spw_http_response *response,
                          const struct spw_result *result)
{
    struct headers h;
    headers_init(&h);
    const char *content_type = put_theirs(&h, response->headers);
    if (result)
        put_result(&h, result);
    spw_door_answer(p->request, response->status, content_type, h.list, h.count, response->body,
                    response->body_bytes);
    headers_free(&h);
}

static void describe(const struct spw_result *r, struct spw_native_fallback *out)
{
    memset(out, 0, sizeof *out);
    out->quote_id = r->quote_id;
    out->flag_id = r->flag_id;
    out->type = spw_fallback_name(r->type);
    out->cause = spw_cause_name(r->cause);
    out->now_unix_ms = r->decided_unix_ms;
    out->tax_minor = r->tax_minor;
    out->lines = r->lines;
    if (r->fallback) {
        out->state_ppb = r->fallback->rate.state_ppb;
        out->county_ppb = r->fallback->rate.county_ppb;
        out->city_ppb = r->fallback->rate.city_ppb;
        out->special_ppb = r->fallback->rate.special_ppb;
        out->combined_ppb = r->fallback->rate.combined_ppb;
    }
}

void spw_pass_answer_fallback(struct spw_passing *p, const struct spw_result *result)
{
    struct headers h;
    struct spw_native_fallback fallback;
    struct spw_native_answer answer;
    struct spw_error err;
    headers_init(&h);
    memset(&answer, 0, sizeof answer);
    describe(result, &fallback);
    if (p->account->profile->native_fallback(&p->native, &p->quote, &fallback, &answer, &err) !=
        SPW_STATUS_OK) {
        spw_pass_answer_error(p->account, p->request, 503, 0, err.text);
        return;
    }
    put_result(&h, result);
    put_no_retry(&h, p->account->profile);
    answer_native(p->request, &answer, &h);
}

void spw_pass_answer_recorded(struct spw_passing *p, const struct spw_result *result)
{
    static const char message[] =
        "This sale was calculated from cached rates and is in Spillway's ledger as an order. It is not in "
        "the "
        "provider's books yet: reconciliation files it. Do not record it elsewhere.";
    struct headers h;
    struct spw_native_fallback fallback;
    struct spw_native_answer answer;
    struct spw_error err;
    const struct spw_profile *profile = p->account->profile;
    headers_init(&h);
    memset(&answer, 0, sizeof answer);
    describe(result, &fallback);
    put_result(&h, result);
    put(&h, "Spillway-Recorded", "order");
    put_no_retry(&h, profile);
    if (profile->native_recorded &&
        profile->native_recorded(&p->native, &fallback, &answer, &err) == SPW_STATUS_OK) {
        answer_native(p->request, &answer, &h);
        return;
    }
    put_number(&h, "Retry-After", 3600); /* reconciliation is due within the hour */
    if (profile->native_error(429, message, &answer, &err) == SPW_STATUS_OK) {
        answer.status = 429;
        answer_native(p->request, &answer, &h);
        return;
    }
    headers_free(&h);
    spw_pass_answer_error(p->account, p->request, 429, 3600, message);
}
