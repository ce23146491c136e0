/* flag_message.c: a stored flag as the Flag of control.proto.
 *
 * Owns: spw_message_flag. Called by: flags.c. Thread: any; pure. Texts of a record may lack their NUL or be no UTF-8
 * (a client wrote them), so each is copied by its room and repaired.
 */
#include <string.h>

#include "sidecar/control/messages.h"

#define COPY(arena, field) spw_arena_utf8(arena, field, sizeof(field))

/* The states of spw_breaker.h's word, in its order. */
static const char *breaker_word(uint8_t state)
{
    static const char *const words[] = {"closed", "open", "half-open"};
    return state < sizeof words / sizeof *words ? words[state] : "unknown";
}

static char *word(struct spw_arena *arena, const char *text)
{
    return spw_arena_copy(arena, text, 64);
}

static Spillway__V1__FlagEvidence *message_evidence(struct spw_arena *arena, const struct spw_flag_record *r)
{
    Spillway__V1__FlagEvidence *message = spw_arena_zalloc(arena, sizeof *message);
    spillway__v1__flag_evidence__init(message);
    if (r->evidence_known & SPW_EVIDENCE_LIMIT)
        SPW_SET(message, limit, r->limit_count);
    if (r->evidence_known & SPW_EVIDENCE_REMAINING)
        SPW_SET(message, remaining, r->remaining_count);
    if (r->evidence_known & SPW_EVIDENCE_RESET)
        SPW_SET(message, reset_unix_ms, r->reset_unix_ms);
    message->breaker = word(arena, breaker_word(r->breaker_state));
    if (r->provider_status)
        SPW_SET(message, provider_status, r->provider_status);
    SPW_SET(message, attempts, r->attempts);
    SPW_SET(message, bucket_tokens_milli, r->bucket_tokens_milli);
    SPW_SET(message, config_version, r->config_version);
    return message;
}

static bool has_table_rate(const struct spw_flag_record *r)
{
    return r->match == SPW_MATCH_ZIP9 || r->match == SPW_MATCH_ZIP5 || r->match == SPW_MATCH_STATE ||
           r->match == SPW_MATCH_COUNTRY || r->match == SPW_MATCH_LEARNED || r->source[0];
}

static Spillway__V1__AppliedRates *message_rates(struct spw_arena *arena, const struct spw_flag_record *r)
{
    Spillway__V1__AppliedRates *message = spw_arena_zalloc(arena, sizeof *message);
    spillway__v1__applied_rates__init(message);
    message->state = spw_message_tax_rate(arena, r->state_ppb);
    message->county = spw_message_tax_rate(arena, r->county_ppb);
    message->city = spw_message_tax_rate(arena, r->city_ppb);
    message->special = spw_message_tax_rate(arena, r->special_ppb);
    message->combined = spw_message_tax_rate(arena, r->combined_ppb);
    if (!has_table_rate(r))
        return message;
    message->source = COPY(arena, r->source);
    char day[32];
    spw_format_day(r->as_of_day, day, sizeof day);
    message->as_of = COPY(arena, day);
    message->sha256 = spw_message_sha256(arena, r->source_sha256);
    SPW_SET(message, age_days, r->age_days);
    SPW_SET(message, stale, r->stale != 0);
    return message;
}

static Spillway__V1__FlagOrigin *message_origin(struct spw_arena *arena, const struct spw_flag_record *r)
{
    Spillway__V1__FlagOrigin *message = spw_arena_zalloc(arena, sizeof *message);
    spillway__v1__flag_origin__init(message);
    message->writer = word(arena, r->origin == 0 ? "segment" : r->origin == 1 ? "loop" : "import");
    SPW_SET(message, uid, r->uid);
    if (!r->origin) {
        SPW_SET(message, slot, r->slot);
        SPW_SET(message, slot_generation, r->slot_generation);
    }
    SPW_SET(message, account_index, r->account_index);
    SPW_SET(message, account_generation, r->account_generation);
    return message;
}

static Spillway__V1__FlagDestination *message_destination(struct spw_arena *arena,
                                                          const struct spw_flag_record *r)
{
    Spillway__V1__FlagDestination *message = spw_arena_zalloc(arena, sizeof *message);
    spillway__v1__flag_destination__init(message);
    message->country = COPY(arena, r->country);
    message->state = COPY(arena, r->state);
    message->zip = COPY(arena, r->zip);
    return message;
}

static Spillway__V1__FlagOrder *message_order(struct spw_arena *arena, const struct spw_flag_row *row)
{
    if (!row->order_id || !*row->order_id)
        return NULL;
    Spillway__V1__FlagOrder *message = spw_arena_zalloc(arena, sizeof *message);
    spillway__v1__flag_order__init(message);
    message->order_id = spw_arena_utf8(arena, row->order_id, SPW_CALLER_ID_BYTES);
    message->tax_collected = spw_message_money(arena, row->tax_collected_minor);
    SPW_SET(message, placed_unix_ms, row->placed_unix_ms);
    return message;
}

static char *text_or_null(struct spw_arena *arena, const char *text, size_t room)
{
    return text && *text ? spw_arena_utf8(arena, text, room) : NULL;
}

static Spillway__V1__FlagReconciliation *message_reconciliation(struct spw_arena *arena,
                                                                const struct spw_reconciliation *r)
{
    if (r->state == SPW_RECONCILE_NONE && r->filing == SPW_FILING_NONE)
        return NULL;
    Spillway__V1__FlagReconciliation *message = spw_arena_zalloc(arena, sizeof *message);
    spillway__v1__flag_reconciliation__init(message);
    message->state = word(arena, spw_reconcile_state_name(r->state));
    if (r->live_known) {
        message->live_tax = spw_message_money(arena, r->variance.live_tax_minor);
        message->variance = spw_message_money(arena, r->variance.variance_minor);
        message->rounding_noise = spw_message_money(arena, r->variance.rounding_noise_minor);
        message->rate_difference = spw_message_money(arena, r->variance.rate_minor);
        message->base_difference = spw_message_money(arena, r->variance.base_minor);
        message->nexus_difference = spw_message_money(arena, r->variance.nexus_minor);
    }
    SPW_SET(message, attempts, r->attempts);
    message->reason = text_or_null(arena, r->last_error, 256);
    if (r->reconciled_unix_ms)
        SPW_SET(message, reconciled_unix_ms, r->reconciled_unix_ms);
    message->filing = word(arena, spw_filing_state_name(r->filing));
    message->filing_error = text_or_null(arena, r->filing_error, 256);
    message->document_id = text_or_null(arena, r->document_id, SPW_DOCUMENT_BYTES);
    message->decision = text_or_null(arena, r->decision, 32);
    message->note = text_or_null(arena, r->note, SPW_NOTE_BYTES);
    message->by = text_or_null(arena, r->by, 64);
    return message;
}

static void add_orders(struct spw_arena *arena, Spillway__V1__Flag *message, const struct spw_flag_row *row)
{
    message->n_orders = row->orders_listed;
    message->orders = spw_arena_zalloc(arena, (row->orders_listed + 1) * sizeof(void *));
    for (size_t i = 0; i < row->orders_listed; i++) {
        Spillway__V1__FlagOrder *order = spw_arena_zalloc(arena, sizeof *order);
        spillway__v1__flag_order__init(order);
        order->order_id = spw_arena_utf8(arena, row->orders[i].order_id, SPW_CALLER_ID_BYTES);
        order->tax_collected = spw_message_money(arena, row->orders[i].tax_collected_minor);
        SPW_SET(order, placed_unix_ms, row->orders[i].placed_unix_ms);
        message->orders[i] = order;
    }
}

static void add_lines(struct spw_arena *arena, Spillway__V1__Flag *message, const struct spw_flag_row *row)
{
    size_t count = row->lines ? row->record.lines_count : 0;
    if (count > SPW_LINES_MAX_COUNT + 1) /* shipping is one more */
        count = SPW_LINES_MAX_COUNT + 1;
    message->n_lines = count;
    message->lines = spw_arena_zalloc(arena, (count + 1) * sizeof(void *));
    for (size_t i = 0; i < count; i++) {
        Spillway__V1__FlagLine *line = spw_arena_zalloc(arena, sizeof *line);
        spillway__v1__flag_line__init(line);
        line->taxable = spw_message_money(arena, row->lines[i].taxable_minor);
        line->tax = spw_message_money(arena, row->lines[i].tax_minor);
        message->lines[i] = line;
    }
}

/* One assumption a line of text. */
static void add_assumptions(struct spw_arena *arena, Spillway__V1__Flag *message, const char *text)
{
    size_t count = 0;
    for (const char *p = text ? text : ""; *p; p += strcspn(p, "\n"), p += *p == '\n')
        count++;
    message->assumptions = spw_arena_zalloc(arena, (count + 1) * sizeof *message->assumptions);
    for (const char *p = text ? text : ""; *p; p += strcspn(p, "\n"), p += *p == '\n') {
        size_t bytes = strcspn(p, "\n");
        if (bytes)
            message->assumptions[message->n_assumptions++] = spw_arena_utf8(arena, p, bytes);
    }
}

Spillway__V1__Flag *spw_message_flag(struct spw_arena *arena, const struct spw_flag_row *row)
{
    const struct spw_flag_record *r = &row->record;
    Spillway__V1__Flag *message = spw_arena_zalloc(arena, sizeof *message);
    spillway__v1__flag__init(message);
    SPW_SET(message, sequence, row->sequence);
    message->state = word(arena, spw_flag_state_name(row->state));
    SPW_SET(message, stored_unix_ms, row->stored_unix_ms);
    message->flag_id = COPY(arena, r->flag_id);
    message->quote_id = COPY(arena, r->quote_id);
    message->decision_id = COPY(arena, r->decision_id);
    message->quote_ref = COPY(arena, r->quote_ref);
    message->account = COPY(arena, r->account);
    message->integration = COPY(arena, r->integration);
    message->purpose = word(arena, spw_purpose_name(r->purpose));
    SPW_SET(message, created_unix_ms, r->created_unix_ms);
    message->type = word(arena, spw_fallback_name(r->type));
    message->cause = word(arena, spw_cause_name(r->cause));
    message->evidence = message_evidence(arena, r);
    message->destination = message_destination(arena, r);
    message->date = COPY(arena, r->date);
    message->currency = COPY(arena, r->currency);
    message->match = word(arena, spw_match_name(r->match));
    message->rates = message_rates(arena, r);
    message->rounding = word(arena, spw_rounding_name(r->rounding));
    message->total = spw_message_money(arena, r->total_minor);
    message->taxable = spw_message_money(arena, r->taxable_minor);
    message->tax = spw_message_money(arena, r->tax_minor);
    add_lines(arena, message, row);
    add_assumptions(arena, message, row->assumptions);
    message->request_json =
        spw_arena_utf8(arena, row->request_json ? row->request_json : "", SPW_REQUEST_MAX_BYTES);
    message->order = message_order(arena, row);
    message->origin = message_origin(arena, r);
    SPW_SET(message, change, row->change);
    SPW_SET(message, revision, row->revision);
    SPW_SET(message, verified, row->verified);
    if (!row->verified)
        message->unverified_reason = spw_arena_copy(arena, row->unverified_reason, 256);
    SPW_SET(message, orders_count, row->orders_count);
    message->reconciliation = message_reconciliation(arena, &row->reconciliation);
    add_orders(arena, message, row);
    return message;
}
