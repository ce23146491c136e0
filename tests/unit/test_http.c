/* test_http.c: the client against the door, and what it does not send, on io_uring and on epoll. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sidecar/http/client.h"
#include "sidecar/http/door.h"
#include "tests/unit/http_kit.h"

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

/* -------- within one turn -------- */

/* A call is given to libcurl at once and begun by it later in the turn. */
static void test_cancelled_before_it_is_begun(void **state)
{
    (void)state;
    struct fixture *f = new_fixture();
    struct result dropped[3], other;
    for (int i = 0; i < 3; i++) {
        get(f, &dropped[i], spw_door_port(f->door), "/hold");
    }
    get(f, &other, spw_door_port(f->door), "/other");
    for (int i = 0; i < 3; i++) {
        spw_http_call_cancel(dropped[i].call);
        f->pending--;
    }
    run(f->loop);
    assert_int_equal(other.outcome, SPW_HTTP_ANSWERED);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(dropped[i].done, 0);
    }
    assert_int_equal(f->held_count, 0);
    end_fixture(f);
}

static void test_client_destroyed_before_its_calls_are_begun(void **state)
{
    (void)state;
    struct fixture *f = new_fixture();
    struct result r;
    get(f, &r, spw_door_port(f->door), "/hold");
    spw_http_client_destroy(f->client);
    f->client = NULL;
    assert_int_equal(r.done, 1);
    assert_int_equal(r.outcome, SPW_HTTP_CANCELLED);
    run(f->loop); /* the done has stopped it; what was put off is not run */
    end_fixture(f);
}

/* The answer is given, and libmicrohttpd has not looked at it yet. */
static void test_door_destroyed_before_it_sends_answers(void **state)
{
    (void)state;
    struct fixture *f = new_fixture();
    struct result results[2];
    for (int i = 0; i < 2; i++) {
        get(f, &results[i], spw_door_port(f->door), "/hold");
    }
    f->stop_at_held = 2;
    run(f->loop);
    answer_echo(f->held[0]);
    spw_door_destroy(f->door);
    f->door = NULL;
    run(f->loop);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(results[i].done, 1);
    }
    assert_int_equal(f->gone_count, 1); /* the other's */
    end_fixture(f);
}

/* Calls that end in one turn: the done of the first cancels those that come after it, whose ends libcurl has told
 * already, and begins new ones. */
struct crowd {
    struct result results[16], again[16];
    uint32_t started;
};

static void on_crowd(void *owner, const struct spw_http_response *response)
{
    struct result *r = owner;
    struct fixture *f = r->f;
    struct crowd *crowd = f->user;
    assert_int_equal(response->outcome, SPW_HTTP_ANSWERED);
    r->done++;
    r->call = NULL;
    f->pending--;
    size_t i = (size_t)(r - crowd->results);
    struct result *next = &crowd->results[(i + 1) % 16];
    if (next->call != NULL) {
        spw_http_call_cancel(next->call);
        next->call = NULL;
        f->pending--;
    }
    get(f, &crowd->again[crowd->started++], spw_door_port(f->door), "/again");
}

static void answer_all_held(struct spw_loop *loop, struct spw_loop_timer *timer)
{
    struct fixture *f = timer->owner;
    (void)loop;
    for (uint32_t i = 0; i < f->held_count; i++) {
        answer_echo(f->held[i]);
    }
}

static void test_calls_that_end_in_one_turn(void **state)
{
    (void)state;
    struct fixture *f = new_fixture();
    struct crowd crowd = {.started = 0};
    char url[64];
    struct spw_error err = {0};
    f->user = &crowd;
    snprintf(url, sizeof url, "http://127.0.0.1:%u/hold", (unsigned)spw_door_port(f->door));
    struct spw_http_request request = {.method = "GET", .url = url, .deadline_ns = clock_ns() + 30000 * MS};
    for (int i = 0; i < 16; i++) {
        struct result *r = &crowd.results[i];
        *r = (struct result){.f = f};
        f->pending++;
        check(spw_http_client_send(f->client, &request, on_crowd, r, &r->call, &err), &err);
    }
    f->stop_at_held = 16;
    run(f->loop);
    struct spw_loop_timer timer = {.fn = answer_all_held, .owner = f};
    spw_loop_timer_set(f->loop, &timer, spw_loop_now_ns(f->loop));
    run(f->loop);
    uint32_t done = 0;
    for (int i = 0; i < 16; i++) {
        assert_null(crowd.results[i].call);
        done += crowd.results[i].done;
    }
    assert_int_equal(done, crowd.started);
    assert_in_range(done, 8, 16);
    for (uint32_t i = 0; i < crowd.started; i++) {
        assert_int_equal(crowd.again[i].outcome, SPW_HTTP_ANSWERED);
    }
    end_fixture(f);
}

/* Answers, and stays until the deadline is over. */
struct overstay {
    struct fixture *f;
    uint64_t deadline_ns;
    bool is_too_late;
};

static void answer_and_overstay(struct spw_loop *loop, struct spw_loop_timer *timer)
{
    struct overstay *o = timer->owner;
    o->is_too_late = spw_loop_now_ns(loop) >= o->deadline_ns;
    answer_echo(o->f->held[0]);
    while (clock_ns() < o->deadline_ns + 5 * MS) {
        usleep(1000);
    }
}

/* An answer that is there when its time is found to be over is an answer. */
static void test_answer_and_deadline_in_one_turn(void **state)
{
    (void)state;
    bool tried = false;
    for (uint64_t ms = 50; !tried; ms *= 2) {
        struct fixture *f = new_fixture();
        struct result r;
        uint64_t deadline_ns = clock_ns() + ms * MS; /* the call's is a little later */
        get_within(f, &r, spw_door_port(f->door), "/hold", ms * MS);
        f->stop_at_held = 1;
        run(f->loop);
        if (f->held_count == 1 && r.done == 0) {
            struct overstay o = {.f = f, .deadline_ns = deadline_ns};
            struct spw_loop_timer timer = {.fn = answer_and_overstay, .owner = &o};
            spw_loop_timer_set(f->loop, &timer, spw_loop_now_ns(f->loop));
            run(f->loop);
            tried = !o.is_too_late;
            assert_true(!tried || r.outcome == SPW_HTTP_ANSWERED);
        }
        end_fixture(f);
    }
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

static int run_group(const char *name)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_request_and_answer),
        cmocka_unit_test(test_methods),
        cmocka_unit_test(test_many_late_answers_at_once),
        cmocka_unit_test(test_cancelled_call_is_silent_and_seen_by_the_door),
        cmocka_unit_test(test_client_destroyed_with_calls_in_flight),
        cmocka_unit_test(test_door_destroyed_with_calls_waiting),
        cmocka_unit_test(test_done_starts_and_cancels_others),
        cmocka_unit_test(test_cancelled_before_it_is_begun),
        cmocka_unit_test(test_client_destroyed_before_its_calls_are_begun),
        cmocka_unit_test(test_door_destroyed_before_it_sends_answers),
        cmocka_unit_test(test_calls_that_end_in_one_turn),
        cmocka_unit_test(test_answer_and_deadline_in_one_turn),
        cmocka_unit_test(test_requests_that_are_refused),
        cmocka_unit_test(test_environment_proxies_are_ignored),
        cmocka_unit_test(test_no_descriptor_is_left_open),
    };
    return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}

int main(void)
{
    return run_on_both(run_group, "http on epoll", "http on io_uring");
}
