/* rate_watch.c: the watched files and directory of rate tables. See rate_files.h.
 *
 * Owns: the timer, and a thread while it reads. Called by: main, the loop. Thread: the loop's; the reader's own.
 *
 * By looking, not by inotify: a mounted configuration map is swapped by a symbolic link behind the names, which a watch
 * on the files themselves does not see, and some volumes have no inotify at all. A look is one stat for each file.
 */
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "sidecar/obs/log.h"
#include "sidecar/rate_files.h"

#define LOOK_NS UINT64_C(2000000000)

/* Of a directory of rate files: a path of the configuration, and what the fetched ones' has behind it. */
#define DIRECTORY_BYTES (SPW_PATH_BYTES + 16)

struct spw_rate_watch {
    struct spw_loop *loop;
    struct spw_state *state;
    const struct spw_conf *conf;
    struct spw_loop_timer timer;
    struct spw_loop_task done;
    uint64_t taken; /* fingerprint of what is in force, or was refused */
    uint64_t last;  /* of the last look */
    pthread_t thread;
    bool reading;
    /* the reader's, until `done` runs */
    struct spw_rate_files files;
    enum spw_status status;
    struct spw_error err;
};

static uint64_t fold(uint64_t hash, uint64_t value)
{
    return (hash ^ value) * UINT64_C(1099511628211);
}

/* 0: no file. */
static uint64_t file_print(const char *path)
{
    struct stat st = {0};
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode))
        return 0;
    const uint64_t facts[] = {(uint64_t)st.st_mtim.tv_sec, (uint64_t)st.st_mtim.tv_nsec, (uint64_t)st.st_size,
                              (uint64_t)st.st_ino, (uint64_t)st.st_ctim.tv_nsec};
    uint64_t print = UINT64_C(14695981039346656037);
    for (const char *p = path; *p; p++)
        print = fold(print, (uint8_t)*p);
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
        print = fold(print, facts[i]);
    return print;
}

/* What the directory looks like. The order of readdir makes no difference: the files' own prints are added. */
static uint64_t directory_print(const char *path)
{
    DIR *dir = opendir(path);
    uint64_t sum = 1;
    if (!dir)
        return 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        char full[DIRECTORY_BYTES + sizeof entry->d_name];
        snprintf(full, sizeof full, "%s/%s", path, entry->d_name);
        if (entry->d_name[0] != '.')
            sum += file_print(full);
    }
    closedir(dir);
    return sum;
}

/* Of all that the configuration names. */
static uint64_t look(const struct spw_conf *conf)
{
    const struct spw_conf_fallback *fallback = &conf->fallback;
    char fetched[DIRECTORY_BYTES];
    uint64_t print = fallback->rates_dir[0] ? directory_print(fallback->rates_dir) : 0;
    for (uint32_t i = 0; i < fallback->rate_files_count; i++)
        print = fold(print, file_print(fallback->rate_files[i].file));
    if (!fallback->refreshes_count)
        return print;
    spw_rate_fetched_directory(conf, fetched, sizeof fetched);
    return fold(print, directory_print(fetched));
}

/* What is watched, for people. */
static const char *place(const struct spw_conf *conf)
{
    return conf->fallback.rates_dir[0]       ? conf->fallback.rates_dir
           : conf->fallback.rate_files_count ? "what fallback.rates names"
                                             : "what is fetched";
}

static void read_done(struct spw_loop *loop, struct spw_loop_task *task)
{
    struct spw_rate_watch *w = task->owner;
    (void)loop;
    pthread_join(w->thread, NULL);
    w->reading = false;
    struct spw_rates_view view;
    if (w->status == SPW_STATUS_OK && w->files.count == 0)
        w->status = spw_error_set(&w->err, SPW_STATUS_NOT_FOUND, "%s has no tables any more", place(w->conf));
    if (w->status == SPW_STATUS_OK)
        w->status = spw_state_rates_replace(w->state, w->files.sources, w->files.count, &view, &w->err);
    if (w->status == SPW_STATUS_OK)
        spw_log(SPW_LOG_INFO, "rates.dir",
                "%s has changed: version %llu of the rate table is in force, %u of %u "
                "places",
                place(w->conf), (unsigned long long)view.version, view.records_count, view.capacity_count);
    else
        spw_log(SPW_LOG_ERROR, "rates.dir", "%s. The table in force stays", w->err.text);
    spw_rate_files_clean_up(&w->files);
}

static void *read_files(void *owner)
{
    struct spw_rate_watch *w = owner;
    w->status = spw_rate_files_read(&w->files, w->conf, &w->err);
    spw_loop_post(w->loop, &w->done);
    return NULL;
}

static void look_due(struct spw_loop *loop, struct spw_loop_timer *timer)
{
    struct spw_rate_watch *w = timer->owner;
    spw_loop_timer_set(loop, timer, spw_loop_beat_ns(loop, LOOK_NS));
    if (w->reading)
        return;
    uint64_t print = look(w->conf);
    bool settled = print == w->last;
    w->last = print;
    if (print == w->taken || !settled)
        return;
    w->taken = print;
    w->reading = pthread_create(&w->thread, NULL, read_files, w) == 0;
    if (!w->reading)
        spw_log(SPW_LOG_ERROR, "rates.dir", "no thread to read %s: raise the container's limit of processes",
                place(w->conf));
}

enum spw_status spw_rate_watch_new(struct spw_loop *loop, struct spw_state *state,
                                   const struct spw_conf *conf, struct spw_rate_watch **out,
                                   struct spw_error *err)
{
    *out = NULL;
    if (!conf->fallback.rates_dir[0] && !conf->fallback.rate_files_count && !conf->fallback.refreshes_count)
        return SPW_STATUS_OK;
    struct spw_rate_watch *w = calloc(1, sizeof *w);
    if (!w)
        return spw_error_set(err, SPW_STATUS_NO_MEMORY, "fallback.rates_dir: no memory to watch it");
    w->loop = loop;
    w->state = state;
    w->conf = conf;
    w->timer.fn = look_due;
    w->timer.owner = w;
    w->done.fn = read_done;
    w->done.owner = w;
    w->taken = w->last = look(conf);
    spw_loop_timer_set(loop, &w->timer, spw_loop_now_ns(loop) + LOOK_NS);
    *out = w;
    return SPW_STATUS_OK;
}

bool spw_rate_watch_is_reading(const struct spw_rate_watch *watch)
{
    return watch && watch->reading;
}

void spw_rate_watch_destroy(struct spw_rate_watch *watch)
{
    if (!watch)
        return;
    spw_loop_timer_cancel(watch->loop, &watch->timer);
    if (watch
            ->reading) { /* its task was posted after the loop's last turn, or will be dropped with the loop */
        pthread_join(watch->thread, NULL);
        spw_rate_files_clean_up(&watch->files);
    }
    free(watch);
}
