/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses the target (a family's kernels for a kind of device) of a query, and ranks rows by their
 * target (kernels/family.h has the rule). A query that names a target is restricted, so the winner
 * is `partial`, unless the device would choose the same target.
 */
#include <stdio.h>
#include <string.h>

#include "daemon/answers/target.h"
#include "kernels/devices/cpu/cpu.h"
#include "kernels/space.h"

int target_choose(const struct daemon *d, const struct problem *p, const char *label,
                  const struct family_target **out, struct error *err)
{
    return family_target_choose(family_of_problem(p), p, &d->device, label, out, err);
}

const char *target_stamp(struct daemon *d, const struct family *f, const struct family_target *t)
{
    size_t i = 0;
    while (i < STAMPS_MAX - 1 && d->stamps[i].target && d->stamps[i].target != t) {
        i++;
    }
    if (d->stamps[i].target != t) {
        d->stamps[i].target = t;
        family_stamp(f, t, &d->device, d->stamps[i].text);
    }
    return d->stamps[i].text;
}

const char *target_stamp_of(struct daemon *d, const struct request *r)
{
    const struct family_target *t;
    const struct family *f = family_of_problem(&r->problem);
    return target_choose(d, &r->problem, r->query.target, &t, NULL) < 0 ? ""
                                                                        : target_stamp(d, f, t);
}

bool target_is_of(const struct answer *a, const char *label)
{
    char own[TARGET_MAX];
    family_stamp_target(a->stamp, own);
    return !label[0] || !own[0] || strcmp(label, own) == 0;
}

bool target_is_of_today(struct daemon *d, const struct problem *p, const char *stamp)
{
    char label[TARGET_MAX];
    const struct family_target *t;
    family_stamp_target(stamp, label);
    return label[0] && target_choose(d, p, label, &t, NULL) == 0 &&
           strcmp(target_stamp(d, family_of_problem(p), t), stamp) == 0;
}

bool target_has_kernels(struct daemon *d, const struct problem *p, const char *stamp)
{
    static const char word[] = " compiler=";
    const struct family *f = family_of_problem(p);
    const struct family_target *t;
    if (!f || target_choose(d, p, NULL, &t, NULL) < 0) {
        return false;
    }
    const char *today = target_stamp(d, f, t), *end = strstr(today, word);
    return end && strncmp(stamp, today, (size_t)(end - today) + strlen(word)) == 0;
}

/* Returns the target for the configs that a request gives: the device's own choice if that target
 * takes one of the configs, else the first target that does. */
static const struct family_target *target_of_list(const struct daemon *d, const struct request *r,
                                                  const struct family_target *own)
{
    const struct family *f = family_of_problem(&r->problem);
    const struct family_target *first = NULL;
    for (uint32_t i = 0; i < r->n_configs; i++) {
        struct rejection why;
        const struct family_target *t =
            family_target_of_config(f, &r->problem, &d->device, &r->configs[i], &why);
        if (t == own) {
            return own;
        }
        first = first ? first : t;
    }
    return first ? first : own;
}

/* True when the key's entry is a pin with a config of another target than `t`. */
static bool pinned_elsewhere(struct daemon *d, const struct cache_entry *e,
                             const struct family_target *t)
{
    struct answer *a = &d->scratch->hint;
    return e && e->manual && cache_answer(&d->cache, e, a, NULL) == 0 && !target_is_of(a, t->label);
}

int target_settle(struct daemon *d, struct request *r, const struct cache_entry *e,
                  struct error *err)
{
    char *label = r->query.target;
    const struct family_target *own, *wanted = NULL;
    bool forced = label[0];
    if (!forced && r->n_configs == 0) {
        return 0;
    }
    int status = forced ? target_choose(d, &r->problem, label, &wanted, err) : 0;
    if (status < 0 || target_choose(d, &r->problem, NULL, &own, NULL) < 0) {
        return status; /* a problem without targets is no error here: the tuning reports it */
    }
    wanted = forced ? wanted : target_of_list(d, r, own);
    bool plain = wanted == own && !(forced && pinned_elsewhere(d, e, own));
    snprintf(label, TARGET_MAX, "%s", plain ? "" : wanted->label);
    return 0;
}

enum cache_rank target_rank(struct daemon *d, const struct answer *a, const struct problem *bucket)
{
    const struct family *f = family_of_problem(bucket);
    const struct family_target *t;
    bool manual = strcmp(a->source, "manual") == 0;
    char pinned[TARGET_MAX] = "";
    if (!f) {
        return CACHE_SERVES; /* a custom op has no kernels that could change */
    }
    if (manual) { /* a person may pin a config of another target than the device's choice */
        family_stamp_target(a->stamp, pinned);
    }
    if (strcmp(a->source, "imported") == 0 || strcmp(a->source, "partial") == 0 ||
        (answer_is_candidate(a) && !d->fleet_serves) ||
        target_choose(d, bucket, pinned, &t, NULL) < 0 ||
        strcmp(target_stamp(d, f, t), a->stamp) != 0 ||
        quarantine_set_has_config(&d->quarantine_set, a->key, t, bucket, &a->config, &d->device)) {
        return CACHE_HINT;
    }
    return manual ? CACHE_PINNED : CACHE_SERVES;
}

static bool target_is_in_set(const struct daemon *d, const struct quarantine_set *set,
                             const char *key, const struct answer *a, const struct problem *p)
{
    char label[TARGET_MAX];
    const struct family_target *t;
    family_stamp_target(a->stamp, label);
    return set->n > 0 && target_choose(d, p, label, &t, NULL) == 0 &&
           quarantine_set_has_config(set, key, t, p, &a->config, &d->device);
}

bool target_is_quarantined(const struct daemon *d, const char *key, const struct answer *a,
                           const struct problem *p)
{
    return target_is_in_set(d, &d->quarantine_set, key, a, p);
}

bool target_is_doubted(const struct daemon *d, const struct answer *a, const struct problem *p)
{
    return target_is_in_set(d, &d->doubts, NULL, a, p);
}

/* ---- cheap checks before a job is made ------------------------------------------------------- */

static int no_compiler(const struct daemon *d, struct error *err)
{
    if (strcmp(d->device.kind, "cuda") == 0) {
        return error_set(
            err, ERROR_NO_COMPILER,
            "no NVRTC was found when gemmd started: install libnvrtc of a CUDA toolkit "
            "that the driver %s can run, then restart gemmd",
            d->device.driver);
    }
    /* looks for the compiler as the runner does, to say why there is none */
    struct error why = ERROR_NULL;
    return cpu_compiler_find(&why)
               ? error_set(err, ERROR_NO_COMPILER, "%.400s; then restart gemmd", why.text)
               : error_set(
                     err, ERROR_NO_COMPILER,
                     "the C compiler was installed after gemmd's start, or reported no version "
                     "(-dumpversion) then: restart gemmd");
}

/* Checks the configs that a request gives. One valid config is enough: the runner records the
 * faults of the others. */
static int check_given(const struct daemon *d, const struct family_target *t,
                       const struct request *r, const struct problem *bucket, struct error *err)
{
    struct rejection first = {0};
    for (uint32_t i = 0; i < r->n_configs; i++) {
        struct rejection why;
        if (t->check(bucket, &r->configs[i], &d->device, &why) == 0) {
            return 0;
        }
        first = i == 0 ? why : first;
    }
    return error_set(err, first.code, "%s", first.text);
}

int precheck_request(struct daemon *d, const struct request *r, struct error *err)
{
    const struct problem *bucket = &r->problem;
    const struct family *f = family_of_problem(bucket);
    if (!f) {
        return error_set(
            err, ERROR_NO_CONFIG,
            "gemmd has no kernels for the op %s and cannot measure it: put a result, which is "
            "answered from then on",
            bucket->op_name);
    }
    const struct family_target *t;
    int status = target_choose(d, bucket, r->query.target, &t, err);
    if (status < 0) {
        return status;
    }
    status = space_check_request(t, r, &d->device, err);
    if (status == 0 && r->n_configs) {
        status = check_given(d, t, r, bucket, err);
    }
    if (status == 0 && !d->device.compiler[0]) {
        status = no_compiler(d, err);
    }
    return status;
}

int precheck_space(struct daemon *d, const struct request *r, struct error *err)
{
    const struct family_target *t;
    if (r->n_configs) {
        return 0;
    }
    int status = target_choose(d, &r->problem, r->query.target, &t, err);
    return status < 0
               ? status
               : defaults_choose(&d->defaults, t, &r->problem, &d->scratch->config, NULL, err);
}
