/* test_loop.c: what loop.h promises of descriptors, timers and back-ends, on io_uring and on epoll. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sidecar/loop/loop.h"
#include "tests/unit/loop_kit.h"

/* -------- descriptors -------- */

static void test_readiness_is_level_triggered(void **state)
{
    (void)state;
    struct spw_loop *loop = new_loop();
    int fds[2];
    make_pair(fds);
    struct reader reader;
    reader_init(&reader, 1, 5);
    assert_int_equal(spw_loop_watch_set(loop, &reader.watch, fds[0], SPW_LOOP_READ), SPW_STATUS_OK);
    run_for(loop, 5 * MS);
    assert_int_equal(reader.calls, 0);
    /* Five bytes at once, one taken a call: each leftover is reported again. */
    assert_int_equal(write(fds[1], "abcde", 5), 5);
    run(loop);
    assert_int_equal(reader.calls, 5);
    assert_int_equal(reader.bytes, 5);
    assert_int_equal(reader.seen, SPW_LOOP_READ);
    run_for(loop, 5 * MS);
    assert_int_equal(reader.calls, 5);
    spw_loop_watch_close(loop, &reader.watch);
    close(fds[1]);
    spw_loop_destroy(loop);
}

static void test_interest_changes(void **state)
{
    (void)state;
    struct spw_loop *loop = new_loop();
    int fds[2];
    make_pair(fds);
    struct reader reader;
    reader_init(&reader, 0, 1);
    assert_int_equal(spw_loop_watch_set(loop, &reader.watch, fds[0], SPW_LOOP_READ), SPW_STATUS_OK);
    run_for(loop, 5 * MS); /* the interest in reading is with the kernel now */
    assert_int_equal(spw_loop_watch_set(loop, &reader.watch, fds[0], SPW_LOOP_WRITE), SPW_STATUS_OK);
    assert_int_equal(write(fds[1], "x", 1), 1);
    run(loop);
    assert_int_equal(reader.seen, SPW_LOOP_WRITE);
    reader.seen = 0;
    reader.stop_after = reader.calls + 1;
    assert_int_equal(spw_loop_watch_set(loop, &reader.watch, fds[0], SPW_LOOP_READ | SPW_LOOP_WRITE),
                     SPW_STATUS_OK);
    run(loop);
    assert_int_equal(reader.seen, SPW_LOOP_READ | SPW_LOOP_WRITE);
    /* Stopped while readable and writable: silence. */
    uint32_t calls = reader.calls;
    assert_int_equal(spw_loop_watch_set(loop, &reader.watch, fds[0], 0), SPW_STATUS_OK);
    run_for(loop, 5 * MS);
    assert_int_equal(reader.calls, calls);
    /* And back. */
    reader.stop_after = calls + 1;
    assert_int_equal(spw_loop_watch_set(loop, &reader.watch, fds[0], SPW_LOOP_READ), SPW_STATUS_OK);
    run(loop);
    assert_int_equal(reader.calls, calls + 1);
    spw_loop_watch_close(loop, &reader.watch);
    close(fds[1]);
    spw_loop_destroy(loop);
}

static uint64_t thread_cpu_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * 1000000000U + (uint64_t)ts.tv_nsec;
}

static void test_half_closed_peer_only_for_who_asks(void **state)
{
    (void)state;
    struct spw_loop *loop = new_loop();
    int fds[2];
    make_pair(fds);
    struct reader reader;
    reader_init(&reader, 0, 1);
    assert_int_equal(spw_loop_watch_set(loop, &reader.watch, fds[0], SPW_LOOP_HANGUP), SPW_STATUS_OK);
    assert_int_equal(write(fds[1], "x", 1), 1);
    run_for(loop, 5 * MS);
    assert_int_equal(reader.calls, 0);
    assert_int_equal(shutdown(fds[1], SHUT_WR), 0);
    run(loop);
    assert_int_equal(reader.seen, SPW_LOOP_HANGUP);
    reader.seen = 0;
    reader.stop_after = reader.calls + 1;
    assert_int_equal(spw_loop_watch_set(loop, &reader.watch, fds[0], SPW_LOOP_WRITE), SPW_STATUS_OK);
    run(loop);
    assert_int_equal(reader.seen, SPW_LOOP_WRITE);
    /* No room to write, peer half-closed: silence, and no turning without end either. */
    static const char filler[65536];
    while (write(fds[0], filler, sizeof filler) > 0) {
    }
    reader.calls = 0;
    uint64_t cpu_before_ns = thread_cpu_ns();
    run_for(loop, 200 * MS);
    assert_int_equal(reader.calls, 0);
    assert_true(thread_cpu_ns() - cpu_before_ns < 100 * MS); /* of 200: what a spin would burn */
    /* Both halves gone is told to everybody. */
    close(fds[1]);
    reader.seen = 0;
    reader.stop_after = reader.calls + 1;
    run(loop);
    assert_int_equal(reader.seen & SPW_LOOP_HANGUP, SPW_LOOP_HANGUP);
    spw_loop_watch_close(loop, &reader.watch);
    spw_loop_destroy(loop);
}

static void test_close_is_seen_by_the_peer_at_once(void **state)
{
    (void)state;
    struct spw_loop *loop = new_loop();
    int fds[2];
    char byte;
    make_pair(fds);
    struct reader reader;
    reader_init(&reader, 0, 0);
    assert_int_equal(spw_loop_watch_set(loop, &reader.watch, fds[0], SPW_LOOP_READ), SPW_STATUS_OK);
    run_for(loop, 5 * MS); /* armed in the kernel */
    spw_loop_watch_close(loop, &reader.watch);
    assert_int_equal(read(fds[1], &byte, 1), 0); /* the end, not EAGAIN */
    close(fds[1]);
    /* The same when the owner stops the watch and closes the descriptor itself. */
    make_pair(fds);
    assert_int_equal(spw_loop_watch_set(loop, &reader.watch, fds[0], SPW_LOOP_READ), SPW_STATUS_OK);
    run_for(loop, 5 * MS);
    spw_loop_watch_stop(loop, &reader.watch);
    close(fds[0]);
    assert_int_equal(read(fds[1], &byte, 1), 0);
    close(fds[1]);
    run_for(loop, 5 * MS);
    assert_int_equal(reader.calls, 0);
    spw_loop_destroy(loop);
}

static void test_never_set_watch_closes_nothing(void **state)
{
    (void)state;
    struct spw_loop *loop = new_loop();
    struct spw_loop_watch watch = {.fn = on_readable};
    spw_loop_watch_close(loop, &watch);
    assert_true(fcntl(0, F_GETFD) >= 0 || errno == EBADF);
    int fds[2];
    make_pair(fds);
    watch.fd = fds[0];
    spw_loop_watch_close(loop, &watch);
    assert_true(fcntl(fds[0], F_GETFD) >= 0);
    close(fds[0]);
    assert_int_equal(spw_loop_watch_set(loop, &watch, fds[0], SPW_LOOP_READ), SPW_STATUS_INVALID);
    close(fds[1]);
    spw_loop_destroy(loop);
}

/* Two descriptors are ready in one turn; whoever is called first closes the other's descriptor and puts a quiet one
 * with the same number in its place. The event found for the old one must reach nobody. */
struct swapper {
    struct reader readers[2];
    struct reader fresh;
    int fresh_peer;
    uint32_t calls;
};

static void on_swap(struct spw_loop *loop, struct spw_loop_watch *watch, uint32_t events)
{
    struct swapper *swapper = watch->owner;
    (void)events;
    swapper->calls++;
    if (swapper->calls > 1) {
        return;
    }
    struct spw_loop_watch *other =
        watch == &swapper->readers[0].watch ? &swapper->readers[1].watch : &swapper->readers[0].watch;
    int number = other->fd;
    spw_loop_watch_close(loop, other);
    int fds[2];
    make_pair(fds);
    if (fds[0] != number) {
        assert_int_equal(dup2(fds[0], number), number);
        close(fds[0]);
    }
    swapper->fresh_peer = fds[1] == number ? fds[0] : fds[1];
    assert_int_equal(spw_loop_watch_set(loop, &swapper->fresh.watch, number, SPW_LOOP_READ), SPW_STATUS_OK);
    spw_loop_watch_stop(loop, watch);
}

static void test_reused_number_gets_no_stale_event(void **state)
{
    (void)state;
    struct spw_loop *loop = new_loop();
    struct swapper swapper = {0};
    int peers[2];
    reader_init(&swapper.fresh, 1, 0);
    for (int i = 0; i < 2; i++) {
        int fds[2];
        make_pair(fds);
        peers[i] = fds[1];
        swapper.readers[i].watch = (struct spw_loop_watch){.fn = on_swap, .owner = &swapper};
        assert_int_equal(spw_loop_watch_set(loop, &swapper.readers[i].watch, fds[0], SPW_LOOP_READ),
                         SPW_STATUS_OK);
    }
    run_for(loop, 5 * MS);
    assert_int_equal(write(peers[0], "x", 1), 1);
    assert_int_equal(write(peers[1], "x", 1), 1);
    run_for(loop, 10 * MS);
    assert_int_equal(swapper.calls, 1);
    assert_int_equal(swapper.fresh.calls, 0);
    swapper.fresh.stop_after = 1;
    assert_int_equal(write(swapper.fresh_peer, "y", 1), 1);
    run(loop);
    assert_int_equal(swapper.fresh.bytes, 1);
    spw_loop_watch_close(loop, &swapper.fresh.watch);
    close(swapper.fresh_peer);
    for (int i = 0; i < 2; i++) {
        spw_loop_watch_close(loop, &swapper.readers[i].watch);
        close(peers[i]);
    }
    spw_loop_destroy(loop);
}

enum { MANY = 1200 };

struct crowd {
    struct reader readers[MANY];
    int peers[MANY];
    uint32_t heard;
};

static void on_crowd(struct spw_loop *loop, struct spw_loop_watch *watch, uint32_t events)
{
    struct crowd *crowd = watch->owner;
    char byte;
    assert_int_equal(events & SPW_LOOP_READ, SPW_LOOP_READ);
    assert_int_equal(read(watch->fd, &byte, 1), 1);
    if (++crowd->heard == MANY) {
        spw_loop_stop(loop);
    }
}

static void test_many_watches(void **state)
{
    (void)state;
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max < 4096 ? limit.rlim_max : 4096;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    struct spw_loop *loop = new_loop();
    struct crowd *crowd = calloc(1, sizeof *crowd);
    assert_non_null(crowd);
    for (int i = 0; i < MANY; i++) {
        int fds[2];
        make_pair(fds);
        crowd->peers[i] = fds[1];
        crowd->readers[i].watch = (struct spw_loop_watch){.fn = on_crowd, .owner = crowd};
        assert_int_equal(spw_loop_watch_set(loop, &crowd->readers[i].watch, fds[0], SPW_LOOP_READ),
                         SPW_STATUS_OK);
    }
    for (int round = 0; round < 3; round++) {
        crowd->heard = 0;
        for (int i = 0; i < MANY; i++) {
            assert_int_equal(write(crowd->peers[i], "x", 1), 1);
        }
        run(loop);
        assert_int_equal(crowd->heard, MANY);
    }
    for (int i = 0; i < MANY; i++) {
        spw_loop_watch_close(loop, &crowd->readers[i].watch);
        char byte;
        assert_int_equal(read(crowd->peers[i], &byte, 1), 0);
        close(crowd->peers[i]);
    }
    free(crowd);
    spw_loop_destroy(loop);
}

/* -------- timers -------- */

enum { MARKS = 64 };

struct mark {
    struct spw_loop_timer timer;
    struct marks *all;
    int id;
};

struct marks {
    struct mark mark[MARKS];
    int order[MARKS * 2];
    uint64_t fired_at_ns[MARKS * 2];
    int count;
    int stop_at;
};

static void on_mark(struct spw_loop *loop, struct spw_loop_timer *timer)
{
    struct mark *mark = timer->owner;
    struct marks *all = mark->all;
    assert_true(spw_loop_now_ns(loop) >= timer->at_ns);
    assert_false(spw_loop_timer_armed(timer));
    all->order[all->count] = mark->id;
    all->fired_at_ns[all->count] = spw_loop_now_ns(loop);
    if (++all->count == all->stop_at) {
        spw_loop_stop(loop);
    }
}

static struct marks *new_marks(int stop_at)
{
    struct marks *marks = calloc(1, sizeof *marks);
    assert_non_null(marks);
    marks->stop_at = stop_at;
    for (int i = 0; i < MARKS; i++) {
        marks->mark[i].timer = (struct spw_loop_timer){.fn = on_mark, .owner = &marks->mark[i]};
        marks->mark[i].all = marks;
        marks->mark[i].id = i;
    }
    return marks;
}

static void test_timers_fire_in_order(void **state)
{
    (void)state;
    struct spw_loop *loop = new_loop();
    struct marks *marks = new_marks(MARKS);
    uint64_t base_ns = spw_loop_now_ns(loop) + 2 * MS;
    /* Set in a scrambled order (37 is coprime to 64); every fourth shares its neighbour's deadline. */
    for (int i = 0; i < MARKS; i++) {
        int id = i * 37 % MARKS;
        spw_loop_timer_set(loop, &marks->mark[id].timer, base_ns + (uint64_t)id * MS / 8);
    }
    run(loop);
    assert_int_equal(marks->count, MARKS);
    for (int i = 0; i < MARKS; i++) {
        assert_int_equal(marks->order[i], i);
    }
    /* Equal deadlines: in the order set, a re-set counting as new. */
    marks->count = 0;
    marks->stop_at = 8;
    for (int i = 0; i < 8; i++) {
        spw_loop_timer_set(loop, &marks->mark[i].timer, base_ns);
    }
    spw_loop_timer_set(loop, &marks->mark[0].timer, base_ns);
    run(loop);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(marks->order[i], (i + 1) % 8);
    }
    free(marks);
    spw_loop_destroy(loop);
}

static void test_timers_cancelled_and_moved(void **state)
{
    (void)state;
    struct spw_loop *loop = new_loop();
    struct marks *marks = new_marks(MARKS / 2);
    uint64_t base_ns = spw_loop_now_ns(loop) + 2 * MS;
    for (int i = 0; i < MARKS; i++) {
        spw_loop_timer_set(loop, &marks->mark[i].timer, base_ns + (uint64_t)i * 1000);
    }
    for (int i = 0; i < MARKS; i += 2) { /* the even ones never */
        spw_loop_timer_cancel(loop, &marks->mark[i].timer);
        spw_loop_timer_cancel(loop, &marks->mark[i].timer);
        assert_false(spw_loop_timer_armed(&marks->mark[i].timer));
    }
    for (int i = 1; i < MARKS; i += 2) { /* the odd ones backwards */
        spw_loop_timer_set(loop, &marks->mark[i].timer, base_ns + (uint64_t)(MARKS - i) * 1000);
        assert_true(spw_loop_timer_armed(&marks->mark[i].timer));
    }
    run(loop);
    assert_int_equal(marks->count, MARKS / 2);
    for (int i = 0; i < MARKS / 2; i++) {
        assert_int_equal(marks->order[i], MARKS - 1 - 2 * i);
    }
    run_for(loop, 3 * MS);
    assert_int_equal(marks->count, MARKS / 2);
    free(marks);
    spw_loop_destroy(loop);
}

/* A timer that cancels its successor, moves the one after, and re-arms itself in the past three times. */
struct meddler {
    struct spw_loop_timer timer;
    struct marks *marks;
    uint64_t turns_ns[4];
    int calls;
};

static void on_meddle(struct spw_loop *loop, struct spw_loop_timer *timer)
{
    struct meddler *meddler = timer->owner;
    meddler->turns_ns[meddler->calls] = spw_loop_now_ns(loop);
    if (meddler->calls == 0) {
        spw_loop_timer_cancel(loop, &meddler->marks->mark[0].timer);
        spw_loop_timer_set(loop, &meddler->marks->mark[1].timer, spw_loop_now_ns(loop) + 3 * MS);
    }
    if (++meddler->calls < 4) {
        spw_loop_timer_set(loop, timer, 0);
    }
}

static void test_timers_changed_inside_timers(void **state)
{
    (void)state;
    struct spw_loop *loop = new_loop();
    struct marks *marks = new_marks(2);
    struct meddler meddler = {.timer = {.fn = on_meddle, .owner = &meddler}, .marks = marks};
    uint64_t base_ns = spw_loop_now_ns(loop);
    spw_loop_timer_set(loop, &meddler.timer, base_ns);
    spw_loop_timer_set(loop, &marks->mark[0].timer, base_ns);
    spw_loop_timer_set(loop, &marks->mark[1].timer, base_ns);
    spw_loop_timer_set(loop, &marks->mark[2].timer, base_ns);
    run(loop);
    assert_int_equal(marks->count, 2);
    assert_int_equal(marks->order[0], 2);
    assert_int_equal(marks->order[1], 1);
    assert_int_equal(meddler.calls, 4);
    assert_int_equal(marks->fired_at_ns[0], meddler.turns_ns[0]); /* one now for a whole turn */
    for (int i = 1; i < 4; i++) {                                 /* and one firing a turn */
        assert_true(meddler.turns_ns[i] > meddler.turns_ns[i - 1]);
    }
    free(marks);
    spw_loop_destroy(loop);
}

/* -------- stages -------- */

struct staged {
    struct spw_loop_stage stage;
    struct spw_loop_stage *then; /* set from within fn */
    bool stops;                  /* the loop */
    struct reader *reader;       /* whose calls so far are noted */
    char name, *log;
    uint32_t reader_calls;
};

static void on_staged(struct spw_loop *loop, struct spw_loop_stage *stage)
{
    struct staged *staged = stage->owner;
    staged->log[strlen(staged->log)] = staged->name;
    staged->reader_calls = staged->reader != NULL ? staged->reader->calls : 0;
    if (staged->then != NULL) {
        spw_loop_stage_set(loop, staged->then);
        staged->then = NULL;
    }
    if (staged->stops) {
        spw_loop_stop(loop);
    }
}

static void on_readable_set(struct spw_loop *loop, struct spw_loop_watch *watch, uint32_t events)
{
    struct reader *reader = watch->owner;
    (void)events;
    reader->calls++;
    spw_loop_watch_stop(loop, watch);
    for (int i = 0; i < 2; i++) {
        spw_loop_stage_set(loop, reader->stage); /* twice is once */
    }
}

static void test_stages_run_after_all_descriptors_of_a_turn(void **state)
{
    (void)state;
    struct spw_loop *loop = new_loop();
    char log[8] = "";
    struct reader reader = {0};
    struct staged a = {.name = 'a', .log = log, .reader = &reader}, b = {.name = 'b', .log = log};
    struct spw_loop_watch watches[3] = {0};
    int fds[3][2];
    a.stage = (struct spw_loop_stage){.fn = on_staged, .owner = &a};
    b.stage = (struct spw_loop_stage){.fn = on_staged, .owner = &b};
    a.then = &b.stage;
    reader.stage = &a.stage;
    for (int i = 0; i < 3; i++) {
        make_pair(fds[i]);
        assert_int_equal(write(fds[i][1], "x", 1), 1);
        watches[i].fn = on_readable_set;
        watches[i].owner = &reader;
        assert_int_equal(spw_loop_watch_set(loop, &watches[i], fds[i][0], SPW_LOOP_READ), SPW_STATUS_OK);
    }
    run_for(loop, MS);
    assert_string_equal(log, "ab");
    assert_int_equal(a.reader_calls, 3);
    for (int i = 0; i < 3; i++) {
        spw_loop_watch_close(loop, &watches[i]);
        close(fds[i][1]);
    }
    spw_loop_destroy(loop);
}

static void set_its_stage(struct spw_loop *loop, struct spw_loop_timer *timer)
{
    spw_loop_stage_set(loop, timer->owner);
}

static void test_stages_of_timers_and_of_before_the_run(void **state)
{
    (void)state;
    struct spw_loop *loop = new_loop();
    char log[8] = "";
    struct staged a = {.name = 'a', .log = log}, b = {.name = 'b', .log = log}, c = {.name = 'c', .log = log};
    a.stage = (struct spw_loop_stage){.fn = on_staged, .owner = &a};
    b.stage = (struct spw_loop_stage){.fn = on_staged, .owner = &b};
    c.stage = (struct spw_loop_stage){.fn = on_staged, .owner = &c};
    spw_loop_stage_set(loop, &c.stage);
    spw_loop_stage_set(loop, &a.stage);
    spw_loop_stage_set(loop, &b.stage);
    spw_loop_stage_cancel(loop, &b.stage); /* the last */
    spw_loop_stage_cancel(loop, &c.stage); /* the first */
    spw_loop_stage_cancel(loop, &c.stage);
    /* Nothing else is due: the stage alone keeps the loop from waiting. */
    a.then = &c.stage;
    c.stops = true;
    run(loop);
    assert_string_equal(log, "ac");
    b.stops = true;
    struct spw_loop_timer timer = {.fn = set_its_stage, .owner = &b.stage};
    spw_loop_timer_set(loop, &timer, spw_loop_now_ns(loop) + MS);
    run(loop);
    assert_string_equal(log, "acb");
    spw_loop_destroy(loop);
}

static void on_restless(struct spw_loop *loop, struct spw_loop_stage *stage)
{
    spw_loop_stage_set(loop, stage);
}

static void stop_by_timer(struct spw_loop *loop, struct spw_loop_timer *timer)
{
    spw_loop_timer_set(loop, timer, spw_loop_now_ns(loop) + MS);
    if (++*(uint32_t *)timer->owner == 3) {
        spw_loop_stop(loop);
    }
}

/* As two stages do that always find work for each other: time goes on, and so do descriptors. */
static void test_stages_without_end_leave_room(void **state)
{
    (void)state;
    struct spw_loop *loop = new_loop();
    struct spw_loop_stage restless = {.fn = on_restless};
    uint32_t fired = 0;
    struct spw_loop_timer timer = {.fn = stop_by_timer, .owner = &fired};
    int pair[2];
    struct reader reader;
    make_pair(pair);
    assert_int_equal(write(pair[1], "abc", 3), 3);
    reader_init(&reader, 1, 0);
    assert_int_equal(spw_loop_watch_set(loop, &reader.watch, pair[0], SPW_LOOP_READ), SPW_STATUS_OK);
    spw_loop_stage_set(loop, &restless);
    spw_loop_timer_set(loop, &timer, spw_loop_now_ns(loop) + MS);
    run(loop);
    assert_int_equal(fired, 3);
    assert_int_equal(reader.bytes, 3);
    spw_loop_stage_cancel(loop, &restless);
    spw_loop_watch_close(loop, &reader.watch);
    close(pair[1]);
    spw_loop_destroy(loop);
}

static void slow_timer(struct spw_loop *loop, struct spw_loop_timer *timer)
{
    (void)loop;
    (void)timer;
    struct timespec ts = {.tv_nsec = 20 * (long)MS};
    nanosleep(&ts, NULL);
}

static void test_lag_is_measured(void **state)
{
    (void)state;
    struct spw_loop *loop = new_loop();
    assert_int_equal(spw_loop_lag_ns(loop), 0);
    struct spw_loop_timer timer = {.fn = slow_timer};
    spw_loop_timer_set(loop, &timer, 0);
    run_for(loop, 30 * MS);
    assert_true(spw_loop_lag_ns(loop) >= 20 * MS);
    spw_loop_destroy(loop);
}

/* -------- choosing the back-end -------- */

static void test_backend_names_itself(void **state)
{
    (void)state;
    struct spw_loop *loop = new_loop();
    const char *name = backend == SPW_LOOP_URING ? "io_uring" : "epoll";
    assert_string_equal(spw_loop_backend_name(loop), name);
    assert_non_null(strstr(spw_loop_backend_reason(loop), name));
    spw_loop_destroy(loop);
}

/* A real seccomp filter that answers one system call with one errno, as container runtimes do. */
static bool forbid(uint32_t call, uint32_t error)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof code / sizeof *code, .filter = code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* In a child of its own; 0 = as promised. */
static int refused_child(uint32_t call, uint32_t error, const char *error_name)
{
    struct spw_loop *loop = NULL;
    struct spw_error err = {0};
    if (!forbid(call, error)) {
        return 1;
    }
    if (spw_loop_new(SPW_LOOP_URING, &loop, &err) == SPW_STATUS_OK || strstr(err.text, error_name) == NULL) {
        fprintf(stderr, "io_uring: \"%s\" does not name %s\n", err.text, error_name);
        return 2;
    }
    if (spw_loop_new(SPW_LOOP_AUTO, &loop, &err) != SPW_STATUS_OK) {
        return 3;
    }
    if (strcmp(spw_loop_backend_name(loop), "epoll") != 0 ||
        strstr(spw_loop_backend_reason(loop), error_name) == NULL) {
        fprintf(stderr, "auto: \"%s\" does not name %s\n", spw_loop_backend_reason(loop), error_name);
        return 4;
    }
    int count = 0;
    struct spw_loop_task task = {.fn = count_task, .owner = &count};
    spw_loop_post(loop, &task);
    spw_loop_stop(loop);
    if (spw_loop_run(loop, &err) != SPW_STATUS_OK || count != 1) {
        return 5;
    }
    spw_loop_destroy(loop);
    return 0;
}

static void expect_refused(long call, int error, const char *error_name)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        _exit(refused_child((uint32_t)call, (uint32_t)error, error_name));
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_refused_ring_means_epoll_and_says_why(void **state)
{
    (void)state;
    expect_refused(SYS_io_uring_setup, EPERM, "EPERM");
    expect_refused(SYS_io_uring_setup, ENOSYS, "ENOSYS");
    expect_refused(SYS_io_uring_setup, ENOMEM, "ENOMEM");
    expect_refused(SYS_io_uring_enter, EPERM, "EPERM");
    expect_refused(SYS_io_uring_register, EPERM, "io_uring_register");
}

static void test_epoll_without_pwait2(void **state)
{
    (void)state;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct spw_loop *loop = NULL;
        struct spw_loop_timer timer = {.fn = stop_timer};
        if (!forbid(SYS_epoll_pwait2, ENOSYS) || spw_loop_new(SPW_LOOP_EPOLL, &loop, NULL) != SPW_STATUS_OK) {
            _exit(1);
        }
        spw_loop_timer_set(loop, &timer, spw_loop_now_ns(loop) + MS / 2);
        if (spw_loop_run(loop, NULL) != SPW_STATUS_OK) {
            _exit(2);
        }
        spw_loop_destroy(loop);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static int run_group(const char *name)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_backend_names_itself),
        cmocka_unit_test(test_readiness_is_level_triggered),
        cmocka_unit_test(test_interest_changes),
        cmocka_unit_test(test_half_closed_peer_only_for_who_asks),
        cmocka_unit_test(test_close_is_seen_by_the_peer_at_once),
        cmocka_unit_test(test_never_set_watch_closes_nothing),
        cmocka_unit_test(test_reused_number_gets_no_stale_event),
        cmocka_unit_test(test_many_watches),
        cmocka_unit_test(test_timers_fire_in_order),
        cmocka_unit_test(test_timers_cancelled_and_moved),
        cmocka_unit_test(test_timers_changed_inside_timers),
        cmocka_unit_test(test_stages_run_after_all_descriptors_of_a_turn),
        cmocka_unit_test(test_stages_of_timers_and_of_before_the_run),
        cmocka_unit_test(test_stages_without_end_leave_room),
        cmocka_unit_test(test_lag_is_measured),
        cmocka_unit_test(test_no_descriptor_is_left_open),
    };
    return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest choosing[] = {
        cmocka_unit_test(test_refused_ring_means_epoll_and_says_why),
        cmocka_unit_test(test_epoll_without_pwait2),
    };
    int failures = run_on_both(run_group, "loop on epoll", "loop on io_uring");
    if (uring_is_there()) {
        failures += cmocka_run_group_tests_name("choosing", choosing, NULL, NULL);
    }
    return failures;
}
