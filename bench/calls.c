/* calls.c: what the sidecar adds to a provider call.
 *
 *     scripts/bench calls
 *
 * Several ways to the same upstream, measured by turns within one run: directly, through a bare forwarder on the same
 * two libraries, and through the sidecar: its quote door, and the pass-through door with a calculation and with a call
 * of any other API. Each of the sidecar's doors has the forwarder at the same kind of socket for its floor. At 1 in
 * flight the caller is libcurl, bound to one processor with what stands in the middle as in a pod, and the upstream to
 * another as the other machine that it is; at 8 and 64 the caller is a plain epoll loop and nobody is bound. Then the
 * system calls of the provider's side alone, on io_uring and on epoll, where the kernel lets them be counted.
 * Owns: a directory, an upstream, two forwarders and a sidecar, all gone at the end. Thread: one.
 */
#include "bench/calls.d/calls.h"
#include "bench/processors.h"
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

#define ROUNDS       11
#define SINGLE_CALLS 200
#define LOAD_NS      UINT64_C(200000000)
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
static const char QUOTE_BODY[] =
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
                             "    connections: 64\n"
                             "    listen: \"127.0.0.1:%u\"\n"
                             "  other:\n"
                             "    provider: http\n"
                             "    url: http://127.0.0.1:%u\n"
                             "    allow_plain_http: true\n"
                             "    credentials: {api_key_env: SPW_BENCH_KEY}\n"
                             "    credential_header: X-API-KEY\n"
                             "    routes: [POST " PATH "]\n"
                             "    limit: {rate: 10000000/s, pods: 1}\n"
                             "    connections: 64\n"
                             "    listen: \"127.0.0.1:%u\"\n"
                             "segment: {pub_dir: %s/pub, rw_dir: %s/rw}\n"
                             "listen: {admin: \"127.0.0.1:%u\"}\n"
                             "store: {file: %s/flags.db}\n"
                             "log: {level: error}\n";

static char directory[] = "/tmp/spillway-bench.XXXXXX";
static pid_t children[5], self;

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

/* Processor time of the process in the middle: what it costs, whoever else is on the machine. */
static double cpu_us(pid_t pid)
{
    clockid_t clock;
    struct timespec t = {0};
    if (pid > 0 && clock_getcpuclockid(pid, &clock) == 0)
        clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* ---- the ways ---- */

enum { DIRECT, FORWARDER, QUOTE, FORWARDER_TCP, PASS, PASS_TAX, WAYS_COUNT };

struct way {
    const char *name, *path;
    int floor; /* the way that does the same without a decision; itself = none */
    const char *socket_path;
    uint16_t port; /* of 127.0.0.1, without a socket_path */
    pid_t process; /* in the middle */
    const char *body;
    const char *amount; /* its four digits in body */
    CURL *easy;
    char *own; /* body, changing */
    double took_us[ROUNDS * SINGLE_CALLS];
    size_t took_count;
};
static char token_line[1200] = "X-API-KEY: "; /* the pod's token; the upstream does not look at it */

/* ---- one at a time, by libcurl ---- */

static size_t drop(char *bytes, size_t size, size_t count, void *owner)
{
    (void)bytes, (void)owner;
    return size * count;
}

static void open_way(struct way *way, struct curl_slist *headers)
{
    char url[128];
    snprintf(url, sizeof url, "http://127.0.0.1:%u%s", way->socket_path ? 80u : way->port, way->path);
    way->easy = curl_easy_init();
    way->own = strdup(way->body);
    curl_easy_setopt(way->easy, CURLOPT_URL, url);
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
        uint64_t began_ns = spw_bench_now_ns();
        CURLcode code = curl_easy_perform(way->easy);
        way->took_us[way->took_count++] = (double)(spw_bench_now_ns() - began_ns) / 1e3;
        curl_easy_getinfo(way->easy, CURLINFO_RESPONSE_CODE, &status);
        if (code != CURLE_OK || status != 200)
            spw_bench_die("%s: %s, status %ld", way->name, curl_easy_strerror(code), status);
    }
}

static void bind_all(const struct way ways[WAYS_COUNT], bool bound)
{
    for (int w = 0; w < WAYS_COUNT; w++)
        spw_bench_bind(ways[w].process, bound ? 0 : SPW_BENCH_ANY); /* a sidecar's first thread is its loop */
    spw_bench_bind(self, bound ? 0 : SPW_BENCH_ANY);
    spw_bench_bind(children[0], bound ? 1 : SPW_BENCH_ANY);
}

static void one_in_flight(struct way ways[WAYS_COUNT])
{
    struct curl_slist *headers = curl_slist_append(NULL, "Content-Type: application/json");
    curl_slist_append(headers, token_line);
    for (int w = 0; w < WAYS_COUNT; w++)
        open_way(&ways[w], headers);
    for (int round = 0; round < ROUNDS; round++) {
        for (int w = 0; w < WAYS_COUNT; w++)
            single_calls(&ways[w]);
    }
    double p50[WAYS_COUNT], p99[WAYS_COUNT];
    for (int w = 0; w < WAYS_COUNT; w++) {
        p50[w] = quantile(ways[w].took_us, ways[w].took_count, 0.5);
        p99[w] = quantile(ways[w].took_us, ways[w].took_count, 0.99);
        curl_easy_cleanup(ways[w].easy);
        free(ways[w].own);
    }
    curl_slist_free_all(headers);
    for (int w = 1; w < WAYS_COUNT; w++)
        printf("{\"bench\":\"calls\",\"case\":\"%s_1\",\"p50_us\":%.1f,\"p99_us\":%.1f,\"floor\":\"direct\","
               "\"floor_p50_us\":%.1f,\"floor_p99_us\":%.1f,\"added_p50_us\":%.1f}\n",
               ways[w].name, p50[w], p99[w], p50[DIRECT], p99[DIRECT], p50[w] - p50[DIRECT]);
}

/* ---- many at a time ---- */

static struct spw_bench_load load_of(const struct way *way, uint32_t connections_count, char request[4096])
{
    int head = snprintf(request, 4096,
                        "POST %s HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n%s\r\n"
                        "Content-Length: %zu\r\n\r\n%s",
                        way->path, token_line, strlen(way->body), way->body);
    if (head <= 0 || head >= 4096)
        spw_bench_die("a request is too long");
    size_t body_at = (size_t)head - strlen(way->body);
    return (struct spw_bench_load){.socket_path = way->socket_path,
                                   .port = way->port,
                                   .request = request,
                                   .request_bytes = (size_t)head,
                                   .amount_at = body_at + (size_t)(way->amount - way->body),
                                   .connections_count = connections_count,
                                   .run_ns = LOAD_NS};
}

static void many_in_flight(struct way ways[WAYS_COUNT], uint32_t connections_count)
{
    static char requests[WAYS_COUNT][4096];
    struct spw_bench_load loads[WAYS_COUNT];
    double per_s[WAYS_COUNT][ROUNDS], ratio[WAYS_COUNT][ROUNDS], cpu[WAYS_COUNT][ROUNDS];
    for (int w = 0; w < WAYS_COUNT; w++)
        loads[w] = load_of(&ways[w], connections_count, requests[w]);
    for (int round = -1; round < ROUNDS; round++) { /* the first only opens connections */
        for (int w = 0; w < WAYS_COUNT; w++) {
            double before_us = cpu_us(ways[w].process);
            uint64_t took_ns, count = spw_bench_load_run(&loads[w], &took_ns);
            if (round < 0)
                continue;
            per_s[w][round] = (double)count * 1e9 / (double)took_ns;
            cpu[w][round] = (cpu_us(ways[w].process) - before_us) / (double)count;
        }
        for (int w = 0; w < WAYS_COUNT && round >= 0; w++)
            ratio[w][round] = per_s[w][round] / per_s[ways[w].floor][round];
    }
    for (int w = 0; w < WAYS_COUNT; w++) {
        int floor = ways[w].floor;
        if (floor != w)
            printf("{\"bench\":\"calls\",\"case\":\"%s_%u\",\"ops_per_s\":%.0f,\"floor\":\"%s\","
                   "\"floor_ops_per_s\":%.0f,\"ratio\":%.3f,\"direct_ops_per_s\":%.0f,"
                   "\"cpu_us_per_call\":%.1f,\"floor_cpu_us_per_call\":%.1f}\n",
                   ways[w].name, connections_count, quantile(per_s[w], ROUNDS, 0.5), ways[floor].name,
                   quantile(per_s[floor], ROUNDS, 0.5), quantile(ratio[w], ROUNDS, 0.5),
                   quantile(per_s[DIRECT], ROUNDS, 0.5), quantile(cpu[w], ROUNDS, 0.5),
                   quantile(cpu[floor], ROUNDS, 0.5));
    }
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

/* What is not asked for in the request has the pod's token for a credential. */
static void read_token(void)
{
    char path[128], token[1024];
    snprintf(path, sizeof path, "%s/pub/token", directory);
    FILE *file = fopen(path, "r");
    if (!file || fscanf(file, "%1023s", token) != 1)
        spw_bench_die("%s: %s", path, strerror(errno));
    fclose(file);
    snprintf(token_line, sizeof token_line, "X-API-KEY: %s", token);
}

static pid_t start_sidecar(const char *program, uint16_t upstream, uint16_t pass_tax, uint16_t pass)
{
    char path[128], socket_path[128], token_path[128];
    const char *const names[] = {"pub", "rw"};
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", directory, names[i]);
        if (mkdir(path, 0770))
            spw_bench_die("%s: %s", path, strerror(errno));
    }
    snprintf(path, sizeof path, "%s/spillway.yaml", directory);
    FILE *file = fopen(path, "w");
    if (!file ||
        fprintf(file, CONFIG, upstream, pass_tax, upstream, pass, directory, directory, free_port(),
                directory) < 0 ||
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
    snprintf(token_path, sizeof token_path, "%s/pub/token", directory);
    while (access(socket_path, F_OK) != 0 || access(token_path, F_OK) != 0) {
        if (waitpid(pid, NULL, WNOHANG) == pid)
            spw_bench_die("the sidecar did not start");
        usleep(10000);
    }
    read_token();
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
    static struct way ways[WAYS_COUNT];
    char forwarder_socket[96], quote_socket[96], url[96], program[512];
    uint16_t upstream, forwarder = 0, pass = free_port(), pass_tax = free_port();
    if (!mkdtemp(directory))
        spw_bench_die("%s: %s", directory, strerror(errno));
    self = getpid();
    atexit(clean_up);
    sidecar_path(program);
    snprintf(forwarder_socket, sizeof forwarder_socket, "%s/forwarder.sock", directory);
    snprintf(quote_socket, sizeof quote_socket, "%s/pub/quote.sock", directory);
    children[0] = spw_bench_upstream(ANSWER, 0, &upstream);
    snprintf(url, sizeof url, "http://127.0.0.1:%u", upstream);
    children[1] = spw_bench_forwarder(forwarder_socket, NULL, url);
    children[2] = spw_bench_forwarder(NULL, &forwarder, url);
    children[3] = start_sidecar(program, upstream, pass_tax, pass);
    for (int w = 0; w < WAYS_COUNT; w++)
        ways[w] = (struct way){.path = PATH, .floor = w, .body = CART, .amount = strstr(CART, "1000.00")};
    ways[DIRECT].name = "direct";
    ways[DIRECT].port = upstream;
    ways[DIRECT].process = self;
    ways[FORWARDER].name = "forwarder";
    ways[FORWARDER].socket_path = forwarder_socket;
    ways[FORWARDER].process = children[1];
    ways[QUOTE] = (struct way){.name = "quote",
                               .path = "/spillway/v1/quote",
                               .floor = FORWARDER,
                               .socket_path = quote_socket,
                               .process = children[3],
                               .body = QUOTE_BODY,
                               .amount = strstr(QUOTE_BODY, "1000.00")};
    ways[FORWARDER_TCP].name = "forwarder_tcp";
    ways[FORWARDER_TCP].port = forwarder;
    ways[FORWARDER_TCP].process = children[2];
    ways[PASS].name = "pass";
    ways[PASS].port = pass;
    ways[PASS_TAX].name = "pass_calculation";
    ways[PASS_TAX].port = pass_tax;
    ways[PASS].floor = ways[PASS_TAX].floor = FORWARDER_TCP;
    ways[PASS].process = ways[PASS_TAX].process = children[3];
    bind_all(ways, true);
    one_in_flight(ways);
    bind_all(ways, false);
    many_in_flight(ways, 8);
    many_in_flight(ways, 64);
    /* A provider is not quicker than a loop's turn: without a rest the answer is there before anybody waits for it. */
    children[4] = spw_bench_upstream(ANSWER, 500, &upstream);
    snprintf(url, sizeof url, "http://127.0.0.1:%u" PATH, upstream);
    spw_bench_syscalls(url);
    return 0;
}
