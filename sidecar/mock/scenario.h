/* scenario.h: what the scripted provider does, when, and to which share of the requests.
 *
 * Owns: the script's grammar and its state. Called by: server.c under its lock, control.c. Thread: any, one at a time;
 * pure over the given clock.
 *
 * Steps are looked at in order; the first that fits time, number and path, and whose share has its turn, governs.
 * Shares are exact and repeatable: share 0.25 takes every fourth request that fits, not a throw of dice. Where dice are
 * wanted, random is their share and seed makes them the same in every run.
 */
#ifndef SPW_MOCK_SCENARIO_H
#define SPW_MOCK_SCENARIO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sidecar/obs/error.h"

#define SPW_MOCK_STEPS_MAX_COUNT    256u
#define SPW_MOCK_HEADERS_MAX_COUNT  16u
#define SPW_MOCK_SCENARIO_MAX_BYTES (1024u * 1024u)

/* X(NAME, word in the script, what the client sees) */
#define SPW_MOCK_ACTION_TABLE(X)                                                                             \
    X(NONE, "none", "an ordinary answer")                                                                    \
    X(RESET, "reset", "the connection is reset (RST) instead of an answer")                                  \
    X(CLOSE, "close", "the connection is closed (FIN) instead of an answer")                                 \
    X(STALL, "stall", "nothing at all, until the client hangs up")                                           \
    X(TRICKLE, "trickle", "headers at once, then the body one byte every trickle_ms")                        \
    X(GARBAGE, "garbage", "bytes that are no HTTP, then the end")                                            \
    X(WRONG_LENGTH, "wrong-length", "a Content-Length 100 bytes above the body, then the end")               \
    X(HUGE, "huge", "a body of 64 MiB")                                                                      \
    X(DROP, "drop", "the request is carried out, then the connection is closed (FIN) instead of an answer")

enum spw_mock_action {
#define SPW_MOCK_X(name, word, text) SPW_MOCK_ACTION_##name,
    SPW_MOCK_ACTION_TABLE(SPW_MOCK_X)
#undef SPW_MOCK_X
        SPW_MOCK_ACTION_COUNT
};
const char *spw_mock_action_name(uint32_t action);

struct spw_mock_header {
    char *name;
    char *value;
};

struct spw_mock_step {
    uint64_t from_ms, to_ms;           /* since the scenario came into force: from <= t < to */
    uint64_t from_request, to_request; /* provider requests since then, counted from 1: from <= n <= to */
    uint32_t share_ppm;
    uint32_t turn_ppm;   /* how far the next turn of the share has come */
    uint32_t random_ppm; /* 0 = none: otherwise dice, from seed, decide beside the share */
    uint64_t seed;
    char *path_contains; /* NULL = every path */
    bool has_status, has_latency;
    unsigned status;
    uint64_t latency_ms;
    uint64_t trickle_ms;
    enum spw_mock_action action;
    char *body; /* NULL = none given */
    size_t headers_count;
    struct spw_mock_header headers[SPW_MOCK_HEADERS_MAX_COUNT];
};

struct spw_mock_scenario {
    size_t steps_count;
    struct spw_mock_step *steps;
};

/* A JSON list of steps, or one step a line. name stands for the file in errors, which name step, key and remedy. On
 * failure *out is untouched. */
enum spw_status spw_mock_scenario_parse(const char *name, const char *text, size_t bytes,
                                        struct spw_mock_scenario *out, struct spw_error *err) SPW_WARN_UNUSED;
void spw_mock_scenario_clean_up(struct spw_mock_scenario *scenario);
/* The step for this request, or NULL. */
const struct spw_mock_step *spw_mock_scenario_choose(struct spw_mock_scenario *scenario, uint64_t since_ms,
                                                     uint64_t request_number, const char *path);

#endif
