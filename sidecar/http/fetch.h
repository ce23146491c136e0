/* fetch.h: one call to a provider that no customer waits for, with a large answer: a published rate table.
 *
 * Owns: a client of its own, so that a long download holds none of the account's connections. Called by:
 * sidecar/rate_refresh.c. Thread: the loop thread.
 *
 * It is of class batch: it takes a token like any other and leaves the reserve to checkout. What it comes to counts for
 * the account's gate and breaker.
 */
#ifndef SPW_HTTP_FETCH_H
#define SPW_HTTP_FETCH_H

#include "sidecar/http/decide.h"

struct spw_fetch;

/* How it ended. Valid in the call; body is NULL unless the table came. */
struct spw_fetched {
    const char *body;
    size_t body_bytes;
    uint64_t again_ms; /* no token, or the provider asked for patience: not before; 0 = not said */
    const char *why;   /* in words, where body is NULL; no secrets */
};
typedef void spw_fetched_fn(void *owner, const struct spw_fetched *fetched);

struct spw_fetch_options {
    struct spw_decider *decider;
    const char *account; /* of the configuration, at a provider that publishes rates */
    size_t answer_max_bytes;
    uint64_t deadline_ms;
    spw_fetched_fn *done;
    void *owner;
};

enum spw_status spw_fetch_new(const struct spw_fetch_options *options, struct spw_fetch **out,
                              struct spw_error *err) SPW_WARN_UNUSED;
/* Ask for the rates of a day, "YYYY-MM-DD". done is called once, perhaps before this returns. One at a time. */
void spw_fetch_start(struct spw_fetch *fetch, const char *date);
/* What is under way is given up, without done. Before the decider. NULL is fine. */
void spw_fetch_destroy(struct spw_fetch *fetch);

#endif
