/* change.c: see change.h. */
#include "sidecar/replay/change.h"

#include <stdio.h>
#include <string.h>

static bool whole(const json_t *value, uint32_t *out)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) > UINT32_MAX)
        return false;
    *out = (uint32_t)json_integer_value(value);
    return true;
}

static bool span_ms(const char *text, uint32_t *out)
{
    struct spw_error ignored;
    uint64_t ms;
    if (!text || spw_parse_duration_ms(text, &ms, &ignored) || ms > UINT32_MAX)
        return false;
    *out = (uint32_t)ms;
    return true;
}

/* "30s..60s", or one time for both. */
static bool cooldown(const char *text, struct spw_conf_breaker *out)
{
    char from[32];
    const char *dots = text ? strstr(text, "..") : NULL;
    if (!dots)
        return span_ms(text, &out->cooldown_min_ms) && span_ms(text, &out->cooldown_max_ms);
    if ((size_t)(dots - text) >= sizeof from)
        return false;
    snprintf(from, sizeof from, "%.*s", (int)(dots - text), text);
    return span_ms(from, &out->cooldown_min_ms) && span_ms(dots + 2, &out->cooldown_max_ms);
}

static bool mode(const char *text, enum spw_breaker_mode *out)
{
    static const char *const names[] = {"enforce", "observe", "disabled"};
    for (unsigned i = 0; text && i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(text, names[i]) == 0) {
            *out = (enum spw_breaker_mode)i;
            return true;
        }
    }
    return false;
}

static bool percent(const char *text, uint32_t *out_ppm)
{
    struct spw_error ignored;
    return text && spw_parse_percent_ppm(text, out_ppm, &ignored) == SPW_STATUS_OK;
}

static enum spw_status take_setting(const char *name, const json_t *value, struct spw_conf_breaker *out,
                                    struct spw_error *err)
{
    const char *text = json_string_value(value), *how = NULL;
    bool ok = true;
    if (strcmp(name, "consecutive_429") == 0 || strcmp(name, "minimum") == 0) {
        how = "a whole number";
        ok = whole(value, *name == 'c' ? &out->consecutive_429_count : &out->minimum_count);
    } else if (strcmp(name, "ratio_429") == 0) {
        how = "a percent as \"20%\"";
        ok = percent(text, &out->ratio_429_ppm);
    } else if (strcmp(name, "window") == 0) {
        how = "a duration as \"10s\"";
        ok = span_ms(text, &out->window_ms);
    } else if (strcmp(name, "cooldown") == 0) {
        how = "two durations as \"30s..60s\"";
        ok = cooldown(text, out);
    } else if (strcmp(name, "mode") == 0) {
        how = "\"enforce\", \"observe\" or \"disabled\"";
        ok = mode(text, &out->mode);
    }
    if (!how)
        return spw_error_set(
            err, SPW_STATUS_INVALID,
            "breaker.%.40s: is not known: consecutive_429, ratio_429, minimum, window, cooldown "
            "and mode are",
            name);
    return ok ? SPW_STATUS_OK : spw_error_set(err, SPW_STATUS_INVALID, "breaker.%.40s: write %s", name, how);
}

static enum spw_status merge_breaker(json_t *settings, struct spw_conf_breaker *out, struct spw_error *err)
{
    const char *name;
    json_t *value;
    json_object_foreach(settings, name, value)
    {
        enum spw_status bad = take_setting(name, value, out, err);
        if (bad)
            return bad;
    }
    enum spw_status status = spw_conf_breaker_check(out, err);
    if (status)
        spw_error_prefix(err, "breaker.");
    return status;
}

static bool names_limit(const struct spw_replay_change *change)
{
    return change->has_rate || change->has_burst || change->has_pods || change->has_kind;
}

static enum spw_status set_limit(struct spw_state *state, const char *account,
                                 const struct spw_replay_change *change, bool dry_run, uint64_t now_ns,
                                 struct spw_error *err)
{
    struct spw_limit_view view;
    enum spw_status status = spw_state_limiter_get(state, account, change->limiter, now_ns, &view, err);
    if (status || !names_limit(change))
        return status;
    struct spw_conf_limit limit = view.limit;
    if (change->has_rate)
        limit.rate = change->rate;
    if (change->has_burst)
        limit.burst_count = change->burst_count;
    if (change->has_pods)
        limit.pods_count = change->pods_count;
    if (change->has_kind)
        limit.kind = change->kind;
    spw_conf_limit_complete(&limit);
    return spw_state_limiter_set(state, account, change->limiter, &limit, 0, dry_run, now_ns, &view, err);
}

static enum spw_status set_switches(struct spw_state *state, const char *account,
                                    const struct spw_replay_change *change, struct spw_error *err)
{
    struct spw_switch_change switches = {.kill = change->kill, .observe = change->observe};
    /* A limit is named: its own switches. Else the whole account's, or everybody's. */
    return spw_state_switches_set(state, account, account ? change->limiter : NULL, &switches, err);
}

enum spw_status spw_replay_change_all(struct spw_state *state, const struct spw_replay_change *change,
                                      struct spw_error *err)
{
    return set_switches(state, NULL, change, err);
}

static enum spw_status set_breaker(struct spw_state *state, const char *account,
                                   const struct spw_replay_change *change, bool dry_run, uint64_t now_ns,
                                   uint64_t *version, struct spw_error *err)
{
    struct spw_breaker_view view;
    enum spw_status status = spw_state_breaker_get(state, account, now_ns, &view, err);
    if (status)
        return status;
    struct spw_conf_breaker settings = view.conf;
    if (change->breaker && (status = merge_breaker(change->breaker, &settings, err)))
        return status;
    struct spw_breaker_change breaker = {
        .conf = change->breaker ? &settings : NULL, .forced = change->forced, .reset = change->reset};
    if (change->breaker || change->forced >= 0 || change->reset)
        status = spw_state_breaker_set(state, account, &breaker, 0, dry_run, now_ns, &view, err);
    *version = view.version;
    return status;
}

/* One after the other; the first that refuses ends it. */
static enum spw_status change_each(struct spw_state *state, const char *account,
                                   const struct spw_replay_change *change, bool dry_run, uint64_t now_ns,
                                   uint64_t *version, struct spw_error *err)
{
    bool switches = change->kill >= 0 || change->observe >= 0;
    enum spw_status status = set_limit(state, account, change, dry_run, now_ns, err);
    if (!status && change->has_concurrency)
        status = spw_state_concurrency_set(state, account, change->concurrency_count, dry_run, err);
    if (!status && switches && !dry_run)
        status = set_switches(state, account, change, err);
    return status ? status : set_breaker(state, account, change, dry_run, now_ns, version, err);
}

enum spw_status spw_replay_change(struct spw_state *state, const char *account,
                                  const struct spw_replay_change *change, uint64_t now_ns, uint64_t *version,
                                  struct spw_error *err)
{
    if (!names_limit(change) && change->kill < 0 && change->observe < 0 && !change->breaker &&
        change->forced < 0 && !change->reset && !change->has_concurrency)
        return spw_error_set(
            err, SPW_STATUS_INVALID,
            "set: nothing to change: name rate, burst, pods, kind, concurrency, breaker, forced, reset, "
            "kill or observe");
    enum spw_status status = change_each(state, account, change, true, now_ns, version, err);
    return status ? status : change_each(state, account, change, false, now_ns, version, err);
}
