/* test_pod.c: a whole pod under SIGKILL: sixteen processes that decide, report, write orders and look rates up, some of
 * them in PID namespaces of their own, and a sidecar that publishes, sweeps and drains; any of them is killed, and the
 * sidecar's next start adopts what the last one left. And the parent of a fork, whose child goes on.
 *
 * After it: never more admitted than burst + rate * t, no permit missing after one sweep, every record that is read is
 * whole, nobody stuck, breaker and gate open again by themselves. SPW_KILLS, SPW_SEED as in test_bucket.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <signal.h>

#include <cmocka.h>
#include <sys/syscall.h>

#include "tests/crash/crash_kit.h"

#define CLIENTS  16u
#define PERMITS  32u
#define RATE     5000u
#define BURST    500u
#define WATCHDOG (60 * S)

static struct spw_state_fixture f;
static struct shared *page;
static pid_t client_pid[CLIENTS], sidecar_pid;
static int namespaces = -1; /* 1: clients with an odd number live in PID namespaces of their own */

/* fork into a PID namespace; -1 where that is not allowed. The child is PID 1 there, and has this PID for us. */
static pid_t fork_into_namespace(void)
{
    const unsigned long flags[] = {CLONE_NEWPID, CLONE_NEWPID | CLONE_NEWUSER};
    for (unsigned i = 0; i < 2; i++) {
        pid_t pid = (pid_t)syscall(SYS_clone, flags[i] | SIGCHLD, NULL, NULL, NULL, NULL);
        if (pid >= 0)
            return pid;
    }
    return -1;
}

/* What a provider answers: mostly 200; now and then a run of 429s, which opens the breaker and shuts the gate. */
static void report(struct spw_client *client, const struct spw_ticket *ticket, uint32_t turn)
{
    bool storm = turn % 4096 < 6;
    spw_report(client, ticket, storm ? 429 : turn % 97 == 0 ? 0 : 200, storm ? 5 : -1);
}

static void be_client(unsigned index)
{
    static struct spw_client client;
    struct spw_ref ref;
    struct spw_ticket ticket, held;
    memset(&held, 0, sizeof held);
    client_begin(&f, &client, &ref);
    for (uint32_t i = index * 251; !spw_load_acq(&page->stop); i++) {
        struct spw_admission a = spw_acquire(&client, &ref, 1, i % 8 ? 0 : MS, &ticket);
        /* Counted at once: a kill in between leaves out one at most. */
        spw_add_rlx(&page->worker[index].admitted, a.verdict == SPW_ALLOW);
        spw_add_rlx(&page->worker[index].tries, 1);
        if (a.may_call) {
            if (held.generation)
                report(&client, &held, i);
            held = ticket;
        }
        if (i % 64 == 0) {
            char order[32];
            snprintf(order, sizeof order, "o-%u-%u", index, i);
            (void)!spw_order_placed(&client, "sq_pod", order, (int64_t)i, "USD");
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
    pid_t pid = -1;
    if (index % 2 && namespaces) {
        pid = fork_into_namespace();
        if (namespaces < 0 && pid != 0) {
            namespaces = pid > 0;
            if (!namespaces)
                print_message("PID NAMESPACES ARE NOT ALLOWED HERE: all clients share one\n");
        }
    }
    if (pid < 0)
        pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        be_client(index);
    client_pid[index] = pid;
}

static void kill_one(pid_t pid)
{
    int status = 0;
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status)); /* it had not ended by itself */
}

/* The store's part: every record is whole. */
static void drain_cells(const struct spw_map *map)
{
    static uint8_t bytes[SPW_CELL_BYTES];
    for (uint32_t cursor = 0; spw_cell_next_ready(map, &cursor); cursor++) {
        struct spw_order_record order;
        size_t count = 0;
        if (spw_cell_read(map, cursor, bytes, sizeof bytes, &count) != SPW_STATUS_OK ||
            !spw_order_parse(bytes, count, &order) || strcmp(order.quote_id, "sq_pod") != 0) {
            fprintf(stderr, "cell %u holds no whole record\n", cursor);
            abort();
        }
        spw_cell_free(map, cursor);
    }
}

static void be_sidecar(void)
{
    struct spw_error err;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (spw_state_open(f.conf, &f.state, &err) != SPW_STATUS_OK) {
        fprintf(stderr, "%s\n", err.text);
        _exit(1);
    }
    f.map = spw_state_map(f.state);
    spw_cell_recover(f.map);
    spw_add_rlx(&page->ready, 1);
    for (uint32_t i = 0; !spw_load_acq(&page->stop); i++) {
        if (i % 16 == 0) {
            spw_state_fixture_set(&f, RATE - 1000 + i % 1001, S, BURST, spw_now_ns());
            spw_state_fixture_rates(&f);
        }
        drain_cells(f.map);
        spw_state_sweep(f.state, spw_now_ns());
        spw_state_heartbeat(f.state, spw_now_ns());
        pause_ns(MS / 4);
    }
    _exit(0);
}

static void start_sidecar(void)
{
    uint64_t ready = spw_load_acq(&page->ready);
    sidecar_pid = fork();
    assert_true(sidecar_pid >= 0);
    if (sidecar_pid == 0)
        be_sidecar();
    for (uint64_t begun = spw_now_ns(); spw_load_acq(&page->ready) == ready;) {
        assert_true(spw_now_ns() - begun < WATCHDOG); /* it must be able to start on what the last one left */
        pause_ns(MS / 4);
    }
}

/* Each client decides again; and somebody is let through again: no breaker, gate or permit stays shut. */
static void all_move(void)
{
    uint64_t before[CLIENTS], allowed = 0, now_allowed = 0, begun = spw_now_ns();
    for (unsigned i = 0; i < CLIENTS; i++) {
        before[i] = spw_load_rlx(&page->worker[i].tries);
        allowed += spw_load_rlx(&page->worker[i].admitted);
    }
    for (unsigned i = 0; i < CLIENTS || now_allowed == allowed;) {
        if (i < CLIENTS && spw_load_rlx(&page->worker[i].tries) > before[i] + 1) {
            i++;
            continue;
        }
        pause_ns(MS);
        now_allowed = 0;
        for (unsigned k = 0; k < CLIENTS; k++)
            now_allowed += spw_load_rlx(&page->worker[k].admitted);
        if (spw_now_ns() - begun > WATCHDOG)
            fail_msg("client %u is stuck, or nobody is admitted any more", i);
    }
}

static int set_up(void **state)
{
    (void)state;
    seed = getenv("SPW_SEED") ? strtoull(getenv("SPW_SEED"), NULL, 0) : spw_now_ns();
    print_message("SPW_SEED=%" PRIu64 "\n", seed);
    page = shared_page();
    memset(client_pid, 0, sizeof client_pid);
    sidecar_pid = 0;
    spw_state_fixture_make(&f,
                           "limit: {rate: 5000/s, burst: 500, pods: 1}\n    concurrency: 32\n"
                           "    deadline: 10s\n    breaker: {cooldown: 1s..2s}",
                           NULL);
    spw_state_fixture_rates(&f);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (unsigned i = 0; i < CLIENTS; i++) {
        if (client_pid[i] > 0)
            kill(client_pid[i], SIGKILL);
    }
    if (sidecar_pid > 0)
        kill(sidecar_pid, SIGKILL);
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
    spw_state_fixture_remove(&f);
    munmap(page, sizeof *page);
    return 0;
}

static void pod_killed(void **state)
{
    (void)state;
    uint64_t begun = f.map->base_ns, generation = f.map->generation, admitted = 0;
    spw_state_fixture_close(&f, false);
    start_sidecar();
    for (unsigned i = 0; i < CLIENTS; i++)
        start_client(i);
    all_move();
    for (unsigned i = 0; i < kills(); i++) {
        pause_ns(random_below(20 * MS));
        unsigned victim = (unsigned)random_below(CLIENTS + 3); /* the sidecar's instants are more various */
        if (victim >= CLIENTS) {
            kill_one(sidecar_pid);
            start_sidecar();
        } else {
            kill_one(client_pid[victim]);
            start_client(victim);
        }
    }
    all_move();
    for (unsigned i = 0; i < CLIENTS; i++)
        admitted += spw_load_rlx(&page->worker[i].admitted);
    uint64_t most = BURST + (spw_now_ns() + MS - begun) * RATE / S + 1;
    print_message("%" PRIu64 " admitted of %" PRIu64 ", %s\n", admitted, most,
                  namespaces == 1 ? "half of them in PID namespaces of their own" : "in one PID namespace");
    assert_true(admitted <= most);
    for (unsigned i = 0; i < CLIENTS; i++) {
        kill_one(client_pid[i]);
        client_pid[i] = 0;
    }
    kill_one(sidecar_pid);
    sidecar_pid = 0;
    spw_state_fixture_open(&f);
    assert_string_equal(spw_state_origin(f.state), "adopted");
    assert_true(f.map->generation == generation);
    spw_cell_recover(f.map);
    drain_cells(f.map);
    spw_state_sweep(f.state, spw_now_ns());
    assert_int_equal(spw_permit_free_count(f.map, 0, PERMITS, spw_now_ns()), PERMITS);
    struct spw_state_status status;
    spw_state_status(f.state, &status);
    assert_int_equal(status.attached_count, 0);
    assert_int_equal(status.cells_busy_count, 0);
    assert_int_equal(spw_limiter_words_at(f.map, 0)->healed_count, 0);
}

/* ---- the parent of a fork is killed: its permits come back, its child's stay, and the child goes on ---- */

static struct spw_ticket take_one(struct spw_client *client, struct spw_ref *ref)
{
    struct spw_ticket ticket;
    while (!spw_acquire(client, ref, 1, 0, &ticket).may_call)
        sched_yield();
    return ticket;
}

static void be_child(struct spw_client *client, struct spw_ref *ref)
{
    (void)take_one(client, ref);
    spw_store_rel(&page->version_in_force, (uint64_t)getpid()); /* it holds one permit */
    for (;;) {
        (void)spw_acquire(client, ref, 1000000, 0, &(struct spw_ticket){0}); /* more than there ever is */
        spw_add_rlx(&page->worker[0].tries, 1);
        sched_yield();
    }
}

static void be_parent(void)
{
    static struct spw_client client;
    struct spw_attach_options options = {f.pub_dir, f.rw_dir, SPW_UNATTACHED_DENY, 0, 0};
    struct spw_ref ref;
    close_range(3, ~0u, 0);
    spw_ref_init(&ref, "main", "web");
    (void)spw_attach(&client, &options);
    (void)take_one(&client, &ref);
    (void)take_one(&client, &ref);
    if (fork() == 0)
        be_child(&client, &ref);
    for (;;)
        pause();
}

static void fork_parent_killed(void **state)
{
    (void)state;
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* the orphan becomes ours */
    for (unsigned i = 0; i < kills() / 10 + 1; i++) {
        spw_store_rel(&page->version_in_force, 0);
        pid_t parent = client_pid[0] = fork();
        assert_true(parent >= 0);
        if (parent == 0)
            be_parent();
        uint64_t begun = spw_now_ns();
        while (!spw_load_acq(&page->version_in_force)) {
            assert_true(spw_now_ns() - begun < WATCHDOG);
            spw_state_heartbeat(f.state, spw_now_ns());
            pause_ns(MS / 4);
        }
        pid_t child = client_pid[1] = (pid_t)spw_load_acq(&page->version_in_force);
        assert_int_equal(spw_permit_free_count(f.map, 0, PERMITS, spw_now_ns()), PERMITS - 3);
        spw_state_sweep(f.state, spw_now_ns()); /* nobody is dead */
        assert_int_equal(spw_permit_free_count(f.map, 0, PERMITS, spw_now_ns()), PERMITS - 3);
        kill_one(parent);
        client_pid[0] = 0;
        spw_state_sweep(f.state, spw_now_ns());
        assert_int_equal(spw_permit_free_count(f.map, 0, PERMITS, spw_now_ns()), PERMITS - 1);
        uint64_t tries = spw_load_rlx(&page->worker[0].tries);
        while (spw_load_rlx(&page->worker[0].tries) < tries + 3) {
            assert_true(spw_now_ns() - begun < WATCHDOG);
            pause_ns(MS / 4);
        }
        kill_one(child);
        client_pid[1] = 0;
        spw_state_sweep(f.state, spw_now_ns());
        assert_int_equal(spw_permit_free_count(f.map, 0, PERMITS, spw_now_ns()), PERMITS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(pod_killed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(fork_parent_killed, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
