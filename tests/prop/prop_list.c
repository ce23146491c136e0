/* prop_list.c: laws of a list of limiters: buckets and windows of random rates, takes, reservations and give-backs.
 *
 * 1. What begins is within every limiter: in the order of their beginnings, the calls that were not given back fit a
 *    bucket kept in exact arithmetic, and each window's calls its count.
 * 2. A refusal writes nothing, and waiting as told passes, while a nanosecond less does not.
 * 3. Calls that are all given back leave what was there before them: in whatever order, or, where they were reserved,
 *    the newest first.
 */
#include "shm/spw_admission.h"
#include "tests/prop/prop.h"
#include "tests/support/state_fixture.h"

#define S          SPW_TEST_S
#define CALLS_MAX  4000u
#define LIMITERS   3u
#define OPEN_COUNT 16u

__extension__ typedef __int128 wide;

struct begun {
    uint64_t at_ns, tokens;
};

struct life {
    struct spw_limiter *limiter[LIMITERS];
    struct spw_limiter_words *words[LIMITERS];
    bool window[LIMITERS];
    uint64_t count[LIMITERS], period_ns[LIMITERS], burst[LIMITERS], base_ns;
    uint64_t now_ns;
    struct spw_ticket open[OPEN_COUNT]; /* may be given back */
    uint32_t open_count;
    struct begun calls[CALLS_MAX];
    size_t calls_count;
};

static struct spw_state_fixture f;
static struct spw_account *account;

static void configure(struct prop *p, struct life *l)
{
    static const uint64_t periods[] = {S / 10, S, 7 * S, 60 * S};
    static uint64_t version = 1000;
    account->limiters_count = LIMITERS;
    l->now_ns = f.t0_ns + prop_below(p, 1000 * S);
    l->base_ns = l->now_ns + 1 + prop_below(p, S);
    for (uint32_t i = 0; i < LIMITERS; i++) {
        uint32_t record = i + 1 == LIMITERS ? 0 : 20 + i;
        account->limiters[i] = record;
        l->limiter[i] = spw_limiter_at(f.map, record);
        l->words[i] = spw_limiter_words_at(f.map, record);
        l->window[i] = prop_below(p, 3) == 0;
        l->period_ns[i] = periods[prop_below(p, 4)];
        l->count[i] = 1 + prop_scale(p, 300);
        l->burst[i] = l->window[i] ? l->count[i] : 1 + prop_scale(p, 50);
        memset(l->words[i], 0, sizeof *l->words[i]);
        bool ok = l->window[i]
                      ? spw_window_configure(l->limiter[i], l->words[i], l->count[i], l->period_ns[i],
                                             l->base_ns, 0, ++version, l->now_ns, true)
                      : spw_bucket_configure(l->limiter[i], l->words[i], l->count[i], l->period_ns[i],
                                             l->burst[i], 0, ++version, l->now_ns, true);
        PROP_CHECK(p, ok, "limiter %" PRIu32, i);
    }
}

static struct spw_admission admit(const struct life *l, uint32_t flags, uint64_t tokens, uint64_t max_wait,
                                  uint64_t now, struct spw_ticket *ticket)
{
    (void)l;
    return spw_admit(f.map, 0, account->record_generation, flags, tokens, max_wait, now, ticket);
}

static void keep(struct life *l, const struct spw_ticket *ticket)
{
    if (l->calls_count < CALLS_MAX)
        l->calls[l->calls_count++] = (struct begun){ticket->taken_ns, ticket->tokens};
}

static void check_refusal(struct prop *p, struct life *l, uint64_t tokens, const struct spw_admission *a)
{
    struct spw_ticket ticket;
    uint64_t levels[LIMITERS];
    for (uint32_t i = 0; i < LIMITERS; i++)
        levels[i] = l->words[i]->level;
    PROP_CHECK(p, a->wait_ns > 0, "a refusal of %" PRIu64 " without a wait", tokens);
    PROP_CHECK(p, admit(l, SPW_ACQUIRE_PEEK, tokens, 0, l->now_ns + a->wait_ns, &ticket).may_call,
               "waiting %" PRIu64 " does not pass", a->wait_ns);
    PROP_CHECK(p, !admit(l, SPW_ACQUIRE_PEEK, tokens, 0, l->now_ns + a->wait_ns - 1, &ticket).may_call,
               "waiting %" PRIu64 " is too long", a->wait_ns);
    PROP_CHECK(p, !admit(l, 0, tokens, 0, l->now_ns, &ticket).may_call, "%" PRIu64 " tokens pass after all",
               tokens);
    for (uint32_t i = 0; i < LIMITERS; i++)
        PROP_CHECK(p, levels[i] == l->words[i]->level, "a refusal changed limiter %" PRIu32, i);
}

static void take(struct prop *p, struct life *l)
{
    uint64_t tokens = 1 + (prop_below(p, 4) ? 0 : prop_scale(p, 8));
    uint64_t max_wait = prop_below(p, 3) ? 0 : prop_scale(p, 90 * S);
    struct spw_ticket ticket;
    struct spw_admission a = admit(l, 0, tokens, max_wait, l->now_ns, &ticket);
    if (a.verdict == SPW_DENY && max_wait == 0)
        check_refusal(p, l, tokens, &a);
    if (!a.may_call)
        return;
    PROP_CHECK(p, a.start_at_ns <= l->now_ns + max_wait, "starts %" PRIu64 " late", a.start_at_ns);
    if (l->open_count < OPEN_COUNT && (ticket.start_at_ns || prop_below(p, 2)))
        l->open[l->open_count++] = ticket;
    else if (ticket.start_at_ns)
        spw_abandon(f.map, &ticket, l->now_ns);
    else
        keep(l, &ticket);
}

/* A call that was allowed begins, or is given back: at once, or when its reservation's time has come. */
static void end_one(struct prop *p, struct life *l, uint32_t which)
{
    struct spw_ticket *ticket = &l->open[which];
    bool reserved = ticket->start_at_ns != 0, due = ticket->start_at_ns <= l->now_ns;
    if (due && prop_below(p, 2)) {
        if (!reserved || spw_confirm(f.map, ticket, l->now_ns).may_call)
            keep(l, ticket);
    } else if (reserved || ticket->taken_ns == l->now_ns) {
        spw_abandon(f.map, ticket, l->now_ns);
    } else {
        keep(l, ticket); /* what has begun is not given back */
    }
    *ticket = l->open[--l->open_count];
}

/* Time goes on, and stops at each start. */
static void go_on(struct prop *p, struct life *l, uint64_t to_ns)
{
    for (;;) {
        uint32_t next = l->open_count;
        for (uint32_t i = 0; i < l->open_count; i++) {
            uint64_t start = l->open[i].start_at_ns;
            if (start <= to_ns && (start || l->open[i].taken_ns < to_ns) &&
                (next == l->open_count || start < l->open[next].start_at_ns))
                next = i;
        }
        if (next == l->open_count)
            break;
        if (l->open[next].start_at_ns > l->now_ns)
            l->now_ns = l->open[next].start_at_ns;
        end_one(p, l, next);
    }
    l->now_ns = to_ns;
}

static int by_time(const void *a, const void *b)
{
    uint64_t x = ((const struct begun *)a)->at_ns, y = ((const struct begun *)b)->at_ns;
    return (x > y) - (x < y);
}

/* Law 1 for one limiter. The start of a reservation is rounded up to a whole nanosecond, the next one's need not be: a
 * nanosecond's earning may lie between. */
static void fits(struct prop *p, const struct life *l, uint32_t i)
{
    wide hand = (wide)l->burst[i] * (wide)l->period_ns[i], full = hand;
    uint64_t at = l->calls_count ? l->calls[0].at_ns : 0, window = 0;
    for (size_t k = 0; k < l->calls_count; k++) {
        const struct begun *c = &l->calls[k];
        if (l->window[i]) {
            uint64_t number = c->at_ns < l->base_ns ? 0 : (c->at_ns - l->base_ns) / l->period_ns[i] + 1;
            if (number != window)
                hand = full;
            window = number;
        } else {
            hand += (wide)(c->at_ns - at) * (wide)l->count[i];
            hand = hand < full ? hand : full;
        }
        at = c->at_ns;
        hand -= (wide)c->tokens * (wide)l->period_ns[i];
        PROP_CHECK(p, hand >= -(wide)l->count[i],
                   "call %zu of %" PRIu64 " tokens at %" PRIu64 " is above limiter %" PRIu32, k, c->tokens,
                   c->at_ns, i);
    }
}

static uint64_t level(const struct life *l, uint32_t i)
{
    struct spw_bucket_answer a =
        spw_bucket_take(l->limiter[i], l->words[i], l->now_ns, 1, false, SPW_RESERVE_MAX_NS, false);
    return a.available_units * 4 + a.wait_ns; /* together they say where it stands */
}

/* Law 3. */
static void nothing_happened(struct prop *p, struct life *l)
{
    struct spw_ticket ticket[8];
    uint64_t before[LIMITERS];
    for (uint32_t i = 0; i < LIMITERS; i++) {
        before[i] = level(l, i);
    }
    uint32_t count = 0;
    bool reserve = prop_below(p, 2) != 0;
    while (count < 8 &&
           admit(l, 0, 1 + prop_below(p, 3), reserve ? 90 * S : 0, l->now_ns, &ticket[count]).may_call)
        count++;
    while (count) {
        uint32_t which = reserve ? count - 1 : (uint32_t)prop_below(p, count);
        spw_abandon(f.map, &ticket[which], l->now_ns);
        ticket[which] = ticket[--count];
    }
    for (uint32_t i = 0; i < LIMITERS; i++) {
        uint64_t now = level(l, i), apart = now > before[i] ? now - before[i] : before[i] - now;
        /* A unit, which is less than a nanosecond's earning, may be lost to rounding. */
        PROP_CHECK(p, apart <= 4, "limiter %" PRIu32 " is not as before: %" PRIu64 ", %" PRIu64, i, now,
                   before[i]);
    }
}

static void one_life(struct prop *p, uint64_t steps)
{
    struct life *l = (struct life *)calloc(1, sizeof *l);
    if (!l)
        abort();
    configure(p, l);
    for (uint64_t i = 0; i < steps; i++) {
        uint64_t what = prop_below(p, 20);
        if (what < 8)
            go_on(p, l, l->now_ns + prop_scale(p, S));
        if (what == 19)
            nothing_happened(p, l);
        else if (what > 15 && l->open_count)
            end_one(p, l, (uint32_t)prop_below(p, l->open_count));
        else
            take(p, l);
    }
    go_on(p, l, l->now_ns + 100 * S);
    qsort(l->calls, l->calls_count, sizeof l->calls[0], by_time);
    for (uint32_t i = 0; i < LIMITERS; i++) {
        fits(p, l, i);
        PROP_CHECK(p, l->words[i]->healed_count == 0, "%" PRIu64 " words healed", l->words[i]->healed_count);
    }
    free(l);
}

int main(void)
{
    struct prop p = prop_start(300);
    spw_state_fixture_make(&f, "limit: {rate: 100/s, burst: 100, pods: 1}", NULL);
    account = spw_account_at(f.map, 0);
    for (uint64_t i = 0; i < p.rounds; i++)
        one_life(&p, 1000);
    account->limiters_count = 1;
    account->limiters[0] = 0;
    spw_state_fixture_remove(&f);
    return 0;
}
