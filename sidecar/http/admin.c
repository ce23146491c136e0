/* admin.c: see admin.h. */
#include "sidecar/http/admin.h"

#include <stdlib.h>
#include <string.h>

#include "sidecar/http/door.h"

struct spw_admin {
    struct spw_admin_options options;
    struct spw_door *door;
    bool ready;
};

static void answer(struct spw_door_request *request, uint32_t status, const char *text)
{
    spw_door_answer(request, status, "text/plain; charset=utf-8", NULL, 0, text, strlen(text));
}

static void handle(void *owner, struct spw_door_request *request)
{
    struct spw_admin *admin = owner;
    const char *path = spw_door_path(request), *method = spw_door_method(request);
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0) {
        struct spw_door_header allow = {"Allow", "GET, HEAD"};
        spw_door_answer(request, 405, "text/plain", &allow, 1, "use GET\n", 8);
    } else if (strcmp(path, "/healthz") == 0) {
        answer(request, 200, "ok\n");
    } else if (strcmp(path, "/readyz") == 0) {
        answer(request, admin->ready ? 200 : 503, admin->ready ? "ready\n" : "starting or draining\n");
    } else if (strcmp(path, "/metrics") == 0) {
        char *text = spw_metrics_text(&admin->options);
        spw_door_answer(request, text ? 200 : 500, "text/plain; version=0.0.4; charset=utf-8", NULL, 0,
                        text ? text : "", text ? strlen(text) : 0);
        free(text);
    } else {
        answer(request, 404, "/metrics, /healthz or /readyz\n");
    }
}

enum spw_status spw_admin_new(const struct spw_admin_options *options, struct spw_admin **out,
                              struct spw_error *err)
{
    struct spw_admin *admin = calloc(1, sizeof *admin);
    *out = NULL;
    if (!admin)
        return spw_error_set(err, SPW_STATUS_NO_MEMORY,
                             "admin door: no memory: raise the container's memory limit");
    admin->options = *options;
    struct spw_door_options d;
    memset(&d, 0, sizeof d);
    d.listen = options->listen;
    d.body_max_bytes = 1024;
    d.connections_max = 64;
    d.handler = handle;
    d.owner = admin;
    enum spw_status status = spw_door_new(options->loop, &d, &admin->door, err);
    if (status != SPW_STATUS_OK) {
        free(admin);
        return status;
    }
    *out = admin;
    return SPW_STATUS_OK;
}

void spw_admin_set_ready(struct spw_admin *admin, bool ready)
{
    admin->ready = ready;
}

void spw_admin_destroy(struct spw_admin *admin)
{
    if (!admin)
        return;
    spw_door_destroy(admin->door);
    free(admin);
}
