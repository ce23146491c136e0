/* model_latch.c: a value of several words with one writer: a reader never gets a mixture, never goes back in time, and
 * never waits for a writer that died.
 */
#include "tests/model/step.h"
#include "shm/spw_latch.h"
#include "tests/model/explore.h"

#define WORDS 2u

struct latch {
    uint64_t seq;
    uint64_t slot[2][WORDS];
};

static struct latch *latch;

static void set_up(void)
{
    latch = spw_model_shared("latch", sizeof *latch);
    latch->slot[0][0] = 1;
    latch->slot[0][1] = 101;
}

static void write_value(uint64_t n)
{
    const uint64_t value[WORDS] = {n, n + 100};
    spw_latch_write(&latch->seq, latch->slot[0], WORDS, value, WORDS);
}

static void write_three(void)
{
    for (uint64_t n = 2; n <= 4; n++)
        write_value(n);
}

static void read_twice(void)
{
    uint64_t before = 0;
    for (unsigned i = 0; i < 2; i++) {
        uint64_t value[WORDS] = {0, 0};
        /* With at most three rounds of writing it needs no more than four tries. */
        bool ok = spw_latch_read(&latch->seq, latch->slot[0], WORDS, value, WORDS);
        SPW_HOLDS(ok);
        SPW_HOLDS(value[1] == value[0] + 100);
        SPW_HOLDS(value[0] >= before && value[0] >= 1 && value[0] <= 4);
        before = value[0];
    }
}

/* After a death the next writer goes on from the counter it finds. */
static void latch_end(void)
{
    uint64_t value[WORDS];
    SPW_HOLDS(spw_latch_read(&latch->seq, latch->slot[0], WORDS, value, WORDS));
    SPW_HOLDS(value[1] == value[0] + 100);
    SPW_HOLDS(spw_model_deaths() || value[0] == 4);
    write_value(9);
    SPW_HOLDS(spw_latch_read(&latch->seq, latch->slot[0], WORDS, value, WORDS));
    SPW_HOLDS(value[0] == 9 && value[1] == 109);
}

int main(int argc, char **argv)
{
    static const struct spw_model models[] = {
        {.name = "latch",
         .processes = 3,
         .deaths = 1,
         .mortal = {true, false, false},
         .set_up = set_up,
         .run = {write_three, read_twice, read_twice},
         .at_end = latch_end,
         .least_schedules = 1000000},
    };
    return spw_models_run(models, sizeof models / sizeof models[0], argc, argv);
}
