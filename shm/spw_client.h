/* spw_client.h: what a checkout process calls. Everything a developer needs to know is in this file's comments.
 *
 * Owns: struct spw_client, one per process. Called by: applications. libc only; C11 and C++17; 64-bit Linux.
 *
 *     struct spw_client spillway;
 *     spw_attach(&spillway, NULL);                       // works before the sidecar is there, too
 *     struct spw_quote_reply reply = {0};
 *     spw_quote(&spillway, &request, &reply);            // live, or at once from the cache
 *     ... place the order ...
 *     spw_order_placed(&spillway, reply.quote_id, "100048213", reply.tax_minor, "USD");
 *
 * Compile: include this file before any system header, or define _GNU_SOURCE; link with -pthread.
 * Threads: a client may be used by all threads of its process. Fork: a child gets its own identity by itself (a
 * pthread_atfork handler); exec needs nothing. Signals: spw_acquire and spw_report are async-signal-safe (with a
 * spw_ref and a ticket of the handler's own); nothing else is. They leave errno alone. Cost: spw_acquire, spw_report and
 * spw_order_placed make no system call, but for some when a segment has come or gone; spw_quote: the same when it
 * answers from the cache, else one exchange over a Unix socket.
 */
#ifndef SPW_CLIENT_H
#define SPW_CLIENT_H

#include <pthread.h>
#include <stdlib.h>
#include <sys/random.h>

#include "shm/spw_exchange.h"
#include "shm/spw_flag.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What spw_acquire lets through while there is no segment. Never a silent ALLOW: the verdict is NOT_ATTACHED, and
 * may_call follows this option. */
enum spw_unattached {
    SPW_UNATTACHED_BOUNDED, /* default: a rate of this process alone */
    SPW_UNATTACHED_DENY,
    SPW_UNATTACHED_ALLOW
};

struct spw_attach_options {
    const char *pub_dir; /* NULL = $SPILLWAY_PUB_DIR, else /run/spillway/pub */
    const char *rw_dir;  /* NULL = $SPILLWAY_RW_DIR, else /run/spillway/rw */
    enum spw_unattached on_unattached;
    uint32_t bounded_per_s; /* BOUNDED: calls a second and burst of this process; 0 = 5 */
    uint32_t grace_ms;      /* how much longer than the deadline spw_quote waits for the sidecar; 0 = 200 */
};

struct spw_client {
    struct spw_map *map;      /* the newest mapped segment; NULL before the first */
    uint32_t attaching;       /* 1 while a thread maps */
    uint64_t next_try_ns;     /* not before: looking for a segment costs system calls */
    uint64_t next_look_ns;    /* the same while the sidecar is silent: there may be no successor for long */
    uint64_t id_high, id_low; /* random per process; id_low counts */
    struct spw_limiter_conf bounded;
    uint64_t bounded_level;
    enum spw_unattached on_unattached;
    uint32_t grace_ms;
    enum spw_status last_status; /* of the last attempt to attach */
    char pub_dir[256];
    char rw_dir[256];
    struct spw_client **list;   /* the list this client is in: one per translation unit that attaches ... */
    pthread_mutex_t *list_lock; /* ... with its lock */
    struct spw_client *next;
};

#define SPW__RETRY_NS      UINT64_C(100000000) /* between attempts while there is no segment in force */
#define SPW__RETRY_SOON_NS UINT64_C(2000000)   /* ... while one is being put in place */
#define SPW__KEEP_OLD_NS   UINT64_C(60000000000)
#define SPW__LOOK_NS       UINT64_C(1000000000) /* between looks for a successor while the sidecar is silent */

/* ---- attach, fork, re-attach ---- */

static struct spw_client *spw__clients;
static pthread_mutex_t spw__clients_lock = PTHREAD_MUTEX_INITIALIZER;
static int spw__fork_hooked;

static inline void spw__seed(struct spw_client *c)
{
    uint64_t seed[2];
    if (getrandom(seed, sizeof seed, 0) !=
        (ssize_t)sizeof seed) { /* an interrupted or refused call: clock and pid */
        seed[0] = spw_now_ns() * UINT64_C(0x9E3779B97F4A7C15) ^ (uint64_t)getpid() << 32;
        seed[1] = (uint64_t)spw_wall_ms() ^ (uint64_t)(uintptr_t)c;
    }
    c->id_high = seed[0];
    c->id_low = seed[1];
}

/* The child of a fork: the parent's lock must not look alive through us, and our slot must be our own. */
static inline void spw__fork_child(void)
{
    for (struct spw_client *c = spw__clients; c; c = c->next) {
        for (struct spw_map *m = c->map; m; m = m->older)
            spw_slot_release(m);
        c->attaching = 0;
        spw__seed(c);
        if (c->map && spw_slot_claim(c->map, c->rw_dir, SPW_RW_NAME) != SPW_STATUS_OK)
            c->map->self.lock_fd = -1;
        if (c->map) /* what refs remember of it is the parent's */
            c->map->made_ns = spw_now_ns();
    }
    pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
    spw__clients_lock = fresh;
}

static inline void spw__fork_prepare(void)
{
    pthread_mutex_lock(&spw__clients_lock);
}
static inline void spw__fork_parent(void)
{
    pthread_mutex_unlock(&spw__clients_lock);
}

/* A map's own memory. Not of malloc, which a signal handler must not call. */
static inline struct spw_map *spw__map_new(void)
{
    void *fresh =
        mmap(NULL, sizeof(struct spw_map), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return fresh == MAP_FAILED ? NULL : (struct spw_map *)fresh;
}

static inline void spw__map_free(struct spw_map *map)
{
    if (map)
        munmap(map, sizeof *map);
}

/* Leave a map and those it replaced. */
static inline void spw__maps_leave(struct spw_map *map)
{
    while (map) {
        struct spw_map *older = map->older;
        spw_slot_release(map);
        spw_map_close(map);
        spw__map_free(map);
        map = older;
    }
}

/* Let go of maps that were replaced a minute ago: no thread is still inside one, and their pages count against the
 * volume until nobody maps them. now_ns may be older than the newest map, which another thread has just made. */
static inline void spw__drop_old(struct spw_client *c, uint64_t now_ns)
{
    uint32_t nobody = 0;
    struct spw_map *map = __atomic_load_n(&c->map, __ATOMIC_ACQUIRE); /* SYNC client-map: acquire */
    /* SYNC older: relaxed: a lone word here; it is followed with `attaching` held. SYNC attaching: acquire. */
    if (!map || !__atomic_load_n(&map->older, __ATOMIC_RELAXED) || now_ns < map->made_ns + SPW__KEEP_OLD_NS ||
        !__atomic_compare_exchange_n(&c->attaching, &nobody, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
        return;
    int kept_errno = errno;
    struct spw_map *old = c->map == map ? map->older : NULL;
    if (old) {
        /* First, so that the child of a fork in between finds no map that is half gone. SYNC older: relaxed. */
        __atomic_store_n(&map->older, (struct spw_map *)NULL, __ATOMIC_RELAXED);
        spw__maps_leave(old);
    }
    errno = kept_errno;
    __atomic_store_n(&c->attaching, 0, __ATOMIC_RELEASE); /* SYNC attaching: release */
}

/* Is the file at the segment's path still the one that is mapped? One system call. */
static inline bool spw__still_there(const struct spw_client *c)
{
    char path[300];
    struct stat st;
    return spw__path(path, sizeof path, c->pub_dir, SPW_PUB_NAME) && stat(path, &st) == 0 &&
           (uint64_t)st.st_ino == c->map->pub_inode;
}

/* Map the segment that is there now and make it the client's. Cold; one thread at a time, the others go on. */
static inline void spw__map_newest(struct spw_client *c, uint64_t now_ns)
{
    uint32_t nobody = 0;
    /* SYNC attaching: acquire: one thread at a time; it sees what the last one left. */
    if (now_ns < __atomic_load_n(&c->next_try_ns, __ATOMIC_RELAXED) ||
        !__atomic_compare_exchange_n(&c->attaching, &nobody, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
        return;
    int kept_errno = errno;
    if (c->map && spw__still_there(c)) {
        errno = kept_errno;
        /* SYNC next-try: relaxed: a lone word. */
        __atomic_store_n(&c->next_try_ns, now_ns + SPW__RETRY_SOON_NS, __ATOMIC_RELAXED);
        __atomic_store_n(&c->attaching, 0, __ATOMIC_RELEASE); /* SYNC attaching: release */
        return;
    }
    struct spw_map *fresh = spw__map_new(), *old = c->map;
    enum spw_status status =
        fresh ? spw_map_open(fresh, c->pub_dir, c->rw_dir, SPW_PUB_NAME, false) : SPW_STATUS_NO_MEMORY;
    bool same = status == SPW_STATUS_OK && old && old->generation == fresh->generation;
    if (status == SPW_STATUS_OK && !same) {
        enum spw_status claimed = spw_slot_claim(fresh, c->rw_dir, SPW_RW_NAME);
        if (claimed == SPW_STATUS_NOT_READY) {
            status = claimed; /* replaced between mapping and claiming */
            spw_map_close(fresh);
        }
    }
    if (status == SPW_STATUS_OK && !same) {
        fresh->older = old;
        /* SYNC client-map: release: other threads see the map filled. */
        __atomic_store_n(&c->map, fresh, __ATOMIC_RELEASE);
    } else {
        if (same)
            spw_map_close(fresh);
        spw__map_free(fresh);
    }
    c->last_status = status;
    errno = kept_errno;
    /* SYNC next-try: relaxed: a lone word. */
    bool soon = status == SPW_STATUS_NOT_READY || status == SPW_STATUS_OK;
    uint64_t pause_ns = soon ? SPW__RETRY_SOON_NS : SPW__RETRY_NS;
    __atomic_store_n(&c->next_try_ns, now_ns + pause_ns, __ATOMIC_RELAXED);
    __atomic_store_n(&c->attaching, 0, __ATOMIC_RELEASE); /* SYNC attaching: release */
}

/* A process that attached when every slot was taken asks again once a second. It goes over to a fresh mapping, since
 * other threads are reading who the old one is. */
static inline void spw__claim_late(struct spw_client *c, uint64_t now_ns)
{
    uint32_t nobody = 0;
    struct spw_map *map = __atomic_load_n(&c->map, __ATOMIC_ACQUIRE); /* SYNC client-map: acquire */
    /* SYNC next-look: relaxed: a lone word. SYNC attaching: acquire. */
    if (!map || map->self.lock_fd >= 0 || now_ns < __atomic_load_n(&c->next_look_ns, __ATOMIC_RELAXED) ||
        !__atomic_compare_exchange_n(&c->attaching, &nobody, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
        return;
    __atomic_store_n(&c->next_look_ns, now_ns + SPW__LOOK_NS, __ATOMIC_RELAXED);
    int kept_errno = errno;
    struct spw_map *fresh = c->map == map ? spw__map_new() : NULL;
    if (fresh && spw_map_open(fresh, c->pub_dir, c->rw_dir, SPW_PUB_NAME, false) == SPW_STATUS_OK) {
        if (fresh->generation == map->generation &&
            spw_slot_claim(fresh, c->rw_dir, SPW_RW_NAME) == SPW_STATUS_OK) {
            fresh->older = map;
            /* SYNC client-map: release: other threads see the map filled. */
            __atomic_store_n(&c->map, fresh, __ATOMIC_RELEASE);
            fresh = NULL;
        } else {
            spw_map_close(fresh);
        }
    }
    spw__map_free(fresh);
    errno = kept_errno;
    __atomic_store_n(&c->attaching, 0, __ATOMIC_RELEASE); /* SYNC attaching: release */
}

/* The segment to read rates from and write flags to: the newest mapped, even while it is being replaced. */
static inline struct spw_map *spw__data_map(struct spw_client *c)
{
    /* SYNC client-map: acquire. */
    return __atomic_load_n(&c->map, __ATOMIC_ACQUIRE);
}

/* The segment to decide by; NULL when there is none in force. */
static inline struct spw_map *spw__live_map(struct spw_client *c, uint64_t now_ns)
{
    struct spw_map *map = spw__data_map(c);
    /* SYNC retired: acquire: the successor, if any, is being put in place. */
    if (map && spw_load_acq(&spw_map_pub(map)->retired) == 0) {
        if (spw_map_silence_ns(map, now_ns) <= SPW_HEARTBEAT_STALE_NS)
            return map;
        /* The sidecar is silent: decide on, and look now and then whether there is a new segment.
         * SYNC next-look: relaxed: a lone word. */
        if (now_ns >= __atomic_load_n(&c->next_look_ns, __ATOMIC_RELAXED)) {
            __atomic_store_n(&c->next_look_ns, now_ns + SPW__LOOK_NS, __ATOMIC_RELAXED);
            spw__map_newest(c, now_ns);
        }
        return spw__data_map(c);
    }
    spw__map_newest(c, now_ns);
    map = spw__data_map(c);
    return map && spw_load_acq(&spw_map_pub(map)->retired) == 0 ? map : NULL; /* SYNC retired: acquire */
}

/* Prepare a client and attach it if a segment is there. options NULL = all defaults. OK, or why there is no segment
 * yet: the client is usable all the same, answers NOT_ATTACHED, and attaches by itself within 100 ms of the segment's
 * appearing. INVALID (a path too long): not usable. */
static inline enum spw_status spw_attach(struct spw_client *c, const struct spw_attach_options *options)
{
    struct spw_attach_options none;
    memset(&none, 0, sizeof none);
    if (!options)
        options = &none;
    memset(c, 0, sizeof *c);
    const char *pub = options->pub_dir ? options->pub_dir : getenv("SPILLWAY_PUB_DIR");
    const char *rw = options->rw_dir ? options->rw_dir : getenv("SPILLWAY_RW_DIR");
    pub = pub ? pub : "/run/spillway/pub";
    rw = rw ? rw : "/run/spillway/rw";
    if (strlen(pub) >= sizeof c->pub_dir - 16 || strlen(rw) >= sizeof c->rw_dir - 16)
        return SPW_STATUS_INVALID;
    memcpy(c->pub_dir, pub, strlen(pub) + 1);
    memcpy(c->rw_dir, rw, strlen(rw) + 1);
    c->on_unattached = options->on_unattached;
    c->grace_ms = options->grace_ms ? options->grace_ms : 200;
    uint32_t per_s = options->bounded_per_s ? options->bounded_per_s : 5;
    (void)spw_gcra_configure(&c->bounded, per_s, UINT64_C(1000000000), per_s, 0, spw_now_ns(), 1);
    c->bounded_level = c->bounded.e0_units - c->bounded.burst_units;
    spw__seed(c);
    pthread_mutex_lock(&spw__clients_lock);
    if (!spw__fork_hooked)
        spw__fork_hooked = pthread_atfork(spw__fork_prepare, spw__fork_parent, spw__fork_child) == 0;
    c->list = &spw__clients;
    c->list_lock = &spw__clients_lock;
    c->next = spw__clients;
    spw__clients = c;
    pthread_mutex_unlock(&spw__clients_lock);
    c->last_status = SPW_STATUS_NO_SEGMENT;
    spw__map_newest(c, spw_now_ns());
    return c->last_status;
}

/* Leave, for good: the client answers NOT_ATTACHED until spw_attach prepares it again. No other thread may be using it. */
static inline void spw_detach(struct spw_client *c)
{
    if (!c->list_lock)
        return; /* never attached */
    pthread_mutex_lock(c->list_lock);
    for (struct spw_client **at = c->list; at && *at; at = &(*at)->next) {
        if (*at == c) {
            *at = c->next;
            break;
        }
    }
    pthread_mutex_unlock(c->list_lock);
    spw__maps_leave(c->map);
    c->map = NULL;
    c->next_try_ns = UINT64_MAX;
}

/* ---- acquire and report: for callers that call the provider themselves ---- */

static inline struct spw_admission spw__unattached(struct spw_client *c, uint64_t tokens, uint64_t now_ns)
{
    struct spw_admission a;
    memset(&a, 0, sizeof a);
    a.verdict = SPW_NOT_ATTACHED;
    a.cause = SPW_CAUSE_NOT_ATTACHED;
    a.may_call = c->on_unattached == SPW_UNATTACHED_ALLOW;
    if (c->on_unattached != SPW_UNATTACHED_BOUNDED)
        return a;
    struct spw_gcra g;
    memset(&g, 0, sizeof g);
    spw_gcra_of(&c->bounded, &g);
    /* SYNC bounded: acquire: private to the process, shared by its threads. */
    uint64_t level = spw_load_acq(&c->bounded_level), next = 0;
    do {
        if (spw_gcra_take(&g, level, now_ns, tokens, 0, 0, &next, &a.wait_ns) != SPW_GCRA_TAKE)
            return a;
    } while (!spw_cas(&c->bounded_level, &level, next)); /* SYNC bounded: acq_rel */
    a.may_call = true;
    return a;
}

/* What was remembered is good until the sidecar has been silent for too long, and then looked at again. A heartbeat that
 * seems to be ahead, by a moment or by far, is not trusted at all. */
static inline void spw__ref_trust(const struct spw_map *map, struct spw_ref *ref, uint64_t now_ns)
{
    struct spw__ref_bucket *b = &ref->bucket;
    /* SYNC heartbeat: relaxed: a lone word. */
    uint64_t beat_ns = spw_load_rlx(&spw_map_pub(map)->heartbeat_ns);
    uint64_t until_ns = beat_ns + SPW_HEARTBEAT_STALE_NS - b->base_ns;
    if (now_ns - beat_ns > SPW_HEARTBEAT_STALE_NS)
        b->map = NULL;
    else if (until_ns < b->span_ns)
        b->span_ns = until_ns;
}

/* The decision when anything is unusual: no segment, a new one, an account not looked up yet, or not quiet. */
static SPW_COLD struct spw_admission spw__acquire_whole(struct spw_client *c, struct spw_ref *ref,
                                                        uint32_t flags, uint64_t tokens, uint64_t max_wait_ns,
                                                        uint64_t now_ns, struct spw_ticket *ticket)
{
    spw__drop_old(c, now_ns);
    spw__claim_late(c, now_ns);
    struct spw_map *map = spw__live_map(c, now_ns);
    struct spw_admission a;
    if (map && (spw__ref_is_of(map, ref) || spw__ref_find(map, ref))) {
        a = spw__ref_whole(map, ref, flags, tokens, max_wait_ns, now_ns, ticket);
        spw__ref_trust(map, ref, now_ns);
    } else {
        memset(ticket, 0, SPW__TICKET_HEAD_BYTES);
        memset(&a, 0, sizeof a);
        a.verdict = map ? SPW_BAD_HANDLE : SPW_NOT_ATTACHED;
    }
    if (a.verdict == SPW_BAD_HANDLE)
        ref->generation = 0; /* removed, or removed and made again: looked up at the next call */
    return a.verdict == SPW_NOT_ATTACHED ? spw__unattached(c, tokens, now_ns) : a;
}

/* The map to decide by while nothing is unusual. */
SPW_HOT const struct spw_map *spw__quiet_map(struct spw_client *c)
{
    const struct spw_map *map = spw__data_map(c);
    /* SYNC retired: acquire: the successor, if any, is being put in place. */
    return map && spw_load_acq(&spw_map_pub(map)->retired) == 0 ? map : NULL;
}

/* The decision when it is no ordinary take. */
static SPW_ASIDE struct spw_admission spw__acquire_aside(struct spw_client *c, struct spw_ref *ref,
                                                         uint32_t flags, uint64_t tokens,
                                                         uint64_t max_wait_ns, uint64_t now_ns,
                                                         struct spw_ticket *ticket)
{
    struct spw_admission a;
    if (max_wait_ns == 0 &&
        spw__ref_quiet(spw__quiet_map(c), ref, tokens, now_ns, !(flags & SPW_ACQUIRE_PEEK), &a, ticket))
        return a;
    return spw__acquire_whole(c, ref, flags, tokens, max_wait_ns, now_ns, ticket);
}

/* spw_acquire and spw_peek. */
SPW_HOT struct spw_admission spw__acquire(struct spw_client *c, struct spw_ref *ref, uint32_t flags,
                                          uint64_t tokens, uint64_t max_wait_ns, struct spw_ticket *ticket)
{
    struct spw_admission a;
    uint64_t breaker;
    bool quiet = max_wait_ns == 0 && spw__ref_look(spw__quiet_map(c), ref, tokens, &breaker);
    uint64_t now_ns = spw_now_ns();
    if (quiet && spw__ref_quick(ref, breaker, tokens, now_ns, !(flags & SPW_ACQUIRE_PEEK), &a, ticket))
        return a;
    return spw__acquire_aside(c, ref, flags, tokens, max_wait_ns, now_ns, ticket);
}

/* May this process make a provider call that costs `tokens` now? Look at may_call; when it is true, make the call
 * (not before start_at_ns, CLOCK_BOOTTIME) and tell spw_report how it ended. max_wait_ns > 0 reserves tokens that
 * will be earned within that time (an hour at most): then wait, and ask spw_reservation_confirm before the call. 0 never
 * waits. ref->endpoint says what kind of call it is. Lock-free, no system call while attached. */
static inline struct spw_admission spw_acquire(struct spw_client *c, struct spw_ref *ref, uint64_t tokens,
                                               uint64_t max_wait_ns, struct spw_ticket *ticket)
{
    return spw__acquire(c, ref, 0, tokens, max_wait_ns, ticket);
}

/* Would spw_acquire allow it now? Loads only: nothing is taken, reserved or counted. */
static inline struct spw_admission spw_peek(struct spw_client *c, struct spw_ref *ref, uint64_t tokens)
{
    struct spw_ticket unused;
    return spw__acquire(c, ref, SPW_ACQUIRE_PEEK, tokens, 0, &unused);
}

/* The start_at_ns of a reservation has come: do gate and breaker still let the call through? may_call: make it, then
 * spw_report. Else do not: too early (DENY, wait_ns says how much, nothing has changed), or they have shut meanwhile, and
 * the reservation has been given back. Costs as spw_acquire. */
static inline struct spw_admission spw_reservation_confirm(struct spw_client *c, struct spw_ticket *ticket)
{
    uint64_t now_ns = spw_now_ns();
    struct spw_map *map = spw__live_map(c, now_ns);
    struct spw_admission a;
    memset(&a, 0, sizeof a);
    a.verdict = SPW_NOT_ATTACHED;
    if (map)
        a = spw_confirm(map, ticket, now_ns);
    return a.verdict == SPW_NOT_ATTACHED ? spw__unattached(c, ticket->tokens, now_ns) : a;
}

/* A call that spw_acquire allowed is not made after all, or a reservation no longer wanted: everything it held goes back,
 * so that it counts as never taken. Instead of spw_report; once. Costs as spw_acquire. */
static inline void spw_give_up(struct spw_client *c, struct spw_ticket *ticket)
{
    struct spw_map *map = spw__data_map(c);
    if (map)
        spw_abandon(map, ticket, spw_now_ns());
}

/* Tell how the call ended: http_status 0 = no answer (timeout, no connection). It, 408, 429 and 5xx speak against the
 * provider; any other says that it answers, whatever it thought of this request. retry_after_ms: what the provider asked
 * for, -1 = nothing. Call it once for each ticket whose call was made. */
static inline void spw_report(struct spw_client *c, const struct spw_ticket *ticket, uint32_t http_status,
                              int64_t retry_after_ms)
{
    struct spw_call_end end;
    uint64_t now_ns = spw_now_ns();
    spw__drop_old(c, now_ns);
    struct spw_map *map = spw__data_map(c);
    memset(&end, 0, sizeof end);
    end.outcome = spw_outcome_of_status(http_status);
    if (http_status == 429) {
        bool known = retry_after_ms > 0; /* "0" is no invitation to hammer: the ordinary pause */
        uint64_t pause_ms = known ? (uint64_t)retry_after_ms : SPW_GATE_UNKNOWN_MS;
        if (pause_ms > SPW_GATE_MAX_MS)
            pause_ms = SPW_GATE_MAX_MS;
        end.gate_shut = true;
        end.gate_source = known ? SPW_GATE_RETRY_AFTER : SPW_GATE_UNKNOWN_429;
        end.gate_until_ns = now_ns + pause_ms * UINT64_C(1000000);
    }
    end.gate_open = spw_status_accepts(http_status);
    if (map && ticket->generation)
        (void)spw_settle(map, ticket, now_ns, &end);
}

/* ---- quote and order: for callers that let the sidecar call ---- */

/* Zero it before the call. handback and handback_room may be set: they receive the flag's line of JSON when no cell was
 * free (flag_refused): the only record of this fallback, which no ledger has. Store it, and reconcile from it. */
struct spw_quote_reply {
    enum spw_decision decision;
    enum spw_fallback type; /* FALLBACK: exactly one type */
    enum spw_cause cause;
    enum spw_match match;
    int64_t tax_minor; /* meaningless unless LIVE or FALLBACK: not known is not zero */
    uint32_t rate_ppb;
    uint32_t age_days;
    bool stale;
    bool flag_refused;
    char quote_id[SPW_ID_BYTES];
    char flag_id[SPW_ID_BYTES];
    char decision_id[SPW_CALLER_ID_BYTES]; /* yours, or the one minted */
    char reason[64];                       /* NONE: why */
    char error[1024];                      /* REJECTED: the provider's own words, JSON */
    uint32_t lines_count; /* entries of lines: yours, then shipping; 0 where they are not known */
    struct spw_line_tax lines[SPW_LINES_MAX_COUNT + 1];
    char *handback;
    size_t handback_room;
};

static inline uint64_t spw__next_id(struct spw_client *c)
{
    return spw_add_rlx(&c->id_low, 1);
}

/* Serve from the cache and record the flag. */
static inline void spw__quote_fallback(struct spw_client *c, struct spw_map *map,
                                       const struct spw_quote_request *q, const char *json, size_t json_bytes,
                                       const struct spw_ref *ref, enum spw_fallback type,
                                       enum spw_cause cause, const struct spw_admission *a,
                                       struct spw_quote_reply *reply)
{
    struct spw_fallback_answer answer;
    struct spw_flag_facts facts;
    struct spw_flag_record record;
    spw_fallback_compute(map, q, spw_wall_ms(), reply->lines, &answer);
    reply->type = type;
    reply->cause = cause;
    if (answer.why_not != SPW_ANSWERED) {
        reply->decision = SPW_DECISION_NONE;
        reply->lines_count = 0;
        SPW__SET(reply->reason, spw_no_answer_name(answer.why_not));
        spw_stat_count(map, ref->account_index, SPW_STAT_NO_RATE);
        return;
    }
    spw_id_make(reply->quote_id, "sq_", c->id_high, spw__next_id(c));
    spw_id_make(reply->flag_id, "sf_", c->id_high, spw__next_id(c));
    memset(&facts, 0, sizeof facts);
    facts.request = q;
    facts.request_json = json;
    facts.request_bytes = json_bytes;
    facts.answer = &answer;
    facts.lines = reply->lines;
    facts.flag_id = reply->flag_id;
    facts.quote_id = reply->quote_id;
    facts.decision_id = reply->decision_id;
    facts.account_index = ref->account_index;
    facts.account_generation = ref->account_generation;
    facts.type = type;
    facts.cause = cause;
    facts.uid = map->self.uid;
    facts.breaker_state = a->breaker_state;
    facts.tokens_milli = spw_admission_tokens_milli(a);
    facts.config_version = a->version;
    spw_flag_fill(map, &facts, &record);
    enum spw_status status = spw_flag_write(map, (uint32_t)spw__next_id(c), &record, &facts);
    /* SYNC retired: acquire: a segment retired under our hands may be drained already: write to its successor too;
     * the ledger drops the second copy by its id. */
    if (spw_load_acq(&spw_map_pub(map)->retired)) {
        struct spw_map *fresh = spw__live_map(c, spw_now_ns());
        if (fresh && fresh != map)
            status = spw_flag_write(fresh, (uint32_t)spw__next_id(c), &record, &facts);
    }
    reply->decision = SPW_DECISION_FALLBACK;
    reply->match = answer.match;
    reply->tax_minor = answer.tax_minor;
    reply->rate_ppb = answer.rate.combined_ppb;
    reply->age_days = answer.age_days;
    reply->stale = answer.stale;
    reply->lines_count = q->line_count + 1;
    if (status == SPW_STATUS_OK) {
        spw_stat_count(map, ref->account_index, SPW_STAT_FALLBACK);
        return;
    }
    spw_stat_count(map, ref->account_index, SPW_STAT_FLAG_REFUSED);
    struct spw_account_conf conf;
    const struct spw_account *account = spw_account_at(map, ref->account_index);
    bool deny = !account || !spw_account_conf_read(account, &conf) || conf.on_full != 0;
    reply->flag_refused = true;
    if (!deny && reply->handback &&
        spw_flag_line(&record, json, json_bytes, reply->handback, reply->handback_room))
        return;
    /* Nobody would ever know of this fallback: it is not given out. */
    reply->decision = SPW_DECISION_NONE;
    reply->lines_count = 0;
    SPW__SET(reply->reason, "flag-refused");
}

/* ---- the answer of the quote door ---- */

static inline uint32_t spw__code_of(const char *text, const char *(*name)(uint32_t), uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(name(i), text) == 0)
            return i;
    }
    return 0;
}

/* Read the sidecar's answer. false: it makes no sense, treat it as none. */
static inline bool spw__reply_read(const char *head, const char *body, uint32_t line_count,
                                   struct spw_quote_reply *reply)
{
    char value[64], list[SPW_LINES_MAX_COUNT * 12];
    bool known = false;
    spw__header(head, "Spillway-Decision", value, sizeof value);
    reply->decision = (enum spw_decision)spw__code_of(value, spw_decision_name, SPW_DECISION_COUNT);
    if (value[0] == 0 || strcmp(value, spw_decision_name(reply->decision)) != 0)
        return false;
    spw__header(head, "Spillway-Quote", reply->quote_id, sizeof reply->quote_id);
    spw__header(head, "Spillway-Flag", reply->flag_id, sizeof reply->flag_id);
    spw__header(head, "Spillway-Reason", reply->reason, sizeof reply->reason);
    spw__header(head, "Spillway-Type", value, sizeof value);
    reply->type = (enum spw_fallback)spw__code_of(value, spw_fallback_name, SPW_FALLBACK_COUNT);
    spw__header(head, "Spillway-Cause", value, sizeof value);
    reply->cause = (enum spw_cause)spw__code_of(value, spw_cause_name, SPW_CAUSE_COUNT);
    spw__header(head, "Spillway-Match", value, sizeof value);
    reply->match = (enum spw_match)spw__code_of(value, spw_match_name, SPW_MATCH_COUNT);
    reply->rate_ppb = (uint32_t)spw__header_i64(head, "Spillway-Rate-Ppb", &known);
    reply->age_days = (uint32_t)spw__header_i64(head, "Spillway-Age-Days", &known);
    reply->stale = spw__header_i64(head, "Spillway-Stale", &known) == 1;
    if (reply->decision == SPW_DECISION_REJECTED)
        SPW__SET(reply->error, body);
    if (reply->decision != SPW_DECISION_LIVE && reply->decision != SPW_DECISION_FALLBACK)
        return true;
    reply->tax_minor = spw__header_i64(head, "Spillway-Tax-Minor", &known);
    if (!known || !reply->quote_id[0] || (reply->decision == SPW_DECISION_FALLBACK && !reply->flag_id[0]))
        return false;
    /* "taxable/tax,taxable/tax,...", shipping last */
    spw__header(head, "Spillway-Lines-Minor", list, sizeof list);
    char *at = list;
    for (uint32_t i = 0; i <= line_count && *at; i++) {
        reply->lines[i].taxable_minor = strtoll(at, &at, 10);
        if (*at == '/')
            reply->lines[i].tax_minor = strtoll(at + 1, &at, 10);
        at += *at == ',';
        reply->lines_count = i + 1;
    }
    if (reply->lines_count != line_count + 1)
        reply->lines_count = 0;
    return true;
}

static inline bool spw__quote_live(struct spw_client *c, const struct spw_quote_request *q, const char *json,
                                   size_t json_bytes, uint32_t deadline_ms, struct spw_quote_reply *reply)
{
    char answer[16384], head_buffer[256];
    const char *body = "";
    struct spw_text head = spw_text_on(head_buffer, sizeof head_buffer);
    spw_text_put(&head, "POST /spillway/v1/quote HTTP/1.1\r\nHost: spillway\r\nConnection: close\r\n"
                        "Content-Type: application/json\r\nContent-Length: ");
    spw_text_u64(&head, json_bytes);
    spw_text_put(&head, "\r\n\r\n");
    uint64_t until_ns = spw_now_ns() + ((uint64_t)deadline_ms + c->grace_ms) * UINT64_C(1000000);
    uint32_t status = spw__exchange(c->pub_dir, head_buffer, head.used, json, json_bytes, until_ns, answer,
                                    sizeof answer, &body);
    return status && spw__reply_read(answer, body, q->line_count, reply);
}

static inline bool spw__amounts_ok(const struct spw_quote_request *q)
{
    bool ok = q->shipping_minor <= SPW_AMOUNT_MAX_MINOR && q->shipping_minor >= -SPW_AMOUNT_MAX_MINOR;
    for (uint32_t i = 0; i < q->line_count && ok; i++)
        ok = q->lines[i].amount_minor <= SPW_AMOUNT_MAX_MINOR &&
             q->lines[i].amount_minor >= -SPW_AMOUNT_MAX_MINOR;
    return ok;
}

/* The tax of a cart or order: live through the sidecar, or at once from the cache with a durable flag when the live
 * call must not be made or cannot be had. OK: look at reply->decision. INVALID: the request itself (no lines, too many,
 * too long, an amount beyond SPW_AMOUNT_MAX_MINOR, control characters or bytes that are not UTF-8 in an id, a state or
 * another name). NOT_FOUND: no such account. Waits at most the deadline + grace_ms. */
static inline enum spw_status SPW_WARN_UNUSED spw_quote(struct spw_client *c,
                                                        const struct spw_quote_request *request,
                                                        struct spw_quote_reply *reply)
{
    char json[SPW_REQUEST_MAX_BYTES];
    struct spw_quote_request q = *request;
    struct spw_ticket unused;
    struct spw_admission a;
    struct spw_ref ref;
    bool refused = false;
    uint64_t now_ns = spw_now_ns();
    if (!q.account || !q.lines || q.line_count == 0 || q.line_count > SPW_LINES_MAX_COUNT ||
        !spw__amounts_ok(&q) || (q.decision_id && strlen(q.decision_id) >= SPW_CALLER_ID_BYTES) ||
        spw_request_bad_name(&q))
        return SPW_STATUS_INVALID;
    if (q.decision_id)
        SPW__SET(reply->decision_id, q.decision_id);
    else
        spw_id_make(reply->decision_id, "sd_", c->id_high, spw__next_id(c));
    q.decision_id = reply->decision_id;
    size_t json_bytes = spw_request_json(&q, json, sizeof json);
    if (json_bytes == 0)
        return SPW_STATUS_INVALID;
    spw__drop_old(c, now_ns);
    spw__claim_late(c, now_ns);
    struct spw_map *map = spw__live_map(c, now_ns);
    uint32_t deadline_ms = q.deadline_ms ? q.deadline_ms : 1800;
    memset(&a, 0, sizeof a);
    a.may_call = true;
    spw_ref_init(&ref, q.account, q.integration ? q.integration : "");
    if (map) {
        struct spw_account_conf conf;
        if (!spw__ref_find(map, &ref))
            return SPW_STATUS_NOT_FOUND;
        if (spw_account_conf_read(spw_account_at(map, ref.account_index), &conf) &&
            (!q.deadline_ms || q.deadline_ms > conf.deadline_ms))
            deadline_ms = conf.deadline_ms;
        a = spw_admit(map, ref.account_index, ref.account_generation, SPW_ACQUIRE_PEEK | spw_ref_flags(&ref),
                      1, 0, now_ns, &unused);
        refused = a.verdict == SPW_DENY || a.verdict == SPW_NEVER;
        if (refused && map->self.lock_fd >= 0) { /* without a slot the flag is the sidecar's to record */
            spw__quote_fallback(c, map, &q, json, json_bytes, &ref, spw_refusal_type(a.cause), a.cause, &a,
                                reply);
            spw_stat_count(map, ref.account_index, spw__stat_of(a.cause));
            return SPW_STATUS_OK;
        }
    }
    if (spw__quote_live(c, &q, json, json_bytes, deadline_ms, reply))
        return SPW_STATUS_OK;
    map = spw__data_map(c);
    if (!map) {
        reply->decision = SPW_DECISION_NONE;
        SPW__SET(reply->reason, "not-attached");
        return SPW_STATUS_OK;
    }
    if (!ref.generation && !spw__ref_find(map, &ref))
        return SPW_STATUS_NOT_FOUND;
    spw__quote_fallback(c, map, &q, json, json_bytes, &ref,
                        refused ? spw_refusal_type(a.cause) : SPW_FALLBACK_SIDECAR_UNAVAILABLE,
                        refused ? a.cause : SPW_CAUSE_SIDECAR_GONE, &a, reply);
    return SPW_STATUS_OK;
}

static inline enum spw_status spw__order(struct spw_client *c, uint32_t op, const char *quote_id,
                                         const char *order_id, int64_t tax_minor, const char *currency)
{
    struct spw_order_record record;
    struct spw_map *map = spw__live_map(c, spw_now_ns());
    map = map ? map : spw__data_map(c);
    bool named = order_id && order_id[0];
    if ((!named && op != SPW_ORDER_ABANDONED) || (named && strlen(order_id) >= SPW_CALLER_ID_BYTES) ||
        (quote_id && strlen(quote_id) >= SPW_ID_BYTES) || !spw_text_is_name(quote_id) ||
        !spw_text_is_name(order_id) || !spw_text_is_name(currency))
        return SPW_STATUS_INVALID;
    if (!map)
        return SPW_STATUS_NO_SEGMENT;
    memset(&record, 0, sizeof record);
    record.op = op;
    SPW__SET(record.quote_id, quote_id);
    SPW__SET(record.order_id, order_id);
    SPW__SET(record.currency, currency ? currency : "USD");
    record.tax_collected_minor = tax_minor;
    record.created_unix_ms = spw_wall_ms();
    record.placed_unix_ms = record.created_unix_ms;
    enum spw_status status = spw_order_write(map, (uint32_t)spw__next_id(c), &record);
    if (spw_load_acq(&spw_map_pub(map)->retired)) { /* SYNC retired: acquire: as for a flag */
        struct spw_map *fresh = spw__live_map(c, spw_now_ns());
        if (fresh && fresh != map)
            status = spw_order_write(fresh, (uint32_t)spw__next_id(c), &record);
    }
    return status;
}

/* The order of this quote was placed and so much tax was collected. OK: recorded, it survives the SIGKILL of every
 * process. Idempotent by (quote_id, order_id). FULL, NOT_READY, NO_SEGMENT: not recorded; post it to the orders door
 * (POST /spillway/v1/orders) later. INVALID: an id is empty, too long, or not UTF-8 without control characters. */
static inline enum spw_status SPW_WARN_UNUSED spw_order_placed(struct spw_client *c, const char *quote_id,
                                                               const char *order_id,
                                                               int64_t tax_collected_minor,
                                                               const char *currency)
{
    if (!quote_id || !quote_id[0])
        return SPW_STATUS_INVALID;
    return spw__order(c, SPW_ORDER_PLACED, quote_id, order_id, tax_collected_minor, currency);
}

static inline enum spw_status SPW_WARN_UNUSED spw_order_cancelled(struct spw_client *c, const char *order_id)
{
    return spw__order(c, SPW_ORDER_CANCELLED, NULL, order_id, 0, NULL);
}

/* No order will come of this quote: its flag, if it has one, is abandoned at once and not after a day. An order that comes
 * all the same counts. Results as for spw_order_placed. */
static inline enum spw_status SPW_WARN_UNUSED spw_quote_abandoned(struct spw_client *c, const char *quote_id)
{
    return quote_id && quote_id[0] ? spw__order(c, SPW_ORDER_ABANDONED, quote_id, NULL, 0, NULL)
                                   : SPW_STATUS_INVALID;
}

/* Is anything that this process recorded still in a cell, be it of a segment that was replaced? */
static inline bool spw__recorded(struct spw_client *c)
{
    uint32_t nobody = 0;
    bool any = false;
    /* SYNC attaching: acquire: no map goes meanwhile. Another thread is at it: look again. */
    if (!__atomic_compare_exchange_n(&c->attaching, &nobody, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
        return true;
    for (const struct spw_map *m = c->map; m && !any; m = m->older)
        any = m->self.lock_fd >= 0 && spw_cell_recorded(m, m->self.slot, m->self.generation);
    __atomic_store_n(&c->attaching, 0, __ATOMIC_RELEASE); /* SYNC attaching: release */
    return any;
}

/* Wait until all that this process has recorded is durable, which the sidecar sees to within some milliseconds. OK: it is
 * on the disk. TIMEOUT: not within timeout_ms; it is recorded, and becomes durable as soon as a sidecar runs and can
 * write. NO_SEGMENT: not attached. Looks every millisecond (one sleep each); about a nanosecond a cell. Any thread; not for
 * a signal handler. */
static inline enum spw_status SPW_WARN_UNUSED spw_wait_durable(struct spw_client *c, uint32_t timeout_ms)
{
    uint64_t until_ns = spw_now_ns() + timeout_ms * UINT64_C(1000000);
    if (!spw__data_map(c))
        return SPW_STATUS_NO_SEGMENT;
    while (spw__recorded(c)) {
        struct timespec pause = {0, 1000000};
        if (spw_now_ns() >= until_ns)
            return SPW_STATUS_TIMEOUT;
        (void)nanosleep(&pause, NULL);
    }
    return SPW_STATUS_OK;
}

/* The cached rate for a US ZIP code ("98110", "98110-1234"), without making a flag: for display only. OK, NOT_FOUND,
 * NO_SEGMENT, INVALID (no ZIP code), BUSY (the table changed under every try). */
static inline enum spw_status SPW_WARN_UNUSED spw_rate_lookup(struct spw_client *c, const char *zip,
                                                              struct spw_rate_record *record,
                                                              struct spw_source *source)
{
    static const uint32_t levels[] = {SPW_RATE_ZIP9, SPW_RATE_ZIP5, 0};
    struct spw_address address;
    struct spw_place place;
    struct spw_map *map = spw__data_map(c);
    memset(&address, 0, sizeof address);
    address.zip = zip;
    if (!map)
        return SPW_STATUS_NO_SEGMENT;
    if (!zip || !spw_place_from(&address, &place))
        return SPW_STATUS_INVALID;
    enum spw_rates_result result = spw_rates_find(map, &place, levels, record, source);
    return result == SPW_RATES_FOUND  ? SPW_STATUS_OK
           : result == SPW_RATES_BUSY ? SPW_STATUS_BUSY
                                      : SPW_STATUS_NOT_FOUND;
}

#ifdef __cplusplus
}
#endif

#endif
