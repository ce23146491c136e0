/* processors.h: which processor a process of a bench runs on.
 *
 * Where each waits for the other, a wake-up costs by where it has to go, and the kernel decides that now so, now so.
 * Include with _GNU_SOURCE.
 */
#ifndef SPW_BENCH_PROCESSORS_H
#define SPW_BENCH_PROCESSORS_H

#include <sched.h>
#include <stddef.h>
#include <sys/types.h>

#define SPW_BENCH_ANY (-1)

/* Bind the thread pid (0: this one) to the first or second processor that this process was allowed when it first called
 * this, place 0 or 1, or let it go to all of them again: SPW_BENCH_ANY. Without a second one nobody is bound. */
static inline void spw_bench_bind(pid_t pid, int place)
{
    static cpu_set_t allowed;
    cpu_set_t wanted;
    int seen = 0;
    if (!CPU_COUNT(&allowed) && sched_getaffinity(0, sizeof allowed, &allowed))
        return;
    CPU_ZERO(&wanted);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &allowed) &&
            (place == SPW_BENCH_ANY || CPU_COUNT(&allowed) < 2 || seen++ == place))
            CPU_SET(cpu, &wanted);
    }
    (void)sched_setaffinity(pid, sizeof wanted, &wanted);
}

#endif
