/* server.c: see server.h. The way of a provider request: counted as seen, key, limit, script, books, answer. */
#include "sidecar/mock/server.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "sidecar/mock/control.h"
#include "sidecar/mock/misbehave.h"
#include "sidecar/mock/shape.h"
#include "sidecar/net/listener.h"
#include "sidecar/provider/wire.h"

#define NS_PER_S        UINT64_C(1000000000)
#define BODY_MAX_BYTES  (1024u * 1024u)
#define CONNECTIONS_MAX 1024u
#define PEM_MAX_BYTES   (256 * 1024)

struct request {
    char *body;
    size_t bytes, room;
    bool too_large, no_memory;
};

/* What the decision said about one provider request. */
struct course {
    const struct spw_mock_shape *shape;
    uint64_t epoch, second; /* where it is counted */
    struct spw_mock_verdict limit;
    bool has_reply; /* refused before any work */
    struct spw_mock_reply reply;
    struct spw_mock_script *script; /* held while step is used */
    const struct spw_mock_step *step;
    uint64_t latency_us;
};

static uint64_t monotonic_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

static int64_t unix_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

uint64_t spw_mock_server_now_ns(const struct spw_mock_server *server)
{
    return monotonic_ns() - server->start_ns;
}

void spw_mock_server_rest(const struct spw_mock_server *server, int client_fd, uint64_t us, bool until_gone)
{
    struct pollfd fds[2] = {{.fd = server->stop_fd, .events = POLLIN},
                            {.fd = client_fd, .events = POLLRDHUP}};
    struct timespec wait = {.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000};
    while (ppoll(fds, until_gone ? 2 : 1, us == UINT64_MAX ? NULL : &wait, NULL) < 0 && errno == EINTR)
        ;
}

enum MHD_Result spw_mock_server_send(struct MHD_Connection *connection, struct MHD_Response *response,
                                     unsigned status)
{
    if (!response)
        return MHD_NO;
    enum MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

/* ---- the script in force ---- */

/* Under the lock. */
static void script_drop(struct spw_mock_script *script)
{
    if (script && --script->users_count == 0) {
        spw_mock_scenario_clean_up(&script->scenario);
        free(script);
    }
}

bool spw_mock_server_set_scenario(struct spw_mock_server *server, struct spw_mock_scenario *scenario)
{
    struct spw_mock_script *script = calloc(1, sizeof *script);
    if (!script) {
        spw_mock_scenario_clean_up(scenario);
        return false;
    }
    script->users_count = 1;
    script->scenario = *scenario;
    memset(scenario, 0, sizeof *scenario);
    pthread_mutex_lock(&server->lock);
    script->since_ns = spw_mock_server_now_ns(server);
    script_drop(server->script);
    server->script = script;
    pthread_mutex_unlock(&server->lock);
    return true;
}

/* ---- deciding ---- */

/* Even within latency +- jitter; a fixed start makes runs repeatable. Under the lock. */
static uint64_t draw_latency_us(struct spw_mock_server *s)
{
    uint64_t jitter_us = s->options->jitter_ms * 1000;
    s->random ^= s->random << 13; /* xorshift64 */
    s->random ^= s->random >> 7;
    s->random ^= s->random << 17;
    return s->options->latency_ms * 1000 - jitter_us + s->random % (2 * jitter_us + 1);
}

/* The credential wherever the provider's SDKs put it: X-API-KEY, Bearer, or the password of Basic. */
static bool key_fits(const struct spw_mock_server *s, struct MHD_Connection *connection)
{
    char block[4096], key[2048] = "";
    const char *own = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "X-API-KEY");
    const char *authorization = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Authorization");
    if (own)
        snprintf(key, sizeof key, "%s", own);
    else if (authorization &&
             snprintf(block, sizeof block, "Authorization: %s\r\n", authorization) < (int)sizeof block)
        (void)spw_wire_token(block, key, sizeof key);
    return key[0] && (!s->options->api_key || strcmp(key, s->options->api_key) == 0);
}

static void decide(struct spw_mock_server *s, const char *path, bool has_key, struct course *c)
{
    uint64_t now_ns;
    pthread_mutex_lock(&s->lock);
    now_ns = spw_mock_server_now_ns(s); /* read under the lock, so that times never go back */
    c->epoch = s->stats->epoch;
    c->second = spw_mock_stats_seen(s->stats, now_ns);
    s->script->requests_count++;
    if (!has_key) {
        c->has_reply = true;
        c->reply = c->shape->problem(401, "the credential is missing or not this account's");
    } else {
        c->limit = spw_mock_limiter_take(&s->limiter, now_ns);
        if (!c->limit.is_allowed) {
            s->stats->over_limit_count++;
            c->has_reply = true;
            c->reply = c->shape->problem(429, "too many requests");
        } else {
            spw_mock_stats_accepted(s->stats, now_ns);
            c->step = spw_mock_scenario_choose(&s->script->scenario, (now_ns - s->script->since_ns) / 1000000,
                                               s->script->requests_count, path);
            c->latency_us = draw_latency_us(s);
        }
    }
    if (c->step) {
        c->script = s->script;
        c->script->users_count++;
        if (c->step->has_latency)
            c->latency_us = c->step->latency_ms * 1000;
    }
    pthread_mutex_unlock(&s->lock);
}

/* The body that goes out: the step's, a problem for a scripted error, else what the books say. */
static struct spw_mock_reply make_reply(struct spw_mock_server *s, const struct course *c,
                                        const struct spw_mock_request *r)
{
    const struct spw_mock_step *step = c->step;
    struct spw_mock_reply reply;
    if (step && step->body) {
        reply = (struct spw_mock_reply){.status = step->has_status ? step->status : 200,
                                        .body = strdup(step->body)};
        return reply;
    }
    if (step && step->has_status && step->status >= 300)
        return c->shape->problem(step->status, "scripted");
    pthread_mutex_lock(&s->lock);
    reply = c->shape->answer(&s->books, r);
    pthread_mutex_unlock(&s->lock);
    if (step && step->has_status)
        reply.status = step->status;
    return reply;
}

/* ---- answering ---- */

static uint64_t whole_seconds(uint64_t ns)
{
    return ns == UINT64_MAX ? 86400 : ns / NS_PER_S + (ns % NS_PER_S != 0);
}

static void add_number(struct MHD_Response *response, const char *name, uint64_t number)
{
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)number);
    MHD_add_response_header(response, name, text);
}

static void add_limit_headers(const struct spw_mock_server *s, const struct spw_mock_verdict *v,
                              unsigned status, struct MHD_Response *response)
{
    const struct spw_mock_options *o = s->options;
    if (o->headers == SPW_MOCK_HEADERS_X) {
        uint64_t reset_s = (uint64_t)(unix_ms() / 1000) + whole_seconds(v->reset_ns);
        add_number(response, "X-RateLimit-Limit", v->limit_count);
        add_number(response, "X-RateLimit-Remaining", v->remaining_count);
        add_number(response, "X-RateLimit-Reset", reset_s);
    } else if (o->headers == SPW_MOCK_HEADERS_IETF) {
        char text[128];
        uint64_t window_s = whole_seconds(s->limiter.rate.period_ns);
        snprintf(text, sizeof text, "\"default\";q=%llu;w=%llu", (unsigned long long)v->limit_count,
                 (unsigned long long)window_s);
        MHD_add_response_header(response, "RateLimit-Policy", text);
        snprintf(text, sizeof text, "\"default\";r=%llu;t=%llu", (unsigned long long)v->remaining_count,
                 (unsigned long long)whole_seconds(v->reset_ns));
        MHD_add_response_header(response, "RateLimit", text);
    }
    if (status == 429 && o->retry_after == SPW_MOCK_RETRY_AUTO)
        add_number(response, "Retry-After", whole_seconds(v->retry_ns));
    else if (status == 429 && o->retry_after == SPW_MOCK_RETRY_FIXED)
        add_number(response, "Retry-After", o->retry_after_s);
}

static struct MHD_Response *plain_response(const struct spw_mock_reply *reply)
{
    const char *body = reply->body && reply->status != 204 && reply->status != 304 ? reply->body : "";
    return MHD_create_response_from_buffer(strlen(body), (void *)(uintptr_t)body, MHD_RESPMEM_MUST_COPY);
}

static bool has_header(const struct spw_mock_step *step, const char *name)
{
    for (size_t i = 0; step && i < step->headers_count; i++)
        if (strcasecmp(step->headers[i].name, name) == 0)
            return true;
    return false;
}

static const char *type_of(const struct course *c, const struct spw_mock_reply *reply)
{
    if (reply->content_type)
        return reply->content_type;
    return reply->status >= 400 && c->shape == &spw_mock_taxcloud ? "application/problem+json"
                                                                  : "application/json";
}

static enum MHD_Result answer(struct spw_mock_server *s, struct MHD_Connection *connection,
                              const struct course *c, const struct spw_mock_reply *reply)
{
    const struct spw_mock_step *step = c->step;
    bool is_bad = step && step->action != SPW_MOCK_ACTION_NONE;
    struct MHD_Response *response = is_bad
                                        ? spw_mock_bad_response(s, connection, step->action, step->trickle_ms,
                                                                reply->body ? reply->body : "")
                                        : plain_response(reply);
    if (response) {
        if (!has_header(step, "Content-Type"))
            MHD_add_response_header(response, "Content-Type", type_of(c, reply));
        if (reply->status == 429 && c->has_reply && c->shape == &spw_mock_stripe)
            MHD_add_response_header(response, "Stripe-Rate-Limited-Reason", "endpoint-rate");
        for (size_t i = 0; step && i < step->headers_count; i++)
            MHD_add_response_header(response, step->headers[i].name, step->headers[i].value);
        /* A scripted 429 is not the limit's: it carries what its step says and nothing else. */
        if (s->limiter.is_on && reply->status != 401 && !(step && step->has_status))
            add_limit_headers(s, &c->limit, reply->status, response);
    }
    return spw_mock_server_send(connection, response, reply->status);
}

static void count(struct spw_mock_server *s, const struct course *c, unsigned status)
{
    pthread_mutex_lock(&s->lock);
    if (c->step && c->step->action != SPW_MOCK_ACTION_NONE)
        spw_mock_stats_acted(s->stats, c->epoch, c->step->action);
    else
        spw_mock_stats_answered(s->stats, c->epoch, c->second, status);
    script_drop(c->script);
    pthread_mutex_unlock(&s->lock);
}

static enum MHD_Result serve(struct spw_mock_server *s, struct MHD_Connection *connection, const char *method,
                             const char *path, const struct request *r)
{
    struct course c = {.shape = spw_mock_shape_of(path)};
    enum MHD_Result result = MHD_NO;
    const struct spw_mock_request request = {
        .method = method,
        .path = path,
        .body = r->body,
        .bytes = r->bytes,
        .idempotency_key = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Idempotency-Key")};
    decide(s, path, key_fits(s, connection), &c);
    if (!c.has_reply && c.latency_us)
        spw_mock_server_rest(s, -1, c.latency_us, false);
    enum spw_mock_action action = c.step ? c.step->action : SPW_MOCK_ACTION_NONE;
    bool is_answered = action == SPW_MOCK_ACTION_NONE || action == SPW_MOCK_ACTION_TRICKLE ||
                       action == SPW_MOCK_ACTION_WRONG_LENGTH || action == SPW_MOCK_ACTION_HUGE;
    if (is_answered) {
        struct spw_mock_reply reply = c.has_reply ? c.reply : make_reply(s, &c, &request);
        result = answer(s, connection, &c, &reply);
        count(s, &c, reply.status);
        free(reply.body);
    } else {
        if (action == SPW_MOCK_ACTION_DROP) { /* carried out, and nobody hears of it */
            struct spw_mock_reply lost = make_reply(s, &c, &request);
            free(lost.body);
            action = SPW_MOCK_ACTION_CLOSE;
        }
        result = spw_mock_misbehave(s, connection, action);
        count(s, &c, 0);
    }
    return result;
}

/* ---- requests as they come in ---- */

static void take_body(struct request *r, const char *data, size_t n)
{
    if (r->bytes + n > BODY_MAX_BYTES) {
        r->too_large = true;
        return;
    }
    if (r->bytes + n + 1 > r->room) {
        size_t room = (r->bytes + n + 1) * 2;
        char *grown = realloc(r->body, room);
        if (!grown) {
            r->no_memory = true;
            return;
        }
        r->body = grown;
        r->room = room;
    }
    memcpy(r->body + r->bytes, data, n);
    r->bytes += n;
    r->body[r->bytes] = 0;
}

static enum MHD_Result send_reply(struct MHD_Connection *connection, struct spw_mock_reply reply)
{
    struct MHD_Response *response = plain_response(&reply);
    if (response)
        MHD_add_response_header(response, "Content-Type", "application/json");
    free(reply.body);
    return spw_mock_server_send(connection, response, reply.status);
}

static enum MHD_Result on_request(void *owner, struct MHD_Connection *connection, const char *path,
                                  const char *method, const char *version, const char *data,
                                  size_t *data_bytes, void **state)
{
    struct spw_mock_server *s = owner;
    struct request *r = *state;
    (void)version;
    if (!r) { /* first call: headers only */
        *state = calloc(1, sizeof *r);
        return *state ? MHD_YES : MHD_NO;
    }
    if (*data_bytes) {
        take_body(r, data, *data_bytes);
        *data_bytes = 0;
        return MHD_YES;
    }
    if (r->no_memory)
        return MHD_NO;
    if (r->too_large)
        return send_reply(connection, spw_mock_problem(413, "body", "above 1 MiB"));
    if (strncmp(path, "/mock/", 6) == 0)
        return send_reply(connection, spw_mock_control_answer(s, method, path, r->body, r->bytes));
    return serve(s, connection, method, path, r);
}

static void on_done(void *owner, struct MHD_Connection *connection, void **state,
                    enum MHD_RequestTerminationCode code)
{
    (void)owner;
    (void)connection;
    (void)code;
    struct request *r = *state;
    if (r) {
        free(r->body);
        free(r);
    }
    *state = NULL;
}

/* ---- opening and closing ---- */

static enum spw_status read_pem(const char *option, const char *path, char **out, struct spw_error *err)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return spw_error_set(err, SPW_STATUS_SYSTEM, "%s: %s: %s; give a readable PEM file", option, path,
                             strerror(errno));
    char *text = calloc(1, PEM_MAX_BYTES + 1);
    size_t n = text ? fread(text, 1, PEM_MAX_BYTES, file) : 0;
    fclose(file);
    if (n == 0) {
        free(text);
        return spw_error_set(err, SPW_STATUS_INVALID, "%s: %s: nothing to be read; give a PEM file", option,
                             path);
    }
    *out = text;
    return SPW_STATUS_OK;
}

static enum spw_status start_daemon(struct spw_mock_server *s, struct spw_error *err)
{
    const struct spw_mock_options *o = s->options;
    unsigned flags =
        MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION | MHD_USE_POLL | MHD_USE_ITC;
    struct MHD_OptionItem tls[] = {
        {MHD_OPTION_HTTPS_MEM_CERT, 0, NULL}, {MHD_OPTION_HTTPS_MEM_KEY, 0, NULL}, {MHD_OPTION_END, 0, NULL}};
    struct MHD_OptionItem *items = &tls[2]; /* plain HTTP: none of them */
    if (o->tls_cert) {
        enum spw_status status = read_pem("--tls-cert", o->tls_cert, &s->tls_cert, err);
        if (!status)
            status = read_pem("--tls-key", o->tls_key, &s->tls_key, err);
        if (status)
            return status;
        flags |= MHD_USE_TLS;
        tls[0].ptr_value = s->tls_cert;
        tls[1].ptr_value = s->tls_key;
        items = tls;
    }
    s->daemon = MHD_start_daemon(flags, 0, NULL, NULL, on_request, s, MHD_OPTION_LISTEN_SOCKET, s->listen_fd,
                                 MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS_MAX, MHD_OPTION_NOTIFY_COMPLETED,
                                 on_done, NULL, MHD_OPTION_ARRAY, items, MHD_OPTION_END);
    if (!s->daemon)
        return spw_error_set(err, SPW_STATUS_SYSTEM, "the HTTP server did not start%s",
                             o->tls_cert ? "; check that certificate and key are PEM and belong together"
                                         : "");
    return SPW_STATUS_OK;
}

enum spw_status spw_mock_server_open(struct spw_mock_server *server, const struct spw_mock_options *options,
                                     struct spw_rates_table *table, struct spw_mock_scenario *scenario,
                                     uint16_t *port, struct spw_error *err)
{
    memset(server, 0, sizeof *server);
    server->options = options;
    server->listen_fd = -1;
    server->stop_fd = eventfd(0, EFD_CLOEXEC);
    server->start_ns = monotonic_ns();
    server->start_unix_ms = unix_ms();
    server->random = 88172645463325252u; /* any start but 0 */
    pthread_mutex_init(&server->lock, NULL);
    if (options->has_limit)
        spw_mock_limiter_init(&server->limiter, &options->limit, options->algorithm, options->burst_count);
    server->stats = calloc(1, sizeof *server->stats);
    enum spw_status status = SPW_STATUS_OK;
    if (!spw_mock_books_init(&server->books, table, options->rate_ppb) ||
        !spw_mock_server_set_scenario(server, scenario) || !server->stats || server->stop_fd < 0)
        status = spw_error_set(err, SPW_STATUS_NO_MEMORY, "no memory or file descriptors to start with");
    if (!status) {
        struct spw_listener listener;
        status = spw_listener_open_tcp(&listener, options->listen, err);
        if (status)
            spw_error_prefix(err, "--listen: ");
        server->listen_fd = listener.fd;
        *port = listener.port;
    }
    if (!status)
        status = start_daemon(server, err);
    if (status)
        spw_mock_server_close(server);
    return status;
}

void spw_mock_server_close(struct spw_mock_server *server)
{
    if (server->stop_fd >= 0 && eventfd_write(server->stop_fd, 1) != 0)
        abort(); /* an eventfd holds 2^64 - 2; one write cannot fail */
    if (server->daemon)
        MHD_stop_daemon(server->daemon); /* closes the listening socket, waits for the threads */
    else if (server->listen_fd >= 0)
        close(server->listen_fd);
    if (server->stop_fd >= 0)
        close(server->stop_fd);
    script_drop(server->script);
    spw_mock_books_clean_up(&server->books);
    if (server->stats)
        spw_mock_stats_clean_up(server->stats);
    free(server->stats);
    free(server->tls_cert);
    free(server->tls_key);
    pthread_mutex_destroy(&server->lock);
}
