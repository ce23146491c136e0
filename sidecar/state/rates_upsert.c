/* rates_upsert.c: rows into the table in force, and the table out of a segment, as rows.
 *
 * Owns: the growth of the active half. Called by: control/ (Upsert), segment.c (carrying a table over). Thread: loop
 * thread.
 *
 * A new record goes into free room of the active half; then one store into the index makes it the place's record, so
 * that readers need not be kept out. The record it took the place of stays where it is, for readers that still hold its
 * word, until the half is filled anew. When the room is used up, what is in force is gathered and put into the other
 * half together with the new rows: the room of replaced records comes back.
 */
#include "sidecar/state/state_internal.h"

#include <stdlib.h>

/* ---- the table as rows ---- */

struct gathered {
    struct spw_rates_source sources[SPW_SOURCES_MAX_COUNT];
    struct spw_rate_row *rows[SPW_SOURCES_MAX_COUNT];
    uint32_t count;
};

static void gathered_free(struct gathered *g)
{
    for (uint32_t s = 0; s < SPW_SOURCES_MAX_COUNT; s++)
        free(g->rows[s]);
}

static void row_from(const struct spw_rate_record *r, struct spw_rate_row *row)
{
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
    row->valid_from_day = r->valid_from_day;
    row->valid_to_day = r->valid_to_day;
    row->tax_code_hash = r->tax_code_hash;
    row->least = (r->flags & SPW_RATE_FLAG_LEAST) != 0;
}

/* The rows of one source that are in force: those an index word names. rows NULL: only count. Averages are made anew. */
static size_t rows_of_source(const struct spw_map *map, uint32_t half, uint32_t source,
                             struct spw_rate_row *rows)
{
    uint64_t words = map->index_mask + 1;
    size_t n = 0;
    for (uint64_t i = 0; i < words; i++) {
        /* SYNC rates: relaxed: this thread is the only writer */
        uint64_t word = spw_load_rlx(spw_rate_index_at(map, half * words + i));
        uint64_t index = (word & 0xFFFFFFFF) - 1;
        if (word == 0 || index >= map->records_per_half)
            continue;
        const struct spw_rate_record *r =
            spw_rate_record_at(map, (uint64_t)half * map->records_per_half + index);
        if (!r || r->source != source || (r->flags & SPW_RATE_FLAG_AVERAGE) ||
            (map->layout_minor == 0 && r->level == SPW_RATE_STATE)) /* 1.0 did not mark its averages */
            continue;
        if (rows)
            row_from(r, &rows[n]);
        n++;
    }
    return n;
}

/* Everything of the active half. more: room to leave behind the rows of the last source. */
static enum spw_status gather(const struct spw_map *map, struct gathered *g, struct spw_error *err)
{
    uint64_t active = spw_map_pub(map)->rates_active;
    const struct spw_rate_half *h = spw_rate_half_at(map, active & 1);
    memset(g, 0, sizeof *g);
    uint32_t n = active == 0 || !h || h->seq % 2 ? 0 : h->sources_count;
    for (uint32_t s = 0; s < n && s < SPW_SOURCES_MAX_COUNT; s++) {
        const struct spw_source *from = spw_source_at(map, (active & 1) * SPW_SOURCES_MAX_COUNT + s);
        if (!from)
            break; /* cannot be: the table of sources was checked when it was mapped */
        struct spw_rates_source *to = &g->sources[s];
        to->rows_count = rows_of_source(map, active & 1, s, NULL);
        g->rows[s] = calloc(to->rows_count + 1, sizeof *g->rows[s]);
        if (!g->rows[s])
            return spw_error_set(err, SPW_STATUS_NO_MEMORY,
                                 "rates: no memory for the table: raise the container's memory limit");
        rows_of_source(map, active & 1, s, g->rows[s]);
        memcpy(to->name, from->name, sizeof to->name);
        to->name[sizeof to->name - 1] = 0;
        to->as_of_day = from->as_of_day;
        memcpy(to->sha256, from->sha256, sizeof to->sha256);
        to->rows = g->rows[s];
        g->count = s + 1;
    }
    return SPW_STATUS_OK;
}

enum spw_status spw_rates_carry(struct spw_state *state, const struct spw_map *old, struct spw_error *err)
{
    struct gathered g;
    enum spw_status status = gather(old, &g, err);
    if (status == SPW_STATUS_OK && g.count > 0)
        status = spw_state_rates_replace(state, g.sources, g.count, NULL, err);
    gathered_free(&g);
    return status;
}

/* ---- rows into the active half ---- */

static bool same_source(const struct spw_rates_source *a, const char *name, int32_t as_of_day)
{
    return strncmp(a->name, name, sizeof a->name) == 0 && a->as_of_day == as_of_day;
}

/* The active half's place for the source: where it is, or a free one, written; -1 = there is none. */
static int source_place(struct spw_state *state, uint32_t half, const struct spw_rates_source *source)
{
    struct spw_rate_half *h = spw_rate_half_at(&state->map, half);
    for (uint32_t i = 0; i < h->sources_count && i < SPW_SOURCES_MAX_COUNT; i++) {
        const struct spw_source *at = spw_source_at(&state->map, (uint64_t)half * SPW_SOURCES_MAX_COUNT + i);
        if (at && same_source(source, at->name, at->as_of_day) &&
            memcmp(at->sha256, source->sha256, sizeof at->sha256) == 0)
            return (int)i;
    }
    if (h->sources_count >= SPW_SOURCES_MAX_COUNT)
        return -1;
    struct spw_source fresh;
    memset(&fresh, 0, sizeof fresh);
    memcpy(fresh.name, source->name, sizeof fresh.name);
    fresh.as_of_day = source->as_of_day;
    fresh.rows_count = (uint32_t)source->rows_count;
    memcpy(fresh.sha256, source->sha256, sizeof fresh.sha256);
    spw_copy_rlx((uint64_t *)(void *)spw_source_at(&state->map,
                                                   (uint64_t)half * SPW_SOURCES_MAX_COUNT + h->sources_count),
                 (const uint64_t *)(const void *)&fresh, sizeof fresh / 8);
    return (int)h->sources_count++; /* readers come to it through the records that name it */
}

/* What one upsert changed of the index, to take it back. */
struct change {
    uint64_t *index;
    uint64_t before;
};

/* Where a record's destination lies in the index. */
struct chain {
    uint64_t *exact; /* the record of the same place, first day included */
    uint64_t *first; /* the first record of the destination, whatever its days */
    uint64_t *empty; /* the first free word behind */
};

static void find_chain(const struct spw_map *map, uint32_t half, const struct spw_rate_record *record,
                       struct chain *out)
{
    uint64_t words = map->index_mask + 1, hash = spw_rate_hash(record->key);
    memset(out, 0, sizeof *out);
    for (uint64_t i = 0; i < SPW_RATES_PROBES && !out->empty; i++) {
        uint64_t *index = spw_rate_index_at(map, half * words + ((hash + i) & map->index_mask));
        uint64_t word = spw_load_rlx(index); /* SYNC rates: relaxed: this thread is the only writer */
        if (word == 0) {
            out->empty = index;
            return;
        }
        struct spw_rate_record *at =
            spw_rate_record_at(map, (uint64_t)half * map->records_per_half + ((word & 0xFFFFFFFF) - 1));
        if (!at || at->key != record->key || at->tax_code_hash != record->tax_code_hash ||
            at->plus4_lo != record->plus4_lo || at->plus4_hi != record->plus4_hi)
            continue;
        out->first = out->first ? out->first : index;
        if (spw_rate_same_place(at, record))
            out->exact = index;
    }
}

/* Make the record its destination's. One without a first day stands for all days; one with a first day goes before a
 * record of other days, which moves behind it. False: no room in reach of readers. */
static bool put_record(struct spw_state *state, uint32_t half, const struct spw_rate_record *record,
                       struct change *changes, size_t *changes_count)
{
    struct spw_map *map = &state->map;
    struct spw_rate_half *h = spw_rate_half_at(map, half);
    struct chain chain;
    find_chain(map, half, record, &chain);
    uint64_t *index = chain.first && record->valid_from_day == 0 ? chain.first : chain.exact;
    bool replaces = index != NULL;
    if (!index && !chain.empty)
        return false;
    if (!index &&
        chain.first) { /* the word of the record of other days: behind first, so that it is never missing */
        changes[(*changes_count)++] = (struct change){chain.empty, 0};
        /* SYNC rates: release: the record is complete before an index word names it. */
        spw_store_rel(chain.empty, spw_load_rlx(chain.first));
        index = chain.first;
    } else if (!index) {
        index = chain.empty;
    }
    struct spw_rate_record *place =
        spw_rate_record_at(map, (uint64_t)half * map->records_per_half + h->records_count);
    spw_copy_rlx((uint64_t *)(void *)place, (const uint64_t *)(const void *)record, sizeof *record / 8);
    h->records_count++;
    if (record->tax_code_hash && !replaces)
        spw_store32_rel(&h->coded_count, h->coded_count + 1); /* SYNC rates-half: release: a lone word */
    changes[(*changes_count)++] = (struct change){index, spw_load_rlx(index)};
    /* SYNC rates: release: the record is complete before an index word names it. */
    spw_store_rel(index, spw_rate_index_word(spw_rate_hash(record->key), h->records_count - 1));
    if (chain.exact && chain.exact != index) { /* the same place once more, behind: the same record */
        changes[(*changes_count)++] = (struct change){chain.exact, spw_load_rlx(chain.exact)};
        spw_store_rel(chain.exact, spw_load_rlx(index)); /* SYNC rates: release: as above */
    }
    h->replaced_count += replaces;
    h->upserts_count++;
    return true;
}

static bool put_all(struct spw_state *state, uint32_t half, const struct spw_rates_source *source,
                    uint16_t place, struct change *changes)
{
    size_t n = 0;
    for (size_t i = 0; i < source->rows_count; i++) {
        struct spw_rate_record record;
        spw_rate_record_from(&source->rows[i], place, &record);
        if (put_record(state, half, &record, changes, &n))
            continue;
        while (n-- > 0) /* SYNC rates: release: an older record, complete as ever */
            spw_store_rel(changes[n].index, changes[n].before);
        return false;
    }
    return true;
}

/* Join the new rows to those of the same source, if there is one; either way they come last, so that they win. */
static enum spw_status join(struct gathered *g, const struct spw_rates_source *source,
                            struct spw_rate_row **joined, struct spw_rates_source *sources, size_t *count,
                            struct spw_error *err)
{
    struct spw_rates_source all = *source;
    const struct spw_rates_source *same = NULL;
    *count = 0;
    for (uint32_t i = 0; i < g->count; i++) {
        const struct spw_rates_source *s = &g->sources[i];
        if (!same && same_source(s, source->name, source->as_of_day) &&
            memcmp(s->sha256, source->sha256, sizeof s->sha256) == 0)
            same = s;
        else
            sources[(*count)++] = *s;
    }
    if (same) {
        *joined = calloc(same->rows_count + source->rows_count + 1, sizeof **joined);
        if (!*joined)
            return spw_error_set(err, SPW_STATUS_NO_MEMORY,
                                 "rates: no memory for the table: raise the container's memory limit");
        memcpy(*joined, same->rows, same->rows_count * sizeof **joined);
        memcpy(*joined + same->rows_count, source->rows, source->rows_count * sizeof **joined);
        all.rows = *joined;
        all.rows_count = same->rows_count + source->rows_count;
    }
    sources[(*count)++] = all;
    return SPW_STATUS_OK;
}

/* What is in force and the new rows, together into the other half. */
static enum spw_status fill_anew(struct spw_state *state, const struct spw_rates_source *source,
                                 struct spw_rates_view *out, struct spw_error *err)
{
    struct gathered g;
    struct spw_rates_source sources[SPW_SOURCES_MAX_COUNT + 1];
    struct spw_rate_row *joined = NULL;
    size_t count = 0;
    enum spw_status status = gather(&state->map, &g, err);
    if (status == SPW_STATUS_OK)
        status = join(&g, source, &joined, sources, &count, err);
    if (status == SPW_STATUS_OK)
        status = spw_state_rates_replace(state, sources, count, out, err);
    free(joined);
    gathered_free(&g);
    return status;
}

enum spw_status spw_state_rates_upsert(struct spw_state *state, const struct spw_rates_source *source,
                                       struct spw_rates_view *out, struct spw_error *err)
{
    uint64_t active = spw_map_pub(&state->map)->rates_active;
    uint32_t half = (uint32_t)(active & 1);
    const struct spw_rate_half *h = spw_rate_half_at(&state->map, half);
    if (active == 0 || source->rows_count > state->map.records_per_half - h->records_count)
        return fill_anew(state, source, out, err);
    int place = source_place(state, half, source);
    if (place < 0)
        return spw_error_set(
            err, SPW_STATUS_FULL,
            "rates: the table has %u sources already: put the rows in under the name and date "
            "of one of them, or replace the table",
            SPW_SOURCES_MAX_COUNT);
    struct change *changes = calloc(source->rows_count * 2 + 1, sizeof *changes);
    if (!changes)
        return spw_error_set(err, SPW_STATUS_NO_MEMORY,
                             "rates: no memory for the rows: raise the container's memory limit");
    bool done = put_all(state, half, source, (uint16_t)place, changes);
    free(changes);
    if (!done)
        return fill_anew(state, source, out, err); /* says what is crowded, or has room after all */
    if (out)
        spw_state_rates_view(state, out);
    return SPW_STATUS_OK;
}
