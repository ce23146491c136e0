/* engine.h: what a pod's limits decide, on a clock that only moves when told to.
 *
 * Owns: private segments for all accounts of a configuration, made by the sidecar's own publisher, and the calls that
 * are open in them. Called by: run.c, bench/replay.c. Thread: one. Needs no sidecar and touches no file.
 *
 * The decisions are the real ones: spw_ref_admit, spw_settle and spw_state_* on the shared-memory words, with the
 * event's time in place of CLOCK_BOOTTIME. Nothing is random: equal events give equal answers.
 */
#ifndef SPW_REPLAY_ENGINE_H
#define SPW_REPLAY_ENGINE_H

#include "shm/spw_admission.h"
#include "sidecar/replay/event.h"

struct spw_replay;

/* What became of one event. */
struct spw_replay_result {
    uint64_t at_ns;      /* of the virtual clock */
    const char *account; /* NULL = the event names none */
    const char *id;      /* of the call; NULL = none */
    const char *verdict;
    uint64_t cost;
    uint64_t wait_ns;     /* SPW_FOREVER_NS = never */
    uint64_t start_at_ns; /* of a reservation, of the virtual clock */
    uint64_t
        remaining_milli; /* thousandths of a token, in the tightest limiter that applies, after the event */
    const char *breaker; /* state after the event; NULL with no account */
    const char *forced;  /* by hand; "" = not */
    uint64_t gate_until_ns; /* of the virtual clock */
    uint64_t version;       /* set: of the account's configuration */
    uint64_t latency_ns;    /* outcome */
    uint64_t open_count;    /* calls open for the account after the event */
    enum spw_replay_op op;
    uint32_t account_index;
    enum spw_fallback type; /* the fallback this leads to; NONE = none */
    enum spw_cause cause;   /* NONE = none */
    bool allowed;           /* acquire, peek */
    bool has_start;         /* a reservation */
    bool observed;          /* would have been refused; observe mode let it pass */
    bool probe;             /* this call is the breaker's probe */
    bool remaining_known;
    bool gate_shut;
};

/* conf is borrowed and must be without its file's references (spw_conf_load_any). epoch_ms: the wall clock, in unix
 * milliseconds, when the virtual clock is 0. */
enum spw_status spw_replay_new(const struct spw_conf *conf, int64_t epoch_ms, struct spw_replay **out,
                               struct spw_error *err) SPW_WARN_UNUSED;
void spw_replay_destroy(struct spw_replay *replay);

/* Do one event. default_id: what an acquire without id is called. On failure nothing was done, err says field, fault
 * and remedy. Texts of the result stand until the next event. */
enum spw_status spw_replay_do(struct spw_replay *replay, const struct spw_replay_event *event,
                              const char *default_id, struct spw_replay_result *out,
                              struct spw_error *err) SPW_WARN_UNUSED;

uint32_t spw_replay_accounts_count(const struct spw_replay *replay);
const char *spw_replay_account_name(const struct spw_replay *replay, uint32_t account);
uint32_t spw_replay_account_deadline_ms(const struct spw_replay *replay, uint32_t account);

#endif
