/* SPDX-License-Identifier: Apache-2.0 */
/* Encodes a space for users: tunables, numbers of legal and dropped points, reasons. */

#include "kernels/space.h"

static void space_put_params(struct wire_buf *b, const struct space *s)
{
    wire_put_str(b, "params");
    wire_put_array(b, s->n_params);
    for (uint32_t i = 0; i < s->n_params; i++) {
        const struct param *p = &s->params[i];
        wire_put_map(b, 4);
        wire_put_kv_str(b, "name", p->name);
        wire_put_kv_bool(b, "run_time", p->run_time);
        wire_put_kv_str(b, "help", p->help);
        wire_put_str(b, "values");
        wire_put_array(b, p->n);
        for (uint32_t k = 0; k < p->n; k++) {
            value_pack(b, &p->values[k]);
        }
    }
}

static void put_counts(struct wire_buf *b, const struct space *s, const char *name, bool legal)
{
    size_t n = 0;
    for (uint32_t i = 0; i < s->n_rules; i++) {
        n += s->rules[i].legal == legal;
    }
    wire_put_str(b, name);
    wire_put_map(b, n);
    for (uint32_t i = 0; i < s->n_rules; i++) {
        if (s->rules[i].legal == legal) {
            wire_put_kv_int(b, s->rules[i].rule, (int64_t)s->rules[i].dropped);
        }
    }
}

static void put_rules(struct wire_buf *b, const struct space *s)
{
    put_counts(b, s, "dropped", false);
    put_counts(b, s, "unpromising", true);
    wire_put_str(b, "reasons");
    wire_put_map(b, s->n_rules);
    for (uint32_t i = 0; i < s->n_rules; i++) {
        wire_put_kv_str(b, s->rules[i].rule, s->rules[i].text);
    }
}

/* The device's targets in the family's order; for a target that refuses the problem, the reason. */
static void put_targets(struct wire_buf *b, const struct family *f, const struct space_setup *u)
{
    size_t n = 0;
    for (const struct family_target *const *t = f->targets; *t; t++) {
        n += family_target_runs_on(*t, u->info);
    }
    wire_put_str(b, "targets");
    wire_put_array(b, n);
    for (const struct family_target *const *t = f->targets; *t; t++) {
        struct rejection why;
        if (!family_target_runs_on(*t, u->info)) {
            continue;
        }
        bool takes = !(*t)->takes || !(*t)->takes(u->problem, u->info, &why);
        wire_put_map(b, takes ? 2 : 3);
        wire_put_kv_str(b, "name", (*t)->label);
        wire_put_kv_bool(b, "takes", takes);
        if (!takes) {
            wire_put_kv_str(b, "why", why.text);
        }
    }
}

void space_pack(struct wire_buf *b, const struct space *s, const struct family *f)
{
    wire_put_map(b, 12);
    wire_put_kv_str(b, "target", s->setup.target->label);
    wire_put_kv_str(b, "device", s->setup.info->name);
    wire_put_kv_int(b, "raw", (int64_t)s->raw);
    wire_put_kv_int(b, "legal", (int64_t)(s->n + s->unworthy));
    wire_put_kv_int(b, "searched", s->n);
    wire_put_kv_int(b, "variants", s->variants);
    wire_put_kv_int(b, "settings", s->settings);
    space_put_params(b, s);
    put_rules(b, s);
    put_targets(b, f, &s->setup);
}
