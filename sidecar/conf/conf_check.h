/* conf_check.h: from the walked message to struct spw_conf, field by field.
 *
 * Owns: the rules of ranges and of fields that depend on one another. Called by: conf.c. Thread: any; pure but for
 * the files and variables a configuration refers to, which are looked at only when asked.
 */
#ifndef SPW_CONF_CONF_CHECK_H
#define SPW_CONF_CONF_CHECK_H

#include <stdarg.h>
#include <stdbool.h>

#include "proto/spillway/v1/config.pb-c.h"
#include "sidecar/conf/conf.h"
#include "sidecar/conf/conf_yaml.h"

struct spw_check {
    const char *name; /* of the file, for errors */
    const struct spw_yaml_places *places;
    bool references;                /* also look at the files and variables the configuration names */
    bool any_count;                 /* more accounts than one segment holds are welcome */
    char base[SPW_CONF_PATH_BYTES]; /* the message being checked: "accounts.main" */
    struct spw_error *err;
};

/* The whole: conf.c calls this once. */
enum spw_status spw_check_config(struct spw_check *c, const Spillway__V1__Config *in,
                                 struct spw_conf *out) SPW_WARN_UNUSED;
enum spw_status spw_check_account(struct spw_check *c, const char *name,
                                  const Spillway__V1__AccountConfig *in,
                                  struct spw_conf_account *out) SPW_WARN_UNUSED;
enum spw_status spw_check_fallback(struct spw_check *c, const Spillway__V1__FallbackConfig *in,
                                   struct spw_conf_fallback *out) SPW_WARN_UNUSED;

/* conf_refresh.c: after accounts and fallback. */
enum spw_status spw_check_refreshes(struct spw_check *c, const Spillway__V1__FallbackConfig *in,
                                    struct spw_conf *out) SPW_WARN_UNUSED;

/* Refuse a field of the message being checked ("" = the message itself): place, path, then the text. */
enum spw_status spw_check_fault(struct spw_check *c, const char *field, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same for an error somebody else has put into words. */
enum spw_status spw_check_place(struct spw_check *c, const char *field, enum spw_status status);

/* Each takes the field's value (NULL = absent: out keeps its default) and leaves out untouched on failure. */
enum spw_status spw_check_text(struct spw_check *c, const char *field, const char *text, char *out,
                               size_t room) SPW_WARN_UNUSED;
/* Letters, digits, '.', '_', '-': what may appear in paths, metrics and flags without quoting. */
enum spw_status spw_check_name(struct spw_check *c, const char *field, const char *text, char *out,
                               size_t room) SPW_WARN_UNUSED;
enum spw_status spw_check_path(struct spw_check *c, const char *field, const char *text, char *out,
                               size_t room) SPW_WARN_UNUSED;
/* A file to be read: readable, regular, not empty. Looked at only with c->references. */
enum spw_status spw_check_readable(struct spw_check *c, const char *field, const char *path) SPW_WARN_UNUSED;
/* The same, and there is one of the kind in it: "CERTIFICATE", "PRIVATE KEY". Whether it is good is for who uses it. */
enum spw_status spw_check_pem(struct spw_check *c, const char *field, const char *path,
                              const char *kind) SPW_WARN_UNUSED;
enum spw_status spw_check_count(struct spw_check *c, const char *field, bool has, uint32_t value,
                                uint32_t least, uint32_t most, uint32_t *out) SPW_WARN_UNUSED;
enum spw_status spw_check_duration(struct spw_check *c, const char *field, const char *text,
                                   uint32_t least_ms, uint32_t most_ms, uint32_t *out_ms) SPW_WARN_UNUSED;
enum spw_status spw_check_percent(struct spw_check *c, const char *field, const char *text, uint32_t most_ppm,
                                  uint32_t *out_ppm) SPW_WARN_UNUSED;

/* Whole days, 1d to 3650d. */
enum spw_status spw_check_days(struct spw_check *c, const char *field, const char *text,
                               uint32_t *out_days) SPW_WARN_UNUSED;
/* conf_store.c */
enum spw_status spw_check_store(struct spw_check *c, const Spillway__V1__StoreConfig *in,
                                struct spw_conf *out) SPW_WARN_UNUSED;
enum spw_status spw_check_alert(struct spw_check *c, const Spillway__V1__AlertConfig *in,
                                struct spw_conf_alert *out) SPW_WARN_UNUSED;
/* conf_reconcile.c */
enum spw_status spw_check_reconcile(struct spw_check *c, const Spillway__V1__ReconcileConfig *in,
                                    struct spw_conf_reconcile *out) SPW_WARN_UNUSED;
/* conf_limiters.c: the account's own limit; then, when its integrations are known, the limiters beside it. */
enum spw_status spw_check_limit(struct spw_check *c, const Spillway__V1__LimitConfig *in,
                                struct spw_conf_account *out) SPW_WARN_UNUSED;
enum spw_status spw_check_limiters(struct spw_check *c, const Spillway__V1__AccountConfig *in,
                                   struct spw_conf_account *out) SPW_WARN_UNUSED;
/* conf_calls.c: how an account's calls are made and its own door. The defaults are set here too. */
enum spw_status spw_check_calls(struct spw_check *c, const Spillway__V1__AccountConfig *in,
                                struct spw_conf_account *out) SPW_WARN_UNUSED;
/* host[:port] with nothing after it; a v6 address stands in brackets. */
bool spw_is_authority(const char *text);

struct spw_listen_address {
    bool is_loopback;
    uint16_t port; /* 0 = no door */
};
/* "address:port" with a numeric address; out is SPW_PATH_BYTES. */
enum spw_status spw_check_listen(struct spw_check *c, const char *field, const char *text, bool loopback_only,
                                 char *out, struct spw_listen_address *address) SPW_WARN_UNUSED;
bool spw_listen_read(const char *text, struct spw_listen_address *out);

/* conf_limit.c: the rules shared with the control API; *field names the field at fault. */
enum spw_status spw_limit_check(const struct spw_conf_limit *limit, const char **field,
                                struct spw_error *err);
enum spw_status spw_breaker_check(const struct spw_conf_breaker *breaker, const char **field,
                                  struct spw_error *err);
/* One second's worth of the rate, at least 1; 0 for 0/s. */
uint64_t spw_limit_default_burst(const struct spw_rate *rate);
/* What is wrong with the rate, or NULL (conf_units.c). */
const char *spw_rate_fault(const struct spw_rate *rate);

/* listen.control_tls and control_uids. tls: where it listens, port 0 = nowhere. */
enum spw_status spw_check_control(struct spw_check *c, const Spillway__V1__ListenConfig *in,
                                  struct spw_conf *out, struct spw_listen_address *tls);

#endif
