/* segment_holder.c: a sidecar reduced to its segment, for tests that need one in a process of its own.
 *
 *     segment_holder FILE.yaml       opens the segment of that configuration and prints "ready <origin>"
 *
 * Then heartbeat and sweep, and one answer for each line on its input, until that ends (a clean stop):
 *     status                 "tokens <milli> permits <free> attached <count> breaker <state> healed <count>"
 *     rates <zip> <ppb>      puts a table with this one row in force; "ok"
 *     forced <n>             enum spw_forced of the breaker; "ok"
 *     trip                   opens the breaker as 429s in a row do; "ok"
 *     flags                  reads and frees every record that is ready, also in replaced segments: a line each, then "ok"
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "shm/spw_admission.h"
#include "shm/spw_cell.h"
#include "sidecar/state/prev.h"
#include "sidecar/state/state.h"

static void print_status(struct spw_state *state, const struct spw_conf *conf)
{
    struct spw_account_status account;
    struct spw_state_status status;
    uint64_t now_ns = spw_now_ns();
    if (spw_state_account_status(state, 0, now_ns, &account) != SPW_STATUS_OK)
        exit(1);
    spw_state_status(state, &status);
    printf("tokens %llu permits %u attached %u breaker %s healed %llu\n",
           (unsigned long long)account.limit.tokens_milli,
           spw_permit_free_count(spw_state_map(state), 0, conf->accounts[0].concurrency_count, now_ns),
           status.attached_count, account.breaker.state, (unsigned long long)account.limit.healed_count);
}

static void put_rates(struct spw_state *state, unsigned zip, unsigned ppb)
{
    struct spw_rate_row row;
    struct spw_rates_source source;
    struct spw_error err;
    memset(&row, 0, sizeof row);
    memcpy(row.country, "US", 3);
    memcpy(row.state, "WA", 3);
    row.zip5 = zip;
    row.plus4_lo = row.plus4_hi = 0xFFFF;
    row.combined_ppb = ppb;
    memset(&source, 0, sizeof source);
    snprintf(source.name, sizeof source.name, "holder");
    source.as_of_day = (int32_t)(spw_wall_ms() / 86400000);
    source.rows = &row;
    source.rows_count = 1;
    puts(spw_state_rates_replace(state, &source, 1, NULL, &err) == SPW_STATUS_OK ? "ok" : err.text);
}

static void drain_map(const struct spw_map *map)
{
    static uint8_t bytes[SPW_CHAIN_MAX_CELLS * SPW_CELL_BYTES];
    for (uint32_t cursor = 0; spw_cell_next_ready(map, &cursor); cursor++) {
        struct spw_flag_view view;
        size_t count = 0;
        enum spw_status status = spw_cell_read(map, cursor, bytes, sizeof bytes, &count);
        if (status == SPW_STATUS_OK && spw_flag_parse(bytes, count, &view))
            printf("flag %s decision %s account %s tax %lld request %u\n", view.record.flag_id,
                   view.record.decision_id, view.record.account, (long long)view.record.tax_minor,
                   view.record.request_bytes);
        else
            printf("no flag in cell %u: %s\n", cursor, spw_status_name(status));
        spw_cell_free(map, cursor);
    }
}

static void drain_flags(struct spw_state *state)
{
    drain_map(spw_state_map(state));
    for (struct spw_prev *prev = spw_state_prev(state); prev; prev = spw_prev_next(prev))
        drain_map(spw_prev_map(prev));
    puts("ok");
}

static void force(struct spw_state *state, const char *account, int forced)
{
    struct spw_breaker_change change = {NULL, forced, false, false};
    struct spw_breaker_view view;
    struct spw_error err;
    enum spw_status status =
        spw_state_breaker_set(state, account, &change, 0, false, spw_now_ns(), &view, &err);
    puts(status == SPW_STATUS_OK ? "ok" : err.text);
}

static void trip(struct spw_state *state)
{
    const struct spw_map *map = spw_state_map(state);
    struct spw_account_words *words = spw_account_words_at(map, 0);
    struct spw_account_conf conf;
    if (!spw_account_conf_read(spw_account_at(map, 0), &conf))
        exit(1);
    uint64_t now_ns = spw_now_ns();
    for (uint32_t i = 0; i < conf.consecutive_429_count; i++) {
        uint32_t epoch = spw_breaker_unpack(spw_load_acq(&words->breaker)).epoch;
        (void)spw_breaker_outcome(map, words, &conf, now_ns, epoch, SPW_OUTCOME_THROTTLED);
    }
    puts("ok");
}

static void answer(struct spw_state *state, const struct spw_conf *conf, const char *line)
{
    unsigned a, b;
    if (strncmp(line, "status", 6) == 0)
        print_status(state, conf);
    else if (sscanf(line, "rates %u %u", &a, &b) == 2)
        put_rates(state, a, b);
    else if (sscanf(line, "forced %u", &a) == 1)
        force(state, conf->accounts[0].name, (int)a);
    else if (strncmp(line, "trip", 4) == 0)
        trip(state);
    else if (strncmp(line, "flags", 5) == 0)
        drain_flags(state);
    else
        puts("unknown command");
}

int main(int argc, char **argv)
{
    struct spw_conf *conf = NULL;
    struct spw_state *state = NULL;
    struct spw_error err = {0};
    if (argc != 2 || spw_conf_load(argv[1], &conf, &err) != SPW_STATUS_OK ||
        spw_state_open(conf, &state, &err) != SPW_STATUS_OK) {
        fprintf(stderr, "%s\n", argc == 2 ? err.text : "usage: segment_holder FILE.yaml");
        return 1;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("ready %s\n", spw_state_origin(state));
    /* Lines are read by hand: a buffered stream would hide from poll what it has read ahead. */
    char line[256];
    size_t used = 0;
    for (bool open = true; open;) {
        struct pollfd input = {STDIN_FILENO, POLLIN, 0};
        int n = poll(&input, 1, 50);
        spw_state_heartbeat(state, spw_now_ns());
        spw_state_sweep(state, spw_now_ns());
        char byte;
        if (n <= 0)
            continue;
        open = read(STDIN_FILENO, &byte, 1) == 1;
        if (open && byte != '\n' && used < sizeof line - 1) {
            line[used++] = byte;
        } else if (open) {
            line[used] = 0;
            used = 0;
            answer(state, conf, line);
        }
    }
    spw_state_close(state, true);
    spw_conf_destroy(conf);
    return 0;
}
