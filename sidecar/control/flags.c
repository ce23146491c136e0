/* flags.c: the service Flags.
 *
 * Owns: the pages of exports under way. Called by: call.c. Thread: the server's; the store may be read from any.
 *
 * An export holds one page of messages at a time and has one message in flight, so that a slow reader costs a bounded
 * amount of memory whatever the size of the ledger.
 */
#include <grpc/support/alloc.h>
#include <string.h>

#include "sidecar/control/import.h"
#include "sidecar/control/messages.h"
#include "sidecar/control/methods.h"
#include "sidecar/control/server.h"

#define PAGE_MAX_COUNT 64u
#define PAGE_MAX_BYTES ((size_t)256 << 10) /* a page ends with the flag that passes this */
#define FIND_DEFAULT   20u
#define FIND_MAX_COUNT 100u
#define FIND_MAX_BYTES                                                                                       \
    ((size_t)1 << 20) /* clients take 4 MiB by default; the form on the wire is smaller than ours */
#define REFERENCE_BYTES (SPW_CALLER_ID_BYTES - 1)

struct page {
    struct spw_arena arena;
    Spillway__V1__Flag *flags[PAGE_MAX_COUNT];
    size_t count;
};

struct export
{
    struct page page;
    size_t sent; /* of the page */
    bool by_change;
    uint64_t after; /* sequence or change */
    uint64_t left;  /* UINT64_MAX = no limit */
};

static bool keep_row(void *owner, const struct spw_flag_row *row)
{
    struct page *page = owner;
    page->flags[page->count++] = spw_message_flag(&page->arena, row);
    return page->count < PAGE_MAX_COUNT && page->arena.bytes_count < PAGE_MAX_BYTES;
}

static enum spw_status next_page(struct spw_call *call, struct export *export, struct spw_error *err)
{
    struct page *page = &export->page;
    spw_arena_clean_up(&page->arena);
    page->count = export->sent = 0;
    uint32_t wanted = export->left < PAGE_MAX_COUNT ? (uint32_t) export->left : PAGE_MAX_COUNT;
    if (!wanted)
        return SPW_STATUS_OK;
    uint64_t next = export->after;
    enum spw_status status = (export->by_change ? spw_store_export_changes : spw_store_export)(
        call->control->store, export->after, wanted, keep_row, page, &next, err);
    if (status || !page->count)
        return status;
    export->after = next;
    if (export->left != UINT64_MAX)
        export->left -= page->count;
    return SPW_STATUS_OK;
}

static void send_next(struct spw_call *call)
{
    struct export *export = call->own;
    if (export->sent == export->page.count) {
        struct spw_error err;
        if (next_page(call, export, &err)) {
            spw_call_fail(call, &err);
            return;
        }
        if (!export->page.count) {
            spw_call_finish(call);
            return;
        }
    }
    Spillway__V1__ExportFlagsReply reply = SPILLWAY__V1__EXPORT_FLAGS_REPLY__INIT;
    reply.flag = export->page.flags[export->sent++];
    spw_call_send(call, &reply.base);
}

static void free_export(struct spw_call *call)
{
    struct export *export = call->own;
    spw_arena_clean_up(&export->page.arena);
    gpr_free(export);
}

void spw_flags_export(struct spw_call *call)
{
    const Spillway__V1__ExportFlagsRequest *request = (const Spillway__V1__ExportFlagsRequest *)call->request;
    if (request->has_after_change && request->has_after_sequence) {
        spw_call_refuse(call, GRPC_STATUS_INVALID_ARGUMENT,
                        "after_change: and after_sequence exclude one another: give the one you resume by");
        return;
    }
    struct export *export = gpr_zalloc(sizeof *export);
    export->by_change = request->has_after_change;
    export->after = export->by_change ? request->after_change : request->after_sequence;
    export->left = request->limit ? request->limit : UINT64_MAX;
    call->own = export;
    call->on_free = free_export;
    call->on_sent = send_next;
    send_next(call);
}

void spw_flags_acknowledge(struct spw_call *call)
{
    const Spillway__V1__AcknowledgeFlagsRequest *request =
        (const Spillway__V1__AcknowledgeFlagsRequest *)call->request;
    struct spw_error err;
    if (spw_name_check("consumer", request->consumer, &err)) {
        spw_call_fail(call, &err);
        return;
    }
    bool by_change = request->has_change && request->change;
    if (by_change == (request->has_sequence && request->sequence)) {
        spw_call_refuse(call, GRPC_STATUS_INVALID_ARGUMENT,
                        "sequence: give the last sequence taken, or instead the last change, at least 1");
        return;
    }
    enum spw_status status =
        by_change
            ? spw_store_acknowledge_change(call->control->store, request->consumer, request->change, &err)
            : spw_store_acknowledge(call->control->store, request->consumer, request->sequence, &err);
    if (status) {
        spw_call_fail(call, &err);
        return;
    }
    Spillway__V1__AcknowledgeFlagsReply reply = SPILLWAY__V1__ACKNOWLEDGE_FLAGS_REPLY__INIT;
    reply.consumer = request->consumer;
    if (by_change)
        SPW_SET(&reply, change, request->change);
    else
        SPW_SET(&reply, sequence, request->sequence);
    spw_call_reply(call, &reply.base);
}

struct find {
    struct spw_arena arena;
    Spillway__V1__Flag *flags[FIND_MAX_COUNT];
    size_t count;
    size_t limit;
    bool truncated;
};

static bool keep_found(void *owner, const struct spw_flag_row *row)
{
    struct find *find = owner;
    if (find->count == find->limit || find->arena.bytes_count >= FIND_MAX_BYTES) {
        find->truncated = true;
        return false;
    }
    find->flags[find->count++] = spw_message_flag(&find->arena, row);
    return true;
}

void spw_flags_find(struct spw_call *call)
{
    const Spillway__V1__FindFlagsRequest *request = (const Spillway__V1__FindFlagsRequest *)call->request;
    if (!request->reference || !*request->reference || strlen(request->reference) > REFERENCE_BYTES) {
        spw_call_refuse(
            call, GRPC_STATUS_INVALID_ARGUMENT,
            "reference: is missing or longer than %u bytes: give a quote id, a decision id or your own "
            "reference",
            REFERENCE_BYTES);
        return;
    }
    if (request->has_limit && (request->limit < 1 || request->limit > FIND_MAX_COUNT)) {
        spw_call_refuse(call, GRPC_STATUS_INVALID_ARGUMENT, "limit: %u is out of range: write 1 to %u",
                        request->limit, FIND_MAX_COUNT);
        return;
    }
    struct find find = {.limit = request->has_limit ? request->limit : FIND_DEFAULT};
    struct spw_error err;
    /* One more than wanted tells whether there is more. */
    if (spw_store_find(call->control->store, request->reference, (uint32_t)find.limit + 1, keep_found, &find,
                       &err)) {
        spw_call_fail(call, &err);
    } else {
        Spillway__V1__FindFlagsReply reply = SPILLWAY__V1__FIND_FLAGS_REPLY__INIT;
        reply.n_flags = find.count;
        reply.flags = find.flags;
        SPW_SET(&reply, truncated, find.truncated);
        spw_call_reply(call, &reply.base);
    }
    spw_arena_clean_up(&find.arena);
}

#define IMPORT_MAX_COUNT 500u

void spw_flags_import(struct spw_call *call)
{
    const Spillway__V1__ImportFlagsRequest *request = (const Spillway__V1__ImportFlagsRequest *)call->request;
    if (request->n_lines > IMPORT_MAX_COUNT) {
        spw_call_refuse(call, GRPC_STATUS_INVALID_ARGUMENT,
                        "lines: are more than %u: send them in several calls", IMPORT_MAX_COUNT);
        return;
    }
    struct spw_arena arena = {0};
    Spillway__V1__BadLine *bad[IMPORT_MAX_COUNT];
    Spillway__V1__ImportFlagsReply reply = SPILLWAY__V1__IMPORT_FLAGS_REPLY__INIT;
    struct spw_error err = {0};
    enum spw_status status = SPW_STATUS_OK;
    uint32_t imported = 0, known_count = 0;
    for (size_t i = 0; i < request->n_lines && status == SPW_STATUS_OK; i++) {
        bool known;
        status =
            spw_import_line(call->control->store, request->lines[i], strlen(request->lines[i]), &known, &err);
        if (spw_import_is_bad(status)) {
            Spillway__V1__BadLine *one = spw_arena_zalloc(&arena, sizeof *one);
            spillway__v1__bad_line__init(one);
            SPW_SET(one, index, (uint32_t)i);
            one->why = spw_arena_utf8(&arena, err.text, sizeof err.text);
            bad[reply.n_bad++] = one;
            status = SPW_STATUS_OK;
        } else if (status == SPW_STATUS_OK) {
            imported += !known;
            known_count += known;
        }
    }
    if (status != SPW_STATUS_OK) {
        spw_call_fail(call, &err);
    } else {
        SPW_SET(&reply, imported, imported);
        SPW_SET(&reply, known, known_count);
        reply.bad = bad;
        spw_call_reply(call, &reply.base);
    }
    spw_arena_clean_up(&arena);
}
