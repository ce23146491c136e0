/* deadline.c: how late a call ends whose provider never answers.
 *
 *     scripts/bench deadline
 *
 * On each of the loop's back-ends: 200 calls to a provider that takes the request and says nothing, begun one after
 * another, and for each of them a bare timer of the same loop set for the very same deadline. Lateness is the clock in
 * the callback less the deadline. ratio is no use here: added_p99_us is the calls' p99 less the timers'.
 * Owns: a listening socket that nobody accepts from. Thread: one.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "shm/spw_map.h"
#include "sidecar/http/client.h"
#include "bench/stats.h"
#include "sidecar/loop/loop.h"

#define CALLS       200u
#define DEADLINE_NS UINT64_C(800000000)
#define APART_NS    UINT64_C(3000000)

struct run;
struct one {
    struct run *run;
    struct spw_loop_timer begin, bare;
    uint64_t deadline_ns;
};
struct run {
    struct spw_loop *loop;
    struct spw_http_client *client;
    char url[64];
    struct one all[CALLS];
    double call_us[CALLS], bare_us[CALLS];
    uint32_t calls_count, bare_count;
};

static void die(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
static void die(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("bench: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

static double late_us(uint64_t deadline_ns)
{
    return ((double)spw_now_ns() - (double)deadline_ns) / 1e3;
}

static void end_if_over(struct run *run)
{
    if (run->calls_count == CALLS && run->bare_count == CALLS)
        spw_loop_stop(run->loop);
}

static void bare_due(struct spw_loop *loop, struct spw_loop_timer *timer)
{
    struct one *one = timer->owner;
    (void)loop;
    one->run->bare_us[one->run->bare_count++] = late_us(one->deadline_ns);
    end_if_over(one->run);
}

static void call_over(void *owner, const struct spw_http_response *response)
{
    struct one *one = owner;
    if (response->outcome != SPW_HTTP_TIMEOUT)
        die("a call ended otherwise than by its deadline: %s", response->detail);
    one->run->call_us[one->run->calls_count++] = late_us(one->deadline_ns);
    end_if_over(one->run);
}

static void begin_due(struct spw_loop *loop, struct spw_loop_timer *timer)
{
    struct one *one = timer->owner;
    struct spw_error err;
    one->deadline_ns = spw_loop_now_ns(loop) + DEADLINE_NS;
    one->bare.fn = bare_due;
    one->bare.owner = one;
    struct spw_http_request request = {.method = "POST",
                                       .url = one->run->url,
                                       .body = "{}",
                                       .body_bytes = 2,
                                       .deadline_ns = one->deadline_ns};
    /* Either may be first in a turn: by turns. */
    bool bare_first = (one - one->run->all) % 2;
    if (bare_first)
        spw_loop_timer_set(loop, &one->bare, one->deadline_ns);
    if (spw_http_client_send(one->run->client, &request, call_over, one, NULL, &err) != SPW_STATUS_OK)
        die("%s", err.text);
    if (!bare_first)
        spw_loop_timer_set(loop, &one->bare, one->deadline_ns);
}

static void measure(enum spw_loop_backend backend, const char *name, uint16_t port)
{
    static struct run run;
    struct spw_http_client_options options = {.allow_plain_http = true, .connections_per_host_max = CALLS};
    struct spw_error err;
    memset(&run, 0, sizeof run);
    snprintf(run.url, sizeof run.url, "http://127.0.0.1:%u/", port);
    if (spw_loop_new(backend, &run.loop, &err) != SPW_STATUS_OK) {
        printf("{\"bench\":\"deadline\",\"case\":\"%s\",\"skipped\":\"the kernel refuses it here\"}\n", name);
        return;
    }
    if (spw_http_client_new(run.loop, &options, &run.client, &err) != SPW_STATUS_OK)
        die("%s", err.text);
    for (uint32_t i = 0; i < CALLS; i++) {
        struct one *one = &run.all[i];
        one->run = &run;
        one->begin.fn = begin_due;
        one->begin.owner = one;
        spw_loop_timer_set(run.loop, &one->begin, spw_loop_now_ns(run.loop) + (i + 1) * APART_NS);
    }
    if (spw_loop_run(run.loop, &err) != SPW_STATUS_OK)
        die("%s", err.text);
    double call = quantile(run.call_us, CALLS, 0.99), bare = quantile(run.bare_us, CALLS, 0.99);
    printf("{\"bench\":\"deadline\",\"case\":\"%s\",\"calls\":%u,\"late_p50_us\":%.0f,\"late_p99_us\":%.0f,"
           "\"floor\":\"bare "
           "timer\",\"floor_late_p50_us\":%.0f,\"floor_late_p99_us\":%.0f,\"added_p99_us\":%.0f}\n",
           name, CALLS, quantile(run.call_us, CALLS, 0.5), call, quantile(run.bare_us, CALLS, 0.5), bare,
           call - bare);
    spw_http_client_destroy(run.client);
    spw_loop_destroy(run.loop);
}

int main(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listener, (struct sockaddr *)&address, bytes) || listen(listener, 3 * (int)CALLS) ||
        getsockname(listener, (struct sockaddr *)&address, &bytes))
        die("no port: %s", strerror(errno));
    measure(SPW_LOOP_URING, "io_uring", ntohs(address.sin_port));
    measure(SPW_LOOP_EPOLL, "epoll", ntohs(address.sin_port));
    close(listener);
    return 0;
}
