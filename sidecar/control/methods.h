/* methods.h: the table of methods: path, who may call it, what it takes, who handles it. Internal to control/.
 *
 * Owns: spw_methods. Called by: server.c (registration), call.c (dispatch). Thread: any; constant.
 */
#ifndef SPW_CONTROL_METHODS_H
#define SPW_CONTROL_METHODS_H

#include <stdbool.h>
#include <stddef.h>

#include "sidecar/control/call.h"
#include "sidecar/control/role.h"

struct spw_method {
    const char *path;
    enum spw_role role;
    bool client_streams;
    bool waits;    /* a stream that lives until somebody ends it: ended at drain */
    bool is_short; /* answered where it was taken, as a rule (spw_call_at_once) */
    const ProtobufCMessageDescriptor *request;
    spw_call_fn *begin; /* server's thread; `request` of the call is decoded unless the client streams */
};

#define SPW_METHODS_COUNT 38u
extern const struct spw_method spw_methods[SPW_METHODS_COUNT];

bool spw_method_allowed(const struct spw_method *method, enum spw_role role);

spw_call_fn spw_limits_list, spw_limits_get, spw_limits_set;
spw_call_fn spw_breakers_list, spw_breakers_get, spw_breakers_set;
spw_call_fn spw_rates_replace_begin, spw_rates_upsert_begin, spw_rates_lookup_begin, spw_rates_describe;
spw_call_fn spw_rates_refresh_begin;
spw_call_fn spw_flags_export, spw_flags_acknowledge, spw_flags_find, spw_flags_import;
spw_call_fn spw_exceptions_list, spw_exceptions_get, spw_exceptions_decide, spw_exceptions_progress;
spw_call_fn spw_orders_place, spw_orders_cancel, spw_orders_abandon, spw_orders_list, spw_orders_get;
spw_call_fn spw_changes_watch, spw_audit_list;
spw_call_fn spw_gates_get, spw_gates_set, spw_accounts_list, spw_accounts_get;
spw_call_fn spw_status_get, spw_status_why;
spw_call_fn spw_config_show, spw_config_diff;
spw_call_fn spw_health_check, spw_health_watch;
spw_call_fn spw_reflection_begin;

#endif
