/* prop_bucket.c: a bucket in its word under random takes, refunds, reservations, changes of its limit, sidecars that die
 * while they change it, and looks; several "processes" with clocks read at slightly different times.
 *
 * Law: over the whole life, and from every change on, tokens kept <= tokens in hand at the start + the integral of the
 * rate. Held exactly, in token-nanoseconds of 128 bits; each change may lose, but not win, a fraction of a unit.
 */
#include "tests/prop/prop.h"

#include "shm/spw_bucket.h"

#define S UINT64_C(1000000000)

__extension__ typedef __int128 wide;

/* The exact bucket: tokens in hand as a fraction over `scale`, which all rates used here divide. */
struct exact {
    wide hand;  /* token-parts in hand; negative: owed by reservations */
    wide scale; /* parts of a token */
    wide rate;  /* parts a ns */
    wide burst;
    uint64_t now_ns;
};

static const struct {
    uint64_t tokens, period_ns;
} RATES[] = {{0, S},        {1, S},   {7, 60 * S},  {170, S},       {40000, 60 * S}, {3000000, S},
             {10000000, S}, {100, S}, {999, 7 * S}, {1, 86400 * S}, {1000000000, S}, {13, 17 * S}};
#define RATES_COUNT (sizeof RATES / sizeof RATES[0])

static wide scale_of_all(void)
{
    wide scale = 1;
    for (unsigned i = 0; i < RATES_COUNT; i++) {
        uint64_t g = spw__gcd(RATES[i].tokens ? RATES[i].tokens : RATES[i].period_ns, RATES[i].period_ns);
        uint64_t p = RATES[i].period_ns / g;
        scale = scale / (wide)spw__gcd((uint64_t)(scale % p ? scale % p : p), p) * p;
    }
    return scale;
}

static void advance(struct exact *x, uint64_t now_ns)
{
    if (now_ns <= x->now_ns)
        return;
    x->hand += x->rate * (wide)(now_ns - x->now_ns);
    x->now_ns = now_ns;
    if (x->hand > x->burst)
        x->hand = x->burst;
}

struct life {
    struct spw_limiter limiter;
    struct spw_limiter_words words;
    struct exact x;
    uint64_t now_ns, version, burst;
};

static void change(struct prop *p, struct life *l)
{
    unsigned rate = (unsigned)prop_below(p, RATES_COUNT);
    uint64_t burst = 1 + prop_scale(p, 5000), reserve = prop_below(p, burst);
    if (prop_below(p, 6) == 0) { /* a sidecar dies while it writes the next configuration */
        struct spw_limiter_conf *c = &l->limiter.conf[(l->limiter.current + 1) % SPW_CONFIG_SLOTS];
        c->version = (l->version + 1) * 2 + 1;
        c->units_num = prop_next(p);
        c->e0_units = prop_next(p);
        return;
    }
    if (!spw_bucket_configure(&l->limiter, &l->words, RATES[rate].tokens, RATES[rate].period_ns, burst,
                              reserve, l->version + 1, l->now_ns, false))
        return;
    l->version++;
    advance(&l->x, l->now_ns);
    l->x.rate = l->x.scale / RATES[rate].period_ns * RATES[rate].tokens;
    l->x.burst = l->x.scale * burst;
    l->burst = burst;
    if (l->x.hand > l->x.burst)
        l->x.hand = l->x.burst;
    if (l->x.hand < -l->x.rate * (wide)SPW_RESERVE_MAX_NS) /* more than an hour's debt is forgiven */
        l->x.hand = -l->x.rate * (wide)SPW_RESERVE_MAX_NS;
}

static void take(struct prop *p, struct life *l)
{
    /* A process that read its clock a little while ago. */
    uint64_t late = prop_below(p, 3) ? 0 : prop_below(p, 2000), now = l->now_ns - late;
    uint64_t tokens = prop_below(p, 4) ? 1 : 1 + prop_scale(p, l->burst), max_wait = 0;
    bool keep = prop_below(p, 5) == 0;
    if (prop_below(p, 6) == 0)
        max_wait = prop_scale(p, 2 * S);
    struct spw_bucket_answer a = spw_bucket_take(&l->limiter, &l->words, now, tokens, keep, max_wait, true);
    PROP_CHECK(p, a.version == l->version, "version %" PRIu64 " was obeyed, not %" PRIu64, a.version,
               l->version);
    if (a.result == SPW_BUCKET_TAKEN) {
        advance(&l->x, now);
        l->x.hand -= l->x.scale * (wide)tokens;
        /* What is reserved is earned when it begins. */
        PROP_CHECK(p, l->x.hand + l->x.rate * (wide)a.wait_ns >= 0,
                   "%" PRIu64 " tokens taken early at %" PRIu64 ", wait %" PRIu64, tokens, now, a.wait_ns);
        if (a.wait_ns && prop_below(p, 3) == 0) { /* given up at once */
            spw_bucket_give_back(&l->limiter, &l->words, now, tokens, &a.charge);
            l->x.hand += l->x.scale * (wide)tokens;
        }
    } else if (a.result == SPW_BUCKET_WAIT && max_wait == 0) {
        PROP_CHECK(p, a.wait_ns > 0, "a refusal without a wait at %" PRIu64, now);
        struct spw_bucket_answer again =
            spw_bucket_take(&l->limiter, &l->words, now + a.wait_ns, tokens, keep, 0, false);
        PROP_CHECK(p, again.result == SPW_BUCKET_TAKEN, "waiting %" PRIu64 " does not pass", a.wait_ns);
        again = spw_bucket_take(&l->limiter, &l->words, now + a.wait_ns - 1, tokens, keep, 0, false);
        PROP_CHECK(p, again.result == SPW_BUCKET_WAIT, "waiting %" PRIu64 " is too long", a.wait_ns);
    }
}

static void one_life(struct prop *p, uint64_t steps)
{
    struct life *l = (struct life *)calloc(1, sizeof *l);
    if (!l)
        abort();
    l->now_ns = 1 + prop_below(p, 1000 * S);
    l->version = 1;
    l->burst = 1 + prop_scale(p, 5000);
    l->x.scale = scale_of_all();
    l->x.now_ns = l->now_ns;
    l->x.burst = l->x.hand = l->x.scale * l->burst;
    l->x.rate = l->x.scale / S * 100;
    PROP_CHECK(p,
               spw_bucket_configure(&l->limiter, &l->words, 100, S, l->burst, 0, l->version, l->now_ns, true),
               "burst %" PRIu64, l->burst);
    for (uint64_t i = 0; i < steps; i++) {
        uint64_t what = prop_below(p, 20);
        l->now_ns += what < 10 ? prop_scale(p, 100) : prop_scale(p, S / 10);
        if (what == 0)
            change(p, l);
        else
            take(p, l);
    }
    PROP_CHECK(p, l->words.healed_count == 0, "%" PRIu64 " words healed", l->words.healed_count);
    free(l);
}

int main(void)
{
    struct prop p = prop_start(400);
    for (uint64_t i = 0; i < p.rounds; i++)
        one_life(&p, 2000);
    return 0;
}
