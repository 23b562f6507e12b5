/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes entries of a landscape, with samples or the reason of a failure, from lines of both formats
 * of replay.h.
 *
 * A recorded failure of a compile or a load belongs to a variant, whatever the run-time parameters
 * of the recorded config. The config's target computes the variant's hash here.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/devices/replay/reader.h"

enum { TEXT_MAX = 4096 };

int replay_read_record(struct record *out, const struct wire_obj *given, struct error *err)
{
    char text[TEXT_MAX];
    if (wire_type_of(given) != WIRE_STR) {
        return record_unpack(out, given, err);
    }
    return wire_copy_str(given, text, sizeof(text))
               ? record_parse(out, text, err)
               : error_set(err, ERROR_INVALID, "the config's text is too long");
}

/* Grows the array when n is 0 (to 64 elements) or a power of two (to twice n). */
int reader_grow(void *array, uint32_t n, size_t size, struct error *err)
{
    void **at = array;
    if (n > 0 && (n < 64 || (n & (n - 1)) != 0)) {
        return 0;
    }
    void *moved = realloc(*at, (n ? 2 * (size_t)n : 64) * size);
    if (!moved) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a landscape");
    }
    *at = moved;
    return 0;
}

double reader_midmean(double *v, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) { /* n is small */
        for (uint32_t k = i; k > 0 && v[k] < v[k - 1]; k--) {
            double t = v[k];
            v[k] = v[k - 1];
            v[k - 1] = t;
        }
    }
    const uint32_t left_out = (n + 1) / 4; /* at each end */
    double sum = 0;
    for (uint32_t i = left_out; i < n - left_out; i++) {
        sum += v[i];
    }
    return sum / (n - 2 * left_out);
}

int reader_sample(struct landscape *l, double us, struct error *err)
{
    int r = reader_grow(&l->samples, l->n_samples, sizeof(*l->samples), err);
    if (r == 0) {
        l->samples[l->n_samples++] = us;
    }
    return r;
}

uint64_t reader_variant(const struct landscape *l, const struct problem *p,
                        const struct record *config)
{
    const struct family *f = family_of_problem(p);
    const struct family_target *t = NULL;
    struct rejection why;
    struct variant v;
    if (f) {
        t = family_target_of_config(f, p, &l->info, config, &why);
    }
    /* gemmd's rules have changed since the recording, and no target accepts this config any more:
     * the problem's own target is used */
    if (f && !t) {
        family_target_choose(f, p, &l->info, NULL, &t, NULL);
    }
    return t && t->variant(p, config, l->info.arch, &v, NULL) == 0 ? replay_variant_hash(&v) : 0;
}

int reader_failure(struct rejection *why, const struct wire_obj *line, struct error *err)
{
    char status[24] = "";
    *why = (struct rejection){0};
    wire_copy_str(wire_find(line, "status"), status, sizeof(status));
    why->code = error_code_of(status);
    if (strcmp(error_name(why->code), status) != 0 || why->code == ERROR_NOT_FOUND) {
        return error_set(err, ERROR_INVALID, "unknown status \"%s\"", status);
    }
    if (!wire_copy_str(wire_find(line, "reason"), why->text, sizeof(why->text))) {
        snprintf(why->text, sizeof(why->text), "recorded as %s, without a reason", status);
    }
    wire_copy_str(wire_find(line, "resource"), why->resource, sizeof(why->resource));
    snprintf(why->rule, sizeof(why->rule), "%s", why->resource[0] ? why->resource : status);
    wire_get_int(wire_find(line, "required"), &why->required);
    wire_get_int(wire_find(line, "limit"), &why->limit);
    return 0;
}

struct landscape_entry *reader_entry(struct landscape *l, const struct record *config,
                                     struct error *err)
{
    if (reader_grow(&l->entries, l->n_entries, sizeof(*l->entries), err)) {
        return NULL;
    }
    struct landscape_entry *e = &l->entries[l->n_entries++];
    *e = (struct landscape_entry){.problem = l->n_problems - 1,
                                  .config = replay_config_hash(config)};
    return e;
}

struct landscape_entry *reader_find(struct landscape *l, uint32_t first,
                                    const struct record *config)
{
    uint64_t hash = replay_config_hash(config);
    for (uint32_t i = first; i < l->n_entries; i++) {
        if (l->entries[i].config == hash) {
            return &l->entries[i];
        }
    }
    return NULL;
}
