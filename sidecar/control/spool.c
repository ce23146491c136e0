/* spool.c: see spool.h. */
#include "sidecar/control/spool.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "sidecar/control/import.h"
#include "sidecar/obs/log.h"
#include "sidecar/store/store.h"

#define LOOK_EVERY_MS 1000
#define SETTLED_S     2
#define LINE_MAX      ((size_t)256 << 10) /* a flag is at most 40 KB */
#define PATH_ROOM     4608
#define ENDING        ".jsonl"

struct spw_spool {
    struct spw_store *store;
    char dir[4096];
    pthread_t thread;
    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t wake;
    bool stop;
    struct spw_spool_counts counts;
};

static bool has_ending(const char *name)
{
    size_t bytes = strlen(name), ending = sizeof ENDING - 1;
    return name[0] != '.' && bytes > ending && strcmp(name + bytes - ending, ENDING) == 0;
}

static bool is_stopping(struct spw_spool *spool)
{
    pthread_mutex_lock(&spool->mutex);
    bool stop = spool->stop;
    pthread_mutex_unlock(&spool->mutex);
    return stop;
}

/* Call fn for every file of the directory whose name has the ending. */
static void each_file(struct spw_spool *spool, const char *sub,
                      void (*fn)(struct spw_spool *spool, const char *name))
{
    char path[PATH_ROOM];
    snprintf(path, sizeof path, "%s%s", spool->dir, sub);
    DIR *dir = opendir(path);
    if (!dir) {
        spw_log(SPW_LOG_WARN, "spool", "%s: cannot be read: %s; its files wait", path, strerror(errno));
        return;
    }
    const struct dirent *entry;
    while (!is_stopping(spool) && (entry = readdir(dir)) != NULL) {
        if (has_ending(entry->d_name))
            fn(spool, entry->d_name);
    }
    closedir(dir);
}

static void take_file(struct spw_spool *spool, const char *name)
{
    char from[PATH_ROOM], to[PATH_ROOM];
    struct stat st;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(from, sizeof from, "%s/%s", spool->dir, name);
    snprintf(to, sizeof to, "%s/taken/%" PRId64 "-%s", spool->dir,
             (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000, name);
    if (lstat(from, &st) != 0 || !S_ISREG(st.st_mode))
        return; /* a link may lead anywhere */
    if (rename(from, to) != 0)
        spw_log(SPW_LOG_WARN, "spool", "%s: cannot be moved to %s: %s; it waits", from, to, strerror(errno));
}

/* A line that is no flag stays for a person: the reason, then the line. */
static bool keep_bad(const char *path, uint64_t number, const char *line, const char *why)
{
    FILE *file = fopen(path, "ae");
    bool good = file && fprintf(file, "# line %" PRIu64 ": %s\n%s\n", number, why, line) > 0;
    if (file && (fflush(file) != 0 || fsync(fileno(file)) != 0))
        good = false;
    if (file && fclose(file) != 0)
        good = false;
    return good;
}

static void count(struct spw_spool *spool, bool bad, bool known)
{
    pthread_mutex_lock(&spool->mutex);
    spool->counts.bad_count += bad;
    spool->counts.known_count += known;
    spool->counts.imported_count += !bad && !known;
    pthread_mutex_unlock(&spool->mutex);
}

/* Every line of the file. false: the ledger or the directory would not have it, try again later. */
static bool import_lines(struct spw_spool *spool, FILE *file, const char *name, const char *bad_path)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t n;
    bool good = true;
    for (uint64_t number = 1; good && (n = getline(&line, &room, file)) > 0; number++) {
        struct spw_error err = {0};
        bool known = false;
        while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == '\r'))
            line[--n] = 0;
        if (n == 0 || line[0] == '#')
            continue;
        enum spw_status status = (size_t)n > LINE_MAX
                                     ? spw_error_set(&err, SPW_STATUS_PARSE, "longer than any flag")
                                     : spw_import_line(spool->store, line, (size_t)n, &known, &err);
        if (spw_import_is_bad(status)) {
            spw_log(SPW_LOG_WARN, "spool.bad_line", "%s:%" PRIu64 ": %s; kept in %s", name, number, err.text,
                    bad_path);
            good = keep_bad(bad_path, number, line, err.text);
        } else {
            good = status == SPW_STATUS_OK && !is_stopping(spool);
        }
        if (good)
            count(spool, spw_import_is_bad(status), known);
    }
    free(line);
    return good && !ferror(file);
}

static void import_file(struct spw_spool *spool, const char *name)
{
    char from[PATH_ROOM], to[PATH_ROOM], bad[PATH_ROOM];
    struct stat st;
    snprintf(from, sizeof from, "%s/taken/%s", spool->dir, name);
    snprintf(to, sizeof to, "%s/done/%s", spool->dir, name);
    snprintf(bad, sizeof bad, "%s/bad/%s", spool->dir, name);
    time_t now = time(NULL);
    /* Both instants: a rename sets ctime. A clock that was put back does not make it wait for ever. */
    if (lstat(from, &st) != 0 || !S_ISREG(st.st_mode) ||
        ((now - st.st_mtime < SETTLED_S && now >= st.st_mtime) ||
         (now - st.st_ctime < SETTLED_S && now >= st.st_ctime)))
        return;
    FILE *file = fopen(from, "re");
    if (!file) {
        spw_log(SPW_LOG_WARN, "spool", "%s: cannot be opened: %s; it waits", from, strerror(errno));
        return;
    }
    unlink(bad); /* of a look that was cut short */
    bool whole = import_lines(spool, file, from, bad);
    fclose(file);
    if (whole && rename(from, to) != 0)
        spw_log(SPW_LOG_WARN, "spool", "%s: cannot be moved to %s: %s", from, to, strerror(errno));
}

static void *main_of_thread(void *owner)
{
    struct spw_spool *spool = owner;
    pthread_setname_np(pthread_self(), "spw-spool");
    while (!is_stopping(spool)) {
        each_file(spool, "", take_file);
        each_file(spool, "/taken", import_file);
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += LOOK_EVERY_MS / 1000;
        pthread_mutex_lock(&spool->mutex);
        while (!spool->stop && pthread_cond_timedwait(&spool->wake, &spool->mutex, &until) == 0) {
        }
        pthread_mutex_unlock(&spool->mutex);
    }
    return NULL;
}

static enum spw_status make_directories(const char *dir, struct spw_error *err)
{
    static const char *const sub[] = {"taken", "done", "bad"};
    for (size_t i = 0; i < sizeof sub / sizeof sub[0]; i++) {
        char path[PATH_ROOM];
        snprintf(path, sizeof path, "%s/%s", dir, sub[i]);
        if (mkdir(path, 0700) != 0 && errno != EEXIST)
            return spw_error_set(err, SPW_STATUS_SYSTEM, "store.spool_dir: %s cannot be made: %s", path,
                                 strerror(errno));
    }
    return SPW_STATUS_OK;
}

enum spw_status spw_spool_start(struct spw_store *store, const char *dir, struct spw_spool **out,
                                struct spw_error *err)
{
    *out = NULL;
    enum spw_status status = make_directories(dir, err);
    struct spw_spool *spool = status == SPW_STATUS_OK ? calloc(1, sizeof *spool) : NULL;
    if (!spool)
        return status ? status : spw_error_set(err, SPW_STATUS_NO_MEMORY, "spool: no memory to begin with");
    spool->store = store;
    snprintf(spool->dir, sizeof spool->dir, "%s", dir);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&spool->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&spool->mutex, NULL);
    sigset_t all, old;
    sigfillset(&all);
    sigdelset(&all, SIGBUS);                  /* main's handler says what it means */
    pthread_sigmask(SIG_SETMASK, &all, &old); /* inherited: signals are the main thread's */
    int failed = pthread_create(&spool->thread, NULL, main_of_thread, spool);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (failed) {
        pthread_cond_destroy(&spool->wake);
        pthread_mutex_destroy(&spool->mutex);
        free(spool);
        return spw_error_set(err, SPW_STATUS_SYSTEM, "spool: its thread cannot be started: %s",
                             strerror(failed));
    }
    *out = spool;
    return SPW_STATUS_OK;
}

void spw_spool_counts(struct spw_spool *spool, struct spw_spool_counts *out)
{
    *out = (struct spw_spool_counts){0};
    if (!spool)
        return;
    pthread_mutex_lock(&spool->mutex);
    *out = spool->counts;
    pthread_mutex_unlock(&spool->mutex);
}

void spw_spool_stop(struct spw_spool *spool)
{
    if (!spool)
        return;
    pthread_mutex_lock(&spool->mutex);
    spool->stop = true;
    pthread_cond_signal(&spool->wake);
    pthread_mutex_unlock(&spool->mutex);
    pthread_join(spool->thread, NULL);
    pthread_cond_destroy(&spool->wake);
    pthread_mutex_destroy(&spool->mutex);
    free(spool);
}
