/* fuzz_native.c: what an SDK may send to the pass-through door: the first byte chooses the profile.
 *
 * What must hold: a request is a quote whose texts end and whose amounts are in range, or it is refused with a reason and
 * nothing is left; a quote can always be answered by a fallback that is JSON; documents and tokens fit their room.
 */
#include <string.h>

#include <jansson.h>

#include "sidecar/provider/provider.h"
#include "tests/fuzz/fuzz.h"

static const char *const names[] = {"avatax", "taxjar", "stripe", "taxcloud"};
static const char *const paths[] = {"/api/v2/transactions/create", "/v2/taxes", "/v1/tax/calculations",
                                    "/tax/connections/c-1/carts"};

static size_t length(const char *text)
{
    return text ? strlen(text) : 0;
}

static void check_quote(const struct spw_native_quote *n, size_t body_bytes)
{
    const struct spw_quote_request *q = &n->quote;
    size_t texts = length(q->account) + length(q->date) + length(q->customer_id) + length(q->exemption) +
                   length(q->ship_to.city) + length(q->ship_to.line1) + length(q->ship_to.zip);
    SPW_FUZZ_EXPECT(q->line_count >= 1 && q->line_count <= SPW_LINES_MAX_COUNT);
    SPW_FUZZ_EXPECT(q->ship_to.state && strlen(q->ship_to.state) == 2 && q->ship_to.zip);
    for (uint32_t i = 0; i < q->line_count; i++) {
        SPW_FUZZ_EXPECT(q->lines[i].id && q->lines[i].quantity_micro >= 0);
        SPW_FUZZ_EXPECT(q->lines[i].amount_minor <= SPW_AMOUNT_MAX_MINOR &&
                        q->lines[i].amount_minor >= -SPW_AMOUNT_MAX_MINOR);
        texts += length(q->lines[i].id) + length(q->lines[i].tax_code);
    }
    SPW_FUZZ_EXPECT(texts <= body_bytes + 4096 + 32u * q->line_count);
}

static void answer(const struct spw_profile *p, const struct spw_native_request *r,
                   const struct spw_native_quote *n)
{
    static struct spw_line_tax taxes[SPW_LINES_MAX_COUNT + 1];
    struct spw_native_fallback f = {.quote_id = "sq_0123456789abcdef0123456789abcdef",
                                    .flag_id = "",
                                    .type = "t",
                                    .cause = "c",
                                    .now_unix_ms = INT64_C(1764331200000),
                                    .lines = taxes,
                                    .state_ppb = 65000000,
                                    .city_ppb = 27000000,
                                    .combined_ppb = 92000000};
    struct spw_native_answer out;
    struct spw_error err;
    for (uint32_t i = 0; i <= n->quote.line_count; i++) {
        int64_t amount_minor =
            i < n->quote.line_count ? n->quote.lines[i].amount_minor : n->quote.shipping_minor;
        taxes[i] = (struct spw_line_tax){amount_minor, amount_minor / 11};
        f.tax_minor += amount_minor / 11;
    }
    if (p->native_fallback(r, n, &f, &out, &err) != SPW_STATUS_OK)
        return; /* no memory */
    json_t *root = json_loadb(out.body, out.body_bytes, 0, NULL);
    SPW_FUZZ_EXPECT(json_is_object(root) && out.status < 300);
    json_decref(root);
    spw_native_answer_clean_up(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const struct spw_conf_account account = {.name = "main", .company = "A", .connection = "c-1"};
    if (bytes == 0)
        return 0;
    size_t which = data[0] & 3;
    const struct spw_profile *p = spw_profile_find(names[which]);
    char *text = calloc(1, bytes); /* with its NUL; exactly as long, so that a read past it is seen */
    SPW_FUZZ_EXPECT(p != NULL && text != NULL);
    memcpy(text, data + 1, bytes - 1);
    struct spw_native_request r = {
        .path = paths[which], .query = "", .headers = text, .body = text, .body_bytes = bytes - 1};
    struct spw_native_quote n;
    struct spw_error err = {.text = ""};
    char document[SPW_CALLER_ID_BYTES], token[32];
    if (p->native_quote(&r, &account, &n, &err) == SPW_STATUS_OK) {
        check_quote(&n, bytes);
        answer(p, &r, &n);
        spw_native_quote_clean_up(&n);
    } else {
        SPW_FUZZ_EXPECT(err.text[0] && !n.lines);
    }
    if (p->native_document(&r, document))
        SPW_FUZZ_EXPECT(document[0] && strlen(document) < sizeof document);
    if (p->token(text, token, sizeof token))
        SPW_FUZZ_EXPECT(token[0] && strlen(token) < sizeof token);
    free(text);
    return 0;
}
