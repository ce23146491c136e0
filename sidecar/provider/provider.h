/* provider.h: what a provider profile is: data plus pure functions, so that a further provider is one file.
 *
 * Owns: the profile interface and the table of profiles. Called by: http/decide.c, conf/. Thread: any; pure.
 */
#ifndef SPW_PROVIDER_PROVIDER_H
#define SPW_PROVIDER_PROVIDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shm/spw_quote.h"
#include "sidecar/conf/conf.h"
#include "sidecar/obs/error.h"

#define SPW_CALL_HEADERS_MAX_COUNT  8u
#define SPW_JURISDICTIONS_MAX_COUNT 16u

/* A provider call ready to be sent. The strings live in the arena of the struct; destroy with spw_call_clean_up. */
struct spw_call {
    const char *method;
    char *url;
    char
        *headers[SPW_CALL_HEADERS_MAX_COUNT]; /* "Name: value"; the credential's line last and never logged */
    size_t header_count;
    char *body;
    size_t body_bytes;
};
void spw_call_clean_up(struct spw_call *call);

struct spw_jurisdiction {
    char level[16]; /* "state", "county", "city", "special" */
    uint32_t rate_ppb;
    int64_t tax_minor;
};

/* How an answer of the provider is to be treated. */
enum spw_answer_kind {
    SPW_ANSWER_OK,        /* tax known */
    SPW_ANSWER_REJECTED,  /* the caller's own fault (4xx about the request): passed back, never hidden */
    SPW_ANSWER_THROTTLED, /* 429 that means "too fast" */
    SPW_ANSWER_BUSY,      /* 429 that is no rate limit (a lock): no count for the breaker */
    SPW_ANSWER_ERROR, /* 5xx, 401/403 (the sidecar's own credentials), anything else the caller cannot mend */
    SPW_ANSWER_BROKEN /* 2xx that cannot be understood */
};

struct spw_answer {
    enum spw_answer_kind kind;
    int64_t tax_minor;    /* sum over lines and shipping */
    uint32_t lines_count; /* as asked: one per line, then one for shipping (also when it is 0) */
    struct spw_line_tax lines[SPW_LINES_MAX_COUNT + 1];
    uint32_t jurisdictions_count; /* 0 where the provider does not split */
    struct spw_jurisdiction jurisdictions[SPW_JURISDICTIONS_MAX_COUNT];
    uint32_t rate_ppb; /* combined rate of the first taxed line; 0 = not known */
    char *error_json;  /* REJECTED: the provider's own error envelope as JSON; malloc'ed */
    char detail[160];  /* BROKEN, ERROR: why, in words */
};
void spw_answer_clean_up(struct spw_answer *answer);

/* What the provider's headers say about its rate limit. Unknown stays unknown: it is never 0. */
struct spw_rate_signals {
    bool has_limit, has_remaining, has_reset, has_retry, has_window, has_date;
    uint64_t limit_count;
    uint64_t remaining_count;
    int64_t reset_unix_ms; /* wall-clock instant, rounded up */
    int64_t retry_unix_ms; /* wall-clock instant, rounded up */
    int64_t date_unix_ms;  /* the answer's Date */
    uint64_t window_ms;
    /* The same two as waits counted from receipt. An instant is measured from the answer's own Date, so that a local
     * clock that is wrong does not move it; one that is past is 0. These are what a gate is shut by. */
    uint64_t reset_in_ms;
    uint64_t retry_in_ms;
    const char *dialect; /* static text: the family limit and remaining were read from; "" = none */
};

struct spw_profile {
    const char *name;
    const char *default_url;
    /* Methods and paths the account's credentials may be used for: "METHOD /path" patterns, '*' = one segment. */
    const char *const *allowed;
    size_t allowed_count;
    /* Build the calculation. secret is the account's credential (not NUL-checked by the profile's caller). */
    enum spw_status (*build)(const struct spw_quote_request *quote, const struct spw_conf_account *account,
                             const char *secret, const char *idempotency_key, struct spw_call *out,
                             struct spw_error *err);
    /* Read the answer to it. Pure over (status, headers, body). */
    void (*read)(const struct spw_quote_request *quote, uint32_t status, const char *headers,
                 size_t headers_bytes, const char *body, size_t body_bytes, struct spw_answer *out);
    enum spw_status (*ping)(const struct spw_conf_account *account, const char *secret, struct spw_call *out,
                            struct spw_error *err);
};

/* NULL when there is no such profile. */
const struct spw_profile *spw_profile_find(const char *name);
/* "taxcloud, ..." for error texts. */
const char *spw_profile_names(void);
/* Is this method + decoded path within the profile's allow-list for this account? */
bool spw_profile_allows(const struct spw_profile *profile, const struct spw_conf_account *account,
                        const char *method, const char *path);

/* What a bare number in a reset header means where the number alone cannot tell. */
enum spw_reset_unit {
    SPW_RESET_AUTO, /* below 1e9 seconds from now, below 1e12 epoch seconds, from there epoch milliseconds */
    SPW_RESET_DELTA_S,
    SPW_RESET_DELTA_MS,
    SPW_RESET_EPOCH_S,
    SPW_RESET_EPOCH_MS
};

struct spw_headers_options {
    enum spw_reset_unit reset_unit;
    uint64_t skew_limit_ms; /* Date is the base of spans only when this near to receipt; 0 = 300,000 */
};

/* Read every known dialect of rate headers. headers = raw block "Name: value\r\n"...; received_unix_ms = wall clock at
 * receipt, used where the answer has no Date. Pure; never fails: what cannot be read is unknown. */
void spw_headers_read(const char *headers, size_t headers_bytes, uint32_t status, int64_t received_unix_ms,
                      struct spw_rate_signals *out);
/* The same for a provider whose reset unit is known. options NULL = the defaults. */
void spw_headers_read_as(const char *headers, size_t headers_bytes, uint32_t status, int64_t received_unix_ms,
                         const struct spw_headers_options *options, struct spw_rate_signals *out);

#endif
