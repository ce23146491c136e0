/* spw_slot.h: who is attached, and whether it still lives.
 *
 * Owns: slot words and their lock bytes. Called by: the client (claim, release), the sidecar (sweep). Cold: system
 * calls. Safe across PID namespaces: liveness is a lock on a byte of `rw` held through an open file description (OFD),
 * which the kernel drops when the process dies, however it dies. Never a PID.
 *
 * Claim: lock byte i first, then CAS slot FREE(g) -> LIVE(g). Sweep: LIVE(g) whose byte nobody holds -> DEAD(g) ->
 * everything that names (slot, g) is cleared -> FREE(g + 1). Each step can be repeated by a restarted sidecar.
 */
#ifndef SPW_SLOT_H
#define SPW_SLOT_H

#include "shm/spw_map.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifndef F_OFD_SETLK
#define F_OFD_GETLK 36
#define F_OFD_SETLK 37
#endif

static inline uint64_t spw_slot_word(uint32_t generation, uint32_t state)
{
    return (uint64_t)generation << 8 | state;
}
static inline uint32_t spw_slot_generation(uint64_t word)
{
    return (uint32_t)(word >> 8);
}
static inline uint32_t spw_slot_state(uint64_t word)
{
    return (uint32_t)(word & 0xFF);
}

static inline bool spw__slot_lock(int fd, const struct spw_map *map, uint32_t slot, int how)
{
    struct flock lock;
    memset(&lock, 0, sizeof lock);
    lock.l_type = (short)how;
    lock.l_whence = SEEK_SET;
    lock.l_start = (off_t)(map->lock_base + slot);
    lock.l_len = 1;
    return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

/* SIDECAR ONLY */
/* Is the byte of this slot held by anybody but fd's own description? true also when it cannot be told. */
static inline bool spw_slot_held(int fd, const struct spw_map *map, uint32_t slot)
{
    struct flock lock;
    memset(&lock, 0, sizeof lock);
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = (off_t)(map->lock_base + slot);
    lock.l_len = 1;
    return fcntl(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}
/* END SIDECAR ONLY */

/* Claim a slot for this process; rw_dir is where the file was mapped from. FULL when every slot is taken: decisions go
 * on, without permits and flags. Async-signal-safe (used in the child of a fork). */
static inline enum spw_status SPW_WARN_UNUSED spw_slot_claim(struct spw_map *map, const char *rw_dir,
                                                             const char *name)
{
    char path[4096];
    if (!spw__path(path, sizeof path, rw_dir, name))
        return SPW_STATUS_INVALID;
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return SPW_STATUS_SYSTEM;
    struct stat st;
    if (fstat(fd, &st) != 0 || (uint64_t)st.st_ino != map->rw_inode) {
        close(fd);
        return SPW_STATUS_NOT_READY; /* replaced since it was mapped: attach again */
    }
    uint32_t slots = map->rw_section[SPW_RW_SLOTS].count;
    uint32_t first =
        (uint32_t)(spw_now_ns() >> 10) % slots; /* spreads claims of processes that start together */
    for (uint32_t i = 0; i < slots; i++) {
        uint32_t index = (first + i) % slots;
        struct spw_slot *slot = spw_slot_at(map, index);
        /* SYNC slot: acquire: a FREE word was stored after everything naming its old generation was cleared. */
        uint64_t word = spw_load_acq(&slot->word);
        if (spw_slot_state(word) != SPW_SLOT_FREE || !spw__slot_lock(fd, map, index, F_WRLCK))
            continue;
        uint64_t expected = word;
        /* SYNC slot: release: the lock byte is held before the slot is seen LIVE. */
        if (spw_slot_state(word) == SPW_SLOT_FREE &&
            spw_cas(&slot->word, &expected, spw_slot_word(spw_slot_generation(word), SPW_SLOT_LIVE))) {
            map->self.lock_fd = fd;
            map->self.slot = index;
            map->self.generation = spw_slot_generation(word);
            map->self.uid = (uint32_t)geteuid();
            slot->attached_ns = spw_now_ns();
            slot->uid = map->self.uid;
            return SPW_STATUS_OK;
        }
        spw__slot_lock(fd, map, index, F_UNLCK);
    }
    close(fd);
    return SPW_STATUS_FULL;
}

/* Leave: the sidecar's sweep does the clearing, the same as after a death. */
static inline void spw_slot_release(struct spw_map *map)
{
    struct stat st;
    /* An application that closed every descriptor may have got the same number for a file of its own. */
    if (map->self.lock_fd >= 0 && fstat(map->self.lock_fd, &st) == 0 && (uint64_t)st.st_ino == map->rw_inode)
        close(map->self.lock_fd);
    map->self.lock_fd = -1;
}

#ifdef __cplusplus
}
#endif

#endif
