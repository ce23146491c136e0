/* test_many.c: as many processes as a segment has slots, and some more, all of them killed at once.
 *
 * Each attaches, decides and holds a permit now and then. None is stuck, all of them together stay below the bound, those
 * that found no slot decide too; after SIGKILL to all, one sweep brings back every slot and every permit. SPW_PROCESSES
 * says how many (default 40; the segment has 32 slots, or 512 from 512 processes on).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <signal.h>

#include <cmocka.h>

#include "tests/crash/crash_kit.h"

#define MOST     1024u
#define PERMITS  256u
#define RATE     50000u
#define BURST    1000u
#define WATCHDOG (300 * S)
#define TAKEN    2u /* slots that no client gets: one for the statistics of the dead, and the sidecar's own */

/* One line a process, in memory of all. */
static struct tally {
    uint64_t admitted, tries, has_slot, pad[5];
} * tally;

static struct spw_state_fixture f;
static unsigned processes, slots;
static pid_t pids[MOST];

static void be_client(unsigned index)
{
    static struct spw_client client;
    struct spw_ref ref;
    struct spw_ticket ticket, held;
    memset(&held, 0, sizeof held);
    client_begin(&f, &client, &ref);
    for (;;) {
        struct spw_admission a = spw_acquire(&client, &ref, 1, 0, &ticket);
        spw_add_rlx(&tally[index].admitted, a.verdict == SPW_ALLOW);
        const struct spw_map *map = client.map;
        spw_store_rlx(&tally[index].has_slot, map && map->self.lock_fd >= 0);
        spw_add_rlx(&tally[index].tries, a.verdict != SPW_NOT_ATTACHED);
        if (a.may_call) {
            if (held.generation)
                spw_report(&client, &held, 200, -1);
            held = ticket;
        }
        sched_yield();
    }
}

static void beat(void)
{
    struct timespec pause = {0, 2 * MS};
    spw_state_heartbeat(f.state, spw_now_ns());
    spw_state_sweep(f.state, spw_now_ns());
    nanosleep(&pause, NULL);
}

static uint32_t attached(void)
{
    struct spw_state_status status;
    spw_state_status(f.state, &status);
    return status.attached_count;
}

static void kill_all(void)
{
    for (unsigned i = 0; i < processes; i++) {
        if (pids[i] > 0)
            kill(pids[i], SIGKILL);
    }
    for (unsigned i = 0; i < processes; i++) {
        int status = 0;
        if (pids[i] > 0 && waitpid(pids[i], &status, 0) == pids[i])
            assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        pids[i] = 0;
    }
}

static int tear_down(void **state)
{
    (void)state;
    kill_all();
    spw_state_fixture_remove(&f);
    munmap(tally, MOST * sizeof *tally);
    return 0;
}

static int set_up(void **state)
{
    char segment[80];
    const char *wanted = getenv("SPW_PROCESSES");
    (void)state;
    processes = wanted ? (unsigned)strtoul(wanted, NULL, 10) : 40;
    processes = processes < 1 ? 1 : processes > MOST ? MOST : processes;
    slots = processes >= 512 ? 512 : 32;
    tally = mmap(NULL, MOST * sizeof *tally, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(tally != MAP_FAILED);
    snprintf(segment, sizeof segment, "segment: {slots: %u, cells: 64, rate_records: 1024}", slots);
    spw_state_fixture_make(
        &f, "limit: {rate: 50000/s, burst: 1000, pods: 1}\n    concurrency: 256\n    deadline: 10s", segment);
    return 0;
}

/* All of them have decided a few times more, and as many as there are slots for have one. */
static void all_decide(void)
{
    uint64_t begun = spw_now_ns();
    unsigned wanted = processes < slots - TAKEN ? processes : slots - TAKEN;
    for (unsigned i = 0, with_slot = 0; i < processes || with_slot < wanted;) {
        if (i < processes && spw_load_rlx(&tally[i].tries) > 3) {
            i++;
            continue;
        }
        beat();
        with_slot = 0;
        for (unsigned k = 0; k < processes; k++)
            with_slot += spw_load_rlx(&tally[k].has_slot) != 0;
        if (spw_now_ns() - begun > WATCHDOG)
            fail_msg("process %u of %u is stuck, or of %u slots only %u are held", i, processes, slots,
                     with_slot);
    }
}

static void many_killed(void **state)
{
    uint64_t admitted = 0;
    (void)state;
    for (unsigned i = 0; i < processes; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0)
            be_client(i);
    }
    all_decide();
    kill_all();
    uint64_t most = BURST + (spw_now_ns() + MS - f.map->base_ns) * RATE / S + 1;
    for (unsigned i = 0; i < processes; i++)
        admitted += tally[i].admitted;
    print_message("%u processes, %u slots: %" PRIu64 " admitted of %" PRIu64 "\n", processes, slots, admitted,
                  most);
    assert_true(admitted <= most);
    spw_state_sweep(f.state, spw_now_ns());
    assert_int_equal(attached(), 0);
    assert_int_equal(spw_permit_free_count(f.map, 0, PERMITS, spw_now_ns()), PERMITS);
    assert_int_equal(spw_limiter_words_at(f.map, 0)->healed_count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(many_killed, set_up, tear_down)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
