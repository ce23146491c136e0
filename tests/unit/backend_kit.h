/* backend_kit.h: what the tests of the loop and of what runs on it share: each of them runs on epoll and on io_uring. */
#ifndef SPW_TESTS_BACKEND_KIT_H
#define SPW_TESTS_BACKEND_KIT_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#include "sidecar/loop/loop.h"

#define MS UINT64_C(1000000)

static enum spw_loop_backend backend; /* of the loops that new_loop makes */

static inline void check(enum spw_status status, const struct spw_error *err)
{
    if (status != SPW_STATUS_OK) {
        fail_msg("%s: %s", spw_status_name(status), err->text);
    }
}

static inline struct spw_loop *new_loop(void)
{
    struct spw_loop *loop = NULL;
    struct spw_error err = {0};
    check(spw_loop_new(backend, &loop, &err), &err);
    return loop;
}

static inline void run(struct spw_loop *loop)
{
    struct spw_error err = {0};
    check(spw_loop_run(loop, &err), &err);
}

/* -------- descriptors -------- */

static size_t descriptors_before;

static inline size_t open_descriptors(void)
{
    size_t count = 0;
    DIR *directory = opendir("/proc/self/fd");
    assert_non_null(directory);
    while (readdir(directory) != NULL) {
        count++;
    }
    closedir(directory);
    return count;
}

/* The last test of a group: what the others opened is closed, by a thread of libcurl's a little later perhaps. */
static inline void test_no_descriptor_is_left_open(void **state)
{
    (void)state;
    for (int tries = 0; tries < 3000 && open_descriptors() != descriptors_before; tries++) {
        usleep(10000);
    }
    assert_int_equal(open_descriptors(), descriptors_before);
}

/* -------- both back-ends -------- */

/* false: this machine has none, and says so. */
static inline bool uring_is_there(void)
{
    struct spw_loop *loop = NULL;
    struct spw_error err = {0};
    if (spw_loop_new(SPW_LOOP_URING, &loop, &err) != SPW_STATUS_OK) {
        print_message("no io_uring on this machine, its half is not run: %s\n", err.text);
        return false;
    }
    spw_loop_destroy(loop);
    return true;
}

static inline int run_on_one(enum spw_loop_backend wanted, int (*run_group)(const char *name),
                             const char *name)
{
    backend = wanted;
    descriptors_before = open_descriptors();
    return run_group(name);
}

/* run_group runs a group under the name it is given. Returns how many tests failed. */
static inline int run_on_both(int (*run_group)(const char *name), const char *epoll_name,
                              const char *uring_name)
{
    int failures = run_on_one(SPW_LOOP_EPOLL, run_group, epoll_name);
    if (uring_is_there()) {
        failures += run_on_one(SPW_LOOP_URING, run_group, uring_name);
    }
    return failures;
}

#endif
