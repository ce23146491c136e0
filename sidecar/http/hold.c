/* hold.c: see hold.h. */
#include "sidecar/http/hold.h"

#include <stdlib.h>
#include <string.h>

#include "sidecar/store/job.h"

#define HEADERS_MAX 20

struct spw_hold {
    struct spw_hold_mark mark;
    struct spw_store_job job;
    struct spw_door_request *request; /* NULL = the caller hung up */
    uint32_t status;
    struct spw_door_header headers[HEADERS_MAX]; /* names are constants, values are ours */
    size_t count;
    char *text;
};

static void destroy(struct spw_hold *hold)
{
    for (size_t i = 0; i < hold->count; i++)
        free((char *)(uintptr_t)hold->headers[i].value);
    free(hold->text);
    free(hold);
}

static void is_durable(struct spw_store_job *job)
{
    struct spw_hold *hold = job->owner;
    if (hold->request) {
        struct spw_door_header headers[HEADERS_MAX + 1];
        memcpy(headers, hold->headers, hold->count * sizeof headers[0]);
        headers[hold->count] =
            (struct spw_door_header){"Spillway-Durable", job->error.status == SPW_STATUS_OK ? "1" : "0"};
        spw_door_set_user(hold->request, NULL);
        spw_door_answer(hold->request, hold->status, "application/json", headers, hold->count + 1, hold->text,
                        strlen(hold->text));
    }
    destroy(hold);
}

bool spw_hold_answer(struct spw_store *store, struct spw_door_request *request, uint32_t status,
                     const struct spw_door_header *headers, size_t count, char *text)
{
    struct spw_hold *hold = calloc(1, sizeof *hold);
    bool good = hold && count <= HEADERS_MAX;
    for (size_t i = 0; good && i < count; i++) {
        hold->headers[i] = (struct spw_door_header){headers[i].name, strdup(headers[i].value)};
        hold->count = i + 1;
        good = hold->headers[i].value != NULL;
    }
    if (!good) {
        if (hold)
            destroy(hold);
        return false;
    }
    hold->mark.held = true;
    hold->request = request;
    hold->status = status;
    hold->text = text;
    hold->job.done = is_durable;
    hold->job.owner = hold;
    spw_door_set_user(request, hold);
    spw_store_durable(store, &hold->job);
    return true;
}

void spw_hold_gone(struct spw_hold *hold)
{
    hold->request = NULL;
}
