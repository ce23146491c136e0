/* test_limiters.c: an account's list of limiters as configured: scopes, windows, reservations, switches, statements. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "shm/spw_ref.h"
#include "tests/support/state_fixture.h"

#define MS  UINT64_C(1000000)
#define S   SPW_TEST_S
#define MIN (60 * S)

static struct spw_state_fixture f;
static struct spw_ticket ticket;

static void make(const char *yaml)
{
    spw_state_fixture_make(&f, yaml, NULL);
}

static int tear_down(void **state)
{
    (void)state;
    spw_state_fixture_remove(&f);
    return 0;
}

static struct spw_ref ref_of(const char *integration, enum spw_endpoint endpoint)
{
    struct spw_ref ref;
    spw_ref_init(&ref, "main", integration);
    ref.endpoint = endpoint;
    assert_true(spw__ref_find(f.map, &ref));
    return ref;
}

static unsigned take(const char *integration, enum spw_endpoint endpoint, unsigned count, uint64_t now)
{
    struct spw_ref ref = ref_of(integration, endpoint);
    unsigned passed = 0;
    for (unsigned i = 0; i < count; i++)
        passed += spw_ref_admit(f.map, &ref, 1, 0, now, &ticket).may_call;
    return passed;
}

static struct spw_admission admit(uint64_t tokens, uint64_t max_wait_ns, uint64_t now)
{
    struct spw_ref ref = ref_of("web", SPW_ENDPOINT_CALCULATE);
    return spw_ref_admit(f.map, &ref, tokens, max_wait_ns, now, &ticket);
}

static struct spw_limit_view view(const char *limiter)
{
    struct spw_limit_view v;
    assert_int_equal(spw_state_limiter_get(f.state, "main", limiter, f.t0_ns, &v, NULL), SPW_STATUS_OK);
    return v;
}

/* WIN-H1: what the narrow limiter of one integration refuses costs the account nothing. */
static void refused_call_costs_the_account_nothing(void **state)
{
    (void)state;
    make("limit: {rate: 100/min, burst: 100, pods: 1}\n    batch_reserve: 0%\n"
         "    limiters: [{name: store-99, rate: 5/min, burst: 5, integrations: [nightly]}]");
    assert_int_equal(take("nightly", SPW_ENDPOINT_CALCULATE, 8, f.t0_ns), 5);
    assert_int_equal(take("web", SPW_ENDPOINT_CALCULATE, 96, f.t0_ns), 95);
    assert_int_equal(view("store-99").tokens_milli, 0);
}

/* Who is bound by what: kinds of calls, integrations, both, and a caller of no known integration. */
static void scopes(void **state)
{
    (void)state;
    make("limit: {rate: 0/s, burst: 1000, pods: 1}\n    batch_reserve: 0%\n    limiters:\n"
         "    - {name: calculations, rate: 0/s, burst: 10, endpoints: [calculate]}\n"
         "    - {name: books, rate: 0/s, burst: 20, endpoints: [record, other]}\n"
         "    - {name: nightly-books, rate: 0/s, burst: 3, endpoints: [record], integrations: [nightly]}");
    uint64_t t = f.t0_ns;
    assert_int_equal(take("web", SPW_ENDPOINT_CALCULATE, 50, t), 10);
    assert_int_equal(take("nightly", SPW_ENDPOINT_RECORD, 50, t), 3);
    assert_int_equal(take("nightly", SPW_ENDPOINT_OTHER, 5, t), 5);
    assert_int_equal(take("web", SPW_ENDPOINT_RECORD, 7, t), 7);
    assert_int_equal(take("nobody", SPW_ENDPOINT_RECORD, 5, t), 0); /* each that there is, to be safe */
    assert_int_equal(take("nobody", SPW_ENDPOINT_OTHER, 50, t), 5);
    assert_int_equal(view(NULL).tokens_milli, (1000 - 30) * 1000);
    struct spw_limit_view v = view("nightly-books");
    assert_string_equal(v.integrations, "nightly");
    assert_int_equal(v.endpoints, 1u << SPW_ENDPOINT_RECORD);
}

/* A fixed window: its count in each span, whole spans of UTC, nothing carried over, hints to the nanosecond. */
static void window(void **state)
{
    (void)state;
    make("limit: {rate: 100/min, pods: 1, kind: window}\n    batch_reserve: 0%");
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    uint64_t now = spw_now_ns(), into = ((uint64_t)wall.tv_sec * S + (uint64_t)wall.tv_nsec) % MIN;
    assert_int_equal(take("web", SPW_ENDPOINT_CALCULATE, 101, now), 100);
    struct spw_admission a = admit(1, 0, now);
    assert_int_equal(a.cause, SPW_CAUSE_BUCKET_EMPTY);
    uint64_t apart = a.wait_ns > MIN - into ? a.wait_ns - (MIN - into) : MIN - into - a.wait_ns;
    assert_true(apart < 50 * MS || apart > MIN - 50 * MS); /* the two clocks were not read at one instant */
    uint64_t boundary = now + a.wait_ns;
    assert_false(admit(1, 0, boundary - 1).may_call);
    assert_int_equal(take("web", SPW_ENDPOINT_CALCULATE, 70, boundary), 70);
    assert_int_equal(take("web", SPW_ENDPOINT_CALCULATE, 101, boundary + MIN - 1), 30);
    for (uint64_t k = 1; k <= 10; k++) /* ten minutes in which nobody called are lost */
        assert_true(admit(1, 0, boundary + k * MIN).may_call || k == 0);
    assert_int_equal(take("web", SPW_ENDPOINT_CALCULATE, 101, boundary + 525600 * MIN), 100);
    assert_int_equal(admit(101, 0, boundary).verdict, SPW_NEVER);
}

/* A reservation takes from the window in which the call begins, and from that one alone. */
static void window_reservations(void **state)
{
    (void)state;
    make("limit: {rate: 5/min, pods: 1, kind: window}\n    batch_reserve: 0%");
    uint64_t t = f.t0_ns;
    assert_int_equal(take("web", SPW_ENDPOINT_CALCULATE, 3, t), 3);
    struct spw_admission a = admit(4, 10 * MIN, t); /* two are left now: too few */
    assert_int_equal(a.verdict, SPW_ALLOW);
    uint64_t boundary = a.start_at_ns;
    struct spw_ticket four = ticket;
    assert_false(admit(1, 0, boundary - 1).may_call); /* nobody overtakes */
    assert_int_equal(take("web", SPW_ENDPOINT_CALCULATE, 5, boundary), 1);
    a = admit(1, 10 * MIN, boundary);
    assert_true(a.start_at_ns == boundary + MIN);
    spw_abandon(f.map, &ticket, boundary);
    spw_abandon(f.map, &four, boundary);
    assert_int_equal(take("web", SPW_ENDPOINT_CALCULATE, 9, boundary), 4);
    assert_int_equal(take("web", SPW_ENDPOINT_CALCULATE, 1, boundary + 5 * MIN), 1);
    struct spw_ticket one = ticket;
    a = admit(5, 10 * MIN, boundary + 5 * MIN);
    assert_true(a.start_at_ns == boundary + 6 * MIN);
    struct spw_ticket five = ticket;
    spw_abandon(f.map, &one, boundary + 5 * MIN); /* the later window is full all the same */
    assert_int_equal(take("web", SPW_ENDPOINT_CALCULATE, 9, boundary + 6 * MIN), 0);
    spw_abandon(f.map, &five, boundary + 6 * MIN);
    assert_int_equal(take("web", SPW_ENDPOINT_CALCULATE, 9, boundary + 6 * MIN), 5);
    boundary += 6 * MIN;
    spw_abandon(f.map, &four, boundary + MIN); /* once only, and never into another window */
    assert_int_equal(take("web", SPW_ENDPOINT_CALCULATE, 9, boundary + MIN), 5);
    struct spw_ticket late = ticket;
    spw_abandon(f.map, &late, boundary + 2 * MIN);
    assert_int_equal(take("web", SPW_ENDPOINT_CALCULATE, 9, boundary + 2 * MIN), 5);
}

/* To a client of layout 1.0 a window is a bucket of rate and burst zero whose level is sound: it never passes. */
static void window_as_an_old_client_sees_it(void **state)
{
    (void)state;
    make("limit: {rate: 1000/d, pods: 1, kind: window}");
    const struct spw_limiter *limiter = spw_limiter_at(f.map, 0);
    const struct spw_limiter_conf *c = &limiter->conf[limiter->current];
    assert_int_equal(c->units_den, 1);
    struct spw_gcra old = {.units_num = c->units_num,
                           .units_den = 1,
                           .units_per_token = c->units_per_token,
                           .burst_units = c->burst_units,
                           .e0_units = c->e0_units,
                           .base_ns = c->base_ns};
    uint64_t next, wait_ns;
    for (uint64_t day = 0; day < 3660; day += 366) {
        uint64_t now = f.t0_ns + day * 86400 * S;
        assert_true(admit(1, 0, now).may_call);
        uint64_t level = spw_bucket_level(spw_limiter_words_at(f.map, 0)->level);
        assert_true(spw_bucket_level_ok(&old, level, now));
        assert_int_equal(spw_gcra_take(&old, level, now, 1, 0, SPW_RESERVE_MAX_NS, &next, &wait_ns),
                         SPW_GCRA_NEVER);
    }
}

/* A leaky bucket holds one call for each pod; with waiting its calls begin evenly spread. */
static void leaky(void **state)
{
    (void)state;
    make("limit: {rate: 40/s, pods: 4, kind: leaky}");
    uint64_t t = f.t0_ns;
    for (uint64_t i = 0; i < 20; i++) {
        struct spw_admission a = admit(1, 10 * S, t);
        assert_int_equal(a.verdict, SPW_ALLOW);
        assert_int_equal(a.start_at_ns ? a.start_at_ns - t : 0, i * 100 * MS);
    }
    assert_int_equal(admit(2, 10 * S, t).verdict, SPW_NEVER);
}

/* Each limiter is the whole account's and is shared by the pods, a window by its count. */
static void shared_by_pods(void **state)
{
    (void)state;
    make("limit: {rate: 100/s, burst: 100, pods: 10}\n    batch_reserve: 0%\n    limiters:\n"
         "    - {name: a, rate: 50/s, burst: 30}\n    - {name: b, rate: 1000/min, kind: window}");
    struct spw_limit_view a = view("a"), b = view("b");
    assert_int_equal(a.pod_rate.tokens_count * S / a.pod_rate.period_ns, 5);
    assert_int_equal(a.pod_burst_count, 3);
    assert_int_equal(b.pod_rate.tokens_count, 100);
    assert_true(b.pod_rate.period_ns == MIN);
    assert_int_equal(take("web", SPW_ENDPOINT_CALCULATE, 50, f.t0_ns), 3);
}

/* The hint of a refusal is the time at which all limiters have the tokens, not the first one's. */
static void hint_is_the_longest(void **state)
{
    (void)state;
    make("limit: {rate: 1/s, burst: 4, pods: 1}\n    batch_reserve: 0%\n    limiters:\n"
         "    - {name: fast, rate: 10/s, burst: 2}\n    - {name: slow, rate: 1/min, burst: 2}");
    uint64_t t = f.t0_ns;
    assert_true(admit(2, 0, t).may_call);
    struct spw_admission a = admit(1, 0, t);
    assert_int_equal(a.wait_ns, MIN);
    assert_false(admit(1, 0, t + a.wait_ns - 1).may_call);
    assert_true(admit(1, 0, t + a.wait_ns).may_call);
    a = admit(3, 0, t);
    assert_int_equal(a.verdict, SPW_NEVER);
    assert_true(a.wait_ns == SPW_FOREVER_NS);
}

/* A reservation spends the tokens of the limiter that has them last; those of the others are taken when the call begins,
 * so that nobody else waits for them, and are not spent for a call that begins later. */
static void reserved_with_the_latest(void **state)
{
    (void)state;
    make("limit: {rate: 1/s, burst: 3, pods: 1}\n    limiters:\n"
         "    - {name: narrow, rate: 2/min, burst: 2, integrations: [web]}");
    uint64_t t = f.t0_ns;
    assert_true(admit(2, 0, t).may_call);
    struct spw_admission a = admit(1, 40 * S, t);
    assert_true(a.start_at_ns == t + 30 * S);
    struct spw_ticket first = ticket;
    a = admit(1, 70 * S, t);
    assert_true(a.start_at_ns == t + 60 * S);
    struct spw_ticket second = ticket;
    assert_int_equal(take("nightly", SPW_ENDPOINT_CALCULATE, 5, t),
                     1); /* the account's last token is not held back */
    assert_int_equal(take("nightly", SPW_ENDPOINT_CALCULATE, 5, t + 29 * S), 3);
    assert_true(spw_confirm(f.map, &first, t + 30 * S).may_call);
    assert_int_equal(take("nightly", SPW_ENDPOINT_CALCULATE, 5, t + 60 * S), 3);
    a = spw_confirm(f.map, &second, t + 60 * S); /* the account has none now */
    assert_int_equal(a.cause, SPW_CAUSE_BUCKET_EMPTY);
    assert_int_equal(a.wait_ns, S);
    assert_true(admit(1, 0, t + 61 * S).may_call); /* what was reserved has gone back */
    /* One that cannot begin in time takes nothing anywhere. */
    uint64_t before[2] = {spw_limiter_words_at(f.map, 0)->level, spw_limiter_words_at(f.map, 16)->level};
    a = admit(1, 28 * S, t + 61 * S);
    assert_int_equal(a.verdict, SPW_DENY);
    assert_int_equal(a.wait_ns, 29 * S);
    assert_true(before[0] == spw_limiter_words_at(f.map, 0)->level);
    assert_true(before[1] == spw_limiter_words_at(f.map, 16)->level);
}

static void outcome(enum spw_outcome result, uint64_t shut_until_ns, uint64_t now)
{
    struct spw_call_end end = {.outcome = result,
                               .gate_shut = shut_until_ns != 0,
                               .gate_source = SPW_GATE_RETRY_AFTER,
                               .gate_until_ns = shut_until_ns,
                               .gate_open = result == SPW_OUTCOME_OK};
    (void)spw_settle(f.map, &ticket, now, &end);
}

/* Gate and breaker are looked at again when a reservation begins; a refusal there has given everything back. */
static void confirmed_at_its_start(void **state)
{
    (void)state;
    make("limit: {rate: 1/s, burst: 1, pods: 1}\n    concurrency: 2\n    breaker: {consecutive_429: 1, "
         "cooldown: 5s..5s}\n"
         "    limiters: [{name: narrow, rate: 1/s, burst: 1}]");
    uint64_t t = f.t0_ns;
    assert_true(admit(1, 0, t).may_call);
    struct spw_ticket first = ticket;
    assert_true(admit(1, 2 * S, t).start_at_ns == t + S);
    struct spw_ticket second = ticket;
    struct spw_admission a = spw_confirm(f.map, &second, t + S - 1);
    assert_int_equal(a.verdict, SPW_DENY);
    assert_int_equal(a.wait_ns, 1);
    assert_true(spw_confirm(f.map, &second, t + S).may_call);
    ticket = second;
    outcome(SPW_OUTCOME_OK, 0, t + S);
    assert_true(admit(1, 2 * S, t + S).start_at_ns == t + 2 * S);
    second = ticket;
    ticket = first;
    outcome(SPW_OUTCOME_OK, t + 10 * S, t + S + 1); /* told to pause meanwhile */
    a = spw_confirm(f.map, &second, t + 2 * S);
    assert_int_equal(a.cause, SPW_CAUSE_GATE_SHUT);
    assert_int_equal(spw_permit_free_count(f.map, 0, 2, t + 2 * S), 2);
    assert_int_equal(view("narrow").tokens_milli, view(NULL).tokens_milli);
    t += MS; /* the gate counts whole milliseconds */
    assert_true(admit(1, 0, t + 10 * S).may_call);
    first = ticket;
    assert_true(admit(1, 2 * S, t + 10 * S).start_at_ns == t + 11 * S);
    second = ticket;
    ticket = first;
    outcome(SPW_OUTCOME_THROTTLED, 0, t + 10 * S);
    a = spw_confirm(f.map, &second, t + 11 * S);
    assert_int_equal(a.cause, SPW_CAUSE_BREAKER_OPEN);
    assert_int_equal(spw_permit_free_count(f.map, 0, 2, t + 11 * S), 2);
    /* A probe that is given up, or says nothing, is the next caller's. */
    assert_true(admit(1, 0, t + 16 * S).may_call && ticket.probe);
    spw_abandon(f.map, &ticket, t + 16 * S);
    assert_true(admit(1, 0, t + 16 * S).may_call && ticket.probe);
    outcome(SPW_OUTCOME_NEUTRAL, 0, t + 16 * S);
}

/* The probe of an open breaker may be a reservation: nobody else is, and at its start it still is. */
static void reserved_probe(void **state)
{
    (void)state;
    make("limit: {rate: 1/s, burst: 1, pods: 1}\n    breaker: {consecutive_429: 1, cooldown: 5s..5s}");
    uint64_t t = f.t0_ns;
    assert_true(admit(1, 0, t).may_call);
    outcome(SPW_OUTCOME_THROTTLED, 0, t);
    assert_true(admit(1, 0, t + 6 * S).may_call);
    spw_abandon(f.map, &ticket, t + 6 * S);
    struct spw_bucket_answer drain = spw_bucket_take(spw_limiter_at(f.map, 0), spw_limiter_words_at(f.map, 0),
                                                     t + 6 * S, 1, false, 0, true);
    assert_int_equal(drain.result, SPW_BUCKET_TAKEN);
    struct spw_admission a = admit(1, 2 * S, t + 6 * S);
    assert_true(a.may_call && ticket.probe && a.start_at_ns == t + 7 * S);
    struct spw_ticket probe = ticket;
    assert_int_equal(admit(1, 2 * S, t + 6 * S).cause, SPW_CAUSE_BREAKER_OPEN);
    assert_true(spw_confirm(f.map, &probe, t + 7 * S).may_call);
    assert_true(probe.probe);
    ticket = probe;
    outcome(SPW_OUTCOME_OK, 0, t + 7 * S);
    assert_true(admit(1, 0, t + 8 * S).may_call);
    assert_false(ticket.probe);
}

/* CON-H1: waiters that give up leave no permit and no token behind. */
static void waiters_give_up(void **state)
{
    (void)state;
    make("limit: {rate: 100/s, burst: 8, pods: 1}\n    concurrency: 16");
    uint64_t now = f.t0_ns;
    struct spw_ticket held[16];
    for (int round = 0; round < 1000; round++, now += S) {
        for (int i = 0; i < 16; i++) {
            struct spw_admission a = admit(1, S, now);
            assert_true(a.may_call);
            assert_int_equal(a.start_at_ns ? a.start_at_ns - now : 0,
                             i < 8 ? 0 : (uint64_t)(i - 7) * 10 * MS);
            held[i] = ticket;
        }
        assert_int_equal(admit(1, S, now).cause, SPW_CAUSE_CONCURRENCY);
        for (int i = 15; i >= 8; i--)
            spw_abandon(f.map, &held[i], now + 5 * MS);
        struct spw_admission a = admit(1, S, now + 5 * MS);
        assert_true(a.start_at_ns == now + 10 * MS); /* as if they had never waited */
        spw_abandon(f.map, &ticket, now + 5 * MS);
        for (int i = 0; i < 8; i++) {
            ticket = held[i];
            outcome(SPW_OUTCOME_OK, 0, now + 5 * MS);
        }
        assert_int_equal(spw_permit_free_count(f.map, 0, 16, now + 5 * MS), 16);
    }
}

/* One process may hold its share of the permits; the rest is for the others. */
static void share_of_a_process(void **state)
{
    (void)state;
    make("limit: {rate: 1000/s, burst: 1000, pods: 1}\n    concurrency: 8\n    concurrency_per_process: 3");
    assert_int_equal(take("web", SPW_ENDPOINT_CALCULATE, 10, f.t0_ns), 3);
    struct spw_admission a = admit(1, 0, f.t0_ns);
    assert_int_equal(a.cause, SPW_CAUSE_CONCURRENCY);
    assert_int_equal(spw_permit_free_count(f.map, 0, 8, f.t0_ns), 5);
    struct spw_map other = *f.map;
    other.self.slot = f.map->self.slot + 7;
    struct spw_ref ref = ref_of("web", SPW_ENDPOINT_CALCULATE);
    unsigned passed = 0;
    for (int i = 0; i < 10; i++)
        passed += spw_ref_admit(&other, &ref, 1, 0, f.t0_ns, &ticket).may_call;
    assert_int_equal(passed, 3);
    assert_true(admit(1, 0, f.t0_ns + a.wait_ns).may_call); /* those have expired */
}

/* Kill and observe, from the file and at run time, of one limiter, of the account and of all. */
static void switches(void **state)
{
    static const struct {
        const char *account, *limiter;
    } level[] = {{"main", "narrow"}, {"main", NULL}, {NULL, NULL}};
    (void)state;
    make("limit: {rate: 0/s, burst: 1000, pods: 1}\n    batch_reserve: 0%\n    limiters:\n"
         "    - {name: narrow, rate: 0/s, burst: 2}\n    - {name: dark, rate: 0/s, burst: 1, mode: observe}\n"
         "    - {name: none, rate: 0/s, burst: 0, mode: off}");
    uint64_t t = f.t0_ns;
    assert_int_equal(take("web", SPW_ENDPOINT_CALCULATE, 10, t), 2);
    assert_true(admit(1, 0, t).observed == true);
    for (unsigned i = 0; i < 3; i++) {
        struct spw_switch_change on = {.kill = 1, .observe = -1}, off = {.kill = 0, .observe = -1};
        struct spw_switch_change dark = {.kill = -1, .observe = 1}, light = {.kill = -1, .observe = 0};
        uint64_t version = view(NULL).version, left = view(NULL).tokens_milli;
        assert_int_equal(spw_state_switches_set(f.state, level[i].account, level[i].limiter, &on, NULL),
                         SPW_STATUS_OK);
        assert_int_equal(take("web", SPW_ENDPOINT_CALCULATE, 10, t), 10);
        assert_true(view("narrow").switches & SPW_SWITCH_KILL);
        assert_int_equal(view(NULL).tokens_milli, i == 0 ? left - 10000 : left);
        assert_int_equal(spw_state_switches_set(f.state, level[i].account, level[i].limiter, &off, NULL),
                         SPW_STATUS_OK);
        assert_int_equal(take("web", SPW_ENDPOINT_CALCULATE, 10, t), 0);
        assert_int_equal(spw_state_switches_set(f.state, level[i].account, level[i].limiter, &dark, NULL),
                         SPW_STATUS_OK);
        assert_int_equal(take("web", SPW_ENDPOINT_CALCULATE, 10, t), 10);
        assert_int_equal(spw_state_switches_set(f.state, level[i].account, level[i].limiter, &light, NULL),
                         SPW_STATUS_OK);
        assert_int_equal(take("web", SPW_ENDPOINT_CALCULATE, 10, t), 0);
        assert_true(!level[i].account || view(NULL).version == version + 4);
    }
    struct spw_switch_change on = {.kill = 1, .observe = -1};
    struct spw_error err;
    assert_int_equal(spw_state_switches_set(f.state, "main", "nothing", &on, &err), SPW_STATUS_NOT_FOUND);
    assert_int_equal(spw_state_switches_set(f.state, "nobody", NULL, &on, &err), SPW_STATUS_NOT_FOUND);
    /* All of them last until the next start. */
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(spw_state_switches_set(f.state, level[i].account, level[i].limiter, &on, NULL),
                         SPW_STATUS_OK);
    spw_state_fixture_close(&f, false);
    spw_state_fixture_open(&f);
    assert_string_equal(spw_state_origin(f.state), "adopted");
    assert_int_equal(view("narrow").switches, 0);
    assert_int_equal(view("dark").switches, SPW_SWITCH_OBSERVE);
}

/* A caller that has remembered its account obeys each change at its very next decision. */
static void remembered(void **state)
{
    struct spw_breaker_change open = {.forced = SPW_FORCED_OPEN}, not_forced = {.forced = SPW_FORCED_NOT};
    struct spw_switch_change on = {.kill = 1, .observe = -1}, off = {.kill = 0, .observe = -1};
    struct spw_breaker_view breaker;
    (void)state;
    make("limit: {rate: 1/h, burst: 100, pods: 1}\n    batch_reserve: 0%");
    struct spw_ref ref = ref_of("web", SPW_ENDPOINT_CALCULATE);
    uint64_t t = f.t0_ns;
    for (unsigned round = 0; round < 3; round++) {
        assert_true(spw_ref_admit(f.map, &ref, 1, 0, t, &ticket).may_call);
        assert_true(ref.bucket.map == f.map && ticket.charged);
        assert_int_equal(spw_state_switches_set(f.state, round ? "main" : NULL, NULL, &on, NULL),
                         SPW_STATUS_OK);
        assert_true(spw_ref_admit(f.map, &ref, 1, 0, t, &ticket).may_call && !ticket.charged);
        assert_int_equal(spw_state_switches_set(f.state, round ? "main" : NULL, NULL, &off, NULL),
                         SPW_STATUS_OK);
        assert_true(spw_ref_admit(f.map, &ref, 1, 0, t, &ticket).may_call && ticket.charged);
        assert_int_equal(spw_state_breaker_set(f.state, "main", &open, 0, false, t, &breaker, NULL),
                         SPW_STATUS_OK);
        assert_int_equal(spw_ref_admit(f.map, &ref, 1, 0, t, &ticket).cause, SPW_CAUSE_BREAKER_FORCED);
        assert_int_equal(spw_state_breaker_set(f.state, "main", &not_forced, 0, false, t, &breaker, NULL),
                         SPW_STATUS_OK);
        assert_true(spw_ref_admit(f.map, &ref, 1, 0, t, &ticket).may_call);
        assert_int_equal(spw_state_concurrency_set(f.state, "main", 8, false, NULL), SPW_STATUS_OK);
        assert_true(spw_ref_admit(f.map, &ref, 1, 0, t, &ticket).may_call && ticket.has_permit);
        assert_int_equal(spw_state_concurrency_set(f.state, "main", 0, false, NULL), SPW_STATUS_OK);
        assert_true(spw_ref_admit(f.map, &ref, 1, 0, t, &ticket).may_call && !ticket.has_permit);
        uint64_t version = spw_state_fixture_set(&f, round + 1, MIN, 90 - round, t);
        assert_int_equal(spw_ref_admit(f.map, &ref, 1, 0, t, &ticket).version, version);
    }
}

static void told(uint64_t limit)
{
    struct spw_evidence e = {.known = SPW_EVIDENCE_LIMIT, .limit_count = limit, .observed_ns = f.t0_ns};
    spw_state_evidence_set(f.state, 0, &e);
}

/* A stated limit is shown; adopted only where the file says so, only downward, after three equal statements. */
static void stated_limit(void **state)
{
    (void)state;
    make("limit: {rate: 100/s, burst: 200, pods: 2, adopt_lower: true}");
    told(100);
    assert_false(view(NULL).observed_limit_differs);
    told(200);
    assert_false(view(NULL).observed_limit_differs);
    for (int i = 0; i < 5; i++)
        told(150);
    assert_true(view(NULL).observed_limit_differs);
    assert_false(view(NULL).observed_limit_adopted);
    told(50);
    told(50);
    told(49);
    told(50);
    told(50);
    assert_int_equal(view(NULL).pod_rate.tokens_count, 100);
    told(50);
    struct spw_limit_view v = view(NULL);
    assert_true(v.observed_limit_adopted);
    assert_int_equal(v.pod_rate.tokens_count, 50);
    assert_int_equal(v.pod_burst_count, 25);
    assert_int_equal(v.limit.rate.tokens_count, 100); /* as set */
    for (int i = 0; i < 5; i++)
        told(80); /* higher than what is obeyed: no */
    assert_int_equal(view(NULL).pod_rate.tokens_count, 50);
    for (int i = 0; i < 3; i++)
        told(0); /* nothing is stated by that */
    for (int i = 0; i < 3; i++)
        told(40);
    assert_int_equal(view(NULL).pod_rate.tokens_count, 40);
    struct spw_conf_limit set = view(NULL).limit;
    assert_int_equal(spw_state_limit_set(f.state, "main", &set, 0, false, f.t0_ns, &v, NULL), SPW_STATUS_OK);
    assert_int_equal(v.pod_rate.tokens_count, 100);
    assert_false(v.observed_limit_adopted || v.observed_limit_differs);
}

static void stated_limit_is_only_shown(void **state)
{
    (void)state;
    make("limit: {rate: 100/s, burst: 200, pods: 2}");
    for (int i = 0; i < 10; i++)
        told(50);
    assert_true(view(NULL).observed_limit_differs);
    assert_false(view(NULL).observed_limit_adopted);
    assert_int_equal(view(NULL).pod_rate.tokens_count, 100);
}

/* CFG-H1: the same file leaves a window's count, a bucket and a breaker as they are; a change of rate keeps what is in
 * hand; other limiters make a new segment, and those that stay keep their state. */
static void reload(void **state)
{
    (void)state;
    const char *yaml =
        "limit: {rate: 1000/d, burst: 100, pods: 1}\n    batch_reserve: 0%\n"
        "    limiters: [{name: daily, rate: 50/d, kind: window}, {name: x, rate: 1/d, burst: 90}]";
    make(yaml);
    uint64_t now = spw_now_ns();
    assert_int_equal(take("web", SPW_ENDPOINT_CALCULATE, 60, now), 50);
    for (int i = 0; i < 10; i++) {
        spw_state_fixture_close(&f, i & 1);
        spw_state_fixture_configure(
            &f, yaml, i < 5 ? NULL : "segment: {slots: 64, cells: 64, rate_records: 1024}\ndrain: 3s");
        spw_state_fixture_open(&f);
        assert_string_equal(spw_state_origin(f.state), "adopted");
        assert_int_equal(take("web", SPW_ENDPOINT_CALCULATE, 60, now), 0);
        assert_int_equal(view("x").tokens_milli, 40000);
    }
    spw_state_fixture_close(&f, true);
    spw_state_fixture_configure(
        &f,
        "limit: {rate: 1000/d, burst: 100, pods: 1}\n    batch_reserve: 0%\n    limiters:\n"
        "    - {name: daily, rate: 60/d, kind: window}\n    - {name: y, rate: 1/d, burst: 90}",
        NULL);
    spw_state_fixture_open(&f);
    assert_true(strncmp(spw_state_origin(f.state), "replaced", 8) == 0);
    assert_int_equal(view("daily").tokens_milli, 0);
    assert_in_range(view(NULL).tokens_milli, 50000, 51000);
    assert_int_equal(view("y").tokens_milli, 0); /* nothing is known of it: empty, never full */
    assert_int_equal(spw_state_limiter_get(f.state, "main", "x", now, &(struct spw_limit_view){0}, NULL),
                     SPW_STATUS_NOT_FOUND);
}

/* A limiter is set at run time as the account's own is. */
static void set_one(void **state)
{
    (void)state;
    make("limit: {rate: 100/s, burst: 100, pods: 1}\n    batch_reserve: 0%\n"
         "    limiters: [{name: narrow, rate: 10/s, burst: 10}, {name: daily, rate: 1000/d, kind: window}]");
    struct spw_limit_view v = view("narrow");
    struct spw_conf_limit limit = v.limit;
    limit.burst_count = 4;
    assert_int_equal(
        spw_state_limiter_set(f.state, "main", "narrow", &limit, v.version + 1, false, f.t0_ns, &v, NULL),
        SPW_STATUS_CONFLICT);
    assert_int_equal(spw_state_limiter_set(f.state, "main", "narrow", &limit, 0, true, f.t0_ns, &v, NULL),
                     SPW_STATUS_OK);
    assert_int_equal(v.pod_burst_count, 4);
    assert_int_equal(view("narrow").pod_burst_count, 10);
    assert_int_equal(spw_state_limiter_set(f.state, "main", "narrow", &limit, 0, false, f.t0_ns, &v, NULL),
                     SPW_STATUS_OK);
    assert_int_equal(take("web", SPW_ENDPOINT_CALCULATE, 10, f.t0_ns), 4);
    limit = view("daily").limit;
    limit.rate.tokens_count = 6;
    assert_int_equal(spw_state_limiter_set(f.state, "main", "daily", &limit, 0, false, f.t0_ns, &v, NULL),
                     SPW_STATUS_OK);
    assert_int_equal(v.limit.burst_count, 6);
    assert_int_equal(take("web", SPW_ENDPOINT_CALCULATE, 10, f.t0_ns + S), 4);
    assert_int_equal(take("web", SPW_ENDPOINT_CALCULATE, 10, f.t0_ns + 2 * S), 2);
    uint32_t places = 0;
    while (spw_state_limiter_at(f.state, 0, places, f.t0_ns, &v) == SPW_STATUS_OK)
        assert_string_equal(v.limiter, ((const char *[]){"account", "daily", "narrow"})[places++]);
    assert_int_equal(places, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(refused_call_costs_the_account_nothing, tear_down),
        cmocka_unit_test_teardown(scopes, tear_down),
        cmocka_unit_test_teardown(window, tear_down),
        cmocka_unit_test_teardown(window_reservations, tear_down),
        cmocka_unit_test_teardown(window_as_an_old_client_sees_it, tear_down),
        cmocka_unit_test_teardown(leaky, tear_down),
        cmocka_unit_test_teardown(shared_by_pods, tear_down),
        cmocka_unit_test_teardown(hint_is_the_longest, tear_down),
        cmocka_unit_test_teardown(reserved_with_the_latest, tear_down),
        cmocka_unit_test_teardown(confirmed_at_its_start, tear_down),
        cmocka_unit_test_teardown(reserved_probe, tear_down),
        cmocka_unit_test_teardown(waiters_give_up, tear_down),
        cmocka_unit_test_teardown(share_of_a_process, tear_down),
        cmocka_unit_test_teardown(switches, tear_down),
        cmocka_unit_test_teardown(remembered, tear_down),
        cmocka_unit_test_teardown(stated_limit, tear_down),
        cmocka_unit_test_teardown(stated_limit_is_only_shown, tear_down),
        cmocka_unit_test_teardown(reload, tear_down),
        cmocka_unit_test_teardown(set_one, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
