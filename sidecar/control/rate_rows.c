/* rate_rows.c: rows of a rate table as they come over the wire, checked. See rate_rows.h. */
#include "sidecar/control/rate_rows.h"

#include "shm/spw_rates.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ZIP_MIN            501u
#define ZIP_MAX            99950u
#define PLUS4_MAX          9999u
#define PPB_MAX            1000000000u /* 100 % */
#define PLUS4_NONE         0xFFFFu
#define DAY_MAX            100000u /* year 2243 */
#define TAX_CODE_MAX_BYTES 31u

static enum spw_status refuse(struct spw_error *err, size_t index, const char *field, const char *what)
{
    return spw_error_set(err, SPW_STATUS_INVALID, "rows[%zu].%s: %s", index, field, what);
}

static bool is_two_capitals(const char *text)
{
    return text && text[0] >= 'A' && text[0] <= 'Z' && text[1] >= 'A' && text[1] <= 'Z' && !text[2];
}

static enum spw_status take_place(const Spillway__V1__RateRow *message, size_t index,
                                  struct spw_rate_row *row, struct spw_error *err)
{
    const char *country = message->country ? message->country : "US";
    if (!is_two_capitals(country))
        return refuse(err, index, "country", "is no ISO 3166-1 code: write two capital letters, as US");
    bool us = strcmp(country, "US") == 0;
    if ((us || message->state) && !is_two_capitals(message->state))
        return refuse(err, index, "state", "is no state: write two capital letters, as WA");
    if (message->has_zip5 && (message->zip5 < ZIP_MIN || message->zip5 > ZIP_MAX || !us))
        return refuse(
            err, index, "zip5",
            "is out of range: write 501 to 99950, as a number, or leave it out for the whole state");
    if (!message->has_zip5 && (message->has_plus4_lo || message->has_plus4_hi))
        return refuse(err, index, "zip5", "is missing: a range of ZIP+4 belongs to a ZIP code");
    if (message->has_plus4_lo != message->has_plus4_hi)
        return refuse(err, index, message->has_plus4_lo ? "plus4_hi" : "plus4_lo",
                      "is missing: give both ends of the range, or none for the whole ZIP code");
    if (message->plus4_hi > PLUS4_MAX)
        return refuse(err, index, "plus4_hi", "is out of range: write 0 to 9999");
    if (message->plus4_lo > message->plus4_hi)
        return refuse(err, index, "plus4_lo", "is above plus4_hi: write the lower end first");
    memcpy(row->country, country, 2);
    if (message->state)
        memcpy(row->state, message->state, 2);
    row->zip5 = message->zip5;
    row->plus4_lo = message->has_plus4_lo ? (uint16_t)message->plus4_lo : PLUS4_NONE;
    row->plus4_hi = message->has_plus4_hi ? (uint16_t)message->plus4_hi : PLUS4_NONE;
    return SPW_STATUS_OK;
}

static enum spw_status take_limits(const Spillway__V1__RateRow *message, size_t index,
                                   struct spw_rate_row *row, struct spw_error *err)
{
    if (message->valid_to_day && message->valid_to_day < message->valid_from_day)
        return refuse(err, index, "valid_to_day", "lies before valid_from_day");
    if (message->valid_from_day > DAY_MAX || message->valid_to_day > DAY_MAX)
        return refuse(err, index, message->valid_from_day > DAY_MAX ? "valid_from_day" : "valid_to_day",
                      "is out of range: days since 1970-01-01, or none");
    if (message->tax_code && (!message->tax_code[0] || strlen(message->tax_code) > TAX_CODE_MAX_BYTES))
        return refuse(err, index, "tax_code", "is no code: write 1 to 31 bytes, or leave it out");
    row->valid_from_day = message->valid_from_day;
    row->valid_to_day = message->valid_to_day;
    row->tax_code_hash = spw_tax_code_hash(message->tax_code);
    row->least = message->least;
    return SPW_STATUS_OK;
}

static enum spw_status take_rates(const Spillway__V1__RateRow *message, size_t index,
                                  struct spw_rate_row *row, struct spw_error *err)
{
    const struct {
        const char *field;
        uint32_t ppb;
        uint32_t *to;
    } parts[] = {
        {"state_ppb", message->state_ppb, &row->state_ppb},
        {"county_ppb", message->county_ppb, &row->county_ppb},
        {"city_ppb", message->city_ppb, &row->city_ppb},
        {"special_ppb", message->special_ppb, &row->special_ppb},
        {"combined_ppb", message->combined_ppb, &row->combined_ppb},
    };
    if (!message->has_combined_ppb)
        return refuse(err, index, "combined_ppb", "is missing: it is what is charged, and 0 has to be said");
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (parts[i].ppb > PPB_MAX)
            return refuse(err, index, parts[i].field,
                          "is above 100 %: write parts per billion, 0 to 1000000000");
        *parts[i].to = parts[i].ppb;
    }
    return SPW_STATUS_OK;
}

static enum spw_status make_room(struct spw_row_list *list, size_t more, struct spw_error *err)
{
    size_t wanted = list->count + more;
    if (wanted <= list->room)
        return SPW_STATUS_OK;
    size_t room = list->room ? list->room : 1024;
    while (room < wanted)
        room *= 2;
    struct spw_rate_row *rows = realloc(list->rows, room * sizeof *rows);
    if (!rows)
        return spw_error_set(err, SPW_STATUS_NO_MEMORY,
                             "rows: no memory for %zu: raise the container's memory limit", room);
    list->rows = rows;
    list->room = room;
    return SPW_STATUS_OK;
}

enum spw_status spw_row_list_append(struct spw_row_list *list, const Spillway__V1__RateRows *rows,
                                    struct spw_error *err)
{
    enum spw_status status = make_room(list, rows->n_rows, err);
    for (size_t i = 0; !status && i < rows->n_rows; i++) {
        struct spw_rate_row row = {0};
        status = take_place(rows->rows[i], list->count, &row, err);
        if (!status)
            status = take_rates(rows->rows[i], list->count, &row, err);
        if (!status)
            status = take_limits(rows->rows[i], list->count, &row, err);
        if (rows->rows[i]->region)
            snprintf(row.region, sizeof row.region, "%s", rows->rows[i]->region);
        if (!status)
            list->rows[list->count++] = row;
    }
    return status;
}

void spw_row_list_clean_up(struct spw_row_list *list)
{
    free(list->rows);
    *list = (struct spw_row_list){0};
}
