/* rate_files.h: the rate tables a configuration names, by file and by directory, and watching them.
 *
 * Owns: which files make which source, and the watch. Called by: main. Thread: reading may run on any thread, one set at
 * a time; the watch is the loop thread's and reads on a thread of its own.
 */
#ifndef SPW_RATE_FILES_H
#define SPW_RATE_FILES_H

#include "sidecar/loop/loop.h"
#include "sidecar/state/state.h"

/* Tables as read, one for each source. */
struct spw_rate_files {
    struct spw_rates_table tables[SPW_SOURCES_MAX_COUNT];
    struct spw_rates_source sources[SPW_SOURCES_MAX_COUNT];
    uint32_t count;
};

/* Read all that fallback.rates and fallback.rates_dir name, and what has been fetched. On failure nothing is left in `files`, and err names the
 * entry, or the file and its line. */
enum spw_status spw_rate_files_read(struct spw_rate_files *files, const struct spw_conf *conf,
                                    struct spw_error *err) SPW_WARN_UNUSED;
/* The same at start: a table of the directory that cannot be read is told of in the log and left out, since checkout is
 * to go on; one that fallback.rates names is a fault of the configuration. */
enum spw_status spw_rate_files_start(struct spw_rate_files *files, const struct spw_conf *conf,
                                     struct spw_error *err) SPW_WARN_UNUSED;
void spw_rate_files_clean_up(struct spw_rate_files *files);

/* Where fetched tables are kept (rate_refresh.h): beside the ledger. */
void spw_rate_fetched_directory(const struct spw_conf *conf, char *out, size_t room);

/* What a file of the directory is: its source and day by its name. False: it is not taken. Pure. */
bool spw_rate_file_name(const char *name, char source[SPW_NAME_BYTES], int32_t *as_of_day);

/* Look at the files of fallback.rates, at fallback.rates_dir and at what is fetched, every two seconds. When something has
 * changed, and then stayed as it is for one look, everything is read anew and replaces the table; when something cannot be
 * read, the table in force stays and the log says why. */
struct spw_rate_watch;
enum spw_status spw_rate_watch_new(struct spw_loop *loop, struct spw_state *state,
                                   const struct spw_conf *conf, struct spw_rate_watch **out,
                                   struct spw_error *err) SPW_WARN_UNUSED;
/* A reading is under way: the configuration must not change meanwhile. NULL is fine. */
bool spw_rate_watch_is_reading(const struct spw_rate_watch *watch);
/* Not while a reading is under way, or after the loop has stopped; NULL is fine. */
void spw_rate_watch_destroy(struct spw_rate_watch *watch);

#endif
