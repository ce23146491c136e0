/* sweep.c: clearing up after processes that died, and what the segment looks like from outside.
 *
 * Owns: the transitions LIVE -> DEAD -> FREE of slots, the sidecar's own slot, and the removal of drained former
 * segments. Called by: main's timer, segment.c, http/metrics.c, control/. Thread: loop thread.
 *
 * Words that no process could have left, damage, come back too: of a slot that nobody holds, and of cells that name
 * none. A segment that was scribbled over serves again when the scribbler is gone.
 */
#include "sidecar/state/state_internal.h"

#include <stdlib.h>

#include "sidecar/obs/log.h"
#include "sidecar/state/prev.h"

/* A process that wrote into a replaced segment notices the retirement and writes again into the new one, so that
 * after this time a lock still held means nothing but an idle process. */
#define PREV_KEPT_NS UINT64_C(60000000000)

/* Add a departed process's statistics to slot 0's. Statistics: a crash in between counts them twice. */
static void fold_stats(struct spw_map *map, uint32_t slot)
{
    uint32_t accounts = map->pub_section[SPW_PUB_ACCOUNTS].count;
    for (uint32_t a = 0; a < accounts; a++) {
        struct spw_stats *from = spw_stats_at(map, (uint64_t)slot * accounts + a), *to = spw_stats_at(map, a);
        for (unsigned i = 0; i < SPW_STATS_COUNT; i++) {
            uint64_t n = spw_load_rlx(&from->count[i]); /* statistics */
            if (n) {
                spw_add_rlx(&to->count[i], n);
                spw_store_rlx(&from->count[i], 0);
            }
        }
    }
}

static void sweep_slot(struct spw_map *map, uint32_t index)
{
    struct spw_slot *slot = spw_slot_at(map, index);
    uint64_t word = spw_load_acq(&slot->word); /* SYNC slot: acquire */
    uint32_t generation = spw_slot_generation(word), slot_state = spw_slot_state(word);
    /* LIVE, or a state that there is not. */
    if (slot_state != SPW_SLOT_FREE && slot_state != SPW_SLOT_DEAD &&
        !spw_slot_held(map->self.lock_fd, map, index)) {
        uint64_t dead = spw_slot_word(generation, SPW_SLOT_DEAD);
        if (!spw_cas(&slot->word, &word, dead)) /* SYNC slot: acq_rel */
            return;
        word = dead;
    }
    if (spw_slot_state(word) != SPW_SLOT_DEAD)
        return;
    spw_permit_sweep(map, index, generation);
    if (!spw_cell_sweep(map, index, generation))
        return; /* its records are still to be stored: next time */
    fold_stats(map, index);
    /* SYNC slot: release: everything that named (slot, generation) is cleared. */
    (void)spw_cas(&slot->word, &word, spw_slot_word(generation + 1, SPW_SLOT_FREE));
}

/* ---- cells that nobody will finish ---- */

#define CELL_SLOTS 1024 /* what the slot's ten bits in a cell word can name */

struct cell_look {
    bool dead[CELL_SLOTS];    /* nobody holds the slot, or there is none: who wrote its name is gone */
    bool pending[CELL_SLOTS]; /* a record of it is still to be stored, and its continuations with it */
};

static uint32_t cell_slot(uint64_t word)
{
    return (uint32_t)(word >> 51) & (CELL_SLOTS - 1);
}

static void look_for_owners(const struct spw_map *map, const uint64_t *seen, struct cell_look *look)
{
    bool named[CELL_SLOTS] = {false};
    uint32_t slots = map->rw_section[SPW_RW_SLOTS].count, cells = map->rw_section[SPW_RW_CELL_WORDS].count;
    for (uint32_t i = 0; i < cells; i++) {
        if (spw_cell_state(seen[i]) == SPW_CELL_WRITING || spw_cell_state(seen[i]) == SPW_CELL_CHAINED)
            named[cell_slot(seen[i])] = true;
    }
    for (uint32_t slot = 0; slot < CELL_SLOTS; slot++) {
        /* This thread writes all records of the sidecar's, and is not writing one now. */
        bool nobody = slot == 0 || slot >= slots || slot == map->self.slot;
        look->dead[slot] = named[slot] && (nobody || !spw_slot_held(map->self.lock_fd, map, slot));
    }
    for (uint32_t i = 0; i < cells; i++) {
        uint64_t word = spw_load_acq(spw_cell_word_at(map, i)); /* SYNC cell: acquire */
        if (spw_cell_state(word) == SPW_CELL_READY || spw_cell_state(word) == SPW_CELL_TAKEN)
            look->pending[cell_slot(word)] = true;
    }
}

/* Free what is WRITING or CHAINED in the name of nobody, and states that there are not. In this order: the words, then
 * whether their slot is held, then the records: a word that is the same still at the end was its dead owner's. */
static uint32_t free_orphans(const struct spw_map *map)
{
    uint32_t cells = map->rw_section[SPW_RW_CELL_WORDS].count, freed = 0;
    uint64_t *seen = malloc(cells * sizeof *seen);
    struct cell_look look = {0};
    if (!seen)
        return 0; /* next time */
    for (uint32_t i = 0; i < cells; i++)
        seen[i] = spw_load_acq(spw_cell_word_at(map, i)); /* SYNC cell: acquire */
    look_for_owners(map, seen, &look);
    for (uint32_t i = 0; i < cells; i++) {
        uint32_t cell_state = spw_cell_state(seen[i]), slot = cell_slot(seen[i]);
        bool orphan = (cell_state == SPW_CELL_WRITING && look.dead[slot]) ||
                      (cell_state == SPW_CELL_CHAINED && look.dead[slot] && !look.pending[slot]) ||
                      cell_state > SPW_CELL_TAKEN;
        if (orphan && spw_cas(spw_cell_word_at(map, i), &seen[i], spw_cell_freed(seen[i])))
            freed++; /* SYNC cell: release */
    }
    free(seen);
    return freed;
}

/* Who is attached has copies of what it needs of the header; who comes, the next sidecar too, must find it as it was. */
static void heal_header(struct spw_state *state)
{
    const size_t constant =
        offsetof(struct spw_header, cells_hint); /* all other words of rw's are those of its making */
    if (memcmp(state->map.rw, &state->rw_header, constant) == 0)
        return;
    memcpy(state->map.rw, &state->rw_header, constant);
    spw_log(SPW_LOG_WARN, "segment.healed", "the header of rw was overwritten: it is as it was again");
}

static void heal_account(const struct spw_map *map, uint32_t index, uint64_t now_ns)
{
    const struct spw_account *account = spw_account_at(map, index);
    struct spw_account_words *words = spw_account_words_at(map, index);
    struct spw_account_conf conf;
    uint64_t moved = SPW_MOVED;
    if (!account || !words || account->state != SPW_RECORD_LIVE || !spw_account_conf_read(account, &conf))
        return;
    struct spw_breaker_word open = {.state = SPW_BREAKER_OPEN,
                                    .time_ms = spw_map_ms(map, now_ns) + conf.cooldown_min_ms};
    (void)spw_cas(&words->breaker, &moved, spw_breaker_pack(&open)); /* SYNC breaker: acq_rel */
    moved = SPW_MOVED;
    (void)spw_cas(&words->gate, &moved, 0); /* SYNC gate: acq_rel */
}

/* The words of a segment in force have not moved anywhere: that they say so is damage, which would keep every client
 * out. Buckets start EMPTY, a breaker is open for its shortest cooldown, as after any damage. */
static void heal_moved(const struct spw_map *map, uint64_t now_ns)
{
    for (uint32_t i = 0; i < map->pub_section[SPW_PUB_ACCOUNTS].count; i++)
        heal_account(map, i, now_ns);
    for (uint32_t i = 0; i < map->pub_section[SPW_PUB_LIMITERS].count; i++) {
        struct spw_limiter_words *words = spw_limiter_words_at(map, i);
        if (words && spw_load_acq(&words->level) == SPW_MOVED) /* SYNC bucket: acquire */
            spw_bucket_heal(spw_limiter_at(map, i), words, SPW_MOVED, now_ns);
    }
    for (uint32_t i = 0; i < map->rw_section[SPW_RW_PERMITS].count; i++) {
        uint64_t moved = SPW_MOVED, *permit = spw_permit_at(map, i);
        if (permit && spw_load_acq(permit) == SPW_MOVED) /* SYNC permit: acquire */
            (void)spw_cas(permit, &moved, 0);            /* SYNC permit: acq_rel */
    }
}

void spw_state_sweep(struct spw_state *state, uint64_t now_ns)
{
    struct spw_map *map = &state->map;
    heal_header(state);
    heal_moved(map, now_ns);
    uint64_t *nobodys = &spw_slot_at(map, 0)->word;
    if (spw_slot_state(spw_load_acq(nobodys)) != SPW_SLOT_RESERVED)  /* SYNC slot: acquire */
        spw_store_rel(nobodys, spw_slot_word(0, SPW_SLOT_RESERVED)); /* SYNC slot: release */
    for (uint32_t i = 1; i < map->rw_section[SPW_RW_SLOTS].count; i++) {
        if (i != map->self.slot)
            sweep_slot(map, i);
    }
    uint32_t freed = free_orphans(map);
    if (freed)
        spw_log(SPW_LOG_WARN, "segment.healed",
                "%u cell(s) belonged to no process and held no record: they are free again", freed);
}

/* ---- the sidecar's own slot ---- */

/* When no slot is free there is one that nobody holds, this sidecar's predecessor's at least. Whoever holds the lock
 * byte owns the slot, so its word can be written; its records stay READY and are stored like any other's. */
static enum spw_status take_dead_slot(struct spw_map *map, const char *rw_dir, const char *name)
{
    char path[SPW_PATH_BYTES + 32];
    snprintf(path, sizeof path, "%s/%s", rw_dir, name);
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    for (uint32_t i = 1; fd >= 0 && i < map->rw_section[SPW_RW_SLOTS].count; i++) {
        if (!spw__slot_lock(fd, map, i, F_WRLCK))
            continue;
        struct spw_slot *slot = spw_slot_at(map, i);
        uint32_t generation = spw_slot_generation(spw_load_acq(&slot->word)); /* SYNC slot: acquire */
        spw_permit_sweep(map, i, generation);
        (void)spw_cell_sweep(map, i, generation);
        fold_stats(map, i);
        spw_store_rel(&slot->word, spw_slot_word(generation + 1, SPW_SLOT_LIVE)); /* SYNC slot: release */
        map->self.lock_fd = fd;
        map->self.slot = i;
        map->self.generation = generation + 1;
        map->self.uid = (uint32_t)geteuid();
        slot->attached_ns = spw_now_ns();
        slot->uid = map->self.uid;
        return SPW_STATUS_OK;
    }
    if (fd >= 0)
        close(fd);
    return SPW_STATUS_FULL;
}

enum spw_status spw_own_slot_claim(struct spw_map *map, const char *rw_dir, const char *name)
{
    enum spw_status status = spw_slot_claim(map, rw_dir, name);
    return status == SPW_STATUS_FULL ? take_dead_slot(map, rw_dir, name) : status;
}

/* ---- former segments ---- */

struct spw_prev *spw_state_prev(struct spw_state *state)
{
    return state->prev;
}

struct spw_prev *spw_prev_next(struct spw_prev *prev)
{
    return prev->next;
}

struct spw_map *spw_prev_map(struct spw_prev *prev)
{
    return &prev->map;
}

static bool any_lock_held(const struct spw_conf *conf, const struct spw_prev *prev)
{
    char path[SPW_PATH_BYTES + 96];
    snprintf(path, sizeof path, "%s/%s", conf->segment.rw_dir, prev->name);
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    bool held = false;
    for (uint32_t i = 1; fd >= 0 && i < prev->map.rw_section[SPW_RW_SLOTS].count && !held; i++)
        held = spw_slot_held(fd, &prev->map, i);
    if (fd >= 0)
        close(fd);
    return held;
}

bool spw_prev_drained(struct spw_state *state, struct spw_prev *prev, uint64_t now_ns)
{
    uint32_t cursor = 0;
    if (spw_cell_next_ready(&prev->map, &cursor))
        return false;
    return now_ns - prev->since_ns > PREV_KEPT_NS || !any_lock_held(state->conf, prev);
}

void spw_prev_remove(struct spw_state *state, struct spw_prev *prev)
{
    const char *dirs[2] = {state->conf->segment.pub_dir, state->conf->segment.rw_dir};
    for (int i = 0; i < 2; i++) {
        char path[SPW_PATH_BYTES + 96];
        snprintf(path, sizeof path, "%s/%s", dirs[i], prev->name);
        unlink(path);
    }
    spw_log(SPW_LOG_INFO, "segment.prev", "%s is drained and removed", prev->name);
    for (struct spw_prev **at = &state->prev; *at; at = &(*at)->next) {
        if (*at == prev) {
            *at = prev->next;
            break;
        }
    }
    spw_map_close(&prev->map);
    free(prev);
}

/* ---- status ---- */

void spw_state_status(struct spw_state *state, struct spw_state_status *out)
{
    struct spw_map *map = &state->map;
    memset(out, 0, sizeof *out);
    snprintf(out->origin, sizeof out->origin, "%.127s", state->origin);
    out->generation = map->generation;
    for (uint32_t i = 0; i < map->pub_section[SPW_PUB_ACCOUNTS].count; i++)
        out->accounts_count += spw_account_at(map, i)->state == SPW_RECORD_LIVE;
    out->slots_count = map->rw_section[SPW_RW_SLOTS].count;
    for (uint32_t i = 1; i < out->slots_count; i++)
        out->attached_count +=
            i != map->self.slot && spw_slot_state(spw_slot_at(map, i)->word) == SPW_SLOT_LIVE;
    out->cells_count = map->rw_section[SPW_RW_CELL_WORDS].count;
    for (uint32_t i = 0; i < out->cells_count; i++) /* SYNC cell: relaxed: only counted */
        out->cells_busy_count += spw_cell_state(spw_load_rlx(spw_cell_word_at(map, i))) != SPW_CELL_FREE;
    out->pub_bytes = map->pub_bytes;
    out->rw_bytes = map->rw_bytes;
}

void spw_state_call_count(struct spw_state *state, uint32_t account_index, bool throttled)
{
    if (account_index >= SPW_CONF_ACCOUNTS_MAX_COUNT)
        return;
    state->provider_calls[account_index]++;
    state->provider_429[account_index] += throttled;
}

void spw_state_fallback_count(struct spw_state *state, uint32_t account_index, enum spw_fallback type)
{
    if (account_index < SPW_CONF_ACCOUNTS_MAX_COUNT && type < SPW_FALLBACK_COUNT)
        state->door_fallbacks[account_index][type]++;
}

enum spw_status spw_state_account_status(struct spw_state *state, uint32_t account_index, uint64_t now_ns,
                                         struct spw_account_status *out)
{
    struct spw_map *map = &state->map;
    const struct spw_account *account = spw_account_at(map, account_index);
    memset(out, 0, sizeof *out);
    if (!account || account->state != SPW_RECORD_LIVE)
        return SPW_STATUS_NOT_FOUND;
    uint32_t accounts = map->pub_section[SPW_PUB_ACCOUNTS].count;
    for (uint32_t slot = 0; slot < map->rw_section[SPW_RW_SLOTS].count; slot++) {
        const struct spw_stats *stats = spw_stats_at(map, (uint64_t)slot * accounts + account_index);
        for (unsigned i = 0; i < SPW_STATS_COUNT; i++) /* statistics */
            out->decisions[i] += spw_load_rlx(&stats->count[i]);
    }
    for (unsigned i = 0; i < SPW_STATS_OWN_COUNT; i++)
        out->decisions[i] += out->decisions[SPW_STAT_OWN + i];
    if (account_index < SPW_CONF_ACCOUNTS_MAX_COUNT) {
        memcpy(out->door_fallbacks, state->door_fallbacks[account_index], sizeof out->door_fallbacks);
        out->provider_calls_count = state->provider_calls[account_index];
        out->provider_429_count = state->provider_429[account_index];
    }
    enum spw_status status = spw_state_limit_get(state, account->name, now_ns, &out->limit, NULL);
    if (status == SPW_STATUS_OK)
        status = spw_state_breaker_get(state, account->name, now_ns, &out->breaker, NULL);
    return status;
}
