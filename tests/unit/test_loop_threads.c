/* test_loop_threads.c: what loop.h promises to other threads: posts, stops and visits, on io_uring and on epoll. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "sidecar/loop/loop.h"
#include "tests/unit/loop_kit.h"

enum { POSTERS = 4, POSTS = 20000 };

struct posting {
    struct spw_loop *loop;
    struct spw_loop_task *tasks;
    uint32_t ran;
    uint32_t *total;
    pthread_t thread;
};

static void on_posted(struct spw_loop *loop, struct spw_loop_task *task)
{
    struct posting *posting = task->owner;
    assert_ptr_equal(task, &posting->tasks[posting->ran]); /* each thread's in the order posted */
    posting->ran++;
    if (++*posting->total == POSTERS * POSTS) {
        spw_loop_stop(loop);
    }
}

static void *post_all(void *argument)
{
    struct posting *posting = argument;
    for (int i = 0; i < POSTS; i++) {
        posting->tasks[i] = (struct spw_loop_task){.fn = on_posted, .owner = posting};
        spw_loop_post(posting->loop, &posting->tasks[i]);
    }
    return NULL;
}

static void test_posts_from_several_threads(void **state)
{
    (void)state;
    struct spw_loop *loop = new_loop();
    struct posting postings[POSTERS];
    uint32_t total = 0;
    for (int i = 0; i < POSTERS; i++) {
        postings[i] = (struct posting){.loop = loop, .total = &total};
        postings[i].tasks = calloc(POSTS, sizeof *postings[i].tasks);
        assert_non_null(postings[i].tasks);
        assert_int_equal(pthread_create(&postings[i].thread, NULL, post_all, &postings[i]), 0);
    }
    run(loop);
    for (int i = 0; i < POSTERS; i++) {
        pthread_join(postings[i].thread, NULL);
        assert_int_equal(postings[i].ran, POSTS);
        free(postings[i].tasks);
    }
    spw_loop_destroy(loop);
}

struct again {
    struct spw_loop_task task;
    int runs;
};

static void on_again(struct spw_loop *loop, struct spw_loop_task *task)
{
    struct again *again = task->owner;
    if (++again->runs == 100) {
        spw_loop_stop(loop);
        return;
    }
    spw_loop_post(loop, task); /* the task is its owner's again inside fn */
}

static void test_task_posts_itself(void **state)
{
    (void)state;
    struct spw_loop *loop = new_loop();
    struct again again = {.task = {.fn = on_again, .owner = &again}};
    spw_loop_post(loop, &again.task);
    run(loop);
    assert_int_equal(again.runs, 100);
    spw_loop_destroy(loop);
}

static void *post_then_stop(void *argument)
{
    struct posting *posting = argument;
    struct timespec ts = {.tv_nsec = 5 * (long)MS};
    nanosleep(&ts, NULL); /* most likely the loop waits by now */
    spw_loop_post(posting->loop, &posting->tasks[0]);
    spw_loop_post(posting->loop, &posting->tasks[1]);
    spw_loop_stop(posting->loop);
    return NULL;
}

static void test_tasks_before_a_stop_are_run(void **state)
{
    (void)state;
    struct spw_loop *loop = new_loop();
    for (int round = 0; round < 20; round++) {
        int count = 0;
        struct spw_loop_task tasks[2] = {{.fn = count_task, .owner = &count},
                                         {.fn = count_task, .owner = &count}};
        struct posting posting = {.loop = loop, .tasks = tasks};
        assert_int_equal(pthread_create(&posting.thread, NULL, post_then_stop, &posting), 0);
        run(loop); /* nothing else would ever end it */
        pthread_join(posting.thread, NULL);
        assert_int_equal(count, 2);
    }
    /* A stop before the run ends it after one turn. */
    spw_loop_stop(loop);
    run(loop);
    spw_loop_destroy(loop);
}

static void *run_elsewhere(void *argument)
{
    run(argument);
    return NULL;
}

static void test_made_here_run_there(void **state)
{
    (void)state;
    struct spw_loop *loop = new_loop();
    int fds[2];
    make_pair(fds);
    struct reader reader;
    reader_init(&reader, 1, 3);
    assert_int_equal(spw_loop_watch_set(loop, &reader.watch, fds[0], SPW_LOOP_READ), SPW_STATUS_OK);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, run_elsewhere, loop), 0);
    assert_int_equal(write(fds[1], "abc", 3), 3);
    pthread_join(thread, NULL);
    assert_int_equal(reader.bytes, 3);
    spw_loop_watch_close(loop, &reader.watch); /* by the thread that takes the sidecar apart */
    spw_loop_destroy(loop);
    char byte;
    assert_int_equal(read(fds[1], &byte, 1), 0);
    close(fds[1]);
}

#define VISITS 2000

struct visiting {
    struct spw_loop *loop;
    struct spw_loop_timer often, far, near;
    uint64_t count; /* plain: a visit and the loop's own turns exclude one another */
    uint64_t last_now_ns;
    bool backwards;
};

static void count_here(struct visiting *v)
{
    v->backwards |= spw_loop_now_ns(v->loop) < v->last_now_ns;
    v->last_now_ns = spw_loop_now_ns(v->loop);
    v->count++;
}

static void on_often(struct spw_loop *loop, struct spw_loop_timer *timer)
{
    count_here(timer->owner);
    spw_loop_timer_set(loop, timer, spw_loop_now_ns(loop) + 10000);
}

static void *visit_often(void *argument)
{
    struct visiting *v = argument;
    for (int done = 0; done < VISITS;) {
        if (!spw_loop_enter(v->loop))
            continue; /* a turn is under way */
        count_here(v);
        done++;
        spw_loop_leave(v->loop);
    }
    spw_loop_stop(v->loop);
    return NULL;
}

static void test_visits_exclude_turns(void **state)
{
    (void)state;
    struct spw_loop *loop = new_loop();
    struct visiting v = {.loop = loop, .often = {.fn = on_often}};
    v.often.owner = &v;
    assert_false(spw_loop_enter(loop)); /* it does not run yet */
    spw_loop_timer_set(loop, &v.often, 0);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, visit_often, &v), 0);
    run(loop);
    pthread_join(thread, NULL);
    assert_false(spw_loop_enter(loop)); /* and not any more */
    assert_true(v.count > VISITS);
    assert_false(v.backwards);
    spw_loop_destroy(loop);
}

static void *arm_near(void *argument)
{
    struct visiting *v = argument;
    while (!spw_loop_enter(v->loop))
        continue;
    spw_loop_timer_set(v->loop, &v->near, spw_loop_now_ns(v->loop) + MS);
    spw_loop_leave(v->loop);
    return NULL;
}

/* The loop sleeps for an hour; a visitor's timer, sooner than that, ends it. */
static void test_a_visitor_wakes_a_loop_that_sleeps_too_long(void **state)
{
    (void)state;
    struct spw_loop *loop = new_loop();
    struct visiting v = {.loop = loop, .far = {.fn = stop_timer}, .near = {.fn = stop_timer}};
    spw_loop_timer_set(loop, &v.far, spw_loop_now_ns(loop) + 3600000 * MS);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, arm_near, &v), 0);
    run(loop);
    pthread_join(thread, NULL);
    assert_true(spw_loop_timer_armed(&v.far));
    spw_loop_destroy(loop);
}

static int run_group(const char *name)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_posts_from_several_threads),
        cmocka_unit_test(test_task_posts_itself),
        cmocka_unit_test(test_tasks_before_a_stop_are_run),
        cmocka_unit_test(test_made_here_run_there),
        cmocka_unit_test(test_visits_exclude_turns),
        cmocka_unit_test(test_a_visitor_wakes_a_loop_that_sleeps_too_long),
        cmocka_unit_test(test_no_descriptor_is_left_open),
    };
    return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}

int main(void)
{
    return run_on_both(run_group, "loop and threads on epoll", "loop and threads on io_uring");
}
