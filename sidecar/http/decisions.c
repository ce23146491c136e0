/* decisions.c: what was decided under an id. See decisions.h.
 *
 * A live answer is known only while it is remembered: nothing of it is kept on disk. A fallback is in the ledger, with
 * the state it has come to, as soon as the store has taken its flag; until then memory tells of it.
 */
#include "sidecar/http/decisions.h"

#include <string.h>

#include <jansson.h>

#include "shm/spw_text.h"

struct collected {
    json_t *list;
};

static json_t *decimal(int64_t minor)
{
    char buffer[32];
    spw_format_minor(minor, buffer, sizeof buffer);
    return json_string(buffer);
}

static bool is_listed(const json_t *list, const char *flag_id)
{
    size_t i;
    json_t *one;
    json_array_foreach(list, i, one)
    {
        const char *listed = json_string_value(json_object_get(one, "flag_id"));
        if (listed && strcmp(listed, flag_id) == 0)
            return true;
    }
    return false;
}

static void set(json_t *object, const char *name, const char *value)
{
    json_object_set_new(object, name, value && value[0] ? json_string(value) : json_null());
}

static bool add_row(void *owner, const struct spw_flag_row *row)
{
    struct collected *c = owner;
    const struct spw_flag_record *f = &row->record;
    json_t *one = json_object();
    set(one, "decision", spw_decision_name(SPW_DECISION_FALLBACK));
    set(one, "decision_id", f->decision_id);
    set(one, "quote_id", f->quote_id);
    set(one, "quote_ref", f->quote_ref);
    set(one, "account", f->account);
    json_object_set_new(one, "tax", decimal(f->tax_minor));
    json_object_set_new(one, "decided_unix_ms", json_integer(f->created_unix_ms));
    set(one, "flag_id", f->flag_id);
    set(one, "type", spw_fallback_name(f->type));
    set(one, "cause", spw_cause_name(f->cause));
    set(one, "state", spw_flag_state_name(row->state));
    set(one, "order_id", row->order_id);
    json_array_append_new(c->list, one);
    return true;
}

static bool add_result(void *owner, const struct spw_result *r)
{
    struct collected *c = owner;
    bool fallback = r->decision == SPW_DECISION_FALLBACK;
    if (fallback && is_listed(c->list, r->flag_id))
        return true;
    json_t *one = json_object();
    set(one, "decision", spw_decision_name(r->decision));
    set(one, "decision_id", r->decision_id);
    set(one, "quote_id", r->quote_id);
    set(one, "quote_ref", r->quote_ref);
    set(one, "account", r->account);
    json_object_set_new(one, "tax", decimal(r->tax_minor));
    json_object_set_new(one, "decided_unix_ms", json_integer(r->decided_unix_ms));
    if (fallback) {
        set(one, "flag_id", r->flag_id);
        set(one, "type", spw_fallback_name(r->type));
        set(one, "cause", spw_cause_name(r->cause));
        set(one, "state", "recorded");
    }
    json_array_append_new(c->list, one);
    return json_array_size(c->list) < 2 * SPW_DECISIONS_MAX_COUNT;
}

char *spw_decisions_json(struct spw_decider *decider, struct spw_store *store, const char *reference)
{
    struct collected c = {.list = json_array()};
    struct spw_error err;
    if (spw_store_find(store, reference, SPW_DECISIONS_MAX_COUNT, add_row, &c, &err) != SPW_STATUS_OK)
        json_array_clear(c.list); /* the ledger is not open: what is remembered is told all the same */
    spw_decider_find(decider, reference, add_result, &c);
    json_t *root = json_pack("{s:s, s:o}", "ref", reference, "decisions", c.list);
    char *text = root ? json_dumps(root, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
    json_decref(root);
    return text;
}
