/* state_fixture.c: see state_fixture.h. */
#include "tests/support/state_fixture.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shm/spw_map.h"

static void fail(int line, const char *what, const char *why)
{
    fprintf(stderr, "state_fixture.c:%d: %s: %s\n", line, what, why);
    abort();
}
#define CHECK(condition, what, why)                                                                          \
    do {                                                                                                     \
        if (!(condition))                                                                                    \
            fail(__LINE__, what, why);                                                                       \
    } while (0)

void spw_state_fixture_configure(struct spw_state_fixture *f, const char *account_yaml, const char *extra)
{
    char text[4096];
    struct spw_error err = {0};
    CHECK(!f->state, f->dir, "the state is still open");
    setenv("TAXCLOUD_TEST_KEY", "test", 1);
    int n = snprintf(text, sizeof text,
                     "accounts:\n"
                     "  main:\n"
                     "    provider: taxcloud\n"
                     "    connection: test\n"
                     "    credentials: {api_key_env: TAXCLOUD_TEST_KEY}\n"
                     "    integrations: {web: checkout, nightly: batch}\n"
                     "    %s\n"
                     "fallback: {on_no_rate: block}\n"
                     "%s\n",
                     account_yaml, extra ? extra : "segment: {slots: 64, cells: 64, rate_records: 1024}");
    CHECK(n > 0 && (size_t)n < sizeof text, f->dir, "configuration too long");
    spw_conf_destroy(f->conf);
    f->conf = NULL;
    CHECK(spw_conf_parse("test", text, strlen(text), &f->conf, &err) == SPW_STATUS_OK, f->dir, err.text);
    snprintf(f->conf->segment.pub_dir, sizeof f->conf->segment.pub_dir, "%s", f->pub_dir);
    snprintf(f->conf->segment.rw_dir, sizeof f->conf->segment.rw_dir, "%s", f->rw_dir);
}

void spw_state_fixture_open(struct spw_state_fixture *f)
{
    struct spw_error err = {0};
    CHECK(spw_state_open(f->conf, &f->state, &err) == SPW_STATUS_OK, f->dir, err.text);
    f->map = spw_state_map(f->state);
    f->t0_ns = spw_now_ns();
}

void spw_state_fixture_make(struct spw_state_fixture *f, const char *account_yaml, const char *extra)
{
    struct stat st;
    memset(f, 0, sizeof *f);
    const char *parent = stat("/dev/shm", &st) == 0 && access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(f->dir, sizeof f->dir, "%s/spw-test-XXXXXX", parent);
    CHECK(mkdtemp(f->dir), f->dir, strerror(errno));
    snprintf(f->pub_dir, sizeof f->pub_dir, "%s/pub", f->dir);
    snprintf(f->rw_dir, sizeof f->rw_dir, "%s/rw", f->dir);
    CHECK(mkdir(f->pub_dir, 0755) == 0 && mkdir(f->rw_dir, 0755) == 0, f->dir, strerror(errno));
    spw_state_fixture_configure(f, account_yaml, extra);
    spw_state_fixture_open(f);
}

void spw_state_fixture_close(struct spw_state_fixture *f, bool clean_stop)
{
    spw_state_close(f->state, clean_stop);
    f->state = NULL;
    f->map = NULL;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st;
    (void)kind;
    (void)ftw;
    return remove(path);
}

void spw_state_fixture_remove(struct spw_state_fixture *f)
{
    spw_state_fixture_close(f, true);
    spw_conf_destroy(f->conf);
    f->conf = NULL;
    (void)nftw(f->dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

void spw_state_fixture_policy(struct spw_state_fixture *f, void (*change)(struct spw_conf_fallback *))
{
    spw_state_fixture_close(f, true);
    change(&f->conf->fallback);
    spw_state_fixture_open(f);
}

int32_t spw_state_fixture_today(void)
{
    return (int32_t)(spw_wall_ms() / 86400000);
}

void spw_state_fixture_rates(struct spw_state_fixture *f)
{
    static const struct spw_rate_row rows[] = {
        {"US", "TX", 79703, 0xFFFF, 0xFFFF, 62500000, 0, 20000000, 0, 82500000, 0, 0, 0, false, "Midland"},
        {"US", "OR", 97201, 0xFFFF, 0xFFFF, 0, 0, 0, 0, 0, 0, 0, 0, false, "Portland"},
        {"US", "WA", 98110, 0xFFFF, 0xFFFF, 65000000, 0, 27000000, 0, 92000000, 0, 0, 0, false,
         "Bainbridge Island"},
    };
    struct spw_rates_source source;
    struct spw_error err = {0};
    memset(&source, 0, sizeof source);
    snprintf(source.name, sizeof source.name, "table");
    source.as_of_day = spw_state_fixture_today();
    source.rows = rows;
    source.rows_count = sizeof rows / sizeof rows[0];
    CHECK(spw_state_rates_replace(f->state, &source, 1, NULL, &err) == SPW_STATUS_OK, f->dir, err.text);
}

struct spw_conf_limit spw_state_fixture_limit(uint64_t tokens_count, uint64_t period_ns, uint64_t burst_count)
{
    struct spw_conf_limit limit;
    memset(&limit, 0, sizeof limit);
    limit.rate.tokens_count = tokens_count;
    limit.rate.period_ns = period_ns;
    limit.burst_count = burst_count;
    limit.pods_count = 1;
    return limit;
}

uint64_t spw_state_fixture_set(struct spw_state_fixture *f, uint64_t tokens_count, uint64_t period_ns,
                               uint64_t burst_count, uint64_t now_ns)
{
    struct spw_conf_limit limit = spw_state_fixture_limit(tokens_count, period_ns, burst_count);
    struct spw_limit_view view;
    struct spw_error err = {0};
    CHECK(spw_state_limit_set(f->state, "main", &limit, 0, false, now_ns, &view, &err) == SPW_STATUS_OK,
          f->dir, err.text);
    return view.version;
}
