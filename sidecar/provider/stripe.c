/* stripe.c: building calls to Stripe Tax: calculations, and transactions for the books.
 *
 * Owns: the profile's data and the requests' form. Called by: http/, reconcile/ through the profile. Thread: any; pure.
 *
 * Requests are forms, amounts whole minor units. References of lines are their numbers from 0, so that answers are
 * matched whatever ids the caller uses. Stripe remembers an Idempotency-Key for a day with status and body, so a
 * repeated call must have the same body, byte for byte. A transaction can be made only from a live calculation: what goes into
 * the books is Stripe's own tax of that calculation, and what was collected stands beside it as metadata. Stripe cannot
 * be asked for a transaction by its reference, so reading back is the same request again: within a day the stored
 * answer comes back, and after it the reference is refused as taken.
 */
#include "sidecar/provider/stripe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shm/spw_text.h"
#include "sidecar/provider/form.h"
#include "sidecar/provider/wire.h"

#define KEY_MAX_BYTES       255 /* of an Idempotency-Key */
#define REFERENCE_MAX_BYTES 500
#define FORM                "application/x-www-form-urlencoded"
#define NOON_S              43200

static const struct spw_route routes[] = {
    {"POST", "/v1/tax/calculations", SPW_ROUTE_CALCULATE},
    {"GET", "/v1/tax/calculations/*", SPW_ROUTE_READ},
    {"GET", "/v1/tax/calculations/*/line_items", SPW_ROUTE_READ},
    {"POST", "/v1/tax/transactions/create_from_calculation", SPW_ROUTE_RECORD},
    {"POST", "/v1/tax/transactions/create_reversal", SPW_ROUTE_REFUND},
    {"GET", "/v1/tax/transactions/*", SPW_ROUTE_READ},
    {"GET", "/v1/tax/transactions/*/line_items", SPW_ROUTE_READ},
    {"GET", "/v1/tax/settings", SPW_ROUTE_READ},
    {"GET", "/v1/tax/registrations", SPW_ROUTE_READ},
    {"GET", "/v1/tax_codes", SPW_ROUTE_READ},
    {"GET", "/v1/tax_codes/*", SPW_ROUTE_READ},
};

/* Each endpoint has a limit of its own, 25 a second unless Stripe says otherwise, below the account's 100
 * (docs.stripe.com/rate-limits). A burst of a fifth of a second keeps the count of any second close to it. */
static const struct spw_profile_limiter limiters[] = {
    {"calculations", SPW_ROUTE_CALCULATE, 25, UINT64_C(1000000000), 200},
    {"transactions", SPW_ROUTE_RECORD, 25, UINT64_C(1000000000), 200},
    {"reversals", SPW_ROUTE_REFUND, 25, UINT64_C(1000000000), 200},
    {"reads", SPW_ROUTE_READ, 25, UINT64_C(1000000000), 200},
};

/* What may stand in a header and is short enough: else the call goes without a key, as it would without one at all. */
static bool is_key(const char *key)
{
    if (!key || !key[0] || strlen(key) > KEY_MAX_BYTES)
        return false;
    for (const char *p = key; *p; p++)
        if ((unsigned char)*p <= 0x20 || (unsigned char)*p >= 0x7f)
            return false;
    return true;
}

static enum spw_status open_post(const struct spw_conf_account *account,
                                 const struct spw_credential *credential, const char *path, const char *key,
                                 struct spw_call *out, struct spw_error *err)
{
    enum spw_status status = spw_wire_open(&spw_profile_stripe, account, credential, "POST", path, out, err);
    if (!status && is_key(key))
        status = spw_wire_header(out, "Idempotency-Key", key, err);
    if (status)
        spw_call_clean_up(out);
    return status;
}

static void add_address(struct spw_form_writer *w, const char *owner, const struct spw_address *a)
{
    spw_form_add(w, a->line1, "%s[address][line1]", owner);
    spw_form_add(w, a->city, "%s[address][city]", owner);
    spw_form_add(w, a->state, "%s[address][state]", owner);
    spw_form_add(w, a->zip, "%s[address][postal_code]", owner);
    spw_form_add(w, a->country && a->country[0] ? a->country : "US", "%s[address][country]", owner);
}

static enum spw_status add_line(struct spw_form_writer *w, const struct spw_quote_request *quote,
                                uint32_t index, struct spw_error *err)
{
    const struct spw_line *line = &quote->lines[index];
    enum spw_status status = spw_wire_check_line(quote, index, false, "Stripe", err);
    if (status)
        return status;
    spw_form_add_number(w, line->amount_minor, "line_items[%u][amount]", index);
    spw_form_add_number(w, index, "line_items[%u][reference]", index);
    if (line->quantity_micro > 0 && line->quantity_micro % SPW_WIRE_MICRO == 0)
        spw_form_add_number(w, line->quantity_micro / SPW_WIRE_MICRO, "line_items[%u][quantity]", index);
    spw_form_add(w, "exclusive", "line_items[%u][tax_behavior]", index);
    spw_form_add(w, line->tax_code, "line_items[%u][tax_code]", index);
    return SPW_STATUS_OK;
}

/* "USD" -> "usd" */
static void add_currency(struct spw_form_writer *w, const char *currency)
{
    char lower[4] = "usd";
    for (size_t i = 0; currency && i < 3 && currency[i]; i++)
        lower[i] = (char)(currency[i] >= 'A' && currency[i] <= 'Z' ? currency[i] + 32 : currency[i]);
    spw_form_add(w, lower, "currency");
}

static enum spw_status write_quote(struct spw_form_writer *w, const struct spw_quote_request *quote,
                                   struct spw_error *err)
{
    int32_t day;
    enum spw_status status = spw_wire_check_quote(quote, "Stripe", err);
    if (!status && (!quote->ship_to.zip || !quote->ship_to.zip[0]))
        status = spw_error_set(err, SPW_STATUS_INVALID, "ship_to.zip: is needed; send it");
    if (!status)
        status = spw_wire_check_line(quote, quote->line_count, false, "Stripe", err);
    if (status)
        return status;
    add_currency(w, quote->currency);
    for (uint32_t i = 0; i < quote->line_count && !status; i++)
        status = add_line(w, quote, i, err);
    add_address(w, "customer_details", &quote->ship_to);
    spw_form_add(w, "shipping", "customer_details[address_source]");
    if (quote->exemption && quote->exemption[0])
        spw_form_add(w, "customer_exempt", "customer_details[taxability_override]");
    if (quote->shipping_minor) {
        spw_form_add_number(w, quote->shipping_minor, "shipping_cost[amount]");
        spw_form_add(w, "exclusive", "shipping_cost[tax_behavior]");
        spw_form_add(w, quote->shipping_tax_code, "shipping_cost[tax_code]");
    }
    if (quote->ship_from.zip && quote->ship_from.zip[0])
        add_address(w, "ship_from_details", &quote->ship_from);
    /* Noon UTC is the same calendar day in every US time zone. */
    if (quote->date && spw_date_parse(quote->date, &day))
        spw_form_add_number(w, (long long)day * 86400 + NOON_S, "tax_date");
    spw_form_add(w, "line_items.data.tax_breakdown", "expand[0]");
    return status;
}

static enum spw_status close_form(struct spw_form_writer *w, const struct spw_credential *credential,
                                  enum spw_status status, struct spw_call *out, struct spw_error *err)
{
    char *body = spw_form_take(w);
    if (!status && !body)
        status = spw_wire_no_memory(err);
    return spw_wire_close(&spw_profile_stripe, credential, body, FORM, status, out, err);
}

static enum spw_status build(const struct spw_quote_request *quote, const struct spw_conf_account *account,
                             const struct spw_credential *credential, const char *idempotency_key,
                             struct spw_call *out, struct spw_error *err)
{
    struct spw_form_writer w = {0};
    enum spw_status status =
        open_post(account, credential, "/v1/tax/calculations", idempotency_key, out, err);
    if (status)
        return status;
    status = write_quote(&w, quote, err);
    return close_form(&w, credential, status, out, err);
}

static enum spw_status book(const struct spw_booking *booking, const struct spw_conf_account *account,
                            const struct spw_credential *credential, struct spw_call *out,
                            struct spw_error *err)
{
    char key[SPW_CALLER_ID_BYTES + 16];
    struct spw_form_writer w = {0};
    if (!booking->calculation[0])
        return spw_error_set(err, SPW_STATUS_INVALID,
                             "stripe: a transaction is made from a live calculation, and there is none yet; "
                             "reconcile the order first");
    snprintf(key, sizeof key, "spw-book-%s", booking->document);
    enum spw_status status =
        open_post(account, credential, "/v1/tax/transactions/create_from_calculation", key, out, err);
    if (status)
        return status;
    spw_form_add(&w, booking->calculation, "calculation");
    spw_form_add(&w, booking->document, "reference");
    if (strlen(booking->order_id) <= REFERENCE_MAX_BYTES)
        spw_form_add(&w, booking->order_id, "metadata[order_id]");
    spw_form_add_number(&w, booking->tax_collected_minor, "metadata[tax_collected]");
    spw_form_add(&w, "line_items", "expand[0]");
    return close_form(&w, credential, SPW_STATUS_OK, out, err);
}

const struct spw_profile spw_profile_stripe = {
    .name = "stripe",
    .default_url = "https://api.stripe.com",
    .routes = routes,
    .routes_count = sizeof routes / sizeof routes[0],
    .limiters = limiters,
    .limiters_count = sizeof limiters / sizeof limiters[0],
    .takes_date = true,
    .is_tax = true,
    .jurisdictions_rounded_count = 4, /* state, county, city, district */
    .build = build,
    .read = spw_stripe_read,
    .judge = spw_stripe_judge,
    .check = spw_stripe_check,
    .authorize = spw_wire_bearer,
    .token = spw_wire_token,
    .native_quote = spw_stripe_native_quote,
    .native_fallback = spw_stripe_native_fallback,
    .native_error = spw_stripe_native_error,
    .native_document = spw_stripe_native_document,
    .native_order = spw_stripe_native_order,
    .no_retry_header = "Stripe-Should-Retry",
    .book = book,
    .read_book = spw_stripe_read_book,
    .book_back = book,
    .read_book_back = spw_stripe_read_book,
};
