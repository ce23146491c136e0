/* spw_map.h: find the two files, map them, check them, and hand out pointers that are inside.
 *
 * Owns: struct spw_map, the mapped segment. Called by: the client header (attach), state/ (publisher), store/, tools.
 * Thread: mapping and unmapping are cold (system calls); a map is read by any thread afterwards.
 *
 * The files are untrusted: every number is copied once, checked, and used from the copy. What a mapping may go wrong
 * with has a name (enum spw_status); nothing here crashes on a damaged file. Nobody shrinks a segment: a file that is
 * cut while mapped ends its readers with SIGBUS, which is why both volumes belong to the sidecar's user.
 */
#ifndef SPW_MAP_H
#define SPW_MAP_H

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "shm/spw_layout.h"
#include "shm/spw_status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SPW_CLOCK_AHEAD_MAX_NS UINT64_C(60000000000) /* clocks further apart than this are different clocks */

/* What a thread of another process, or a later stretch of this one, may not have: see spw_slot.h. */
struct spw_identity {
    int lock_fd; /* -1 = no slot: decides without permits and flags */
    uint32_t slot;
    uint32_t generation;
    uint32_t uid;
};

#define SPW_MAP_COUNTERS 16u
struct spw_map {
    uint8_t *pub; /* read-only for clients */
    uint8_t *rw;
    uint64_t pub_bytes, rw_bytes;
    uint64_t pub_inode, rw_inode;
    uint64_t generation;
    uint64_t made_ns; /* tells it from others that were mapped where it is */
    uint64_t base_ns;
    uint64_t lock_base;
    uint32_t layout_major, layout_minor;
    struct spw_section pub_section[SPW_PUB_SECTIONS]; /* checked copies */
    struct spw_section rw_section[SPW_RW_SECTIONS];
    uint64_t index_mask; /* index words of one half, less one */
    uint32_t records_per_half;
    struct spw_identity self;
    const void *counter[SPW_MAP_COUNTERS]; /* which struct spw_ref counts by plain stores: see spw_ref.h */
    struct spw_map *older;                 /* kept for a minute: another thread may still be inside it */
};

static inline struct spw_header *spw_map_pub(const struct spw_map *map)
{
    return (struct spw_header *)(void *)map->pub;
}

static inline struct spw_header *spw_map_rw(const struct spw_map *map)
{
    return (struct spw_header *)(void *)map->rw;
}

/* SIDECAR ONLY */
/* Called after each change of what decisions go by and the sidecar alone writes: accounts, integrations, limiters and
 * their configurations, switches, forced breakers. A client that has remembered those looks at one word to know that they
 * are still so (spw_ref.h). */
static inline void spw_changed(const struct spw_map *map)
{
    uint64_t *changes = &spw_map_pub(map)->changes;
    /* SYNC changes: release: who finds the new count finds the change. relaxed: this is its only writer. */
    spw_store_rel(changes, spw_load_rlx(changes) + 1);
}
/* END SIDECAR ONLY */

static inline uint64_t spw_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

static inline int64_t spw_wall_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Milliseconds inside words: since the segment was made; an instant that must not come early is rounded up. */
static inline uint64_t spw_map_ms(const struct spw_map *map, uint64_t ns)
{
    return ns > map->base_ns ? (ns - map->base_ns) / UINT64_C(1000000) : 0;
}
static inline uint64_t spw_map_ms_up(const struct spw_map *map, uint64_t ns)
{
    return ns > map->base_ns ? (ns - map->base_ns + UINT64_C(999999)) / UINT64_C(1000000) : 0;
}
static inline uint64_t spw_map_ns_of_ms(const struct spw_map *map, uint64_t ms)
{
    return map->base_ns + ms * UINT64_C(1000000);
}

/* How long until a word's `ms`, which an honest writer sets at most max_ms ahead; 0 when that is past, or further off. */
static inline uint64_t spw__map_wait_ns(const struct spw_map *map, uint64_t ms, uint64_t max_ms,
                                        uint64_t now_ns)
{
    uint64_t wait_ns = spw_map_ns_of_ms(map, ms) - now_ns;
    return wait_ns <= max_ms * UINT64_C(1000000) ? wait_ns : 0;
}

/* Fingerprint of what a client of this major version relies on: sizes of the base records and the fields in them.
 * Grown strides leave it alone; a field moved in the middle of a record changes it. */
static inline uint64_t spw_format_hash(void)
{
    static const uint16_t facts[] = {
        sizeof(struct spw_header),
        offsetof(struct spw_header, ready),
        sizeof(struct spw_account),
        offsetof(struct spw_account, limiters_count),
        offsetof(struct spw_account, conf),
        offsetof(struct spw_account, evidence),
        sizeof(struct spw_account_conf),
        sizeof(struct spw_evidence),
        sizeof(struct spw_integration),
        offsetof(struct spw_integration, name),
        sizeof(struct spw_limiter),
        sizeof(struct spw_limiter_conf),
        offsetof(struct spw_limiter, conf),
        offsetof(struct spw_limiter_conf, base_ns),
        sizeof(struct spw_policy),
        offsetof(struct spw_policy, tax_codes),
        sizeof(struct spw_rate_half),
        sizeof(struct spw_source),
        sizeof(struct spw_rate_record),
        offsetof(struct spw_rate_record, combined_ppb),
        sizeof(struct spw_account_words),
        sizeof(struct spw_limiter_words),
        sizeof(struct spw_slot),
        sizeof(struct spw_stats),
        sizeof(struct spw_cell),
        sizeof(struct spw_flag_record),
        offsetof(struct spw_flag_record, lines_count),
        sizeof(struct spw_order_record),
        SPW_CONFIG_SLOTS,
        SPW_WINDOW_WORDS,
        SPW_PERMITS_PER_ACCOUNT,
        SPW_LIMITERS_PER_ACCOUNT,
    };
    uint64_t hash = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++)
        hash = (hash ^ facts[i]) * UINT64_C(1099511628211);
    return hash;
}

/* Zeroes when /proc is not to be read: then the boots are not compared. */
static inline void spw_boot_id(uint8_t out[16])
{
    memset(out, 0, 16);
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    char text[64];
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    unsigned nibbles = 0;
    for (ssize_t i = 0; i < n && nibbles < 32; i++) {
        char c = text[i];
        int v = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (v < 0)
            continue;
        out[nibbles / 2] = (uint8_t)(out[nibbles / 2] | (nibbles % 2 ? v : v << 4));
        nibbles++;
    }
}

static inline void *spw__record(uint8_t *file, const struct spw_section *section, uint64_t index)
{
    return index < section->count ? file + section->offset_bytes + index * section->stride_bytes : NULL;
}

/* spw_<noun>_at(map, index): the record, or NULL when the index is outside the table. */
#define SPW__ACCESSOR(noun, type, file, section)                                                             \
    static inline type *spw_##noun##_at(const struct spw_map *map, uint64_t index)                           \
    {                                                                                                        \
        return (type *)spw__record(map->file, &map->file##_section[section], index);                         \
    }
SPW__ACCESSOR(account, struct spw_account, pub, SPW_PUB_ACCOUNTS)
SPW__ACCESSOR(integration, struct spw_integration, pub, SPW_PUB_INTEGRATIONS)
SPW__ACCESSOR(limiter, struct spw_limiter, pub, SPW_PUB_LIMITERS)
SPW__ACCESSOR(policy, struct spw_policy, pub, SPW_PUB_POLICY)
SPW__ACCESSOR(rate_half, struct spw_rate_half, pub, SPW_PUB_RATE_HALVES)
SPW__ACCESSOR(source, struct spw_source, pub, SPW_PUB_SOURCES)
SPW__ACCESSOR(rate_index, uint64_t, pub, SPW_PUB_RATE_INDEX)
SPW__ACCESSOR(rate_record, struct spw_rate_record, pub, SPW_PUB_RATE_RECORDS)
SPW__ACCESSOR(learned, struct spw_learned_rate, pub, SPW_PUB_LEARNED)
SPW__ACCESSOR(account_words, struct spw_account_words, rw, SPW_RW_ACCOUNTS)
SPW__ACCESSOR(limiter_words, struct spw_limiter_words, rw, SPW_RW_LIMITERS)
SPW__ACCESSOR(permit, uint64_t, rw, SPW_RW_PERMITS)
SPW__ACCESSOR(slot, struct spw_slot, rw, SPW_RW_SLOTS)
SPW__ACCESSOR(stats, struct spw_stats, rw, SPW_RW_STATS)
SPW__ACCESSOR(cell_word, uint64_t, rw, SPW_RW_CELL_WORDS)
SPW__ACCESSOR(cell, struct spw_cell, rw, SPW_RW_CELLS)
#undef SPW__ACCESSOR

/* The least stride and the exact or least count of each section; count 0 = any. */
struct spw__section_rule {
    uint32_t base_bytes;
    uint32_t count;
    uint32_t count_max;
};

static inline bool spw__sections_ok(const struct spw_section *s, const struct spw__section_rule *rule,
                                    unsigned n, uint64_t total_bytes)
{
    for (unsigned i = 0; i < n; i++) {
        if (rule[i].base_bytes == 0 && s[i].count == 0)
            continue; /* a section of a later minor version that the file does not have */
        if (s[i].stride_bytes < rule[i].base_bytes || s[i].stride_bytes % 8 ||
            s[i].stride_bytes > (1u << 20) || s[i].offset_bytes % 8 || s[i].offset_bytes < SPW_HEADER_BYTES ||
            s[i].count > rule[i].count_max || (rule[i].count && s[i].count != rule[i].count) ||
            s[i].offset_bytes > total_bytes ||
            (uint64_t)s[i].stride_bytes * s[i].count > total_bytes - s[i].offset_bytes)
            return false;
    }
    return true;
}

/* The checks that tie sections to one another. */
static inline bool spw__shape_ok(struct spw_map *map)
{
    static const struct spw__section_rule pub_rule[SPW_PUB_SECTIONS] = {
        {sizeof(struct spw_account), 0, 1024},
        {sizeof(struct spw_integration), 0, 4096},
        {sizeof(struct spw_limiter), 0, 4096},
        {sizeof(struct spw_policy), 2, 2},
        {sizeof(struct spw_rate_half), 2, 2},
        {sizeof(struct spw_source), 2 * SPW_SOURCES_MAX_COUNT, 256},
        {8, 0, 1u << 28},
        {sizeof(struct spw_rate_record), 0, 1u << 27},
        {0, 0, 1u << 24},
    };
    static const struct spw__section_rule rw_rule[SPW_RW_SECTIONS] = {
        {sizeof(struct spw_account_words), 0, 1024}, {sizeof(struct spw_limiter_words), 0, 4096},
        {8, 0, 1024 * SPW_PERMITS_PER_ACCOUNT},      {sizeof(struct spw_slot), 0, 512},
        {sizeof(struct spw_stats), 0, 512 * 1024},   {8, 0, 1u << 20},
        {sizeof(struct spw_cell), 0, 1u << 20},
    };
    const struct spw_section *p = map->pub_section, *r = map->rw_section;
    if (!spw__sections_ok(p, pub_rule, SPW_PUB_SECTIONS, map->pub_bytes) ||
        !spw__sections_ok(r, rw_rule, SPW_RW_SECTIONS, map->rw_bytes))
        return false;
    uint32_t accounts = p[SPW_PUB_ACCOUNTS].count, index_words = p[SPW_PUB_RATE_INDEX].count / 2;
    map->index_mask = (uint64_t)index_words - 1;
    map->records_per_half = p[SPW_PUB_RATE_RECORDS].count / 2;
    uint32_t learned = p[SPW_PUB_LEARNED].count; /* none in a segment of 1.0 */
    if (learned && (p[SPW_PUB_LEARNED].stride_bytes < sizeof(struct spw_learned_rate) ||
                    learned < SPW_LEARNED_WAYS || (learned & (learned - 1)) != 0))
        return false;
    return accounts && r[SPW_RW_ACCOUNTS].count == accounts &&
           r[SPW_RW_LIMITERS].count == p[SPW_PUB_LIMITERS].count &&
           r[SPW_RW_PERMITS].count == accounts * SPW_PERMITS_PER_ACCOUNT && r[SPW_RW_SLOTS].count &&
           r[SPW_RW_STATS].count == accounts * r[SPW_RW_SLOTS].count &&
           r[SPW_RW_CELLS].count == r[SPW_RW_CELL_WORDS].count && r[SPW_RW_CELLS].count >= 2 &&
           r[SPW_RW_PERMITS].stride_bytes == 8 && r[SPW_RW_CELL_WORDS].stride_bytes == 8 &&
           p[SPW_PUB_RATE_INDEX].stride_bytes == 8 && index_words && (index_words & (index_words - 1)) == 0 &&
           p[SPW_PUB_RATE_INDEX].count % 2 == 0 && p[SPW_PUB_RATE_RECORDS].count % 2 == 0 &&
           index_words > map->records_per_half;
}

/* Check one file's header. The sections are copied out only when everything else holds. */
static inline enum spw_status spw__header_check(const uint8_t *file, uint64_t file_bytes, uint64_t magic,
                                                unsigned least_sections, unsigned sections,
                                                struct spw_section *out, struct spw_map *map)
{
    const struct spw_header *h = (const struct spw_header *)(const void *)file;
    /* SYNC ready: acquire: everything in the file was written before the word became 1. */
    if (spw_load_acq(&h->ready) != 1)
        return SPW_STATUS_NOT_READY;
    struct spw_header copy; /* up to the ready word nothing ever changes */
    memset(&copy, 0, sizeof copy);
    memcpy(&copy, file, offsetof(struct spw_header, ready));
    if (copy.magic != magic)
        return SPW_STATUS_CORRUPT;
    if (copy.oldest_compatible_major > SPW_LAYOUT_MAJOR || copy.layout_major < SPW_OLDEST_COMPATIBLE_MAJOR ||
        copy.format_hash != spw_format_hash())
        return SPW_STATUS_VERSION_MISMATCH;
    uint8_t boot[16];
    static const uint8_t unknown[16] = {0};
    spw_boot_id(boot);
    if (copy.clock_id != (uint32_t)CLOCK_BOOTTIME ||
        (memcmp(boot, unknown, 16) != 0 && memcmp(copy.boot_id, unknown, 16) != 0 &&
         memcmp(boot, copy.boot_id, 16) != 0))
        return SPW_STATUS_CLOCK_MISMATCH;
    /* SYNC heartbeat: relaxed: a lone word. One from the future was written in another time namespace. */
    uint64_t beat = spw_load_rlx(&h->heartbeat_ns);
    if (beat != SPW_HEARTBEAT_STOPPED && beat > spw_now_ns() + SPW_CLOCK_AHEAD_MAX_NS)
        return SPW_STATUS_CLOCK_MISMATCH;
    if (copy.total_bytes > file_bytes || copy.header_bytes < SPW_HEADER_BYTES ||
        copy.section_count < least_sections || copy.section_count > SPW_SECTIONS_MAX_COUNT ||
        copy.base_ns == 0 || copy.base_ns > spw_now_ns())
        return SPW_STATUS_CORRUPT;
    memset(out, 0, sections * sizeof out[0]); /* a section of a later minor version is empty here */
    memcpy(out, copy.sections,
           (copy.section_count < sections ? copy.section_count : sections) * sizeof out[0]);
    if (map->generation && map->generation != copy.generation)
        return SPW_STATUS_NOT_READY; /* one file is already the next segment's: its twin follows at once */
    map->generation = copy.generation;
    map->base_ns = copy.base_ns;
    map->lock_base = copy.lock_base;
    map->layout_major = copy.layout_major;
    map->layout_minor = copy.layout_minor;
    return SPW_STATUS_OK;
}

/* "dir/name". false: no room. Without stdio: for signal handlers and the child of a fork, too. */
static inline bool spw__path(char *out, size_t room, const char *dir, const char *name)
{
    size_t dir_bytes = strlen(dir), name_bytes = strlen(name);
    if (dir_bytes + name_bytes + 2 > room)
        return false;
    memcpy(out, dir, dir_bytes + 1);
    out[dir_bytes] = '/';
    memcpy(out + dir_bytes + 1, name, name_bytes);
    out[dir_bytes + 1 + name_bytes] = 0;
    return true;
}

/* Map one file whole. *inode tells two files of the same name apart. */
static inline enum spw_status spw__file_map(const char *dir, const char *name, bool writable, uint8_t **out,
                                            uint64_t *bytes, uint64_t *inode)
{
    char path[4096];
    if (!spw__path(path, sizeof path, dir, name))
        return SPW_STATUS_INVALID;
    int fd = open(path, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return errno == ENOENT ? SPW_STATUS_NO_SEGMENT : SPW_STATUS_SYSTEM;
    struct stat st;
    enum spw_status status = SPW_STATUS_OK;
    if (fstat(fd, &st) != 0)
        status = SPW_STATUS_SYSTEM;
    else if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size < SPW_HEADER_BYTES)
        status = SPW_STATUS_CORRUPT;
    if (status == SPW_STATUS_OK) {
        void *base =
            mmap(NULL, (size_t)st.st_size, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
        if (base == MAP_FAILED)
            status = SPW_STATUS_SYSTEM;
        else
            *out = (uint8_t *)base;
        *bytes = (uint64_t)st.st_size;
        *inode = (uint64_t)st.st_ino;
    }
    close(fd);
    return status;
}

static inline void spw_map_close(struct spw_map *map)
{
    if (map->pub)
        munmap(map->pub, (size_t)map->pub_bytes);
    if (map->rw)
        munmap(map->rw, (size_t)map->rw_bytes);
    map->pub = map->rw = NULL;
}

/* Map and check both files of `name` ("segment" or "segment.prev"). map must be zeroed; nothing stays mapped on
 * failure. pub_writable is the sidecar's. Cost: about ten system calls. */
static inline enum spw_status SPW_WARN_UNUSED spw_map_open(struct spw_map *map, const char *pub_dir,
                                                           const char *rw_dir, const char *name,
                                                           bool pub_writable)
{
    map->self.lock_fd = -1;
    enum spw_status status =
        spw__file_map(pub_dir, name, pub_writable, &map->pub, &map->pub_bytes, &map->pub_inode);
    if (status == SPW_STATUS_OK)
        status = spw__file_map(rw_dir, name, true, &map->rw, &map->rw_bytes, &map->rw_inode);
    if (status == SPW_STATUS_OK)
        status = spw__header_check(map->pub, map->pub_bytes, SPW_MAGIC_PUB, SPW_PUB_SECTIONS_1_0,
                                   SPW_PUB_SECTIONS, map->pub_section, map);
    if (status == SPW_STATUS_OK)
        status = spw__header_check(map->rw, map->rw_bytes, SPW_MAGIC_RW, SPW_RW_SECTIONS, SPW_RW_SECTIONS,
                                   map->rw_section, map);
    if (status == SPW_STATUS_OK && !spw__shape_ok(map))
        status = SPW_STATUS_CORRUPT;
    if (status != SPW_STATUS_OK)
        spw_map_close(map);
    map->made_ns = spw_now_ns();
    return status;
}

/* How long the sidecar's heartbeat has been silent; 0 right after a beat, SPW_HEARTBEAT_STOPPED after a clean stop. */
static inline uint64_t spw_map_silence_ns(const struct spw_map *map, uint64_t now_ns)
{
    /* SYNC heartbeat: relaxed: a lone word, compared with the clock only. */
    uint64_t beat = spw_load_rlx(&spw_map_pub(map)->heartbeat_ns);
    if (beat == SPW_HEARTBEAT_STOPPED)
        return SPW_HEARTBEAT_STOPPED;
    return now_ns > beat ? now_ns - beat : 0;
}

#ifdef __cplusplus
}
#endif

#endif
