/* journal.c: the last 65,536 changes. See journal.h. */
#include "sidecar/control/journal.h"

#include <grpc/support/alloc.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

struct entry {
    uint8_t *bytes;
    size_t count;
};

struct spw_journal {
    char name[17];
    pthread_mutex_t lock; /* what follows */
    uint64_t newest;
    struct entry entries[SPW_JOURNAL_KEPT_COUNT]; /* of version v: v % SPW_JOURNAL_KEPT_COUNT */
};

struct spw_journal *spw_journal_new(void)
{
    struct spw_journal *journal = gpr_zalloc(sizeof *journal);
    uint64_t chance = 0;
    if (getrandom(&chance, sizeof chance, GRND_NONBLOCK) != (ssize_t)sizeof chance) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        chance = (uint64_t)now.tv_sec << 30 ^ (uint64_t)now.tv_nsec;
    }
    snprintf(journal->name, sizeof journal->name, "%016" PRIx64, chance);
    pthread_mutex_init(&journal->lock, NULL);
    return journal;
}

void spw_journal_destroy(struct spw_journal *journal)
{
    if (!journal)
        return;
    for (size_t i = 0; i < SPW_JOURNAL_KEPT_COUNT; i++)
        gpr_free(journal->entries[i].bytes);
    pthread_mutex_destroy(&journal->lock);
    gpr_free(journal);
}

const char *spw_journal_name(const struct spw_journal *journal)
{
    return journal->name;
}

uint64_t spw_journal_append(struct spw_journal *journal, Spillway__V1__Change *change)
{
    pthread_mutex_lock(&journal->lock);
    uint64_t version = journal->newest + 1;
    change->has_version = 1;
    change->version = version;
    struct entry *entry = &journal->entries[version % SPW_JOURNAL_KEPT_COUNT];
    size_t count = spillway__v1__change__get_packed_size(change);
    entry->bytes = gpr_realloc(entry->bytes, count);
    entry->count = spillway__v1__change__pack(change, entry->bytes);
    journal->newest = version;
    pthread_mutex_unlock(&journal->lock);
    return version;
}

static uint64_t oldest_of(const struct spw_journal *journal)
{
    return journal->newest > SPW_JOURNAL_KEPT_COUNT ? journal->newest - SPW_JOURNAL_KEPT_COUNT + 1 : 1;
}

uint64_t spw_journal_newest(struct spw_journal *journal, uint64_t *oldest)
{
    pthread_mutex_lock(&journal->lock);
    uint64_t newest = journal->newest;
    *oldest = oldest_of(journal);
    pthread_mutex_unlock(&journal->lock);
    return newest;
}

Spillway__V1__Change *spw_journal_get(struct spw_journal *journal, uint64_t version)
{
    Spillway__V1__Change *change = NULL;
    pthread_mutex_lock(&journal->lock);
    const struct entry *entry = &journal->entries[version % SPW_JOURNAL_KEPT_COUNT];
    if (version >= oldest_of(journal) && version <= journal->newest)
        change = spillway__v1__change__unpack(NULL, entry->count, entry->bytes);
    pthread_mutex_unlock(&journal->lock);
    return change;
}
