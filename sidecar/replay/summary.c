/* summary.c: see summary.h. */
#include "sidecar/replay/summary.h"

#include <string.h>

#define NS_PER_S UINT64_C(1000000000)

static void count_second(struct spw_replay_tally *t, const struct spw_replay_result *r)
{
    uint64_t second = r->at_ns / NS_PER_S;
    if (second != t->second)
        t->second_asked = t->second_allowed = 0;
    t->second = second;
    t->second_asked++;
    t->second_allowed += r->allowed;
    if (t->second_asked > t->peak_asked) {
        t->peak_asked = t->second_asked;
        t->peak_asked_at_ns = second * NS_PER_S;
    }
    if (t->second_allowed > t->peak_allowed) {
        t->peak_allowed = t->second_allowed;
        t->peak_allowed_at_ns = second * NS_PER_S;
    }
}

static void count_acquire(struct spw_replay_tally *t, const struct spw_replay_result *r)
{
    t->acquires++;
    t->allowed += r->allowed;
    t->reserved += r->has_start;
    t->observed += r->observed;
    count_second(t, r);
    if (r->allowed)
        return;
    t->refused[r->cause]++;
    t->fallbacks[r->type]++;
    if (r->wait_ns != SPW_FOREVER_NS && r->wait_ns > t->longest_wait_ns)
        t->longest_wait_ns = r->wait_ns;
}

static void count_outcome(struct spw_replay_tally *t, const struct spw_replay_result *r, uint32_t deadline_ms)
{
    if (strcmp(r->verdict, "not-open") == 0) {
        t->not_open++;
        return;
    }
    t->outcomes++;
    t->live += strcmp(r->verdict, "live") == 0;
    t->rejected += strcmp(r->verdict, "rejected") == 0;
    if (r->type != SPW_FALLBACK_NONE)
        t->fallbacks[r->type]++;
    t->over_deadline += r->latency_ns > deadline_ms * UINT64_C(1000000);
    if (r->latency_ns > t->latest_ns)
        t->latest_ns = r->latency_ns;
}

void spw_replay_tally_add(struct spw_replay_tally *t, const struct spw_replay_result *r, uint32_t deadline_ms)
{
    if (r->op == SPW_REPLAY_ACQUIRE)
        count_acquire(t, r);
    else if (r->op == SPW_REPLAY_OUTCOME)
        count_outcome(t, r, deadline_ms);
    bool open = strcmp(r->breaker, "open") == 0;
    t->breaker_openings += open && !t->was_open;
    t->gate_closings += r->gate_shut && !t->was_shut;
    t->was_open = open;
    t->was_shut = r->gate_shut;
    if (r->open_count > t->peak_open)
        t->peak_open = r->open_count;
    if (r->remaining_known && (!t->seen || r->remaining_milli < t->lowest_milli)) {
        t->lowest_milli = r->remaining_milli;
        t->seen = true;
    }
}

uint64_t spw_replay_tally_fallback_ppm(const struct spw_replay_tally *t)
{
    uint64_t count = 0;
    for (unsigned i = 1; i < SPW_FALLBACK_COUNT; i++)
        count += t->fallbacks[i];
    uint64_t calls = t->acquires > t->outcomes ? t->acquires : t->outcomes;
    return calls ? (uint64_t)((spw_u128)count * 1000000u / calls) : 0;
}

static json_t *number(uint64_t value)
{
    return json_integer((json_int_t)(value <= INT64_MAX ? value : INT64_MAX));
}

static json_t *seconds(uint64_t ns)
{
    char text[SPW_REPLAY_SECONDS_BYTES];
    spw_replay_seconds_format(ns, text);
    return json_string(text);
}

json_t *spw_replay_tally_json(const struct spw_replay_tally *t, const char *account)
{
    json_t *refused = json_object(), *fallbacks = json_object();
    for (uint32_t i = 1; i < SPW_CAUSE_COUNT; i++)
        if (t->refused[i])
            json_object_set_new(refused, spw_cause_name(i), number(t->refused[i]));
    for (uint32_t i = 1; i < SPW_FALLBACK_COUNT; i++)
        if (t->fallbacks[i])
            json_object_set_new(fallbacks, spw_fallback_name(i), number(t->fallbacks[i]));
    return json_pack(
        "{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, "
        "s:o, "
        "s:o, s:o, s:o}",
        "account", account, "acquires", number(t->acquires), "allowed", number(t->allowed), "reserved",
        number(t->reserved), "observed", number(t->observed), "refused", refused, "outcomes",
        number(t->outcomes), "live", number(t->live), "rejected", number(t->rejected), "not_open",
        number(t->not_open), "fallbacks", fallbacks, "fallback_ppm", number(spw_replay_tally_fallback_ppm(t)),
        "breaker_openings", number(t->breaker_openings), "gate_closings", number(t->gate_closings),
        "longest_wait_ns", number(t->longest_wait_ns), "longest_latency_ns", number(t->latest_ns),
        "over_deadline", number(t->over_deadline), "peak_asked", number(t->peak_asked), "peak_asked_at",
        seconds(t->peak_asked_at_ns), "peak_allowed", number(t->peak_allowed), "peak_allowed_at",
        seconds(t->peak_allowed_at_ns), "peak_open", number(t->peak_open), "lowest_remaining_milli",
        t->seen ? number(t->lowest_milli) : json_null());
}
