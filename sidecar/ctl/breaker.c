/* breaker.c: spillwayctl breaker get | open | close | auto | observe | disable | trip | reset.
 *
 * Owns: nothing. Called by: main.c. Thread: one.
 */
#include <inttypes.h>
#include <stdio.h>

#include "proto/spillway/v1/control.pb-c.h"
#include "sidecar/ctl/breaker.h"
#include "sidecar/ctl/client.h"
#include "sidecar/message/json.h"
#include "sidecar/ctl/table.h"

static void print_settings(struct spw_table *table, const Spillway__V1__BreakerSettings *s)
{
    char mode[32], window[32], least[32], most[32];
    spw_json_word(&spillway__v1__breaker_mode__descriptor, (int)s->mode, mode, sizeof mode);
    spw_format_span(s->window_ms, window, sizeof window);
    spw_format_span(s->cooldown_min_ms, least, sizeof least);
    spw_format_span(s->cooldown_max_ms, most, sizeof most);
    spw_table_add(table, "opens");
    spw_table_add(table, "after %u answers 429 in a row, or above %u.%02u %% bad of at least %u in %s",
                  s->consecutive_429, s->ratio_429_ppm / 10000, s->ratio_429_ppm % 10000 / 100, s->minimum,
                  window);
    spw_table_add(table, "cooldown");
    spw_table_add(table, "%s to %s", least, most);
    spw_table_add(table, "mode");
    spw_table_add(table, "%s", mode);
}

static bool is_held(const Spillway__V1__Breaker *b)
{
    return b->force != SPILLWAY__V1__BREAKER_FORCE__BREAKER_FORCE_AUTO;
}

void spw_breaker_words(const Spillway__V1__Breaker *b, char *out, size_t room)
{
    char force[32];
    spw_json_word(&spillway__v1__breaker_force__descriptor, (int)b->force, force, sizeof force);
    if (b->force == SPILLWAY__V1__BREAKER_FORCE__BREAKER_FORCE_OBSERVE)
        snprintf(out, room, "observes by hand (%s)", b->state);
    else
        snprintf(out, room, "%s%s", is_held(b) ? force : b->state, is_held(b) ? ", held by hand" : "");
}

static void print_breaker(const Spillway__V1__Breaker *b)
{
    char words[64], span[32];
    struct spw_table table = {.columns_count = 2};
    spw_breaker_words(b, words, sizeof words);
    spw_table_add(&table, "account");
    spw_table_add(&table, "%s", b->account);
    spw_table_add(&table, "state");
    spw_format_span(b->open_for_ms, span, sizeof span);
    if (b->open_for_ms && !is_held(b))
        spw_table_add(&table, "%s, a probe in %s", words, span);
    else
        spw_table_add(&table, "%s", words);
    spw_table_add(&table, "by hand");
    if (is_held(b))
        spw_table_add(&table, "yes: without that it would be %s", b->state);
    else
        spw_table_add(&table, "no: it decides by itself");
    if (b->expires_in_ms) {
        spw_format_span(b->expires_in_ms, span, sizeof span);
        spw_table_add(&table, "goes back");
        spw_table_add(&table, "in %s", span);
    }
    spw_table_add(&table, "counted");
    spw_table_add(&table, "%u answers 429 in a row, %u openings in a row", b->consecutive, b->trips);
    if (b->settings)
        print_settings(&table, b->settings);
    spw_table_add(&table, "gate");
    spw_format_span(b->gate_shut_for_ms, span, sizeof span);
    if (b->gate_shut_for_ms)
        spw_table_add(&table, "shut for %s (%s)", span, b->gate_source ? b->gate_source : "?");
    else
        spw_table_add(&table, "open");
    spw_table_add(&table, "version");
    spw_table_add(&table, "%" PRIu64, b->version);
    spw_table_print(&table);
}

static void show_breaker(const ProtobufCMessage *request, const ProtobufCMessage *reply)
{
    const Spillway__V1__Breaker *breaker = ((const Spillway__V1__GetBreakerReply *)reply)->breaker;
    (void)request;
    if (breaker)
        print_breaker(breaker);
}

static int run_get(struct spw_ctl *ctl)
{
    Spillway__V1__GetBreakerRequest request = SPILLWAY__V1__GET_BREAKER_REQUEST__INIT;
    request.account = ctl->arguments[0];
    return spw_client_show(ctl, "/spillway.v1.Breakers/Get", &request.base,
                           &spillway__v1__get_breaker_reply__descriptor, show_breaker);
}

static void show_set(const ProtobufCMessage *request, const ProtobufCMessage *reply)
{
    const Spillway__V1__SetBreakerReply *set = (const Spillway__V1__SetBreakerReply *)reply;
    (void)request;
    if (!set->breaker)
        return;
    print_breaker(set->breaker);
    spw_print_in_force(set->dry_run, set->breaker->expires_in_ms);
}

static int change(struct spw_ctl *ctl, Spillway__V1__SetBreakerRequest *request)
{
    uint64_t version = 0;
    bool has_version;
    if (!spw_ctl_number(ctl, "--expect-version", 1, UINT64_MAX, &version, &has_version))
        return SPW_CTL_USAGE;
    request->account = ctl->arguments[0];
    request->has_expect_version = has_version;
    request->expect_version = version;
    bool has_for;
    if (!spw_ctl_for(ctl, &request->for_ms, &has_for))
        return SPW_CTL_USAGE;
    request->has_for_ms = has_for;
    request->has_dry_run = request->dry_run = spw_ctl_value(ctl, "--dry-run") != NULL;
    return spw_client_show(ctl, "/spillway.v1.Breakers/Set", &request->base,
                           &spillway__v1__set_breaker_reply__descriptor, show_set);
}

static int force(struct spw_ctl *ctl, Spillway__V1__BreakerForce value)
{
    Spillway__V1__SetBreakerRequest request = SPILLWAY__V1__SET_BREAKER_REQUEST__INIT;
    request.has_force = 1;
    request.force = value;
    return change(ctl, &request);
}

static int run_open(struct spw_ctl *ctl)
{
    return force(ctl, SPILLWAY__V1__BREAKER_FORCE__BREAKER_FORCE_OPEN);
}

static int run_close(struct spw_ctl *ctl)
{
    return force(ctl, SPILLWAY__V1__BREAKER_FORCE__BREAKER_FORCE_CLOSED);
}

static int run_auto(struct spw_ctl *ctl)
{
    return force(ctl, SPILLWAY__V1__BREAKER_FORCE__BREAKER_FORCE_AUTO);
}

static int run_observe(struct spw_ctl *ctl)
{
    return force(ctl, SPILLWAY__V1__BREAKER_FORCE__BREAKER_FORCE_OBSERVE);
}

static int run_disable(struct spw_ctl *ctl)
{
    return force(ctl, SPILLWAY__V1__BREAKER_FORCE__BREAKER_FORCE_DISABLED);
}

static int run_trip(struct spw_ctl *ctl)
{
    Spillway__V1__SetBreakerRequest request = SPILLWAY__V1__SET_BREAKER_REQUEST__INIT;
    request.has_trip = request.trip = 1;
    return change(ctl, &request);
}

static int run_reset(struct spw_ctl *ctl)
{
    Spillway__V1__SetBreakerRequest request = SPILLWAY__V1__SET_BREAKER_REQUEST__INIT;
    request.has_reset = request.reset = 1;
    return change(ctl, &request);
}

/* for_option: "--for" where there is something to go back to, else NULL, which ends the options. */
#define CHANGE(word, text, fn, for_option)                                                                   \
    {                                                                                                        \
        .group = "breaker", .name = (word), .arguments = "ACCOUNT", .arguments_min = 1, .arguments_max = 1,  \
        .summary = (text), .examples = "  spillwayctl breaker " word " main\n",                              \
        .options = {{"--expect-version", "N", "refuse if the account is at another version"},                \
                    {"--dry-run", NULL, "say what would be; change nothing"},                                \
                    {(for_option), "TIME", "goes back by itself after it, 1s to 7d"}},                       \
        .run = (fn)                                                                                          \
    }

const struct spw_ctl_command spw_ctl_breaker_commands[] = {
    {.group = "breaker",
     .name = "get",
     .arguments = "ACCOUNT",
     .arguments_min = 1,
     .arguments_max = 1,
     .summary = "One account's breaker and gate.",
     .examples = "  spillwayctl breaker get main\n",
     .run = run_get},
    CHANGE("open", "Hold it open: no call goes out, every quote falls back.", run_open, "--for"),
    CHANGE("close", "Hold it closed: calls go out whatever the outcomes.", run_close, "--for"),
    CHANGE("auto", "Let go of it: it decides by itself again.", run_auto, "--for"),
    CHANGE("observe", "It decides and counts, but stops no call.", run_observe, "--for"),
    CHANGE("disable", "As if there were no breaker.", run_disable, "--for"),
    CHANGE("trip", "Open it now for its cooldown, as bad outcomes would; it then probes by itself.", run_trip,
           NULL),
    CHANGE("reset", "Close it now and forget what it has counted.", run_reset, NULL),
    {.name = NULL}};
