/* fuzz_provider.c: what a provider may answer: the first byte chooses profile, status and kind of answer.
 *
 * What must hold: a tax that is OK is between zero and the amount asked for, its lines add up to it, and there is one a
 * line; any other answer holds no tax at all; only a rejection has an envelope.
 */
#include <string.h>

#include "sidecar/provider/provider.h"
#include "tests/fuzz/fuzz.h"

static const char *const names[] = {"avatax", "taxjar", "stripe", "taxcloud"};
static const uint32_t statuses[] = {200, 201, 400, 404, 422, 429, 500, 409};
static const struct spw_line lines[] = {{.id = "a", .quantity_micro = 2000000, .amount_minor = 3998},
                                        {.id = "b", .quantity_micro = 1000000, .amount_minor = 2500}};

static void check_answer(const struct spw_answer *a)
{
    int64_t sum_minor = 0;
    SPW_FUZZ_EXPECT((a->error_json != NULL) == (a->kind == SPW_ANSWER_REJECTED));
    for (uint32_t i = 0; i < 3; i++) {
        int64_t amount_minor = i < 2 ? lines[i].amount_minor : 795;
        SPW_FUZZ_EXPECT(a->lines[i].tax_minor >= 0 && a->lines[i].tax_minor <= amount_minor);
        SPW_FUZZ_EXPECT(a->lines[i].taxable_minor >= 0 && a->lines[i].taxable_minor <= amount_minor);
        sum_minor += a->lines[i].tax_minor;
    }
    SPW_FUZZ_EXPECT(a->kind == SPW_ANSWER_OK ? sum_minor == a->tax_minor
                                             : a->tax_minor == 0 && sum_minor == 0);
    SPW_FUZZ_EXPECT(a->jurisdictions_count <= SPW_JURISDICTIONS_MAX_COUNT && a->rate_ppb <= 1000000000);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct spw_quote_request q = {.currency = "USD", .lines = lines, .line_count = 2, .shipping_minor = 795};
    const struct spw_quote_request *quotes[] = {&q, &q};
    static const char *const keys[] = {"k-1", "k-2"};
    static const struct spw_line_tax collected[3];
    struct spw_booking booking = {.quote = &q,
                                  .collected = collected,
                                  .order_id = "o",
                                  .document = "o-1",
                                  .date = "2025-11-28",
                                  .calculation = ""};
    static struct spw_answer answers[2];
    struct spw_booked_answer booked;
    if (bytes == 0)
        return 0;
    const struct spw_profile *p = spw_profile_find(names[data[0] & 3]);
    uint32_t status = statuses[(data[0] >> 2) & 7];
    struct spw_route route = {"POST", "/", data[0] & 32 ? SPW_ROUTE_CALCULATE : SPW_ROUTE_RECORD};
    static const char headers[] = "Stripe-Rate-Limited-Reason: endpoint-rate\r\n";
    const char *body = (const char *)data + 1;
    SPW_FUZZ_EXPECT(p != NULL);
    p->read(&q, status, headers, sizeof headers - 1, body, bytes - 1, &answers[0]);
    check_answer(&answers[0]);
    spw_answer_clean_up(&answers[0]);
    bool is_read = answers[0].kind == SPW_ANSWER_OK;
    p->judge(&route, status, "", 0, body, bytes - 1, &answers[0]);
    SPW_FUZZ_EXPECT(answers[0].error_json == NULL);
    SPW_FUZZ_EXPECT(!is_read || answers[0].kind == SPW_ANSWER_OK);
    p->check(&q, body, bytes - 1, &answers[0]);
    SPW_FUZZ_EXPECT(answers[0].kind == SPW_ANSWER_OK
                        ? answers[0].tax_minor >= 0 && answers[0].tax_minor <= 7293
                        : answers[0].kind == SPW_ANSWER_BROKEN);
    p->read_book(&booking, status, body, bytes - 1, &booked);
    p->read_book_back(&booking, status, body, bytes - 1, &booked);
    if (p->read_batch) {
        p->read_batch(quotes, 2, keys, status, "", 0, body, bytes - 1, answers);
        for (size_t i = 0; i < 2; i++) {
            check_answer(&answers[i]);
            spw_answer_clean_up(&answers[i]);
        }
    }
    return 0;
}
