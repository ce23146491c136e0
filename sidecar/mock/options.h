/* options.h: the scripted provider's command line.
 *
 * Owns: struct spw_mock_options and the help text. Called by: main.c. Thread: the main thread.
 */
#ifndef SPW_MOCK_OPTIONS_H
#define SPW_MOCK_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "sidecar/mock/limiter.h"
#include "sidecar/obs/error.h"

enum spw_mock_headers { SPW_MOCK_HEADERS_NONE, SPW_MOCK_HEADERS_X, SPW_MOCK_HEADERS_IETF };
enum spw_mock_retry_after { SPW_MOCK_RETRY_AUTO, SPW_MOCK_RETRY_NONE, SPW_MOCK_RETRY_FIXED };

struct spw_mock_options {
    const char *listen; /* "127.0.0.1:9080" */
    bool has_limit;
    struct spw_rate limit;
    enum spw_mock_algorithm algorithm;
    uint64_t burst_count; /* 0 = one period's worth */
    enum spw_mock_headers headers;
    enum spw_mock_retry_after retry_after;
    uint64_t retry_after_s;
    uint64_t latency_ms, jitter_ms;
    const char *api_key; /* NULL = any */
    const char *tls_cert, *tls_key;
    const char *scenario;
    const char *rates;
    bool has_rate;
    uint32_t rate_ppb;
};

enum spw_mock_wish { SPW_MOCK_RUN, SPW_MOCK_HELP, SPW_MOCK_VERSION };

/* The texts of *out are argv's own. */
enum spw_status spw_mock_options_parse(int argc, char **argv, struct spw_mock_options *out,
                                       enum spw_mock_wish *wish, struct spw_error *err) SPW_WARN_UNUSED;
extern const char spw_mock_help[];

#endif
