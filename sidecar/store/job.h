/* job.h: a piece of work for the store thread, which alone writes the ledger.
 *
 * Owns: nothing. Called by: whoever embeds a struct spw_store_job in a request. Thread: any.
 *
 * Zero-initialise the request, fill in what it asks, hand it to its function of store.h or reconcile_rows.h: from then
 * on it is the store's until it is done. Done means committed (or refused): several jobs may share one commit.
 *
 * done set: it is called on the loop thread (spw_store_options.loop), where the request is the caller's again. On a stop
 * the loop runs no more: requests must stay allocated until spw_store_close has returned. done NULL: the caller blocks
 * in spw_store_wait, which no loop thread may do.
 */
#ifndef SPW_STORE_JOB_H
#define SPW_STORE_JOB_H

#include <stdbool.h>

#include "sidecar/loop/loop.h"
#include "sidecar/obs/error.h"

struct spw_batch;
struct spw_store;
struct spw_store_job;

typedef void spw_store_done_fn(struct spw_store_job *job);
/* The work, inside a transaction. Returns SQLite's result; a refusal is put into job->error with the result OK. */
typedef int spw_store_run_fn(struct spw_batch *batch, struct spw_store_job *job);

struct spw_store_job {
    spw_store_done_fn *done;
    void *owner;
    /* the outcome: error.status is SPW_STATUS_OK, or says why not. NOT_READY: the ledger is not open; NO_SPACE, SYSTEM: the
     * volume would not have it; nothing was changed, ask again later. */
    struct spw_error error;
    /* private */
    spw_store_run_fn *run;
    struct spw_loop_task task;
    struct spw_store_job *next;
    bool finished;
};

/* Everything that is recorded (READY) when this is called is durable when the job is done with OK. Otherwise the volume
 * would not have it: it waits in its cells, and is tried again by itself. */
void spw_store_durable(struct spw_store *store, struct spw_store_job *job);

/* Blocks until a job that was handed over without done is done; returns its status. */
enum spw_status spw_store_wait(struct spw_store *store, struct spw_store_job *job);

/* STORE ROOM ONLY: hand the job to the store thread. */
void spw_store_submit(struct spw_store *store, struct spw_store_job *job, spw_store_run_fn *run);

#endif
