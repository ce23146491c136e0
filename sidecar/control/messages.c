/* messages.c: from plain structs to the messages of control.proto. See messages.h. */
#include "sidecar/control/messages.h"

#include <stdio.h>
#include <string.h>

#include "shm/spw_text.h"

Spillway__V1__Rate *spw_message_rate(struct spw_arena *arena, const struct spw_rate *rate)
{
    Spillway__V1__Rate *message = spw_arena_zalloc(arena, sizeof *message);
    spillway__v1__rate__init(message);
    char text[48];
    spw_format_rate(rate, text, sizeof text);
    message->text = spw_arena_copy(arena, text, sizeof text);
    SPW_SET(message, tokens, rate->tokens_count);
    SPW_SET(message, period_ns, rate->period_ns);
    return message;
}

/* "20/2s" of two pods is "10/s"; a window's length is its own. */
static struct spw_rate shortest(const struct spw_rate *rate, enum spw_limiter_kind kind)
{
    const uint64_t second_ns = UINT64_C(1000000000);
    uint64_t a = rate->tokens_count, b = rate->period_ns / second_ns;
    if (kind == SPW_LIMITER_WINDOW || !a || rate->period_ns % second_ns)
        return *rate;
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return (struct spw_rate){rate->tokens_count / a, rate->period_ns / a};
}

Spillway__V1__Limit *spw_message_limit(struct spw_arena *arena, const struct spw_limit_view *view)
{
    Spillway__V1__Limit *message = spw_arena_zalloc(arena, sizeof *message);
    spillway__v1__limit__init(message);
    message->account = spw_arena_copy(arena, view->account, sizeof view->account);
    message->rate = spw_message_rate(arena, &view->limit.rate);
    SPW_SET(message, burst, view->limit.burst_count);
    SPW_SET(message, pods, view->limit.pods_count);
    struct spw_rate pod_rate = shortest(&view->pod_rate, view->limit.kind);
    message->pod_rate = spw_message_rate(arena, &pod_rate);
    SPW_SET(message, pod_burst, view->pod_burst_count);
    SPW_SET(message, version, view->version);
    SPW_SET(message, tokens_milli, view->tokens_milli);
    SPW_SET(message, healed, view->healed_count);
    SPW_SET(message, killed, (view->switches & SPW_SWITCH_KILL) != 0);
    SPW_SET(message, observed_only, (view->switches & SPW_SWITCH_OBSERVE) != 0);
    static const char *const kinds[] = {"bucket", "leaky", "window"};
    static const char *const endpoints[SPW_ENDPOINTS_COUNT] = {"calculate", "record", "other", "refund"};
    char names[48];
    struct spw_text list = spw_text_on(names, sizeof names);
    for (uint32_t i = 0; i < SPW_ENDPOINTS_COUNT; i++) {
        if (!(view->endpoints >> i & 1))
            continue;
        spw_text_put(&list, list.used ? "," : "");
        spw_text_put(&list, endpoints[i]);
    }
    message->limiter = spw_arena_copy(arena, view->limiter, sizeof view->limiter);
    message->kind = (char *)kinds[view->limit.kind % 3]; /* protobuf-c has no const, and only reads */
    message->endpoints = spw_arena_copy(arena, names, sizeof names);
    if (view->integrations[0])
        message->integrations = spw_arena_copy(arena, view->integrations, sizeof view->integrations);
    SPW_SET(message, provider_limit_differs, view->observed_limit_differs);
    SPW_SET(message, provider_limit_adopted, view->observed_limit_adopted);
    if (view->observed_limit_known)
        SPW_SET(message, provider_limit, view->observed_limit_count);
    if (view->observed_remaining_known)
        SPW_SET(message, provider_remaining, view->observed_remaining_count);
    return message;
}

static Spillway__V1__BreakerForce force_of_word(const char *word)
{
    static const struct {
        const char *word;
        Spillway__V1__BreakerForce force;
    } words[] = {
        {"", SPILLWAY__V1__BREAKER_FORCE__BREAKER_FORCE_AUTO},
        {"open", SPILLWAY__V1__BREAKER_FORCE__BREAKER_FORCE_OPEN},
        {"closed", SPILLWAY__V1__BREAKER_FORCE__BREAKER_FORCE_CLOSED},
        {"disabled", SPILLWAY__V1__BREAKER_FORCE__BREAKER_FORCE_DISABLED},
        {"observe", SPILLWAY__V1__BREAKER_FORCE__BREAKER_FORCE_OBSERVE},
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(word, words[i].word) == 0)
            return words[i].force;
    }
    return SPILLWAY__V1__BREAKER_FORCE__BREAKER_FORCE_UNSPECIFIED;
}

static Spillway__V1__BreakerMode mode_of(enum spw_breaker_mode mode)
{
    switch (mode) {
    case SPW_BREAKER_ENFORCE:
        return SPILLWAY__V1__BREAKER_MODE__BREAKER_MODE_ENFORCE;
    case SPW_BREAKER_OBSERVE:
        return SPILLWAY__V1__BREAKER_MODE__BREAKER_MODE_OBSERVE;
    case SPW_BREAKER_DISABLED:
        return SPILLWAY__V1__BREAKER_MODE__BREAKER_MODE_DISABLED;
    }
    return SPILLWAY__V1__BREAKER_MODE__BREAKER_MODE_UNSPECIFIED;
}

Spillway__V1__Breaker *spw_message_breaker(struct spw_arena *arena, const struct spw_breaker_view *view)
{
    Spillway__V1__BreakerSettings *settings = spw_arena_zalloc(arena, sizeof *settings);
    spillway__v1__breaker_settings__init(settings);
    SPW_SET(settings, consecutive_429, view->conf.consecutive_429_count);
    SPW_SET(settings, ratio_429_ppm, view->conf.ratio_429_ppm);
    SPW_SET(settings, minimum, view->conf.minimum_count);
    SPW_SET(settings, window_ms, view->conf.window_ms);
    SPW_SET(settings, cooldown_min_ms, view->conf.cooldown_min_ms);
    SPW_SET(settings, cooldown_max_ms, view->conf.cooldown_max_ms);
    SPW_SET(settings, mode, mode_of(view->conf.mode));

    Spillway__V1__Breaker *message = spw_arena_zalloc(arena, sizeof *message);
    spillway__v1__breaker__init(message);
    message->account = spw_arena_copy(arena, view->account, sizeof view->account);
    message->state = spw_arena_copy(arena, view->state, sizeof view->state);
    SPW_SET(message, force, force_of_word(view->forced));
    SPW_SET(message, consecutive, view->consecutive_count);
    SPW_SET(message, trips, view->trips_count);
    SPW_SET(message, epoch, view->epoch);
    SPW_SET(message, open_for_ms, view->open_for_ms);
    message->settings = settings;
    SPW_SET(message, version, view->version);
    SPW_SET(message, gate_shut_for_ms, view->gate_shut_for_ms);
    message->gate_source = spw_arena_copy(arena, view->gate_source, sizeof view->gate_source);
    return message;
}

char *spw_message_sha256(struct spw_arena *arena, const uint8_t sha256[32])
{
    static const uint8_t NOT_STATED[32];
    return memcmp(sha256, NOT_STATED, sizeof NOT_STATED) == 0 ? NULL : spw_arena_hex(arena, sha256, 32);
}

Spillway__V1__RatesTable *spw_message_rates_table(struct spw_arena *arena, const struct spw_rates_view *view)
{
    size_t count = view->sources_count < SPW_SOURCES_MAX_COUNT ? view->sources_count : SPW_SOURCES_MAX_COUNT;
    Spillway__V1__RatesTable *message = spw_arena_zalloc(arena, sizeof *message);
    spillway__v1__rates_table__init(message);
    SPW_SET(message, version, view->version);
    SPW_SET(message, records, view->records_count);
    SPW_SET(message, capacity, view->capacity_count);
    SPW_SET(message, nearly_full, view->nearly_full);
    SPW_SET(message, upserts, view->upserts_count);
    SPW_SET(message, replaced, view->replaced_count);
    SPW_SET(message, learned, view->learned_count);
    SPW_SET(message, learned_capacity, view->learned_capacity_count);
    SPW_SET(message, learned_total, view->learned_total);
    SPW_SET(message, learned_evicted_total, view->learned_evicted_total);
    message->n_sources = count;
    message->sources = spw_arena_zalloc(arena, (count + 1) * sizeof(void *));
    for (size_t i = 0; i < count; i++) {
        const struct spw_source *source = &view->sources[i];
        Spillway__V1__RateSource *one = spw_arena_zalloc(arena, sizeof *one);
        spillway__v1__rate_source__init(one);
        one->name = spw_arena_copy(arena, source->name, sizeof source->name);
        char day[32];
        spw_format_day(source->as_of_day, day, sizeof day);
        one->as_of = spw_arena_copy(arena, day, sizeof day);
        SPW_SET(one, rows, source->rows_count);
        one->sha256 = spw_message_sha256(arena, source->sha256);
        SPW_SET(one, age_days, view->ages[i].days);
        SPW_SET(one, stale, view->ages[i].stale);
        SPW_SET(one, refused, view->ages[i].refused);
        message->sources[i] = one;
    }
    return message;
}

Spillway__V1__TaxRate *spw_message_tax_rate(struct spw_arena *arena, uint32_t ppb)
{
    Spillway__V1__TaxRate *message = spw_arena_zalloc(arena, sizeof *message);
    spillway__v1__tax_rate__init(message);
    char text[32];
    spw_format_rate_ppb(ppb, text, sizeof text);
    message->text = spw_arena_copy(arena, text, sizeof text);
    SPW_SET(message, ppb, ppb);
    return message;
}

Spillway__V1__Money *spw_message_money(struct spw_arena *arena, int64_t minor)
{
    Spillway__V1__Money *message = spw_arena_zalloc(arena, sizeof *message);
    spillway__v1__money__init(message);
    char text[32];
    spw_format_minor(minor, text, sizeof text);
    message->amount = spw_arena_copy(arena, text, sizeof text);
    SPW_SET(message, minor, minor);
    return message;
}
