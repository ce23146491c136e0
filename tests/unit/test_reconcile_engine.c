/* test_reconcile_engine.c: an hour of fallbacks reconciled on a virtual clock, beside a checkout that goes on.
 *
 * The engine, the admission in the segment, the ledger and the provider's limiter are the real ones; only time and the way
 * to the provider are made here: 10,000 orders at a limit of 100/s, of which checkout takes 80.
 */
#include "tests/unit/store_kit.h"

#include <stdio.h>
#include <string.h>

#include "shm/spw_ref.h"
#include "sidecar/mock/limiter.h"
#include "sidecar/provider/signals.h"
#include "sidecar/reconcile/engine.h"
#include "sidecar/store/reconcile_rows.h"

#define SECOND_NS  UINT64_C(1000000000)
#define MS         UINT64_C(1000000)
#define LATENCY_NS (40 * MS)
#define CALLS_MAX  64
#define EPOCH_MS   INT64_C(1764331200000) /* 2025-11-28 12:00 UTC */
#define WITHIN_NS  (3600 * SECOND_NS)
#define ROWS       UINT64_C(10000)
#define UNDER      (ROWS / 4) /* of which 6 cents too little were collected; the cap takes 2,500 of them */

static const char conf_text[] = "accounts:\n"
                                "  main:\n"
                                "    provider: taxjar\n"
                                "    credentials: {api_key_env: UNUSED}\n"
                                "    limit: {rate: %u/s, burst: %u, pods: 1}\n"
                                "    integrations: {web: checkout}\n"
                                "reconcile: {within: 60m, filing: off, absorb_under: 0.50/order,"
                                " absorb_period: 150.00/day}\n";

struct flying {
    bool used;
    uint64_t at_ns;
    bool refused;
    struct spw_errand_call call;
};

struct world {
    struct kit *kit;
    struct spw_loop *loop;
    struct spw_store *store;
    struct spw_conf *conf;
    struct spw_state *state;
    struct spw_reconcile *reconcile;
    struct spw_mock_limiter limiter;
    uint64_t now_ns, begun_ns, allowed, answered_count, refused_429, checkout_refused;
    bool woken;
    struct flying flying[CALLS_MAX];
};

static uint64_t world_now(void *owner)
{
    return ((struct world *)owner)->now_ns;
}

static int64_t world_wall(void *owner)
{
    const struct world *w = owner;
    return EPOCH_MS + (int64_t)((w->now_ns - w->begun_ns) / MS);
}

static uint64_t world_random(void *owner)
{
    return world_now(owner) * UINT64_C(6364136223846793005);
}

static void world_wake(void *owner)
{
    ((struct world *)owner)->woken = true;
}

static uint64_t world_allowed(void *owner, uint32_t account)
{
    (void)account;
    return ((struct world *)owner)->allowed;
}

static bool world_credential(void *owner, uint32_t account, struct spw_credential *out)
{
    (void)owner, (void)account;
    *out = (struct spw_credential){.user = "", .secret = "key"};
    return true;
}

/* The provider's limiter sees the call at once and answers after a moment. */
static bool world_send(void *owner, const struct spw_errand_call *call)
{
    struct world *w = owner;
    for (int i = 0; i < CALLS_MAX; i++) {
        if (w->flying[i].used)
            continue;
        bool passed = spw_mock_limiter_take(&w->limiter, w->now_ns).is_allowed;
        w->allowed++;
        w->refused_429 += !passed;
        w->flying[i] =
            (struct flying){.used = true, .at_ns = w->now_ns + LATENCY_NS, .refused = !passed, .call = *call};
        spw_call_clean_up(call->call);
        return true;
    }
    return false;
}

static struct spw_line one_line = {.id = "1", .quantity_micro = 1000000, .amount_minor = 10000};

static void *world_parse(const char *json, struct spw_quote_request *out)
{
    (void)json;
    memset(out, 0, sizeof *out);
    out->ship_from = (struct spw_address){.country = "US", .state = "TX", .zip = "75201"};
    out->ship_to = (struct spw_address){.country = "US", .state = "WA", .zip = "98110"};
    out->shipping_minor = 795;
    out->lines = &one_line;
    out->line_count = 1;
    return &one_line;
}

static void world_parsed_free(void *parsed)
{
    (void)parsed;
}

/* Every fourth order's rate is higher by now: six cents too little were collected. */
static void answer(struct world *w, struct flying *f)
{
    static const char form[] =
        "{\"tax\":{\"amount_to_collect\":%s,\"has_nexus\":true,\"freight_taxable\":true,\"rate\":%s,"
        "\"taxable_amount\":107.95,\"breakdown\":{\"shipping\":{\"taxable_amount\":7.95,\"tax_collectable\":%"
        "s,"
        "\"combined_tax_rate\":%s},\"line_items\":[{\"id\":\"1\",\"taxable_amount\":100.0,"
        "\"tax_collectable\":%s,\"combined_tax_rate\":%s}]}}}";
    char body[sizeof form + 64];
    bool up = !f->refused && w->answered_count++ % 4 == 3;
    const char *rate = up ? "0.0925" : "0.092";
    int bytes = f->refused ? snprintf(body, sizeof body, "{}")
                           : snprintf(body, sizeof body, form, up ? "9.99" : "9.93", rate,
                                      up ? "0.74" : "0.73", rate, up ? "9.25" : "9.20", rate);
    struct spw_errand_answer a = {.answered = true,
                                  .status = f->refused ? 429 : 200,
                                  .headers = "",
                                  .body = body,
                                  .body_bytes = (size_t)bytes,
                                  .detail = ""};
    struct spw_call_end end = {.outcome = SPW_OUTCOME_NEUTRAL};
    f->used = false;
    end.outcome = spw_answer_outcome(f->call.answered(f->call.owner, &a), a.status);
    (void)spw_settle(spw_state_map(w->state), &f->call.ticket, w->now_ns, &end);
}

/* One checkout call that lasts no time. */
static void checkout(struct world *w)
{
    struct spw_ref ref;
    struct spw_ticket ticket;
    spw_ref_init(&ref, "main", "web");
    assert_true(spw__ref_find(spw_state_map(w->state), &ref));
    struct spw_admission a = spw_admit(spw_state_map(w->state), ref.account_index, ref.account_generation,
                                       spw_ref_flags(&ref), 1, 0, w->now_ns, &ticket);
    if (!a.may_call) {
        w->checkout_refused++;
        return;
    }
    struct spw_call_end end = {.outcome = SPW_OUTCOME_OK};
    w->allowed++;
    w->refused_429 += !spw_mock_limiter_take(&w->limiter, w->now_ns).is_allowed;
    (void)spw_settle(spw_state_map(w->state), &ticket, w->now_ns, &end);
}

static void stop_loop(struct spw_store_job *job)
{
    spw_loop_stop(((struct world *)job->owner)->loop);
}

static int nothing(struct spw_batch *batch, struct spw_store_job *job)
{
    (void)batch, (void)job;
    return SQLITE_OK;
}

/* Everything handed to the ledger so far is done, and its answers were taken. */
static void settle(struct world *w)
{
    struct spw_error err;
    do {
        struct spw_store_job last = {.done = stop_loop, .owner = w};
        w->woken = false;
        spw_store_submit(w->store, &last, nothing);
        assert_int_equal(SPW_STATUS_OK, spw_loop_run(w->loop, &err));
        if (w->woken)
            (void)spw_reconcile_turn(w->reconcile);
    } while (w->woken);
}

static void run(struct world *w, uint64_t checkout_gap_ns, uint64_t until_ns)
{
    uint64_t checkout_ns = w->now_ns;
    struct spw_store_counts counts;
    while (w->now_ns < until_ns) {
        uint64_t next_ns = spw_reconcile_turn(w->reconcile);
        settle(w);
        next_ns = spw_reconcile_turn(w->reconcile) < next_ns ? spw_reconcile_turn(w->reconcile) : next_ns;
        spw_store_counts(w->store, &counts);
        if (counts.by_reconcile[SPW_RECONCILE_NONE] + counts.by_reconcile[SPW_RECONCILE_PENDING] == 0)
            return;
        for (int i = 0; i < CALLS_MAX; i++) {
            if (w->flying[i].used && w->flying[i].at_ns < next_ns)
                next_ns = w->flying[i].at_ns;
        }
        while (checkout_gap_ns && checkout_ns <= next_ns) {
            w->now_ns = checkout_ns > w->now_ns ? checkout_ns : w->now_ns;
            checkout(w);
            checkout_ns += checkout_gap_ns;
        }
        w->now_ns = next_ns > w->now_ns ? next_ns : w->now_ns + MS;
        for (int i = 0; i < CALLS_MAX; i++) {
            if (w->flying[i].used && w->flying[i].at_ns <= w->now_ns)
                answer(w, &w->flying[i]);
        }
    }
}

static void fill(struct world *w, uint64_t rows)
{
    kit_open(w->kit);
    for (uint64_t i = 0; i < rows; i++) {
        struct spw_flag_record record;
        struct spw_line_tax lines[2];
        char tag[32], order[40];
        snprintf(tag, sizeof tag, "t%llu", (unsigned long long)i);
        snprintf(order, sizeof order, "o-%s", tag);
        spw_fixture_flag(&w->kit->segment.map, &record, lines, tag);
        record.created_unix_ms = EPOCH_MS - 60000;
        kit_flag_with(w->kit, &record, "{}");
        kit_order(w->kit, SPW_ORDER_PLACED, order, tag, "main", 993, EPOCH_MS - 60000);
        if (i % 100 == 99)
            kit_settle(w->kit);
    }
    kit_settle(w->kit);
    kit_close(w->kit);
}

static void begin(struct world *w, struct kit *kit, uint64_t rows, uint32_t per_s)
{
    char text[sizeof conf_text + 32];
    struct spw_error err = {0};
    const struct spw_rate limit = {.tokens_count = per_s, .period_ns = SECOND_NS};
    memset(w, 0, sizeof *w);
    w->kit = kit;
    fill(w, rows);
    w->begun_ns = w->now_ns = 1000 * SECOND_NS;
    int bytes = snprintf(text, sizeof text, conf_text, per_s, per_s);
    assert_int_equal(SPW_STATUS_OK, spw_conf_parse("t.yaml", text, (size_t)bytes, &w->conf, &err));
    assert_int_equal(SPW_STATUS_OK, spw_state_open_private(w->conf, w->now_ns, &w->state, &err));
    assert_int_equal(SPW_STATUS_OK, spw_loop_new(SPW_LOOP_EPOLL, &w->loop, &err));
    struct spw_store_options options = {
        .file = kit->file,
        .map = &kit->segment.map,
        .loop = w->loop,
        .care = {.unplaced_after_ms = INT64_MAX / 2, .stuck_after_ms = INT64_MAX / 2}};
    assert_int_equal(SPW_STATUS_OK, spw_store_open(&options, &w->store, &err));
    spw_mock_limiter_init(&w->limiter, &limit, SPW_MOCK_BUCKET, per_s);
    struct spw_reconcile_options r = {.conf = w->conf,
                                      .state = w->state,
                                      .store = w->store,
                                      .ops = {.owner = w,
                                              .wake_owner = w,
                                              .now_ns = world_now,
                                              .wall_ms = world_wall,
                                              .random = world_random,
                                              .wake = world_wake,
                                              .allowed_count = world_allowed,
                                              .credential = world_credential,
                                              .send = world_send,
                                              .parse = world_parse,
                                              .parsed_free = world_parsed_free}};
    assert_int_equal(SPW_STATUS_OK, spw_reconcile_new(&r, &w->reconcile, &err));
}

static void end(struct world *w)
{
    spw_reconcile_stop(w->reconcile);
    spw_store_close(w->store);
    spw_reconcile_destroy(w->reconcile);
    spw_state_close(w->state, false);
    spw_loop_destroy(w->loop);
    spw_conf_destroy(w->conf);
}

static void an_hour_of_fallbacks_beside_checkout(void **state)
{
    struct world w;
    begin(&w, *state, ROWS, 100);
    run(&w, SECOND_NS / 80, w.begun_ns + WITHIN_NS);
    struct spw_store_counts counts;
    struct spw_reconcile_status status;
    spw_store_counts(w.store, &counts);
    spw_reconcile_status(w.reconcile, 0, &status);
    assert_int_equal(ROWS - UNDER, counts.by_reconcile[SPW_RECONCILE_NOISE]);
    assert_int_equal(UNDER, counts.by_reconcile[SPW_RECONCILE_ABSORBED_UNDER]);
    assert_int_equal(0, w.refused_429);
    assert_int_equal(0, w.checkout_refused);
    assert_true(w.now_ns < w.begun_ns + WITHIN_NS);
    assert_int_equal(ROWS, status.calls_total);
    assert_false(status.forecast.late);
    end(&w);
}

static void a_checkout_that_takes_all_alarms_at_once(void **state)
{
    struct world w;
    struct spw_reconcile_status status;
    begin(&w, *state, 200, 100);
    run(&w, SECOND_NS / 100, w.begun_ns + 11 * SECOND_NS);
    spw_reconcile_status(w.reconcile, 0, &status);
    assert_true(status.forecast.late);
    assert_int_equal(0, w.refused_429);
    end(&w);
}

/* What a disk takes for a commit is no part of this: where there is a file system in memory the ledger lies there. */
static int set_up(void **state)
{
    if (access("/dev/shm", W_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 1);
    int failed = kit_set_up_cells(state, 1024);
    alarm(0); /* as long as it takes */
    return failed;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_hour_of_fallbacks_beside_checkout, set_up, kit_tear_down),
        cmocka_unit_test_setup_teardown(a_checkout_that_takes_all_alarms_at_once, set_up, kit_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
