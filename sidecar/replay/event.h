/* event.h: one line of a replay: JSON text into a plain struct.
 *
 * Owns: the grammar of events (docs/replay.md). Called by: run.c. Thread: one; pure but for memory.
 */
#ifndef SPW_REPLAY_EVENT_H
#define SPW_REPLAY_EVENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "sidecar/conf/conf.h"
#include "sidecar/obs/error.h"

#define SPW_REPLAY_LINE_MAX_BYTES ((size_t)1 << 20)
#define SPW_REPLAY_ID_BYTES       72u
#define SPW_REPLAY_AT_MAX_NS      UINT64_C(9000000000000000000) /* the year 2255 as unix time */

enum spw_replay_op {
    SPW_REPLAY_ACQUIRE,
    SPW_REPLAY_PEEK,
    SPW_REPLAY_CONFIRM,
    SPW_REPLAY_RELEASE,
    SPW_REPLAY_OUTCOME,
    SPW_REPLAY_SET,
    SPW_REPLAY_ADVANCE,
    SPW_REPLAY_OPS
};
const char *spw_replay_op_name(enum spw_replay_op op);

/* What a `set` changes; what is not named stays as it is. */
struct spw_replay_change {
    bool has_rate, has_burst, has_pods, has_kind, has_concurrency;
    struct spw_rate rate;
    uint64_t burst_count;
    uint32_t pods_count;
    uint32_t concurrency_count;
    enum spw_limiter_kind kind;
    json_t *breaker;     /* borrowed: settings of the breaker; NULL = none */
    const char *limiter; /* one of the account's list; NULL = the account-wide one */
    int forced;          /* enum spw_forced; -1 = leave */
    int kill, observe;   /* 0 off, 1 on, -1 leave */
    bool everywhere;     /* the switches of all accounts */
    bool reset;
};

/* Texts are borrowed from the reader and stand until its next event. */
struct spw_replay_event {
    enum spw_replay_op op;
    bool has_at, has_wall, has_by, has_id;
    uint64_t at_ns;
    int64_t wall_ms; /* unix */
    uint64_t by_ns;
    const char *account; /* NULL = not given */
    const char *integration;
    char id[SPW_REPLAY_ID_BYTES];
    /* acquire, peek */
    uint64_t cost;
    uint64_t max_wait_ns;
    bool retry;
    uint32_t tries; /* retry: that failed before this one, 1 or more */
    enum spw_endpoint endpoint;
    /* outcome */
    bool has_status, timeout;
    uint32_t status;
    uint64_t latency_ns;
    const char *body; /* what tells the provider's refusals apart; NULL = not kept */
    size_t body_bytes;
    const char *headers; /* "Name: value\r\n"... */
    size_t headers_bytes;
    struct spw_replay_change change;
};

/* Memory that is used again from line to line. Zero-initialise. */
struct spw_replay_reader {
    json_t *root;
    char *headers;
    size_t headers_bytes, headers_room;
    char *body; /* of one written as an object */
};

/* Read one line. On failure err says field, fault and remedy; the place in the file is the caller's to add. */
enum spw_status spw_replay_event_read(struct spw_replay_reader *reader, const char *line, size_t bytes,
                                      struct spw_replay_event *out, struct spw_error *err) SPW_WARN_UNUSED;
void spw_replay_reader_clean_up(struct spw_replay_reader *reader);

/* The decimal that a JSON number was written as. false: it was written with more than a double keeps. */
#define SPW_REPLAY_NUMBER_BYTES 40u
bool spw_replay_number_text(const json_t *value, char out[SPW_REPLAY_NUMBER_BYTES]);

/* "1.5", "1784030405.123456789": seconds with at most nine decimals, exactly, in nanoseconds. */
bool spw_replay_seconds_parse(const char *text, uint64_t *out_ns);
#define SPW_REPLAY_SECONDS_BYTES 24u
void spw_replay_seconds_format(uint64_t ns, char out[SPW_REPLAY_SECONDS_BYTES]);

#endif
