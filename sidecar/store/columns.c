/* columns.c: see columns.h. */
#include "sidecar/store/columns.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "sidecar/obs/utf8.h"

enum kind { KIND_TEXT, KIND_UNSIGNED, KIND_SIGNED, KIND_BYTES };

struct column {
    const char *name;
    enum kind kind;
    size_t offset;
    size_t bytes;
};

#define COLUMN(kind, field)                                                                                  \
    {                                                                                                        \
#field, kind, offsetof(struct spw_flag_record, field),                                               \
            sizeof(((struct spw_flag_record *)NULL)->field)                                                  \
    }

/* Unsigned 64-bit values above INT64_MAX show as negative numbers in SQL; they come back whole. */
static const struct column columns[] = {
    COLUMN(KIND_TEXT, flag_id),
    COLUMN(KIND_TEXT, quote_id),
    COLUMN(KIND_TEXT, decision_id),
    COLUMN(KIND_TEXT, quote_ref),
    COLUMN(KIND_TEXT, account),
    COLUMN(KIND_TEXT, integration),
    COLUMN(KIND_UNSIGNED, account_index),
    COLUMN(KIND_UNSIGNED, account_generation),
    COLUMN(KIND_TEXT, currency),
    COLUMN(KIND_TEXT, country),
    COLUMN(KIND_TEXT, state),
    COLUMN(KIND_TEXT, zip),
    COLUMN(KIND_TEXT, date),
    COLUMN(KIND_SIGNED, created_unix_ms),
    COLUMN(KIND_UNSIGNED, created_ns),
    COLUMN(KIND_UNSIGNED, origin),
    COLUMN(KIND_UNSIGNED, type),
    COLUMN(KIND_UNSIGNED, cause),
    COLUMN(KIND_UNSIGNED, purpose),
    COLUMN(KIND_UNSIGNED, match),
    COLUMN(KIND_UNSIGNED, rounding),
    COLUMN(KIND_UNSIGNED, breaker_state),
    COLUMN(KIND_UNSIGNED, evidence_known),
    COLUMN(KIND_UNSIGNED, provider_status),
    COLUMN(KIND_UNSIGNED, attempts),
    COLUMN(KIND_UNSIGNED, uid),
    COLUMN(KIND_UNSIGNED, limit_count),
    COLUMN(KIND_UNSIGNED, remaining_count),
    COLUMN(KIND_SIGNED, reset_unix_ms),
    COLUMN(KIND_UNSIGNED, bucket_tokens_milli),
    COLUMN(KIND_UNSIGNED, config_version),
    COLUMN(KIND_SIGNED, taxable_minor),
    COLUMN(KIND_SIGNED, total_minor),
    COLUMN(KIND_SIGNED, tax_minor),
    COLUMN(KIND_UNSIGNED, state_ppb),
    COLUMN(KIND_UNSIGNED, county_ppb),
    COLUMN(KIND_UNSIGNED, city_ppb),
    COLUMN(KIND_UNSIGNED, special_ppb),
    COLUMN(KIND_UNSIGNED, combined_ppb),
    COLUMN(KIND_SIGNED, as_of_day),
    COLUMN(KIND_UNSIGNED, age_days),
    COLUMN(KIND_UNSIGNED, stale),
    COLUMN(KIND_TEXT, source),
    COLUMN(KIND_BYTES, source_sha256),
    COLUMN(KIND_UNSIGNED, lines_count),
    COLUMN(KIND_UNSIGNED, assumptions_bytes),
    COLUMN(KIND_UNSIGNED, request_bytes),
    COLUMN(KIND_UNSIGNED, slot),
    COLUMN(KIND_UNSIGNED, slot_generation),
};
#define RECORD_COLUMNS ((int)(sizeof columns / sizeof columns[0]))

/* The rest of the payload, in the order spw_columns_bind gives it. */
static const char *const tail_name[] = {"lines", "assumptions", "request_json", "verified",
                                        "unverified_reason"};
static const char *const tail_type[] = {"BLOB", "TEXT", "TEXT", "INTEGER", "TEXT"};
#define TAIL_COLUMNS ((int)(sizeof tail_name / sizeof tail_name[0]))

void spw_sql_add(struct spw_sql *sql, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(sql->text + sql->used, sizeof sql->text - sql->used, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof sql->text - sql->used)
        sql->overflow = true;
    else
        sql->used += (size_t)n;
}

int spw_columns_count(void)
{
    return RECORD_COLUMNS + TAIL_COLUMNS;
}

static const char *column_name(int i)
{
    return i < RECORD_COLUMNS ? columns[i].name : tail_name[i - RECORD_COLUMNS];
}

void spw_columns_define(struct spw_sql *sql)
{
    static const char *const type[] = {"TEXT", "INTEGER", "INTEGER", "BLOB"};
    for (int i = 0; i < spw_columns_count(); i++)
        spw_sql_add(sql, "%s\"%s\" %s NOT NULL", i ? ", " : "", column_name(i),
                    i < RECORD_COLUMNS ? type[columns[i].kind] : tail_type[i - RECORD_COLUMNS]);
}

void spw_columns_names(struct spw_sql *sql)
{
    for (int i = 0; i < spw_columns_count(); i++)
        spw_sql_add(sql, "%s\"%s\"", i ? "," : "", column_name(i));
}

void spw_columns_holes(struct spw_sql *sql)
{
    for (int i = 0; i < spw_columns_count(); i++)
        spw_sql_add(sql, "%s?%d", i ? "," : "", i + 1);
}

void spw_columns_assign(struct spw_sql *sql)
{
    for (int i = 0; i < spw_columns_count(); i++)
        spw_sql_add(sql, "%s\"%s\"=?%d", i ? "," : "", column_name(i), i + 1);
}

static sqlite3_int64 integer_of(const struct column *column, const uint8_t *at)
{
    uint8_t u8;
    uint16_t u16;
    uint32_t u32;
    int32_t i32;
    sqlite3_int64 i64;
    switch (column->bytes) {
    case 1:
        memcpy(&u8, at, 1);
        return u8;
    case 2:
        memcpy(&u16, at, 2);
        return u16;
    case 4:
        memcpy(&u32, at, 4);
        memcpy(&i32, at, 4);
        return column->kind == KIND_SIGNED ? (sqlite3_int64)i32 : (sqlite3_int64)u32;
    default:
        memcpy(&i64, at, 8);
        return i64;
    }
}

static void integer_put(const struct column *column, uint8_t *at, sqlite3_int64 value)
{
    uint8_t u8 = (uint8_t)value;
    uint16_t u16 = (uint16_t)value;
    uint32_t u32 = (uint32_t)value; /* also the bits of a negative int32_t */
    switch (column->bytes) {
    case 1:
        memcpy(at, &u8, 1);
        break;
    case 2:
        memcpy(at, &u16, 2);
        break;
    case 4:
        memcpy(at, &u32, 4);
        break;
    default:
        memcpy(at, &value, 8);
    }
}

int spw_columns_bind(sqlite3_stmt *statement, const struct spw_flag_payload *payload)
{
    int rc = SQLITE_OK, at = 1;
    for (int i = 0; i < RECORD_COLUMNS && rc == SQLITE_OK; i++, at++) {
        const uint8_t *field = (const uint8_t *)&payload->record + columns[i].offset;
        if (columns[i].kind == KIND_TEXT)
            rc = sqlite3_bind_text(statement, at, (const char *)field, -1, SQLITE_STATIC);
        else if (columns[i].kind == KIND_BYTES)
            rc = sqlite3_bind_blob(statement, at, field, (int)columns[i].bytes, SQLITE_STATIC);
        else
            rc = sqlite3_bind_int64(statement, at, integer_of(&columns[i], field));
    }
    const struct spw_flag_record *r = &payload->record;
    if (rc == SQLITE_OK)
        rc = sqlite3_bind_blob(statement, at++, payload->lines,
                               (int)(r->lines_count * sizeof(struct spw_line_tax)), SQLITE_STATIC);
    if (rc == SQLITE_OK)
        rc = sqlite3_bind_text(statement, at++, payload->assumptions, (int)r->assumptions_bytes,
                               SQLITE_STATIC);
    if (rc == SQLITE_OK)
        rc = sqlite3_bind_text(statement, at++, payload->request, (int)r->request_bytes, SQLITE_STATIC);
    if (rc == SQLITE_OK)
        rc = sqlite3_bind_int(statement, at++, payload->verified);
    if (rc == SQLITE_OK)
        rc = sqlite3_bind_text(statement, at, payload->unverified_reason, -1, SQLITE_STATIC);
    return rc;
}

int spw_columns_read(sqlite3_stmt *statement, int first, struct spw_flag_record *out)
{
    memset(out, 0, sizeof *out);
    for (int i = 0; i < RECORD_COLUMNS; i++) {
        uint8_t *field = (uint8_t *)out + columns[i].offset;
        if (columns[i].kind == KIND_UNSIGNED || columns[i].kind == KIND_SIGNED) {
            integer_put(&columns[i], field, sqlite3_column_int64(statement, first + i));
            continue;
        }
        const void *bytes = columns[i].kind == KIND_TEXT
                                ? (const void *)sqlite3_column_text(statement, first + i)
                                : sqlite3_column_blob(statement, first + i);
        size_t n = (size_t)sqlite3_column_bytes(statement, first + i);
        size_t room = columns[i].kind == KIND_TEXT ? columns[i].bytes - 1 : columns[i].bytes;
        if (bytes)
            memcpy(field, bytes, n < room ? n : room);
    }
    return first + RECORD_COLUMNS;
}

const char *spw_columns_bad_text(const struct spw_flag_record *record)
{
    for (int i = 0; i < RECORD_COLUMNS; i++) {
        const char *text = (const char *)record + columns[i].offset;
        if (columns[i].kind == KIND_TEXT && !spw_utf8_is_name(text, strlen(text)))
            return columns[i].name;
    }
    return NULL;
}
