/* limiters.c: an account's list of limiters: where they lie, what is in force, to whom they apply.
 *
 * Owns: the limiter records. Called by: publish.c (start), control/ (get, set, switches). Thread: the loop thread.
 *
 * Record i is the account-wide limiter of account i; SPW_LIMITERS_PER_ACCOUNT - 1 further ones are each account's own.
 * In an account's list they lie narrowest first: a race is lost before the wider ones are touched. The list of an account
 * never changes in a segment, so that nobody reads half of a change: other limiters make a new segment.
 */
#include "sidecar/state/state_internal.h"

#include "shm/spw_flag.h"

void spw_limit_share(const struct spw_conf_limit *limit, struct spw_rate *rate, uint64_t *burst_count)
{
    uint64_t pods = limit->pods_count ? limit->pods_count : 1;
    *rate = limit->rate;
    *burst_count = limit->burst_count / pods;
    if (limit->kind == SPW_LIMITER_WINDOW) {
        rate->tokens_count /= pods;
        return;
    }
    rate->period_ns *= pods;
    if (*burst_count == 0 && limit->burst_count > 0)
        *burst_count = 1;
}

enum spw_status spw_no_account(const char *name, struct spw_error *err)
{
    return spw_error_set(err, SPW_STATUS_NOT_FOUND,
                         "account: there is no account \"%.60s\"; `spillwayctl limits list` names them",
                         name);
}

static enum spw_status no_limiter(const char *account, const char *name, struct spw_error *err)
{
    return spw_error_set(
        err, SPW_STATUS_NOT_FOUND,
        "limiter: account %.60s has no limiter \"%.31s\"; `spillwayctl limits list` names them", account,
        name);
}

enum spw_status spw_version_expect(const struct spw_account *account, uint64_t expect, struct spw_error *err)
{
    if (expect == 0 || expect == account->version)
        return SPW_STATUS_OK;
    return spw_error_set(
        err, SPW_STATUS_CONFLICT,
        "expect_version: %llu was expected and account %s is at %llu: read it again and decide anew",
        (unsigned long long)expect, account->name, (unsigned long long)account->version);
}

/* ---- places ---- */

/* Is a slower than b? */
static bool is_narrower(const struct spw_conf_limiter *a, const struct spw_conf_limiter *b)
{
    return (spw_u128)a->limit.rate.tokens_count * b->limit.rate.period_ns <
           (spw_u128)b->limit.rate.tokens_count * a->limit.rate.period_ns;
}

void spw_limiters_lay_out(struct spw_state *state, uint32_t index, const struct spw_conf_account *conf)
{
    struct spw_account *account = spw_account_at(&state->map, index);
    uint32_t accounts = state->map.pub_section[SPW_PUB_ACCOUNTS].count, count = conf->limiters_count;
    const struct spw_conf_limiter *sorted[SPW_LIMITERS_PER_ACCOUNT];
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = i;
        for (; at > 0 && is_narrower(&conf->limiters[i], sorted[at - 1]); at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = &conf->limiters[i];
    }
    for (uint32_t i = 0; account && i <= count; i++) {
        uint32_t record = i == count ? index : accounts + index * (SPW_LIMITERS_PER_ACCOUNT - 1) + i;
        struct spw_limiter *limiter = spw_limiter_at(&state->map, record);
        if (!limiter)
            return;
        account->limiters[i] = record;
        snprintf(limiter->name, sizeof limiter->name, "%s",
                 i == count ? SPW_LIMITER_ACCOUNT_NAME : sorted[i]->name);
        limiter->account_index = index;
        limiter->record_generation++;
        limiter->state = SPW_RECORD_LIVE;
        account->limiters_count = i + 1;
    }
}

static struct spw_limiter *limiter_of(const struct spw_map *map, const struct spw_account *account,
                                      uint32_t place, struct spw_limiter_words **words)
{
    if (place >= account->limiters_count || place >= SPW_LIMITERS_PER_ACCOUNT)
        return NULL;
    *words = spw_limiter_words_at(map, account->limiters[place]);
    return *words ? spw_limiter_at(map, account->limiters[place]) : NULL;
}

/* The place of the limiter of this name, or limiters_count. */
static uint32_t place_of(const struct spw_map *map, const struct spw_account *account, const char *name)
{
    struct spw_limiter_words *words;
    for (uint32_t i = 0; i < account->limiters_count && i < SPW_LIMITERS_PER_ACCOUNT; i++) {
        const struct spw_limiter *limiter = limiter_of(map, account, i, &words);
        if (limiter && strncmp(limiter->name, name, sizeof limiter->name) == 0)
            return i;
    }
    return account->limiters_count;
}

static bool account_fits(const struct spw_map *map, const struct spw_account *account,
                         const struct spw_conf_account *conf)
{
    if (account->limiters_count != conf->limiters_count + 1)
        return false;
    for (uint32_t i = 0; i < conf->limiters_count; i++)
        if (place_of(map, account, conf->limiters[i].name) == account->limiters_count)
            return false;
    return true;
}

bool spw_limiters_fit(const struct spw_map *map, const struct spw_conf *conf)
{
    for (uint32_t i = 0; i < map->pub_section[SPW_PUB_ACCOUNTS].count; i++) {
        const struct spw_account *account = spw_account_at(map, i);
        for (uint32_t k = 0; account && k < conf->accounts_count; k++)
            if (account->state == SPW_RECORD_LIVE &&
                strncmp(account->name, conf->accounts[k].name, sizeof account->name) == 0 &&
                !account_fits(map, account, &conf->accounts[k]))
                return false;
    }
    return true;
}

/* ---- what is in force ---- */

/* The first boundary after now_ns: windows are whole spans of UTC, converted to this clock once, here. */
static uint64_t next_boundary_ns(const struct spw_state *state, uint64_t window_ns, uint64_t now_ns)
{
    uint64_t utc_ns = now_ns - SPW_STATE_PRIVATE_EPOCH_NS;
    if (!state->is_private) {
        struct timespec wall;
        clock_gettime(CLOCK_REALTIME, &wall);
        utc_ns =
            (uint64_t)wall.tv_sec * UINT64_C(1000000000) + (uint64_t)wall.tv_nsec + now_ns - spw_now_ns();
    }
    return now_ns + window_ns - utc_ns % window_ns;
}

/* Does the configuration in force already say this? Then its word must not be touched (a reload refills nothing). */
static bool is_in_force(const struct spw_limiter *limiter, const struct spw_limiter_words *words, bool window,
                        const struct spw_rate *rate, uint64_t burst, uint64_t reserve)
{
    const struct spw_limiter_conf *c = &limiter->conf[limiter->current % SPW_CONFIG_SLOTS];
    return c->version && c->version % 2 == 0 && (c->window_ns != 0) == window &&
           c->tokens_count == rate->tokens_count && c->period_ns == rate->period_ns &&
           c->burst_count == burst && c->reserve_units == reserve * c->units_per_token &&
           spw_bucket_slot(spw_load_acq(&words->level)) == limiter->current; /* SYNC bucket: acquire */
}

enum spw_status spw_limiter_install(struct spw_state *state, uint32_t index, uint32_t place,
                                    const struct spw_conf_limit *limit, uint64_t now_ns, bool fill,
                                    struct spw_error *err)
{
    struct spw_account *account = spw_account_at(&state->map, index);
    struct spw_limiter_words *words;
    struct spw_limiter *limiter = limiter_of(&state->map, account, place, &words);
    if (!limiter)
        return spw_error_set(err, SPW_STATUS_CORRUPT, "limit: account %s has lost a limiter", account->name);
    struct spw_rate rate;
    uint64_t burst;
    spw_limit_share(limit, &rate, &burst);
    bool window = limit->kind == SPW_LIMITER_WINDOW;
    uint64_t reserve = (uint64_t)((spw_u128)burst * state->reserve_ppm[index] / 1000000u);
    limiter->kind = limit->kind;
    if (is_in_force(limiter, words, window, &rate, burst, reserve))
        return SPW_STATUS_OK;
    /* A sidecar cut short after its change was in force has used the version it did not get to show. */
    uint64_t used = limiter->conf[limiter->current % SPW_CONFIG_SLOTS].version / 2;
    uint64_t version = (used > account->version ? used : account->version) + 1;
    bool done = window ? spw_window_configure(limiter, words, rate.tokens_count, rate.period_ns,
                                              next_boundary_ns(state, rate.period_ns, now_ns), reserve,
                                              version, now_ns, fill)
                       : spw_bucket_configure(limiter, words, rate.tokens_count, rate.period_ns, burst,
                                              reserve, version, now_ns, fill);
    if (!done)
        return spw_error_set(
            err, SPW_STATUS_INVALID,
            "limit: rate and burst of account %s, limiter %s, cannot be kept exactly: a burst may "
            "hold at most about 1.5 years of the rate",
            account->name, limiter->name);
    spw_store_rlx(&account->version, version); /* SYNC account-version: relaxed: a lone word, to be shown */
    return SPW_STATUS_OK;
}

static void put_mode(struct spw_state *state, const struct spw_account *account, uint32_t place,
                     enum spw_limiter_mode mode)
{
    struct spw_limiter_words *words;
    struct spw_limiter *limiter = limiter_of(&state->map, account, place, &words);
    if (limiter) /* SYNC switches: release */
        spw_store_rel(&limiter->switches, mode == SPW_LIMITER_OFF       ? SPW_SWITCH_KILL
                                          : mode == SPW_LIMITER_OBSERVE ? SPW_SWITCH_OBSERVE
                                                                        : 0);
}

enum spw_status spw_limiters_put(struct spw_state *state, uint32_t index, const struct spw_conf_account *conf,
                                 uint64_t now_ns, bool fill, struct spw_error *err)
{
    struct spw_account *account = spw_account_at(&state->map, index);
    struct spw_conf_limiter *set = state->limiter[index];
    enum spw_status status = SPW_STATUS_OK;
    for (uint32_t i = 0; i <= conf->limiters_count && status == SPW_STATUS_OK; i++) {
        bool wide = i == conf->limiters_count;
        uint32_t place =
            place_of(&state->map, account, wide ? SPW_LIMITER_ACCOUNT_NAME : conf->limiters[i].name);
        if (place >= account->limiters_count)
            return spw_error_set(err, SPW_STATUS_CORRUPT, "limit: account %s has lost a limiter",
                                 account->name);
        if (wide)
            set[place] = (struct spw_conf_limiter){.name = SPW_LIMITER_ACCOUNT_NAME,
                                                   .limit = conf->limit,
                                                   .mode = conf->limit_mode,
                                                   .endpoints = (1u << SPW_ENDPOINTS_COUNT) - 1,
                                                   .integrations = UINT64_MAX};
        else
            set[place] = conf->limiters[i];
        status = spw_limiter_install(state, index, place, &set[place].limit, now_ns, fill, err);
        put_mode(state, account, place, set[place].mode);
    }
    state->observed[index] = (struct spw_observed){.adopts = conf->adopt_lower};
    /* SYNC skip: relaxed: a lone word */
    spw_store32_rlx(&account->skip, spw_limiters_skip(state, index, UINT32_MAX));
    return status;
}

uint32_t spw_limiters_skip(struct spw_state *state, uint32_t index, uint32_t k)
{
    const struct spw_account *account = spw_account_at(&state->map, index);
    uint32_t skip = 0;
    for (uint32_t endpoint = 0; account && endpoint < SPW_ENDPOINTS_COUNT; endpoint++) {
        for (uint32_t place = 0; place < account->limiters_count && place < SPW_LIMITERS_PER_ACCOUNT;
             place++) {
            const struct spw_conf_limiter *l = &state->limiter[index][place];
            bool applies = (l->endpoints >> endpoint & 1) && (k >= 64 || (l->integrations >> k & 1));
            skip |= applies ? 0 : UINT32_C(1) << (endpoint * 8 + place);
        }
    }
    return skip;
}

void spw_limiters_carry(struct spw_state *state, struct spw_map *old, const struct spw_account *from,
                        const struct spw_account *to, uint64_t now_ns)
{
    for (uint32_t i = 0; i < from->limiters_count && i < SPW_LIMITERS_PER_ACCOUNT; i++) {
        struct spw_limiter_words *from_words, *to_words = NULL;
        const struct spw_limiter *was = limiter_of(old, from, i, &from_words);
        if (!was)
            continue;
        char name[sizeof was->name + 1] = "";
        memcpy(name, was->name, sizeof was->name);
        const struct spw_limiter *now =
            to ? limiter_of(&state->map, to, place_of(&state->map, to, name), &to_words) : NULL;
        struct spw_gcra g_from, g_to;
        /* SYNC bucket: acq_rel: a take in flight on the old word fails from here on. */
        uint64_t word = spw_exchange(&from_words->level, SPW_MOVED);
        uint32_t slot = now ? (uint32_t)(now->current % SPW_CONFIG_SLOTS) : 0;
        if (!now || word == SPW_MOVED || !spw_limiter_conf_read(was, spw_bucket_slot(word), &g_from) ||
            !spw_limiter_conf_read(now, slot, &g_to) ||
            !spw_bucket_level_ok(&g_from, spw_bucket_level(word), now_ns))
            continue; /* a new one was made EMPTY and stays so */
        uint64_t level = spw_gcra_carry(&g_from, spw_bucket_level(word), &g_to, now_ns);
        spw_store_rel(&to_words->level,
                      spw_bucket_word(slot, level)); /* SYNC bucket: release: not visible yet */
    }
}

/* ---- views ---- */

static void view_observed(struct spw_state *state, uint32_t index, const struct spw_account *account,
                          struct spw_limit_view *out)
{
    struct spw_evidence e;
    const struct spw_observed *o = &state->observed[index];
    out->observed_limit_differs = o->differs;
    out->observed_limit_adopted = o->adopted_count != 0;
    if (!spw_evidence_read(account, &e))
        return;
    out->observed_limit_known = (e.known & SPW_EVIDENCE_LIMIT) != 0;
    out->observed_limit_count = e.limit_count;
    out->observed_remaining_known = (e.known & SPW_EVIDENCE_REMAINING) != 0;
    out->observed_remaining_count = e.remaining_count;
}

static void view_integrations(struct spw_state *state, const char *account, uint64_t mask,
                              struct spw_limit_view *out)
{
    size_t used = 0;
    for (uint32_t a = 0; mask != UINT64_MAX && a < state->conf->accounts_count; a++) {
        const struct spw_conf_account *conf = &state->conf->accounts[a];
        for (uint32_t k = 0; strcmp(conf->name, account) == 0 && k < conf->integrations_count; k++)
            if ((mask >> k & 1) && used < sizeof out->integrations)
                used += (size_t)snprintf(out->integrations + used, sizeof out->integrations - used, "%s%s",
                                         used ? "," : "", conf->integrations[k].name);
    }
}

static enum spw_status view_limiter(struct spw_state *state, uint32_t index, uint32_t place, uint64_t now_ns,
                                    struct spw_limit_view *out)
{
    const struct spw_account *account = spw_account_at(&state->map, index);
    struct spw_limiter_words *words;
    const struct spw_limiter *limiter = limiter_of(&state->map, account, place, &words);
    memset(out, 0, sizeof *out);
    if (!limiter)
        return SPW_STATUS_NOT_FOUND;
    const struct spw_conf_limiter *set = &state->limiter[index][place];
    memcpy(out->account, account->name, sizeof out->account);
    memcpy(out->limiter, limiter->name, sizeof out->limiter);
    out->limit = set->limit;
    out->endpoints = set->endpoints;
    view_integrations(state, out->account, set->integrations, out);
    const struct spw_limiter_conf *c = &limiter->conf[limiter->current % SPW_CONFIG_SLOTS];
    out->pod_rate = (struct spw_rate){c->tokens_count, c->period_ns};
    out->pod_burst_count = c->burst_count;
    out->version = account->version;
    struct spw_bucket_answer look = spw_bucket_take(limiter, words, now_ns, 1, false, 0, false);
    if (look.units_per_token)
        out->tokens_milli = (uint64_t)((spw_u128)look.available_units * 1000 / look.units_per_token);
    out->healed_count = spw_load_rlx(&words->healed_count); /* statistics */
    out->switches = limiter->switches | account->switches | spw_map_pub(&state->map)->switches;
    if (place + 1 == account->limiters_count)
        view_observed(state, index, account, out);
    return SPW_STATUS_OK;
}

enum spw_status spw_state_limiter_at(struct spw_state *state, uint32_t account_index, uint32_t place,
                                     uint64_t now_ns, struct spw_limit_view *out)
{
    const struct spw_account *account = spw_account_at(&state->map, account_index);
    if (!account || account->state != SPW_RECORD_LIVE || place >= account->limiters_count)
        return SPW_STATUS_NOT_FOUND;
    return view_limiter(state, account_index, place ? place - 1 : account->limiters_count - 1, now_ns, out);
}

/* ---- get and set ---- */

static enum spw_status find(struct spw_state *state, const char *account, const char *limiter,
                            uint32_t *index, uint32_t *place, struct spw_error *err)
{
    const struct spw_account *record = spw_state_account(state, account, index);
    if (!record)
        return spw_no_account(account, err);
    *place = place_of(&state->map, record, limiter ? limiter : SPW_LIMITER_ACCOUNT_NAME);
    return *place < record->limiters_count ? SPW_STATUS_OK : no_limiter(account, limiter ? limiter : "", err);
}

enum spw_status spw_state_limiter_get(struct spw_state *state, const char *account, const char *limiter,
                                      uint64_t now_ns, struct spw_limit_view *out, struct spw_error *err)
{
    uint32_t index, place = 0;
    enum spw_status status = find(state, account, limiter, &index, &place, err);
    return status == SPW_STATUS_OK ? view_limiter(state, index, place, now_ns, out) : status;
}

/* Can it be counted exactly? */
static enum spw_status check_exact(const struct spw_conf_limit *limit, uint64_t now_ns, struct spw_error *err)
{
    struct spw_limiter_conf trial;
    struct spw_rate rate;
    uint64_t burst;
    spw_limit_share(limit, &rate, &burst);
    bool ok = limit->kind == SPW_LIMITER_WINDOW
                  ? spw_gcra_configure_window(&trial, rate.tokens_count, rate.period_ns, 0, now_ns, 1)
                  : spw_gcra_configure(&trial, rate.tokens_count, rate.period_ns, burst, 0, now_ns, 1);
    return ok ? SPW_STATUS_OK
              : spw_error_set(err, SPW_STATUS_INVALID,
                              "limit.burst: more than about 1.5 years of the rate cannot be kept exactly");
}

enum spw_status spw_state_limiter_set(struct spw_state *state, const char *account, const char *limiter,
                                      const struct spw_conf_limit *limit, uint64_t expect_version,
                                      bool dry_run, uint64_t now_ns, struct spw_limit_view *out,
                                      struct spw_error *err)
{
    uint32_t index, place = 0;
    struct spw_conf_limit fresh = *limit;
    spw_conf_limit_complete(&fresh);
    enum spw_status status = find(state, account, limiter, &index, &place, err);
    if (status == SPW_STATUS_OK)
        status = spw_conf_limit_check(&fresh, err);
    if (status == SPW_STATUS_OK)
        status = spw_version_expect(spw_account_at(&state->map, index), expect_version, err);
    if (status == SPW_STATUS_OK)
        status = check_exact(&fresh, now_ns, err);
    if (status == SPW_STATUS_OK && !dry_run) {
        status = spw_limiter_install(state, index, place, &fresh, now_ns, false, err);
        spw_changed(&state->map);
        if (status == SPW_STATUS_OK) {
            state->limiter[index][place].limit = fresh;
            if (place + 1 == spw_account_at(&state->map, index)->limiters_count)
                spw_observed_forget(state, index);
        }
    }
    if (status != SPW_STATUS_OK)
        return status;
    status = view_limiter(state, index, place, now_ns, out);
    if (dry_run) {
        out->limit = fresh;
        spw_limit_share(&fresh, &out->pod_rate, &out->pod_burst_count);
    }
    return status;
}

enum spw_status spw_state_limit_get(struct spw_state *state, const char *account, uint64_t now_ns,
                                    struct spw_limit_view *out, struct spw_error *err)
{
    return spw_state_limiter_get(state, account, NULL, now_ns, out, err);
}

enum spw_status spw_state_limit_set(struct spw_state *state, const char *account,
                                    const struct spw_conf_limit *limit, uint64_t expect_version, bool dry_run,
                                    uint64_t now_ns, struct spw_limit_view *out, struct spw_error *err)
{
    return spw_state_limiter_set(state, account, NULL, limit, expect_version, dry_run, now_ns, out, err);
}

/* ---- switches ---- */

static void turn(const struct spw_map *map, uint64_t *switches, const struct spw_switch_change *change)
{
    uint64_t word = *switches;
    if (change->kill >= 0)
        word = change->kill ? word | SPW_SWITCH_KILL : word & ~SPW_SWITCH_KILL;
    if (change->observe >= 0)
        word = change->observe ? word | SPW_SWITCH_OBSERVE : word & ~SPW_SWITCH_OBSERVE;
    spw_store_rel(switches, word); /* SYNC switches: release */
    spw_changed(map);              /* every decision begun from here on obeys */
}

enum spw_status spw_state_switches_set(struct spw_state *state, const char *account, const char *limiter,
                                       const struct spw_switch_change *change, struct spw_error *err)
{
    uint32_t index, place = 0;
    if (!account) {
        turn(&state->map, &spw_map_pub(&state->map)->switches, change);
        return SPW_STATUS_OK;
    }
    enum spw_status status = find(state, account, limiter, &index, &place, err);
    if (status != SPW_STATUS_OK)
        return status;
    struct spw_account *record = spw_account_at(&state->map, index);
    struct spw_limiter_words *words;
    struct spw_limiter *one = limiter_of(&state->map, record, place, &words);
    if (!limiter || !one)
        turn(&state->map, &record->switches, change);
    else
        turn(&state->map, &one->switches, change);
    spw_store_rlx(&record->version, record->version + 1); /* SYNC account-version: relaxed: a lone word */
    return SPW_STATUS_OK;
}

/* ---- reload ---- */

enum spw_status spw_limiters_check(const struct spw_conf_account *conf, uint64_t now_ns,
                                   struct spw_error *err)
{
    enum spw_status status = check_exact(&conf->limit, now_ns, err);
    for (uint32_t i = 0; i < conf->limiters_count && status == SPW_STATUS_OK; i++)
        status = check_exact(&conf->limiters[i].limit, now_ns, err);
    return status == SPW_STATUS_OK
               ? status
               : spw_error_set(err, status,
                               "accounts.%s: a burst of more than about 1.5 years of its rate cannot be kept "
                               "exactly: lower it",
                               conf->name);
}

static bool same_limit(const struct spw_conf_limit *a, const struct spw_conf_limit *b)
{
    return a->rate.tokens_count == b->rate.tokens_count && a->rate.period_ns == b->rate.period_ns &&
           a->burst_count == b->burst_count && a->pods_count == b->pods_count && a->kind == b->kind;
}

static const struct spw_conf_limiter *named(const struct spw_conf_account *conf, const char *name)
{
    for (uint32_t i = 0; i < conf->limiters_count; i++)
        if (strcmp(conf->limiters[i].name, name) == 0)
            return &conf->limiters[i];
    return NULL;
}

enum spw_status spw_limiters_reload(struct spw_state *state, uint32_t index,
                                    const struct spw_conf_account *before,
                                    const struct spw_conf_account *after, uint64_t now_ns,
                                    struct spw_error *err)
{
    struct spw_account *account = spw_account_at(&state->map, index);
    enum spw_status status = SPW_STATUS_OK;
    for (uint32_t place = 0; account && place < account->limiters_count && status == SPW_STATUS_OK; place++) {
        struct spw_conf_limiter *set = &state->limiter[index][place];
        bool wide = place + 1 == account->limiters_count;
        const struct spw_conf_limiter *was = wide ? NULL : named(before, set->name);
        const struct spw_conf_limiter *is = wide ? NULL : named(after, set->name);
        if (!wide && (!was || !is))
            continue; /* refused before: an account's list does not change */
        const struct spw_conf_limit *limit = wide ? &after->limit : &is->limit;
        enum spw_limiter_mode mode = wide ? after->limit_mode : is->mode;
        bool changed = !same_limit(wide ? &before->limit : &was->limit, limit);
        if (!wide) {
            set->endpoints = is->endpoints;
            set->integrations = is->integrations;
        }
        if (changed)
            set->limit = *limit;
        if (changed || before->batch_reserve_ppm != after->batch_reserve_ppm)
            status = spw_limiter_install(state, index, place, &set->limit, now_ns, false, err);
        if (changed && wide)
            spw_observed_forget(state, index);
        if ((wide ? before->limit_mode : was->mode) != mode) {
            set->mode = mode;
            put_mode(state, account, place, mode);
        }
    }
    state->observed[index].adopts = after->adopt_lower;
    if (account) /* SYNC skip: relaxed: a lone word */
        spw_store32_rlx(&account->skip, spw_limiters_skip(state, index, UINT32_MAX));
    return status;
}

static enum spw_limiter_mode mode_of(const struct spw_limiter *limiter)
{
    return limiter->switches & SPW_SWITCH_KILL      ? SPW_LIMITER_OFF
           : limiter->switches & SPW_SWITCH_OBSERVE ? SPW_LIMITER_OBSERVE
                                                    : SPW_LIMITER_ENFORCE;
}

void spw_limiters_in_force(const struct spw_state *state, uint32_t index, struct spw_conf_account *conf)
{
    const struct spw_account *account = spw_account_at(&state->map, index);
    struct spw_limiter_words *words;
    for (uint32_t place = 0; account && place < account->limiters_count; place++) {
        const struct spw_limiter *limiter = limiter_of(&state->map, account, place, &words);
        const struct spw_conf_limiter *set = &state->limiter[index][place];
        if (!limiter)
            continue;
        if (place + 1 == account->limiters_count) {
            conf->limit = set->limit;
            conf->limit_mode = mode_of(limiter);
            continue;
        }
        for (uint32_t i = 0; i < conf->limiters_count; i++) {
            if (strcmp(conf->limiters[i].name, set->name) == 0) {
                conf->limiters[i].limit = set->limit;
                conf->limiters[i].mode = mode_of(limiter);
            }
        }
    }
}

/* ---- for the control API ---- */

enum spw_status spw_state_switches_get(struct spw_state *state, const char *account, const char *limiter,
                                       uint64_t *out, struct spw_error *err)
{
    uint32_t index, place = 0;
    *out = spw_map_pub(&state->map)->switches;
    if (!account)
        return SPW_STATUS_OK;
    enum spw_status status = find(state, account, limiter, &index, &place, err);
    if (status != SPW_STATUS_OK)
        return status;
    const struct spw_account *record = spw_account_at(&state->map, index);
    struct spw_limiter_words *words;
    const struct spw_limiter *one = limiter_of(&state->map, record, place, &words);
    *out = limiter && one ? one->switches : record->switches;
    return SPW_STATUS_OK;
}

const struct spw_conf *spw_state_conf(const struct spw_state *state)
{
    return state->conf;
}
