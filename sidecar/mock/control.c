/* control.c: see control.h. */
#include "sidecar/mock/control.h"

#include <string.h>

#include <jansson.h>

#include "sidecar/mock/shape.h"

static struct spw_mock_reply reply_json(unsigned status, json_t *value)
{
    struct spw_mock_reply reply = {.status = status, .body = value ? json_dumps(value, JSON_COMPACT) : NULL};
    json_decref(value);
    return reply;
}

static json_t *limit_json(const struct spw_mock_limiter *limiter)
{
    char rate[32], text[256];
    spw_mock_limiter_describe(limiter, text, sizeof text);
    if (!limiter->is_on)
        return json_pack("{s:n, s:n, s:n, s:s}", "rate", "algorithm", "burst", "text", text);
    spw_format_rate(&limiter->rate, rate, sizeof rate);
    json_t *burst =
        limiter->algorithm == SPW_MOCK_BUCKET ? json_integer((json_int_t)limiter->burst_count) : json_null();
    return json_pack("{s:s, s:s, s:o, s:s}", "rate", rate, "algorithm",
                     spw_mock_algorithm_name(limiter->algorithm), "burst", burst, "text", text);
}

/* The ids alone: the connection in front of them is left out. */
static json_t *cart_ids(const struct spw_mock_books *books)
{
    json_t *list = json_array();
    const char *key;
    json_t *cart;
    json_object_foreach(books->carts, key, cart)
    {
        json_array_append(list, json_object_get(cart, "cartId"));
    }
    return list;
}

static struct spw_mock_reply show_stats(struct spw_mock_server *server)
{
    uint64_t now_ns = spw_mock_server_now_ns(server);
    pthread_mutex_lock(&server->lock);
    json_t *root = spw_mock_stats_json(server->stats);
    json_object_set_new(root, "started_unix_ms", json_integer(server->start_unix_ms));
    json_object_set_new(root, "uptime_ms", json_integer((json_int_t)(now_ns / 1000000)));
    json_object_set_new(root, "limit", limit_json(&server->limiter));
    json_object_set_new(root, "scenario_steps",
                        json_integer((json_int_t)server->script->scenario.steps_count));
    json_object_set_new(root, "carts_seen", json_integer((json_int_t)server->books.carts_count));
    json_object_set_new(root, "carts", cart_ids(&server->books));
    json_object_set_new(root, "documents",
                        json_integer((json_int_t)json_object_size(server->books.documents)));
    json_object_set_new(root, "orders", json_integer((json_int_t)json_object_size(server->books.orders)));
    pthread_mutex_unlock(&server->lock);
    return reply_json(200, root);
}

static struct spw_mock_reply set_scenario(struct spw_mock_server *server, const char *body, size_t bytes)
{
    struct spw_mock_scenario scenario;
    struct spw_error err;
    if (spw_mock_scenario_parse("scenario", body ? body : "", bytes, &scenario, &err))
        return spw_mock_problem(400, "body", "%s", err.text);
    size_t steps_count = scenario.steps_count;
    if (!spw_mock_server_set_scenario(server, &scenario))
        return spw_mock_problem(503, NULL, "no memory for the script; the old one stays in force");
    return reply_json(200, json_pack("{s:I}", "steps", (json_int_t)steps_count));
}

static struct spw_mock_reply show_books(struct spw_mock_server *server)
{
    pthread_mutex_lock(&server->lock);
    json_t *all = spw_mock_books_json(&server->books);
    pthread_mutex_unlock(&server->lock);
    return spw_mock_reply_json(200, all);
}

static struct spw_mock_reply reset_stats(struct spw_mock_server *server)
{
    pthread_mutex_lock(&server->lock);
    spw_mock_stats_reset(server->stats);
    spw_mock_books_reset_carts(&server->books);
    pthread_mutex_unlock(&server->lock);
    return reply_json(200, json_pack("{s:b}", "reset", 1));
}

struct spw_mock_reply spw_mock_control_answer(struct spw_mock_server *server, const char *method,
                                              const char *path, const char *body, size_t bytes)
{
    bool is_post = strcmp(method, "POST") == 0, is_get = strcmp(method, "GET") == 0;
    bool is_stats = strcmp(path, "/mock/stats") == 0, is_scenario = strcmp(path, "/mock/scenario") == 0;
    bool is_reset = strcmp(path, "/mock/reset-stats") == 0;
    bool is_books = strcmp(path, "/mock/books") == 0;
    if (is_books && is_get)
        return show_books(server);
    if (is_stats && is_get)
        return show_stats(server);
    if (is_scenario && is_post)
        return set_scenario(server, body, bytes);
    if (is_reset && is_post)
        return reset_stats(server);
    if (is_stats || is_scenario || is_reset || is_books)
        return spw_mock_problem(405, NULL, "use %s here", is_stats || is_books ? "GET" : "POST");
    return spw_mock_problem(
        404, NULL,
        "the control paths are GET /mock/stats, GET /mock/books, POST /mock/scenario and POST "
        "/mock/reset-stats");
}
