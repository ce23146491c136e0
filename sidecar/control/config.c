/* config.c: the service Configuration: what is in force, and what another file would change.
 *
 * Owns: nothing. Called by: call.c. Thread: a file is read on the server's, compared on the loop's.
 */
#include <string.h>

#include "sidecar/conf/conf_live.h"
#include "sidecar/conf/conf_values.h"
#include "sidecar/conf/conf_yaml.h"
#include "sidecar/control/messages.h"
#include "sidecar/control/methods.h"
#include "sidecar/control/server.h"

/* The settings in force: the file's, and what was set at run time. */
static enum spw_status in_force(const struct spw_control *control, struct spw_conf_values *out,
                                struct spw_error *err)
{
    struct spw_conf *conf = spw_conf_copy(control->live->conf);
    if (!conf)
        return spw_error_set(err, SPW_STATUS_NO_MEMORY, "configuration: no memory to look at it");
    spw_state_conf_in_force(control->state, conf);
    enum spw_status status = spw_conf_values_make(conf, out, err);
    spw_conf_destroy(conf);
    return status;
}

/* The settings as the file alone has them, without what is kept by hand. */
static enum spw_status of_file(const struct spw_control *control, struct spw_conf_values *out,
                               struct spw_error *err)
{
    struct spw_conf *conf = spw_conf_copy(control->live->conf);
    if (!conf)
        return spw_error_set(err, SPW_STATUS_NO_MEMORY, "configuration: no memory to look at it");
    for (uint32_t i = 0; i < conf->accounts_count; i++) {
        struct spw_conf_account *a = &conf->accounts[i];
        a->limit = a->file_says.limit;
        a->limit_mode = a->file_says.limit_mode;
        a->breaker = a->file_says.breaker;
    }
    enum spw_status status = spw_conf_values_make(conf, out, err);
    spw_conf_destroy(conf);
    return status;
}

static bool begins(const char *path, const char *with)
{
    return strncmp(path, with, strlen(with)) == 0;
}

/* Is this setting among those that are kept by hand? */
static bool is_kept(const struct spw_conf *conf, const char *path)
{
    for (uint32_t i = 0; i < conf->accounts_count; i++) {
        const struct spw_conf_account *a = &conf->accounts[i];
        size_t bytes = strlen(a->name);
        if (!begins(path, "accounts.") || strncmp(path + 9, a->name, bytes) != 0 || path[9 + bytes] != '.')
            continue;
        const char *rest = path + 9 + bytes + 1;
        const struct spw_conf_file_says *says = &a->file_says;
        if (strcmp(rest, "limit.mode") == 0)
            return says->mode_kept;
        if (begins(rest, "breaker."))
            return says->breaker_kept;
        return says->limit_kept && (strcmp(rest, "limit.rate") == 0 || strcmp(rest, "limit.burst") == 0 ||
                                    strcmp(rest, "limit.pods") == 0);
    }
    return false;
}

static Spillway__V1__ConfigOrigin origin_of(const struct spw_conf *conf, const char *path, const char *now,
                                            const struct spw_conf_value *start)
{
    if (start && strcmp(start->text, now) != 0)
        return SPILLWAY__V1__CONFIG_ORIGIN__CONFIG_ORIGIN_RUNTIME;
    return is_kept(conf, path) ? SPILLWAY__V1__CONFIG_ORIGIN__CONFIG_ORIGIN_OVERLAY
                               : SPILLWAY__V1__CONFIG_ORIGIN__CONFIG_ORIGIN_FILE;
}

static void show_on_loop(struct spw_call *call)
{
    const struct spw_conf_live *live = call->control->live;
    struct spw_conf_values file = {0}, start = {0}, now = {0};
    struct spw_error err;
    enum spw_status status = of_file(call->control, &file, &err);
    if (status == SPW_STATUS_OK)
        status = spw_conf_values_make(live->conf, &start, &err);
    if (status == SPW_STATUS_OK)
        status = in_force(call->control, &now, &err);
    if (status != SPW_STATUS_OK) {
        spw_conf_values_clean_up(&file);
        spw_conf_values_clean_up(&start);
        spw_call_fail(call, &err);
        return;
    }
    struct spw_arena arena = {0};
    Spillway__V1__ShowConfigReply reply = SPILLWAY__V1__SHOW_CONFIG_REPLY__INIT;
    reply.n_values = now.count;
    reply.values = spw_arena_zalloc(&arena, now.count * sizeof(Spillway__V1__ConfigValue *));
    for (size_t i = 0; i < now.count; i++) {
        Spillway__V1__ConfigValue *value = reply.values[i] = spw_arena_zalloc(&arena, sizeof *value);
        const struct spw_conf_value *said = spw_conf_values_find(&file, now.list[i].path);
        spillway__v1__config_value__init(value);
        value->path = now.list[i].path;
        value->value = now.list[i].text;
        if (said && strcmp(said->text, now.list[i].text) != 0)
            value->file_value = said->text;
        SPW_SET(value, origin,
                origin_of(live->conf, now.list[i].path, now.list[i].text,
                          spw_conf_values_find(&start, now.list[i].path)));
    }
    reply.file = spw_arena_text(&arena, "%s", live->path);
    SPW_SET(&reply, read_unix_ms, live->last_success_unix_s * 1000);
    SPW_SET(&reply, failures, live->failures_count);
    if (live->last_error[0])
        reply.last_error = spw_arena_text(&arena, "%s", live->last_error);
    spw_call_reply(call, &reply.base);
    spw_arena_clean_up(&arena);
    spw_conf_values_clean_up(&file);
    spw_conf_values_clean_up(&start);
    spw_conf_values_clean_up(&now);
}

static bool is_there(struct spw_call *call)
{
    if (call->control->live)
        return true;
    spw_call_refuse(call, GRPC_STATUS_UNIMPLEMENTED, "this server has no configuration");
    return false;
}

void spw_config_show(struct spw_call *call)
{
    if (is_there(call))
        spw_call_to_loop(call, show_on_loop);
}

struct listing {
    struct spw_arena arena;
    Spillway__V1__DiffConfigReply *reply;
    const struct spw_conf_values *now;
    const struct spw_conf *fresh;
    size_t room_count;
};

static void count_change(void *owner, const struct spw_conf_change *change)
{
    struct listing *l = owner;
    (void)change;
    l->room_count++;
}

static void list_change(void *owner, const struct spw_conf_change *change)
{
    struct listing *l = owner;
    const struct spw_conf_value *now = spw_conf_values_find(l->now, change->path);
    Spillway__V1__ConfigChange *message = spw_arena_zalloc(&l->arena, sizeof *message);
    spillway__v1__config_change__init(message);
    message->path = spw_arena_text(&l->arena, "%s", change->path);
    message->before = spw_arena_text(&l->arena, "%s", now ? now->text : change->before);
    message->after = spw_arena_text(&l->arena, "%s", change->after);
    const struct spw_yaml_place *place =
        l->fresh->places ? spw_yaml_places_find(l->fresh->places, change->path) : NULL;
    if (place && change->after[0])
        SPW_SET(message, line, place->line);
    if (change->fixed) {
        message->restart = spw_arena_text(&l->arena, "%s", change->fixed);
        SPW_SET(l->reply, needs_restart, true);
    }
    l->reply->changes[l->reply->n_changes++] = message;
}

static void diff_on_loop(struct spw_call *call)
{
    struct spw_conf *fresh = call->own;
    struct spw_conf_values file, other = {0}, now = {0};
    struct spw_error err;
    spw_conf_align(fresh, call->control->live->conf);
    spw_conf_keep(fresh, call->control->live->conf);
    enum spw_status status = spw_conf_values_make(call->control->live->conf, &file, &err);
    if (status == SPW_STATUS_OK)
        status = spw_conf_values_make(fresh, &other, &err);
    if (status == SPW_STATUS_OK)
        status = in_force(call->control, &now, &err);
    if (status == SPW_STATUS_OK) {
        Spillway__V1__DiffConfigReply reply = SPILLWAY__V1__DIFF_CONFIG_REPLY__INIT;
        struct listing listing = {.reply = &reply, .now = &now, .fresh = fresh};
        SPW_SET(&reply, needs_restart, false);
        spw_conf_values_diff(&file, &other, count_change, &listing);
        reply.changes =
            spw_arena_zalloc(&listing.arena, (listing.room_count + 1) * sizeof(Spillway__V1__ConfigChange *));
        spw_conf_values_diff(&file, &other, list_change, &listing);
        spw_call_reply(call, &reply.base);
        spw_arena_clean_up(&listing.arena);
    } else {
        spw_call_fail(call, &err);
    }
    spw_conf_values_clean_up(&file);
    spw_conf_values_clean_up(&other);
    spw_conf_values_clean_up(&now);
}

static void free_fresh(struct spw_call *call)
{
    spw_conf_destroy(call->own);
}

void spw_config_diff(struct spw_call *call)
{
    const Spillway__V1__DiffConfigRequest *request = (const Spillway__V1__DiffConfigRequest *)call->request;
    const char *name = request->name && request->name[0] ? request->name : "the file";
    struct spw_conf *fresh = NULL;
    struct spw_error err;
    if (!is_there(call))
        return;
    if (!request->text.len) {
        spw_call_refuse(call, GRPC_STATUS_INVALID_ARGUMENT, "text: is missing: send the text of the file");
        return;
    }
    if (spw_conf_parse(name, (const char *)request->text.data, request->text.len, &fresh, &err)) {
        spw_call_refuse(call, GRPC_STATUS_INVALID_ARGUMENT, "%s", err.text);
        return;
    }
    call->own = fresh;
    call->on_free = free_fresh;
    spw_call_to_loop(call, diff_on_loop);
}
