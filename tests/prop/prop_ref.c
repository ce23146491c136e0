/* prop_ref.c: the quick decision of a remembered account answers what the whole way answers, whatever its words say.
 *
 * Law: from the same words, at the same instant, spw__ref_quick and spw__ref_quiet each either decline and change nothing,
 * or leave the same answer, the same ticket, the same words and the same count as spw_admit. And they do decide, mostly.
 */
#include "tests/prop/prop.h"

#include "shm/spw_ref.h"
#include "tests/support/segment_fixture.h"

#define S UINT64_C(1000000000)

struct world {
    struct spw_fixture f;
    struct spw_ref ref;
    struct spw_account *account;
    struct spw_account_words *words;
    struct spw_limiter *limiter;
    struct spw_limiter_words *limiter_words;
    uint64_t version, now_ns;
    uint64_t quick, decided, declined;
};

static const struct {
    uint64_t tokens, period_ns;
} RATES[] = {{0, S},        {1, S},         {7, 60 * S},    {170, S}, {40000, 60 * S}, {3000000, S},
             {10000000, S}, {17, 3600 * S}, {1, 86400 * S}, {3, S},   {999, 7 * S},    {1000000000, S}};

static void reconfigure(struct prop *p, struct world *w)
{
    unsigned i = (unsigned)prop_below(p, sizeof RATES / sizeof RATES[0]);
    uint64_t burst = 1 + prop_scale(p, 5000), reserve = prop_below(p, 3) ? 0 : prop_below(p, burst);
    w->version++;
    (void)spw_bucket_configure(w->limiter, w->limiter_words, RATES[i].tokens, RATES[i].period_ns, burst,
                               reserve, w->version, w->now_ns, prop_below(p, 2) == 0);
    spw_changed(&w->f.map);
}

/* A level near where decisions turn: empty, full, reserved ahead; or anything at all. */
static void set_level(struct prop *p, struct world *w)
{
    struct spw_gcra g;
    uint64_t word = w->limiter_words->level;
    if (prop_below(p, 30) == 0)
        w->limiter_words->level = prop_below(p, 2) ? SPW_MOVED : prop_next(p);
    if (!spw_limiter_conf_read(w->limiter, spw_bucket_slot(word), &g))
        return;
    uint64_t earned = spw_gcra_earned(&g, w->now_ns), edge = prop_below(p, 4) ? g.burst_units : 0;
    uint64_t off = prop_below(p, 3) ? prop_below(p, 3) : prop_below(p, 4 * g.units_per_token);
    uint64_t level = earned - edge + (prop_below(p, 2) ? off : 0 - off);
    w->limiter_words->level = spw_bucket_word(spw_bucket_slot(word), spw_bucket_level(level));
}

static void set_state(struct prop *p, struct world *w)
{
    struct spw_breaker_word b = {0};
    uint64_t now_ms = spw_map_ms(&w->f.map, w->now_ns);
    b.state = prop_below(p, 2) ? SPW_BREAKER_CLOSED : (uint32_t)prop_below(p, 4);
    b.epoch = (uint32_t)prop_below(p, 2048);
    b.time_ms = now_ms + prop_below(p, 200000) - (prop_below(p, 2) ? now_ms : 0);
    w->words->breaker = prop_below(p, 40) ? spw_breaker_pack(&b) : prop_next(p);
    w->words->gate =
        prop_below(p, 2)
            ? 0
            : spw__gate_word((uint32_t)prop_below(p, SPW_GATE_COUNT), prop_next(p),
                             now_ms + prop_below(p, 4000) - (prop_below(p, 2) && now_ms > 2000 ? 2000 : 0));
    if (prop_below(p, 40) == 0)
        w->words->gate = prop_below(p, 2) ? SPW_MOVED : prop_next(p);
    if (prop_below(p, 4))
        return;
    w->account->forced = prop_below(p, 6) ? SPW_FORCED_NOT : prop_below(p, 5);
    w->account->switches = prop_below(p, 8) ? 0 : prop_below(p, 4);
    w->limiter->switches = prop_below(p, 8) ? 0 : prop_below(p, 4);
    w->account->skip = prop_below(p, 8) ? 0 : 1;
    spw_changed(&w->f.map);
}

struct outcome {
    struct spw_admission a;
    struct spw_ticket ticket;
    struct spw_account_words words;
    struct spw_limiter_words limiter_words;
    struct spw_stats stats;
};

static void note(struct world *w, struct outcome *o)
{
    o->words = *w->words;
    o->limiter_words = *w->limiter_words;
    o->stats = *spw__stats(&w->f.map, w->ref.account_index);
}

/* The sums a reader of the statistics sees. */
static void add_own(struct outcome *o)
{
    for (unsigned i = 0; i < SPW_STATS_OWN_COUNT; i++) {
        o->stats.count[i] += o->stats.count[SPW_STAT_OWN + i];
        o->stats.count[SPW_STAT_OWN + i] = 0;
    }
}

static void put_back(struct world *w, const struct outcome *o)
{
    *w->words = o->words;
    *w->limiter_words = o->limiter_words;
    *spw__stats(&w->f.map, w->ref.account_index) = o->stats;
}

static bool same(const struct outcome *x, const struct outcome *y)
{
    const struct spw_admission *a = &x->a, *b = &y->a;
    const struct spw_charge *c = &x->ticket.charge[0], *d = &y->ticket.charge[0];
    bool answer = a->verdict == b->verdict && a->cause == b->cause && a->wait_ns == b->wait_ns &&
                  a->start_at_ns == b->start_at_ns && a->version == b->version &&
                  a->available_units == b->available_units && a->units_per_token == b->units_per_token &&
                  a->breaker_state == b->breaker_state && a->observed == b->observed &&
                  a->may_call == b->may_call;
    bool ticket = memcmp(&x->ticket, &y->ticket, SPW__TICKET_HEAD_BYTES) == 0 &&
                  (!x->ticket.charged || (c->version == d->version && c->level == d->level &&
                                          c->returned == d->returned && c->taken_ns == d->taken_ns));
    return answer && ticket && memcmp(&x->words, &y->words, sizeof x->words) == 0 &&
           memcmp(&x->limiter_words, &y->limiter_words, sizeof x->limiter_words) == 0 &&
           memcmp(&x->stats, &y->stats, sizeof x->stats) == 0;
}

static void compare(struct prop *p, struct world *w)
{
    struct outcome before, quick, whole;
    uint64_t tokens = prop_below(p, 3) ? 1 : prop_scale(p, 6000);
    bool take = prop_below(p, 4) != 0;
    memset(&before, 0, sizeof before);
    memset(&quick, 0, sizeof quick);
    memset(&whole, 0, sizeof whole);
    note(w, &before);
    bool ordinary = prop_below(p, 2) != 0;
    uint64_t breaker;
    bool done = ordinary && spw__ref_look(&w->f.map, &w->ref, tokens, &breaker) &&
                spw__ref_quick(&w->ref, breaker, tokens, w->now_ns, take, &quick.a, &quick.ticket);
    w->quick += done;
    done = done || spw__ref_quiet(&w->f.map, &w->ref, tokens, w->now_ns, take, &quick.a, &quick.ticket);
    note(w, &quick);
    put_back(w, &before);
    if (!done) {
        memset(&quick.a, 0, sizeof quick.a);
        memset(&quick.ticket, 0, sizeof quick.ticket);
        PROP_CHECK(p, same(&before, &quick), "%s", "a decision that was declined changed something");
        w->declined++;
        (void)spw__ref_whole(&w->f.map, &w->ref, 0, tokens, 0, w->now_ns, &whole.ticket);
        return;
    }
    uint32_t flags = spw_ref_flags(&w->ref) | SPW_ACQUIRE_SHARE | (take ? 0 : (uint32_t)SPW_ACQUIRE_PEEK);
    whole.a = spw_admit(&w->f.map, w->ref.account_index, w->ref.account_generation, flags, tokens, 0,
                        w->now_ns, &whole.ticket);
    note(w, &whole);
    add_own(&quick);
    add_own(&whole);
    PROP_CHECK(p, same(&quick, &whole),
               "verdict %d %d cause %d %d wait %" PRIu64 " %" PRIu64 " hand %" PRIu64 " %" PRIu64
               " level %" PRIx64 " %" PRIx64,
               quick.a.verdict, whole.a.verdict, quick.a.cause, whole.a.cause, quick.a.wait_ns,
               whole.a.wait_ns, quick.a.available_units, whole.a.available_units, quick.limiter_words.level,
               whole.limiter_words.level);
    w->decided++;
}

static void one_life(struct prop *p, struct world *w, uint64_t steps)
{
    for (uint64_t i = 0; i < steps; i++) {
        w->now_ns += prop_scale(p, 3600 * S) + (prop_below(p, 500) ? 0 : UINT64_C(86400) * S * 300);
        if (prop_below(p, 50) == 0)
            reconfigure(p, w);
        if (prop_below(p, 50) == 0) {
            w->ref.batch = !w->ref.batch;
            spw__ref_learn(&w->f.map, &w->ref);
        }
        if (prop_below(p, 4) == 0)
            set_state(p, w);
        if (prop_below(p, 2) == 0)
            set_level(p, w);
        compare(p, w);
    }
}

int main(void)
{
    static struct world w;
    const struct spw_fixture_options options = {.accounts = 2, .limiters = 2};
    struct prop p = prop_start(200);
    spw_fixture_make(&w.f, &options);
    spw_fixture_claim(&w.f.map, &w.f);
    spw_ref_init(&w.ref, "main", "");
    PROP_CHECK(&p, spw__ref_find(&w.f.map, &w.ref), "%s", "no account");
    w.account = spw_account_at(&w.f.map, w.ref.account_index);
    w.words = spw_account_words_at(&w.f.map, w.ref.account_index);
    PROP_CHECK(&p, w.account && w.words, "%s", "no account");
    w.limiter = spw_limiter_at(&w.f.map, w.account->limiters[0]);
    w.limiter_words = spw_limiter_words_at(&w.f.map, w.account->limiters[0]);
    PROP_CHECK(&p, w.limiter && w.limiter_words, "%s", "no limiter");
    w.version = 1;
    for (uint64_t i = 0; i < p.rounds; i++) {
        w.now_ns = spw_now_ns();
        reconfigure(&p, &w);
        one_life(&p, &w, 2000);
    }
    printf("%" PRIu64 " decided, %" PRIu64 " of them quickly; %" PRIu64 " declined\n", w.decided, w.quick,
           w.declined);
    PROP_CHECK(&p, w.decided > w.declined / 4 && w.quick > w.decided / 40, "%s",
               "the quick way is hardly ever gone");
    spw_fixture_remove(&w.f);
    return 0;
}
