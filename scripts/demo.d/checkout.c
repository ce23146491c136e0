/* checkout.c: one checkout process of the demo: a shop in miniature that needs nothing but spillway.h.
 *
 * Owns: its results file. Called by: demo.py, which starts several and drives them over stdin. Thread: one.
 *
 * Each order: a random cart to a random ZIP code, a quote, the order placed with the tax that was quoted, and then one
 * line of JSON in the results file. The line is written last, so an order that has a line has come to its end.
 *
 *   stdin   "rate 2.5"   orders a second from now on; "rate 0" pauses; the end of stdin ends the process
 *   stdout  {"started":N} at the end: how many orders were begun
 */
#include "spillway.h"

#include <getopt.h>
#include <inttypes.h>
#include <poll.h>

#define ORDER_WAIT_NS   UINT64_C(10000000)
#define ORDER_GIVE_UP   1000u               /* tries to record an order: ten seconds */
#define BEHIND_MAX_NS   UINT64_C(200000000) /* customers who waited longer than this went elsewhere */
#define NS_PER_S        UINT64_C(1000000000)
#define WRONG_ZIP_EVERY 50u /* one customer in so many mistypes the ZIP code */

struct destination {
    char zip[6];
    char state[3];
};

struct shop {
    const char *name;
    struct destination *places;
    uint32_t places_count;
    int results_fd;
    uint64_t random;
    uint64_t interval_ns; /* 0 = pause */
    uint64_t next_ns;
    uint64_t started_count;
    struct spw_client spillway;
};

/* xorshift64*: variety, not secrecy. */
static uint32_t pick(struct shop *shop, uint32_t below)
{
    shop->random ^= shop->random >> 12;
    shop->random ^= shop->random << 25;
    shop->random ^= shop->random >> 27;
    return (uint32_t)((shop->random * UINT64_C(2685821657736338717)) >> 33) % below;
}

static bool read_places(struct shop *shop, const char *path)
{
    struct destination place;
    FILE *file = fopen(path, "re");
    while (file && fscanf(file, "%5s %2s", place.zip, place.state) == 2) {
        struct destination *more = realloc(shop->places, (shop->places_count + 1) * sizeof *more);
        if (!more)
            break;
        shop->places = more;
        shop->places[shop->places_count++] = place;
    }
    if (file)
        fclose(file);
    return shop->places_count > 0;
}

/* ---- one order ---- */

static void fill_cart(struct shop *shop, struct spw_line *lines, uint32_t *count)
{
    static const char *const ids[] = {"1", "2", "3", "4"};
    *count = 1 + pick(shop, 4);
    for (uint32_t i = 0; i < *count; i++) {
        uint32_t pieces = 1 + pick(shop, 3);
        lines[i] = (struct spw_line){.id = ids[i],
                                     .quantity_micro = (int64_t)pieces * 1000000,
                                     .amount_minor = (int64_t)pieces * (199 + pick(shop, 15000))};
    }
}

/* spw_order_placed makes no system call and may find every cell taken for a moment: then it is tried again. */
static enum spw_status place_order(struct shop *shop, const struct spw_quote_reply *reply,
                                   const char *order_id)
{
    const struct timespec pause = {0, (long)ORDER_WAIT_NS};
    enum spw_status status = SPW_STATUS_OK;
    for (uint32_t i = 0; i < ORDER_GIVE_UP; i++) {
        status = spw_order_placed(&shop->spillway, reply->quote_id, order_id, reply->tax_minor, "USD");
        if (status == SPW_STATUS_OK)
            break;
        nanosleep(&pause, NULL);
    }
    return status;
}

/* Every text in it is an id or a word of a fixed list: nothing to escape. */
static bool write_result(struct shop *shop, const char *order_id, const struct spw_quote_reply *r,
                         bool completed, uint64_t latency_us)
{
    char line[1024];
    bool fallback = r->decision == SPW_DECISION_FALLBACK;
    bool priced = fallback || r->decision == SPW_DECISION_LIVE;
    int n = snprintf(
        line, sizeof line,
        "{\"caller\":\"%s\",\"order_id\":\"%s\",\"completed\":%s,\"decision\":\"%s\",\"type\":\"%s\","
        "\"cause\":\"%s\",\"decision_id\":\"%s\",\"quote_id\":\"%s\",\"flag_id\":\"%s\","
        "\"reason\":\"%s\",\"tax_minor\":%" PRId64 ",\"latency_us\":%" PRIu64 "}\n",
        shop->name, order_id, completed ? "true" : "false", spw_decision_name(r->decision),
        spw_fallback_name(fallback ? r->type : SPW_FALLBACK_NONE), spw_cause_name(r->cause), r->decision_id,
        priced ? r->quote_id : "", fallback ? r->flag_id : "", r->reason, priced ? r->tax_minor : 0,
        latency_us);
    return n > 0 && (size_t)n < sizeof line && write(shop->results_fd, line, (size_t)n) == n;
}

static bool one_order(struct shop *shop)
{
    char decision_id[SPW_CALLER_ID_BYTES], order_id[SPW_CALLER_ID_BYTES];
    struct spw_line lines[4];
    struct spw_quote_request request;
    static struct spw_quote_reply reply;
    memset(&request, 0, sizeof request);
    memset(&reply, 0, sizeof reply);
    uint64_t number = ++shop->started_count;
    snprintf(decision_id, sizeof decision_id, "demo-%s-%" PRIu64, shop->name, number);
    snprintf(order_id, sizeof order_id, "order-%s-%" PRIu64, shop->name, number);
    const struct destination *to = &shop->places[pick(shop, shop->places_count)];
    request.account = "taxcloud-demo";
    request.integration = "checkout";
    request.decision_id = decision_id;
    request.purpose = SPW_PURPOSE_ORDER;
    request.ship_from = (struct spw_address){"US", "TX", "75201", "Dallas", "1500 Marilla St"};
    request.ship_to = (struct spw_address){"US", to->state, to->zip, "Anytown", "1 Main St"};
    if (pick(shop, WRONG_ZIP_EVERY) == 0)
        request.ship_to.zip = "99999";
    request.lines = lines;
    fill_cart(shop, lines, &request.line_count);

    uint64_t asked_ns = spw_now_ns();
    enum spw_status status = spw_quote(&shop->spillway, &request, &reply);
    uint64_t latency_us = (spw_now_ns() - asked_ns) / 1000;
    bool completed = status == SPW_STATUS_OK;
    if (completed && (reply.decision == SPW_DECISION_LIVE || reply.decision == SPW_DECISION_FALLBACK))
        status = place_order(shop, &reply, order_id);
    /* REJECTED and NONE: the customer is asked to look at the address again; that order is at its end, too. */
    if (status != SPW_STATUS_OK) {
        fprintf(stderr, "%s: %s: %s; %s\n", shop->name, order_id, spw_status_text(status),
                spw_status_action(status));
        completed = false;
    }
    return write_result(shop, order_id, &reply, completed, latency_us);
}

/* ---- when the next customer comes ---- */

static bool read_command(struct shop *shop)
{
    char line[64], *end;
    if (!fgets(line, sizeof line, stdin))
        return false;
    double rate = strncmp(line, "rate ", 5) == 0 ? strtod(line + 5, &end) : 0;
    shop->interval_ns = rate > 0 ? (uint64_t)(1e9 / rate) : 0;
    /* Four processes that start together do not order together. */
    shop->next_ns = spw_now_ns() + (shop->interval_ns ? pick(shop, 1000) * (shop->interval_ns / 1000) : 0);
    return true;
}

/* Half to one and a half intervals from one customer to the next. */
static void wait_for_next(struct shop *shop)
{
    uint64_t now_ns = spw_now_ns();
    shop->next_ns += shop->interval_ns / 2 + pick(shop, 1000) * (shop->interval_ns / 1000);
    if (shop->next_ns + BEHIND_MAX_NS < now_ns)
        shop->next_ns = now_ns;
}

static bool run(struct shop *shop)
{
    for (;;) {
        struct pollfd commands = {.fd = STDIN_FILENO, .events = POLLIN};
        uint64_t now_ns = spw_now_ns();
        int wait_ms = -1;
        if (shop->interval_ns)
            wait_ms = shop->next_ns > now_ns ? (int)((shop->next_ns - now_ns) / 1000000) + 1 : 0;
        int n = poll(&commands, 1, wait_ms);
        if (n > 0 && !read_command(shop))
            return true;
        if (n != 0 || !shop->interval_ns)
            continue;
        if (!one_order(shop))
            return false;
        wait_for_next(shop);
    }
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"name", required_argument, NULL, 'n'},    {"pub", required_argument, NULL, 'p'},
        {"rw", required_argument, NULL, 'r'},      {"places", required_argument, NULL, 'z'},
        {"results", required_argument, NULL, 'o'}, {NULL, 0, NULL, 0}};
    static struct shop shop;
    struct spw_attach_options attach;
    const char *places = NULL, *results = NULL;
    memset(&attach, 0, sizeof attach);
    for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        const char **into = o == 'n'   ? &shop.name
                            : o == 'p' ? &attach.pub_dir
                            : o == 'r' ? &attach.rw_dir
                            : o == 'z' ? &places
                                       : &results;
        if (o == '?')
            return 2;
        *into = optarg;
    }
    if (!shop.name || !places || !results) {
        fprintf(stderr, "demo_checkout --name NAME --pub DIR --rw DIR --places FILE --results FILE\n");
        return 2;
    }
    shop.results_fd = open(results, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (shop.results_fd < 0 || !read_places(&shop, places)) {
        fprintf(stderr, "demo_checkout: %s: %s\n", shop.results_fd < 0 ? results : places, strerror(errno));
        return 1;
    }
    setvbuf(stdin, NULL, _IONBF, 0); /* poll must see what is left to read */
    shop.random = (spw_now_ns() * 2654435761u ^ (uint64_t)getpid() << 32) | 1;
    (void)spw_attach(&shop.spillway, &attach); /* attaches by itself later if the sidecar is not there yet */
    bool ok = run(&shop);
    printf("{\"started\":%" PRIu64 "}\n", shop.started_count);
    spw_detach(&shop.spillway);
    free(shop.places);
    return ok ? 0 : 1;
}
