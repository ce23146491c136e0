/* calls.h: the parts of bench_calls: an upstream, a bare forwarder, and a load of many connections.
 *
 * Owns: nothing; each part is a process or a run of its own. Called by: calls.c. Thread: one each.
 */
#ifndef SPW_BENCH_CALLS_H
#define SPW_BENCH_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

/* One whole answer for every request: all it does is to be quicker than anything measured; with a delay it rests before
 * each answer. Returns its process and the port of 127.0.0.1. */
pid_t spw_bench_upstream(const char *answer_body, unsigned delay_us, uint16_t *port);

/* libmicrohttpd in front, libcurl behind, one thread, no decision: each request goes on to url with its path, header
 * lines and body, and the answer comes back with its own. It listens at socket_path, or where that is NULL on a port of
 * 127.0.0.1. */
pid_t spw_bench_forwarder(const char *socket_path, uint16_t *port, const char *url);
/* A listening socket on a free port of 127.0.0.1. */
int spw_bench_listen(uint16_t *port);

/* A caller's side: connections that each ask again as soon as they are answered. The four digits at amount_at of the
 * request count up, so that no two requests are alike. */
struct spw_bench_load {
    const char *socket_path; /* NULL = 127.0.0.1:port */
    uint16_t port;
    const char *request; /* head and body, whole */
    size_t request_bytes;
    size_t amount_at;
    uint32_t connections_count;
    uint64_t run_ns;
};
/* Answers of status 200 in the time; ends the program with a message when anything else comes. */
uint64_t spw_bench_load_run(const struct spw_bench_load *load, uint64_t *took_ns);

/* Prints a line: system calls of the provider's side of one call to url, on io_uring beside epoll. */
void spw_bench_syscalls(const char *url);

static inline uint64_t spw_bench_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void spw_bench_die(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

#endif
