/* test_http_provider.c: the client against providers that misbehave or never answer, on io_uring and on epoll. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <netdb.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zlib.h>

#include "sidecar/http/client.h"
#include "sidecar/http/door.h"
#include "tests/unit/http_kit.h"

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

/* On one connection: answers without a body, whose headers may say of one what they like; an interim answer's length,
 * which is nobody's; a trailer's; and an answer that ends in two places, whose connection is given up. */
static void test_where_an_answer_ends(void **state)
{
    (void)state;
    static const struct {
        const char *method;
        uint32_t status;
        enum spw_http_outcome outcome;
    } calls[] = {{"HEAD", 200, SPW_HTTP_ANSWERED}, {"GET", 304, SPW_HTTP_ANSWERED},
                 {"GET", 204, SPW_HTTP_ANSWERED},  {"GET", 200, SPW_HTTP_ANSWERED},
                 {"GET", 200, SPW_HTTP_ANSWERED},  {"GET", 0, SPW_HTTP_BROKEN},
                 {"GET", 200, SPW_HTTP_ANSWERED}};
    static const struct reply replies[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 0, KEEP},
        {"HTTP/1.1 304 Same\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 0, KEEP},
        {"HTTP/1.1 204 None\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", 0, KEEP},
        {"HTTP/1.1 103 Early\r\nContent-Length: 9\r\n\r\n"
         "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
         0, KEEP},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nContent-Length: 9\r\n\r\n", 0,
         KEEP},
        {"HTTP/1.1 200 OK\r\nX-RateLimit-Remaining: 0\r\nContent-Length: 2\r\nTransfer-Encoding: "
         "chunked\r\n\r\n"
         "2\r\nok\r\n0\r\n\r\n",
         0, CLOSE},
        {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 0, KEEP},
    };
    struct fixture *f = new_fixture();
    struct stub stub;
    char url[64];
    stub_start(&stub, replies, sizeof replies / sizeof *replies);
    snprintf(url, sizeof url, "http://127.0.0.1:%u/", (unsigned)stub.port);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        struct result r;
        struct spw_http_request request = {
            .method = calls[i].method, .url = url, .deadline_ns = clock_ns() + 30000 * MS};
        send_request(f, &r, &request);
        run(f->loop);
        bool is_broken = r.outcome == SPW_HTTP_BROKEN;
        if (r.outcome != calls[i].outcome || r.status != calls[i].status || r.attempts != 1 ||
            is_broken != (strstr(r.detail, "a length and chunks") != NULL) ||
            (is_broken && r.headers[0] != '\0')) {
            fail_msg("call %zu: outcome %d, status %u, %u attempts, \"%s\"", i, (int)r.outcome, r.status,
                     r.attempts, r.detail);
        }
    }
    end_fixture(f);
    stub_end(&stub);
    assert_int_equal(stub.connections, 2);
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
    uint64_t deadline_ns = clock_ns() + 1000 * MS; /* far more than the other needs */
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

static int run_group(const char *name)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_broken_answers),
        cmocka_unit_test(test_whole_answers),
        cmocka_unit_test(test_where_an_answer_ends),
        cmocka_unit_test(test_answers_are_capped),
        cmocka_unit_test(test_dead_kept_connection_is_replaced_once),
        cmocka_unit_test(test_every_dead_connection_is_replaced),
        cmocka_unit_test(test_what_goes_once_is_not_sent_again),
        cmocka_unit_test(test_nobody_there),
        cmocka_unit_test(test_silent_provider_is_a_timeout),
        cmocka_unit_test(test_deadline_in_the_past),
        cmocka_unit_test(test_stalled_look_up_holds_nobody),
        cmocka_unit_test(test_connect_timeout_comes_before_the_deadline),
        cmocka_unit_test(test_no_descriptor_is_left_open),
    };
    return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}

int main(void)
{
    return run_on_both(run_group, "provider on epoll", "provider on io_uring");
}
