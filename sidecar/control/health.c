/* health.c: grpc.health.v1: Check and Watch.
 *
 * Owns: the serving word. Called by: call.c, server.c (drain). Thread: Check and Watch on the server's thread,
 * spw_control_serving_set on any; health_lock keeps a watcher's last word and the message that carried it together.
 */
#include <grpc/support/alloc.h>
#include <string.h>

#include "proto/grpc/health/v1/health.pb-c.h"
#include "sidecar/control/methods.h"
#include "sidecar/control/server.h"

#define WATCHERS_MAX_COUNT 64u

/* `own` of a watcher: what it was told last, as status + 1; 0 = nothing yet. */
struct watcher {
    int told;
    bool known; /* the service it asked for exists */
};

/* The whole server, or any service of the schema: all live and fall together. */
static bool is_known(struct spw_call *call)
{
    const char *wanted = ((Grpc__Health__V1__HealthCheckRequest *)call->request)->service;
    if (!*wanted)
        return true;
    const char *name;
    for (size_t i = 0; (name = spw_schema_service(call->control->schema, i)); i++) {
        if (strcmp(name, wanted) == 0)
            return true;
    }
    return false;
}

static int status_now(struct spw_control *control)
{
    return atomic_load(&control->serving)
               ? GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING
               : GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING;
}

void spw_health_check(struct spw_call *call)
{
    if (!is_known(call)) {
        spw_call_refuse(
            call, GRPC_STATUS_NOT_FOUND,
            "service: no such service: reflection lists what there is; empty asks for the whole server");
        return;
    }
    Grpc__Health__V1__HealthCheckResponse response = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    response.status = (Grpc__Health__V1__HealthCheckResponse__ServingStatus)status_now(call->control);
    spw_call_reply(call, &response.base);
}

/* A message in flight is followed by another look when it is out. */
static void tell(struct spw_call *call)
{
    struct spw_control *control = call->control;
    struct watcher *watcher = call->own;
    pthread_mutex_lock(&control->health_lock);
    int status = watcher->known ? status_now(control)
                                : GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVICE_UNKNOWN;
    Grpc__Health__V1__HealthCheckResponse response = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    response.status = (Grpc__Health__V1__HealthCheckResponse__ServingStatus)status;
    if (watcher->told != status + 1 && spw_call_send(call, &response.base))
        watcher->told = status + 1;
    pthread_mutex_unlock(&control->health_lock);
}

static void free_watcher(struct spw_call *call)
{
    gpr_free(call->own);
}

/* Begun Watch calls, held; at most room. */
static size_t watchers(struct spw_control *control, struct spw_call **out, size_t room)
{
    size_t count = 0;
    pthread_mutex_lock(&control->lock);
    for (struct spw_call *call = control->calls; call && count < room; call = call->next) {
        if (call->on_sent != tell)
            continue;
        spw_call_hold(call);
        out[count++] = call;
    }
    pthread_mutex_unlock(&control->lock);
    return count;
}

void spw_health_watch(struct spw_call *call)
{
    struct spw_call *others[WATCHERS_MAX_COUNT];
    size_t count = watchers(call->control, others, WATCHERS_MAX_COUNT);
    for (size_t i = 0; i < count; i++)
        spw_call_release(others[i]);
    if (count == WATCHERS_MAX_COUNT) {
        spw_call_refuse(call, GRPC_STATUS_RESOURCE_EXHAUSTED, "%u watchers are there already: use Check",
                        WATCHERS_MAX_COUNT);
        return;
    }
    struct watcher *watcher = gpr_zalloc(sizeof *watcher);
    watcher->known = is_known(call);
    call->own = watcher;
    call->on_free = free_watcher;
    pthread_mutex_lock(&call->control->lock);
    call->on_sent = tell;
    pthread_mutex_unlock(&call->control->lock);
    tell(call);
}

void spw_control_serving_set(struct spw_control *control, bool serving)
{
    atomic_store(&control->serving, serving);
    struct spw_call *list[WATCHERS_MAX_COUNT];
    size_t count = watchers(control, list, WATCHERS_MAX_COUNT);
    for (size_t i = 0; i < count; i++) {
        tell(list[i]);
        spw_call_release(list[i]);
    }
}
