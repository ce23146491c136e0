/* spw_gcra.h: the token bucket's arithmetic: pure, integer, exact.
 *
 * Owns: the meaning of a bucket's level. Called by: spw_bucket.h, property tests. Thread: any; pure.
 *
 * A bucket counts *units*. `E(now)` is what has been earned since the configuration began; `level` is what has been
 * spent, on the same scale. A take of n tokens needs max(level, E - burst) + n * units_per_token <= E. Looking never
 * changes anything, so polling loses nothing; a full bucket is simply a level that lies `burst` or more behind E.
 *
 * The unit is chosen so that E is exact at every nanosecond: E(dt) = floor(dt * num / den) with num/den <= 3 units per
 * ns. With num/den = tokens/period * units_per_token the usual rates (1/s, 100/s, 40,000/min, 1/d) earn a whole
 * number of units per ns and no rounding takes place at all; for the others the error is below one unit (< 1 ns),
 * always to the strict side, and none at whole microseconds for most of them. Ten years at 3 units per ns are 2^59.8: a
 * level fits 60 bits beside its slot number.
 *
 * A fixed window is the same arithmetic with an E that rises in steps: at each boundary by a whole window's count,
 * which is also the burst. What a window leaves over is lost, and nothing of the next one can be had early.
 */
#ifndef SPW_GCRA_H
#define SPW_GCRA_H

#include "shm/spw_layout.h"

#ifdef __cplusplus
extern "C" {
#endif

__extension__ typedef unsigned __int128 spw_u128;
__extension__ typedef __int128 spw_i128;

#define SPW_LEVEL_MAX    ((UINT64_C(1) << 60) - 2) /* all ones would look like SPW_MOVED */
#define SPW_UNITS_PER_NS 3u
#define SPW_BURST_MAX_UNITS                                                                                  \
    UINT64_C(160000000000000000) /* ten years of earning + burst + salt stay below 2^60 */
#define SPW_PERIOD_MAX_NS   UINT64_C(100000000000000000) /* one a day shared by 1,000 pods */
#define SPW_RATE_MAX_PER_NS 1u                           /* 1e9 tokens a second */
#define SPW_FOREVER_NS      UINT64_MAX
#define SPW_RESERVE_MAX_NS                                                                                   \
    UINT64_C(3600000000000) /* tokens are reserved, or owed after a change, so far ahead at most */

/* A bucket's configuration as a decision uses it: copied once from the segment and checked. */
struct spw_gcra {
    uint64_t version;
    uint64_t units_num, units_den, units_fixed; /* a window: units_num each window_ns, and units_den 0 */
    uint64_t window_ns;
    uint64_t units_per_token;
    uint64_t burst_units;
    uint64_t reserve_units;
    uint64_t e0_units;
    uint64_t base_ns;
};

static inline uint64_t spw__gcd(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

static inline uint64_t spw__gcra_salt(uint64_t version)
{
    return (version * UINT64_C(0x9E3779B97F4A7C15)) >> 10; /* 54 bits */
}

/* Fill a configuration for tokens_count per period_ns with a burst, beginning at base_ns. version must differ from
 * those before: it also shifts the scale of levels, so that a CAS prepared under an old configuration cannot succeed
 * under a later one that reuses its slot. false: the values are outside what can be exact (see the constants). */
static inline bool spw_gcra_configure(struct spw_limiter_conf *out, uint64_t tokens_count, uint64_t period_ns,
                                      uint64_t burst_count, uint64_t reserve_count, uint64_t base_ns,
                                      uint64_t version)
{
    if (period_ns == 0 || period_ns > SPW_PERIOD_MAX_NS || tokens_count > period_ns * SPW_RATE_MAX_PER_NS)
        return false;
    uint64_t num = 0, den = 1, per_token = 1000000000;
    while (tokens_count == 0 && burst_count > SPW_BURST_MAX_UNITS / per_token && per_token > 1)
        per_token /= 1000; /* rate zero: as fine as goes, to keep what is in hand for the rate that follows */
    if (tokens_count > 0) {
        uint64_t g = spw__gcd(tokens_count, period_ns);
        uint64_t t = tokens_count / g, p = period_ns / g;
        /* t <= 3: a token is p units and t units are earned each ns, exactly. Otherwise as fine as 3 units a ns, and
         * so that whole units are earned each us, or ms, where that is possible: most clocks are read so. */
        per_token = t <= SPW_UNITS_PER_NS ? p : (uint64_t)((spw_u128)p * SPW_UNITS_PER_NS / t);
        for (uint64_t step_ns = 1000; t > SPW_UNITS_PER_NS && step_ns <= 1000000; step_ns *= 1000) {
            uint64_t whole = p / spw__gcd(p, step_ns);
            if (whole <= per_token) {
                per_token -= per_token % whole;
                break;
            }
        }
        spw_u128 n = (spw_u128)per_token * t;
        uint64_t h = spw__gcd((uint64_t)(n % p == 0 ? p : n % p), p);
        num = (uint64_t)(n / h);
        den = p / h;
    }
    if (burst_count != 0 && burst_count > SPW_BURST_MAX_UNITS / per_token)
        return false;
    out->version = version;
    out->units_num = num;
    out->units_den = den;
    out->units_fixed = den > 1 ? (uint64_t)(((spw_u128)num << 62) / den) : 0;
    out->units_per_token = per_token;
    out->burst_units = burst_count * per_token;
    out->reserve_units = (reserve_count < burst_count ? reserve_count : burst_count) * per_token;
    out->e0_units = out->burst_units + spw__gcra_salt(version);
    out->base_ns = base_ns;
    out->tokens_count = tokens_count;
    out->period_ns = period_ns;
    out->burst_count = burst_count;
    return true;
}

/* The same for a fixed window: count tokens in each window_ns, boundaries at base_ns, the first one to come, and at each
 * window_ns after it. */
static inline bool spw_gcra_configure_window(struct spw_limiter_conf *out, uint64_t count, uint64_t window_ns,
                                             uint64_t reserve_count, uint64_t base_ns, uint64_t version)
{
    uint64_t ten_years_ns = UINT64_C(316224000000000000);
    if (window_ns == 0 || window_ns > SPW_PERIOD_MAX_NS || count > window_ns * SPW_RATE_MAX_PER_NS ||
        count > SPW_BURST_MAX_UNITS ||
        (spw_u128)count * (ten_years_ns / window_ns + 1) > SPW_BURST_MAX_UNITS * 4)
        return false;
    out->version = version;
    out->units_num =
        0; /* what a client of layout 1.0 reads: rate and burst zero, and a level that is no damage */
    out->units_den = 1;
    out->units_fixed = 0;
    out->units_per_token = 1;
    out->burst_units = 0;
    out->reserve_units = reserve_count < count ? reserve_count : count;
    out->e0_units = SPW_LEVEL_MAX;
    out->base_ns = base_ns;
    out->tokens_count = count;
    out->period_ns = window_ns;
    out->burst_count = count;
    out->window_ns = window_ns;
    out->window_units = count;
    out->window_e0_units = count + spw__gcra_salt(version);
    return true;
}

/* A configuration as decisions use it. */
static inline void spw_gcra_of(const struct spw_limiter_conf *c, struct spw_gcra *out)
{
    bool window = c->window_ns != 0;
    out->units_num = window ? c->window_units : c->units_num;
    out->units_den = window ? 0 : c->units_den;
    out->units_fixed = c->units_fixed;
    out->window_ns = c->window_ns;
    out->units_per_token = c->units_per_token;
    out->burst_units = window ? c->window_units : c->burst_units;
    out->reserve_units = c->reserve_units;
    out->e0_units = window ? c->window_e0_units : c->e0_units;
    out->base_ns = c->base_ns;
}

/* E(now): units earned. A clock behind the base has earned nothing yet. */
static inline uint64_t spw_gcra_earned(const struct spw_gcra *g, uint64_t now_ns)
{
    if (now_ns < g->base_ns)
        return g->e0_units;
    uint64_t dt = now_ns - g->base_ns;
    spw_u128 earned;
    if (g->units_den == 1) {
        earned = (spw_u128)dt * g->units_num;
    } else if (g->units_den == 0) {
        earned = (spw_u128)(dt / g->window_ns + 1) * g->units_num;
    } else {
        /* The fixed-point product is at most one below the exact quotient within ten years: one look mends it. */
        earned = ((spw_u128)dt * g->units_fixed) >> 62;
        if ((earned + 1) * g->units_den <= (spw_u128)dt * g->units_num)
            earned++;
    }
    earned += g->e0_units;
    return earned < SPW_LEVEL_MAX ? (uint64_t)earned : SPW_LEVEL_MAX;
}

/* 1 when E(now) was rounded down: `earned` is spw_gcra_earned at now_ns. */
static inline uint64_t spw__gcra_fraction(const struct spw_gcra *g, uint64_t earned, uint64_t now_ns)
{
    if (g->units_den <= 1 || now_ns <= g->base_ns || earned >= SPW_LEVEL_MAX)
        return 0;
    return (spw_u128)(earned - g->e0_units) * g->units_den != (spw_u128)(now_ns - g->base_ns) * g->units_num;
}

/* The first instant at which E reaches `units`; SPW_FOREVER_NS when it never does. */
static inline uint64_t spw_gcra_when(const struct spw_gcra *g, uint64_t units)
{
    if (units <= g->e0_units)
        return g->units_den ? g->base_ns : 0;
    if (g->units_num == 0 || units > SPW_LEVEL_MAX)
        return SPW_FOREVER_NS;
    uint64_t more = units - g->e0_units;
    spw_u128 dt = g->units_den ? ((spw_u128)more * g->units_den + g->units_num - 1) / g->units_num
                               : (spw_u128)((more - 1) / g->units_num) * g->window_ns;
    if (dt > UINT64_MAX - 1 - g->base_ns)
        return SPW_FOREVER_NS;
    return g->base_ns + (uint64_t)dt;
}

/* At most so much is earned in any span_ns. */
static inline spw_u128 spw_gcra_earned_in(const struct spw_gcra *g, uint64_t span_ns)
{
    return g->units_den ? (spw_u128)span_ns * g->units_num / g->units_den
                        : (spw_u128)(span_ns / g->window_ns + 1) * g->units_num;
}

enum spw_gcra_result { SPW_GCRA_TAKE, SPW_GCRA_WAIT, SPW_GCRA_NEVER };

/* Can `tokens` be taken at now_ns, leaving `keep_units` in the bucket?
 * TAKE: *next_level is the level to store; *wait_ns is 0, or, with a reservation within max_wait_ns, the time until
 * the tokens are earned. WAIT: *wait_ns is exact if nobody else takes. NEVER: no wait would help. */
static inline enum spw_gcra_result spw_gcra_take(const struct spw_gcra *g, uint64_t level, uint64_t now_ns,
                                                 uint64_t tokens, uint64_t keep_units, uint64_t max_wait_ns,
                                                 uint64_t *next_level, uint64_t *wait_ns)
{
    *wait_ns = SPW_FOREVER_NS;
    if (tokens >
        (g->burst_units - (keep_units < g->burst_units ? keep_units : g->burst_units)) / g->units_per_token)
        return SPW_GCRA_NEVER;
    uint64_t need = tokens * g->units_per_token;
    uint64_t earned = spw_gcra_earned(g, now_ns);
    /* Full: the level catches up to E - burst. E is rounded down, so a level set from it is rounded up, or the next
     * token would come early; whether a full bucket holds enough was settled above. */
    uint64_t earned_up = earned + spw__gcra_fraction(g, earned, now_ns);
    if (earned_up > level && earned_up - level > g->burst_units) {
        *next_level = earned_up - g->burst_units + need;
        *wait_ns = 0;
        return SPW_GCRA_TAKE;
    }
    uint64_t target = level + need + keep_units;
    if (target <= earned) {
        *next_level = level + need;
        *wait_ns = 0;
        return SPW_GCRA_TAKE;
    }
    uint64_t at_ns = spw_gcra_when(g, target);
    if (at_ns == SPW_FOREVER_NS)
        return SPW_GCRA_NEVER;
    *wait_ns = at_ns > now_ns ? at_ns - now_ns : 0;
    if (*wait_ns > max_wait_ns || max_wait_ns == 0)
        return SPW_GCRA_WAIT;
    /* A window that begins in between takes what the one before left over. */
    uint64_t floor = spw_gcra_earned(g, at_ns) - g->burst_units;
    *next_level = (g->units_den == 0 && floor > level ? floor : level) + need;
    return SPW_GCRA_TAKE;
}

/* Units in hand at now_ns: 0 .. burst. */
static inline uint64_t spw_gcra_available(const struct spw_gcra *g, uint64_t level, uint64_t now_ns)
{
    uint64_t earned = spw_gcra_earned(g, now_ns);
    if (level >= earned)
        return 0;
    return earned - level < g->burst_units ? earned - level : g->burst_units;
}

/* SIDECAR ONLY */
/* The level under configuration `to` that keeps the tokens in hand (or the debt of reservations) of `level` under
 * `from`, cut to the new burst; fractions of a unit go to the strict side. More debt than an hour of the new rate pays
 * is forgiven: reservations made before the change begin when they were told, and a stop must not last for days. */
static inline uint64_t spw_gcra_carry(const struct spw_gcra *from, uint64_t level, const struct spw_gcra *to,
                                      uint64_t now_ns)
{
    uint64_t earned = spw_gcra_earned(from, now_ns), target = spw_gcra_earned(to, now_ns);
    if (level > earned) {
        spw_u128 debt = ((spw_u128)(level - earned) * to->units_per_token + from->units_per_token - 1) /
                        from->units_per_token;
        spw_u128 most = spw_gcra_earned_in(to, SPW_RESERVE_MAX_NS);
        if (debt > most)
            debt = most;
        return debt < SPW_LEVEL_MAX - target ? target + (uint64_t)debt : SPW_LEVEL_MAX;
    }
    spw_u128 hand =
        (spw_u128)spw_gcra_available(from, level, now_ns) * to->units_per_token / from->units_per_token;
    if (hand > to->burst_units)
        hand = to->burst_units;
    return target - (uint64_t)hand;
}
/* END SIDECAR ONLY */

#ifdef __cplusplus
}
#endif

#endif
