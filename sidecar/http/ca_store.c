/* ca_store.c: trusted authorities, parsed once and shared by all connections. See ca_store.h.
 *
 * libcurl would parse the bundle in the first connection's handshake, on the loop: the system's takes some 190 ms, in
 * which no other caller is served. So it is parsed before the doors open, and a changed file on a thread of its own.
 */
#include "sidecar/http/ca_store.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <openssl/err.h>
#include <openssl/ssl.h>

#include "sidecar/obs/log.h"

#define LOOK_NS UINT64_C(1000000000)

struct spw_ca_store {
    struct spw_ca_store *next;
    uint32_t users_count;
    char *path;
    X509_STORE *parsed;
    struct stat seen;
    uint64_t looked_ns;
    struct spw_loop *loop;
    /* A parse under way. The thread writes fresh and posts the task; nothing else of it is shared. */
    struct spw_loop_task task;
    pthread_t thread;
    bool parsing;
    X509_STORE *fresh;
};

static struct spw_ca_store *stores; /* of the loop thread */

static X509_STORE *parse(const char *path)
{
    X509_STORE *store = X509_STORE_new();
    if (store && X509_STORE_load_file(store, path) != 1) {
        X509_STORE_free(store);
        store = NULL;
    }
    ERR_clear_error();
    return store;
}

struct spw_ca_store *spw_ca_store_open(struct spw_loop *loop, const char *path, struct spw_error *err)
{
    struct spw_ca_store *s = stores;
    while (s && (strcmp(s->path, path) != 0 || s->loop != loop))
        s = s->next;
    if (s) {
        s->users_count++;
        return s;
    }
    s = calloc(1, sizeof *s);
    if (s)
        s->path = strdup(path);
    if (s && s->path && stat(path, &s->seen) == 0)
        s->parsed = parse(path);
    if (!s || !s->parsed) {
        (void)spw_error_set(
            err, SPW_STATUS_INVALID,
            "%s: cannot be read as certificate authorities: name a readable PEM file that holds "
            "at least one certificate",
            path);
        if (s)
            free(s->path);
        free(s);
        return NULL;
    }
    s->loop = loop;
    s->users_count = 1;
    s->next = stores;
    stores = s;
    return s;
}

void spw_ca_store_close(struct spw_ca_store *s)
{
    if (!s || --s->users_count > 0)
        return;
    struct spw_ca_store **at = &stores;
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    if (s->parsing) { /* its task is dropped with the loop, which does not run any more */
        pthread_join(s->thread, NULL);
        X509_STORE_free(s->fresh);
    }
    X509_STORE_free(s->parsed);
    free(s->path);
    free(s);
}

/* ---- a changed file ---- */

static void parsed_anew(struct spw_loop *loop, struct spw_loop_task *task)
{
    struct spw_ca_store *s = task->owner;
    (void)loop;
    pthread_join(s->thread, NULL);
    s->parsing = false;
    if (!s->fresh) {
        spw_log(SPW_LOG_WARN, "ca.unreadable",
                "%s changed and cannot be read as certificate authorities; the last good ones stay in use",
                s->path);
        return;
    }
    X509_STORE_free(s->parsed);
    s->parsed = s->fresh;
    s->fresh = NULL;
    spw_log(SPW_LOG_INFO, "ca.rotated", "%s was read again", s->path);
}

static void *parse_apart(void *owner)
{
    struct spw_ca_store *s = owner;
    s->fresh = parse(s->path);
    spw_loop_post(s->loop, &s->task);
    return NULL;
}

static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_size == b->st_size &&
           memcmp(&a->st_mtim, &b->st_mtim, sizeof a->st_mtim) == 0;
}

X509_STORE *spw_ca_store_get(struct spw_ca_store *s, uint64_t now_ns)
{
    struct stat now;
    if (s->parsing || (s->looked_ns && now_ns - s->looked_ns < LOOK_NS))
        return s->parsed;
    s->looked_ns = now_ns;
    if (stat(s->path, &now) != 0 || is_same(&now, &s->seen))
        return s->parsed;
    s->seen = now;
    s->task.fn = parsed_anew;
    s->task.owner = s;
    s->fresh = NULL;
    s->parsing = pthread_create(&s->thread, NULL, parse_apart, s) == 0;
    return s->parsed;
}
