/* rates_publish.c: putting a whole rate table into the segment, and looking at it.
 *
 * Owns: the two halves of the rate table. Called by: main (files of the configuration), control/. Thread: loop thread.
 *
 * The inactive half is filled while readers use the other; one word then makes it the active one. State averages are
 * computed from the rows: the plain mean over a state's ZIP codes, part by part.
 */
#include "sidecar/state/state_internal.h"

#include <stdlib.h>

struct average {
    char state[4];
    uint64_t state_ppb, county_ppb, city_ppb, special_ppb, combined_ppb, rows;
    uint16_t source;
};

struct filling {
    struct spw_state *state;
    uint32_t half;
    uint32_t records;
    struct average averages[128];
    uint32_t averages_count;
    uint32_t crowded_zip; /* not 0: readers would not look as far as a record of this ZIP code lies */
};

/* Store a record and its index word; a later record of the same place takes the earlier one's word. */
static void add_record(struct filling *f, const struct spw_rate_record *record)
{
    struct spw_map *map = &f->state->map;
    uint64_t words = map->index_mask + 1, hash = spw_rate_hash(record->key);
    struct spw_rate_record *place =
        spw_rate_record_at(map, (uint64_t)f->half * map->records_per_half + f->records);
    uint64_t *index = NULL;
    for (uint64_t i = 0;; i++) {
        if (i == SPW_RATES_PROBES) {
            f->crowded_zip = record->zip5 ? record->zip5 : 1;
            return;
        }
        index = spw_rate_index_at(map, f->half * words + ((hash + i) & map->index_mask));
        uint64_t word = spw_load_rlx(index); /* SYNC rates: relaxed: this thread is the only writer */
        if (word == 0)
            break;
        struct spw_rate_record *old =
            spw_rate_record_at(map, (uint64_t)f->half * map->records_per_half + ((word & 0xFFFFFFFF) - 1));
        if (old->key == record->key && old->plus4_lo == record->plus4_lo &&
            old->plus4_hi == record->plus4_hi) {
            spw_copy_rlx((uint64_t *)(void *)old, (const uint64_t *)(const void *)record, sizeof *record / 8);
            return;
        }
    }
    spw_copy_rlx((uint64_t *)(void *)place, (const uint64_t *)(const void *)record, sizeof *record / 8);
    /* SYNC rates: release: the record is complete before an index word names it. */
    spw_store_rel(index, spw_rate_index_word(hash, f->records));
    f->records++;
}

static void add_to_average(struct filling *f, const struct spw_rate_row *row, uint16_t source)
{
    struct average *a = NULL;
    for (uint32_t i = 0; i < f->averages_count && !a; i++) {
        if (memcmp(f->averages[i].state, row->state, 4) == 0)
            a = &f->averages[i];
    }
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

static void add_row(struct filling *f, const struct spw_rate_row *row, uint16_t source)
{
    struct spw_rate_record r;
    bool range = row->plus4_lo != 0xFFFF || row->plus4_hi != 0xFFFF;
    memset(&r, 0, sizeof r);
    r.level = range ? SPW_RATE_ZIP9 : SPW_RATE_ZIP5;
    memcpy(r.country, row->country, sizeof r.country);
    memcpy(r.state, row->state, sizeof r.state);
    r.zip5 = row->zip5;
    r.plus4_lo = row->plus4_lo;
    r.plus4_hi = row->plus4_hi;
    r.state_ppb = row->state_ppb;
    r.county_ppb = row->county_ppb;
    r.city_ppb = row->city_ppb;
    r.special_ppb = row->special_ppb;
    r.combined_ppb = row->combined_ppb;
    r.source = source;
    r.key = spw_rate_key(r.level, r.country, r.state, r.zip5);
    add_record(f, &r);
    if (!range)
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
        r.key = spw_rate_key(r.level, r.country, r.state, 0);
        add_record(f, &r);
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
    for (size_t s = 0; s < count; s++) {
        struct spw_source source;
        memset(&source, 0, sizeof source);
        memcpy(source.name, sources[s].name, sizeof source.name);
        source.as_of_day = sources[s].as_of_day;
        source.rows_count = (uint32_t)sources[s].rows_count;
        memcpy(source.sha256, sources[s].sha256, sizeof source.sha256);
        spw_copy_rlx((uint64_t *)(void *)spw_source_at(map, (uint64_t)f->half * SPW_SOURCES_MAX_COUNT + s),
                     (const uint64_t *)(const void *)&source, sizeof source / 8);
        for (size_t i = 0; i < sources[s].rows_count; i++)
            add_row(f, &sources[s].rows[i], (uint16_t)s);
    }
    add_averages(f);
    h->records_count = f->records;
    h->sources_count = (uint32_t)count;
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
    if (out)
        spw_state_rates_view(state, out);
    return SPW_STATUS_OK;
}

static int32_t today(void)
{
    return (int32_t)(spw_wall_ms() / 86400000);
}

/* The rows of one source in the old segment's table; returns how many. rows NULL: only count. */
static size_t rows_of_source(const struct spw_map *old, uint32_t half, uint32_t count, uint32_t source,
                             struct spw_rate_row *rows)
{
    size_t n = 0;
    for (uint32_t i = 0; i < count && i < old->records_per_half; i++) {
        const struct spw_rate_record *r = spw_rate_record_at(old, (uint64_t)half * old->records_per_half + i);
        if (r->source != source || (r->level != SPW_RATE_ZIP5 && r->level != SPW_RATE_ZIP9))
            continue; /* averages are computed anew */
        if (rows) {
            struct spw_rate_row *row = &rows[n];
            memset(row, 0, sizeof *row);
            memcpy(row->country, r->country, sizeof row->country);
            memcpy(row->state, r->state, sizeof row->state);
            row->zip5 = r->zip5;
            row->plus4_lo = r->plus4_lo;
            row->plus4_hi = r->plus4_hi;
            row->state_ppb = r->state_ppb;
            row->county_ppb = r->county_ppb;
            row->city_ppb = r->city_ppb;
            row->special_ppb = r->special_ppb;
            row->combined_ppb = r->combined_ppb;
        }
        n++;
    }
    return n;
}

enum spw_status spw_rates_carry(struct spw_state *state, const struct spw_map *old, struct spw_error *err)
{
    struct spw_rates_source sources[SPW_SOURCES_MAX_COUNT];
    struct spw_rate_row *rows[SPW_SOURCES_MAX_COUNT] = {NULL};
    uint64_t active = spw_map_pub(old)->rates_active;
    const struct spw_rate_half *h = spw_rate_half_at(old, active & 1);
    enum spw_status status = SPW_STATUS_OK;
    uint32_t n = active == 0 || h->seq % 2 ? 0 : h->sources_count;
    if (n > SPW_SOURCES_MAX_COUNT)
        n = 0;
    memset(sources, 0, sizeof sources);
    for (uint32_t s = 0; s < n && status == SPW_STATUS_OK; s++) {
        const struct spw_source *from = spw_source_at(old, (active & 1) * SPW_SOURCES_MAX_COUNT + s);
        if (!from)
            break; /* cannot be: the table of sources was checked when it was mapped */
        size_t count = rows_of_source(old, active & 1, h->records_count, s, NULL);
        rows[s] = calloc(count + 1, sizeof *rows[s]);
        if (!rows[s])
            status =
                spw_error_set(err, SPW_STATUS_NO_MEMORY,
                              "rates: no memory to carry the table over: raise the container's memory limit");
        else
            rows_of_source(old, active & 1, h->records_count, s, rows[s]);
        memcpy(sources[s].name, from->name, sizeof sources[s].name);
        sources[s].name[sizeof sources[s].name - 1] = 0;
        sources[s].as_of_day = from->as_of_day;
        memcpy(sources[s].sha256, from->sha256, sizeof sources[s].sha256);
        sources[s].rows = rows[s];
        sources[s].rows_count = count;
    }
    if (status == SPW_STATUS_OK && n > 0)
        status = spw_state_rates_replace(state, sources, n, NULL, err);
    for (uint32_t s = 0; s < n; s++)
        free(rows[s]);
    return status;
}

void spw_state_rates_view(struct spw_state *state, struct spw_rates_view *out)
{
    uint64_t active = spw_map_pub(&state->map)->rates_active;
    memset(out, 0, sizeof *out);
    out->capacity_count = state->map.records_per_half;
    if (active == 0)
        return;
    const struct spw_rate_half *h = spw_rate_half_at(&state->map, active & 1);
    out->version = active >> 1;
    out->records_count = h->records_count;
    out->sources_count = h->sources_count <= SPW_SOURCES_MAX_COUNT ? h->sources_count : SPW_SOURCES_MAX_COUNT;
    for (uint32_t i = 0; i < out->sources_count; i++) {
        out->sources[i] = *spw_source_at(&state->map, (active & 1) * SPW_SOURCES_MAX_COUNT + i);
        out->ages[i] = spw_conf_rates_age(&state->conf->fallback, out->sources[i].as_of_day, today());
    }
}

enum spw_status spw_state_rates_lookup(struct spw_state *state, const char *country, const char *rate_state,
                                       const char *zip, struct spw_rate_lookup *out, struct spw_error *err)
{
    static const uint32_t levels[] = {SPW_RATE_ZIP9, SPW_RATE_ZIP5, SPW_RATE_STATE, SPW_RATE_COUNTRY, 0};
    struct spw_address address = {country, rate_state, zip && zip[0] ? zip : NULL, NULL, NULL};
    struct spw_place place;
    memset(out, 0, sizeof *out);
    if (!spw_place_from(&address, &place))
        return spw_error_set(err, SPW_STATUS_INVALID,
                             "zip: \"%.20s\" is no US ZIP code: five digits, or ZIP+4", zip);
    if (spw_rates_find(&state->map, &place, levels, &out->record, &out->source) != SPW_RATES_FOUND)
        return SPW_STATUS_OK;
    struct spw_rates_age age = spw_conf_rates_age(&state->conf->fallback, out->source.as_of_day, today());
    out->match = spw_rate_match(out->record.level);
    out->age_days = age.days;
    out->stale = age.stale;
    out->refused = age.refused;
    return SPW_STATUS_OK;
}
