/* engine_internal.h: what the files of reconciliation share: accounts, and works.
 *
 * Owns: nothing. Called by: engine.c (claims, pacing, calls), calculate.c (the variance), file.c (the books). Thread: the
 * loop thread.
 *
 *   work   one row that is claimed, from the claim to its last result
 *   errand one provider call, for one work or, where the provider has a batch form, several
 */
#ifndef SPW_RECONCILE_ENGINE_INTERNAL_H
#define SPW_RECONCILE_ENGINE_INTERNAL_H

#include "shm/spw_ref.h"
#include "sidecar/reconcile/engine.h"
#include "sidecar/store/reconcile_rows.h"

#define SPW_TRIES_MAX_COUNT 20u

struct spw_work;

enum spw_step {
    SPW_STEP_CALCULATE,      /* the live tax */
    SPW_STEP_FILE_CALCULATE, /* the calculation a document is made from */
    SPW_STEP_FILE_LOOK,      /* is it in the books? */
    SPW_STEP_FILE_BOOK,
    SPW_STEP_FILE_BACK /* read back */
};

struct spw_reconcile_account {
    struct spw_reconcile *engine;
    uint32_t index; /* in the configuration */
    const struct spw_conf_account *conf;
    const struct spw_profile *profile; /* NULL: the one for the rows of all others */
    struct spw_ref ref;
    struct spw_work *works;                            /* all of them */
    struct spw_work *queue, **queue_end;               /* those that wait for a call */
    uint32_t works_count[2], queue_count, calls_count; /* works by enum spw_due; calls in flight */
    struct spw_due_request due[2];                     /* by enum spw_due */
    bool due_busy[2], recovering[2];
    uint64_t due_at_ns[2], wait_until_ns, pace_at_ns, probe_seen_ns;
    /* capacity */
    uint64_t measured_ns, allowed_count, own_count;
    bool blocked, was_late;
    uint64_t spare_milli_per_s, blocked_ms;
    struct spw_backlog_request backlog;
    bool backlog_busy;
    struct spw_reconcile_status status;
};

struct spw_reconcile {
    struct spw_reconcile_options options;
    struct spw_map *map;
    struct spw_reconcile_account *accounts; /* and one more, which stands for all others: it calls nobody */
    uint32_t accounts_count;
    char *names;              /* of the accounts, as an array of JSON */
    int64_t recover_unix_ms;  /* a lease after the start */
    struct spw_work *judging; /* those that wait for the period's sum; the first one is being asked for */
    bool stopped;
};

struct spw_work {
    struct spw_reconcile_account *account;
    struct spw_work *previous, *next, *queue_next, *judge_next;
    enum spw_due kind;
    enum spw_step step;
    struct spw_flag_row *row;
    struct spw_quote_request quote;
    void *parsed;
    char date[12];
    uint32_t revision;
    bool alone; /* in no batch: a batch with it was refused */
    int64_t lease_unix_ms;
    /* calculate */
    struct spw_verdict_pending {
        struct spw_variance variance;
        int64_t bound_halves;
    } pending;
    /* file */
    bool look_only; /* its order changed: send nothing */
    char document[SPW_CALLER_ID_BYTES];
    char calculation[SPW_CALLER_ID_BYTES];
    /* requests to the ledger, one at a time */
    struct spw_reconciled_request reconciled;
    struct spw_filed_request filed;
    struct spw_absorbed_request absorbed;
};

/* ---- engine.c ---- */
void spw_work_queue(struct spw_work *work); /* it needs a call */
void spw_work_free(struct spw_work *work);
/* When to try again after this many tries: spread, and capped. */
int64_t spw_work_again_ms(const struct spw_work *work, uint32_t tries);
static inline int64_t spw_work_wall_ms(const struct spw_work *work)
{
    const struct spw_reconcile_ops *ops = &work->account->engine->options.ops;
    return ops->wall_ms(ops->owner);
}

/* ---- calculate.c ---- */
void spw_calculate_begin(struct spw_work *work);
/* One answer for `count` works; each is over or goes on. */
enum spw_answer_kind spw_calculate_answered(struct spw_work **works, uint32_t count,
                                            const struct spw_errand_answer *answer);
void spw_calculate_failed(struct spw_work *work, const char *why);    /* for now */
void spw_calculate_exception(struct spw_work *work, const char *why); /* for good */

/* ---- file.c ---- */
void spw_file_begin(struct spw_work *work);
enum spw_status spw_file_build(struct spw_work *work, const struct spw_credential *credential,
                               struct spw_call *out, struct spw_error *err) SPW_WARN_UNUSED;
enum spw_answer_kind spw_file_answered(struct spw_work *work, const struct spw_errand_answer *answer);
void spw_file_failed(struct spw_work *work, const char *why);     /* for now */
void spw_file_set_aside(struct spw_work *work, const char *why);  /* for good */
uint32_t spw_file_calls_count(const struct spw_profile *profile); /* that one document takes */

#endif
