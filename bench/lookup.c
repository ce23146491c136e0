/* lookup.c: what finding a rate costs, the time given, against a floor taken in the same run.
 *
 * Owns: a segment in a temporary directory, with as many destinations as the published national table. Thread: one.
 * Prints a JSON line per case. The floor is one dependent load: a walk through the same table's records in an order of
 * its own, each step of which says where the next one goes, so that neither can be begun before the one before it has
 * come. Batches of floor and case are interleaved, so that both see the same machine; both touch as many places.
 */
#include "shm/spw_client.h"

#include <sys/wait.h>

#include <inttypes.h>

#include "bench/stats.h"
#include "sidecar/conf/conf.h"
#include "sidecar/rates/rates.h"
#include "sidecar/state/state.h"

#define BATCHES      1000
#define BATCH_OPS    1000
#define DESTINATIONS 41071u
#define LOADS        20

struct bench {
    struct spw_map map; /* read-only, as a client has it */
    uint32_t *zips;     /* in a random order, each once */
    uint64_t at, walk;
    uint32_t day;
};

/* The walk's links lie in the records themselves, in a copy of the table of the same shape and on pages of its own. */
static uint64_t floor_batch(struct bench *b, const uint64_t *table)
{
    uint64_t at = b->walk;
    for (int i = 0; i < BATCH_OPS; i++)
        at = spw_load_rlx(&table[at * (sizeof(struct spw_rate_record) / 8)]);
    b->walk = at;
    return at;
}

static uint64_t case_batch(struct bench *b, const struct spw_place *like, const uint32_t *levels,
                           uint64_t *found)
{
    uint64_t sum = 0;
    for (int i = 0; i < BATCH_OPS; i++) {
        struct spw_place place = *like;
        struct spw_rate_record record;
        struct spw_source source;
        place.zip5 = b->zips[b->at];
        b->at = b->at + 1 < DESTINATIONS ? b->at + 1 : 0;
        if (spw_rates_find(&b->map, &place, levels, &record, &source) == SPW_RATES_FOUND) {
            ++*found;
            sum += record.combined_ppb;
        }
    }
    return sum;
}

static void run(struct bench *b, const uint64_t *table, const char *name, const struct spw_place *like)
{
    static const uint32_t levels[] = {SPW_RATE_ZIP9, SPW_RATE_ZIP5, 0};
    static double floor_ns[BATCHES], op_ns[BATCHES];
    uint64_t found = 0, ignored = 0;
    for (int i = 0; i < 100; i++)
        ignored += case_batch(b, like, levels, &found) + floor_batch(b, table);
    found = 0;
    for (int i = 0; i < BATCHES; i++) {
        uint64_t t0 = spw_now_ns();
        ignored += floor_batch(b, table);
        uint64_t t1 = spw_now_ns();
        ignored += case_batch(b, like, levels, &found);
        floor_ns[i] = (double)(t1 - t0) / BATCH_OPS;
        op_ns[i] = (double)(spw_now_ns() - t1) / BATCH_OPS;
    }
    qsort(floor_ns, BATCHES, sizeof floor_ns[0], by_value);
    qsort(op_ns, BATCHES, sizeof op_ns[0], by_value);
    double p50 = op_ns[BATCHES / 2], floor_p50 = floor_ns[BATCHES / 2];
    printf("{\"bench\":\"lookup\",\"case\":\"%s\",\"p50_ns\":%.1f,\"p99_ns\":%.1f,\"ops_per_s\":%.0f,"
           "\"floor\":\"dependent_load\",\"floor_p50_ns\":%.1f,\"ratio\":%.3f,\"found_share\":%.3f,\"check\":"
           "%u}\n",
           name, p50, op_ns[BATCHES * 99 / 100], 1e9 / p50, floor_p50, p50 / floor_p50,
           (double)found / ((double)BATCHES * BATCH_OPS), (unsigned)(ignored & 1));
}

static void shuffle(uint32_t *list, uint32_t count)
{
    uint64_t state = 88172645463325252ull;
    for (uint32_t i = count - 1; i > 0; i--) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        uint32_t k = (uint32_t)(state % (i + 1)), keep = list[i];
        list[i] = list[k];
        list[k] = keep;
    }
}

static enum spw_status fill(struct spw_state *state, struct bench *b, struct spw_error *err)
{
    struct spw_rates_source source;
    struct spw_rate_row *rows = calloc(DESTINATIONS, sizeof *rows);
    b->zips = calloc(DESTINATIONS, sizeof *b->zips);
    if (!rows || !b->zips)
        return SPW_STATUS_NO_MEMORY;
    for (uint32_t i = 0; i < DESTINATIONS; i++) {
        memcpy(rows[i].country, "US", 3);
        memcpy(rows[i].state, "WA", 3);
        b->zips[i] = rows[i].zip5 = 501 + 2 * i;
        rows[i].plus4_lo = rows[i].plus4_hi = 0xFFFF;
        rows[i].combined_ppb = rows[i].state_ppb = 1000 * i;
    }
    shuffle(b->zips, DESTINATIONS);
    memset(&source, 0, sizeof source);
    snprintf(source.name, sizeof source.name, "bench");
    source.as_of_day = (int32_t)b->day;
    source.rows = rows;
    source.rows_count = DESTINATIONS;
    enum spw_status status = spw_state_rates_replace(state, &source, 1, NULL, err);
    free(rows);
    return status;
}

static const char conf_text[] =
    "accounts:\n"
    "  main: {provider: taxcloud, connection: c, credentials: {api_key_env: HOME},\n"
    "         limit: {rate: 1/s, burst: 1, pods: 1}, integrations: {web: checkout}}\n"
    "segment: {pub_dir: %s/pub, rw_dir: %s/rw, rate_records: 65536, cells: 64}\n";

/* The floor's table: the same count of records of the same size, linked in one random circle. */
static uint64_t *circle(uint32_t *order)
{
    size_t words = sizeof(struct spw_rate_record) / 8, bytes = DESTINATIONS * sizeof(struct spw_rate_record);
    uint64_t *table = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (table == MAP_FAILED)
        return NULL;
    for (uint32_t i = 0; i < DESTINATIONS; i++)
        order[i] = i;
    shuffle(order, DESTINATIONS);
    for (uint32_t i = 0; i < DESTINATIONS; i++)
        table[order[i] * words] = order[(i + 1) % DESTINATIONS];
    return table;
}

#define READERS 2

/* What readers tell, on a page of their own. */
struct readers {
    uint64_t stop, looked, missed, torn;
    pid_t child[READERS];
};

/* Look up until told to stop: a destination that every table has must be there, and its parts must be of one table. */
static void read_on(const struct bench *b, struct readers *r)
{
    static const uint32_t levels[] = {SPW_RATE_ZIP9, SPW_RATE_ZIP5, 0};
    struct spw_place place = {.country = "US", .has_zip = true, .day = b->day};
    uint64_t looked = 0, missed = 0, torn = 0;
    for (uint64_t at = (uint64_t)getpid(); spw_load_rlx(&r->stop) == 0; at += 7919) {
        struct spw_rate_record record;
        struct spw_source source;
        place.zip5 = b->zips[at % DESTINATIONS];
        bool found = spw_rates_find(&b->map, &place, levels, &record, &source) == SPW_RATES_FOUND;
        missed += !found;
        torn += found && (record.zip5 != place.zip5 || record.state_ppb != record.combined_ppb);
        looked++;
    }
    spw_add_rlx(&r->looked, looked);
    spw_add_rlx(&r->missed, missed);
    spw_add_rlx(&r->torn, torn);
}

/* The published form of as many rows, read and put in force under the eyes of two processes: how long until they serve.
 * Floor: reading the text once. */
static void load(struct spw_state *state, const struct bench *b, struct readers *r)
{
    static double load_ns[LOADS], floor_ns[LOADS];
    size_t room = 128 + 96 * (size_t)DESTINATIONS, bytes = 0, lines = 0;
    char *text = malloc(room);
    struct spw_error err;
    if (!text)
        return;
    bytes = (size_t)snprintf(text, room,
                             "State,ZipCode,TaxRegionName,TaxRegionCode,CombinedRate,StateRate,"
                             "CountyRate,CityRate,SpecialRate\n");
    for (uint32_t i = 0; i < DESTINATIONS; i++)
        bytes += (size_t)snprintf(text + bytes, room - bytes,
                                  "WA,%05u,A PLACE OF THIS NAME,ABCD,0.0%05u,0.0%05u,0,0.000000,0\n",
                                  501 + 2 * i, i, i);
    for (int i = 0; i < READERS; i++) {
        r->child[i] = fork();
        if (r->child[i] == 0) {
            read_on(b, r);
            _exit(0);
        }
    }
    for (int k = 0; k < LOADS; k++) {
        struct spw_rates_table table;
        struct spw_rates_source source;
        uint64_t t0 = spw_now_ns();
        for (size_t i = 0; i < bytes; i++)
            lines += ((volatile char *)text)[i] == '\n';
        uint64_t t1 = spw_now_ns();
        if (spw_rates_parse("bench", text, bytes, NULL, &table, &err) != SPW_STATUS_OK)
            break;
        memset(&source, 0, sizeof source);
        snprintf(source.name, sizeof source.name, "bench");
        source.as_of_day = (int32_t)b->day;
        source.rows = table.rows;
        source.rows_count = table.rows_count;
        if (spw_state_rates_replace(state, &source, 1, NULL, &err) != SPW_STATUS_OK)
            break;
        spw_rates_clean_up(&table);
        load_ns[k] = (double)(spw_now_ns() - t1);
        floor_ns[k] = (double)(t1 - t0);
    }
    spw_store_rlx(&r->stop, 1);
    for (int i = 0; i < READERS; i++)
        waitpid(r->child[i], NULL, 0);
    qsort(load_ns, LOADS, sizeof load_ns[0], by_value);
    qsort(floor_ns, LOADS, sizeof floor_ns[0], by_value);
    printf(
        "{\"bench\":\"lookup\",\"case\":\"load_under_2_readers\",\"rows\":%u,\"p50_s\":%.4f,\"worst_s\":%.4f,"
        "\"floor\":\"read_bytes\",\"floor_p50_s\":%.4f,\"ratio\":%.3f,\"looked\":%" PRIu64
        ",\"missed\":%" PRIu64 ",\"torn\":%" PRIu64 ",\"check\":%zu}\n",
        DESTINATIONS, load_ns[LOADS / 2] / 1e9, load_ns[LOADS - 1] / 1e9, floor_ns[LOADS / 2] / 1e9,
        load_ns[LOADS / 2] / floor_ns[LOADS / 2], spw_load_rlx(&r->looked), spw_load_rlx(&r->missed),
        spw_load_rlx(&r->torn), lines & 1);
    free(text);
}

int main(void)
{
    static struct bench b;
    char dir[] = "/dev/shm/spillway-bench-XXXXXX", text[2048], path[64];
    struct spw_conf *conf = NULL;
    struct spw_state *state = NULL;
    struct spw_error err;
    if (!mkdtemp(dir))
        return 1;
    snprintf(path, sizeof path, "%s/pub", dir);
    mkdir(path, 0755);
    snprintf(path, sizeof path, "%s/rw", dir);
    mkdir(path, 0755);
    int n = snprintf(text, sizeof text, conf_text, dir, dir);
    b.day = (uint32_t)(spw_wall_ms() / 86400000);
    if (spw_conf_parse("bench", text, (size_t)n, &conf, &err) != SPW_STATUS_OK ||
        spw_state_open(conf, &state, &err) != SPW_STATUS_OK || fill(state, &b, &err) != SPW_STATUS_OK) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    uint32_t *order = calloc(DESTINATIONS, sizeof *order);
    uint64_t *table = order ? circle(order) : NULL;
    if (!table || spw_map_open(&b.map, conf->segment.pub_dir, conf->segment.rw_dir, SPW_PUB_NAME, false))
        return 1;
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct spw_place zip5 = {.country = "US", .state = "WA", .has_zip = true, .day = b.day};
    struct spw_place zip9 = zip5;
    zip9.has_plus4 = true;
    zip9.plus4 = 1234;
    run(&b, table, "zip5", &zip5);
    run(&b, table, "zip9_as_zip5", &zip9);
    struct readers *r = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (r == MAP_FAILED)
        return 1;
    load(state, &b, r);
    spw_map_close(&b.map);
    spw_state_close(state, true);
    spw_conf_destroy(conf);
    free(order);
    free(b.zips);
    n = snprintf(text, sizeof text, "rm -rf %s", dir);
    return n > 0 && system(text) == 0 ? 0 : 1;
}
