/* main.c: spillwayd from start to stop: arguments, configuration, segment, store, loop, doors, control, drain.
 *
 * Owns: the process. Thread: this is the loop thread; the store and gRPC have threads of their own.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "sidecar/conf/conf.h"
#include "sidecar/control/control.h"
#include "sidecar/control/sink.h"
#include "sidecar/control/spool.h"
#include "sidecar/http/admin.h"
#include "sidecar/http/errand.h"
#include "sidecar/http/pass_door.h"
#include "sidecar/http/quote_door.h"
#include "sidecar/obs/log.h"
#include "sidecar/rate_files.h"
#include "sidecar/rate_refresh.h"
#include "sidecar/reload.h"
#include "sidecar/state/prev.h"
#include "sidecar/state/state.h"
#include "sidecar/store/store.h"

#define DEFAULT_CONF  "/etc/spillway/spillway.yaml"
#define SWEEP_NS      UINT64_C(500000000)
#define DRAIN_POLL_NS UINT64_C(20000000)
#define SINK_LEAST_NS UINT64_C(3000000000) /* however long the last quotes took */
#define FILES_WANTED  8192 /* for two doors of 1,024 connections at two each, provider calls and the ledger */

struct sidecar {
    struct spw_conf *conf;
    struct spw_conf_live live; /* the same, and how its reloads went */
    struct spw_loop *loop;
    struct spw_state *state;
    struct spw_store *store;
    struct spw_decider *decider;
    struct spw_reconcile *reconcile; /* NULL: nothing is reconciled */
    struct spw_quote_door *door;
    struct spw_pass_doors *pass_doors;
    struct spw_admin *admin;
    struct spw_control *control;
    struct spw_spool *spool;
    struct spw_rate_watch *rate_watch;         /* NULL: no table is named */
    struct spw_rate_refresher *rate_refresher; /* NULL: no rates are fetched */
    struct spw_reload *reload;
    struct spw_loop_timer heartbeat, sweep, drain, reconcile_turn;
    struct spw_loop_watch signals;
    uint64_t drain_until_ns;
    bool draining;
};

struct arguments {
    const char *conf_path;
    bool check_only;
    bool print_sizes;
};

static void usage(FILE *out)
{
    fprintf(out,
            "spillwayd: keeps checkout alive when a provider's rate limit gives out\n\n"
            "  spillwayd                        run\n"
            "  spillwayd --check-config         check the configuration, its secrets, certificates and "
            "rate files; tell the first fault\n"
            "  spillwayd --print-segment-bytes  the size of both segment files; reads no secrets and no "
            "rate files\n"
            "  spillwayd --version\n"
            "  spillwayd --help\n\n"
            "  --config FILE                    with any of them; default " DEFAULT_CONF "\n\n"
            "Signals: TERM or INT drain and stop; a second one stops at once. HUP reads the configuration "
            "again.\n"
            "Exit: 0 clean stop, 1 could not start or run, 2 wrong arguments.\n");
}

/* 0 = go on, otherwise exit with the code minus one. */
static int read_arguments(int argc, char **argv, struct arguments *a)
{
    static const struct option options[] = {{"config", required_argument, NULL, 'c'},
                                            {"check-config", no_argument, NULL, 'k'},
                                            {"print-segment-bytes", no_argument, NULL, 's'},
                                            {"version", no_argument, NULL, 'v'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    int option;
    a->conf_path = DEFAULT_CONF;
    while ((option = getopt_long(argc, argv, "c:h", options, NULL)) != -1) {
        switch (option) {
        case 'c':
            a->conf_path = optarg;
            break;
        case 'k':
            a->check_only = true;
            break;
        case 's':
            a->print_sizes = true;
            break;
        case 'v':
            printf("spillwayd " SPW_VERSION ", segment layout %u.%u\n", SPW_LAYOUT_MAJOR, SPW_LAYOUT_MINOR);
            return 1;
        case 'h':
            usage(stdout);
            return 1;
        default:
            usage(stderr);
            return 3;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "spillwayd: \"%s\" is not understood; a file is named by --config FILE\n\n",
                argv[optind]);
        usage(stderr);
        return 3;
    }
    return 0;
}

/* ---- timers ---- */

static void heartbeat_due(struct spw_loop *loop, struct spw_loop_timer *timer)
{
    struct sidecar *s = timer->owner;
    uint64_t now_ns = spw_loop_now_ns(loop);
    spw_state_heartbeat(s->state, now_ns);
    spw_loop_timer_set(loop, timer, spw_loop_beat_ns(loop, SPW_HEARTBEAT_NS));
}

/* The store drains some former segments at a time: the others take the places of those that are done. */
static void drain_former(struct sidecar *s)
{
    for (struct spw_prev *prev = spw_state_prev(s->state); prev; prev = spw_prev_next(prev)) {
        if (spw_store_add_map(s->store, spw_prev_map(prev)) != SPW_STATUS_OK)
            return;
    }
}

static void sweep_due(struct spw_loop *loop, struct spw_loop_timer *timer)
{
    struct sidecar *s = timer->owner;
    uint64_t now_ns = spw_loop_now_ns(loop);
    spw_state_sweep(s->state, now_ns);
    for (struct spw_prev *prev = spw_state_prev(s->state), *next; prev; prev = next) {
        next = spw_prev_next(prev);
        if (spw_prev_drained(s->state, prev, now_ns)) {
            spw_store_release_map(s->store, spw_prev_map(prev));
            spw_prev_remove(s->state, prev);
        }
    }
    drain_former(s);
    spw_loop_timer_set(loop, timer, spw_loop_beat_ns(loop, SWEEP_NS));
}

static void reconcile_due(struct spw_loop *loop, struct spw_loop_timer *timer)
{
    struct sidecar *s = timer->owner;
    uint64_t next_ns = spw_reconcile_turn(s->reconcile);
    if (!s->draining && (!spw_loop_timer_armed(timer) || timer->at_ns > next_ns))
        spw_loop_timer_set(loop, timer, next_ns);
}

static void reconcile_wake(void *owner)
{
    struct sidecar *s = owner;
    if (!s->draining)
        spw_loop_timer_set(s->loop, &s->reconcile_turn, 0);
}

/* ---- stop ---- */

static void drain_due(struct spw_loop *loop, struct spw_loop_timer *timer)
{
    struct sidecar *s = timer->owner;
    uint64_t now_ns = spw_loop_now_ns(loop);
    bool idle = spw_quote_door_open_count(s->door) == 0 && spw_pass_doors_open_count(s->pass_doors) == 0 &&
                spw_decider_jobs_count(s->decider) == 0 && spw_control_is_drained(s->control);
    if (idle || now_ns >= s->drain_until_ns)
        spw_loop_stop(loop);
    else
        spw_loop_timer_set(loop, timer, now_ns + DRAIN_POLL_NS);
}

static void signal_came(struct spw_loop *loop, struct spw_loop_watch *watch, uint32_t events)
{
    struct sidecar *s = watch->owner;
    struct signalfd_siginfo info;
    (void)events;
    if (read(watch->fd, &info, sizeof info) != (ssize_t)sizeof info)
        return;
    if (info.ssi_signo == SIGHUP) {
        if (!s->draining)
            spw_reload_ask(s->reload);
        return;
    }
    if (s->draining) {
        spw_log(SPW_LOG_WARN, "stop", "second signal %u: stopping at once", info.ssi_signo);
        spw_loop_stop(loop);
        return;
    }
    s->draining = true;
    spw_log(SPW_LOG_INFO, "drain", "signal %u: finishing %u quotes, at most %u ms", info.ssi_signo,
            spw_decider_jobs_count(s->decider), s->conf->drain_ms);
    spw_admin_set_ready(s->admin, false);
    spw_quote_door_stop_listening(s->door);
    spw_pass_doors_stop_listening(s->pass_doors);
    spw_control_drain(s->control);
    spw_reconcile_stop(s->reconcile); /* what is under way is claimed again by the next start */
    s->drain_until_ns = spw_loop_now_ns(loop) + s->conf->drain_ms * UINT64_C(1000000);
    s->drain.fn = drain_due;
    s->drain.owner = s;
    spw_loop_timer_set(loop, &s->drain, spw_loop_now_ns(loop) + DRAIN_POLL_NS);
}

static enum spw_status watch_signals(struct sidecar *s, struct spw_error *err)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0)
        return spw_error_set(err, SPW_STATUS_SYSTEM, "signals: signalfd: %s: raise the limit of open files",
                             strerror(errno));
    s->signals.fn = signal_came;
    s->signals.owner = s;
    return spw_loop_watch_set(s->loop, &s->signals, fd, SPW_LOOP_READ);
}

/* ---- start ---- */

/* An application may write to the rw volume, so it may also cut the file that is mapped here. Touching what is gone ends
 * the process, once: the next start finds a file shorter than its header says and makes a new segment. */
static void segment_cut(int number)
{
    static const char text[] =
        "spillwayd: SIGBUS: a segment file was cut while it was mapped, or its volume is full; "
        "the next start makes a new segment. Look who writes to segment.rw_dir\n";
    (void)number;
    (void)!write(STDERR_FILENO, text, sizeof text - 1); /* SA_RESETHAND: on return the same access ends us */
}

/* Before any thread: they inherit the mask and the limits. Secrets live in this process: no core dumps. */
static void harden(void)
{
    struct rlimit none = {0, 0}, files;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    /* What other daemons take for a request would end this one, and with it the pod's live calls. */
    static const int harmless[] = {SIGPIPE, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGTSTP, SIGTTIN, SIGTTOU};
    for (size_t i = 0; i < sizeof harmless / sizeof harmless[0]; i++)
        signal(harmless[i], SIG_IGN);
    struct sigaction bus = {.sa_handler = segment_cut, .sa_flags = (int)SA_RESETHAND};
    sigaction(SIGBUS, &bus, NULL);
    setrlimit(RLIMIT_CORE, &none);
    /* Callers who sit idle on the doors must not take the descriptors that calls and the ledger need. */
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < FILES_WANTED) {
        files.rlim_cur = files.rlim_max < FILES_WANTED ? files.rlim_max : FILES_WANTED;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    prctl(PR_SET_DUMPABLE, 0);
}

static enum spw_status open_loop(struct sidecar *s, struct spw_error *err)
{
    const char *wanted = s->conf->loop_backend;
    enum spw_loop_backend backend = strcmp(wanted, "io_uring") == 0 ? SPW_LOOP_URING
                                    : strcmp(wanted, "epoll") == 0  ? SPW_LOOP_EPOLL
                                                                    : SPW_LOOP_AUTO;
    enum spw_status status =
        spw_loop_new(backend, &s->loop, err); /* warns itself when it is not the first choice */
    if (status == SPW_STATUS_OK)
        spw_log(SPW_LOG_INFO, "loop.backend", "%s: %s", spw_loop_backend_name(s->loop),
                spw_loop_backend_reason(s->loop));
    return status;
}

static enum spw_status open_store(struct sidecar *s, struct spw_error *err)
{
    struct spw_store_options options = {.file = s->conf->store_file,
                                        .map = spw_state_map(s->state),
                                        .loop = s->loop,
                                        .care = spw_conf_store_care(s->conf)};
    enum spw_status status = spw_store_open(&options, &s->store, err);
    if (status == SPW_STATUS_OK)
        drain_former(s);
    return status;
}

/* For the metrics: the doors know nothing of control/. */
static void spool_counts(void *owner, uint64_t lines[3])
{
    const struct sidecar *s = owner;
    struct spw_spool_counts counts;
    spw_spool_counts(s->spool, &counts);
    lines[0] = counts.imported_count;
    lines[1] = counts.known_count;
    lines[2] = counts.bad_count;
}

static void control_counts(void *owner, uint64_t calls[4])
{
    const struct sidecar *s = owner;
    if (s->control)
        spw_control_counts(s->control, calls);
}

static enum spw_status open_reconcile(struct sidecar *s, struct spw_error *err)
{
    struct spw_reconcile_options options = {.conf = s->conf, .state = s->state, .store = s->store};
    if (!s->conf->reconcile.on) {
        spw_log(SPW_LOG_INFO, "reconcile", "off: the configuration has no section reconcile");
        return SPW_STATUS_OK;
    }
    spw_errand_ops(s->decider, &options.ops);
    options.ops.wake = reconcile_wake;
    options.ops.wake_owner = s;
    s->reconcile_turn.fn = reconcile_due;
    s->reconcile_turn.owner = s;
    enum spw_status status = spw_reconcile_new(&options, &s->reconcile, err);
    if (status == SPW_STATUS_OK)
        spw_loop_timer_set(s->loop, &s->reconcile_turn, 0);
    return status;
}

static enum spw_status open_doors(struct sidecar *s, struct spw_error *err)
{
    char socket_path[SPW_PATH_BYTES + 32], token_path[SPW_PATH_BYTES + 32], control_path[SPW_PATH_BYTES + 32];
    const struct spw_conf *c = s->conf;
    snprintf(socket_path, sizeof socket_path, "%s/quote.sock", c->segment.pub_dir);
    snprintf(token_path, sizeof token_path, "%s/token", c->segment.pub_dir);
    snprintf(control_path, sizeof control_path, "%s/control.sock", c->segment.pub_dir);
    struct spw_decider_options decider = {.loop = s->loop, .state = s->state, .store = s->store, .conf = c};
    enum spw_status status = spw_decider_new(&decider, &s->decider, err);
    if (status == SPW_STATUS_OK)
        status = open_reconcile(s, err);
    if (status != SPW_STATUS_OK)
        return status;
    struct spw_quote_door_options door = {.loop = s->loop,
                                          .state = s->state,
                                          .store = s->store,
                                          .decider = s->decider,
                                          .unix_path = socket_path,
                                          .gid = c->segment.gid,
                                          .refuse_own_uid = c->require_app_uid_differs,
                                          .listen = c->quote_listen,
                                          .token_file = token_path};
    status = spw_quote_door_new(&door, &s->door, err);
    if (status != SPW_STATUS_OK)
        return status;
    struct spw_pass_doors_options pass = {.loop = s->loop,
                                          .state = s->state,
                                          .store = s->store,
                                          .decider = s->decider,
                                          .conf = c,
                                          .token_file = token_path};
    status = spw_pass_doors_new(&pass, &s->pass_doors, err);
    if (status != SPW_STATUS_OK)
        return status;
    struct spw_admin_options admin = {.loop = s->loop,
                                      .state = s->state,
                                      .store = s->store,
                                      .decider = s->decider,
                                      .live = &s->live,
                                      .reconcile = s->reconcile,
                                      .conf = c,
                                      .listen = c->admin_listen,
                                      .spool_counts = spool_counts,
                                      .spool_owner = s,
                                      .control_counts = control_counts,
                                      .control_owner = s};
    status = spw_admin_new(&admin, &s->admin, err);
    if (status != SPW_STATUS_OK)
        return status;
    struct spw_control_options control = {.unix_path = control_path,
                                          .gid = c->segment.gid,
                                          .tcp_listen = c->control_listen,
                                          .conf = c,
                                          .live = &s->live,
                                          .version = SPW_VERSION,
                                          .loop = s->loop,
                                          .state = s->state,
                                          .store = s->store,
                                          .reconcile = s->reconcile};
    status = spw_control_start(&control, &s->control, err);
    if (status == SPW_STATUS_OK && c->spool_dir[0])
        status = spw_spool_start(s->store, c->spool_dir, &s->spool, err);
    return status;
}

/* Everything that may be wrong with what the configuration names is found before the segment is touched. */
static enum spw_status open_segment(struct sidecar *s, struct spw_error *err)
{
    struct spw_rate_files files;
    enum spw_status status = spw_rate_files_start(&files, s->conf, err);
    if (status == SPW_STATUS_OK)
        status = spw_state_open_with_rates(s->conf, files.sources, files.count, &s->state, err);
    if (status == SPW_STATUS_OK)
        spw_log(SPW_LOG_INFO, "segment", "%s (generation %016llx)", spw_state_origin(s->state),
                (unsigned long long)spw_state_generation(s->state));
    spw_rate_files_clean_up(&files);
    return status;
}

static enum spw_status open_reload(struct sidecar *s, struct spw_error *err)
{
    struct spw_reload_options options = {.loop = s->loop,
                                         .state = s->state,
                                         .store = s->store,
                                         .decider = s->decider,
                                         .pass_doors = s->pass_doors,
                                         .rate_watch = &s->rate_watch,
                                         .live = &s->live,
                                         .control = s->control};
    return spw_reload_new(&options, &s->reload, err);
}

static enum spw_status start(struct sidecar *s, struct spw_error *err)
{
    enum spw_status status = open_loop(s, err);
    if (status == SPW_STATUS_OK)
        status = open_segment(s, err);
    if (status == SPW_STATUS_OK)
        status = open_store(s, err);
    if (status == SPW_STATUS_OK)
        status = open_doors(s, err);
    if (status == SPW_STATUS_OK)
        status = spw_rate_watch_new(s->loop, s->state, s->conf, &s->rate_watch, err);
    if (status == SPW_STATUS_OK)
        status = open_reload(s, err);
    if (status == SPW_STATUS_OK)
        status = spw_rate_refresher_new(s->loop, s->state, s->decider, s->conf, &s->rate_refresher, err);
    if (status == SPW_STATUS_OK)
        status = watch_signals(s, err);
    if (status != SPW_STATUS_OK)
        return status;
    s->heartbeat.fn = heartbeat_due;
    s->heartbeat.owner = s;
    s->sweep.fn = sweep_due;
    s->sweep.owner = s;
    spw_loop_timer_set(s->loop, &s->heartbeat, 0);
    spw_loop_timer_set(s->loop, &s->sweep, 0);
    spw_admin_set_ready(s->admin, true);
    spw_control_serving_set(s->control, true);
    return SPW_STATUS_OK;
}

/* What only this pod has goes where it outlives it. */
static void drain_to_sink(struct sidecar *s)
{
    struct spw_sink_result result;
    struct spw_error err = {0};
    uint64_t least_ns = spw_now_ns() + SINK_LEAST_NS;
    if (!s->store || !s->conf->sink_dir[0])
        return;
    enum spw_status status =
        spw_sink_drain(s->store, s->conf->sink_dir,
                       s->drain_until_ns > least_ns ? s->drain_until_ns : least_ns, &result, &err);
    if (status != SPW_STATUS_OK)
        spw_log(SPW_LOG_ERROR, "sink.failed", "%s; flags stay in %s: keep its volume", err.text,
                s->conf->store_file);
    else if (!result.complete)
        spw_log(SPW_LOG_ERROR, "sink.incomplete",
                "%llu flags in %s, and there are more in %s: keep its volume, or raise drain and the pod's "
                "grace period",
                (unsigned long long)result.flags_count, result.file, s->conf->store_file);
    else
        spw_log(SPW_LOG_INFO, "sink", "%llu flags that nobody had acknowledged are in %s",
                (unsigned long long)result.flags_count, result.file[0] ? result.file : "no file");
}

/* The reverse order of start; what was never opened is skipped. */
static void stop(struct sidecar *s, bool clean)
{
    spw_reload_destroy(s->reload);
    spw_rate_refresher_destroy(s->rate_refresher);
    spw_rate_watch_destroy(s->rate_watch);
    spw_control_stop(s->control);
    spw_admin_destroy(s->admin);
    spw_pass_doors_destroy(s->pass_doors);
    spw_quote_door_destroy(s->door);
    spw_reconcile_stop(s->reconcile);
    spw_decider_destroy(s->decider);
    spw_spool_stop(s->spool);
    if (clean)
        drain_to_sink(s);
    if (s->store)
        spw_store_close(s->store);
    spw_reconcile_destroy(s->reconcile);
    if (s->state)
        spw_state_close(s->state, clean);
    if (s->loop) {
        if (s->signals.fn)
            spw_loop_watch_close(s->loop, &s->signals);
        spw_loop_destroy(s->loop);
    }
    spw_conf_destroy(s->conf);
}

/* The sizes follow from the file alone. */
static int print_sizes(const char *path, struct spw_error *err)
{
    struct spw_conf *conf = NULL;
    uint64_t pub_bytes, rw_bytes;
    if (spw_conf_load_alone(path, &conf, err) != SPW_STATUS_OK) {
        fprintf(stderr, "spillwayd: %s\n", err->text);
        return 1;
    }
    spw_state_sizes(conf, &pub_bytes, &rw_bytes);
    printf("pub %llu\nrw %llu\n", (unsigned long long)pub_bytes, (unsigned long long)rw_bytes);
    spw_conf_destroy(conf);
    return 0;
}

static int check(const struct spw_conf *conf, const struct arguments *a, struct spw_error *err)
{
    struct spw_rate_files files;
    enum spw_status status = spw_rate_files_read(&files, conf, err);
    spw_rate_files_clean_up(&files);
    if (status == SPW_STATUS_OK)
        status = spw_control_check(conf, err);
    if (status != SPW_STATUS_OK) {
        spw_conf_locate(conf, a->conf_path, err);
        fprintf(stderr, "spillwayd: %s\n", err->text);
        return 1;
    }
    printf("%s: good\n", a->conf_path);
    return 0;
}

int main(int argc, char **argv)
{
    struct sidecar s;
    struct arguments a;
    struct spw_error err;
    memset(&s, 0, sizeof s);
    memset(&a, 0, sizeof a);
    memset(&err, 0, sizeof err);
    int exit_code = read_arguments(argc, argv, &a);
    if (exit_code)
        return exit_code - 1;
    if (a.print_sizes)
        return print_sizes(a.conf_path, &err);
    harden();
    if (spw_conf_load(a.conf_path, &s.conf, &err) != SPW_STATUS_OK) {
        fprintf(stderr, "spillwayd: %s\n", err.text);
        return 1;
    }
    s.live.path = a.conf_path;
    s.live.conf = s.conf;
    spw_conf_log_apply(s.conf);
    if (a.check_only) {
        exit_code = check(s.conf, &a, &err);
        spw_conf_destroy(s.conf);
        return exit_code;
    }
    enum spw_status status = start(&s, &err);
    if (status == SPW_STATUS_OK) {
        spw_log(SPW_LOG_INFO, "ready", "spillwayd " SPW_VERSION " serves %u accounts",
                s.conf->accounts_count);
        status = spw_loop_run(s.loop, &err);
    }
    if (status != SPW_STATUS_OK)
        spw_log(SPW_LOG_ERROR, "fatal", "%s: %s (%s)", spw_status_name(status), err.text,
                spw_status_action(status));
    stop(&s, status == SPW_STATUS_OK);
    return status == SPW_STATUS_OK ? 0 : 1;
}
