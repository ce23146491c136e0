/* url.c: may this URL be called? See url.h. */
#include "sidecar/http/url.h"

#include <string.h>

#include <curl/curl.h>

enum spw_status spw_url_check(const char *url, bool allow_plain_http, struct spw_error *err)
{
    CURLU *parsed = curl_url();
    char *scheme = NULL;
    if (parsed == NULL) {
        return spw_error_set(err, SPW_STATUS_NO_MEMORY,
                             "request: no memory: raise the container's memory limit");
    }
    enum spw_status status = SPW_STATUS_OK;
    CURLUcode code = curl_url_set(parsed, CURLUPART_URL, url, CURLU_DISALLOW_USER | CURLU_PATH_AS_IS);
    if (code == CURLUE_OK) {
        code = curl_url_get(parsed, CURLUPART_SCHEME, &scheme, 0);
    }
    if (code == CURLUE_UNSUPPORTED_SCHEME) {
        status = spw_error_set(err, SPW_STATUS_REFUSED, "request: only https:// URLs are called");
    } else if (code != CURLUE_OK) {
        status = spw_error_set(err, SPW_STATUS_INVALID,
                               "request: the URL is malformed: %s; correct the account's "
                               "url",
                               curl_url_strerror(code));
    } else if (strcmp(scheme, "https") != 0 && !(allow_plain_http && strcmp(scheme, "http") == 0)) {
        status = spw_error_set(err, SPW_STATUS_REFUSED,
                               "request: %s:// is not allowed; use https:// or allow "
                               "plain http for this account",
                               scheme);
    }
    curl_free(scheme);
    curl_url_cleanup(parsed);
    return status;
}
