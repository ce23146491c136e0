/* pass_book.c: documents that were quoted through a pass-through door, and the orders they become.
 *
 * Owns: the table of documents. Called by: pass_door.c. Thread: the loop thread; looks a document up in the ledger only
 * when memory does not know it.
 *
 * A fallback's document does not exist at the provider. When a later request names it, the sale is an order in the
 * ledger, from where reconciliation files it; it is never passed on, and never answered as if it were in the books.
 */
#include <stdlib.h>
#include <string.h>

#include "shm/spw_flag.h"
#include "sidecar/http/pass_internal.h"

#define REMEMBER_NS UINT64_C(604800000000000) /* a week: far longer than from quote to commit */

/* Each account's documents are a kind of their own. */
static struct spw_key key_of(const struct spw_passing *p, const char *document)
{
    struct spw_key key;
    spw_key_make(&p->account->doors->keys, p->account->conf->name, document, strlen(document), &key);
    return key;
}

static uint64_t now_of(const struct spw_passing *p)
{
    return spw_loop_now_ns(p->account->doors->options.loop);
}

void spw_pass_remember(struct spw_passing *p, const char *document, const struct spw_result *result)
{
    if (!document[0])
        return;
    struct spw_key key = key_of(p, document);
    spw_reuse_put(p->account->doors->documents, &key, now_of(p), now_of(p) + REMEMBER_NS, result);
}

/* ---- in the ledger ---- */

struct wanted {
    const char *account;
    const char *document;
    struct spw_result *out;
    struct spw_line_tax *lines;
    bool found, filed;
};

static bool look_at_row(void *owner, const struct spw_flag_row *row)
{
    struct wanted *w = owner;
    const struct spw_flag_record *f = &row->record;
    if (strcmp(f->account, w->account) != 0 ||
        (strcmp(f->quote_ref, w->document) != 0 && strcmp(f->quote_id, w->document) != 0))
        return true;
    w->found = true;
    w->filed = row->reconciliation.filing == SPW_FILING_FILED;
    memset(w->out, 0, sizeof *w->out);
    w->out->decision = SPW_DECISION_FALLBACK;
    w->out->type = (enum spw_fallback)f->type;
    w->out->cause = (enum spw_cause)f->cause;
    memcpy(w->out->quote_id, f->quote_id, sizeof w->out->quote_id);
    memcpy(w->out->flag_id, f->flag_id, sizeof w->out->flag_id);
    w->out->decided_unix_ms = f->created_unix_ms;
    w->out->tax_minor = f->tax_minor;
    w->out->lines_count = f->lines_count <= SPW_LINES_MAX_COUNT + 1 ? f->lines_count : 0;
    memcpy(w->lines, row->lines, w->out->lines_count * sizeof w->lines[0]);
    w->out->lines = w->lines;
    return false;
}

enum spw_pass_document spw_pass_look_up(struct spw_passing *p, struct spw_result *out,
                                        struct spw_line_tax *lines)
{
    struct spw_key key = key_of(p, p->document);
    struct spw_error err;
    bool own_id = strncmp(p->document, "sq_", 3) == 0; /* minted here for a fallback */
    struct wanted w = {
        .account = p->account->conf->name, .document = p->document, .out = out, .lines = lines};
    bool remembered = spw_reuse_get(p->account->doors->documents, &key, now_of(p), out);
    if (remembered && out->decision == SPW_DECISION_LIVE)
        return SPW_PASS_DOCUMENT_LIVE;
    if (remembered) { /* the table's own memory is used again by the next look */
        memcpy(lines, out->lines, out->lines_count * sizeof lines[0]);
        out->lines = lines;
        out->fallback = NULL;
        return SPW_PASS_DOCUMENT_FALLBACK;
    }
    if (spw_store_find(p->account->doors->options.store, p->document, 16, look_at_row, &w, &err) !=
            SPW_STATUS_OK ||
        !w.found || w.filed)
        return SPW_PASS_DOCUMENT_UNKNOWN;
    return own_id ? SPW_PASS_DOCUMENT_FALLBACK : SPW_PASS_DOCUMENT_PERHAPS;
}

/* ---- orders ---- */

static bool ends_with(const struct spw_native_request *native, const char *const *suffixes)
{
    size_t bytes = strlen(native->path);
    for (size_t i = 0; suffixes[i]; i++) {
        size_t tail = strlen(suffixes[i]);
        if (bytes > tail && strcmp(native->path + bytes - tail, suffixes[i]) == 0)
            return true;
    }
    return false;
}

static bool is_cancel(const struct spw_native_request *native)
{
    static const char *const suffixes[] = {"/void", NULL};
    return strcmp(native->route->method, "DELETE") == 0 || ends_with(native, suffixes);
}

bool spw_pass_is_whole(const struct spw_native_request *native)
{
    static const char *const suffixes[] = {"/createoradjust", NULL};
    return ends_with(native, suffixes);
}

bool spw_pass_is_commit(const struct spw_native_request *native)
{
    static const char *const suffixes[] = {"/commit", "/settle", "/carts/orders", "/create_from_calculation",
                                           NULL};
    return native->route->kind == SPW_ROUTE_RECORD && (is_cancel(native) || ends_with(native, suffixes));
}

bool spw_pass_order(struct spw_passing *p, const char *quote_id, const char *order_id, int64_t tax_minor)
{
    struct spw_pass_doors *doors = p->account->doors;
    struct spw_order_record record;
    memset(&record, 0, sizeof record);
    record.op = is_cancel(&p->native) ? SPW_ORDER_CANCELLED : SPW_ORDER_PLACED;
    snprintf(record.quote_id, sizeof record.quote_id, "%s", quote_id);
    snprintf(record.order_id, sizeof record.order_id, "%s", order_id);
    snprintf(record.account, sizeof record.account, "%s", p->account->conf->name);
    memcpy(record.currency, "USD", 4);
    record.tax_collected_minor = tax_minor;
    record.created_unix_ms = spw_wall_ms();
    record.placed_unix_ms = record.created_unix_ms;
    if (spw_order_write(spw_state_map(doors->options.state), doors->order_hint++, &record) != SPW_STATUS_OK)
        return false;
    spw_store_wake(doors->options.store);
    return true;
}
