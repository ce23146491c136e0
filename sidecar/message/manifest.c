/* manifest.c: see manifest.h. */
#include "sidecar/message/manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "shm/spw_text.h"

#define PATH_ROOM 4352

void spw_manifest_init(struct spw_manifest *manifest)
{
    memset(manifest, 0, sizeof *manifest);
    manifest->contiguous = true;
}

static struct spw_manifest_group *group_of(struct spw_manifest_group *groups, uint32_t *count, uint32_t most,
                                           const char *key)
{
    for (uint32_t i = 0; i < *count; i++) {
        if (strcmp(groups[i].key, key) == 0)
            return &groups[i];
    }
    if (*count == most)
        return NULL;
    struct spw_manifest_group *group = &groups[(*count)++];
    snprintf(group->key, sizeof group->key, "%s", key);
    return group;
}

/* Sums of absurd amounts stay at the end of the range. */
static void add(int64_t *sum, const Spillway__V1__Money *money)
{
    int64_t value = money && money->has_minor ? money->minor : 0, result;
    *sum = __builtin_add_overflow(*sum, value, &result) ? (value > 0 ? INT64_MAX : INT64_MIN) : result;
}

static void add_to(struct spw_manifest *manifest, struct spw_manifest_group *group,
                   const Spillway__V1__Flag *flag)
{
    if (!group) {
        manifest->overflow = true;
        return;
    }
    const Spillway__V1__Money *variance = flag->reconciliation ? flag->reconciliation->variance : NULL;
    group->flags_count++;
    group->orders_count += flag->has_orders_count ? flag->orders_count : 0;
    add(&group->taxable_minor, flag->taxable);
    add(&group->tax_minor, flag->tax);
    if (flag->has_orders_count && flag->orders_count && flag->order)
        add(&group->collected_minor, flag->order->tax_collected);
    if (variance)
        add(variance->minor > 0 ? &group->over_minor : &group->under_minor, variance);
}

void spw_manifest_add(struct spw_manifest *manifest, const Spillway__V1__Flag *flag)
{
    char key[48];
    const Spillway__V1__FlagDestination *to = flag->destination;
    const char *currency = flag->currency ? flag->currency : "";
    if (!manifest->flags_count || flag->sequence < manifest->first_sequence)
        manifest->first_sequence = flag->sequence;
    if (manifest->flags_count && flag->sequence != manifest->previous_sequence + 1)
        manifest->contiguous = false;
    manifest->flags_count++;
    manifest->previous_sequence = flag->sequence;
    if (flag->sequence > manifest->last_sequence)
        manifest->last_sequence = flag->sequence;
    if (flag->change > manifest->newest_change)
        manifest->newest_change = flag->change;
    snprintf(key, sizeof key, "%s %s", flag->state ? flag->state : "", currency);
    add_to(manifest, group_of(manifest->by_state, &manifest->states_count, 32, key), flag);
    snprintf(key, sizeof key, "%s-%s %s", to && to->country ? to->country : "",
             to && to->state ? to->state : "", currency);
    add_to(manifest, group_of(manifest->by_place, &manifest->groups_count, SPW_MANIFEST_GROUPS_MAX, key),
           flag);
}

static json_t *decimal(int64_t minor)
{
    char buffer[40];
    struct spw_text text = spw_text_on(buffer, sizeof buffer);
    spw_text_decimal(&text, minor, 2, false);
    return json_string(buffer);
}

static json_t *totals(const struct spw_manifest_group *groups, uint32_t count)
{
    json_t *object = json_object();
    for (uint32_t i = 0; i < count; i++) {
        const struct spw_manifest_group *g = &groups[i];
        json_object_set_new(object, g->key,
                            json_pack("{s:I, s:I, s:o, s:o, s:o, s:o, s:o}", "flags",
                                      (json_int_t)g->flags_count, "orders", (json_int_t)g->orders_count,
                                      "taxable", decimal(g->taxable_minor), "tax", decimal(g->tax_minor),
                                      "tax_collected", decimal(g->collected_minor), "over_collected",
                                      decimal(g->over_minor), "under_collected", decimal(g->under_minor)));
    }
    return object;
}

/* SHA-256 of what is on the disk, as hex digits. */
static enum spw_status digest(const char *path, char hex[65], uint64_t *bytes, struct spw_error *err)
{
    static const char digits[] = "0123456789abcdef";
    unsigned char buffer[65536], out[32];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    ssize_t n = fd < 0 || !context || !EVP_DigestInit_ex(context, EVP_sha256(), NULL) ? -1 : 1;
    for (*bytes = 0; n > 0;) {
        n = read(fd, buffer, sizeof buffer);
        if (n > 0) {
            *bytes += (uint64_t)n;
            n = EVP_DigestUpdate(context, buffer, (size_t)n) ? n : -1;
        }
    }
    bool good = n == 0 && EVP_DigestFinal_ex(context, out, NULL);
    for (int i = 0; good && i < 32; i++) {
        hex[2 * i] = digits[out[i] >> 4];
        hex[2 * i + 1] = digits[out[i] & 15];
    }
    hex[64] = 0;
    EVP_MD_CTX_free(context);
    if (fd >= 0)
        close(fd);
    return good ? SPW_STATUS_OK
                : spw_error_set(err, SPW_STATUS_SYSTEM, "%s: cannot be read again: %s; check its volume",
                                path, strerror(errno));
}

enum spw_status spw_directory_sync(const char *path, struct spw_error *err)
{
    char dir[PATH_ROOM];
    const char *slash = strrchr(path, '/');
    snprintf(dir, sizeof dir, "%.*s",
             slash == path ? 1
             : slash       ? (int)(slash - path)
                           : 1,
             slash ? path : ".");
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool good = fd >= 0 && fsync(fd) == 0;
    if (!good)
        spw_error_set(err, SPW_STATUS_SYSTEM, "%s: cannot be brought to disk: %s; check its volume", dir,
                      strerror(errno));
    if (fd >= 0)
        close(fd);
    return good ? SPW_STATUS_OK : SPW_STATUS_SYSTEM;
}

/* Bytes under a name that appears only when they are all on the disk. */
static enum spw_status put_file(const char *path, const char *text, struct spw_error *err)
{
    char partial[PATH_ROOM + 16];
    snprintf(partial, sizeof partial, "%s.partial", path);
    FILE *file = fopen(partial, "we");
    bool good = file && fputs(text, file) >= 0 && fputc('\n', file) != EOF && fflush(file) == 0 &&
                fsync(fileno(file)) == 0;
    int failed = errno;
    if (file && fclose(file) != 0)
        good = false;
    if (good && rename(partial, path) == 0)
        return spw_directory_sync(path, err);
    failed = good ? errno : failed;
    unlink(partial);
    return spw_error_set(err, failed == ENOSPC ? SPW_STATUS_NO_SPACE : SPW_STATUS_SYSTEM,
                         "%s: cannot be written: %s; make room, or name another place", path,
                         strerror(failed));
}

enum spw_status spw_manifest_write(const struct spw_manifest *manifest, const char *path,
                                   const char *final_path, const char *format, bool complete,
                                   struct spw_error *err)
{
    char hex[65], name[PATH_ROOM];
    uint64_t bytes;
    enum spw_status status = digest(path, hex, &bytes, err);
    if (status != SPW_STATUS_OK)
        return status;
    const char *slash = strrchr(final_path, '/');
    json_t *root =
        json_pack("{s:s, s:s, s:s, s:I, s:b, s:I, s:I, s:I, s:I, s:b, s:I, s:o, s:o}", "file",
                  slash ? slash + 1 : final_path, "format", format, "sha256", hex, "bytes", (json_int_t)bytes,
                  "complete", complete, "flags", (json_int_t)manifest->flags_count, "first_sequence",
                  (json_int_t)manifest->first_sequence, "last_sequence", (json_int_t)manifest->last_sequence,
                  "newest_change", (json_int_t)manifest->newest_change, "contiguous", manifest->contiguous,
                  "written_unix_s", (json_int_t)time(NULL), "by_flag_state",
                  totals(manifest->by_state, manifest->states_count), "by_ship_to",
                  totals(manifest->by_place, manifest->groups_count));
    if (root && manifest->overflow)
        json_object_set_new(root, "totals_cut", json_true());
    char *text = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
    json_decref(root);
    if (!text)
        return spw_error_set(err, SPW_STATUS_NO_MEMORY, "%s: no memory for its manifest", final_path);
    snprintf(name, sizeof name, "%s.manifest.json", final_path);
    status = put_file(name, text, err);
    free(text);
    return status;
}
