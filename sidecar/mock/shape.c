/* shape.c: see shape.h. */
#include "sidecar/mock/shape.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "sidecar/provider/decimal.h"

#define PPB_ONE    1000000000
#define KEY_BYTES  300u
#define JSON_STYLE (JSON_COMPACT | JSON_REAL_PRECISION(15))

static const struct spw_mock_shape *const shapes[] = {&spw_mock_avatax, &spw_mock_stripe, &spw_mock_taxjar,
                                                      &spw_mock_taxcloud};

const struct spw_mock_shape *spw_mock_shape_of(const char *path)
{
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        if (strncmp(path, shapes[i]->prefix, strlen(shapes[i]->prefix)) == 0)
            return shapes[i];
    return &spw_mock_taxcloud;
}

bool spw_mock_rate_find(const struct spw_mock_books *books, const char *zip, struct spw_mock_rate *out)
{
    const struct spw_rate_row *row = NULL;
    memset(out, 0, sizeof *out);
    if (!zip || !spw_mock_books_rate(books, zip, &out->combined_ppb, &row))
        return false;
    const struct spw_mock_part parts[] = {{"state", row ? row->state_ppb : 0},
                                          {"county", row ? row->county_ppb : 0},
                                          {"city", row ? row->city_ppb : 0},
                                          {"special", row ? row->special_ppb : 0}};
    uint64_t sum_ppb = 0;
    for (size_t i = 0; i < 4; i++) {
        sum_ppb += parts[i].ppb;
        if (parts[i].ppb)
            out->parts[out->parts_count++] = parts[i];
    }
    if (sum_ppb != out->combined_ppb) { /* a flat rate, or a table that knows no parts */
        out->parts[0] = (struct spw_mock_part){"state", out->combined_ppb};
        out->parts_count = out->combined_ppb ? 1 : 0;
    }
    return true;
}

int64_t spw_mock_tax_minor(int64_t amount_minor, uint32_t ppb)
{
    spw_wide magnitude = amount_minor < 0 ? -(spw_wide)amount_minor : amount_minor;
    int64_t tax = (int64_t)((magnitude * ppb + PPB_ONE / 2) / PPB_ONE);
    return amount_minor < 0 ? -tax : tax;
}

bool spw_mock_minor(const json_t *value, int64_t *out)
{
    if (json_is_string(value))
        return spw_decimal_parse(json_string_value(value), json_string_length(value), 2, SPW_DECIMAL_HALF_UP,
                                 out) != SPW_DECIMAL_BAD;
    return json_is_number(value) &&
           spw_decimal_from_double(json_number_value(value), 2, out) != SPW_DECIMAL_BAD;
}

struct spw_mock_reply spw_mock_reply_json(unsigned status, json_t *value)
{
    struct spw_mock_reply reply = {.status = status, .body = value ? json_dumps(value, JSON_STYLE) : NULL};
    json_decref(value);
    return reply;
}

json_t *spw_mock_amount(int64_t minor)
{
    return json_real((double)minor / 100);
}

json_t *spw_mock_ratio(uint32_t ppb)
{
    return json_real((double)ppb / PPB_ONE);
}

json_t *spw_mock_document(const struct spw_mock_books *books, const char *key_format, ...)
{
    char key[KEY_BYTES];
    va_list args;
    va_start(args, key_format);
    vsnprintf(key, sizeof key, key_format, args);
    va_end(args);
    return json_object_get(json_object_get(books->documents, key), "document");
}

void spw_mock_keep(struct spw_mock_books *books, json_t *document, const char *key_format, ...)
{
    char key[KEY_BYTES];
    va_list args;
    va_start(args, key_format);
    vsnprintf(key, sizeof key, key_format, args);
    va_end(args);
    json_t *kept = json_object_get(books->documents, key);
    json_int_t writes = json_integer_value(json_object_get(kept, "writes"));
    if (kept) {
        json_object_set_new(kept, "writes", json_integer(writes + 1));
        json_object_set_new(kept, "document", document);
    } else {
        json_object_set_new(books->documents, key,
                            json_pack("{s:i, s:o}", "writes", 1, "document", document));
    }
}

json_t *spw_mock_books_json(const struct spw_mock_books *books)
{
    json_t *all = json_deep_copy(books->documents), *order;
    const char *id;
    json_object_foreach(books->orders, id, order)
    {
        char key[KEY_BYTES];
        snprintf(key, sizeof key, "taxcloud/orders/%.200s", id);
        json_object_set_new(all, key, json_pack("{s:i, s:O}", "writes", 1, "document", order));
    }
    return all;
}

bool spw_mock_path_id(const char *path, const char *prefix, char *id, size_t room, const char **tail)
{
    size_t prefix_bytes = strlen(prefix);
    if (strncmp(path, prefix, prefix_bytes) != 0)
        return false;
    const char *start = path + prefix_bytes;
    size_t bytes = strcspn(start, "/");
    if (bytes == 0 || bytes >= room)
        return false;
    memcpy(id, start, bytes);
    id[bytes] = 0;
    *tail = start + bytes;
    return true;
}
