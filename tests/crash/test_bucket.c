/* test_bucket.c: SIGKILL of clients, of the sidecar, and of a sidecar that is replacing the segment.
 *
 * After each: never more admitted than burst + rate * t, no permit missing after a sweep, nobody stuck, the segment
 * adopted or replaced by the next start with a drained bucket and an open breaker as they were.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <signal.h>

#include <cmocka.h>

#include "tests/crash/crash_kit.h"

#define CLIENTS  16u
#define PERMITS  32u
#define WATCHDOG (30 * S)

static struct spw_state_fixture f;
static struct shared *page;
static pid_t client_pid[CLIENTS];

/* One checkout process: attaches by itself, decides, reports; its counters are on the shared page. */
static void be_client(unsigned index)
{
    static struct spw_client client;
    struct spw_ref ref;
    struct spw_ticket ticket, held;
    memset(&held, 0, sizeof held);
    client_begin(&f, &client, &ref);
    for (uint32_t i = 0; !spw_load_acq(&page->stop); i++) {
        struct spw_admission a = spw_acquire(&client, &ref, 1, i % 8 ? 0 : MS, &ticket);
        /* Counted at once: a kill in between leaves out one at most. */
        spw_add_rlx(&page->worker[index].admitted, a.verdict == SPW_ALLOW);
        spw_add_rlx(&page->worker[index].tries, 1);
        spw_store_rlx(&page->worker[index].unattached, client.map ? client.map->generation : 0);
        /* Between two calls each process holds a permit: a kill nearly always finds one. */
        if (a.may_call) {
            if (held.generation)
                spw_report(&client, &held, 200, -1);
            held = ticket;
        }
        struct spw_rate_record record;
        struct spw_source source;
        if (spw_rate_lookup(&client, "98110", &record, &source) == SPW_STATUS_OK &&
            (record.combined_ppb != 92000000 || record.state_ppb + record.city_ppb != 92000000))
            _exit(3); /* a mixed record */
        if (!a.may_call)
            sched_yield();
    }
    _exit(0);
}

static void start_client(unsigned index)
{
    client_pid[index] = fork();
    assert_true(client_pid[index] >= 0);
    if (client_pid[index] == 0)
        be_client(index);
}

static void kill_client(unsigned index)
{
    int status = 0;
    assert_int_equal(kill(client_pid[index], SIGKILL), 0);
    assert_int_equal(waitpid(client_pid[index], &status, 0), client_pid[index]);
    assert_true(WIFSIGNALED(status)); /* it had not ended by itself */
}

static uint64_t admitted(void)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < CLIENTS; i++)
        sum += spw_load_rlx(&page->worker[i].admitted);
    return sum;
}

/* Everybody gets on: each client decides again, and (generation not 0) in this segment. */
static void all_move(uint64_t generation)
{
    uint64_t before[CLIENTS], begun = spw_now_ns();
    for (unsigned i = 0; i < CLIENTS; i++)
        before[i] = spw_load_rlx(&page->worker[i].tries);
    for (unsigned i = 0; i < CLIENTS;) {
        bool moved = spw_load_rlx(&page->worker[i].tries) > before[i] + 1 &&
                     (!generation || spw_load_rlx(&page->worker[i].unattached) == generation);
        i += moved;
        if (!moved)
            pause_ns(MS);
        if (f.state) {
            spw_state_heartbeat(f.state, spw_now_ns());
            spw_state_sweep(f.state, spw_now_ns());
        }
        if (spw_now_ns() - begun > WATCHDOG)
            fail_msg("client %u is stuck", i);
    }
}

/* From full at the beginning; 1 ms may have been reserved ahead. */
static void check_bound(uint64_t begun_ns, uint64_t rate_per_s, uint64_t burst)
{
    uint64_t n = admitted(), most = burst + (spw_now_ns() + MS - begun_ns) * rate_per_s / S + 1;
    if (n > most)
        fail_msg("%" PRIu64 " admitted, at most %" PRIu64, n, most);
    print_message("%" PRIu64 " admitted of %" PRIu64 "\n", n, most);
}

static int set_up(void **state)
{
    (void)state;
    seed = getenv("SPW_SEED") ? strtoull(getenv("SPW_SEED"), NULL, 0) : spw_now_ns();
    print_message("SPW_SEED=%" PRIu64 "\n", seed);
    page = shared_page();
    spw_state_fixture_make(
        &f, "limit: {rate: 5000/s, burst: 500, pods: 1}\n    concurrency: 32\n    deadline: 10s", NULL);
    spw_state_fixture_rates(&f);
    return 0;
}

static void start_clients(void)
{
    for (unsigned i = 0; i < CLIENTS; i++)
        start_client(i);
}

static void stop_clients(void)
{
    spw_store_rel(&page->stop, 1);
    for (unsigned i = 0; i < CLIENTS; i++) {
        int status = 0;
        assert_int_equal(waitpid(client_pid[i], &status, 0), client_pid[i]);
        assert_int_equal(status, 0);
        client_pid[i] = 0;
    }
}

static int tear_down(void **state)
{
    (void)state;
    for (unsigned i = 0; i < CLIENTS; i++) {
        if (client_pid[i] > 0)
            kill(client_pid[i], SIGKILL);
    }
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
    spw_state_fixture_remove(&f);
    munmap(page, sizeof *page);
    return 0;
}

/* Open the breaker as five 429s do. */
static void open_breaker(void)
{
    struct spw_account_words *words = spw_account_words_at(f.map, 0);
    struct spw_account_conf conf;
    uint64_t now = spw_now_ns();
    assert_true(spw_account_conf_read(spw_account_at(f.map, 0), &conf));
    for (int i = 0; i < 5; i++)
        spw_breaker_outcome(f.map, words, &conf, now, spw_breaker_unpack(words->breaker).epoch,
                            SPW_OUTCOME_THROTTLED);
    assert_int_equal(spw_breaker_unpack(words->breaker).state, SPW_BREAKER_OPEN);
}

/* The bucket is as drained as it was and the breaker as open. */
static void check_carried(uint64_t drained_ns)
{
    struct spw_limit_view limit;
    struct spw_breaker_view breaker;
    uint64_t now = spw_now_ns();
    assert_int_equal(spw_state_limit_get(f.state, "main", now, &limit, NULL), SPW_STATUS_OK);
    assert_int_equal(spw_state_breaker_get(f.state, "main", now, &breaker, NULL), SPW_STATUS_OK);
    assert_string_equal(breaker.state, "open");
    assert_true(limit.tokens_milli <= (now - drained_ns) * 5000 / MS + 1000);
    assert_int_equal(limit.healed_count, 0);
}

static void drain(void)
{
    const struct spw_limiter *limiter = spw_limiter_at(f.map, 0);
    while (spw_bucket_take(limiter, spw_limiter_words_at(f.map, 0), spw_now_ns(), 1, false, 0, true).result ==
           SPW_BUCKET_TAKEN)
        ;
}

static void clients_killed(void **state)
{
    (void)state;
    uint64_t begun = f.map->base_ns;
    start_clients();
    for (unsigned i = 0; i < kills(); i++) {
        pause_ns(random_below(20 * MS));
        unsigned victim = (unsigned)random_below(CLIENTS);
        kill_client(victim);
        if (i % 4 == 0)
            spw_state_sweep(f.state, spw_now_ns());
        spw_state_heartbeat(f.state, spw_now_ns());
        start_client(victim);
    }
    all_move(0);
    check_bound(begun, 5000, 500);
    assert_true(admitted() > (spw_now_ns() - begun) * 2000 / S); /* it was tried in earnest */
    for (unsigned i = 0; i < CLIENTS; i++)
        kill_client(i);
    assert_true(spw_permit_free_count(f.map, 0, PERMITS, spw_now_ns()) < PERMITS);
    memset(client_pid, 0, sizeof client_pid);
    spw_state_sweep(f.state, spw_now_ns());
    assert_int_equal(spw_permit_free_count(f.map, 0, PERMITS, spw_now_ns()), PERMITS);
    struct spw_state_status status;
    spw_state_status(f.state, &status);
    assert_int_equal(status.attached_count, 0);
    assert_int_equal(status.cells_busy_count, 0);
    uint64_t drained = spw_now_ns();
    drain();
    open_breaker();
    spw_state_fixture_close(&f, false);
    spw_state_fixture_open(&f);
    assert_string_equal(spw_state_origin(f.state), "adopted");
    check_carried(drained);
}

/* A sidecar that does nothing but change things, to be killed while it does. The rate is 5,000 a second or less. */
static void be_sidecar(void)
{
    struct spw_state *sidecar = NULL;
    struct spw_error err;
    struct spw_breaker_view view;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (spw_state_open(f.conf, &sidecar, &err) != SPW_STATUS_OK) {
        fprintf(stderr, "%s\n", err.text);
        _exit(1);
    }
    spw_add_rlx(&page->ready, 1);
    f.state = sidecar;
    f.map = spw_state_map(sidecar);
    for (uint32_t i = 0;; i++) {
        spw_state_fixture_set(&f, 4000 + i % 1001, S, 500, spw_now_ns());
        spw_state_fixture_rates(&f);
        struct spw_conf_breaker breaker = f.conf->accounts[0].breaker;
        breaker.minimum_count = 1000 + i % 100;
        struct spw_breaker_change change = {&breaker, -1, false, false};
        (void)!spw_state_breaker_set(sidecar, "main", &change, 0, false, spw_now_ns(), &view, &err);
        spw_state_sweep(sidecar, spw_now_ns());
        spw_state_heartbeat(sidecar, spw_now_ns());
    }
}

static void sidecar_killed(void **state)
{
    (void)state;
    uint64_t begun = f.map->base_ns, generation = f.map->generation;
    spw_state_fixture_close(&f, false);
    start_clients();
    for (unsigned i = 0; i < kills(); i++) {
        uint64_t ready = spw_load_acq(&page->ready);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0)
            be_sidecar();
        for (uint64_t waited = spw_now_ns(); spw_load_acq(&page->ready) == ready;) {
            assert_true(spw_now_ns() - waited <
                        WATCHDOG); /* it must be able to start on what the last one left */
            pause_ns(MS / 4);
        }
        pause_ns(random_below(10 * MS));
        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        if (i % 10 == 0)
            all_move(0); /* also with the sidecar dead */
    }
    check_bound(begun, 5000, 500);
    spw_state_fixture_open(&f);
    assert_string_equal(spw_state_origin(f.state), "adopted");
    assert_true(f.map->generation == generation);
    spw_state_fixture_rates(&f); /* the rates can still be written and read */
    all_move(generation);
    struct spw_rate_lookup found;
    assert_int_equal(
        spw_state_rates_lookup(f.state, &(struct spw_rate_question){.zip = "98110"}, &found, NULL),
        SPW_STATUS_OK);
    assert_int_equal(found.match, SPW_MATCH_ZIP5);
    stop_clients();
    check_bound(begun, 5000, 500);
    assert_int_equal(spw_limiter_words_at(f.map, 0)->healed_count, 0);
}

static void configure(unsigned slots)
{
    char extra[96];
    snprintf(extra, sizeof extra, "segment: {slots: %u, cells: 64, rate_records: 1024}", slots);
    spw_state_fixture_configure(
        &f, "limit: {rate: 5000/s, burst: 500, pods: 1}\n    concurrency: 32\n    deadline: 10s", extra);
}

/* Each start wants another capacity, so it replaces the segment; it is killed somewhere on the way. */
static void replacement_cut_short(void **state)
{
    (void)state;
    uint64_t begun = f.map->base_ns, open_ns = 0;
    unsigned slots = 64, cut = 0;
    start_clients();
    all_move(0); /* from here on none of them holds this process's lock */
    for (unsigned i = 0; i < kills(); i++) {
        spw_state_fixture_close(&f, i % 2);
        slots = slots == 64 ? 72 : 64;
        configure(slots);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            struct spw_state *never = NULL;
            struct spw_error err;
            if (spw_state_open(f.conf, &never, &err) == SPW_STATUS_OK)
                _exit(0);
            fprintf(stderr, "%s\n", err.text);
            _exit(1);
        }
        pause_ns(random_below(open_ns ? open_ns : 4 * MS));
        int status = 0;
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        cut += WIFSIGNALED(status);
        assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
        uint64_t before = spw_now_ns();
        spw_state_fixture_open(&f); /* always succeeds */
        uint64_t took = spw_now_ns() - before;
        if (strstr(spw_state_origin(f.state), "replaced") && (open_ns == 0 || took < open_ns))
            open_ns = took;
        if (i % 10 == 9 || i + 1 == kills())
            all_move(f.map->generation); /* nobody is left behind */
    }
    print_message("%u of %u starts were cut short; a whole one takes %" PRIu64 " us at least\n", cut, kills(),
                  open_ns / 1000);
    assert_true(cut > kills() / 10);
    stop_clients();
    check_bound(begun, 5000, 500);
}

/* Uncut: drained and open before, drained and open after, at each of ten replacements under load. */
static void replacement_carries(void **state)
{
    (void)state;
    uint64_t begun = f.map->base_ns;
    start_clients();
    all_move(0);
    open_breaker();
    for (unsigned i = 0; i < 10; i++) {
        uint64_t drained = spw_now_ns();
        drain();
        spw_state_fixture_close(&f, i % 2);
        configure(i % 2 ? 64 : 72);
        spw_state_fixture_open(&f);
        assert_non_null(strstr(spw_state_origin(f.state), "replaced"));
        check_carried(drained);
        all_move(f.map->generation);
    }
    stop_clients();
    check_bound(begun, 5000, 500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(clients_killed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(sidecar_killed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(replacement_cut_short, set_up, tear_down),
        cmocka_unit_test_setup_teardown(replacement_carries, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
