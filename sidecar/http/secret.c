/* secret.c: see secret.h. */
#include "sidecar/http/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sidecar/obs/log.h"

#define LOOK_NS UINT64_C(1000000000)

void spw_secret_init(struct spw_secret *secret, const struct spw_conf_secret *conf)
{
    memset(secret, 0, sizeof *secret);
    secret->conf = conf;
}

static void read_file(struct spw_secret *secret)
{
    char fresh[SPW_CONF_SECRET_MAX_BYTES + 3]; /* a line's end may follow */
    struct stat st;
    int fd = open(secret->conf->file, O_RDONLY | O_CLOEXEC);
    ssize_t n = -1;
    if (fd >= 0 && fstat(fd, &st) == 0) {
        /* The size too: the clock behind the times is coarse, and a file may be seen half written. */
        bool same = secret->value[0] && (uint64_t)st.st_ino == secret->inode &&
                    st.st_size == secret->size_bytes &&
                    memcmp(&st.st_mtim, &secret->modified, sizeof st.st_mtim) == 0;
        if (same) {
            close(fd);
            return;
        }
        n = read(fd, fresh, sizeof fresh);
    }
    int error = errno;
    if (fd >= 0)
        close(fd);
    size_t bytes = n > 0 ? spw_conf_secret_bytes(fresh, (size_t)n) : 0;
    if (bytes == 0) {
        spw_log(SPW_LOG_WARN, "secret.unreadable", "%s cannot be used (%s); %s", secret->conf->file,
                n < 0 ? strerror(error) : "it does not hold one key on one line without blanks",
                secret->value[0] ? "the last good one stays in use" : "there is none");
        explicit_bzero(fresh, sizeof fresh);
        return;
    }
    fresh[bytes] = 0;
    if (secret->value[0] && strcmp(secret->value, fresh) != 0)
        spw_log(SPW_LOG_INFO, "secret.rotated", "%s was read again", secret->conf->file);
    memcpy(secret->value, fresh, bytes + 1);
    explicit_bzero(fresh, sizeof fresh);
    secret->modified = st.st_mtim;
    secret->inode = (uint64_t)st.st_ino;
    secret->size_bytes = st.st_size;
}

const char *spw_secret_get(struct spw_secret *secret, uint64_t now_ns)
{
    if (secret->conf->env[0]) {
        const char *value = getenv(secret->conf->env);
        return value && value[0] ? value : NULL;
    }
    if (secret->checked_ns == 0 || now_ns - secret->checked_ns >= LOOK_NS) {
        read_file(secret);
        secret->checked_ns = now_ns;
    }
    return secret->value[0] ? secret->value : NULL;
}

void spw_secret_look(struct spw_secret *secret)
{
    secret->checked_ns = 0;
}

void spw_secret_clean_up(struct spw_secret *secret)
{
    explicit_bzero(secret->value, sizeof secret->value);
}
