/* fuzz_headers.c: rate headers of any bytes. The first byte chooses status and unit.
 *
 * What must hold: values that are not there are zero and have no rule; instants in ms are those in us, rounded up; waits
 * are never longer than the numbers a header may hold; the same bytes give the same answer.
 */
#include <string.h>

#include "sidecar/provider/provider.h"
#include "tests/fuzz/fuzz.h"

#define N_MS INT64_C(1700000000000)

static void check(bool has, const char *rule, uint64_t value)
{
    SPW_FUZZ_EXPECT(rule != NULL);
    SPW_FUZZ_EXPECT(has == (rule[0] != 0));
    SPW_FUZZ_EXPECT(has || value == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const uint32_t statuses[] = {200, 429, 403, 503};
    struct spw_rate_signals s, again;
    if (bytes == 0)
        return 0;
    uint32_t status = statuses[data[0] & 3];
    struct spw_headers_options options = {.reset_unit = (enum spw_reset_unit)((data[0] >> 2) % 5)};
    const char *headers = (const char *)data + 1;
    spw_headers_read_as(headers, bytes - 1, status, N_MS, &options, &s);
    spw_headers_read_as(headers, bytes - 1, status, N_MS, &options, &again);
    SPW_FUZZ_EXPECT(memcmp(&s, &again, sizeof s) == 0);
    check(s.has_limit, s.limit_rule, s.limit_count);
    check(s.has_remaining, s.remaining_rule, s.remaining_count);
    check(s.has_window, s.window_rule, s.window_ms);
    check(s.has_reset, s.reset_rule, (uint64_t)s.reset_unix_us);
    check(s.has_retry, s.retry_rule, (uint64_t)s.retry_unix_us);
    SPW_FUZZ_EXPECT(s.reset_unix_us >= 0 && s.reset_unix_ms == (s.reset_unix_us + 999) / 1000);
    SPW_FUZZ_EXPECT(s.retry_unix_us >= 0 && s.retry_unix_ms == (s.retry_unix_us + 999) / 1000);
    SPW_FUZZ_EXPECT(s.reset_in_ms <= UINT64_C(2000000000000000) &&
                    s.retry_in_ms <= UINT64_C(2000000000000000));
    return 0;
}
