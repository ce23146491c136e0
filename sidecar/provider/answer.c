/* answer.c: see answer.h. */
#include "sidecar/provider/answer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sidecar/provider/wire.h"

static void clear_lines(struct spw_answer *out, uint32_t count)
{
    out->lines_count = count;
    memset(out->lines, 0, count * sizeof out->lines[0]);
    memset(out->line_rates, 0, count * sizeof out->line_rates[0]);
}

void spw_answer_fail(struct spw_answer *out, enum spw_answer_kind kind, const char *format, ...)
{
    uint32_t lines_count = out->lines_count;
    spw_answer_clear(out); /* nothing half-read stays behind */
    clear_lines(out, lines_count);
    out->kind = kind;
    va_list args;
    va_start(args, format);
    vsnprintf(out->detail, sizeof out->detail, format, args);
    va_end(args);
}

bool spw_answer_status_is_of_the_way(uint32_t status)
{
    return status == 405 || status == 407 || status == 408 || status == 421 || status == 425 || status == 426;
}

void spw_answer_reject(struct spw_answer *out, const struct spw_json *envelope, uint32_t status)
{
    out->error_json = spw_json_dump(envelope);
    if (out->error_json)
        out->kind = SPW_ANSWER_REJECTED;
    else
        spw_answer_fail(out, SPW_ANSWER_ERROR, "no memory for the error text of status %u", status);
}

void spw_answer_add_jurisdiction(struct spw_answer *out, const char *level, int64_t rate_ppb,
                                 int64_t tax_minor)
{
    struct spw_jurisdiction *same_level = NULL;
    if (rate_ppb < 0 || rate_ppb > SPW_WIRE_PPB || (rate_ppb == 0 && tax_minor == 0))
        return;
    for (uint32_t i = 0; i < out->jurisdictions_count; i++) {
        struct spw_jurisdiction *j = &out->jurisdictions[i];
        if (strcmp(j->level, level) != 0)
            continue;
        if (!same_level)
            same_level = j;
        if (j->rate_ppb == (uint32_t)rate_ppb) {
            j->tax_minor += tax_minor;
            return;
        }
    }
    if (out->jurisdictions_count == SPW_JURISDICTIONS_MAX_COUNT) {
        if (same_level)
            same_level->tax_minor += tax_minor;
        return;
    }
    struct spw_jurisdiction *j = &out->jurisdictions[out->jurisdictions_count++];
    snprintf(j->level, sizeof j->level, "%s", level);
    j->rate_ppb = (uint32_t)rate_ppb;
    j->tax_minor = tax_minor;
}

bool spw_answer_reader_init(struct spw_answer_reader *r, const struct spw_quote_request *quote,
                            struct spw_answer *out)
{
    spw_answer_clear(out);
    memset(r, 0, sizeof *r);
    r->quote = quote;
    r->out = out;
    if (quote->line_count > SPW_LINES_MAX_COUNT) {
        spw_answer_fail(out, SPW_ANSWER_BROKEN, "more lines than a quote may have");
        return false;
    }
    clear_lines(out, quote->line_count + 1);
    return true;
}

int64_t spw_answer_reader_asked_minor(const struct spw_answer_reader *r, size_t index)
{
    return index < r->quote->line_count ? r->quote->lines[index].amount_minor : r->quote->shipping_minor;
}

/* Between zero and the amount, whichever sign the amount has. */
static bool is_within(int64_t value, int64_t amount)
{
    return amount < 0 ? value <= 0 && value >= amount : value >= 0 && value <= amount;
}

bool spw_answer_reader_line(struct spw_answer_reader *r, size_t index, bool taxable_known,
                            int64_t taxable_minor, int64_t tax_minor, int64_t rate_ppb)
{
    struct spw_answer *out = r->out;
    if (index > r->quote->line_count) {
        spw_answer_fail(out, SPW_ANSWER_BROKEN, "a line was not asked for");
        return false;
    }
    int64_t amount_minor = spw_answer_reader_asked_minor(r, index);
    const char *fault = NULL;
    if (r->seen[index])
        fault = "comes twice";
    else if (!is_within(tax_minor, amount_minor))
        fault = "has a tax below zero or above its own amount";
    else if (rate_ppb < 0 || rate_ppb > SPW_WIRE_PPB)
        fault = "has a rate below zero or above one";
    else if (taxable_known && !is_within(taxable_minor, amount_minor))
        fault = "has a taxable amount above its own amount";
    if (fault) {
        spw_answer_fail(out, SPW_ANSWER_BROKEN, "line %zu %s", index, fault);
        return false;
    }
    r->seen[index] = true;
    bool taxed = tax_minor != 0 || rate_ppb > 0;
    out->lines[index].taxable_minor = taxable_known ? taxable_minor : taxed ? amount_minor : 0;
    out->lines[index].tax_minor = tax_minor;
    out->line_rates[index].known = rate_ppb > 0 || tax_minor == 0;
    out->line_rates[index].ppb = (uint32_t)rate_ppb;
    if (__builtin_add_overflow(out->tax_minor, tax_minor, &out->tax_minor)) {
        spw_answer_fail(out, SPW_ANSWER_BROKEN, "the taxes add up to more than an amount can be");
        return false;
    }
    return true;
}

void spw_answer_reader_finish(struct spw_answer_reader *r, int64_t total_minor)
{
    struct spw_answer *out = r->out;
    size_t largest = 0, asked_count = 0;
    for (size_t i = 0; i <= r->quote->line_count; i++) {
        bool is_asked = i < r->quote->line_count || r->quote->shipping_minor != 0;
        asked_count += is_asked;
        if (is_asked && !r->seen[i]) {
            spw_answer_fail(out, SPW_ANSWER_BROKEN, "line %zu is missing from the answer", i);
            return;
        }
        if (out->lines[i].tax_minor > out->lines[largest].tax_minor)
            largest = i;
    }
    int64_t noise_minor = total_minor - out->tax_minor;
    int64_t bound_minor = (int64_t)(asked_count / 2); /* half a minor unit a line */
    int64_t amount_minor = spw_answer_reader_asked_minor(r, largest);
    if (noise_minor > bound_minor || noise_minor < -bound_minor ||
        (noise_minor && !is_within(out->lines[largest].tax_minor + noise_minor, amount_minor))) {
        spw_answer_fail(out, SPW_ANSWER_BROKEN, "the lines' taxes do not add up to the total");
        return;
    }
    out->lines[largest].tax_minor += noise_minor;
    out->tax_minor = total_minor;
    out->kind = SPW_ANSWER_OK;
}
