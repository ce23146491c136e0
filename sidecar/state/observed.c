/* observed.c: the limit that a provider's headers state, against the one that is configured.
 *
 * Owns: struct spw_observed. Called by: publish.c (evidence), limiters.c (set). Thread: the loop thread.
 *
 * What is stated counts calls in limit's own period: 100 agrees with 100/s, 6000/min and a burst of as many. A statement
 * that differs is warned of once. Where limit.adopt_lower says so, a lower one is obeyed after three equal statements,
 * until the limit is set again: headers alone never raise a limit.
 */
#include <inttypes.h>

#include "sidecar/obs/log.h"
#include "sidecar/state/state_internal.h"

#define ADOPT_AFTER_COUNT 3u

void spw_observed_forget(struct spw_state *state, uint32_t index)
{
    state->observed[index] = (struct spw_observed){.adopts = state->observed[index].adopts};
}

static void adopt(struct spw_state *state, uint32_t index, uint32_t place, const char *account,
                  uint64_t now_ns)
{
    struct spw_observed *o = &state->observed[index];
    struct spw_conf_limit limit = state->limiter[index][place].limit;
    struct spw_error err;
    limit.rate.tokens_count = o->last_count;
    if (limit.burst_count > o->last_count)
        limit.burst_count = o->last_count;
    spw_conf_limit_complete(&limit);
    if (spw_conf_limit_check(&limit, &err) != SPW_STATUS_OK ||
        spw_limiter_install(state, index, place, &limit, now_ns, false, &err) != SPW_STATUS_OK) {
        spw_log(SPW_LOG_WARN, "limit.adopt", "account %s: the stated limit cannot be obeyed: %s", account,
                err.text);
        return;
    }
    spw_changed(&state->map);
    o->adopted_count = o->last_count;
    spw_log(SPW_LOG_WARN, "limit.adopt",
            "account %s: the provider states %" PRIu64 ", which is obeyed until the limit is set again",
            account, o->last_count);
}

void spw_observed_note(struct spw_state *state, uint32_t index, const struct spw_evidence *evidence)
{
    const struct spw_account *account = spw_account_at(&state->map, index);
    if (!account || index >= SPW_CONF_ACCOUNTS_MAX_COUNT || !account->limiters_count ||
        !(evidence->known & SPW_EVIDENCE_LIMIT) || evidence->limit_count == 0)
        return;
    uint32_t place = (account->limiters_count - 1) % SPW_LIMITERS_PER_ACCOUNT;
    const struct spw_conf_limit *limit = &state->limiter[index][place].limit;
    struct spw_observed *o = &state->observed[index];
    uint64_t told = evidence->limit_count;
    bool news = told != o->last_count;
    o->same_count = news ? 1 : o->same_count + (o->same_count < UINT32_MAX);
    o->last_count = told;
    o->differs = told != limit->rate.tokens_count && told != limit->burst_count;
    if (o->differs && news) {
        char rate[48];
        spw_format_rate(&limit->rate, rate, sizeof rate);
        spw_log(SPW_LOG_WARN, "limit.differs",
                "account %s: the provider states a limit of %" PRIu64 ", configured is %s, burst %" PRIu64
                ": correct limit, or look who else uses the account",
                account->name, told, rate, limit->burst_count);
    }
    uint64_t obeyed = o->adopted_count ? o->adopted_count : limit->rate.tokens_count;
    if (o->adopts && o->differs && told < obeyed && o->same_count == ADOPT_AFTER_COUNT)
        adopt(state, index, place, account->name, evidence->observed_ns);
}
