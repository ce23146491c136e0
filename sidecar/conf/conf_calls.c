/* conf_calls.c: the rules of how an account's calls are made, and of its own door.
 *
 * Owns: spw_check_calls. Called by: conf_account.c. Thread: any. A proxy's password never gets into an error text.
 */
#include <string.h>

#include "sidecar/conf/conf_check.h"

#define REUSE_MAX_MS        86400000u
#define WAIT_MAX_MS         10000u
#define CONNECTIONS_MAX     256u
#define CONNECTIONS_DEFAULT 32u

static enum spw_status check_door(struct spw_check *c, const Spillway__V1__AccountConfig *in,
                                  struct spw_conf_account *out)
{
    struct spw_listen_address address;
    enum spw_status status = spw_check_listen(c, "listen", in->listen, true, out->listen, &address);
    if (status || !in->token_file)
        return status;
    if (!in->listen)
        return spw_check_fault(c, "token_file", "does nothing without listen: remove it, or set listen");
    status = spw_check_path(c, "token_file", in->token_file, out->token_file, sizeof out->token_file);
    return status ? status : spw_check_readable(c, "token_file", out->token_file);
}

static enum spw_status check_proxy(struct spw_check *c, const Spillway__V1__AccountConfig *in,
                                   struct spw_conf_account *out)
{
    static const char scheme[] = "http://";
    if (!in->proxy && in->proxy_credentials_file)
        return spw_check_fault(c, "proxy_credentials_file", "does nothing without proxy: remove it");
    if (!in->proxy)
        return SPW_STATUS_OK;
    if (strncmp(in->proxy, scheme, strlen(scheme)) != 0 || !spw_is_authority(in->proxy + strlen(scheme)))
        return spw_check_fault(
            c, "proxy",
            "must be http://host[:port] alone: no path, and user and password in proxy_credentials_file");
    enum spw_status status = spw_check_text(c, "proxy", in->proxy, out->proxy, sizeof out->proxy);
    if (status || !in->proxy_credentials_file)
        return status;
    status = spw_check_path(c, "proxy_credentials_file", in->proxy_credentials_file,
                            out->proxy_credentials.file, sizeof out->proxy_credentials.file);
    return status ? status : spw_check_readable(c, "proxy_credentials_file", out->proxy_credentials.file);
}

enum spw_status spw_check_calls(struct spw_check *c, const Spillway__V1__AccountConfig *in,
                                struct spw_conf_account *out)
{
    out->connections_count = CONNECTIONS_DEFAULT;
    out->allow_force = in->has_allow_force && in->allow_force;
    enum spw_status status = spw_check_duration(c, "reuse", in->reuse, 0, REUSE_MAX_MS, &out->reuse_ms);
    if (!status)
        status = spw_check_duration(c, "wait", in->wait, 0, WAIT_MAX_MS, &out->wait_ms);
    if (!status)
        status = spw_check_count(c, "connections", in->has_connections, in->connections, 1, CONNECTIONS_MAX,
                                 &out->connections_count);
    if (!status)
        status = check_door(c, in, out);
    return status ? status : check_proxy(c, in, out);
}
