/* rates.c: the service Rates.
 *
 * Owns: the replacement under way. Called by: call.c. Thread: rows are taken and checked on the server's, the table is
 * read and swapped on the loop's.
 *
 * Rows are gathered up to the table's capacity. There is one replacement at a time: a newer one sets the older aside,
 * so that a client that hangs cannot keep everybody out.
 */
#include <grpc/support/alloc.h>
#include <inttypes.h>
#include <string.h>

#include "shm/spw_map.h"
#include "sidecar/control/messages.h"
#include "sidecar/control/methods.h"
#include "sidecar/control/rate_rows.h"
#include "sidecar/control/server.h"
#include "sidecar/obs/log.h"

#define AHEAD_MAX_DAYS 31 /* tables come out before they hold; a wrong year is a slip */

struct replacement {
    uint32_t capacity_count;
    struct spw_rates_source sources[SPW_SOURCES_MAX_COUNT];
    struct spw_row_list rows[SPW_SOURCES_MAX_COUNT];
    size_t sources_count;
    uint64_t rows_count; /* over all sources */
    uint64_t expect_version;
    bool dry_run;
    bool upsert; /* the rows go into the table in force */
};

/* ---- replace: gathering ---- */

static enum spw_status take_header(struct replacement *r, const Spillway__V1__RatesHeader *header,
                                   struct spw_error *err)
{
    if (r->sources_count == SPW_SOURCES_MAX_COUNT)
        return spw_error_set(err, SPW_STATUS_INVALID, "header: more than %u sources: join some of the files",
                             SPW_SOURCES_MAX_COUNT);
    if (r->upsert && r->sources_count)
        return spw_error_set(err, SPW_STATUS_INVALID, "header: is the second one: an upsert has one source");
    struct spw_rates_source *source = &r->sources[r->sources_count];
    enum spw_status status = spw_name_check("header.source", header->source, err);
    if (status)
        return status;
    memcpy(source->name, header->source, strlen(header->source) + 1);
    if (!header->as_of)
        return spw_error_set(
            err, SPW_STATUS_INVALID,
            "header.as_of: is missing: give the day the rates were published for, as 2025-11-01");
    status = spw_parse_date_day(header->as_of, &source->as_of_day, err);
    if (status) {
        spw_error_prefix(err, "header.as_of: ");
        return status;
    }
    if (source->as_of_day > (int32_t)(spw_wall_ms() / 86400000) + AHEAD_MAX_DAYS)
        return spw_error_set(err, SPW_STATUS_INVALID,
                             "header.as_of: %s lies more than %d days ahead: its age would not count until "
                             "then; give the day the rates were published for",
                             header->as_of, AHEAD_MAX_DAYS);
    if (header->has_sha256 && header->sha256.len != sizeof source->sha256)
        return spw_error_set(err, SPW_STATUS_INVALID, "header.sha256: has %zu bytes: a SHA-256 has 32",
                             header->sha256.len);
    if (header->has_sha256)
        memcpy(source->sha256, header->sha256.data, sizeof source->sha256);
    if (r->sources_count && (header->has_expect_version || header->has_dry_run))
        return spw_error_set(err, SPW_STATUS_INVALID,
                             "header: expect_version and dry_run belong in the first header only");
    r->expect_version = r->sources_count ? r->expect_version : header->expect_version;
    r->dry_run = r->sources_count ? r->dry_run : header->dry_run;
    r->sources_count++;
    return SPW_STATUS_OK;
}

static enum spw_status take_rows(struct replacement *r, const Spillway__V1__RateRows *rows,
                                 struct spw_error *err)
{
    if (!r->sources_count)
        return spw_error_set(err, SPW_STATUS_INVALID, "rows: came before a header: send the header first");
    if (rows->n_rows > r->capacity_count - r->rows_count)
        return spw_error_set(err, SPW_STATUS_FULL,
                             "rows: there are more than the table's %u: raise segment.rate_records in the "
                             "configuration and restart",
                             r->capacity_count);
    enum spw_status status = spw_row_list_append(&r->rows[r->sources_count - 1], rows, err);
    if (!status)
        r->rows_count += rows->n_rows;
    return status;
}

static enum spw_status take_end(const struct replacement *r, const Spillway__V1__RatesEnd *end,
                                struct spw_error *err)
{
    if (!end->has_rows || end->rows != r->rows_count)
        return spw_error_set(err, SPW_STATUS_INVALID,
                             "end.rows: says %" PRIu64 ", but %" PRIu64
                             " rows arrived: send the whole table again",
                             end->rows, r->rows_count);
    if (!r->sources_count)
        return spw_error_set(err, SPW_STATUS_INVALID, "header: is missing: send a header and rows first");
    for (size_t i = 0; i < r->sources_count; i++) {
        if (!r->rows[i].count)
            return spw_error_set(err, SPW_STATUS_INVALID,
                                 "rows: source %s has none: leave the source out, or send its rows",
                                 r->sources[i].name);
    }
    return SPW_STATUS_OK;
}

/* ---- replace: swapping ---- */

static void answer_replace(struct spw_call *call, const struct replacement *r,
                           const struct spw_rates_view *view)
{
    struct spw_arena arena = {0};
    Spillway__V1__ReplaceRatesReply reply = SPILLWAY__V1__REPLACE_RATES_REPLY__INIT;
    reply.table = spw_message_rates_table(&arena, view);
    SPW_SET(&reply, rows, r->rows_count);
    SPW_SET(&reply, dry_run, r->dry_run);
    reply.reach = (char[]){SPW_REACH};
    SPW_SET(&reply, survives_restart, false);
    spw_call_reply(call, &reply.base);
    spw_arena_clean_up(&arena);
}

static void replace_on_loop(struct spw_call *call)
{
    struct replacement *r = call->own;
    struct spw_rates_view view;
    struct spw_error err;
    spw_state_rates_view(call->control->state, &view);
    if (r->expect_version && r->expect_version != view.version) {
        spw_call_refuse(call, GRPC_STATUS_ABORTED,
                        "header.expect_version: the table is at version %" PRIu64 ", not %" PRIu64
                        ": look at it again (Describe) and decide again",
                        view.version, r->expect_version);
        return;
    }
    for (size_t i = 0; i < r->sources_count; i++) {
        r->sources[i].rows = r->rows[i].rows;
        r->sources[i].rows_count = r->rows[i].count;
    }
    if (!r->dry_run) {
        char who[SPW_DOER_BYTES];
        struct spw_doer doer = {who, r->upsert ? "Rates.Upsert" : "Rates.Replace", 0};
        spw_doer_of_call(call, who, sizeof who);
        spw_record_look(call->control->record, NULL, &SPW_DOER_SIDECAR);
        enum spw_status status =
            r->upsert
                ? spw_state_rates_upsert(call->control->state, &r->sources[0], &view, &err)
                : spw_state_rates_replace(call->control->state, r->sources, r->sources_count, &view, &err);
        if (status) {
            spw_call_fail(call, &err);
            return;
        }
        spw_log(SPW_LOG_INFO, "control.rates",
                "%" PRIu64 " rows of %zu sources in force, version %" PRIu64 " (%s, %s)", r->rows_count,
                r->sources_count, view.version, r->upsert ? "put in" : "replaced", call->door->name);
        spw_record_look(call->control->record, NULL, &doer);
    }
    answer_replace(call, r, &view);
}

static void let_go(struct spw_call *call)
{
    if (call->control->replacing == call)
        call->control->replacing = NULL;
}

static void on_part(struct spw_call *call, ProtobufCMessage *message)
{
    static const char NO_END[] = "end: the stream ended without it: nothing was replaced";
    struct replacement *r = call->own;
    const Spillway__V1__ReplaceRatesRequest *request = (const Spillway__V1__ReplaceRatesRequest *)message;
    if (!request) {
        spw_call_refuse(call, GRPC_STATUS_INVALID_ARGUMENT, "%s", NO_END);
        return;
    }
    struct spw_error err = {.status = SPW_STATUS_OK};
    enum spw_status status;
    bool ended = false;
    switch (request->part_case) {
    case SPILLWAY__V1__REPLACE_RATES_REQUEST__PART_HEADER:
        status = take_header(r, request->header, &err);
        break;
    case SPILLWAY__V1__REPLACE_RATES_REQUEST__PART_ROWS:
        status = take_rows(r, request->rows, &err);
        break;
    case SPILLWAY__V1__REPLACE_RATES_REQUEST__PART_END:
        status = take_end(r, request->end, &err);
        ended = true;
        break;
    default:
        status = spw_error_set(&err, SPW_STATUS_INVALID, "part: is missing: set header, rows or end");
    }
    if (status) {
        spw_call_fail(call, &err);
    } else if (ended) {
        let_go(call); /* it is complete: a newer one comes after it */
        spw_call_to_loop(call, replace_on_loop);
    } else {
        spw_call_receive(call);
    }
}

static void capacity_on_loop(struct spw_call *call)
{
    struct replacement *r = call->own;
    struct spw_rates_view view;
    spw_state_rates_view(call->control->state, &view);
    r->capacity_count = view.capacity_count;
    spw_call_receive(call);
}

static void free_replacement(struct spw_call *call)
{
    struct replacement *r = call->own;
    for (size_t i = 0; i < SPW_SOURCES_MAX_COUNT; i++)
        spw_row_list_clean_up(&r->rows[i]);
    gpr_free(r);
}

static void begin(struct spw_call *call, bool upsert)
{
    struct replacement *r = gpr_zalloc(sizeof *r);
    r->upsert = upsert;
    call->own = r;
    call->on_free = free_replacement;
    call->on_message = on_part;
    call->on_closed = let_go;
    spw_call_to_loop(call, capacity_on_loop);
}

void spw_rates_replace_begin(struct spw_call *call)
{
    struct spw_control *control = call->control;
    if (control->replacing)
        spw_call_refuse(control->replacing, GRPC_STATUS_ABORTED,
                        "another replacement began: look at the table (Describe) and decide again");
    control->replacing = call;
    begin(call, false);
}

void spw_rates_upsert_begin(struct spw_call *call)
{
    begin(call, true);
}

/* ---- look-up ---- */

static void add_record(struct spw_arena *arena, Spillway__V1__LookupRateReply *reply,
                       const struct spw_rate_lookup *lookup)
{
    const struct spw_rate_record *record = &lookup->record;
    Spillway__V1__AppliedRates *rates = spw_arena_zalloc(arena, sizeof *rates);
    spillway__v1__applied_rates__init(rates);
    rates->state = spw_message_tax_rate(arena, record->state_ppb);
    rates->county = spw_message_tax_rate(arena, record->county_ppb);
    rates->city = spw_message_tax_rate(arena, record->city_ppb);
    rates->special = spw_message_tax_rate(arena, record->special_ppb);
    rates->combined = spw_message_tax_rate(arena, record->combined_ppb);
    rates->source = spw_arena_copy(arena, lookup->source.name, sizeof lookup->source.name);
    char day[32];
    spw_format_day(lookup->source.as_of_day, day, sizeof day);
    rates->as_of = spw_arena_copy(arena, day, sizeof day);
    rates->sha256 = spw_message_sha256(arena, lookup->source.sha256);
    SPW_SET(rates, age_days, lookup->age_days);
    SPW_SET(rates, stale, lookup->stale);
    reply->rates = rates;
    reply->state = spw_arena_copy(arena, record->state, sizeof record->state);
    if (record->level == SPW_RATE_ZIP5 || record->level == SPW_RATE_ZIP9)
        reply->zip5 = spw_arena_text(arena, "%05u", record->zip5);
    if (record->level == SPW_RATE_ZIP9) {
        SPW_SET(reply, plus4_lo, record->plus4_lo);
        SPW_SET(reply, plus4_hi, record->plus4_hi);
    }
    SPW_SET(reply, refused, lookup->refused);
    SPW_SET(reply, own_rate, record->tax_code_hash != 0 || lookup->match == SPW_MATCH_LEARNED);
    if (record->valid_from_day) {
        spw_format_day((int32_t)record->valid_from_day, day, sizeof day);
        reply->valid_from = spw_arena_copy(arena, day, sizeof day);
    }
    if (record->valid_to_day) {
        spw_format_day((int32_t)record->valid_to_day, day, sizeof day);
        reply->valid_to = spw_arena_copy(arena, day, sizeof day);
    }
}

static void lookup_on_loop(struct spw_call *call)
{
    const Spillway__V1__LookupRateRequest *request = (const Spillway__V1__LookupRateRequest *)call->request;
    struct spw_rate_lookup lookup;
    struct spw_error err;
    memset(&lookup, 0, sizeof lookup);
    struct spw_rate_question question = {.country = request->country ? request->country : "US",
                                         .state = request->state,
                                         .zip = request->zip,
                                         .tax_code = request->tax_code,
                                         .account = request->account,
                                         .from_state = request->ship_from_state};
    if (request->date && spw_parse_date_day(request->date, &question.day, &err)) {
        spw_error_prefix(&err, "date: ");
        spw_call_fail(call, &err);
        return;
    }
    if (spw_state_rates_lookup(call->control->state, &question, &lookup, &err)) {
        spw_call_fail(call, &err);
        return;
    }
    struct spw_arena arena = {0};
    Spillway__V1__LookupRateReply reply = SPILLWAY__V1__LOOKUP_RATE_REPLY__INIT;
    reply.match = spw_arena_text(&arena, "%s", spw_match_name(lookup.match));
    if (lookup.match != SPW_MATCH_NONE)
        add_record(&arena, &reply, &lookup);
    spw_call_reply(call, &reply.base);
    spw_arena_clean_up(&arena);
}

/* "98110", "98110-1234", "981101234" */
static bool is_zip(const char *text)
{
    static const char DIGITS[] = "0123456789";
    size_t head = strspn(text, DIGITS), bytes = strlen(text);
    return (head == bytes && (bytes == 5 || bytes == 9)) ||
           (head == 5 && bytes == 10 && text[5] == '-' && strspn(text + 6, DIGITS) == 4);
}

static bool is_two_capitals(const char *text)
{
    return text[0] >= 'A' && text[0] <= 'Z' && text[1] >= 'A' && text[1] <= 'Z' && !text[2];
}

void spw_rates_lookup_begin(struct spw_call *call)
{
    const Spillway__V1__LookupRateRequest *request = (const Spillway__V1__LookupRateRequest *)call->request;
    bool abroad = request->country && strcmp(request->country, "US") != 0;
    if (!request->zip && !request->state && !abroad)
        spw_call_refuse(call, GRPC_STATUS_INVALID_ARGUMENT,
                        "zip: is missing: give a ZIP code, a state, or both");
    else if (request->country && !is_two_capitals(request->country))
        spw_call_refuse(call, GRPC_STATUS_INVALID_ARGUMENT,
                        "country: is no ISO 3166-1 code: write two capital letters, as US");
    else if (request->state && !is_two_capitals(request->state))
        spw_call_refuse(call, GRPC_STATUS_INVALID_ARGUMENT,
                        "state: is no state: write two capital letters, as WA");
    else if (request->zip && !abroad && !is_zip(request->zip))
        spw_call_refuse(call, GRPC_STATUS_INVALID_ARGUMENT,
                        "zip: is no ZIP code: write 98110, 98110-1234 or 981101234");
    else
        spw_call_to_loop(call, lookup_on_loop);
}

/* ---- refresh ---- */

static Spillway__V1__RatesRefresh *refresh_message(struct spw_arena *arena, const struct spw_rates_refresh *r)
{
    Spillway__V1__RatesRefresh *message = spw_arena_zalloc(arena, sizeof *message);
    spillway__v1__rates_refresh__init(message);
    message->account = spw_arena_copy(arena, r->account, sizeof r->account);
    SPW_SET(message, running, r->running);
    if (r->succeeded_unix_ms)
        SPW_SET(message, succeeded_unix_ms, r->succeeded_unix_ms);
    if (r->tried_unix_ms)
        SPW_SET(message, tried_unix_ms, r->tried_unix_ms);
    SPW_SET(message, next_unix_ms, r->next_unix_ms);
    SPW_SET(message, successes, r->successes_count);
    SPW_SET(message, failures, r->failures_count);
    if (r->rows_count)
        SPW_SET(message, rows, r->rows_count);
    if (r->error[0])
        message->error = spw_arena_copy(arena, r->error, sizeof r->error);
    return message;
}

static Spillway__V1__RatesRefresh **refresh_messages(struct spw_arena *arena, struct spw_state *state,
                                                     size_t *count)
{
    const struct spw_rates_refreshes *all = spw_state_refreshes(state);
    Spillway__V1__RatesRefresh **list = spw_arena_zalloc(arena, (all->count + 1) * sizeof(void *));
    for (uint32_t i = 0; i < all->count; i++)
        list[i] = refresh_message(arena, &all->list[i]);
    *count = all->count;
    return list;
}

static void refresh_on_loop(struct spw_call *call)
{
    const Spillway__V1__RefreshRatesRequest *request =
        (const Spillway__V1__RefreshRatesRequest *)call->request;
    const struct spw_rates_refreshes *all = spw_state_refreshes(call->control->state);
    struct spw_error err;
    enum spw_status status =
        all->begin ? all->begin(all->owner, request->account, request->has_force && request->force, &err)
                   : spw_error_set(&err, SPW_STATUS_NOT_FOUND,
                                   "fallback.refresh names no account: nothing is fetched");
    if (status) {
        spw_call_fail(call, &err);
        return;
    }
    struct spw_arena arena = {0};
    Spillway__V1__RefreshRatesReply reply = SPILLWAY__V1__REFRESH_RATES_REPLY__INIT;
    reply.refreshes = refresh_messages(&arena, call->control->state, &reply.n_refreshes);
    spw_call_reply(call, &reply.base);
    spw_arena_clean_up(&arena);
}

void spw_rates_refresh_begin(struct spw_call *call)
{
    const Spillway__V1__RefreshRatesRequest *request =
        (const Spillway__V1__RefreshRatesRequest *)call->request;
    struct spw_error err;
    if (request->account && spw_name_check("account", request->account, &err))
        spw_call_fail(call, &err);
    else
        spw_call_to_loop(call, refresh_on_loop);
}

/* ---- describe ---- */

static void describe_on_loop(struct spw_call *call)
{
    struct spw_rates_view view;
    spw_state_rates_view(call->control->state, &view);
    struct spw_arena arena = {0};
    Spillway__V1__DescribeRatesReply reply = SPILLWAY__V1__DESCRIBE_RATES_REPLY__INIT;
    reply.table = spw_message_rates_table(&arena, &view);
    reply.refreshes = refresh_messages(&arena, call->control->state, &reply.n_refreshes);
    spw_call_reply(call, &reply.base);
    spw_arena_clean_up(&arena);
}

void spw_rates_describe(struct spw_call *call)
{
    spw_call_to_loop(call, describe_on_loop);
}
