/* control.c: what a unary call of the control API costs, beside a bare echo on gRPC C core.
 *
 *     scripts/bench control
 *
 * Both over a Unix socket of their own, from the same client, in turn within one run: batches of echo, Limits.Get and
 * Limits.Set. The echo sends back as many bytes as Limits.Get answers. Prints a JSON line; the ratio is what counts.
 * Owns: a directory, an echo server and a sidecar, all gone at the end. Thread: one, and gRPC's.
 */
#include <ftw.h>
#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/slice.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench/control.d/echo.h"
#include "bench/processors.h"
#include "proto/spillway/v1/control.pb-c.h"

#define ROUNDS    40u
#define CALLS     100u
#define ECHO_WORD "echo" /* the program's first argument where it is the floor */

struct way {
    const char *name, *method;
    grpc_channel *channel;
    uint8_t request[512];
    size_t request_bytes;
    uint64_t ns[ROUNDS * CALLS];
    size_t count;
};

static char directory[] = "/dev/shm/spw-bench-control-XXXXXX";
static pid_t children[2];
static grpc_completion_queue *queue;

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *walk)
{
    (void)st, (void)type, (void)walk;
    return remove(path);
}

static void clean_up(void)
{
    for (size_t i = 0; i < 2; i++) {
        if (children[i] > 0 && kill(children[i], SIGKILL) == 0)
            waitpid(children[i], NULL, 0);
    }
    nftw(directory, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void give_up(const char *why)
{
    fprintf(stderr, "bench control: %s\n", why);
    clean_up();
    exit(1);
}

/* ---- the two servers ---- */

static void path_of(const char *name, char *out, size_t room)
{
    snprintf(out, room, "%s/%s", directory, name);
}

static void write_configuration(const char *path)
{
    char key[64];
    path_of("key", key, sizeof key);
    FILE *file = fopen(key, "w");
    if (!file || fputs("key\n", file) < 0 || fclose(file))
        give_up("no key file");
    file = fopen(path, "w");
    if (!file)
        give_up("no configuration file");
    fprintf(file,
            "accounts:\n  main:\n    provider: taxcloud\n    url: http://127.0.0.1:9\n"
            "    allow_plain_http: true\n    connection: c\n    credentials: {api_key_file: %s}\n"
            "    limit: {rate: 100/s, burst: 250, pods: 1}\n"
            "segment: {pub_dir: %s/pub, rw_dir: %s/rw, rate_records: 1024}\n"
            "store: {file: %s/flags.db}\nlisten: {admin: \"127.0.0.1:%u\"}\nlog: {level: error}\n",
            key, directory, directory, directory, 20000u + (unsigned)getpid() % 12000u);
    fclose(file);
}

static pid_t start_sidecar(const char *program)
{
    char configuration[64], pub[64], rw[64];
    path_of("spillway.yaml", configuration, sizeof configuration);
    path_of("pub", pub, sizeof pub);
    path_of("rw", rw, sizeof rw);
    if (mkdir(pub, 0755) || mkdir(rw, 0755))
        give_up("no directories");
    write_configuration(configuration);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        spw_bench_bind(0, 1);
        execl(program, program, "--config", configuration, (char *)NULL);
        _exit(127);
    }
    return pid;
}

/* A program of its own, as the sidecar is: a fork would have its libraries where this process has them, and the branches
 * that gRPC's client code has just taken would be foreseen in its server code. */
static pid_t start_echo(const char *path)
{
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        spw_bench_bind(0, 1);
        execl("/proc/self/exe", "bench_control", ECHO_WORD, path, (char *)NULL);
        _exit(127);
    }
    return pid;
}

static void wait_for(const char *path)
{
    struct timespec pause = {.tv_nsec = 10000000};
    for (int i = 0; i < 1000; i++) {
        if (access(path, F_OK) == 0)
            return;
        nanosleep(&pause, NULL);
    }
    give_up("a server did not start");
}

static grpc_channel *connect_to(const char *path)
{
    char target[128];
    snprintf(target, sizeof target, "unix:%s", path);
    grpc_channel_credentials *plain = grpc_insecure_credentials_create();
    grpc_channel *channel = grpc_channel_create(target, plain, NULL);
    grpc_channel_credentials_release(plain);
    return channel;
}

/* ---- one call ---- */

/* The bytes of the answer, which the caller frees; NULL = it failed. */
static grpc_byte_buffer *call_once(struct way *way)
{
    grpc_slice name = grpc_slice_from_static_string(way->method);
    grpc_call *call = grpc_channel_create_call(
        way->channel, NULL, GRPC_PROPAGATE_DEFAULTS, queue, name, NULL,
        gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_seconds(10, GPR_TIMESPAN)), NULL);
    grpc_slice slice = grpc_slice_from_static_buffer(way->request, way->request_bytes);
    grpc_byte_buffer *request = grpc_raw_byte_buffer_create(&slice, 1), *reply = NULL;
    grpc_metadata_array initial, trailing;
    grpc_metadata_array_init(&initial);
    grpc_metadata_array_init(&trailing);
    grpc_status_code status = GRPC_STATUS_UNKNOWN;
    grpc_slice details = grpc_empty_slice();
    grpc_op ops[6];
    memset(ops, 0, sizeof ops);
    ops[0].op = GRPC_OP_SEND_INITIAL_METADATA;
    ops[1].op = GRPC_OP_SEND_MESSAGE;
    ops[1].data.send_message.send_message = request;
    ops[2].op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
    ops[3].op = GRPC_OP_RECV_INITIAL_METADATA;
    ops[3].data.recv_initial_metadata.recv_initial_metadata = &initial;
    ops[4].op = GRPC_OP_RECV_MESSAGE;
    ops[4].data.recv_message.recv_message = &reply;
    ops[5].op = GRPC_OP_RECV_STATUS_ON_CLIENT;
    ops[5].data.recv_status_on_client.trailing_metadata = &trailing;
    ops[5].data.recv_status_on_client.status = &status;
    ops[5].data.recv_status_on_client.status_details = &details;
    if (grpc_call_start_batch(call, ops, 6, call, NULL) == GRPC_CALL_OK)
        grpc_completion_queue_pluck(queue, call, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
    grpc_byte_buffer_destroy(request);
    grpc_metadata_array_destroy(&initial);
    grpc_metadata_array_destroy(&trailing);
    grpc_slice_unref(details);
    grpc_call_unref(call);
    if (status == GRPC_STATUS_OK)
        return reply;
    if (reply)
        grpc_byte_buffer_destroy(reply);
    return NULL;
}

static size_t reply_bytes(struct way *way)
{
    grpc_byte_buffer *reply = call_once(way);
    if (!reply)
        give_up(way->method);
    size_t bytes = grpc_byte_buffer_length(reply);
    grpc_byte_buffer_destroy(reply);
    return bytes;
}

static void measure(struct way *way)
{
    for (unsigned i = 0; i < CALLS; i++) {
        uint64_t begun = now_ns();
        (void)reply_bytes(way);
        way->ns[way->count++] = now_ns() - begun;
    }
}

/* ---- figures ---- */

static int ascending(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static double quantile_us(struct way *way, double share)
{
    qsort(way->ns, way->count, sizeof *way->ns, ascending);
    return (double)way->ns[(size_t)((double)(way->count - 1) * share)] / 1000;
}

static void prepare(struct way *get, struct way *set, struct way *echo)
{
    Spillway__V1__GetLimitRequest asked = SPILLWAY__V1__GET_LIMIT_REQUEST__INIT;
    Spillway__V1__SetLimitRequest change = SPILLWAY__V1__SET_LIMIT_REQUEST__INIT;
    asked.account = change.account = (char[]){"main"};
    change.has_burst = 1;
    change.burst = 251;
    get->request_bytes = spillway__v1__get_limit_request__pack(&asked, get->request);
    set->request_bytes = spillway__v1__set_limit_request__pack(&change, set->request);
    size_t bytes = reply_bytes(get);
    echo->request_bytes = bytes < sizeof echo->request ? bytes : sizeof echo->request;
    memset(echo->request, 'x', echo->request_bytes);
}

int main(int argc, char **argv)
{
    static struct way echo = {.name = "echo", .method = BENCH_ECHO_METHOD};
    static struct way get = {.name = "get", .method = "/spillway.v1.Limits/Get"};
    static struct way set = {.name = "set", .method = "/spillway.v1.Limits/Set"};
    char echo_path[64], sidecar_path[64], program[512];
    if (argc == 3 && strcmp(argv[1], ECHO_WORD) == 0)
        bench_echo_serve(argv[2]);
    if (!mkdtemp(directory))
        return 1;
    snprintf(program, sizeof program, "%.480s", argv[0]);
    char *slash = strrchr(program, '/');
    snprintf(slash ? slash + 1 : program, 16, "spillwayd");
    path_of("echo.sock", echo_path, sizeof echo_path);
    path_of("pub/control.sock", sidecar_path, sizeof sidecar_path);
    children[0] = start_echo(echo_path);
    children[1] = start_sidecar(program);
    spw_bench_bind(0, 0); /* the client here, both servers there */
    wait_for(echo_path);
    wait_for(sidecar_path);
    grpc_init();
    queue = grpc_completion_queue_create_for_pluck(NULL);
    echo.channel = connect_to(echo_path);
    get.channel = set.channel = connect_to(sidecar_path);
    prepare(&get, &set, &echo);
    for (unsigned i = 0; i < CALLS; i++) { /* warm */
        (void)reply_bytes(&echo);
        (void)reply_bytes(&get);
    }
    for (unsigned round = 0; round < ROUNDS; round++) {
        measure(&echo);
        measure(&get);
        measure(&set);
    }
    double floor_us = quantile_us(&echo, 0.5);
    printf(
        "{\"bench\":\"control\",\"calls\":%u,\"reply_bytes\":%zu,\"echo_p50_us\":%.1f,\"echo_p99_us\":%.1f,"
        "\"get_p50_us\":%.1f,\"get_p99_us\":%.1f,\"set_p50_us\":%.1f,\"set_p99_us\":%.1f,"
        "\"get_ratio\":%.3f,\"set_ratio\":%.3f}\n",
        ROUNDS * CALLS, echo.request_bytes, floor_us, quantile_us(&echo, 0.99), quantile_us(&get, 0.5),
        quantile_us(&get, 0.99), quantile_us(&set, 0.5), quantile_us(&set, 0.99),
        quantile_us(&get, 0.5) / floor_us, quantile_us(&set, 0.5) / floor_us);
    grpc_channel_destroy(echo.channel);
    grpc_channel_destroy(get.channel);
    grpc_completion_queue_shutdown(queue);
    grpc_completion_queue_destroy(queue);
    grpc_shutdown();
    clean_up();
    return 0;
}
