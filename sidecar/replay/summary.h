/* summary.h: what a whole replay came to, account by account.
 *
 * Owns: struct spw_replay_tally. Called by: run.c, sidecar/ctl/replay.c. Thread: one.
 */
#ifndef SPW_REPLAY_SUMMARY_H
#define SPW_REPLAY_SUMMARY_H

#include "sidecar/replay/engine.h"

struct spw_replay_tally {
    uint64_t acquires, allowed, reserved, observed;
    uint64_t refused[SPW_CAUSE_COUNT];      /* acquires, by cause */
    uint64_t fallbacks[SPW_FALLBACK_COUNT]; /* acquires refused and outcomes, by type */
    uint64_t live, rejected, outcomes, not_open;
    uint64_t breaker_openings, gate_closings;
    uint64_t longest_wait_ns; /* told with a refusal; "never" aside */
    uint64_t latest_ns;       /* longest latency */
    uint64_t over_deadline;   /* outcomes that took longer than the account's deadline */
    /* peaks */
    uint64_t peak_asked, peak_asked_at_ns; /* acquires within one second of the clock */
    uint64_t peak_allowed, peak_allowed_at_ns;
    uint64_t peak_open;
    uint64_t lowest_milli;
    /* of the second that runs */
    uint64_t second, second_asked, second_allowed;
    bool was_open, was_shut, seen;
};

void spw_replay_tally_add(struct spw_replay_tally *tally, const struct spw_replay_result *result,
                          uint32_t deadline_ms);
/* Acquires that were refused and outcomes that were no answer, in thousandths of a percent of the acquires. */
uint64_t spw_replay_tally_fallback_ppm(const struct spw_replay_tally *tally);
/* One JSON object. */
json_t *spw_replay_tally_json(const struct spw_replay_tally *tally, const char *account);

#endif
