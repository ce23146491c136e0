/* spw_quote.h: the words of a quote: what a caller asks and what it is told.
 *
 * Owns: the normalised request and answer and every enumeration they use. Types and name tables only.
 * Called by: the client header, the doors, the provider profiles, the flag store. Thread: any; pure.
 *
 * Money is in minor units (cents) of the request's currency, signed 64 bit. Rates are parts per billion (ppb) of
 * the taxable amount: 9.2 % = 92,000,000 ppb. Text is NUL-terminated UTF-8, borrowed from the caller; NULL = absent.
 */
#ifndef SPW_QUOTE_H
#define SPW_QUOTE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SPW_NAME_BYTES       64u /* account, integration, source names, with their NUL */
#define SPW_ID_BYTES         40u /* "sq_" or "sf_" + 32 hex digits + NUL, padded */
#define SPW_CALLER_ID_BYTES  72u /* decision, order and quote references of the caller, with NUL */
#define SPW_AMOUNT_MAX_MINOR INT64_C(1000000000000000) /* of a line: 512 of them at 429 % stay below 2^63 */
#define SPW_LINES_MAX_COUNT  512u                      /* lines of one quote */
#define SPW_REQUEST_MAX_BYTES                                                                                \
    30720u /* the normalised request as JSON: what the chained cells of one flag hold */

/* What became of one quote. */
#define SPW_DECISION_TABLE(X)                                                                                \
    X(0, NONE, "none")                                                                                       \
    X(1, LIVE, "live")                                                                                       \
    X(2, FALLBACK, "fallback")                                                                               \
    X(3, REJECTED, "rejected")

/* Why a cached rate was served: exactly one of these. */
#define SPW_FALLBACK_TABLE(X)                                                                                \
    X(0, NONE, "none")                                                                                       \
    X(1, RATE_LIMIT_PROACTIVE, "rate-limit-proactive")                                                       \
    X(2, RATE_LIMIT_429, "rate-limit-429")                                                                   \
    X(3, CIRCUIT_BREAKER_OPEN, "circuit-breaker-open")                                                       \
    X(4, PROVIDER_TIMEOUT, "provider-timeout")                                                               \
    X(5, PROVIDER_ERROR, "provider-error")                                                                   \
    X(6, SIDECAR_UNAVAILABLE, "sidecar-unavailable")

/* The finer rule that fired. */
#define SPW_CAUSE_TABLE(X)                                                                                   \
    X(0, NONE, "none")                                                                                       \
    X(1, BUCKET_EMPTY, "bucket-empty")                                                                       \
    X(2, REMAINING_BELOW_BUFFER, "remaining-below-buffer")                                                   \
    X(3, GATE_SHUT, "gate-shut")                                                                             \
    X(4, BREAKER_OPEN, "breaker-open")                                                                       \
    X(5, BREAKER_FORCED, "breaker-forced")                                                                   \
    X(6, CONCURRENCY, "concurrency")                                                                         \
    X(7, LEASE_EXHAUSTED, "lease-exhausted")                                                                 \
    X(8, BATCH_RESERVE, "batch-reserve")                                                                     \
    X(9, RATE_ZERO, "rate-zero")                                                                             \
    X(10, RETRY_429, "retry-429")                                                                            \
    X(11, RETRY_NO_TOKEN, "retry-no-token")                                                                  \
    X(12, RETRY_TOO_LATE, "retry-too-late")                                                                  \
    X(13, TIMEOUT, "timeout")                                                                                \
    X(14, CONNECT, "connect")                                                                                \
    X(15, STATUS_5XX, "status-5xx")                                                                          \
    X(16, BAD_ANSWER, "bad-answer")                                                                          \
    X(17, NOT_ATTACHED, "not-attached")                                                                      \
    X(18, SIDECAR_GONE, "sidecar-gone")                                                                      \
    X(19, FORCED, "forced")                                                                                  \
    X(20, KILL_SWITCH, "kill-switch")                                                                        \
    X(21, COST_ABOVE_BURST, "cost-above-burst")

/* At which level the rate table matched, most specific first. */
#define SPW_MATCH_TABLE(X)                                                                                   \
    X(0, NONE, "none")                                                                                       \
    X(1, ZIP9, "zip9")                                                                                       \
    X(2, ZIP5, "zip5")                                                                                       \
    X(3, STATE, "state-average")                                                                             \
    X(4, COUNTRY, "country")                                                                                 \
    X(5, DEFAULT, "default-rate")                                                                            \
    X(6, NO_NEXUS, "no-nexus")                                                                               \
    X(7, EXEMPT, "exempt")                                                                                   \
    X(8, LEARNED, "learned")                                                                                 \
    X(9, MIXED, "mixed")

/* How fallback tax is rounded: half up per line, or half up once per order. */
#define SPW_ROUNDING_TABLE(X)                                                                                \
    X(0, HALF_UP_LINE, "half-up/line")                                                                       \
    X(1, HALF_UP_ORDER, "half-up/order")

/* Estimates (carts) are never reconciled; orders are, once placed. */
#define SPW_PURPOSE_TABLE(X)                                                                                 \
    X(0, ESTIMATE, "estimate")                                                                               \
    X(1, ORDER, "order")

#define SPW__ENUM(PREFIX, code, name) PREFIX##_##name = (code),
#define SPW__X(code, name, text)      SPW__ENUM(SPW_DECISION, code, name)
enum spw_decision { SPW_DECISION_TABLE(SPW__X) SPW_DECISION_COUNT };
#undef SPW__X
#define SPW__X(code, name, text) SPW__ENUM(SPW_FALLBACK, code, name)
enum spw_fallback { SPW_FALLBACK_TABLE(SPW__X) SPW_FALLBACK_COUNT };
#undef SPW__X
#define SPW__X(code, name, text) SPW__ENUM(SPW_CAUSE, code, name)
enum spw_cause { SPW_CAUSE_TABLE(SPW__X) SPW_CAUSE_COUNT };
#undef SPW__X
#define SPW__X(code, name, text) SPW__ENUM(SPW_MATCH, code, name)
enum spw_match { SPW_MATCH_TABLE(SPW__X) SPW_MATCH_COUNT };
#undef SPW__X
#define SPW__X(code, name, text) SPW__ENUM(SPW_ROUNDING, code, name)
enum spw_rounding { SPW_ROUNDING_TABLE(SPW__X) SPW_ROUNDING_COUNT };
#undef SPW__X
#define SPW__X(code, name, text) SPW__ENUM(SPW_PURPOSE, code, name)
enum spw_purpose { SPW_PURPOSE_TABLE(SPW__X) SPW_PURPOSE_COUNT };
#undef SPW__X

/* spw_<noun>_name(value): the word used in JSON, metrics and flags; "unknown" outside the table. */
#define SPW__X(code, name, text)                                                                             \
    case code:                                                                                               \
        return text;
#define SPW__NAME_FN(noun, TABLE)                                                                            \
    static inline const char *spw_##noun##_name(uint32_t value)                                              \
    {                                                                                                        \
        switch (value) {                                                                                     \
            TABLE(SPW__X)                                                                                    \
        default:                                                                                             \
            return "unknown";                                                                                \
        }                                                                                                    \
    }
SPW__NAME_FN(decision, SPW_DECISION_TABLE)
SPW__NAME_FN(fallback, SPW_FALLBACK_TABLE)
SPW__NAME_FN(cause, SPW_CAUSE_TABLE)
SPW__NAME_FN(match, SPW_MATCH_TABLE)
SPW__NAME_FN(rounding, SPW_ROUNDING_TABLE)
SPW__NAME_FN(purpose, SPW_PURPOSE_TABLE)
#undef SPW__X
#undef SPW__NAME_FN
#undef SPW__ENUM

struct spw_address {
    const char *country; /* ISO 3166-1 alpha-2, NULL = "US" */
    const char *state;   /* two letters in the US */
    const char *zip;     /* "98110", "98110-1234", "981101234" */
    const char *city;
    const char *line1;
};

struct spw_line {
    const char *id;         /* the caller's line name, unique in the quote */
    const char *tax_code;   /* the provider's code of the product; NULL = general goods */
    int64_t quantity_micro; /* millionths: 2 pieces = 2,000,000; 0 = one piece */
    int64_t amount_minor;   /* the extended amount of the line: price x quantity less discounts */
};

struct spw_quote_request {
    const char *account;
    const char *integration;
    const char *decision_id; /* the caller's; the same id never makes a second flag. NULL = minted */
    const char *quote_ref;   /* the caller's reference of cart or quote, for look-ups; NULL = none */
    const char *currency;    /* ISO 4217; NULL = "USD" */
    const char *date;        /* "YYYY-MM-DD", date of supply; NULL = the day it is at the destination */
    enum spw_purpose purpose;
    uint32_t deadline_ms; /* 0 = the account's deadline; a larger one is cut to it */
    struct spw_address ship_from;
    struct spw_address ship_to;
    const char *customer_id;
    const char *exemption; /* reason such as "resale"; NULL = taxable */
    int64_t shipping_minor;
    const char *shipping_tax_code;
    const struct spw_line *lines;
    uint32_t line_count; /* 1 .. SPW_LINES_MAX_COUNT */
};

/* The tax of one line, in the request's order. The last entry of an answer's list is shipping. */
struct spw_line_tax {
    int64_t taxable_minor;
    int64_t tax_minor;
};

#ifdef __cplusplus
}
#endif

#endif
