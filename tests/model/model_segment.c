/* model_segment.c: processes come and go, and the segment is replaced under them.
 *
 * The sidecar's side is sidecar/state as it is: sweep.c, publish.c, and the steps of segment.c. Directories are two
 * words of shared memory: which file stands at the name in pub and in rw.
 */
#include "tests/model/step.h"

#include "shm/spw_client.h"

int spw_step_rename(const char *from);
int spw_step_link(void);
#define rename(from, to) ((void)(to), spw_step_rename(from))
#define link(from, to)   ((void)(from), (void)(to), spw_step_link())
#define unlink(path)     ((void)(path))
#include "sidecar/state/segment.c"
#undef rename
#undef link
#undef unlink

#include "tests/model/tiny.h"

/* ---- files: a pair of segments, and what the two names stand for ---- */

#define PAIRS 3u
enum { NOTHING, OLD, NEW, NEXT }; /* what a name stands for: a pair's number + 1 */

struct directory {
    uint64_t pub, rw; /* what is called "segment" there */
    uint64_t tmp;     /* the pair that "segment.tmp" stands for in both */
};

static struct directory *directory;
static struct tiny_pub *pub[PAIRS];
static struct tiny_rw *rw[PAIRS];
static struct spw_map pair_map[PAIRS];

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* A descriptor names its file and, above that, which opening it is. */
static uint64_t *place_of(const char *path)
{
    if (strncmp(path, "pub/", 4) == 0)
        return &directory->pub;
    return strncmp(path, "rw/", 3) == 0 ? &directory->rw : NULL;
}

int spw_step_open(const char *path)
{
    uint64_t *place = place_of(path), pair = NOTHING;
    if (place && ends_with(path, "/segment"))
        pair = spw_load_rlx(place);
    else if (place && strstr(path, SPW_PREV_NAME))
        pair = OLD; /* the only one that is looked for by its second name here */
    if (pair == NOTHING) {
        errno = ENOENT;
        return -1;
    }
    return spw_model_descriptor() << 4 | (int)(2 * pair) | (place == &directory->rw);
}

int spw_step_close(int fd)
{
    spw_model_unlock(fd);
    return 0;
}

int spw_step_fstat(int fd, struct stat *out)
{
    memset(out, 0, sizeof *out);
    out->st_ino = (ino_t)(fd & 15);
    out->st_mode = S_IFREG;
    out->st_size = fd & 1 ? (off_t)sizeof(struct tiny_rw) : (off_t)sizeof(struct tiny_pub);
    return 0;
}

int spw_step_stat(const char *path, struct stat *out)
{
    int fd = spw_step_open(path);
    return fd < 0 ? -1 : spw_step_fstat(fd, out);
}

void *spw_step_mmap(int fd)
{
    unsigned pair = (((unsigned)fd & 15) / 2 - 1) % PAIRS;
    return fd & 1 ? (void *)rw[pair] : (void *)pub[pair];
}

int spw_step_rename(const char *from)
{
    uint64_t *place = place_of(from);
    if (place)
        spw_store_rlx(place, spw_load_rlx(&directory->tmp));
    return 0;
}

int spw_step_link(void)
{
    spw_model_point();
    return 0;
}

/* ---- what the sidecar's files ask of other rooms ---- */

enum spw_status spw_error_set(struct spw_error *err, enum spw_status status, const char *format, ...)
{
    (void)err;
    (void)format;
    return status;
}

void spw_log(enum spw_log_level level, const char *event, const char *format, ...)
{
    (void)level;
    (void)event;
    (void)format;
}

void spw_conf_limit_complete(struct spw_conf_limit *limit)
{
    (void)limit;
}

void spw_observed_note(struct spw_state *state, uint32_t index, const struct spw_evidence *evidence)
{
    (void)state;
    (void)index;
    (void)evidence;
}

void spw_observed_forget(struct spw_state *state, uint32_t index)
{
    (void)state;
    (void)index;
}

enum spw_status spw_conf_limit_check(const struct spw_conf_limit *limit, struct spw_error *err)
{
    (void)limit;
    (void)err;
    return SPW_STATUS_OK;
}

enum spw_status spw_conf_breaker_check(const struct spw_conf_breaker *breaker, struct spw_error *err)
{
    (void)breaker;
    (void)err;
    return SPW_STATUS_OK;
}

void spw_learned_mend(struct spw_state *state)
{
    (void)state;
}

void spw_learned_carry(struct spw_state *state, const struct spw_map *old)
{
    (void)state;
    (void)old;
}

enum spw_status spw_rates_carry(struct spw_state *state, const struct spw_map *old, struct spw_error *err)
{
    (void)state;
    (void)old;
    (void)err;
    return SPW_STATUS_OK;
}

enum spw_status spw_state_rates_replace(struct spw_state *state, const struct spw_rates_source *sources,
                                        size_t sources_count, struct spw_rates_view *out,
                                        struct spw_error *err)
{
    (void)state;
    (void)sources;
    (void)sources_count;
    (void)out;
    (void)err;
    return SPW_STATUS_OK;
}

/* ---- a pair ---- */

#define BURST 3u

static struct spw_state sidecar[2]; /* the one that replaces, and the next */
static struct spw_conf sidecar_conf;

static void make_tiny_pair(unsigned pair, const char *pub_name, const char *rw_name, uint32_t permits)
{
    const uint64_t burst = BURST;
    pub[pair] = spw_model_shared(pub_name, sizeof *pub[pair]);
    rw[pair] = spw_model_shared(rw_name, sizeof *rw[pair]);
    tiny_make(pub[pair], rw[pair], &pair_map[pair], 1, &burst, permits);
    uint64_t generation = 100 + pair;
    pair_map[pair].generation = pub[pair]->header.generation = rw[pair]->header.generation = generation;
    pair_map[pair].lock_base = pub[pair]->header.lock_base = rw[pair]->header.lock_base = pair * 8;
    /* Only the words of the header are written here. */
    spw_model_constant(pub[pair], offsetof(struct spw_header, ready));
    spw_model_constant(&pub[pair]->account, sizeof *pub[pair] - offsetof(struct tiny_pub, account));
    spw_model_constant(rw[pair], offsetof(struct spw_header, ready));
    spw_model_unhashed(rw[pair]->cell, sizeof rw[pair]->cell);
    if (pair + 1 == NEW || pair + 1 == NEXT) { /* made, not visible: buckets EMPTY, not ready */
        pub[pair]->header.ready = rw[pair]->header.ready = 0;
        struct spw_gcra g = {0};
        if (!spw_limiter_conf_read(&pub[pair]->limiter[0], (uint32_t)pub[pair]->limiter[0].current, &g))
            abort();
        rw[pair]->limiter[0].level =
            spw_bucket_word((uint32_t)pub[pair]->limiter[0].current, spw_gcra_earned(&g, TINY_BASE_NS));
    }
}

static void make_directory(uint64_t tmp)
{
    directory = spw_model_shared("directory", sizeof *directory);
    directory->pub = directory->rw = OLD;
    directory->tmp = tmp;
    memset(sidecar, 0, sizeof sidecar);
    memset(&sidecar_conf, 0, sizeof sidecar_conf);
    memcpy(sidecar_conf.segment.pub_dir, "pub", 4);
    memcpy(sidecar_conf.segment.rw_dir, "rw", 3);
    spw_model_clock(SPW_MODEL_PROCESSES, TINY_BASE_NS);
}

/* ---- slots: two processes at one free slot, and the sidecar's sweep ---- */

static void set_up_slots(void)
{
    make_tiny_pair(0, "pub", "rw", 2);
    make_directory(NOTHING);
    /* Slot 1 is the sidecar's own, held by process 2 from the start. */
    rw[0]->slot[1].word = spw_slot_word(4, SPW_SLOT_LIVE);
    sidecar[0].map = pair_map[0];
    sidecar[0].map.self.slot = 1;
    sidecar[0].map.self.generation = 4;
    sidecar[0].map.self.lock_fd = 7;
    sidecar[0].rw_header = rw[0]->header;
    sidecar[0].conf = &sidecar_conf;
}

/* Comes, takes a permit, goes without giving it back; or dies somewhere on the way. */
static void come_and_go(void)
{
    unsigned self = spw_model_self();
    struct spw_map *map = spw_model_own(self, sizeof *map);
    uint64_t *told = spw_model_result(self);
    *map = pair_map[0];
    map->rw_inode = 2 * OLD + 1;
    enum spw_status status = spw_slot_claim(map, "rw", SPW_RW_NAME);
    if (status != SPW_STATUS_OK) {
        SPW_HOLDS(status == SPW_STATUS_FULL);
        return;
    }
    told[0] = map->self.slot;
    told[1] = map->self.generation;
    uint64_t word;
    uint32_t index;
    told[2] = spw_permit_take(map, 0, 2, self, 2000, TINY_BASE_NS, &word, &index);
    spw_model_point();
    told[0] = 0;
    spw_slot_release(map);
}

static void sweep_twice(void)
{
    for (unsigned i = 0; i < 2; i++)
        spw_state_sweep(&sidecar[0], TINY_BASE_NS);
}

/* Who has claimed a slot and lives has it alone, under the generation it claimed. */
static void slots_always(void)
{
    uint64_t *one = spw_model_result(0), *two = spw_model_result(1);
    bool a = one[0] && !spw_model_dead(0), b = two[0] && !spw_model_dead(1);
    SPW_HOLDS(!(a && b && one[0] == two[0]));
    SPW_HOLDS(!a || rw[0]->slot[one[0]].word == spw_slot_word((uint32_t)one[1], SPW_SLOT_LIVE));
    SPW_HOLDS(!b || rw[0]->slot[two[0]].word == spw_slot_word((uint32_t)two[1], SPW_SLOT_LIVE));
}

static void slots_end(void)
{
    spw_state_sweep(&sidecar[0], TINY_BASE_NS);
    SPW_HOLDS(spw_slot_state(rw[0]->slot[2].word) == SPW_SLOT_FREE);
    SPW_HOLDS(spw_permit_free_count(&pair_map[0], 0, 2, TINY_BASE_NS) == 2);
    SPW_HOLDS(spw_slot_state(rw[0]->slot[0].word) == SPW_SLOT_RESERVED);
    SPW_HOLDS(rw[0]->slot[1].word == spw_slot_word(4, SPW_SLOT_LIVE));
}

/* ---- a replacement under clients ---- */

static void set_up_two(uint32_t permits)
{
    make_tiny_pair(0, "old pub", "old rw", permits);
    make_tiny_pair(1, "new pub", "new rw", permits);
    make_directory(NEW);
    sidecar[0].map = pair_map[1];
    sidecar[0].conf = &sidecar_conf;
}

static void set_up_replace(void)
{
    set_up_two(2);
}

/* Without permits the second acquire is the quiet one of spw_ref.h. */
static void set_up_replace_quiet(void)
{
    set_up_two(0);
}

static void set_up_replace_again(void)
{
    make_tiny_pair(0, "old pub", "old rw", 0);
    make_tiny_pair(1, "new pub", "new rw", 0);
    make_tiny_pair(2, "next pub", "next rw", 0);
    make_directory(NEW);
    for (unsigned i = 0; i < 2; i++) {
        sidecar[i].map = pair_map[1 + i];
        sidecar[i].conf = &sidecar_conf;
    }
}

static void set_up_replace_open(void)
{
    set_up_replace();
    struct spw_breaker_word b = {SPW_BREAKER_OPEN, 0, 1, 3, 20000};
    rw[0]->words.breaker = spw_breaker_pack(&b);
}

static void client(unsigned acquires)
{
    unsigned self = spw_model_self();
    struct spw_client *c = spw_model_own(self, sizeof *c);
    struct spw_ref *ref = spw_model_own(self, sizeof *ref);
    struct spw_ticket ticket;
    spw_model_quiet(true); /* it has been attached for long */
    memcpy(c->pub_dir, "pub", 4);
    memcpy(c->rw_dir, "rw", 3);
    c->on_unattached = SPW_UNATTACHED_DENY;
    spw_ref_init(ref, "main", "");
    spw__map_newest(c, TINY_BASE_NS);
    c->next_try_ns = 0;
    spw_model_quiet(false);
    for (unsigned i = 0; i < acquires; i++) {
        struct spw_admission a = spw_acquire(c, ref, 1, 0, &ticket);
        spw_model_point();
        spw_model_result(self)[0] += a.verdict == SPW_ALLOW;
        spw_model_result(self)[1] += a.verdict == SPW_NOT_ATTACHED;
        SPW_HOLDS(a.verdict != SPW_BAD_HANDLE && a.verdict != SPW_NEVER);
        SPW_HOLDS(a.may_call == (a.verdict == SPW_ALLOW));
        c->next_try_ns = 0; /* it looks at once */
    }
}

static void acquire_once(void)
{
    client(1);
}

static void acquire_twice(void)
{
    client(2);
}

static void acquire_if_deep(void)
{
    if (spw_model_deep())
        client(1);
}

/* Steps 2 to 5 of segment.c. */
static void replace(void)
{
    struct spw_error err;
    retire(&sidecar[0], &pair_map[0], TINY_BASE_NS);
    SPW_HOLDS(put_in_place(&sidecar[0], &err) == SPW_STATUS_OK);
}

/* The start after a start that was cut short: as open_segment decides, with a pair of its own that is ready to go. */
static void start_over(struct spw_map *found)
{
    struct spw_error err;
    enum spw_status status = spw_map_open(found, "pub", "rw", SPW_PUB_NAME, true);
    bool retired = status == SPW_STATUS_OK && spw_load_acq(&spw_map_pub(found)->retired) != 0;
    if (status == SPW_STATUS_OK && !retired && found->generation == pair_map[1].generation)
        return; /* adopted: the replacement was complete */
    spw_store_rlx(&directory->tmp, NEXT);
    if (status == SPW_STATUS_OK)
        retire(&sidecar[1], found, TINY_BASE_NS);
    else
        retire_unreadable(&sidecar_conf.segment, status);
    SPW_HOLDS(put_in_place(&sidecar[1], &err) == SPW_STATUS_OK);
}

static void start_again(void)
{
    if (!spw_model_dead(1))
        return; /* then the check at the end does */
    start_over(spw_model_own(spw_model_self(), sizeof(struct spw_map)));
    spw_model_result(2)[0] = 1;
}

/* What the next client finds: one whole pair, not retired; and what it may still have is what nobody had. */
static uint64_t tokens_left(void)
{
    struct spw_map map;
    memset(&map, 0, sizeof map);
    SPW_HOLDS(directory->pub == directory->rw);
    enum spw_status status = spw_map_open(&map, "pub", "rw", SPW_PUB_NAME, false);
    SPW_HOLDS(status == SPW_STATUS_OK);
    if (status != SPW_STATUS_OK)
        return 0;
    SPW_HOLDS(spw_map_pub(&map)->retired == 0);
    struct spw_bucket_answer a = spw_bucket_take(spw_limiter_at(&map, 0), spw_limiter_words_at(&map, 0),
                                                 TINY_BASE_NS, 1, false, 0, false);
    SPW_HOLDS(a.result != SPW_BUCKET_MOVED);
    return a.units_per_token ? a.available_units / a.units_per_token : 0;
}

static void replace_end(void)
{
    uint64_t told = spw_model_result(0)[0] + spw_model_result(2)[0], left = tokens_left();
    SPW_HOLDS(told + left <= BURST);
    /* Carried over to the last token, but for those of a decision that was under way and became NOT_ATTACHED. */
    uint64_t clients = spw_model_result(0)[1] + spw_model_result(2)[1];
    SPW_HOLDS(told + left + clients + spw_model_deaths() >= BURST);
}

static void replace_again_end(void)
{
    struct spw_map found;
    memset(&found, 0, sizeof found);
    if (spw_model_dead(1) && !spw_model_result(2)[0])
        start_over(&found);
    uint64_t told = spw_model_result(0)[0], left = tokens_left();
    SPW_HOLDS(told + left <= BURST); /* what had been moved when the first died starts EMPTY */
}

static void replace_open_end(void)
{
    (void)tokens_left();
    SPW_HOLDS(spw_model_result(0)[0] + spw_model_result(2)[0] == 0); /* an open breaker stays open */
    SPW_HOLDS(spw_breaker_unpack(rw[1]->words.breaker).state == SPW_BREAKER_OPEN);
}

int main(int argc, char **argv)
{
    static const struct spw_model models[] = {
        {.name = "slots",
         .processes = 3,
         .deaths = 2,
         .mortal = {true, true, false},
         .set_up = set_up_slots,
         .run = {come_and_go, come_and_go, sweep_twice},
         .always = slots_always,
         .at_end = slots_end,
         .least_schedules = 100000},
        {.name = "replace",
         .processes = 3,
         .deaths = 1,
         .mortal = {true, false, true},
         .set_up = set_up_replace,
         .run = {acquire_once, replace, acquire_if_deep},
         .at_end = replace_end,
         .least_schedules = 1000},
        {.name = "replace-twice",
         .processes = 2,
         .deaths = 1,
         .mortal = {true, false},
         .set_up = set_up_replace_quiet,
         .run = {acquire_twice, replace},
         .at_end = replace_end,
         .least_schedules = 100000},
        {.name = "replace-open-breaker",
         .processes = 2,
         .deaths = 0,
         .set_up = set_up_replace_open,
         .run = {acquire_twice, replace},
         .at_end = replace_open_end,
         .least_schedules = 10000},
        {.name = "replace-cut-short",
         .processes = 3,
         .deaths = 1,
         .mortal = {false, true, false},
         .set_up = set_up_replace_again,
         .run = {acquire_twice, replace, start_again},
         .at_end = replace_again_end,
         .least_schedules = 100000},
    };
    return spw_models_run(models, sizeof models / sizeof models[0], argc, argv);
}
