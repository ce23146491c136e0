/* conf_refresh.c: the rules of fallback.refresh: whose published rates are fetched, and how often.
 *
 * Owns: spw_check_refreshes. Called by: conf_check.c. Thread: any; pure.
 */
#include <stdio.h>
#include <string.h>

#include "sidecar/conf/conf_check.h"
#include "sidecar/provider/provider.h"

#define EVERY_DEFAULT_S    86400u
#define EVERY_LEAST_MS     600000u
#define EVERY_MOST_MS      2592000000u
#define LEAST_ROWS_DEFAULT 800000u

static enum spw_status check_account(struct spw_check *c, const char *field, const char *name,
                                     const struct spw_conf *conf, struct spw_conf_refresh *out)
{
    if (!name)
        return spw_check_fault(c, field, "is missing: write the name of an account");
    enum spw_status status = spw_check_name(c, field, name, out->account, sizeof out->account);
    if (status)
        return status;
    if (strlen(name) > SPW_CONF_REFRESHED_NAME_MAX)
        return spw_check_fault(c, field, "has more than %u characters: name the account shorter",
                               SPW_CONF_REFRESHED_NAME_MAX);
    for (uint32_t i = 0; i < conf->fallback.refreshes_count; i++)
        if (!strcmp(conf->fallback.refreshes[i].account, name))
            return spw_check_fault(c, field, "%s is listed twice: remove one", name);
    for (uint32_t i = 0; i < conf->accounts_count; i++) {
        if (strcmp(conf->accounts[i].name, name) != 0)
            continue;
        const struct spw_profile *profile = spw_profile_find(conf->accounts[i].provider);
        if (profile && profile->rates)
            return SPW_STATUS_OK;
        return spw_check_fault(c, field, "%s is at provider %s, which publishes no rate table: remove it",
                               name, conf->accounts[i].provider);
    }
    return spw_check_fault(c, field, "%s is no account of this configuration", name);
}

static enum spw_status check_one(struct spw_check *c, size_t index, const Spillway__V1__RateRefreshConfig *in,
                                 const struct spw_conf *conf, struct spw_conf_refresh *out)
{
    char field[48];
    uint32_t every_ms = EVERY_DEFAULT_S * 1000;
    out->least_rows_ppm = LEAST_ROWS_DEFAULT;
    snprintf(field, sizeof field, "refresh[%zu].account", index);
    enum spw_status status = check_account(c, field, in->account, conf, out);
    snprintf(field, sizeof field, "refresh[%zu].every", index);
    if (!status)
        status = spw_check_duration(c, field, in->every, EVERY_LEAST_MS, EVERY_MOST_MS, &every_ms);
    out->every_s = every_ms / 1000;
    snprintf(field, sizeof field, "refresh[%zu].least_rows", index);
    return status ? status : spw_check_percent(c, field, in->least_rows, 1000000, &out->least_rows_ppm);
}

enum spw_status spw_check_refreshes(struct spw_check *c, const Spillway__V1__FallbackConfig *in,
                                    struct spw_conf *out)
{
    size_t count = in ? in->n_refresh : 0;
    snprintf(c->base, sizeof c->base, "fallback");
    if (count > SPW_CONF_REFRESHES_MAX_COUNT)
        return spw_check_fault(c, "refresh", "has %zu entries: at most %u", count,
                               SPW_CONF_REFRESHES_MAX_COUNT);
    for (size_t i = 0; i < count; i++) {
        struct spw_conf_refresh *one = &out->fallback.refreshes[out->fallback.refreshes_count];
        enum spw_status status = check_one(c, i, in->refresh[i], out, one);
        if (status)
            return status;
        out->fallback.refreshes_count++;
    }
    return SPW_STATUS_OK;
}
