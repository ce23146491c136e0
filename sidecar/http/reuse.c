/* reuse.c: answers that may be given again. See reuse.h.
 *
 * A table is one ring of bytes in which answers lie in the order of putting, and chains through them by key. What an
 * answer has beyond the fixed fields is copied behind it, so that small carts take little. Room for a new one is made by
 * dropping the oldest; one that was replaced stays where it lies, in no chain, until its turn.
 */
#include "sidecar/http/reuse.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define CHAINS_COUNT 4096u /* a power of two */
#define YOUNG_NS     UINT64_C(60000000000)

struct kept {
    struct spw_key key;
    struct kept *chained;
    struct kept *newer, *older;
    uint64_t put_ns, until_ns;
    size_t bytes;
    bool is_chained;          /* false: replaced or over */
    struct spw_result result; /* its pointers are set anew when it is told */
    uint32_t rate_ppb;
    uint32_t jurisdictions_count;
    bool has_answer, has_fallback;
    size_t fallback_bytes;
    unsigned char more[]; /* lines, jurisdictions, fallback answer; each aligned to 8 */
};

struct spw_reuse {
    unsigned char *ring;
    size_t ring_bytes;
    uint64_t crowded_ns;
    struct kept *oldest, *newest;
    struct kept *chains[CHAINS_COUNT];
    struct spw_answer answer; /* what was got last */
    struct spw_fallback_answer fallback;
};

struct spw_reuse *spw_reuse_new(size_t bytes)
{
    struct spw_reuse *reuse = calloc(1, sizeof *reuse);
    if (!reuse)
        return NULL;
    reuse->ring = malloc(bytes);
    reuse->ring_bytes = bytes;
    if (!reuse->ring) {
        free(reuse);
        return NULL;
    }
    memset(reuse->ring, 0, bytes);
    return reuse;
}

static struct kept **chain_of(struct spw_reuse *reuse, const struct spw_key *key)
{
    uint32_t hash; /* the digest is uniform: any bytes of it do */
    memcpy(&hash, key->bytes, sizeof hash);
    return &reuse->chains[hash & (CHAINS_COUNT - 1)];
}

static struct kept **find(struct spw_reuse *reuse, const struct spw_key *key)
{
    struct kept **at = chain_of(reuse, key);
    while (*at && memcmp((*at)->key.bytes, key->bytes, sizeof key->bytes) != 0)
        at = &(*at)->chained;
    return at;
}

/* Out of its chain; its bytes are free when it is the oldest. */
static void unchain(struct kept **at)
{
    struct kept *kept = *at;
    *at = kept->chained;
    kept->is_chained = false;
}

void spw_reuse_drop(struct spw_reuse *reuse, const struct spw_key *key)
{
    struct kept **at = find(reuse, key);
    if (*at)
        unchain(at);
}

static void drop_oldest(struct spw_reuse *reuse, uint64_t now_ns)
{
    struct kept *kept = reuse->oldest;
    if (kept->is_chained) {
        if (kept->until_ns > now_ns && now_ns - kept->put_ns < YOUNG_NS)
            reuse->crowded_ns = now_ns;
        unchain(find(reuse, &kept->key));
    }
    reuse->oldest = kept->newer;
    *(kept->newer ? &kept->newer->older : &reuse->newest) = NULL;
}

void spw_reuse_destroy(struct spw_reuse *reuse)
{
    if (!reuse)
        return;
    free(reuse->ring);
    free(reuse);
}

/* Room behind the newest answer, or at the beginning when there is too little left; the oldest in the way go. */
static void *make_room(struct spw_reuse *reuse, size_t bytes, uint64_t now_ns)
{
    unsigned char *end = reuse->ring + reuse->ring_bytes;
    unsigned char *at = reuse->newest ? (unsigned char *)reuse->newest + reuse->newest->bytes : reuse->ring;
    if ((size_t)(end - at) < bytes) {
        /* What lies between here and the end is passed over: whoever lies there is older than what is at the start. */
        while (reuse->oldest && (unsigned char *)reuse->oldest >= at)
            drop_oldest(reuse, now_ns);
        at = reuse->ring;
    }
    while (reuse->oldest && (unsigned char *)reuse->oldest >= at &&
           (size_t)((unsigned char *)reuse->oldest - at) < bytes)
        drop_oldest(reuse, now_ns);
    return at;
}

static size_t aligned(size_t bytes)
{
    return (bytes + 7) & ~(size_t)7;
}

static struct kept *kept_new(struct spw_reuse *reuse, const struct spw_result *r, uint64_t now_ns)
{
    size_t lines = r->lines_count * sizeof r->lines[0];
    size_t count = r->decision == SPW_DECISION_LIVE && r->answer ? r->answer->jurisdictions_count : 0;
    size_t places = count * sizeof r->answer->jurisdictions[0];
    size_t fallback =
        r->fallback ? offsetof(struct spw_fallback_answer, assumptions) + r->fallback->assumptions_bytes + 1
                    : 0;
    if (r->fallback && fallback > sizeof *r->fallback)
        fallback = sizeof *r->fallback;
    size_t bytes = aligned(sizeof(struct kept) + aligned(lines) + aligned(places) + aligned(fallback));
    if (bytes > reuse->ring_bytes / 4)
        return NULL;
    struct kept *kept = make_room(reuse, bytes, now_ns);
    memset(kept, 0, sizeof *kept);
    kept->bytes = bytes;
    kept->result = *r;
    kept->has_answer = r->decision == SPW_DECISION_LIVE && r->answer;
    kept->rate_ppb = kept->has_answer ? r->answer->rate_ppb : 0;
    kept->jurisdictions_count = (uint32_t)count;
    kept->has_fallback = r->fallback != NULL;
    kept->fallback_bytes = fallback;
    if (lines)
        memcpy(kept->more, r->lines, lines);
    if (places)
        memcpy(kept->more + aligned(lines), r->answer->jurisdictions, places);
    if (fallback)
        memcpy(kept->more + aligned(lines) + aligned(places), r->fallback, fallback);
    return kept;
}

void spw_reuse_put(struct spw_reuse *reuse, const struct spw_key *key, uint64_t now_ns, uint64_t until_ns,
                   const struct spw_result *result)
{
    spw_reuse_drop(reuse, key);
    struct kept *kept = kept_new(reuse, result, now_ns);
    if (!kept)
        return;
    struct kept **chain = chain_of(reuse, key);
    kept->key = *key;
    kept->put_ns = now_ns;
    kept->until_ns = until_ns;
    kept->is_chained = true;
    kept->chained = *chain;
    *chain = kept;
    kept->older = reuse->newest;
    *(reuse->newest ? &reuse->newest->newer : &reuse->oldest) = kept;
    reuse->newest = kept;
}

static void tell(struct spw_reuse *reuse, const struct kept *kept, struct spw_result *out)
{
    size_t lines = aligned(kept->result.lines_count * sizeof kept->result.lines[0]);
    size_t places = kept->jurisdictions_count * sizeof reuse->answer.jurisdictions[0];
    *out = kept->result;
    out->request = NULL;
    out->handback = NULL;
    out->native = NULL;
    out->lines = (const struct spw_line_tax *)(const void *)kept->more;
    out->answer = NULL;
    out->fallback = NULL;
    if (kept->has_answer) {
        reuse->answer.kind = SPW_ANSWER_OK;
        reuse->answer.tax_minor = kept->result.tax_minor;
        reuse->answer.lines_count = kept->result.lines_count;
        reuse->answer.rate_ppb = kept->rate_ppb;
        reuse->answer.jurisdictions_count = kept->jurisdictions_count;
        if (places)
            memcpy(reuse->answer.jurisdictions, kept->more + lines, places);
        out->answer = &reuse->answer;
    }
    if (kept->has_fallback) {
        memset(&reuse->fallback, 0, sizeof reuse->fallback);
        memcpy(&reuse->fallback, kept->more + lines + aligned(places), kept->fallback_bytes);
        out->fallback = &reuse->fallback;
    }
}

bool spw_reuse_get(struct spw_reuse *reuse, const struct spw_key *key, uint64_t now_ns,
                   struct spw_result *out)
{
    struct kept **at = find(reuse, key);
    if (!*at)
        return false;
    if ((*at)->until_ns <= now_ns) {
        unchain(at);
        return false;
    }
    tell(reuse, *at, out);
    return true;
}

uint64_t spw_reuse_crowded_ns(const struct spw_reuse *reuse)
{
    return reuse->crowded_ns;
}

void spw_reuse_each(struct spw_reuse *reuse, const char *reference, uint64_t now_ns, spw_reuse_fn *fn,
                    void *owner)
{
    struct spw_result result;
    bool go_on = true;
    for (const struct kept *kept = reuse->newest; kept && go_on; kept = kept->older) {
        const struct spw_result *r = &kept->result;
        if (kept->is_chained && kept->until_ns > now_ns &&
            (strcmp(r->quote_id, reference) == 0 || strcmp(r->decision_id, reference) == 0 ||
             strcmp(r->flag_id, reference) == 0 || strcmp(r->quote_ref, reference) == 0)) {
            tell(reuse, kept, &result);
            go_on = fn(owner, &result);
        }
    }
}
