/* options.c: see options.h. */
#include "sidecar/mock/options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char spw_mock_help[] =
    "spillway-provider-mock: a scripted tax provider for tests and demonstrations. It speaks, told apart by "
    "path,\n"
    "AvaTax v2 (/api/v2/), TaxJar v2 (/v2/), Stripe Tax (/v1/) and TaxCloud v3 (/tax/).\n"
    "\n"
    "Usage: spillway-provider-mock [options]\n"
    "\n"
    "  --listen HOST:PORT      where to listen (127.0.0.1:9080); port 0 = any free one, printed at start\n"
    "  --rate RATE             flat tax rate, as 0.0825 or 8.25% (default 0.0825)\n"
    "  --rates FILE            rates by ZIP from a published table (CSV, plain or gzip) instead of --rate\n"
    "  --api-key KEY           the only key accepted: X-API-KEY, Bearer, or password of Basic (default: any "
    "one)\n"
    "\n"
    "Rate limit, for provider paths only (never for /mock/...):\n"
    "  --limit RATE            as 20/s, 500/min (default: none)\n"
    "  --algorithm WHICH       bucket (default) or fixed-window\n"
    "  --burst N               size of the bucket (default: one period's worth); bucket only\n"
    "  --headers WHICH         none (default), x-ratelimit, ietf: how answers tell the limit\n"
    "  --retry-after WHICH     auto (default: whole seconds until one more is allowed), none, or SECONDS\n"
    "\n"
    "Misbehaviour:\n"
    "  --latency DURATION      wait before each ordinary answer, as 40ms (default 0ms)\n"
    "  --jitter DURATION       vary that wait evenly by plus or minus this much\n"
    "  --scenario FILE         steps as a JSON list or one JSON object a line; keys: from_ms, to_ms, "
    "from_request,\n"
    "                          to_request, path_contains, share, status, latency_ms, headers, body, action,\n"
    "                          trickle_ms, random, seed, note; actions: reset, close, stall, trickle, "
    "garbage,\n"
    "                          wrong-length, huge, drop\n"
    "\n"
    "TLS:\n"
    "  --tls-cert FILE --tls-key FILE   PEM; both or neither\n"
    "\n"
    "  --help, --version\n"
    "\n"
    "Control: POST /mock/scenario (a new script, in force at once), GET /mock/stats, GET /mock/books, POST\n"
    "/mock/reset-stats.\n"
    "These need no key: listen on loopback, or where only the test can reach.\n"
    "\n"
    "Exit codes: 0 stopped by SIGTERM or SIGINT, 1 could not run, 2 wrong command line or script.\n"
    "More: docs/provider-mock.md\n";

enum {
    OPT_LISTEN = 256,
    OPT_LIMIT,
    OPT_ALGORITHM,
    OPT_BURST,
    OPT_HEADERS,
    OPT_RETRY_AFTER,
    OPT_LATENCY,
    OPT_JITTER,
    OPT_API_KEY,
    OPT_TLS_CERT,
    OPT_TLS_KEY,
    OPT_SCENARIO,
    OPT_RATES,
    OPT_RATE,
    OPT_HELP,
    OPT_VERSION
};

static const struct option long_options[] = {{"listen", required_argument, NULL, OPT_LISTEN},
                                             {"limit", required_argument, NULL, OPT_LIMIT},
                                             {"algorithm", required_argument, NULL, OPT_ALGORITHM},
                                             {"burst", required_argument, NULL, OPT_BURST},
                                             {"headers", required_argument, NULL, OPT_HEADERS},
                                             {"retry-after", required_argument, NULL, OPT_RETRY_AFTER},
                                             {"latency", required_argument, NULL, OPT_LATENCY},
                                             {"jitter", required_argument, NULL, OPT_JITTER},
                                             {"api-key", required_argument, NULL, OPT_API_KEY},
                                             {"tls-cert", required_argument, NULL, OPT_TLS_CERT},
                                             {"tls-key", required_argument, NULL, OPT_TLS_KEY},
                                             {"scenario", required_argument, NULL, OPT_SCENARIO},
                                             {"rates", required_argument, NULL, OPT_RATES},
                                             {"rate", required_argument, NULL, OPT_RATE},
                                             {"help", no_argument, NULL, OPT_HELP},
                                             {"version", no_argument, NULL, OPT_VERSION},
                                             {NULL, 0, NULL, 0}};

static enum spw_status take_whole(const char *text, uint64_t most, uint64_t *out, struct spw_error *err)
{
    size_t n = strlen(text);
    if (n == 0 || n > 12 || strspn(text, "0123456789") != n || strtoull(text, NULL, 10) > most)
        return spw_error_set(err, SPW_STATUS_INVALID, "\"%.40s\": write a whole number from 0 to %llu", text,
                             (unsigned long long)most);
    *out = strtoull(text, NULL, 10);
    return SPW_STATUS_OK;
}

static enum spw_status take_word(const char *text, const char *const *words, size_t count, const char *all,
                                 int *out, struct spw_error *err)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(text, words[i]) == 0) {
            *out = (int)i;
            return SPW_STATUS_OK;
        }
    return spw_error_set(err, SPW_STATUS_INVALID, "\"%.40s\": write one of %s", text, all);
}

static enum spw_status take_retry_after(const char *text, struct spw_mock_options *o, struct spw_error *err)
{
    o->retry_after = strcmp(text, "auto") == 0   ? SPW_MOCK_RETRY_AUTO
                     : strcmp(text, "none") == 0 ? SPW_MOCK_RETRY_NONE
                                                 : SPW_MOCK_RETRY_FIXED;
    if (o->retry_after != SPW_MOCK_RETRY_FIXED)
        return SPW_STATUS_OK;
    enum spw_status status = take_whole(text, 86400, &o->retry_after_s, err);
    return status ? spw_error_set(err, status, "\"%.40s\": write auto, none or seconds up to 86400", text)
                  : status;
}

static enum spw_status take_option(int which, char *text, struct spw_mock_options *o, struct spw_error *err)
{
    static const char *const algorithms[] = {"bucket", "fixed-window"};
    static const char *const headers[] = {"none", "x-ratelimit", "ietf"};
    int index = 0;
    enum spw_status status = SPW_STATUS_OK;
    switch (which) {
    case OPT_LIMIT:
        o->has_limit = true;
        return spw_parse_rate(text, &o->limit, err);
    case OPT_ALGORITHM:
        status = take_word(text, algorithms, 2, "bucket, fixed-window", &index, err);
        o->algorithm = (enum spw_mock_algorithm)index;
        return status;
    case OPT_HEADERS:
        status = take_word(text, headers, 3, "none, x-ratelimit, ietf", &index, err);
        o->headers = (enum spw_mock_headers)index;
        return status;
    case OPT_BURST:
        status = take_whole(text, 1000000000, &o->burst_count, err);
        if (!status && o->burst_count == 0)
            status = spw_error_set(err, SPW_STATUS_INVALID,
                                   "0: a bucket without room lets nothing through; write at "
                                   "least 1");
        return status;
    case OPT_RETRY_AFTER:
        return take_retry_after(text, o, err);
    case OPT_LATENCY:
        return spw_parse_duration_ms(text, &o->latency_ms, err);
    case OPT_JITTER:
        return spw_parse_duration_ms(text, &o->jitter_ms, err);
    case OPT_RATE:
        o->has_rate = true;
        return spw_parse_rate_ppb(text, &o->rate_ppb, err);
    case OPT_LISTEN:
        o->listen = text;
        return status;
    case OPT_API_KEY:
        o->api_key = text;
        return status;
    case OPT_TLS_CERT:
        o->tls_cert = text;
        return status;
    case OPT_TLS_KEY:
        o->tls_key = text;
        return status;
    case OPT_SCENARIO:
        o->scenario = text;
        return status;
    default:
        o->rates = text;
        return status;
    }
}

/* What the options say together. */
static enum spw_status check(const struct spw_mock_options *o, struct spw_error *err)
{
    const char *fault = NULL;
    if (!o->tls_cert != !o->tls_key)
        fault = "--tls-cert and --tls-key belong together; give both or neither";
    else if (o->rates && o->has_rate)
        fault = "--rates and --rate exclude each other; give one";
    else if (!o->has_limit && o->headers != SPW_MOCK_HEADERS_NONE)
        fault = "--headers tells a limit, and there is none; give --limit too";
    else if (!o->has_limit && o->burst_count)
        fault = "--burst is the size of a limit's bucket; give --limit too";
    else if (o->algorithm == SPW_MOCK_FIXED_WINDOW && o->burst_count)
        fault = "--burst belongs to --algorithm bucket; a fixed window has none";
    else if (o->has_limit && o->algorithm == SPW_MOCK_BUCKET && !o->burst_count && o->limit.tokens_count == 0)
        fault = "--limit 0 has no burst to start with; give --burst too, or use --algorithm fixed-window";
    else if (o->jitter_ms > o->latency_ms)
        fault = "--jitter is larger than --latency, so that a wait could be below zero; lower it";
    else if (o->latency_ms > 3600000)
        fault = "--latency is above an hour; lower it";
    else if (o->api_key && !o->api_key[0])
        fault = "--api-key is empty; give the key or leave the option out";
    return fault ? spw_error_set(err, SPW_STATUS_INVALID, "%s", fault) : SPW_STATUS_OK;
}

enum spw_status spw_mock_options_parse(int argc, char **argv, struct spw_mock_options *out,
                                       enum spw_mock_wish *wish, struct spw_error *err)
{
    *out = (struct spw_mock_options){.listen = "127.0.0.1:9080", .rate_ppb = 82500000};
    *wish = SPW_MOCK_RUN;
    opterr = 0;
    for (;;) {
        int index = 0;
        int which = getopt_long(argc, argv, ":", long_options, &index);
        if (which == -1)
            break;
        if (which == ':' || which == '?')
            return spw_error_set(err, SPW_STATUS_INVALID, "%s: %s; see --help", argv[optind - 1],
                                 which == ':' ? "its value is missing" : "no such option");
        if (which == OPT_HELP || which == OPT_VERSION) {
            *wish = which == OPT_HELP ? SPW_MOCK_HELP : SPW_MOCK_VERSION;
            return SPW_STATUS_OK;
        }
        enum spw_status status = take_option(which, optarg, out, err);
        if (status) {
            spw_error_prefix(err, "--%s: ", long_options[index].name);
            return status;
        }
    }
    if (optind < argc)
        return spw_error_set(err, SPW_STATUS_INVALID,
                             "\"%.60s\": every argument is an option here; see --help", argv[optind]);
    return check(out, err);
}
