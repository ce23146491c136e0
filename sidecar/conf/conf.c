/* conf.c: see conf.h: the file, the walk, the check, in this order.
 *
 * Owns: the life of struct spw_conf. Called by: main, spillwayctl, tests. Thread: any.
 */
#include "sidecar/conf/conf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sidecar/conf/conf_check.h"
#include "sidecar/conf/conf_overlay.h"
#include "sidecar/conf/conf_text.h"

#define FILE_MAX_BYTES     ((size_t)1 << 20)
#define ANY_FILE_MAX_BYTES ((size_t)1 << 26)
/* Some editors begin UTF-8 files with it. */
#define UTF8_MARK "\xEF\xBB\xBF"

/* What is asked of a file besides being right in itself. */
struct wanted {
    bool references; /* what it refers to is there */
    bool any_count;  /* of accounts; otherwise what one segment holds */
};

static size_t most_bytes(struct wanted wanted)
{
    return wanted.any_count ? ANY_FILE_MAX_BYTES : FILE_MAX_BYTES;
}

/* What was set by hand and is kept, beside the store. */
static enum spw_status lay_overlay(Spillway__V1__Config *config, char *path, size_t room, bool *laid,
                                   struct spw_error *err)
{
    const char *store = config->store && config->store->file ? config->store->file : SPW_CONF_STORE_FILE;
    spw_overlay_path(store, path, room);
    return spw_overlay_lay(path, config, laid, err);
}

static enum spw_status parse(const char *name, const char *text, size_t bytes, struct wanted wanted,
                             struct spw_conf **out, struct spw_error *err)
{
    *out = NULL;
    if (bytes > most_bytes(wanted))
        return spw_error_set(err, SPW_STATUS_PARSE, "%s: the file is larger than %zu bytes: shorten it", name,
                             most_bytes(wanted));
    if (bytes >= sizeof UTF8_MARK - 1 && !memcmp(text, UTF8_MARK, sizeof UTF8_MARK - 1)) {
        text += sizeof UTF8_MARK - 1;
        bytes -= sizeof UTF8_MARK - 1;
    }
    enum spw_status status = spw_text_check(name, text, bytes, err);
    if (status)
        return status;
    ProtobufCMessage *message = NULL;
    struct spw_yaml_places places;
    status = spw_yaml_read(name, text, bytes, &spillway__v1__config__descriptor, &message, &places, err);
    bool laid = false;
    char overlay[SPW_PATH_BYTES + 32] = "";
    if (!status && wanted.references)
        status = lay_overlay((Spillway__V1__Config *)(void *)message, overlay, sizeof overlay, &laid, err);
    struct spw_conf *conf = status ? NULL : calloc(1, sizeof *conf);
    if (!status && !conf)
        status = spw_error_set(err, SPW_STATUS_NO_MEMORY, "%s: no memory for the configuration", name);
    if (!status) {
        struct spw_check check = {.name = name,
                                  .places = &places,
                                  .references = wanted.references,
                                  .any_count = wanted.any_count,
                                  .err = err};
        status = spw_check_config(&check, (const Spillway__V1__Config *)(const void *)message, conf);
        if (status && laid)
            spw_error_prefix(err, "with %s laid over it: ", overlay);
    }
    if (message)
        protobuf_c_message_free_unpacked(message, NULL);
    spw_yaml_places_clean_up(&places);
    if (status)
        spw_conf_destroy(conf);
    else
        *out = conf;
    return status;
}

/* Read at most one byte more than is allowed, so that parse sees an oversize file as one. */
static enum spw_status read_file(const char *path, size_t most, char **out, size_t *out_bytes,
                                 struct spw_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return spw_error_set(
            err, errno == ENOENT ? SPW_STATUS_NOT_FOUND : SPW_STATUS_SYSTEM,
            "%s: cannot be opened (%s): name the configuration file, and let the sidecar read it", path,
            strerror(errno));
    enum spw_status status = SPW_STATUS_OK;
    struct stat st;
    char *text = malloc(most + 1);
    size_t bytes = 0;
    if (!text)
        status = spw_error_set(err, SPW_STATUS_NO_MEMORY, "%s: no memory for the configuration", path);
    else if (fstat(fd, &st) || !S_ISREG(st.st_mode))
        status = spw_error_set(err, SPW_STATUS_INVALID, "%s: is no regular file: name the file itself", path);
    while (!status && bytes <= most) {
        ssize_t n = read(fd, text + bytes, most + 1 - bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            status = spw_error_set(err, SPW_STATUS_SYSTEM, "%s: cannot be read (%s): check its volume", path,
                                   strerror(errno));
        if (n <= 0)
            break;
        bytes += (size_t)n;
    }
    close(fd);
    if (status) {
        free(text);
        return status;
    }
    *out = text;
    *out_bytes = bytes;
    return SPW_STATUS_OK;
}

enum spw_status spw_conf_parse(const char *name, const char *text, size_t bytes, struct spw_conf **out,
                               struct spw_error *err)
{
    return parse(name, text, bytes, (struct wanted){0}, out, err);
}

static enum spw_status load(const char *path, struct wanted wanted, struct spw_conf **out,
                            struct spw_error *err)
{
    *out = NULL;
    char *text = NULL;
    size_t bytes = 0;
    enum spw_status status = read_file(path, most_bytes(wanted), &text, &bytes, err);
    if (status)
        return status;
    status = parse(path, text, bytes, wanted, out, err);
    free(text);
    return status;
}

enum spw_status spw_conf_load(const char *path, struct spw_conf **out, struct spw_error *err)
{
    return load(path, (struct wanted){.references = true}, out, err);
}

enum spw_status spw_conf_load_alone(const char *path, struct spw_conf **out, struct spw_error *err)
{
    return load(path, (struct wanted){0}, out, err);
}

enum spw_status spw_conf_load_any(const char *path, struct spw_conf **out, struct spw_error *err)
{
    return load(path, (struct wanted){.any_count = true}, out, err);
}

struct spw_rates_age spw_conf_rates_age(const struct spw_conf_fallback *fallback, int32_t as_of_day,
                                        int32_t today)
{
    struct spw_rates_age age;
    age.days = today > as_of_day ? (uint32_t)(today - as_of_day) : 0;
    age.stale = age.days > fallback->max_age_warn_days;
    age.refused = age.days > fallback->max_age_refuse_days;
    return age;
}

void spw_conf_destroy(struct spw_conf *conf)
{
    if (conf)
        free(conf->accounts);
    free(conf);
}

/* ---- reload ---- */

static size_t accounts_room(const struct spw_conf *conf)
{
    return conf->accounts_count > SPW_CONF_ACCOUNTS_MAX_COUNT ? conf->accounts_count
                                                              : SPW_CONF_ACCOUNTS_MAX_COUNT;
}

struct spw_conf *spw_conf_copy(const struct spw_conf *conf)
{
    struct spw_conf *copy = malloc(sizeof *copy);
    struct spw_conf_account *accounts = calloc(accounts_room(conf), sizeof *accounts);
    if (!copy || !accounts) {
        free(copy);
        free(accounts);
        return NULL;
    }
    *copy = *conf;
    copy->accounts = accounts;
    memcpy(accounts, conf->accounts, conf->accounts_count * sizeof *accounts);
    return copy;
}

/* Limiters name integrations by place: a change of places changes their masks. */
static void swap_integrations(struct spw_conf_account *account, uint32_t a, uint32_t b)
{
    struct spw_conf_integration kept = account->integrations[a];
    account->integrations[a] = account->integrations[b];
    account->integrations[b] = kept;
    for (uint32_t i = 0; i < account->limiters_count; i++) {
        uint64_t *mask = &account->limiters[i].integrations;
        uint64_t differ = (*mask >> a ^ *mask >> b) & 1;
        *mask ^= differ << a | differ << b;
    }
}

static void align_integrations(struct spw_conf_account *fresh, const struct spw_conf_account *live)
{
    uint32_t placed = 0;
    for (uint32_t i = 0; i < live->integrations_count; i++) {
        for (uint32_t k = placed; k < fresh->integrations_count; k++) {
            if (strcmp(fresh->integrations[k].name, live->integrations[i].name) != 0)
                continue;
            for (uint32_t at = k; at > placed; at--)
                swap_integrations(fresh, at, at - 1);
            placed++;
            break;
        }
    }
}

void spw_conf_align(struct spw_conf *fresh, const struct spw_conf *live)
{
    uint32_t placed = 0;
    for (uint32_t i = 0; i < live->accounts_count; i++) {
        for (uint32_t k = placed; k < fresh->accounts_count; k++) {
            if (strcmp(fresh->accounts[k].name, live->accounts[i].name) != 0)
                continue;
            struct spw_conf_account found = fresh->accounts[k];
            memmove(&fresh->accounts[placed + 1], &fresh->accounts[placed],
                    (k - placed) * sizeof fresh->accounts[0]);
            align_integrations(&found, &live->accounts[i]);
            fresh->accounts[placed++] = found;
            break;
        }
    }
}

void spw_conf_take(struct spw_conf *live, const struct spw_conf *fresh)
{
    struct spw_conf_account *accounts = live->accounts;
    memcpy(accounts, fresh->accounts, fresh->accounts_count * sizeof *accounts);
    *live = *fresh;
    live->accounts = accounts;
}
