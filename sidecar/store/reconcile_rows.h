/* reconcile_rows.h: what is reconciled and filed of a flag, and how it changes.
 *
 * Owns: the reconciliation columns of the table flags, and the table history. Called by: reconcile (claims rows, posts
 * results), control/ (exceptions), http/metrics.c. Thread: any; every change is made by the store thread (job.h).
 *
 * A row is what orders say of it (flag_state, store.h) and, from the moment an order stands on it, what reconciliation
 * says of it:
 *
 *   NONE --order placed--> PENDING --result--> NOISE | ABSORBED_UNDER | OVER_REMIT | OVER_REFUND | EXCEPTION
 *   PENDING --order cancelled--> NONE            EXCEPTION --a person's decision--> RESOLVED | PENDING (retry)
 *
 * An order that changes later (another is placed from the quote, it is cancelled) begins the row anew, unless its filing
 * was sent: the provider's books then hold what no longer holds, and the row is an EXCEPTION. Over-collected tax is a
 * state of its own: nothing nets it against what was under-collected.
 *
 * Each result names the revision of the row it was made from. A row that has changed since takes no result (CONFLICT): it
 * is due again as it is now. The same result twice is told once and counted once. So a reconciler that dies anywhere
 * claims again and repeats.
 */
#ifndef SPW_STORE_RECONCILE_ROWS_H
#define SPW_STORE_RECONCILE_ROWS_H

#include "sidecar/store/job.h"
#include "sidecar/store/store.h"

#define SPW_WHO_BYTES 64
#define SPW_WHY_BYTES 256

/* ---- claiming ---- */

enum spw_due { SPW_DUE_RECONCILE, SPW_DUE_FILE };

/* Rows that are due: reconciliation PENDING, or filing NEEDED, SENT or FAILED with a next attempt, whose next try is at
 * or before now; the earliest placed first. The claim moves their next try to now + lease and counts an attempt, and is
 * on the disk before done: a process that dies leaves them due again after the lease. A filing that is SENT comes back
 * as SENT: read the provider's books before sending again. A row whose reconciliation is still PENDING is not due for
 * filing. */
struct spw_due_request {
    struct spw_store_job job;
    enum spw_due what;
    char account[SPW_NAME_BYTES]; /* "" = every account ... */
    const char *but;              /* ... but these, an array of JSON; NULL = none. The caller's memory */
    uint32_t max_count;           /* 1..SPW_DUE_MAX_COUNT */
    int64_t now_unix_ms;
    int64_t lease_ms;
    /* filled in */
    uint32_t rows_count;
    struct spw_flag_row *rows[64]; /* each with its texts, one allocation; free with spw_due_rows_free */
};
#define SPW_DUE_MAX_COUNT 64u
void spw_store_due(struct spw_store *store, struct spw_due_request *request);
void spw_due_rows_free(struct spw_due_request *request);

/* ---- results ---- */

struct spw_reconciled_request {
    struct spw_store_job job;
    char flag_id[SPW_ID_BYTES];
    uint32_t expected_revision; /* of the row as it was claimed */
    int64_t now_unix_ms;
    enum spw_reconcile_state
        state;       /* PENDING: not this time; next_try_unix_ms and why say when and what failed */
    bool live_known; /* the amounts that follow are known */
    struct spw_variance variance; /* the parts add up to variance_minor, or INVALID */
    int64_t next_try_unix_ms;     /* with PENDING */
    enum spw_filing_state
        filing;              /* what becomes of the filing: NEEDED, NOT_POSSIBLE, or NONE; not with PENDING */
    char why[SPW_WHY_BYTES]; /* mandatory with EXCEPTION; the last failure with PENDING */
    char who[SPW_WHO_BYTES]; /* into the history: "reconcile" */
    /* filled in */
    uint32_t revision;
};
/* OK, also for a result that the row has already. CONFLICT: the row changed since it was claimed. NOT_FOUND: no such flag.
 * INVALID: the row is not PENDING, or the result contradicts itself. */
void spw_store_reconciled(struct spw_store *store, struct spw_reconciled_request *request);

struct spw_filed_request {
    struct spw_store_job job;
    char flag_id[SPW_ID_BYTES];
    uint32_t expected_revision;
    int64_t now_unix_ms;
    enum spw_filing_state filing; /* SENT: written before the call; FILED: read back; FAILED; NOT_POSSIBLE */
    int64_t next_try_unix_ms;     /* with SENT, and with FAILED: INT64_MAX = do not try again by itself */
    char document_id[SPW_DOCUMENT_BYTES]; /* the provider's name of it; "" leaves what is there */
    char why[SPW_WHY_BYTES];
    char who[SPW_WHO_BYTES];
    /* filled in */
    uint32_t revision;
};
/* As above. FILED is final: only the same again is OK afterwards. */
void spw_store_filed(struct spw_store *store, struct spw_filed_request *request);

/* ---- exceptions ---- */

enum spw_exception_decision {
    SPW_DECIDE_NOTE,   /* only the note; the state stays, whatever it is */
    SPW_DECIDE_RETRY,  /* EXCEPTION -> PENDING; a filing that was set aside -> NEEDED; attempts begin anew */
    SPW_DECIDE_ABSORB, /* EXCEPTION -> RESOLVED, the shop bears what was under-collected */
    SPW_DECIDE_REMIT,  /* EXCEPTION -> RESOLVED, what was over-collected goes to the state */
    SPW_DECIDE_REFUND, /* EXCEPTION -> RESOLVED, ... goes back to the customer */
    SPW_DECIDE_ACCEPT, /* EXCEPTION -> RESOLVED, nothing is to be done */
    SPW_DECIDE_COUNT
};
const char *spw_decision_word(enum spw_exception_decision decision); /* "note", "retry", ... */
bool spw_decision_of_word(const char *word, enum spw_exception_decision *out);

struct spw_decide_request {
    struct spw_store_job job;
    char flag_id[SPW_ID_BYTES];
    uint32_t expected_revision; /* 0 = whatever it is now */
    int64_t now_unix_ms;
    enum spw_exception_decision decision;
    bool file; /* with a decision that resolves: the filing becomes NEEDED unless it is FILED */
    char note[SPW_NOTE_BYTES]; /* may be "" but with NOTE */
    char by[SPW_WHO_BYTES];    /* mandatory */
    /* filled in */
    uint32_t revision;
};
/* OK, also for a decision that the row has already from the same person. CONFLICT, NOT_FOUND, INVALID as above. */
void spw_store_decide(struct spw_store *store, struct spw_decide_request *request);

/* Several decisions, all of them or none. job.error INVALID: some are refused, each by its own job.error. The same flag twice
 * is refused. The decisions are the caller's memory; their jobs are not handed over. */
struct spw_decide_all_request {
    struct spw_store_job job;
    struct spw_decide_request *decisions;
    uint32_t decisions_count;
    uint32_t refused_count; /* filled in */
};
void spw_store_decide_all(struct spw_store *store, struct spw_decide_all_request *request);

/* Rows in a state, by sequence; any thread, as spw_store_export. */
struct spw_rows_filter {
    enum spw_reconcile_state state; /* not NONE */
    const char *account;            /* NULL or "" = every account */
    int64_t placed_from_unix_ms;    /* placed at or after ... */
    int64_t placed_until_unix_ms;   /* ... and before; 0 = without end */
};
enum spw_status spw_store_rows(struct spw_store *store, const struct spw_rows_filter *filter,
                               uint64_t after_sequence, uint32_t max_count, spw_flag_fn *fn, void *owner,
                               uint64_t *next_sequence, struct spw_error *err) SPW_WARN_UNUSED;

/* What became of a flag, oldest first. States are words of spw_flag_state_name, spw_reconcile_state_name ("pending")
 * and spw_filing_state_name ("filing sent"). */
struct spw_history_row {
    int64_t at_unix_ms;
    const char *who;
    const char *from;
    const char *to;
    const char *why;
};
typedef bool spw_history_fn(void *owner, const struct spw_history_row *row); /* false = stop */
enum spw_status spw_store_history(struct spw_store *store, const char *flag_id, spw_history_fn *fn,
                                  void *owner, struct spw_error *err) SPW_WARN_UNUSED;

/* ---- sums and counts, as they are after every result posted before ---- */

/* What was absorbed in a time, over all accounts. */
struct spw_absorbed_request {
    struct spw_store_job job;
    char currency[4];       /* "" = "USD" */
    int64_t from_unix_ms;   /* reconciled at or after ... */
    int64_t until_unix_ms;  /* ... and before */
    int64_t absorbed_minor; /* filled in: 0 or more */
};
void spw_store_absorbed(struct spw_store *store, struct spw_absorbed_request *request);

struct spw_backlog_request {
    struct spw_store_job job;
    char account[SPW_NAME_BYTES]; /* "" = every account */
    /* filled in */
    uint64_t pending_count;         /* to be reconciled */
    uint64_t filings_count;         /* to be filed: NEEDED, SENT, FAILED with a next attempt */
    uint64_t exceptions_count;      /* for a person */
    int64_t oldest_pending_unix_ms; /* placed; 0 = none */
    int64_t oldest_filing_unix_ms;  /* placed; 0 = none */
    int64_t next_due_unix_ms;       /* of either kind; INT64_MAX = none */
};
void spw_store_backlog(struct spw_store *store, struct spw_backlog_request *request);

#endif
