/* sums.c: see sums.h. */
#include "sidecar/provider/sums.h"

#include <strings.h>

#include "sidecar/provider/answer.h"
#include "sidecar/provider/wire.h"

static void add_bound(struct spw_sums *s, int64_t amount_minor)
{
    int64_t *bound = amount_minor < 0 ? &s->least_minor : &s->most_minor;
    if (__builtin_add_overflow(*bound, amount_minor, bound))
        *bound = amount_minor < 0 ? INT64_MIN : INT64_MAX;
}

void spw_sums_init(struct spw_sums *s, const struct spw_quote_request *quote, unsigned scale,
                   struct spw_answer *out)
{
    *s = (struct spw_sums){.out = out,
                           .scale = scale,
                           .currency = quote->currency ? quote->currency : "USD",
                           .lines_max_count = (size_t)quote->line_count + 1};
    spw_answer_clear(out);
    for (uint32_t i = 0; i < quote->line_count; i++)
        add_bound(s, quote->lines[i].amount_minor);
    add_bound(s, quote->shipping_minor);
}

bool spw_sums_currency(struct spw_sums *s, const char *told)
{
    if (!told || strcasecmp(told, s->currency) == 0)
        return true;
    spw_answer_fail(s->out, SPW_ANSWER_BROKEN, "the answer is not in the currency asked for");
    return false;
}

/* Is this a number between zero and the amount? A part that is not told is not doubted. */
static bool is_part(const struct spw_sums *s, const struct spw_json *part, int64_t amount_minor)
{
    int64_t minor;
    if (!part || spw_json_is(part, SPW_JSON_NULL))
        return true;
    if (!spw_json_number(part, s->scale, &minor))
        return false;
    return amount_minor < 0 ? minor <= 0 && minor >= amount_minor : minor >= 0 && minor <= amount_minor;
}

bool spw_sums_line(struct spw_sums *s, const struct spw_json *amount, const struct spw_json *taxable,
                   const struct spw_json *rate, const struct spw_json *tax)
{
    int64_t tax_minor = 0, amount_minor = 0, rate_ppb = 0;
    /* A fee of a line may be above the line's own amount (retail delivery in Colorado). */
    bool is_good = spw_json_number(tax, s->scale, &tax_minor) && tax_minor >= s->least_minor &&
                   tax_minor <= s->most_minor;
    if (is_good && amount)
        is_good = spw_json_number(amount, s->scale, &amount_minor) && is_part(s, taxable, amount_minor);
    if (is_good && rate)
        is_good = spw_json_number(rate, 9, &rate_ppb) && rate_ppb >= 0 && rate_ppb <= SPW_WIRE_PPB;
    if (!is_good || __builtin_add_overflow(s->lines_tax_minor, tax_minor, &s->lines_tax_minor)) {
        spw_answer_fail(s->out, SPW_ANSWER_BROKEN,
                        "a line's tax, rate or taxable amount is no number between zero and what was sold");
        return false;
    }
    if (++s->lines_count <= s->lines_max_count)
        return true;
    spw_answer_fail(s->out, SPW_ANSWER_BROKEN, "there are more lines than were asked for");
    return false;
}

void spw_sums_finish(struct spw_sums *s, const struct spw_json *total, bool is_whole)
{
    int64_t total_minor = s->lines_tax_minor;
    int64_t bound_minor =
        (int64_t)(s->lines_count + 1) / 2; /* the provider's own rounding, half a minor unit a line */
    bool is_told = total ? spw_json_number(total, s->scale, &total_minor) : s->lines_count > 0;
    if (!is_told || total_minor < s->least_minor || total_minor > s->most_minor) {
        spw_answer_fail(s->out, SPW_ANSWER_BROKEN, "the tax is no number between zero and what was sold");
    } else if (is_whole && s->lines_count &&
               (total_minor > s->lines_tax_minor + bound_minor ||
                total_minor < s->lines_tax_minor - bound_minor)) {
        spw_answer_fail(s->out, SPW_ANSWER_BROKEN, "the lines' taxes do not add up to the total");
    } else {
        s->out->kind = SPW_ANSWER_OK;
        s->out->tax_minor = total_minor;
    }
}
