/* learn.h: what a live answer teaches the rate cache.
 *
 * Owns: which answers are facts about a place and a product, and which are about a buyer or a cent. Called by: flight.c,
 * once for each live answer. Thread: the loop thread.
 */
#ifndef SPW_HTTP_LEARN_H
#define SPW_HTTP_LEARN_H

#include "sidecar/provider/provider.h"
#include "sidecar/state/state.h"

/* What one line's tax says of its tax code: true and the rate, or false: nothing that holds for others. Pure. */
bool spw_learn_rate(const struct spw_quote_request *quote, const struct spw_answer *answer, uint32_t line,
                    uint32_t *out_ppb);

/* Teach the cache everything an answer says. Failed calls, answers for exempt buyers and quotes for another day teach
 * nothing. */
void spw_learn(struct spw_state *state, const struct spw_quote_request *quote,
               const struct spw_answer *answer, int64_t now_unix_ms);

#endif
