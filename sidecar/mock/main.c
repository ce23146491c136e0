/* main.c: the scripted provider: options, rates, script, server, wait for a signal, stop.
 *
 * Owns: the process. Thread: the main thread only waits; the server has its own.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "sidecar/mock/options.h"
#include "sidecar/mock/server.h"

enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

static int complain(const struct spw_error *err)
{
    fprintf(stderr, "spillway-provider-mock: %s\n", err->text);
    return err->status == SPW_STATUS_INVALID || err->status == SPW_STATUS_PARSE ||
                   err->status == SPW_STATUS_FULL
               ? EXIT_USAGE
               : EXIT_FAILED;
}

static enum spw_status load_scenario(const char *path, struct spw_mock_scenario *out, struct spw_error *err)
{
    memset(out, 0, sizeof *out);
    if (!path)
        return SPW_STATUS_OK;
    FILE *file = fopen(path, "re");
    if (!file)
        return spw_error_set(err, SPW_STATUS_SYSTEM, "--scenario: %s: %s; give a readable file", path,
                             strerror(errno));
    char *text = malloc(SPW_MOCK_SCENARIO_MAX_BYTES + 1);
    size_t bytes = text ? fread(text, 1, SPW_MOCK_SCENARIO_MAX_BYTES + 1, file) : 0;
    bool failed = !text || ferror(file);
    fclose(file);
    enum spw_status status = failed ? spw_error_set(err, SPW_STATUS_SYSTEM,
                                                    "--scenario: %s: cannot be read; give a plain file", path)
                                    : spw_mock_scenario_parse(path, text, bytes, out, err);
    free(text);
    return status;
}

static void tell_bad_row(void *owner, const char *file, const struct spw_rates_problem *problem)
{
    (void)owner;
    fprintf(stderr, "spillway-provider-mock: %s:%" PRIu32 ": %s%s%s\n", file, problem->line,
            problem->column ? problem->column : "", problem->column ? ": " : "", problem->text);
}

/* Signals are taken by sigwait, so they are blocked before the server's threads inherit the mask. */
static void wait_for_stop(const sigset_t *stops)
{
    int which = 0;
    while (sigwait(stops, &which) != 0)
        ;
}

static void say_start(const struct spw_mock_server *server, uint16_t port, const struct spw_mock_options *o)
{
    char limit[256];
    spw_mock_limiter_describe(&server->limiter, limit, sizeof limit);
    size_t host_bytes = (size_t)(strrchr(o->listen, ':') - o->listen);
    printf("listening on %s://%.*s:%u\n", o->tls_cert ? "https" : "http", (int)host_bytes, o->listen, port);
    printf("limit: %s\n", limit);
    if (strncmp(o->listen, "127.", 4) != 0 && strncmp(o->listen, "[::1]", 5) != 0)
        printf("warning: not loopback: /mock/... is open to whoever reaches this address\n");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    struct spw_mock_options options;
    struct spw_mock_scenario scenario = {0};
    struct spw_rates_table table = {0};
    struct spw_rates_options rates_options = {.problem = tell_bad_row};
    static struct spw_mock_server server;
    struct spw_error err;
    enum spw_mock_wish wish;
    uint16_t port = 0;
    sigset_t stops;

    if (spw_mock_options_parse(argc, argv, &options, &wish, &err))
        return complain(&err);
    if (wish != SPW_MOCK_RUN)
        return fputs(wish == SPW_MOCK_HELP ? spw_mock_help : "spillway-provider-mock " SPW_VERSION "\n",
                     stdout) < 0
                   ? EXIT_FAILED
                   : EXIT_OK;
    sigemptyset(&stops);
    sigaddset(&stops, SIGTERM);
    sigaddset(&stops, SIGINT);
    pthread_sigmask(SIG_BLOCK, &stops, NULL);
    signal(SIGPIPE, SIG_IGN);
    json_object_seed(0); /* before any thread makes an object */

    if (options.rates && spw_rates_load(options.rates, &rates_options, &table, &err))
        return complain(&err);
    if (load_scenario(options.scenario, &scenario, &err)) {
        spw_rates_clean_up(&table);
        return complain(&err);
    }
    if (spw_mock_server_open(&server, &options, options.rates ? &table : NULL, &scenario, &port, &err))
        return complain(&err);
    say_start(&server, port, &options);
    wait_for_stop(&stops);
    spw_mock_server_close(&server);
    return EXIT_OK;
}
