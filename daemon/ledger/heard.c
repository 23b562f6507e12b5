/* SPDX-License-Identifier: Apache-2.0 */
/* What the keeper has not saved, as heard from it (heard.h). */
#include <stdlib.h>
#include <string.h>

#include "daemon/ledger/heard.h"

void heard_init(struct heard *h)
{
    list_init(&h->all);
    h->n = 0;
}

void heard_forget(struct heard *h, struct heard_row *r)
{
    list_remove(&r->link);
    h->n--;
    wire_buf_deinit(&r->row);
    free(r);
}

static void append(struct heard *h, const struct best *b, bool imported)
{
    struct heard_row *r = calloc(1, sizeof(*r));
    if (!r) { /* the keeper has it still */
        return;
    }
    memcpy(r->key, b->key, sizeof(r->key));
    r->generation = b->generation;
    r->imported = imported;
    schema_encode(&r->row, &best_schema, b);
    list_append(&h->all, &r->link);
    h->n++;
    if (r->row.failed) {
        heard_forget(h, r);
    }
}

void heard_best(struct heard *h, const struct best *b, bool saved)
{
    bool imported = best_is_brought(b);
    LIST_EACH(node, &h->all) {
        struct heard_row *r = LIST_OF(node, struct heard_row, link);
        bool replaced = imported && r->imported && strcmp(r->key, b->key) == 0;
        if (r->generation == b->generation || (replaced && !saved)) {
            heard_forget(h, r);
        }
    }
    if (!saved && b->generation > 0) {
        append(h, b, imported);
    }
    if (h->n > HEARD_MAX) {
        heard_forget(h, LIST_OF(h->all.next, struct heard_row, link));
    }
}

void heard_evicted(struct heard *h, const char *key)
{
    LIST_EACH(node, &h->all) {
        struct heard_row *r = LIST_OF(node, struct heard_row, link);
        if (strcmp(r->key, key) == 0) {
            heard_forget(h, r);
        }
    }
}

void heard_clear(struct heard *h)
{
    while (!list_empty(&h->all)) {
        heard_forget(h, LIST_OF(h->all.next, struct heard_row, link));
    }
}
