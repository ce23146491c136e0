/* test_conf.c: the configuration file: what a good one means, and where a bad one is named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "sidecar/conf/conf.h"

/* Lines 1 to 5, line 6, and from line 7 on whatever a case adds. */
#define HEAD                                                                                                 \
    "accounts:\n"                                                                                            \
    "  a:\n"                                                                                                 \
    "    provider: taxcloud\n"                                                                               \
    "    connection: c-1\n"                                                                                  \
    "    credentials: {api_key_env: KEY}\n"
#define LIMIT  "    limit: {rate: 100/s, burst: 100, pods: 4}\n"
#define GOOD   HEAD LIMIT
#define AVATAX "accounts:\n  v:\n    provider: avatax\n"
#define HTTP_ROUTE(route)                                                                                    \
    "accounts:\n"                                                                                            \
    "  p:\n"                                                                                                 \
    "    provider: http\n"                                                                                   \
    "    routes: ['" route "']\n"
/* Lines 1 to 5. */
#define HTTP HTTP_ROUTE("POST /v1/charges") "    limit: {rate: 25/s, pods: 1}\n"

static struct spw_conf *parse_good(const char *text)
{
    struct spw_conf *conf = NULL;
    struct spw_error err = {0};
    if (spw_conf_parse("t.yaml", text, strlen(text), &conf, &err) != SPW_STATUS_OK)
        fail_msg("%s", err.text);
    return conf;
}

static char *read_whole(const char *path, size_t *bytes)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    char *text = malloc(1 << 16);
    assert_non_null(text);
    *bytes = fread(text, 1, 1 << 16, f);
    fclose(f);
    return text;
}

static void minimal_file_has_the_documented_defaults(void **unused)
{
    (void)unused;
    size_t bytes;
    char *text = read_whole("tests/data/config/minimal.yaml", &bytes);
    struct spw_conf *conf = NULL;
    struct spw_error err = {0};
    if (spw_conf_parse("minimal.yaml", text, bytes, &conf, &err) != SPW_STATUS_OK)
        fail_msg("%s", err.text);
    free(text);
    assert_int_equal(conf->accounts_count, 1);
    const struct spw_conf_account *a = &conf->accounts[0];
    assert_string_equal(a->name, "taxcloud-main");
    assert_string_equal(a->url, "https://api.v3.taxcloud.com");
    assert_string_equal(a->api_key.file, "/etc/spillway/secrets/taxcloud/api-key");
    assert_string_equal(a->api_key.env, "");
    assert_int_equal(a->limit.rate.tokens_count, 100);
    assert_int_equal(a->limit.burst_count, 250);
    assert_int_equal(a->limit.pods_count, 40);
    assert_int_equal(a->header_buffer_ppm, 150000);
    assert_int_equal(a->batch_reserve_ppm, 100000);
    assert_int_equal(a->concurrency_count, 0);
    assert_int_equal(a->deadline_ms, 1800);
    assert_int_equal(a->limit.kind, SPW_LIMITER_BUCKET);
    assert_int_equal(a->limit_mode, SPW_LIMITER_ENFORCE);
    assert_false(a->adopt_lower);
    assert_int_equal(a->limiters_count, 0);
    assert_int_equal(a->concurrency_per_process_count, 0);
    assert_int_equal(a->retry.base_ms, 1000);
    assert_int_equal(a->retry.most_ms, 4000);
    assert_int_equal(a->retry.jitter, SPW_JITTER_PROPORTIONAL);
    assert_int_equal(a->breaker.consecutive_429_count, 5);
    assert_int_equal(a->breaker.ratio_429_ppm, 200000);
    assert_int_equal(a->breaker.minimum_count, 20);
    assert_int_equal(a->breaker.window_ms, 10000);
    assert_int_equal(a->breaker.cooldown_min_ms, 30000);
    assert_int_equal(a->breaker.cooldown_max_ms, 60000);
    assert_int_equal(a->breaker.mode, SPW_BREAKER_ENFORCE);
    assert_int_equal(a->integrations_count, 1);
    assert_string_equal(a->integrations[0].name, "default");
    assert_int_equal(a->integrations[0].class_, SPW_CLASS_CHECKOUT);
    const struct spw_conf_fallback *f = &conf->fallback;
    assert_true(f->nexus_all);
    assert_int_equal(f->rate_files_count, 1);
    assert_int_equal(f->rate_files[0].as_of_day, 20393);
    assert_int_equal(f->max_age_warn_days, 45);
    assert_int_equal(f->max_age_refuse_days, 120);
    assert_int_equal(f->on_no_rate, SPW_NO_RATE_BLOCK);
    assert_int_equal(f->tax_rule_default, SPW_RULE_GENERAL);
    assert_int_equal(f->rounding, SPW_ROUNDING_HALF_UP_LINE);
    assert_true(f->shipping_taxable);
    assert_string_equal(conf->segment.pub_dir, "/run/spillway/pub");
    assert_string_equal(conf->segment.rw_dir, "/run/spillway/rw");
    assert_int_equal(conf->segment.gid, UINT32_MAX);
    assert_int_equal(conf->segment.slots_count, 256);
    assert_int_equal(conf->segment.cells_count, 2048);
    assert_int_equal(conf->segment.rate_records_count, 65536);
    assert_string_equal(conf->quote_listen, "");
    assert_string_equal(conf->admin_listen, "0.0.0.0:9090");
    assert_string_equal(conf->control_listen, "");
    assert_false(conf->require_app_uid_differs);
    assert_string_equal(conf->store_file, "/var/lib/spillway/flags.db");
    assert_string_equal(conf->spool_dir, "");
    assert_int_equal(conf->retention.rows_days, 0);
    assert_int_equal(conf->unplaced_after_ms, 86400000);
    assert_int_equal(conf->alert.share_ppm, 10000);
    assert_int_equal(conf->on_full, SPW_ON_FULL_HAND_BACK);
    assert_string_equal(conf->loop_backend, "auto");
    assert_string_equal(conf->log_level, "info");
    assert_false(conf->log_json);
    assert_int_equal(conf->drain_ms, 10000);
    spw_conf_destroy(conf);
}

static void limiters_arrive(const struct spw_conf_account *a)
{
    assert_true(a->adopt_lower);
    assert_int_equal(a->limiters_count, 2);
    const struct spw_conf_limiter *l = &a->limiters[0];
    assert_string_equal(l->name, "calculations");
    assert_int_equal(l->limit.rate.tokens_count, 25);
    assert_int_equal(l->limit.burst_count, 80);
    assert_int_equal(l->limit.pods_count, 40);
    assert_int_equal(l->limit.kind, SPW_LIMITER_BUCKET);
    assert_int_equal(l->endpoints, 1u << SPW_ENDPOINT_CALCULATE);
    assert_true(l->integrations == UINT64_MAX);
    l++;
    assert_int_equal(l->limit.kind, SPW_LIMITER_WINDOW);
    assert_int_equal(l->limit.burst_count, 10000);
    assert_int_equal(l->mode, SPW_LIMITER_OBSERVE);
    assert_int_equal(l->endpoints, 1u << SPW_ENDPOINT_RECORD | 1u << SPW_ENDPOINT_OTHER);
    assert_true(l->integrations == 2);
    assert_int_equal(a->concurrency_per_process_count, 12);
    assert_int_equal(a->retry.base_ms, 500);
    assert_int_equal(a->retry.most_ms, 2000);
    assert_int_equal(a->retry.jitter, SPW_JITTER_EQUAL);
}

/* Where the file names none, those that the provider is known for; each pod needs a token of each all the same. */
static void limiters_of_the_provider(void **unused)
{
    (void)unused;
    struct spw_conf *conf =
        parse_good("accounts:\n  s:\n    provider: stripe\n    credentials: {api_key_env: KEY}\n"
                   "    limit: {rate: 100/s, burst: 100, pods: 8}\n");
    const struct spw_conf_account *a = &conf->accounts[0];
    assert_true(a->limiters_count >= 1);
    assert_string_equal(a->limiters[0].name, "calculations");
    assert_int_equal(a->limiters[0].limit.rate.tokens_count, 25);
    assert_int_equal(a->limiters[0].limit.burst_count, 8);
    assert_int_equal(a->limiters[0].endpoints, 1u << SPW_ENDPOINT_CALCULATE);
    for (uint32_t i = 0; i < a->limiters_count; i++)
        assert_int_equal(a->limiters[i].limit.pods_count, 8);
    spw_conf_destroy(conf);
    conf = parse_good(
        "accounts:\n  s:\n    provider: stripe\n    credentials: {api_key_env: KEY}\n"
        "    limit: {rate: 100/s, burst: 100, pods: 8}\n    limiters: [{name: mine, rate: 9/s}]\n");
    assert_int_equal(conf->accounts[0].limiters_count, 1);
    spw_conf_destroy(conf);
}

static void every_key_of_the_full_file_arrives(void **unused)
{
    (void)unused;
    size_t bytes;
    char *text = read_whole("tests/data/config/full.yaml", &bytes);
    struct spw_conf *conf = NULL;
    struct spw_error err = {0};
    if (spw_conf_parse("full.yaml", text, bytes, &conf, &err) != SPW_STATUS_OK)
        fail_msg("%s", err.text);
    free(text);
    assert_int_equal(conf->accounts_count, 4);
    limiters_arrive(&conf->accounts[0]);
    const struct spw_conf_account *v = &conf->accounts[3];
    assert_string_equal(v->company, "ACME-US");
    assert_string_equal(v->user.file, "/etc/spillway/secrets/avalara/username");
    assert_string_equal(v->api_key.file, "/etc/spillway/secrets/avalara/password");
    const struct spw_conf_account *p = &conf->accounts[2];
    assert_string_equal(p->provider, "http");
    assert_string_equal(p->credential_header, "X-API-Key");
    assert_int_equal(p->routes_count, 2);
    assert_string_equal(p->routes[1].method, "GET");
    assert_string_equal(p->routes[1].path, "/v1/charges/*");
    assert_int_equal(p->reset_unit, SPW_RESET_DELTA_MS);
    const struct spw_conf_account *a = &conf->accounts[0];
    assert_int_equal(a->reset_unit, SPW_RESET_AUTO);
    assert_string_equal(a->ca_file, "/etc/ssl/certs/ca-certificates.crt");
    assert_int_equal(a->header_buffer_ppm, 125000);
    assert_int_equal(a->batch_reserve_ppm, 200000);
    assert_int_equal(a->concurrency_count, 32);
    assert_int_equal(a->deadline_ms, 1500);
    assert_int_equal(a->reuse_ms, 600000);
    assert_int_equal(a->wait_ms, 200);
    assert_string_equal(a->listen, "127.0.0.1:8391");
    assert_string_equal(a->token_file, "/etc/spillway/secrets/taxcloud/local-token");
    assert_false(a->allow_force);
    assert_int_equal(a->connections_count, 48);
    assert_string_equal(a->proxy, "http://proxy.internal:3128");
    assert_string_equal(a->proxy_credentials.file, "/etc/spillway/secrets/proxy");
    assert_int_equal(a->breaker.consecutive_429_count, 7);
    assert_int_equal(a->breaker.ratio_429_ppm, 250000);
    assert_int_equal(a->breaker.minimum_count, 50);
    assert_int_equal(a->breaker.window_ms, 20000);
    assert_int_equal(a->breaker.cooldown_min_ms, 15000);
    assert_int_equal(a->breaker.cooldown_max_ms, 120000);
    assert_int_equal(a->breaker.mode, SPW_BREAKER_OBSERVE);
    assert_int_equal(a->integrations_count, 2);
    assert_string_equal(a->integrations[1].name, "netsuite-refunds");
    assert_int_equal(a->integrations[1].class_, SPW_CLASS_BATCH);
    const struct spw_conf_account *b = &conf->accounts[1];
    assert_string_equal(b->url, "http://127.0.0.1:8085");
    assert_true(b->allow_plain_http);
    assert_true(b->allow_force);
    assert_int_equal(b->connections_count, 32);
    assert_int_equal(b->reuse_ms, 0);
    assert_string_equal(b->api_key.env, "TAXCLOUD_TEST_KEY");
    assert_int_equal(b->limit.burst_count, 1); /* one second's worth of 7/min, at least 1 */
    const struct spw_conf_fallback *f = &conf->fallback;
    assert_false(f->nexus_all);
    assert_int_equal(f->nexus_count, 5);
    assert_string_equal(f->nexus[4], "MN");
    assert_int_equal(f->rate_files_count, 2);
    assert_string_equal(f->rate_files[1].source, "own-list");
    assert_int_equal(f->max_age_warn_days, 30);
    assert_int_equal(f->max_age_refuse_days, 90);
    assert_int_equal(f->on_no_rate, SPW_NO_RATE_DEFAULT);
    assert_int_equal(f->default_rate_ppb, 100000000);
    assert_int_equal(f->tax_codes_count, 3);
    assert_string_equal(f->tax_codes[0].code, "PC040100");
    assert_int_equal(f->tax_codes[0].rule, SPW_RULE_EXEMPT);
    assert_int_equal(f->tax_codes[1].rule, SPW_RULE_LEARNED);
    assert_int_equal(f->tax_codes[2].rule, SPW_RULE_REFUSE);
    assert_int_equal(f->rounding, SPW_ROUNDING_HALF_UP_ORDER);
    assert_false(f->shipping_taxable);
    assert_int_equal(f->shipping_except_count, 1); /* WA is as everywhere */
    assert_string_equal(f->shipping_except[0], "MD");
    assert_string_equal(f->rates_dir, "/etc/spillway/rates.d");
    assert_int_equal(f->bad_rows_max_ppm, 20000);
    assert_int_equal(f->several, SPW_SEVERAL_LOWEST);
    assert_string_equal(conf->segment.pub_dir, "/run/shop/pub");
    assert_string_equal(conf->segment.rw_dir, "/run/shop/rw");
    assert_int_equal(conf->segment.gid, 2000);
    assert_int_equal(conf->segment.slots_count, 128);
    assert_int_equal(conf->segment.cells_count, 4096);
    assert_int_equal(conf->segment.rate_records_count, 131072);
    assert_string_equal(conf->quote_listen, "127.0.0.1:8390");
    assert_string_equal(conf->admin_listen, "[::]:9090");
    assert_string_equal(conf->control_listen, "[::1]:8392");
    assert_string_equal(conf->control_tls.address, "0.0.0.0:8393");
    assert_string_equal(conf->control_tls.client_ca_file, "/etc/spillway/control/ca.crt");
    assert_int_equal(conf->control_tls.roles_count, 3);
    assert_string_equal(conf->control_tls.roles[2].name, "spiffe://shop.example/rates");
    assert_int_equal(conf->control_tls.roles[2].role, SPW_CONF_ADMIN);
    assert_int_equal(conf->control_uids_count, 1);
    assert_int_equal(conf->control_uids[0].uid, 1000);
    assert_int_equal(conf->control_uids[0].role, SPW_CONF_OPERATE);
    assert_true(conf->require_app_uid_differs);
    assert_string_equal(conf->store_file, "/var/lib/shop/flags.db");
    assert_int_equal(conf->on_full, SPW_ON_FULL_DENY);
    assert_string_equal(conf->spool_dir, "/var/spool/shop");
    assert_string_equal(conf->sink_dir, "/var/lib/shop/sink");
    assert_int_equal(conf->retention.addresses_days, 90);
    assert_int_equal(conf->retention.rows_days, 400);
    assert_int_equal(conf->unplaced_after_ms, 43200000);
    assert_int_equal(conf->alert.share_ppm, 25000);
    assert_int_equal(conf->alert.minimum_count, 10);
    assert_int_equal(conf->alert.window_ms, 1800000);
    assert_string_equal(conf->loop_backend, "io_uring");
    assert_string_equal(conf->log_level, "debug");
    assert_true(conf->log_json);
    assert_int_equal(conf->drain_ms, 25000);
    assert_int_equal(conf->test_seed, 7);
    spw_conf_destroy(conf);
}

static void other_spellings_mean_the_same(void **unused)
{
    (void)unused;
    struct spw_conf *conf =
        parse_good("\xEF\xBB\xBF---\r\n\"accounts\":\r\n  a: {provider: 'taxcloud', connection: c-1,\r\n"
                   "      credentials: {api_key_env: KEY}, # a comment\r\n"
                   "      limit: {rate: \"0/s\", pods: 4}}\r\n"
                   "store: {on_full: hand_back}\r\nfallback: {on_no_rate: state-average}\r\n...\r\n");
    assert_int_equal(conf->accounts[0].limit.burst_count, 0); /* rate 0: nothing to burst */
    assert_int_equal(conf->fallback.on_no_rate, SPW_NO_RATE_STATE_AVERAGE);
    spw_conf_destroy(conf);
    conf = parse_good(GOOD "    breaker: {cooldown: 45s}\ndrain: 0s\n");
    assert_int_equal(conf->accounts[0].breaker.cooldown_min_ms, 45000);
    assert_int_equal(conf->accounts[0].breaker.cooldown_max_ms, 45000);
    assert_int_equal(conf->drain_ms, 0);
    spw_conf_destroy(conf);
    conf = parse_good(HEAD "    limit: {rate: 1000000/s, burst: 4000000000, pods: 100000}\n");
    assert_int_equal(conf->accounts[0].limit.burst_count, 4000000000ull);
    spw_conf_destroy(conf);
}

struct bad_case {
    const char *text;
    const char *place; /* line:column: path, as the error begins after the file's name */
    const char *what;  /* a part of the rest */
};

static const struct bad_case BAD[] = {
    /* the text as such */
    {"", "1:1: ", "the file is empty"},
    {"\n  \n", "1:1: ", "the file is empty"},
    {"# only a comment\n", "2:1: ", "the file is empty"},
    {"\xEF\xBB\xBF", "1:", "the file is empty"},
    {GOOD "\tdeadline: 1s\n", "7:1: ", "a tab"},
    {GOOD "    deadline:\t1s\n", "7:14: ", "a tab"},
    {GOOD "drain: \x01\n", "7:8: ", "a control byte"},
    {GOOD "drain: 1\xFFs\n", "7:9: ", "no UTF-8"},
    {GOOD "drain: \xC0\x80\n", "7:8: ", "no UTF-8"},
    {GOOD "drain: \xED\xA0\x80\n", "7:8: ", "no UTF-8"},
    {GOOD "drain: \"unclosed\n", "8:1: drain: ", "not YAML"},
    {GOOD "   drain: 1s\n", "7:4: ", "not YAML"},
    {GOOD "drain: {a: 1\n", "7:8: drain: ", "single value"},
    {"accounts: [\n", "1:11: accounts: ", "must be a map"},
    {"}\n", "1:1: ", "not YAML"},
    {"just words\n", "1:1: ", "must be a map"},
    {"- a\n- b\n", "1:1: ", "must be a map"},
    {"null\n", "1:1: ", "has no value"},
    {"{}\n", "1:2: ", "is empty"},
    {GOOD "---\n" GOOD, "7:1: ", "a second document"},
    {GOOD "...\n---\ndrain: 1s\n", "8:1: ", "a second document"},
    /* references, tags, depth */
    {"accounts: &x\n  a: {}\n", "1:11: accounts: ", "anchors"},
    {GOOD "drain: *x\n", "7:8: drain: ", "aliases"},
    {GOOD "drain: !!str 1s\n", "7:8: drain: ", "tags"},
    {GOOD "<<: {drain: 1s}\n", "7:1: <<: ", "is not known"},
    {GOOD "fallback: {nexus: [[[[[[[[CA]]]]]]]]}\n", "7:20: fallback.nexus[0]: ", "single value"},
    {GOOD "drain: {a: {b: {c: {d: {e: 1}}}}}\n", "7:8: drain: ", "single value"},
    {GOOD "? [a]\n: b\n", "7:3: ", "a key must be a word"},
    {GOOD "\"\": b\n", "7:1: ", "a key must be a word"},
    /* store and alert */
    {GOOD "store: {spool_dir: spool}\n", "7:20: store.spool_dir: ", "absolute"},
    {GOOD "store: {sink: {file: out}}\n", "7:22: store.sink.file: ", "absolute"},
    {GOOD "store: {retention: {addresses: 12h}}\n", "7:32: store.retention.addresses: ", "whole days"},
    {GOOD "store: {retention: {addresses: 9d, rows: 8d}}\n", "7:42: store.retention.rows: ", "shorter"},
    {GOOD "store: {unplaced_after: 31d}\n", "7:25: store.unplaced_after: ", "out of range"},
    {GOOD "fallback: {alert: {share: 0%}}\n", "7:27: fallback.alert.share: ", "above 0%"},
    {GOOD "fallback: {alert: {minimum: 0}}\n", "7:29: fallback.alert.minimum: ", "out of range"},
    {GOOD "fallback: {alert: {window: 59s}}\n", "7:28: fallback.alert.window: ", "out of range"},
    /* keys */
    {GOOD "acounts: {}\n", "7:1: acounts: ", "did you mean accounts?"},
    {GOOD "    headerBuffer: 15%\n", "7:5: accounts.a.headerBuffer: ", "did you mean header_buffer?"},
    {GOOD "    header-buffer: 15%\n", "7:5: accounts.a.header-buffer: ", "did you mean header_buffer?"},
    {GOOD "    corporation: ACME-US\n", "7:5: accounts.a.corporation: ", "known here are provider, url"},
    {GOOD "    company: ACME-US\n", "7:14: accounts.a.company: ", "is not used by provider taxcloud"},
    {GOOD "    routes: [GET /v1/x]\n", "7:5: accounts.a.routes: ", "belongs to provider http"},
    {GOOD "    credential_header: X-API-Key\n",
     "7:24: accounts.a.credential_header: ", "belongs to provider"},
    {GOOD "    rate_headers: {reset_unit: weeks}\n",
     "7:32: accounts.a.rate_headers.reset_unit: ", "auto, delta_s, delta_ms, epoch_s, epoch_ms"},
    /* two parts */
    {AVATAX "", "2:3: accounts.v.company: ", "is missing"},
    {AVATAX "    company: A\n", "2:3: accounts.v.credentials: ", "username_file"},
    {AVATAX "    company: A\n    credentials: {username_env: U}\n",
     "5:5: accounts.v.credentials: ", "a user name alone"},
    {AVATAX "    company: A\n    credentials: {password_env: U}\n",
     "5:5: accounts.v.credentials: ", "a password alone"},
    {AVATAX "    company: A\n    credentials: {password_env: P, username_env: U, api_key_env: K}\n",
     "5:5: accounts.v.credentials: ", "keep one kind"},
    {AVATAX "    company: A\n    credentials: {password_env: P, username_env: U, username_file: /u}\n",
     "5:5: accounts.v.credentials: ", "names both username_file and username_env"},
    {AVATAX "    company: A/B\n", "4:14: accounts.v.company: ", "is no name"},
    /* any other API */
    {HTTP, "2:3: accounts.p.url: ", "is missing"},
    {HTTP "    connection: c\n", "6:17: accounts.p.connection: ", "is not used by provider http"},
    {"accounts:\n  p: {provider: http, url: 'https://x'}\n", "2:3: accounts.p.routes: ", "is missing: list"},
    {HTTP "    url: https://x\n    credentials: {username_env: U, password_env: P}\n",
     "7:5: accounts.p.credentials: ", "takes {api_key_file: /path} alone"},
    {HTTP "    credential_header: 'X Y'\n", "6:24: accounts.p.credential_header: ", "is no header"},
    {HTTP "    credential_header: \"X: a\\r\\nb\"\n", "6:24: accounts.p.credential_header: ", "line break"},
    {HTTP_ROUTE("FETCH /x"), "4:14: accounts.p.routes[0]: ", "must begin with GET"},
    {HTTP_ROUTE("GET"), "4:14: accounts.p.routes[0]: ", "must begin with GET"},
    {HTTP_ROUTE("GET x"), "4:14: accounts.p.routes[0]: ", "not plain"},
    {HTTP_ROUTE("GET /a/../b"), "4:14: accounts.p.routes[0]: ", "not plain"},
    {HTTP_ROUTE("GET /a?b"), "4:14: accounts.p.routes[0]: ", "not plain"},
    {HTTP_ROUTE("GET //a"), "4:14: accounts.p.routes[0]: ", "not plain"},
    {GOOD "    cache: 10m\n", "7:5: accounts.a.cache: ", "is not known"},
    {GOOD "reconcile: {absorb: 60m}\n", "7:13: reconcile.absorb: ", "is not known"},
    {GOOD "reconcile: {absorb_under: 0.50}\n", "7:27: reconcile.absorb_under: ", "0.50/order"},
    {GOOD "reconcile: {absorb_under: 0.505/order}\n", "7:27: reconcile.absorb_under: ", "two decimals"},
    {GOOD "reconcile: {absorb_period: 1000001.00/day}\n", "7:28: reconcile.absorb_period: ", "out of range"},
    {GOOD "reconcile: {over_collected: keep}\n", "7:29: reconcile.over_collected: ", "remit, refund"},
    {GOOD "drain: 1s\ndrain: 2s\n", "8:1: drain: ", "first on line 7"},
    {GOOD "  a: {provider: taxcloud}\n", "7:3: accounts.a: ", "first on line 2"},
    {GOOD "    deadline: 1s\n    url: https://x\n    deadline: 2s\n",
     "9:5: accounts.a.deadline: ", "first on line 7"},
    {GOOD "    integrations: {x: batch, x: batch}\n", "7:30: accounts.a.integrations.x: ", "given twice"},
    {GOOD "    integrations: {0123456789012345678901234567890123456789012345678901234567890123: batch}\n",
     "7:20: accounts.a.integrations: ", "longer than 63 bytes"},
    {GOOD "    integrations: {'a b': batch}\n", "7:20: accounts.a.integrations.a b: ", "is no name"},
    {GOOD "drain:\n", "7:7: drain: ", "has no value"},
    {GOOD "drain: ~\n", "7:8: drain: ", "has no value"},
    {GOOD "drain: ''\n", "7:8: drain: ", "has no value"},
    {GOOD "fallback:\n", "7:10: fallback: ", "has no value"},
    {GOOD "fallback: {}\n", "7:12: fallback: ", "is empty"},
    {GOOD "fallback: {nexus: []}\n", "7:20: fallback.nexus: ", "is empty"},
    {GOOD "fallback: {tax_codes: {}}\n", "7:24: fallback.tax_codes: ", "is empty"},
    {GOOD "fallback: {nexus: CA}\n", "7:19: fallback.nexus: ", "must be a list"},
    {GOOD "drain: |\n  1s\n", "7:8: drain: ", "line break"},
    /* whole numbers: what a template engine may make of them */
    {HEAD "    limit: {rate: 100/s, burst: 1e+06, pods: 4}\n",
     "6:33: accounts.a.limit.burst: ", "no plain whole number"},
    {HEAD "    limit: {rate: 100/s, burst: 1000000.0, pods: 4}\n",
     "6:33: accounts.a.limit.burst: ", "whole number"},
    {HEAD "    limit: {rate: 100/s, burst: 1_000, pods: 4}\n",
     "6:33: accounts.a.limit.burst: ", "whole number"},
    {HEAD "    limit: {rate: 100/s, burst: 0x10, pods: 4}\n",
     "6:33: accounts.a.limit.burst: ", "whole number"},
    {HEAD "    limit: {rate: 100/s, burst: 010, pods: 4}\n",
     "6:33: accounts.a.limit.burst: ", "leading zero"},
    {HEAD "    limit: {rate: 100/s, burst: \"100\", pods: 4}\n",
     "6:33: accounts.a.limit.burst: ", "without quotes"},
    {HEAD "    limit: {rate: 100/s, burst: -1, pods: 4}\n", "6:33: accounts.a.limit.burst: ", "whole number"},
    {HEAD "    limit: {rate: 100/s, burst: 18446744073709551616, pods: 4}\n",
     "6:33: accounts.a.limit.burst: ", "too large"},
    {HEAD "    limit: {rate: 100/s, burst: 100, pods: 4294967296}\n",
     "6:44: accounts.a.limit.pods: ", "too large"},
    {GOOD "segment: {cells: 2.048e+03}\n", "7:18: segment.cells: ", "whole number"},
    /* booleans and words */
    {GOOD "    allow_plain_http: yes\n", "7:23: accounts.a.allow_plain_http: ", "neither true nor false"},
    {GOOD "    allow_plain_http: \"true\"\n", "7:23: accounts.a.allow_plain_http: ", "without quotes"},
    {GOOD "    breaker: {mode: enforced}\n", "7:21: accounts.a.breaker.mode: ", "enforce, observe, disabled"},
    {GOOD "    breaker: {mode: unspecified}\n",
     "7:21: accounts.a.breaker.mode: ", "enforce, observe, disabled"},
    {GOOD "    integrations: {x: both}\n", "7:23: accounts.a.integrations.x: ", "checkout, batch"},
    {GOOD "log: {level: INFO}\n", "7:14: log.level: ", "debug, info, warn, error"},
    /* accounts */
    {"drain: 1s\n", "1:1: accounts: ", "is missing"},
    {"accounts: {}\n", "1:12: accounts: ", "is empty"},
    {"accounts:\n  'a/b': {provider: taxcloud}\n", "2:3: accounts.a/b: ", "is no name"},
    {"accounts:\n  a:\n    connection: c\n", "2:3: accounts.a.provider: ", "is missing: write one of"},
    {"accounts:\n  a:\n    provider: taxclout\n", "3:15: accounts.a.provider: ", "taxcloud"},
    {"accounts:\n  a:\n    provider: taxcloud\n", "2:3: accounts.a.connection: ", "is missing"},
    {"accounts:\n  a: {provider: taxcloud, connection: a/b}\n",
     "2:39: accounts.a.connection: ", "is no name"},
    {"accounts:\n  a: {provider: taxcloud, connection: c}\n", "2:3: accounts.a.credentials: ", "is missing"},
    {GOOD "    url: http://api.v3.taxcloud.com\n", "7:10: accounts.a.url: ", "unencrypted"},
    {GOOD "    url: ftp://x\n", "7:10: accounts.a.url: ", "must begin with https://"},
    {GOOD "    url: https://u:p@host\n", "7:10: accounts.a.url: ", "no user name"},
    {GOOD "    url: https://host/path\n", "7:10: accounts.a.url: ", "host[:port] alone"},
    {GOOD "    url: https://\n", "7:10: accounts.a.url: ", "host[:port] alone"},
    {GOOD "    url: https://host:65536\n", "7:10: accounts.a.url: ", "host[:port] alone"},
    {GOOD "    allow_plain_http: true\n", "7:23: accounts.a.allow_plain_http: ", "does nothing"},
    {GOOD "    ca_file: ca.pem\n", "7:14: accounts.a.ca_file: ", "no absolute path"},
    {GOOD "    header_buffer: 0.15\n", "7:20: accounts.a.header_buffer: ", "is no percent"},
    {GOOD "    header_buffer: 51%\n", "7:20: accounts.a.header_buffer: ", "0% to 50%"},
    {GOOD "    batch_reserve: 91%\n", "7:20: accounts.a.batch_reserve: ", "0% to 90%"},
    {GOOD "    concurrency: 257\n", "7:18: accounts.a.concurrency: ", "0 to 256"},
    {GOOD "    deadline: 1800\n", "7:15: accounts.a.deadline: ", "is no duration"},
    {GOOD "    deadline: 11s\n", "7:15: accounts.a.deadline: ", "100ms to 10s"},
    /* limits */
    {HEAD, "2:3: accounts.a.limit: ", "is missing"},
    {HEAD "    limit: {rate: 100/s}\n", "6:5: accounts.a.limit.pods: ", "how many pods share it"},
    {HEAD "    limit: {pods: 4}\n", "6:5: accounts.a.limit.rate: ", "is missing"},
    {HEAD "    limit: {rate: 100, pods: 4}\n", "6:19: accounts.a.limit.rate: ", "is no rate"},
    {HEAD "    limit: {rate: 1e7/s, pods: 4}\n", "6:19: accounts.a.limit.rate: ", "is no rate"},
    {HEAD "    limit: {rate: 100/s, pods: 0}\n", "6:32: accounts.a.limit.pods: ", "0 is out of range"},
    {HEAD "    limit: {rate: 100/s, burst: 3, pods: 4}\n",
     "6:33: accounts.a.limit.burst: ", "less than one token"},
    {HEAD "    limit: {rate: 100/s, burst: 0, pods: 1}\n",
     "6:33: accounts.a.limit.burst: ", "less than one token"},
    {HEAD "    limit: {rate: 1/s, pods: 4}\n", "6:5: accounts.a.limit.burst: ", "1 is less than one token"},
    {HEAD "    limit: {rate: 1/d, burst: 4, pods: 4}\n", "6:19: accounts.a.limit.rate: ", "less than 1/d"},
    {HEAD "    limit: {rate: 100/s, burst: 9, pods: 4, kind: leaky}\n",
     "6:33: accounts.a.limit.burst: ", "of a bucket alone"},
    {HEAD "    limit: {rate: 3/min, pods: 4, kind: window}\n",
     "6:19: accounts.a.limit.rate: ", "less than one call a window"},
    {HEAD "    limit: {rate: 3/min, pods: 4, kind: drip}\n",
     "6:41: accounts.a.limit.kind: ", "bucket, leaky, window"},
    {HEAD "    limit: {rate: 0/s, pods: 4, adopt_lower: true}\n",
     "6:46: accounts.a.limit.adopt_lower: ", "is of no use"},
    {GOOD "    limiters: [{rate: 1/s}]\n", "7:16: accounts.a.limiters[0].name: ", "is missing"},
    {GOOD "    limiters: [{name: account, rate: 1/s}]\n", "7:23: accounts.a.limiters[0].name: ", "is taken"},
    {GOOD "    limiters: [{name: x, rate: 9/s}, {name: x, rate: 9/s}]\n",
     "7:45: accounts.a.limiters[1].name: ", "is taken"},
    {GOOD "    limiters: [{name: x}]\n", "7:16: accounts.a.limiters[0].rate: ", "is missing"},
    {GOOD "    limiters: [{name: x, rate: 9/s, burst: 1}]\n",
     "7:44: accounts.a.limiters[0].burst: ", "less than one token"},
    {GOOD "    limiters: [{name: x, rate: 9/s, integrations: [web]}]\n",
     "7:37: accounts.a.limiters[0].integrations: ", "which the account does not have"},
    {GOOD "    limiters: [{name: x, rate: 9/s, integrations: [default, default]}]\n",
     "7:37: accounts.a.limiters[0].integrations: ", "twice"},
    {GOOD "    limiters: [{name: x, rate: 9/s, endpoints: [quotes]}]\n",
     "7:49: accounts.a.limiters[0].endpoints[0]: ", "calculate, record, other, refund"},
    {GOOD "    concurrency: 4\n    concurrency_per_process: 5\n",
     "8:30: accounts.a.concurrency_per_process: ", "0 to 4"},
    {GOOD "    retry: {first: 5s, longest: 2s}\n", "7:33: accounts.a.retry.longest: ", "is below first"},
    /* breaker */
    {GOOD "    breaker: {cooldown: 60s..30s}\n",
     "7:25: accounts.a.breaker.cooldown: ", "ends before it begins"},
    {GOOD "    breaker: {cooldown: 30s-60s}\n", "7:25: accounts.a.breaker.cooldown: ", "is no duration"},
    {GOOD "    breaker: {cooldown: 30s..}\n", "7:25: accounts.a.breaker.cooldown: ", "is no duration"},
    {GOOD "    breaker: {consecutive_429: 0}\n", "7:32: accounts.a.breaker.consecutive_429: ", "1 to 255"},
    {GOOD "    breaker: {ratio_429: 0%}\n", "7:26: accounts.a.breaker.ratio_429: ", "more than 0%"},
    {GOOD "    breaker: {window: 999ms}\n", "7:23: accounts.a.breaker.window: ", "1s to 160s"},
    /* fallback */
    {GOOD "fallback: {nexus: [CA, XX]}\n", "7:24: fallback.nexus[1]: ", "is no state"},
    {GOOD "fallback: {nexus: [CA, ca]}\n", "7:24: fallback.nexus[1]: ", "is no state"},
    {GOOD "fallback: {nexus: [CA, NY, CA]}\n", "7:28: fallback.nexus[2]: ", "listed twice"},
    {GOOD "fallback:\n  rates:\n    - {file: /r.csv, source: s}\n",
     "9:7: fallback.rates[0].as_of: ", "is missing"},
    {GOOD "fallback:\n  rates:\n    - {file: /r.csv, as_of: 2025-11-31, source: s}\n",
     "9:29: fallback.rates[0].as_of: ", "no date of the calendar"},
    {GOOD "fallback: {rates: [{as_of: 2025-11-01, source: s}]}\n",
     "7:20: fallback.rates[0].file: ", "is missing"},
    {GOOD "fallback: {rates: [{file: /r, as_of: 2025-11-01}]}\n",
     "7:20: fallback.rates[0].source: ", "is missing"},
    {GOOD "fallback: {rates: [{file: /r, as_of: 2025-11-01, source: s}, {file: /r, as_of: 2025-11-01, "
          "source: t}]}\n",
     "7:69: fallback.rates[1].file: ", "listed twice"},
    {GOOD "fallback: {shipping_taxable_in: {ZZ: true}}\n",
     "7:34: fallback.shipping_taxable_in.ZZ: ", "is no state"},
    {GOOD "fallback: {rates_dir: rates.d}\n", "7:23: fallback.rates_dir: ", "is no absolute path"},
    {GOOD "fallback: {bad_rows: 0%}\n", "7:22: fallback.bad_rows: ", "above 0% to 50%"},
    {GOOD "fallback: {bad_rows: 51%}\n", "7:22: fallback.bad_rows: ", "above 0% to 50%"},
    {GOOD "fallback: {bad_rows: few}\n", "7:22: fallback.bad_rows: ", "%"},
    {GOOD "fallback: {several_rates: mean}\n", "7:27: fallback.several_rates: ", "highest"},
    {GOOD "fallback: {max_age: {warn: 45d, refuse: 30d}}\n",
     "7:41: fallback.max_age.refuse: ", "before it is reported"},
    {GOOD "fallback: {max_age: {warn: 121d}}\n", "7:28: fallback.max_age.warn: ", "before it is reported"},
    {GOOD "fallback: {max_age: {warn: 36h}}\n", "7:28: fallback.max_age.warn: ", "whole days"},
    {GOOD "fallback: {on_no_rate: default_rate}\n", "7:1: fallback.default_rate: ", "is missing"},
    {GOOD "fallback: {default_rate: 0.1}\n", "7:26: fallback.default_rate: ", "used only with"},
    {GOOD "fallback: {on_no_rate: default_rate, default_rate: 8.25}\n",
     "7:52: fallback.default_rate: ", "above 1"},
    {GOOD "fallback: {rounding: half-even}\n", "7:22: fallback.rounding: ", "half-up/line, half-up/order"},
    {GOOD "fallback: {tax_codes: {default: taxed}}\n",
     "7:33: fallback.tax_codes.default: ", "general, exempt"},
    {GOOD "fallback: {tax_codes: {0123456789012345678901234567890a: exempt}}\n",
     "7:24: fallback.tax_codes.0123456789012345678901234567890a: ", "at most 31"},
    /* segment, doors, the rest */
    {GOOD "segment: {slots: 4}\n", "7:18: segment.slots: ", "8 to 512"},
    {GOOD "segment: {rate_records: 2000000}\n", "7:25: segment.rate_records: ", "1024 to 1048576"},
    {GOOD "segment: {gid: 4294967295}\n", "7:16: segment.gid: ", "out of range"},
    {GOOD "segment: {pub_dir: run/x}\n", "7:20: segment.pub_dir: ", "no absolute path"},
    {GOOD "segment: {rw_dir: /run/spillway/pub/rw}\n", "7:19: segment.rw_dir: ", "two directories"},
    {GOOD "segment: {pub_dir: /run/spillway}\n", "7:20: segment.pub_dir: ", "two directories"},
    {GOOD "segment: {pub_dir: /run/../etc}\n", "7:20: segment.pub_dir: ", "without '..'"},
    {GOOD "listen: {quote: 0.0.0.0:8390}\n", "7:17: listen.quote: ", "must be on loopback"},
    {GOOD "listen: {control: \"[::]:8392\"}\n", "7:19: listen.control: ", "must be on loopback"},
    {GOOD "listen: {quote: localhost:8390}\n", "7:17: listen.quote: ", "numeric address"},
    {GOOD "listen: {quote: 127.0.0.1}\n", "7:17: listen.quote: ", "numeric address"},
    {GOOD "listen: {admin: 0.0.0.0:0}\n", "7:17: listen.admin: ", "port from 1"},
    {GOOD "listen: {admin: 0.0.0.0:65536}\n", "7:17: listen.admin: ", "to 65535"},
    {GOOD "listen: {quote: 127.0.0.1:9090}\n", "7:17: listen.quote: ", "port of another door"},
    {GOOD "store: {file: flags.db}\n", "7:15: store.file: ", "no absolute path"},
    {GOOD "store: {on_full: drop}\n", "7:18: store.on_full: ", "hand_back, deny"},
    {GOOD "loop: {backend: kqueue}\n", "7:17: loop.backend: ", "auto, io_uring, epoll"},
    {GOOD "drain: 11m\n", "7:8: drain: ", "0ms to 10m"},
};

static void bad_files_are_refused_at_their_place(void **unused)
{
    (void)unused;
    size_t faults_count = 0;
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        struct spw_conf *conf = (struct spw_conf *)&BAD; /* must become NULL */
        struct spw_error err = {0};
        char place[256];
        snprintf(place, sizeof place, "t.yaml:%s", BAD[i].place);
        enum spw_status status = spw_conf_parse("t.yaml", BAD[i].text, strlen(BAD[i].text), &conf, &err);
        bool refused = status == SPW_STATUS_PARSE || status == SPW_STATUS_INVALID;
        if (!refused || conf || strncmp(err.text, place, strlen(place)) != 0 ||
            !strstr(err.text, BAD[i].what)) {
            print_error("case %zu: want \"%s... %s\", have \"%s\"\n", i, place, BAD[i].what, err.text);
            faults_count++;
        }
    }
    assert_int_equal(faults_count, 0);
}

static void bytes_that_are_no_text_are_refused(void **unused)
{
    (void)unused;
    struct spw_conf *conf = NULL;
    struct spw_error err = {0};
    static const char NUL_INSIDE[] = GOOD "drain: 1\0s\n";
    assert_int_equal(spw_conf_parse("t.yaml", NUL_INSIDE, sizeof NUL_INSIDE - 1, &conf, &err),
                     SPW_STATUS_PARSE);
    assert_non_null(strstr(err.text, "t.yaml:7:9: a NUL byte"));
    static const char NUL_ESCAPED[] = GOOD "drain: \"1s\\0\"\n";
    assert_int_equal(spw_conf_parse("t.yaml", NUL_ESCAPED, sizeof NUL_ESCAPED - 1, &conf, &err),
                     SPW_STATUS_PARSE);
    assert_non_null(strstr(err.text, "t.yaml:7:8: drain: holds a line break or control byte"));
    size_t bytes = (1u << 20) + 1;
    char *large = malloc(bytes);
    assert_non_null(large);
    memset(large, '#', bytes);
    assert_int_equal(spw_conf_parse("t.yaml", large, bytes, &conf, &err), SPW_STATUS_PARSE);
    assert_non_null(strstr(err.text, "larger than 1048576 bytes"));
    memset(large, '[', bytes); /* a million levels deep */
    assert_int_equal(spw_conf_parse("t.yaml", large, bytes - 1, &conf, &err), SPW_STATUS_PARSE);
    assert_non_null(strstr(err.text, "t.yaml:1:1: must be a map"));
    free(large);
    assert_null(conf);
}

/* What is cut off anywhere is refused, or is by chance a good file: never a crash, never half of it. */
static void every_beginning_of_a_file_is_survived(void **unused)
{
    (void)unused;
    size_t bytes;
    char *text = read_whole("tests/data/config/full.yaml", &bytes);
    size_t refused = 0;
    for (size_t n = 0; n < bytes; n++) {
        char *part = malloc(n + 1); /* exact, so that the sanitizer sees a read past the end */
        assert_non_null(part);
        memcpy(part, text, n);
        struct spw_conf *conf = NULL;
        struct spw_error err = {0};
        enum spw_status status = spw_conf_parse("t.yaml", part, n, &conf, &err);
        assert_true((status == SPW_STATUS_OK) == (conf != NULL));
        refused += status != SPW_STATUS_OK;
        spw_conf_destroy(conf);
        free(part);
    }
    assert_true(refused > bytes / 2);
    free(text);
}

static void capacities_are_refused_above_their_maximum(void **unused)
{
    (void)unused;
    char *text = malloc(1 << 16);
    assert_non_null(text);
    struct spw_conf *conf = NULL;
    struct spw_error err = {0};
    int n = sprintf(text, "accounts:\n");
    for (int i = 0; i < 17; i++)
        n += sprintf(text + n,
                     "  a%d: {provider: taxcloud, connection: c, credentials: {api_key_env: K}, "
                     "limit: {rate: 1/s, pods: 1}}\n",
                     i);
    assert_int_equal(spw_conf_parse("t.yaml", text, (size_t)n, &conf, &err), SPW_STATUS_INVALID);
    assert_non_null(strstr(err.text, "at most 16 accounts"));
    n = sprintf(text, "%s    integrations: {i0: batch", GOOD);
    for (int i = 1; i < 65; i++)
        n += sprintf(text + n, ", i%d: batch", i);
    n += sprintf(text + n, "}\n");
    assert_int_equal(spw_conf_parse("t.yaml", text, (size_t)n, &conf, &err), SPW_STATUS_INVALID);
    assert_non_null(strstr(err.text, "t.yaml:7:5: accounts.a.integrations: has 65 entries: at most 64"));
    n = sprintf(text, "%sfallback: {tax_codes: {default: exempt", GOOD);
    for (int i = 0; i < 128; i++)
        n += sprintf(text + n, ", t%d: refuse", i);
    int before_end = n;
    sprintf(text + n, "}}\n");
    conf = parse_good(text);
    assert_int_equal(conf->fallback.tax_codes_count, 128);
    spw_conf_destroy(conf);
    sprintf(text + before_end, ", t128: refuse}}\n");
    assert_int_equal(spw_conf_parse("t.yaml", text, strlen(text), &conf, &err), SPW_STATUS_INVALID);
    assert_non_null(strstr(err.text, "fallback.tax_codes: has more than 128 codes"));
    n = sprintf(text, "%sfallback: {nexus: [CA", GOOD);
    for (int i = 0; i < 2000; i++)
        n += sprintf(text + n, ", NY");
    assert_int_equal(spw_conf_parse("t.yaml", text, (size_t)n, &conf, &err), SPW_STATUS_PARSE);
    assert_non_null(strstr(err.text, "fallback.nexus: has more than 1024 entries"));
    free(text);
}

/* A secret put where its path or name belongs must not reach the log. */
static void secrets_are_never_shown(void **unused)
{
    (void)unused;
#define SECRET      "sk_live_51H8n2eXyZ0123456789abcdefghijklmnop"
#define BEFORE_LINE "accounts:\n  a:\n    provider: taxcloud\n    connection: c\n" LIMIT
    static const char *const CASES[] = {
        BEFORE_LINE "    credentials: " SECRET "\n",
        BEFORE_LINE "    credentials: {api_key_file: " SECRET "}\n",
        BEFORE_LINE "    credentials: {api_key_env: " SECRET ".}\n",
        BEFORE_LINE "    credentials: {api_key: " SECRET "}\n",
        BEFORE_LINE "    credentials: {" SECRET "}\n",
        BEFORE_LINE "    credentials: {" SECRET ": x}\n",
        BEFORE_LINE "    credentials: [" SECRET "]\n",
        BEFORE_LINE "    credentials: {api_key_file: /x, api_key_env: " SECRET "}\n",
        GOOD "    url: https://user:" SECRET "@host\n",
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        struct spw_conf *conf = NULL;
        struct spw_error err = {0};
        assert_int_not_equal(spw_conf_parse("t.yaml", CASES[i], strlen(CASES[i]), &conf, &err),
                             SPW_STATUS_OK);
        print_message("%s\n", err.text);
        assert_null(strstr(err.text, "51H8"));
    }
}

static char *write_temporary(const char *text, char path[64])
{
    snprintf(path, 64, "/tmp/spw_test_conf_XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    return path;
}

static void loading_looks_at_what_the_file_refers_to(void **unused)
{
    (void)unused;
    char path[64], key_path[64], text[1024];
    struct spw_conf *conf = NULL;
    struct spw_error err = {0};
    write_temporary(GOOD, path);
    unsetenv("KEY");
    assert_int_equal(spw_conf_load(path, &conf, &err), SPW_STATUS_INVALID);
    assert_non_null(
        strstr(err.text, ":5:32: accounts.a.credentials.api_key_env: names an environment variable"));
    setenv("KEY", "k", 1);
    assert_int_equal(spw_conf_load(path, &conf, &err), SPW_STATUS_OK);
    spw_conf_destroy(conf);
    unlink(path);

    write_temporary("", key_path);
    snprintf(text, sizeof text,
             "accounts:\n  a: {provider: taxcloud, connection: c, limit: {rate: 1/s, pods: 1},\n"
             "      credentials: {api_key_file: %s}}\n",
             key_path);
    write_temporary(text, path);
    assert_int_equal(spw_conf_load(path, &conf, &err), SPW_STATUS_INVALID);
    assert_non_null(strstr(err.text, ":3:35: accounts.a.credentials.api_key_file: names an empty file"));
    FILE *key = fopen(key_path, "w");
    fputs("k\n", key);
    fclose(key);
    assert_int_equal(spw_conf_load(path, &conf, &err), SPW_STATUS_OK);
    assert_string_equal(conf->accounts[0].api_key.file, key_path);
    spw_conf_destroy(conf);
    unlink(key_path);
    assert_int_equal(spw_conf_load(path, &conf, &err), SPW_STATUS_INVALID);
    assert_non_null(strstr(err.text, "cannot be read (No such file or directory)"));
    unlink(path);
    assert_int_equal(spw_conf_load(path, &conf, &err), SPW_STATUS_NOT_FOUND);
    assert_int_equal(spw_conf_load("/tmp", &conf, &err), SPW_STATUS_INVALID);
    assert_non_null(strstr(err.text, "is no regular file"));
    assert_null(conf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(minimal_file_has_the_documented_defaults),
        cmocka_unit_test(every_key_of_the_full_file_arrives),
        cmocka_unit_test(limiters_of_the_provider),
        cmocka_unit_test(other_spellings_mean_the_same),
        cmocka_unit_test(bad_files_are_refused_at_their_place),
        cmocka_unit_test(bytes_that_are_no_text_are_refused),
        cmocka_unit_test(every_beginning_of_a_file_is_survived),
        cmocka_unit_test(capacities_are_refused_above_their_maximum),
        cmocka_unit_test(secrets_are_never_shown),
        cmocka_unit_test(loading_looks_at_what_the_file_refers_to),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
