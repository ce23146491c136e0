/* test_client.c: the client header against a real segment: before the sidecar, with it, after it, through restarts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "shm/spw_client.h"
#include "tests/support/state_fixture.h"

#define MS UINT64_C(1000000)
#define S  SPW_TEST_S

static struct spw_state_fixture f;
static struct spw_client client;
static struct spw_ref ref;
static struct spw_ticket ticket;
static struct spw_quote_reply reply;

#define ACCOUNT "limit: {rate: 10/s, burst: 20, pods: 1}\n    concurrency: 8"

static int set_up(void **state)
{
    (void)state;
    spw_state_fixture_make(&f, ACCOUNT, NULL);
    spw_state_fixture_rates(&f);
    spw_ref_init(&ref, "main", "web");
    memset(&reply, 0, sizeof reply);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    spw_detach(&client);
    spw_state_fixture_remove(&f);
    return 0;
}

static enum spw_status attach(enum spw_unattached on_unattached)
{
    struct spw_attach_options options = {f.pub_dir, f.rw_dir, on_unattached, 0, 0};
    return spw_attach(&client, &options);
}

static struct spw_admission acquire(void)
{
    return spw_acquire(&client, &ref, 1, 0, &ticket);
}

static void pause_ms(unsigned ms)
{
    struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};
    nanosleep(&t, NULL);
}

/* A limit that no test here reaches: what is in hand is kept, so a moment is waited for more. */
static void plenty(void)
{
    spw_state_fixture_set(&f, 1000000, S, 1000000, spw_now_ns());
    pause_ms(2);
}

/* The segment's files, out of the way and back: the state that owns them goes on. */
static void hide(bool hidden)
{
    static const char *const hide_as[2] = {"hidden", SPW_PUB_NAME};
    const char *dirs[2] = {f.rw_dir, f.pub_dir};
    for (int i = 0; i < 2; i++) {
        char from[128], to[128];
        snprintf(from, sizeof from, "%s/%s", dirs[i], hide_as[!!hidden]);
        snprintf(to, sizeof to, "%s/%s", dirs[i], hide_as[!hidden]);
        assert_int_equal(rename(from, to), 0);
    }
}

/* K8S-H1: the application starts first: not attached, at once; then by itself a normal decision. */
static void application_starts_first(void **state)
{
    (void)state;
    hide(true);
    assert_int_equal(attach(SPW_UNATTACHED_DENY), SPW_STATUS_NO_SEGMENT);
    for (int i = 0; i < 3; i++) {
        struct spw_admission a = acquire();
        assert_int_equal(a.verdict, SPW_NOT_ATTACHED);
        assert_int_equal(a.cause, SPW_CAUSE_NOT_ATTACHED);
        assert_false(a.may_call);
        pause_ms(60);
    }
    hide(false);
    pause_ms(110);
    assert_int_equal(acquire().verdict, SPW_ALLOW);
    assert_true(client.map->self.lock_fd >= 0);
}

/* What is let through without a segment is the caller's choice, and never says ALLOW. */
static void unattached_options(void **state)
{
    (void)state;
    hide(true);
    (void)attach(SPW_UNATTACHED_ALLOW);
    for (int i = 0; i < 50; i++) {
        struct spw_admission a = acquire();
        assert_int_equal(a.verdict, SPW_NOT_ATTACHED);
        assert_true(a.may_call);
    }
    spw_detach(&client);
    struct spw_attach_options bounded = {f.pub_dir, f.rw_dir, SPW_UNATTACHED_BOUNDED, 7, 0};
    uint64_t begun = spw_now_ns();
    (void)spw_attach(&client, &bounded);
    uint64_t passed = 0;
    for (int i = 0; i < 2000; i++) {
        struct spw_admission a = acquire();
        assert_int_equal(a.verdict, SPW_NOT_ATTACHED);
        passed += a.may_call;
    }
    assert_in_range(passed, 7, 7 + 7 * (spw_now_ns() - begun) / S + 1);
    spw_report(&client, &ticket, 429, 10); /* a ticket of no segment: nothing to tell */
    hide(false);
}

/* The limit holds over processes and threads because it is one word; here: over two clients of one process. */
static void two_clients_share(void **state)
{
    struct spw_client other;
    struct spw_attach_options options = {f.pub_dir, f.rw_dir, SPW_UNATTACHED_DENY, 0, 0};
    struct spw_ref other_ref;
    (void)state;
    assert_int_equal(attach(SPW_UNATTACHED_DENY), SPW_STATUS_OK);
    assert_int_equal(spw_attach(&other, &options), SPW_STATUS_OK);
    assert_int_not_equal(client.map->self.slot, other.map->self.slot);
    spw_ref_init(&other_ref, "main", "web");
    uint64_t begun = f.t0_ns, passed = 0;
    for (int i = 0; i < 100; i++) {
        struct spw_ticket t2;
        if (acquire().may_call) {
            passed++;
            spw_report(&client, &ticket, 200, -1);
        }
        if (spw_acquire(&other, &other_ref, 1, 0, &t2).may_call) {
            passed++;
            spw_report(&other, &t2, 200, -1);
        }
    }
    assert_in_range(passed, 20, 20 + (spw_now_ns() - begun) / (100 * MS) + 1);
    spw_detach(&other);
}

/* A ref outlives its client's mapping: after a detach it is looked up again. */
static void ref_after_a_detach(void **state)
{
    (void)state;
    assert_int_equal(attach(SPW_UNATTACHED_DENY), SPW_STATUS_OK);
    for (int i = 0; i < 3; i++) {
        assert_true(acquire().may_call);
        spw_report(&client, &ticket, 200, -1);
        struct spw_map *was = client.map;
        uint8_t *pub = was->pub;
        spw_detach(&client);
        void *in_the_way =
            mmap(pub, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        assert_int_equal(attach(SPW_UNATTACHED_DENY), SPW_STATUS_OK);
        if (in_the_way != MAP_FAILED)
            assert_ptr_not_equal(client.map->pub, pub);
        assert_true(acquire().may_call);
        spw_report(&client, &ticket, 200, -1);
        if (in_the_way != MAP_FAILED)
            munmap(in_the_way, 4096);
    }
}

/* An account that is not there, and one that was removed under a ref. */
static void unknown_account(void **state)
{
    struct spw_ref nobody;
    (void)state;
    assert_int_equal(attach(SPW_UNATTACHED_ALLOW), SPW_STATUS_OK);
    spw_ref_init(&nobody, "nobody", "web");
    struct spw_admission a = spw_acquire(&client, &nobody, 1, 0, &ticket);
    assert_int_equal(a.verdict, SPW_BAD_HANDLE);
    assert_false(a.may_call);
    assert_true(acquire().may_call);
    spw_report(&client, &ticket, 200, -1);
    spw_account_at(f.map, 0)->state = SPW_RECORD_REMOVED;
    spw_changed(f.map);
    assert_int_equal(acquire().verdict, SPW_BAD_HANDLE);
    assert_int_equal(acquire().verdict, SPW_BAD_HANDLE);
    spw_account_at(f.map, 0)->state = SPW_RECORD_LIVE;
    spw_changed(f.map);
    assert_int_equal(acquire().verdict, SPW_ALLOW);
}

/* WAIT-H2: 429 with Retry-After 3600: everybody is told so at once, and nobody waits. */
static void large_retry_after(void **state)
{
    static const struct {
        int64_t retry_after_ms;
        uint64_t least_ns, most_ns;
    } cases[] = {{3600000, 3600 * S, 3600 * S + MS},
                 {503, 503 * MS, 504 * MS},
                 {0, S, S + MS},  /* "now" is no invitation to hammer */
                 {-1, S, S + MS}, /* not said */
                 {INT64_MAX, 86400 * S - S, 86400 * S + MS}};
    (void)state;
    assert_int_equal(attach(SPW_UNATTACHED_DENY), SPW_STATUS_OK);
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        spw_account_words_at(f.map, 0)->gate = 0;
        spw_account_words_at(f.map, 0)->breaker = 0;
        assert_true(acquire().may_call);
        uint64_t before = spw_now_ns();
        spw_report(&client, &ticket, 429, cases[i].retry_after_ms);
        uint64_t after = spw_now_ns();
        for (int k = 0; k < 50; k++) {
            struct spw_admission a = acquire();
            assert_int_equal(a.verdict, SPW_DENY);
            assert_int_equal(a.cause, SPW_CAUSE_GATE_SHUT);
            uint64_t until = spw_now_ns() + a.wait_ns;
            assert_true(until >= before + cases[i].least_ns);
            assert_true(until <= after + cases[i].most_ns + (spw_now_ns() - after) + MS);
        }
    }
}

/* BRK-H3 through the public call: 400 and 422 are the caller's; 503 and no answer are the provider's. */
static void reported_statuses(void **state)
{
    static const uint32_t good[] = {200, 401, 400, 404, 422}, bad[] = {500, 503, 0};
    struct spw_breaker_view view;
    (void)state;
    assert_int_equal(attach(SPW_UNATTACHED_DENY), SPW_STATUS_OK);
    plenty();
    for (unsigned i = 0; i < 200; i++) {
        assert_true(acquire().may_call);
        spw_report(&client, &ticket, good[i % 5], -1);
    }
    assert_int_equal(spw_state_breaker_get(f.state, "main", spw_now_ns(), &view, NULL), SPW_STATUS_OK);
    assert_string_equal(view.state, "closed");
    unsigned failed = 0;
    while (failed < 200 && acquire().may_call)
        spw_report(&client, &ticket, bad[failed++ % 3], -1);
    assert_in_range(failed, 40, 60); /* above 20 % of all in the window */
    assert_int_equal(acquire().cause, SPW_CAUSE_BREAKER_OPEN);
}

static struct spw_quote_request quote(const struct spw_line *line)
{
    struct spw_quote_request q;
    memset(&q, 0, sizeof q);
    q.account = "main";
    q.integration = "web";
    q.purpose = SPW_PURPOSE_ORDER;
    q.ship_to.state = "WA";
    q.ship_to.zip = "98110";
    q.lines = line;
    q.line_count = 1;
    return q;
}

static bool read_flag(struct spw_flag_view *view, uint8_t *bytes, size_t room)
{
    uint32_t cursor = 0;
    size_t count = 0;
    return spw_cell_next_ready(f.map, &cursor) &&
           spw_cell_read(f.map, cursor, bytes, room, &count) == SPW_STATUS_OK &&
           spw_flag_parse(bytes, count, view);
}

/* A call that must not be made is answered from the cache, at once, with a flag that says everything. */
static void early_fallback(void **state)
{
    const struct spw_line line = {"1", NULL, 0, 10000};
    struct spw_quote_request q = quote(&line);
    static uint8_t bytes[SPW_CHAIN_MAX_CELLS * SPW_CELL_BYTES];
    struct spw_flag_view view;
    (void)state;
    assert_int_equal(attach(SPW_UNATTACHED_DENY), SPW_STATUS_OK);
    spw_state_fixture_set(&f, 0, S, 0, spw_now_ns());
    q.decision_id = "d-77";
    assert_int_equal(spw_quote(&client, &q, &reply), SPW_STATUS_OK);
    assert_int_equal(reply.decision, SPW_DECISION_FALLBACK);
    assert_int_equal(reply.type, SPW_FALLBACK_RATE_LIMIT_PROACTIVE);
    assert_int_equal(reply.cause, SPW_CAUSE_RATE_ZERO);
    assert_int_equal(reply.tax_minor, 920);
    assert_int_equal(reply.lines_count, 2);
    assert_true(read_flag(&view, bytes, sizeof bytes));
    assert_string_equal(view.record.flag_id, reply.flag_id);
    assert_string_equal(view.record.quote_id, reply.quote_id);
    assert_string_equal(view.record.decision_id, "d-77");
    assert_string_equal(view.record.account, "main");
    assert_string_equal(view.record.source, "table");
    assert_int_equal(view.record.tax_minor, 920);
    assert_int_equal(view.record.combined_ppb, 92000000);
    assert_int_equal(view.record.slot, client.map->self.slot);
    assert_int_equal(view.record.request_bytes > 0 && view.request[0] == '{', 1);
    struct spw_line_tax first;
    memcpy(&first, view.lines, sizeof first);
    assert_int_equal(first.tax_minor, 920);
}

/* The sidecar does not answer: the cache does, as sidecar-unavailable; a forced-open breaker as circuit-breaker-open. */
static void sidecar_does_not_answer(void **state)
{
    const struct spw_line line = {"1", NULL, 0, 10000};
    struct spw_quote_request q = quote(&line);
    struct spw_breaker_view view;
    struct spw_breaker_change shut = {NULL, SPW_FORCED_OPEN, false, false};
    (void)state;
    assert_int_equal(attach(SPW_UNATTACHED_DENY), SPW_STATUS_OK);
    assert_int_equal(spw_quote(&client, &q, &reply), SPW_STATUS_OK);
    assert_int_equal(reply.decision, SPW_DECISION_FALLBACK);
    assert_int_equal(reply.type, SPW_FALLBACK_SIDECAR_UNAVAILABLE);
    assert_int_equal(spw_state_breaker_set(f.state, "main", &shut, 0, false, spw_now_ns(), &view, NULL),
                     SPW_STATUS_OK);
    memset(&reply, 0, sizeof reply);
    assert_int_equal(spw_quote(&client, &q, &reply), SPW_STATUS_OK);
    assert_int_equal(reply.type, SPW_FALLBACK_CIRCUIT_BREAKER_OPEN);
    assert_int_equal(reply.cause, SPW_CAUSE_BREAKER_FORCED);
    q.ship_to.zip = "99999";
    memset(&reply, 0, sizeof reply);
    assert_int_equal(spw_quote(&client, &q, &reply), SPW_STATUS_OK);
    assert_int_equal(reply.decision, SPW_DECISION_NONE);
    assert_string_equal(reply.reason, "no-rate");
    q.account = "nobody";
    enum spw_status status = spw_quote(&client, &q, &reply);
    assert_true(status == SPW_STATUS_NOT_FOUND || reply.decision == SPW_DECISION_REJECTED);
    hide(true);
    spw_detach(&client);
    (void)attach(SPW_UNATTACHED_ALLOW);
    q.account = "main";
    memset(&reply, 0, sizeof reply);
    assert_int_equal(spw_quote(&client, &q, &reply), SPW_STATUS_OK);
    assert_int_equal(reply.decision, SPW_DECISION_NONE); /* no segment: no rate is known; never a zero */
    hide(false);
}

/* No cell free: the flag is handed back as a line, or, without room for it, no fallback is given out. */
static void no_cell_free(void **state)
{
    const struct spw_line line = {"1", NULL, 0, 10000};
    struct spw_quote_request q = quote(&line);
    char handback[4096];
    (void)state;
    assert_int_equal(attach(SPW_UNATTACHED_DENY), SPW_STATUS_OK);
    spw_state_fixture_set(&f, 0, S, 0, spw_now_ns());
    unsigned recorded = 0;
    for (;;) {
        memset(&reply, 0, sizeof reply);
        assert_int_equal(spw_quote(&client, &q, &reply), SPW_STATUS_OK);
        if (reply.flag_refused)
            break;
        assert_int_equal(reply.decision, SPW_DECISION_FALLBACK);
        recorded++;
    }
    assert_int_equal(recorded, 32); /* its half of 64 cells */
    assert_int_equal(reply.decision, SPW_DECISION_NONE);
    assert_string_equal(reply.reason, "flag-refused");
    memset(&reply, 0, sizeof reply);
    reply.handback = handback;
    reply.handback_room = sizeof handback;
    assert_int_equal(spw_quote(&client, &q, &reply), SPW_STATUS_OK);
    assert_int_equal(reply.decision, SPW_DECISION_FALLBACK);
    assert_true(reply.flag_refused);
    assert_non_null(strstr(handback, reply.flag_id));
    assert_int_equal(spw_order_placed(&client, reply.quote_id, "o-1", 920, "USD"), SPW_STATUS_FULL);
}

/* The ledger takes no id or name that is not text, so that no answer may be given under one. */
static void names_that_are_none(void **state)
{
    const struct spw_line line = {"1", NULL, 0, 10000};
    static const char *const none[] = {"\t", "a\nb", "\x7f", "\xff", "caf\xe9", "\xc0\x80", "\xed\xa0\x80"};
    (void)state;
    assert_int_equal(attach(SPW_UNATTACHED_DENY), SPW_STATUS_OK);
    spw_state_fixture_set(&f, 0, S, 0, spw_now_ns());
    for (unsigned i = 0; i < sizeof none / sizeof none[0]; i++) {
        for (int field = 0; field < 5; field++) {
            struct spw_quote_request q = quote(&line);
            const char **at[] = {&q.decision_id, &q.quote_ref, &q.integration, &q.ship_to.state,
                                 &q.ship_to.zip};
            *at[field] = none[i];
            assert_int_equal(spw_quote(&client, &q, &reply), SPW_STATUS_INVALID);
        }
    }
    uint32_t cursor = 0;
    assert_false(spw_cell_next_ready(f.map, &cursor));
    struct spw_quote_request q = quote(&line);
    q.decision_id = "\xc3\xbc \xe2\x82\xac \xf0\x9f\x98\x80";
    q.ship_to.city = "M\xfcnster"; /* free text is repaired, not refused */
    assert_int_equal(spw_quote(&client, &q, &reply), SPW_STATUS_OK);
    assert_int_equal(reply.decision, SPW_DECISION_FALLBACK);
}

/* Orders: recorded as they were told; what is no order is refused. */
static void orders(void **state)
{
    uint8_t bytes[SPW_CELL_BYTES];
    struct spw_order_record order;
    size_t count = 0;
    uint32_t cursor = 0;
    (void)state;
    assert_int_equal(attach(SPW_UNATTACHED_DENY), SPW_STATUS_OK);
    assert_int_equal(spw_order_placed(&client, "", "o-1", 1, "USD"), SPW_STATUS_INVALID);
    assert_int_equal(spw_order_placed(&client, "sq_1", NULL, 1, "USD"), SPW_STATUS_INVALID);
    char long_id[SPW_CALLER_ID_BYTES + 1];
    memset(long_id, 'x', sizeof long_id - 1);
    long_id[sizeof long_id - 1] = 0;
    assert_int_equal(spw_order_placed(&client, "sq_1", long_id, 1, "USD"), SPW_STATUS_INVALID);
    assert_int_equal(spw_order_placed(&client, "sq_1", "o\t1", 1, "USD"), SPW_STATUS_INVALID);
    assert_int_equal(spw_order_placed(&client, "sq_\xff", "o-1", 1, "USD"), SPW_STATUS_INVALID);
    assert_int_equal(spw_order_cancelled(&client, "\xed\xa0\x80"), SPW_STATUS_INVALID); /* a surrogate */
    assert_int_equal(spw_order_placed(&client, "sq_1", "o-1", -671, NULL), SPW_STATUS_OK);
    assert_true(spw_cell_next_ready(f.map, &cursor));
    assert_int_equal(spw_cell_read(f.map, cursor, bytes, sizeof bytes, &count), SPW_STATUS_OK);
    assert_true(spw_order_parse(bytes, count, &order));
    assert_int_equal(order.op, SPW_ORDER_PLACED);
    assert_string_equal(order.quote_id, "sq_1");
    assert_string_equal(order.order_id, "o-1");
    assert_string_equal(order.currency, "USD");
    assert_int_equal(order.tax_collected_minor, -671);
    assert_int_equal(spw_order_cancelled(&client, "o-1"), SPW_STATUS_OK);
    hide(true);
    spw_detach(&client);
    (void)attach(SPW_UNATTACHED_DENY);
    assert_int_equal(spw_order_placed(&client, "sq_1", "o-1", 1, "USD"), SPW_STATUS_NO_SEGMENT);
    hide(false);
}

/* More processes than slots: decisions go on, without permits and flags. */
static void slots_full(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < f.map->rw_section[SPW_RW_SLOTS].count; i++) {
        if (spw_slot_state(spw_slot_at(f.map, i)->word) == SPW_SLOT_FREE)
            spw_slot_at(f.map, i)->word = spw_slot_word(1, SPW_SLOT_DEAD);
    }
    assert_int_equal(attach(SPW_UNATTACHED_DENY), SPW_STATUS_OK);
    assert_int_equal(client.map->self.lock_fd, -1);
    unsigned passed = 0;
    for (int i = 0; i < 20; i++)
        passed += acquire().may_call;
    assert_int_equal(passed, 20);
    assert_int_equal(spw_permit_free_count(f.map, 0, 8, spw_now_ns()), 8);
    assert_int_equal(spw_order_placed(&client, "sq_1", "o-1", 1, "USD"), SPW_STATUS_NOT_READY);
    /* Without a slot the flag would be the sidecar's to record, and it has no door here: no answer. */
    const struct spw_line line = {"1", NULL, 0, 10000};
    struct spw_quote_request q = quote(&line);
    spw_state_fixture_set(&f, 0, S, 0, spw_now_ns());
    assert_int_equal(spw_quote(&client, &q, &reply), SPW_STATUS_OK);
    assert_int_equal(reply.decision, SPW_DECISION_NONE);
    assert_string_equal(reply.reason, "flag-refused");
    assert_int_equal(reply.type, SPW_FALLBACK_RATE_LIMIT_PROACTIVE);
    /* Others leave: this process has a slot with its first quote a second later. */
    spw_state_sweep(f.state, spw_now_ns());
    pause_ms(1010);
    memset(&reply, 0, sizeof reply);
    assert_int_equal(spw_quote(&client, &q, &reply), SPW_STATUS_OK);
    assert_int_equal(reply.decision, SPW_DECISION_FALLBACK);
    assert_true(client.map->self.lock_fd >= 0);
    assert_int_equal(spw_order_placed(&client, "sq_1", "o-1", 1, "USD"), SPW_STATUS_OK);
}

/* A slot comes back after its process left, with another generation, and its permits with it. */
static void slot_life(void **state)
{
    (void)state;
    uint32_t seen[300] = {0};
    for (int i = 0; i < 200; i++) {
        assert_int_equal(attach(SPW_UNATTACHED_DENY), SPW_STATUS_OK);
        assert_true(client.map->self.lock_fd >= 0);
        uint32_t slot = client.map->self.slot;
        assert_true(client.map->self.generation >= seen[slot]);
        seen[slot] = client.map->self.generation + 1;
        plenty();
        assert_true(acquire().may_call); /* never reported */
        spw_detach(&client);
        spw_state_sweep(f.state, spw_now_ns());
    }
    assert_int_equal(spw_permit_free_count(f.map, 0, 8, spw_now_ns()), 8);
    struct spw_state_status status;
    spw_state_status(f.state, &status);
    assert_int_equal(status.attached_count, 0);
    struct spw_account_status account;
    assert_int_equal(spw_state_account_status(f.state, 0, spw_now_ns(), &account), SPW_STATUS_OK);
    assert_int_equal(account.decisions[SPW_STAT_ALLOW], 200); /* nobody's count was lost */
}

/* The sidecar stopped, by itself or not: decisions go on; the next one adopts, and the client never noticed. */
static void sidecar_restarts(void **state)
{
    (void)state;
    assert_int_equal(attach(SPW_UNATTACHED_DENY), SPW_STATUS_OK);
    struct spw_map *map = client.map;
    plenty();
    for (int i = 0; i < 4; i++) {
        spw_state_fixture_close(&f, i % 2);
        assert_true(acquire().may_call);
        spw_report(&client, &ticket, 200, -1);
        spw_state_fixture_open(&f);
        assert_true(acquire().may_call);
        spw_report(&client, &ticket, 200, -1);
        assert_ptr_equal(client.map, map);
        plenty();
    }
}

/* Another capacity makes another segment: the client moves over by itself, and what it had taken stays taken. */
static void segment_replaced(void **state)
{
    (void)state;
    assert_int_equal(attach(SPW_UNATTACHED_DENY), SPW_STATUS_OK);
    uint64_t begun = f.t0_ns, passed = 0;
    for (uint32_t round = 0; round < 5; round++) {
        while (acquire().may_call) {
            passed++;
            spw_report(&client, &ticket, 200, -1);
        }
        uint64_t generation = client.map->generation;
        char extra[128];
        snprintf(extra, sizeof extra, "segment: {slots: %u, cells: 64, rate_records: 1024}", 32 + 8 * round);
        spw_state_fixture_close(&f, round % 2);
        spw_state_fixture_configure(&f, ACCOUNT, extra);
        spw_state_fixture_open(&f);
        assert_non_null(strstr(spw_state_origin(f.state), "replaced"));
        struct spw_admission a = acquire();
        for (unsigned waited = 0; a.verdict == SPW_NOT_ATTACHED && waited < 2000; waited++) {
            pause_ms(1);
            a = acquire();
        }
        assert_int_not_equal(a.verdict, SPW_NOT_ATTACHED);
        passed += a.may_call;
        assert_true(client.map->generation != generation);
        assert_true(client.map->self.lock_fd >= 0);
    }
    assert_true(passed <= 20 + (spw_now_ns() - begun) / (100 * MS) + 1);
}

/* The sidecar starts with another plan: the segment is replaced, and the client goes over. */
static void replace(uint32_t slots)
{
    char extra[128];
    snprintf(extra, sizeof extra, "segment: {slots: %u, cells: 64, rate_records: 1024}", slots);
    spw_state_fixture_close(&f, true);
    spw_state_fixture_configure(&f, ACCOUNT, extra);
    spw_state_fixture_open(&f);
    for (unsigned waited = 0; acquire().verdict == SPW_NOT_ATTACHED && waited < 2000; waited++)
        pause_ms(1);
    assert_non_null(client.map->older);
}

/* A minute after a replacement the old mapping and its slot are let go, by a client that only acquires, or only
 * reports, as well. */
static void old_maps_dropped(void **state)
{
    (void)state;
    assert_int_equal(attach(SPW_UNATTACHED_DENY), SPW_STATUS_OK);
    for (uint32_t round = 0; round < 4; round++) {
        replace(40 + 8 * round);
        int fd = client.map->older->self.lock_fd;
        (void)spw_acquire(&client, &ref, 1, 1, &ticket);
        client.map->made_ns += S; /* by another thread, while this one was on its way with an older clock */
        spw_report(&client, &ticket, 200, -1);
        assert_non_null(client.map->older); /* not yet */
        client.map->made_ns -= SPW__KEEP_OLD_NS + S;
        if (round % 2)
            (void)spw_acquire(&client, &ref, 1, 1, &ticket); /* the whole way */
        else
            spw_report(&client, &ticket, 200, -1);
        assert_null(client.map->older);
        assert_int_equal(fcntl(fd, F_GETFD), -1);
    }
}

/* What was recorded just before a replacement is waited for, too. */
static void durable_past_a_replacement(void **state)
{
    (void)state;
    assert_int_equal(attach(SPW_UNATTACHED_DENY), SPW_STATUS_OK);
    assert_int_equal(spw_wait_durable(&client, 0), SPW_STATUS_OK);
    assert_int_equal(spw_order_placed(&client, "sq_1", "o-1", 1, "USD"), SPW_STATUS_OK);
    replace(48);
    assert_int_equal(spw_wait_durable(&client, 2), SPW_STATUS_TIMEOUT); /* nobody here stores it */
}

/* After detach there is nothing: no mapping comes back by itself, and leaving twice is leaving once. */
static void detached_for_good(void **state)
{
    (void)state;
    assert_int_equal(attach(SPW_UNATTACHED_DENY), SPW_STATUS_OK);
    plenty();
    assert_true(acquire().may_call);
    spw_detach(&client);
    spw_report(&client, &ticket, 200, -1);
    pause_ms(110);
    assert_int_equal(acquire().verdict, SPW_NOT_ATTACHED);
    assert_null(client.map);
    spw_detach(&client);
    assert_int_equal(attach(SPW_UNATTACHED_DENY), SPW_STATUS_OK);
    assert_int_equal(acquire().verdict, SPW_ALLOW);
}

/* A rate for display, and what is none. */
static void rate_lookup(void **state)
{
    struct spw_rate_record record;
    struct spw_source source;
    (void)state;
    assert_int_equal(attach(SPW_UNATTACHED_DENY), SPW_STATUS_OK);
    assert_int_equal(spw_rate_lookup(&client, "98110-1234", &record, &source), SPW_STATUS_OK);
    assert_int_equal(record.combined_ppb, 92000000);
    assert_int_equal(spw_rate_lookup(&client, "97201", &record, &source), SPW_STATUS_OK);
    assert_int_equal(record.combined_ppb, 0);
    assert_int_equal(spw_rate_lookup(&client, "99999", &record, &source), SPW_STATUS_NOT_FOUND);
    assert_int_equal(spw_rate_lookup(&client, "9811", &record, &source), SPW_STATUS_INVALID);
    assert_int_equal(spw_rate_lookup(&client, NULL, &record, &source), SPW_STATUS_INVALID);
}

/* Paths from the environment, and one that is too long. */
static void paths(void **state)
{
    (void)state;
    setenv("SPILLWAY_PUB_DIR", f.pub_dir, 1);
    setenv("SPILLWAY_RW_DIR", f.rw_dir, 1);
    assert_int_equal(spw_attach(&client, NULL), SPW_STATUS_OK);
    spw_detach(&client);
    char too_long[400];
    memset(too_long, 'x', sizeof too_long - 1);
    too_long[sizeof too_long - 1] = 0;
    struct spw_attach_options options = {too_long, f.rw_dir, SPW_UNATTACHED_DENY, 0, 0};
    assert_int_equal(spw_attach(&client, &options), SPW_STATUS_INVALID);
    unsetenv("SPILLWAY_PUB_DIR");
    unsetenv("SPILLWAY_RW_DIR");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(application_starts_first, set_up, tear_down),
        cmocka_unit_test_setup_teardown(unattached_options, set_up, tear_down),
        cmocka_unit_test_setup_teardown(two_clients_share, set_up, tear_down),
        cmocka_unit_test_setup_teardown(ref_after_a_detach, set_up, tear_down),
        cmocka_unit_test_setup_teardown(unknown_account, set_up, tear_down),
        cmocka_unit_test_setup_teardown(large_retry_after, set_up, tear_down),
        cmocka_unit_test_setup_teardown(reported_statuses, set_up, tear_down),
        cmocka_unit_test_setup_teardown(early_fallback, set_up, tear_down),
        cmocka_unit_test_setup_teardown(sidecar_does_not_answer, set_up, tear_down),
        cmocka_unit_test_setup_teardown(no_cell_free, set_up, tear_down),
        cmocka_unit_test_setup_teardown(names_that_are_none, set_up, tear_down),
        cmocka_unit_test_setup_teardown(orders, set_up, tear_down),
        cmocka_unit_test_setup_teardown(slots_full, set_up, tear_down),
        cmocka_unit_test_setup_teardown(slot_life, set_up, tear_down),
        cmocka_unit_test_setup_teardown(sidecar_restarts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(segment_replaced, set_up, tear_down),
        cmocka_unit_test_setup_teardown(old_maps_dropped, set_up, tear_down),
        cmocka_unit_test_setup_teardown(durable_past_a_replacement, set_up, tear_down),
        cmocka_unit_test_setup_teardown(detached_for_good, set_up, tear_down),
        cmocka_unit_test_setup_teardown(rate_lookup, set_up, tear_down),
        cmocka_unit_test_setup_teardown(paths, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
