/* test_http.c: the client against the door, and against providers that misbehave, on io_uring and on epoll. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <dirent.h>
#include <dlfcn.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#include "sidecar/http/client.h"
#include "sidecar/http/door.h"

#define MS UINT64_C(1000000)

enum { ANSWER_MAX = 64 << 10, HELD_MAX = 256 };

static enum spw_loop_backend backend;

/* -------- the fixture: a loop, a client, a door -------- */

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

static void check(enum spw_status status, const struct spw_error *err)
{
    if (status != SPW_STATUS_OK) {
        fail_msg("%s: %s", spw_status_name(status), err->text);
    }
}

static void run(struct spw_loop *loop)
{
    struct spw_error err = {0};
    check(spw_loop_run(loop, &err), &err);
}

static uint64_t clock_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_BOOTTIME, &ts);
    return (uint64_t)ts.tv_sec * 1000000000U + (uint64_t)ts.tv_nsec;
}

struct late {
    struct spw_loop_timer timer;
    struct spw_door_request *request;
};

static void answer_echo(struct spw_door_request *request)
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

static void answer_late(struct spw_loop *loop, struct spw_loop_timer *timer)
{
    struct late *late = timer->owner;
    (void)loop;
    answer_echo(late->request);
    free(late);
}

/* /hold is kept, ?late=MS is answered then, the rest at once. */
static void handle(void *owner, struct spw_door_request *request)
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

static void gone(void *owner, struct spw_door_request *request)
{
    struct fixture *f = owner;
    (void)request;
    if (++f->gone_count == f->stop_at_gone) {
        spw_loop_stop(f->loop);
    }
}

static struct fixture *new_fixture(void)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct spw_error err = {0};
    assert_non_null(f);
    check(spw_loop_new(backend, &f->loop, &err), &err);
    struct spw_http_client_options client = {.answer_max_bytes = ANSWER_MAX, .allow_plain_http = true};
    check(spw_http_client_new(f->loop, &client, &f->client, &err), &err);
    struct spw_door_options door = {.listen = "127.0.0.1:0", .handler = handle, .gone = gone, .owner = f};
    check(spw_door_new(f->loop, &door, &f->door, &err), &err);
    return f;
}

static void end_fixture(struct fixture *f)
{
    spw_http_client_destroy(f->client);
    spw_door_destroy(f->door);
    spw_loop_destroy(f->loop);
    free(f);
}

static void on_done(void *owner, const struct spw_http_response *response)
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

static void send_request(struct fixture *f, struct result *r, const struct spw_http_request *request)
{
    struct spw_error err = {0};
    *r = (struct result){.f = f};
    f->pending++;
    check(spw_http_client_send(f->client, request, on_done, r, &r->call, &err), &err);
    assert_int_equal(r->done, 0); /* never from inside */
}

static void get_within(struct fixture *f, struct result *r, uint16_t port, const char *target, uint64_t ns)
{
    char url[256];
    snprintf(url, sizeof url, "http://127.0.0.1:%u%s", (unsigned)port, target);
    struct spw_http_request request = {.method = "GET", .url = url, .deadline_ns = clock_ns() + ns};
    send_request(f, r, &request);
}

static void get(struct fixture *f, struct result *r, uint16_t port, const char *target)
{
    get_within(f, r, port, target, 30000 * MS);
}

/* -------- client and door -------- */

static void test_request_and_answer(void **state)
{
    (void)state;
    struct fixture *f = new_fixture();
    struct result r;
    char url[128];
    const char *headers[] = {"Content-Type: application/json",
                             "X-Empty:",
                             "Host: elsewhere",
                             "Content-Length: 1",
                             "Transfer-Encoding: chunked",
                             "Expect: 100-continue",
                             "accept-encoding: br"};
    snprintf(url, sizeof url, "http://127.0.0.1:%u/a/../b//%%2e?q=%%41", (unsigned)spw_door_port(f->door));
    struct spw_http_request request = {.method = "POST",
                                       .url = url,
                                       .headers = headers,
                                       .header_count = 7,
                                       .body = "{\"a\":1}",
                                       .body_bytes = 7,
                                       .deadline_ns = clock_ns() + 30000 * MS,
                                       .connect_timeout_ms = 5000};
    send_request(f, &r, &request);
    run(f->loop);
    assert_int_equal(r.outcome, SPW_HTTP_ANSWERED);
    assert_int_equal(r.status, 200);
    assert_int_equal(r.attempts, 1);
    assert_string_equal(r.body, "POST /a/../b//%2e?q=%41 [{\"a\":1}] application/json");
    assert_non_null(strstr(r.headers, "X-Remaining: 17\r\n"));
    assert_null(strstr(r.headers, "HTTP/1.1"));
    assert_string_equal(r.detail, "");
    assert_true(r.done_ns >= r.sent_ns);
    end_fixture(f);
}

static void test_methods(void **state)
{
    (void)state;
    static const char *const methods[] = {"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"};
    struct fixture *f = new_fixture();
    char url[64];
    snprintf(url, sizeof url, "http://127.0.0.1:%u/m", (unsigned)spw_door_port(f->door));
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        struct result r;
        char expected[64];
        struct spw_http_request request = {
            .method = methods[i], .url = url, .deadline_ns = clock_ns() + 30000 * MS};
        send_request(f, &r, &request);
        run(f->loop);
        assert_int_equal(r.outcome, SPW_HTTP_ANSWERED);
        snprintf(expected, sizeof expected, "%s /m [] (no type)", methods[i]);
        assert_string_equal(r.body, strcmp(methods[i], "HEAD") == 0 ? "" : expected);
    }
    end_fixture(f);
}

static void test_many_late_answers_at_once(void **state)
{
    (void)state;
    enum { CALLS = 200 };
    struct fixture *f = new_fixture();
    struct result *results = calloc(CALLS, sizeof *results);
    assert_non_null(results);
    for (int round = 0; round < 2; round++) { /* the second on connections kept from the first */
        for (int i = 0; i < CALLS; i++) {
            char target[64];
            snprintf(target, sizeof target, "/n%d?late=%d", i, i % 7 * 3);
            get(f, &results[i], spw_door_port(f->door), target);
        }
        run(f->loop);
        for (int i = 0; i < CALLS; i++) {
            char expected[64];
            snprintf(expected, sizeof expected, "GET /n%d?late=%d [] (no type)", i, i % 7 * 3);
            assert_int_equal(results[i].done, 1);
            assert_int_equal(results[i].outcome, SPW_HTTP_ANSWERED);
            assert_string_equal(results[i].body, expected);
        }
    }
    assert_int_equal(spw_door_open_count(f->door), 0);
    free(results);
    end_fixture(f);
}

static void test_cancelled_call_is_silent_and_seen_by_the_door(void **state)
{
    (void)state;
    struct fixture *f = new_fixture();
    struct result held, other;
    get(f, &held, spw_door_port(f->door), "/hold");
    f->stop_at_held = 1;
    run(f->loop);
    spw_http_call_cancel(held.call);
    f->stop_at_gone = 1;
    run(f->loop); /* the door's gone ends it */
    f->pending--;
    spw_door_answer(f->held[0], 200, NULL, NULL, 0, "x", 1);
    get(f, &other, spw_door_port(f->door), "/other");
    run(f->loop);
    assert_int_equal(other.outcome, SPW_HTTP_ANSWERED);
    assert_int_equal(held.done, 0);
    assert_int_equal(spw_door_open_count(f->door), 0);
    end_fixture(f);
}

static void test_client_destroyed_with_calls_in_flight(void **state)
{
    (void)state;
    enum { CALLS = 40 }; /* some of them still behind the cap on connections */
    struct fixture *f = new_fixture();
    struct result results[CALLS];
    for (int i = 0; i < CALLS; i++) {
        get(f, &results[i], spw_door_port(f->door), "/hold");
    }
    f->stop_at_held = 32;
    run(f->loop);
    f->stop_at_gone = 32;
    spw_http_client_destroy(f->client);
    f->client = NULL;
    for (int i = 0; i < CALLS; i++) {
        assert_int_equal(results[i].done, 1);
        assert_int_equal(results[i].outcome, SPW_HTTP_CANCELLED);
    }
    spw_loop_stop(f->loop); /* the last done stopped it too; take that turn */
    run(f->loop);
    if (f->gone_count < 32) {
        run(f->loop);
    }
    assert_int_equal(f->gone_count, 32);
    end_fixture(f);
}

static void test_door_destroyed_with_calls_waiting(void **state)
{
    (void)state;
    struct fixture *f = new_fixture();
    struct result r;
    get(f, &r, spw_door_port(f->door), "/hold");
    f->stop_at_held = 1;
    run(f->loop);
    spw_door_destroy(f->door);
    f->door = NULL;
    run(f->loop);
    assert_int_equal(f->gone_count, 1);
    assert_int_equal(r.outcome, SPW_HTTP_BROKEN);
    assert_int_equal(r.status, 0);
    end_fixture(f);
}

/* One call's done starts the next and cancels a third: done functions may do anything but destroy. */
struct chain {
    struct result first, second, third;
};

static void on_chain(void *owner, const struct spw_http_response *response)
{
    struct chain *chain = owner;
    struct fixture *f = chain->first.f;
    chain->first.done++;
    assert_int_equal(response->outcome, SPW_HTTP_ANSWERED);
    spw_http_call_cancel(chain->first.call); /* itself: nothing */
    spw_http_call_cancel(chain->third.call);
    f->pending--;
    get(f, &chain->second, spw_door_port(f->door), "/second");
    f->pending--;
}

static void test_done_starts_and_cancels_others(void **state)
{
    (void)state;
    struct fixture *f = new_fixture();
    struct chain chain = {.first.f = f};
    char url[64];
    struct spw_error err = {0};
    snprintf(url, sizeof url, "http://127.0.0.1:%u/first?late=5", (unsigned)spw_door_port(f->door));
    get(f, &chain.third, spw_door_port(f->door), "/hold");
    f->pending++;
    struct spw_http_request request = {.method = "GET", .url = url, .deadline_ns = clock_ns() + 30000 * MS};
    check(spw_http_client_send(f->client, &request, on_chain, &chain, &chain.first.call, &err), &err);
    run(f->loop);
    assert_int_equal(chain.first.done, 1);
    assert_int_equal(chain.second.outcome, SPW_HTTP_ANSWERED);
    assert_int_equal(chain.third.done, 0);
    end_fixture(f);
}

/* -------- providers that misbehave -------- */

enum then { KEEP, CLOSE, RESET };

struct reply {
    const char *bytes;
    size_t count; /* 0 = strlen */
    enum then then;
};

/* Reads a request head, sends the next reply; closes or keeps the connection as it says. */
struct stub {
    int fd;
    uint16_t port;
    pthread_t thread;
    const struct reply *replies;
    size_t count;
    size_t connections;
};

static bool read_head(int fd)
{
    char tail[4] = "";
    char byte;
    while (recv(fd, &byte, 1, 0) == 1) {
        memmove(tail, tail + 1, 3);
        tail[3] = byte;
        if (memcmp(tail, "\r\n\r\n", 4) == 0) {
            return true;
        }
    }
    return false;
}

static void *stub_thread(void *argument)
{
    struct stub *stub = argument;
    int fd = -1;
    for (size_t i = 0; i < stub->count; i++) {
        const struct reply *reply = &stub->replies[i];
        if (fd < 0) {
            fd = accept(stub->fd, NULL, NULL);
            stub->connections += fd >= 0;
        }
        if (fd < 0 || !read_head(fd)) {
            break;
        }
        size_t count = reply->count > 0 ? reply->count : strlen(reply->bytes);
        for (size_t sent = 0; sent < count;) {
            ssize_t n = send(fd, reply->bytes + sent, count - sent, MSG_NOSIGNAL);
            if (n <= 0) {
                break;
            }
            sent += (size_t)n;
        }
        if (reply->then != KEEP) {
            struct linger hard = {.l_onoff = 1};
            if (reply->then == RESET) {
                setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
            }
            close(fd);
            fd = -1;
        }
    }
    if (fd >= 0) {
        char byte;
        (void)!recv(fd, &byte, 1, 0); /* until the client lets go */
        close(fd);
    }
    return NULL;
}

static int listen_loopback(uint16_t *port, int backlog)
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

static void stub_start(struct stub *stub, const struct reply *replies, size_t count)
{
    *stub = (struct stub){.replies = replies, .count = count};
    stub->fd = listen_loopback(&stub->port, 64);
    assert_int_equal(pthread_create(&stub->thread, NULL, stub_thread, stub), 0);
}

/* After the client is gone, so that a kept connection ends. */
static void stub_end(struct stub *stub)
{
    shutdown(stub->fd, SHUT_RDWR);
    pthread_join(stub->thread, NULL);
    close(stub->fd);
}

/* One call to a stub with one reply. */
static struct result call_stub(const char *bytes, size_t count, enum then then)
{
    struct fixture *f = new_fixture();
    struct reply reply = {bytes, count, then};
    struct stub stub;
    struct result r;
    stub_start(&stub, &reply, 1);
    get(f, &r, stub.port, "/");
    run(f->loop);
    end_fixture(f);
    stub_end(&stub);
    assert_int_equal(r.done, 1);
    return r;
}

static void test_broken_answers(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        enum then then;
        uint32_t status;
    } cases[] = {
        {"", CLOSE, 0},
        {"", RESET, 0},
        {"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npartial", CLOSE, 200},
        {"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npartial", RESET, 200},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel", CLOSE, 200},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello", CLOSE, 200},
        {"HTTP/1.1 200 OK\r\nContent-Len", CLOSE, 0},
        {"220 mail.example.net ESMTP\r\n", CLOSE, 0},
        {"{\"tax\":\"0\"}", CLOSE, 0},
        {"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello", CLOSE, 200},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct result r = call_stub(cases[i].bytes, 0, cases[i].then);
        if (r.outcome != SPW_HTTP_BROKEN || r.status != cases[i].status || r.body_bytes != 0 ||
            r.detail[0] == '\0') {
            fail_msg("case %zu: outcome %d, status %u, %zu bytes, \"%s\"", i, (int)r.outcome, r.status,
                     r.body_bytes, r.detail);
        }
    }
}

static void test_whole_answers(void **state)
{
    (void)state;
    struct result r = call_stub("HTTP/1.1 103 Early Hints\r\nX-Early: 1\r\n\r\n"
                                "HTTP/1.1 200 OK\r\nX-A: 1\r\nX-A: 2\r\nTransfer-Encoding: chunked\r\n"
                                "Trailer: X-T\r\n\r\n3\r\nabc\r\n0\r\nX-T: 3\r\n\r\n",
                                0, KEEP);
    assert_int_equal(r.outcome, SPW_HTTP_ANSWERED);
    assert_string_equal(r.body, "abc");
    assert_string_equal(r.headers, "X-A: 1\r\nX-A: 2\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n");
    r = call_stub("HTTP/1.0 429 Slow down\r\nRetry-After: 3\r\n\r\nto the end", 0, CLOSE);
    assert_int_equal(r.outcome, SPW_HTTP_ANSWERED);
    assert_int_equal(r.status, 429);
    assert_string_equal(r.body, "to the end");
    /* Not followed. */
    r = call_stub("HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", 0,
                  KEEP);
    assert_int_equal(r.outcome, SPW_HTTP_ANSWERED);
    assert_int_equal(r.status, 302);
}

/* head + gzip of count bytes 'a'. */
static char *gzip_answer(size_t count, size_t *bytes)
{
    static const char head[] = "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n";
    unsigned char *plain = malloc(count);
    char *answer = malloc(sizeof head + count + 64);
    z_stream stream = {0};
    assert_non_null(plain);
    assert_non_null(answer);
    memset(plain, 'a', count);
    memcpy(answer, head, sizeof head - 1);
    assert_int_equal(deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    stream.next_in = plain;
    stream.avail_in = (uInt)count;
    stream.next_out = (unsigned char *)answer + sizeof head - 1;
    stream.avail_out = (uInt)(count + 64);
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    *bytes = sizeof head - 1 + stream.total_out;
    deflateEnd(&stream);
    free(plain);
    return answer;
}

static void test_answers_are_capped(void **state)
{
    (void)state;
    size_t bytes;
    char *answer = gzip_answer(ANSWER_MAX, &bytes);
    struct result r = call_stub(answer, bytes, CLOSE);
    free(answer);
    assert_int_equal(r.outcome, SPW_HTTP_ANSWERED);
    assert_int_equal(r.body_bytes, ANSWER_MAX);
    answer = gzip_answer((size_t)ANSWER_MAX * 100, &bytes); /* small on the wire */
    assert_true(bytes < ANSWER_MAX);
    r = call_stub(answer, bytes, CLOSE);
    free(answer);
    assert_int_equal(r.outcome, SPW_HTTP_BROKEN);
    assert_non_null(strstr(r.detail, "larger than 65536"));
    r = call_stub("HTTP/1.1 200 OK\r\nContent-Length: 70000\r\n\r\n", 0, CLOSE);
    assert_int_equal(r.outcome, SPW_HTTP_BROKEN);
    assert_non_null(strstr(r.detail, "larger than 65536"));
    /* Headers without end. */
    char *headers = malloc(200000);
    assert_non_null(headers);
    size_t used = (size_t)sprintf(headers, "HTTP/1.1 200 OK\r\n");
    while (used < 150000) {
        used += (size_t)sprintf(headers + used, "X-Filler: %064d\r\n", 0);
    }
    used += (size_t)sprintf(headers + used, "\r\n");
    r = call_stub(headers, used, CLOSE);
    free(headers);
    assert_int_equal(r.outcome, SPW_HTTP_BROKEN);
}

#define OK_KEPT "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

static void test_dead_kept_connection_is_replaced_once(void **state)
{
    (void)state;
    static const struct reply replies[] = {{OK_KEPT, 0, KEEP}, {"", 0, CLOSE}, {OK_KEPT, 0, KEEP}};
    struct fixture *f = new_fixture();
    struct stub stub;
    struct result r;
    stub_start(&stub, replies, 3);
    get(f, &r, stub.port, "/");
    run(f->loop);
    assert_int_equal(r.attempts, 1);
    get(f, &r, stub.port, "/");
    run(f->loop);
    assert_int_equal(r.outcome, SPW_HTTP_ANSWERED);
    assert_int_equal(r.attempts, 2);
    end_fixture(f);
    stub_end(&stub);
    assert_int_equal(stub.connections, 2);
    /* The fresh one dies too: that is the end of it. */
    static const struct reply dying[] = {
        {OK_KEPT, 0, KEEP}, {"", 0, CLOSE}, {"", 0, CLOSE}, {OK_KEPT, 0, KEEP}};
    f = new_fixture();
    stub_start(&stub, dying, 4);
    get(f, &r, stub.port, "/");
    run(f->loop);
    get(f, &r, stub.port, "/");
    run(f->loop);
    assert_int_equal(r.outcome, SPW_HTTP_BROKEN);
    assert_int_equal(r.attempts, 2);
    end_fixture(f);
    stub_end(&stub);
    assert_int_equal(stub.connections, 2);
}

/* However often it happens: what one call met is nothing to the next. */
static void test_every_dead_connection_is_replaced(void **state)
{
    (void)state;
    static const struct reply whole = {OK_KEPT, 0, KEEP}, none = {"", 0, CLOSE};
    struct reply replies[1 + 2 * 8];
    struct fixture *f = new_fixture();
    struct stub stub;
    struct result r;
    for (size_t i = 0; i < sizeof replies / sizeof replies[0]; i++)
        memcpy(&replies[i], i % 2 ? &none : &whole, sizeof whole);
    stub_start(&stub, replies, sizeof replies / sizeof replies[0]);
    for (int i = 0; i <= 8; i++) {
        get(f, &r, stub.port, "/");
        run(f->loop);
        assert_int_equal(r.outcome, SPW_HTTP_ANSWERED);
        assert_int_equal(r.attempts, i ? 2 : 1);
    }
    end_fixture(f);
    stub_end(&stub);
}

static void test_what_goes_once_is_not_sent_again(void **state)
{
    (void)state;
    static const struct reply replies[] = {{OK_KEPT, 0, KEEP}, {"", 0, CLOSE}, {OK_KEPT, 0, KEEP}};
    struct fixture *f = new_fixture();
    struct stub stub;
    struct result r;
    char url[64];
    stub_start(&stub, replies, 3);
    get(f, &r, stub.port, "/");
    run(f->loop);
    snprintf(url, sizeof url, "http://127.0.0.1:%u/", (unsigned)stub.port);
    struct spw_http_request once = {.method = "POST",
                                    .url = url,
                                    .body = "x",
                                    .body_bytes = 1,
                                    .at_most_once = true,
                                    .deadline_ns = clock_ns() + 30000 * MS};
    send_request(f, &r, &once);
    run(f->loop);
    assert_int_equal(r.outcome, SPW_HTTP_BROKEN);
    assert_int_equal(r.attempts, 1);
    assert_non_null(strstr(r.detail, "once"));
    end_fixture(f);
    stub_end(&stub);
}

static void test_nobody_there(void **state)
{
    (void)state;
    struct fixture *f = new_fixture();
    struct result r;
    uint16_t port;
    close(listen_loopback(&port, 1));
    get(f, &r, port, "/");
    run(f->loop);
    assert_int_equal(r.outcome, SPW_HTTP_CONNECT);
    assert_int_equal(r.attempts, 0);
    assert_string_not_equal(r.detail, "");
    end_fixture(f);
}

/* -------- deadlines -------- */

struct control {
    struct spw_loop_timer timer;
    uint64_t fired_ns;
};

static void on_control(struct spw_loop *loop, struct spw_loop_timer *timer)
{
    struct control *control = timer->owner;
    control->fired_ns = spw_loop_now_ns(loop);
}

/* A provider that accepts (in its backlog) and never says a word; more calls than connections are allowed. */
static void test_silent_provider_is_a_timeout(void **state)
{
    (void)state;
    enum { CALLS = 200 };
    struct fixture *f = new_fixture();
    struct result *results = calloc(CALLS, sizeof *results);
    struct control control = {.timer = {.fn = on_control, .owner = &control}};
    uint16_t port;
    assert_non_null(results);
    int fd = listen_loopback(&port, 256);
    char url[64];
    snprintf(url, sizeof url, "http://127.0.0.1:%u/", (unsigned)port);
    uint64_t deadline_ns = clock_ns() + 300 * MS;
    struct spw_http_request request = {.method = "GET", .url = url, .deadline_ns = deadline_ns};
    for (int i = 0; i < CALLS; i++) {
        send_request(f, &results[i], &request);
    }
    spw_loop_timer_set(f->loop, &control.timer, deadline_ns); /* set last, so it fires after theirs */
    run(f->loop);
    for (int i = 0; i < CALLS; i++) {
        assert_int_equal(results[i].done, 1);
        assert_int_equal(results[i].outcome, SPW_HTTP_TIMEOUT);
        assert_int_equal(results[i].status, 0);
        assert_true(results[i].done_ns >= deadline_ns);
        assert_int_equal(results[i].done_ns, control.fired_ns); /* the first turn after the deadline */
    }
    close(fd);
    free(results);
    end_fixture(f);
}

static void test_deadline_in_the_past(void **state)
{
    (void)state;
    struct fixture *f = new_fixture();
    struct result r;
    char url[64];
    snprintf(url, sizeof url, "http://127.0.0.1:%u/hold", (unsigned)spw_door_port(f->door));
    struct spw_http_request request = {.method = "GET", .url = url, .deadline_ns = 1};
    send_request(f, &r, &request);
    run(f->loop);
    assert_int_equal(r.outcome, SPW_HTTP_TIMEOUT);
    assert_int_equal(r.attempts, 0);
    assert_int_equal(f->held_count, 0);
    end_fixture(f);
}

/* Looking up this name stalls until let go; every other name goes to the real resolver. */
#define STALLED_NAME "stalled.spillway.test"
static sem_t let_go, looked_up;

int getaddrinfo(const char *restrict name, const char *restrict service,
                const struct addrinfo *restrict hints, struct addrinfo **restrict result)
{
    static int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    if (name != NULL && strcmp(name, STALLED_NAME) == 0) {
        sem_wait(&let_go);
        sem_post(&looked_up);
        return EAI_AGAIN;
    }
    if (real == NULL) {
        *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    }
    return real(name, service, hints, result);
}

static void test_stalled_look_up_holds_nobody(void **state)
{
    (void)state;
    struct fixture *f = new_fixture();
    struct result stalled, other;
    struct control control = {.timer = {.fn = on_control, .owner = &control}};
    sem_init(&let_go, 0, 0);
    sem_init(&looked_up, 0, 0);
    uint64_t deadline_ns = clock_ns() + 200 * MS;
    struct spw_http_request request = {
        .method = "GET", .url = "http://" STALLED_NAME "/", .deadline_ns = deadline_ns};
    send_request(f, &stalled, &request);
    get(f, &other, spw_door_port(f->door), "/other");
    spw_loop_timer_set(f->loop, &control.timer, deadline_ns);
    run(f->loop); /* ends only if neither waits for the look-up */
    assert_int_equal(other.outcome, SPW_HTTP_ANSWERED);
    assert_true(other.done_ns < deadline_ns);
    assert_int_equal(stalled.outcome, SPW_HTTP_TIMEOUT);
    assert_int_equal(stalled.done_ns, control.fired_ns);
    end_fixture(f);
    sem_post(&let_go);
    sem_wait(&looked_up);
    usleep(20000); /* libcurl's thread frees what it holds */
}

static void test_connect_timeout_comes_before_the_deadline(void **state)
{
    (void)state;
    struct fixture *f = new_fixture();
    struct result r;
    sem_init(&let_go, 0, 0);
    sem_init(&looked_up, 0, 0);
    struct spw_http_request request = {.method = "GET",
                                       .url = "http://" STALLED_NAME "/",
                                       .deadline_ns = clock_ns() + 60000 * MS,
                                       .connect_timeout_ms = 50};
    send_request(f, &r, &request);
    run(f->loop);
    assert_int_equal(r.outcome, SPW_HTTP_CONNECT);
    assert_true(r.done_ns < request.deadline_ns);
    end_fixture(f);
    sem_post(&let_go);
    sem_wait(&looked_up);
    usleep(20000);
}

/* -------- what is not sent -------- */

static void test_requests_that_are_refused(void **state)
{
    (void)state;
    static const char *const injected[] = {"X: a\r\nX-Injected: b"};
    static const char *const nameless[] = {": a"};
    static const char *const spaced[] = {"X : a"};
    static const char *const bare[] = {"X"};
    const struct {
        const char *method, *url;
        const char *const *headers;
        enum spw_status status;
    } cases[] = {
        {"GET", "ftp://127.0.0.1/", NULL, SPW_STATUS_REFUSED},
        {"GET", "file:///etc/passwd", NULL, SPW_STATUS_REFUSED},
        {"GET", "nothing", NULL, SPW_STATUS_INVALID},
        {"GET", "http://user:secret@127.0.0.1/", NULL, SPW_STATUS_INVALID},
        {"GET", "http://127.0.0.1:99999/", NULL, SPW_STATUS_INVALID},
        {"GET", "http://127.0.0.1/a b", NULL, SPW_STATUS_INVALID},
        {"GET", "http://127.0.0.1/\r\nX: 1", NULL, SPW_STATUS_INVALID},
        {"", "http://127.0.0.1/", NULL, SPW_STATUS_INVALID},
        {"get", "http://127.0.0.1/", NULL, SPW_STATUS_INVALID},
        {"GET /x", "http://127.0.0.1/", NULL, SPW_STATUS_INVALID},
        {"CONNECT", "http://127.0.0.1/", NULL, SPW_STATUS_INVALID},
        {"GET", "http://127.0.0.1/", injected, SPW_STATUS_INVALID},
        {"GET", "http://127.0.0.1/", nameless, SPW_STATUS_INVALID},
        {"GET", "http://127.0.0.1/", spaced, SPW_STATUS_INVALID},
        {"GET", "http://127.0.0.1/", bare, SPW_STATUS_INVALID},
    };
    struct fixture *f = new_fixture();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct spw_error err = {0};
        struct spw_http_request request = {.method = cases[i].method,
                                           .url = cases[i].url,
                                           .headers = cases[i].headers,
                                           .header_count = cases[i].headers != NULL,
                                           .deadline_ns = clock_ns() + 1000 * MS};
        enum spw_status status = spw_http_client_send(f->client, &request, on_done, NULL, NULL, &err);
        if (status != cases[i].status || strstr(err.text, "secret") != NULL) {
            fail_msg("case %zu: %s: %s", i, spw_status_name(status), err.text);
        }
    }
    /* http:// needs to be allowed. */
    struct spw_http_client *strict = NULL;
    struct spw_error err = {0};
    check(spw_http_client_new(f->loop, &(struct spw_http_client_options){0}, &strict, &err), &err);
    struct spw_http_request request = {
        .method = "GET", .url = "http://127.0.0.1/", .deadline_ns = clock_ns() + 1000 * MS};
    assert_int_equal(spw_http_client_send(strict, &request, on_done, NULL, NULL, &err), SPW_STATUS_REFUSED);
    spw_http_client_destroy(strict);
    end_fixture(f);
}

static void test_environment_proxies_are_ignored(void **state)
{
    (void)state;
    uint16_t nobody;
    char proxy[64];
    close(listen_loopback(&nobody, 1));
    snprintf(proxy, sizeof proxy, "http://127.0.0.1:%u", (unsigned)nobody);
    setenv("http_proxy", proxy, 1);
    setenv("all_proxy", proxy, 1);
    struct fixture *f = new_fixture();
    struct result r;
    get(f, &r, spw_door_port(f->door), "/");
    run(f->loop);
    unsetenv("http_proxy");
    unsetenv("all_proxy");
    assert_int_equal(r.outcome, SPW_HTTP_ANSWERED);
    end_fixture(f);
}

static size_t open_descriptors(void)
{
    size_t count = 0;
    DIR *directory = opendir("/proc/self/fd");
    assert_non_null(directory);
    while (readdir(directory) != NULL) {
        count++;
    }
    closedir(directory);
    return count;
}

static size_t descriptors_before;

static void test_no_descriptor_is_left_open(void **state)
{
    (void)state;
    assert_int_equal(open_descriptors(), descriptors_before);
}

static int run_on(enum spw_loop_backend wanted, const char *name)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_request_and_answer),
        cmocka_unit_test(test_methods),
        cmocka_unit_test(test_many_late_answers_at_once),
        cmocka_unit_test(test_cancelled_call_is_silent_and_seen_by_the_door),
        cmocka_unit_test(test_client_destroyed_with_calls_in_flight),
        cmocka_unit_test(test_door_destroyed_with_calls_waiting),
        cmocka_unit_test(test_done_starts_and_cancels_others),
        cmocka_unit_test(test_broken_answers),
        cmocka_unit_test(test_whole_answers),
        cmocka_unit_test(test_answers_are_capped),
        cmocka_unit_test(test_dead_kept_connection_is_replaced_once),
        cmocka_unit_test(test_every_dead_connection_is_replaced),
        cmocka_unit_test(test_what_goes_once_is_not_sent_again),
        cmocka_unit_test(test_nobody_there),
        cmocka_unit_test(test_silent_provider_is_a_timeout),
        cmocka_unit_test(test_deadline_in_the_past),
        cmocka_unit_test(test_stalled_look_up_holds_nobody),
        cmocka_unit_test(test_connect_timeout_comes_before_the_deadline),
        cmocka_unit_test(test_requests_that_are_refused),
        cmocka_unit_test(test_environment_proxies_are_ignored),
        cmocka_unit_test(test_no_descriptor_is_left_open),
    };
    backend = wanted;
    descriptors_before = open_descriptors();
    return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}

int main(void)
{
    struct spw_loop *loop = NULL;
    struct spw_error err = {0};
    int failures = run_on(SPW_LOOP_EPOLL, "http on epoll");
    if (spw_loop_new(SPW_LOOP_URING, &loop, &err) == SPW_STATUS_OK) {
        spw_loop_destroy(loop);
        failures += run_on(SPW_LOOP_URING, "http on io_uring");
    } else {
        print_message("no io_uring on this machine, its half is not run: %s\n", err.text);
    }
    return failures;
}
