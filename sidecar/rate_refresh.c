/* rate_refresh.c: see rate_refresh.h. */
#include "sidecar/rate_refresh.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shm/spw_map.h"
#include "shm/spw_text.h"
#include "sidecar/http/fetch.h"
#include "sidecar/obs/log.h"
#include "sidecar/rate_files.h"

#define TABLE_MAX_BYTES ((size_t)64 << 20) /* AvaTax's of all ZIP codes is some 5 MB */
#define DEADLINE_MS     120000u
#define RETRY_FIRST_MS  300000u /* doubled for each failure in a row, up to `every` */
#define RETRY_DOUBLINGS 12u
#define FIRST_SPREAD_MS 1000u /* the first fetch of a pod without a table */
#define SPREAD_SHARE    20    /* of `every`: pods started together do not fetch together for ever */
#define PATH_MAX_BYTES  (SPW_PATH_BYTES + 288u)

struct refresh {
    struct spw_rate_refresher *all;
    struct spw_conf_refresh conf; /* its own: the configuration may be read again while the reader reads */
    struct spw_rates_refresh *view;
    struct spw_fetch *fetch;
    struct spw_loop_timer timer;
    uint32_t failed_in_a_row;
    bool forced;
    bool reading;
    pthread_t thread;
    struct spw_loop_task read;
    /* the reader's, until `read` runs */
    char *text;
    size_t text_bytes;
    struct spw_rates_options options;
    char date[12];
    size_t rows_count;
    enum spw_status status;
    struct spw_error err;
};

struct spw_rate_refresher {
    struct spw_loop *loop;
    struct spw_state *state;
    const struct spw_conf *conf;
    char directory[SPW_PATH_BYTES + 16];
    uint64_t random;
    struct refresh list[SPW_CONF_REFRESHES_MAX_COUNT];
    uint32_t count;
};

/* ---- the fetched files ---- */

/* "ACCOUNT-2025-11-01.csv" of this account? */
static bool is_of(const char *name, const char *account)
{
    char source[SPW_NAME_BYTES];
    int32_t day;
    size_t bytes = strlen(account);
    return strncmp(name, account, bytes) == 0 && name[bytes] == '-' &&
           spw_rate_file_name(name, source, &day) && strlen(source) == bytes + 11;
}

/* The newest of an account's; names sort by day. */
static bool find_newest(const struct refresh *r, char *out, size_t room, struct stat *st)
{
    DIR *dir = opendir(r->all->directory);
    char best[256] = "";
    if (!dir)
        return false;
    for (struct dirent *entry; (entry = readdir(dir));)
        if (is_of(entry->d_name, r->conf.account) && strcmp(entry->d_name, best) > 0)
            snprintf(best, sizeof best, "%s", entry->d_name);
    closedir(dir);
    snprintf(out, room, "%s/%s", r->all->directory, best);
    return best[0] && stat(out, st) == 0;
}

static void remove_older(const struct refresh *r, const char *kept)
{
    DIR *dir = opendir(r->all->directory);
    if (!dir)
        return;
    for (struct dirent *entry; (entry = readdir(dir));)
        if (is_of(entry->d_name, r->conf.account) && strcmp(entry->d_name, kept) != 0)
            (void)unlinkat(dirfd(dir), entry->d_name, 0);
    closedir(dir);
}

static bool write_all(int fd, const char *text, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        ssize_t n = write(fd, text + at, bytes - at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        at += (size_t)n;
    }
    return true;
}

/* Whole under its name or not at all. */
static enum spw_status keep(struct refresh *r, struct spw_error *err)
{
    char name[SPW_NAME_BYTES + 32], path[PATH_MAX_BYTES], fresh[PATH_MAX_BYTES];
    const char *ending = r->text[strspn(r->text, " \t\r\n")] == '{' ? "json" : "csv";
    snprintf(name, sizeof name, "%s-%s.%s", r->conf.account, r->date, ending);
    snprintf(path, sizeof path, "%s/%s", r->all->directory, name);
    snprintf(fresh, sizeof fresh, "%s/.%s.new", r->all->directory, r->conf.account);
    int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0640);
    bool good = fd >= 0 && write_all(fd, r->text, r->text_bytes) && fsync(fd) == 0;
    int error = errno;
    if (fd >= 0)
        close(fd);
    if (good && rename(fresh, path) == 0) {
        remove_older(r, name);
        return SPW_STATUS_OK;
    }
    error = good ? errno : error;
    (void)unlink(fresh);
    return spw_error_set(err, SPW_STATUS_SYSTEM,
                         "%s cannot be written (%s): make room on the ledger's volume", path,
                         strerror(error));
}

/* ---- reading, on a thread of its own ---- */

static void told_bad_row(void *owner, const char *file, const struct spw_rates_problem *problem)
{
    (void)owner;
    spw_log(SPW_LOG_WARN, "rates.row", "%s, fetched, line %u: %s", file, problem->line, problem->text);
}

/* Has it about as many rows as the one before? A table cut short is a well-formed table. */
static enum spw_status check_rows(struct refresh *r, struct spw_error *err)
{
    char path[PATH_MAX_BYTES];
    struct stat st;
    struct spw_rates_table before;
    struct spw_error ignored;
    struct spw_rates_options quiet = r->options;
    quiet.problem = NULL;
    if (r->forced || !find_newest(r, path, sizeof path, &st) ||
        spw_rates_load(path, &quiet, &before, &ignored) != SPW_STATUS_OK)
        return SPW_STATUS_OK;
    size_t rows_count = before.rows_count;
    spw_rates_clean_up(&before);
    if ((double)r->rows_count * 1e6 >= (double)rows_count * r->conf.least_rows_ppm)
        return SPW_STATUS_OK;
    return spw_error_set(
        err, SPW_STATUS_REFUSED,
        "the table has %zu rows, the one before %zu: it is not taken; if it is right, take it by "
        "spillwayctl rates refresh --account %s --force",
        r->rows_count, rows_count, r->conf.account);
}

static void *read_table(void *owner)
{
    struct refresh *r = owner;
    struct spw_rates_table table;
    r->status = spw_rates_parse(r->conf.account, r->text, r->text_bytes, &r->options, &table, &r->err);
    if (r->status == SPW_STATUS_OK) {
        r->rows_count = table.rows_count;
        spw_rates_clean_up(&table);
        r->status = r->rows_count ? check_rows(r, &r->err)
                                  : spw_error_set(&r->err, SPW_STATUS_INVALID, "the table has no rows");
    }
    if (r->status == SPW_STATUS_OK)
        r->status = keep(r, &r->err);
    spw_loop_post(r->all->loop, &r->read);
    return NULL;
}

/* ---- the schedule ---- */

static uint64_t spread(struct spw_rate_refresher *all, uint64_t most_ms)
{
    all->random = all->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return most_ms ? (all->random >> 33) % most_ms : 0;
}

static void plan(struct refresh *r, uint64_t in_ms)
{
    r->view->next_unix_ms = spw_wall_ms() + (int64_t)in_ms;
    spw_loop_timer_set(r->all->loop, &r->timer, spw_loop_now_ns(r->all->loop) + in_ms * UINT64_C(1000000));
}

/* An alarm for the log; the metric spillway_rate_refresh_age_seconds is the one for a pager. */
static void failed(struct refresh *r, const char *why, uint64_t again_ms)
{
    uint64_t every_ms = r->conf.every_s * UINT64_C(1000), doublings = r->failed_in_a_row;
    uint64_t wait_ms = (uint64_t)RETRY_FIRST_MS
                       << (doublings < RETRY_DOUBLINGS ? doublings : RETRY_DOUBLINGS);
    wait_ms = wait_ms < every_ms ? wait_ms : every_ms;
    wait_ms = wait_ms > again_ms ? wait_ms : again_ms;
    r->failed_in_a_row++;
    r->view->running = false;
    r->view->failures_count++;
    snprintf(r->view->error, sizeof r->view->error, "%.255s", why);
    spw_log(SPW_LOG_ERROR, "rates.refresh", "account %s: %s. The table before stays; next try in %llu s",
            r->conf.account, why, (unsigned long long)(wait_ms / 1000));
    plan(r, wait_ms + spread(r->all, wait_ms / SPREAD_SHARE));
}

static void table_read(struct spw_loop *loop, struct spw_loop_task *task)
{
    struct refresh *r = task->owner;
    (void)loop;
    pthread_join(r->thread, NULL);
    r->reading = false;
    free(r->text);
    r->text = NULL;
    if (r->status != SPW_STATUS_OK) {
        failed(r, r->err.text, 0);
        return;
    }
    uint64_t every_ms = r->conf.every_s * UINT64_C(1000);
    r->failed_in_a_row = 0;
    r->view->running = false;
    r->view->successes_count++;
    r->view->succeeded_unix_ms = spw_wall_ms();
    r->view->rows_count = (uint32_t)r->rows_count;
    r->view->error[0] = 0;
    spw_log(SPW_LOG_INFO, "rates.refresh", "account %s: %zu rows of %s were fetched", r->conf.account,
            r->rows_count, r->date);
    plan(r, every_ms + spread(r->all, every_ms / SPREAD_SHARE));
}

static void fetched(void *owner, const struct spw_fetched *result)
{
    struct refresh *r = owner;
    if (!result->body) {
        failed(r, result->why, result->again_ms);
        return;
    }
    r->text = malloc(result->body_bytes + 1);
    if (!r->text) {
        failed(r, "no memory for the table: raise the container's memory limit", 0);
        return;
    }
    memcpy(r->text, result->body, result->body_bytes);
    r->text[result->body_bytes] = 0;
    r->text_bytes = result->body_bytes;
    const struct spw_conf_fallback *fallback = &r->all->conf->fallback;
    r->options = (struct spw_rates_options){.problem = told_bad_row,
                                            .problems_max = 5,
                                            .bad_max_ppm = fallback->bad_rows_max_ppm,
                                            .several = (enum spw_rates_several)fallback->several};
    (void)spw_date_parse(r->date, &r->options.as_of_day);
    r->reading = pthread_create(&r->thread, NULL, read_table, r) == 0;
    if (!r->reading) {
        free(r->text);
        r->text = NULL;
        failed(r, "no thread to read the table: raise the container's limit of processes", 0);
    }
}

static void begin_one(struct refresh *r, bool forced)
{
    spw_loop_timer_cancel(r->all->loop, &r->timer);
    r->forced = forced;
    r->view->running = true;
    r->view->tried_unix_ms = spw_wall_ms();
    spw_format_day((int32_t)(r->view->tried_unix_ms / 86400000), r->date, sizeof r->date);
    spw_fetch_start(r->fetch, r->date);
}

static void refresh_due(struct spw_loop *loop, struct spw_loop_timer *timer)
{
    (void)loop;
    begin_one(timer->owner, false);
}

static enum spw_status begin(void *owner, const char *account, bool forced, struct spw_error *err)
{
    struct spw_rate_refresher *all = owner;
    bool found = !account;
    for (uint32_t i = 0; i < all->count; i++) {
        struct refresh *r = &all->list[i];
        if (account && strcmp(account, r->conf.account) != 0)
            continue;
        found = true;
        if (!r->view->running)
            begin_one(r, forced);
        else if (account)
            return spw_error_set(err, SPW_STATUS_BUSY, "account %s: its rates are being fetched already",
                                 account);
    }
    return found ? SPW_STATUS_OK
                 : spw_error_set(err, SPW_STATUS_NOT_FOUND,
                                 "fallback.refresh does not name account \"%.60s\"", account);
}

/* ---- making and ending ---- */

static enum spw_status add(struct spw_rate_refresher *all, struct spw_decider *decider,
                           const struct spw_conf_refresh *conf, struct spw_error *err)
{
    struct refresh *r = &all->list[all->count];
    struct spw_rates_refreshes *views = spw_state_refreshes(all->state);
    char path[PATH_MAX_BYTES];
    struct stat st;
    r->all = all;
    r->conf = *conf;
    r->view = &views->list[all->count];
    memcpy(r->view->account, conf->account, sizeof r->view->account);
    r->timer.fn = refresh_due;
    r->timer.owner = r;
    r->read.fn = table_read;
    r->read.owner = r;
    struct spw_fetch_options fetch = {.decider = decider,
                                      .account = conf->account,
                                      .answer_max_bytes = TABLE_MAX_BYTES,
                                      .deadline_ms = DEADLINE_MS,
                                      .done = fetched,
                                      .owner = r};
    enum spw_status status = spw_fetch_new(&fetch, &r->fetch, err);
    if (status != SPW_STATUS_OK)
        return status;
    all->count++;
    views->count = all->count;
    int64_t due_ms = 0, every_ms = (int64_t)conf->every_s * 1000, now_ms = spw_wall_ms();
    if (find_newest(r, path, sizeof path, &st)) {
        r->view->succeeded_unix_ms = (int64_t)st.st_mtim.tv_sec * 1000;
        due_ms = r->view->succeeded_unix_ms + every_ms - now_ms;
        due_ms = due_ms < 0 ? 0 : due_ms > every_ms ? every_ms : due_ms;
    }
    plan(r, (uint64_t)due_ms + spread(all, FIRST_SPREAD_MS));
    return SPW_STATUS_OK;
}

enum spw_status spw_rate_refresher_new(struct spw_loop *loop, struct spw_state *state,
                                       struct spw_decider *decider, const struct spw_conf *conf,
                                       struct spw_rate_refresher **out, struct spw_error *err)
{
    *out = NULL;
    if (!conf->fallback.refreshes_count)
        return SPW_STATUS_OK;
    struct spw_rate_refresher *all = calloc(1, sizeof *all);
    if (!all)
        return spw_error_set(err, SPW_STATUS_NO_MEMORY, "fallback.refresh: no memory");
    all->loop = loop;
    all->state = state;
    all->conf = conf;
    all->random = spw_now_ns();
    spw_rate_fetched_directory(conf, all->directory, sizeof all->directory);
    enum spw_status status = SPW_STATUS_OK;
    if (mkdir(all->directory, 0750) != 0 && errno != EEXIST)
        status = spw_error_set(err, SPW_STATUS_SYSTEM,
                               "fallback.refresh: %s cannot be made (%s): it holds what is "
                               "fetched, beside the ledger",
                               all->directory, strerror(errno));
    for (uint32_t i = 0; i < conf->fallback.refreshes_count && status == SPW_STATUS_OK; i++)
        status = add(all, decider, &conf->fallback.refreshes[i], err);
    if (status != SPW_STATUS_OK) {
        spw_rate_refresher_destroy(all);
        return status;
    }
    spw_state_refreshes(state)->begin = begin;
    spw_state_refreshes(state)->owner = all;
    *out = all;
    return SPW_STATUS_OK;
}

void spw_rate_refresher_destroy(struct spw_rate_refresher *refresher)
{
    if (!refresher)
        return;
    spw_state_refreshes(refresher->state)->begin = NULL;
    for (uint32_t i = 0; i < refresher->count; i++) {
        struct refresh *r = &refresher->list[i];
        spw_loop_timer_cancel(refresher->loop, &r->timer);
        if (r->reading)
            pthread_join(r->thread, NULL);
        free(r->text);
        spw_fetch_destroy(r->fetch);
    }
    free(refresher);
}
