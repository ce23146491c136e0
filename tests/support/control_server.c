/* control_server.c: the control API over a state and a ledger that live in this file.
 *
 * Owns: what cannot be brought about in a whole sidecar at will: a ledger of any size, one that fails, a loop that is
 * held up. Called by: tests/integration/test_control.py. Thread: main runs the loop.
 *
 *     control_server --unix PATH [--tcp ADDRESS] [--flags COUNT] [--loop epoll]
 *
 * epoll is for valgrind, under which a thread that waits in io_uring stops all others.
 *
 * Prints "ready PORT" when it serves. SIGUSR1 turns serving over, SIGTERM drains and stops. Account "stuck" holds the
 * loop for 1 s at each look; consumer "broken" meets a failing ledger.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "sidecar/control/control.h"
#include "sidecar/loop/loop.h"
#include "sidecar/obs/log.h"
#include "sidecar/state/state.h"
#include "sidecar/store/reconcile_rows.h"
#include "sidecar/store/store.h"

#define RATES_CAPACITY 5000u

struct account {
    struct spw_limit_view limit;
    struct spw_breaker_view breaker;
};

struct spw_state {
    struct account accounts[3];
    struct spw_rates_view rates;
    struct spw_rate_row rows[RATES_CAPACITY];
    size_t rows_count;
};

struct spw_store {
    uint64_t flags_count;
    uint64_t acknowledged_sequence;
};

/* ---- state ---- */

static struct account *find_account(struct spw_state *state, const char *name, struct spw_error *err)
{
    for (size_t i = 0; i < 3; i++) {
        if (strcmp(state->accounts[i].limit.account, name) != 0)
            continue;
        struct timespec pause = {.tv_sec = 1};
        if (strcmp(name, "stuck") == 0)
            nanosleep(&pause, NULL);
        return &state->accounts[i];
    }
    spw_error_set(err, SPW_STATUS_NOT_FOUND, "account: there is no %s: use one of the configuration", name);
    return NULL;
}

void spw_state_conf_in_force(const struct spw_state *state, struct spw_conf *conf)
{
    (void)state;
    (void)conf;
}

enum spw_status spw_state_limit_get(struct spw_state *state, const char *account, uint64_t now_ns,
                                    struct spw_limit_view *out, struct spw_error *err)
{
    (void)now_ns;
    struct account *found = find_account(state, account, err);
    if (found)
        *out = found->limit;
    return found ? SPW_STATUS_OK : err->status;
}

enum spw_status spw_state_limit_set(struct spw_state *state, const char *account,
                                    const struct spw_conf_limit *limit, uint64_t expect_version, bool dry_run,
                                    uint64_t now_ns, struct spw_limit_view *out, struct spw_error *err)
{
    (void)now_ns;
    struct account *found = find_account(state, account, err);
    if (!found)
        return err->status;
    if (expect_version && expect_version != found->limit.version)
        return spw_error_set(err, SPW_STATUS_CONFLICT, "expect_version: it is at %llu: read it again",
                             (unsigned long long)found->limit.version);
    struct spw_limit_view view = found->limit;
    view.limit = *limit;
    view.pod_rate = limit->rate;
    view.pod_rate.period_ns *= limit->pods_count;
    view.pod_burst_count = limit->burst_count / limit->pods_count;
    if (!dry_run) {
        view.version++;
        found->limit = view;
        found->breaker.version = view.version;
    }
    *out = view;
    return SPW_STATUS_OK;
}

enum spw_status spw_state_limiter_get(struct spw_state *state, const char *account, const char *limiter,
                                      uint64_t now_ns, struct spw_limit_view *out, struct spw_error *err)
{
    if (limiter && strcmp(limiter, SPW_LIMITER_ACCOUNT_NAME) != 0)
        return spw_error_set(err, SPW_STATUS_NOT_FOUND, "limiter: there is none \"%.31s\"", limiter);
    return spw_state_limit_get(state, account, now_ns, out, err);
}

enum spw_status spw_state_limiter_set(struct spw_state *state, const char *account, const char *limiter,
                                      const struct spw_conf_limit *limit, uint64_t expect_version,
                                      bool dry_run, uint64_t now_ns, struct spw_limit_view *out,
                                      struct spw_error *err)
{
    (void)limiter;
    return spw_state_limit_set(state, account, limit, expect_version, dry_run, now_ns, out, err);
}

enum spw_status spw_state_limiter_at(struct spw_state *state, uint32_t account_index, uint32_t place,
                                     uint64_t now_ns, struct spw_limit_view *out)
{
    struct spw_account_status status;
    if (place > 0 || spw_state_account_status(state, account_index, now_ns, &status) != SPW_STATUS_OK)
        return SPW_STATUS_NOT_FOUND;
    *out = status.limit;
    return SPW_STATUS_OK;
}

enum spw_status spw_state_switches_set(struct spw_state *state, const char *account, const char *limiter,
                                       const struct spw_switch_change *change, struct spw_error *err)
{
    (void)limiter;
    struct account *found = find_account(state, account ? account : "main", err);
    if (!found)
        return err->status;
    if (change->kill >= 0)
        found->limit.switches = change->kill ? SPW_SWITCH_KILL : 0;
    found->limit.version++;
    return SPW_STATUS_OK;
}

enum spw_status spw_state_switches_get(struct spw_state *state, const char *account, const char *limiter,
                                       uint64_t *out, struct spw_error *err)
{
    (void)limiter;
    struct account *found = find_account(state, account ? account : "main", err);
    *out = found ? found->limit.switches : 0;
    return found ? SPW_STATUS_OK : err->status;
}

const struct spw_conf *spw_state_conf(const struct spw_state *state)
{
    static const struct spw_conf none;
    (void)state;
    return &none;
}

enum spw_status spw_state_gate_set(struct spw_state *state, const char *account, uint64_t shut_for_ms,
                                   uint64_t expect_version, bool dry_run, uint64_t now_ns,
                                   struct spw_breaker_view *out, struct spw_error *err)
{
    (void)expect_version, (void)now_ns;
    struct account *found = find_account(state, account, err);
    if (!found)
        return err->status;
    *out = found->breaker;
    out->gate_shut_for_ms = shut_for_ms;
    if (!dry_run)
        found->breaker = *out;
    return SPW_STATUS_OK;
}

enum spw_status spw_state_breaker_get(struct spw_state *state, const char *account, uint64_t now_ns,
                                      struct spw_breaker_view *out, struct spw_error *err)
{
    (void)now_ns;
    struct account *found = find_account(state, account, err);
    if (found)
        *out = found->breaker;
    return found ? SPW_STATUS_OK : err->status;
}

enum spw_status spw_state_breaker_at(struct spw_state *state, uint32_t account_index, uint64_t now_ns,
                                     struct spw_breaker_view *out)
{
    struct spw_account_status status;
    if (spw_state_account_status(state, account_index, now_ns, &status) != SPW_STATUS_OK)
        return SPW_STATUS_NOT_FOUND;
    *out = status.breaker;
    return SPW_STATUS_OK;
}

enum spw_status spw_state_breaker_set(struct spw_state *state, const char *account,
                                      const struct spw_breaker_change *change, uint64_t expect_version,
                                      bool dry_run, uint64_t now_ns, struct spw_breaker_view *out,
                                      struct spw_error *err)
{
    static const char *const words[] = {"", "open", "closed", "disabled", "observe"};
    (void)now_ns;
    struct account *found = find_account(state, account, err);
    if (!found)
        return err->status;
    if (expect_version && expect_version != found->breaker.version)
        return spw_error_set(err, SPW_STATUS_CONFLICT, "expect_version: it is at %llu: read it again",
                             (unsigned long long)found->breaker.version);
    struct spw_breaker_view view = found->breaker;
    if (change->conf)
        view.conf = *change->conf;
    if (change->forced >= 0)
        snprintf(view.forced, sizeof view.forced, "%s", words[change->forced]);
    if (change->reset)
        snprintf(view.state, sizeof view.state, "closed");
    if (!dry_run) {
        view.version++;
        found->breaker = view;
        found->limit.version = view.version;
    }
    *out = view;
    return SPW_STATUS_OK;
}

enum spw_status spw_state_rates_replace(struct spw_state *state, const struct spw_rates_source *sources,
                                        size_t sources_count, struct spw_rates_view *out,
                                        struct spw_error *err)
{
    (void)err; /* control/ has kept the rows to the capacity */
    state->rows_count = 0;
    state->rates.sources_count = (uint32_t)sources_count;
    for (size_t i = 0; i < sources_count; i++) {
        struct spw_source *source = &state->rates.sources[i];
        memset(source, 0, sizeof *source);
        snprintf(source->name, sizeof source->name, "%s", sources[i].name);
        memcpy(source->sha256, sources[i].sha256, sizeof source->sha256);
        source->as_of_day = sources[i].as_of_day;
        source->rows_count = (uint32_t)sources[i].rows_count;
        memcpy(state->rows + state->rows_count, sources[i].rows,
               sources[i].rows_count * sizeof *sources[i].rows);
        state->rows_count += sources[i].rows_count;
    }
    state->rates.version++;
    state->rates.records_count = (uint32_t)state->rows_count;
    *out = state->rates;
    return SPW_STATUS_OK;
}

enum spw_status spw_state_rates_upsert(struct spw_state *state, const struct spw_rates_source *source,
                                       struct spw_rates_view *out, struct spw_error *err)
{
    (void)err;
    memcpy(state->rows + state->rows_count, source->rows, source->rows_count * sizeof *source->rows);
    state->rows_count += source->rows_count;
    state->rates.records_count = (uint32_t)state->rows_count;
    state->rates.upserts_count += (uint32_t)source->rows_count;
    *out = state->rates;
    return SPW_STATUS_OK;
}

void spw_state_rates_view(struct spw_state *state, struct spw_rates_view *out)
{
    *out = state->rates;
}

enum spw_status spw_state_rates_lookup(struct spw_state *state, const struct spw_rate_question *question,
                                       struct spw_rate_lookup *out, struct spw_error *err)
{
    const char *zip = question->zip;
    (void)err;
    memset(out, 0, sizeof *out);
    for (size_t i = state->rows_count; zip && i-- > 0;) {
        const struct spw_rate_row *row = &state->rows[i];
        char digits[8];
        snprintf(digits, sizeof digits, "%05u", row->zip5);
        if (strncmp(digits, zip, 5) != 0)
            continue;
        out->match = SPW_MATCH_ZIP5;
        out->source = state->rates.sources[0];
        out->age_days = 27;
        out->record.level = SPW_RATE_ZIP5;
        memcpy(out->record.state, row->state, sizeof row->state);
        out->record.zip5 = row->zip5;
        out->record.state_ppb = row->state_ppb;
        out->record.city_ppb = row->city_ppb;
        out->record.combined_ppb = row->combined_ppb;
        break;
    }
    return SPW_STATUS_OK;
}

void spw_state_status(struct spw_state *state, struct spw_state_status *out)
{
    (void)state;
    *out = (struct spw_state_status){.origin = "created: no segment was there",
                                     .generation = 0x1234,
                                     .accounts_count = 2,
                                     .attached_count = 4,
                                     .slots_count = 256,
                                     .cells_count = 2048,
                                     .pub_bytes = 1 << 20,
                                     .rw_bytes = 2 << 20};
}

enum spw_status spw_state_account_status(struct spw_state *state, uint32_t account_index, uint64_t now_ns,
                                         struct spw_account_status *out)
{
    (void)now_ns;
    if (account_index == 0 || account_index > 2) /* 0: as if it had been removed from the configuration */
        return SPW_STATUS_NOT_FOUND;
    memset(out, 0, sizeof *out);
    out->limit = state->accounts[account_index - 1].limit;
    out->breaker = state->accounts[account_index - 1].breaker;
    out->decisions[SPW_STAT_ALLOW] = 12345;
    out->decisions[SPW_STAT_DENY_BUCKET] = 8;
    out->decisions[SPW_STAT_FALLBACK] = 67;
    out->door_fallbacks[SPW_FALLBACK_PROVIDER_TIMEOUT] = 3;
    return SPW_STATUS_OK;
}

/* ---- store ---- */

static void make_row(uint64_t sequence, struct spw_flag_row *row)
{
    static const struct spw_line_tax lines[] = {{3998, 368}, {2500, 230}, {795, 73}};
    *row = (struct spw_flag_row){.sequence = sequence,
                                 .state = sequence % 2 ? SPW_FLAG_CONFIRMED : SPW_FLAG_PROVISIONAL,
                                 .revision = sequence % 2 ? 2 : 1,
                                 .stored_unix_ms = 1764288000500,
                                 .lines = lines,
                                 .assumptions = "line 2: PC040100 at general rate\ncurrency: USD\n",
                                 .request_json = "{\"ship_to\":{\"zip\":\"98110\"}}",
                                 .order_id = sequence % 2 ? "100048213" : "",
                                 .tax_collected_minor = 671,
                                 .placed_unix_ms = 1764288060000,
                                 .orders_count = sequence % 2,
                                 .verified = sequence % 2 != 0,
                                 .unverified_reason = sequence % 2 ? "" : "the source is another"};
    struct spw_flag_record *r = &row->record;
    snprintf(r->flag_id, sizeof r->flag_id, "sf_%032llx", (unsigned long long)sequence);
    snprintf(r->quote_id, sizeof r->quote_id, "sq_%032llx", (unsigned long long)sequence);
    snprintf(r->decision_id, sizeof r->decision_id, "d-%llu", (unsigned long long)sequence);
    snprintf(r->quote_ref, sizeof r->quote_ref, "=q,\"%llu\" \xff", (unsigned long long)sequence);
    snprintf(r->account, sizeof r->account, "main");
    snprintf(r->integration, sizeof r->integration, "shop");
    memcpy(r->currency, "USD", 4);
    memcpy(r->country, "US", 3);
    memcpy(r->state, "WA", 3);
    memcpy(r->zip, "98110-1234", 11);
    memcpy(r->date, "2025-11-28", 11);
    r->created_unix_ms = 1764288000000;
    r->type = SPW_FALLBACK_RATE_LIMIT_PROACTIVE;
    r->cause = SPW_CAUSE_BUCKET_EMPTY;
    r->purpose = SPW_PURPOSE_ORDER;
    r->match = SPW_MATCH_ZIP5;
    r->evidence_known = SPW_EVIDENCE_LIMIT;
    r->limit_count = 100;
    r->taxable_minor = 7293;
    r->total_minor = 7293;
    r->tax_minor = sequence == 2 ? -5 : 671;
    r->state_ppb = 65000000;
    r->city_ppb = 27000000;
    r->combined_ppb = 92000000;
    r->as_of_day = 20393;
    r->age_days = 27;
    snprintf(r->source, sizeof r->source, "vendor-2025-11");
    r->source_sha256[0] = 0xAB;
    r->lines_count = 3;
    r->slot = 7;
}

enum spw_status spw_store_export(struct spw_store *store, uint64_t after_sequence, uint32_t max_count,
                                 spw_flag_fn *fn, void *owner, uint64_t *next_sequence, struct spw_error *err)
{
    (void)err;
    for (uint32_t i = 0; i < max_count && after_sequence + 1 + i <= store->flags_count; i++) {
        struct spw_flag_row row;
        make_row(after_sequence + 1 + i, &row);
        *next_sequence = row.sequence;
        if (!fn(owner, &row))
            break;
    }
    return SPW_STATUS_OK;
}

/* Changes: 2, 4, 6, ..., and the newest flag has changed first. */
enum spw_status spw_store_export_changes(struct spw_store *store, uint64_t after_change, uint32_t max_count,
                                         spw_flag_fn *fn, void *owner, uint64_t *next_change,
                                         struct spw_error *err)
{
    if (after_change > 2 * store->flags_count)
        return spw_error_set(err, SPW_STATUS_NOT_FOUND, "export after %llu: the newest change is %llu",
                             (unsigned long long)after_change, (unsigned long long)(2 * store->flags_count));
    uint64_t first = after_change / 2 + 1;
    for (uint32_t i = 0; i < max_count && first + i <= store->flags_count; i++) {
        struct spw_flag_row row;
        make_row(store->flags_count + 1 - first - i, &row);
        *next_change = row.change = 2 * (first + i);
        if (!fn(owner, &row))
            break;
    }
    return SPW_STATUS_OK;
}

enum spw_status spw_store_acknowledge(struct spw_store *store, const char *consumer, uint64_t sequence,
                                      struct spw_error *err)
{
    if (strcmp(consumer, "broken") == 0)
        return spw_error_set(err, SPW_STATUS_SYSTEM, "the ledger cannot be written: disk I/O error");
    if (sequence > store->flags_count)
        return spw_error_set(err, SPW_STATUS_NOT_FOUND,
                             "sequence: %llu is above the newest, %llu: acknowledge what "
                             "was exported",
                             (unsigned long long)sequence, (unsigned long long)store->flags_count);
    if (sequence > store->acknowledged_sequence)
        store->acknowledged_sequence = sequence;
    return SPW_STATUS_OK;
}

/* Its changes are twice its sequences. */
enum spw_status spw_store_acknowledge_change(struct spw_store *store, const char *consumer, uint64_t change,
                                             struct spw_error *err)
{
    return spw_store_acknowledge(store, consumer, change / 2, err);
}

/* It keeps no orders. */
enum spw_status spw_store_orders(struct spw_store *store, const char *order_id, uint64_t after_row,
                                 uint32_t max_count, spw_order_fn *fn, void *owner, struct spw_error *err)
{
    (void)store, (void)order_id, (void)after_row, (void)max_count, (void)fn, (void)owner, (void)err;
    return SPW_STATUS_OK;
}

enum spw_status spw_store_flag(struct spw_store *store, uint8_t *bytes, size_t count, bool *known,
                               struct spw_error *err)
{
    (void)store, (void)bytes, (void)count, (void)err;
    *known = false;
    return SPW_STATUS_OK;
}

enum spw_status spw_store_order(struct spw_store *store, const struct spw_order_record *record,
                                struct spw_error *err)
{
    (void)store;
    return record->op == SPW_ORDER_PLACED ? SPW_STATUS_OK
                                          : spw_error_set(err, SPW_STATUS_NO_SPACE, "the ledger is full");
}

enum spw_status spw_store_find(struct spw_store *store, const char *reference, uint32_t max_count,
                               spw_flag_fn *fn, void *owner, struct spw_error *err)
{
    (void)err;
    unsigned long long sequence = 0;
    struct spw_flag_row row;
    if (strcmp(reference, "all") == 0) {
        for (uint64_t i = store->flags_count; i > 0 && max_count-- > 0; i--) {
            make_row(i, &row);
            if (!fn(owner, &row))
                break;
        }
    } else if (strncmp(reference, "d-", 2) == 0 && (sequence = strtoull(reference + 2, NULL, 10)) &&
               sequence >= 1 && sequence <= store->flags_count) {
        make_row(sequence, &row);
        fn(owner, &row);
    }
    return SPW_STATUS_OK;
}

enum spw_status spw_store_rows(struct spw_store *store, const struct spw_rows_filter *filter,
                               uint64_t after_sequence, uint32_t max_count, spw_flag_fn *fn, void *owner,
                               uint64_t *next_sequence, struct spw_error *err)
{
    (void)store, (void)filter, (void)max_count, (void)fn, (void)owner, (void)err;
    *next_sequence = after_sequence;
    return SPW_STATUS_OK;
}

enum spw_status spw_store_history(struct spw_store *store, const char *flag_id, spw_history_fn *fn,
                                  void *owner, struct spw_error *err)
{
    (void)store, (void)flag_id, (void)fn, (void)owner, (void)err;
    return SPW_STATUS_OK;
}

void spw_store_decide_all(struct spw_store *store, struct spw_decide_all_request *request)
{
    (void)store, (void)request;
}

enum spw_status spw_store_wait(struct spw_store *store, struct spw_store_job *job)
{
    (void)store;
    return job->error.status;
}

void spw_store_counts(struct spw_store *store, struct spw_store_counts *out)
{
    *out = (struct spw_store_counts){.flags_count = store->flags_count,
                                     .newest_sequence = store->flags_count,
                                     .acknowledged_sequence = store->acknowledged_sequence,
                                     .writable = true};
}

/* ---- program ---- */

struct program {
    struct spw_control *control;
    struct spw_loop_watch signals;
    struct spw_loop_timer drain;
    int signal_fd;
    int looks_left;
    bool serving;
};

static void look_at_drain(struct spw_loop *loop, struct spw_loop_timer *timer)
{
    struct program *program = timer->owner;
    if (spw_control_is_drained(program->control) || program->looks_left-- == 0)
        spw_loop_stop(loop);
    else
        spw_loop_timer_set(loop, timer, spw_loop_now_ns(loop) + 10000000);
}

static void on_signal(struct spw_loop *loop, struct spw_loop_watch *watch, uint32_t events)
{
    (void)events;
    struct program *program = watch->owner;
    struct signalfd_siginfo info;
    while (read(program->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGUSR1) {
            program->serving = !program->serving;
            spw_control_serving_set(program->control, program->serving);
        } else {
            spw_control_drain(program->control);
            program->looks_left = 200;
            look_at_drain(loop, &program->drain);
        }
    }
}

static void fill_state(struct spw_state *state)
{
    static const char *const names[] = {"main", "stuck", "gone"};
    for (size_t i = 0; i < 3; i++) {
        struct account *account = &state->accounts[i];
        snprintf(account->limit.account, sizeof account->limit.account, "%s", names[i]);
        snprintf(account->breaker.account, sizeof account->breaker.account, "%s", names[i]);
        snprintf(account->breaker.state, sizeof account->breaker.state, "closed");
        account->limit.limit = (struct spw_conf_limit){{100, 1000000000}, 250, 2, SPW_LIMITER_BUCKET};
        account->limit.pod_rate = (struct spw_rate){50, 1000000000};
        account->limit.pod_burst_count = 125;
        account->limit.version = account->breaker.version = 1;
        account->limit.tokens_milli = 125000;
        account->limit.observed_limit_known = true;
        account->limit.observed_limit_count = 100;
        account->breaker.conf =
            (struct spw_conf_breaker){5, 200000, 20, 10000, 30000, 60000, SPW_BREAKER_ENFORCE};
    }
    state->rates.capacity_count = RATES_CAPACITY;
}

static int fail(const struct spw_error *err)
{
    fprintf(stderr, "control_server: %s: %s\n", spw_status_name(err->status), err->text);
    return 1;
}

int main(int argc, char **argv)
{
    static struct spw_state state;
    struct spw_store store = {.flags_count = 5};
    enum spw_loop_backend backend = SPW_LOOP_AUTO;
    struct spw_control_options options = {
        .gid = UINT32_MAX, .version = "0.0.0-test", .state = &state, .store = &store};
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--unix") == 0)
            options.unix_path = argv[i + 1];
        else if (strcmp(argv[i], "--tcp") == 0)
            options.tcp_listen = argv[i + 1];
        else if (strcmp(argv[i], "--flags") == 0)
            store.flags_count = strtoull(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--loop") == 0 && strcmp(argv[i + 1], "epoll") == 0)
            backend = SPW_LOOP_EPOLL;
    }
    fill_state(&state);
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGTERM);
    sigaddset(&wanted, SIGUSR1);
    sigprocmask(SIG_BLOCK, &wanted, NULL);
    signal(SIGPIPE, SIG_IGN);

    struct spw_error err;
    struct spw_loop *loop;
    struct program program = {.serving = true};
    if (spw_loop_new(backend, &loop, &err))
        return fail(&err);
    options.loop = loop;
    if (spw_control_start(&options, &program.control, &err)) {
        spw_loop_destroy(loop);
        return fail(&err);
    }
    program.signal_fd = signalfd(-1, &wanted, SFD_NONBLOCK | SFD_CLOEXEC);
    program.signals = (struct spw_loop_watch){.fn = on_signal, .owner = &program};
    program.drain = (struct spw_loop_timer){.fn = look_at_drain, .owner = &program};
    if (spw_loop_watch_set(loop, &program.signals, program.signal_fd, SPW_LOOP_READ))
        return 1;
    spw_control_serving_set(program.control, true);
    printf("ready %u\n", spw_control_tcp_port(program.control));
    fflush(stdout);
    enum spw_status status = spw_loop_run(loop, &err);
    spw_control_stop(program.control);
    spw_loop_destroy(loop);
    close(program.signal_fd);
    return status ? fail(&err) : 0;
}
