/* state.h: the segment's publisher: makes, adopts or replaces the segment and writes every sidecar-owned word.
 *
 * Owns: both segment files. Called by: main, http/, control/ (through posted tasks), store/ (the map only).
 * Thread: the loop thread, except spw_state_map, which any thread may call after spw_state_open.
 *
 * A change is in force when the function returns: every decision begun afterwards, in any process, obeys it.
 */
#ifndef SPW_STATE_STATE_H
#define SPW_STATE_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "shm/spw_layout.h"
#include "sidecar/conf/conf.h"
#include "sidecar/obs/error.h"
#include "sidecar/rates/rates.h"

struct spw_state;
struct spw_map; /* shm/spw_map.h: the mapped segment with checked accessors */

struct spw_rates_source;

/* Make, adopt or replace the segment in the two directories of the configuration and bring it to the configuration.
 * BUSY when another sidecar holds the directory, NO_SPACE with the bytes needed when a volume is too small. */
enum spw_status spw_state_open(const struct spw_conf *conf, struct spw_state **out,
                               struct spw_error *err) SPW_WARN_UNUSED;
/* The same with a rate table, as spw_state_rates_replace takes it. A new segment has it before clients see the segment;
 * one that it does not fit is not put in place. None: an adopted segment keeps its table. */
enum spw_status spw_state_open_with_rates(const struct spw_conf *conf, const struct spw_rates_source *sources,
                                          size_t sources_count, struct spw_state **out,
                                          struct spw_error *err) SPW_WARN_UNUSED;
/* What now_ns is at the beginning of the private clock's UTC: fixed windows begin at whole spans from here. */
#define SPW_STATE_PRIVATE_EPOCH_NS UINT64_C(1000000000)
/* A segment in private memory, full buckets, by a clock of the caller's own: now_ns stands for CLOCK_BOOTTIME here and in
 * every later call; above 0. No file, no lock, no other process; heartbeat and sweep are not for it. For replay. */
enum spw_status spw_state_open_private(const struct spw_conf *conf, uint64_t now_ns, struct spw_state **out,
                                       struct spw_error *err) SPW_WARN_UNUSED;
/* Bytes of the two files for this configuration: what the volumes must hold (twice, while one replaces another). */
void spw_state_sizes(const struct spw_conf *conf, uint64_t *pub_bytes, uint64_t *rw_bytes);
/* A reload, in two steps. First: can the segment take it? What the configuration says of limiters, and whether there is
 * room for accounts and integrations it adds. FULL or INVALID, and nothing has changed. */
enum spw_status spw_state_reload_check(struct spw_state *state, const struct spw_conf *fresh, uint64_t now_ns,
                                       struct spw_error *err) SPW_WARN_UNUSED;
/* Then: the configuration the segment was opened with has been laid over (spw_conf_take); before is what it was. Only what
 * differs between the two is touched: a bucket whose numbers are the same keeps its tokens, and what was set at run time
 * stays unless the file changed that very limit or breaker. */
enum spw_status spw_state_reload(struct spw_state *state, const struct spw_conf *before, uint64_t now_ns,
                                 struct spw_error *err) SPW_WARN_UNUSED;
/* Put what is in force by now (limits, modes, breakers) into a copy of the configuration. */
void spw_state_conf_in_force(const struct spw_state *state, struct spw_conf *conf);
void spw_state_close(struct spw_state *state,
                     bool clean_stop); /* unmaps; the files stay for the next start */

struct spw_map *spw_state_map(struct spw_state *state);
const char *spw_state_origin(const struct spw_state *state); /* "created", "adopted" or "replaced", and why */
uint64_t spw_state_generation(const struct spw_state *state);

/* Every 250 ms: heartbeat. Every 500 ms: sweep of dead slots, their permits and cells. */
void spw_state_heartbeat(struct spw_state *state, uint64_t now_ns);
void spw_state_sweep(struct spw_state *state, uint64_t now_ns);

/* ---- limits ---- */
struct spw_limit_view {
    char account[SPW_NAME_BYTES];
    char limiter[32];            /* SPW_LIMITER_ACCOUNT_NAME: the account-wide one */
    struct spw_conf_limit limit; /* of the whole account, as set */
    uint32_t endpoints;          /* bit i: applies to enum spw_endpoint i */
    char integrations[256];      /* "web,app"; "" = all */
    struct spw_rate pod_rate;    /* what this pod may use of it */
    uint64_t pod_burst_count;
    uint64_t version;      /* of the account: rises with each change */
    uint64_t tokens_milli; /* thousandths of a token in hand now */
    uint64_t healed_count;
    uint64_t switches; /* SPW_SWITCH_* in force: its own, the account's and the global ones */
    bool observed_limit_known;
    uint64_t observed_limit_count; /* what the provider's headers said last */
    bool observed_limit_differs;   /* from the limit as set */
    bool observed_limit_adopted;   /* and is what pod_rate says, instead of the limit as set */
    bool observed_remaining_known;
    uint64_t observed_remaining_count;
};
enum spw_status spw_state_limit_get(struct spw_state *state, const char *account, uint64_t now_ns,
                                    struct spw_limit_view *out, struct spw_error *err) SPW_WARN_UNUSED;
/* expect_version 0 = whatever it is; otherwise CONFLICT unless it is the current one. The tokens in hand are kept
 * (cut to the new burst). dry_run: check and say what would be, change nothing. */
enum spw_status spw_state_limit_set(struct spw_state *state, const char *account,
                                    const struct spw_conf_limit *limit, uint64_t expect_version, bool dry_run,
                                    uint64_t now_ns, struct spw_limit_view *out,
                                    struct spw_error *err) SPW_WARN_UNUSED;

/* Calls in flight from this pod; 0 = not limited. Those in flight stay, and count. Until the next start or reload that
 * changes it. */
enum spw_status spw_state_concurrency_set(struct spw_state *state, const char *account, uint32_t count,
                                          bool dry_run, struct spw_error *err) SPW_WARN_UNUSED;

/* The same two for one limiter of an account's list; limiter NULL: the account-wide one. */
enum spw_status spw_state_limiter_get(struct spw_state *state, const char *account, const char *limiter,
                                      uint64_t now_ns, struct spw_limit_view *out,
                                      struct spw_error *err) SPW_WARN_UNUSED;
enum spw_status spw_state_limiter_set(struct spw_state *state, const char *account, const char *limiter,
                                      const struct spw_conf_limit *limit, uint64_t expect_version,
                                      bool dry_run, uint64_t now_ns, struct spw_limit_view *out,
                                      struct spw_error *err) SPW_WARN_UNUSED;
/* By place: 0 is the account-wide one, the others follow. NOT_FOUND: no such account or place. */
enum spw_status spw_state_limiter_at(struct spw_state *state, uint32_t account_index, uint32_t place,
                                     uint64_t now_ns, struct spw_limit_view *out) SPW_WARN_UNUSED;

/* Kill and observe: 1 on, 0 off, -1 as it is. account NULL: for all; limiter NULL: for all of the account's. Each level
 * has switches of its own, and one that is on anywhere above a limiter is on for it. */
struct spw_switch_change {
    int kill, observe;
};
enum spw_status spw_state_switches_set(struct spw_state *state, const char *account, const char *limiter,
                                       const struct spw_switch_change *change,
                                       struct spw_error *err) SPW_WARN_UNUSED;
/* Those of one level alone: of all, of an account, of a limiter. */
enum spw_status spw_state_switches_get(struct spw_state *state, const char *account, const char *limiter,
                                       uint64_t *out, struct spw_error *err) SPW_WARN_UNUSED;

/* The configuration in force. */
const struct spw_conf *spw_state_conf(const struct spw_state *state);

/* ---- breaker and gate ---- */
struct spw_breaker_view {
    char account[SPW_NAME_BYTES];
    char state[16];  /* "closed", "open", "half-open" */
    char forced[16]; /* "", "open", "closed", "disabled", "observe" */
    uint32_t consecutive_count;
    uint32_t trips_count;
    uint32_t epoch;
    uint64_t open_for_ms; /* until a probe is allowed; 0 unless open */
    struct spw_conf_breaker conf;
    uint64_t version;
    uint64_t gate_shut_for_ms; /* 0 = open */
    char gate_source[24];      /* "retry-after", "reset", ... */
};
enum spw_status spw_state_breaker_get(struct spw_state *state, const char *account, uint64_t now_ns,
                                      struct spw_breaker_view *out, struct spw_error *err) SPW_WARN_UNUSED;
/* By the account's place. NOT_FOUND: free or removed. */
enum spw_status spw_state_breaker_at(struct spw_state *state, uint32_t account_index, uint64_t now_ns,
                                     struct spw_breaker_view *out) SPW_WARN_UNUSED;
/* What to change of a breaker; conf NULL = leave. forced: -1 = leave, else enum spw_forced. reset: close it now. */
struct spw_breaker_change {
    const struct spw_conf_breaker *conf;
    int forced;
    bool reset;
    bool trip; /* open it now, for its cooldown; not with reset */
};
enum spw_status spw_state_breaker_set(struct spw_state *state, const char *account,
                                      const struct spw_breaker_change *change, uint64_t expect_version,
                                      bool dry_run, uint64_t now_ns, struct spw_breaker_view *out,
                                      struct spw_error *err) SPW_WARN_UNUSED;

/* Shut an account's gate for so long, at most SPW_GATE_MAX_MS; 0 = open it. What the provider says meanwhile only
 * shuts it longer. expect_version and dry_run as above. */
enum spw_status spw_state_gate_set(struct spw_state *state, const char *account, uint64_t shut_for_ms,
                                   uint64_t expect_version, bool dry_run, uint64_t now_ns,
                                   struct spw_breaker_view *out, struct spw_error *err) SPW_WARN_UNUSED;

/* A provider call of the account has ended; throttled: by its 429. For the status. */
void spw_state_call_count(struct spw_state *state, uint32_t account_index, bool throttled);
/* A quote through a door got a fallback of this type; NONE: none, because no rate was known. For the status. */
void spw_state_fallback_count(struct spw_state *state, uint32_t account_index, enum spw_fallback type);

/* What the provider's headers said; shown, and used for the header buffer. */
void spw_state_evidence_set(struct spw_state *state, uint32_t account_index,
                            const struct spw_evidence *evidence);

/* ---- rates ---- */

/* The fetching of one account's published rates, as it is told of: kept by who fetches, read by control and metrics. */
struct spw_rates_refresh {
    char account[SPW_NAME_BYTES];
    bool running;
    int64_t succeeded_unix_ms; /* when the table that is kept was fetched; 0 = there is none */
    int64_t tried_unix_ms;     /* 0 = not since the start */
    int64_t next_unix_ms;
    uint64_t successes_count, failures_count; /* since the start */
    uint32_t rows_count;                      /* of the last success; 0 = none since the start */
    char error[256];                          /* "" = the last try did not fail */
};
/* Who fetches: begin now. NOT_FOUND: no such entry; BUSY: it is under way. account NULL = all that are not. */
typedef enum spw_status spw_rates_refresh_fn(void *owner, const char *account, bool forced,
                                             struct spw_error *err);
struct spw_rates_refreshes {
    uint32_t count;
    struct spw_rates_refresh list[SPW_CONF_REFRESHES_MAX_COUNT];
    spw_rates_refresh_fn *begin; /* NULL = nothing is fetched */
    void *owner;
};
struct spw_rates_refreshes *spw_state_refreshes(struct spw_state *state);
struct spw_rates_source {
    char name[SPW_NAME_BYTES];
    int32_t as_of_day;
    uint8_t sha256[32];
    const struct spw_rate_row *rows;
    size_t rows_count;
};
struct spw_rates_view {
    uint64_t version; /* rises with each replacement */
    uint32_t
        records_count; /* places of the table that are taken: destinations, state averages, replaced records */
    uint32_t capacity_count;
    bool nearly_full;       /* over nine tenths of the places are taken */
    uint32_t coded_count;   /* records for single tax codes */
    uint32_t upserts_count; /* rows put in since the table was replaced */
    uint32_t
        replaced_count; /* records that upserts took the place of: room that comes back when it is needed */
    uint32_t learned_count; /* rates learned from live answers; they have room of their own */
    uint32_t learned_capacity_count;
    uint64_t learned_total;         /* answers learned from since the start */
    uint64_t learned_evicted_total; /* learned rates that gave way to newer ones since the start */
    uint32_t sources_count;
    struct spw_source sources[SPW_SOURCES_MAX_COUNT];
    struct spw_rates_age ages[SPW_SOURCES_MAX_COUNT]; /* of these, today */
};
/* Replace the whole table by these sources, later ones winning where both know a ZIP. FULL names the capacity needed;
 * then, as on any failure, the old table stays in force. State averages are made from the rows. */
enum spw_status spw_state_rates_replace(struct spw_state *state, const struct spw_rates_source *sources,
                                        size_t sources_count, struct spw_rates_view *out,
                                        struct spw_error *err) SPW_WARN_UNUSED;
void spw_state_rates_view(struct spw_state *state, struct spw_rates_view *out);
/* Put rows into the table in force, each in the place of the one for the same destination, tax code and first day. A
 * reader sees the old record or the new one. All rows or none: FULL names the capacity needed. State averages stay as
 * they were made from the whole table. */
enum spw_status spw_state_rates_upsert(struct spw_state *state, const struct spw_rates_source *source,
                                       struct spw_rates_view *out, struct spw_error *err) SPW_WARN_UNUSED;

/* What one live answer teaches of one tax code at one destination. Text is borrowed for the call. */
struct spw_learned_fact {
    const char *account;
    const struct spw_address *ship_from, *ship_to;
    const char *tax_code; /* NULL = general goods */
    uint32_t combined_ppb;
    uint32_t state_ppb, county_ppb, city_ppb, special_ppb; /* all 0 where the provider does not split */
    int64_t unix_ms;                                       /* of the answer */
};
/* Remember it, for US ZIP codes: under the ZIP+4 where there is one, and under the ZIP code. The oldest of a few gives
 * way when there is no room. Cost: a few cache lines; no system call. */
void spw_state_rates_learn(struct spw_state *state, const struct spw_learned_fact *fact);

/* What is asked of the table. NULL: not given. */
struct spw_rate_question {
    const char *country, *state, *zip;
    const char *tax_code;
    const char *account; /* with it, what was learned for the account counts too */
    const char *from_state;
    int32_t day; /* of the sale; 0 = today */
};
struct spw_rate_lookup {
    enum spw_match match; /* SPW_MATCH_NONE = nothing known for the place */
    struct spw_rate_record record;
    struct spw_source source;
    uint32_t age_days;
    bool stale;   /* older than max_age.warn */
    bool refused; /* older than max_age.refuse: not served */
};
enum spw_status spw_state_rates_lookup(struct spw_state *state, const struct spw_rate_question *question,
                                       struct spw_rate_lookup *out, struct spw_error *err) SPW_WARN_UNUSED;

/* ---- status ---- */
struct spw_account_status {
    struct spw_limit_view limit;
    struct spw_breaker_view breaker;
    uint64_t decisions[SPW_STATS_COUNT]; /* enum spw_stat, over all processes since the segment was made */
    /* Through the sidecar's doors since its start; of type NONE: no rate was known. */
    uint64_t door_fallbacks[SPW_FALLBACK_COUNT];
    uint64_t provider_calls_count, provider_429_count; /* likewise */
};
struct spw_state_status {
    char origin[128];
    uint64_t generation;
    uint32_t accounts_count;
    uint32_t attached_count; /* live slots, the sidecar's own left out */
    uint32_t slots_count;
    uint32_t cells_count;
    uint32_t cells_busy_count;
    uint64_t pub_bytes, rw_bytes;
};
void spw_state_status(struct spw_state *state, struct spw_state_status *out);
enum spw_status spw_state_account_status(struct spw_state *state, uint32_t account_index, uint64_t now_ns,
                                         struct spw_account_status *out) SPW_WARN_UNUSED;

#endif
