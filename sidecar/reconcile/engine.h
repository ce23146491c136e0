/* engine.h: reconciliation: placed fallbacks are calculated again by the provider, and put into its books.
 *
 * Owns: the rows under way and their calls. Called by: main (a timer), http/errand.c (answers), http/metrics.c and
 * control/ (status). Thread: the loop thread.
 *
 * Calls are of class batch: they leave the reserve, never take what checkout is about to use, wait while the gate is shut
 * or the breaker is not closed, and each takes a token. What is under way is claimed in the ledger with a lease; a process
 * that dies claims again and repeats, and every result and document is known by an id of its own.
 *
 * Time, calls and credentials come in as functions, so that the same engine runs on a virtual clock.
 */
#ifndef SPW_RECONCILE_ENGINE_H
#define SPW_RECONCILE_ENGINE_H

#include "shm/spw_admission.h"
#include "sidecar/conf/conf.h"
#include "sidecar/provider/provider.h"
#include "sidecar/reconcile/progress.h"
#include "sidecar/state/state.h"
#include "sidecar/store/store.h"

struct spw_reconcile;

/* The end of one call. answered false: no whole answer came, detail says why. Borrowed. */
struct spw_errand_answer {
    bool answered;
    bool calm; /* the peer asks for fewer requests */
    uint32_t status;
    const char *headers;
    size_t headers_bytes;
    const char *body;
    size_t body_bytes;
    const char *detail;
};
/* Reads the answer and says how it counts for limits and breaker; not asked where no whole answer came. */
typedef enum spw_answer_kind spw_errand_fn(void *owner, const struct spw_errand_answer *answer);

struct spw_errand_call {
    uint32_t account;      /* its place in the configuration */
    struct spw_call *call; /* taken over */
    struct spw_ticket ticket;
    struct spw_admission admission;
    uint32_t acquire_flags;
    uint64_t deadline_ns;
    spw_errand_fn *answered;
    void *owner;
};

struct spw_reconcile_ops {
    void *owner;
    uint64_t (*now_ns)(void *owner); /* CLOCK_BOOTTIME, or what stands for it */
    int64_t (*wall_ms)(void *owner); /* unix milliseconds */
    uint64_t (*random)(void *owner);
    void (*wake)(void *wake_owner); /* let spw_reconcile_turn be called soon, not from inside */
    void *wake_owner;
    /* Calls that everybody was allowed, ever, of this account of the segment. */
    uint64_t (*allowed_count)(void *owner, uint32_t account_index);
    bool (*credential)(void *owner, uint32_t account, struct spw_credential *out);
    /* Sends, later calls answered exactly once, and settles the ticket. false: nothing was sent, the ticket is open. */
    bool (*send)(void *owner, const struct spw_errand_call *call);
    /* The normalised request of a flag; texts live until done with. NULL = it cannot be read. */
    void *(*parse)(const char *json, struct spw_quote_request *out);
    void (*parsed_free)(void *parsed);
};

struct spw_reconcile_options {
    const struct spw_conf *conf;
    struct spw_state *state;
    struct spw_store *store;
    struct spw_reconcile_ops ops;
};
enum spw_status spw_reconcile_new(const struct spw_reconcile_options *options, struct spw_reconcile **out,
                                  struct spw_error *err) SPW_WARN_UNUSED;
/* What is due now; gives the instant (now_ns) at which it wants to be called again at the latest. */
uint64_t spw_reconcile_turn(struct spw_reconcile *reconcile);
/* Begins nothing any more. Before what ops needs is gone. NULL is welcome. */
void spw_reconcile_stop(struct spw_reconcile *reconcile);
/* After the store is closed: it may still have held requests. */
void spw_reconcile_destroy(struct spw_reconcile *reconcile);

#endif
