/* calls.c: what the sidecar adds to a provider call.
 *
 *     scripts/bench calls
 *
 * Three ways to the same upstream, measured in turn within one run: directly, through a bare forwarder on the same two
 * libraries, and through the sidecar's quote door. At 1 in flight the caller is libcurl, at 8 and 64 a plain epoll
 * loop. Then the system calls of the provider's side alone, on io_uring and on epoll, where the kernel lets them be
 * counted.
 * Owns: a directory, an upstream, a forwarder and a sidecar, all gone at the end. Thread: one.
 */
#include "bench/calls.d/calls.h"
#include "bench/stats.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <errno.h>
#include <ftw.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS       15
#define SINGLE_CALLS 200
#define LOAD_NS      UINT64_C(250000000)
#define PATH         "/tax/connections/bench/carts"

static const char ANSWER[] =
    "{\"items\":[{\"cartId\":\"c\",\"currency\":{\"currencyCode\":\"USD\"},\"lineItems\":["
    "{\"index\":0,\"tax\":{\"amount\":0.92,\"rate\":0.092}}]}]}";
static const char CART[] =
    "{\"items\":[{\"customerId\":\"guest\",\"currency\":{\"currencyCode\":\"USD\"},\"deliveredBySeller\":"
    "false,"
    "\"origin\":{\"line1\":\"1500 Marilla St\",\"city\":\"Dallas\",\"state\":\"TX\",\"zip\":\"75201\"},"
    "\"destination\":{\"line1\":\"100 Ravine Ln NE\",\"city\":\"Bainbridge Island\",\"state\":\"WA\","
    "\"zip\":\"98110\"},\"lineItems\":[{\"index\":0,\"itemId\":\"1\",\"price\":1000.00,\"quantity\":1,"
    "\"tic\":0}],"
    "\"cartId\":\"c\"}]}";
static const char QUOTE[] =
    "{\"account\":\"main\",\"ship_from\":{\"state\":\"TX\",\"zip\":\"75201\",\"city\":\"Dallas\","
    "\"line1\":\"1500 Marilla St\"},\"ship_to\":{\"state\":\"WA\",\"zip\":\"98110\","
    "\"city\":\"Bainbridge Island\",\"line1\":\"100 Ravine Ln NE\"},"
    "\"lines\":[{\"id\":\"1\",\"amount\":\"1000.00\"}]}";
static const char CONFIG[] = "accounts:\n"
                             "  main:\n"
                             "    provider: taxcloud\n"
                             "    url: http://127.0.0.1:%u\n"
                             "    allow_plain_http: true\n"
                             "    connection: bench\n"
                             "    credentials: {api_key_env: SPW_BENCH_KEY}\n"
                             "    limit: {rate: 10000000/s, pods: 1}\n"
                             "segment: {pub_dir: %s/pub, rw_dir: %s/rw}\n"
                             "listen: {admin: \"127.0.0.1:%u\"}\n"
                             "store: {file: %s/flags.db}\n"
                             "log: {level: error}\n";

static char directory[] = "/tmp/spillway-bench.XXXXXX";
static pid_t children[4], self;

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

static void clean_up(void)
{
    if (getpid() != self)
        return; /* a child that gave up */
    for (size_t i = 0; i < sizeof children / sizeof children[0]; i++) {
        if (children[i] > 0 && kill(children[i], SIGKILL) == 0)
            waitpid(children[i], NULL, 0);
    }
    nftw(directory, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Processor time of the process in the middle: what it costs, whoever else is on the machine. */
static double cpu_us(pid_t pid)
{
    clockid_t clock;
    struct timespec t = {0};
    if (pid > 0 && clock_getcpuclockid(pid, &clock) == 0)
        clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* ---- one at a time, by libcurl ---- */

struct way {
    const char *name, *url, *socket_path;
    const char *body;
    const char *amount; /* its four digits in body */
    CURL *easy;
    char *own; /* body, changing */
    double took_us[ROUNDS * SINGLE_CALLS];
    size_t took_count;
};

static size_t drop(char *bytes, size_t size, size_t count, void *owner)
{
    (void)bytes, (void)owner;
    return size * count;
}

static void open_way(struct way *way, struct curl_slist *headers)
{
    way->easy = curl_easy_init();
    way->own = strdup(way->body);
    curl_easy_setopt(way->easy, CURLOPT_URL, way->url);
    curl_easy_setopt(way->easy, CURLOPT_NOSIGNAL, 1L);
    if (way->socket_path)
        curl_easy_setopt(way->easy, CURLOPT_UNIX_SOCKET_PATH, way->socket_path);
    curl_easy_setopt(way->easy, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(way->easy, CURLOPT_WRITEFUNCTION, drop);
    curl_easy_setopt(way->easy, CURLOPT_POSTFIELDS, way->own);
}

static void single_calls(struct way *way)
{
    static unsigned amount;
    for (int i = 0; i < SINGLE_CALLS; i++) {
        char digits[8];
        long status = 0;
        snprintf(digits, sizeof digits, "%04u", 1000 + amount++ % 9000);
        memcpy(way->own + (way->amount - way->body), digits, 4);
        uint64_t began_ns = now_ns();
        CURLcode code = curl_easy_perform(way->easy);
        way->took_us[way->took_count++] = (double)(now_ns() - began_ns) / 1e3;
        curl_easy_getinfo(way->easy, CURLINFO_RESPONSE_CODE, &status);
        if (code != CURLE_OK || status != 200)
            spw_bench_die("%s: %s, status %ld", way->name, curl_easy_strerror(code), status);
    }
}

static void one_in_flight(struct way ways[3])
{
    struct curl_slist *headers = curl_slist_append(NULL, "Content-Type: application/json");
    for (int w = 0; w < 3; w++)
        open_way(&ways[w], headers);
    for (int round = 0; round < ROUNDS; round++) {
        for (int w = 0; w < 3; w++)
            single_calls(&ways[w]);
    }
    double p50[3], p99[3];
    for (int w = 0; w < 3; w++) {
        p50[w] = quantile(ways[w].took_us, ways[w].took_count, 0.5);
        p99[w] = quantile(ways[w].took_us, ways[w].took_count, 0.99);
        curl_easy_cleanup(ways[w].easy);
        free(ways[w].own);
    }
    curl_slist_free_all(headers);
    for (int w = 1; w < 3; w++)
        printf("{\"bench\":\"calls\",\"case\":\"%s_1\",\"p50_us\":%.1f,\"p99_us\":%.1f,\"floor\":\"direct\","
               "\"floor_p50_us\":%.1f,\"floor_p99_us\":%.1f,\"added_p50_us\":%.1f}\n",
               ways[w].name, p50[w], p99[w], p50[0], p99[0], p50[w] - p50[0]);
}

/* ---- many at a time ---- */

static void many_in_flight(struct way ways[3], const uint16_t port, uint32_t connections_count)
{
    static char requests[3][4096];
    struct spw_bench_load loads[3];
    double per_s[3][ROUNDS], ratio[3][ROUNDS], cpu[3][ROUNDS];
    for (int w = 0; w < 3; w++) {
        const char *path = strstr(ways[w].url + 7, "/");
        int head = snprintf(requests[w], sizeof requests[w],
                            "POST %s HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
                            "Content-Length: %zu\r\n\r\n%s",
                            path, strlen(ways[w].body), ways[w].body);
        loads[w] = (struct spw_bench_load){.socket_path = ways[w].socket_path,
                                           .port = port,
                                           .request = requests[w],
                                           .request_bytes = (size_t)head,
                                           .amount_at = (size_t)head - strlen(ways[w].body) +
                                                        (size_t)(ways[w].amount - ways[w].body),
                                           .connections_count = connections_count,
                                           .run_ns = LOAD_NS};
    }
    for (int round = -1; round < ROUNDS; round++) { /* the first only opens connections */
        for (int w = 0; w < 3; w++) {
            double before_us = cpu_us(children[w]);
            uint64_t took_ns, count = spw_bench_load_run(&loads[w], &took_ns);
            if (round < 0)
                continue;
            per_s[w][round] = (double)count * 1e9 / (double)took_ns;
            cpu[w][round] = (cpu_us(children[w]) - before_us) / (double)count;
        }
        for (int w = 0; w < 3 && round >= 0; w++)
            ratio[w][round] = per_s[w][round] / per_s[w == 2 ? 1 : 0][round];
    }
    double direct = quantile(per_s[0], ROUNDS, 0.5), forwarder = quantile(per_s[1], ROUNDS, 0.5);
    printf("{\"bench\":\"calls\",\"case\":\"sidecar_%u\",\"ops_per_s\":%.0f,\"floor\":\"forwarder\","
           "\"floor_ops_per_s\":%.0f,\"ratio\":%.3f,\"direct_ops_per_s\":%.0f,\"cpu_us_per_call\":%.1f,"
           "\"floor_cpu_us_per_call\":%.1f}\n",
           connections_count, quantile(per_s[2], ROUNDS, 0.5), forwarder, quantile(ratio[2], ROUNDS, 0.5),
           direct, quantile(cpu[2], ROUNDS, 0.5), quantile(cpu[1], ROUNDS, 0.5));
}

/* ---- the world ---- */

/* Free a moment ago; the sidecar wants a number. */
static uint16_t free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(fd, (struct sockaddr *)&address, bytes) || getsockname(fd, (struct sockaddr *)&address, &bytes))
        spw_bench_die("no port: %s", strerror(errno));
    close(fd);
    return ntohs(address.sin_port);
}

static pid_t start_sidecar(const char *program, uint16_t port)
{
    char path[128], socket_path[128];
    const char *const names[] = {"pub", "rw"};
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", directory, names[i]);
        if (mkdir(path, 0770))
            spw_bench_die("%s: %s", path, strerror(errno));
    }
    snprintf(path, sizeof path, "%s/spillway.yaml", directory);
    FILE *file = fopen(path, "w");
    if (!file || fprintf(file, CONFIG, port, directory, directory, free_port(), directory) < 0 ||
        fclose(file))
        spw_bench_die("%s: %s", path, strerror(errno));
    setenv("SPW_BENCH_KEY", "k-bench", 1);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execl(program, program, "--config", path, (char *)NULL);
        spw_bench_die("%s: %s", program, strerror(errno));
    }
    snprintf(socket_path, sizeof socket_path, "%s/pub/quote.sock", directory);
    while (access(socket_path, F_OK) != 0) {
        if (waitpid(pid, NULL, WNOHANG) == pid)
            spw_bench_die("the sidecar did not start");
        usleep(10000);
    }
    return pid;
}

/* The sidecar is built beside this program. */
static void sidecar_path(char out[512])
{
    ssize_t n = readlink("/proc/self/exe", out, 480);
    if (n <= 0)
        spw_bench_die("/proc/self/exe: %s", strerror(errno));
    out[n] = 0;
    strcpy(strrchr(out, '/') + 1, "spillwayd");
}

int main(void)
{
    static struct way ways[3];
    char forwarder_socket[96], quote_socket[96], url[96], program[512];
    uint16_t port;
    if (!mkdtemp(directory))
        spw_bench_die("%s: %s", directory, strerror(errno));
    self = getpid();
    atexit(clean_up);
    sidecar_path(program);
    snprintf(forwarder_socket, sizeof forwarder_socket, "%s/forwarder.sock", directory);
    snprintf(quote_socket, sizeof quote_socket, "%s/pub/quote.sock", directory);
    children[0] = spw_bench_upstream(ANSWER, 0, &port);
    snprintf(url, sizeof url, "http://127.0.0.1:%u" PATH, port);
    children[1] = spw_bench_forwarder(forwarder_socket, url);
    children[2] = start_sidecar(program, port);
    const char *cart_amount = strstr(CART, "1000.00"), *quote_amount = strstr(QUOTE, "1000.00");
    ways[0] = (struct way){.name = "direct", .url = url, .body = CART, .amount = cart_amount};
    ways[1] = (struct way){.name = "forwarder",
                           .url = "http://bench" PATH,
                           .socket_path = forwarder_socket,
                           .body = CART,
                           .amount = cart_amount};
    ways[2] = (struct way){.name = "sidecar",
                           .url = "http://bench/spillway/v1/quote",
                           .socket_path = quote_socket,
                           .body = QUOTE,
                           .amount = quote_amount};
    one_in_flight(ways);
    many_in_flight(ways, port, 8);
    many_in_flight(ways, port, 64);
    /* A provider is not quicker than a loop's turn: without a rest the answer is there before anybody waits for it. */
    children[3] = spw_bench_upstream(ANSWER, 500, &port);
    snprintf(url, sizeof url, "http://127.0.0.1:%u" PATH, port);
    spw_bench_syscalls(url);
    return 0;
}
