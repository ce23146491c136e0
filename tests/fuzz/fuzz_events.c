/* fuzz_events.c: a list of events that means no good, through the replay of them.
 *
 * Owns: a configuration. Called by: libFuzzer, or replay.c. Thread: one.
 *
 * Lines that cannot be read are refused with field and remedy; whatever the others ask for, no bucket holds more than its
 * burst, no more is admitted than it had and has earned, and no hint is zero.
 */
#include <stdlib.h>
#include <string.h>

#include "sidecar/replay/engine.h"
#include "sidecar/replay/stamp.h"
#include "tests/fuzz/fuzz.h"

#define EXPECT SPW_FUZZ_EXPECT
#define BURST  UINT64_C(100)

static const char conf_text[] = "accounts:\n"
                                "  main: {provider: taxcloud, connection: c, credentials: {api_key_env: K},\n"
                                "         limit: {rate: 0/s, burst: 100, pods: 1}, concurrency: 3,\n"
                                "         integrations: {web: checkout, nightly: batch}}\n";

static struct spw_conf *conf;

static void forget(void)
{
    spw_conf_destroy(conf);
}

static void do_line(struct spw_replay *replay, struct spw_replay_reader *reader, const char *line,
                    size_t bytes, uint64_t *taken, bool *changed)
{
    struct spw_replay_event event;
    struct spw_replay_result result;
    struct spw_error err = {0};
    if (spw_replay_event_read(reader, line, bytes, &event, &err)) {
        EXPECT(err.text[0]);
        return;
    }
    *changed |= event.op == SPW_REPLAY_SET;
    if (spw_replay_do(replay, &event, "0", &result, &err)) {
        EXPECT(err.text[0]);
        return;
    }
    EXPECT(result.verdict);
    if (*changed) /* the limit is another one */
        return;
    EXPECT(!result.remaining_known || result.remaining_milli <= BURST * 1000);
    if (event.op == SPW_REPLAY_ACQUIRE && result.allowed)
        *taken += result.cost;
    else if (event.op == SPW_REPLAY_ACQUIRE)
        EXPECT(result.cause != SPW_CAUSE_NONE &&
               (result.wait_ns > 0 || result.cause == SPW_CAUSE_CONCURRENCY));
    EXPECT(*taken <= BURST);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct spw_replay *replay;
    struct spw_replay_reader reader = {0};
    struct spw_error err;
    uint64_t taken = 0, ns;
    bool changed = false;
    if (!conf) {
        EXPECT(spw_conf_parse("fuzz", conf_text, strlen(conf_text), &conf, &err) == SPW_STATUS_OK);
        atexit(forget);
    }
    EXPECT(spw_replay_new(conf, 0, &replay, &err) == SPW_STATUS_OK);
    char *text = malloc(bytes + 1);
    EXPECT(text);
    memcpy(text, data, bytes);
    text[bytes] = 0;
    for (char *line = text, *end; line < text + bytes; line = end + 1) {
        end = memchr(line, '\n', (size_t)(text + bytes - line));
        end = end ? end : text + bytes;
        *end = 0;
        if (*line != '#')
            do_line(replay, &reader, line, (size_t)(end - line), &taken, &changed);
        (void)spw_stamp_parse(line, &ns);
        (void)spw_stamp_span_parse("took_ms", line, &ns);
    }
    free(text);
    spw_replay_reader_clean_up(&reader);
    spw_replay_destroy(replay);
    return 0;
}
