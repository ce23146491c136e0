/* spw_flag.h: making the record of a fallback and getting it into a cell.
 *
 * Owns: what a flag says. Called by: the client header and the sidecar's decision tree, so that both write the same
 * record. Thread/process: any; no system call but the two clocks.
 */
#ifndef SPW_FLAG_H
#define SPW_FLAG_H

#include "shm/spw_admission.h"
#include "shm/spw_cell.h"
#include "shm/spw_fallback.h"
#include "shm/spw_ref.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Everything a flag is made from. Texts are borrowed. */
struct spw_flag_facts {
    const struct spw_quote_request *request;
    const char *request_json; /* the normalised request */
    size_t request_bytes;
    const struct spw_fallback_answer *answer;
    const struct spw_line_tax *lines; /* request->line_count + 1 */
    const char *flag_id, *quote_id, *decision_id;
    uint32_t account_index, account_generation;
    enum spw_fallback type;
    enum spw_cause cause;
    uint8_t origin; /* 0 segment, 1 loop */
    uint32_t uid;
    uint32_t provider_status; /* 0 = no answer */
    uint32_t attempts;
    uint32_t breaker_state;
    uint64_t tokens_milli;
    uint64_t config_version;
};

static inline void spw__text_field(char *out, size_t room, const char *text)
{
    memset(out, 0, room);
    for (size_t i = 0; text && text[i] && i + 1 < room; i++)
        out[i] = text[i];
}
#define SPW__SET(array, text) spw__text_field(array, sizeof(array), text)

/* What the provider last said; false only when the publisher kept overtaking. */
static inline bool spw_evidence_read(const struct spw_account *account, struct spw_evidence *out)
{
    return spw_latch_read(&account->evidence_seq, (const uint64_t *)(const void *)account->evidence,
                          sizeof *out / 8, out, sizeof *out / 8);
}

static inline void spw__flag_evidence(const struct spw_map *map, uint32_t account_index,
                                      struct spw_flag_record *r)
{
    const struct spw_account *account = spw_account_at(map, account_index);
    struct spw_evidence e;
    if (!account || !spw_evidence_read(account, &e))
        return;
    r->evidence_known = (uint8_t)e.known;
    r->limit_count = e.limit_count;
    r->remaining_count = e.remaining_count;
    r->reset_unix_ms = e.reset_unix_ms;
}

static inline void spw_flag_fill(const struct spw_map *map, const struct spw_flag_facts *f,
                                 struct spw_flag_record *r)
{
    const struct spw_quote_request *q = f->request;
    const struct spw_fallback_answer *a = f->answer;
    struct spw_place place;
    memset(r, 0, sizeof *r);
    SPW__SET(r->flag_id, f->flag_id);
    SPW__SET(r->quote_id, f->quote_id);
    SPW__SET(r->decision_id, f->decision_id);
    SPW__SET(r->quote_ref, q->quote_ref);
    SPW__SET(r->account, q->account);
    SPW__SET(r->integration, q->integration);
    SPW__SET(r->currency, q->currency ? q->currency : "USD");
    SPW__SET(r->zip, q->ship_to.zip);
    SPW__SET(r->date, q->date);
    (void)spw_place_from(&q->ship_to, &place);
    SPW__SET(r->country, place.country);
    SPW__SET(r->state, place.state[0] ? place.state : a->rate.state);
    r->account_index = f->account_index;
    r->account_generation = f->account_generation;
    r->created_unix_ms = spw_wall_ms();
    r->created_ns = spw_now_ns();
    r->origin = f->origin;
    r->type = (uint8_t)f->type;
    r->cause = (uint8_t)f->cause;
    r->purpose = (uint8_t)q->purpose;
    r->match = (uint8_t)a->match;
    r->rounding = (uint8_t)a->rounding;
    r->breaker_state = (uint8_t)f->breaker_state;
    r->provider_status = (uint16_t)f->provider_status;
    r->attempts = (uint16_t)f->attempts;
    r->uid = f->uid;
    r->bucket_tokens_milli = f->tokens_milli;
    r->config_version = f->config_version;
    spw__flag_evidence(map, f->account_index, r);
    r->taxable_minor = a->taxable_minor;
    r->total_minor = a->total_minor;
    r->tax_minor = a->tax_minor;
    r->state_ppb = a->rate.state_ppb;
    r->county_ppb = a->rate.county_ppb;
    r->city_ppb = a->rate.city_ppb;
    r->special_ppb = a->rate.special_ppb;
    r->combined_ppb = a->rate.combined_ppb;
    r->as_of_day = a->source.as_of_day;
    r->age_days = a->age_days;
    r->stale = a->stale;
    SPW__SET(r->source, a->source.name);
    memcpy(r->source_sha256, a->source.sha256, sizeof r->source_sha256);
    r->lines_count = q->line_count + 1;
    r->assumptions_bytes = (uint32_t)a->assumptions_bytes;
    r->request_bytes = (uint32_t)f->request_bytes;
    r->slot = map->self.slot;
    r->slot_generation = map->self.generation;
}

/* Record the flag. OK: it survives the SIGKILL of every process; see spw_cell_write for the rest. */
static inline enum spw_status SPW_WARN_UNUSED spw_flag_write(const struct spw_map *map, uint32_t hint,
                                                             const struct spw_flag_record *record,
                                                             const struct spw_flag_facts *f)
{
    struct spw_cell_prefix prefix = {SPW_CELL_FLAG, sizeof *record};
    struct spw_part parts[5];
    parts[0].bytes = &prefix;
    parts[0].count = sizeof prefix;
    parts[1].bytes = record;
    parts[1].count = sizeof *record;
    parts[2].bytes = f->lines;
    parts[2].count = record->lines_count * sizeof f->lines[0];
    parts[3].bytes = f->answer->assumptions;
    parts[3].count = record->assumptions_bytes;
    parts[4].bytes = f->request_json;
    parts[4].count = record->request_bytes;
    return spw_cell_write(map, hint, parts, 5);
}

/* The flag as one line of JSON: what a caller keeps itself when no cell is free, for no ledger has it. Returns its
 * bytes, 0 when it does not fit. */
static inline size_t spw_flag_line(const struct spw_flag_record *r, const char *request_json,
                                   size_t request_bytes, char *out, size_t room)
{
    struct spw_text t = spw_text_on(out, room);
    spw_text_put(&t, "{");
    spw__json_field(&t, "flag_id", r->flag_id);
    spw__json_field(&t, "quote_id", r->quote_id);
    spw__json_field(&t, "decision_id", r->decision_id);
    spw__json_field(&t, "account", r->account);
    spw__json_field(&t, "integration", r->integration);
    spw__json_field(&t, "type", spw_fallback_name(r->type));
    spw__json_field(&t, "cause", spw_cause_name(r->cause));
    spw__json_field(&t, "match", spw_match_name(r->match));
    spw__json_field(&t, "purpose", spw_purpose_name(r->purpose));
    spw__json_field(&t, "rounding", spw_rounding_name(r->rounding));
    spw__json_field(&t, "quote_ref", r->quote_ref);
    spw__json_field(&t, "country", r->country);
    spw__json_field(&t, "state", r->state);
    spw__json_field(&t, "zip", r->zip);
    spw__json_field(&t, "date", r->date);
    spw__json_field(&t, "currency", r->currency);
    spw__json_field(&t, "source", r->source);
    spw_text_put(&t, ",\"created_unix_ms\":");
    spw_text_i64(&t, r->created_unix_ms);
    spw_text_put(&t, ",\"as_of_day\":");
    spw_text_i64(&t, r->as_of_day);
    spw_text_put(&t, ",\"tax\":\"");
    spw_text_decimal(&t, r->tax_minor, 2, false);
    spw_text_put(&t, "\",\"taxable\":\"");
    spw_text_decimal(&t, r->taxable_minor, 2, false);
    spw_text_put(&t, "\",\"total\":\"");
    spw_text_decimal(&t, r->total_minor, 2, false);
    spw_text_put(&t, "\",\"rate\":\"");
    spw_text_decimal(&t, r->combined_ppb, 9, true);
    spw_text_put(&t, "\",\"request\":");
    spw_text_bytes(&t, request_json, request_bytes);
    spw_text_put(&t, "}");
    return t.overflow ? 0 : t.used;
}

/* An order event into a cell. */
static inline enum spw_status SPW_WARN_UNUSED spw_order_write(const struct spw_map *map, uint32_t hint,
                                                              const struct spw_order_record *record)
{
    struct spw_cell_prefix prefix = {SPW_CELL_ORDER, sizeof *record};
    struct spw_part parts[2];
    parts[0].bytes = &prefix;
    parts[0].count = sizeof prefix;
    parts[1].bytes = record;
    parts[1].count = sizeof *record;
    return spw_cell_write(map, hint, parts, 2);
}

/* Ids: "sq_" or "sf_" + 32 hex digits; 64 random bits of the process and 64 bits of a counter with a random start. */
static inline void spw_id_make(char out[SPW_ID_BYTES], const char *prefix, uint64_t high, uint64_t low)
{
    static const char hex[] = "0123456789abcdef";
    memset(out, 0, SPW_ID_BYTES);
    memcpy(out, prefix, 3);
    for (int i = 0; i < 16; i++) {
        out[3 + i] = hex[high >> (60 - 4 * i) & 15];
        out[19 + i] = hex[low >> (60 - 4 * i) & 15];
    }
}

#ifdef __cplusplus
}
#endif

#endif
