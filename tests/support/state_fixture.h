/* state_fixture.h: a real segment, made by the sidecar's own state room, in a directory of its own.
 *
 * For tests that need more than a hand-made segment: limits, breakers, rates, replacement. The program links spw_state
 * or spw_state_next beside this. Any failure ends the test with its place. Time: everything takes now_ns; t0_ns is an
 * instant after the segment was made, from which a test counts as on a fake clock.
 */
#ifndef SPW_TESTS_STATE_FIXTURE_H
#define SPW_TESTS_STATE_FIXTURE_H

#include "sidecar/conf/conf.h"
#include "sidecar/state/state.h"

#define SPW_TEST_S UINT64_C(1000000000)

struct spw_state_fixture {
    char dir[64]; /* on a tmpfs where there is one */
    char pub_dir[80];
    char rw_dir[80];
    struct spw_conf *conf;
    struct spw_state *state; /* NULL while closed */
    struct spw_map *map;
    uint64_t t0_ns;
};

/* One account of the configuration: "main" and the rest of its limit and breaker as YAML, for example
 * "limit: {rate: 100/s, burst: 100, pods: 1}". extra: further top-level YAML, or NULL. */
void spw_state_fixture_make(struct spw_state_fixture *f, const char *account_yaml, const char *extra);
void spw_state_fixture_open(struct spw_state_fixture *f); /* once more, after spw_state_fixture_close */
void spw_state_fixture_close(struct spw_state_fixture *f, bool clean_stop);
/* Read another configuration over the one in use; the state must be closed. */
void spw_state_fixture_configure(struct spw_state_fixture *f, const char *account_yaml, const char *extra);
void spw_state_fixture_remove(struct spw_state_fixture *f); /* closes and deletes the directory */

/* Put another policy in force, as a restart with other settings does. */
void spw_state_fixture_policy(struct spw_state_fixture *f, void (*change)(struct spw_conf_fallback *));

int32_t spw_state_fixture_today(void); /* days since 1970-01-01, UTC */
/* Put one rate table in force: ZIP 98110 WA 9.2 %, 79703 TX 8.25 %, 97201 OR 0 %, source "table", as of today. */
void spw_state_fixture_rates(struct spw_state_fixture *f);

/* The limit of the account, as spw_state_limit_set takes it; pods 1. */
struct spw_conf_limit spw_state_fixture_limit(uint64_t tokens_count, uint64_t period_ns,
                                              uint64_t burst_count);
/* Set it now, whatever the version; returns the version that is in force afterwards. */
uint64_t spw_state_fixture_set(struct spw_state_fixture *f, uint64_t tokens_count, uint64_t period_ns,
                               uint64_t burst_count, uint64_t now_ns);

#endif
