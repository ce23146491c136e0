/* provider_call.c: what a profile sends and understands, for tests that put a real provider's stand-in between.
 *
 *   provider_call PROFILE URL build|book|book_back|ping|rates|batch [CALCULATION]   the call as JSON
 *   provider_call PROFILE URL read|read_book|read_book_back STATUS [CALCULATION]    stdin is the answer's body; JSON
 *
 * Owns: nothing. Called by: tests/integration/test_filing.py. Thread: one. The order is always the same one.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "sidecar/provider/provider.h"

static const struct spw_line lines[] = {{.id = "sku-1", .quantity_micro = 2000000, .amount_minor = 3998},
                                        {.id = "sku-2", .quantity_micro = 1000000, .amount_minor = 2500}};
static const struct spw_line_tax collected[] = {{3998, 368}, {2500, 230}, {795, 73}};

static int print(json_t *root)
{
    if (!root || json_dumpf(root, stdout, JSON_COMPACT) != 0)
        return 1;
    json_decref(root);
    return 0;
}

static int print_call(struct spw_call *call)
{
    json_t *headers = json_array();
    for (size_t i = 0; i < call->header_count; i++)
        json_array_append_new(headers, json_string(call->headers[i]));
    json_t *root = json_pack("{s:s, s:s, s:o, s:s?}", "method", call->method, "url", call->url, "headers",
                             headers, "body", call->body);
    spw_call_clean_up(call);
    return print(root);
}

static int make(const struct spw_profile *p, const struct spw_conf_account *account, const char *what,
                const struct spw_booking *booking)
{
    static const struct spw_credential credential = {.user = "", .secret = "key-1"};
    const struct spw_quote_request *two[] = {booking->quote, booking->quote};
    static const char *const keys[] = {"sq_1", "sq_2"};
    struct spw_call call;
    struct spw_error err = {.text = "no such function"};
    enum spw_status status = SPW_STATUS_INVALID;
    if (strcmp(what, "build") == 0)
        status = p->build(booking->quote, account, &credential, "sq_0", &call, &err);
    else if (strcmp(what, "batch") == 0 && p->build_batch)
        status = p->build_batch(two, 2, account, &credential, keys, &call, &err);
    else if (strcmp(what, "book") == 0)
        status = p->book(booking, account, &credential, &call, &err);
    else if (strcmp(what, "book_back") == 0)
        status = p->book_back(booking, account, &credential, &call, &err);
    else if (strcmp(what, "ping") == 0 && p->ping)
        status = p->ping(account, &credential, &call, &err);
    else if (strcmp(what, "rates") == 0 && p->rates)
        status = p->rates(account, &credential, "2025-11-28", &call, &err);
    if (status) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    return print_call(&call);
}

static int understand(const struct spw_profile *p, const char *what, uint32_t status,
                      const struct spw_booking *booking)
{
    static const char *const words[] = {"booked", "already", "missing", "rejected", "throttled", "failed"};
    static char body[1 << 20];
    static struct spw_answer answer;
    struct spw_booked_answer booked;
    size_t bytes = fread(body, 1, sizeof body, stdin);
    if (strcmp(what, "read") == 0) {
        p->read(booking->quote, status, "", 0, body, bytes, &answer);
        json_t *root =
            json_pack("{s:i, s:I, s:s, s:s}", "kind", (int)answer.kind, "tax", (json_int_t)answer.tax_minor,
                      "calculation", answer.calculation, "detail", answer.detail);
        spw_answer_clean_up(&answer);
        return print(root);
    }
    (strcmp(what, "read_book") == 0 ? p->read_book : p->read_book_back)(booking, status, body, bytes,
                                                                        &booked);
    return print(json_pack("{s:s, s:o, s:s}", "booked", words[booked.booked], "tax",
                           booked.has_tax ? json_integer((json_int_t)booked.tax_minor) : json_null(),
                           "detail", booked.detail));
}

int main(int argc, char **argv)
{
    struct spw_quote_request quote = {
        .currency = "USD",
        .ship_from = {.state = "TX", .zip = "75201", .city = "Dallas", .line1 = "1 Main St"},
        .ship_to = {.state = "WA", .zip = "98110", .city = "Seattle", .line1 = "1 A St"},
        .customer_id = "c_7",
        .shipping_minor = 795,
        .lines = lines,
        .line_count = 2};
    struct spw_booking booking = {.quote = &quote,
                                  .collected = collected,
                                  .tax_collected_minor = 671,
                                  .order_id = "100048213",
                                  .document = "spw-100048213",
                                  .date = "2025-11-27",
                                  .calculation = ""};
    struct spw_conf_account account = {.name = "main", .company = "ACME", .connection = "c-1"};
    const struct spw_profile *p = argc > 3 ? spw_profile_find(argv[1]) : NULL;
    if (!p)
        return 2;
    snprintf(account.url, sizeof account.url, "%s", argv[2]);
    bool reads = strncmp(argv[3], "read", 4) == 0;
    if (reads && argc < 5)
        return 2;
    if (argc > 4 + (reads ? 1 : 0))
        booking.calculation = argv[4 + (reads ? 1 : 0)];
    return reads ? understand(p, argv[3], (uint32_t)strtoul(argv[4], NULL, 10), &booking)
                 : make(p, &account, argv[3], &booking);
}
