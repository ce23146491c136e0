/* calls.h: the calls that a replay's acquires were allowed and that have not ended yet.
 *
 * Owns: struct spw_replay_call. Called by: engine.c. Thread: one. Bounded by what is open: beyond
 * SPW_REPLAY_CALLS_KEPT, calls whose permit has run out are forgotten, as the pod forgets them.
 */
#ifndef SPW_REPLAY_CALLS_H
#define SPW_REPLAY_CALLS_H

#include <sys/queue.h>

#include "shm/spw_admission.h"
#include "sidecar/replay/event.h"

#define SPW_REPLAY_CALLS_KEPT 65536u

struct spw_replay_call {
    struct spw_ticket ticket;
    uint64_t start_at_ns; /* of its reservation; 0 = it began at once */
    uint64_t expires_ns;  /* when its permit runs out */
    uint32_t account;     /* place in the replay */
    bool retry;
    uint32_t tries; /* that failed before this one */
    char id[SPW_REPLAY_ID_BYTES];
    TAILQ_ENTRY(spw_replay_call) of_account, of_all;
    struct spw_replay_call *next_in_bucket;
};
TAILQ_HEAD(spw_replay_call_list, spw_replay_call);

struct spw_replay_account_calls {
    struct spw_replay_call_list list; /* the oldest first */
    uint64_t count;
};

/* Calls whose ids have the same hash. */
struct spw_replay_bucket {
    struct spw_replay_call *first;
};

struct spw_replay_calls {
    struct spw_replay_call_list all;
    struct spw_replay_account_calls *accounts;
    struct spw_replay_bucket *buckets;
    size_t buckets_count, count;
    struct spw_replay_call *spare; /* to be used again, by next_in_bucket */
};

enum spw_status spw_replay_calls_init(struct spw_replay_calls *calls, uint32_t accounts_count,
                                      struct spw_error *err) SPW_WARN_UNUSED;
void spw_replay_calls_clean_up(struct spw_replay_calls *calls);

/* NULL when there is none. */
struct spw_replay_call *spw_replay_calls_find(struct spw_replay_calls *calls, const char *id);
struct spw_replay_call *spw_replay_calls_oldest(struct spw_replay_calls *calls, uint32_t account);

/* A new one with this id, which none that is open has. NULL: no memory. */
struct spw_replay_call *spw_replay_calls_add(struct spw_replay_calls *calls, const char *id, uint32_t account,
                                             uint64_t now_ns);
void spw_replay_calls_remove(struct spw_replay_calls *calls, struct spw_replay_call *call);

#endif
