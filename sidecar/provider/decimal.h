/* decimal.h: decimal numbers as whole numbers of small units, without a binary fraction ever deciding a cent.
 *
 * Owns: reading decimals from text and from a JSON parser's doubles. Called by: taxcloud*.c, instant.c, headers.c,
 * http/quote_json.c, conf/ and the scripted provider. Thread: any; pure; does not look at the locale.
 */
#ifndef SPW_PROVIDER_DECIMAL_H
#define SPW_PROVIDER_DECIMAL_H

#include <stddef.h>
#include <stdint.h>

/* Room for the product of two counts; an extension of both compilers, which ISO C has no name for. */
__extension__ typedef __int128 spw_wide;

enum spw_decimal_mode {
    SPW_DECIMAL_HALF_UP, /* away from zero at the half: 0.005 -> 0.01, -0.005 -> -0.01 */
    SPW_DECIMAL_UP,      /* away from zero: a wait is never shortened */
    SPW_DECIMAL_DOWN     /* toward zero: what remains is never exaggerated */
};

enum spw_decimal_result {
    SPW_DECIMAL_EXACT,
    SPW_DECIMAL_ROUNDED, /* the number had more digits than the unit; *out is rounded as asked */
    SPW_DECIMAL_BAD      /* not a number, or too large; *out is untouched */
};

/* "39.98" with scale 2 -> 3998. Grammar: [-]digits[.digits], nothing else. scale is 0..9; |*out| < 10^18. */
enum spw_decimal_result spw_decimal_parse(const char *text, size_t bytes, unsigned scale,
                                          enum spw_decimal_mode mode, int64_t *out);

/* The decimal that a double stands for, times 10^scale, half up. Takes the 15 significant digits that every double
 * carries faithfully (DBL_DIG): a decimal text of at most 15 digits comes back exactly as it was written, and the
 * noise of a peer that computes in doubles (0.30000000000000004) is taken off. NaN and infinities are BAD. */
enum spw_decimal_result spw_decimal_from_double(double value, unsigned scale, int64_t *out);

#endif
