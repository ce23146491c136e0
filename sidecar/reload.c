/* reload.c: see reload.h.
 *
 *   look or SIGHUP ── thread: load, check, read new rate tables ── loop: may it change in place? ── take
 *
 * By looking, not by inotify: a mounted ConfigMap is swapped by a symbolic link behind the name (kubelet's ..data), which
 * a watch on the file itself does not see. A look is one stat, every two seconds.
 */
#include "sidecar/reload.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "sidecar/conf/conf_overlay.h"
#include "sidecar/conf/conf_values.h"
#include "sidecar/control/control.h"
#include "sidecar/obs/log.h"

#define LOOK_NS UINT64_C(2000000000)
#define WAIT_NS UINT64_C(100000000) /* for a watched directory that is being read */

struct print {
    struct timespec modified, changed;
    ino_t inode;
    dev_t device;
    off_t bytes;
};

struct spw_reload {
    struct spw_reload_options options;
    struct spw_loop_timer look, wait;
    struct spw_loop_task done;
    struct print taken, last;
    bool asked; /* again, when the one under way is over */
    bool reading;
    pthread_t thread;
    /* the thread's, until `done` runs */
    struct spw_conf *fresh;
    struct spw_rate_files files;
    bool has_files;
    uint64_t overlay_revision; /* as the reading began */
    enum spw_status status;
    struct spw_error err;
};

void spw_conf_log_apply(const struct spw_conf *conf)
{
    static const char *const name[] = {"debug", "info", "warn", "error"};
    for (int i = 0; i < 4; i++) {
        if (strcmp(conf->log_level, name[i]) == 0)
            spw_log_configure((enum spw_log_level)i, conf->log_json);
    }
}

struct spw_store_care spw_conf_store_care(const struct spw_conf *conf)
{
    return (struct spw_store_care){.unplaced_after_ms = conf->unplaced_after_ms,
                                   .alert_window_ms = conf->alert.window_ms,
                                   .alert_share_ppm = conf->alert.share_ppm,
                                   .alert_minimum_count = conf->alert.minimum_count,
                                   .addresses_days = conf->retention.addresses_days,
                                   .rows_days = conf->retention.rows_days};
}

/* ---- what is different ---- */

static bool same_rates(const struct spw_conf_fallback *a, const struct spw_conf_fallback *b)
{
    bool same = a->rate_files_count == b->rate_files_count && strcmp(a->rates_dir, b->rates_dir) == 0 &&
                a->several == b->several && a->bad_rows_max_ppm == b->bad_rows_max_ppm;
    for (uint32_t i = 0; same && i < a->rate_files_count; i++)
        same = strcmp(a->rate_files[i].file, b->rate_files[i].file) == 0 &&
               strcmp(a->rate_files[i].source, b->rate_files[i].source) == 0 &&
               a->rate_files[i].as_of_day == b->rate_files[i].as_of_day;
    return same;
}

struct telling {
    uint32_t changes_count, fixed_count;
    bool log;
    struct spw_error *err;
};

static void tell_change(void *owner, const struct spw_conf_change *change)
{
    struct telling *t = owner;
    t->changes_count++;
    if (change->fixed && t->fixed_count++ == 0)
        spw_error_set(t->err, SPW_STATUS_REFUSED, "%s: \"%.80s\" to \"%.80s\" needs a restart: %s",
                      change->path, change->before, change->after, change->fixed);
    if (t->log && !change->before[0])
        spw_log(SPW_LOG_INFO, "config.change", "%s is new: %.200s", change->path, change->after);
    else if (t->log)
        spw_log(SPW_LOG_INFO, "config.change", "%s: %.200s -> %.200s", change->path, change->before,
                change->after);
}

/* What is different, told to `telling`. */
static enum spw_status compare(const struct spw_conf *before, const struct spw_conf *after,
                               struct telling *telling, struct spw_error *err)
{
    struct spw_conf_values was, is;
    enum spw_status status = spw_conf_values_make(before, &was, err);
    if (status != SPW_STATUS_OK)
        return status;
    status = spw_conf_values_make(after, &is, err);
    if (status == SPW_STATUS_OK) {
        spw_conf_values_diff(&was, &is, tell_change, telling);
        spw_conf_values_clean_up(&is);
    }
    spw_conf_values_clean_up(&was);
    return status == SPW_STATUS_OK && telling->fixed_count ? SPW_STATUS_REFUSED : status;
}

/* ---- the loop's part ---- */

/* Everything that may fail, undone when something does: the doors of new accounts, then the rate table. */
static enum spw_status prepare(struct spw_reload *r, struct spw_error *err)
{
    const struct spw_reload_options *o = &r->options;
    struct spw_conf *live = o->live->conf;
    uint32_t doors = spw_pass_doors_count(o->pass_doors), known = live->accounts_count;
    memcpy(&live->accounts[known], &r->fresh->accounts[known],
           (r->fresh->accounts_count - known) * sizeof live->accounts[0]);
    enum spw_status status = spw_decider_reload_begin(o->decider, r->fresh, err);
    if (status != SPW_STATUS_OK)
        return status;
    status = spw_pass_doors_reload_begin(o->pass_doors, r->fresh, err);
    struct spw_rates_view view;
    if (status == SPW_STATUS_OK && r->has_files && r->files.count)
        status = spw_state_rates_replace(o->state, r->files.sources, r->files.count, &view, err);
    if (status != SPW_STATUS_OK) {
        spw_pass_doors_reload_undo(o->pass_doors, doors);
        spw_decider_reload_undo(o->decider, r->fresh);
    }
    return status;
}

static void take(struct spw_reload *r, const struct spw_conf *before)
{
    const struct spw_reload_options *o = &r->options;
    struct spw_conf *live = o->live->conf;
    struct spw_error err = {0};
    spw_conf_take(live, r->fresh);
    if (spw_state_reload(o->state, before, spw_loop_now_ns(o->loop), &err) != SPW_STATUS_OK)
        spw_log(SPW_LOG_ERROR, "config.reload", "checked, and yet not all of it is in force: %s", err.text);
    spw_decider_reload_end(o->decider);
    struct spw_store_care care = spw_conf_store_care(live);
    spw_store_care_set(o->store, &care);
    spw_conf_log_apply(live);
    if (!r->has_files)
        return;
    spw_rate_watch_destroy(*o->rate_watch);
    *o->rate_watch = NULL;
    if (spw_rate_watch_new(o->loop, o->state, live, o->rate_watch, &err) != SPW_STATUS_OK)
        spw_log(SPW_LOG_ERROR, "config.reload", "%s", err.text);
}

/* What the file says below what is kept by hand may differ though nothing in force does. */
static void note_file(struct spw_conf *live, const struct spw_conf *fresh)
{
    for (uint32_t i = 0; i < live->accounts_count; i++)
        live->accounts[i].file_says = fresh->accounts[i].file_says;
}

static enum spw_status apply(struct spw_reload *r, uint32_t *changes_count, struct spw_error *err)
{
    struct spw_conf_live *live = r->options.live;
    struct telling telling = {.err = err};
    if (r->fresh->accounts_count > SPW_CONF_ACCOUNTS_MAX_COUNT)
        return spw_error_set(err, SPW_STATUS_FULL, "accounts: at most %u", SPW_CONF_ACCOUNTS_MAX_COUNT);
    spw_conf_align(r->fresh, live->conf);
    enum spw_status status = compare(live->conf, r->fresh, &telling, err);
    if (status == SPW_STATUS_OK)
        status = spw_state_reload_check(r->options.state, r->fresh, spw_loop_now_ns(r->options.loop), err);
    *changes_count = telling.changes_count;
    if (status == SPW_STATUS_OK && telling.changes_count == 0)
        note_file(live->conf, r->fresh);
    if (status != SPW_STATUS_OK || telling.changes_count == 0)
        return status;
    struct spw_conf *before = spw_conf_copy(live->conf);
    if (!before)
        return spw_error_set(err, SPW_STATUS_NO_MEMORY, "no memory to take it: raise the memory limit");
    status = prepare(r, err);
    if (status == SPW_STATUS_OK) {
        telling.log = true;
        (void)compare(before, r->fresh, &telling, err); /* told once it is certain */
        take(r, before);
    }
    spw_conf_destroy(before);
    return status;
}

/* The files were read, and are told or taken. */
static void conclude(struct spw_reload *r)
{
    struct spw_conf_live *live = r->options.live;
    uint32_t changes_count = 0;
    spw_control_reload_begin(r->options.control);
    if (r->status == SPW_STATUS_OK) {
        r->status = apply(r, &changes_count, &r->err);
        if (r->status != SPW_STATUS_OK)
            spw_conf_locate(r->fresh, live->path, &r->err);
    }
    spw_control_reload_end(r->options.control, changes_count,
                           r->status == SPW_STATUS_OK ? NULL : r->err.text);
    if (r->status == SPW_STATUS_OK) {
        live->reloads_count++;
        live->last_success_unix_s = (int64_t)(spw_wall_ms() / 1000);
        live->last_error[0] = 0;
        spw_log(SPW_LOG_INFO, "config.reload", "%s was read again: %u changes are in force", live->path,
                changes_count);
    } else {
        live->failures_count++;
        snprintf(live->last_error, sizeof live->last_error, "%s", r->err.text);
        spw_log(SPW_LOG_ERROR, "config.reload",
                "%s. Nothing was changed; the configuration read before stays in force", r->err.text);
    }
}

static void finish(struct spw_reload *r)
{
    if (r->overlay_revision != spw_overlay_revision())
        r->asked = true; /* what is kept by hand was written meanwhile, perhaps after it was read */
    else
        conclude(r);
    if (r->has_files)
        spw_rate_files_clean_up(&r->files);
    r->has_files = false;
    spw_conf_destroy(r->fresh);
    r->fresh = NULL;
    r->reading = false;
    if (r->asked)
        spw_reload_ask(r);
}

/* A directory that is being read reads the configuration too: it is not changed meanwhile. */
static void wait_over(struct spw_loop *loop, struct spw_loop_timer *timer)
{
    struct spw_reload *r = timer->owner;
    if (spw_rate_watch_is_reading(*r->options.rate_watch))
        spw_loop_timer_set(loop, timer, spw_loop_now_ns(loop) + WAIT_NS);
    else
        finish(r);
}

static void read_done(struct spw_loop *loop, struct spw_loop_task *task)
{
    struct spw_reload *r = task->owner;
    pthread_join(r->thread, NULL);
    wait_over(loop, &r->wait);
}

/* ---- the thread's part ---- */

static void *read_files(void *owner)
{
    struct spw_reload *r = owner;
    r->overlay_revision = spw_overlay_revision();
    r->status = spw_conf_load(r->options.live->path, &r->fresh, &r->err);
    if (r->status == SPW_STATUS_OK && !same_rates(&r->fresh->fallback, &r->options.live->conf->fallback)) {
        r->status = spw_rate_files_read(&r->files, r->fresh, &r->err);
        r->has_files = r->status == SPW_STATUS_OK;
        if (!r->has_files)
            spw_conf_locate(r->fresh, r->options.live->path, &r->err);
    }
    spw_loop_post(r->options.loop, &r->done);
    return NULL;
}

void spw_reload_ask(struct spw_reload *r)
{
    if (r->reading) {
        r->asked = true;
        return;
    }
    r->asked = false;
    r->fresh = NULL;
    r->reading = pthread_create(&r->thread, NULL, read_files, r) == 0;
    if (!r->reading)
        spw_log(SPW_LOG_ERROR, "config.reload",
                "no thread to read %s: raise the container's limit of processes", r->options.live->path);
}

/* ---- the look ---- */

static bool look(const char *path, struct print *out)
{
    struct stat st;
    memset(out, 0, sizeof *out); /* compared as bytes */
    if (stat(path, &st) != 0)
        return false;
    out->modified = st.st_mtim;
    out->changed = st.st_ctim;
    out->inode = st.st_ino;
    out->device = st.st_dev;
    out->bytes = st.st_size;
    return true;
}

static void look_due(struct spw_loop *loop, struct spw_loop_timer *timer)
{
    struct spw_reload *r = timer->owner;
    struct print now;
    spw_loop_timer_set(loop, timer, spw_loop_beat_ns(loop, LOOK_NS));
    if (!look(r->options.live->path,
              &now)) /* between two states of a swap, or taken away: what is in force stays */
        return;
    bool settled = memcmp(&now, &r->last, sizeof now) == 0;
    r->last = now;
    if (!settled || r->reading || memcmp(&now, &r->taken, sizeof now) == 0)
        return;
    r->taken = now;
    spw_reload_ask(r);
}

enum spw_status spw_reload_new(const struct spw_reload_options *options, struct spw_reload **out,
                               struct spw_error *err)
{
    struct spw_reload *r = calloc(1, sizeof *r);
    *out = r;
    if (!r)
        return spw_error_set(err, SPW_STATUS_NO_MEMORY,
                             "reload: no memory: raise the container's memory limit");
    r->options = *options;
    r->look.fn = look_due;
    r->wait.fn = wait_over;
    r->done.fn = read_done;
    r->look.owner = r->wait.owner = r->done.owner = r;
    (void)look(options->live->path, &r->taken);
    r->last = r->taken;
    options->live->last_success_unix_s = (int64_t)(spw_wall_ms() / 1000);
    spw_loop_timer_set(options->loop, &r->look, spw_loop_now_ns(options->loop) + LOOK_NS);
    return SPW_STATUS_OK;
}

void spw_reload_destroy(struct spw_reload *r)
{
    if (!r)
        return;
    spw_loop_timer_cancel(r->options.loop, &r->look);
    if (r->reading) { /* its task was posted after the loop's last turn, or waited for the directory */
        if (!spw_loop_timer_armed(&r->wait))
            pthread_join(r->thread, NULL);
        spw_loop_timer_cancel(r->options.loop, &r->wait);
        if (r->has_files)
            spw_rate_files_clean_up(&r->files);
        spw_conf_destroy(r->fresh);
    }
    free(r);
}
