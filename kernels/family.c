/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that are the same for every family: lookup, stamps, the identity of a variant, the
 * floor of a problem. Pure functions over the list that the program was linked with. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "kernels/family.h"
#include "proto/hash.h"

void families_register(void)
{
    enum { OPS_MAX = 32 };
    static const struct op *ops[OPS_MAX + 1];
    size_t n = 0;
    for (const struct family *const *f = families; *f; f++) {
        bool known = false;
        for (size_t i = 0; i < n; i++) {
            known = known || ops[i] == (*f)->op;
        }
        if (!known) {
            assert(n < OPS_MAX);
            ops[n++] = (*f)->op;
        }
    }
    ops[n] = NULL;
    ops_set(ops);
}

const struct family *family_find(const char *name)
{
    for (const struct family *const *f = families; *f; f++) {
        if (strcmp((*f)->name, name) == 0) {
            return *f;
        }
    }
    return NULL;
}

const struct family *family_of_problem(const struct problem *p)
{
    const char *name = record_text(&p->fields, "family", NULL);
    if (name) {
        return family_find(name);
    }
    for (const struct family *const *f = families; *f; f++) {
        if ((*f)->op == p->op) {
            return *f;
        }
    }
    return NULL;
}

/* ---- identity -------------------------------------------------------------------------------- */

/* The source text, not gemmd's version, decides if an old measurement still counts. */
void family_stamp(const struct family *f, const struct family_target *t,
                  const struct device_info *info, char out[STAMP_MAX])
{
    assert(t->source);
    char hash[HASH_HEX];
    const char *const texts[] = {f->name, t->label, t->source};
    hash128_texts(texts, sizeof(texts) / sizeof(texts[0]), hash);
    snprintf(out, STAMP_MAX, "src=%.12s abi=%d target=%s compiler=%s", hash, LAUNCH_ABI_VERSION,
             t->label, info->compiler[0] ? info->compiler : "none");
}

void family_stamp_target(const char *stamp, char out[TARGET_MAX])
{
    static const char word[] = "target=";
    const char *at = strstr(stamp, word);
    at = at ? at + strlen(word) : "";
    size_t n = 0;
    for (; n < TARGET_MAX - 1 && at[n] && at[n] != ' '; n++) {
        out[n] = at[n];
    }
    out[n] = '\0';
}

void variant_init(struct variant *v, const char *family, const char *kind, const char *entry,
                  const char *source, const char *arch)
{
    *v = (struct variant){.source = source};
    snprintf(v->family, sizeof(v->family), "%s", family);
    snprintf(v->kind, sizeof(v->kind), "%s", kind);
    snprintf(v->arch, sizeof(v->arch), "%s", arch);
    snprintf(v->entry, sizeof(v->entry), "%s", entry);
    hash128_hex(source, strlen(source), v->source_hash);
}

void variant_hash(const struct variant *v, const char *compiler, char out[HASH_HEX])
{
    const char *const texts[] = {v->family,  v->kind,        v->arch, v->entry,
                                 v->options, v->source_hash, compiler};
    hash128_texts(texts, sizeof(texts) / sizeof(texts[0]), out);
}

double family_floor_us(const struct family *f, const struct problem *p,
                       const struct device_info *info)
{
    double flops, bytes;
    f->work(p, &flops, &bytes);
    double peak = info->peak_tflops * (f->rate ? f->rate(p, info) : 1);
    double compute = peak > 0 ? flops / (peak * 1e6) : 0;
    double memory = info->peak_gbps > 0 ? bytes / (info->peak_gbps * 1e3) : 0;
    return compute > memory ? compute : memory;
}

void launch_init(struct launch *l, const char *entry, int64_t blocks, uint32_t threads,
                 int64_t smem, const void *params, size_t size)
{
    *l = (struct launch){.grid = {(uint32_t)blocks, 1, 1},
                         .block = {threads, 1, 1},
                         .smem_bytes = (uint32_t)smem,
                         .params_bytes = (uint32_t)size};
    strcpy(l->entry, entry);
    memcpy(l->params, params, size);
}

/* For g / by = g * mul >> shift: mul = ceil(2^shift / by) exceeds 2^shift / by by less than 1,
 * which is small enough for every g below 2^30. */
void launch_divide_by(int64_t by, uint32_t *mul, uint32_t *shift)
{
    *shift = 30;
    while ((INT64_C(1) << (*shift - 30)) < by) {
        ++*shift;
    }
    *mul = (uint32_t)(((INT64_C(1) << *shift) + by - 1) / by);
}

bool (*host_work_unwanted)(void);

int host_work_check(struct error *err)
{
    return host_work_unwanted && host_work_unwanted()
               ? error_set(err, ERROR_CANCELLED, "cancelled while the problem was prepared")
               : 0;
}
