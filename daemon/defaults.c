/* SPDX-License-Identifier: Apache-2.0 */
/* Direct-mapped, by the id of the problem's key (defaults.h). */
#include <stdlib.h>
#include <string.h>

#include "daemon/defaults.h"

void defaults_init(struct defaults *x, const struct device_info *device, struct wire_doc *doc)
{
    *x = (struct defaults){.device = device, .doc = doc};
}

void defaults_deinit(struct defaults *x)
{
    for (size_t i = 0; x->slots && i < DEFAULTS_SLOTS; i++) {
        free(x->slots[i].config);
    }
    free(x->slots);
    x->slots = NULL;
}

static bool recall(const struct defaults *x, const struct defaults_slot *s, const struct key *k,
                   struct record *config)
{
    const struct wire_obj *map;
    return s->config && memcmp(s->key, k->id, sizeof(s->key)) == 0 &&
           wire_decode(x->doc, s->config, s->len, &map, NULL) == 0 &&
           record_unpack(config, map, NULL) == 0;
}

static void remember(struct defaults_slot *s, const struct key *k, const struct record *config)
{
    struct wire_buf b = WIRE_BUF_NULL;
    record_pack(&b, config);
    if (b.failed) {
        wire_buf_deinit(&b);
        return;
    }
    free(s->config);
    memcpy(s->key, k->id, sizeof(s->key));
    s->config = b.data; /* moved */
    s->len = (uint32_t)b.len;
}

int defaults_choose(struct defaults *x, const struct family_target *t, const struct problem *p,
                    struct record *config, struct error *err)
{
    struct key *k = &x->key;
    x->slots = x->slots ? x->slots : calloc(DEFAULTS_SLOTS, sizeof(*x->slots));
    if (!x->slots || key_make(k, p, t->label, NULL) < 0) {
        return t->choose(p, x->device, config, err);
    }
    key_id(k);
    struct defaults_slot *s = &x->slots[k->hash % DEFAULTS_SLOTS];
    if (recall(x, s, k, config)) {
        return 0;
    }
    int status = t->choose(p, x->device, config, err);
    if (status == 0) {
        remember(s, k, config);
    }
    return status;
}
