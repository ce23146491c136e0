/* store.h: the durable ledger of flags and orders: SQLite, written by one thread of its own.
 *
 * Owns: the database file, and freeing of READY cells. Called by: main, http/ (wake), control/ (export, acknowledge),
 * http/metrics.c (counts). Thread: the store thread writes; every function here may be called from any thread.
 *
 * A flag is *recorded* when its cell is READY and *durable* after the commit that carried it (synchronous=FULL). The
 * cell is freed only after that commit, so a crash between the two re-reads it, and its flag id drops the second copy.
 * A decision has one row, and one more for each further answer of it that an order was placed from: told at the top of
 * store.c.
 */
#ifndef SPW_STORE_STORE_H
#define SPW_STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shm/spw_layout.h"
#include "sidecar/obs/error.h"

struct spw_store;
struct spw_map;
struct spw_loop;

/* What the store does by itself in time; 0 = the default. */
struct spw_store_care {
    int64_t unplaced_after_ms;    /* 24 h: how long an order may be waited for */
    int64_t stuck_after_ms;       /* 24 h: how long an order may wait to be reconciled and filed */
    int64_t alert_window_ms;      /* 1 h */
    uint32_t alert_share_ppm;     /* 10,000 */
    uint32_t alert_minimum_count; /* 50 */
    uint32_t addresses_days;      /* 0 = kept for ever */
    uint32_t rows_days;           /* 0 = kept for ever */
};

struct spw_store_options {
    const char *file;
    struct spw_map *map; /* whose cells are drained */
    uint32_t poll_ms;    /* 0 = 20: how often cells are looked at without a wake; 100 when none comes */
    struct spw_store_care care;
    struct spw_loop *loop; /* where jobs are done (job.h); NULL = every caller waits */
};

/* Opens (or makes) the database and starts the thread. A damaged file is set aside under a new name, told, and a new
 * one begun: checkout goes on. A full or read-only volume is no failure to open: it is told, cells are kept. */
enum spw_status spw_store_open(const struct spw_store_options *options, struct spw_store **out,
                               struct spw_error *err) SPW_WARN_UNUSED;
/* From its next turn on (within some seconds) the store does this instead. Any thread. */
void spw_store_care_set(struct spw_store *store, const struct spw_store_care *care);
void spw_store_wake(struct spw_store *store); /* there is a new READY cell */
/* Drain another segment's cells too (a former one), until spw_store_release_map returns. OK also when it is being
 * drained already. FULL: sixteen are at once; ask again when one is released. */
enum spw_status spw_store_add_map(struct spw_store *store, struct spw_map *map) SPW_WARN_UNUSED;
void spw_store_release_map(struct spw_store *store,
                           struct spw_map *map); /* blocks until the thread is off it */
/* Take what is READY, commit, stop the thread. */
void spw_store_close(struct spw_store *store);

/* What orders say of a flag. PROVISIONAL: no order was placed from its quote. CONFIRMED: one or more stand. CANCELLED:
 * all were cancelled. SUPERSEDED: its order was placed again from another quote, which holds. ABANDONED: the caller said
 * that no order will come, or it was an estimate that none came of in time. UNPLACED: it was answered for an order, and
 * none came in time: perhaps somebody did not tell. An order that comes after all confirms either. */
enum spw_flag_state {
    SPW_FLAG_PROVISIONAL,
    SPW_FLAG_CONFIRMED,
    SPW_FLAG_CANCELLED,
    SPW_FLAG_SUPERSEDED,
    SPW_FLAG_ABANDONED,
    SPW_FLAG_UNPLACED,
    SPW_FLAG_STATES
};
const char *spw_flag_state_name(uint32_t state);

/* What reconciliation says of a flag whose order stands (reconcile_rows.h). */
enum spw_reconcile_state {
    SPW_RECONCILE_NONE,    /* no order stands on it */
    SPW_RECONCILE_PENDING, /* to be calculated again */
    SPW_RECONCILE_NOISE,   /* no variance, or no more than rounding explains */
    SPW_RECONCILE_ABSORBED_UNDER,
    SPW_RECONCILE_OVER_REMIT,  /* over-collected: goes to the state */
    SPW_RECONCILE_OVER_REFUND, /* over-collected: goes back to the customer */
    SPW_RECONCILE_EXCEPTION,   /* for a person */
    SPW_RECONCILE_RESOLVED,    /* by a person */
    SPW_RECONCILE_STATES
};
const char *spw_reconcile_state_name(uint32_t state);

/* How far the order is in the provider's own books. */
enum spw_filing_state {
    SPW_FILING_NONE,
    SPW_FILING_NEEDED,
    SPW_FILING_SENT,  /* perhaps arrived */
    SPW_FILING_FILED, /* read back */
    SPW_FILING_FAILED,
    SPW_FILING_NOT_POSSIBLE, /* the provider has no form for it */
    SPW_FILING_STATES
};
const char *spw_filing_state_name(uint32_t state);

/* collected - live, in minor units, and what it is made of; the parts add up to it. */
struct spw_variance {
    int64_t live_tax_minor;
    int64_t variance_minor;
    int64_t rounding_noise_minor;
    int64_t rate_minor;
    int64_t base_minor;
    int64_t nexus_minor;
};

#define SPW_DOCUMENT_BYTES 128
#define SPW_NOTE_BYTES     512

struct spw_reconciliation {
    enum spw_reconcile_state state;
    bool live_known;
    struct spw_variance variance; /* when live_known */
    uint32_t attempts;            /* to calculate, since it was last begun anew */
    int64_t next_try_unix_ms;
    const char *last_error;     /* "" = none */
    int64_t reconciled_unix_ms; /* 0 = not yet */
    enum spw_filing_state filing;
    uint32_t filing_attempts;
    int64_t filing_next_unix_ms; /* INT64_MAX = not by itself */
    const char *filing_error;
    const char *document_id; /* the provider's; "" = none */
    const char *decision;    /* a person's, on an exception; "" = none */
    const char *note;
    const char *by;
};

/* One of several orders that stand on a quote. */
struct spw_order_row {
    char order_id[SPW_CALLER_ID_BYTES];
    int64_t tax_collected_minor;
    int64_t placed_unix_ms;
};
#define SPW_ORDERS_LISTED_MAX 16

/* A flag as it is exported. Borrowed for the time of the call. */
struct spw_flag_row {
    uint64_t sequence; /* contiguous from 1, in commit order: completeness can be checked */
    enum spw_flag_state state;
    uint32_t
        revision; /* 1, and one more with each change of the row: by an order, or by another flag that stands */
    uint64_t change; /* rises over the whole ledger: the row's place among all that was stored or changed */
    int64_t stored_unix_ms;
    struct spw_flag_record record;
    const struct spw_line_tax *lines; /* record.lines_count of them */
    const char *assumptions;          /* NUL-terminated */
    const char *request_json;         /* NUL-terminated */
    const char *order_id;             /* the first that stands, or was cancelled; "" when there is none */
    uint32_t orders_count;            /* that stand on this quote: one quote may become two orders */
    int64_t tax_collected_minor;      /* over those */
    int64_t placed_unix_ms;
    bool verified; /* account, source, rate and amounts agreed with the live tables when stored */
    const char *unverified_reason; /* "" when verified */
    struct spw_reconciliation reconciliation;
    const struct spw_order_row *orders; /* those that stand when there are several, the first 16 of them */
    uint32_t orders_listed;
};
typedef bool spw_flag_fn(void *owner, const struct spw_flag_row *row); /* false = stop */

/* Rows with sequence > after, in order, at most max_count; *next = the last one given. Bounded memory: rows are read
 * from the database one by one, and nothing is locked while fn runs. NOT_FOUND: after_sequence lies above the newest,
 * so it was taken from another ledger (a damaged one is replaced by a new one, which begins at 1). NOT_READY: the
 * ledger could not be opened yet. */
enum spw_status spw_store_export(struct spw_store *store, uint64_t after_sequence, uint32_t max_count,
                                 spw_flag_fn *fn, void *owner, uint64_t *next_sequence,
                                 struct spw_error *err) SPW_WARN_UNUSED;
/* The same by change: rows whose last change > after, in the order of their changes; *next = the last one given. Who
 * begins at 0 and goes on with *next has every row, and hears of every later change of it (a flag that was confirmed
 * after it was taken). Numbers have gaps; a row that changed several times is given once, as it is now. A row may
 * take another flag's content, never another decision's. NOT_FOUND: after_change lies above the newest. */
enum spw_status spw_store_export_changes(struct spw_store *store, uint64_t after_change, uint32_t max_count,
                                         spw_flag_fn *fn, void *owner, uint64_t *next_change,
                                         struct spw_error *err) SPW_WARN_UNUSED;
/* Everything up to and including sequence has been taken by the named consumer. Never moves back. NOT_FOUND above the
 * newest sequence. */
enum spw_status spw_store_acknowledge(struct spw_store *store, const char *consumer, uint64_t sequence,
                                      struct spw_error *err) SPW_WARN_UNUSED;
/* The same by change: every row has been taken as it was at this change. */
enum spw_status spw_store_acknowledge_change(struct spw_store *store, const char *consumer, uint64_t change,
                                             struct spw_error *err) SPW_WARN_UNUSED;

/* Flags of one quote id, decision id, flag id, order id or reference of the caller; newest first; none is no error. */
enum spw_status spw_store_find(struct spw_store *store, const char *reference, uint32_t max_count,
                               spw_flag_fn *fn, void *owner, struct spw_error *err) SPW_WARN_UNUSED;

/* Store a flag that came another way than a cell (handed back, or of another ledger): the bytes of a cell, which are
 * changed; and wait until it is durable. *known: it was there already, nothing changed. INVALID: it makes no sense. Any
 * thread but the loop's. */
enum spw_status spw_store_flag(struct spw_store *store, uint8_t *bytes, size_t count, bool *known,
                               struct spw_error *err) SPW_WARN_UNUSED;

/* An order as the ledger holds it. */
enum spw_order_state { SPW_ORDER_STATE_NEVER_PLACED, SPW_ORDER_STATE_PLACED, SPW_ORDER_STATE_CANCELLED };
struct spw_order_view {
    uint64_t row; /* rises in the order of coming */
    char order_id[SPW_CALLER_ID_BYTES];
    char account[SPW_NAME_BYTES]; /* "" = nobody said */
    enum spw_order_state state;
    char quote_id[SPW_ID_BYTES];
    char currency[4];
    int64_t tax_collected_minor;
    int64_t placed_unix_ms;
    char flag_id[SPW_ID_BYTES]; /* of its quote; "" = it was answered live, or elsewhere */
};
typedef bool spw_order_fn(void *owner, const struct spw_order_view *order); /* false = stop */

/* Orders with row > after, in order; with order_id: only those of this id (of several accounts). Any thread. */
enum spw_status spw_store_orders(struct spw_store *store, const char *order_id, uint64_t after_row,
                                 uint32_t max_count, spw_order_fn *fn, void *owner,
                                 struct spw_error *err) SPW_WARN_UNUSED;
/* Store one event of an order and wait until it is durable. INVALID: its ids or fields make no sense. Any thread but the
 * loop's. */
enum spw_status spw_store_order(struct spw_store *store, const struct spw_order_record *record,
                                struct spw_error *err) SPW_WARN_UNUSED;

/* What a variance is made of, in the order of struct spw_variance. */
enum spw_variance_kind {
    SPW_VARIANCE_ROUNDING,
    SPW_VARIANCE_RATE,
    SPW_VARIANCE_BASE,
    SPW_VARIANCE_NEXUS,
    SPW_VARIANCE_KINDS
};

struct spw_store_counts {
    uint64_t flags_count; /* stored, ever */
    uint64_t by_state[SPW_FLAG_STATES];
    uint64_t by_reconcile[SPW_RECONCILE_STATES];
    uint64_t by_filing[SPW_FILING_STATES];
    uint64_t orders_placed_count;    /* orders ever placed, with or without a flag */
    uint64_t orders_cancelled_count; /* of them, now cancelled */
    uint64_t newest_sequence;
    uint64_t newest_change;
    uint64_t acknowledged_sequence; /* the highest of any consumer */
    uint64_t acknowledged_change;   /* the same; 0 = nobody goes by change */
    uint64_t
        unacknowledged_count; /* rows that nobody has taken as they are now: only in this pod; some seconds old */
    uint64_t removed_sequence;     /* rows up to here were removed by retention */
    uint64_t orphans_count;        /* rows that contradict one another (upkeep.c); 0 in a healthy ledger */
    uint64_t stuck_count;          /* rows that time should have moved on */
    uint64_t window_placed_count;  /* orders placed in the alert's window ... */
    uint64_t window_flagged_count; /* ... of them on a fallback */
    uint32_t window_share_ppm;
    bool alert_on;
    uint64_t duplicate_count;       /* second copies, and second flags of a decision, set aside */
    uint64_t damaged_count;         /* cells whose content made no sense: kept in table damaged, counted */
    uint64_t commit_failures_count; /* disk full, read-only, ...: cells were kept */
    bool writable;                  /* the last commit went through */
    /* collected - live of what was reconciled since the start: over-collected, and under-collected as a positive number */
    uint64_t variance_over_minor[SPW_VARIANCE_KINDS];
    uint64_t variance_under_minor[SPW_VARIANCE_KINDS];
};
void spw_store_counts(struct spw_store *store, struct spw_store_counts *out);

/* A quote was answered live: an order of it belongs to this account of the segment. One store to memory. */
void spw_store_note_live(struct spw_store *store, const char *quote_id, uint32_t account_index);

#define SPW_PLACED_ACCOUNTS_COUNT 17u /* those of a segment, and before them no account */
struct spw_placed_account {
    char name[SPW_NAME_BYTES]; /* "" = not used yet; the first row's always: account not known */
    uint64_t placed_count[SPW_FALLBACK_COUNT]; /* by the type of the quote's fallback; NONE: live */
};
/* What is looked at from time to time; some seconds old. */
struct spw_store_watched {
    struct spw_placed_account accounts[SPW_PLACED_ACCOUNTS_COUNT]; /* orders placed since the start */
    int64_t oldest_pending_unix_ms; /* placed; of the orders that wait to be reconciled; 0 = none waits */
    int64_t oldest_unacknowledged_unix_ms; /* changed last; of the rows only this pod has; 0 = none */
};
void spw_store_watched(struct spw_store *store, struct spw_store_watched *out);

#endif
