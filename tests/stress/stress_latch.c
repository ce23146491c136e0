/* stress_latch.c: one writer publishes four words k, 2k, 3k, 4k with k rising; eight readers never accept a mixture
 * (ORD-H2): as threads, where the thread sanitizer looks on, and as processes whose writer is killed again and again.
 */
#include "tests/stress/stress.h"

#define READERS 8u
#define WORDS   4u

struct latched {
    uint64_t seq;
    uint64_t slots[2][WORDS];
    uint64_t stop;
    uint64_t accepted[READERS], overtaken[READERS];
};

static void write_until_stopped(struct latched *l)
{
    uint64_t value[WORDS];
    /* A writer that follows a killed one goes on from the slot that is valid. */
    uint64_t k = l->slots[l->seq & 1][0];
    while (!spw_load_acq(&l->stop)) {
        k++;
        for (uint64_t i = 0; i < WORDS; i++)
            value[i] = k * (i + 1);
        spw_latch_write(&l->seq, l->slots[0], WORDS, value, WORDS);
    }
}

/* false: a mixture, or an older value after a newer one, was accepted. */
static bool read_until_stopped(struct latched *l, unsigned index)
{
    uint64_t value[WORDS], last = 0;
    while (!spw_load_acq(&l->stop)) {
        if (!spw_latch_read(&l->seq, l->slots[0], WORDS, value, WORDS)) {
            l->overtaken[index]++;
            continue;
        }
        for (uint64_t i = 0; i < WORDS; i++) {
            if (value[i] != value[0] * (i + 1))
                return false;
        }
        if (value[0] < last)
            return false;
        last = value[0];
        l->accepted[index]++;
    }
    return true;
}

struct reader {
    struct latched *l;
    unsigned index;
    bool ok;
};

static void *writer_thread(void *arg)
{
    write_until_stopped(arg);
    return NULL;
}

static void *reader_thread(void *arg)
{
    struct reader *r = arg;
    r->ok = read_until_stopped(r->l, r->index);
    return NULL;
}

static bool report(const char *what, const struct latched *l)
{
    uint64_t accepted = 0, overtaken = 0;
    bool all = true;
    for (unsigned i = 0; i < READERS; i++) {
        accepted += l->accepted[i];
        overtaken += l->overtaken[i];
        all &= l->accepted[i] > 0;
    }
    printf("%s: %" PRIu64 " written, %" PRIu64 " read whole, %" PRIu64 " given up\n", what, l->seq, accepted,
           overtaken);
    return all;
}

static bool as_threads(void)
{
    static struct latched l;
    struct reader readers[READERS];
    pthread_t thread[READERS + 1];
    for (unsigned i = 0; i < READERS; i++) {
        readers[i] = (struct reader){&l, i, false};
        if (pthread_create(&thread[i], NULL, reader_thread, &readers[i]) != 0)
            return false;
    }
    if (pthread_create(&thread[READERS], NULL, writer_thread, &l) != 0)
        return false;
    usleep((useconds_t)(seconds(1.0) * 1e6));
    spw_store_rel(&l.stop, 1);
    bool ok = true;
    for (unsigned i = 0; i <= READERS; i++)
        pthread_join(thread[i], NULL);
    for (unsigned i = 0; i < READERS; i++)
        ok &= readers[i].ok;
    return report("threads", &l) && ok;
}

static pid_t start_writer(struct latched *l)
{
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        write_until_stopped(l);
        _exit(0);
    }
    return pid;
}

static bool as_processes(void)
{
    struct latched *l = mmap(NULL, sizeof *l, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (l == MAP_FAILED)
        return false;
    for (unsigned i = 0; i < READERS; i++) {
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            _exit(read_until_stopped(l, i) ? 0 : 1);
        }
    }
    uint64_t end = spw_now_ns() + (uint64_t)(seconds(1.0) * 1e9);
    unsigned killed = 0;
    while (spw_now_ns() < end) {
        pid_t writer = start_writer(l);
        usleep((useconds_t)(500 + spw_now_ns() % 3000));
        kill(writer, SIGKILL);
        waitpid(writer, NULL, 0);
        killed++;
    }
    spw_store_rel(&l->stop, 1);
    bool ok = true;
    for (unsigned i = 0; i < READERS; i++) {
        int status = 0;
        ok &= wait(&status) > 0 && status == 0;
    }
    printf("%u writers killed\n", killed);
    ok &= report("processes", l);
    munmap(l, sizeof *l);
    return ok;
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    bool ok = as_processes();
    ok &= as_threads();
    return ok ? 0 : 1;
}
