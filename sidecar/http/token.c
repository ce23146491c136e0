/* token.c: the local token. See token.h. */
#include "sidecar/http/token.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

/* The file of an earlier start, if it can be trusted as much as one made now. */
static bool read_kept(struct spw_token *token, const char *path, uint32_t gid)
{
    char text[2 * SPW_TOKEN_BYTES + 2];
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return false;
    ssize_t bytes = read(fd, text, sizeof text);
    bool ok = bytes == 2 * SPW_TOKEN_BYTES && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
              st.st_uid == geteuid() && (st.st_mode & 07777) == 0640 &&
              (gid == UINT32_MAX || st.st_gid == gid);
    close(fd);
    for (int i = 0; ok && i < 2 * SPW_TOKEN_BYTES; i++)
        ok = (text[i] >= '0' && text[i] <= '9') || (text[i] >= 'a' && text[i] <= 'f');
    if (ok)
        memcpy(token->text, text, 2 * SPW_TOKEN_BYTES);
    explicit_bzero(text, sizeof text);
    return ok;
}

/* In place in one step: readers see the old one or the new one whole. */
static enum spw_status make(struct spw_token *token, const char *path, uint32_t gid, struct spw_error *err)
{
    static const char hex[] = "0123456789abcdef";
    uint8_t bytes[SPW_TOKEN_BYTES];
    char tmp[SPW_PATH_BYTES + 48];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return spw_error_set(err, SPW_STATUS_SYSTEM,
                             "%s: the kernel gives no random bytes for the token: try again", path);
    for (int i = 0; i < SPW_TOKEN_BYTES; i++) {
        token->text[2 * i] = hex[bytes[i] >> 4];
        token->text[2 * i + 1] = hex[bytes[i] & 15];
    }
    snprintf(tmp, sizeof tmp, "%s.tmp", path);
    unlink(tmp);
    int fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    bool ok = fd >= 0 && write(fd, token->text, 2 * SPW_TOKEN_BYTES) == 2 * SPW_TOKEN_BYTES &&
              (gid == UINT32_MAX || fchown(fd, (uid_t)-1, gid) == 0) && fchmod(fd, 0640) == 0;
    if (fd >= 0)
        close(fd);
    if (!ok || rename(tmp, path) != 0)
        return spw_error_set(err, SPW_STATUS_SYSTEM,
                             "%s: cannot be written (%s): segment.pub_dir must belong to the sidecar's user, "
                             "who must be in the group of segment.gid",
                             path, strerror(errno));
    return SPW_STATUS_OK;
}

enum spw_status spw_token_open(struct spw_token *token, const char *path, uint32_t gid, struct spw_error *err)
{
    memset(token, 0, sizeof *token);
    return read_kept(token, path, gid) ? SPW_STATUS_OK : make(token, path, gid, err);
}

void spw_token_open_file(struct spw_token *token, const char *path)
{
    memset(token, 0, sizeof *token);
    snprintf(token->conf.file, sizeof token->conf.file, "%s", path);
    spw_secret_init(&token->secret, &token->conf);
}

bool spw_token_matches(struct spw_token *token, const char *given, uint64_t now_ns)
{
    const char *wanted = token->conf.file[0] ? spw_secret_get(&token->secret, now_ns) : token->text;
    unsigned char different = 0;
    if (!wanted || !wanted[0] || strlen(given) != strlen(wanted))
        return false;
    for (size_t i = 0; wanted[i]; i++)
        different |= (unsigned char)((unsigned char)given[i] ^ (unsigned char)wanted[i]);
    return different == 0;
}

void spw_token_clean_up(struct spw_token *token)
{
    explicit_bzero(token->text, sizeof token->text);
    spw_secret_clean_up(&token->secret);
}
