/* spw_rates.h: looking up a destination's rate in the segment.
 *
 * Owns: keys and the reading of the two halves. Called by: spw_fallback.h, tools; the publisher uses the key and hash
 * functions. Thread/process: any number of readers, the sidecar is the one writer. No system call, bounded.
 *
 * The active half is named by one word. A reader remembers the half's sequence, probes the index, copies one record
 * and looks at the sequence again: it gets a whole record of one table, or tries again, or says BUSY. It never mixes.
 */
#ifndef SPW_RATES_H
#define SPW_RATES_H

#include "shm/spw_map.h"
#include "shm/spw_text.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SPW_RATES_TRIES  8
#define SPW_RATES_PROBES 256 /* far above the longest run a half-full index has */

/* level, country and place in one word; ZIP+4 ranges of a ZIP share its key and lie beside one another. */
static inline uint64_t spw_rate_key(uint32_t level, const char *country, const char *state, uint32_t zip5)
{
    uint64_t key =
        (uint64_t)level << 56 | (uint64_t)(uint8_t)country[0] << 48 | (uint64_t)(uint8_t)country[1] << 40;
    if (level == SPW_RATE_STATE)
        key |= (uint64_t)(uint8_t)state[0] << 8 | (uint8_t)state[1];
    else if (level != SPW_RATE_COUNTRY)
        key |= zip5;
    return key;
}

static inline uint64_t spw_rate_hash(uint64_t key)
{
    key ^= key >> 33;
    key *= UINT64_C(0xFF51AFD7ED558CCD);
    key ^= key >> 33;
    key *= UINT64_C(0xC4CEB9FE1A85EC53);
    return key ^ key >> 33;
}

/* How a record of this level matches a place. */
static inline enum spw_match spw_rate_match(uint32_t level)
{
    return level == SPW_RATE_ZIP9      ? SPW_MATCH_ZIP9
           : level == SPW_RATE_ZIP5    ? SPW_MATCH_ZIP5
           : level == SPW_RATE_STATE   ? SPW_MATCH_STATE
           : level == SPW_RATE_COUNTRY ? SPW_MATCH_COUNTRY
                                       : SPW_MATCH_NONE;
}

/* SIDECAR ONLY */
static inline uint64_t spw_rate_index_word(uint64_t hash, uint32_t record_index)
{
    return (hash & UINT64_C(0xFFFFFFFF00000000)) | (record_index + 1);
}
/* END SIDECAR ONLY */

struct spw_place {
    char country[4];
    char state[4]; /* "" = not given */
    uint32_t zip5;
    uint32_t plus4;
    bool has_zip, has_plus4;
};

enum spw_rates_result { SPW_RATES_FOUND, SPW_RATES_NOT_FOUND, SPW_RATES_BUSY };

static inline bool spw__rates_probe(const struct spw_map *map, uint32_t half, uint32_t level,
                                    const struct spw_place *place, struct spw_rate_record *out)
{
    uint64_t key = spw_rate_key(level, place->country, place->state, place->zip5);
    uint64_t hash = spw_rate_hash(key), words = map->index_mask + 1;
    for (uint64_t i = 0; i < SPW_RATES_PROBES; i++) {
        /* SYNC rates: acquire: the record an index word names was complete before the word was stored. */
        uint64_t word = spw_load_acq(spw_rate_index_at(map, half * words + ((hash + i) & map->index_mask)));
        if (word == 0)
            return false;
        if ((word ^ hash) >> 32)
            continue;
        uint64_t index = (word & 0xFFFFFFFF) - 1;
        const struct spw_rate_record *record =
            index < map->records_per_half
                ? spw_rate_record_at(map, (uint64_t)half * map->records_per_half + index)
                : NULL;
        if (!record)
            return false;
        spw_copy_rlx((uint64_t *)(void *)out, (const uint64_t *)(const void *)record, sizeof *out / 8);
        if (out->key == key &&
            (level != SPW_RATE_ZIP9 ||
             (place->has_plus4 && out->plus4_lo <= place->plus4 && place->plus4 <= out->plus4_hi)))
            return true;
    }
    return false;
}

/* The most specific record for a place among `levels` (a list ended by 0), with its source. */
static inline enum spw_rates_result spw_rates_find(const struct spw_map *map, const struct spw_place *place,
                                                   const uint32_t *levels, struct spw_rate_record *out,
                                                   struct spw_source *source)
{
    const struct spw_header *header = spw_map_pub(map);
    for (int i = 0; i < SPW_RATES_TRIES; i++) {
        /* SYNC rates-active: acquire: the half was filled before it was made active. */
        uint64_t active = spw_load_acq(&header->rates_active);
        if (active == 0)
            return SPW_RATES_NOT_FOUND;
        uint32_t half = (uint32_t)(active & 1);
        const struct spw_rate_half *h = spw_rate_half_at(map, half);
        /* SYNC rates-half: acquire: an even sequence means that nobody is rewriting the half. */
        uint64_t seq = spw_load_acq(&h->seq);
        bool found = false;
        for (const uint32_t *level = levels; seq % 2 == 0 && *level && !found; level++) {
            bool usable = *level == SPW_RATE_STATE     ? place->state[0] != 0
                          : *level == SPW_RATE_COUNTRY ? true
                          : *level == SPW_RATE_ZIP9    ? place->has_plus4
                                                       : place->has_zip;
            found = usable && spw__rates_probe(map, half, *level, place, out);
        }
        if (found) {
            const struct spw_source *s = spw_source_at(map, (uint64_t)half * SPW_SOURCES_MAX_COUNT +
                                                                out->source % SPW_SOURCES_MAX_COUNT);
            if (s)
                spw_copy_rlx((uint64_t *)(void *)source, (const uint64_t *)(const void *)s,
                             sizeof *source / 8);
            source->name[SPW_NAME_BYTES - 1] = 0;
        }
        /* SYNC rates-half: acquire fence: everything above was read before the sequence is looked at again. */
        spw_fence_acq();
        if (seq % 2 == 0 && spw_load_rlx(&h->seq) == seq)
            return found ? SPW_RATES_FOUND : SPW_RATES_NOT_FOUND;
        spw_relax();
    }
    return SPW_RATES_BUSY;
}

/* Fill a place from an address. false: the ZIP code is not one (a missing one is none). */
static inline bool spw_place_from(const struct spw_address *address, struct spw_place *place)
{
    memset(place, 0, sizeof *place);
    const char *country = address->country && address->country[0] ? address->country : "US";
    for (int i = 0; i < 2 && country[i]; i++)
        place->country[i] = (char)(country[i] >= 'a' && country[i] <= 'z' ? country[i] - 32 : country[i]);
    for (int i = 0; address->state && i < 2 && address->state[i]; i++) {
        char c = address->state[i];
        place->state[i] = (char)(c >= 'a' && c <= 'z' ? c - 32 : c);
    }
    if (memcmp(place->country, "US", 3) != 0 || !address->zip)
        return true;
    place->has_zip = spw_zip_parse(address->zip, &place->zip5, &place->plus4, &place->has_plus4);
    return place->has_zip;
}

#ifdef __cplusplus
}
#endif

#endif
