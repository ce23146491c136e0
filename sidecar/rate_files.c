/* rate_files.c: see rate_files.h. */
#include "sidecar/rate_files.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "shm/spw_map.h"
#include "shm/spw_text.h"
#include "sidecar/obs/log.h"

#define FILES_MAX  256u /* of one directory: each state's two, and some */
#define NAME_BYTES 256u

/* ---- which files there are ---- */

#define OF_DIRECTORY (-1)
#define FETCHED      (-2)

struct found {
    char path[SPW_PATH_BYTES + NAME_BYTES];
    char source[SPW_NAME_BYTES];
    int32_t as_of_day;
    bool taken;   /* it is in a source already */
    int position; /* in fallback.rates; -1 = of the directory, -2 = fetched */
};

struct listing {
    struct found files[SPW_CONF_RATE_FILES_MAX_COUNT + 2 * FILES_MAX];
    size_t count;
};

static bool ends_in(const char *name, size_t bytes, const char *ending)
{
    size_t n = strlen(ending);
    return bytes > n && memcmp(name + bytes - n, ending, n) == 0;
}

/* "WIR2026Q2FEB18" and "WIB...": the rates and boundaries of a state and quarter. All of one quarter are one source. */
static bool streamlined_name(const char *name, size_t bytes, char source[SPW_NAME_BYTES], int32_t *as_of_day)
{
    static const char form[] = "AA?9999Q9AAA99";
    if (bytes != sizeof form - 1 || (name[2] != 'R' && name[2] != 'B') || name[8] < '1' || name[8] > '4')
        return false;
    for (size_t i = 0; i < bytes; i++) {
        bool digit = name[i] >= '0' && name[i] <= '9', capital = name[i] >= 'A' && name[i] <= 'Z';
        if ((form[i] == '9' && !digit) || (form[i] == 'A' && !capital) || (form[i] == 'Q' && name[i] != 'Q'))
            return false;
    }
    char day[16];
    int quarter = name[8] - '0';
    snprintf(day, sizeof day, "%.4s-%02d-01", name + 3, 3 * quarter - 2);
    snprintf(source, SPW_NAME_BYTES, "sst-%.4sq%d", name + 3, quarter);
    return spw_date_parse(day, as_of_day);
}

bool spw_rate_file_name(const char *name, char source[SPW_NAME_BYTES], int32_t *as_of_day)
{
    size_t bytes = strlen(name);
    if (ends_in(name, bytes, ".gz"))
        bytes -= 3;
    if (name[0] == '.' ||
        !(ends_in(name, bytes, ".csv") || ends_in(name, bytes, ".txt") || ends_in(name, bytes, ".json")))
        return false;
    while (name[bytes - 1] != '.')
        bytes--;
    bytes--;
    if (streamlined_name(name, bytes, source, as_of_day))
        return true;
    char day[16];
    if (bytes < 10 || bytes >= SPW_NAME_BYTES)
        return false;
    snprintf(day, sizeof day, "%.10s", name + bytes - 10);
    if (!spw_date_parse(day, as_of_day))
        return false;
    for (size_t i = 0; i < bytes; i++) {
        char c = name[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
                     c == '_' || c == '-';
        if (!plain)
            return false;
    }
    snprintf(source, SPW_NAME_BYTES, "%.*s", (int)bytes, name);
    return true;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct found *)a)->path, ((const struct found *)b)->path);
}

void spw_rate_fetched_directory(const struct spw_conf *conf, char *out, size_t room)
{
    snprintf(out, room, "%s.rates", conf->store_file);
}

/* position: of what is found. */
static enum spw_status list_directory(struct listing *list, const char *path, int position,
                                      struct spw_error *err)
{
    DIR *dir = opendir(path);
    if (!dir && position == FETCHED && errno == ENOENT)
        return SPW_STATUS_OK; /* nothing has been fetched yet */
    if (!dir)
        return spw_error_set(
            err, SPW_STATUS_SYSTEM,
            "fallback.rates_dir: %s cannot be read (%s): mount it, and let the sidecar read it", path,
            strerror(errno));
    size_t first = list->count;
    for (struct dirent *entry; (entry = readdir(dir));) {
        struct found *f = &list->files[list->count];
        struct stat st;
        memset(f, 0, sizeof *f);
        snprintf(f->path, sizeof f->path, "%s/%s", path, entry->d_name);
        if (entry->d_name[0] == '.' || stat(f->path, &st) != 0 || !S_ISREG(st.st_mode))
            continue;
        if (!spw_rate_file_name(entry->d_name, f->source, &f->as_of_day)) {
            spw_log(SPW_LOG_WARN, "rates.name",
                    "%s is not taken: let its name end in the day of its rates, as vendor-2025-11-01.csv",
                    f->path);
            continue;
        }
        if (list->count - first == FILES_MAX) {
            closedir(dir);
            return spw_error_set(err, SPW_STATUS_FULL, "fallback.rates_dir: %s has more than %u tables", path,
                                 FILES_MAX);
        }
        f->position = position;
        list->count++;
    }
    closedir(dir);
    qsort(&list->files[first], list->count - first, sizeof *list->files, compare_names);
    return SPW_STATUS_OK;
}

static void list_configured(struct listing *list, const struct spw_conf_fallback *fallback)
{
    for (uint32_t n = 0; n < fallback->rate_files_count; n++) {
        struct found *f = &list->files[list->count++];
        memset(f, 0, sizeof *f);
        snprintf(f->path, sizeof f->path, "%s", fallback->rate_files[n].file);
        memcpy(f->source, fallback->rate_files[n].source, sizeof f->source);
        f->as_of_day = fallback->rate_files[n].as_of_day;
        f->position = (int)n;
    }
}

/* ---- reading them ---- */

static void told_bad_row(void *owner, const char *file, const struct spw_rates_problem *problem)
{
    (void)owner;
    spw_log(SPW_LOG_WARN, problem->warning ? "rates.warning" : "rates.row", "%s:%u: %s%s%s", file,
            problem->line, problem->column ? problem->column : "", problem->column ? ": " : "",
            problem->text);
}

/* Where a table is named, for people. */
static void place_of(const struct found *f, char *out, size_t room)
{
    if (f->position == FETCHED)
        snprintf(out, room, "fallback.refresh");
    else if (f->position < 0)
        snprintf(out, room, "fallback.rates_dir");
    else
        snprintf(out, room, "fallback.rates[%d]", f->position);
}

/* A table that is not served, or soon will not be, is no reason not to start; it must not go unsaid either. */
static void tell_age(const struct spw_conf_fallback *fallback, const struct found *f)
{
    char place[48];
    place_of(f, place, sizeof place);
    int32_t today = (int32_t)(spw_wall_ms() / 86400000);
    struct spw_rates_age age = spw_conf_rates_age(fallback, f->as_of_day, today);
    if (age.refused)
        spw_log(SPW_LOG_WARN, "rates.age",
                "%s: %s is %u days old and will NOT be served: load a newer table, or raise "
                "fallback.max_age.refuse (%u days)",
                place, f->source, age.days, fallback->max_age_refuse_days);
    else if (age.stale)
        spw_log(SPW_LOG_WARN, "rates.age",
                "%s: %s is %u days old: load a newer table; it is served up to %u days", place, f->source,
                age.days, fallback->max_age_refuse_days);
    else if (f->as_of_day > today + 1)
        spw_log(SPW_LOG_WARN, "rates.age",
                "%s.as_of: %s lies %d days ahead; its age does not count until then", place, f->source,
                f->as_of_day - today);
}

static void tell_counts(const struct found *f, const struct spw_rates_table *t)
{
    spw_log(SPW_LOG_INFO, "rates.loaded", "%s: %zu rows, %zu bad rows left out", f->path, t->rows_count,
            t->bad_count);
    if (t->mended_count || t->several_count || t->mismatch_count || t->expired_count || t->unjoined_count)
        spw_log(
            SPW_LOG_INFO, "rates.counts",
            "%s: %zu rows mended, %zu ZIP codes over several places, %zu whose parts do not add up (worst "
            "%u ppb at %05u), %zu out of date, %zu codes without a rate",
            f->path, t->mended_count, t->several_count, t->mismatch_count, t->mismatch_worst_ppb,
            t->mismatch_worst_zip5, t->expired_count, t->unjoined_count);
    if (t->untold_count)
        spw_log(SPW_LOG_WARN, "rates.row", "%s: %zu more problems are not shown", f->path, t->untold_count);
}

/* Read the files of one source and day, from the first of them on. */
static enum spw_status read_source(struct spw_rate_files *files, const struct spw_conf_fallback *fallback,
                                   struct listing *list, size_t first, struct spw_error *err)
{
    const char *paths[SPW_CONF_RATE_FILES_MAX_COUNT + 2 * FILES_MAX];
    struct found *f = &list->files[first];
    size_t count = 0;
    char place[48];
    place_of(f, place, sizeof place);
    for (size_t i = first; i < list->count; i++) {
        struct found *other = &list->files[i];
        if (other->taken || other->as_of_day != f->as_of_day || strcmp(other->source, f->source) != 0)
            continue;
        other->taken = true;
        paths[count++] = other->path;
    }
    if (files->count == SPW_SOURCES_MAX_COUNT)
        return spw_error_set(err, SPW_STATUS_FULL,
                             "%s: more than %u sources: give tables of one publisher and day one source",
                             place, SPW_SOURCES_MAX_COUNT);
    struct spw_rates_options options = {.problem = told_bad_row,
                                        .as_of_day = f->as_of_day,
                                        .bad_max_ppm = fallback->bad_rows_max_ppm,
                                        .several = (enum spw_rates_several)fallback->several};
    struct spw_rates_table *table = &files->tables[files->count];
    enum spw_status status = spw_rates_load_set(paths, count, &options, table, err);
    if (status != SPW_STATUS_OK) {
        spw_error_prefix(err, f->position < 0 ? "%s: " : "%s.file: ", place);
        return status;
    }
    struct spw_rates_source *source = &files->sources[files->count++];
    memcpy(source->name, f->source, sizeof source->name);
    source->as_of_day = f->as_of_day;
    memcpy(source->sha256, table->sha256, sizeof source->sha256);
    source->rows = table->rows;
    source->rows_count = table->rows_count;
    tell_counts(f, table);
    tell_age(fallback, f);
    return SPW_STATUS_OK;
}

static enum spw_status read_all(struct spw_rate_files *files, const struct spw_conf *conf, bool lenient,
                                struct spw_error *err)
{
    const struct spw_conf_fallback *fallback = &conf->fallback;
    struct listing *list = calloc(1, sizeof *list);
    memset(files, 0, sizeof *files);
    if (!list)
        return spw_error_set(err, SPW_STATUS_NO_MEMORY, "fallback.rates: no memory to read them");
    enum spw_status status = SPW_STATUS_OK;
    /* Of two tables that know a place the later wins: what the configuration names, what was fetched, the directory. */
    list_configured(list, fallback);
    if (fallback->refreshes_count) {
        char path[SPW_PATH_BYTES + 16];
        spw_rate_fetched_directory(conf, path, sizeof path);
        status = list_directory(list, path, FETCHED, err);
    }
    if (status == SPW_STATUS_OK && fallback->rates_dir[0])
        status = list_directory(list, fallback->rates_dir, OF_DIRECTORY, err);
    for (size_t i = 0; i <= list->count; i++) {
        if (status != SPW_STATUS_OK && lenient && (i == 0 || list->files[i - 1].position < 0)) {
            spw_log(SPW_LOG_ERROR, "rates.dir", "%s; it is left out", err->text);
            status = SPW_STATUS_OK;
        }
        if (status != SPW_STATUS_OK || i == list->count)
            break;
        if (!list->files[i].taken)
            status = read_source(files, fallback, list, i, err);
    }
    free(list);
    if (status != SPW_STATUS_OK)
        spw_rate_files_clean_up(files);
    return status;
}

enum spw_status spw_rate_files_read(struct spw_rate_files *files, const struct spw_conf *conf,
                                    struct spw_error *err)
{
    return read_all(files, conf, false, err);
}

enum spw_status spw_rate_files_start(struct spw_rate_files *files, const struct spw_conf *conf,
                                     struct spw_error *err)
{
    return read_all(files, conf, true, err);
}

void spw_rate_files_clean_up(struct spw_rate_files *files)
{
    while (files->count > 0)
        spw_rates_clean_up(&files->tables[--files->count]);
}
