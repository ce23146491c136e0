/* calls.c: see calls.h. */
#include "sidecar/replay/calls.h"

#include <stdlib.h>

static size_t bucket_of(const struct spw_replay_calls *calls, const char *id)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (; *id; id++)
        hash = (hash ^ (uint8_t)*id) * UINT64_C(1099511628211);
    return (size_t)(hash ^ hash >> 29) & (calls->buckets_count - 1);
}

enum spw_status spw_replay_calls_init(struct spw_replay_calls *calls, uint32_t accounts_count,
                                      struct spw_error *err)
{
    memset(calls, 0, sizeof *calls);
    TAILQ_INIT(&calls->all);
    calls->buckets_count = 1024;
    calls->buckets = calloc(calls->buckets_count, sizeof calls->buckets[0]);
    calls->accounts = calloc(accounts_count, sizeof calls->accounts[0]);
    if (!calls->buckets || !calls->accounts) {
        spw_replay_calls_clean_up(calls);
        return spw_error_set(err, SPW_STATUS_NO_MEMORY, "no memory: raise the memory limit");
    }
    for (uint32_t i = 0; i < accounts_count; i++)
        TAILQ_INIT(&calls->accounts[i].list);
    return SPW_STATUS_OK;
}

void spw_replay_calls_clean_up(struct spw_replay_calls *calls)
{
    struct spw_replay_call *call;
    while (calls->all.tqh_last && (call = TAILQ_FIRST(&calls->all))) {
        TAILQ_REMOVE(&calls->all, call, of_all);
        free(call);
    }
    while ((call = calls->spare)) {
        calls->spare = call->next_in_bucket;
        free(call);
    }
    free(calls->buckets);
    free(calls->accounts);
    memset(calls, 0, sizeof *calls);
}

struct spw_replay_call *spw_replay_calls_find(struct spw_replay_calls *calls, const char *id)
{
    struct spw_replay_call *call = calls->buckets[bucket_of(calls, id)].first;
    while (call && strcmp(call->id, id) != 0)
        call = call->next_in_bucket;
    return call;
}

struct spw_replay_call *spw_replay_calls_oldest(struct spw_replay_calls *calls, uint32_t account)
{
    return TAILQ_FIRST(&calls->accounts[account].list);
}

static void put_in_bucket(struct spw_replay_calls *calls, struct spw_replay_call *call)
{
    struct spw_replay_bucket *bucket = &calls->buckets[bucket_of(calls, call->id)];
    call->next_in_bucket = bucket->first;
    bucket->first = call;
}

/* Twice the buckets; without memory for them the chains only get longer. */
static void grow(struct spw_replay_calls *calls)
{
    struct spw_replay_call *call;
    struct spw_replay_bucket *buckets = calloc(calls->buckets_count * 2, sizeof calls->buckets[0]);
    if (!buckets)
        return;
    free(calls->buckets);
    calls->buckets = buckets;
    calls->buckets_count *= 2;
    TAILQ_FOREACH(call, &calls->all, of_all)
    put_in_bucket(calls, call);
}

struct spw_replay_call *spw_replay_calls_add(struct spw_replay_calls *calls, const char *id, uint32_t account,
                                             uint64_t now_ns)
{
    while (calls->count >= SPW_REPLAY_CALLS_KEPT && TAILQ_FIRST(&calls->all)->expires_ns < now_ns)
        spw_replay_calls_remove(calls, TAILQ_FIRST(&calls->all));
    if (calls->count >= calls->buckets_count)
        grow(calls);
    struct spw_replay_call *call = calls->spare;
    if (call)
        calls->spare = call->next_in_bucket;
    else
        call = malloc(sizeof *call);
    if (!call)
        return NULL;
    memset(call, 0, sizeof *call);
    strncpy(call->id, id, sizeof call->id - 1);
    call->account = account;
    put_in_bucket(calls, call);
    TAILQ_INSERT_TAIL(&calls->all, call, of_all);
    TAILQ_INSERT_TAIL(&calls->accounts[account].list, call, of_account);
    calls->accounts[account].count++;
    calls->count++;
    return call;
}

void spw_replay_calls_remove(struct spw_replay_calls *calls, struct spw_replay_call *call)
{
    struct spw_replay_call **at = &calls->buckets[bucket_of(calls, call->id)].first;
    while (*at != call)
        at = &(*at)->next_in_bucket;
    *at = call->next_in_bucket;
    TAILQ_REMOVE(&calls->all, call, of_all);
    TAILQ_REMOVE(&calls->accounts[call->account].list, call, of_account);
    calls->accounts[call->account].count--;
    call->next_in_bucket = calls->spare;
    calls->spare = call;
    calls->count--;
}
