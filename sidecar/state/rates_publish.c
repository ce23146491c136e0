/* rates_publish.c: putting a whole rate table into the segment, and looking at it.
 *
 * Owns: the two halves of the rate table. Called by: main (files of the configuration), control/. Thread: loop thread.
 *
 * The inactive half is filled while readers use the other; one word then makes it the active one. State averages are
 * computed from the rows: the plain mean over a state's ZIP codes, part by part, of what holds on the table's day. Of
 * several records of one place the one that holds on that day is found first: a client of layout 1.0 looks at no dates.
 */
#include "sidecar/state/state_internal.h"

#include <stdlib.h>

#include "sidecar/obs/log.h"

struct average {
    char state[4];
    uint64_t state_ppb, county_ppb, city_ppb, special_ppb, combined_ppb, rows;
    uint16_t source;
};

static bool row_holds_on(const struct spw_rate_row *row, uint32_t day)
{
    return (row->valid_from_day == 0 || row->valid_from_day <= day) &&
           (row->valid_to_day == 0 || day <= row->valid_to_day);
}

struct filling {
    struct spw_state *state;
    uint32_t half;
    uint32_t records, coded;
    uint32_t as_of_day; /* of the source being added */
    struct average averages[128];
    uint32_t averages_count;
    uint32_t crowded_zip; /* not 0: readers would not look as far as a record of this ZIP code lies */
};

bool spw_rate_same_place(const struct spw_rate_record *a, const struct spw_rate_record *b)
{
    return a->key == b->key && a->tax_code_hash == b->tax_code_hash && a->plus4_lo == b->plus4_lo &&
           a->plus4_hi == b->plus4_hi && a->valid_from_day == b->valid_from_day;
}

/* Store a record and its index word; a later row of the same place and source takes the earlier one's word, and a later
 * source's record, which is there already, stays. True when the place was free. */
static bool add_record(struct filling *f, const struct spw_rate_record *record)
{
    struct spw_map *map = &f->state->map;
    uint64_t words = map->index_mask + 1, hash = spw_rate_hash(record->key);
    struct spw_rate_record *place =
        spw_rate_record_at(map, (uint64_t)f->half * map->records_per_half + f->records);
    uint64_t *index = NULL;
    for (uint64_t i = 0;; i++) {
        if (i == SPW_RATES_PROBES) {
            f->crowded_zip = record->zip5 ? record->zip5 : 1;
            return false;
        }
        index = spw_rate_index_at(map, f->half * words + ((hash + i) & map->index_mask));
        uint64_t word = spw_load_rlx(index); /* SYNC rates: relaxed: this thread is the only writer */
        if (word == 0)
            break;
        struct spw_rate_record *old =
            spw_rate_record_at(map, (uint64_t)f->half * map->records_per_half + ((word & 0xFFFFFFFF) - 1));
        if (old && spw_rate_same_place(old, record)) {
            if (old->source == record->source)
                spw_copy_rlx((uint64_t *)(void *)old, (const uint64_t *)(const void *)record,
                             sizeof *record / 8);
            return false;
        }
    }
    spw_copy_rlx((uint64_t *)(void *)place, (const uint64_t *)(const void *)record, sizeof *record / 8);
    /* SYNC rates: release: the record is complete before an index word names it. */
    spw_store_rel(index, spw_rate_index_word(hash, f->records));
    f->records++;
    f->coded += record->tax_code_hash != 0;
    return true;
}

/* The first record a reader meets for a place. */
static struct spw_rate_record *first_record(const struct filling *f, uint64_t key)
{
    const struct spw_map *map = &f->state->map;
    uint64_t words = map->index_mask + 1, hash = spw_rate_hash(key);
    for (uint64_t i = 0; i < SPW_RATES_PROBES; i++) {
        uint64_t word =
            spw_load_rlx(spw_rate_index_at(map, f->half * words + ((hash + i) & map->index_mask)));
        if (word == 0) /* SYNC rates: relaxed: this thread is the only writer */
            return NULL;
        struct spw_rate_record *r =
            spw_rate_record_at(map, (uint64_t)f->half * map->records_per_half + ((word & 0xFFFFFFFF) - 1));
        if (r && r->key == key)
            return r;
    }
    return NULL;
}

static void add_to_average(struct filling *f, const struct spw_rate_row *row, uint16_t source)
{
    struct average *a = NULL;
    for (uint32_t i = 0; i < f->averages_count && !a; i++) {
        if (memcmp(f->averages[i].state, row->state, 4) == 0)
            a = &f->averages[i];
    }
    if (!row_holds_on(row, f->as_of_day))
        return;
    if (!a) {
        if (f->averages_count == sizeof f->averages / sizeof f->averages[0] || !row->state[0])
            return;
        a = &f->averages[f->averages_count++];
        memcpy(a->state, row->state, 4);
    }
    a->source = source;
    a->rows++;
    a->state_ppb += row->state_ppb;
    a->county_ppb += row->county_ppb;
    a->city_ppb += row->city_ppb;
    a->special_ppb += row->special_ppb;
    a->combined_ppb += row->combined_ppb;
}

static uint8_t level_of(const struct spw_rate_row *row)
{
    if (row->zip5 == 0)
        return row->state[0] ? SPW_RATE_STATE : SPW_RATE_COUNTRY;
    return row->plus4_lo != 0xFFFF || row->plus4_hi != 0xFFFF ? SPW_RATE_ZIP9 : SPW_RATE_ZIP5;
}

void spw_rate_record_from(const struct spw_rate_row *row, uint16_t source, struct spw_rate_record *r)
{
    memset(r, 0, sizeof *r);
    r->level = level_of(row);
    memcpy(r->country, row->country, sizeof r->country);
    memcpy(r->state, row->state, sizeof r->state);
    r->zip5 = row->zip5;
    r->plus4_lo = row->plus4_lo;
    r->plus4_hi = row->plus4_hi;
    r->state_ppb = row->state_ppb;
    r->county_ppb = row->county_ppb;
    r->city_ppb = row->city_ppb;
    r->special_ppb = row->special_ppb;
    r->combined_ppb = row->combined_ppb;
    r->valid_from_day = row->valid_from_day;
    r->valid_to_day = row->valid_to_day;
    r->tax_code_hash = row->tax_code_hash;
    r->flags = row->least ? SPW_RATE_FLAG_LEAST : 0;
    r->source = source;
    r->key = spw_rate_key_coded(spw_rate_key(r->level, r->country, r->state, r->zip5), r->tax_code_hash);
}

static void add_row(struct filling *f, const struct spw_rate_row *row, uint16_t source)
{
    struct spw_rate_record r;
    spw_rate_record_from(row, source, &r);
    if (add_record(f, &r) && r.level == SPW_RATE_ZIP5 && r.tax_code_hash == 0 &&
        memcmp(row->country, "US", 3) == 0)
        add_to_average(f, row, source);
}

static void add_averages(struct filling *f)
{
    for (uint32_t i = 0; i < f->averages_count; i++) {
        const struct average *a = &f->averages[i];
        struct spw_rate_record r;
        memset(&r, 0, sizeof r);
        r.level = SPW_RATE_STATE;
        memcpy(r.country, "US", 3);
        memcpy(r.state, a->state, sizeof r.state);
        r.state_ppb = (uint32_t)(a->state_ppb / a->rows);
        r.county_ppb = (uint32_t)(a->county_ppb / a->rows);
        r.city_ppb = (uint32_t)(a->city_ppb / a->rows);
        r.special_ppb = (uint32_t)(a->special_ppb / a->rows);
        r.combined_ppb = (uint32_t)(a->combined_ppb / a->rows);
        r.source = a->source;
        r.flags = SPW_RATE_FLAG_AVERAGE;
        r.key = spw_rate_key(r.level, r.country, r.state, 0);
        struct spw_rate_record *stated = first_record(f, r.key);
        if (!stated) /* what a table states of a state is better than a mean ... */
            (void)add_record(f, &r);
        else if (stated->flags & SPW_RATE_FLAG_LEAST) /* ... but for a rate that leaves the places out */
            spw_copy_rlx((uint64_t *)(void *)stated, (const uint64_t *)(const void *)&r, sizeof r / 8);
    }
}

static void fill_half(struct filling *f, const struct spw_rates_source *sources, size_t count)
{
    struct spw_map *map = &f->state->map;
    struct spw_rate_half *h = spw_rate_half_at(map, f->half);
    uint64_t words = map->index_mask + 1;
    /* SYNC rates-half: release: an odd sequence goes out before anything of the half changes. It is odd already when
     * an earlier sidecar was cut short here. */
    spw_store_rel(&h->seq, (h->seq + 1) | 1);
    spw_fence_rel();
    for (uint64_t i = 0; i < words; i++)
        spw_store_rlx(spw_rate_index_at(map, f->half * words + i), 0);
    for (size_t s = count; s-- > 0;) { /* a later source's records are met first */
        struct spw_source source;
        memset(&source, 0, sizeof source);
        memcpy(source.name, sources[s].name, sizeof source.name);
        source.as_of_day = sources[s].as_of_day;
        source.rows_count = (uint32_t)sources[s].rows_count;
        memcpy(source.sha256, sources[s].sha256, sizeof source.sha256);
        spw_copy_rlx((uint64_t *)(void *)spw_source_at(map, (uint64_t)f->half * SPW_SOURCES_MAX_COUNT + s),
                     (const uint64_t *)(const void *)&source, sizeof source / 8);
        f->as_of_day = sources[s].as_of_day > 0 ? (uint32_t)sources[s].as_of_day : 0;
        for (int held = 1; held >= 0; held--) { /* what holds on the table's day comes first */
            for (size_t i = 0; i < sources[s].rows_count; i++) {
                if (row_holds_on(&sources[s].rows[i], f->as_of_day) == (held == 1))
                    add_row(f, &sources[s].rows[i], (uint16_t)s);
            }
        }
    }
    add_averages(f);
    h->records_count = f->records;
    h->sources_count = (uint32_t)count;
    h->upserts_count = h->replaced_count = 0;
    spw_store32_rel(&h->coded_count, f->coded); /* SYNC rates-half: release: under the odd sequence anyway */
    h->loaded_unix_ms = (uint64_t)spw_wall_ms();
}

enum spw_status spw_state_rates_replace(struct spw_state *state, const struct spw_rates_source *sources,
                                        size_t sources_count, struct spw_rates_view *out,
                                        struct spw_error *err)
{
    size_t rows = 0;
    for (size_t i = 0; i < sources_count; i++)
        rows += sources[i].rows_count;
    size_t needed = rows + sizeof((struct filling *)0)->averages / sizeof(struct average);
    if (sources_count > SPW_SOURCES_MAX_COUNT)
        return spw_error_set(err, SPW_STATUS_FULL, "rates: at most %u sources at a time",
                             SPW_SOURCES_MAX_COUNT);
    if (needed > state->map.records_per_half)
        return spw_error_set(
            err, SPW_STATUS_FULL,
            "rates: %zu rows and their state averages need segment.rate_records of at least %zu; it is "
            "%u. The table in force stays",
            rows, needed, state->map.records_per_half);
    struct filling *f = calloc(1, sizeof *f);
    if (!f)
        return spw_error_set(err, SPW_STATUS_NO_MEMORY, "rates: no memory; the table in force stays");
    struct spw_header *header = spw_map_pub(&state->map);
    uint64_t active = header->rates_active, version = (active >> 1) + 1;
    f->state = state;
    f->half = active ? (uint32_t)(~active & 1) : 0;
    fill_half(f, sources, sources_count);
    uint32_t crowded_zip = f->crowded_zip;
    struct spw_rate_half *h = spw_rate_half_at(&state->map, f->half);
    if (crowded_zip) { /* the half stays odd, and is filled anew the next time */
        free(f);
        return spw_error_set(
            err, SPW_STATUS_FULL,
            "rates: ZIP code %05u and those beside it have more than about %d ZIP+4 ranges: raise "
            "segment.rate_records, or join ranges of the same rate. The table in force stays",
            crowded_zip, SPW_RATES_PROBES);
    }
    h->version = version;
    /* SYNC rates-half: release: even again: the half is whole. */
    spw_store_rel(&h->seq, h->seq + 1);
    /* SYNC rates-active: release: readers that follow it find a whole half. */
    spw_store_rel(&header->rates_active, version << 1 | f->half);
    free(f);
    struct spw_rates_view view;
    spw_state_rates_view(state, &view);
    if (view.nearly_full)
        spw_log(
            SPW_LOG_WARN, "rates.capacity",
            "%u of %u places of the rate table are taken: raise segment.rate_records before the next table "
            "does not fit",
            view.records_count, view.capacity_count);
    if (out)
        *out = view;
    return SPW_STATUS_OK;
}

static int32_t today(void)
{
    return (int32_t)(spw_wall_ms() / 86400000);
}

void spw_state_rates_view(struct spw_state *state, struct spw_rates_view *out)
{
    uint64_t active = spw_map_pub(&state->map)->rates_active;
    memset(out, 0, sizeof *out);
    out->capacity_count = state->map.records_per_half;
    out->learned_count = spw_learned_count(state);
    out->learned_capacity_count = state->map.pub_section[SPW_PUB_LEARNED].count;
    out->learned_total = state->learned_total;
    out->learned_evicted_total = state->learned_evicted_total;
    if (active == 0)
        return;
    const struct spw_rate_half *h = spw_rate_half_at(&state->map, active & 1);
    out->version = active >> 1;
    out->records_count = h->records_count;
    out->nearly_full = (uint64_t)h->records_count * 10 > (uint64_t)out->capacity_count * 9;
    out->coded_count = h->coded_count;
    out->upserts_count = h->upserts_count;
    out->replaced_count = h->replaced_count;
    out->sources_count = h->sources_count <= SPW_SOURCES_MAX_COUNT ? h->sources_count : SPW_SOURCES_MAX_COUNT;
    for (uint32_t i = 0; i < out->sources_count; i++) {
        out->sources[i] = *spw_source_at(&state->map, (active & 1) * SPW_SOURCES_MAX_COUNT + i);
        out->ages[i] = spw_conf_rates_age(&state->conf->fallback, out->sources[i].as_of_day, today());
    }
}

static void lookup_age(const struct spw_state *state, struct spw_rate_lookup *out)
{
    struct spw_rates_age age = spw_conf_rates_age(&state->conf->fallback, out->source.as_of_day, today());
    out->age_days = age.days;
    out->stale = age.stale;
    out->refused = age.refused;
}

/* What was learned for the question's account and code. */
static bool lookup_learned(const struct spw_state *state, const struct spw_rate_question *question,
                           const struct spw_place *place, struct spw_rate_lookup *out)
{
    struct spw_address from = {NULL, question->from_state, NULL, NULL, NULL};
    struct spw_learned_rate found;
    uint32_t level;
    if (!question->account ||
        !spw_learned_find(&state->map, place,
                          spw_learned_subject(question->account, &from, question->tax_code), &found, &level))
        return false;
    out->match = SPW_MATCH_LEARNED;
    memcpy(out->record.state, found.state, sizeof out->record.state - 1);
    out->record.level = (uint8_t)level;
    out->record.zip5 = place->zip5;
    out->record.plus4_lo = out->record.plus4_hi = (uint16_t)place->plus4;
    out->record.combined_ppb = found.combined_ppb;
    out->record.state_ppb = found.state_ppb;
    out->record.county_ppb = found.county_ppb;
    out->record.city_ppb = found.city_ppb;
    out->record.special_ppb = found.special_ppb;
    memcpy(out->source.name, SPW_LEARNED_SOURCE, sizeof SPW_LEARNED_SOURCE);
    out->source.as_of_day = (int32_t)(found.learned_unix_ms / 86400000);
    return true;
}

enum spw_status spw_state_rates_lookup(struct spw_state *state, const struct spw_rate_question *question,
                                       struct spw_rate_lookup *out, struct spw_error *err)
{
    static const uint32_t us[] = {SPW_RATE_ZIP9, SPW_RATE_ZIP5, SPW_RATE_STATE, SPW_RATE_COUNTRY, 0};
    static const uint32_t abroad[] = {SPW_RATE_STATE, SPW_RATE_COUNTRY, 0};
    const char *zip = question->zip && question->zip[0] ? question->zip : NULL;
    struct spw_address address = {question->country, question->state, zip, NULL, NULL};
    struct spw_place place;
    memset(out, 0, sizeof *out);
    if (!spw_place_from(&address, &place))
        return spw_error_set(err, SPW_STATUS_INVALID,
                             "zip: \"%.20s\" is no US ZIP code: five digits, or ZIP+4", zip);
    const uint32_t *levels = memcmp(place.country, "US", 3) == 0 ? us : abroad;
    place.day = (uint32_t)(question->day > 0 ? question->day : spw_address_day(&address, spw_wall_ms()));
    place.tax_code_hash = spw_tax_code_hash(question->tax_code);
    bool learned = question->tax_code && lookup_learned(state, question, &place, out);
    enum spw_rates_result result = learned ? SPW_RATES_FOUND : SPW_RATES_NOT_FOUND;
    if (!learned && place.tax_code_hash)
        result = spw_rates_find(&state->map, &place, levels, &out->record, &out->source);
    place.tax_code_hash = 0;
    if (result == SPW_RATES_NOT_FOUND)
        result = spw_rates_find(&state->map, &place, levels, &out->record, &out->source);
    if (result != SPW_RATES_FOUND)
        return SPW_STATUS_OK;
    if (!learned)
        out->match = spw_rate_match(out->record.level);
    lookup_age(state, out);
    return SPW_STATUS_OK;
}
