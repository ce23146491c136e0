/* syscalls.c: system calls of the provider's side of a call, one at a time, on each of the loop's back-ends.
 *
 * The loop and the HTTP client alone, in a process of their own, asking the upstream again as soon as it has answered.
 * Counted by the kernel's own trace point for this thread; strace would let the answer arrive before the wait.
 */
#include "bench/calls.d/calls.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm/spw_map.h"
#include "sidecar/http/client.h"
#include "sidecar/loop/loop.h"

#define WARM_CALLS 200u
#define CALLS      5000u

struct run {
    struct spw_loop *loop;
    struct spw_http_client *client;
    struct spw_http_request request;
    const char *headers[2];
    int counter;
    uint32_t calls_count;
    uint64_t syscalls_count;
};

static void ask(struct run *run);

static void done(void *owner, const struct spw_http_response *response)
{
    struct run *run = owner;
    if (response->outcome != SPW_HTTP_ANSWERED || response->status != 200)
        spw_bench_die("a call failed: %s", response->detail);
    run->calls_count++;
    if (run->calls_count == WARM_CALLS)
        ioctl(run->counter, PERF_EVENT_IOC_ENABLE, 0);
    if (run->calls_count == WARM_CALLS + CALLS) {
        if (read(run->counter, &run->syscalls_count, sizeof run->syscalls_count) < 0)
            spw_bench_die("the counter: %s", strerror(errno));
        spw_loop_stop(run->loop);
        return;
    }
    ask(run);
}

static void ask(struct run *run)
{
    struct spw_http_call *call;
    struct spw_error err;
    run->request.deadline_ns = spw_now_ns() + UINT64_C(1800000000);
    if (spw_http_client_send(run->client, &run->request, done, run, &call, &err) != SPW_STATUS_OK)
        spw_bench_die("%s", err.text);
}

/* -1 = the kernel does not let it be counted; why says so. */
static int open_counter(const char **why)
{
    struct perf_event_attr attr = {.type = PERF_TYPE_TRACEPOINT, .size = sizeof attr, .disabled = 1};
    static const char place[] = "/sys/kernel/tracing/events/raw_syscalls/sys_enter/id";
    FILE *file = fopen(place, "r");
    if (!file && unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
        mount("tracefs", "/sys/kernel/tracing", "tracefs", 0, NULL) == 0)
        file = fopen(place, "r");
    unsigned long long id;
    if (!file || fscanf(file, "%llu", &id) != 1) {
        *why = "no trace points (tracefs, as root)";
        return -1;
    }
    fclose(file);
    attr.config = id;
    int fd = (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
    *why = fd < 0 ? strerror(errno) : "";
    return fd;
}

/* System calls for each call, or a negative number with *why. In a process of its own. */
static double count(enum spw_loop_backend backend, const char *url, int answer_fd)
{
    static const char body[] = "{}";
    struct run run = {.headers = {"Content-Type: application/json"}};
    struct spw_http_client_options options = {.allow_plain_http = true};
    struct spw_error err;
    const char *why;
    run.request = (struct spw_http_request){.method = "POST",
                                            .url = url,
                                            .headers = run.headers,
                                            .header_count = 1,
                                            .body = body,
                                            .body_bytes = sizeof body - 1};
    run.counter = open_counter(&why);
    if (run.counter < 0) {
        dprintf(answer_fd, "-1 %s\n", why);
        return -1;
    }
    if (spw_loop_new(backend, &run.loop, &err) != SPW_STATUS_OK ||
        spw_http_client_new(run.loop, &options, &run.client, &err) != SPW_STATUS_OK) {
        dprintf(answer_fd, "-1 %s\n", err.text);
        return -1;
    }
    ask(&run);
    if (spw_loop_run(run.loop, &err) != SPW_STATUS_OK)
        spw_bench_die("%s", err.text);
    dprintf(answer_fd, "%.3f \n", (double)run.syscalls_count / CALLS);
    return 0;
}

static double per_call(enum spw_loop_backend backend, const char *url, char why[128])
{
    int ends[2];
    double calls = -1;
    if (pipe(ends))
        spw_bench_die("%s", strerror(errno));
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        (void)count(backend, url, ends[1]);
        _exit(0);
    }
    close(ends[1]);
    FILE *answer = fdopen(ends[0], "r");
    why[0] = 0;
    if (!answer || fscanf(answer, "%lf %127[^\n]", &calls, why) < 1)
        snprintf(why, 128, "the counting process said nothing");
    if (answer)
        fclose(answer);
    waitpid(pid, NULL, 0);
    return calls;
}

void spw_bench_syscalls(const char *url)
{
    char why[128];
    double epoll = per_call(SPW_LOOP_EPOLL, url, why);
    double uring = epoll < 0 ? -1 : per_call(SPW_LOOP_URING, url, why);
    if (epoll < 0 || uring < 0)
        printf("{\"bench\":\"calls\",\"case\":\"syscalls_1\",\"skipped\":\"%s\"}\n", why);
    else
        printf("{\"bench\":\"calls\",\"case\":\"syscalls_1\",\"syscalls_per_call\":%.2f,\"floor\":\"epoll\","
               "\"floor_syscalls_per_call\":%.2f,\"ratio\":%.3f}\n",
               uring, epoll, uring / epoll);
}
