/* rates_file.c: a rate table's bytes from a file, plain or gzip.
 *
 * Owns: spw_rates_load. Called by: main, spillwayctl. Thread: any. Gzip is told by its two magic bytes, never by the
 * file's name, and may hold several members; each one's checksum is checked, so what was cut short within one is refused.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "sidecar/rates/rates.h"

/* Above the largest published boundary file of one state; also stops a gzip bomb. */
#define TEXT_MAX_BYTES ((size_t)128 << 20)
#define CHUNK_BYTES    ((size_t)1 << 20)
#define GZIP_WINDOW    (15 + 16) /* largest window, gzip form */

struct bytes {
    char *data;
    size_t count, room_count;
};

static enum spw_status reserve(struct bytes *b, const char *path, struct spw_error *err)
{
    if (b->room_count - b->count >= CHUNK_BYTES)
        return SPW_STATUS_OK;
    size_t room = b->room_count ? b->room_count * 2 : 2 * CHUNK_BYTES;
    char *grown = realloc(b->data, room);
    if (!grown)
        return spw_error_set(err, SPW_STATUS_NO_MEMORY, "%s: no memory for the rate table", path);
    b->data = grown;
    b->room_count = room;
    return SPW_STATUS_OK;
}

static enum spw_status check_size(const struct bytes *b, const char *path, struct spw_error *err)
{
    if (b->count <= TEXT_MAX_BYTES)
        return SPW_STATUS_OK;
    return spw_error_set(err, SPW_STATUS_INVALID, "%s: larger than %zu bytes: split it by states", path,
                         TEXT_MAX_BYTES);
}

static enum spw_status read_all(const char *path, struct bytes *out, struct spw_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return spw_error_set(err, errno == ENOENT ? SPW_STATUS_NOT_FOUND : SPW_STATUS_SYSTEM,
                             "%s: cannot be opened (%s): mount the rate table, and let the sidecar read it",
                             path, strerror(errno));
    struct stat st;
    enum spw_status status = SPW_STATUS_OK;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode))
        status = spw_error_set(err, SPW_STATUS_INVALID, "%s: is no regular file: name the file itself", path);
    while (!status && !(status = reserve(out, path, err))) {
        ssize_t n = read(fd, out->data + out->count, CHUNK_BYTES);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            status = spw_error_set(err, SPW_STATUS_SYSTEM, "%s: cannot be read (%s): check its volume", path,
                                   strerror(errno));
        if (n <= 0)
            break;
        out->count += (size_t)n;
        status = check_size(out, path, err);
    }
    close(fd);
    return status;
}

/* All members of the stream, up to the end of the input. */
static enum spw_status inflate_all(z_stream *z, const char *path, struct bytes *out, struct spw_error *err)
{
    int result = Z_OK;
    do {
        if (result == Z_STREAM_END && inflateReset(z) != Z_OK)
            return spw_error_set(err, SPW_STATUS_NO_MEMORY, "%s: no memory for the rate table", path);
        enum spw_status status = reserve(out, path, err);
        if (status)
            return status;
        z->next_out = (Bytef *)out->data + out->count;
        z->avail_out = (uInt)CHUNK_BYTES;
        result = inflate(z, Z_NO_FLUSH);
        out->count += CHUNK_BYTES - z->avail_out;
        if ((status = check_size(out, path, err)))
            return status;
    } while (result == Z_OK || (result == Z_STREAM_END && z->avail_in));
    if (result == Z_STREAM_END)
        return SPW_STATUS_OK;
    return spw_error_set(err, SPW_STATUS_CORRUPT,
                         "%s: the gzip data is damaged or cut short (%s): copy the file again", path,
                         z->msg ? z->msg : "unexpected end");
}

static enum spw_status gunzip(const char *path, const struct bytes *in, struct bytes *out,
                              struct spw_error *err)
{
    z_stream z = {.next_in = (Bytef *)in->data, .avail_in = (uInt)in->count};
    if (inflateInit2(&z, GZIP_WINDOW) != Z_OK)
        return spw_error_set(err, SPW_STATUS_NO_MEMORY, "%s: no memory for the rate table", path);
    enum spw_status status = inflate_all(&z, path, out, err);
    inflateEnd(&z);
    return status;
}

static bool is_gzip(const struct bytes *b)
{
    return b->data && b->count >= 2 && (unsigned char)b->data[0] == 0x1F && (unsigned char)b->data[1] == 0x8B;
}

/* One file's text, gunzipped; the caller frees it. */
static enum spw_status read_text(const char *path, struct bytes *out, struct spw_error *err)
{
    struct bytes raw = {0}, text = {0};
    enum spw_status status = read_all(path, &raw, err);
    if (status || !is_gzip(&raw)) {
        *out = raw;
        return status;
    }
    status = gunzip(path, &raw, &text, err);
    free(raw.data);
    *out = text;
    return status;
}

enum spw_status spw_rates_load_set(const char *const *paths, size_t paths_count,
                                   const struct spw_rates_options *options, struct spw_rates_table *table,
                                   struct spw_error *err)
{
    enum spw_status status = SPW_STATUS_OK;
    *table = (struct spw_rates_table){0};
    struct bytes *texts = calloc(paths_count + 1, sizeof *texts);
    struct spw_rates_bytes *files = calloc(paths_count + 1, sizeof *files);
    if (!texts || !files) {
        free(texts);
        free(files);
        return spw_error_set(err, SPW_STATUS_NO_MEMORY, "rates: no memory for the rate table");
    }
    for (size_t i = 0; i < paths_count && !status; i++) {
        status = read_text(paths[i], &texts[i], err);
        files[i] = (struct spw_rates_bytes){paths[i], texts[i].data ? texts[i].data : "", texts[i].count};
    }
    if (!status)
        status = spw_rates_parse_set(files, paths_count, options, table, err);
    for (size_t i = 0; i < paths_count; i++)
        free(texts[i].data);
    free(texts);
    free(files);
    return status;
}

enum spw_status spw_rates_load(const char *path, const struct spw_rates_options *options,
                               struct spw_rates_table *table, struct spw_error *err)
{
    return spw_rates_load_set(&path, 1, options, table, err);
}
