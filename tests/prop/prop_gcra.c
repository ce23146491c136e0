/* prop_gcra.c: the bucket against an exact one, over ten years of virtual time.
 *
 * The exact bucket is the same rule in whole numbers: at t ns it has earned tokens * t and a token costs period, so
 * nothing is ever rounded (128 bits). It follows the decisions of the bucket under test, and at each of them must agree:
 *   admitted  => the exact bucket admits too          (never more than burst + rate * t, over any interval)
 *   refused   => one nanosecond ago the exact bucket refused as well          (never less than that, to the token)
 *   hint      => waiting exactly so long passes, one nanosecond less does not
 *   "never"   => more than the burst, a rate of zero, or a wait that ends after the ten years
 */
#include "tests/prop/prop.h"

#include "shm/spw_gcra.h"

__extension__ typedef __int128 wide;

#define S         UINT64_C(1000000000)
#define DAY       (86400 * S)
#define TEN_YEARS (3650 * DAY)

struct rate {
    uint64_t tokens, period_ns, burst;
};

struct exact {
    wide level; /* spent, in token-periods */
    wide burst;
    struct rate rate;
    uint64_t base_ns;
};

static wide exact_earned(const struct exact *x, uint64_t now_ns)
{
    return (wide)x->rate.tokens * (now_ns - x->base_ns) + x->burst;
}

static bool exact_admits(const struct exact *x, uint64_t now_ns, uint64_t tokens)
{
    wide earned = exact_earned(x, now_ns), level = x->level;
    if (level < earned - x->burst)
        level = earned - x->burst;
    return level + (wide)tokens * x->rate.period_ns <= earned;
}

static void exact_take(struct exact *x, uint64_t now_ns, uint64_t tokens)
{
    wide earned = exact_earned(x, now_ns);
    if (x->level < earned - x->burst)
        x->level = earned - x->burst;
    x->level += (wide)tokens * x->rate.period_ns;
}

static void gcra_of(const struct spw_limiter_conf *conf, struct spw_gcra *g)
{
    memset(g, 0, sizeof *g);
    g->units_num = conf->units_num;
    g->units_den = conf->units_den;
    g->units_fixed = conf->units_fixed;
    g->units_per_token = conf->units_per_token;
    g->burst_units = conf->burst_units;
    g->e0_units = conf->e0_units;
    g->base_ns = conf->base_ns;
}

/* A step of time: around a token's time, around a burst's, or anything up to the end. */
static uint64_t step(struct prop *p, const struct rate *r, uint64_t left_ns)
{
    uint64_t token_ns = r->period_ns / (r->tokens ? r->tokens : 1), kind = prop_below(p, 8);
    uint64_t ns = kind < 3   ? prop_below(p, 2 * token_ns + 2)
                  : kind < 5 ? prop_below(p, 4)
                  : kind < 7 ? prop_scale(p, token_ns * (r->burst + 1) * 2 + 2)
                             : prop_scale(p, left_ns / 4 + 1);
    return ns < left_ns ? ns : left_ns;
}

static void check_refusal(struct prop *p, const struct spw_gcra *g, uint64_t level, const struct exact *x,
                          uint64_t now, uint64_t tokens, uint64_t wait_ns)
{
    uint64_t next = 0, unused = 0;
    const struct rate *r = &x->rate;
    PROP_CHECK(p, now == x->base_ns || !exact_admits(x, now - 1, tokens),
               "refused %" PRIu64 " of %" PRIu64 "/%" PRIu64 " burst %" PRIu64 " at +%" PRIu64, tokens,
               r->tokens, r->period_ns, r->burst, now - x->base_ns);
    PROP_CHECK(p,
               wait_ns > 0 &&
                   spw_gcra_take(g, level, now + wait_ns, tokens, 0, 0, &next, &unused) == SPW_GCRA_TAKE,
               "wait %" PRIu64 " does not pass: %" PRIu64 "/%" PRIu64 " burst %" PRIu64 " at +%" PRIu64,
               wait_ns, r->tokens, r->period_ns, r->burst, now - x->base_ns);
    PROP_CHECK(p, spw_gcra_take(g, level, now + wait_ns - 1, tokens, 0, 0, &next, &unused) == SPW_GCRA_WAIT,
               "wait %" PRIu64 " is too long: %" PRIu64 "/%" PRIu64 " burst %" PRIu64 " at +%" PRIu64,
               wait_ns, r->tokens, r->period_ns, r->burst, now - x->base_ns);
}

static void one_life(struct prop *p, struct rate r, uint64_t steps)
{
    struct spw_limiter_conf conf;
    struct spw_gcra g;
    memset(&conf, 0, sizeof conf);
    uint64_t base = prop_below(p, 40 * DAY) + 1, now = base, end = base + TEN_YEARS;
    bool full = prop_below(p, 2);
    if (!spw_gcra_configure(&conf, r.tokens, r.period_ns, r.burst, 0, base, prop_next(p)))
        return; /* refused as out of range */
    gcra_of(&conf, &g);
    struct exact x = {0, (wide)r.burst * r.period_ns, r, base};
    uint64_t level = full ? g.e0_units - g.burst_units : g.e0_units;
    x.level = full ? 0 : x.burst;
    for (uint64_t i = 0; i < steps && now < end; i++) {
        now += step(p, &r, end - now);
        uint64_t tokens = 1 + (prop_below(p, 4) ? prop_below(p, 2) : prop_scale(p, r.burst));
        for (unsigned k = 0; k < 3; k++) {
            uint64_t next = 0, wait_ns = 0;
            enum spw_gcra_result result = spw_gcra_take(&g, level, now, tokens, 0, 0, &next, &wait_ns);
            if (result == SPW_GCRA_NEVER) {
                PROP_CHECK(p,
                           tokens > r.burst || (r.tokens == 0 && !exact_admits(&x, now, tokens)) ||
                               !exact_admits(&x, end, tokens),
                           "never: %" PRIu64 " of %" PRIu64 "/%" PRIu64 " burst %" PRIu64 " at +%" PRIu64,
                           tokens, r.tokens, r.period_ns, r.burst, now - base);
                break;
            }
            PROP_CHECK(p, tokens <= r.burst, "more than a burst of %" PRIu64, r.burst);
            if (result == SPW_GCRA_TAKE) {
                PROP_CHECK(p, exact_admits(&x, now, tokens),
                           "admitted too much: %" PRIu64 " of %" PRIu64 "/%" PRIu64 " burst %" PRIu64
                           " at +%" PRIu64,
                           tokens, r.tokens, r.period_ns, r.burst, now - base);
                exact_take(&x, now, tokens);
                level = next;
            } else {
                check_refusal(p, &g, level, &x, now, tokens, wait_ns);
                break;
            }
        }
    }
}

/* Never stop asking: the count itself is burst + rate * t, to the token, at the end of ten years. */
static void saturated(struct prop *p, struct rate r)
{
    struct spw_limiter_conf conf;
    struct spw_gcra g;
    memset(&conf, 0, sizeof conf);
    uint64_t base = 1 + prop_below(p, DAY), admitted = 0, now = base, end = base + TEN_YEARS;
    PROP_CHECK(p, spw_gcra_configure(&conf, r.tokens, r.period_ns, r.burst, 0, base, 1),
               "%" PRIu64 "/%" PRIu64, r.tokens, r.period_ns);
    gcra_of(&conf, &g);
    uint64_t level = g.e0_units - g.burst_units;
    /* Each step ends before the bucket can have filled up: nothing is lost at its brim. */
    uint64_t most = r.burst > 1 ? (r.burst - 1) * (r.period_ns / r.tokens) : r.period_ns / r.tokens;
    for (bool first = true; now < end; first = false) {
        now += first ? 0 : most / 2 + prop_below(p, most / 2 + 1);
        now = now < end ? now : end;
        uint64_t n = spw_gcra_available(&g, level, now) / g.units_per_token, next = 0, wait_ns = 0;
        if (n && spw_gcra_take(&g, level, now, n, 0, 0, &next, &wait_ns) == SPW_GCRA_TAKE) {
            level = next;
            admitted += n;
        }
        wide earned = (wide)r.tokens * (now - base) / r.period_ns + r.burst;
        PROP_CHECK(p, admitted <= earned && admitted + 1 >= earned,
                   "%" PRIu64 "/%" PRIu64 " burst %" PRIu64 ": %" PRIu64 " admitted at +%" PRIu64, r.tokens,
                   r.period_ns, r.burst, admitted, now - base);
    }
    printf("%" PRIu64 " per %" PRIu64 " ns, burst %" PRIu64 ": %" PRIu64 " admitted in ten years\n", r.tokens,
           r.period_ns, r.burst, admitted);
}

int main(void)
{
    /* bursts of about a month's worth, so that ten years are some hundred steps */
    static const struct rate published[] = {
        {1, DAY, 31},
        {7, 60 * S, 300000},
        {3, S, 8000000},
        {170, S, 400000000},
        {40000, 60 * S, 1800000000},
        {3000000, S, UINT64_C(4000000000)},
        {10000000, S, UINT64_C(4000000000)},
    };
    struct prop p = prop_start(300);
    for (unsigned i = 0; i < sizeof published / sizeof published[0]; i++) {
        saturated(&p, published[i]);
        for (uint64_t k = 0; k < p.rounds / 10 + 1; k++) {
            struct rate r = published[i];
            r.burst = 1 + prop_scale(&p, r.burst - 1);
            one_life(&p, r, 20000);
        }
    }
    for (uint64_t i = 0; i < p.rounds; i++) {
        struct rate r;
        r.period_ns = 1 + prop_scale(&p, 366 * DAY);
        r.tokens = prop_scale(&p, r.period_ns);
        r.burst = prop_scale(&p, UINT64_C(4000000000));
        one_life(&p, r, 3000);
    }
    return 0;
}
