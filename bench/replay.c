/* replay.c: how many events a second a replay does on one core, against a floor taken in the same run.
 *
 * Owns: a file of events, for each case, in the temporary directory. Thread: one. Prints a JSON line per case. The floor
 * is reading the same lines as JSON and nothing else. Rounds of floor and case are interleaved, so that both see the
 * same machine; the best of each counts. Time is the process's own on the processor, so that others on it do not count.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

#include "sidecar/replay/lines.h"
#include "sidecar/replay/run.h"

#define EVENTS        400000u
#define ROUNDS        5
#define MANY_ACCOUNTS 1000u

struct replay_case {
    const char *name;
    uint32_t accounts_count;
    void (*write)(FILE *events, uint32_t i);
};

static void write_at(FILE *f, uint32_t i, const char *op, uint32_t account)
{
    fprintf(f, "{\"at\":\"%u.%09u\",\"op\":\"%s\",\"account\":\"shop-%u\"", i / 1000, i % 1000 * 1000000, op,
            account);
}

static void write_acquire(FILE *f, uint32_t i)
{
    write_at(f, i, "acquire", 0);
    fputs(",\"integration\":\"web\",\"cost\":1}\n", f);
}

/* A call and its answer, with the headers of one. */
static void write_pair(FILE *f, uint32_t i)
{
    write_at(f, i, i % 2 ? "outcome" : "acquire", 0);
    if (i % 2)
        fprintf(f,
                ",\"id\":\"%u\",\"status\":200,\"headers\":{\"X-RateLimit-Limit\":\"100\","
                "\"X-RateLimit-Remaining\":\"60\",\"X-RateLimit-Reset\":\"30\"}}\n",
                i - 1);
    else
        fprintf(f, ",\"id\":\"%u\"}\n", i);
}

static void write_many(FILE *f, uint32_t i)
{
    write_at(f, i, "acquire", i * 7919u % MANY_ACCOUNTS);
    fputs(",\"integration\":\"web\",\"cost\":1}\n", f);
}

static double cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void fail(const char *what)
{
    fprintf(stderr, "bench_replay: %s\n", what);
    exit(1);
}

static struct spw_conf *make_conf(uint32_t accounts_count)
{
    char path[] = "/tmp/spw-bench-replay-XXXXXX";
    int fd = mkstemp(path);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
    struct spw_conf *conf;
    struct spw_error err;
    if (!f)
        fail("no temporary file");
    fputs("accounts:\n", f);
    for (uint32_t i = 0; i < accounts_count; i++)
        fprintf(f,
                "  shop-%u: {provider: taxcloud, connection: c, credentials: {api_key_env: K}, "
                "limit: {rate: 500/s, burst: 500, pods: 1}, integrations: {web: checkout}}\n",
                i);
    fclose(f);
    enum spw_status status = spw_conf_load_any(path, &conf, &err);
    unlink(path);
    if (status)
        fail(err.text);
    return conf;
}

static double floor_s(FILE *events)
{
    struct spw_replay_lines lines = {.fd = fileno(events)};
    json_error_t error;
    double from_s = cpu_s();
    while (spw_replay_lines_next(&lines))
        json_decref(json_loadb(lines.line, lines.bytes, JSON_REJECT_DUPLICATES, &error));
    spw_replay_lines_clean_up(&lines);
    return cpu_s() - from_s;
}

static double case_s(const struct spw_conf *conf, FILE *events, FILE *out)
{
    struct spw_replay *replay;
    struct spw_replay_counts counts;
    struct spw_error err;
    struct spw_replay_options options = {.name = "events", .in = events, .out = out};
    double from_s = cpu_s();
    if (spw_replay_new(conf, 0, &replay, &err) || spw_replay_run(replay, &options, &counts, &err))
        fail(err.text);
    spw_replay_destroy(replay);
    if (counts.events != EVENTS || counts.errors)
        fail("not every event was done");
    return cpu_s() - from_s;
}

static void run_case(const struct replay_case *c, FILE *out)
{
    double best_s = 1e9, best_floor_s = 1e9;
    FILE *events = tmpfile();
    struct spw_conf *conf = make_conf(c->accounts_count);
    if (!events)
        fail("no temporary file");
    for (uint32_t i = 0; i < EVENTS; i++)
        c->write(events, i);
    fflush(events);
    for (int i = 0; i < ROUNDS; i++) {
        rewind(events);
        double s = floor_s(events);
        best_floor_s = s < best_floor_s ? s : best_floor_s;
        rewind(events);
        s = case_s(conf, events, out);
        best_s = s < best_s ? s : best_s;
    }
    printf("{\"bench\":\"replay\",\"case\":\"%s\",\"events\":%u,\"accounts\":%u,\"events_per_s\":%.0f,"
           "\"floor\":\"json_lines\",\"floor_events_per_s\":%.0f,\"ratio\":%.3f}\n",
           c->name, EVENTS, c->accounts_count, EVENTS / best_s, EVENTS / best_floor_s, best_s / best_floor_s);
    fclose(events);
    spw_conf_destroy(conf);
}

int main(void)
{
    static const struct replay_case cases[] = {{"acquire", 1, write_acquire},
                                               {"acquire_outcome", 1, write_pair},
                                               {"many_accounts", MANY_ACCOUNTS, write_many}};
    FILE *out = fopen("/dev/null", "we");
    if (!out)
        fail("no /dev/null");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        run_case(&cases[i], out);
    fclose(out);
    return 0;
}
