/* conf_control.c: who may use the control API: by user id, and by certificate over mutual TLS.
 *
 * Owns: spw_check_control. Called by: conf_check.c. Thread: any.
 */
#include <stdio.h>
#include <string.h>

#include "sidecar/conf/conf_check.h"

static enum spw_conf_role role_of(Spillway__V1__ControlRole role)
{
    return role == SPILLWAY__V1__CONTROL_ROLE__CONTROL_ROLE_ADMIN     ? SPW_CONF_ADMIN
           : role == SPILLWAY__V1__CONTROL_ROLE__CONTROL_ROLE_OPERATE ? SPW_CONF_OPERATE
                                                                      : SPW_CONF_READ;
}

static enum spw_status check_file(struct spw_check *c, const char *field, const char *text, char *out,
                                  const char *missing)
{
    char path[64];
    snprintf(path, sizeof path, "control_tls.%s", field);
    if (!text)
        return spw_check_fault(c, "control_tls", "%s is missing: write the path of %s", field, missing);
    enum spw_status status = spw_check_path(c, path, text, out, SPW_PATH_BYTES);
    return status
               ? status
               : spw_check_pem(c, path, out, strcmp(field, "key_file") == 0 ? "PRIVATE KEY" : "CERTIFICATE");
}

static enum spw_status check_roles(struct spw_check *c, const Spillway__V1__ControlTlsConfig *in,
                                   struct spw_conf_control_tls *out)
{
    if (!in->n_roles)
        return spw_check_fault(
            c, "control_tls",
            "roles is missing: name the certificates that may do something, as on-call: operate");
    if (in->n_roles > SPW_CONF_ROLES_MAX_COUNT)
        return spw_check_fault(c, "control_tls.roles", "has %zu entries: at most %u", in->n_roles,
                               SPW_CONF_ROLES_MAX_COUNT);
    for (size_t i = 0; i < in->n_roles; i++) {
        char field[SPW_CONF_PATH_BYTES];
        const char *name = in->roles[i]->key;
        snprintf(field, sizeof field, "control_tls.roles.%.*s", 200, name);
        if (!name[0])
            return spw_check_fault(c, "control_tls.roles", "has an empty name: write a certificate's name");
        enum spw_status status =
            spw_check_text(c, field, name, out->roles[i].name, sizeof out->roles[i].name);
        if (status)
            return status;
        out->roles[i].role = role_of(in->roles[i]->value);
        out->roles_count++;
    }
    return SPW_STATUS_OK;
}

static enum spw_status check_tls(struct spw_check *c, const Spillway__V1__ControlTlsConfig *in,
                                 struct spw_conf_control_tls *out, struct spw_listen_address *address)
{
    if (!in->address)
        return spw_check_fault(c, "control_tls",
                               "address is missing: write one to listen on, as 0.0.0.0:8393");
    enum spw_status status =
        spw_check_listen(c, "control_tls.address", in->address, false, out->address, address);
    if (!status)
        status = check_file(c, "cert_file", in->cert_file, out->cert_file, "the sidecar's certificate");
    if (!status)
        status = check_file(c, "key_file", in->key_file, out->key_file, "its private key");
    if (!status)
        status = check_file(c, "client_ca_file", in->client_ca_file, out->client_ca_file,
                            "the authorities that sign clients' certificates");
    return status ? status : check_roles(c, in, out);
}

static bool read_uid(const char *text, uint32_t *out)
{
    uint64_t value = 0;
    size_t digits = strspn(text, "0123456789");
    if (!digits || digits > 10 || text[digits])
        return false;
    for (; *text; text++)
        value = value * 10 + (uint64_t)(*text - '0');
    *out = (uint32_t)value;
    return value < UINT32_MAX;
}

enum spw_status spw_check_control(struct spw_check *c, const Spillway__V1__ListenConfig *in,
                                  struct spw_conf *out, struct spw_listen_address *tls)
{
    if (in->n_control_uids > SPW_CONF_UIDS_MAX_COUNT)
        return spw_check_fault(c, "control_uids", "has %zu entries: at most %u", in->n_control_uids,
                               SPW_CONF_UIDS_MAX_COUNT);
    for (size_t i = 0; i < in->n_control_uids; i++) {
        struct spw_conf_control_uid *one = &out->control_uids[i];
        if (!read_uid(in->control_uids[i]->key, &one->uid))
            return spw_check_fault(c, "control_uids",
                                   "has a key that is no user id: write digits, as \"1000\"");
        one->role = role_of(in->control_uids[i]->value);
        out->control_uids_count++;
    }
    return in->control_tls ? check_tls(c, in->control_tls, &out->control_tls, tls) : SPW_STATUS_OK;
}
