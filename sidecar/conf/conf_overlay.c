/* conf_overlay.c: what was set by hand and is to outlive a restart. See conf_overlay.h. */
#include "sidecar/conf/conf_overlay.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sidecar/conf/conf_check.h"

#define FILE_MAX_BYTES 65536u

static atomic_uint_fast64_t revision; /* at the beginning and at the end of each write */

typedef Spillway__V1__Config__AccountsEntry entry; /* the generated name is longer than a line should be */

void spw_overlay_path(const char *store_file, char *out, size_t room)
{
    snprintf(out, room, "%s.overlay.yaml", store_file);
}

/* ---- reading ---- */

/* *out NULL = there is none. */
static enum spw_status read_overlay(const char *path, Spillway__V1__Config **out, struct spw_error *err)
{
    *out = NULL;
    FILE *file = fopen(path, "re");
    if (!file && errno == ENOENT)
        return SPW_STATUS_OK;
    if (!file)
        return spw_error_set(err, SPW_STATUS_SYSTEM,
                             "%s: cannot be read (%s): let the sidecar read it, or remove it", path,
                             strerror(errno));
    char *text = malloc(FILE_MAX_BYTES);
    size_t bytes = text ? fread(text, 1, FILE_MAX_BYTES, file) : 0;
    fclose(file);
    if (!text || bytes == FILE_MAX_BYTES) {
        free(text);
        return spw_error_set(err, SPW_STATUS_PARSE, "%s: is no overlay: remove it", path);
    }
    ProtobufCMessage *message = NULL;
    struct spw_yaml_places places;
    enum spw_status status =
        spw_yaml_read(path, text, bytes, &spillway__v1__config__descriptor, &message, &places, err);
    spw_yaml_places_clean_up(&places);
    free(text);
    *out = (Spillway__V1__Config *)(void *)message;
    return status;
}

static entry *find(const Spillway__V1__Config *config, const char *account)
{
    for (size_t i = 0; config && i < config->n_accounts; i++) {
        if (config->accounts[i]->key && strcmp(config->accounts[i]->key, account) == 0)
            return config->accounts[i];
    }
    return NULL;
}

static void lay_limit(Spillway__V1__LimitConfig *to, Spillway__V1__LimitConfig *from)
{
    if (from->rate) {
        free(to->rate);
        to->rate = from->rate;
        from->rate = NULL;
    }
    if (from->has_burst) {
        to->has_burst = 1;
        to->burst = from->burst;
    }
    if (from->has_pods) {
        to->has_pods = 1;
        to->pods = from->pods;
    }
    if (from->has_mode) {
        to->has_mode = 1;
        to->mode = from->mode;
    }
}

enum spw_status spw_overlay_lay(const char *path, Spillway__V1__Config *over, struct spw_overlay_kept *kept,
                                bool *laid, struct spw_error *err)
{
    Spillway__V1__Config *overlay;
    *laid = false;
    memset(kept, 0, over->n_accounts * sizeof *kept);
    enum spw_status status = read_overlay(path, &overlay, err);
    for (size_t i = 0; status == SPW_STATUS_OK && overlay && i < over->n_accounts; i++) {
        entry *to = over->accounts[i], *from = to->key ? find(overlay, to->key) : NULL;
        if (!from || !to->value || !from->value)
            continue;
        *laid = true;
        if (from->value->limit && to->value->limit) {
            kept[i].limit = from->value->limit->rate != NULL;
            kept[i].mode = from->value->limit->has_mode;
            lay_limit(to->value->limit, from->value->limit);
        }
        if (from->value->breaker) {
            kept[i].breaker = true;
            if (to->value->breaker)
                spillway__v1__breaker_config__free_unpacked(to->value->breaker, NULL);
            to->value->breaker = from->value->breaker;
            from->value->breaker = NULL;
        }
    }
    if (overlay)
        spillway__v1__config__free_unpacked(overlay, NULL);
    return status;
}

/* ---- writing ---- */

static const char *mode_word(int mode)
{
    static const char *const words[] = {"enforce", "observe", "off"};
    return words[mode % 3];
}

static void print_limit(FILE *out, const Spillway__V1__LimitConfig *was,
                        const struct spw_overlay_change *change)
{
    char rate[48] = "";
    bool has_mode = change->mode || (was && was->has_mode);
    if (change->limit)
        spw_format_rate(&change->limit->rate, rate, sizeof rate);
    else if (was && was->rate)
        snprintf(rate, sizeof rate, "%.47s", was->rate);
    if (!*rate && !has_mode)
        return;
    fprintf(out, "    limit:\n");
    if (*rate)
        fprintf(out, "      rate: %s\n", rate);
    if (change->limit && change->limit->kind == SPW_LIMITER_BUCKET)
        fprintf(out, "      burst: %" PRIu64 "\n", change->limit->burst_count);
    else if (!change->limit && was && was->has_burst)
        fprintf(out, "      burst: %" PRIu64 "\n", was->burst);
    if (change->limit)
        fprintf(out, "      pods: %u\n", change->limit->pods_count);
    else if (was && was->has_pods)
        fprintf(out, "      pods: %u\n", was->pods);
    if (change->mode)
        fprintf(out, "      mode: %s\n", mode_word((int)*change->mode));
    else if (has_mode)
        fprintf(out, "      mode: %s\n", mode_word((int)was->mode - 1));
}

static void print_breaker(FILE *out, const Spillway__V1__BreakerConfig *was,
                          const struct spw_overlay_change *change)
{
    static const char *const modes[] = {"enforce", "observe", "disabled"};
    const struct spw_conf_breaker *b = change->breaker;
    if (b)
        fprintf(out,
                "    breaker:\n      consecutive_429: %u\n      ratio_429: %u.%04u%%\n      minimum: %u\n"
                "      window: %ums\n      cooldown: %ums..%ums\n      mode: %s\n",
                b->consecutive_429_count, b->ratio_429_ppm / 10000, b->ratio_429_ppm % 10000,
                b->minimum_count, b->window_ms, b->cooldown_min_ms, b->cooldown_max_ms, modes[b->mode % 3]);
    else if (was)
        fprintf(out,
                "    breaker:\n      consecutive_429: %u\n      ratio_429: %s\n      minimum: %u\n"
                "      window: %s\n      cooldown: %s\n      mode: %s\n",
                was->consecutive_429, was->ratio_429, was->minimum, was->window, was->cooldown,
                modes[((unsigned)was->mode - 1) % 3]);
}

static size_t print_account(FILE *out, const char *name, const Spillway__V1__AccountConfig *was,
                            const struct spw_overlay_change *change)
{
    long before = ftell(out);
    fprintf(out, "  %s:\n", name);
    long head = ftell(out);
    print_limit(out, was ? was->limit : NULL, change);
    print_breaker(out, was ? was->breaker : NULL, change);
    if (ftell(out) != head)
        return 1;
    fseek(out, before, SEEK_SET);
    return 0;
}

/* The text of the whole; the number of accounts in it. */
static size_t print_all(FILE *out, const Spillway__V1__Config *was, const struct spw_overlay_change *change)
{
    static const struct spw_overlay_change NONE;
    size_t count = 0;
    fputs("# Set by hand and kept (--persist); laid over the configuration at each start. spillwayctl limits "
          "set\n"
          "# ACCOUNT --clear takes an account's lines away.\naccounts:\n",
          out);
    for (size_t i = 0; was && i < was->n_accounts; i++) {
        if (was->accounts[i]->key && strcmp(was->accounts[i]->key, change->account) != 0)
            count += print_account(out, was->accounts[i]->key, was->accounts[i]->value, &NONE);
    }
    const entry *own = find(was, change->account);
    if (!change->clear)
        count += print_account(out, change->account, own ? own->value : NULL, change);
    return count;
}

static enum spw_status fault(const char *path, struct spw_error *err)
{
    return spw_error_set(err, errno == ENOSPC ? SPW_STATUS_NO_SPACE : SPW_STATUS_SYSTEM,
                         "persist: %s: %s: let the sidecar write beside its store, and make room", path,
                         strerror(errno));
}

static enum spw_status sync_directory(const char *path, struct spw_error *err)
{
    char directory[SPW_PATH_BYTES + 32];
    snprintf(directory, sizeof directory, "%s", path);
    char *slash = strrchr(directory, '/');
    if (slash)
        *slash = 0;
    int fd = open(slash && *directory ? directory : slash ? "/" : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool done = fd >= 0 && fsync(fd) == 0;
    enum spw_status status = done ? SPW_STATUS_OK : fault(path, err);
    if (fd >= 0)
        close(fd);
    return status;
}

static enum spw_status put_in_place(const char *path, const char *text, size_t bytes, struct spw_error *err)
{
    char temporary[SPW_PATH_BYTES + 64];
    snprintf(temporary, sizeof temporary, "%s.tmp", path);
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return fault(temporary, err);
    size_t done = 0;
    while (done < bytes) {
        ssize_t n = write(fd, text + done, bytes - done);
        if (n < 0 && errno != EINTR)
            break;
        done += n > 0 ? (size_t)n : 0;
    }
    enum spw_status status = done == bytes && fsync(fd) == 0 ? SPW_STATUS_OK : fault(temporary, err);
    close(fd);
    if (status == SPW_STATUS_OK && rename(temporary, path) != 0)
        status = fault(path, err);
    if (status != SPW_STATUS_OK)
        unlink(temporary);
    return status == SPW_STATUS_OK ? sync_directory(path, err) : status;
}

enum spw_status spw_overlay_write(const char *path, const struct spw_overlay_change *change,
                                  struct spw_error *err)
{
    static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
    Spillway__V1__Config *was = NULL;
    char *text = calloc(1, FILE_MAX_BYTES);
    if (!text)
        return spw_error_set(err, SPW_STATUS_NO_MEMORY, "persist: no memory: raise the container's limit");
    pthread_mutex_lock(&one_at_a_time);
    atomic_fetch_add(&revision, 1);
    enum spw_status status = read_overlay(path, &was, err);
    FILE *out = status == SPW_STATUS_OK ? fmemopen(text, FILE_MAX_BYTES, "w") : NULL;
    if (out) {
        size_t count = print_all(out, was, change);
        fflush(out);
        long bytes = ftell(out);
        fclose(out);
        if (count)
            status = put_in_place(path, text, (size_t)bytes, err);
        else if (unlink(path) != 0 && errno != ENOENT)
            status = fault(path, err);
        else
            status = sync_directory(path, err);
    } else if (status == SPW_STATUS_OK) {
        status = spw_error_set(err, SPW_STATUS_NO_MEMORY, "persist: no memory: raise the container's limit");
    }
    atomic_fetch_add(&revision, 1);
    pthread_mutex_unlock(&one_at_a_time);
    if (was)
        spillway__v1__config__free_unpacked(was, NULL);
    free(text);
    return status;
}

uint64_t spw_overlay_revision(void)
{
    return atomic_load(&revision);
}

void spw_overlay_note(struct spw_conf *conf, const struct spw_overlay_change *change)
{
    for (uint32_t i = 0; i < conf->accounts_count; i++) {
        struct spw_conf_account *account = &conf->accounts[i];
        struct spw_conf_file_says *says = &account->file_says;
        if (strcmp(account->name, change->account) != 0)
            continue;
        if (change->clear) {
            says->limit_kept = says->mode_kept = says->breaker_kept = false;
            account->limit = says->limit;
            account->limit_mode = says->limit_mode;
            account->breaker = says->breaker;
        }
        if (change->limit) {
            says->limit_kept = true;
            account->limit = *change->limit;
        }
        if (change->mode) {
            says->mode_kept = true;
            account->limit_mode = *change->mode;
        }
        if (change->breaker) {
            says->breaker_kept = true;
            account->breaker = *change->breaker;
        }
    }
}
