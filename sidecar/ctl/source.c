/* source.c: the files of one `rates load` as one source. See source.h.
 *
 * Tables come one file a state, and a ZIP code may lie in two of them: as within one file, the row with the highest
 * combined rate is kept.
 */
#include "sidecar/ctl/source.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

static enum spw_status append(struct spw_ctl_source *source, const struct spw_rates_table *table,
                              struct spw_error *err)
{
    size_t wanted = source->rows_count + table->rows_count;
    struct spw_rate_row *rows = realloc(source->rows, (wanted + 1) * sizeof *rows);
    if (!rows)
        return spw_error_set(err, SPW_STATUS_NO_MEMORY, "no memory for %zu rows", wanted);
    source->rows = rows;
    if (table->rows_count)
        memcpy(rows + source->rows_count, table->rows, table->rows_count * sizeof *rows);
    source->rows_count = wanted;
    source->bad_count += table->bad_count;
    source->duplicate_count += table->duplicate_count;
    source->mismatch_count += table->mismatch_count;
    return SPW_STATUS_OK;
}

static int compare_places(const void *left, const void *right)
{
    const struct spw_rate_row *a = left, *b = right;
    int country = memcmp(a->country, b->country, sizeof a->country);
    if (country)
        return country;
    if (a->zip5 != b->zip5)
        return a->zip5 < b->zip5 ? -1 : 1;
    if (a->plus4_lo != b->plus4_lo)
        return a->plus4_lo < b->plus4_lo ? -1 : 1;
    return 0;
}

/* Within a place the highest combined rate first: it is the one that stays. */
static int compare_rows(const void *left, const void *right)
{
    const struct spw_rate_row *a = left, *b = right;
    int places = compare_places(a, b);
    if (places || a->combined_ppb == b->combined_ppb)
        return places;
    return a->combined_ppb > b->combined_ppb ? -1 : 1;
}

static void drop_duplicates(struct spw_ctl_source *source)
{
    size_t kept = 0;
    if (source->rows_count)
        qsort(source->rows, source->rows_count, sizeof *source->rows, compare_rows);
    for (size_t i = 0; i < source->rows_count; i++) {
        if (kept && compare_places(&source->rows[kept - 1], &source->rows[i]) == 0)
            source->duplicate_count++;
        else
            source->rows[kept++] = source->rows[i];
    }
    source->rows_count = kept;
}

enum spw_status spw_ctl_source_load(struct spw_ctl_source *source, char *const *paths, int paths_count,
                                    spw_rates_problem_fn *problem, void *owner, struct spw_error *err)
{
    struct spw_rates_options options = {.problem = problem, .owner = owner};
    EVP_MD_CTX *digest = EVP_MD_CTX_new();
    enum spw_status status = SPW_STATUS_OK;
    if (!digest || EVP_DigestInit_ex(digest, EVP_sha256(), NULL) != 1)
        status = spw_error_set(err, SPW_STATUS_SYSTEM, "libcrypto gives no SHA-256");
    for (int i = 0; !status && i < paths_count; i++) {
        struct spw_rates_table table;
        status = spw_rates_load(paths[i], &options, &table, err);
        if (status)
            break;
        status = append(source, &table, err);
        memcpy(source->sha256, table.sha256, sizeof table.sha256);
        if (EVP_DigestUpdate(digest, table.sha256, sizeof table.sha256) != 1 && !status)
            status = spw_error_set(err, SPW_STATUS_SYSTEM, "libcrypto gives no SHA-256");
        spw_rates_clean_up(&table);
    }
    if (!status && paths_count > 1 && EVP_DigestFinal_ex(digest, source->sha256, NULL) != 1)
        status = spw_error_set(err, SPW_STATUS_SYSTEM, "libcrypto gives no SHA-256");
    EVP_MD_CTX_free(digest);
    if (!status)
        drop_duplicates(source);
    return status;
}

void spw_ctl_source_clean_up(struct spw_ctl_source *source)
{
    free(source->rows);
    *source = (struct spw_ctl_source){0};
}
