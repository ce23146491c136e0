/* publish.c: accounts, limits, breakers and policy: the sidecar-owned words of the segment.
 *
 * Owns: what is in force. Called by: segment.c (start), http/ (evidence), control/ (get, set). Thread: loop thread.
 */
#include "sidecar/state/state_internal.h"

#include "shm/spw_flag.h"
#include "sidecar/obs/log.h"

struct spw_account *spw_state_account(struct spw_state *state, const char *name, uint32_t *index)
{
    for (uint32_t i = 0; i < state->map.pub_section[SPW_PUB_ACCOUNTS].count; i++) {
        struct spw_account *a = spw_account_at(&state->map, i);
        if (a->state == SPW_RECORD_LIVE && strncmp(a->name, name, sizeof a->name) == 0) {
            *index = i;
            return a;
        }
    }
    return NULL;
}

/* ---- breaker and gate ---- */

static void put_account_conf(struct spw_state *state, uint32_t index, const struct spw_conf_account *conf)
{
    struct spw_account *account = spw_account_at(&state->map, index);
    const struct spw_conf_breaker *b = &state->breaker[index];
    struct spw_account_conf fresh, now;
    memset(&fresh, 0, sizeof fresh);
    memset(&now, 0, sizeof now);
    (void)spw_account_conf_read(account, &now);
    if (!conf)
        fresh = now;
    fresh.consecutive_429_count = b->consecutive_429_count;
    fresh.ratio_429_ppm = b->ratio_429_ppm;
    fresh.minimum_count = b->minimum_count;
    fresh.window_tick_ms = b->window_ms / 10;
    fresh.cooldown_min_ms = b->cooldown_min_ms;
    fresh.cooldown_max_ms = b->cooldown_max_ms;
    if (conf) {
        fresh.permits_most_count = now.permits_most_count > conf->concurrency_count ? now.permits_most_count
                                                                                    : conf->concurrency_count;
        fresh.deadline_ms = conf->deadline_ms;
        fresh.probe_ms = conf->deadline_ms + 1000;
        fresh.header_buffer_ppm = conf->header_buffer_ppm;
        fresh.on_full = state->conf->on_full == SPW_ON_FULL_DENY;
        fresh.permit_ms = conf->deadline_ms + 1000;
        fresh.permits_per_process_count = conf->concurrency_per_process_count;
    }
    if (memcmp(&fresh, &now, sizeof fresh) != 0)
        spw_latch_write(&account->conf_seq, (uint64_t *)(void *)account->conf, sizeof fresh / 8, &fresh,
                        sizeof fresh / 8);
}

static uint64_t forced_of(enum spw_breaker_mode mode)
{
    return mode == SPW_BREAKER_DISABLED  ? SPW_FORCED_DISABLED
           : mode == SPW_BREAKER_OBSERVE ? SPW_FORCED_OBSERVE
                                         : SPW_FORCED_NOT;
}

static const char *const forced_name[] = {"", "open", "closed", "disabled", "observe"};

/* Into a zeroed place. It is looked at often: no printf. */
static void put_word(char *out, size_t room, const char *word)
{
    memcpy(out, word, strnlen(word, room - 1));
}

static void view_breaker(struct spw_state *state, uint32_t index, uint64_t now_ns,
                         struct spw_breaker_view *out)
{
    static const char *const state_name[] = {"closed", "open", "half-open", "unknown"};
    const struct spw_account *account = spw_account_at(&state->map, index);
    const struct spw_account_words *words = spw_account_words_at(&state->map, index);
    uint64_t now_ms = spw_map_ms(&state->map, now_ns);
    memset(out, 0, sizeof *out);
    if (!account || !words)
        return;
    struct spw_breaker_word b = spw_breaker_unpack(spw_load_acq(&words->breaker)); /* SYNC breaker: acquire */
    uint64_t gate = spw_load_acq(&words->gate);                                    /* SYNC gate: acquire */
    memcpy(out->account, account->name, sizeof out->account);
    put_word(out->state, sizeof out->state, state_name[b.state]);
    put_word(out->forced, sizeof out->forced, forced_name[account->forced % 5]);
    out->consecutive_count = b.consecutive;
    out->trips_count = b.trips;
    out->epoch = b.epoch;
    if (b.state == SPW_BREAKER_OPEN && b.time_ms > now_ms)
        out->open_for_ms = b.time_ms - now_ms;
    out->conf = state->breaker[index];
    out->version = account->version;
    if (gate != 0 && spw_gate_until_ms(gate) > now_ms &&
        spw_gate_until_ms(gate) <= now_ms + SPW__GATE_AHEAD_MS)
        out->gate_shut_for_ms = spw_gate_until_ms(gate) - now_ms;
    put_word(out->gate_source, sizeof out->gate_source,
             out->gate_shut_for_ms ? spw_gate_name(spw_gate_source(gate)) : "");
}

enum spw_status spw_state_breaker_get(struct spw_state *state, const char *account, uint64_t now_ns,
                                      struct spw_breaker_view *out, struct spw_error *err)
{
    uint32_t index;
    if (!spw_state_account(state, account, &index))
        return spw_no_account(account, err);
    view_breaker(state, index, now_ns, out);
    return SPW_STATUS_OK;
}

enum spw_status spw_state_breaker_at(struct spw_state *state, uint32_t account_index, uint64_t now_ns,
                                     struct spw_breaker_view *out)
{
    const struct spw_account *account = spw_account_at(&state->map, account_index);
    if (!account || account->state != SPW_RECORD_LIVE)
        return SPW_STATUS_NOT_FOUND;
    view_breaker(state, account_index, now_ns, out);
    return SPW_STATUS_OK;
}

/* Close by hand: a new epoch, so that calls in flight do not count for the fresh state. */
static void reset_breaker(struct spw_map *map, uint32_t index, uint64_t now_ns)
{
    struct spw_account_words *words = spw_account_words_at(map, index);
    uint64_t word = spw_load_acq(&words->breaker); /* SYNC breaker: acquire */
    struct spw_breaker_word next;
    do {
        memset(&next, 0, sizeof next);
        next.epoch = spw_breaker_unpack(word).epoch + 1;
        next.time_ms = spw_map_ms(map, now_ns);
    } while (!spw_cas(&words->breaker, &word, spw_breaker_pack(&next))); /* SYNC breaker: acq_rel */
    for (unsigned i = 0; i < SPW_WINDOW_WORDS; i++)
        spw_store_rlx(&words->window[i], 0); /* SYNC window: relaxed: what came before counts no more */
    spw_exchange(&words->gate, 0);           /* SYNC gate: acq_rel */
}

/* Open by hand, as a bad outcome would. */
static void trip_breaker(struct spw_map *map, uint32_t index, uint64_t now_ns)
{
    struct spw_account_words *words = spw_account_words_at(map, index);
    struct spw_account_conf conf;
    const struct spw_account *account = spw_account_at(map, index);
    if (!words || !account || !spw_account_conf_read(account, &conf))
        return;
    uint64_t word = spw_load_acq(&words->breaker); /* SYNC breaker: acquire */
    struct spw_breaker_word next;
    do {
        next = spw_breaker_unpack(word);
        spw__breaker_trip(map, &next, &conf, now_ns);
    } while (!spw_cas(&words->breaker, &word, spw_breaker_pack(&next))); /* SYNC breaker: acq_rel */
}

/* What the view would be after the change, but for words that move by themselves. */
static void foresee(const struct spw_breaker_change *change, struct spw_breaker_view *out)
{
    if (change->conf) {
        out->conf = *change->conf;
        if (change->forced < 0)
            snprintf(out->forced, sizeof out->forced, "%s", forced_name[forced_of(change->conf->mode)]);
    }
    if (change->forced >= 0)
        snprintf(out->forced, sizeof out->forced, "%s", forced_name[change->forced]);
    if (change->reset || change->trip) {
        snprintf(out->state, sizeof out->state, "%s", change->trip ? "open" : "closed");
        out->consecutive_count = 0;
        out->open_for_ms = change->trip ? out->conf.cooldown_min_ms : 0;
    }
    if (change->reset) {
        out->trips_count = 0;
        out->gate_shut_for_ms = 0;
        out->gate_source[0] = 0;
    }
}

enum spw_status spw_state_breaker_set(struct spw_state *state, const char *account,
                                      const struct spw_breaker_change *change, uint64_t expect_version,
                                      bool dry_run, uint64_t now_ns, struct spw_breaker_view *out,
                                      struct spw_error *err)
{
    uint32_t index;
    struct spw_account *record = spw_state_account(state, account, &index);
    if (!record)
        return spw_no_account(account, err);
    enum spw_status status = spw_version_expect(record, expect_version, err);
    if (status == SPW_STATUS_OK && change->conf)
        status = spw_conf_breaker_check(change->conf, err);
    if (status == SPW_STATUS_OK && change->forced > SPW_FORCED_OBSERVE)
        status = spw_error_set(err, SPW_STATUS_INVALID, "forced: none, open, closed, disabled or observe");
    if (status != SPW_STATUS_OK)
        return status;
    if (dry_run) {
        view_breaker(state, index, now_ns, out);
        foresee(change, out);
        return SPW_STATUS_OK;
    }
    if (change->conf) {
        state->breaker[index] = *change->conf;
        put_account_conf(state, index, NULL);
        if (change->forced < 0)
            spw_store_rel(&record->forced, forced_of(change->conf->mode)); /* SYNC forced: release */
    }
    if (change->forced >= 0)
        spw_store_rel(&record->forced, (uint64_t)change->forced); /* SYNC forced: release */
    spw_changed(&state->map);
    if (change->reset)
        reset_breaker(&state->map, index, now_ns);
    else if (change->trip)
        trip_breaker(&state->map, index, now_ns);
    spw_store_rlx(&record->version, record->version + 1); /* SYNC account-version: relaxed: a lone word */
    view_breaker(state, index, now_ns, out);
    return SPW_STATUS_OK;
}

enum spw_status spw_state_gate_set(struct spw_state *state, const char *account, uint64_t shut_for_ms,
                                   uint64_t expect_version, bool dry_run, uint64_t now_ns,
                                   struct spw_breaker_view *out, struct spw_error *err)
{
    uint32_t index;
    struct spw_account *record = spw_state_account(state, account, &index);
    if (!record)
        return spw_no_account(account, err);
    enum spw_status status = spw_version_expect(record, expect_version, err);
    if (status == SPW_STATUS_OK && shut_for_ms > SPW_GATE_MAX_MS)
        status = spw_error_set(err, SPW_STATUS_INVALID, "shut_for_ms: at most %llu, a day",
                               (unsigned long long)SPW_GATE_MAX_MS);
    if (status != SPW_STATUS_OK)
        return status;
    const struct spw_map *map = &state->map;
    struct spw_account_words *words = spw_account_words_at(map, index);
    uint64_t now_ms = spw_map_ms(map, now_ns);
    if (!dry_run && words) { /* SYNC gate: acq_rel */
        spw_exchange(&words->gate,
                     shut_for_ms ? spw__gate_word(SPW_GATE_BY_HAND, now_ms >> 6, now_ms + shut_for_ms) : 0);
        spw_store_rlx(&record->version, record->version + 1); /* SYNC account-version: relaxed: a lone word */
    }
    view_breaker(state, index, now_ns, out);
    if (dry_run) {
        out->gate_shut_for_ms = shut_for_ms;
        snprintf(out->gate_source, sizeof out->gate_source, "%s",
                 shut_for_ms ? spw_gate_name(SPW_GATE_BY_HAND) : "");
    }
    return SPW_STATUS_OK;
}

void spw_state_evidence_set(struct spw_state *state, uint32_t account_index,
                            const struct spw_evidence *evidence)
{
    struct spw_account *account = spw_account_at(&state->map, account_index);
    if (!account)
        return;
    spw_latch_write(&account->evidence_seq, (uint64_t *)(void *)account->evidence, sizeof *evidence / 8,
                    evidence, sizeof *evidence / 8);
    spw_observed_note(state, account_index, evidence);
}

/* ---- bringing a segment to a configuration ---- */

static void put_policy(struct spw_state *state)
{
    const struct spw_conf_fallback *f = &state->conf->fallback;
    struct spw_policy policy;
    memset(&policy, 0, sizeof policy);
    policy.nexus_all = f->nexus_all;
    policy.nexus_count = f->nexus_count;
    for (uint32_t i = 0; i < f->nexus_count && i < SPW_NEXUS_MAX_COUNT; i++)
        memcpy(policy.nexus[i], f->nexus[i], sizeof policy.nexus[i]);
    policy.on_no_rate = f->on_no_rate;
    policy.default_rate_ppb = f->default_rate_ppb;
    policy.rounding = f->rounding;
    policy.shipping_taxable = f->shipping_taxable;
    policy.shipping_except_count = f->shipping_except_count;
    for (uint32_t i = 0; i < f->shipping_except_count && i < SPW_NEXUS_MAX_COUNT; i++)
        memcpy(policy.shipping_except[i], f->shipping_except[i], sizeof policy.shipping_except[i]);
    policy.warn_age_days = f->max_age_warn_days;
    policy.refuse_age_days = f->max_age_refuse_days;
    policy.tax_rule_default = f->tax_rule_default;
    policy.tax_codes_count = f->tax_codes_count;
    for (uint32_t i = 0; i < f->tax_codes_count && i < SPW_TAX_CODES_MAX_COUNT; i++) {
        memcpy(policy.tax_codes[i].code, f->tax_codes[i].code, sizeof policy.tax_codes[i].code);
        policy.tax_codes[i].rule = f->tax_codes[i].rule;
    }
    struct spw_policy *slots = spw_policy_at(&state->map, 0);
    spw_latch_write(&spw_map_pub(&state->map)->policy_seq, (uint64_t *)(void *)slots,
                    state->map.pub_section[SPW_PUB_POLICY].stride_bytes / 8, &policy, sizeof policy / 8);
}

/* A free record for an account; one that was removed is not used again in this segment: old handles name it. */
static struct spw_account *new_account(struct spw_state *state, const struct spw_conf_account *conf,
                                       uint32_t *index)
{
    for (uint32_t i = 0; i < state->map.pub_section[SPW_PUB_ACCOUNTS].count; i++) {
        struct spw_account *a = spw_account_at(&state->map, i);
        if (!a || a->state != SPW_RECORD_FREE)
            continue;
        memcpy(a->name, conf->name, sizeof a->name);
        snprintf(a->provider, sizeof a->provider, "%.31s", conf->provider);
        a->record_generation++;
        a->version = 1;
        spw_limiters_lay_out(state, i, conf);
        *index = i;
        return a;
    }
    return NULL;
}

static bool integration_is(const struct spw_integration *n, uint32_t account_index, const char *name)
{
    return n->state == SPW_RECORD_LIVE && n->account_index == account_index &&
           strncmp(n->name, name, sizeof n->name) == 0;
}

static enum spw_status put_integrations(struct spw_state *state, uint32_t index,
                                        const struct spw_conf_account *conf, struct spw_error *err)
{
    uint32_t count = state->map.pub_section[SPW_PUB_INTEGRATIONS].count;
    for (uint32_t k = 0; k < conf->integrations_count; k++) {
        struct spw_integration *place = NULL;
        for (uint32_t i = 0; i < count && !place; i++) {
            struct spw_integration *n = spw_integration_at(&state->map, i);
            if (integration_is(n, index, conf->integrations[k].name))
                place = n;
        }
        for (uint32_t i = 0; i < count && !place; i++) {
            struct spw_integration *n = spw_integration_at(&state->map, i);
            if (n->state == SPW_RECORD_FREE)
                place = n;
        }
        if (!place)
            return spw_error_set(err, SPW_STATUS_FULL,
                                 "accounts.%s.integrations: at most %u integrations over all "
                                 "accounts",
                                 conf->name, count);
        memcpy(place->name, conf->integrations[k].name, sizeof place->name);
        place->account_index = index;
        place->batch = conf->integrations[k].class_ == SPW_CLASS_BATCH;
        spw_store32_rlx(&place->skip,
                        spw_limiters_skip(state, index, k)); /* SYNC skip: relaxed: a lone word */
        spw_store32_rel(&place->state, SPW_RECORD_LIVE);     /* SYNC integration: release */
    }
    return SPW_STATUS_OK;
}

static enum spw_status put_account(struct spw_state *state, const struct spw_conf_account *conf,
                                   uint64_t now_ns, bool fill, struct spw_error *err)
{
    uint32_t index;
    struct spw_account *account = spw_state_account(state, conf->name, &index);
    bool fresh = !account;
    if (fresh)
        account = new_account(state, conf, &index);
    if (!account)
        return spw_error_set(err, SPW_STATUS_FULL, "accounts: at most %u accounts in the life of a segment",
                             state->map.pub_section[SPW_PUB_ACCOUNTS].count);
    state->breaker[index] = conf->breaker;
    state->reserve_ppm[index] = conf->batch_reserve_ppm;
    put_account_conf(state, index, conf);
    spw_store32_rel(&account->permits_count,
                    conf->concurrency_count);                       /* SYNC account: release: a lone word */
    spw_store_rel(&account->forced, forced_of(conf->breaker.mode)); /* SYNC forced: release */
    spw_store_rel(&account->switches, 0); /* SYNC switches: release: none is in the file */
    enum spw_status status = spw_limiters_put(state, index, conf, now_ns, fill && fresh, err);
    if (status == SPW_STATUS_OK)
        status = put_integrations(state, index, conf, err);
    if (status == SPW_STATUS_OK)
        spw_store32_rel(&account->state, SPW_RECORD_LIVE); /* SYNC account: release: the record is filled */
    return status;
}

enum spw_status spw_publish_conf(struct spw_state *state, uint64_t now_ns, bool fill, struct spw_error *err)
{
    const struct spw_conf *conf = state->conf;
    for (uint32_t i = 0; i < state->map.pub_section[SPW_PUB_ACCOUNTS].count; i++) {
        struct spw_account *account = spw_account_at(&state->map, i);
        bool kept = false;
        for (uint32_t k = 0; k < conf->accounts_count; k++)
            kept |= strncmp(conf->accounts[k].name, account->name, sizeof account->name) == 0;
        if (account->state == SPW_RECORD_LIVE && !kept) {
            spw_store32_rel(&account->state, SPW_RECORD_REMOVED); /* SYNC account: release */
            spw_log(SPW_LOG_INFO, "account.removed", "account %s is no longer configured", account->name);
        }
    }
    put_policy(state);
    spw_store_rel(&spw_map_pub(&state->map)->switches, 0); /* SYNC switches: release: none is in the file */
    enum spw_status status = SPW_STATUS_OK;
    for (uint32_t k = 0; k < conf->accounts_count && status == SPW_STATUS_OK; k++)
        status = put_account(state, &conf->accounts[k], now_ns, fill, err);
    spw_changed(&state->map);
    return status;
}

/* ---- reload ---- */

static bool is_there(const struct spw_state *state, const char *account, const char *integration)
{
    for (uint32_t i = 0; i < state->map.pub_section[SPW_PUB_INTEGRATIONS].count; i++) {
        const struct spw_integration *n = spw_integration_at(&state->map, i);
        const struct spw_account *a = n ? spw_account_at(&state->map, n->account_index) : NULL;
        if (a && strncmp(a->name, account, sizeof a->name) == 0 &&
            integration_is(n, n->account_index, integration))
            return true;
    }
    return false;
}

enum spw_status spw_state_reload_check(struct spw_state *state, const struct spw_conf *fresh, uint64_t now_ns,
                                       struct spw_error *err)
{
    uint32_t accounts = 0, integrations = 0, free_accounts = 0, free_integrations = 0, index;
    for (uint32_t i = 0; i < state->map.pub_section[SPW_PUB_ACCOUNTS].count; i++) {
        const struct spw_account *a = spw_account_at(&state->map, i);
        free_accounts += a && a->state == SPW_RECORD_FREE;
    }
    for (uint32_t i = 0; i < state->map.pub_section[SPW_PUB_INTEGRATIONS].count; i++) {
        const struct spw_integration *n = spw_integration_at(&state->map, i);
        free_integrations += n && n->state == SPW_RECORD_FREE;
    }
    for (uint32_t i = 0; i < fresh->accounts_count; i++) {
        const struct spw_conf_account *conf = &fresh->accounts[i];
        enum spw_status status = spw_limiters_check(conf, now_ns, err);
        if (status != SPW_STATUS_OK)
            return status;
        accounts += !spw_state_account(state, conf->name, &index);
        for (uint32_t k = 0; k < conf->integrations_count; k++)
            integrations += !is_there(state, conf->name, conf->integrations[k].name);
    }
    if (accounts <= free_accounts && integrations <= free_integrations)
        return SPW_STATUS_OK;
    return spw_error_set(
        err, SPW_STATUS_FULL,
        "accounts: %u accounts and %u integrations are new, and the segment has room for %u and "
        "%u: restart the sidecar, which makes a new segment",
        accounts, integrations, free_accounts, free_integrations);
}

static bool same_breaker(const struct spw_conf_breaker *a, const struct spw_conf_breaker *b)
{
    return a->consecutive_429_count == b->consecutive_429_count && a->ratio_429_ppm == b->ratio_429_ppm &&
           a->minimum_count == b->minimum_count && a->window_ms == b->window_ms &&
           a->cooldown_min_ms == b->cooldown_min_ms && a->cooldown_max_ms == b->cooldown_max_ms;
}

static enum spw_status reload_account(struct spw_state *state, const struct spw_conf_account *before,
                                      const struct spw_conf_account *after, uint64_t now_ns,
                                      struct spw_error *err)
{
    uint32_t index;
    struct spw_account *account = spw_state_account(state, after->name, &index);
    if (!account || !before)
        return put_account(state, after, now_ns, false, err);
    if (!same_breaker(&before->breaker, &after->breaker))
        state->breaker[index] = after->breaker;
    if (before->breaker.mode != after->breaker.mode) {
        state->breaker[index].mode = after->breaker.mode;
        spw_store_rel(&account->forced, forced_of(after->breaker.mode)); /* SYNC forced: release */
    }
    state->reserve_ppm[index] = after->batch_reserve_ppm;
    put_account_conf(state, index, after);
    if (before->concurrency_count != after->concurrency_count)
        spw_store32_rel(&account->permits_count,
                        after->concurrency_count); /* SYNC account: release: a lone word */
    enum spw_status status = spw_limiters_reload(state, index, before, after, now_ns, err);
    if (status == SPW_STATUS_OK)
        status = put_integrations(state, index, after, err);
    return status;
}

enum spw_status spw_state_reload(struct spw_state *state, const struct spw_conf *before, uint64_t now_ns,
                                 struct spw_error *err)
{
    const struct spw_conf *after = state->conf;
    enum spw_status status = SPW_STATUS_OK;
    put_policy(state);
    for (uint32_t i = 0; i < after->accounts_count && status == SPW_STATUS_OK; i++) {
        const struct spw_conf_account *was = i < before->accounts_count ? &before->accounts[i] : NULL;
        status = reload_account(state, was, &after->accounts[i], now_ns, err);
    }
    spw_changed(&state->map);
    return status;
}

static enum spw_breaker_mode mode_of(uint64_t forced, enum spw_breaker_mode mode)
{
    return forced == SPW_FORCED_DISABLED  ? SPW_BREAKER_DISABLED
           : forced == SPW_FORCED_OBSERVE ? SPW_BREAKER_OBSERVE
           : forced == SPW_FORCED_NOT     ? SPW_BREAKER_ENFORCE
                                          : mode;
}

void spw_state_conf_in_force(const struct spw_state *state, struct spw_conf *conf)
{
    for (uint32_t i = 0; i < conf->accounts_count; i++) {
        struct spw_conf_account *account = &conf->accounts[i];
        for (uint32_t k = 0; k < state->map.pub_section[SPW_PUB_ACCOUNTS].count; k++) {
            const struct spw_account *record = spw_account_at(&state->map, k);
            if (!record || record->state != SPW_RECORD_LIVE ||
                strncmp(record->name, account->name, sizeof record->name) != 0)
                continue;
            account->breaker = state->breaker[k];
            account->breaker.mode = mode_of(record->forced, account->breaker.mode);
            spw_limiters_in_force(state, k, account);
        }
    }
}

enum spw_status spw_state_concurrency_set(struct spw_state *state, const char *name, uint32_t count,
                                          bool dry_run, struct spw_error *err)
{
    uint32_t index;
    struct spw_account *account = spw_state_account(state, name, &index);
    struct spw_account_conf conf;
    if (!account || !spw_account_conf_read(account, &conf))
        return spw_no_account(name, err);
    if (count > SPW_PERMITS_PER_ACCOUNT)
        return spw_error_set(err, SPW_STATUS_INVALID, "concurrency: %u: write 0 (not limited) to %u", count,
                             SPW_PERMITS_PER_ACCOUNT);
    if (dry_run)
        return SPW_STATUS_OK;
    if (count > conf.permits_most_count) {
        conf.permits_most_count = count;
        spw_latch_write(&account->conf_seq, (uint64_t *)(void *)account->conf, sizeof conf / 8, &conf,
                        sizeof conf / 8);
    }
    spw_store32_rel(&account->permits_count, count); /* SYNC account: release: a lone word */
    spw_changed(&state->map);
    return SPW_STATUS_OK;
}

/* Milliseconds of the old segment's words in the new one's count. */
static uint64_t shift_ms(const struct spw_map *from, const struct spw_map *to, uint64_t ms)
{
    return spw_map_ms_up(to, spw_map_ns_of_ms(from, ms));
}

/* Both times of a gate word; an observation is a circle of steps of 64 ms. */
static uint64_t shift_gate(const struct spw_map *from, const struct spw_map *to, uint64_t gate)
{
    uint64_t between_ms = (to->base_ns - from->base_ns) / 1000000;
    return spw__gate_word(spw_gate_source(gate), (gate >> 39) - (between_ms >> 6),
                          shift_ms(from, to, spw_gate_until_ms(gate)));
}

void spw_publish_carry(struct spw_state *state, struct spw_map *old, uint64_t now_ns)
{
    for (uint32_t i = 0; i < old->pub_section[SPW_PUB_ACCOUNTS].count; i++) {
        const struct spw_account *from = spw_account_at(old, i);
        struct spw_account_words *from_words = spw_account_words_at(old, i);
        uint64_t breaker = spw_exchange(&from_words->breaker, SPW_MOVED); /* SYNC breaker: acq_rel */
        uint64_t gate = spw_exchange(&from_words->gate, SPW_MOVED);       /* SYNC gate: acq_rel */
        uint32_t index;
        struct spw_account *to =
            from->state == SPW_RECORD_LIVE ? spw_state_account(state, from->name, &index) : NULL;
        spw_limiters_carry(state, old, from, to, now_ns);
        if (!to)
            continue;
        struct spw_account_words *words = spw_account_words_at(&state->map, index);
        if (breaker != SPW_MOVED) {
            struct spw_breaker_word b = spw_breaker_unpack(breaker);
            b.time_ms = shift_ms(old, &state->map, b.time_ms);
            spw_store_rel(&words->breaker, spw_breaker_pack(&b)); /* SYNC breaker: release: not visible yet */
        }
        if (gate != SPW_MOVED && gate != 0) /* SYNC gate: release: not visible yet */
            spw_store_rel(&words->gate, shift_gate(old, &state->map, gate));
    }
}
