/* provider.h: what a provider profile is: data plus pure functions, so that a further provider is one file.
 *
 * Owns: the profile interface and the table of profiles. Called by: http/, conf/, reconcile/. Thread: any; pure.
 *
 * A profile knows four things about a provider: how a calculation is asked and answered (the quote door), which of its
 * own requests are what (the pass-through door), how an order gets into its books (filing), and where it publishes
 * rates. A function pointer that is NULL is something the provider does not have.
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

/* What an account proves itself with. */
struct spw_credential {
    const char *user; /* "" unless the provider asks for two parts (AvaTax) */
    const char *secret;
    const char *header; /* account.credential_header ("X-API-Key"); NULL or "" = the profile's own */
};

/* ---- what a provider's own requests are ---- */

enum spw_route_kind {
    SPW_ROUTE_CALCULATE, /* asks for tax: may be answered from the cache */
    SPW_ROUTE_RECORD, /* puts a sale into the books, or changes or voids one: passed or queued, never faked */
    SPW_ROUTE_REFUND, /* the same for a refund */
    SPW_ROUTE_READ,   /* looks something up, or is none of the above: passed or refused */
    SPW_ROUTE_PING
};
/* One method and path the account's credential may be used for. In path a segment "*" is any one segment,
 * "{connectionId}" and "{company}" are the account's own. */
struct spw_route {
    const char *method;
    const char *path;
    enum spw_route_kind kind;
};

/* A limit the provider is known for beside the account's own, used when the configuration names none. */
struct spw_profile_limiter {
    const char *name;
    enum spw_route_kind kind; /* the calls it applies to */
    uint64_t tokens_count;
    uint64_t period_ns;
    uint64_t burst_ms; /* burst = what the rate earns in this time, at least 1 */
};

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

/* What kind of limit a THROTTLED or BUSY answer speaks of. */
enum spw_throttle {
    SPW_THROTTLE_RATE,        /* too many in a time: also what a bare 429 is taken for */
    SPW_THROTTLE_CONCURRENCY, /* too many at once */
    SPW_THROTTLE_LOCK         /* an object is in use: says nothing about limits */
};

/* The combined rate of one line as the provider states it. */
struct spw_line_rate {
    bool known;
    uint32_t ppb;
};

struct spw_answer {
    enum spw_answer_kind kind;
    enum spw_throttle throttle;   /* THROTTLED, BUSY */
    int64_t tax_minor;            /* sum over lines and shipping */
    uint32_t lines_count;         /* as asked: one per line, then one for shipping (also when it is 0) */
    uint32_t jurisdictions_count; /* 0 where the provider does not split */
    uint32_t rate_ppb;            /* combined rate of the first taxed line; 0 = not known */
    bool no_nexus;                /* the provider says that the seller has no duty to collect there */
    char calculation[SPW_CALLER_ID_BYTES]; /* the provider's own id of it (Stripe); "" = it has none */
    char *error_json; /* REJECTED: the provider's own error envelope as JSON; malloc'ed */
    char detail[160]; /* BROKEN, ERROR: why, in words */
    /* Of these only as many as are counted above mean anything: clearing all would cost more than reading an answer. */
    struct spw_line_tax lines[SPW_LINES_MAX_COUNT + 1];
    struct spw_line_rate line_rates[SPW_LINES_MAX_COUNT + 1];
    struct spw_jurisdiction jurisdictions[SPW_JURISDICTIONS_MAX_COUNT];
};
/* Nothing known, whatever it held before; its error_json is not freed. */
void spw_answer_clear(struct spw_answer *answer);
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
    /* The same two instants as they were written, where a header has digits below the millisecond: for people. */
    int64_t reset_unix_us;
    int64_t retry_unix_us;
    const char *dialect; /* static text: the family limit and remaining were read from; "" = none */
    /* Static texts: by which rule of headers.c each value was read; "" = it was not. */
    const char *limit_rule, *remaining_rule, *reset_rule, *window_rule, *retry_rule;
};

/* ---- the pass-through door: the provider's own requests and answers ---- */

/* A request as an SDK sent it; borrowed. */
struct spw_native_request {
    const struct spw_route *route;
    const char *path;    /* decoded once and found plain */
    const char *query;   /* as received without '?'; "" = none */
    const char *headers; /* raw block "Name: value\r\n"..., NUL-terminated */
    const char *body;
    size_t body_bytes;
};

/* The quote in a native calculation. One block holds its lines and, behind them, its texts; its account is the
 * configuration's. Destroy with spw_native_quote_clean_up. */
struct spw_native_quote {
    struct spw_quote_request quote;
    struct spw_line *lines;
    char document[SPW_CALLER_ID_BYTES]; /* the id the caller gave its document (AvaTax code); "" = none */
    bool records; /* the calculation also puts the sale into the books (AvaTax SalesInvoice): purpose order */
};
void spw_native_quote_clean_up(struct spw_native_quote *quote);

/* An answer in the provider's own form. Destroy with spw_native_answer_clean_up. */
struct spw_native_answer {
    uint32_t status;
    const char *content_type;
    char *body;
    size_t body_bytes;
};
void spw_native_answer_clean_up(struct spw_native_answer *answer);

/* A fallback to be told in the provider's own success form. lines: as in struct spw_answer, shipping last. */
struct spw_native_fallback {
    const char *quote_id;
    const char *flag_id; /* "" when the flag was handed back */
    const char *type;
    const char *cause;
    int64_t now_unix_ms;
    int64_t tax_minor;
    const struct spw_line_tax *lines;
    uint32_t state_ppb, county_ppb, city_ppb, special_ppb, combined_ppb;
};

/* ---- filing: an order in the provider's books ---- */

struct spw_booking {
    const struct spw_quote_request *quote;
    const struct spw_line_tax *collected; /* what the customer paid, line by line, shipping last */
    int64_t tax_collected_minor;
    const char *order_id;
    const char *document;    /* the id it has in the books: unique, stable over retries, [A-Za-z0-9_-] */
    const char *date;        /* "YYYY-MM-DD": of the sale */
    const char *calculation; /* the provider's id of the live recalculation, where it has one (Stripe); "" */
};
enum spw_booked {
    SPW_BOOKED,          /* it is there */
    SPW_BOOKED_ALREADY,  /* it was there before: read it back */
    SPW_BOOKED_MISSING,  /* read back: it is not there */
    SPW_BOOKED_REJECTED, /* will never be taken as it is: to a person */
    SPW_BOOKED_THROTTLED,
    SPW_BOOKED_FAILED /* try again later */
};
struct spw_booked_answer {
    enum spw_booked booked;
    bool has_tax;      /* read back: ... */
    int64_t tax_minor; /* ... the tax that stands in the books */
    char detail[160];
};

enum spw_rates_format { SPW_RATES_NONE, SPW_RATES_AVATAX_ZIP_CSV, SPW_RATES_TAXJAR_SUMMARY };

struct spw_profile {
    const char *name;
    const char *default_url;
    const struct spw_route *routes;
    size_t routes_count;
    const struct spw_profile_limiter *limiters;
    size_t limiters_count;
    bool has_user;            /* the credential has two parts */
    bool has_company;         /* account.company is used */
    bool takes_date;          /* a past date can be calculated; where not, what was a day ago is gone */
    bool is_tax;              /* false: no quotes, no cached answer (profile http) */
    bool book_overwrites;     /* booking changes a document of that id: look first */
    uint32_t batch_max_count; /* quotes one build_batch takes; 0 = no batch form */
    uint32_t jurisdictions_rounded_count; /* J of the rounding bound: parts the engine rounds on their own */

    /* Build the calculation. */
    enum spw_status (*build)(const struct spw_quote_request *quote, const struct spw_conf_account *account,
                             const struct spw_credential *credential, const char *idempotency_key,
                             struct spw_call *out, struct spw_error *err);
    /* Read the answer to it. Pure over (status, headers, body). */
    void (*read)(const struct spw_quote_request *quote, uint32_t status, const char *headers,
                 size_t headers_bytes, const char *body, size_t body_bytes, struct spw_answer *out);
    /* What an answer to any request of the provider's says about its limits and health: kind, throttle and detail,
     * and nothing else of *out. route NULL = not known. A 2xx of a calculation that is no calculation is BROKEN. For
     * requests that are passed through: read knows only the answers to what build has built. What read takes as OK
     * for a tax, judge takes as OK for a calculation. */
    void (*judge)(const struct spw_route *route, uint32_t status, const char *headers, size_t headers_bytes,
                  const char *body, size_t body_bytes, struct spw_answer *out);
    /* Is the tax of a native calculation's 2xx sound for this quote, whatever its lines are called? OK with the total in
     * tax_minor and nothing else of *out, or BROKEN. For what read cannot take line by line. */
    void (*check)(const struct spw_quote_request *quote, const char *body, size_t body_bytes,
                  struct spw_answer *out);
    /* Several quotes in one call; keys[i] is the idempotency key of quotes[i]. out[i] belongs to quotes[i]. */
    enum spw_status (*build_batch)(const struct spw_quote_request *const *quotes, size_t count,
                                   const struct spw_conf_account *account,
                                   const struct spw_credential *credential, const char *const *keys,
                                   struct spw_call *out, struct spw_error *err);
    void (*read_batch)(const struct spw_quote_request *const *quotes, size_t count, const char *const *keys,
                       uint32_t status, const char *headers, size_t headers_bytes, const char *body,
                       size_t body_bytes, struct spw_answer *out);
    enum spw_status (*ping)(const struct spw_conf_account *account, const struct spw_credential *credential,
                            struct spw_call *out, struct spw_error *err);
    /* The line "Name: value" that carries the credential, malloc'ed; for requests that are passed through. */
    char *(*authorize)(const struct spw_credential *credential);
    /* The token an SDK put where its API key goes, from its request's headers: into out, false = none there. */
    bool (*token)(const char *headers, char *out, size_t room);

    /* INVALID: it cannot be told as a quote; it may be passed on, but there is no fallback for it. */
    enum spw_status (*native_quote)(const struct spw_native_request *request,
                                    const struct spw_conf_account *account, struct spw_native_quote *out,
                                    struct spw_error *err);
    enum spw_status (*native_fallback)(const struct spw_native_request *request,
                                       const struct spw_native_quote *quote,
                                       const struct spw_native_fallback *fallback,
                                       struct spw_native_answer *out, struct spw_error *err);
    /* The provider's own error envelope; status 429 is its rate-limit error. message is for the developer. */
    enum spw_status (*native_error)(uint32_t status, const char *message, struct spw_native_answer *out,
                                    struct spw_error *err);
    /* The document a record, refund or read names; false = none. A fallback's id comes back as its quote_id ("sq_..."),
     * whatever form native_fallback gave it in the provider's answer. */
    bool (*native_document)(const struct spw_native_request *request, char out[SPW_CALLER_ID_BYTES]);
    /* The shop's own id of the order a record names; NULL or false = the document is the order. */
    bool (*native_order)(const struct spw_native_request *request, char out[SPW_CALLER_ID_BYTES]);
    /* The answer to a record of a fallback's document, where the provider's form can say "accepted, not in the books
     * yet"; NULL = it cannot, and its rate-limit error is answered. */
    enum spw_status (*native_recorded)(const struct spw_native_request *request,
                                       const struct spw_native_fallback *fallback,
                                       struct spw_native_answer *out, struct spw_error *err);
    /* The header that, set to "false", keeps the provider's SDKs from trying again by themselves; NULL = none. */
    const char *no_retry_header;

    enum spw_status (*book)(const struct spw_booking *booking, const struct spw_conf_account *account,
                            const struct spw_credential *credential, struct spw_call *out,
                            struct spw_error *err);
    void (*read_book)(const struct spw_booking *booking, uint32_t status, const char *body, size_t body_bytes,
                      struct spw_booked_answer *out);
    enum spw_status (*book_back)(const struct spw_booking *booking, const struct spw_conf_account *account,
                                 const struct spw_credential *credential, struct spw_call *out,
                                 struct spw_error *err);
    void (*read_book_back)(const struct spw_booking *booking, uint32_t status, const char *body,
                           size_t body_bytes, struct spw_booked_answer *out);

    /* The published rates of a day, in rates_format. */
    enum spw_rates_format rates_format;
    enum spw_status (*rates)(const struct spw_conf_account *account, const struct spw_credential *credential,
                             const char *date, struct spw_call *out, struct spw_error *err);
};

/* NULL when there is no such profile. */
const struct spw_profile *spw_profile_find(const char *name);
/* "taxcloud, ..." for error texts. */
const char *spw_profile_names(void);
/* Does a call that a profile has built go to the account's own address and an allowed path? Its query is the profile's
 * own work and not looked at. */
bool spw_profile_allows(const struct spw_profile *profile, const struct spw_conf_account *account,
                        const struct spw_call *call);
/* Can two servers read this decoded path in one way only? */
bool spw_profile_path_is_plain(const char *path);
/* The route of this method + decoded path for this account; NULL = not allowed. */
const struct spw_route *spw_profile_route(const struct spw_profile *profile,
                                          const struct spw_conf_account *account, const char *method,
                                          const char *path);

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
