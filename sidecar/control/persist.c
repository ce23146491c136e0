/* persist.c: a change that was made is also kept for the next start. See persist.h. */
#include "sidecar/control/persist.h"

#include <grpc/support/alloc.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "sidecar/conf/conf_live.h"
#include "sidecar/control/server.h"
#include "sidecar/obs/log.h"

/* Changes are written in the order they were made, each on a thread of its own: what is kept is then what was in force
 * last. A ticket is drawn where the change is made, one at a time. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t next;
    uint64_t drawn, served; /* drawn: by who makes changes alone */
} turns = {.lock = PTHREAD_MUTEX_INITIALIZER, .next = PTHREAD_COND_INITIALIZER};

static void turn_begin(uint64_t ticket)
{
    pthread_mutex_lock(&turns.lock);
    while (turns.served != ticket)
        pthread_cond_wait(&turns.next, &turns.lock);
    pthread_mutex_unlock(&turns.lock);
}

static void turn_end(void)
{
    pthread_mutex_lock(&turns.lock);
    turns.served++;
    pthread_cond_broadcast(&turns.next);
    pthread_mutex_unlock(&turns.lock);
}

struct keeping {
    uint64_t ticket;
    spw_call_fn *answer;
    char path[SPW_PATH_BYTES + 32];
    char account[SPW_NAME_BYTES];
    struct spw_conf_limit limit;
    enum spw_limiter_mode mode;
    struct spw_conf_breaker breaker;
    struct spw_overlay_change change;
};

static void note_on_loop(struct spw_call *call)
{
    const struct keeping *keeping = call->keeping;
    if (call->control->live)
        spw_overlay_note(call->control->live->conf, &keeping->change);
    keeping->answer(call);
}

static void *keep(void *argument)
{
    struct spw_call *call = argument;
    const struct keeping *keeping = call->keeping;
    struct spw_error err;
    turn_begin(keeping->ticket);
    enum spw_status status = spw_overlay_write(keeping->path, &keeping->change, &err);
    call->is_done = status == SPW_STATUS_OK;
    if (call->is_done)
        spw_call_to_loop(call, note_on_loop); /* noted in the order written too */
    turn_end();
    if (status) {
        spw_log(SPW_LOG_ERROR, "control.persist", "%s", err.text);
        size_t used = strlen(err.text);
        snprintf(err.text + used, sizeof err.text - used, "; the change is in force until the next start");
        spw_call_fail(call, &err);
    } else {
        spw_log(SPW_LOG_INFO, "control.persist", "%s: %s in %s", keeping->account,
                keeping->change.clear ? "nothing is kept any more" : "kept for the next start",
                keeping->path);
    }
    spw_call_release(call); /* last: control may be freed */
    return NULL;
}

void spw_persist(struct spw_call *call, const struct spw_overlay_change *change, spw_call_fn *answer)
{
    struct keeping *keeping = gpr_zalloc(sizeof *keeping);
    pthread_attr_t detached;
    pthread_t thread;
    call->keeping = keeping;
    keeping->answer = answer;
    spw_overlay_path(spw_state_conf(call->control->state)->store_file, keeping->path, sizeof keeping->path);
    snprintf(keeping->account, sizeof keeping->account, "%s", change->account);
    keeping->change = (struct spw_overlay_change){.account = keeping->account, .clear = change->clear};
    if (change->limit) {
        keeping->limit = *change->limit;
        keeping->change.limit = &keeping->limit;
    }
    if (change->mode) {
        keeping->mode = *change->mode;
        keeping->change.mode = &keeping->mode;
    }
    if (change->breaker) {
        keeping->breaker = *change->breaker;
        keeping->change.breaker = &keeping->breaker;
    }
    keeping->ticket = turns.drawn++;
    spw_call_hold(call);
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    int error = pthread_create(&thread, &detached, keep, call);
    pthread_attr_destroy(&detached);
    if (!error)
        return;
    turns.drawn--;
    spw_call_refuse(
        call, GRPC_STATUS_INTERNAL,
        "persist: no thread to be had: raise the pids limit; the change is in force until the next start");
    spw_call_release(call);
}
