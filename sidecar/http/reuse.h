/* reuse.h: answers that may be given again: to an identical cart for a while, or to the same decision asked twice.
 *
 * Owns: bounded tables of answers. Called by: decide.c, job.c, quote_door.c.
 * Thread: the loop thread.
 */
#ifndef SPW_HTTP_REUSE_H
#define SPW_HTTP_REUSE_H

#include "sidecar/http/decide.h"
#include "sidecar/http/key.h"

struct spw_reuse; /* one table */

/* All its memory is taken and touched here, so that it never grows with traffic; the oldest answers go first. NULL
 * without memory. */
struct spw_reuse *spw_reuse_new(size_t bytes);
void spw_reuse_destroy(struct spw_reuse *reuse);

/* Keep a live or fallback answer until until_ns, in place of an earlier one under the key. One that is larger than
 * a quarter of the table is not kept. */
void spw_reuse_put(struct spw_reuse *reuse, const struct spw_key *key, uint64_t now_ns, uint64_t until_ns,
                   const struct spw_result *result);
/* The answer under the key; its pointers hold until the next call with this table. `request` is left NULL. */
bool spw_reuse_get(struct spw_reuse *reuse, const struct spw_key *key, uint64_t now_ns,
                   struct spw_result *out);
void spw_reuse_drop(struct spw_reuse *reuse, const struct spw_key *key);
/* When an answer was last pushed out that was younger than a minute; 0 = never. */
uint64_t spw_reuse_crowded_ns(const struct spw_reuse *reuse);

/* Every answer that has this text as quote, decision or flag id, or as the caller's reference; newest first. */
typedef bool spw_reuse_fn(void *owner, const struct spw_result *result); /* false = stop */
void spw_reuse_each(struct spw_reuse *reuse, const char *reference, uint64_t now_ns, spw_reuse_fn *fn,
                    void *owner);

#endif
