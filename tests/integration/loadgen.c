/* loadgen.c: a checkout process for the integration tests: it asks for tax or for admission until it is told to stop,
 * and writes down what it was given, one JSON object a line.
 *
 *   loadgen quote   --name N [--account A] [--pause-us N] [--count N]    spw_quote, then spw_order_placed
 *   loadgen acquire --name N [--account A] [--pause-us N] [--count N]    spw_acquire, and spw_report of a good answer
 *           [--answer STATUS]                                            or of this one
 *
 * --first N: turns are counted from N. Ids follow from name and turn: who goes on after a kill with the number of lines
 * that the dead one wrote repeats its last turn under the same decision id.
 * A line of "quote" is written when both calls have returned. Instants are CLOCK_BOOTTIME, as the sidecar's are.
 * SIGTERM lets the turn in progress finish. Exit: 0 stopped or done, 1 a line could not be written, 2 wrong arguments.
 * Owns: its standard output. Thread: one.
 */
#include "spillway.h"

#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>

struct load {
    const char *mode, *name, *account;
    uint64_t pause_us, count, first;
    uint32_t answer;
};

static volatile sig_atomic_t stopping;

static void stop(int number)
{
    (void)number;
    stopping = 1;
}

static bool read_arguments(int argc, char **argv, struct load *load)
{
    static const struct option options[] = {{"name", required_argument, NULL, 'n'},
                                            {"account", required_argument, NULL, 'a'},
                                            {"pause-us", required_argument, NULL, 'p'},
                                            {"count", required_argument, NULL, 'c'},
                                            {"first", required_argument, NULL, 'f'},
                                            {"answer", required_argument, NULL, 's'},
                                            {NULL, 0, NULL, 0}};
    int option;
    *load = (struct load){.account = "main", .pause_us = 5000, .count = UINT64_MAX, .answer = 200};
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case 'n':
            load->name = optarg;
            break;
        case 'a':
            load->account = optarg;
            break;
        case 'p':
            load->pause_us = strtoull(optarg, NULL, 10);
            break;
        case 'c':
            load->count = strtoull(optarg, NULL, 10);
            break;
        case 'f':
            load->first = strtoull(optarg, NULL, 10);
            break;
        case 's':
            load->answer = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        default:
            return false;
        }
    }
    load->mode = optind + 1 == argc ? argv[optind] : "";
    return load->name && (strcmp(load->mode, "quote") == 0 || strcmp(load->mode, "acquire") == 0);
}

static int quote_turn(struct spw_client *client, const struct load *load, uint64_t turn)
{
    static const struct spw_line lines[] = {{"1", NULL, 2000000, 3998}, {"2", NULL, 1000000, 2500}};
    static struct spw_quote_reply reply;
    struct spw_quote_request request;
    char order_id[64], decision_id[64];
    snprintf(order_id, sizeof order_id, "%s-o%" PRIu64, load->name, turn);
    snprintf(decision_id, sizeof decision_id, "%s-d%" PRIu64, load->name, turn);
    memset(&request, 0, sizeof request);
    memset(&reply, 0, sizeof reply);
    request.account = load->account;
    request.integration = "web";
    request.decision_id = decision_id;
    request.purpose = SPW_PURPOSE_ORDER;
    request.ship_from = (struct spw_address){"US", "TX", "75201", "Dallas", "1500 Marilla St"};
    request.ship_to = (struct spw_address){"US", "WA", "98110", "Bainbridge Island", "100 Ravine Ln NE"};
    request.shipping_minor = 795;
    request.lines = lines;
    request.line_count = 2;
    uint64_t begun_ns = spw_now_ns();
    enum spw_status status = spw_quote(client, &request, &reply), placed = SPW_STATUS_INVALID;
    uint64_t told_ns = spw_now_ns();
    bool priced = status == SPW_STATUS_OK &&
                  (reply.decision == SPW_DECISION_LIVE || reply.decision == SPW_DECISION_FALLBACK);
    if (priced)
        placed = spw_order_placed(client, reply.quote_id, order_id, reply.tax_minor, "USD");
    struct spw_map *map = spw__data_map(client);
    return printf("{\"begun_ns\":%" PRIu64 ",\"told_ns\":%" PRIu64 ",\"status\":\"%s\",\"decision\":\"%s\","
                  "\"type\":\"%s\",\"cause\":\"%s\",\"quote_id\":\"%s\",\"flag_id\":\"%s\","
                  "\"decision_id\":\"%s\",\"tax_minor\":%" PRId64 ",\"reason\":\"%s\",\"order_id\":\"%s\","
                  "\"placed\":\"%s\",\"generation\":\"%016" PRIx64 "\"}\n",
                  begun_ns, told_ns, spw_status_name(status), spw_decision_name(reply.decision),
                  spw_fallback_name(reply.type), spw_cause_name(reply.cause), reply.quote_id, reply.flag_id,
                  reply.decision_id, reply.tax_minor, reply.reason, order_id, spw_status_name(placed),
                  map ? map->generation : 0);
}

static int acquire_turn(struct spw_client *client, struct spw_ref *ref, uint32_t answer)
{
    static const char *const verdicts[] = {"ALLOW", "DENY", "NEVER", "NOT_ATTACHED", "BAD_HANDLE"};
    struct spw_ticket ticket;
    uint64_t begun_ns = spw_now_ns();
    struct spw_admission a = spw_acquire(client, ref, 1, 0, &ticket);
    uint64_t told_ns = spw_now_ns();
    if (a.may_call)
        spw_report(client, &ticket, answer, -1);
    return printf("{\"begun_ns\":%" PRIu64 ",\"told_ns\":%" PRIu64 ",\"verdict\":\"%s\",\"cause\":\"%s\","
                  "\"may_call\":%s,\"version\":%" PRIu64 "}\n",
                  begun_ns, told_ns, verdicts[a.verdict], spw_cause_name(a.cause),
                  a.may_call ? "true" : "false", a.version);
}

int main(int argc, char **argv)
{
    static struct spw_client client;
    struct spw_ref ref;
    struct load load;
    struct sigaction action;
    if (!read_arguments(argc, argv, &load)) {
        fprintf(stderr,
                "loadgen quote|acquire --name N [--account A] [--pause-us N] [--count N] [--first N]\n");
        return 2;
    }
    memset(&action, 0, sizeof action);
    action.sa_handler = stop;
    sigaction(SIGTERM, &action, NULL);
    bool quotes = strcmp(load.mode, "quote") == 0;
    setvbuf(stdout, NULL, _IOLBF, 0); /* what was delivered is on file before the next turn */
    (void)spw_attach(&client, NULL);
    spw_ref_init(&ref, load.account, "web");
    for (uint64_t turn = load.first; turn - load.first < load.count && !stopping; turn++) {
        if ((quotes ? quote_turn(&client, &load, turn) : acquire_turn(&client, &ref, load.answer)) < 0)
            return 1;
        usleep((useconds_t)load.pause_us);
    }
    return fflush(stdout) == 0 ? 0 : 1;
}
