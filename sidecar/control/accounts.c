/* accounts.c: the service Accounts: what is configured, without its secrets.
 *
 * Owns: nothing. Called by: call.c. Thread: the loop's.
 */
#include <string.h>

#include "sidecar/control/messages.h"
#include "sidecar/control/methods.h"
#include "sidecar/control/server.h"

static Spillway__V1__Integration *message_integration(struct spw_arena *arena,
                                                      const struct spw_conf_integration *conf)
{
    Spillway__V1__Integration *message = spw_arena_zalloc(arena, sizeof *message);
    spillway__v1__integration__init(message);
    message->name = spw_arena_copy(arena, conf->name, sizeof conf->name);
    message->class_ = spw_arena_text(arena, "%s", conf->class_ == SPW_CLASS_BATCH ? "batch" : "checkout");
    return message;
}

static Spillway__V1__Account *message_account(struct spw_arena *arena, const struct spw_conf_account *conf)
{
    Spillway__V1__Account *message = spw_arena_zalloc(arena, sizeof *message);
    spillway__v1__account__init(message);
    message->name = spw_arena_copy(arena, conf->name, sizeof conf->name);
    message->provider = spw_arena_copy(arena, conf->provider, sizeof conf->provider);
    message->url = spw_arena_utf8(arena, conf->url, sizeof conf->url);
    message->integrations = spw_arena_zalloc(arena, (conf->integrations_count + 1) * sizeof(void *));
    for (uint32_t i = 0; i < conf->integrations_count; i++)
        message->integrations[message->n_integrations++] = message_integration(arena, &conf->integrations[i]);
    message->limiters = spw_arena_zalloc(arena, (conf->limiters_count + 1) * sizeof(void *));
    message->limiters[message->n_limiters++] = spw_arena_text(arena, "%s", SPW_LIMITER_ACCOUNT_NAME);
    for (uint32_t i = 0; i < conf->limiters_count; i++)
        message->limiters[message->n_limiters++] =
            spw_arena_copy(arena, conf->limiters[i].name, sizeof conf->limiters[i].name);
    SPW_SET(message, deadline_ms, conf->deadline_ms);
    SPW_SET(message, concurrency, conf->concurrency_count);
    if (conf->listen[0])
        message->listen = spw_arena_utf8(arena, conf->listen, sizeof conf->listen);
    return message;
}

static void list_on_loop(struct spw_call *call)
{
    const struct spw_conf *conf = spw_state_conf(call->control->state);
    struct spw_arena arena = {0};
    Spillway__V1__ListAccountsReply reply = SPILLWAY__V1__LIST_ACCOUNTS_REPLY__INIT;
    reply.accounts = spw_arena_zalloc(&arena, (conf->accounts_count + 1) * sizeof(void *));
    for (uint32_t i = 0; i < conf->accounts_count; i++)
        reply.accounts[reply.n_accounts++] = message_account(&arena, &conf->accounts[i]);
    spw_call_reply(call, &reply.base);
    spw_arena_clean_up(&arena);
}

void spw_accounts_list(struct spw_call *call)
{
    spw_call_at_once(call, list_on_loop);
}

static void get_on_loop(struct spw_call *call)
{
    const char *name = ((const Spillway__V1__GetAccountRequest *)call->request)->account;
    const struct spw_conf *conf = spw_state_conf(call->control->state);
    for (uint32_t i = 0; i < conf->accounts_count; i++) {
        if (strcmp(conf->accounts[i].name, name) != 0)
            continue;
        struct spw_arena arena = {0};
        Spillway__V1__GetAccountReply reply = SPILLWAY__V1__GET_ACCOUNT_REPLY__INIT;
        reply.account = message_account(&arena, &conf->accounts[i]);
        spw_call_reply(call, &reply.base);
        spw_arena_clean_up(&arena);
        return;
    }
    spw_call_refuse(call, GRPC_STATUS_NOT_FOUND,
                    "account: there is no account \"%s\"; Accounts.List names them", name);
}

void spw_accounts_get(struct spw_call *call)
{
    struct spw_error err;
    if (spw_name_check("account", ((Spillway__V1__GetAccountRequest *)call->request)->account, &err))
        spw_call_fail(call, &err);
    else
        spw_call_at_once(call, get_on_loop);
}
