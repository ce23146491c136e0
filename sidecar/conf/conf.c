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
#include "sidecar/conf/conf_yaml.h"

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

/* A file that was read, on its way to be a configuration. */
struct reading {
    const char *name;
    struct wanted wanted;
    Spillway__V1__Config *message;
    struct spw_yaml_places *places;
};

static enum spw_status check_message(const struct reading *r, struct spw_conf **out, struct spw_error *err)
{
    struct spw_conf *conf = calloc(1, sizeof *conf);
    *out = NULL;
    if (!conf)
        return spw_error_set(err, SPW_STATUS_NO_MEMORY, "%s: no memory for the configuration", r->name);
    struct spw_check check = {.name = r->name,
                              .places = r->places,
                              .references = r->wanted.references,
                              .any_count = r->wanted.any_count,
                              .err = err};
    enum spw_status status = spw_check_config(&check, r->message, conf);
    for (uint32_t i = 0; status == SPW_STATUS_OK && i < conf->accounts_count; i++) {
        struct spw_conf_account *a = &conf->accounts[i];
        a->file_says = (struct spw_conf_file_says){
            .limit = a->limit, .limit_mode = a->limit_mode, .breaker = a->breaker};
    }
    if (status)
        spw_conf_destroy(conf);
    else
        *out = conf;
    return status;
}

/* What was set by hand and is kept, beside the store: *conf, which is the file's own, becomes another. */
static enum spw_status lay_overlay(const struct reading *r, struct spw_conf **conf, struct spw_error *err)
{
    char path[SPW_PATH_BYTES + 32];
    struct spw_conf *file = *conf, *laid_over;
    struct spw_overlay_kept *kept = calloc(file->accounts_count + 1, sizeof *kept);
    bool laid = false;
    if (!kept)
        return spw_error_set(err, SPW_STATUS_NO_MEMORY, "%s: no memory for the configuration", r->name);
    spw_overlay_path(file->store_file, path, sizeof path);
    enum spw_status status = spw_overlay_lay(path, r->message, kept, &laid, err);
    if (status == SPW_STATUS_OK && laid) {
        status = check_message(r, &laid_over, err);
        if (status)
            spw_error_prefix(err, "with %s laid over it: ", path);
        for (uint32_t i = 0; status == SPW_STATUS_OK && i < file->accounts_count; i++) {
            struct spw_conf_file_says *says = &laid_over->accounts[i].file_says;
            *says = file->accounts[i].file_says;
            says->limit_kept = kept[i].limit;
            says->mode_kept = kept[i].mode;
            says->breaker_kept = kept[i].breaker;
        }
        if (status == SPW_STATUS_OK) {
            spw_conf_destroy(file);
            *conf = laid_over;
        }
    }
    free(kept);
    return status;
}

static void places_destroy(struct spw_yaml_places *places)
{
    if (places)
        spw_yaml_places_clean_up(places);
    free(places);
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
    struct spw_conf *conf = NULL;
    struct reading reading = {
        .name = name, .wanted = wanted, .places = calloc(1, sizeof(struct spw_yaml_places))};
    if (!reading.places)
        return spw_error_set(err, SPW_STATUS_NO_MEMORY, "%s: no memory for the configuration", name);
    status =
        spw_yaml_read(name, text, bytes, &spillway__v1__config__descriptor, &message, reading.places, err);
    reading.message = (Spillway__V1__Config *)(void *)message;
    if (!status)
        status =
            check_message(&reading, &conf, err); /* alone first: what is laid over it hides no fault of it */
    if (!status && wanted.references)
        status = lay_overlay(&reading, &conf, err);
    if (message)
        protobuf_c_message_free_unpacked(message, NULL);
    if (status || !conf) {
        places_destroy(reading.places);
        spw_conf_destroy(conf);
        return status;
    }
    conf->places = reading.places;
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
    if (conf) {
        free(conf->accounts);
        places_destroy(conf->places);
    }
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
    copy->places = NULL;
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
    struct spw_yaml_places *places = live->places;
    memcpy(accounts, fresh->accounts, fresh->accounts_count * sizeof *accounts);
    *live = *fresh;
    live->accounts = accounts;
    live->places = places;
}

void spw_conf_keep(struct spw_conf *fresh, const struct spw_conf *live)
{
    for (uint32_t i = 0; i < live->accounts_count && i < fresh->accounts_count; i++) {
        const struct spw_conf_account *from = &live->accounts[i];
        struct spw_conf_account *to = &fresh->accounts[i];
        if (strcmp(from->name, to->name) != 0)
            continue;
        if (from->file_says.limit_kept) {
            enum spw_limiter_kind kind = to->limit.kind;
            to->limit = from->limit;
            to->limit.kind = kind;
            spw_conf_limit_complete(&to->limit);
        }
        if (from->file_says.mode_kept)
            to->limit_mode = from->limit_mode;
        if (from->file_says.breaker_kept)
            to->breaker = from->breaker;
    }
}

void spw_conf_locate(const struct spw_conf *conf, const char *name, struct spw_error *err)
{
    char path[SPW_CONF_PATH_BYTES];
    const char *end = strstr(err->text, ": ");
    const struct spw_yaml_place *place = NULL;
    if (conf->places && end && (size_t)(end - err->text) < sizeof path) {
        memcpy(path, err->text, (size_t)(end - err->text));
        path[end - err->text] = 0;
        place = spw_yaml_places_find(conf->places, path);
    }
    if (place)
        spw_error_prefix(err, "%s:%u:%u: ", name, place->line, place->column);
    else
        spw_error_prefix(err, "%s: ", name);
}
