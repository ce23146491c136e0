/* stats.c: see stats.h. */
#include "sidecar/mock/stats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NS_PER_S UINT64_C(1000000000)

void spw_mock_stats_reset(struct spw_mock_stats *stats)
{
    uint64_t epoch = stats->epoch + 1;
    free(stats->accepted_ns);
    memset(stats, 0, sizeof *stats);
    stats->epoch = epoch;
}

void spw_mock_stats_clean_up(struct spw_mock_stats *stats)
{
    free(stats->accepted_ns);
    stats->accepted_ns = NULL;
}

uint64_t spw_mock_stats_seen(struct spw_mock_stats *stats, uint64_t now_ns)
{
    uint64_t second = now_ns / NS_PER_S;
    stats->requests_count++;
    stats->in_flight_count++;
    if (stats->seconds_count == 0 || stats->seconds[stats->seconds_count - 1].second != second) {
        if (stats->seconds_count == SPW_MOCK_SECONDS_MAX_COUNT) {
            /* Forget the older half at once, so that a busy second never pays for moving the list. */
            uint64_t half = SPW_MOCK_SECONDS_MAX_COUNT / 2;
            memmove(stats->seconds, stats->seconds + half, half * sizeof stats->seconds[0]);
            stats->seconds_count = half;
            stats->seconds_forgotten_count += half;
        }
        stats->seconds[stats->seconds_count++] = (struct spw_mock_second){.second = second};
    }
    struct spw_mock_second *last = &stats->seconds[stats->seconds_count - 1];
    last->seen_count++;
    if (last->seen_count > stats->max_per_second)
        stats->max_per_second = last->seen_count;
    return second;
}

/* Room for one more time in the ring; on no memory the ring stays as it is and the maximum is a lower bound. */
static bool grow(struct spw_mock_stats *stats)
{
    if (stats->accepted_held < stats->accepted_room)
        return true;
    uint64_t room = stats->accepted_room ? 2 * stats->accepted_room : 256;
    uint64_t *ring = malloc(room * sizeof *ring);
    if (!ring)
        return false;
    for (uint64_t i = 0; stats->accepted_room && i < stats->accepted_held; i++)
        ring[i] = stats->accepted_ns[(stats->accepted_first + i) % stats->accepted_room];
    free(stats->accepted_ns);
    stats->accepted_ns = ring;
    stats->accepted_room = room;
    stats->accepted_first = 0;
    return true;
}

void spw_mock_stats_accepted(struct spw_mock_stats *stats, uint64_t now_ns)
{
    stats->accepted_count++;
    while (stats->accepted_held && now_ns - stats->accepted_ns[stats->accepted_first] >= NS_PER_S) {
        stats->accepted_first = (stats->accepted_first + 1) % stats->accepted_room;
        stats->accepted_held--;
    }
    if (!grow(stats))
        return;
    stats->accepted_ns[(stats->accepted_first + stats->accepted_held) % stats->accepted_room] = now_ns;
    stats->accepted_held++;
    if (stats->accepted_held > stats->max_accepted_count)
        stats->max_accepted_count = stats->accepted_held;
}

void spw_mock_stats_answered(struct spw_mock_stats *stats, uint64_t epoch, uint64_t second, unsigned status)
{
    if (epoch != stats->epoch)
        return;
    stats->in_flight_count--;
    stats->by_status_count[status < 600 ? status : 599]++;
    for (uint64_t i = stats->seconds_count; i > 0 && stats->seconds[i - 1].second >= second; i--) {
        if (stats->seconds[i - 1].second != second)
            continue;
        stats->seconds[i - 1].answered_200_count += status == 200;
        stats->seconds[i - 1].answered_429_count += status == 429;
    }
}

void spw_mock_stats_acted(struct spw_mock_stats *stats, uint64_t epoch, enum spw_mock_action action)
{
    if (epoch != stats->epoch)
        return;
    stats->in_flight_count--;
    stats->by_action_count[action]++;
}

static json_t *by_status(const struct spw_mock_stats *stats)
{
    json_t *out = json_object();
    for (unsigned status = 0; status < 600; status++) {
        char name[8];
        if (!stats->by_status_count[status])
            continue;
        snprintf(name, sizeof name, "%u", status);
        json_object_set_new(out, name, json_integer((json_int_t)stats->by_status_count[status]));
    }
    return out;
}

static json_t *by_action(const struct spw_mock_stats *stats)
{
    json_t *out = json_object();
    for (uint32_t action = 1; action < SPW_MOCK_ACTION_COUNT; action++)
        if (stats->by_action_count[action])
            json_object_set_new(out, spw_mock_action_name(action),
                                json_integer((json_int_t)stats->by_action_count[action]));
    return out;
}

json_t *spw_mock_stats_json(const struct spw_mock_stats *stats)
{
    json_t *seconds = json_array();
    for (uint64_t i = 0; i < stats->seconds_count; i++) {
        const struct spw_mock_second *s = &stats->seconds[i];
        json_array_append_new(seconds, json_pack("{s:I, s:I, s:I, s:I}", "second", (json_int_t)s->second,
                                                 "seen", (json_int_t)s->seen_count, "answered_200",
                                                 (json_int_t)s->answered_200_count, "answered_429",
                                                 (json_int_t)s->answered_429_count));
    }
    return json_pack("{s:I, s:I, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:o}", "requests_total",
                     (json_int_t)stats->requests_count, "in_flight", (json_int_t)stats->in_flight_count,
                     "by_status", by_status(stats), "by_action", by_action(stats), "accepted_total",
                     (json_int_t)stats->accepted_count, "over_limit", (json_int_t)stats->over_limit_count,
                     "max_per_second", (json_int_t)stats->max_per_second, "max_accepted_in_any_second",
                     (json_int_t)stats->max_accepted_count, "seconds_forgotten",
                     (json_int_t)stats->seconds_forgotten_count, "per_second", seconds);
}
