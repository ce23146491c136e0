/* credentials.c: see credentials.h.
 *
 * gRPC tells of a bad certificate only as a connection that failed: everything that can be seen in the files is looked
 * at here first.
 */
#include "sidecar/ctl/credentials.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PEM_MAX_BYTES ((size_t)256 << 10)

/* By their place in enum spw_ctl_tls. */
static const char *const options[SPW_CTL_TLS_COUNT] = {"--ca", "--cert", "--key"};
static const char *const variables[SPW_CTL_TLS_COUNT] = {"SPILLWAY_CA", "SPILLWAY_CERT", "SPILLWAY_KEY"};

int spw_credentials_settle(struct spw_ctl *ctl)
{
    bool socket = strncmp(ctl->address, "unix:", 5) == 0;
    int given = 0, missing = -1;
    for (int i = 0; i < SPW_CTL_TLS_COUNT; i++) {
        if (ctl->tls[i] && socket)
            return spw_ctl_usage(
                ctl, "%s is for --address HOST:PORT: who asks on a Unix socket is known by user id",
                options[i]);
        const char *set = getenv(variables[i]);
        if (!ctl->tls[i] && !socket && set && *set)
            ctl->tls[i] = set;
        given += ctl->tls[i] != NULL;
        if (!ctl->tls[i] && missing < 0)
            missing = i;
    }
    if (given == 0 || missing < 0)
        return SPW_CTL_OK;
    return spw_ctl_usage(ctl, "%s is missing (or %s): mutual TLS needs --ca, --cert and --key",
                         options[missing], variables[missing]);
}

/* NUL-terminated, to be freed; NULL = told. */
static char *read_pem(const struct spw_ctl *ctl, enum spw_ctl_tls which)
{
    const char *path = ctl->tls[which];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    char *text = fd < 0 ? NULL : calloc(1, PEM_MAX_BYTES + 1);
    size_t bytes = 0;
    ssize_t n = fd < 0 || !text ? -1 : 1;
    while (n > 0 && bytes < PEM_MAX_BYTES) {
        n = read(fd, text + bytes, PEM_MAX_BYTES - bytes);
        bytes += n > 0 ? (size_t)n : 0;
    }
    int error = errno;
    if (fd >= 0)
        close(fd);
    if (n == 0 && bytes)
        return text;
    free(text);
    spw_ctl_fail(ctl, SPW_CTL_REFUSED, "%s %s: %s: name a PEM file that you may read", options[which], path,
                 n < 0   ? strerror(error)
                 : bytes ? "is too large"
                         : "is empty");
    return NULL;
}

static int use(const struct spw_ctl *ctl, SSL_CTX *context)
{
    const char *ca = ctl->tls[SPW_CTL_TLS_CA], *cert = ctl->tls[SPW_CTL_TLS_CERT],
               *key = ctl->tls[SPW_CTL_TLS_KEY];
    if (!context)
        return spw_ctl_fail(ctl, SPW_CTL_REFUSED, "no memory for TLS");
    if (SSL_CTX_load_verify_locations(context, ca, NULL) != 1)
        return spw_ctl_fail(ctl, SPW_CTL_REFUSED,
                            "--ca %s: holds no certificate: name the authority of the sidecar's, as PEM", ca);
    if (SSL_CTX_use_certificate_chain_file(context, cert) != 1)
        return spw_ctl_fail(ctl, SPW_CTL_REFUSED, "--cert %s: holds no certificate: name yours, as PEM",
                            cert);
    if (SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_check_private_key(context) != 1)
        return spw_ctl_fail(ctl, SPW_CTL_REFUSED,
                            "--key %s: is not the key of --cert %s: name the one it was made with", key,
                            cert);
    if (X509_cmp_current_time(X509_get0_notAfter(SSL_CTX_get0_certificate(context))) < 0)
        return spw_ctl_fail(ctl, SPW_CTL_REFUSED, "--cert %s: has expired: have a new one signed", cert);
    return SPW_CTL_OK;
}

static int go_together(const struct spw_ctl *ctl)
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    int code = use(ctl, context);
    SSL_CTX_free(context);
    ERR_clear_error();
    return code;
}

static void wipe(char *text)
{
    if (text)
        explicit_bzero(text, strlen(text));
    free(text);
}

int spw_credentials_new(const struct spw_ctl *ctl, grpc_channel_credentials **out)
{
    char *pems[SPW_CTL_TLS_COUNT] = {NULL};
    int code = SPW_CTL_OK;
    *out = NULL;
    if (!ctl->tls[SPW_CTL_TLS_CA]) {
        *out = grpc_insecure_credentials_create();
        return SPW_CTL_OK;
    }
    for (int i = 0; i < SPW_CTL_TLS_COUNT && !code; i++) {
        pems[i] = read_pem(ctl, (enum spw_ctl_tls)i);
        code = pems[i] ? SPW_CTL_OK : SPW_CTL_REFUSED;
    }
    if (!code)
        code = go_together(ctl);
    if (!code) {
        grpc_ssl_pem_key_cert_pair pair = {pems[SPW_CTL_TLS_KEY], pems[SPW_CTL_TLS_CERT]};
        *out = grpc_ssl_credentials_create(pems[SPW_CTL_TLS_CA], &pair, NULL, NULL);
        code = *out ? SPW_CTL_OK
                    : spw_ctl_fail(ctl, SPW_CTL_REFUSED, "--ca, --cert and --key cannot be used for TLS");
    }
    for (int i = 0; i < SPW_CTL_TLS_COUNT; i++)
        wipe(pems[i]);
    return code;
}
