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

#define SPW_RATES_TRIES    8
#define SPW_LEARNED_SOURCE "learned" /* names the source of a rate that a live answer taught */
#define SPW_RATES_PROBES   256       /* far above the longest run a half-full index has */

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

/* Names a tax code inside a record; 0 = none. Only the code's own records are found by it. */
static inline uint32_t spw_tax_code_hash(const char *code)
{
    uint32_t hash = 2166136261u;
    if (!code || !code[0])
        return 0;
    for (; *code; code++)
        hash = (hash ^ (uint8_t)*code) * 16777619u;
    return hash ? hash : 1;
}

/* Records of one tax code have keys of their own, which a client of 1.0 never asks for. */
static inline uint64_t spw_rate_key_coded(uint64_t key, uint32_t tax_code_hash)
{
    return tax_code_hash ? (key ^ (uint64_t)tax_code_hash << 17) | UINT64_C(1) << 63 : key;
}

static inline bool spw_rate_holds_on(const struct spw_rate_record *record, uint32_t day)
{
    return day == 0 || ((record->valid_from_day == 0 || record->valid_from_day <= day) &&
                        (record->valid_to_day == 0 || day <= record->valid_to_day));
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
    bool padded;            /* leading zeros were lost and are put back; the state bears it out */
    uint32_t day;           /* day of the sale, since 1970-01-01; 0 = any: the first record found */
    uint32_t tax_code_hash; /* 0 = general goods */
};

/* Standard time of a US state, hours behind UTC: of a state with two zones that in which most people live, 5 for the others
 * of the east; 0 where no state is given. */
static inline int64_t spw_hours_behind(const char *state)
{
    static const char zones[] = "AL6AR6IL6IA6KS6LA6MN6MS6MO6NE6ND6OK6SD6TN6TX6WI6AZ7CO7ID7MT7NM7UT7WY7"
                                "CA8NV8OR8WA8AK9HI:PR4VI4GU&MP&AS;"; /* '0' + hours: & is 10 before UTC */
    for (size_t i = 0; i < sizeof zones - 1 && state[0]; i += 3) {
        if (zones[i] == state[0] && zones[i + 1] == state[1])
            return zones[i + 2] - '0';
    }
    return state[0] ? 5 : 0;
}

/* January 1st of a year, in days since 1970-01-01. */
static inline int64_t spw__year_begins(int64_t year)
{
    int64_t before = year - 1;
    return before * 365 + before / 4 - before / 100 + before / 400 - 719162;
}

/* From the second Sunday of March, 2:00, to the first Sunday of November, 1:00, of standard time: Energy Policy Act of
 * 2005. Arizona, Hawaii and the territories leave it out. No function of libc's: those of the calendar take a lock, which a fork may leave
 * behind. */
static inline bool spw__is_daylight(const char *state, int64_t standard_s)
{
    int64_t day = standard_s / 86400, year = 1970 + day * 400 / 146097;
    static const char without[] = "AZHIPRVIGUMPAS";
    for (size_t i = 0; i < sizeof without - 1; i += 2) {
        if (without[i] == state[0] && without[i + 1] == state[1])
            return false;
    }
    if (!state[0] || standard_s < 0)
        return false;
    year += (day >= spw__year_begins(year + 1)) - (day < spw__year_begins(year));
    int64_t november = spw__year_begins(year + 1) - 61, march = november - 245; /* their first days */
    march += 7 + (10 - march % 7) % 7; /* 1970-01-01 was a Thursday, the 4th a Sunday */
    november += (10 - november % 7) % 7;
    return standard_s >= march * 86400 + 2 * 3600 && standard_s < november * 86400 + 3600;
}

/* The day it is at a US state ("WA"), by its clocks; in UTC where no state is given. Days since 1970-01-01. */
static inline int32_t spw_day_there(const char *state, int64_t unix_ms)
{
    int64_t local_s = unix_ms / 1000 - (unix_ms % 1000 < 0) - spw_hours_behind(state) * 3600;
    local_s += spw__is_daylight(state, local_s) ? 3600 : 0;
    return (int32_t)(local_s / 86400 - (local_s % 86400 < 0));
}

/* The day a request without a date is of. */
static inline int32_t spw_address_day(const struct spw_address *to, int64_t unix_ms)
{
    char state[3] = "";
    if (to->state && (!to->country || !to->country[0] || strcmp(to->country, "US") == 0)) {
        for (size_t i = 0; i < 2 && to->state[i]; i++)
            state[i] = (char)(to->state[i] >= 'a' && to->state[i] <= 'z' ? to->state[i] - 32 : to->state[i]);
    }
    return spw_day_there(state, unix_ms);
}

enum spw_rates_result { SPW_RATES_FOUND, SPW_RATES_NOT_FOUND, SPW_RATES_BUSY };

static inline bool spw__rates_probe(const struct spw_map *map, uint32_t half, uint32_t level,
                                    const struct spw_place *place, struct spw_rate_record *out)
{
    uint64_t key = spw_rate_key_coded(spw_rate_key(level, place->country, place->state, place->zip5),
                                      place->tax_code_hash);
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
        if (out->key == key && out->tax_code_hash == place->tax_code_hash &&
            spw_rate_holds_on(out, place->day) &&
            (level != SPW_RATE_ZIP9 ||
             (place->has_plus4 && out->plus4_lo <= place->plus4 && place->plus4 <= out->plus4_hi)))
            return true;
    }
    return false;
}

/* The most specific record for a place, its day and its tax code among `levels` (a list ended by 0), with its source. */
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
        if (place->tax_code_hash && spw_load32_rlx(&h->coded_count) == 0)
            return SPW_RATES_NOT_FOUND; /* SYNC rates-half: relaxed: a lone word; it grows with the record's index word */
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

/* ---- learned rates ---- */

/* Where a learned rate is from: `level` is ZIP9 or ZIP5. */
static inline uint64_t spw_learned_key(uint32_t level, const struct spw_place *place)
{
    uint64_t key = spw_rate_key(level, place->country, place->state, place->zip5);
    return level == SPW_RATE_ZIP9 ? key | (uint64_t)place->plus4 << 17 : key;
}

static inline uint64_t spw__fold(uint64_t hash, const char *text, size_t most)
{
    for (size_t i = 0; text && i < most && text[i]; i++) {
        uint8_t c = (uint8_t)text[i];
        hash = (hash ^ c) * UINT64_C(1099511628211);
    }
    return (hash ^ 0xFF) * UINT64_C(1099511628211); /* no byte of a text: the parts stay apart */
}

/* Whatever changes a rate belongs in its name: whose account it is (nexus), where goods leave from, and what they are.
 * An exempt buyer's answer is never learned, so the buyer is not in it. */
static inline uint64_t spw_learned_subject(const char *account, const struct spw_address *from,
                                           const char *tax_code)
{
    const char *text[2] = {from->country && from->country[0] ? from->country : "US", from->state};
    uint64_t hash = spw__fold(UINT64_C(14695981039346656037), account, SPW_NAME_BYTES);
    for (int i = 0; i < 2; i++) {
        char capitals[2] = {0, 0};
        for (int k = 0; text[i] && k < 2 && text[i][k]; k++)
            capitals[k] = (char)(text[i][k] >= 'a' && text[i][k] <= 'z' ? text[i][k] - 32 : text[i][k]);
        hash = spw__fold(hash, capitals, 2);
    }
    return spw_rate_hash(spw__fold(hash, tax_code, SIZE_MAX));
}

/* The first of the SPW_LEARNED_WAYS entries one may lie in; count: entries of the section, a power of two. */
static inline uint64_t spw_learned_set(uint32_t count, uint64_t key, uint64_t subject)
{
    return spw_rate_hash(key ^ subject) & (count - 1) & ~(uint64_t)(SPW_LEARNED_WAYS - 1);
}

static inline bool spw__learned_at(const struct spw_map *map, uint64_t key, uint64_t subject,
                                   struct spw_learned_rate *out)
{
    uint32_t count = map->pub_section[SPW_PUB_LEARNED].count;
    uint64_t first = count ? spw_learned_set(count, key, subject) : 0;
    for (uint64_t i = first; count && i < first + SPW_LEARNED_WAYS; i++) {
        const struct spw_learned_rate *entry = spw_learned_at(map, i);
        if (!entry)
            return false;
        /* SYNC learned: acquire: an even sequence means that the entry is whole. */
        uint64_t seq = spw_load_acq(&entry->seq);
        if (seq == 0 || seq % 2)
            continue;
        spw_copy_rlx((uint64_t *)(void *)out, (const uint64_t *)(const void *)entry, sizeof *out / 8);
        /* SYNC learned: acquire fence: the copy is done before the sequence is looked at again. */
        spw_fence_acq();
        if (spw_load_rlx(&entry->seq) == seq && out->key == key && out->subject == subject)
            return true;
    }
    return false;
}

/* What was learned for this subject at the place, ZIP+4 before ZIP code; *level says which. false: nothing, or it is
 * being changed this moment. */
static inline bool spw_learned_find(const struct spw_map *map, const struct spw_place *place,
                                    uint64_t subject, struct spw_learned_rate *out, uint32_t *level)
{
    *level = SPW_RATE_ZIP9;
    if (place->has_plus4 && spw__learned_at(map, spw_learned_key(*level, place), subject, out))
        return true;
    *level = SPW_RATE_ZIP5;
    return place->has_zip && spw__learned_at(map, spw_learned_key(*level, place), subject, out);
}

/* ---- places ---- */

/* States whose ZIP codes begin with a zero, some or all of them: a spreadsheet drops it. */
static inline bool spw_zip_has_zeros(const char *state)
{
    static const char states[] = "CTMAMENHNJNYPRRIVIVTAE";
    for (size_t i = 0; state && state[0] && i < sizeof states - 1; i += 2) {
        if (state[0] == states[i] && state[1] == states[i + 1])
            return true;
    }
    return false;
}

/* "501", "2134", "2134-1234" of a state whose ZIP codes begin with a zero. */
static inline bool spw__zip_padded(const char *text, struct spw_place *place)
{
    char full[16];
    size_t digits = 0, bytes = 0;
    while (*text == ' ')
        text++;
    while (text[digits] >= '0' && text[digits] <= '9')
        digits++;
    while (text[bytes] && text[bytes] != ' ')
        bytes++;
    if (digits < 3 || digits > 4 || bytes > 9 || !spw_zip_has_zeros(place->state))
        return false;
    memset(full, 0, sizeof full);
    memset(full, '0', 5 - digits);
    memcpy(full + 5 - digits, text, bytes);
    place->padded = spw_zip_parse(full, &place->zip5, &place->plus4, &place->has_plus4);
    return place->padded;
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
    place->has_zip = spw_zip_parse(address->zip, &place->zip5, &place->plus4, &place->has_plus4) ||
                     spw__zip_padded(address->zip, place);
    return place->has_zip;
}

#ifdef __cplusplus
}
#endif

#endif
