/* client.c: a checkout process for the version tests: one source, compiled with the client header of today
 * (abi_client) and with each frozen one (abi_client_1_0).
 *
 *     abi_client PUB_DIR RW_DIR
 *
 * One answer for each line on its input:
 *     (at first)       how attaching ended: the status' name
 *     acquire <n>      "allow <a> deny <d> unattached <u> other <o>" of n tries
 *     rate <zip>       parts per billion, or the status' name
 *     quote <id>       "<decision> <type> <tax> <flag id>": a fallback, since nobody answers at the quote door
 *     order <id>       the status' name
 *     start / stop     acquire all the time meanwhile; stop answers as acquire
 *     where            "<generation> <minor version>" of the segment it decides by
 */
#include SPW_CLIENT_HEADER

#include <inttypes.h>

struct counts {
    uint64_t allow, deny, unattached, other;
};

static struct spw_client client;
static struct spw_ref ref;

static void acquire_once(struct counts *n)
{
    struct spw_ticket ticket;
    struct spw_admission a = spw_acquire(&client, &ref, 1, 0, &ticket);
    n->allow += a.verdict == SPW_ALLOW;
    n->deny += a.verdict == SPW_DENY || a.verdict == SPW_NEVER;
    n->unattached += a.verdict == SPW_NOT_ATTACHED;
    n->other += a.verdict == SPW_BAD_HANDLE;
    if (a.may_call)
        spw_report(&client, &ticket, 200, -1);
}

static void print_counts(const struct counts *n)
{
    printf("allow %" PRIu64 " deny %" PRIu64 " unattached %" PRIu64 " other %" PRIu64 "\n", n->allow, n->deny,
           n->unattached, n->other);
}

static void quote(const char *id)
{
    const struct spw_line line = {"1", NULL, 0, 10000};
    struct spw_quote_request q;
    struct spw_quote_reply reply;
    memset(&q, 0, sizeof q);
    memset(&reply, 0, sizeof reply);
    q.account = "main";
    q.integration = "web";
    q.decision_id = id;
    q.purpose = SPW_PURPOSE_ORDER;
    q.ship_to.state = "WA";
    q.ship_to.zip = "98110";
    q.lines = &line;
    q.line_count = 1;
    enum spw_status status = spw_quote(&client, &q, &reply);
    if (status != SPW_STATUS_OK)
        printf("%s\n", spw_status_name(status));
    else
        printf("%s %s %" PRId64 " %s\n", spw_decision_name(reply.decision), spw_fallback_name(reply.type),
               reply.tax_minor, reply.flag_id);
}

static void rate(const char *zip)
{
    struct spw_rate_record record;
    struct spw_source source;
    enum spw_status status = spw_rate_lookup(&client, zip, &record, &source);
    if (status == SPW_STATUS_OK)
        printf("%" PRIu32 "\n", record.combined_ppb);
    else
        puts(spw_status_name(status));
}

static void where(void)
{
    const struct spw_map *map = spw__live_map(&client, spw_now_ns());
    printf("%" PRIu64 " %" PRIu32 "\n", map ? map->generation : 0, map ? map->layout_minor : 0);
}

static bool running;
static struct counts total;

static void answer(const char *line)
{
    char word[128];
    if (strncmp(line, "where", 5) == 0) {
        where();
    } else if (strncmp(line, "start", 5) == 0) {
        memset(&total, 0, sizeof total);
        running = true;
        puts("ok");
    } else if (strncmp(line, "stop", 4) == 0) {
        running = false;
        print_counts(&total);
    } else if (sscanf(line, "acquire %127s", word) == 1) {
        struct counts n = {0, 0, 0, 0};
        for (unsigned long i = strtoul(word, NULL, 10); i > 0; i--)
            acquire_once(&n);
        print_counts(&n);
    } else if (sscanf(line, "rate %127s", word) == 1) {
        rate(word);
    } else if (sscanf(line, "quote %127s", word) == 1) {
        quote(word);
    } else if (sscanf(line, "order %127s", word) == 1) {
        puts(spw_status_name(spw_order_placed(&client, "sq_1", word, 671, "USD")));
    } else {
        puts("unknown command");
    }
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    struct spw_attach_options options = {argv[1], argv[2], SPW_UNATTACHED_DENY, 0, 0};
    setvbuf(stdout, NULL, _IOLBF, 0);
    spw_ref_init(&ref, "main", "web");
    puts(spw_status_name(spw_attach(&client, &options)));
    char line[256];
    size_t used = 0;
    for (;;) {
        struct pollfd input = {STDIN_FILENO, POLLIN, 0};
        char byte;
        if (running)
            acquire_once(&total);
        if (poll(&input, 1, running ? 0 : 1000) <= 0)
            continue;
        if (read(STDIN_FILENO, &byte, 1) != 1)
            break;
        if (byte != '\n' && used < sizeof line - 1) {
            line[used++] = byte;
            continue;
        }
        line[used] = 0;
        used = 0;
        answer(line);
    }
    spw_detach(&client);
    return 0;
}
