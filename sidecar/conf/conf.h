/* conf.h: the whole configuration as one plain, validated struct.
 *
 * Owns: struct spw_conf and its life. Made by spw_conf_load (file); a reload makes a second one and lays it over the
 * first (spw_conf_take), whose addresses stay good. Called by: main, state/, http/, store/. Thread: any may load; the
 * one in use belongs to the loop thread.
 *
 * The schema is proto/spillway/v1/config.proto; the YAML file is walked into it, then checked field by field into
 * this struct. Every error names the path in the file ("accounts.main.limit.rate"), the line, and the remedy.
 */
#ifndef SPW_CONF_CONF_H
#define SPW_CONF_CONF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shm/spw_backoff.h"
#include "shm/spw_layout.h"
#include "sidecar/obs/error.h"

#define SPW_CONF_ACCOUNTS_MAX_COUNT     16u /* of one segment; see spw_conf_load_any */
#define SPW_CONF_INTEGRATIONS_MAX_COUNT 64u /* over all accounts of one segment */
#define SPW_CONF_STATES_MAX_COUNT       64u
#define SPW_CONF_TAX_CODES_MAX_COUNT    128u
#define SPW_CONF_RATE_FILES_MAX_COUNT   16u
#define SPW_CONF_ROUTES_MAX_COUNT       32u /* of one account with provider http */
#define SPW_CONF_ROLES_MAX_COUNT        32u
#define SPW_CONF_UIDS_MAX_COUNT         16u
#define SPW_PATH_BYTES                  256u

/* tokens_count per period_ns: "100/s" = {100, 1e9}; "7/min", "1/d", "0/s" (never). Exact, never a float. */
struct spw_rate {
    uint64_t tokens_count;
    uint64_t period_ns;
};

/* What a bare number in a reset header means where the number alone cannot tell. */
enum spw_reset_unit {
    SPW_RESET_AUTO, /* below 1e9 seconds from now, below 1e12 epoch seconds, from there epoch milliseconds */
    SPW_RESET_DELTA_S,
    SPW_RESET_DELTA_MS,
    SPW_RESET_EPOCH_S,
    SPW_RESET_EPOCH_MS
};

enum spw_class { SPW_CLASS_CHECKOUT, SPW_CLASS_BATCH };

struct spw_conf_integration {
    char name[SPW_NAME_BYTES];
    enum spw_class class_;
};

struct spw_conf_limit {
    struct spw_rate rate; /* of the whole account, as published */
    uint64_t burst_count; /* of the whole account; default: one second's worth, at least 1 */
    uint32_t pods_count;  /* how many pods share it: mandatory */
    /* Of a leaky bucket the burst is one call for each pod; of a window it is the count. */
    enum spw_limiter_kind kind; /* bucket, leaky or window */
};

enum spw_limiter_mode { SPW_LIMITER_ENFORCE, SPW_LIMITER_OBSERVE, SPW_LIMITER_OFF };

/* A limiter beside the account's own limit. */
struct spw_conf_limiter {
    char name[32];
    struct spw_conf_limit limit; /* pods_count is the account's */
    enum spw_limiter_mode mode;
    uint32_t endpoints;    /* bit i: applies to enum spw_endpoint i; never 0 */
    uint64_t integrations; /* bit i: applies to the account's i-th integration; never 0 */
};
#define SPW_CONF_LIMITERS_MAX_COUNT (SPW_LIMITERS_PER_ACCOUNT - 1)
#define SPW_LIMITER_ACCOUNT_NAME    "account" /* the account-wide one */

/* How the pause before a further try is spread. */
struct spw_conf_retry {
    uint32_t base_ms;
    uint32_t most_ms;
    enum spw_jitter jitter;
};

enum spw_breaker_mode { SPW_BREAKER_ENFORCE, SPW_BREAKER_OBSERVE, SPW_BREAKER_DISABLED };

struct spw_conf_breaker {
    uint32_t consecutive_429_count; /* 1..255; default 5 */
    uint32_t ratio_429_ppm;         /* opens above this share of bad outcomes; default 200,000 (20 %) */
    uint32_t minimum_count;         /* outcomes in the window before the share counts; default 20 */
    uint32_t window_ms;             /* 1,000..160,000, default 10,000 */
    uint32_t cooldown_min_ms;       /* default 30,000 */
    uint32_t
        cooldown_max_ms; /* default 60,000; the cooldown doubles from min to max with each failed probe */
    enum spw_breaker_mode mode;
};

/* A secret by reference: exactly one of the two is set. Read when needed, re-read when the file changes. */
struct spw_conf_secret {
    char file[SPW_PATH_BYTES];
    char env[SPW_NAME_BYTES];
};

/* A request that may carry the credential of an account with provider http. */
struct spw_conf_route {
    char method[8]; /* "GET", ... */
    char path[128]; /* from the root; a segment "*" is any one segment */
};

/* What may be kept by hand over restarts (conf_overlay.h), as the file alone has it, and which of it is kept. */
struct spw_conf_file_says {
    struct spw_conf_limit limit;
    enum spw_limiter_mode limit_mode;
    struct spw_conf_breaker breaker;
    bool limit_kept, mode_kept, breaker_kept; /* what is kept lies over it */
};

struct spw_conf_account {
    char name[SPW_NAME_BYTES];
    char provider[SPW_NAME_BYTES]; /* "taxcloud", ... : a profile's name */
    char url[SPW_PATH_BYTES];      /* https://host[:port]; http:// only with allow_plain_http */
    bool allow_plain_http;
    char ca_file[SPW_PATH_BYTES];    /* "" = the system's */
    char connection[SPW_NAME_BYTES]; /* TaxCloud's connection id */
    char company[SPW_NAME_BYTES];    /* AvaTax's company code */
    struct spw_conf_secret user;     /* both "" = the credential has one part */
    struct spw_conf_secret api_key;  /* the password where there is a user */
    char
        credential_header[SPW_NAME_BYTES]; /* provider http: "Authorization: Bearer" (default), "X-API-Key" */
    uint32_t routes_count;                 /* provider http */
    struct spw_conf_route routes[SPW_CONF_ROUTES_MAX_COUNT];
    enum spw_reset_unit reset_unit; /* default auto */
    struct spw_conf_limit limit;
    enum spw_limiter_mode limit_mode;
    bool adopt_lower; /* obey a lower limit that the provider states */
    uint32_t limiters_count;
    struct spw_conf_limiter limiters[SPW_CONF_LIMITERS_MAX_COUNT];
    uint32_t concurrency_per_process_count; /* of concurrency_count; 0 = all */
    struct spw_conf_retry retry;
    uint32_t header_buffer_ppm;      /* default 150,000 (15 %), 0..500,000 */
    uint32_t batch_reserve_ppm;      /* share of the burst class batch must leave; default 100,000 */
    uint32_t concurrency_count;      /* permits for calls in flight from this pod; 0 = not limited; max 256 */
    uint32_t deadline_ms;            /* 100..10,000; default 1,800 */
    uint32_t reuse_ms;               /* an identical cart's live answer holds so long; 0 (default) = never */
    uint32_t wait_ms;                /* for a token, within the deadline; 0 (default) = not at all */
    char listen[SPW_PATH_BYTES];     /* pass-through door, loopback; "" = none */
    char token_file[SPW_PATH_BYTES]; /* of that door; "" = the pod's own */
    bool allow_force;                /* Spillway-Force is obeyed: tests only */
    uint32_t connections_count;      /* to the provider at a time; default 32 */
    char proxy[SPW_PATH_BYTES];      /* "http://host:port"; "" = none */
    struct spw_conf_secret proxy_credentials; /* "user:password" */
    struct spw_conf_breaker breaker;
    struct spw_conf_file_says file_says;
    uint32_t integrations_count;
    struct spw_conf_integration integrations[SPW_CONF_INTEGRATIONS_MAX_COUNT];
};

struct spw_conf_tax_code {
    char code[32]; /* the provider's product code */
    enum spw_tax_code_rule rule;
};

struct spw_conf_rate_file {
    char file[SPW_PATH_BYTES];
    char source[SPW_NAME_BYTES];
    int32_t as_of_day; /* days since 1970-01-01 */
};

/* Which of several rates of one ZIP code is kept: the values of enum spw_rates_several. */
enum spw_conf_several { SPW_SEVERAL_HIGHEST, SPW_SEVERAL_LOWEST, SPW_SEVERAL_FIRST };

#define SPW_CONF_REFRESHES_MAX_COUNT 16u
#define SPW_CONF_REFRESHED_NAME_MAX  52u /* of an account: "-2025-11-01" makes it a source's name */

/* A provider's published rates, fetched from time to time. */
struct spw_conf_refresh {
    char account[SPW_NAME_BYTES];
    uint32_t every_s;        /* default 86,400 */
    uint32_t least_rows_ppm; /* of those fetched before; default 800,000 */
};

struct spw_conf_fallback {
    bool nexus_all; /* true when the list is absent: every destination is taxed */
    uint32_t nexus_count;
    char nexus[SPW_CONF_STATES_MAX_COUNT][4]; /* "WA" */
    uint32_t rate_files_count;
    struct spw_conf_rate_file rate_files[SPW_CONF_RATE_FILES_MAX_COUNT];
    uint32_t max_age_warn_days;              /* default 45 */
    uint32_t max_age_refuse_days;            /* default 120 */
    enum spw_no_rate_policy on_no_rate;      /* default block */
    uint32_t default_rate_ppb;               /* with DEFAULT_RATE: mandatory */
    enum spw_tax_code_rule tax_rule_default; /* default general */
    uint32_t tax_codes_count;
    struct spw_conf_tax_code tax_codes[SPW_CONF_TAX_CODES_MAX_COUNT];
    enum spw_rounding rounding;     /* default half-up/line */
    bool shipping_taxable;          /* default true */
    uint32_t shipping_except_count; /* states in which it is the other way */
    char shipping_except[SPW_CONF_STATES_MAX_COUNT][4];
    char rates_dir[SPW_PATH_BYTES]; /* "" = none */
    uint32_t bad_rows_max_ppm;      /* default 50,000 (5 %), 1..500,000 */
    enum spw_conf_several several;  /* default highest */
    uint32_t refreshes_count;
    struct spw_conf_refresh refreshes[SPW_CONF_REFRESHES_MAX_COUNT];
};

/* How old a rate table is on a day, and what max_age says of that. */
struct spw_rates_age {
    uint32_t days; /* 0 when as_of lies ahead */
    bool stale;    /* older than max_age.warn */
    bool refused;  /* older than max_age.refuse: not served */
};
struct spw_rates_age spw_conf_rates_age(const struct spw_conf_fallback *fallback, int32_t as_of_day,
                                        int32_t today);

/* What to do with a flag when no cell is free. */
enum spw_on_full { SPW_ON_FULL_HAND_BACK, SPW_ON_FULL_DENY };

struct spw_conf_segment {
    char pub_dir[SPW_PATH_BYTES]; /* default /run/spillway/pub: read-only in the app */
    char rw_dir[SPW_PATH_BYTES];  /* default /run/spillway/rw */
    uint32_t gid;                 /* shared group of app and sidecar; UINT32_MAX = the process's own */
    uint32_t slots_count;         /* attached processes, 8..512; default 256 */
    uint32_t cells_count;         /* flag cells, 64..65,536; default 2,048 */
    uint32_t rate_records_count;  /* per half, 1,024..1,048,576; default 65,536 */
};

/* Forgetting; 0 = never. */
struct spw_conf_retention {
    uint32_t addresses_days;
    uint32_t rows_days;
};

/* The share of placed orders that were placed on a fallback. */
struct spw_conf_alert {
    uint32_t share_ppm;     /* default 10,000 (1 %) */
    uint32_t minimum_count; /* default 50 */
    uint32_t window_ms;     /* default 3,600,000 */
};

/* Reconciliation of placed fallbacks with the provider, and filing. Amounts in minor units of the order's currency. */
struct spw_conf_reconcile {
    bool on;                     /* the section is there */
    uint32_t within_ms;          /* default 3,600,000 */
    int64_t absorb_under_minor;  /* of an order, default 50 */
    int64_t absorb_period_minor; /* of a day in UTC, default 25,000 */
    bool refund;                 /* over-collected tax goes to the customer; default false: to the state */
    bool file;                   /* default true */
};

/* What a peer of the control API may do, each including the ones before. */
enum spw_conf_role { SPW_CONF_READ, SPW_CONF_OPERATE, SPW_CONF_ADMIN };

/* The control API over mutual TLS. */
struct spw_conf_control_tls {
    char address[SPW_PATH_BYTES]; /* "" = none */
    char cert_file[SPW_PATH_BYTES];
    char key_file[SPW_PATH_BYTES];
    char client_ca_file[SPW_PATH_BYTES];
    uint32_t roles_count;
    struct {
        char name[SPW_PATH_BYTES / 2]; /* subject alternative name or common name */
        enum spw_conf_role role;
    } roles[SPW_CONF_ROLES_MAX_COUNT];
};

struct spw_conf_control_uid {
    uint32_t uid;
    enum spw_conf_role role;
};

#define SPW_CONF_STORE_FILE "/var/lib/spillway/flags.db" /* default */

struct spw_yaml_places;

struct spw_conf {
    struct spw_yaml_places *places; /* where each setting stood in the file; a copy has none */
    uint32_t accounts_count;
    struct spw_conf_account
        *accounts; /* room for SPW_CONF_ACCOUNTS_MAX_COUNT, or more; destroyed with the whole */
    struct spw_conf_fallback fallback;
    struct spw_conf_segment segment;
    /* doors */
    bool
        require_app_uid_differs; /* refuse quote-door peers that run as the sidecar's own uid; default false */
    char quote_listen[SPW_PATH_BYTES];   /* loopback "127.0.0.1:8390"; "" = Unix socket only */
    char admin_listen[SPW_PATH_BYTES];   /* metrics and health, default "0.0.0.0:9090" */
    char control_listen[SPW_PATH_BYTES]; /* gRPC on loopback TCP, read only; "" = Unix socket only */
    struct spw_conf_control_tls control_tls;
    uint32_t control_uids_count;
    struct spw_conf_control_uid control_uids[SPW_CONF_UIDS_MAX_COUNT];
    /* store */
    char store_file[SPW_PATH_BYTES]; /* default /var/lib/spillway/flags.db */
    enum spw_on_full on_full;        /* default hand-back */
    char spool_dir[SPW_PATH_BYTES];  /* "" = none */
    char sink_dir[SPW_PATH_BYTES];   /* "" = none */
    struct spw_conf_retention retention;
    uint32_t unplaced_after_ms; /* default 86,400,000 */
    struct spw_conf_alert alert;
    struct spw_conf_reconcile reconcile;
    /* process */
    char loop_backend[16]; /* "auto" (default), "io_uring", "epoll" */
    char log_level[16];    /* "debug", "info" (default), "warn", "error" */
    bool log_json;
    uint32_t drain_ms;  /* at SIGTERM, default 10,000 */
    uint32_t test_seed; /* where chance begins; 0 = random */
};

/* Read, walk and check the file. On failure *out is NULL and err names path, line and remedy. */
enum spw_status spw_conf_load(const char *path, struct spw_conf **out, struct spw_error *err) SPW_WARN_UNUSED;
/* The same without a look at what the file refers to: neither secrets nor rate files have to be there. */
enum spw_status spw_conf_load_alone(const char *path, struct spw_conf **out,
                                    struct spw_error *err) SPW_WARN_UNUSED;
/* As spw_conf_load_alone, with any number of accounts: for tools that look at more than one segment's worth. */
enum spw_status spw_conf_load_any(const char *path, struct spw_conf **out,
                                  struct spw_error *err) SPW_WARN_UNUSED;
/* The same for text in memory (tests, benchmarks); name stands for the file in errors. */
enum spw_status spw_conf_parse(const char *name, const char *text, size_t bytes, struct spw_conf **out,
                               struct spw_error *err) SPW_WARN_UNUSED;
void spw_conf_destroy(struct spw_conf *conf);

/* ---- reload ---- */
/* A copy of its own. NULL: no memory. */
struct spw_conf *spw_conf_copy(const struct spw_conf *conf);
/* Bring fresh's accounts and integrations into the order live has them in, what is new behind; what live alone has is
 * not looked at. Nothing of fresh changes its meaning but which integration is the first. */
void spw_conf_align(struct spw_conf *fresh, const struct spw_conf *live);
/* Lay over fresh, which was parsed from text alone, what is kept by hand in live. Both in one order. */
void spw_conf_keep(struct spw_conf *fresh, const struct spw_conf *live);
/* "accounts.main.url: ..." becomes "NAME:line:column: accounts.main.url: ...", by conf's places; what begins with no path
 * gets NAME alone. */
void spw_conf_locate(const struct spw_conf *conf, const char *name, struct spw_error *err);
/* live := fresh, at the addresses live has. fresh was aligned, and misses no account of live's. */
void spw_conf_take(struct spw_conf *live, const struct spw_conf *fresh);
/* The bytes of a secret without the line's end: how many of them there are; 0 when they cannot be sent as a credential
 * (nothing, a blank, a further line, a byte outside ASCII). The same rule at start and when a file changes. */
size_t spw_conf_secret_bytes(const char *bytes, size_t count);
#define SPW_CONF_SECRET_MAX_BYTES 1023u

/* Units as people write them; each is a pure function over NUL-terminated text, shared with spillwayctl and gRPC. */
enum spw_status spw_parse_rate(const char *text, struct spw_rate *out, struct spw_error *err) SPW_WARN_UNUSED;
enum spw_status spw_parse_duration_ms(const char *text, uint64_t *out_ms,
                                      struct spw_error *err) SPW_WARN_UNUSED;
enum spw_status spw_parse_percent_ppm(const char *text, uint32_t *out_ppm,
                                      struct spw_error *err) SPW_WARN_UNUSED;
enum spw_status spw_parse_rate_ppb(const char *text, uint32_t *out_ppb,
                                   struct spw_error *err) SPW_WARN_UNUSED;
enum spw_status spw_parse_date_day(const char *text, int32_t *out_day, struct spw_error *err) SPW_WARN_UNUSED;
/* The same way back; out is NUL-terminated, room at least 32 bytes. */
void spw_format_rate(const struct spw_rate *rate, char *out, size_t room);
void spw_format_minor(int64_t minor, char *out, size_t room);   /* "6.71", "-0.05" */
void spw_format_rate_ppb(uint32_t ppb, char *out, size_t room); /* "0.092", no trailing zeros */
void spw_format_day(int32_t day, char *out, size_t room);       /* "2025-11-01" */

/* Check one account's limit on its own: the same rules for file and gRPC. */
enum spw_status spw_conf_limit_check(const struct spw_conf_limit *limit,
                                     struct spw_error *err) SPW_WARN_UNUSED;
/* Set the burst of a leaky bucket or a window, which follows from the rest. Before the check, and after any change. */
void spw_conf_limit_complete(struct spw_conf_limit *limit);
enum spw_status spw_conf_breaker_check(const struct spw_conf_breaker *breaker,
                                       struct spw_error *err) SPW_WARN_UNUSED;

#endif
