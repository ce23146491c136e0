/* server.h: the scripted provider as a running HTTP server.
 *
 * Owns: the listening socket, the daemon's threads (one per connection, so that a slow answer delays nobody else) and
 * one lock over limiter, script, books and counters. Called by: main.c; its insides by control.c and misbehave.c.
 */
#ifndef SPW_MOCK_SERVER_H
#define SPW_MOCK_SERVER_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <microhttpd.h>

#include "sidecar/mock/limiter.h"
#include "sidecar/mock/options.h"
#include "sidecar/mock/problem.h"
#include "sidecar/mock/scenario.h"
#include "sidecar/mock/stats.h"
#include "sidecar/mock/taxcloud_shape.h"

/* A script in force. Counted, because a request may still be held by a step when the next script comes. */
struct spw_mock_script {
    uint32_t users_count;
    uint64_t since_ns;
    uint64_t requests_count; /* seen since it came into force */
    struct spw_mock_scenario scenario;
};

struct spw_mock_server {
    const struct spw_mock_options *options;
    int listen_fd;
    int stop_fd; /* readable for ever once the server stops: ends every wait */
    struct MHD_Daemon *daemon;
    char *tls_cert, *tls_key;
    uint64_t start_ns; /* CLOCK_MONOTONIC */
    int64_t start_unix_ms;
    /* under lock */
    pthread_mutex_t lock;
    struct spw_mock_limiter limiter;
    struct spw_mock_script *script; /* never NULL while running */
    struct spw_mock_books books;
    struct spw_mock_stats *stats;
    uint64_t random;
};

/* Opens everything; the port is in *port. table is taken over when not NULL; scenario always. */
enum spw_status spw_mock_server_open(struct spw_mock_server *server, const struct spw_mock_options *options,
                                     struct spw_rates_table *table, struct spw_mock_scenario *scenario,
                                     uint16_t *port, struct spw_error *err) SPW_WARN_UNUSED;
/* Ends every wait, answers or drops what is in flight, frees everything. */
void spw_mock_server_close(struct spw_mock_server *server);

/* ---- for control.c and misbehave.c ---- */

uint64_t spw_mock_server_now_ns(const struct spw_mock_server *server); /* since the start */
/* Replace the script; takes *scenario over. Call without the lock. false: no memory. */
bool spw_mock_server_set_scenario(struct spw_mock_server *server, struct spw_mock_scenario *scenario);
/* Wait; ends early when the server stops, and, with until_gone, when the client hangs up. */
void spw_mock_server_rest(const struct spw_mock_server *server, int client_fd, uint64_t us, bool until_gone);
enum MHD_Result spw_mock_server_send(struct MHD_Connection *connection, struct MHD_Response *response,
                                     unsigned status);

#endif
