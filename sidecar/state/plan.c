/* plan.c: where everything lies in the two files.
 *
 * Owns: the sections' order, strides and counts for a configuration. Called by: segment.c, spillwayd
 * --print-segment-bytes. Thread: any; pure.
 */
#include "sidecar/state/state_internal.h"

/* A build of a later minor version lets records grow at their end; tests make such a build to show that clients of
 * this version go on reading. */
#ifndef SPW_STRIDE_EXTRA_BYTES
#define SPW_STRIDE_EXTRA_BYTES 0
#endif

static uint64_t align_up(uint64_t bytes, uint64_t to)
{
    return (bytes + to - 1) / to * to;
}

static void place(struct spw_section *section, uint64_t *at, size_t record_bytes, uint32_t count,
                  bool may_grow)
{
    section->offset_bytes = *at;
    section->stride_bytes = (uint32_t)(record_bytes + may_grow * (size_t)SPW_STRIDE_EXTRA_BYTES);
    section->count = count;
    *at = align_up(*at + (uint64_t)section->stride_bytes * count, SPW_LINE_BYTES);
}

static uint32_t index_words(uint32_t records)
{
    uint32_t words = 1024;
    while (words < 2 * records)
        words *= 2;
    return words;
}

/* An eighth of the table's size, as a power of two. */
static uint32_t learned_places(uint32_t records)
{
    uint32_t places = 128;
    while (places * 2 <= records / 8)
        places *= 2;
    return places;
}

void spw_plan_make(const struct spw_conf *conf, struct spw_plan *plan)
{
    const struct spw_conf_segment *s = &conf->segment;
    uint32_t accounts = SPW_CONF_ACCOUNTS_MAX_COUNT, limiters = accounts * SPW_LIMITERS_PER_ACCOUNT;
    uint64_t at = SPW_HEADER_BYTES;
    place(&plan->pub[SPW_PUB_ACCOUNTS], &at, sizeof(struct spw_account), accounts, true);
    place(&plan->pub[SPW_PUB_INTEGRATIONS], &at, sizeof(struct spw_integration),
          SPW_CONF_INTEGRATIONS_MAX_COUNT, true);
    place(&plan->pub[SPW_PUB_LIMITERS], &at, sizeof(struct spw_limiter), limiters, true);
    place(&plan->pub[SPW_PUB_POLICY], &at, sizeof(struct spw_policy), 2, true);
    place(&plan->pub[SPW_PUB_RATE_HALVES], &at, sizeof(struct spw_rate_half), 2, true);
    place(&plan->pub[SPW_PUB_SOURCES], &at, sizeof(struct spw_source), 2 * SPW_SOURCES_MAX_COUNT, true);
    place(&plan->pub[SPW_PUB_RATE_INDEX], &at, 8, 2 * index_words(s->rate_records_count), false);
    place(&plan->pub[SPW_PUB_RATE_RECORDS], &at, sizeof(struct spw_rate_record), 2 * s->rate_records_count,
          true);
    place(&plan->pub[SPW_PUB_LEARNED], &at, sizeof(struct spw_learned_rate),
          learned_places(s->rate_records_count), true);
    plan->pub_bytes = align_up(at, 4096);

    at = SPW_HEADER_BYTES;
    place(&plan->rw[SPW_RW_ACCOUNTS], &at, sizeof(struct spw_account_words), accounts, true);
    place(&plan->rw[SPW_RW_LIMITERS], &at, sizeof(struct spw_limiter_words), limiters, true);
    place(&plan->rw[SPW_RW_PERMITS], &at, 8, accounts * SPW_PERMITS_PER_ACCOUNT, false);
    place(&plan->rw[SPW_RW_SLOTS], &at, sizeof(struct spw_slot), s->slots_count, true);
    place(&plan->rw[SPW_RW_STATS], &at, sizeof(struct spw_stats), s->slots_count * accounts, true);
    place(&plan->rw[SPW_RW_CELL_WORDS], &at, 8, s->cells_count, false);
    place(&plan->rw[SPW_RW_CELLS], &at, sizeof(struct spw_cell), s->cells_count, false);
    plan->rw_bytes = align_up(at, 4096);
}

void spw_state_sizes(const struct spw_conf *conf, uint64_t *pub_bytes, uint64_t *rw_bytes)
{
    struct spw_plan plan;
    spw_plan_make(conf, &plan);
    *pub_bytes = plan.pub_bytes;
    *rw_bytes = plan.rw_bytes;
}
