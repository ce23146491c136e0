/* stress_fair.c: sixty-four processes on one bucket share the decisions: none gets less than half of the mean.
 *
 * All begin at one instant and decide for SPW_SECONDS. How much of the processors each is given is the kernel's affair,
 * and other programs' on this machine; so a share is counted against the processor time it had. scripts/bench admission
 * prints the plain share (fair_64).
 */
#include "tests/stress/stress.h"

#define PROCESSES 64

static double cpu_s(pid_t pid)
{
    clockid_t clock;
    struct timespec t;
    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &t) != 0)
        abort();
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(void)
{
    static struct spw_state_fixture f;
    struct shared *page = shared_page();
    pid_t child[PROCESSES];
    spw_state_fixture_make(&f, "limit: {rate: 10000000/s, burst: 1000000000, pods: 1}",
                           "segment: {slots: 80, cells: 64, rate_records: 1024}");
    for (unsigned i = 0; i < PROCESSES; i++) {
        child[i] = fork();
        if (child[i] == 0) {
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
            while (!spw_load_acq(&page->version_in_force))
                sched_yield();
            worker(&f, page, i);
            _exit(0);
        }
    }
    spw_state_heartbeat(f.state, spw_now_ns());
    spw_store_rel(&page->version_in_force, 1);
    while (spw_load_acq(&page->ready) < PROCESSES)
        sched_yield();
    double cpu_before_s[PROCESSES], sum = 0, least = 1e18;
    uint64_t before[PROCESSES], least_plain = UINT64_MAX, sum_plain = 0;
    for (unsigned i = 0; i < PROCESSES; i++) {
        before[i] = spw_load_rlx(&page->worker[i].tries);
        cpu_before_s[i] = cpu_s(child[i]);
    }
    uint64_t until_ns = spw_now_ns() + (uint64_t)(seconds(3) * 1e9);
    while (spw_now_ns() < until_ns) {
        usleep(50000);
        spw_state_heartbeat(f.state, spw_now_ns());
    }
    for (unsigned i = 0; i < PROCESSES; i++) {
        uint64_t tries = spw_load_rlx(&page->worker[i].tries) - before[i];
        double per_s = (double)tries / (cpu_s(child[i]) - cpu_before_s[i] + 1e-9);
        sum += per_s;
        least = per_s < least ? per_s : least;
        sum_plain += tries;
        least_plain = tries < least_plain ? tries : least_plain;
    }
    spw_store_rel(&page->stop, 1);
    for (unsigned i = 0; i < PROCESSES; i++)
        waitpid(child[i], NULL, 0);
    spw_state_fixture_remove(&f);
    printf("%" PRIu64 " decisions; of the mean the least has %.2f by processor time, %.2f plainly\n",
           sum_plain, least * PROCESSES / sum, (double)least_plain * PROCESSES / (double)sum_plain);
    return sum > 0 && 2 * least * PROCESSES >= sum ? 0 : 1;
}
