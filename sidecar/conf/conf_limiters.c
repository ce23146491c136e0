/* conf_limiters.c: an account's limit, the limiters beside it, and the pauses before a further try.
 *
 * Owns: spw_check_limit, spw_check_limiters. Called by: conf_account.c. Thread: any.
 */
#include <stdio.h>
#include <string.h>

#include "sidecar/conf/conf_check.h"
#include "sidecar/provider/provider.h"

#define RETRY_BASE_MIN_MS 10u
#define RETRY_BASE_MAX_MS 60000u
#define RETRY_MOST_MAX_MS 600000u
#define NS_PER_MS         UINT64_C(1000000)

static enum spw_limiter_kind kind_of(bool has, Spillway__V1__LimiterKind kind)
{
    if (has && kind == SPILLWAY__V1__LIMITER_KIND__LIMITER_KIND_LEAKY)
        return SPW_LIMITER_LEAKY;
    return has && kind == SPILLWAY__V1__LIMITER_KIND__LIMITER_KIND_WINDOW ? SPW_LIMITER_WINDOW
                                                                          : SPW_LIMITER_BUCKET;
}

static enum spw_limiter_mode mode_of(bool has, Spillway__V1__LimiterMode mode)
{
    if (has && mode == SPILLWAY__V1__LIMITER_MODE__LIMITER_MODE_OBSERVE)
        return SPW_LIMITER_OBSERVE;
    return has && mode == SPILLWAY__V1__LIMITER_MODE__LIMITER_MODE_OFF ? SPW_LIMITER_OFF
                                                                       : SPW_LIMITER_ENFORCE;
}

/* Rate, burst and kind as written; pods_count is set. base is "limit" or "limiters[0]". */
static enum spw_status check_one(struct spw_check *c, const char *base, const char *rate, bool has_burst,
                                 uint64_t burst, struct spw_conf_limit *out)
{
    char path[SPW_CONF_PATH_BYTES];
    snprintf(path, sizeof path, "%s.rate", base);
    if (!rate)
        return spw_check_fault(c, path, "is missing: write the published rate of the account, as 100/s");
    enum spw_status status = spw_parse_rate(rate, &out->rate, c->err);
    if (status)
        return spw_check_place(c, path, status);
    if (has_burst && out->kind != SPW_LIMITER_BUCKET) {
        snprintf(path, sizeof path, "%s.burst", base);
        return spw_check_fault(c, path, "is of a bucket alone: remove it, or write kind: bucket");
    }
    out->burst_count = has_burst ? burst : spw_limit_default_burst(&out->rate);
    spw_conf_limit_complete(out);
    const char *field = "";
    status = spw_limit_check(out, &field, c->err);
    snprintf(path, sizeof path, "%s.%s", base, field);
    return status ? spw_check_place(c, path, status) : SPW_STATUS_OK;
}

enum spw_status spw_check_limit(struct spw_check *c, const Spillway__V1__LimitConfig *in,
                                struct spw_conf_account *out)
{
    if (!in)
        return spw_check_fault(
            c, "limit",
            "is missing: write the provider's published limit and how many pods share it, as "
            "{rate: 100/s, burst: 250, pods: 40}");
    out->limit.pods_count = in->has_pods ? in->pods : 0;
    if (in->has_pods && !in->pods)
        return spw_check_fault(c, "limit.pods",
                               "0 is out of range: write how many pods share the account's limit");
    out->limit.kind = kind_of(in->has_kind, in->kind);
    out->limit_mode = mode_of(in->has_mode, in->mode);
    out->adopt_lower = in->has_adopt_lower && in->adopt_lower;
    enum spw_status status = check_one(c, "limit", in->rate, in->has_burst, in->burst, &out->limit);
    if (!status && out->adopt_lower && !out->limit.rate.tokens_count)
        return spw_check_fault(c, "limit.adopt_lower", "is of no use: no limit is lower than 0/s");
    return status;
}

static enum spw_status find_integrations(struct spw_check *c, const char *field,
                                         const Spillway__V1__LimiterConfig *in,
                                         const struct spw_conf_account *account, uint64_t *out)
{
    *out = in->n_integrations ? 0 : UINT64_MAX;
    for (size_t i = 0; i < in->n_integrations; i++) {
        uint64_t bit = 0;
        for (uint32_t k = 0; k < account->integrations_count; k++)
            if (strcmp(account->integrations[k].name, in->integrations[i]) == 0)
                bit = UINT64_C(1) << k;
        if (!bit || (*out & bit))
            return spw_check_fault(c, field,
                                   bit ? "names %.63s twice: remove one"
                                       : "names %.63s, which the account does not have: see integrations",
                                   in->integrations[i]);
        *out |= bit;
    }
    return SPW_STATUS_OK;
}

static enum spw_status check_limiter(struct spw_check *c, size_t place, const Spillway__V1__LimiterConfig *in,
                                     struct spw_conf_account *out)
{
    struct spw_conf_limiter *limiter = &out->limiters[out->limiters_count];
    char base[32], path[64];
    snprintf(base, sizeof base, "limiters[%zu]", place);
    snprintf(path, sizeof path, "%s.name", base);
    if (!in->name)
        return spw_check_fault(c, path, "is missing: give the limiter a name, as calculations");
    enum spw_status status = spw_check_name(c, path, in->name, limiter->name, sizeof limiter->name);
    bool taken = strcmp(in->name, SPW_LIMITER_ACCOUNT_NAME) == 0;
    for (uint32_t i = 0; i < out->limiters_count; i++)
        taken |= strcmp(in->name, out->limiters[i].name) == 0;
    if (!status && taken)
        return spw_check_fault(c, path,
                               "is taken: give each limiter a name of its own, and none \"account\"");
    limiter->limit.pods_count = out->limit.pods_count;
    limiter->limit.kind = kind_of(in->has_kind, in->kind);
    limiter->mode = mode_of(in->has_mode, in->mode);
    for (size_t i = 0; i < in->n_endpoints; i++)
        limiter->endpoints |=
            1u << (in->endpoints[i] - SPILLWAY__V1__ENDPOINT_CLASS__ENDPOINT_CLASS_CALCULATE);
    if (!in->n_endpoints)
        limiter->endpoints = (1u << SPW_ENDPOINTS_COUNT) - 1;
    if (!status)
        status = check_one(c, base, in->rate, in->has_burst, in->burst, &limiter->limit);
    snprintf(path, sizeof path, "%s.integrations", base);
    if (!status)
        status = find_integrations(c, path, in, out, &limiter->integrations);
    out->limiters_count += !status;
    return status;
}

/* Those the provider is known for. With many pods each of them needs a token all the same. */
static void take_known(struct spw_conf_account *out)
{
    const struct spw_profile *profile = spw_profile_find(out->provider);
    for (size_t i = 0; profile && i < profile->limiters_count && i < SPW_CONF_LIMITERS_MAX_COUNT; i++) {
        const struct spw_profile_limiter *known = &profile->limiters[i];
        struct spw_conf_limiter *limiter = &out->limiters[out->limiters_count++];
        snprintf(limiter->name, sizeof limiter->name, "%.31s", known->name);
        limiter->limit.rate = (struct spw_rate){known->tokens_count, known->period_ns};
        limiter->limit.pods_count = out->limit.pods_count;
        uint64_t burst = known->burst_ms * NS_PER_MS * known->tokens_count / known->period_ns;
        limiter->limit.burst_count = burst > out->limit.pods_count ? burst : out->limit.pods_count;
        limiter->endpoints = known->kind == SPW_ROUTE_CALCULATE ? 1u << SPW_ENDPOINT_CALCULATE
                             : known->kind == SPW_ROUTE_RECORD  ? 1u << SPW_ENDPOINT_RECORD
                             : known->kind == SPW_ROUTE_REFUND  ? 1u << SPW_ENDPOINT_REFUND
                                                                : 1u << SPW_ENDPOINT_OTHER;
        limiter->integrations = UINT64_MAX;
    }
}

static enum spw_status check_retry(struct spw_check *c, const Spillway__V1__RetryConfig *in,
                                   struct spw_conf_retry *out)
{
    *out = (struct spw_conf_retry){.base_ms = 1000, .most_ms = 4000, .jitter = SPW_JITTER_PROPORTIONAL};
    if (!in)
        return SPW_STATUS_OK;
    enum spw_status status =
        spw_check_duration(c, "retry.first", in->first, RETRY_BASE_MIN_MS, RETRY_BASE_MAX_MS, &out->base_ms);
    if (out->most_ms < out->base_ms)
        out->most_ms = out->base_ms;
    if (!status)
        status = spw_check_duration(c, "retry.longest", in->longest, RETRY_BASE_MIN_MS, RETRY_MOST_MAX_MS,
                                    &out->most_ms);
    if (!status && out->most_ms < out->base_ms)
        return spw_check_fault(c, "retry.longest", "is below first: write at least that");
    if (in->has_jitter)
        out->jitter = (enum spw_jitter)(in->jitter - SPILLWAY__V1__RETRY_CONFIG__JITTER__JITTER_PROPORTIONAL);
    return status;
}

enum spw_status spw_check_limiters(struct spw_check *c, const Spillway__V1__AccountConfig *in,
                                   struct spw_conf_account *out)
{
    if (in->n_limiters > SPW_CONF_LIMITERS_MAX_COUNT)
        return spw_check_fault(c, "limiters", "has %zu entries: at most %u beside limit", in->n_limiters,
                               SPW_CONF_LIMITERS_MAX_COUNT);
    enum spw_status status = SPW_STATUS_OK;
    for (size_t i = 0; i < in->n_limiters && !status; i++)
        status = check_limiter(c, i, in->limiters[i], out);
    if (!in->n_limiters)
        take_known(out);
    if (!status)
        status = check_retry(c, in->retry, &out->retry);
    if (!status)
        status = spw_check_count(c, "concurrency_per_process", in->has_concurrency_per_process,
                                 in->concurrency_per_process, 0, out->concurrency_count,
                                 &out->concurrency_per_process_count);
    return status;
}
