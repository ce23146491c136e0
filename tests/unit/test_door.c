/* test_door.c: what door.h and listener.h promise, seen by callers that write bytes, on io_uring and on epoll. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "sidecar/http/door.h"
#include "sidecar/net/listener.h"
#include "tests/unit/backend_kit.h"

enum { BODY_MAX = 4096, HELD_MAX = 4 };

struct fixture {
    struct spw_loop *loop;
    struct spw_door *door;
    uint32_t handled;
    char last[256]; /* "METHOD path query-x header-x body-bytes" of the newest request */
    struct spw_door_request *held[HELD_MAX];
    uint32_t held_count;
    uint32_t gone_count;
    uid_t peer_uid;
    gid_t peer_gid;
    enum spw_status peer_status;
};

static const char *or_none(const char *text)
{
    return text == NULL ? "(none)" : text;
}

/* /hold waits; everything else is answered at once. */
static void handle(void *owner, struct spw_door_request *request)
{
    struct fixture *f = owner;
    size_t bytes;
    const char *body = spw_door_body(request, &bytes);
    f->handled++;
    snprintf(f->last, sizeof f->last, "%s %s %s %s %zu", spw_door_method(request), spw_door_target(request),
             or_none(spw_door_query(request, "x")), or_none(spw_door_header(request, "X-Test")), bytes);
    f->peer_status = spw_door_peer(request, &f->peer_uid, &f->peer_gid);
    assert_int_equal(strlen(body), bytes);
    if (strcmp(spw_door_path(request), "/hold") == 0) {
        assert_true(f->held_count < HELD_MAX);
        f->held[f->held_count++] = request;
        spw_loop_stop(f->loop);
        return;
    }
    const struct spw_door_header headers[] = {
        {"X-Safe", "one\r\nX-Injected: two"}, {"Content-Length", "1"}, {"bad name", "x"}};
    spw_door_answer(request, strcmp(spw_door_path(request), "/empty") == 0 ? 204 : 200, "text/plain", headers,
                    3, body, bytes);
}

static void gone(void *owner, struct spw_door_request *request)
{
    struct fixture *f = owner;
    assert_ptr_equal(request, f->held[0]);
    f->gone_count++;
    spw_loop_stop(f->loop);
}

static void open_door(struct fixture *f, const char *unix_path)
{
    struct spw_error err = {0};
    struct spw_door_options options = {.unix_path = unix_path,
                                       .unix_mode = 0640,
                                       .unix_gid = (gid_t)-1,
                                       .listen = unix_path == NULL ? "127.0.0.1:0" : NULL,
                                       .body_max_bytes = BODY_MAX,
                                       .handler = handle,
                                       .gone = gone,
                                       .owner = f};
    check(spw_door_new(f->loop, &options, &f->door, &err), &err);
}

static struct fixture *new_fixture(const char *unix_path)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->loop = new_loop();
    open_door(f, unix_path);
    return f;
}

static void end_fixture(struct fixture *f)
{
    spw_door_destroy(f->door);
    spw_loop_destroy(f->loop);
    free(f);
}

/* -------- a caller that writes bytes -------- */

static int connect_tcp(uint16_t port)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons(port)};
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&name, sizeof name), 0);
    return fd;
}

/* -1 when nobody accepts there. */
static int connect_unix(const char *path)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    memcpy(name.sun_path, path, strlen(path));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    if (connect(fd, (struct sockaddr *)&name, sizeof name) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

struct exchange {
    struct spw_loop *loop;
    struct spw_loop_task over;
    int fd;
    const char *bytes;
    size_t count;
    size_t step; /* bytes a write; 0 = all */
    char answer[65536];
    size_t answered;
};

static void stop_task(struct spw_loop *loop, struct spw_loop_task *task)
{
    (void)task;
    spw_loop_stop(loop);
}

/* Writes all, closes its sending half, reads to the end. */
static void *exchange_thread(void *argument)
{
    struct exchange *x = argument;
    size_t sent = 0;
    while (sent < x->count) {
        size_t step = x->step == 0 || x->step > x->count - sent ? x->count - sent : x->step;
        ssize_t n = send(x->fd, x->bytes + sent, step, MSG_NOSIGNAL);
        if (n <= 0) {
            break; /* refused half-way: its answer is still to be read */
        }
        sent += (size_t)n;
    }
    shutdown(x->fd, SHUT_WR);
    ssize_t n;
    while (x->answered + 1 < sizeof x->answer &&
           (n = recv(x->fd, x->answer + x->answered, sizeof x->answer - 1 - x->answered, 0)) > 0) {
        x->answered += (size_t)n;
    }
    x->answer[x->answered] = '\0';
    close(x->fd);
    spw_loop_post(x->loop, &x->over);
    return NULL;
}

static struct exchange *exchange_bytes(struct fixture *f, int fd, const char *bytes, size_t count,
                                       size_t step)
{
    struct exchange *x = calloc(1, sizeof *x);
    pthread_t thread;
    assert_non_null(x);
    x->loop = f->loop;
    x->over.fn = stop_task;
    x->fd = fd;
    x->bytes = bytes;
    x->count = count;
    x->step = step;
    assert_int_equal(pthread_create(&thread, NULL, exchange_thread, x), 0);
    run(f->loop);
    pthread_join(thread, NULL);
    return x;
}

static struct exchange *exchange(struct fixture *f, const char *text)
{
    return exchange_bytes(f, connect_tcp(spw_door_port(f->door)), text, strlen(text), 0);
}

static int answers_in(const struct exchange *x)
{
    int count = 0;
    for (const char *at = x->answer; (at = strstr(at, "HTTP/1.")) != NULL; at++) {
        count++;
    }
    return count;
}

static int status_of(const struct exchange *x)
{
    return x->answered < 12 ? 0 : (int)strtol(x->answer + 9, NULL, 10);
}

/* -------- plain requests -------- */

static void test_request_arrives_as_sent(void **state)
{
    (void)state;
    struct fixture *f = new_fixture(NULL);
    const char *text =
        "PATCH /a//b/../c%2e%2F?x=%41+b&y HTTP/1.1\r\nHost: h\r\nX-Test: v 1\r\nContent-Length: 5\r\n"
        "Connection: close\r\n\r\nhello";
    struct exchange *x = exchange_bytes(f, connect_tcp(spw_door_port(f->door)), text, strlen(text), 1);
    assert_int_equal(status_of(x), 200);
    assert_string_equal(f->last, "PATCH /a//b/../c%2e%2F?x=%41+b&y A b v 1 5");
    assert_non_null(strstr(x->answer, "\r\nContent-Length: 5\r\n"));
    assert_non_null(strstr(x->answer, "\r\nDate: "));
    assert_non_null(strstr(x->answer, "\r\n\r\nhello"));
    /* The header with line ends became one line; those that are the door's own were left out. */
    assert_non_null(strstr(x->answer, "\r\nX-Safe: oneX-Injected: two\r\n"));
    assert_null(strstr(x->answer, "\r\nX-Injected"));
    assert_null(strstr(x->answer, "bad name"));
    assert_null(strstr(x->answer, "Content-Length: 1\r\n"));
    assert_int_equal(f->peer_status, SPW_STATUS_NOT_FOUND);
    assert_int_equal(spw_door_open_count(f->door), 0);
    free(x);
    end_fixture(f);
}

static void test_several_requests_on_one_connection(void **state)
{
    (void)state;
    struct fixture *f = new_fixture(NULL);
    struct exchange *x = exchange(f, "GET /1 HTTP/1.1\r\nHost: h\r\n\r\n"
                                     "POST /2 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
                                     "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
                                     "HEAD /3 HTTP/1.1\r\nHost: h\r\n\r\n"
                                     "BREW /empty HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    assert_int_equal(f->handled, 4);
    assert_int_equal(answers_in(x), 4);
    assert_non_null(strstr(x->answer, "\r\n\r\nabcde"));
    assert_non_null(strstr(x->answer, "HTTP/1.1 204"));
    assert_string_equal(f->last, "BREW /empty (none) (none) 0");
    free(x);
    end_fixture(f);
}

static void tell_headers(void *owner, struct spw_door_request *request)
{
    snprintf(owner, 128, "%s;%s;%s", spw_door_header(request, "ACCEPT"), spw_door_header(request, "X-Empty"),
             or_none(spw_door_header(request, "X-None")));
    spw_door_set_user(request, owner);
    assert_ptr_equal(spw_door_user(request), owner);
    spw_door_answer(request, 200, NULL, NULL, 0, NULL, 0);
}

static void test_headers_by_ipv6(void **state)
{
    (void)state;
    struct fixture *f = new_fixture(NULL);
    char all[128] = "";
    struct spw_error err = {0};
    struct spw_door *door = NULL;
    struct spw_door_options options = {.listen = "[::1]:0", .handler = tell_headers, .owner = all};
    if (spw_door_new(f->loop, &options, &door, &err) != SPW_STATUS_OK) {
        options.listen = "127.0.0.1:0"; /* no IPv6 here */
        check(spw_door_new(f->loop, &options, &door, &err), &err);
    }
    spw_door_destroy(f->door);
    f->door = door;
    int fd;
    if (options.listen[0] == '[') {
        struct sockaddr_in6 name = {.sin6_family = AF_INET6, .sin6_port = htons(spw_door_port(door))};
        name.sin6_addr = in6addr_loopback;
        fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(fd, (struct sockaddr *)&name, sizeof name), 0);
    } else {
        fd = connect_tcp(spw_door_port(door));
    }
    const char *text = "GET / HTTP/1.1\r\nHost: h\r\nAccept: a\r\nX-Empty:\r\nConnection: close\r\n\r\n";
    struct exchange *x = exchange_bytes(f, fd, text, strlen(text), 0);
    assert_int_equal(status_of(x), 200);
    assert_string_equal(all, "a;;(none)");
    free(x);
    end_fixture(f);
}

/* -------- what is refused -------- */

/* libmicrohttpd writes the head of its own refusals twice; what counts is that nothing else is answered. */
static bool only_refusals_in(const struct exchange *x)
{
    for (const char *at = x->answer; (at = strstr(at, "HTTP/1.")) != NULL; at++) {
        if (strncmp(at + 8, " 400 ", 5) != 0 && strncmp(at + 8, " 413 ", 5) != 0 &&
            strncmp(at + 8, " 505 ", 5) != 0) {
            return false;
        }
    }
    return true;
}

#define SMUGGLED "GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n"

static void test_ambiguous_requests_are_refused(void **state)
{
    (void)state;
    static const char *const requests[] = {
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nTransfer-Encoding: "
        "chunked\r\n\r\n0\r\n\r\n" SMUGGLED,
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: "
        "4\r\n\r\n0\r\n\r\n" SMUGGLED,
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nContent-Length: 38\r\n\r\n" SMUGGLED,
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 38\r\nContent-Length: 0\r\n\r\n" SMUGGLED,
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3, 3\r\n\r\nabc",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: +3\r\n\r\nabc",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: -3\r\n\r\nabc",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0x3\r\n\r\nabc",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999999999999\r\n\r\nabc",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length:\r\n\r\n" SMUGGLED,
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length : 3\r\n\r\nabc",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: identity\r\n\r\n" SMUGGLED,
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n" SMUGGLED,
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" SMUGGLED,
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: "
        "identity\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" SMUGGLED,
        "GET / HTTP/1.1\r\nHost: h\r\nHost: i\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nX-T\x01: 1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nX-T: 1\x7f\r\n\r\n",
        "GET http://elsewhere/ HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET relative HTTP/1.1\r\nHost: h\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n",
        "CONNECT elsewhere:443 HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /a#b HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /\xc3\xa9 HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /\x01 HTTP/1.1\r\nHost: h\r\n\r\n",
        "G(T / HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET / HTTP/2.0\r\nHost: h\r\n\r\n",
        "GET / HTTP/1.1 x\r\nHost: h\r\n\r\n",
        "GET /\r\n\r\n",
        "\x16\x03\x01\x02\x10\x01\x01\x01\xfc\x03\x03 much like a TLS hello\r\n\r\n",
    };
    struct fixture *f = new_fixture(NULL);
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        struct exchange *x = exchange(f, requests[i]);
        if (f->handled != 0 || !only_refusals_in(x)) {
            fail_msg("request %zu:\n%s\nhandled as \"%s\", answered:\n%s", i, requests[i], f->last,
                     x->answer);
        }
        free(x);
    }
    /* The door is as good as new. */
    struct exchange *x = exchange(f, "GET /fine HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    assert_int_equal(status_of(x), 200);
    assert_int_equal(f->handled, 1);
    free(x);
    end_fixture(f);
}

/* libmicrohttpd ends targets and header values at a NUL byte; what matters is that nobody sees what is behind it. */
static void test_nul_bytes_hide_nothing(void **state)
{
    (void)state;
    static const char in_name[] = "GET / HTTP/1.1\r\nHost: h\r\nX-T\0st: 1\r\n\r\n";
    static const char in_target[] = "GET /a\0/../b HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    static const char in_value[] = "GET /a HTTP/1.1\r\nHost: h\r\nX-Test: c\0d\r\nConnection: close\r\n\r\n";
    struct fixture *f = new_fixture(NULL);
    uint16_t port = spw_door_port(f->door);
    struct exchange *x = exchange_bytes(f, connect_tcp(port), in_name, sizeof in_name - 1, 0);
    assert_int_equal(f->handled, 0);
    assert_true(only_refusals_in(x));
    free(x);
    x = exchange_bytes(f, connect_tcp(port), in_target, sizeof in_target - 1, 0);
    assert_string_equal(f->last, "GET /a (none) (none) 0");
    free(x);
    x = exchange_bytes(f, connect_tcp(port), in_value, sizeof in_value - 1, 0);
    assert_string_equal(f->last, "GET /a (none) c 0");
    free(x);
    /* One that only appears by decoding stays in the target, and makes no value. */
    x = exchange(f, "GET /?x=a%00b HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    assert_string_equal(f->last, "GET /?x=a%00b (none) (none) 0");
    free(x);
    end_fixture(f);
}

/* head, then count bytes of 'a' (in chunks if chunked). */
static struct exchange *post_large(struct fixture *f, const char *head, size_t count, bool chunked)
{
    char *bytes = malloc(strlen(head) + count + count / 1000 * 8 + 64);
    assert_non_null(bytes);
    size_t used = (size_t)sprintf(bytes, "%s", head);
    while (count > 0) {
        size_t piece = chunked && count > 1000 ? 1000 : count;
        used += chunked ? (size_t)sprintf(bytes + used, "%zx\r\n", piece) : 0;
        memset(bytes + used, 'a', piece);
        used += piece;
        used += chunked ? (size_t)sprintf(bytes + used, "\r\n") : 0;
        count -= piece;
    }
    used += chunked ? (size_t)sprintf(bytes + used, "0\r\n\r\n") : 0;
    struct exchange *x = exchange_bytes(f, connect_tcp(spw_door_port(f->door)), bytes, used, 0);
    free(bytes);
    return x;
}

static void test_large_bodies_are_refused(void **state)
{
    (void)state;
    struct fixture *f = new_fixture(NULL);
    struct exchange *x =
        post_large(f, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4096\r\nConnection: close\r\n\r\n",
                   BODY_MAX, false);
    assert_int_equal(status_of(x), 200);
    free(x);
    f->handled = 0;
    x = post_large(f, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4097\r\nConnection: close\r\n\r\n",
                   BODY_MAX + 1, false);
    assert_int_equal(status_of(x), 413);
    free(x);
    x = post_large(f, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n",
                   (size_t)100 * BODY_MAX, true);
    assert_int_equal(status_of(x), 413);
    free(x);
    /* Announced and not yet sent: answered at once, and not asked for. */
    x = exchange(f, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5000\r\nExpect: 100-continue\r\n\r\n");
    assert_int_equal(status_of(x), 413);
    assert_int_equal(answers_in(x), 1);
    free(x);
    x = exchange(f, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 500000000000\r\n\r\n");
    assert_int_equal(status_of(x), 413);
    free(x);
    /* Without end: cut off. */
    x = post_large(f, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n", 3 << 20, true);
    assert_int_not_equal(status_of(x), 200);
    free(x);
    /* Headers without end. */
    x = post_large(f, "GET / HTTP/1.1\r\nHost: h\r\nX-Long: ", 200000, false);
    assert_int_not_equal(status_of(x), 200);
    free(x);
    assert_int_equal(f->handled, 0);
    end_fixture(f);
}

/* More of them than there are places: each must be given back, or the whole request at the end finds none. */
static void test_half_requests_give_their_places_back(void **state)
{
    (void)state;
    static const char *const halves[] = {
        "",
        "G",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        ("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n"),
    };
    struct fixture *f = new_fixture(NULL);
    spw_door_destroy(f->door);
    struct spw_error err = {0};
    struct spw_door_options options = {
        .listen = "127.0.0.1:0", .connections_max = 2, .handler = handle, .gone = gone, .owner = f};
    check(spw_door_new(f->loop, &options, &f->door, &err), &err);
    for (size_t i = 0; i < 4 * sizeof halves / sizeof *halves; i++) {
        int fd = connect_tcp(spw_door_port(f->door));
        const char *half = halves[i / 4];
        assert_int_equal(write(fd, half, strlen(half)), strlen(half));
        close(fd);
    }
    struct exchange *x = exchange(f, "GET /whole HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    assert_int_equal(status_of(x), 200);
    assert_int_equal(f->handled, 1);
    free(x);
    end_fixture(f);
}

/* -------- later answers and hang-ups -------- */

static void test_hang_up_while_waiting_is_told(void **state)
{
    (void)state;
    struct fixture *f = new_fixture(NULL);
    int fd = connect_tcp(spw_door_port(f->door));
    const char *text = "GET /hold HTTP/1.1\r\nHost: h\r\n\r\n";
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    run(f->loop);
    assert_int_equal(f->held_count, 1);
    assert_int_equal(spw_door_open_count(f->door), 1);
    close(fd);
    run(f->loop); /* gone ends it */
    assert_int_equal(f->gone_count, 1);
    assert_int_equal(spw_door_open_count(f->door), 1);
    spw_door_answer(f->held[0], 200, NULL, NULL, 0, "late", 4);
    struct exchange *x = exchange(f, "GET /next HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    assert_int_equal(status_of(x), 200);
    assert_int_equal(spw_door_open_count(f->door), 0);
    assert_int_equal(f->gone_count, 1);
    free(x);
    end_fixture(f);
}

static void test_destroyed_with_requests_waiting(void **state)
{
    (void)state;
    struct fixture *f = new_fixture(NULL);
    int fd = connect_tcp(spw_door_port(f->door));
    const char *text = "GET /hold HTTP/1.1\r\nHost: h\r\n\r\n";
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    run(f->loop);
    spw_door_destroy(f->door);
    f->door = NULL;
    assert_int_equal(f->gone_count, 1);
    char byte;
    assert_true(read(fd, &byte, 1) <= 0);
    close(fd);
    end_fixture(f);
}

static void test_drain(void **state)
{
    (void)state;
    struct fixture *f = new_fixture(NULL);
    int fd = connect_tcp(spw_door_port(f->door));
    const char *text = "GET /hold HTTP/1.1\r\nHost: h\r\n\r\n";
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    run(f->loop);
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons(spw_door_port(f->door))};
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    spw_door_stop_listening(f->door);
    spw_door_stop_listening(f->door);
    int late = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(late, (struct sockaddr *)&name, sizeof name), -1);
    assert_int_equal(errno, ECONNREFUSED);
    close(late);
    spw_door_answer(f->held[0], 200, "text/plain", NULL, 0, "last", 4);
    struct exchange *x = exchange_bytes(f, fd, "", 0, 0);
    assert_int_equal(status_of(x), 200);
    assert_non_null(strstr(x->answer, "\r\nConnection: close\r\n"));
    assert_non_null(strstr(x->answer, "\r\n\r\nlast"));
    assert_int_equal(spw_door_open_count(f->door), 0);
    free(x);
    end_fixture(f);
}

/* -------- the Unix socket -------- */

struct place {
    char directory[64];
    char path[96];
};

static void make_place(struct place *place)
{
    strcpy(place->directory, "/tmp/spw-door-XXXXXX");
    assert_non_null(mkdtemp(place->directory));
    snprintf(place->path, sizeof place->path, "%s/door.sock", place->directory);
}

static void remove_place(const struct place *place)
{
    char lock[128];
    snprintf(lock, sizeof lock, "%s.lock", place->path);
    unlink(lock);
    unlink(place->path);
    assert_int_equal(rmdir(place->directory), 0); /* nothing else was left behind */
}

static void test_unix_door(void **state)
{
    (void)state;
    struct place place;
    struct stat st;
    make_place(&place);
    struct fixture *f = new_fixture(place.path);
    assert_int_equal(stat(place.path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
    assert_int_equal(spw_door_port(f->door), 0);
    const char *text = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    struct exchange *x = exchange_bytes(f, connect_unix(place.path), text, strlen(text), 0);
    assert_int_equal(status_of(x), 200);
    assert_int_equal(f->peer_status, SPW_STATUS_OK);
    assert_int_equal(f->peer_uid, getuid());
    assert_int_equal(f->peer_gid, getgid());
    free(x);
    end_fixture(f);
    assert_int_equal(stat(place.path, &st), -1);
    remove_place(&place);
}

static void test_live_socket_is_busy_and_dead_one_replaced(void **state)
{
    (void)state;
    struct place place;
    struct spw_listener second;
    struct spw_error err = {0};
    make_place(&place);
    struct fixture *f = new_fixture(place.path);
    assert_int_equal(spw_listener_open_unix(&second, place.path, 0600, (gid_t)-1, &err), SPW_STATUS_BUSY);
    assert_non_null(strstr(err.text, place.path));
    int fd = connect_unix(place.path); /* the first is unharmed */
    assert_true(fd >= 0);
    close(fd);
    end_fixture(f);
    /* Somebody who knows nothing of our lock accepts there. */
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    memcpy(name.sun_path, place.path, strlen(place.path));
    int foreign = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(foreign, (struct sockaddr *)&name, sizeof name), 0);
    assert_int_equal(listen(foreign, 1), 0);
    assert_int_equal(spw_listener_open_unix(&second, place.path, 0600, (gid_t)-1, &err), SPW_STATUS_BUSY);
    /* It dies and leaves its file, as by SIGKILL. */
    close(foreign);
    assert_int_equal(connect_unix(place.path), -1);
    f = new_fixture(place.path);
    fd = connect_unix(place.path);
    assert_true(fd >= 0);
    close(fd);
    end_fixture(f);
    remove_place(&place);
}

static void test_another_owner_of_the_path_is_left_alone(void **state)
{
    (void)state;
    struct place place;
    struct spw_listener listener;
    struct spw_error err = {0};
    struct stat st;
    make_place(&place);
    /* A file that is no socket. */
    FILE *file = fopen(place.path, "we");
    assert_non_null(file);
    fclose(file);
    assert_int_equal(spw_listener_open_unix(&listener, place.path, 0600, (gid_t)-1, &err),
                     SPW_STATUS_CONFLICT);
    assert_int_equal(stat(place.path, &st), 0);
    unlink(place.path);
    /* A socket that took the path's name since. */
    check(spw_listener_open_unix(&listener, place.path, 0600, (gid_t)-1, &err), &err);
    unlink(place.path);
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    memcpy(name.sun_path, place.path, strlen(place.path));
    int foreign = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(foreign, (struct sockaddr *)&name, sizeof name), 0);
    spw_listener_close(&listener);
    assert_int_equal(stat(place.path, &st), 0);
    close(foreign);
    remove_place(&place);
}

static void test_bad_addresses_name_themselves(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      ":",
                                      "127.0.0.1",
                                      "127.0.0.1:",
                                      ":80",
                                      "host:80",
                                      "::1:80",
                                      "[::1]80",
                                      "[::1:80",
                                      "[]:80",
                                      "1.2.3:x",
                                      "127.0.0.1:99999999999",
                                      "127.0.0.1:-1",
                                      "127.0.0.1 :80"};
    struct spw_listener listener;
    struct spw_error err = {0};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (spw_listener_open_tcp(&listener, bad[i], &err) == SPW_STATUS_OK) {
            fail_msg("\"%s\" was taken", bad[i]);
        }
        assert_int_equal(listener.fd, -1);
    }
    check(spw_listener_open_tcp(&listener, "127.0.0.1:0", &err), &err);
    char address[32];
    snprintf(address, sizeof address, "127.0.0.1:%u", (unsigned)listener.port);
    struct spw_listener second;
    assert_int_equal(spw_listener_open_tcp(&second, address, &err), SPW_STATUS_BUSY);
    assert_non_null(strstr(err.text, address));
    spw_listener_close(&listener);
    char path[256];
    memset(path, 'a', sizeof path - 1);
    path[0] = '/';
    path[sizeof path - 1] = '\0';
    assert_int_equal(spw_listener_open_unix(&listener, path, 0600, (gid_t)-1, &err), SPW_STATUS_INVALID);
    assert_int_equal(spw_listener_open_unix(&listener, "here.sock", 0600, (gid_t)-1, &err),
                     SPW_STATUS_INVALID);
    assert_int_equal(spw_listener_open_unix(&listener, "/nowhere/x.sock", 0600, (gid_t)-1, &err),
                     SPW_STATUS_SYSTEM);
    assert_non_null(strstr(err.text, "/nowhere/x.sock"));
}

static int run_group(const char *name)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_request_arrives_as_sent),
        cmocka_unit_test(test_several_requests_on_one_connection),
        cmocka_unit_test(test_headers_by_ipv6),
        cmocka_unit_test(test_ambiguous_requests_are_refused),
        cmocka_unit_test(test_nul_bytes_hide_nothing),
        cmocka_unit_test(test_large_bodies_are_refused),
        cmocka_unit_test(test_half_requests_give_their_places_back),
        cmocka_unit_test(test_hang_up_while_waiting_is_told),
        cmocka_unit_test(test_destroyed_with_requests_waiting),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_unix_door),
        cmocka_unit_test(test_live_socket_is_busy_and_dead_one_replaced),
        cmocka_unit_test(test_no_descriptor_is_left_open),
    };
    return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest listeners[] = {
        cmocka_unit_test(test_another_owner_of_the_path_is_left_alone),
        cmocka_unit_test(test_bad_addresses_name_themselves),
    };
    int failures = cmocka_run_group_tests_name("listener", listeners, NULL, NULL);
    return failures + run_on_both(run_group, "door on epoll", "door on io_uring");
}
