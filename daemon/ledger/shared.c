/* SPDX-License-Identifier: Apache-2.0 */
/* The shared ledger (follow.h has the whole picture): its beginning and its memory. */
#include <stdlib.h>
#include <string.h>

#include "daemon/ledger/ask.h"
#include "daemon/ledger/keep.h"

static void shared_free(struct shared *s)
{
    keeper_link_deinit(&s->link);
    heard_clear(&s->heard);
    wire_doc_free(s->doc);
    free(s->best);
    free((char *)s->config.path);
    free((char *)s->config.address);
    free((char *)s->config.owner);
    free((char *)s->config.cache_dir);
    free(s);
}

static void on_ended(struct shared *s)
{
    void (*stopped)(void *) = s->stopped;
    void *ctx = s->stopped_ctx;
    shared_free(s);
    stopped(ctx);
}

static char *copy_text(const char *text)
{
    return text ? strdup(text) : NULL;
}

static struct shared *shared_new(uv_loop_t *loop, const struct ledger_config *c)
{
    struct shared *s = calloc(1, sizeof(*s));
    if (!s) {
        return NULL;
    }
    s->base.ops = &ledger_ask_ops;
    s->keeps = &ledger_keep_ops;
    s->ended = on_ended;
    s->config = *c;
    s->config.path = copy_text(c->path);
    s->config.address = copy_text(c->address);
    s->config.owner = copy_text(c->owner);
    s->config.cache_dir = copy_text(c->cache_dir);
    s->loop = loop;
    s->started_ms = uv_now(loop);
    heard_init(&s->heard);
    s->best = malloc(sizeof(*s->best));
    s->doc = wire_doc_new();
    if (keeper_link_init(&s->link, &follow_link_calls) < 0 || !s->config.path || !s->config.owner ||
        !s->best || !s->doc) {
        shared_free(s);
        return NULL;
    }
    return s;
}

static int shared_start(struct ledger **out, uv_loop_t *loop, const struct ledger_config *c,
                        struct error *err)
{
    struct shared *s = shared_new(loop, c);
    if (!s) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for the ledger");
    }
    follow_start(s);
    *out = &s->base;
    return 0;
}

bool ledger_shared_is_keeper(const struct ledger *l)
{
    return l && l->ops == &ledger_keep_ops;
}

bool ledger_shared_knows_all(const struct ledger *l)
{
    return ledger_shared_is_keeper(l) && !((const struct shared *)l)->missed;
}

bool ledger_shared_removes(const struct ledger *l)
{
    return ledger_shared_is_keeper(l) && ((const struct shared *)l)->removing > 0;
}

/* What is started changes its calls itself. */
const struct ledger_ops ledger_shared_ops = {.start = shared_start};
