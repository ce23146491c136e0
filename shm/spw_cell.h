/* spw_cell.h: flag cells: how a record of a fallback or an order gets from a process that may die to the ledger.
 *
 * Owns: cell words and cells. Called by: whoever gives out a fallback or places an order (write), the store thread
 * (read, take, free), the sidecar's sweep. Thread/process: any number of writers; one reader.
 *
 *   word: {state:3 | slot:10 | slot generation:24 | cycle:27}
 *
 *   FREE(c) --CAS--> WRITING{slot, generation, c} --payload, continuations CHAINED--> READY (release)
 *   READY --read, insert, commit--> TAKEN --continuations freed--> FREE(c + 1)
 *
 * WRITING or CHAINED with a dead owner was never acknowledged and goes back to FREE. A crash between commit and TAKEN
 * reads the cell again and the ledger ignores the second copy. TAKEN exists so that a crash while a chain is being
 * freed cannot make half a chain look like a record. A process may claim cells only in its own half of the table.
 */
#ifndef SPW_CELL_H
#define SPW_CELL_H

#include "shm/spw_slot.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SPW_CELL_CYCLE_MASK UINT64_C(0x7FFFFFF)
#define SPW_CELL_DATA_BYTES (SPW_CELL_BYTES - 16u)

static inline uint64_t spw_cell_pack(uint32_t state, uint32_t slot, uint32_t generation, uint64_t cycle)
{
    return (uint64_t)state << 61 | (uint64_t)(slot & 0x3FF) << 51 | (uint64_t)(generation & 0xFFFFFF) << 27 |
           (cycle & SPW_CELL_CYCLE_MASK);
}
static inline uint32_t spw_cell_state(uint64_t word)
{
    return (uint32_t)(word >> 61);
}
/* Slot and generation as one number, to compare owners. */
static inline uint64_t spw_cell_owner(uint64_t word)
{
    return word >> 27 & 0x3FFFFFFFF;
}
static inline uint64_t spw_cell_with(uint64_t word, uint32_t state)
{
    return (word & ~(UINT64_C(7) << 61)) | (uint64_t)state << 61;
}
static inline uint64_t spw_cell_freed(uint64_t word)
{
    return spw_cell_pack(SPW_CELL_FREE, 0, 0, (word & SPW_CELL_CYCLE_MASK) + 1);
}

/* A stretch of bytes to be written; a record is several of them. */
struct spw_part {
    const void *bytes;
    size_t count;
};

/* A cell this process has claimed, and its word since: whoever changes it has taken the cell away. */
struct spw__claim {
    uint32_t index;
    uint64_t word;
};

static inline void spw__cells_give_back(const struct spw_map *map, const struct spw__claim *claim, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        uint64_t mine = claim[i].word;
        (void)spw_cas(spw_cell_word_at(map, claim[i].index), &mine,
                      spw_cell_freed(mine)); /* SYNC cell: release. */
    }
}

static inline bool spw__cells_claim(const struct spw_map *map, struct spw__claim *claim, uint32_t wanted,
                                    uint32_t hint)
{
    uint32_t cells = map->rw_section[SPW_RW_CELL_WORDS].count, half = cells / 2;
    uint32_t first = (uint32_t)((uint64_t)map->self.slot * 2654435761u % cells), got = 0;
    for (uint32_t i = 0; i < half && got < wanted; i++) {
        uint32_t index = (first + (hint + i) % half) % cells;
        uint64_t *word = spw_cell_word_at(map, index);
        /* SYNC cell: acquire: the last reader of this cell is done with it. */
        uint64_t seen = spw_load_acq(word);
        if (spw_cell_state(seen) != SPW_CELL_FREE)
            continue;
        uint64_t mine = spw_cell_pack(SPW_CELL_WRITING, map->self.slot, map->self.generation, seen);
        if (spw_cas(word, &seen, mine)) { /* SYNC cell: acq_rel: FREE -> WRITING names the owner. */
            claim[got].index = index;
            claim[got++].word = mine;
        }
    }
    if (got == wanted)
        return true;
    spw__cells_give_back(map, claim, got);
    return false;
}

/* The parts, one after the other, into the claimed cells, each linked to the next. */
static inline bool spw__cells_fill(const struct spw_map *map, const struct spw__claim *claim, uint32_t cells,
                                   const struct spw_part *parts, size_t parts_count)
{
    size_t part = 0, offset = 0;
    for (uint32_t i = 0; i < cells; i++) {
        struct spw_cell *cell = spw_cell_at(map, claim[i].index);
        uint32_t used = 0;
        if (!cell)
            return false; /* cannot be: the index came from the table of words, which has as many */
        while (used < SPW_CELL_DATA_BYTES && part < parts_count) {
            size_t n = parts[part].count - offset;
            if (n > SPW_CELL_DATA_BYTES - used)
                n = SPW_CELL_DATA_BYTES - used;
            if (n)
                memcpy(cell->data + used, (const uint8_t *)parts[part].bytes + offset, n);
            used += (uint32_t)n;
            offset += n;
            if (offset == parts[part].count) {
                part++;
                offset = 0;
            }
        }
        bool last = i + 1 == cells;
        cell->bytes = used;
        cell->next = last ? 0 : claim[i + 1].index + 1;
        cell->next_cycle = last ? 0 : (uint32_t)(claim[i + 1].word & SPW_CELL_CYCLE_MASK);
    }
    return true;
}

/* Write a record of `parts` and make it READY. hint: any number that differs from call to call, to spread the search.
 * OK: recorded, it survives the SIGKILL of every process. FULL: no cell free in this process's half. NOT_READY: this
 * process has no slot, or lost it (it closed every descriptor). INVALID: empty, or longer than a chain holds. No system
 * call. */
static inline enum spw_status SPW_WARN_UNUSED spw_cell_write(const struct spw_map *map, uint32_t hint,
                                                             const struct spw_part *parts, size_t parts_count)
{
    struct spw__claim claim[SPW_CHAIN_MAX_CELLS];
    size_t total = 0;
    for (size_t i = 0; i < parts_count; i++)
        total += parts[i].count;
    if (total == 0 || total > (size_t)SPW_CHAIN_MAX_CELLS * SPW_CELL_DATA_BYTES)
        return SPW_STATUS_INVALID;
    if (map->self.lock_fd < 0)
        return SPW_STATUS_NOT_READY;
    uint32_t cells = (uint32_t)((total + SPW_CELL_DATA_BYTES - 1) / SPW_CELL_DATA_BYTES);
    if (!spw__cells_claim(map, claim, cells, hint))
        return SPW_STATUS_FULL;
    if (!spw__cells_fill(map, claim, cells, parts, parts_count)) {
        spw__cells_give_back(map, claim, cells);
        return SPW_STATUS_CORRUPT;
    }
    for (uint32_t i = cells; i-- > 0;) {
        uint64_t mine = claim[i].word;
        /* SYNC cell: release: the payload is written before the state says so; the head goes last. */
        if (!spw_cas(spw_cell_word_at(map, claim[i].index), &mine,
                     spw_cell_with(mine, i ? SPW_CELL_CHAINED : SPW_CELL_READY)))
            return SPW_STATUS_NOT_READY; /* taken for dead and swept: nothing of this is a record */
    }
    struct spw_slot *slot = spw_slot_at(map, map->self.slot);
    uint64_t live = spw_slot_word(map->self.generation, SPW_SLOT_LIVE);
    /* SYNC slot: acq_rel: LIVE for LIVE. A sweep that began earlier may have taken the chain apart; one that begins
     * after this finds the head READY, and the chain stays. */
    if (!slot || !spw_cas(&slot->word, &live, live))
        return SPW_STATUS_NOT_READY;
    spw_add_rlx(&spw_map_rw(map)->cells_hint, 1);
    return SPW_STATUS_OK;
}

/* Has this owner a record that is not durable yet? A cell is freed after the commit that carried it. */
static inline bool spw_cell_recorded(const struct spw_map *map, uint32_t slot, uint32_t generation)
{
    uint64_t owner = spw_cell_owner(spw_cell_pack(0, slot, generation, 0));
    for (uint32_t i = 0; i < map->rw_section[SPW_RW_CELL_WORDS].count; i++) {
        /* SYNC cell: acquire: FREE was stored after the commit. */
        uint64_t seen = spw_load_acq(spw_cell_word_at(map, i));
        if (spw_cell_state(seen) == SPW_CELL_READY && spw_cell_owner(seen) == owner)
            return true;
    }
    return false;
}

/* SIDECAR ONLY */
/* ---- the store thread's side ---- */

/* The next READY head at or after *cursor; false at the end of the table. */
static inline bool spw_cell_next_ready(const struct spw_map *map, uint32_t *cursor)
{
    for (; *cursor < map->rw_section[SPW_RW_CELL_WORDS].count; (*cursor)++) {
        /* SYNC cell: acquire: READY was stored after the payload. */
        if (spw_cell_state(spw_load_acq(spw_cell_word_at(map, *cursor))) == SPW_CELL_READY)
            return true;
    }
    return false;
}

/* Copy a READY record out of its chain. CORRUPT when links or lengths do not make sense: nothing of it is used. */
static inline enum spw_status SPW_WARN_UNUSED spw_cell_read(const struct spw_map *map, uint32_t head,
                                                            uint8_t *out, size_t room, size_t *bytes)
{
    uint32_t index = head;
    *bytes = 0;
    /* SYNC cell: acquire: READY was stored after the payload and after every link of the chain. */
    uint64_t owner = spw_cell_owner(spw_load_acq(spw_cell_word_at(map, head)));
    for (uint32_t i = 0; i < SPW_CHAIN_MAX_CELLS; i++) {
        const struct spw_cell *cell = spw_cell_at(map, index);
        if (!cell)
            return SPW_STATUS_CORRUPT;
        /* SYNC cell: relaxed: read once, then checked; a damaged cell may be changing. */
        uint32_t next = spw_load32_rlx(&cell->next);
        uint32_t cycle = spw_load32_rlx(&cell->next_cycle);
        uint32_t used = spw_load32_rlx(&cell->bytes);
        if (used > SPW_CELL_DATA_BYTES || used > room - *bytes)
            return SPW_STATUS_CORRUPT;
        memcpy(out + *bytes, cell->data, used);
        *bytes += used;
        if (next == 0)
            return SPW_STATUS_OK;
        index = next - 1;
        const uint64_t *word = spw_cell_word_at(map, index);
        if (!word)
            return SPW_STATUS_CORRUPT;
        uint64_t seen = spw_load_acq(word); /* SYNC cell: acquire: CHAINED was stored after its payload. */
        if (spw_cell_state(seen) != SPW_CELL_CHAINED || spw_cell_owner(seen) != owner ||
            (seen & SPW_CELL_CYCLE_MASK) != cycle)
            return SPW_STATUS_CORRUPT;
    }
    return SPW_STATUS_CORRUPT;
}

/* Free a head that is READY (its record is committed) or TAKEN (freeing was cut short), with its chain. */
static inline void spw_cell_free(const struct spw_map *map, uint32_t head)
{
    uint64_t *word = spw_cell_word_at(map, head);
    /* SYNC cell: acquire. */
    uint64_t taken = spw_load_acq(word);
    if (spw_cell_state(taken) == SPW_CELL_READY) {
        uint64_t ready = taken;
        taken = spw_cell_with(ready, SPW_CELL_TAKEN);
        if (!spw_cas(word, &ready,
                     taken)) /* SYNC cell: acq_rel: from here on the record is not read again. */
            return;
    }
    if (spw_cell_state(taken) != SPW_CELL_TAKEN)
        return;
    /* Find the chain, then free it from its end: cut short at any point, what is left still hangs on the head and the
     * next call finds it. Only the very continuations this chain claimed: others may have been freed and claimed anew. */
    uint64_t *link[SPW_CHAIN_MAX_CELLS], mine[SPW_CHAIN_MAX_CELLS];
    uint32_t links = 0;
    const struct spw_cell *cell = spw_cell_at(map, head);
    while (cell && links < SPW_CHAIN_MAX_CELLS) {
        /* SYNC cell: relaxed: as for reading; the word below proves the link. */
        uint32_t next = spw_load32_rlx(&cell->next);
        uint32_t cycle = spw_load32_rlx(&cell->next_cycle);
        uint64_t *found = next ? spw_cell_word_at(map, next - 1) : NULL;
        uint64_t expected = (spw_cell_with(taken, SPW_CELL_CHAINED) & ~SPW_CELL_CYCLE_MASK) | cycle;
        if (!found ||
            spw_load_acq(found) != expected) /* SYNC cell: acquire: CHAINED follows the link in it. */
            break;
        link[links] = found;
        mine[links++] = expected;
        cell = spw_cell_at(map, next - 1);
    }
    while (links-- > 0)
        (void)spw_cas(link[links], &mine[links],
                      spw_cell_freed(mine[links]));     /* SYNC cell: release: for the next. */
    (void)spw_cas(word, &taken, spw_cell_freed(taken)); /* SYNC cell: release. */
}

/* At start: finish what a crash cut short. */
static inline void spw_cell_recover(const struct spw_map *map)
{
    for (uint32_t i = 0; i < map->rw_section[SPW_RW_CELL_WORDS].count; i++) {
        /* SYNC cell: acquire. */
        if (spw_cell_state(spw_load_acq(spw_cell_word_at(map, i))) == SPW_CELL_TAKEN)
            spw_cell_free(map, i);
    }
}

/* Sweep of a dead slot: what it was writing goes back. false: it still has READY records to be stored; its slot must
 * wait, since their continuations carry its name. Repeatable. */
static inline bool spw_cell_sweep(const struct spw_map *map, uint32_t slot, uint32_t generation)
{
    uint64_t owner = spw_cell_owner(spw_cell_pack(0, slot, generation, 0));
    uint32_t cells = map->rw_section[SPW_RW_CELL_WORDS].count;
    bool pending = false;
    for (uint32_t i = 0; i < cells; i++) {
        uint64_t *word = spw_cell_word_at(map, i);
        uint64_t seen = spw_load_acq(word); /* SYNC cell: acquire. */
        uint32_t state = spw_cell_state(seen);
        if (state == SPW_CELL_FREE || spw_cell_owner(seen) != owner)
            continue;
        if (state == SPW_CELL_WRITING) /* SYNC cell: release. Lost: it was alive, and has become a record. */
            pending |= !spw_cas(word, &seen, spw_cell_freed(seen));
        else if (state == SPW_CELL_READY || state == SPW_CELL_TAKEN)
            pending = true;
    }
    for (uint32_t i = 0; !pending && i < cells; i++) {
        uint64_t *word = spw_cell_word_at(map, i);
        uint64_t seen = spw_load_acq(word); /* SYNC cell: acquire. */
        if (spw_cell_state(seen) == SPW_CELL_CHAINED && spw_cell_owner(seen) == owner)
            (void)spw_cas(word, &seen, spw_cell_freed(seen)); /* SYNC cell: release. */
    }
    return !pending;
}

/* ---- what is in a record ---- */

/* A flag read from bytes; texts are NUL-terminated copies or pointers into the bytes. */
struct spw_flag_view {
    struct spw_flag_record record;
    const uint8_t *lines; /* record.lines_count of struct spw_line_tax, unaligned */
    const char *assumptions;
    const char *request; /* not NUL-terminated: record.request_bytes */
};

static inline uint32_t spw_cell_kind(const uint8_t *bytes, size_t count)
{
    struct spw_cell_prefix prefix;
    if (count < sizeof prefix)
        return 0;
    memcpy(&prefix, bytes, sizeof prefix);
    return prefix.kind;
}

/* Copy the record behind the prefix: as much as both writer and reader know of it, the rest zero. */
static inline size_t spw__record_copy(const uint8_t *bytes, size_t count, void *out, size_t out_bytes,
                                      size_t least)
{
    struct spw_cell_prefix prefix;
    if (count < sizeof prefix)
        return 0;
    memcpy(&prefix, bytes, sizeof prefix);
    if (prefix.record_bytes < least || prefix.record_bytes > count - sizeof prefix)
        return 0;
    memset(out, 0, out_bytes);
    memcpy(out, bytes + sizeof prefix, prefix.record_bytes < out_bytes ? prefix.record_bytes : out_bytes);
    return sizeof prefix + prefix.record_bytes;
}

#define SPW__TERMINATE(array) ((array)[sizeof(array) - 1] = 0)

static inline bool spw_flag_parse(const uint8_t *bytes, size_t count, struct spw_flag_view *out)
{
    struct spw_flag_record *r = &out->record;
    size_t at = spw__record_copy(bytes, count, r, sizeof *r, 640);
    if (!at || spw_cell_kind(bytes, count) != SPW_CELL_FLAG)
        return false;
    SPW__TERMINATE(r->flag_id);
    SPW__TERMINATE(r->quote_id);
    SPW__TERMINATE(r->decision_id);
    SPW__TERMINATE(r->quote_ref);
    SPW__TERMINATE(r->account);
    SPW__TERMINATE(r->integration);
    SPW__TERMINATE(r->currency);
    SPW__TERMINATE(r->country);
    SPW__TERMINATE(r->state);
    SPW__TERMINATE(r->zip);
    SPW__TERMINATE(r->date);
    SPW__TERMINATE(r->source);
    if (r->lines_count > SPW_LINES_MAX_COUNT + 1 || r->assumptions_bytes > SPW_ASSUMPTIONS_MAX_BYTES ||
        r->request_bytes > SPW_REQUEST_MAX_BYTES ||
        count - at != r->lines_count * sizeof(struct spw_line_tax) + r->assumptions_bytes + r->request_bytes)
        return false;
    out->lines = bytes + at;
    out->assumptions = (const char *)bytes + at + r->lines_count * sizeof(struct spw_line_tax);
    out->request = out->assumptions + r->assumptions_bytes;
    return r->flag_id[0] && r->quote_id[0] && r->decision_id[0] && r->type > SPW_FALLBACK_NONE &&
           r->type < SPW_FALLBACK_COUNT && r->cause < SPW_CAUSE_COUNT && r->match < SPW_MATCH_COUNT &&
           r->purpose < SPW_PURPOSE_COUNT && r->rounding < SPW_ROUNDING_COUNT;
}

static inline bool spw_order_parse(const uint8_t *bytes, size_t count, struct spw_order_record *out)
{
    if (!spw__record_copy(bytes, count, out, sizeof *out, 216) ||
        spw_cell_kind(bytes, count) != SPW_CELL_ORDER)
        return false;
    SPW__TERMINATE(out->quote_id);
    SPW__TERMINATE(out->order_id);
    SPW__TERMINATE(out->account);
    SPW__TERMINATE(out->currency);
    switch (out->op) {
    case SPW_ORDER_PLACED:
        return out->order_id[0] && out->quote_id[0];
    case SPW_ORDER_CANCELLED:
        return out->order_id[0];
    case SPW_ORDER_ABANDONED:
        return out->quote_id[0];
    default:
        return false;
    }
}
/* END SIDECAR ONLY */

#ifdef __cplusplus
}
#endif

#endif
