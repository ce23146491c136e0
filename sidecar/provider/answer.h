/* answer.h: what the profiles share in judging an answer: nothing is taken for tax that is not understood whole.
 *
 * Owns: the checks of struct spw_answer. Called by: the profiles' read and judge. Thread: any; pure.
 *
 * A tax is taken only when every line asked for is there exactly once, each tax is a number between zero and its own
 * line's amount, and the lines add up to the total: otherwise the answer is BROKEN with its reason, because a guess or
 * a silent zero would be charged to somebody.
 */
#ifndef SPW_PROVIDER_ANSWER_H
#define SPW_PROVIDER_ANSWER_H

#include "sidecar/provider/json_read.h"
#include "sidecar/provider/provider.h"

struct spw_answer_reader {
    const struct spw_quote_request *quote;
    struct spw_answer *out;
    bool seen[SPW_LINES_MAX_COUNT + 1];
};

/* Sets *out up; false: the quote has too many lines (told in *out). */
bool spw_answer_reader_init(struct spw_answer_reader *r, const struct spw_quote_request *quote,
                            struct spw_answer *out);
/* One line into its place (index line_count = shipping). Where the taxable amount is not told it is the line's own when
 * there is a tax or a rate, else 0. false: BROKEN, told. */
bool spw_answer_reader_line(struct spw_answer_reader *r, size_t index, bool taxable_known,
                            int64_t taxable_minor, int64_t tax_minor, int64_t rate_ppb);
/* Every line there? Do they add up to the total, but for half a minor unit a line of rounding noise, which goes to the
 * line with the largest tax? Sets kind to OK or BROKEN. */
void spw_answer_reader_finish(struct spw_answer_reader *r, int64_t total_minor);
/* Amount of a line as asked. */
int64_t spw_answer_reader_asked_minor(const struct spw_answer_reader *r, size_t index);

/* A status of HTTP's own about the way there, never about what was asked, whatever body it comes with: a method, proxy,
 * connection or moment that is wrong. */
bool spw_answer_status_is_of_the_way(uint32_t status);

/* Forget what was read, and say why. */
void spw_answer_fail(struct spw_answer *out, enum spw_answer_kind kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* REJECTED with the provider's own envelope. */
void spw_answer_reject(struct spw_answer *out, const struct spw_json *envelope, uint32_t status);
/* Add to the jurisdiction of this level and rate; when the list is full, to the first of the level. */
void spw_answer_add_jurisdiction(struct spw_answer *out, const char *level, int64_t rate_ppb,
                                 int64_t tax_minor);

#endif
