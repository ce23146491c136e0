/* learn.c: see learn.h.
 *
 * A rate is learned from a line whose whole amount was taxed at a stated rate that its tax bears out, and a zero from a
 * line large enough that a rate would have shown. Not learned: a line taxed in part (a threshold, a holiday: true of that
 * amount alone), credits, anything of a buyer who stated an exemption, and a zero where a customer is named: the provider
 * may know of an exemption that the quote does not state; but for the states without a sales tax, where none is needed. Shipping is learned under a tax code of its own only, since what
 * holds for shipping does not hold for goods.
 */
#include "sidecar/http/learn.h"

#include <string.h>

#include "shm/spw_fallback.h"

#define ZERO_LEAST_MINOR 100 /* at half a per cent this is half a cent: a lower rate may hide in a zero */
#define OFF_MOST_MINOR   1   /* and one for each jurisdiction the provider rounds on its own */

/* Where no sales tax is levied, by the state or below it (Alaska's boroughs do). */
static bool has_no_sales_tax(const struct spw_address *to)
{
    static const char *const states[] = {"DE", "MT", "NH", "OR"};
    bool is_us = !to->country || strcmp(to->country, "US") == 0;
    for (size_t i = 0; is_us && to->state && i < sizeof states / sizeof states[0]; i++)
        if (strcmp(to->state, states[i]) == 0)
            return true;
    return false;
}

bool spw_learn_rate(const struct spw_quote_request *quote, const struct spw_answer *answer, uint32_t line,
                    uint32_t *out_ppb)
{
    bool shipping = line == quote->line_count;
    int64_t amount_minor = shipping ? quote->shipping_minor : quote->lines[line].amount_minor;
    const struct spw_line_tax *tax = &answer->lines[line];
    const struct spw_line_rate *rate = &answer->line_rates[line];
    if (line >= answer->lines_count || amount_minor <= 0 || !rate->known ||
        (shipping && !(quote->shipping_tax_code && quote->shipping_tax_code[0])))
        return false;
    *out_ppb = rate->ppb;
    if (tax->taxable_minor == amount_minor && rate->ppb > 0) {
        int64_t off_minor = tax->tax_minor - spw_tax_minor(amount_minor, rate->ppb);
        int64_t most_minor = OFF_MOST_MINOR + (int64_t)answer->jurisdictions_count;
        return off_minor >= -most_minor && off_minor <= most_minor;
    }
    *out_ppb = 0;
    bool named = quote->customer_id && quote->customer_id[0] && !has_no_sales_tax(&quote->ship_to);
    return tax->tax_minor == 0 && tax->taxable_minor == 0 && amount_minor >= ZERO_LEAST_MINOR && !named;
}

/* The provider's parts, where they are of this rate and not of another line's. */
static void put_parts(const struct spw_answer *answer, struct spw_learned_fact *fact)
{
    struct spw_learned_fact parts = {0};
    uint64_t sum = 0;
    for (uint32_t i = 0; i < answer->jurisdictions_count && i < SPW_JURISDICTIONS_MAX_COUNT; i++) {
        const struct spw_jurisdiction *j = &answer->jurisdictions[i];
        uint32_t *part = strcmp(j->level, "state") == 0    ? &parts.state_ppb
                         : strcmp(j->level, "county") == 0 ? &parts.county_ppb
                         : strcmp(j->level, "city") == 0   ? &parts.city_ppb
                                                           : &parts.special_ppb;
        *part += j->rate_ppb;
        sum += j->rate_ppb;
    }
    if (sum != fact->combined_ppb)
        return;
    fact->state_ppb = parts.state_ppb;
    fact->county_ppb = parts.county_ppb;
    fact->city_ppb = parts.city_ppb;
    fact->special_ppb = parts.special_ppb;
}

static bool is_of_today(const struct spw_quote_request *quote, int64_t now_unix_ms)
{
    int32_t day, today = (int32_t)(now_unix_ms / 86400000);
    return !quote->date || (spw_date_parse(quote->date, &day) && day >= today - 1 && day <= today + 1);
}

void spw_learn(struct spw_state *state, const struct spw_quote_request *quote,
               const struct spw_answer *answer, int64_t now_unix_ms)
{
    if (answer->kind != SPW_ANSWER_OK || (quote->exemption && quote->exemption[0]) ||
        !is_of_today(quote, now_unix_ms))
        return;
    for (uint32_t i = 0; i <= quote->line_count && i < answer->lines_count; i++) {
        const char *code = i < quote->line_count ? quote->lines[i].tax_code : quote->shipping_tax_code;
        struct spw_learned_fact fact = {.account = quote->account,
                                        .ship_from = &quote->ship_from,
                                        .ship_to = &quote->ship_to,
                                        .tax_code = code && code[0] ? code : NULL,
                                        .unix_ms = now_unix_ms};
        if (!spw_learn_rate(quote, answer, i, &fact.combined_ppb))
            continue;
        put_parts(answer, &fact);
        spw_state_rates_learn(state, &fact);
    }
}
