/* check.c: spillwayctl check: is Spillway there for the applications of this pod?
 *
 * Owns: nothing. Called by: main.c. Thread: one.
 */
#include <inttypes.h>
#include <stdio.h>

#include "proto/grpc/health/v1/health.pb-c.h"
#include "proto/spillway/v1/control.pb-c.h"
#include "sidecar/ctl/client.h"
#include "sidecar/ctl/take.h"
#include "sidecar/message/json.h"

static int check_health(const struct spw_ctl *ctl)
{
    Grpc__Health__V1__HealthCheckRequest request = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
    ProtobufCMessage *reply;
    int code = spw_client_unary(ctl, "/grpc.health.v1.Health/Check", &request.base,
                                &grpc__health__v1__health_check_response__descriptor, &reply);
    if (code)
        return code;
    bool serving = ((const Grpc__Health__V1__HealthCheckResponse *)reply)->status ==
                   GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING;
    protobuf_c_message_free_unpacked(reply, NULL);
    if (!serving)
        return spw_ctl_fail(ctl, SPW_CTL_REFUSED, "the sidecar is not serving: it starts, or drains");
    return SPW_CTL_OK;
}

/* One line, or one entry of `accounts`. */
static int check_account(const struct spw_ctl *ctl, const char *name, json_t *accounts)
{
    struct spw_ctl_take take;
    spw_ctl_take(name, &take);
    if (!take.answered)
        return spw_ctl_fail(
            ctl, SPW_CTL_REFUSED,
            "account %s: no token can be asked for: %s: mount the segment's two directories here, or "
            "name them by SPILLWAY_PUB_DIR and SPILLWAY_RW_DIR",
            name, take.why);
    if (ctl->json) {
        json_array_append_new(accounts,
                              json_pack("{s:s, s:b, s:I, s:s}", "account", name, "allowed", (int)take.allowed,
                                        "tokens_milli", (json_int_t)take.tokens_milli, "cause", take.why));
    } else if (take.allowed) {
        printf("%s: one of %" PRIu64 ".%03" PRIu64 " tokens taken and given back\n", name,
               take.tokens_milli / 1000, take.tokens_milli % 1000);
    } else {
        printf("%s: answered, no call now: %s\n", name, take.why);
    }
    return SPW_CTL_OK;
}

static int run_check(struct spw_ctl *ctl)
{
    Spillway__V1__GetStatusRequest request = SPILLWAY__V1__GET_STATUS_REQUEST__INIT;
    ProtobufCMessage *reply;
    int code = check_health(ctl);
    if (!code)
        code = spw_client_unary(ctl, "/spillway.v1.Status/Get", &request.base,
                                &spillway__v1__get_status_reply__descriptor, &reply);
    if (code)
        return code;
    const Spillway__V1__GetStatusReply *status = (const Spillway__V1__GetStatusReply *)reply;
    json_t *accounts = json_array();
    for (size_t i = 0; !code && i < status->n_accounts; i++) {
        if (status->accounts[i]->limit)
            code = check_account(ctl, status->accounts[i]->limit->account, accounts);
    }
    if (!code && ctl->json)
        spw_json_print(json_pack("{s:s, s:O}", "health", "SERVING", "accounts", accounts), false);
    else if (!code)
        printf("health: SERVING\n");
    json_decref(accounts);
    protobuf_c_message_free_unpacked(reply, NULL);
    return code;
}

const struct spw_ctl_command spw_ctl_check_commands[] = {
    {.name = "check",
     .arguments = "",
     .summary = "From an application's place: a token of each account, given back; the sidecar's health.",
     .examples = "  spillwayctl check\n",
     .run = run_check},
    {.name = NULL}};
