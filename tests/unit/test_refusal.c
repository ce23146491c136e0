/* test_refusal.c: a refusal, and a look, of the client header writes to no line that another process writes.
 *
 * Shown twice: all bytes of the rw file stay what they were, this process's own statistics excepted; and a client whose
 * whole mapping of it is read-only, so that any store ends the test with SIGSEGV, decides all the same.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "shm/spw_client.h"
#include "tests/support/state_fixture.h"

static struct spw_state_fixture f;
static struct spw_client client;
static struct spw_account_words *words;

#define TIMES 1000

static int set_up(void **state)
{
    (void)state;
    spw_state_fixture_make(&f, "limit: {rate: 1/d, burst: 10, pods: 1}\n    batch_reserve: 20%", NULL);
    const struct spw_attach_options options = {f.pub_dir, f.rw_dir, SPW_UNATTACHED_DENY, 0, 0};
    if (spw_attach(&client, &options) != SPW_STATUS_OK)
        return -1;
    words = spw_account_words_at(f.map, 0);
    return words ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    spw_detach(&client);
    spw_state_fixture_remove(&f);
    return 0;
}

/* Ask as a remembered account and as one looked up anew; all answers are `verdict` with `cause`. */
static void ask(const char *integration, uint64_t tokens, bool peek, enum spw_verdict verdict,
                enum spw_cause cause)
{
    struct spw_ref ref;
    struct spw_ticket ticket;
    spw_state_heartbeat(f.state, spw_now_ns());
    for (int i = 0; i < TIMES; i++) {
        if (i % 10 == 0)
            spw_ref_init(&ref, "main", integration);
        struct spw_admission a =
            peek ? spw_peek(&client, &ref, tokens) : spw_acquire(&client, &ref, tokens, 0, &ticket);
        assert_int_equal(a.verdict, verdict);
        assert_int_equal(a.cause, cause);
    }
}

static void look_at(const char *integration, uint64_t tokens, bool peek, enum spw_verdict verdict,
                    enum spw_cause cause)
{
    struct spw_stats *mine = spw__stats(client.map, 0);
    assert_non_null(mine);
    size_t bytes = client.map->rw_bytes, at = (size_t)((uint8_t *)mine - client.map->rw);
    uint8_t *before = malloc(bytes);
    assert_non_null(before);
    memcpy(before, client.map->rw, bytes);
    ask(integration, tokens, peek, verdict, cause);
    if (!peek) /* they are counted, but in a line of this process's own */
        assert_true(memcmp(before + at, mine, sizeof *mine) != 0);
    memcpy(before + at, mine, sizeof *mine);
    assert_memory_equal(before, client.map->rw, bytes);
    free(before);

    int lock_fd = client.map->self.lock_fd;
    client.map->self.lock_fd = -1; /* as a client that found no slot: it has no line of its own */
    client.map->made_ns++;         /* which is remembered of a map */
    assert_int_equal(mprotect(client.map->rw, bytes, PROT_READ), 0);
    ask(integration, tokens, peek, verdict, cause);
    assert_int_equal(mprotect(client.map->rw, bytes, PROT_READ | PROT_WRITE), 0);
    client.map->self.lock_fd = lock_fd;
    client.map->made_ns++;
}

static void spend(uint64_t tokens)
{
    struct spw_ref ref;
    struct spw_ticket ticket;
    spw_ref_init(&ref, "main", "web");
    assert_true(spw_acquire(&client, &ref, tokens, 0, &ticket).may_call);
}

static void bucket_empty(void **state)
{
    (void)state;
    look_at("web", 1, true, SPW_ALLOW, SPW_CAUSE_NONE);
    look_at("web", 11, false, SPW_NEVER, SPW_CAUSE_COST_ABOVE_BURST);
    spend(8);
    look_at("nightly", 1, false, SPW_DENY, SPW_CAUSE_BATCH_RESERVE);
    spend(2);
    look_at("web", 1, false, SPW_DENY, SPW_CAUSE_BUCKET_EMPTY);
    look_at("web", 1, true, SPW_DENY, SPW_CAUSE_BUCKET_EMPTY);
}

static void gate_shut(void **state)
{
    (void)state;
    uint64_t now_ns = spw_now_ns();
    spw_gate_shut(f.map, words, now_ns + 3600 * SPW_TEST_S, SPW_GATE_RETRY_AFTER, now_ns, now_ns);
    look_at("web", 1, false, SPW_DENY, SPW_CAUSE_GATE_SHUT);
    look_at("web", 1, true, SPW_DENY, SPW_CAUSE_GATE_SHUT);
    spw_gate_shut(f.map, words, now_ns + 7200 * SPW_TEST_S, SPW_GATE_BUFFER_RESET, now_ns + SPW_TEST_S,
                  now_ns);
    look_at("web", 1, false, SPW_DENY, SPW_CAUSE_REMAINING_BELOW_BUFFER);
}

static void breaker_open(void **state)
{
    (void)state;
    struct spw_breaker_change change = {.forced = SPW_FORCED_OPEN};
    struct spw_breaker_view view;
    struct spw_error err;
    struct spw_ref ref;
    struct spw_ticket ticket[5];
    spw_ref_init(&ref, "main", "web");
    for (int i = 0; i < 5; i++)
        assert_true(spw_acquire(&client, &ref, 1, 0, &ticket[i]).may_call);
    for (int i = 0; i < 5; i++)
        spw_report(&client, &ticket[i], 429, -1);
    look_at("web", 1, false, SPW_DENY, SPW_CAUSE_BREAKER_OPEN);
    look_at("web", 1, true, SPW_DENY, SPW_CAUSE_BREAKER_OPEN);
    assert_int_equal(spw_state_breaker_set(f.state, "main", &change, 0, false, spw_now_ns(), &view, &err),
                     SPW_STATUS_OK);
    look_at("web", 1, false, SPW_NEVER, SPW_CAUSE_BREAKER_FORCED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(bucket_empty, set_up, tear_down),
        cmocka_unit_test_setup_teardown(gate_shut, set_up, tear_down),
        cmocka_unit_test_setup_teardown(breaker_open, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
