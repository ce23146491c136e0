/* segment.c: making, adopting and replacing the two files.
 *
 * Owns: the files "segment" (and "segment.prev.<generation>") in both directories, and the lock that keeps a second
 * sidecar out. Called by: main at start and stop. Thread: the loop thread (before the loop runs).
 *
 * Adopt: the files are of this layout, plan and boot: buckets stay drained, an open breaker stays open.
 * Replace: (1) the new pair is made under a temporary name, rates included; (2) the current one is linked as prev; (3) it is marked
 * retired; (4) each of its words is exchanged for MOVED, so that a compare-and-swap in flight fails, and what it said
 * is carried over; (5) the new pair is renamed into place; (6) prev is drained and removed (sweep.c). A start that
 * finds the current pair retired goes on at (1): what was moved already is not known any more, and starts EMPTY.
 */
#include "sidecar/state/state_internal.h"

#include <dirent.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/statvfs.h>

#include "sidecar/obs/log.h"

#ifndef SPW_SEGMENT_MINOR
#define SPW_SEGMENT_MINOR SPW_LAYOUT_MINOR
#endif
#ifndef SPW_SEGMENT_MAJOR
#define SPW_SEGMENT_MAJOR SPW_LAYOUT_MAJOR
#endif
#ifndef SPW_SEGMENT_OLDEST
#define SPW_SEGMENT_OLDEST SPW_OLDEST_COMPATIBLE_MAJOR
#endif

#define TMP_NAME "segment.tmp"

/* Lock out a second sidecar. The file is private: a client must not be able to hold the lock. */
static enum spw_status lock_directory(struct spw_state *state, struct spw_error *err)
{
    char path[SPW_PATH_BYTES + 32];
    snprintf(path, sizeof path, "%s/sidecar.lock", state->conf->segment.pub_dir);
    state->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (state->lock_fd < 0)
        return spw_error_set(
            err, SPW_STATUS_SYSTEM,
            "%s: %s; the directory must exist and belong to the sidecar's user (segment.pub_dir)", path,
            strerror(errno));
    if (flock(state->lock_fd, LOCK_EX | LOCK_NB) != 0)
        return spw_error_set(err, SPW_STATUS_BUSY,
                             "%s is held by another sidecar: stop it first, or use another "
                             "segment.pub_dir",
                             path);
    return SPW_STATUS_OK;
}

/* Make one file whole: every page allocated now, so that no later touch can fail. */
static enum spw_status make_file(const char *dir, uint64_t bytes, mode_t mode, uint32_t gid, uint8_t **out,
                                 uint64_t *inode, struct spw_error *err)
{
    char path[SPW_PATH_BYTES + 32];
    snprintf(path, sizeof path, "%s/" TMP_NAME, dir);
    unlink(path); /* left by a start that was cut short; the directory is locked */
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return spw_error_set(err, SPW_STATUS_SYSTEM,
                             "%s: cannot be made (%s): segment.pub_dir and segment.rw_dir must exist and "
                             "belong to the sidecar's user",
                             path, strerror(errno));
    enum spw_status status = SPW_STATUS_OK;
    struct stat st;
    int failed = posix_fallocate(fd, 0, (off_t)bytes);
    if (failed) {
        struct statvfs fs;
        uint64_t have = fstatvfs(fd, &fs) == 0 ? (uint64_t)fs.f_bavail * fs.f_frsize : 0;
        status = spw_error_set(
            err, SPW_STATUS_NO_SPACE,
            "%s: %llu bytes are needed and %llu are free (%s): raise the volume's size, or lower "
            "segment.cells or segment.rate_records",
            dir, (unsigned long long)bytes, (unsigned long long)have, strerror(failed));
    } else if ((gid != UINT32_MAX && fchown(fd, (uid_t)-1, gid) != 0) || fchmod(fd, mode) != 0 ||
               fstat(fd, &st) != 0) {
        status = spw_error_set(err, SPW_STATUS_SYSTEM,
                               "%s: %s; the sidecar must be a member of group %u (segment.gid)", path,
                               strerror(errno), gid);
    } else {
        void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
        if (base == MAP_FAILED)
            status = spw_error_set(err, SPW_STATUS_SYSTEM, "%s: mmap: %s: raise the container's memory limit",
                                   path, strerror(errno));
        else
            *out = base;
        *inode = st.st_ino;
    }
    close(fd);
    if (status != SPW_STATUS_OK)
        unlink(path);
    return status;
}

static void fill_header(uint8_t *file, uint64_t magic, uint64_t bytes, uint64_t generation, uint64_t now_ns,
                        const struct spw_section *sections, unsigned count)
{
    struct spw_header *h = (struct spw_header *)(void *)file;
    h->magic = magic;
    h->layout_major = SPW_SEGMENT_MAJOR;
    h->layout_minor = SPW_SEGMENT_MINOR;
    h->oldest_compatible_major = SPW_SEGMENT_OLDEST;
    h->header_bytes = SPW_HEADER_BYTES;
    h->total_bytes = bytes;
    h->format_hash = spw_format_hash();
    h->generation = generation;
    h->clock_id = CLOCK_BOOTTIME;
    h->section_count = count;
    spw_boot_id(h->boot_id);
    h->base_ns = now_ns;
    h->lock_base = SPW_LOCK_BASE;
    h->heartbeat_ns = now_ns;
    memcpy(h->sections, sections, count * sizeof sections[0]);
}

static void remove_temporary(const struct spw_conf_segment *s)
{
    const char *dirs[2] = {s->pub_dir, s->rw_dir};
    for (int i = 0; i < 2; i++) {
        char path[SPW_PATH_BYTES + 32];
        snprintf(path, sizeof path, "%s/" TMP_NAME, dirs[i]);
        unlink(path);
    }
}

/* Headers and sections of a pair whose memory is mapped, zeroed and of the plan's size. */
static enum spw_status fill_pair(struct spw_map *map, const struct spw_plan *plan, uint64_t generation,
                                 uint64_t now_ns, struct spw_error *err)
{
    fill_header(map->pub, SPW_MAGIC_PUB, plan->pub_bytes, generation, now_ns, plan->pub, SPW_PUB_SECTIONS);
    fill_header(map->rw, SPW_MAGIC_RW, plan->rw_bytes, generation, now_ns, plan->rw, SPW_RW_SECTIONS);
    memcpy(map->pub_section, plan->pub, sizeof plan->pub);
    memcpy(map->rw_section, plan->rw, sizeof plan->rw);
    map->generation = generation;
    map->made_ns = spw_now_ns();
    map->base_ns = now_ns;
    map->lock_base = SPW_LOCK_BASE;
    map->layout_major = SPW_SEGMENT_MAJOR;
    map->layout_minor = SPW_SEGMENT_MINOR;
    if (!spw__shape_ok(map)) {
        spw_map_close(map);
        return spw_error_set(err, SPW_STATUS_INVALID, "segment: the counts do not make a valid segment");
    }
    spw_slot_at(map, 0)->word = spw_slot_word(0, SPW_SLOT_RESERVED);
    return SPW_STATUS_OK;
}

/* Step 1: a new pair under the temporary name, mapped and complete but for the ready words. */
static enum spw_status make_pair(struct spw_state *state, uint64_t now_ns, struct spw_error *err)
{
    const struct spw_conf_segment *s = &state->conf->segment;
    struct spw_plan plan;
    struct spw_map *map = &state->map;
    uint64_t generation = 0;
    spw_plan_make(state->conf, &plan);
    memset(map, 0, sizeof *map);
    map->self.lock_fd = -1;
    while (generation == 0) {
        if (getrandom(&generation, sizeof generation, 0) != (ssize_t)sizeof generation)
            generation = now_ns | 1;
    }
    enum spw_status status =
        make_file(s->pub_dir, plan.pub_bytes, 0640, s->gid, &map->pub, &map->pub_inode, err);
    if (status == SPW_STATUS_OK)
        status = make_file(s->rw_dir, plan.rw_bytes, 0660, s->gid, &map->rw, &map->rw_inode, err);
    map->pub_bytes = plan.pub_bytes;
    map->rw_bytes = plan.rw_bytes;
    if (status != SPW_STATUS_OK) {
        spw_map_close(map);
        return status;
    }
    return fill_pair(map, &plan, generation, now_ns, err);
}

static enum spw_status rename_in(const char *dir, struct spw_error *err)
{
    char from[SPW_PATH_BYTES + 32], to[SPW_PATH_BYTES + 32];
    snprintf(from, sizeof from, "%s/" TMP_NAME, dir);
    snprintf(to, sizeof to, "%s/" SPW_PUB_NAME, dir);
    if (rename(from, to) != 0)
        return spw_error_set(err, SPW_STATUS_SYSTEM, "%s: cannot be put in place (%s): look at the volume",
                             to, strerror(errno));
    return SPW_STATUS_OK;
}

/* Step 5: ready words, then both names. rw first: a client opens pub first and compares generations. */
static enum spw_status put_in_place(struct spw_state *state, struct spw_error *err)
{
    /* SYNC ready: release: whoever sees 1 sees all of the file. */
    spw_store_rel(&((struct spw_header *)(void *)state->map.rw)->ready, 1);
    spw_store_rel(&spw_map_pub(&state->map)->ready, 1);
    enum spw_status status = rename_in(state->conf->segment.rw_dir, err);
    return status == SPW_STATUS_OK ? rename_in(state->conf->segment.pub_dir, err) : status;
}

/* Step 2: keep the current pair under a second name, for draining. */
static void link_prev(const struct spw_conf_segment *s, const char *name)
{
    char from[SPW_PATH_BYTES + 32], to[SPW_PATH_BYTES + 96];
    const char *dirs[2] = {s->rw_dir, s->pub_dir};
    for (int i = 0; i < 2; i++) {
        snprintf(from, sizeof from, "%s/" SPW_PUB_NAME, dirs[i]);
        snprintf(to, sizeof to, "%s/%s", dirs[i], name);
        if (link(from, to) != 0 && errno != EEXIST)
            spw_log(SPW_LOG_WARN, "segment.prev", "%s: %s", to, strerror(errno));
    }
}

static bool add_prev(struct spw_state *state, const char *name, uint64_t now_ns)
{
    size_t name_bytes = strlen(name) + 1;
    if (name_bytes > sizeof state->prev->name) /* not of our making */
        return false;
    for (struct spw_prev *known = state->prev; known; known = known->next) {
        if (strcmp(known->name, name) == 0)
            return true;
    }
    struct spw_prev *prev = calloc(1, sizeof *prev);
    if (!prev)
        return false;
    const struct spw_conf_segment *s = &state->conf->segment;
    enum spw_status status = spw_map_open(&prev->map, s->pub_dir, s->rw_dir, name, true);
    if (status != SPW_STATUS_OK) {
        spw_log(
            SPW_LOG_ERROR, "segment.prev",
            "%s/%s cannot be read (%s): its flags stay in it; start the version that made it to store them",
            s->pub_dir, name, spw_status_name(status));
        free(prev);
        return false;
    }
    memcpy(prev->name, name, name_bytes);
    prev->since_ns = now_ns;
    prev->next = state->prev;
    state->prev = prev;
    return true;
}

/* Replaced segments that an earlier start did not finish draining. */
static void find_prevs(struct spw_state *state, uint64_t now_ns)
{
    DIR *dir = opendir(state->conf->segment.pub_dir);
    if (!dir)
        return;
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (strncmp(entry->d_name, SPW_PREV_NAME, sizeof SPW_PREV_NAME - 1) == 0)
            add_prev(state, entry->d_name, now_ns);
    }
    closedir(dir);
}

/* Steps 2 to 4 on a current pair that can be read. */
static void retire(struct spw_state *state, struct spw_map *old, uint64_t now_ns)
{
    char name[64];
    snprintf(name, sizeof name, SPW_PREV_NAME "%016llx", (unsigned long long)old->generation);
    link_prev(&state->conf->segment, name);
    /* SYNC retired: release: clients stop deciding by it and look for the successor. */
    spw_store_rel(&spw_map_pub(old)->retired, 1);
    spw_publish_carry(state, old, now_ns);
    add_prev(state, name, now_ns);
}

/* A current pair that cannot be read: all that can be said to its clients is that it is over. One of another layout is
 * kept for the version that made it; `why` is what reading it ended with. */
static void retire_unreadable(const struct spw_conf_segment *s, enum spw_status why)
{
    uint8_t *base = NULL;
    uint64_t bytes, inode;
    if (spw__file_map(s->pub_dir, SPW_PUB_NAME, true, &base, &bytes, &inode) != SPW_STATUS_OK)
        return;
    struct spw_header *h = (struct spw_header *)(void *)base;
    if (h->magic == SPW_MAGIC_PUB) {
        char name[64];
        snprintf(name, sizeof name, SPW_PREV_NAME "%016llx", (unsigned long long)h->generation);
        if (why == SPW_STATUS_VERSION_MISMATCH)
            link_prev(s, name);
        spw_store_rel(&h->retired, 1); /* SYNC retired: release */
    }
    munmap(base, bytes);
}

static bool same_plan(const struct spw_map *map, const struct spw_conf *conf)
{
    struct spw_plan plan;
    spw_plan_make(conf, &plan);
    return map->layout_major == SPW_SEGMENT_MAJOR && map->layout_minor == SPW_SEGMENT_MINOR &&
           map->pub_bytes == plan.pub_bytes && map->rw_bytes == plan.rw_bytes &&
           memcmp(map->pub_section, plan.pub, sizeof plan.pub) == 0 &&
           memcmp(map->rw_section, plan.rw, sizeof plan.rw) == 0;
}

/* Does what the sidecar alone has written make sense? It is used without another look once it is adopted. */
static bool pub_is_whole(const struct spw_map *map)
{
    uint32_t accounts = map->pub_section[SPW_PUB_ACCOUNTS].count,
             limiters = map->pub_section[SPW_PUB_LIMITERS].count;
    for (uint32_t i = 0; i < accounts; i++) {
        const struct spw_account *a = spw_account_at(map, i);
        if (a->state == SPW_RECORD_FREE)
            continue;
        if (a->limiters_count == 0 || a->limiters_count > SPW_LIMITERS_PER_ACCOUNT ||
            a->permits_count > SPW_PERMITS_PER_ACCOUNT || !memchr(a->name, 0, sizeof a->name))
            return false;
        for (uint32_t k = 0; k < a->limiters_count; k++) {
            if (a->limiters[k] >= limiters)
                return false;
        }
    }
    for (uint32_t i = 0; i < map->pub_section[SPW_PUB_INTEGRATIONS].count; i++) {
        const struct spw_integration *n = spw_integration_at(map, i);
        if (n->state != SPW_RECORD_FREE &&
            (n->account_index >= accounts || !memchr(n->name, 0, sizeof n->name)))
            return false;
    }
    for (uint32_t i = 0; i < 2; i++) {
        const struct spw_rate_half *half = spw_rate_half_at(map, i);
        if (half->records_count > map->records_per_half || half->sources_count > SPW_SOURCES_MAX_COUNT)
            return false;
    }
    return true;
}

/* An adopted pair was made for the group of its time. */
static enum spw_status regroup(const struct spw_conf_segment *s, struct spw_error *err)
{
    const char *dirs[2] = {s->pub_dir, s->rw_dir};
    for (int i = 0; i < 2 && s->gid != UINT32_MAX; i++) {
        char path[SPW_PATH_BYTES + 32];
        snprintf(path, sizeof path, "%s/" SPW_PUB_NAME, dirs[i]);
        if (lchown(path, (uid_t)-1, s->gid) != 0)
            return spw_error_set(err, SPW_STATUS_SYSTEM,
                                 "%s: %s; the sidecar must be a member of group %u (segment.gid)", path,
                                 strerror(errno), s->gid);
    }
    return SPW_STATUS_OK;
}

static enum spw_status claim_slot(struct spw_state *state, const char *name, struct spw_error *err)
{
    const char *rw_dir = state->conf->segment.rw_dir;
    enum spw_status status = spw_own_slot_claim(&state->map, rw_dir, name);
    if (status != SPW_STATUS_OK)
        spw_error_set(err, status, "%s: the sidecar found no free slot: raise segment.slots", rw_dir);
    return status;
}

/* What the configuration says: accounts, policy, and the rates it names. */
static enum spw_status fill_segment(struct spw_state *state, const struct spw_rates_source *sources,
                                    size_t sources_count, uint64_t now_ns, bool fill, struct spw_error *err)
{
    enum spw_status status = spw_publish_conf(state, now_ns, fill, err);
    if (status == SPW_STATUS_OK && sources_count > 0)
        status = spw_state_rates_replace(state, sources, sources_count, NULL, err);
    return status;
}

/* Go on with the segment that is there. FULL: there is no slot in it for the sidecar, and nothing has been done. */
static enum spw_status adopt(struct spw_state *state, const struct spw_map *old, struct spw_error *err)
{
    state->map = *old;
    enum spw_status status = regroup(&state->conf->segment, err);
    if (status == SPW_STATUS_OK)
        status = claim_slot(state, SPW_RW_NAME, err);
    if (status == SPW_STATUS_OK) {
        snprintf(state->origin, sizeof state->origin, "adopted");
        find_prevs(state, spw_now_ns());
        spw_learned_mend(state);
    } else if (status == SPW_STATUS_FULL) {
        memset(&state->map, 0, sizeof state->map);
        state->map.self.lock_fd = -1;
    }
    return status;
}

static enum spw_status open_segment(struct spw_state *state, const struct spw_rates_source *sources,
                                    size_t sources_count, struct spw_error *err)
{
    const struct spw_conf_segment *s = &state->conf->segment;
    uint64_t now_ns = spw_now_ns();
    struct spw_map old;
    memset(&old, 0, sizeof old);
    enum spw_status found = spw_map_open(&old, s->pub_dir, s->rw_dir, SPW_PUB_NAME, true);
    bool retired =
        found == SPW_STATUS_OK && spw_load_acq(&spw_map_pub(&old)->retired) != 0; /* SYNC retired: acquire */
    const char *why =
        retired ? "an earlier replacement was cut short" : "layout, capacities or limiters changed";
    if (found == SPW_STATUS_OK && !pub_is_whole(&old)) {
        spw_map_close(&old);
        found = SPW_STATUS_CORRUPT;
    }
    if (found == SPW_STATUS_OK && !retired && same_plan(&old, state->conf) &&
        spw_limiters_fit(&old, state->conf)) {
        enum spw_status status = adopt(state, &old, err);
        if (status == SPW_STATUS_OK)
            return fill_segment(state, sources, sources_count, now_ns, false, err);
        if (status != SPW_STATUS_FULL)
            return status;
        why = "every slot is held, or where their locks are is damaged";
    }
    enum spw_status status = make_pair(state, now_ns, err);
    if (status == SPW_STATUS_OK)
        status = claim_slot(state, TMP_NAME, err); /* before clients see the segment and may take them all */
    if (status == SPW_STATUS_OK)
        status = fill_segment(state, sources, sources_count, now_ns, found == SPW_STATUS_NO_SEGMENT, err);
    if (status == SPW_STATUS_OK && sources_count == 0 && found == SPW_STATUS_OK)
        status = spw_rates_carry(state, &old, err); /* loaded at run time, and named by no configuration */
    if (status == SPW_STATUS_OK && found == SPW_STATUS_OK)
        spw_learned_carry(state, &old);
    if (status != SPW_STATUS_OK) {
        remove_temporary(s); /* what does not fit is not left lying about in a volume that is too small */
        if (found == SPW_STATUS_OK)
            spw_map_close(&old);
        return status;
    }
    find_prevs(state, now_ns);
    if (found == SPW_STATUS_OK) {
        retire(state, &old, now_ns);
        snprintf(state->origin, sizeof state->origin, "replaced: %s", why);
        spw_map_close(&old);
    } else if (found == SPW_STATUS_NO_SEGMENT) {
        snprintf(state->origin, sizeof state->origin, "created");
    } else {
        retire_unreadable(s, found);
        snprintf(state->origin, sizeof state->origin, "replaced: %s, buckets start empty",
                 spw_status_name(found));
    }
    return put_in_place(state, err);
}

enum spw_status spw_state_open(const struct spw_conf *conf, struct spw_state **out, struct spw_error *err)
{
    return spw_state_open_with_rates(conf, NULL, 0, out, err);
}

enum spw_status spw_state_open_with_rates(const struct spw_conf *conf, const struct spw_rates_source *sources,
                                          size_t sources_count, struct spw_state **out, struct spw_error *err)
{
    *out = NULL;
    struct spw_state *state = calloc(1, sizeof *state);
    if (!state)
        return spw_error_set(err, SPW_STATUS_NO_MEMORY,
                             "segment: no memory: raise the container's memory limit");
    state->conf = conf;
    state->lock_fd = -1;
    state->map.self.lock_fd = -1;
    enum spw_status status = lock_directory(state, err);
    if (status == SPW_STATUS_OK)
        status = open_segment(state, sources, sources_count, err);
    if (status != SPW_STATUS_OK) {
        spw_state_close(state, false);
        return status;
    }
    memcpy(&state->rw_header, state->map.rw, sizeof state->rw_header);
    spw_state_heartbeat(state, spw_now_ns());
    *out = state;
    return SPW_STATUS_OK;
}

static uint8_t *private_memory(uint64_t bytes)
{
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return base == MAP_FAILED ? NULL : base;
}

/* Slot 1 is the caller's: nobody else is there to take it, so that its lock is a descriptor that never was. */
static void own_private_slot(struct spw_map *map)
{
    map->self = (struct spw_identity){.lock_fd = INT_MAX, .slot = 1, .generation = 1};
    spw_slot_at(map, 1)->word = spw_slot_word(1, SPW_SLOT_LIVE);
}

enum spw_status spw_state_open_private(const struct spw_conf *conf, uint64_t now_ns, struct spw_state **out,
                                       struct spw_error *err)
{
    struct spw_plan plan;
    struct spw_state *state = calloc(1, sizeof *state);
    *out = NULL;
    spw_plan_make(conf, &plan);
    if (state) {
        state->conf = conf;
        state->lock_fd = -1;
        state->is_private = true;
        state->map = (struct spw_map){.self.lock_fd = -1,
                                      .pub_bytes = plan.pub_bytes,
                                      .rw_bytes = plan.rw_bytes,
                                      .pub = private_memory(plan.pub_bytes),
                                      .rw = private_memory(plan.rw_bytes)};
    }
    if (!state || !state->map.pub || !state->map.rw) {
        spw_state_close(state, false);
        return spw_error_set(err, SPW_STATUS_NO_MEMORY,
                             "segment: no memory for %llu bytes: raise the memory limit",
                             (unsigned long long)plan.pub_bytes + plan.rw_bytes);
    }
    enum spw_status status = fill_pair(&state->map, &plan, 1, now_ns, err);
    if (status == SPW_STATUS_OK) {
        own_private_slot(&state->map);
        status = spw_publish_conf(state, now_ns, true, err);
    }
    if (status != SPW_STATUS_OK) {
        spw_state_close(state, false);
        return status;
    }
    snprintf(state->origin, sizeof state->origin, "private");
    *out = state;
    return SPW_STATUS_OK;
}

void spw_state_close(struct spw_state *state, bool clean_stop)
{
    if (!state)
        return;
    if (clean_stop && state->map.pub) /* SYNC heartbeat: relaxed: a lone word */
        spw_store_rlx(&spw_map_pub(&state->map)->heartbeat_ns, SPW_HEARTBEAT_STOPPED);
    for (struct spw_prev *prev = state->prev; prev;) {
        struct spw_prev *next = prev->next;
        spw_map_close(&prev->map);
        free(prev);
        prev = next;
    }
    spw_slot_release(&state->map);
    spw_map_close(&state->map);
    if (state->lock_fd >= 0)
        close(state->lock_fd);
    free(state);
}

struct spw_map *spw_state_map(struct spw_state *state)
{
    return &state->map;
}

const char *spw_state_origin(const struct spw_state *state)
{
    return state->origin;
}

uint64_t spw_state_generation(const struct spw_state *state)
{
    return state->map.generation;
}

void spw_state_heartbeat(struct spw_state *state, uint64_t now_ns)
{
    /* SYNC heartbeat: relaxed: a lone word. */
    spw_store_rlx(&spw_map_pub(&state->map)->heartbeat_ns, now_ns);
}
