/* conf_values.c: see conf_values.h. One table for the settings of an account, one for the rest. */
#include "sidecar/conf/conf_values.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { TEXT, COUNT, MS, DAYS, PPM, BOOL, WORD, OWN };

typedef void print_fn(FILE *out, const void *of); /* of: the account, or the whole */

struct row {
    const char *path;
    const char *fixed;
    enum kind kind;
    size_t at;
    const char *const *words;
    print_fn *print;
};

/* ---- why a restart ---- */

static const char of_client[] = "the account's connections are made for it at a start";
static const char of_provider[] = "it says whose books the account's calls go to";
static const char of_door[] = "a door is opened at a start";
static const char of_plan[] = "the segment is laid out for it at a start";
static const char of_store[] = "the ledger is opened at a start";
static const char of_list[] =
    "an account's list of limiters never changes in a segment: a restart makes a new one under running "
    "applications (mode: off switches one off in place)";
static const char of_uses[] =
    "integrations may be added behind those there are; to take one away or move it needs a restart";
static const char of_reconcile[] = "reconciliation is made at a start";
static const char of_refresh[] = "what is fetched is planned at a start";
static const char of_loop[] = "the loop is made at a start";
static const char of_account[] =
    "calls of an account may be under way: one is taken away at a start (limit.rate: 0/s stops its calls)";

/* ---- what the tables do not say by themselves ---- */

static void print_share(FILE *out, uint32_t ppm)
{
    fprintf(out, "%u", ppm / 10000);
    if (ppm % 10000) {
        char digits[8];
        snprintf(digits, sizeof digits, "%04u", ppm % 10000);
        for (int end = 3; digits[end] == '0'; end--)
            digits[end] = 0;
        fprintf(out, ".%s", digits);
    }
    fputc('%', out);
}

static void print_ms(FILE *out, uint32_t ms)
{
    static const struct {
        uint32_t ms;
        const char *unit;
    } UNITS[] = {{86400000, "d"}, {3600000, "h"}, {60000, "m"}, {1000, "s"}};
    for (size_t i = 0; i < sizeof UNITS / sizeof UNITS[0]; i++) {
        if (ms >= UNITS[i].ms && ms % UNITS[i].ms == 0) {
            fprintf(out, "%u%s", ms / UNITS[i].ms, UNITS[i].unit);
            return;
        }
    }
    fprintf(out, "%u%s", ms, ms ? "ms" : "s");
}

static void print_secret(FILE *out, const struct spw_conf_secret *secret)
{
    if (secret->file[0])
        fprintf(out, "file %s", secret->file);
    else if (secret->env[0])
        fprintf(out, "variable %s", secret->env);
}

static void print_key(FILE *out, const void *of)
{
    print_secret(out, &((const struct spw_conf_account *)of)->api_key);
}

static void print_user(FILE *out, const void *of)
{
    print_secret(out, &((const struct spw_conf_account *)of)->user);
}

static void print_proxy_credentials(FILE *out, const void *of)
{
    print_secret(out, &((const struct spw_conf_account *)of)->proxy_credentials);
}

static void print_routes(FILE *out, const void *of)
{
    const struct spw_conf_account *a = of;
    for (uint32_t i = 0; i < a->routes_count; i++)
        fprintf(out, "%s%s %s", i ? ", " : "", a->routes[i].method, a->routes[i].path);
}

static const char *const kind_words[] = {"bucket", "leaky", "window"};
static const char *const mode_words[] = {"enforce", "observe", "off"};

static const char *kind_word(enum spw_limiter_kind kind)
{
    return kind_words[kind == SPW_LIMITER_LEAKY ? 1 : kind == SPW_LIMITER_WINDOW ? 2 : 0];
}

static void print_rate(FILE *out, const struct spw_rate *rate)
{
    char text[48];
    spw_format_rate(rate, text, sizeof text);
    fputs(text, out);
}

static void print_limit_rate(FILE *out, const void *of)
{
    print_rate(out, &((const struct spw_conf_account *)of)->limit.rate);
}

static void print_burst(FILE *out, const void *of)
{
    fprintf(out, "%" PRIu64, ((const struct spw_conf_account *)of)->limit.burst_count);
}

static void print_limit_kind(FILE *out, const void *of)
{
    fputs(kind_word(((const struct spw_conf_account *)of)->limit.kind), out);
}

static void print_cooldown(FILE *out, const void *of)
{
    const struct spw_conf_breaker *b = &((const struct spw_conf_account *)of)->breaker;
    print_ms(out, b->cooldown_min_ms);
    fputs("..", out);
    print_ms(out, b->cooldown_max_ms);
}

static void print_names(FILE *out, const void *of)
{
    const struct spw_conf_account *a = of;
    for (uint32_t i = 0; i < a->limiters_count; i++)
        fprintf(out, "%s%s", i ? ", " : "", a->limiters[i].name);
}

static void print_nexus(FILE *out, const void *of)
{
    const struct spw_conf_fallback *f = &((const struct spw_conf *)of)->fallback;
    if (f->nexus_all)
        fputs("everywhere", out);
    for (uint32_t i = 0; i < f->nexus_count; i++)
        fprintf(out, "%s%.2s", i ? ", " : "", f->nexus[i]);
}

static void print_shipping_except(FILE *out, const void *of)
{
    const struct spw_conf_fallback *f = &((const struct spw_conf *)of)->fallback;
    for (uint32_t i = 0; i < f->shipping_except_count; i++)
        fprintf(out, "%s%.2s", i ? ", " : "", f->shipping_except[i]);
}

static void print_rates(FILE *out, const void *of)
{
    const struct spw_conf_fallback *f = &((const struct spw_conf *)of)->fallback;
    for (uint32_t i = 0; i < f->rate_files_count; i++) {
        char day[16];
        spw_format_day(f->rate_files[i].as_of_day, day, sizeof day);
        fprintf(out, "%s%s of %s from %s", i ? ", " : "", f->rate_files[i].file, day,
                f->rate_files[i].source);
    }
}

static void print_refreshes(FILE *out, const void *of)
{
    const struct spw_conf_fallback *f = &((const struct spw_conf *)of)->fallback;
    for (uint32_t i = 0; i < f->refreshes_count; i++) {
        fprintf(out, "%s%s every ", i ? ", " : "", f->refreshes[i].account);
        print_ms(out, f->refreshes[i].every_s * 1000);
        fputs(" if it has ", out);
        print_share(out, f->refreshes[i].least_rows_ppm);
        fputs(" of the rows", out);
    }
}

static void print_default_rate(FILE *out, const void *of)
{
    char text[24];
    spw_format_rate_ppb(((const struct spw_conf *)of)->fallback.default_rate_ppb, text, sizeof text);
    fputs(text, out);
}

static const char *const rule_words[] = {"general", "exempt", "learned", "refuse"};

static void print_tax_codes(FILE *out, const void *of)
{
    const struct spw_conf_fallback *f = &((const struct spw_conf *)of)->fallback;
    fprintf(out, "default: %s", rule_words[f->tax_rule_default]);
    for (uint32_t i = 0; i < f->tax_codes_count; i++)
        fprintf(out, ", %s: %s", f->tax_codes[i].code, rule_words[f->tax_codes[i].rule]);
}

static void print_gid(FILE *out, const void *of)
{
    uint32_t gid = ((const struct spw_conf *)of)->segment.gid;
    if (gid == UINT32_MAX)
        fputs("the sidecar's own", out);
    else
        fprintf(out, "%u", gid);
}

static const char *const role_words[] = {"read", "operate", "admin"};

static void print_tls_roles(FILE *out, const void *of)
{
    const struct spw_conf_control_tls *tls = &((const struct spw_conf *)of)->control_tls;
    for (uint32_t i = 0; i < tls->roles_count; i++)
        fprintf(out, "%s%s: %s", i ? ", " : "", tls->roles[i].name, role_words[tls->roles[i].role]);
}

static void print_uids(FILE *out, const void *of)
{
    const struct spw_conf *conf = of;
    for (uint32_t i = 0; i < conf->control_uids_count; i++)
        fprintf(out, "%s%u: %s", i ? ", " : "", conf->control_uids[i].uid,
                role_words[conf->control_uids[i].role]);
}

static void print_log_format(FILE *out, const void *of)
{
    fputs(((const struct spw_conf *)of)->log_json ? "json" : "text", out);
}

static void print_cap(FILE *out, int64_t minor, const char *unit)
{
    char text[32];
    spw_format_minor(minor, text, sizeof text);
    fprintf(out, "%s/%s", text, unit);
}

static void print_absorb_under(FILE *out, const void *of)
{
    print_cap(out, ((const struct spw_conf *)of)->reconcile.absorb_under_minor, "order");
}

static void print_absorb_period(FILE *out, const void *of)
{
    print_cap(out, ((const struct spw_conf *)of)->reconcile.absorb_period_minor, "day");
}

static void print_over_collected(FILE *out, const void *of)
{
    fputs(((const struct spw_conf *)of)->reconcile.refund ? "refund" : "remit", out);
}

static void print_filing(FILE *out, const void *of)
{
    fputs(((const struct spw_conf *)of)->reconcile.file ? "on" : "off", out);
}

/* ---- the tables ---- */

static const char *const reset_words[] = {"auto", "delta_s", "delta_ms", "epoch_s", "epoch_ms"};
static const char *const jitter_words[] = {"proportional", "full", "equal", "none"};
static const char *const breaker_words[] = {"enforce", "observe", "disabled"};
static const char *const no_rate_words[] = {"block", "state_average", "default_rate"};
static const char *const rounding_words[] = {"half-up/line", "half-up/order"};
static const char *const several_words[] = {"highest", "lowest", "first"};
static const char *const full_words[] = {"hand-back", "deny"};

#define ACCOUNT(path, fixed, kind, field)                                                                    \
    {                                                                                                        \
        path, fixed, kind, offsetof(struct spw_conf_account, field), NULL, NULL                              \
    }
#define ACCOUNT_WORD(path, fixed, field, words)                                                              \
    {                                                                                                        \
        path, fixed, WORD, offsetof(struct spw_conf_account, field), words, NULL                             \
    }
#define OWN_PRINT(path, fixed, print)                                                                        \
    {                                                                                                        \
        path, fixed, OWN, 0, NULL, print                                                                     \
    }

static const struct row account_rows[] = {
    ACCOUNT("provider", of_provider, TEXT, provider),
    ACCOUNT("url", of_provider, TEXT, url),
    ACCOUNT("allow_plain_http", of_client, BOOL, allow_plain_http),
    ACCOUNT("ca_file", of_client, TEXT, ca_file),
    ACCOUNT("connection", of_provider, TEXT, connection),
    ACCOUNT("company", of_provider, TEXT, company),
    OWN_PRINT("credentials.api_key", NULL, print_key),
    OWN_PRINT("credentials.username", NULL, print_user),
    ACCOUNT("credential_header", of_provider, TEXT, credential_header),
    OWN_PRINT("routes", of_provider, print_routes),
    ACCOUNT_WORD("rate_headers.reset_unit", NULL, reset_unit, reset_words),
    OWN_PRINT("limit.rate", NULL, print_limit_rate),
    OWN_PRINT("limit.burst", NULL, print_burst),
    ACCOUNT("limit.pods", NULL, COUNT, limit.pods_count),
    OWN_PRINT("limit.kind", NULL, print_limit_kind),
    ACCOUNT_WORD("limit.mode", NULL, limit_mode, mode_words),
    ACCOUNT("limit.adopt_lower", NULL, BOOL, adopt_lower),
    OWN_PRINT("limiters", of_list, print_names),
    ACCOUNT("concurrency", NULL, COUNT, concurrency_count),
    ACCOUNT("concurrency_per_process", NULL, COUNT, concurrency_per_process_count),
    ACCOUNT("retry.first", NULL, MS, retry.base_ms),
    ACCOUNT("retry.longest", NULL, MS, retry.most_ms),
    ACCOUNT_WORD("retry.jitter", NULL, retry.jitter, jitter_words),
    ACCOUNT("header_buffer", NULL, PPM, header_buffer_ppm),
    ACCOUNT("batch_reserve", NULL, PPM, batch_reserve_ppm),
    ACCOUNT("deadline", NULL, MS, deadline_ms),
    ACCOUNT("reuse", NULL, MS, reuse_ms),
    ACCOUNT("wait", NULL, MS, wait_ms),
    ACCOUNT("listen", of_door, TEXT, listen),
    ACCOUNT("token_file", of_door, TEXT, token_file),
    ACCOUNT("allow_force", NULL, BOOL, allow_force),
    ACCOUNT("connections", of_client, COUNT, connections_count),
    ACCOUNT("proxy", of_client, TEXT, proxy),
    OWN_PRINT("proxy_credentials", of_client, print_proxy_credentials),
    ACCOUNT("breaker.consecutive_429", NULL, COUNT, breaker.consecutive_429_count),
    ACCOUNT("breaker.ratio_429", NULL, PPM, breaker.ratio_429_ppm),
    ACCOUNT("breaker.minimum", NULL, COUNT, breaker.minimum_count),
    ACCOUNT("breaker.window", NULL, MS, breaker.window_ms),
    OWN_PRINT("breaker.cooldown", NULL, print_cooldown),
    ACCOUNT_WORD("breaker.mode", NULL, breaker.mode, breaker_words),
};

#define WHOLE(path, fixed, kind, field)                                                                      \
    {                                                                                                        \
        path, fixed, kind, offsetof(struct spw_conf, field), NULL, NULL                                      \
    }
#define WHOLE_WORD(path, fixed, field, words)                                                                \
    {                                                                                                        \
        path, fixed, WORD, offsetof(struct spw_conf, field), words, NULL                                     \
    }

static const struct row whole_rows[] = {
    OWN_PRINT("fallback.nexus", NULL, print_nexus),
    OWN_PRINT("fallback.rates", NULL, print_rates),
    WHOLE("fallback.rates_dir", NULL, TEXT, fallback.rates_dir),
    OWN_PRINT("fallback.refresh", of_refresh, print_refreshes),
    WHOLE("fallback.bad_rows", NULL, PPM, fallback.bad_rows_max_ppm),
    WHOLE_WORD("fallback.several_rates", NULL, fallback.several, several_words),
    WHOLE("fallback.max_age.warn", NULL, DAYS, fallback.max_age_warn_days),
    WHOLE("fallback.max_age.refuse", NULL, DAYS, fallback.max_age_refuse_days),
    WHOLE_WORD("fallback.on_no_rate", NULL, fallback.on_no_rate, no_rate_words),
    OWN_PRINT("fallback.default_rate", NULL, print_default_rate),
    OWN_PRINT("fallback.tax_codes", NULL, print_tax_codes),
    WHOLE_WORD("fallback.rounding", NULL, fallback.rounding, rounding_words),
    WHOLE("fallback.shipping_taxable", NULL, BOOL, fallback.shipping_taxable),
    OWN_PRINT("fallback.shipping_taxable_in", NULL, print_shipping_except),
    WHOLE("fallback.alert.share", NULL, PPM, alert.share_ppm),
    WHOLE("fallback.alert.minimum", NULL, COUNT, alert.minimum_count),
    WHOLE("fallback.alert.window", NULL, MS, alert.window_ms),
    WHOLE("segment.pub_dir", of_plan, TEXT, segment.pub_dir),
    WHOLE("segment.rw_dir", of_plan, TEXT, segment.rw_dir),
    OWN_PRINT("segment.gid", of_plan, print_gid),
    WHOLE("segment.slots", of_plan, COUNT, segment.slots_count),
    WHOLE("segment.cells", of_plan, COUNT, segment.cells_count),
    WHOLE("segment.rate_records", of_plan, COUNT, segment.rate_records_count),
    WHOLE("listen.quote", of_door, TEXT, quote_listen),
    WHOLE("listen.admin", of_door, TEXT, admin_listen),
    WHOLE("listen.control", of_door, TEXT, control_listen),
    WHOLE("listen.control_tls.address", of_door, TEXT, control_tls.address),
    WHOLE("listen.control_tls.cert_file", of_door, TEXT, control_tls.cert_file),
    WHOLE("listen.control_tls.key_file", of_door, TEXT, control_tls.key_file),
    WHOLE("listen.control_tls.client_ca_file", of_door, TEXT, control_tls.client_ca_file),
    OWN_PRINT("listen.control_tls.roles", of_door, print_tls_roles),
    OWN_PRINT("listen.control_uids", of_door, print_uids),
    WHOLE("listen.require_app_uid_differs", of_door, BOOL, require_app_uid_differs),
    WHOLE("store.file", of_store, TEXT, store_file),
    WHOLE_WORD("store.on_full", NULL, on_full, full_words),
    WHOLE("store.spool_dir", of_store, TEXT, spool_dir),
    WHOLE("store.sink.file", NULL, TEXT, sink_dir),
    WHOLE("store.retention.addresses", NULL, DAYS, retention.addresses_days),
    WHOLE("store.retention.rows", NULL, DAYS, retention.rows_days),
    WHOLE("store.unplaced_after", NULL, MS, unplaced_after_ms),
    WHOLE("loop.backend", of_loop, TEXT, loop_backend),
    WHOLE("log.level", NULL, TEXT, log_level),
    OWN_PRINT("log.format", NULL, print_log_format),
    WHOLE("reconcile.within", of_reconcile, MS, reconcile.within_ms),
    OWN_PRINT("reconcile.absorb_under", of_reconcile, print_absorb_under),
    OWN_PRINT("reconcile.absorb_period", of_reconcile, print_absorb_period),
    OWN_PRINT("reconcile.over_collected", of_reconcile, print_over_collected),
    OWN_PRINT("reconcile.filing", of_reconcile, print_filing),
    WHOLE("drain", NULL, MS, drain_ms),
    WHOLE("test.seed", of_loop, COUNT, test_seed),
};

/* ---- making the list ---- */

static void print_field(FILE *out, const struct row *row, const void *of)
{
    const void *field = (const char *)of + row->at;
    uint32_t number = 0;
    if (row->kind == COUNT || row->kind == MS || row->kind == DAYS || row->kind == PPM || row->kind == WORD)
        memcpy(&number, field, sizeof number);
    switch (row->kind) {
    case TEXT:
        fputs(field, out);
        break;
    case COUNT:
        fprintf(out, "%u", number);
        break;
    case MS:
        print_ms(out, number);
        break;
    case DAYS:
        if (number)
            fprintf(out, "%ud", number);
        else
            fputs("never", out);
        break;
    case PPM:
        print_share(out, number);
        break;
    case BOOL:
        fputs(*(const bool *)field ? "true" : "false", out);
        break;
    case WORD:
        fputs(row->words[number], out);
        break;
    case OWN:
        row->print(out, of);
        break;
    }
}

static struct spw_conf_value *next_value(struct spw_conf_values *values)
{
    if (values->count == values->room_count) {
        size_t room = values->room_count ? 2 * values->room_count : 128;
        struct spw_conf_value *list = realloc(values->list, room * sizeof *list);
        if (!list)
            return NULL;
        values->list = list;
        values->room_count = room;
    }
    struct spw_conf_value *value = &values->list[values->count];
    *value = (struct spw_conf_value){0};
    return value;
}

static bool add(struct spw_conf_values *values, const char *base, const struct row *row, const void *of)
{
    struct spw_conf_value *value = next_value(values);
    if (!value)
        return false;
    values->count++;
    size_t bytes = 0, path_bytes = strlen(base) + strlen(row->path) + 2;
    value->path = malloc(path_bytes);
    FILE *out = open_memstream(&value->text, &bytes);
    if (!value->path || !out) {
        if (out)
            fclose(out);
        return false;
    }
    snprintf(value->path, path_bytes, "%s%s%s", base, base[0] ? "." : "", row->path);
    value->fixed = row->fixed;
    print_field(out, row, of);
    return fclose(out) == 0 && value->text;
}

/* ---- limiters and integrations, one entry each ---- */

static void print_class(FILE *out, const void *of)
{
    fputs(((const struct spw_conf_integration *)of)->class_ == SPW_CLASS_BATCH ? "batch" : "checkout", out);
}

struct limiter_of {
    const struct spw_conf_account *account;
    const struct spw_conf_limiter *limiter;
};

static void print_limiter(FILE *out, const void *of)
{
    static const char *const endpoint_words[SPW_ENDPOINTS_COUNT] = {"calculate", "record", "other"};
    const struct limiter_of *l = of;
    print_rate(out, &l->limiter->limit.rate);
    fprintf(out, ", burst %" PRIu64 ", %s, %s", l->limiter->limit.burst_count,
            kind_word(l->limiter->limit.kind), mode_words[l->limiter->mode]);
    for (uint32_t i = 0; i < SPW_ENDPOINTS_COUNT; i++)
        if (l->limiter->endpoints >> i & 1)
            fprintf(out, ", %s", endpoint_words[i]);
    for (uint32_t i = 0; l->limiter->integrations != UINT64_MAX && i < l->account->integrations_count; i++)
        if (l->limiter->integrations >> i & 1)
            fprintf(out, ", of %s", l->account->integrations[i].name);
}

static bool add_account(struct spw_conf_values *values, const struct spw_conf_account *account)
{
    char base[SPW_NAME_BYTES + 16], path[SPW_NAME_BYTES + 16];
    bool ok = true;
    snprintf(base, sizeof base, "accounts.%s", account->name);
    for (size_t i = 0; ok && i < sizeof account_rows / sizeof account_rows[0]; i++)
        ok = add(values, base, &account_rows[i], account);
    for (uint32_t i = 0; ok && i < account->integrations_count; i++) {
        snprintf(path, sizeof path, "integrations.%s", account->integrations[i].name);
        const struct row row = OWN_PRINT(path, NULL, print_class);
        ok = add(values, base, &row, &account->integrations[i]);
    }
    for (uint32_t i = 0; ok && i < account->limiters_count; i++) {
        snprintf(path, sizeof path, "limiters.%s", account->limiters[i].name);
        const struct row row = OWN_PRINT(path, NULL, print_limiter);
        const struct limiter_of one = {account, &account->limiters[i]};
        ok = add(values, base, &row, &one);
    }
    return ok;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct spw_conf_value *)a)->path, ((const struct spw_conf_value *)b)->path);
}

enum spw_status spw_conf_values_make(const struct spw_conf *conf, struct spw_conf_values *out,
                                     struct spw_error *err)
{
    bool ok = true;
    *out = (struct spw_conf_values){0};
    for (uint32_t i = 0; ok && i < conf->accounts_count; i++)
        ok = add_account(out, &conf->accounts[i]);
    for (size_t i = 0; ok && i < sizeof whole_rows / sizeof whole_rows[0]; i++)
        ok = add(out, "", &whole_rows[i], conf);
    if (!ok) {
        spw_conf_values_clean_up(out);
        return spw_error_set(err, SPW_STATUS_NO_MEMORY,
                             "configuration: no memory to compare it: raise the container's memory limit");
    }
    qsort(out->list, out->count, sizeof out->list[0], by_path);
    return SPW_STATUS_OK;
}

void spw_conf_values_clean_up(struct spw_conf_values *values)
{
    for (size_t i = 0; i < values->count; i++) {
        free(values->list[i].path);
        free(values->list[i].text);
    }
    free(values->list);
    *values = (struct spw_conf_values){0};
}

const struct spw_conf_value *spw_conf_values_find(const struct spw_conf_values *values, const char *path)
{
    const struct spw_conf_value key = {.path = (char *)(uintptr_t)path};
    return values->count ? bsearch(&key, values->list, values->count, sizeof values->list[0], by_path) : NULL;
}

/* ---- differences ---- */

static bool has_account(const struct spw_conf_values *values, const char *account)
{
    char path[SPW_NAME_BYTES + 32];
    snprintf(path, sizeof path, "%s.provider", account);
    return spw_conf_values_find(values, path) != NULL;
}

/* "accounts.main" of "accounts.main.url" (names may hold dots: they are told by what the list itself has), or "". */
static void account_of(const struct spw_conf_values *values, const char *path, char *out, size_t room)
{
    out[0] = 0;
    if (strncmp(path, "accounts.", 9) != 0)
        return;
    for (const char *dot = strchr(path + 9, '.'); dot; dot = strchr(dot + 1, '.')) {
        snprintf(out, room, "%.*s", (int)(dot - path), path);
        if (has_account(values, out))
            return;
    }
    out[0] = 0;
}

/* A setting that only `mine` has: of a whole account, told once, at its provider; or an integration or a limiter. */
static void tell_lone(const struct spw_conf_values *mine, const struct spw_conf_values *other,
                      const struct spw_conf_value *value, bool added, spw_conf_change_fn *fn, void *owner)
{
    char account[SPW_NAME_BYTES + 32];
    account_of(mine, value->path, account, sizeof account);
    bool whole = account[0] && !has_account(other, account);
    if (whole && strcmp(value->path + strlen(account), ".provider") != 0)
        return;
    bool integration =
        !whole && account[0] && strncmp(value->path + strlen(account), ".integrations.", 14) == 0;
    struct spw_conf_change change = {.path = whole ? account : value->path,
                                     .before = added ? "" : value->text,
                                     .after = added ? value->text : ""};
    if (!added)
        change.fixed = whole ? of_account : integration ? of_uses : of_list;
    else if (!whole && !integration)
        change.fixed = of_list;
    fn(owner, &change);
}

void spw_conf_values_diff(const struct spw_conf_values *before, const struct spw_conf_values *after,
                          spw_conf_change_fn *fn, void *owner)
{
    size_t b = 0, a = 0;
    while (b < before->count || a < after->count) {
        int order = b == before->count  ? 1
                    : a == after->count ? -1
                                        : by_path(&before->list[b], &after->list[a]);
        if (order < 0) {
            tell_lone(before, after, &before->list[b++], false, fn, owner);
            continue;
        }
        if (order > 0) {
            tell_lone(after, before, &after->list[a++], true, fn, owner);
            continue;
        }
        if (strcmp(before->list[b].text, after->list[a].text) != 0) {
            const struct spw_conf_change change = {.path = after->list[a].path,
                                                   .before = before->list[b].text,
                                                   .after = after->list[a].text,
                                                   .fixed = after->list[a].fixed};
            fn(owner, &change);
        }
        a++;
        b++;
    }
}
