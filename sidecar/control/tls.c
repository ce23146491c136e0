/* tls.c: see tls.h.
 *
 * gRPC asks before each handshake whether the certificates are still those it has. They are read again when one of the
 * three files has changed, and given to it only when they are good: a Secret is swapped file by file.
 */
#include "sidecar/control/tls.h"

#include <errno.h>
#include <fcntl.h>
#include <grpc/grpc_security_constants.h>
#include <grpc/support/alloc.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sidecar/obs/log.h"

#define PEM_MAX_BYTES (256u << 10)

enum { CERT, KEY, CLIENT_CA, FILES };

struct print {
    struct timespec modified;
    ino_t inode;
    off_t bytes;
};

struct spw_control_tls {
    struct spw_conf_control_tls conf; /* its own: a reload writes over the other */
    pthread_mutex_t lock;
    struct print taken[FILES]; /* of what gRPC has, or was refused */
    bool given;                /* gRPC has some */
};

static const char *path_of(const struct spw_control_tls *tls, int file)
{
    return file == CERT ? tls->conf.cert_file : file == KEY ? tls->conf.key_file : tls->conf.client_ca_file;
}

static bool look(const struct spw_control_tls *tls, struct print prints[FILES])
{
    bool all = true;
    memset(prints, 0, FILES * sizeof *prints); /* compared as bytes */
    for (int i = 0; i < FILES; i++) {
        struct stat st;
        all &= stat(path_of(tls, i), &st) == 0;
        prints[i] = (struct print){st.st_mtim, st.st_ino, st.st_size};
    }
    return all;
}

static void wipe(char *pems[FILES])
{
    for (int i = 0; i < FILES; i++) {
        if (pems[i])
            explicit_bzero(pems[i], strlen(pems[i]));
        gpr_free(pems[i]);
        pems[i] = NULL;
    }
}

/* NUL-terminated; NULL = it cannot be read. */
static char *read_pem(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    char *text = fd < 0 ? NULL : gpr_zalloc(PEM_MAX_BYTES + 1);
    size_t bytes = 0;
    ssize_t n = 1;
    while (text && n > 0 && bytes < PEM_MAX_BYTES) {
        n = read(fd, text + bytes, PEM_MAX_BYTES - bytes);
        bytes += n > 0 ? (size_t)n : 0;
    }
    if (fd >= 0)
        close(fd);
    if (text && bytes && n == 0)
        return text;
    gpr_free(text);
    return NULL;
}

/* Do certificate and key belong together, and are the authorities some? gRPC would find out at a handshake. */
static bool go_together(const struct spw_control_tls *tls)
{
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    bool good = context && SSL_CTX_use_certificate_chain_file(context, tls->conf.cert_file) == 1 &&
                SSL_CTX_use_PrivateKey_file(context, tls->conf.key_file, SSL_FILETYPE_PEM) == 1 &&
                SSL_CTX_check_private_key(context) == 1 &&
                SSL_CTX_load_verify_locations(context, tls->conf.client_ca_file, NULL) == 1;
    SSL_CTX_free(context);
    ERR_clear_error();
    return good;
}

static enum spw_status read_all(const struct spw_control_tls *tls, char *pems[FILES], struct spw_error *err)
{
    for (int i = 0; i < FILES; i++)
        pems[i] = NULL;
    if (!go_together(tls))
        return spw_error_set(
            err, SPW_STATUS_INVALID,
            "listen.control_tls: cert_file, key_file and client_ca_file cannot be used together: "
            "they are read as PEM, and the key has to be the certificate's");
    for (int i = 0; i < FILES; i++) {
        pems[i] = read_pem(path_of(tls, i));
        if (pems[i])
            continue;
        wipe(pems);
        return spw_error_set(err, SPW_STATUS_INVALID,
                             "listen.control_tls: %s cannot be read: let the sidecar read it",
                             path_of(tls, i));
    }
    return SPW_STATUS_OK;
}

static grpc_ssl_certificate_config_reload_status fetch(void *owner, grpc_ssl_server_certificate_config **out)
{
    struct spw_control_tls *tls = owner;
    struct print now[FILES];
    struct spw_error err = {0};
    char *pems[FILES];
    grpc_ssl_certificate_config_reload_status result = GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    pthread_mutex_lock(&tls->lock);
    bool changed = look(tls, now) && memcmp(now, tls->taken, sizeof now) != 0;
    if (changed || !tls->given) {
        memcpy(tls->taken, now, sizeof now);
        if (read_all(tls, pems, &err) == SPW_STATUS_OK) {
            const grpc_ssl_pem_key_cert_pair pair = {pems[KEY], pems[CERT]};
            *out = grpc_ssl_server_certificate_config_create(pems[CLIENT_CA], &pair, 1);
            wipe(pems);
            if (tls->given)
                spw_log(SPW_LOG_INFO, "control.tls",
                        "the certificates have changed: the new ones are in use");
            tls->given = true;
            result = GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
        } else {
            spw_log(SPW_LOG_ERROR, "control.tls", "%s. The last good ones stay in use", err.text);
            result = GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_FAIL;
        }
    }
    pthread_mutex_unlock(&tls->lock);
    return result;
}

enum spw_status spw_control_tls_check(const struct spw_conf_control_tls *conf, struct spw_error *err)
{
    struct spw_control_tls *tls = gpr_zalloc(sizeof *tls);
    char *pems[FILES];
    tls->conf = *conf;
    enum spw_status status = read_all(tls, pems, err);
    wipe(pems);
    gpr_free(tls);
    return status;
}

enum spw_status spw_control_tls_new(const struct spw_conf_control_tls *conf, struct spw_control_tls **out,
                                    grpc_server_credentials **credentials, struct spw_error *err)
{
    *out = NULL;
    enum spw_status status = spw_control_tls_check(conf, err);
    if (status != SPW_STATUS_OK)
        return status;
    struct spw_control_tls *tls = gpr_zalloc(sizeof *tls);
    tls->conf = *conf;
    pthread_mutex_init(&tls->lock, NULL);
    *credentials = grpc_ssl_server_credentials_create_with_options(
        grpc_ssl_server_credentials_create_options_using_config_fetcher(
            GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY, fetch, tls));
    *out = tls;
    return SPW_STATUS_OK;
}

void spw_control_tls_destroy(struct spw_control_tls *tls)
{
    if (!tls)
        return;
    pthread_mutex_destroy(&tls->lock);
    gpr_free(tls);
}

/* ---- roles ---- */

static enum spw_role best_of(const struct spw_control_tls *tls, grpc_auth_context *context,
                             const char *property, enum spw_role best)
{
    grpc_auth_property_iterator it = grpc_auth_context_find_properties_by_name(context, property);
    for (const grpc_auth_property *name; (name = grpc_auth_property_iterator_next(&it));) {
        for (uint32_t i = 0; i < tls->conf.roles_count; i++) {
            const char *known = tls->conf.roles[i].name;
            enum spw_role role = spw_role_of(tls->conf.roles[i].role);
            if (strlen(known) == name->value_length && memcmp(known, name->value, name->value_length) == 0 &&
                role > best)
                best = role;
        }
    }
    return best;
}

enum spw_role spw_control_tls_role(const struct spw_control_tls *tls, grpc_call *call)
{
    grpc_auth_context *context = grpc_call_auth_context(call);
    if (!context)
        return SPW_ROLE_NOTHING;
    enum spw_role best = SPW_ROLE_NOTHING;
    if (grpc_auth_context_peer_is_authenticated(context)) {
        best = best_of(tls, context, GRPC_X509_SAN_PROPERTY_NAME, best);
        best = best_of(tls, context, GRPC_X509_CN_PROPERTY_NAME, best);
    }
    grpc_auth_context_release(context);
    return best;
}
