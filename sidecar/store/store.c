/* store.c: the store thread, and the doors other threads use.
 *
 * Owns: struct spw_store. Called by: see store.h. Thread: the store thread runs main_of_thread and everything it calls;
 * the functions of store.h run in any thread and meet it under one mutex.
 *
 * Which flag of a decision stands
 *
 * A decision is (decision_id, account): ids are minted by callers, and two shops may count alike. It can have several
 * flags: the sidecar's answer came too late and the client served its own; or an answer was lost on its way, the caller
 * asked again, and each time a fallback was answered, under a quote id of its own. An order that names a flag's quote,
 * placed or cancelled since, proves that this answer was used. So
 *
 *   every flag that an order names has a row of its own: a customer who ordered twice from two answers is two rows,
 *   each with its order's money;
 *   a decision of which no order names any flag has one row (the index flags_unnamed): PROVISIONAL, or ABANDONED or
 *   UNPLACED since, which below counts as PROVISIONAL. Of several flags it is the client's own (origin segment, or
 *   imported) before the sidecar's (origin loop), for what the client was given stands; then the one created first, then
 *   the lower flag id;
 *   every other flag of the decision is in `superseded`, with the reason.
 *
 * That says nothing of the order of arrival, and cells are not read in the order of writing. It is kept to so:
 *
 *   1. a flag whose flag_id is known, for this decision   a crash came between commit and freeing: ignored, counted
 *                                     for another one     no honest writer does that: kept in `damaged`
 *   2. a flag that an order names already                 takes the place of the decision's PROVISIONAL row, if there
 *                                                         is one, otherwise it is inserted
 *   3. a flag that none names                             inserted when the decision has no row; takes the place of a
 *                                                         PROVISIONAL row that it precedes; otherwise set aside, counted
 *   4. an order that names a quote for the first time     a flag of it in `superseded` changes places with the
 *                                                         decision's PROVISIONAL row, if there is one, otherwise it
 *                                                         leaves `superseded` for a row of its own
 *
 * To take a place: the row keeps its sequence, takes the other content, its revision rises by one; the old content goes
 * to `superseded`. To insert: with the next sequence. No row is removed but by retention (upkeep.c), and one that an
 * order names keeps its content. Every flag that was ever READY is afterwards in exactly one of flags, superseded and damaged:
 * nothing acknowledged is lost.
 *
 * Each insertion and each change of a row gives it the next change number, of which there is one count for the ledger.
 *
 * What a commit costs, and a failed one
 *
 * Cells are freed after the commit (synchronous=FULL) that carried them. A commit that fails, the disk being full or
 * read-only, leaves them READY; the thread tries again after 100 ms, growing to 2 s. A damaged database is set aside
 * under another name and a new one begun, at start and while running.
 */
#include "sidecar/store/store.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sidecar/obs/log.h"
#include "sidecar/store/drain.h"
#include "sidecar/store/job.h"
#include "sidecar/store/placed.h"
#include "sidecar/store/reader.h"
#include "sidecar/store/upkeep.h"
#include "sidecar/obs/utf8.h"

#define MAPS_MAX_COUNT    16 /* the segment in use and former ones; main hands over the next as they are done */
#define POLL_MS           20 /* between two looks at the hints while records come */
#define IDLE_POLL_MS      200 /* the same when none has come for BUSY_MS: the most a client's record then waits */
#define BUSY_MS           2000
#define FULL_LOOK_MS      500 /* however little the hint says: a writer may die between READY and the hint */
#define BACK_OFF_FIRST_MS 100
#define BACK_OFF_MAX_MS   2000
#define COMPLAIN_EVERY_MS 60000
#define CORRUPT_MAX_COUNT 3
#define DOUBT_EVERY_MS    60000
#define JOBS_MAX_COUNT    64 /* in one commit */
#define UPKEEP_EVERY_MS   1000
#define UPKEEP_REST       20 /* times as long as it took */

struct map_entry {
    struct spw_map *map;
    uint64_t hint;     /* cells_hint before the last full look ... */
    int64_t looked_ms; /* ... and when that was */
    bool recovered;    /* spw_cell_recover has run */
    bool leaving;      /* somebody waits in spw_store_release_map */
};

struct spw_store {
    char *file;
    struct spw_loop *loop;
    pthread_t thread;

    pthread_mutex_t mutex; /* guards what follows, up to the line */
    pthread_cond_t work;   /* for the store thread */
    pthread_cond_t news;   /* from it: a job is done, a map is released */
    bool woken;
    bool stop;
    bool doubted; /* a reader met damage */
    struct map_entry maps[MAPS_MAX_COUNT];
    struct spw_store_job *jobs, **jobs_end;
    struct spw_store_job *waits; /* for what is READY to be durable */
    struct spw_store_counts counts;
    struct spw_store_care next_care;
    bool has_next_care; /* to be taken at the next turn of the upkeep */
    /* ---- the store thread's own ---- */
    struct spw_ledger ledger;
    struct spw_batch batch;
    bool checked;          /* the file was read whole once */
    int64_t busy_ms;       /* when a record was last looked for because there was one */
    uint32_t back_off_ms;  /* 0 = the last commit went through */
    int64_t try_at_ms;     /* CLOCK_MONOTONIC: not before */
    int64_t complained_ms; /* when the last failure was logged */
    struct spw_upkeep upkeep;
    int64_t upkeep_at_ms; /* not before */
    int64_t doubt_at_ms;  /* not before: reading the file whole takes long */
    uint32_t poll_ms;
    uint32_t corrupt_count; /* commits in a row that found damage which reading the file did not */

    struct spw_placed placed; /* its counts: under the mutex */

    struct spw_reader reader;
};

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- opening ---- */

/* Take over the numbers of a ledger just opened. */
static enum spw_status take_counts(struct spw_store *store, struct spw_error *err)
{
    struct spw_store_counts fresh;
    enum spw_status status = spw_ledger_counts(&store->ledger, store->file, &fresh, err);
    if (status != SPW_STATUS_OK)
        return status;
    pthread_mutex_lock(&store->mutex);
    fresh.commit_failures_count = store->counts.commit_failures_count;
    fresh.writable = store->counts.writable;
    memcpy(fresh.variance_over_minor, store->counts.variance_over_minor, sizeof fresh.variance_over_minor);
    memcpy(fresh.variance_under_minor, store->counts.variance_under_minor, sizeof fresh.variance_under_minor);
    store->counts = fresh;
    pthread_mutex_unlock(&store->mutex);
    return SPW_STATUS_OK;
}

static enum spw_status open_once(struct spw_store *store, struct spw_error *err)
{
    enum spw_status status = spw_ledger_open(&store->ledger, store->file, !store->checked, err);
    if (status == SPW_STATUS_OK)
        status = take_counts(store, err);
    if (status == SPW_STATUS_OK && spw_placed_begin(&store->placed, &store->ledger) != SQLITE_OK)
        status = spw_error_set(err, SPW_STATUS_SYSTEM, "%s: its orders cannot be read", store->file);
    if (status == SPW_STATUS_OK && !store->reader.db)
        status = spw_reader_open(&store->reader, store->file, err);
    if (status != SPW_STATUS_OK)
        spw_ledger_close(&store->ledger);
    store->checked |= status == SPW_STATUS_OK;
    return status;
}

/* Open the ledger; a damaged one is set aside and a new one begun. */
static enum spw_status open_ledger(struct spw_store *store, struct spw_error *err)
{
    enum spw_status status = SPW_STATUS_OK;
    if (store->corrupt_count < CORRUPT_MAX_COUNT)
        status = open_once(store, err);
    else
        status = spw_error_set(err, SPW_STATUS_CORRUPT, "%s: found damaged by %u commits in a row",
                               store->file, store->corrupt_count);
    if (status != SPW_STATUS_CORRUPT)
        return status;
    store->corrupt_count = 0;
    char aside[4300], why[sizeof err->text];
    memcpy(why, err->text, sizeof why);
    spw_reader_close(&store->reader);
    store->checked = false;
    status = spw_ledger_set_aside(store->file, aside, sizeof aside, err);
    if (status != SPW_STATUS_OK)
        return status;
    spw_log(SPW_LOG_ERROR, "store.damaged_file",
            "%s; kept as %s, a new ledger begun with sequence 1: recover the old one with sqlite3's .recover "
            "and give "
            "its flags to reconciliation by hand",
            why, aside);
    return open_once(store, err);
}

static bool is_operators(enum spw_status status)
{
    return status == SPW_STATUS_NOT_FOUND || status == SPW_STATUS_INVALID ||
           status == SPW_STATUS_VERSION_MISMATCH;
}

/* ---- failing and recovering ---- */

static void set_writable(struct spw_store *store, bool writable)
{
    pthread_mutex_lock(&store->mutex);
    if (!writable)
        store->counts.commit_failures_count++;
    store->counts.writable = writable;
    pthread_mutex_unlock(&store->mutex);
}

static void note_failure(struct spw_store *store, const char *text)
{
    int64_t now = now_ms();
    if (store->back_off_ms == 0 || now - store->complained_ms >= COMPLAIN_EVERY_MS) {
        spw_log(SPW_LOG_WARN, "store.not_writable", "%s; flags stay in their cells and are tried again",
                text);
        store->complained_ms = now;
    }
    store->back_off_ms = store->back_off_ms ? store->back_off_ms * 2 : BACK_OFF_FIRST_MS;
    if (store->back_off_ms > BACK_OFF_MAX_MS)
        store->back_off_ms = BACK_OFF_MAX_MS;
    store->try_at_ms = now + store->back_off_ms;
    set_writable(store, false);
}

static void note_success(struct spw_store *store)
{
    if (store->back_off_ms)
        spw_log(SPW_LOG_INFO, "store.writable", "%s: commits go through again", store->file);
    store->back_off_ms = 0;
    store->corrupt_count = 0;
    set_writable(store, true);
}

/* A transaction failed. What is not merely full or busy is opened afresh at the next try: a file that was read-only
 * stays so for the connection that found it so, and after a failed fsync nothing cached is to be trusted. */
static void commit_failed(struct spw_store *store, int rc)
{
    struct spw_error err = {0};
    enum spw_status status = spw_ledger_error(&err, store->ledger.db, rc, store->file, "a commit");
    if (status == SPW_STATUS_CORRUPT) {
        store->checked = false;
        store->corrupt_count++;
    }
    if (status != SPW_STATUS_NO_SPACE && status != SPW_STATUS_BUSY)
        spw_ledger_close(&store->ledger);
    note_failure(store, err.text);
}

/* The ledger is open, or could be opened now. */
static bool have_ledger(struct spw_store *store)
{
    if (store->ledger.db)
        return true;
    struct spw_error err = {0};
    if (open_ledger(store, &err) == SPW_STATUS_OK)
        return true;
    note_failure(store, err.text);
    return false;
}

static void close_both(struct spw_store *store)
{
    spw_reader_close(&store->reader);
    spw_ledger_close(&store->ledger);
    store->checked = false;
}

/* The file was removed, or another one put in its place: what is committed from here on would be gone with the last
 * descriptor. What the connection still holds is copied beside it, and whatever is at the path is opened. */
static bool file_in_place(struct spw_store *store)
{
    char to[4300];
    struct spw_error err = {0};
    if (!store->ledger.db || spw_ledger_in_place(&store->ledger, store->file))
        return true;
    if (spw_ledger_rescue(&store->ledger, store->file, to, sizeof to, &err) != SPW_STATUS_OK) {
        note_failure(store, err.text);
        return false;
    }
    spw_log(SPW_LOG_ERROR, "store.replaced",
            "%s was removed or replaced while it was open; what it held is in %s: give its flags to "
            "reconciliation by hand",
            store->file, to);
    close_both(store);
    return true;
}

/* The writer has pages in memory and may not meet for long what a reader met: the file is read whole. */
static void settle_doubt(struct spw_store *store)
{
    pthread_mutex_lock(&store->mutex);
    bool due = store->doubted && now_ms() >= store->doubt_at_ms;
    if (due)
        store->doubted = false;
    pthread_mutex_unlock(&store->mutex);
    if (!due)
        return;
    store->doubt_at_ms = now_ms() + DOUBT_EVERY_MS;
    close_both(store);
}

/* ---- the store thread ---- */

static void publish_counts(struct spw_store *store, const struct spw_store_counts *counts)
{
    pthread_mutex_lock(&store->mutex);
    store->counts = *counts;
    pthread_mutex_unlock(&store->mutex);
}

/* Everything READY in one segment, batch by batch. false: a commit failed. */
static bool drain_map(struct spw_store *store, const struct spw_map *map)
{
    uint32_t cursor = 0;
    for (bool done = false; !done;) {
        struct spw_store_counts counts;
        spw_store_counts(store, &counts);
        int rc = spw_drain_batch(&store->batch, store->file, map, &cursor, &counts, &done);
        if (rc != SQLITE_OK) {
            commit_failed(store, rc);
            return false;
        }
        if (store->batch.heads_count == 0)
            continue;
        publish_counts(store, &counts);
        note_success(store);
        spw_drain_free(&store->batch);
    }
    return true;
}

/* An empty commit, to find out whether the volume can be written again when no cell waits to tell. */
static void probe(struct spw_store *store)
{
    struct spw_store_counts counts;
    spw_store_counts(store, &counts);
    int rc = spw_ledger_begin(&store->ledger);
    if (rc == SQLITE_OK)
        rc = spw_ledger_commit(&store->ledger, &counts);
    if (rc == SQLITE_OK) {
        note_success(store);
        return;
    }
    spw_ledger_roll_back(&store->ledger);
    commit_failed(store, rc);
}

/* ---- jobs: many share a commit ---- */

static struct spw_store_job *take_jobs(struct spw_store *store)
{
    pthread_mutex_lock(&store->mutex);
    struct spw_store_job *first = store->jobs, *last = first;
    for (int i = 1; last && i < JOBS_MAX_COUNT && last->next; i++)
        last = last->next;
    if (last) {
        store->jobs = last->next;
        if (!store->jobs)
            store->jobs_end = &store->jobs;
        last->next = NULL;
    }
    pthread_mutex_unlock(&store->mutex);
    return first;
}

/* Each in its own savepoint: one that fails by itself takes nothing of the others with it. */
static int run_job(struct spw_store *store, struct spw_store_job *job)
{
    struct spw_store_counts before = store->batch.counts;
    int rc = spw_ledger_run(&store->ledger, SPW_STATEMENT_SAVE, "SAVEPOINT record");
    job->error = (struct spw_error){0};
    if (rc == SQLITE_OK)
        rc = job->run(&store->batch, job);
    if ((rc & 0xFF) == SQLITE_CONSTRAINT || (rc & 0xFF) == SQLITE_TOOBIG || (rc & 0xFF) == SQLITE_NOMEM) {
        (void)spw_ledger_error(&job->error, store->ledger.db, rc, store->file, "a change of a row");
        store->batch.counts = before;
        rc = spw_ledger_run(&store->ledger, SPW_STATEMENT_BACK, "ROLLBACK TO record");
    }
    return rc == SQLITE_OK ? spw_ledger_run(&store->ledger, SPW_STATEMENT_RELEASE, "RELEASE record") : rc;
}

static void job_on_loop(struct spw_loop *loop, struct spw_loop_task *task)
{
    struct spw_store_job *job = task->owner;
    (void)loop;
    job->done(job);
}

static void finish_jobs(struct spw_store *store, struct spw_store_job *job)
{
    for (struct spw_store_job *next; job; job = next) {
        next = job->next;
        if (job->done) {
            job->task = (struct spw_loop_task){.fn = job_on_loop, .owner = job};
            spw_loop_post(store->loop, &job->task);
            continue;
        }
        pthread_mutex_lock(&store->mutex);
        job->finished = true;
        pthread_cond_broadcast(&store->news);
        pthread_mutex_unlock(&store->mutex);
    }
}

/* What only asked costs no commit. */
static enum spw_status run_jobs(struct spw_store *store, struct spw_store_job *jobs, struct spw_error *err)
{
    struct spw_store_counts counts;
    if (!store->ledger.db)
        return spw_error_set(err, SPW_STATUS_NOT_READY,
                             "%s: the ledger is not open: its volume is full or read-only", store->file);
    spw_store_counts(store, &counts);
    store->batch.map = store->maps[0].map; /* the one in use, for flags that come without a cell */
    int rc = spw_batch_begin(&store->batch, store->file, &counts);
    int changes = sqlite3_total_changes(store->ledger.db);
    for (struct spw_store_job *job = jobs; job && rc == SQLITE_OK; job = job->next)
        rc = run_job(store, job);
    if (rc == SQLITE_OK && sqlite3_total_changes(store->ledger.db) == changes) {
        spw_ledger_roll_back(&store->ledger);
        return SPW_STATUS_OK;
    }
    if (rc == SQLITE_OK)
        rc = spw_ledger_commit(&store->ledger, &store->batch.counts);
    if (rc != SQLITE_OK) {
        enum spw_status status =
            spw_ledger_error(err, store->ledger.db, rc, store->file, "a change of its rows");
        spw_ledger_roll_back(&store->ledger);
        commit_failed(store, rc);
        return status;
    }
    publish_counts(store, &store->batch.counts);
    note_success(store);
    return SPW_STATUS_OK;
}

static void serve_jobs(struct spw_store *store)
{
    struct spw_store_job *jobs;
    while ((jobs = take_jobs(store)) != NULL) {
        struct spw_error err = {0};
        enum spw_status status = run_jobs(store, jobs, &err);
        for (struct spw_store_job *job = jobs; job && status != SPW_STATUS_OK; job = job->next)
            job->error = err;
        finish_jobs(store, jobs);
    }
}

/* What the last turn of upkeep found, and orders that were stored since. What cannot be read now is counted at the next. */
static void watch(struct spw_store *store)
{
    struct spw_store_watched counts = store->placed.counts;
    counts.oldest_pending_unix_ms = store->upkeep.oldest_pending_unix_ms;
    counts.oldest_unacknowledged_unix_ms = store->upkeep.oldest_unacknowledged_unix_ms;
    if (spw_placed_count(&store->placed, &store->ledger, store->maps[0].map, &counts) != SQLITE_OK)
        return;
    pthread_mutex_lock(&store->mutex);
    store->placed.counts = counts;
    pthread_mutex_unlock(&store->mutex);
}

void spw_store_care_set(struct spw_store *store, const struct spw_store_care *care)
{
    pthread_mutex_lock(&store->mutex);
    store->next_care = *care;
    store->has_next_care = true;
    pthread_mutex_unlock(&store->mutex);
}

static void take_care(struct spw_store *store)
{
    pthread_mutex_lock(&store->mutex);
    if (store->has_next_care)
        spw_upkeep_care_set(&store->upkeep, &store->next_care);
    store->has_next_care = false;
    pthread_mutex_unlock(&store->mutex);
}

/* From time to time, and rarer when it takes long. What changes no row costs no commit. */
static void keep_up(struct spw_store *store)
{
    bool more = false;
    int64_t began = now_ms();
    take_care(store);
    if (began < store->upkeep_at_ms || !store->ledger.db || store->back_off_ms)
        return;
    struct spw_store_counts counts;
    spw_store_counts(store, &counts);
    int rc = spw_batch_begin(&store->batch, store->file, &counts);
    int changes = sqlite3_total_changes(store->ledger.db);
    if (rc == SQLITE_OK)
        rc = spw_upkeep_run(&store->upkeep, &store->batch, began, &more);
    if (rc == SQLITE_OK && sqlite3_total_changes(store->ledger.db) == changes)
        spw_ledger_roll_back(&store->ledger);
    else if (rc == SQLITE_OK)
        rc = spw_ledger_commit(&store->ledger, &store->batch.counts);
    if (rc != SQLITE_OK) {
        spw_ledger_roll_back(&store->ledger);
        commit_failed(store, rc);
        return;
    }
    publish_counts(store, &store->batch.counts);
    spw_upkeep_tell(&counts, &store->batch.counts);
    watch(store);
    int64_t took = now_ms() - began, rest = took * UPKEEP_REST;
    store->upkeep_at_ms = now_ms() + (more ? took : rest > UPKEEP_EVERY_MS ? rest : UPKEEP_EVERY_MS);
}

/* Nothing became ready since the last full look, as far as the writers' hint says. */
static bool nothing_new(const struct spw_store *store, const struct map_entry *entry, uint64_t hint)
{
    return entry->recovered && !entry->leaving && !store->back_off_ms && hint == entry->hint &&
           now_ms() - entry->looked_ms < FULL_LOOK_MS;
}

/* The cheapest look there is: no system call, the ledger is left alone. */
static bool all_quiet(const struct spw_store *store, const struct map_entry *maps)
{
    bool quiet = store->ledger.db && !store->back_off_ms;
    for (int i = 0; i < MAPS_MAX_COUNT && quiet; i++) {
        /* SYNC cells-hint: relaxed: a lone word; whatever it misses the next full look finds. */
        quiet =
            !maps[i].map || nothing_new(store, &maps[i], spw_load_rlx(&spw_map_rw(maps[i].map)->cells_hint));
    }
    return quiet;
}

/* One look at every segment's cells; all: whatever the hints say. false: some could not be stored. */
static bool turn(struct spw_store *store, struct map_entry *maps, bool all)
{
    settle_doubt(store);
    if (!all && all_quiet(store, maps))
        return true;
    if (!file_in_place(store) || !have_ledger(store))
        return false;
    for (int i = 0; i < MAPS_MAX_COUNT; i++) {
        if (!maps[i].map)
            continue;
        /* SYNC cells-hint: relaxed: a lone word; whatever it misses the next full look finds. */
        uint64_t hint = spw_load_rlx(&spw_map_rw(maps[i].map)->cells_hint);
        if (!all && nothing_new(store, &maps[i], hint))
            continue;
        maps[i].looked_ms = now_ms();
        if (hint != maps[i].hint)
            store->busy_ms = maps[i].looked_ms;
        maps[i].hint = hint;
        spw_cell_recover(maps[i].map); /* after a crash, and where damage looks like one */
        maps[i].recovered = true;
        if (!drain_map(store, maps[i].map))
            return false;
    }
    if (store->back_off_ms)
        probe(store);
    return store->back_off_ms == 0;
}

/* A turn has looked at every cell that was READY when these were asked for. */
static void finish_waits(struct spw_store *store, struct spw_store_job *waits, bool durable)
{
    for (struct spw_store_job *job = waits; job; job = job->next) {
        job->error = (struct spw_error){0};
        if (!durable)
            spw_error_set(&job->error, SPW_STATUS_NO_SPACE,
                          "%s: cannot be written: what is recorded waits in its cells and is not durable yet",
                          store->file);
    }
    finish_jobs(store, waits);
}

/* After a turn: let go of the maps that were leaving when it began. */
static bool settle_maps(struct spw_store *store, const struct map_entry *seen)
{
    bool released = false;
    for (int i = 0; i < MAPS_MAX_COUNT; i++) {
        if (store->maps[i].map && store->maps[i].map == seen[i].map) {
            store->maps[i].recovered = seen[i].recovered;
            store->maps[i].hint = seen[i].hint;
            store->maps[i].looked_ms = seen[i].looked_ms;
            if (seen[i].leaving) {
                memset(&store->maps[i], 0, sizeof store->maps[i]);
                released = true;
            }
        }
    }
    return released;
}

static bool somebody_leaves(const struct spw_store *store)
{
    for (int i = 0; i < MAPS_MAX_COUNT; i++) {
        if (store->maps[i].leaving)
            return true;
    }
    return false;
}

/* Sleep until there is something to do; under the mutex. A wake does not cut a back-off short. */
static void wait_for_work(struct spw_store *store)
{
    int64_t now = now_ms();
    bool idle = now - store->busy_ms > BUSY_MS && store->poll_ms < IDLE_POLL_MS;
    int64_t until_ms = store->back_off_ms ? store->try_at_ms : now + (idle ? IDLE_POLL_MS : store->poll_ms);
    struct timespec until = {.tv_sec = until_ms / 1000, .tv_nsec = until_ms % 1000 * 1000000};
    while (!store->stop && !store->jobs && !store->waits && !somebody_leaves(store) &&
           !(store->woken && !store->back_off_ms)) {
        if (pthread_cond_timedwait(&store->work, &store->mutex, &until) != 0)
            break;
    }
    store->woken = false;
}

static void *main_of_thread(void *owner)
{
    struct spw_store *store = owner;
    pthread_setname_np(pthread_self(), "spw-store");
    pthread_mutex_lock(&store->mutex);
    for (bool last = false; !last;) {
        struct map_entry maps[MAPS_MAX_COUNT];
        memcpy(maps, store->maps, sizeof maps);
        last = store->stop;
        struct spw_store_job *waits = store->waits;
        store->waits = NULL;
        bool due =
            last || waits || somebody_leaves(store) || !store->back_off_ms || now_ms() >= store->try_at_ms;
        pthread_mutex_unlock(&store->mutex);
        serve_jobs(store);
        bool durable = due && turn(store, maps, last || waits);
        finish_waits(store, waits, durable);
        keep_up(store);
        pthread_mutex_lock(&store->mutex);
        if (settle_maps(store, maps))
            pthread_cond_broadcast(&store->news);
        if (!last)
            wait_for_work(store);
    }
    pthread_mutex_unlock(&store->mutex);
    return NULL;
}

/* ---- the doors ---- */

static enum spw_status start_thread(struct spw_store *store, struct spw_error *err)
{
    sigset_t all, old;
    sigfillset(&all);
    sigdelset(&all, SIGBUS);                  /* main's handler says what it means */
    pthread_sigmask(SIG_SETMASK, &all, &old); /* inherited: signals are the main thread's */
    int failed = pthread_create(&store->thread, NULL, main_of_thread, store);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (failed)
        return spw_error_set(err, SPW_STATUS_SYSTEM,
                             "store: its thread cannot be started: %s; raise the limit of pids",
                             strerror(failed));
    return SPW_STATUS_OK;
}

static void destroy(struct spw_store *store)
{
    spw_reader_clean_up(&store->reader);
    spw_ledger_close(&store->ledger); /* last: the last connection folds the log into the file */
    pthread_cond_destroy(&store->work);
    pthread_cond_destroy(&store->news);
    pthread_mutex_destroy(&store->mutex);
    free(store->file);
    free(store);
}

enum spw_status spw_store_open(const struct spw_store_options *options, struct spw_store **out,
                               struct spw_error *err)
{
    struct spw_error own = {0};
    *out = NULL;
    struct spw_store *store = calloc(1, sizeof *store);
    if (store)
        store->file = strdup(options->file ? options->file : "");
    if (!store || !store->file) {
        free(store);
        return spw_error_set(err, SPW_STATUS_NO_MEMORY,
                             "store: no memory to begin with: raise the container's memory limit");
    }
    store->poll_ms = options->poll_ms ? options->poll_ms : POLL_MS;
    spw_upkeep_init(&store->upkeep, &options->care);
    store->loop = options->loop;
    store->jobs_end = &store->jobs;
    store->maps[0].map = options->map;
    store->batch.ledger = &store->ledger;
    pthread_mutex_init(&store->mutex, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&store->work, &monotonic);
    pthread_cond_init(&store->news, &monotonic);
    pthread_condattr_destroy(&monotonic);
    spw_reader_init(&store->reader);

    store->counts.writable = true;
    enum spw_status status = open_ledger(store, &own);
    if (status != SPW_STATUS_OK && !is_operators(status)) {
        note_failure(store, own.text);
        status = SPW_STATUS_OK;
    }
    if (status == SPW_STATUS_OK)
        status = start_thread(store, &own);
    if (status != SPW_STATUS_OK) {
        if (err)
            *err = own;
        destroy(store);
        return status;
    }
    *out = store;
    return SPW_STATUS_OK;
}

void spw_store_wake(struct spw_store *store)
{
    pthread_mutex_lock(&store->mutex);
    store->woken = true;
    pthread_cond_signal(&store->work);
    pthread_mutex_unlock(&store->mutex);
}

enum spw_status spw_store_add_map(struct spw_store *store, struct spw_map *map)
{
    struct map_entry *place = NULL;
    pthread_mutex_lock(&store->mutex);
    for (int i = MAPS_MAX_COUNT - 1; i >= 0; i--) {
        if (store->maps[i].map == map) {
            pthread_mutex_unlock(&store->mutex);
            return SPW_STATUS_OK;
        }
        if (!store->maps[i].map)
            place = &store->maps[i];
    }
    if (place)
        *place = (struct map_entry){.map = map};
    store->woken = true;
    pthread_cond_signal(&store->work);
    pthread_mutex_unlock(&store->mutex);
    return place ? SPW_STATUS_OK : SPW_STATUS_FULL;
}

void spw_store_release_map(struct spw_store *store, struct spw_map *map)
{
    pthread_mutex_lock(&store->mutex);
    for (int i = 0; i < MAPS_MAX_COUNT; i++) {
        if (store->maps[i].map == map)
            store->maps[i].leaving = true;
    }
    pthread_cond_signal(&store->work);
    for (int i = 0; i < MAPS_MAX_COUNT; i++) {
        while (store->maps[i].map == map && store->maps[i].leaving)
            pthread_cond_wait(&store->news, &store->mutex);
    }
    pthread_mutex_unlock(&store->mutex);
}

void spw_store_close(struct spw_store *store)
{
    if (!store)
        return;
    pthread_mutex_lock(&store->mutex);
    store->stop = true;
    pthread_cond_signal(&store->work);
    pthread_mutex_unlock(&store->mutex);
    pthread_join(store->thread, NULL);
    destroy(store);
}

void spw_store_submit(struct spw_store *store, struct spw_store_job *job, spw_store_run_fn *run)
{
    job->run = run;
    job->next = NULL;
    job->finished = false;
    pthread_mutex_lock(&store->mutex);
    *store->jobs_end = job;
    store->jobs_end = &job->next;
    pthread_cond_signal(&store->work);
    pthread_mutex_unlock(&store->mutex);
}

void spw_store_durable(struct spw_store *store, struct spw_store_job *job)
{
    job->run = NULL;
    job->finished = false;
    pthread_mutex_lock(&store->mutex);
    job->next = store->waits;
    store->waits = job;
    pthread_cond_signal(&store->work);
    pthread_mutex_unlock(&store->mutex);
}

enum spw_status spw_store_wait(struct spw_store *store, struct spw_store_job *job)
{
    pthread_mutex_lock(&store->mutex);
    while (!job->finished)
        pthread_cond_wait(&store->news, &store->mutex);
    pthread_mutex_unlock(&store->mutex);
    return job->error.status;
}

void spw_store_counts(struct spw_store *store, struct spw_store_counts *out)
{
    pthread_mutex_lock(&store->mutex);
    *out = store->counts;
    pthread_mutex_unlock(&store->mutex);
}

void spw_store_note_live(struct spw_store *store, const char *quote_id, uint32_t account_index)
{
    spw_placed_note(&store->placed, quote_id, account_index);
}

void spw_store_watched(struct spw_store *store, struct spw_store_watched *out)
{
    pthread_mutex_lock(&store->mutex);
    *out = store->placed.counts;
    pthread_mutex_unlock(&store->mutex);
}

/* What a reader says, and what the store thread is to do about it. */
static enum spw_status said(struct spw_store *store, enum spw_status status)
{
    if (status == SPW_STATUS_CORRUPT) {
        pthread_mutex_lock(&store->mutex);
        store->doubted = true;
        store->woken = true;
        pthread_cond_signal(&store->work);
        pthread_mutex_unlock(&store->mutex);
    }
    return status;
}

enum spw_status spw_store_export(struct spw_store *store, uint64_t after_sequence, uint32_t max_count,
                                 spw_flag_fn *fn, void *owner, uint64_t *next_sequence, struct spw_error *err)
{
    return said(store, spw_reader_export(&store->reader, store->file, SPW_READER_SEQUENCE, after_sequence,
                                         max_count, fn, owner, next_sequence, err));
}

enum spw_status spw_store_export_changes(struct spw_store *store, uint64_t after_change, uint32_t max_count,
                                         spw_flag_fn *fn, void *owner, uint64_t *next_change,
                                         struct spw_error *err)
{
    return said(store, spw_reader_export(&store->reader, store->file, SPW_READER_CHANGE, after_change,
                                         max_count, fn, owner, next_change, err));
}

enum spw_status spw_store_find(struct spw_store *store, const char *reference, uint32_t max_count,
                               spw_flag_fn *fn, void *owner, struct spw_error *err)
{
    size_t bytes = reference ? strlen(reference) : 0;
    if (bytes == 0 || bytes >= SPW_CALLER_ID_BYTES || !spw_utf8_is_name(reference, bytes))
        return spw_error_set(err, SPW_STATUS_INVALID, "find: a reference has 1 to %u bytes of text",
                             SPW_CALLER_ID_BYTES - 1);
    return said(store, spw_reader_find(&store->reader, store->file, reference, max_count, fn, owner, err));
}

enum spw_status spw_store_rows(struct spw_store *store, const struct spw_rows_filter *filter,
                               uint64_t after_sequence, uint32_t max_count, spw_flag_fn *fn, void *owner,
                               uint64_t *next_sequence, struct spw_error *err)
{
    return said(store, spw_reader_rows(&store->reader, store->file, filter, after_sequence, max_count, fn,
                                       owner, next_sequence, err));
}

enum spw_status spw_store_history(struct spw_store *store, const char *flag_id, spw_history_fn *fn,
                                  void *owner, struct spw_error *err)
{
    return said(store, spw_reader_history(&store->reader, store->file, flag_id, fn, owner, err));
}

enum spw_status spw_store_orders(struct spw_store *store, const char *order_id, uint64_t after_row,
                                 uint32_t max_count, spw_order_fn *fn, void *owner, struct spw_error *err)
{
    return said(store, spw_reader_orders(&store->reader, store->file, order_id, after_row, max_count, fn,
                                         owner, err));
}
