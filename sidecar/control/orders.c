/* orders.c: the service Orders.
 *
 * Owns: the pages of lists under way. Called by: call.c. Thread: the server's; the store may be asked from any, and a
 * change waits for its commit.
 */
#include <grpc/support/alloc.h>
#include <stdio.h>
#include <string.h>

#include "shm/spw_map.h"
#include "sidecar/control/messages.h"
#include "sidecar/control/methods.h"
#include "sidecar/control/server.h"
#include "sidecar/obs/utf8.h"
#include "sidecar/provider/decimal.h"

#define PAGE_MAX_COUNT 64u
#define GET_MAX_COUNT  64u
#define MONEY_DIGITS   2
#define AMOUNT_MAX     INT64_C(1000000000000000)

static Spillway__V1__Order *message_order(struct spw_arena *arena, const struct spw_order_view *view)
{
    static const char *const state[] = {"never placed", "placed", "cancelled"};
    Spillway__V1__Order *message = spw_arena_zalloc(arena, sizeof *message);
    spillway__v1__order__init(message);
    SPW_SET(message, row, view->row);
    message->order_id = spw_arena_utf8(arena, view->order_id, sizeof view->order_id);
    if (view->account[0])
        message->account = spw_arena_utf8(arena, view->account, sizeof view->account);
    message->state = spw_arena_copy(arena, state[view->state], 32);
    message->quote_id = spw_arena_utf8(arena, view->quote_id, sizeof view->quote_id);
    message->currency = spw_arena_utf8(arena, view->currency, sizeof view->currency);
    message->tax_collected = spw_message_money(arena, view->tax_collected_minor);
    SPW_SET(message, placed_unix_ms, view->placed_unix_ms);
    if (view->flag_id[0])
        message->flag_id = spw_arena_utf8(arena, view->flag_id, sizeof view->flag_id);
    return message;
}

/* ---- events ---- */

/* A text the caller gives: mandatory unless `optional`. false: refused. */
static bool take_text(struct spw_call *call, const char *field, const char *text, bool optional, char *out,
                      size_t room)
{
    size_t bytes = text ? strlen(text) : 0;
    if ((!bytes && !optional) || bytes >= room || (bytes && !spw_utf8_is_name(text, bytes))) {
        spw_call_refuse(call, GRPC_STATUS_INVALID_ARGUMENT,
                        "%s: is missing, longer than %zu bytes, or no text without control characters", field,
                        room - 1);
        return false;
    }
    if (bytes)
        snprintf(out, room, "%s", text);
    return true;
}

static void store_event(struct spw_call *call, const struct spw_order_record *record)
{
    struct spw_error err;
    if (spw_store_order(call->control->store, record, &err)) {
        spw_call_fail(call, &err);
        return;
    }
    Spillway__V1__OrderReply reply = SPILLWAY__V1__ORDER_REPLY__INIT;
    spw_call_reply(call, &reply.base);
}

void spw_orders_place(struct spw_call *call)
{
    const Spillway__V1__PlaceOrderRequest *q = (const Spillway__V1__PlaceOrderRequest *)call->request;
    struct spw_order_record r = {.op = SPW_ORDER_PLACED, .created_unix_ms = spw_wall_ms()};
    const char *currency = q->currency && q->currency[0] ? q->currency : "USD";
    if (!take_text(call, "quote_id", q->quote_id, false, r.quote_id, sizeof r.quote_id) ||
        !take_text(call, "order_id", q->order_id, false, r.order_id, sizeof r.order_id) ||
        !take_text(call, "account", q->account, true, r.account, sizeof r.account) ||
        !take_text(call, "currency", currency, false, r.currency, sizeof r.currency))
        return;
    const char *tax = q->tax_collected ? q->tax_collected : "";
    if (spw_decimal_parse(tax, strlen(tax), MONEY_DIGITS, SPW_DECIMAL_HALF_UP, &r.tax_collected_minor) !=
            SPW_DECIMAL_EXACT ||
        r.tax_collected_minor > AMOUNT_MAX || r.tax_collected_minor < -AMOUNT_MAX) {
        spw_call_refuse(call, GRPC_STATUS_INVALID_ARGUMENT,
                        "tax_collected: is missing or no amount: write it as \"6.71\"");
        return;
    }
    r.placed_unix_ms = q->has_placed_unix_ms ? q->placed_unix_ms : r.created_unix_ms;
    store_event(call, &r);
}

void spw_orders_cancel(struct spw_call *call)
{
    const Spillway__V1__CancelOrderRequest *q = (const Spillway__V1__CancelOrderRequest *)call->request;
    struct spw_order_record r = {.op = SPW_ORDER_CANCELLED, .created_unix_ms = spw_wall_ms()};
    if (take_text(call, "order_id", q->order_id, false, r.order_id, sizeof r.order_id) &&
        take_text(call, "account", q->account, true, r.account, sizeof r.account))
        store_event(call, &r);
}

void spw_orders_abandon(struct spw_call *call)
{
    const Spillway__V1__AbandonQuoteRequest *q = (const Spillway__V1__AbandonQuoteRequest *)call->request;
    struct spw_order_record r = {.op = SPW_ORDER_ABANDONED, .created_unix_ms = spw_wall_ms()};
    if (take_text(call, "quote_id", q->quote_id, false, r.quote_id, sizeof r.quote_id))
        store_event(call, &r);
}

/* ---- lists ---- */

struct list {
    struct spw_order_view page[PAGE_MAX_COUNT];
    size_t count, sent;
    uint64_t after;
    uint64_t left; /* UINT64_MAX = no limit */
};

static bool keep_order(void *owner, const struct spw_order_view *view)
{
    struct list *list = owner;
    list->page[list->count++] = *view;
    return list->count < PAGE_MAX_COUNT;
}

static void send_next(struct spw_call *call)
{
    struct list *list = call->own;
    struct spw_error err;
    if (list->sent == list->count) {
        list->sent = list->count = 0;
        uint32_t wanted = list->left < PAGE_MAX_COUNT ? (uint32_t)list->left : PAGE_MAX_COUNT;
        if (wanted &&
            spw_store_orders(call->control->store, NULL, list->after, wanted, keep_order, list, &err)) {
            spw_call_fail(call, &err);
            return;
        }
        if (!list->count) {
            spw_call_finish(call);
            return;
        }
        list->after = list->page[list->count - 1].row;
        if (list->left != UINT64_MAX)
            list->left -= list->count;
    }
    struct spw_arena arena = {0};
    Spillway__V1__ListOrdersReply reply = SPILLWAY__V1__LIST_ORDERS_REPLY__INIT;
    reply.order = message_order(&arena, &list->page[list->sent++]);
    spw_call_send(call, &reply.base);
    spw_arena_clean_up(&arena);
}

static void free_list(struct spw_call *call)
{
    gpr_free(call->own);
}

void spw_orders_list(struct spw_call *call)
{
    const Spillway__V1__ListOrdersRequest *request = (const Spillway__V1__ListOrdersRequest *)call->request;
    struct list *list = gpr_zalloc(sizeof *list);
    list->after = request->after_row;
    list->left = request->limit ? request->limit : UINT64_MAX;
    call->own = list;
    call->on_free = free_list;
    call->on_sent = send_next;
    send_next(call);
}

struct found {
    struct spw_arena arena;
    Spillway__V1__Order *orders[GET_MAX_COUNT];
    size_t count;
};

static bool keep_found(void *owner, const struct spw_order_view *view)
{
    struct found *found = owner;
    found->orders[found->count++] = message_order(&found->arena, view);
    return found->count < GET_MAX_COUNT;
}

void spw_orders_get(struct spw_call *call)
{
    const Spillway__V1__GetOrderRequest *request = (const Spillway__V1__GetOrderRequest *)call->request;
    char order_id[SPW_CALLER_ID_BYTES] = {0};
    struct found found = {.count = 0};
    struct spw_error err;
    if (!take_text(call, "order_id", request->order_id, false, order_id, sizeof order_id))
        return;
    if (spw_store_orders(call->control->store, order_id, 0, GET_MAX_COUNT, keep_found, &found, &err)) {
        spw_call_fail(call, &err);
    } else if (!found.count) {
        spw_call_refuse(call, GRPC_STATUS_NOT_FOUND,
                        "order_id: no order %s in this pod's ledger: nobody told of it here", order_id);
    } else {
        Spillway__V1__GetOrderReply reply = SPILLWAY__V1__GET_ORDER_REPLY__INIT;
        reply.n_orders = found.count;
        reply.orders = found.orders;
        spw_call_reply(call, &reply.base);
    }
    spw_arena_clean_up(&found.arena);
}
