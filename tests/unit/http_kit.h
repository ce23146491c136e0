/* http_kit.h: what the tests of the HTTP client share: a loop with a client and a door that echoes, and what became of
 * a call. */
#ifndef SPW_TESTS_HTTP_KIT_H
#define SPW_TESTS_HTTP_KIT_H

#include "tests/unit/backend_kit.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "sidecar/http/client.h"
#include "sidecar/http/door.h"

enum { ANSWER_MAX = 64 << 10, HELD_MAX = 256 };

struct fixture {
    struct spw_loop *loop;
    struct spw_http_client *client;
    struct spw_door *door;
    struct spw_door_request *held[HELD_MAX];
    uint32_t held_count;
    uint32_t stop_at_held; /* stop the loop when so many are held; 0 = never */
    uint32_t gone_count;
    uint32_t stop_at_gone;
    uint32_t pending; /* calls not done; the loop stops at 0 */
    void *user;       /* of one test */
};

struct result {
    struct fixture *f;
    struct spw_http_call *call;
    uint32_t done;
    enum spw_http_outcome outcome;
    uint32_t status;
    uint32_t attempts;
    uint64_t sent_ns;
    uint64_t done_ns;
    size_t body_bytes;
    char body[256];
    char headers[512];
    char detail[256];
};

static inline uint64_t clock_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_BOOTTIME, &ts);
    return (uint64_t)ts.tv_sec * 1000000000U + (uint64_t)ts.tv_nsec;
}

struct late {
    struct spw_loop_timer timer;
    struct spw_door_request *request;
};

static inline void answer_echo(struct spw_door_request *request)
{
    char text[256];
    size_t bytes;
    const char *body = spw_door_body(request, &bytes);
    const char *type = spw_door_header(request, "Content-Type");
    snprintf(text, sizeof text, "%s %s [%s] %s", spw_door_method(request), spw_door_target(request), body,
             type == NULL ? "(no type)" : type);
    const struct spw_door_header header = {"X-Remaining", "17"};
    spw_door_answer(request, 200, "text/plain", &header, 1, text, strlen(text));
}

static inline void answer_late(struct spw_loop *loop, struct spw_loop_timer *timer)
{
    struct late *late = timer->owner;
    (void)loop;
    answer_echo(late->request);
    free(late);
}

/* /hold is kept, ?late=MS is answered then, the rest at once. */
static inline void handle(void *owner, struct spw_door_request *request)
{
    struct fixture *f = owner;
    const char *late_ms = spw_door_query(request, "late");
    if (strcmp(spw_door_path(request), "/hold") == 0) {
        assert_true(f->held_count < HELD_MAX);
        f->held[f->held_count++] = request;
        if (f->held_count == f->stop_at_held) {
            spw_loop_stop(f->loop);
        }
    } else if (late_ms != NULL) {
        struct late *late = calloc(1, sizeof *late);
        assert_non_null(late);
        late->request = request;
        late->timer.fn = answer_late;
        late->timer.owner = late;
        spw_loop_timer_set(f->loop, &late->timer,
                           spw_loop_now_ns(f->loop) + strtoull(late_ms, NULL, 10) * MS);
    } else {
        answer_echo(request);
    }
}

static inline void gone(void *owner, struct spw_door_request *request)
{
    struct fixture *f = owner;
    (void)request;
    if (++f->gone_count == f->stop_at_gone) {
        spw_loop_stop(f->loop);
    }
}

static inline struct fixture *new_fixture(void)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct spw_error err = {0};
    assert_non_null(f);
    f->loop = new_loop();
    struct spw_http_client_options client = {.answer_max_bytes = ANSWER_MAX, .allow_plain_http = true};
    check(spw_http_client_new(f->loop, &client, &f->client, &err), &err);
    struct spw_door_options door = {.listen = "127.0.0.1:0", .handler = handle, .gone = gone, .owner = f};
    check(spw_door_new(f->loop, &door, &f->door, &err), &err);
    return f;
}

static inline void end_fixture(struct fixture *f)
{
    spw_http_client_destroy(f->client);
    spw_door_destroy(f->door);
    spw_loop_destroy(f->loop);
    free(f);
}

static inline void on_done(void *owner, const struct spw_http_response *response)
{
    struct result *r = owner;
    r->done++;
    r->outcome = response->outcome;
    r->status = response->status;
    r->attempts = response->attempts;
    r->sent_ns = response->sent_ns;
    r->done_ns = response->done_ns;
    r->body_bytes = response->body_bytes;
    assert_int_equal(response->headers[response->headers_bytes], '\0');
    assert_int_equal(response->body[response->body_bytes], '\0');
    snprintf(r->body, sizeof r->body, "%s", response->body);
    snprintf(r->headers, sizeof r->headers, "%s", response->headers);
    snprintf(r->detail, sizeof r->detail, "%s", response->detail);
    if (--r->f->pending == 0) {
        spw_loop_stop(r->f->loop);
    }
}

static inline void send_request(struct fixture *f, struct result *r, const struct spw_http_request *request)
{
    struct spw_error err = {0};
    *r = (struct result){.f = f};
    f->pending++;
    check(spw_http_client_send(f->client, request, on_done, r, &r->call, &err), &err);
    assert_int_equal(r->done, 0); /* never from inside */
}

static inline void get_within(struct fixture *f, struct result *r, uint16_t port, const char *target,
                              uint64_t ns)
{
    char url[256];
    snprintf(url, sizeof url, "http://127.0.0.1:%u%s", (unsigned)port, target);
    struct spw_http_request request = {.method = "GET", .url = url, .deadline_ns = clock_ns() + ns};
    send_request(f, r, &request);
}

static inline void get(struct fixture *f, struct result *r, uint16_t port, const char *target)
{
    get_within(f, r, port, target, 30000 * MS);
}

static inline int listen_loopback(uint16_t *port, int backlog)
{
    struct sockaddr_in name = {.sin_family = AF_INET};
    socklen_t bytes = sizeof name;
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&name, sizeof name), 0);
    assert_int_equal(listen(fd, backlog), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&name, &bytes), 0);
    *port = ntohs(name.sin_port);
    return fd;
}

#endif
