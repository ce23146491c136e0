/* rates_learn.c: what live answers teach, kept in the segment.
 *
 * Owns: the section of learned rates. Called by: http/ (an answer came), segment.c (start, replacement). Thread: loop
 * thread, the only writer.
 *
 * The section is a table of sets of SPW_LEARNED_WAYS entries: what is learned has room of its own beside the rate table,
 * so that neither takes the other's, and a replaced table forgets nothing of it. In a full set the oldest gives way. An
 * entry that is being changed is not there for its readers: a sidecar that dies in the middle loses that one entry.
 */
#include "sidecar/state/state_internal.h"

static uint32_t places(const struct spw_map *map)
{
    return map->pub_section[SPW_PUB_LEARNED].count;
}

uint32_t spw_learned_count(const struct spw_state *state)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < places(&state->map); i++) {
        const struct spw_learned_rate *entry = spw_learned_at(&state->map, i);
        n += entry && entry->seq != 0;
    }
    return n;
}

static void write_entry(struct spw_learned_rate *entry, const struct spw_learned_rate *value)
{
    struct spw_learned_rate whole = *value;
    uint64_t seq = (entry->seq + 1) | 1; /* odd already where an earlier sidecar was cut short */
    /* SYNC learned: release: an odd sequence goes out before anything of the entry changes. */
    spw_store_rel(&entry->seq, seq);
    spw_fence_rel();
    whole.seq = seq;
    spw_copy_rlx((uint64_t *)(void *)entry, (const uint64_t *)(const void *)&whole, sizeof whole / 8);
    /* SYNC learned: release: even again: the entry is whole. */
    spw_store_rel(&entry->seq, seq + 1);
}

/* The entry of this key and subject, else an empty one of the set, else the oldest. */
static struct spw_learned_rate *entry_for(struct spw_state *state, uint64_t key, uint64_t subject)
{
    uint64_t first = spw_learned_set(places(&state->map), key, subject);
    struct spw_learned_rate *oldest = NULL;
    for (uint64_t i = first; i < first + SPW_LEARNED_WAYS; i++) {
        struct spw_learned_rate *entry = spw_learned_at(&state->map, i);
        if (!entry)
            return NULL;
        if (entry->seq && entry->key == key && entry->subject == subject)
            return entry;
        if (!oldest || (oldest->seq && (!entry->seq || entry->learned_unix_ms < oldest->learned_unix_ms)))
            oldest = entry;
    }
    return oldest;
}

static void put(struct spw_state *state, const struct spw_learned_rate *value)
{
    struct spw_learned_rate *entry = entry_for(state, value->key, value->subject), now = *value;
    if (!entry)
        return;
    bool known = entry->seq && entry->key == value->key && entry->subject == value->subject;
    bool same = known && entry->combined_ppb == value->combined_ppb;
    now.seen_count = same && entry->seen_count < UINT32_MAX ? entry->seen_count + 1 : value->seen_count;
    state->learned_evicted_total += entry->seq && !known;
    write_entry(entry, &now);
}

void spw_state_rates_learn(struct spw_state *state, const struct spw_learned_fact *fact)
{
    struct spw_place place;
    if (places(&state->map) == 0 || !spw_place_from(fact->ship_to, &place) || !place.has_zip || place.padded)
        return;
    struct spw_learned_rate value;
    memset(&value, 0, sizeof value);
    value.subject = spw_learned_subject(fact->account, fact->ship_from, fact->tax_code);
    value.learned_unix_ms = fact->unix_ms;
    value.combined_ppb = fact->combined_ppb;
    value.state_ppb = fact->state_ppb;
    value.county_ppb = fact->county_ppb;
    value.city_ppb = fact->city_ppb;
    value.special_ppb = fact->special_ppb;
    memcpy(value.state, place.state, sizeof value.state);
    value.seen_count = 1;
    value.key = spw_learned_key(SPW_RATE_ZIP5, &place);
    put(state, &value);
    if (place.has_plus4) {
        value.key = spw_learned_key(SPW_RATE_ZIP9, &place);
        put(state, &value);
    }
    state->learned_total++;
}

void spw_learned_mend(struct spw_state *state)
{
    static const struct spw_learned_rate none;
    for (uint32_t i = 0; i < places(&state->map); i++) {
        struct spw_learned_rate *entry = spw_learned_at(&state->map, i);
        if (!entry || entry->seq % 2 == 0)
            continue;
        /* SYNC learned: release: nobody reads an odd entry, and an empty one says nothing. */
        spw_copy_rlx((uint64_t *)(void *)entry + 1, (const uint64_t *)(const void *)&none + 1,
                     sizeof none / 8 - 1);
        spw_store_rel(&entry->seq, 0);
    }
}

void spw_learned_carry(struct spw_state *state, const struct spw_map *old)
{
    if (places(&state->map) == 0)
        return;
    for (uint32_t i = 0; i < places(old); i++) {
        const struct spw_learned_rate *entry = spw_learned_at(old, i);
        if (entry && entry->seq && entry->seq % 2 == 0)
            put(state, entry);
    }
    state->learned_evicted_total = 0;
}

struct spw_rates_refreshes *spw_state_refreshes(struct spw_state *state)
{
    return &state->refreshes;
}
