/* sums.h: is the tax of a native calculation sound, whatever its lines are called?
 *
 * Owns: the checks that need no line to be the one asked for. Called by: the profiles' check. Thread: any; pure.
 *
 * A caller of the pass-through door names its lines as it likes, and may ask for an answer without any. The answer is
 * passed on byte for byte, but a tax that cannot be one never is: below zero, above what was sold, in another currency,
 * or not what its own lines add up to.
 */
#ifndef SPW_PROVIDER_SUMS_H
#define SPW_PROVIDER_SUMS_H

#include "sidecar/provider/json_read.h"
#include "sidecar/provider/provider.h"

struct spw_sums {
    struct spw_answer *out;
    const char *currency; /* asked for */
    unsigned scale;       /* of the provider's money: 2 = decimals, 0 = minor units */
    int64_t least_minor,
        most_minor; /* what a tax of the quote can be: its amounts below zero, and those above */
    int64_t lines_tax_minor;
    size_t lines_count, lines_max_count;
};

/* *out becomes BROKEN with its reason wherever one of these gives false. */
void spw_sums_init(struct spw_sums *s, const struct spw_quote_request *quote, unsigned scale,
                   struct spw_answer *out);
/* NULL = not told, which is fine. */
bool spw_sums_currency(struct spw_sums *s, const char *told);
/* One line or the shipping of the answer. amount: its own; taxable: of it; rate: a share. NULL = the form does not tell
 * it. */
bool spw_sums_line(struct spw_sums *s, const struct spw_json *amount, const struct spw_json *taxable,
                   const struct spw_json *rate, const struct spw_json *tax);
/* total NULL = the sum of the lines. is_whole: the lines are all there are, so they add up to it. Sets kind OK and
 * tax_minor. */
void spw_sums_finish(struct spw_sums *s, const struct spw_json *total, bool is_whole);

#endif
