/* test_reuse.c: the table of answers that may be given again: what it keeps, what it lets go, and that it never grows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include "sidecar/http/reuse.h"

#define SECOND UINT64_C(1000000000)

static struct spw_key key_of(uint32_t n)
{
    static struct spw_key_maker maker;
    struct spw_key key;
    if (!maker.mac)
        assert_true(spw_key_maker_init(&maker));
    spw_key_make(&maker, "test", (const char *)&n, sizeof n, &key);
    return key;
}

/* An answer that tells its number in all its parts. */
static void fill(uint32_t n, struct spw_result *r, struct spw_line_tax *lines, struct spw_answer *answer,
                 struct spw_fallback_answer *fallback)
{
    memset(r, 0, sizeof *r);
    r->decision = n % 2 ? SPW_DECISION_LIVE : SPW_DECISION_FALLBACK;
    r->tax_minor = n;
    r->lines_count = n % 40 + 1;
    for (uint32_t i = 0; i < r->lines_count; i++)
        lines[i].tax_minor = n + i;
    r->lines = lines;
    snprintf(r->quote_id, sizeof r->quote_id, "sq_%u", n);
    snprintf(r->decision_id, sizeof r->decision_id, "d-%u", n);
    if (n % 2) {
        answer->jurisdictions_count = n % 5;
        for (uint32_t i = 0; i < n % 5; i++)
            answer->jurisdictions[i].tax_minor = n * 2;
        answer->rate_ppb = n;
        r->answer = answer;
    } else {
        fallback->rate.combined_ppb = n;
        fallback->assumptions_bytes = n % 300;
        memset(fallback->assumptions, 'a', n % 300);
        fallback->assumptions[n % 300] = 0;
        r->fallback = fallback;
    }
}

static void check(uint32_t n, const struct spw_result *r)
{
    assert_int_equal(r->tax_minor, n);
    assert_int_equal(r->lines_count, n % 40 + 1);
    for (uint32_t i = 0; i < r->lines_count; i++)
        assert_int_equal(r->lines[i].tax_minor, n + i);
    if (n % 2) {
        assert_int_equal(r->answer->rate_ppb, n);
        assert_int_equal(r->answer->jurisdictions_count, n % 5);
        for (uint32_t i = 0; i < n % 5; i++)
            assert_int_equal(r->answer->jurisdictions[i].tax_minor, n * 2);
        assert_null(r->fallback);
    } else {
        assert_int_equal(r->fallback->rate.combined_ppb, n);
        assert_int_equal(strlen(r->fallback->assumptions), n % 300);
        assert_null(r->answer);
    }
}

static void put(struct spw_reuse *reuse, uint32_t number, uint32_t n, uint64_t now_ns, uint64_t until_ns)
{
    static struct spw_line_tax lines[SPW_LINES_MAX_COUNT + 1];
    static struct spw_answer answer;
    static struct spw_fallback_answer fallback;
    struct spw_result r;
    struct spw_key key = key_of(number);
    fill(n, &r, lines, &answer, &fallback);
    spw_reuse_put(reuse, &key, now_ns, until_ns, &r);
}

static bool get(struct spw_reuse *reuse, uint32_t number, uint64_t now_ns, struct spw_result *out)
{
    struct spw_key key = key_of(number);
    return spw_reuse_get(reuse, &key, now_ns, out);
}

static void the_newest_are_there_whole_and_the_oldest_go(void **state)
{
    (void)state;
    struct spw_reuse *reuse = spw_reuse_new(64 << 10);
    struct spw_result r;
    uint32_t kept = 0;
    for (uint32_t n = 1; n <= 5000; n++) {
        put(reuse, n, n, n * SECOND, 1000000 * SECOND);
        for (uint32_t back = 0; back < 15 && back < n; back++) {
            assert_true(get(reuse, n - back, n * SECOND, &r));
            check(n - back, &r);
        }
    }
    for (uint32_t n = 1; n <= 5000; n++)
        kept += get(reuse, n, 5000 * SECOND, &r);
    assert_true(kept > 15 && kept < 120); /* 64 KiB hold that many */
    assert_false(get(reuse, 1, 5000 * SECOND, &r));
    assert_int_not_equal(spw_reuse_crowded_ns(reuse), 0);
    spw_reuse_destroy(reuse);
}

static void a_second_answer_takes_the_place_of_the_first(void **state)
{
    (void)state;
    struct spw_reuse *reuse = spw_reuse_new(64 << 10);
    struct spw_result r;
    for (uint32_t n = 1; n <= 3000; n++) {
        put(reuse, n % 3, n, n * SECOND, 1000000 * SECOND);
        assert_true(get(reuse, n % 3, n * SECOND, &r));
        check(n, &r);
    }
    struct spw_key key = key_of(1);
    spw_reuse_drop(reuse, &key);
    assert_false(get(reuse, 1, 3001 * SECOND, &r));
    assert_true(get(reuse, 2, 3001 * SECOND, &r));
    assert_int_equal(spw_reuse_crowded_ns(reuse), 0); /* nothing that was still held was pushed out */
    spw_reuse_destroy(reuse);
}

static void its_time_is_kept(void **state)
{
    (void)state;
    struct spw_reuse *reuse = spw_reuse_new(64 << 10);
    struct spw_result r;
    put(reuse, 7, 7, 10 * SECOND, 20 * SECOND);
    assert_true(get(reuse, 7, 20 * SECOND - 1, &r));
    assert_false(get(reuse, 7, 20 * SECOND, &r));
    assert_false(get(reuse, 7, 19 * SECOND, &r)); /* gone for good */
    spw_reuse_destroy(reuse);
}

static bool count_one(void *owner, const struct spw_result *r)
{
    uint32_t *count = owner;
    assert_string_equal(r->decision_id, "d-12");
    ++*count;
    return true;
}

static void answers_are_found_by_their_ids(void **state)
{
    (void)state;
    struct spw_reuse *reuse = spw_reuse_new(64 << 10);
    uint32_t count = 0;
    for (uint32_t n = 1; n <= 20; n++)
        put(reuse, n, n, SECOND, 100 * SECOND);
    spw_reuse_each(reuse, "d-12", 2 * SECOND, count_one, &count);
    spw_reuse_each(reuse, "sq_12", 2 * SECOND, count_one, &count);
    spw_reuse_each(reuse, "d-1", 200 * SECOND, count_one, &count); /* over */
    spw_reuse_each(reuse, "d-99", 2 * SECOND, count_one, &count);
    assert_int_equal(count, 2);
    spw_reuse_destroy(reuse);
}

static void what_is_too_large_is_not_kept(void **state)
{
    (void)state;
    struct spw_reuse *reuse = spw_reuse_new(4096);
    struct spw_line_tax lines[SPW_LINES_MAX_COUNT + 1] = {{0}};
    struct spw_result r;
    struct spw_key key = key_of(1);
    memset(&r, 0, sizeof r);
    r.decision = SPW_DECISION_LIVE;
    r.lines = lines;
    r.lines_count = SPW_LINES_MAX_COUNT + 1;
    spw_reuse_put(reuse, &key, SECOND, 100 * SECOND, &r);
    assert_false(get(reuse, 1, 2 * SECOND, &r));
    spw_reuse_destroy(reuse);
}

static void keys_differ_by_secret_kind_and_text(void **state)
{
    (void)state;
    struct spw_key_maker one, other;
    struct spw_key a, b;
    assert_true(spw_key_maker_init(&one) && spw_key_maker_init(&other));
    spw_key_make(&one, "cart", "x", 1, &a);
    spw_key_make(&one, "cart", "x", 1, &b);
    assert_memory_equal(&a, &b, sizeof a);
    spw_key_make(&other, "cart", "x", 1, &b);
    assert_memory_not_equal(&a, &b, sizeof a);
    spw_key_make(&one, "decision", "x", 1, &b);
    assert_memory_not_equal(&a, &b, sizeof a);
    spw_key_make(&one, "cart", "y", 1, &b);
    assert_memory_not_equal(&a, &b, sizeof a);
    spw_key_make(&one, "car", "tx", 2, &b);
    assert_memory_not_equal(&a, &b, sizeof a);
    spw_key_maker_clean_up(&other);
    spw_key_maker_clean_up(&one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_newest_are_there_whole_and_the_oldest_go),
        cmocka_unit_test(a_second_answer_takes_the_place_of_the_first),
        cmocka_unit_test(its_time_is_kept),
        cmocka_unit_test(answers_are_found_by_their_ids),
        cmocka_unit_test(what_is_too_large_is_not_kept),
        cmocka_unit_test(keys_differ_by_secret_kind_and_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
