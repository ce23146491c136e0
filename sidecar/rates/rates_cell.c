/* rates_cell.c: see rates_cell.h. */
#include "sidecar/rates/rates_cell.h"

#include <string.h>
#include <strings.h>

#define NUMBER_PLACES    11u
#define NUMBER_MAX_WHOLE 1000u
#define PPB_ONE          1000000000u

static struct spw_rates_cell trimmed(const char *text, size_t bytes)
{
    while (bytes && (*text == ' ' || *text == '\t')) {
        text++;
        bytes--;
    }
    while (bytes && (text[bytes - 1] == ' ' || text[bytes - 1] == '\t'))
        bytes--;
    return (struct spw_rates_cell){text, bytes};
}

/* One cell from p on; *next is the comma behind it, or end. */
static const char *split_one(const char *p, const char *end, struct spw_rates_cell *cell, const char **next)
{
    const char *start = p;
    while (start < end && *start == ' ')
        start++;
    if (start == end || *start != '"') {
        const char *comma = memchr(p, ',', (size_t)(end - p));
        *next = comma ? comma : end;
        *cell = trimmed(p, (size_t)(*next - p));
        return memchr(p, '"', (size_t)(*next - p)) ? "a quote within a cell: put the whole cell in quotes"
                                                   : NULL;
    }
    const char *q = start + 1;
    while (q < end && (*q != '"' || (q + 1 < end && q[1] == '"')))
        q += *q == '"' ? 2 : 1;
    if (q >= end)
        return "a quote is not closed on its line: close it";
    *cell = trimmed(start + 1, (size_t)(q - start - 1));
    for (q++; q < end && *q == ' ';)
        q++;
    *next = q;
    return q < end && *q != ',' ? "text behind a closing quote: separate cells with a comma" : NULL;
}

const char *spw_rates_cells_split(const char *line, size_t bytes,
                                  struct spw_rates_cell cells[SPW_RATES_CELLS_MAX_COUNT], size_t *count)
{
    const char *end = line + bytes;
    *count = 0;
    for (const char *p = line;; p++) {
        if (*count == SPW_RATES_CELLS_MAX_COUNT)
            return "more than 64 cells: this is no rate table";
        const char *next;
        const char *fault = split_one(p, end, &cells[*count], &next);
        if (fault)
            return fault;
        ++*count;
        if (next == end)
            return NULL;
        p = next;
    }
}

bool spw_rates_cell_is(const struct spw_rates_cell *cell, const char *word)
{
    return strlen(word) == cell->bytes && !strncasecmp(cell->text, word, cell->bytes);
}

bool spw_rates_cell_number(const struct spw_rates_cell *cell, struct spw_number *out)
{
    const char *p = cell->text, *end = p + cell->bytes;
    *out = (struct spw_number){0};
    if (p < end && end[-1] == '%') {
        out->is_percent = true;
        for (end--; p < end && end[-1] == ' ';)
            end--;
    }
    uint64_t value = 0;
    size_t digits_count = 0;
    for (; p < end && *p >= '0' && *p <= '9'; p++, digits_count++) {
        value = value * 10 + (uint64_t)(*p - '0');
        if (value > NUMBER_MAX_WHOLE)
            return false;
    }
    bool has_point = p < end && *p == '.';
    p += has_point;
    for (unsigned place = 0; place < NUMBER_PLACES; place++) {
        value *= 10;
        if (p < end && *p >= '0' && *p <= '9') {
            value += (uint64_t)(*p++ - '0');
            digits_count++;
        }
    }
    /* 0.10350000000000001 is how programs write 0.1035: what lies beyond is rounded, and must leave a whole rate. */
    if (p < end && has_point && *p >= '5' && *p <= '9')
        value++;
    while (p < end && has_point && *p >= '0' && *p <= '9')
        p++;
    out->value_e11 = value;
    return digits_count && p == end;
}

const char *spw_number_ppb(const struct spw_number *number, bool percent, uint32_t *out_ppb)
{
    uint64_t step = number->is_percent || percent ? 10000 : 100;
    if (number->value_e11 % step)
        return "has more digits than parts per billion: write at most 9 decimals, 7 in a percent";
    if (number->value_e11 / step > PPB_ONE)
        return "is above 100%";
    *out_ppb = (uint32_t)(number->value_e11 / step);
    return NULL;
}
