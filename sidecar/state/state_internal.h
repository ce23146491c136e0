/* state_internal.h: what the files of state/ share.
 *
 * Owns: struct spw_state. Called by: state/ only. Thread: the loop thread.
 */
#ifndef SPW_STATE_INTERNAL_H
#define SPW_STATE_INTERNAL_H

#include "shm/spw_admission.h"
#include "shm/spw_cell.h"
#include "shm/spw_fallback.h"
#include "sidecar/state/state.h"

/* A segment that was replaced and still holds cells or attached processes. */
struct spw_prev {
    struct spw_map map;
    char name[64];
    uint64_t since_ns;
    struct spw_prev *next;
};

/* What the provider's headers state against what is configured: see observed.c. */
struct spw_observed {
    bool adopts;
    bool differs;
    uint64_t adopted_count; /* obeyed instead of what is configured; 0 = none */
    uint32_t same_count;    /* times in a row that last_count was stated */
    uint64_t last_count;
};

struct spw_state {
    struct spw_map map;
    struct spw_conf_limiter limiter[SPW_CONF_ACCOUNTS_MAX_COUNT]
                                   [SPW_LIMITERS_PER_ACCOUNT]; /* as set, by place */
    struct spw_observed observed[SPW_CONF_ACCOUNTS_MAX_COUNT]; /* by record index, as is all that follows */
    struct spw_conf_breaker breaker[SPW_CONF_ACCOUNTS_MAX_COUNT];
    uint32_t reserve_ppm[SPW_CONF_ACCOUNTS_MAX_COUNT];
    uint64_t door_fallbacks[SPW_CONF_ACCOUNTS_MAX_COUNT][SPW_FALLBACK_COUNT]; /* likewise, since the start */
    uint64_t provider_calls[SPW_CONF_ACCOUNTS_MAX_COUNT], provider_429[SPW_CONF_ACCOUNTS_MAX_COUNT];
    uint64_t learned_total, learned_evicted_total; /* since the start */
    const struct spw_conf *conf;
    bool is_private; /* its clock is the caller's: no wall clock belongs to it */
    int lock_fd;
    struct spw_header rw_header; /* what is constant of rw's: see heal_header */
    char origin[160];
    struct spw_rates_refreshes refreshes;
    struct spw_prev *prev;
};

/* Where everything lies in the two files for a configuration. */
struct spw_plan {
    struct spw_section pub[SPW_PUB_SECTIONS];
    struct spw_section rw[SPW_RW_SECTIONS];
    uint64_t pub_bytes, rw_bytes;
};
void spw_plan_make(const struct spw_conf *conf, struct spw_plan *plan);

/* Bring accounts, integrations and policy of the mapped segment to the configuration. fill: new buckets start full
 * (a first segment) or empty (after a loss of state). */
enum spw_status spw_publish_conf(struct spw_state *state, uint64_t now_ns, bool fill,
                                 struct spw_error *err) SPW_WARN_UNUSED;
/* Carry levels, breakers and gates of a retired segment into the (not yet visible) new one. */
void spw_publish_carry(struct spw_state *state, struct spw_map *old, uint64_t now_ns);

/* Take entries out of use that an earlier sidecar was cut short in. */
void spw_learned_mend(struct spw_state *state);
/* Carry what a segment that is being replaced has learned. */
void spw_learned_carry(struct spw_state *state, const struct spw_map *old);
uint32_t spw_learned_count(const struct spw_state *state);

/* A row as a record of the table, and whether one takes the other's place. */
void spw_rate_record_from(const struct spw_rate_row *row, uint16_t source, struct spw_rate_record *record);
bool spw_rate_same_place(const struct spw_rate_record *a, const struct spw_rate_record *b);

/* Carry the rate table of a segment that is being replaced; an empty one is none. */
enum spw_status spw_rates_carry(struct spw_state *state, const struct spw_map *old,
                                struct spw_error *err) SPW_WARN_UNUSED;

/* Claim the sidecar's slot in the segment of this name: a free one, or one that a dead process left. */
enum spw_status spw_own_slot_claim(struct spw_map *map, const char *rw_dir, const char *name) SPW_WARN_UNUSED;

/* The record of a LIVE account, or NULL; *index is its place. */
struct spw_account *spw_state_account(struct spw_state *state, const char *name, uint32_t *index);

/* What one pod may use of an account's limit. */
void spw_limit_share(const struct spw_conf_limit *limit, struct spw_rate *rate, uint64_t *burst_count);

/* ---- limiters.c ---- */
enum spw_status spw_no_account(const char *name, struct spw_error *err);
enum spw_status spw_version_expect(const struct spw_account *account, uint64_t expect, struct spw_error *err);
/* Does each account of the segment have the limiters the configuration names? Else a new segment is made. */
bool spw_limiters_fit(const struct spw_map *map, const struct spw_conf *conf);
/* Places of a fresh account's limiters: narrowest first, the account-wide one last. */
void spw_limiters_lay_out(struct spw_state *state, uint32_t index, const struct spw_conf_account *conf);
/* All of an account's limiters, and which of them apply to whom. */
enum spw_status spw_limiters_put(struct spw_state *state, uint32_t index, const struct spw_conf_account *conf,
                                 uint64_t now_ns, bool fill, struct spw_error *err);
/* The skip word of the account's k-th integration; UINT32_MAX: of a caller without one. */
uint32_t spw_limiters_skip(struct spw_state *state, uint32_t index, uint32_t k);
enum spw_status spw_limiter_install(struct spw_state *state, uint32_t index, uint32_t place,
                                    const struct spw_conf_limit *limit, uint64_t now_ns, bool fill,
                                    struct spw_error *err);
/* Carry the levels of a retired segment's account to the limiters of the same names; `to` NULL: to nowhere. */
void spw_limiters_carry(struct spw_state *state, struct spw_map *old, const struct spw_account *from,
                        const struct spw_account *to, uint64_t now_ns);

/* Is each limiter one that can be counted exactly? */
enum spw_status spw_limiters_check(const struct spw_conf_account *conf, uint64_t now_ns,
                                   struct spw_error *err);
/* What the file changed of an account's limiters. */
enum spw_status spw_limiters_reload(struct spw_state *state, uint32_t index,
                                    const struct spw_conf_account *before,
                                    const struct spw_conf_account *after, uint64_t now_ns,
                                    struct spw_error *err);
/* Limits and modes as they are by now, into the account's configuration. */
void spw_limiters_in_force(const struct spw_state *state, uint32_t index, struct spw_conf_account *conf);

/* ---- observed.c ---- */
void spw_observed_note(struct spw_state *state, uint32_t index, const struct spw_evidence *evidence);
void spw_observed_forget(struct spw_state *state, uint32_t index);

#endif
