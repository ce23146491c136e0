/* Where an answer ends: what leaves no doubt, and what does. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "sidecar/http/framing.h"

/* In memory of just that size, so that a byte too far is seen by the sanitizer. */
static const char *doubt_about(const char *lines)
{
    size_t bytes = strlen(lines);
    char *copy = malloc(bytes + 1); /* ends with the last byte */
    assert_non_null(copy);
    char *at = copy + 1;
    memcpy(at, lines, bytes);
    const char *doubt = spw_framing_doubt(at, bytes);
    free(copy);
    return doubt;
}

static void test_plain(void **state)
{
    (void)state;
    static const char *const plain[] = {
        "",
        "X: y\r\n",
        "Content-Length: 7\r\n",
        "content-length:7\r\nx-content-length: 8\r\n",
        "Content-Length: \t 7 \t\r\nConnection: close\r\n",
        "Content-Length: 0\r\n",
        "Content-Length: 007\r\nContent-Length: 7\r\n",
        "Content-Length: 7, 7,7\r\nCONTENT-LENGTH: 7\r\n",
        "Content-Length: 999999999999999999\r\n",
        "Transfer-Encoding: chunked\r\n",
        "transfer-encoding: CHUNKED\r\n",
        "Transfer-Encoding: chunked",
        "Content-Length: 7\n",
        "Trailer: Content-Length\r\nTransfer-Encodings: gzip\r\nContent-Length-Hint: x\r\n",
        "X: a\r\n Content-Length: 8\r\n", /* the folded rest of X */
        "no colon\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++) {
        const char *doubt = doubt_about(plain[i]);
        if (doubt != NULL) {
            fail_msg("%s: %s", plain[i], doubt);
        }
    }
    assert_null(spw_framing_doubt(NULL, 0));
}

static void test_in_doubt(void **state)
{
    (void)state;
    static const char *const doubtful[] = {
        "Content-Length: 7\r\n 0\r\n",
        "Content-Length: 7\r\n\t\r\n",
        "Transfer-Encoding: chunked\r\n , gzip\r\nX: y\r\n",
        "Content-Length: 7\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nX: y\r\nContent-Length: 7\r\n",
        "Content-Length: 7\r\nContent-Length: 8\r\n",
        "Content-Length: 7\r\nContent-Length: 70\r\n",
        "Content-Length: 7, 8\r\n",
        "Content-Length: 7,\r\n",
        "Content-Length: 7 7\r\n",
        "Content-Length:\r\n",
        "Content-Length: 7x\r\n",
        "Content-Length: +7\r\n",
        "Content-Length: -7\r\n",
        "Content-Length: 0x7\r\n",
        "Content-Length: 7.0\r\n",
        "Content-Length: 1000000000000000000\r\n",
        "Content-Length: 7\r8\r\n",
        "X: a\rTransfer-Encoding: chunked\r\nContent-Length: 7\r\n",
        "X: a\r\r\n",
        "X: \ra\n",
        "Content-Length : 7\r\n",
        "Transfer-Encoding\t: chunked\r\n",
        "Transfer-Encoding:\r\n chunked\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: \"chunked\"\r\n",
        "Transfer-Encoding: chunked;q=1\r\n",
    };
    for (size_t i = 0; i < sizeof doubtful / sizeof doubtful[0]; i++) {
        if (doubt_about(doubtful[i]) == NULL) {
            fail_msg("taken: %s", doubtful[i]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_in_doubt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
