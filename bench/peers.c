/* peers.c: a decision of Spillway beside other rate limiters, in the same run.
 *
 * Owns: a segment in a temporary directory, and the two peers in C: a token bucket behind a process-shared mutex, and a
 * token bucket in Redis by one script a decision. Thread: one. Called by scripts/bench peers, which builds the peers in
 * Rust and Go (bench/peers/) where it can and names their programs:
 *
 *     bench_peers [golang=PROGRAM] [governor=PROGRAM] [redis=SOCKET]
 *
 * Prints a JSON line for each peer and case, with Spillway's figure taken right before and after it. Clock: kernel (a
 * vDSO read), tsc (the processor's counter), given (the time is handed in), server (Redis's own).
 */
#include "bench/bench.h"

#include <inttypes.h>

#ifdef BENCH_HIREDIS
#include <hiredis/hiredis.h>
#endif

static const char conf_text[] =
    "accounts:\n"
    "  allow: {provider: taxcloud, connection: c, credentials: {api_key_env: HOME},\n"
    "          limit: {rate: 10000000/s, burst: 4000000000, pods: 1}, integrations: {web: checkout}}\n"
    "  deny: {provider: taxcloud, connection: c, credentials: {api_key_env: HOME},\n"
    "         limit: {rate: 1/d, burst: 1, pods: 1}, integrations: {web: checkout}}\n"
    "segment: {pub_dir: %s/pub, rw_dir: %s/rw, slots: 80, rate_records: 1024, cells: 64}\n";

/* ---- Spillway ---- */

static uint64_t given_batch(struct bench *b)
{
    uint64_t now_ns = spw_now_ns(), allowed = 0;
    for (int i = 0; i < BATCH_OPS; i++) {
        struct spw_ticket ticket;
        struct spw_admission a = spw_ref_admit(b->client.map, &b->ref, 1, 0, now_ns, &ticket);
        use(&a, &ticket);
        allowed += a.may_call;
    }
    return allowed;
}

static double spillway_ns(struct bench *b, bool given, bool allow)
{
    static double ns[BATCHES];
    uint64_t allowed = 0;
    spw_ref_init(&b->ref, allow ? "allow" : "deny", "web");
    (void)acquire_batch(b);
    for (int i = 0; i < BATCHES; i++) {
        spw_state_heartbeat(b->state, spw_now_ns());
        ns[i] = timed_ns(b, given ? given_batch : acquire_batch, &allowed);
    }
    return median(ns, BATCHES);
}

/* before: Spillway's figure from before the peer's turn. */
static void print(struct bench *b, const char *peer, bool allow, const char *clock, double before_ns,
                  double peer_ns)
{
    double ours_ns = (before_ns + spillway_ns(b, strcmp(clock, "given") == 0, allow)) / 2;
    printf("{\"bench\":\"peers\",\"peer\":\"%s\",\"case\":\"%s\",\"clock\":\"%s\",\"p50_ns\":%.1f,"
           "\"spillway_p50_ns\":%.1f,\"ratio\":%.2f}\n",
           peer, allow ? "allow" : "deny", clock, peer_ns, ours_ns, peer_ns / ours_ns);
}

/* ---- a token bucket behind a process-shared mutex ---- */

struct locked {
    pthread_mutex_t mutex;
    double tokens, burst, per_ns;
    uint64_t last_ns;
};

static bool locked_take(struct locked *l)
{
    uint64_t now_ns = spw_now_ns();
    pthread_mutex_lock(&l->mutex);
    l->tokens += (double)(now_ns - l->last_ns) * l->per_ns;
    l->tokens = l->tokens < l->burst ? l->tokens : l->burst;
    l->last_ns = now_ns;
    bool ok = l->tokens >= 1;
    l->tokens -= ok;
    pthread_mutex_unlock(&l->mutex);
    return ok;
}

static void mutex_peer(struct bench *b, bool allow)
{
    static double ns[BATCHES];
    struct locked *l = (struct locked *)(void *)b->shared;
    pthread_mutexattr_t shared;
    pthread_mutexattr_init(&shared);
    pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&shared, PTHREAD_MUTEX_ROBUST); /* its holder may be killed */
    pthread_mutex_init(&l->mutex, &shared);
    l->burst = l->tokens = allow ? 4e9 : 0;
    l->per_ns = allow ? 0.01 : 1e-14;
    l->last_ns = spw_now_ns();
    double before_ns = spillway_ns(b, false, allow);
    for (int i = 0; i < BATCHES; i++) {
        uint64_t from_ns = spw_now_ns(), allowed = 0;
        for (int k = 0; k < BATCH_OPS; k++)
            allowed += locked_take(l);
        ns[i] = (double)(spw_now_ns() - from_ns) / BATCH_OPS;
        if (allowed != (allow ? BATCH_OPS : 0))
            exit(1);
    }
    print(b, "process-shared mutex", allow, "kernel", before_ns, median(ns, BATCHES));
}

/* ---- Redis: one script a decision, over its Unix socket ---- */

static void redis_peer(struct bench *b, const char *socket_path, bool allow)
{
#ifdef BENCH_HIREDIS
    static const char script[] =
        "local t = redis.call('TIME') local now = t[1] * 1000000 + t[2] "
        "local b = redis.call('HMGET', KEYS[1], 'tokens', 'at') "
        "local tokens = math.min(tonumber(ARGV[2]), (tonumber(b[1]) or tonumber(ARGV[2])) + "
        "(now - (tonumber(b[2]) or now)) * tonumber(ARGV[1])) "
        "local ok = 0 if tokens >= 1 then tokens = tokens - 1 ok = 1 end "
        "redis.call('HSET', KEYS[1], 'tokens', tokens, 'at', now) return ok";
    enum { COUNT = 20000 };
    static double ns[COUNT];
    redisContext *c = redisConnectUnix(socket_path);
    redisReply *loaded = c && !c->err ? redisCommand(c, "SCRIPT LOAD %s", script) : NULL;
    if (!loaded || loaded->type != REDIS_REPLY_STRING) {
        fprintf(stderr, "redis: no answer on %s\n", socket_path);
        return;
    }
    double before_ns = spillway_ns(b, false, allow);
    for (int i = 0; i < COUNT; i++) {
        uint64_t from_ns = spw_now_ns();
        redisReply *reply = redisCommand(c, "EVALSHA %s 1 %s %s %s", loaded->str, allow ? "allow" : "deny",
                                         allow ? "10" : "0", allow ? "4000000000" : "0");
        ns[i] = (double)(spw_now_ns() - from_ns);
        if (!reply || reply->type != REDIS_REPLY_INTEGER || reply->integer != allow)
            exit(1);
        freeReplyObject(reply);
    }
    print(b, "Redis script", allow, "server", before_ns, median(ns, COUNT));
    freeReplyObject(loaded);
    redisFree(c);
#else
    (void)b;
    (void)socket_path;
    (void)allow;
#endif
}

/* ---- peers with programs of their own ---- */

static void program_peer(struct bench *b, const char *peer, const char *program, const char *name,
                         const char *clock)
{
    char command[512];
    double peer_ns = 0;
    bool allow = strstr(name, "-allow") != NULL;
    double before_ns = spillway_ns(b, strcmp(clock, "given") == 0, allow);
    snprintf(command, sizeof command, "%s %s", program, name);
    FILE *out = popen(command, "r");
    bool ok = out && fscanf(out, "%lf", &peer_ns) == 1;
    if (!out || pclose(out) != 0 || !ok)
        fprintf(stderr, "%s: no figure from %s\n", peer, command);
    else
        print(b, peer, allow, clock, before_ns, peer_ns);
}

static void golang_peers(struct bench *b, const char *program)
{
    program_peer(b, "x/time/rate", program, "rate-allow", "kernel");
    program_peer(b, "x/time/rate", program, "rate-deny", "kernel");
    program_peer(b, "x/time/rate", program, "given-allow", "given");
    program_peer(b, "x/time/rate", program, "given-deny", "given");
    program_peer(b, "uber-go/ratelimit", program, "uber-allow", "kernel");
}

static void governor_peers(struct bench *b, const char *program)
{
    program_peer(b, "governor", program, "tsc-allow", "tsc");
    program_peer(b, "governor", program, "tsc-deny", "tsc");
    program_peer(b, "governor", program, "given-allow", "given");
    program_peer(b, "governor", program, "given-deny", "given");
    program_peer(b, "governor, told to use the kernel's clock", program, "kernel-allow", "kernel");
    program_peer(b, "governor, told to use the kernel's clock", program, "kernel-deny", "kernel");
}

int main(int argc, char **argv)
{
    static struct bench b;
    if (!bench_open(&b, conf_text))
        return 1;
    mutex_peer(&b, true);
    mutex_peer(&b, false);
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "golang=", 7) == 0)
            golang_peers(&b, argv[i] + 7);
        else if (strncmp(argv[i], "governor=", 9) == 0)
            governor_peers(&b, argv[i] + 9);
        else if (strncmp(argv[i], "redis=", 6) == 0) {
            redis_peer(&b, argv[i] + 6, true);
            redis_peer(&b, argv[i] + 6, false);
        }
    }
    return bench_close(&b) ? 0 : 1;
}
