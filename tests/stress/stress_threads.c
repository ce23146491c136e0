/* stress_threads.c: the same as stress_processes.c in the threads of one process, where the thread sanitizer sees all
 * sides: clients, the publisher of limits and rates, readers of rates, writers and the reader of cells.
 *
 * The sanitizer goes by addresses, and a client maps the files anew: so one client here is made to use the publisher's
 * own mapping. Other clients, each with a mapping of its own, take part as they would in other processes. */
#include "tests/stress/stress.h"

struct job {
    struct spw_state_fixture *f;
    struct shared *page;
    unsigned index;
};

static void *work(void *arg)
{
    const struct job *job = arg;
    worker(job->f, job->page, job->index);
    return NULL;
}

/* One client for several threads, on the publisher's mapping; rates are looked up and orders written meanwhile. */
static struct spw_client shared_client;

/* Report it, or wait for the start of a reservation, or give it up: then it counts as never taken. */
static uint64_t end_call(struct spw_ticket *ticket, uint32_t turn)
{
    if (turn % 8 == 0) {
        spw_give_up(&shared_client, ticket);
        return 1;
    }
    if (ticket->start_at_ns) {
        struct spw_admission a = spw_reservation_confirm(&shared_client, ticket);
        while (a.verdict == SPW_DENY && a.wait_ns && ticket->generation) {
            sched_yield();
            a = spw_reservation_confirm(&shared_client, ticket);
        }
        if (!a.may_call)
            return 1; /* given back meanwhile */
    }
    spw_report(&shared_client, ticket, 200, -1);
    return 0;
}

static void *shared_work(void *arg)
{
    const struct job *job = arg;
    struct shared *page = job->page;
    struct spw_ref ref;
    struct spw_ticket ticket;
    spw_ref_init(&ref, "main", "web");
    for (uint32_t i = 0; !spw_load_acq(&page->stop); i++) {
        uint64_t version = spw_load_acq(&page->version_in_force);
        struct spw_admission a = spw_acquire(&shared_client, &ref, 1, i % 4 ? 0 : 1000000, &ticket);
        page->worker[job->index].tries++;
        page->worker[job->index].admitted += a.verdict == SPW_ALLOW;
        page->worker[job->index].old_versions +=
            a.verdict != SPW_NOT_ATTACHED && a.version && a.version < version;
        if (a.may_call)
            page->worker[job->index].admitted -= end_call(&ticket, i);
        struct spw_rate_record record;
        struct spw_source source;
        enum spw_status status = spw_rate_lookup(&shared_client, "98110", &record, &source);
        if ((status != SPW_STATUS_OK && status != SPW_STATUS_BUSY) ||
            (status == SPW_STATUS_OK && record.combined_ppb != record.state_ppb))
            abort(); /* a mixed record */
        if (i % 16 == 0) {
            char order[32];
            snprintf(order, sizeof order, "o-%u-%u", job->index, i);
            (void)!spw_order_placed(&shared_client, "sq_stress", order, (int64_t)i, "USD");
        }
    }
    return NULL;
}

/* The store thread: every record is whole. */
static void *drain(void *arg)
{
    const struct job *job = arg;
    uint8_t bytes[SPW_CELL_BYTES];
    while (!spw_load_acq(&job->page->stop)) {
        for (uint32_t cursor = 0; spw_cell_next_ready(job->f->map, &cursor); cursor++) {
            struct spw_order_record order;
            size_t count = 0;
            if (spw_cell_read(job->f->map, cursor, bytes, sizeof bytes, &count) != SPW_STATUS_OK ||
                !spw_order_parse(bytes, count, &order) || strcmp(order.quote_id, "sq_stress") != 0)
                abort();
            spw_cell_free(job->f->map, cursor);
        }
        sched_yield();
    }
    return NULL;
}

static void put_rates(struct spw_state_fixture *f, uint32_t ppb)
{
    struct spw_rate_row row;
    struct spw_rates_source source;
    memset(&row, 0, sizeof row);
    memcpy(row.country, "US", 3);
    memcpy(row.state, "WA", 3);
    row.zip5 = 98110;
    row.plus4_lo = row.plus4_hi = 0xFFFF;
    row.state_ppb = row.combined_ppb = ppb;
    memset(&source, 0, sizeof source);
    snprintf(source.name, sizeof source.name, "s%u", ppb);
    source.rows = &row;
    source.rows_count = 1;
    if (spw_state_rates_replace(f->state, &source, 1, NULL, NULL) != SPW_STATUS_OK)
        abort();
}

/* The loop thread: limits, rates, breaker settings, sweep, heartbeat. */
static void publish(struct spw_state_fixture *f, struct shared *page, struct integral *bound, double for_s)
{
    uint64_t end = spw_now_ns() + (uint64_t)(for_s * 1e9);
    for (uint32_t round = 1; spw_now_ns() < end; round++) {
        (void)change_limits(f, page, bound, 0.02, 500);
        put_rates(f, round);
        struct spw_conf_breaker breaker = f->conf->accounts[0].breaker;
        breaker.minimum_count = 1000 + round % 100;
        struct spw_breaker_change change = {&breaker, -1, false, false};
        struct spw_breaker_view view;
        if (spw_state_breaker_set(f->state, "main", &change, 0, false, spw_now_ns(), &view, NULL) !=
            SPW_STATUS_OK)
            abort();
        spw_state_sweep(f->state, spw_now_ns());
        spw_state_heartbeat(f->state, spw_now_ns());
    }
}

int main(void)
{
    enum { OWN = 4, TOGETHER = 4 };
    struct spw_state_fixture f;
    struct shared *page = shared_page();
    struct job job[OWN + TOGETHER + 1];
    pthread_t thread[OWN + TOGETHER + 1];
    spw_state_fixture_make(&f, "limit: {rate: 10000/s, burst: 500, pods: 1}\n    concurrency: 64", NULL);
    put_rates(&f, 1);
    struct spw_attach_options options = {f.pub_dir, f.rw_dir, SPW_UNATTACHED_DENY, 0, 0};
    if (spw_attach(&shared_client, &options) != SPW_STATUS_OK)
        return 1;
    struct spw_map *own_map = shared_client.map;
    /* The publisher's mapping, and an identity of its own: the sidecar's slot is the loop thread's alone. */
    static struct spw_map publishers;
    publishers = *f.map;
    publishers.self = own_map->self;
    shared_client.map = &publishers;
    struct integral bound = {0, 10000, 500, f.map->base_ns};
    for (unsigned i = 0; i < OWN + TOGETHER + 1; i++) {
        job[i] = (struct job){&f, page, i};
        void *(*what)(void *) = i < OWN ? work : i < OWN + TOGETHER ? shared_work : drain;
        if (pthread_create(&thread[i], NULL, what, &job[i]) != 0)
            return 1;
    }
    publish(&f, page, &bound, seconds(2.0));
    spw_store_rel(&page->stop, 1);
    for (unsigned i = 0; i < OWN + TOGETHER + 1; i++)
        pthread_join(thread[i], NULL);
    /* Up to 1 ms of the rate may have been reserved ahead at the end. */
    bool ok = judge("threads", page, OWN + TOGETHER, integral_bound(&bound, spw_now_ns() + 1000000), 1000);
    ok &= spw_limiter_words_at(f.map, 0)->healed_count == 0;
    shared_client.map = own_map;
    spw_detach(&shared_client);
    uint64_t now = spw_now_ns();
    spw_state_sweep(f.state, now);
    ok &= spw_permit_free_count(f.map, 0, 64, now) == 64;
    spw_state_fixture_remove(&f);
    return ok ? 0 : 1;
}
