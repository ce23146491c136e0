/* test_client_fork.c: a client that was attached before its process forked, as pre-loading web servers do (FFI-H1). */
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "shm/spw_client.h"
#include "tests/support/state_fixture.h"

#define WORKERS 4

static struct spw_state_fixture f;
static struct spw_client client;

static int set_up(void **state)
{
    (void)state;
    spw_state_fixture_make(&f, "limit: {rate: 1/s, burst: 1000, pods: 1}\n    concurrency: 8", NULL);
    spw_state_fixture_set(&f, 0, SPW_TEST_S, 1000, spw_now_ns());
    struct spw_attach_options options = {f.pub_dir, f.rw_dir, SPW_UNATTACHED_DENY, 0, 0};
    return spw_attach(&client, &options) == SPW_STATUS_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    spw_detach(&client);
    spw_state_fixture_remove(&f);
    return 0;
}

static uint64_t in_hand(void)
{
    struct spw_limit_view view;
    assert_int_equal(spw_state_limit_get(f.state, "main", spw_now_ns(), &view, NULL), SPW_STATUS_OK);
    return view.tokens_milli / 1000;
}

static uint32_t permits_free(void)
{
    return spw_permit_free_count(f.map, 0, 8, spw_now_ns());
}

/* What a worker tells its parent. */
struct told {
    uint32_t slot, generation, has_slot, taken, refused;
};

static void work(int out, const struct spw_ticket *parents)
{
    struct told told = {client.map->self.slot, client.map->self.generation, client.map->self.lock_fd >= 0, 0,
                        0};
    struct spw_ref ref;
    struct spw_ticket ticket;
    spw_ref_init(&ref, "main", "web");
    /* A worker that reports its parent's call, by mistake, frees nothing of its parent's. */
    spw_report(&client, parents, 200, -1);
    for (uint32_t i = 0; i < 100;) {
        if (spw_acquire(&client, &ref, 1, 0, &ticket).may_call) {
            spw_report(&client, &ticket, 200, -1);
            told.taken++;
            i++;
        } else if (told.refused++ > 1000000) {
            break; /* all permits are with the others for longer than can be */
        }
    }
    (void)!write(out, &told, sizeof told);
}

static void four_workers(void **state)
{
    struct spw_ref ref;
    struct spw_ticket ticket, held;
    int out[2];
    (void)state;
    spw_ref_init(&ref, "main", "web");
    for (int i = 0; i < 3; i++) {
        assert_true(spw_acquire(&client, &ref, 1, 0, &ticket).may_call);
        if (i == 2)
            held = ticket;
        else
            spw_report(&client, &ticket, 200, -1);
    }
    assert_int_equal(permits_free(), 7);
    assert_int_equal(pipe(out), 0);
    for (int i = 0; i < WORKERS; i++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            work(out[1], &held);
            _exit(0);
        }
    }
    struct told told[WORKERS];
    for (int i = 0; i < WORKERS; i++) {
        int status = 0;
        assert_int_equal(read(out[0], &told[i], sizeof told[i]), sizeof told[i]);
        assert_true(wait(&status) > 0);
        assert_int_equal(status, 0);
    }
    close(out[0]);
    close(out[1]);
    for (int i = 0; i < WORKERS; i++) {
        assert_int_equal(told[i].taken, 100);
        assert_true(told[i].has_slot);
        assert_false(told[i].slot == client.map->self.slot &&
                     told[i].generation == client.map->self.generation);
        for (int k = 0; k < i; k++)
            assert_false(told[i].slot == told[k].slot && told[i].generation == told[k].generation);
    }
    assert_int_equal(in_hand(), 1000 - 403);
    assert_int_equal(permits_free(), 7); /* the parent still holds its own */
    spw_state_sweep(f.state, spw_now_ns());
    assert_int_equal(permits_free(), 7);
    spw_report(&client, &held, 200, -1);
    assert_int_equal(permits_free(), 8);
    struct spw_state_status status;
    spw_state_status(f.state, &status);
    assert_int_equal(status.attached_count, 1); /* the workers' slots came back, the parent's is held */
}

/* The parent goes first: its slot comes back although a worker inherited its open files. */
static void parent_dies_first(void **state)
{
    int hold[2], out[2];
    struct spw_state_status status;
    (void)state;
    spw_detach(&client);
    spw_state_sweep(f.state, spw_now_ns());
    assert_int_equal(pipe(hold), 0);
    assert_int_equal(pipe(out), 0);
    pid_t parent = fork();
    assert_true(parent >= 0);
    if (parent == 0) {
        struct spw_attach_options options = {f.pub_dir, f.rw_dir, SPW_UNATTACHED_DENY, 0, 0};
        if (spw_attach(&client, &options) != SPW_STATUS_OK)
            _exit(1);
        if (fork() == 0) {
            char byte;
            close(hold[1]);
            (void)!write(out[1], "x", 1);
            (void)!read(hold[0], &byte, 1); /* lives until told */
            _exit(0);
        }
        _exit(0); /* without a word to spillway */
    }
    char byte;
    assert_int_equal(read(out[0], &byte, 1), 1);
    assert_int_equal(waitpid(parent, NULL, 0), parent);
    close(hold[0]);
    spw_state_status(f.state, &status);
    assert_int_equal(status.attached_count, 2);
    spw_state_sweep(f.state, spw_now_ns());
    spw_state_status(f.state, &status);
    assert_int_equal(status.attached_count, 1);
    close(hold[1]);
    for (int i = 0; i < 2000 && status.attached_count; i++) {
        usleep(1000);
        spw_state_sweep(f.state, spw_now_ns());
        spw_state_status(f.state, &status);
    }
    assert_int_equal(status.attached_count, 0);
    close(out[0]);
    close(out[1]);
}

/* Children of children, and ids: no two processes mint the same. */
static void grandchildren(void **state)
{
    int out[2];
    (void)state;
    assert_int_equal(pipe(out), 0);
    uint64_t ids[9][2];
    for (int i = 0; i < 3; i++) {
        if (fork() == 0) {
            for (int k = 0; k < 2; k++) {
                if (fork() == 0) {
                    uint64_t id[2] = {client.id_high, client.id_low};
                    (void)!write(out[1], id, sizeof id);
                    _exit(0);
                }
            }
            uint64_t id[2] = {client.id_high, client.id_low};
            (void)!write(out[1], id, sizeof id);
            while (wait(NULL) > 0)
                ;
            _exit(0);
        }
    }
    for (int i = 0; i < 9; i++)
        assert_int_equal(read(out[0], ids[i], sizeof ids[i]), sizeof ids[i]);
    while (wait(NULL) > 0)
        ;
    for (int i = 0; i < 9; i++) {
        assert_true(ids[i][0] != client.id_high);
        for (int k = 0; k < i; k++)
            assert_true(ids[i][0] != ids[k][0]);
    }
    close(out[0]);
    close(out[1]);
    spw_state_sweep(f.state, spw_now_ns());
    struct spw_state_status status;
    spw_state_status(f.state, &status);
    assert_int_equal(status.attached_count, 1);
}

/* A process that is pid 1 where it lives: its slot and permit are held while it lives and come back when it is killed,
 * though its pid says nothing here. */
static void another_pid_namespace(void **state)
{
    int told[2];
    char byte = 0;
    (void)state;
    assert_int_equal(pipe(told), 0);
    pid_t maker = fork();
    assert_true(maker >= 0);
    if (maker == 0) {
        if (unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0)
            _exit(77);
        pid_t inner = fork();
        if (inner == 0) {
            struct spw_ref ref;
            struct spw_ticket ticket;
            spw_ref_init(&ref, "main", "web");
            byte = getpid() == 1 && spw_acquire(&client, &ref, 1, 0, &ticket).may_call ? 'y' : 'n';
            (void)!write(told[1], &byte, 1);
            for (;;)
                pause();
        }
        int status = 0;
        waitpid(inner, &status, 0);
        _exit(0);
    }
    close(told[1]);
    if (read(told[0], &byte, 1) != 1) {
        close(told[0]);
        waitpid(maker, NULL, 0);
        print_message("user or pid namespaces are not allowed here\n");
        skip();
    }
    close(told[0]);
    assert_int_equal(byte, 'y');
    uint64_t now = spw_now_ns();
    spw_state_sweep(f.state, now);
    struct spw_state_status status;
    spw_state_status(f.state, &status);
    uint32_t attached = status.attached_count;
    assert_true(attached >= 2);
    assert_int_equal(spw_permit_free_count(f.map, 0, 8, now), 7);
    /* The inner one is found by its parent, in this namespace, and killed. */
    char path[64], line[64] = "";
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)maker, (int)maker);
    FILE *children = fopen(path, "r");
    if (!children || !fgets(line, sizeof line, children)) {
        kill(maker, SIGKILL);
        print_message("this kernel does not tell a process's children\n");
        skip();
    }
    fclose(children);
    assert_int_equal(kill((pid_t)strtol(line, NULL, 10), SIGKILL), 0);
    assert_int_equal(waitpid(maker, NULL, 0), maker);
    spw_state_sweep(f.state, now);
    assert_int_equal(spw_permit_free_count(f.map, 0, 8, now), 8);
    spw_state_status(f.state, &status);
    assert_int_equal(status.attached_count, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(four_workers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(parent_dies_first, set_up, tear_down),
        cmocka_unit_test_setup_teardown(grandchildren, set_up, tear_down),
        cmocka_unit_test_setup_teardown(another_pid_namespace, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
