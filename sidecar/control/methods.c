/* methods.c: the table of methods. See methods.h. */
#include "sidecar/control/methods.h"

#include "proto/grpc/health/v1/health.pb-c.h"
#include "proto/grpc/reflection/v1/reflection.pb-c.h"
#include "proto/spillway/v1/control.pb-c.h"

#define UNARY(service, name, role, message, fn)                                                              \
    {                                                                                                        \
        "/spillway.v1." service "/" name, role, false, false, false, &spillway__v1__##message##__descriptor, \
            fn                                                                                               \
    }

/* Answered where it was taken, as a rule (spw_call_at_once): its end is not waited for apart. */
#define SHORT(service, name, role, message, fn)                                                              \
    {                                                                                                        \
        "/spillway.v1." service "/" name, role, false, false, true, &spillway__v1__##message##__descriptor,  \
            fn                                                                                               \
    }

const struct spw_method spw_methods[SPW_METHODS_COUNT] = {
    SHORT("Limits", "List", SPW_ROLE_READ, list_limits_request, spw_limits_list),
    SHORT("Limits", "Get", SPW_ROLE_READ, get_limit_request, spw_limits_get),
    SHORT("Limits", "Set", SPW_ROLE_OPERATE, set_limit_request, spw_limits_set),
    SHORT("Breakers", "List", SPW_ROLE_READ, list_breakers_request, spw_breakers_list),
    SHORT("Breakers", "Get", SPW_ROLE_READ, get_breaker_request, spw_breakers_get),
    SHORT("Breakers", "Set", SPW_ROLE_OPERATE, set_breaker_request, spw_breakers_set),
    {"/spillway.v1.Rates/Replace", SPW_ROLE_ADMIN, true, false, false,
     &spillway__v1__replace_rates_request__descriptor, spw_rates_replace_begin},
    {"/spillway.v1.Rates/Upsert", SPW_ROLE_ADMIN, true, false, false,
     &spillway__v1__replace_rates_request__descriptor, spw_rates_upsert_begin},
    UNARY("Rates", "Lookup", SPW_ROLE_READ, lookup_rate_request, spw_rates_lookup_begin),
    UNARY("Rates", "Describe", SPW_ROLE_READ, describe_rates_request, spw_rates_describe),
    UNARY("Rates", "Refresh", SPW_ROLE_OPERATE, refresh_rates_request, spw_rates_refresh_begin),
    UNARY("Flags", "Export", SPW_ROLE_RECORDS, export_flags_request, spw_flags_export),
    UNARY("Flags", "Acknowledge", SPW_ROLE_OPERATE, acknowledge_flags_request, spw_flags_acknowledge),
    UNARY("Flags", "Find", SPW_ROLE_RECORDS, find_flags_request, spw_flags_find),
    UNARY("Flags", "Import", SPW_ROLE_ADMIN, import_flags_request, spw_flags_import),
    UNARY("Exceptions", "List", SPW_ROLE_RECORDS, list_exceptions_request, spw_exceptions_list),
    UNARY("Exceptions", "Get", SPW_ROLE_RECORDS, get_exception_request, spw_exceptions_get),
    UNARY("Exceptions", "Decide", SPW_ROLE_OPERATE, decide_exceptions_request, spw_exceptions_decide),
    UNARY("Exceptions", "Progress", SPW_ROLE_READ, progress_request, spw_exceptions_progress),
    UNARY("Orders", "Place", SPW_ROLE_OPERATE, place_order_request, spw_orders_place),
    UNARY("Orders", "Cancel", SPW_ROLE_OPERATE, cancel_order_request, spw_orders_cancel),
    UNARY("Orders", "Abandon", SPW_ROLE_OPERATE, abandon_quote_request, spw_orders_abandon),
    UNARY("Orders", "List", SPW_ROLE_RECORDS, list_orders_request, spw_orders_list),
    UNARY("Orders", "Get", SPW_ROLE_RECORDS, get_order_request, spw_orders_get),
    SHORT("Gates", "Get", SPW_ROLE_READ, get_gate_request, spw_gates_get),
    SHORT("Gates", "Set", SPW_ROLE_OPERATE, set_gate_request, spw_gates_set),
    SHORT("Accounts", "List", SPW_ROLE_READ, list_accounts_request, spw_accounts_list),
    SHORT("Accounts", "Get", SPW_ROLE_READ, get_account_request, spw_accounts_get),
    {"/spillway.v1.Changes/Watch", SPW_ROLE_READ, false, true, false,
     &spillway__v1__watch_changes_request__descriptor, spw_changes_watch},
    UNARY("Audit", "List", SPW_ROLE_READ, list_audit_request, spw_audit_list),
    UNARY("Configuration", "Show", SPW_ROLE_RECORDS, show_config_request, spw_config_show),
    UNARY("Configuration", "Diff", SPW_ROLE_RECORDS, diff_config_request, spw_config_diff),
    UNARY("Status", "Get", SPW_ROLE_READ, get_status_request, spw_status_get),
    UNARY("Status", "Why", SPW_ROLE_READ, why_request, spw_status_why),
    {"/grpc.health.v1.Health/Check", SPW_ROLE_READ, false, false, true,
     &grpc__health__v1__health_check_request__descriptor, spw_health_check},
    {"/grpc.health.v1.Health/Watch", SPW_ROLE_READ, false, true, false,
     &grpc__health__v1__health_check_request__descriptor, spw_health_watch},
    {"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", SPW_ROLE_READ, true, true, false,
     &grpc__reflection__v1__server_reflection_request__descriptor, spw_reflection_begin},
    {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", SPW_ROLE_READ, true, true, false,
     &grpc__reflection__v1__server_reflection_request__descriptor, spw_reflection_begin},
};

bool spw_method_allowed(const struct spw_method *method, enum spw_role role)
{
    return method->role <= role;
}
