/* engine.c: see engine.h: which rows are due, pacing, and the calls. Thread: the loop thread. */
#include "sidecar/reconcile/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "shm/spw_backoff.h"
#include "shm/spw_rates.h"
#include "sidecar/obs/log.h"
#include "sidecar/provider/decimal.h"
#include "sidecar/reconcile/engine_internal.h"

#define MS              UINT64_C(1000000)
#define SECOND_NS       UINT64_C(1000000000)
#define LEASE_MS        60000
#define LEASE_LEFT_MS   20000 /* less is no time for a call */
#define DEADLINE_NS     (10 * SECOND_NS)
#define CALLS_MAX_COUNT 16u /* in flight for one account: a batch of 25 each is plenty */
#define WORKS_MAX_COUNT 64u
#define AHEAD_S         15u /* of work is claimed */
#define IDLE_NS         SECOND_NS
#define OTHERS_NS       (60 * SECOND_NS) /* between two looks for rows of accounts that are gone */
#define SAMPLE_NS       (5 * SECOND_NS)
#define PROBE_NS        (2 * SECOND_NS) /* a probe is left to checkout so long */
#define WAIT_MIN_NS     (2 * MS)
#define RETRY_BASE_NS   (SECOND_NS / 2)
#define RETRY_MOST_NS   (600 * SECOND_NS)

struct errand {
    struct spw_reconcile_account *account;
    uint32_t count;
    struct spw_work *works[SPW_DUE_MAX_COUNT];
};

static uint64_t now_of(const struct spw_reconcile *r)
{
    return r->options.ops.now_ns(r->options.ops.owner);
}

static int64_t wall_of(const struct spw_reconcile *r)
{
    return r->options.ops.wall_ms(r->options.ops.owner);
}

/* ---- works ---- */

int64_t spw_work_again_ms(const struct spw_work *work, uint32_t tries)
{
    const struct spw_reconcile_ops *ops = &work->account->engine->options.ops;
    uint64_t wait_ns = spw_backoff_ns(SPW_JITTER_EQUAL, RETRY_BASE_NS, RETRY_MOST_NS, tries ? tries - 1 : 0,
                                      ops->random(ops->owner));
    return spw_work_wall_ms(work) + (int64_t)(wait_ns / MS);
}

void spw_work_queue(struct spw_work *work)
{
    struct spw_reconcile_account *a = work->account;
    struct spw_reconcile_ops *ops = &a->engine->options.ops;
    work->queue_next = NULL;
    *a->queue_end = work;
    a->queue_end = &work->queue_next;
    a->queue_count++;
    ops->wake(ops->wake_owner);
}

static struct spw_work *work_take(struct spw_reconcile_account *a, struct spw_work **at)
{
    struct spw_work *work = *at;
    *at = work->queue_next;
    if (a->queue_end == &work->queue_next)
        a->queue_end = at;
    a->queue_count--;
    work->queue_next = NULL;
    return work;
}

void spw_work_free(struct spw_work *work)
{
    struct spw_reconcile_account *a = work->account;
    struct spw_reconcile_ops *ops = &a->engine->options.ops;
    if (work->parsed)
        ops->parsed_free(work->parsed);
    if (work->next)
        work->next->previous = work->previous;
    if (work->previous)
        work->previous->next = work->next;
    else
        a->works = work->next;
    a->works_count[work->kind]--;
    free(work->row);
    free(work);
    if (!a->engine->stopped)
        ops->wake(ops->wake_owner);
}

static bool is_under_way(const struct spw_reconcile_account *a, const struct spw_flag_row *row)
{
    for (const struct spw_work *work = a->works; work; work = work->next) {
        if (work->row->sequence == row->sequence)
            return true;
    }
    return false;
}

/* Takes the row over. */
static void work_new(struct spw_reconcile_account *a, enum spw_due kind, struct spw_flag_row *row)
{
    const struct spw_reconcile_ops *ops = &a->engine->options.ops;
    struct spw_work *work = is_under_way(a, row) ? NULL : calloc(1, sizeof *work);
    if (!work) { /* under way already, or no memory: it is due again after the lease */
        free(row);
        return;
    }
    work->account = a;
    work->kind = kind;
    work->row = row;
    work->revision = row->revision;
    work->lease_unix_ms = kind == SPW_DUE_RECONCILE ? row->reconciliation.next_try_unix_ms
                                                    : row->reconciliation.filing_next_unix_ms;
    work->next = a->works;
    if (a->works)
        a->works->previous = work;
    a->works = work;
    a->works_count[kind]++;
    work->parsed = ops->parse(row->request_json, &work->quote);
    if (row->record.date[0])
        snprintf(work->date, sizeof work->date, "%.11s", row->record.date);
    else
        spw_format_day(spw_address_day(&work->quote.ship_to, row->record.created_unix_ms), work->date,
                       sizeof work->date);
    work->quote.date = work->date;
    work->quote.account = row->record.account;
    if (kind == SPW_DUE_RECONCILE)
        spw_calculate_begin(work);
    else
        spw_file_begin(work);
}

/* ---- claiming ---- */

static void due_done(struct spw_store_job *job)
{
    struct spw_reconcile_account *a = job->owner;
    struct spw_reconcile *engine = a->engine;
    struct spw_due_request *request = (struct spw_due_request *)(void *)job;
    enum spw_due kind = request->what;
    uint32_t count = request->rows_count;
    a->due_busy[kind] = false;
    bool all = job->error.status != SPW_STATUS_OK || count < request->max_count;
    if (job->error.status == SPW_STATUS_OK && all)
        a->recovering[kind] = false;
    a->due_at_ns[kind] = all ? now_of(engine) + (a->profile ? IDLE_NS : OTHERS_NS) : 0;
    for (uint32_t i = 0; i < count && !engine->stopped; i++) {
        work_new(a, kind, request->rows[i]);
        request->rows[i] = NULL;
    }
    if (engine->stopped)
        spw_due_rows_free(request);
    request->rows_count = 0;
    if (!engine->stopped)
        engine->options.ops.wake(engine->options.ops.wake_owner);
}

/* How many rows may be under way: what the pace does in some seconds. */
static uint32_t ahead_of(const struct spw_reconcile_account *a)
{
    uint64_t pace = a->status.forecast.pace_milli_per_s;
    if (!a->profile)
        return WORKS_MAX_COUNT;
    uint64_t batch = a->profile->batch_max_count ? a->profile->batch_max_count : 1;
    if (!pace || pace / 1000 >= WORKS_MAX_COUNT / AHEAD_S)
        return WORKS_MAX_COUNT;
    uint64_t rows = pace * AHEAD_S / 1000 * batch;
    return rows > WORKS_MAX_COUNT ? WORKS_MAX_COUNT : rows < 4 ? 4 : (uint32_t)rows;
}

static void claim(struct spw_reconcile_account *a, enum spw_due kind, uint64_t now_ns)
{
    struct spw_due_request *request = &a->due[kind];
    uint32_t ahead = ahead_of(a), under_way = a->works_count[kind];
    if (a->due_busy[kind] || now_ns < a->due_at_ns[kind] || under_way > ahead / 2)
        return;
    memset(request, 0, sizeof *request);
    request->job.done = due_done;
    request->job.owner = a;
    request->what = kind;
    request->max_count = ahead - under_way;
    /* What a former process claimed and did not finish is taken at once: all that is due before a lease of this process's
     * start would be over, and up to that instant, so that the next process finds it in the same way. */
    if (a->recovering[kind] && wall_of(a->engine) > a->engine->recover_unix_ms - LEASE_MS / 2)
        a->recovering[kind] = false;
    request->lease_ms = a->recovering[kind] ? 1 : LEASE_MS;
    request->now_unix_ms = a->recovering[kind] ? a->engine->recover_unix_ms : wall_of(a->engine);
    if (a->profile)
        snprintf(request->account, sizeof request->account, "%s", a->conf->name);
    else
        request->but = a->engine->names;
    a->due_busy[kind] = true;
    spw_store_due(a->engine->options.store, request);
}

/* ---- calls ---- */

static enum spw_answer_kind errand_answered(void *owner, const struct spw_errand_answer *answer)
{
    struct errand *errand = owner;
    struct spw_reconcile_account *a = errand->account;
    enum spw_answer_kind kind = SPW_ANSWER_BROKEN;
    a->calls_count--;
    if (!a->engine->stopped) {
        kind = errand->works[0]->step == SPW_STEP_CALCULATE
                   ? spw_calculate_answered(errand->works, errand->count, answer)
                   : spw_file_answered(errand->works[0], answer);
        a->engine->options.ops.wake(a->engine->options.ops.wake_owner);
    }
    free(errand);
    return kind;
}

/* The head of the queue, and with it what one batch call takes: orders of one day. */
static void gather(struct spw_reconcile_account *a, struct errand *errand)
{
    struct spw_work *head = work_take(a, &a->queue);
    errand->works[errand->count++] = head;
    if (head->step != SPW_STEP_CALCULATE || head->alone || !a->profile->build_batch)
        return;
    for (struct spw_work **at = &a->queue;
         *at && errand->count < a->profile->batch_max_count && errand->count < SPW_DUE_MAX_COUNT;) {
        if ((*at)->step == SPW_STEP_CALCULATE && !(*at)->alone && strcmp((*at)->date, head->date) == 0)
            errand->works[errand->count++] = work_take(a, at);
        else
            at = &(*at)->queue_next;
    }
}

static enum spw_status build(struct errand *errand, const struct spw_credential *credential,
                             struct spw_call *out, struct spw_error *err)
{
    const struct spw_profile *profile = errand->account->profile;
    const struct spw_conf_account *conf = errand->account->conf;
    struct spw_work *head = errand->works[0];
    const struct spw_quote_request *quotes[SPW_DUE_MAX_COUNT];
    const char *keys[SPW_DUE_MAX_COUNT];
    char key[SPW_ID_BYTES + 16];
    if (head->step != SPW_STEP_CALCULATE)
        return spw_file_build(head, credential, out, err);
    if (errand->count == 1) { /* a key of its own for each try: a provider may keep a failure under it */
        snprintf(key, sizeof key, "%s-%u", head->row->record.quote_id, head->row->reconciliation.attempts);
        return profile->build(&head->quote, conf, credential, key, out, err);
    }
    for (uint32_t i = 0; i < errand->count; i++) {
        quotes[i] = &errand->works[i]->quote;
        keys[i] = errand->works[i]->row->record.quote_id;
    }
    return profile->build_batch(quotes, errand->count, conf, credential, keys, out, err);
}

/* A work that cannot be told as a request of the provider. */
static void cannot_build(struct errand *errand, const char *why)
{
    for (uint32_t i = 0; i < errand->count; i++) {
        struct spw_work *work = errand->works[i];
        if (errand->count > 1) {
            work->alone = true;
            spw_work_queue(work);
        } else if (work->step == SPW_STEP_CALCULATE) {
            spw_calculate_exception(work, why);
        } else {
            spw_file_set_aside(work, why);
        }
    }
}

static void send(struct spw_reconcile_account *a, struct spw_errand_call *errand_call, struct errand *errand)
{
    const struct spw_reconcile_ops *ops = &a->engine->options.ops;
    struct spw_credential credential;
    struct spw_call call = {0};
    struct spw_error err = {0};
    const char *why = NULL;
    if (!ops->credential(ops->owner, a->index, &credential))
        why = "";
    else if (build(errand, &credential, &call, &err) != SPW_STATUS_OK)
        why = err.text;
    else if (!spw_profile_allows(a->profile, a->conf, &call))
        why = "its ids make a path that is not allowed";
    errand_call->call = &call;
    errand_call->owner = errand;
    a->calls_count++;
    bool sent = !why && ops->send(ops->owner, errand_call);
    errand_call->call = NULL; /* it was ours, or is the sender's now */
    if (sent) {
        a->status.calls_total++;
        return;
    }
    a->calls_count--;
    spw_abandon(a->engine->map, &errand_call->ticket, now_of(a->engine));
    spw_call_clean_up(&call);
    if (why && why[0]) {
        cannot_build(errand, why);
    } else { /* no credential now, or no socket: soon again */
        for (uint32_t i = 0; i < errand->count; i++)
            spw_work_queue(errand->works[i]);
        a->wait_until_ns = now_of(a->engine) + SECOND_NS;
    }
    free(errand);
}

/* ---- may we call? ---- */

static enum spw_endpoint endpoint_of(const struct spw_work *work)
{
    switch (work->step) {
    case SPW_STEP_CALCULATE:
    case SPW_STEP_FILE_CALCULATE:
        return SPW_ENDPOINT_CALCULATE;
    case SPW_STEP_FILE_BOOK:
        return SPW_ENDPOINT_RECORD;
    default:
        return SPW_ENDPOINT_OTHER;
    }
}

static bool find_account(struct spw_reconcile_account *a, enum spw_endpoint endpoint, uint32_t *flags)
{
    spw_ref_init(&a->ref, a->conf->name, NULL);
    a->ref.endpoint = endpoint;
    if (!spw__ref_find(a->engine->map, &a->ref))
        return false;
    *flags = SPW_ACQUIRE_BATCH | spw_ref_flags(&a->ref);
    return true;
}

/* Loads alone. false: not now. A breaker that would take a probe is left to checkout for a moment; where there is no
 * checkout, reconciliation is the probe, since otherwise it would wait for ever. */
static bool look(struct spw_reconcile_account *a, uint64_t now_ns)
{
    struct spw_ticket unused;
    uint32_t flags;
    if (!find_account(a, SPW_ENDPOINT_CALCULATE, &flags)) {
        a->blocked = true;
        a->blocked_ms = 0;
        a->wait_until_ns = now_ns + SECOND_NS;
        return false;
    }
    struct spw_admission now = spw_admit(a->engine->map, a->ref.account_index, a->ref.account_generation,
                                         flags | SPW_ACQUIRE_PEEK, 1, 0, now_ns, &unused);
    bool probing = now.breaker_state != SPW_BREAKER_CLOSED && now.may_call && !now.observed;
    a->probe_seen_ns = !probing ? 0 : a->probe_seen_ns ? a->probe_seen_ns : now_ns;
    bool tokens = now.cause == SPW_CAUSE_BUCKET_EMPTY || now.cause == SPW_CAUSE_BATCH_RESERVE ||
                  now.cause == SPW_CAUSE_CONCURRENCY;
    a->blocked = probing ? now_ns < a->probe_seen_ns + PROBE_NS : !now.may_call && !tokens;
    uint64_t wait_ns = now.may_call ? PROBE_NS : now.wait_ns;
    a->blocked_ms = !a->blocked ? 0 : wait_ns == SPW_FOREVER_NS ? SPW_FORECAST_NEVER_MS : wait_ns / MS;
    if (a->blocked || !now.may_call) {
        wait_ns = wait_ns > SECOND_NS ? SECOND_NS : wait_ns < WAIT_MIN_NS ? WAIT_MIN_NS : wait_ns;
        a->wait_until_ns = now_ns + wait_ns;
        return false;
    }
    return true;
}

/* One call, if there is a token for it. false: not now. */
static bool call_next(struct spw_reconcile_account *a, uint64_t now_ns)
{
    struct spw_errand_call call = {
        .account = a->index, .deadline_ns = now_ns + DEADLINE_NS, .answered = errand_answered};
    if (!look(a, now_ns) || !find_account(a, endpoint_of(a->queue), &call.acquire_flags))
        return false;
    struct errand *errand = calloc(1, sizeof *errand);
    if (!errand)
        return false;
    call.admission = spw_admit(a->engine->map, a->ref.account_index, a->ref.account_generation,
                               call.acquire_flags, 1, 0, now_ns, &call.ticket);
    if (!call.admission.may_call) {
        uint64_t wait_ns = call.admission.wait_ns > SECOND_NS ? SECOND_NS : call.admission.wait_ns;
        a->wait_until_ns = now_ns + (wait_ns < WAIT_MIN_NS ? WAIT_MIN_NS : wait_ns);
        free(errand);
        return false;
    }
    errand->account = a;
    gather(a, errand);
    send(a, &call, errand);
    return true;
}

static void pace_on(struct spw_reconcile_account *a, uint64_t now_ns)
{
    uint64_t pace = a->status.forecast.pace_milli_per_s;
    uint64_t gap_ns = !pace || pace == UINT64_MAX ? 0 : 1000 * SECOND_NS / pace;
    if (a->pace_at_ns + 4 * gap_ns < now_ns)
        a->pace_at_ns = now_ns - 4 * gap_ns;
    a->pace_at_ns += gap_ns;
}

/* A lease that is nearly over: somebody may claim the row again, so that it must not be sent from here. */
static void drop_late(struct spw_reconcile_account *a)
{
    int64_t wall_ms = wall_of(a->engine);
    while (a->queue && a->queue->lease_unix_ms < wall_ms + LEASE_LEFT_MS)
        spw_work_free(work_take(a, &a->queue));
}

/* ---- capacity ---- */

static void tell_late(struct spw_reconcile_account *a)
{
    const struct spw_forecast *f = &a->status.forecast;
    const char *name = a->conf->name;
    if (f->late && !a->was_late && f->takes_ms == SPW_FORECAST_NEVER_MS)
        spw_log(
            SPW_LOG_ERROR, "reconcile.late",
            "account %s: %llu calls are needed and checkout leaves none: raise the limit or reconcile.within",
            name, (unsigned long long)f->calls_count);
    else if (f->late && !a->was_late)
        spw_log(SPW_LOG_ERROR, "reconcile.late",
                "account %s: %llu calls at %llu.%03llu/s take %llu min, more than reconcile.within leaves",
                name, (unsigned long long)f->calls_count, (unsigned long long)(f->spare_milli_per_s / 1000),
                (unsigned long long)(f->spare_milli_per_s % 1000), (unsigned long long)(f->takes_ms / 60000));
    else if (!f->late && a->was_late)
        spw_log(SPW_LOG_INFO, "reconcile.late", "account %s: on time again", name);
    a->was_late = f->late;
}

static void forecast(struct spw_reconcile_account *a)
{
    const struct spw_backlog_request *b = &a->backlog;
    const struct spw_conf_reconcile *conf = &a->engine->options.conf->reconcile;
    int64_t oldest = b->pending_count ? b->oldest_pending_unix_ms : 0;
    if (b->filings_count && (!oldest || b->oldest_filing_unix_ms < oldest))
        oldest = b->oldest_filing_unix_ms;
    int64_t age = oldest ? wall_of(a->engine) - oldest : 0;
    struct spw_forecast_facts facts = {.pending_count = b->pending_count,
                                       .filings_count = b->filings_count,
                                       .batch_count = a->profile->batch_max_count,
                                       .calls_per_filing = conf->file ? spw_file_calls_count(a->profile) : 0,
                                       .spare_milli_per_s = a->spare_milli_per_s,
                                       .oldest_age_ms = age > 0 ? (uint64_t)age : 0,
                                       .within_ms = conf->within_ms};
    if (a->blocked && a->blocked_ms == SPW_FORECAST_NEVER_MS)
        facts.spare_milli_per_s = 0;
    else if (a->blocked)
        facts.blocked_ms = a->blocked_ms;
    a->status.pending_count = b->pending_count;
    a->status.filings_count = b->filings_count;
    a->status.exceptions_count = b->exceptions_count;
    a->status.oldest_unix_ms = oldest;
    spw_forecast_make(&facts, &a->status.forecast);
    tell_late(a);
}

static void backlog_done(struct spw_store_job *job)
{
    struct spw_reconcile_account *a = job->owner;
    a->backlog_busy = false;
    if (job->error.status == SPW_STATUS_OK && !a->engine->stopped)
        forecast(a);
    if (!a->engine->stopped)
        a->engine->options.ops.wake(a->engine->options.ops.wake_owner);
}

/* What everybody but this was allowed lately is what checkout needs. */
static void measure(struct spw_reconcile_account *a, uint64_t now_ns)
{
    const struct spw_reconcile_ops *ops = &a->engine->options.ops;
    struct spw_limit_view view;
    struct spw_error err;
    uint64_t allowed = ops->allowed_count(ops->owner, a->ref.account_index), own = a->status.calls_total;
    if (spw_state_limit_get(a->engine->options.state, a->conf->name, now_ns, &view, &err) != SPW_STATUS_OK)
        return;
    spw_wide milli = (spw_wide)view.pod_rate.tokens_count * 1000 * SECOND_NS;
    uint64_t rate = view.pod_rate.period_ns ? (uint64_t)(milli / view.pod_rate.period_ns) : 0;
    uint64_t span_ns = now_ns - a->measured_ns, others = 0;
    if (a->measured_ns && span_ns) {
        uint64_t all = allowed - a->allowed_count, mine = own - a->own_count;
        others = (uint64_t)((spw_wide)(all > mine ? all - mine : 0) * 1000 * SECOND_NS / span_ns);
    }
    a->spare_milli_per_s = rate > others ? rate - others : 0;
    a->allowed_count = allowed;
    a->own_count = own;
    a->measured_ns = now_ns;
}

static void sample(struct spw_reconcile_account *a, uint64_t now_ns)
{
    if (now_ns >= a->measured_ns + SAMPLE_NS || !a->measured_ns) {
        (void)look(a, now_ns);
        measure(a, now_ns);
        if (!a->backlog_busy) {
            memset(&a->backlog, 0, sizeof a->backlog);
            a->backlog.job.done = backlog_done;
            a->backlog.job.owner = a;
            snprintf(a->backlog.account, sizeof a->backlog.account, "%s", a->conf->name);
            a->backlog_busy = true;
            spw_store_backlog(a->engine->options.store, &a->backlog);
        }
    }
}

/* ---- turns ---- */

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t account_turn(struct spw_reconcile_account *a, uint64_t now_ns)
{
    sample(a, now_ns);
    uint64_t next_ns = a->measured_ns + SAMPLE_NS;
    if (now_ns >= a->wait_until_ns && !a->queue)
        (void)look(a, now_ns);
    if (!a->blocked) {
        claim(a, SPW_DUE_FILE, now_ns);
        claim(a, SPW_DUE_RECONCILE, now_ns);
    }
    for (int kind = 0; kind < 2; kind++) {
        if (!a->due_busy[kind] && a->due_at_ns[kind] > now_ns)
            next_ns = least(next_ns, a->due_at_ns[kind]);
    }
    drop_late(a);
    while (a->queue && a->calls_count < CALLS_MAX_COUNT) {
        uint64_t from_ns = a->wait_until_ns > a->pace_at_ns ? a->wait_until_ns : a->pace_at_ns;
        if (now_ns < from_ns)
            return least(next_ns, from_ns);
        if (!call_next(a, now_ns))
            return least(next_ns, a->wait_until_ns > now_ns ? a->wait_until_ns : now_ns + WAIT_MIN_NS);
        pace_on(a, now_ns);
    }
    if (a->blocked && a->wait_until_ns > now_ns)
        next_ns = least(next_ns, a->wait_until_ns);
    return next_ns;
}

/* Rows nobody can be asked about become exceptions: no row waits for an account that is gone. */
static uint64_t others_turn(struct spw_reconcile_account *others, uint64_t now_ns)
{
    uint64_t next_ns = now_ns + OTHERS_NS;
    for (int kind = 0; kind < 2; kind++) {
        claim(others, (enum spw_due)kind, now_ns);
        if (!others->due_busy[kind])
            next_ns = least(next_ns, others->due_at_ns[kind]);
    }
    return next_ns;
}

uint64_t spw_reconcile_turn(struct spw_reconcile *r)
{
    uint64_t now_ns = now_of(r), next_ns = now_ns + SAMPLE_NS;
    for (uint32_t i = 0; i < r->accounts_count && !r->stopped; i++)
        next_ns = least(next_ns, account_turn(&r->accounts[i], now_ns));
    return r->stopped ? next_ns : least(next_ns, others_turn(&r->accounts[r->accounts_count], now_ns));
}

/* ---- life ---- */

static bool add_accounts(struct spw_reconcile *r)
{
    static const struct spw_conf_account others = {.name = "(others)"};
    const struct spw_conf *conf = r->options.conf;
    json_t *names = json_array();
    for (uint32_t i = 0; i < conf->accounts_count; i++) {
        const struct spw_profile *profile = spw_profile_find(conf->accounts[i].provider);
        if (!profile || !profile->build)
            continue;
        struct spw_reconcile_account *a = &r->accounts[r->accounts_count++];
        a->engine = r;
        a->index = i;
        a->conf = &conf->accounts[i];
        a->profile = profile;
        a->queue_end = &a->queue;
        a->recovering[SPW_DUE_RECONCILE] = a->recovering[SPW_DUE_FILE] = true;
        a->status.account = a->conf->name;
        (void)json_array_append_new(names, json_string(a->conf->name));
    }
    struct spw_reconcile_account *rest = &r->accounts[r->accounts_count];
    rest->engine = r;
    rest->conf = &others;
    rest->recovering[SPW_DUE_RECONCILE] = rest->recovering[SPW_DUE_FILE] = true;
    bool all = json_array_size(names) == r->accounts_count;
    r->names = all ? json_dumps(names, JSON_COMPACT) : NULL;
    json_decref(names);
    return r->names != NULL;
}

enum spw_status spw_reconcile_new(const struct spw_reconcile_options *options, struct spw_reconcile **out,
                                  struct spw_error *err)
{
    struct spw_reconcile *r = calloc(1, sizeof *r);
    *out = NULL;
    if (r) {
        r->options = *options;
        r->map = spw_state_map(options->state);
        r->recover_unix_ms = wall_of(r) + LEASE_MS;
        r->accounts = calloc((size_t)options->conf->accounts_count + 1, sizeof *r->accounts);
    }
    if (!r || !r->accounts || !add_accounts(r)) {
        spw_reconcile_destroy(r);
        return spw_error_set(err, SPW_STATUS_NO_MEMORY,
                             "reconcile: no memory: raise the container's memory limit");
    }
    *out = r;
    return SPW_STATUS_OK;
}

void spw_reconcile_stop(struct spw_reconcile *r)
{
    if (r)
        r->stopped = true;
}

void spw_reconcile_destroy(struct spw_reconcile *r)
{
    if (!r)
        return;
    for (uint32_t i = 0; r->accounts && i <= r->accounts_count; i++) {
        for (struct spw_work *work = r->accounts[i].works, *next; work; work = next) {
            next = work->next;
            spw_work_free(work);
        }
        for (int kind = 0; kind < 2; kind++)
            spw_due_rows_free(&r->accounts[i].due[kind]);
    }
    free(r->accounts);
    free(r->names);
    free(r);
}
