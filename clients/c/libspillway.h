/* libspillway.h: the client as a shared library, for languages that call C (Python, PHP, Java, Go, Node).
 *
 * Owns: nothing; thin names over spillway.h, with plain types only. Quotes need no library in those languages: they are
 * one HTTP POST to the sidecar. This is for callers that make their own provider calls and want the pod's limits.
 * Threads, fork and cost: as in spillway.h; a handle serves all threads of a process. NULL where a client, a ticket or a
 * reservation is expected: nothing is done, and the answer is verdict 4, INVALID, or nothing. decision may be NULL. Buffers
 * may lie at any address. errno stays as it was through acquire, reserve, confirm, give_up and report.
 */
#ifndef LIBSPILLWAY_H
#define LIBSPILLWAY_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct spillway; /* a client */

/* NULL directories = the defaults of spw_attach. on_unattached: 0 bounded, 1 deny, 2 allow. NULL only without memory
 * or with a path that is too long. */
struct spillway *spillway_new(const char *pub_dir, const char *rw_dir, int on_unattached);
void spillway_destroy(struct spillway *client);
/* 0, or the enum spw_status of the last attempt to attach: why there is no segment. */
int spillway_status(const struct spillway *client);

/* What an acquire said. */
struct spillway_decision {
    int32_t verdict;  /* enum spw_verdict: 0 allow, 1 deny, 2 never, 3 not attached, 4 no such account */
    int32_t may_call; /* 1: make the call and report it */
    int32_t cause;    /* enum spw_cause */
    int32_t observed;
    uint64_t wait_ns;     /* UINT64_MAX = never */
    uint64_t start_at_ns; /* CLOCK_BOOTTIME; 0 = now */
    uint64_t version;
};

/* The ticket's 64 bytes belong to the caller until the report. Returns may_call. */
int spillway_acquire(struct spillway *client, const char *account, const char *integration, uint64_t tokens,
                     uint64_t max_wait_ns, uint64_t ticket[8], struct spillway_decision *decision);
/* The same for callers that wait until start_at_ns, and may change their mind: the reservation's bytes belong to the
 * caller until the report, for which it serves as the ticket. endpoint: 0 calculation, 1 record, 2 other, 3 refund. */
#define SPILLWAY_RESERVATION_WORDS 40
int spillway_reserve(struct spillway *client, const char *account, const char *integration, int endpoint,
                     uint64_t tokens, uint64_t max_wait_ns, uint64_t reservation[SPILLWAY_RESERVATION_WORDS],
                     struct spillway_decision *decision);
/* At start_at_ns: do gate and breaker still let the call through? 0 = make no call; unless it only was too early (deny
 * with wait_ns until the start), the reservation has been given back. */
int spillway_confirm(struct spillway *client, uint64_t reservation[SPILLWAY_RESERVATION_WORDS],
                     struct spillway_decision *decision);
/* Instead of a report: the call is not made, and counts as never allowed. */
void spillway_give_up(struct spillway *client, uint64_t reservation[SPILLWAY_RESERVATION_WORDS]);
/* http_status 0 = no answer; retry_after_ms -1 = not said. */
void spillway_report(struct spillway *client, const uint64_t ticket[8], uint32_t http_status,
                     int64_t retry_after_ms);

/* Combined rate of a US ZIP code in parts per billion, or a negative enum spw_status. */
int64_t spillway_rate_ppb(struct spillway *client, const char *zip);

/* 0 = recorded, or a negative enum spw_status. */
int spillway_order_placed(struct spillway *client, const char *quote_id, const char *order_id,
                          int64_t tax_minor, const char *currency);
int spillway_order_cancelled(struct spillway *client, const char *order_id);
int spillway_quote_abandoned(struct spillway *client, const char *quote_id);
/* Wait until all that this process recorded is on the disk: 0, or a negative enum spw_status after timeout_ms. */
int spillway_wait_durable(struct spillway *client, uint32_t timeout_ms);

const char *spillway_cause_name(int cause);
const char *spillway_status_text(int status);

#ifdef __cplusplus
}
#endif

#endif
