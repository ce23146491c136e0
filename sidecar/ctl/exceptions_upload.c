/* exceptions_upload.c: spillwayctl exceptions upload: decisions out of a CSV file, all of them or none.
 *
 * Owns: the file's decisions in memory. Called by: main.c by way of the table in exceptions.c. Thread: one.
 *
 * Columns: flag_id and decision; revision, file and note where they are there; others are ignored. A line without a
 * decision is left alone; one that has a note and no decision, too: a note needs the decision "note".
 */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "sidecar/ctl/csv_read.h"
#include "sidecar/ctl/exceptions.h"

#define DECISIONS_MAX_COUNT 1000u /* of one request, which is what is all or nothing */

struct upload {
    struct spw_ctl *ctl;
    const char *file;
    Spillway__V1__ExceptionDecision *decisions[DECISIONS_MAX_COUNT];
    uint64_t lines[DECISIONS_MAX_COUNT];
    size_t count;
    uint64_t faults_count;
};

struct columns {
    int flag_id, decision, revision, file, note;
};

static void fault(struct upload *u, uint64_t line, const char *why)
{
    u->faults_count++;
    fprintf(stderr, "%s:%" PRIu64 ": %s\n", u->file, line, why);
}

static void refused(void *owner, uint32_t index, const char *why)
{
    struct upload *u = owner;
    fault(u, index < u->count ? u->lines[index] : 0, why);
}

static bool is_yes(const char *word)
{
    return strcasecmp(word, "yes") == 0 || strcasecmp(word, "true") == 0 || strcmp(word, "1") == 0;
}

static bool is_no(const char *word)
{
    return !word[0] || strcasecmp(word, "no") == 0 || strcasecmp(word, "false") == 0 ||
           strcmp(word, "0") == 0;
}

static void take(struct upload *u, const struct spw_csv_record *r, const struct columns *at)
{
    const char *file = spw_csv_field(r, at->file), *revision = spw_csv_field(r, at->revision);
    char *end = NULL;
    if (!spw_csv_field(r, at->decision)[0])
        return;
    errno = 0;
    unsigned long number = strtoul(revision, &end, 10);
    if (*end || errno || !number || number > UINT32_MAX || revision[0] == '-')
        fault(u, r->line, "revision: is no number: leave it as it was exported");
    else if (!is_yes(file) && !is_no(file))
        fault(u, r->line, "file: write yes or no");
    else if (u->count == DECISIONS_MAX_COUNT)
        fault(u, r->line, "there are more than 1000 decisions: split the file");
    else {
        Spillway__V1__ExceptionDecision *one = calloc(1, sizeof *one);
        if (!one) {
            fault(u, r->line, "no memory");
            return;
        }
        spillway__v1__exception_decision__init(one);
        one->flag_id = strdup(spw_csv_field(r, at->flag_id));
        one->decision = strdup(spw_csv_field(r, at->decision));
        for (char *c = one->decision; c && *c;
             c++) /* spreadsheets write TRUE, and begin words with a capital */
            *c = (char)tolower((unsigned char)*c);
        one->note = strdup(spw_csv_field(r, at->note));
        one->has_revision = true;
        one->revision = (uint32_t)number;
        one->has_file = true;
        one->file = is_yes(file);
        u->lines[u->count] = r->line;
        u->decisions[u->count++] = one;
    }
}

static void read_file(struct upload *u, FILE *file)
{
    struct spw_csv_record record = {.text = NULL};
    uint64_t line = 1;
    const char *why = NULL;
    if (!spw_csv_read(file, &record, &line, &why)) {
        fault(u, 1, why ? why : "is empty");
        free(record.text);
        return;
    }
    struct columns at = {.flag_id = spw_csv_column(&record, "flag_id"),
                         .decision = spw_csv_column(&record, "decision"),
                         .revision = spw_csv_column(&record, "revision"),
                         .file = spw_csv_column(&record, "file"),
                         .note = spw_csv_column(&record, "note")};
    if (at.flag_id == SPW_CSV_NO_COLUMN || at.decision == SPW_CSV_NO_COLUMN ||
        at.revision == SPW_CSV_NO_COLUMN)
        fault(u, 1,
              "its head lacks flag_id, revision or decision: begin with spillwayctl exceptions list --format"
              " csv");
    else
        while (spw_csv_read(file, &record, &line, &why))
            take(u, &record, &at);
    if (why)
        fault(u, record.line, why);
    else if (ferror(file))
        fault(u, record.line, strerror(errno));
    free(record.text);
}

int spw_exceptions_run_upload(struct spw_ctl *ctl)
{
    struct upload *u = calloc(1, sizeof *u);
    FILE *file = fopen(ctl->arguments[0], "re");
    int code = SPW_CTL_OK;
    if (!u || !file) {
        code = spw_ctl_fail(ctl, SPW_CTL_REFUSED, "%s: %s", ctl->arguments[0], strerror(errno));
    } else {
        u->ctl = ctl;
        u->file = ctl->arguments[0];
        read_file(u, file);
        if (!u->faults_count && u->count)
            code = spw_exceptions_decide_all(ctl, u->decisions, u->count, refused, u);
        if (u->faults_count)
            code = spw_ctl_fail(ctl, SPW_CTL_REFUSED, "%" PRIu64 " lines are refused: nothing was changed",
                                u->faults_count);
        else if (!code)
            printf("%zu decided\n", u->count);
    }
    for (size_t i = 0; u && i < u->count; i++)
        spillway__v1__exception_decision__free_unpacked(u->decisions[i], NULL);
    free(u);
    if (file)
        fclose(file);
    return code ? code : spw_ctl_done(ctl, SPW_CTL_OK);
}
