/* pass_internal.h: what the files of the pass-through door share.
 *
 * Owns: nothing. Called by: pass_door.c (listener, who may ask, what is asked), pass_answer.c (what is answered),
 * pass_book.c (documents and orders). Thread: the loop thread.
 */
#ifndef SPW_HTTP_PASS_INTERNAL_H
#define SPW_HTTP_PASS_INTERNAL_H

#include "sidecar/http/door.h"
#include "sidecar/http/outgoing.h"
#include "sidecar/http/pass_call.h"
#include "sidecar/http/pass_door.h"
#include "sidecar/http/reuse.h"
#include "sidecar/http/token.h"

struct spw_pass_account {
    struct spw_pass_doors *doors;
    const struct spw_conf_account *conf;
    const struct spw_profile *profile;
    struct spw_token token;
    struct spw_door *door;
};

struct spw_pass_doors {
    struct spw_pass_doors_options options;
    char token_file[SPW_PATH_BYTES + 16]; /* of options: a door may be opened much later, by a reload */
    uint32_t accounts_count;
    struct spw_pass_account accounts[SPW_CONF_ACCOUNTS_MAX_COUNT];
    struct spw_key_maker keys;
    struct spw_reuse *documents; /* the last answer under each document */
    uint32_t order_hint;
};

/* One request of an SDK. */
struct spw_passing {
    struct spw_pass_account *account;
    struct spw_door_request *request;
    struct spw_native_request native;
    char *path;
    const char *integration;       /* the request's or the configuration's */
    struct spw_native_quote quote; /* when has_quote */
    bool has_quote;
    struct spw_job *job;
    struct spw_pass *pass;
    char document[SPW_CALLER_ID_BYTES]; /* that a record names; "" = none */
};
void spw_passing_free(struct spw_passing *p); /* the request has its answer */

/* ---- pass_answer.c: each answers the request ---- */

/* The provider's own error envelope, marked so that its SDKs do not try again by themselves. retry_after_s 0 = none. */
void spw_pass_answer_error(struct spw_pass_account *account, struct spw_door_request *request,
                           uint32_t status, uint64_t retry_after_s, const char *message);
/* As the provider sent it; result NULL for what was no calculation. */
void spw_pass_answer_live(struct spw_passing *p, const struct spw_http_response *response,
                          const struct spw_result *result);
void spw_pass_answer_fallback(struct spw_passing *p, const struct spw_result *result);
/* A record of a fallback's document: it is in the ledger, not in the provider's books. */
void spw_pass_answer_recorded(struct spw_passing *p, const struct spw_result *fallback);

/* ---- pass_book.c ---- */

/* Remember what was last answered under a document, and under the id of a fallback. */
void spw_pass_remember(struct spw_passing *p, const char *document, const struct spw_result *result);
enum spw_pass_document {
    SPW_PASS_DOCUMENT_UNKNOWN,
    SPW_PASS_DOCUMENT_LIVE,
    SPW_PASS_DOCUMENT_FALLBACK, /* answered from the cache: the provider does not know it */
    SPW_PASS_DOCUMENT_PERHAPS   /* was a fallback once; whether a live answer came after it is not known */
};
/* lines: room for SPW_LINES_MAX_COUNT + 1. */
enum spw_pass_document spw_pass_look_up(struct spw_passing *p, struct spw_result *out,
                                        struct spw_line_tax *lines);
/* A record that carries the whole sale can be passed on whatever became of its quote. */
bool spw_pass_is_whole(const struct spw_native_request *native);
/* Does it make an order of a quote, or void one? What else changes a document cannot be done before it is filed. */
bool spw_pass_is_commit(const struct spw_native_request *native);
/* The sale is an order: placed from the quote, or cancelled where the request voids it. false: no cell is free. */
bool spw_pass_order(struct spw_passing *p, const char *quote_id, const char *order_id, int64_t tax_minor);

#endif
