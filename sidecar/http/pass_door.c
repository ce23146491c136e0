/* pass_door.c: the pass-through doors: who may ask, what is asked, and the way it takes. See pass_door.h.
 *
 * A calculation that can be told as a quote goes through the decision tree with its own bytes as the call; everything
 * else is passed on when a token is to be had. Nothing reaches the provider but allowed methods and paths, checked
 * after one decoding and sent as checked.
 */
#include "sidecar/http/pass_door.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>

#include "shm/spw_text.h"
#include "sidecar/http/pass_internal.h"
#include "sidecar/obs/log.h"
#include "sidecar/obs/zeroed.h"
#include "sidecar/provider/wire.h"

#define CONNECTIONS_MAX 512u
#define DOCUMENTS_BYTES (4u << 20) /* some thousands; older ones are looked up in the ledger */
#define BODY_MAX_BYTES  (1u << 20) /* a transaction of a thousand lines is some hundred KiB */
#define TOKEN_MAX_BYTES 1100u

void spw_passing_free(struct spw_passing *p)
{
    if (p->has_quote)
        spw_native_quote_clean_up(&p->quote);
    free(p->path);
    free(p);
}

static void finish(struct spw_passing *p)
{
    spw_door_set_user(p->request, NULL);
    spw_passing_free(p);
}

/* ---- calculations ---- */

/* A calculation that is a sale as well: an order in the ledger, live or not. */
static void record_sale(struct spw_passing *p, const struct spw_result *r)
{
    const char *order = p->quote.document[0] ? p->quote.document : r->quote_id;
    if (p->quote.records && !spw_pass_order(p, r->quote_id, order, r->tax_minor))
        spw_log(SPW_LOG_ERROR, "orders.no_cell",
                "account %s: no cell is free: the order of quote %s is not in the ledger; place it by "
                "/spillway/v1/orders",
                p->account->conf->name, r->quote_id);
}

static void decided(void *owner, const struct spw_result *r)
{
    struct spw_passing *p = owner;
    bool fallback = r->decision == SPW_DECISION_FALLBACK;
    if (fallback || r->decision == SPW_DECISION_LIVE) {
        record_sale(p, r);
        spw_pass_remember(p, p->quote.document, r);
        spw_pass_remember(p, r->quote_id, r);
    }
    if (fallback)
        spw_pass_answer_fallback(p, r);
    else if (r->native)
        spw_pass_answer_live(p, r->native, r);
    else
        spw_pass_answer_error(
            p->account, p->request, 503, 0,
            "The provider gives no answer now, and no tax rate is known for this destination: "
            "no tax can be stated.");
    finish(p);
}

static void answer_fault(struct spw_passing *p, const struct spw_error *err)
{
    uint32_t status = err->status == SPW_STATUS_REFUSED     ? 403
                      : err->status == SPW_STATUS_NO_MEMORY ? 503
                                                            : 400;
    spw_pass_answer_error(p->account, p->request, status, 0, err->text);
    finish(p);
}

/* What makes a request of an SDK the same request again: its idempotency key, or the document of a sale. */
static const char *decision_id(const struct spw_passing *p)
{
    const char *key = spw_door_header(p->request, "Idempotency-Key");
    if (key && key[0] && strlen(key) < SPW_CALLER_ID_BYTES && spw_text_is_name(key))
        return key;
    return p->quote.records && p->quote.document[0] ? p->quote.document : NULL;
}

static void calculate(struct spw_passing *p)
{
    struct spw_error err;
    struct spw_job *job = NULL;
    struct spw_door_request *request = p->request;
    struct spw_quote_request *q = &p->quote.quote;
    struct spw_ask ask = {.quote = q, .native = &p->native, .records = p->quote.records, .uid = UINT32_MAX};
    q->account = p->account->conf->name;
    q->integration = p->integration;
    q->decision_id = decision_id(p);
    if (!q->quote_ref && p->quote.document[0])
        q->quote_ref = p->quote.document;
    if (p->quote.records)
        q->purpose = SPW_PURPOSE_ORDER;
    enum spw_status status = spw_force_read(spw_door_header(request, "Spillway-Force"), &ask.force, &err);
    if (status == SPW_STATUS_OK)
        status = spw_decider_start(p->account->doors->options.decider, &ask, decided, p, &job, &err);
    if (status != SPW_STATUS_OK)
        answer_fault(p, &err);
    else if (spw_door_user(request) == p)
        p->job = job; /* still in progress */
}

/* ---- everything else ---- */

static void answer_refused(struct spw_passing *p, const struct spw_pass_result *r)
{
    char message[160];
    uint64_t wait_s = (r->wait_ms + 999) / 1000;
    snprintf(message, sizeof message, "Not sent to the provider: %s. Try again later.",
             spw_cause_name(r->cause));
    spw_pass_answer_error(p->account, p->request, 429, wait_s ? wait_s : 1, message);
}

static void answer_failed(struct spw_passing *p, const struct spw_pass_result *r)
{
    bool timeout = r->response && r->response->outcome == SPW_HTTP_TIMEOUT;
    bool connect = !r->response || r->response->outcome == SPW_HTTP_CONNECT;
    spw_pass_answer_error(
        p->account, p->request, timeout ? 504 : 502, 0,
        connect ? "The provider cannot be reached; nothing was sent."
                : "The provider gave no whole answer: what became of the request is not known.");
}

/* The document was a fallback: the sale is an order in the ledger. */
static void record(struct spw_passing *p, const struct spw_result *fallback)
{
    char order[SPW_CALLER_ID_BYTES];
    const struct spw_profile *profile = p->account->profile;
    if (p->native.route->kind == SPW_ROUTE_REFUND) {
        spw_pass_answer_error(
            p->account, p->request, 429, 3600,
            "The sale was calculated from cached rates and is not in the provider's books yet: "
            "refund it when reconciliation has filed it.");
        return;
    }
    if (!profile->native_order || !profile->native_order(&p->native, order))
        snprintf(order, sizeof order, "%s", p->document);
    if (spw_pass_order(p, fallback->quote_id, order, fallback->tax_minor))
        spw_pass_answer_recorded(p, fallback);
    else
        spw_pass_answer_error(p->account, p->request, 429, 1,
                              "No place is free to record the order: send it again.");
}

/* Might the provider have refused this because it does not know the document? */
static bool is_unknown_there(const struct spw_pass_result *r)
{
    uint32_t status = r->end == SPW_PASS_ANSWERED ? r->response->status : 0;
    return status == 400 || status == 404 || status == 409 || status == 410 || status == 422;
}

/* A record that the provider took: the order of the quote it names by its document or by Spillway-Quote. */
static void place(struct spw_passing *p, const struct spw_pass_result *r)
{
    char order[SPW_CALLER_ID_BYTES];
    struct spw_result known;
    struct spw_line_tax *lines;
    const struct spw_profile *profile = p->account->profile;
    bool taken = r->response->status >= 200 && r->response->status < 300;
    if (!taken || p->native.route->kind != SPW_ROUTE_RECORD || !p->document[0] ||
        !(lines = calloc(SPW_LINES_MAX_COUNT + 1, sizeof *lines)))
        return;
    if (!profile->native_order || !profile->native_order(&p->native, order))
        snprintf(order, sizeof order, "%s", p->document);
    const char *quote = spw_door_header(p->request, "Spillway-Quote");
    if (quote && strlen(quote) < SPW_ID_BYTES && strncmp(quote, "sq_", 3) == 0)
        snprintf(p->document, sizeof p->document, "%s", quote);
    if (spw_pass_look_up(p, &known, lines) != SPW_PASS_DOCUMENT_UNKNOWN)
        (void)spw_pass_order(p, known.quote_id, order, known.tax_minor);
    free(lines);
}

static void passed(void *owner, const struct spw_pass_result *r)
{
    struct spw_passing *p = owner;
    struct spw_result known;
    struct spw_line_tax *lines = NULL;
    p->pass = NULL;
    if (p->document[0] && is_unknown_there(r) && (lines = calloc(SPW_LINES_MAX_COUNT + 1, sizeof *lines)) &&
        spw_pass_look_up(p, &known, lines) == SPW_PASS_DOCUMENT_PERHAPS) {
        record(p, &known);
    } else if (r->end == SPW_PASS_ANSWERED && r->kind != SPW_ANSWER_BROKEN) {
        place(p, r);
        spw_pass_answer_live(p, r->response, NULL);
    } else if (r->end == SPW_PASS_REFUSED) {
        answer_refused(p, r);
    } else {
        answer_failed(p, r);
    }
    free(lines);
    finish(p);
}

/* Is it about a document that only this ledger knows? Then it has its answer. */
static bool is_recorded_here(struct spw_passing *p)
{
    enum spw_route_kind kind = p->native.route->kind;
    const struct spw_profile *profile = p->account->profile;
    if ((kind != SPW_ROUTE_RECORD && kind != SPW_ROUTE_REFUND) || !profile->native_document ||
        !profile->native_document(&p->native, p->document)) {
        p->document[0] = 0;
        return false;
    }
    if (spw_pass_is_whole(&p->native))
        return false;
    struct spw_result known;
    struct spw_line_tax *lines = calloc(SPW_LINES_MAX_COUNT + 1, sizeof *lines);
    bool here = lines && spw_pass_look_up(p, &known, lines) == SPW_PASS_DOCUMENT_FALLBACK;
    if (here) {
        record(p, &known);
        finish(p);
    }
    free(lines);
    return here;
}

static void pass(struct spw_passing *p)
{
    struct spw_error err;
    struct spw_pass *started = NULL;
    struct spw_door_request *request = p->request;
    if (is_recorded_here(p))
        return;
    if (spw_pass_start(p->account->doors->options.decider, p->account->conf->name, p->integration, &p->native,
                       passed, p, &started, &err) != SPW_STATUS_OK)
        answer_fault(p, &err);
    else if (spw_door_user(request) == p)
        p->pass = started;
}

/* ---- who may ask, and what ---- */

/* What stands in the header where the account's own key goes, "Name" or "Name: Scheme" (accounts.*.credential_header). */
static bool find_configured(const struct spw_conf_account *conf, const char *headers, char *out, size_t room)
{
    char name[SPW_NAME_BYTES];
    if (!conf->credential_header[0])
        return false;
    size_t name_bytes = strcspn(conf->credential_header, ":");
    const char *scheme = conf->credential_header + name_bytes;
    scheme += strspn(scheme, ": ");
    size_t scheme_bytes = strlen(scheme);
    if (name_bytes >= sizeof name)
        return false;
    memcpy(name, conf->credential_header, name_bytes);
    name[name_bytes] = 0;
    if (!spw_wire_header_find(headers, name, out, room))
        return false;
    if (scheme_bytes && strncasecmp(out, scheme, scheme_bytes) == 0 && out[scheme_bytes] == ' ')
        memmove(out, out + scheme_bytes + 1, strlen(out + scheme_bytes + 1) + 1);
    return out[0] != 0;
}

static bool is_authorised(struct spw_pass_account *account, const char *headers)
{
    char given[TOKEN_MAX_BYTES];
    uint64_t now_ns = spw_loop_now_ns(account->doors->options.loop);
    bool ok = headers && ((find_configured(account->conf, headers, given, sizeof given) &&
                           spw_token_matches(&account->token, given, now_ns)) ||
                          (account->profile->token(headers, given, sizeof given) &&
                           spw_token_matches(&account->token, given, now_ns)));
    explicit_bzero(given, sizeof given);
    return ok;
}

static int hex_value(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Decoded once. NULL: an escape that is none, or a NUL byte; what else looks odd is found by the route. */
static char *decode(const char *path)
{
    char *out = strdup(path), *end = out;
    for (const char *c = path; out && *c; c++) {
        int high = *c == '%' ? hex_value(c[1]) : 0;
        int low = *c == '%' && high >= 0 ? hex_value(c[2]) : 0;
        if (high < 0 || low < 0 || (*c == '%' && high == 0 && low == 0)) {
            free(out);
            return NULL;
        }
        *end++ = *c == '%' ? (char)(high * 16 + low) : *c;
        c += *c == '%' ? 2 : 0;
    }
    if (out)
        *end = 0;
    return out;
}

/* A query is the provider's to read, but for the bytes that end a line somewhere behind it. */
static bool query_is_plain(const char *target)
{
    const char *query = strchr(target, '?');
    for (const char *c = query; c && (c = strchr(c, '%')); c++)
        if (c[1] == '0' || c[1] == '1' || (c[1] == '7' && (c[2] == 'f' || c[2] == 'F')))
            return false;
    return true;
}

static struct spw_passing *passing_new(struct spw_pass_account *account, struct spw_door_request *request,
                                       const struct spw_route *route, char *path, const char *headers)
{
    struct spw_passing *p = spw_zeroed(sizeof *p);
    if (!p)
        return NULL;
    const char *asked = spw_door_header(request, "Spillway-Integration");
    const char *query = strchr(spw_door_target(request), '?');
    p->account = account;
    p->request = request;
    p->path = path;
    p->native.route = route;
    p->native.path = path;
    p->native.query = query ? query + 1 : "";
    p->native.headers = headers;
    p->native.body = spw_door_body(request, &p->native.body_bytes);
    p->integration = asked && asked[0] ? asked : account->conf->integrations[0].name;
    spw_door_set_user(request, p);
    return p;
}

static void handle(void *owner, struct spw_door_request *request)
{
    struct spw_pass_account *account = owner;
    const struct spw_profile *profile = account->profile;
    const char *headers = spw_door_headers(request);
    struct spw_error err;
    if (!is_authorised(account, headers)) {
        spw_pass_answer_error(account, request, 401, 0,
                              "This port takes the local token where the API key goes, never a real key.");
        return;
    }
    char *path = query_is_plain(spw_door_target(request)) ? decode(spw_door_path(request)) : NULL;
    const struct spw_route *route =
        path ? spw_profile_route(profile, account->conf, spw_door_method(request), path) : NULL;
    struct spw_passing *p = route ? passing_new(account, request, route, path, headers) : NULL;
    if (!p) {
        free(path);
        spw_pass_answer_error(account, request, route ? 503 : 403, 0,
                              route
                                  ? "The sidecar is out of memory."
                                  : "This method and path are not among those the account may be used for.");
        return;
    }
    bool is_quote = route->kind == SPW_ROUTE_CALCULATE && profile->native_quote && profile->is_tax;
    p->has_quote =
        is_quote && profile->native_quote(&p->native, account->conf, &p->quote, &err) == SPW_STATUS_OK;
    if (p->has_quote)
        calculate(p);
    else
        pass(p);
}

/* The caller hung up: nobody waits for this answer any more. */
static void caller_gone(void *owner, struct spw_door_request *request)
{
    struct spw_passing *p = spw_door_user(request);
    (void)owner;
    if (!p)
        return;
    if (p->job)
        spw_job_cancel(p->job);
    if (p->pass)
        spw_pass_leave(p->pass);
    finish(p);
    spw_door_answer(request, 499, "text/plain", NULL, 0, "", 0);
}

/* ---- life ---- */

/* Of each account's door, and two descriptors for each connection. */
static uint32_t connections_max(void)
{
    struct rlimit files;
    uint64_t most = getrlimit(RLIMIT_NOFILE, &files) == 0 ? files.rlim_cur / 64 : 64;
    return most < CONNECTIONS_MAX ? (uint32_t)most : CONNECTIONS_MAX;
}

static enum spw_status open_door(struct spw_pass_doors *doors, const struct spw_conf_account *conf,
                                 struct spw_error *err)
{
    struct spw_pass_account *account = &doors->accounts[doors->accounts_count];
    struct spw_door_options d;
    account->doors = doors;
    account->conf = conf;
    account->profile = spw_profile_find(conf->provider);
    if (conf->token_file[0]) {
        spw_token_open_file(&account->token, conf->token_file);
    } else {
        enum spw_status status =
            spw_token_open(&account->token, doors->options.token_file, doors->options.conf->segment.gid, err);
        if (status != SPW_STATUS_OK)
            return status;
    }
    memset(&d, 0, sizeof d);
    d.listen = conf->listen;
    d.body_max_bytes = BODY_MAX_BYTES;
    d.connections_max = connections_max();
    d.handler = handle;
    d.gone = caller_gone;
    d.owner = account;
    enum spw_status status = spw_door_new(doors->options.loop, &d, &account->door, err);
    if (status != SPW_STATUS_OK) {
        spw_token_clean_up(&account->token);
        spw_error_prefix(err, "accounts.%s.listen: ", conf->name);
        return status;
    }
    doors->accounts_count++;
    return SPW_STATUS_OK;
}

enum spw_status spw_pass_doors_new(const struct spw_pass_doors_options *options, struct spw_pass_doors **out,
                                   struct spw_error *err)
{
    struct spw_pass_doors *doors = calloc(1, sizeof *doors);
    bool listens = false;
    *out = NULL;
    if (doors) {
        doors->options = *options;
        snprintf(doors->token_file, sizeof doors->token_file, "%s", options->token_file);
        doors->options.token_file = doors->token_file;
        for (uint32_t i = 0; i < options->conf->accounts_count; i++)
            listens |= options->conf->accounts[i].listen[0] != 0;
        doors->documents = listens ? spw_reuse_new(DOCUMENTS_BYTES) : NULL;
    }
    if (!doors || (listens && !doors->documents) || !spw_key_maker_init(&doors->keys)) {
        spw_pass_doors_destroy(doors);
        return spw_error_set(
            err, SPW_STATUS_NO_MEMORY,
            "pass-through doors: no memory, no random bytes or no SipHash in libcrypto: raise the "
            "container's memory limit");
    }
    for (uint32_t i = 0; i < options->conf->accounts_count; i++) {
        enum spw_status status = SPW_STATUS_OK;
        if (options->conf->accounts[i].listen[0])
            status = open_door(doors, &options->conf->accounts[i], err);
        if (status != SPW_STATUS_OK) {
            spw_pass_doors_destroy(doors);
            return status;
        }
    }
    *out = doors;
    return SPW_STATUS_OK;
}

enum spw_status spw_pass_doors_reload_begin(struct spw_pass_doors *doors, const struct spw_conf *fresh,
                                            struct spw_error *err)
{
    uint32_t before = doors->accounts_count;
    enum spw_status status = SPW_STATUS_OK;
    for (uint32_t i = doors->options.conf->accounts_count; i < fresh->accounts_count; i++) {
        const struct spw_conf_account *account = &doors->options.conf->accounts[i];
        if (status != SPW_STATUS_OK || !account->listen[0])
            continue;
        if (!doors->documents && !(doors->documents = spw_reuse_new(DOCUMENTS_BYTES)))
            status = spw_error_set(err, SPW_STATUS_NO_MEMORY,
                                   "pass-through doors: no memory: raise the container's memory limit");
        else
            status = open_door(doors, account, err);
    }
    if (status != SPW_STATUS_OK)
        spw_pass_doors_reload_undo(doors, before);
    return status;
}

void spw_pass_doors_reload_undo(struct spw_pass_doors *doors, uint32_t count)
{
    while (doors->accounts_count > count) {
        struct spw_pass_account *account = &doors->accounts[--doors->accounts_count];
        spw_door_destroy(account->door);
        spw_token_clean_up(&account->token);
    }
}

uint32_t spw_pass_doors_count(const struct spw_pass_doors *doors)
{
    return doors->accounts_count;
}

void spw_pass_doors_stop_listening(struct spw_pass_doors *doors)
{
    for (uint32_t i = 0; i < doors->accounts_count; i++)
        spw_door_stop_listening(doors->accounts[i].door);
}

uint32_t spw_pass_doors_open_count(const struct spw_pass_doors *doors)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < doors->accounts_count; i++)
        count += spw_door_open_count(doors->accounts[i].door);
    return count;
}

void spw_pass_doors_destroy(struct spw_pass_doors *doors)
{
    if (!doors)
        return;
    for (uint32_t i = 0; i < doors->accounts_count; i++) {
        spw_door_destroy(doors->accounts[i].door);
        spw_token_clean_up(&doors->accounts[i].token);
    }
    spw_reuse_destroy(doors->documents);
    spw_key_maker_clean_up(&doors->keys);
    free(doors);
}
