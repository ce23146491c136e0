/* why.c: spillwayctl why: why orders fall back, and what would help, on one screen.
 *
 * Owns: nothing. Called by: main.c. Thread: one.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "proto/spillway/v1/control.pb-c.h"
#include "sidecar/conf/conf.h"
#include "sidecar/ctl/breaker.h"
#include "sidecar/ctl/client.h"
#include "sidecar/ctl/table.h"
#include "sidecar/message/json.h"

/* "53 %", "0.4 %" */
static void format_share(uint32_t ppm, char *out, size_t room)
{
    if (ppm && ppm < 10000)
        snprintf(out, room, "%u.%02u %%", ppm / 10000, ppm % 10000 / 100);
    else
        snprintf(out, room, "%u %%", (ppm + 5000) / 10000);
}

static void print_sentence(const Spillway__V1__WhyAccount *a)
{
    char span[32], share[32];
    spw_format_span(a->window_ms, span, sizeof span);
    format_share(a->fallback_ppm, share, sizeof share);
    printf("%s: %" PRIu64 ".%" PRIu64 "/s wanted, %" PRIu64 ".%" PRIu64 "/s allowed, %" PRIu64
           " provider 429; %s fell back (last %s)\n",
           a->account, a->wanted_per_s_milli / 1000, a->wanted_per_s_milli % 1000 / 100,
           a->allowed_per_s_milli / 1000, a->allowed_per_s_milli % 1000 / 100, a->provider_429, share, span);
}

static void print_state(const Spillway__V1__WhyAccount *a)
{
    char breaker[64], gate[32];
    const Spillway__V1__Limit *l = a->limit;
    const Spillway__V1__Breaker *b = a->breaker;
    if (!l || !b || !l->rate || !l->pod_rate)
        return;
    spw_breaker_words(b, breaker, sizeof breaker);
    spw_format_span(b->gate_shut_for_ms, gate, sizeof gate);
    printf("  limit %s, burst %" PRIu64 ", of %u pods; breaker %s; gate %s%s%s\n", l->rate->text, l->burst,
           l->pods, breaker, b->gate_shut_for_ms ? "shut for " : "open", b->gate_shut_for_ms ? gate : "",
           l->killed          ? "; LIMITER OFF: nothing is refused"
           : l->observed_only ? "; LIMITER OBSERVES: nothing is refused"
                              : "");
}

static void print_causes(const Spillway__V1__WhyAccount *a)
{
    static const char *const titles[] = {"  NOT LIVE BECAUSE", ">TIMES", ">SHARE", "WHAT HELPS"};
    struct spw_table table = {.columns_count = 4, .titles = titles};
    for (size_t i = 0; i < a->n_causes; i++) {
        char share[32];
        format_share(a->causes[i]->share_ppm, share, sizeof share);
        spw_table_add(&table, "  %s", a->causes[i]->why);
        spw_table_add(&table, "%" PRIu64, a->causes[i]->count);
        spw_table_add(&table, "%s", share);
        spw_table_add(&table, "%s", a->causes[i]->help);
    }
    if (a->n_causes)
        spw_table_print(&table);
    else
        printf("  nothing fell back\n");
}

static void print_changes(const Spillway__V1__WhyAccount *a)
{
    char now[32], then[32];
    struct spw_table table = {.columns_count = 2};
    format_share(a->fallback_ppm, now, sizeof now);
    for (size_t i = 0; i < a->n_changes; i++) {
        format_share(a->changes[i]->fallback_ppm, then, sizeof then);
        spw_table_add(&table, "  %s", a->changes[i]->command);
        spw_table_add(&table, "would change fallback %s -> %s", now, then);
    }
    spw_table_print(&table);
    if (a->n_changes)
        printf("  Ask the provider first whether the account may have it; --for 2h lets it go back by "
               "itself.\n");
}

static int run_why(struct spw_ctl *ctl)
{
    Spillway__V1__WhyRequest request = SPILLWAY__V1__WHY_REQUEST__INIT;
    Spillway__V1__Rate rate = SPILLWAY__V1__RATE__INIT;
    const char *window = spw_ctl_value(ctl, "--over");
    if (window) {
        uint64_t ms = 0;
        struct spw_error err;
        if (spw_parse_duration_ms(window, &ms, &err))
            return spw_ctl_usage(ctl, "--over: %s", err.text);
        if (ms < 1000 || ms > 300000)
            return spw_ctl_usage(ctl, "--over %s: write 1s to 5m", window);
        request.has_window_ms = 1;
        request.window_ms = (uint32_t)ms;
    }
    request.account = (char *)spw_ctl_value(ctl, "--account"); /* protobuf-c has no const, and only reads */
    rate.text = (char *)spw_ctl_value(ctl, "--rate");
    request.rate = rate.text ? &rate : NULL;
    ProtobufCMessage *reply;
    int code = spw_client_unary(ctl, "/spillway.v1.Status/Why", &request.base,
                                &spillway__v1__why_reply__descriptor, &reply);
    if (code)
        return code;
    const Spillway__V1__WhyReply *why = (const Spillway__V1__WhyReply *)reply;
    if (ctl->json) {
        spw_json_print(spw_json_of_message(reply), false);
    } else {
        for (size_t i = 0; i < why->n_accounts; i++) {
            printf("%s", i ? "\n" : "");
            print_sentence(why->accounts[i]);
            print_state(why->accounts[i]);
            print_causes(why->accounts[i]);
            print_changes(why->accounts[i]);
        }
    }
    protobuf_c_message_free_unpacked(reply, NULL);
    return SPW_CTL_OK;
}

const struct spw_ctl_command spw_ctl_why_commands[] = {
    {.name = "why",
     .arguments = "",
     .summary =
         "Why orders fall back: demand, what the limit allows, the provider's 429, what a change would do.",
     .examples = "  spillwayctl why\n  spillwayctl why --account main --rate 150/s\n",
     .options = {{"--account", "NAME", "only this account"},
                 {"--over", "TIME", "look at the last so long, 1s to 5m (default 1m)"},
                 {"--rate", "RATE", "also say what this rate of the whole account would do"}},
     .run = run_why},
    {.name = NULL}};
