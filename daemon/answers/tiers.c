/* SPDX-License-Identifier: Apache-2.0 */
/* The tiers below `exact` (tiers.h). A hit does not come here, so this may take the time to decode
 * entries. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "daemon/answers/custom.h"
#include "daemon/daemon.h"
#include "daemon/answers/tiers.h"
#include "daemon/answers/target.h"
#include "daemon/cache/answer.h"
#include "kernels/modules.h"
#include "kernels/space.h"

enum { NEIGHBOURS = 4 };

/* Another bucket's config answers only if it is expected to take at least 2 % less time than the
 * default, since estimates for another bucket err by 3 to 4 % (docs/performance.md, "Lower
 * tiers"). */
static const double MARGIN = 0.02;

/* Added to the distance (entry_distance) of a row that was measured with other code or other
 * permutes: such a difference changes a config's time as much as eight times as many rows do (3 =
 * log2 8). */
static const double OTHER_KERNEL = 3;

enum standard { STANDARD_NOT_CHOSEN, STANDARD_ANSWERS, STANDARD_DOES_NOT_ANSWER };

struct lookup {
    struct daemon *d;
    const struct portfolio *portfolio;
    const struct request *request; /* NULL: any config is allowed */
    const struct problem *problem, *bucket;
    const struct key *key;
    const struct family *family;
    const struct family_target *target;
    int64_t uid;            /* the caller */
    char *origin;           /* receives the id (HASH_HEX) of the key of the row that answers */
    enum standard standard; /* state of scratch->standard, the analytic default */
    double standard_us;     /* predicted time of the default */
    char passed_over[112];  /* for the note: the nearest row that the default beats; or "" */
};

/* True when the row's config is of the query's target and that target can run it: times of other
 * targets' kernels say nothing. */
static bool is_legal(const struct lookup *q, const struct problem *p, const struct answer *a)
{
    struct rejection why;
    return target_is_of(a, q->target->label) &&
           q->target->check(p, &a->config, &q->d->device, &why) == 0;
}

/* True when a config is quarantined for a fault at `key` (NULL: at any key). */
static bool tiers_is_quarantined(const struct lookup *q, const char *key,
                                 const struct record *config)
{
    return quarantine_set_has_config(&q->d->quarantine_set, key, q->target, q->problem, config,
                                     &q->d->device);
}

static bool is_quarantined_anywhere(const void *ctx, const struct record *config)
{
    return tiers_is_quarantined(ctx, NULL, config);
}

static bool is_allowed(const struct lookup *q, const struct answer *a)
{
    return !q->request || allowed_config(q->request, &a->config);
}

/* True when the query may be answered with another key's config: allowed by the request, valid for
 * the problem, and quarantined for no key. */
static bool tiers_config_fits(const struct lookup *q, const struct answer *a)
{
    return is_allowed(q, a) && is_legal(q, q->problem, a) &&
           !tiers_is_quarantined(q, NULL, &a->config);
}

/* True when both problems share a compiled module for this config. */
static bool tiers_same_variant(const struct lookup *q, const struct problem *other,
                               const struct record *config)
{
    struct variant a, b;
    const char *arch = q->d->device.arch;
    return q->target->variant(q->problem, config, arch, &a, NULL) == 0 &&
           q->target->variant(other, config, arch, &b, NULL) == 0 &&
           strcmp(a.entry, b.entry) == 0 && strcmp(a.options, b.options) == 0 &&
           strcmp(a.source_hash, b.source_hash) == 0;
}

/* Makes a row's answer the answer of the query's key in a lower tier: sets key and tier, and clears
 * the row's measurements, which do not hold for this key. */
static void tiers_clear_measured(const struct lookup *q, struct answer *a, const char *tier)
{
    snprintf(a->key, sizeof(a->key), "%s", q->key->id);
    snprintf(a->tier, sizeof(a->tier), "%s", tier);
    a->time_us = a->spread = a->reference_us = a->tflops = a->gbps = NAN;
    a->measured = 0;
    double floor = family_floor_us(q->family, q->problem, &q->d->device);
    a->floor_us = floor > 0 ? floor : NAN;
}

/* Writes the fields in which `other` differs from `mine`, with the values of `other` ("M=4096
 * routing=uniform"). Cuts long values. */
static void tiers_put_difference(const struct problem *mine, const struct problem *other, char *out,
                                 size_t size)
{
    size_t n = 0;
    out[0] = 0;
    for (size_t i = 0; i < other->fields.n; i++) {
        const char *name = other->fields.fields[i].name;
        struct value v = record_at(&other->fields, i), own;
        char text[24];
        if (record_get(&mine->fields, name, &own) && !value_equal(&own, &v) && n < size) {
            value_format(&v, text, sizeof(text));
            n += (size_t)snprintf(out + n, size - n, " %s=%s", name, text);
        }
    }
}

/* ---- comparison with the default ------------------------------------------------------------- */

/*
 * Estimates a config's time for the query's problem ("here"), as a ratio to the time of the
 * analytic default, from the config's row for another problem ("there").
 *
 * The model compares two configs of a problem and errs by some per cent per config. The row adds
 * evidence: there both the config and the default were measured.
 *
 *   expected = model's ratio here * correction(measured ratio there / model's ratio there)
 *
 * A config that was slower there than the model expects counts as slower here by the same factor.
 * For a faster config the correction shrinks with the distance of the problems: its logarithm
 * counts whole at distance 0, and half when one problem has twice the rows (docs/performance.md,
 * "Lower tiers").
 */

static const double LEAST = 0.5; /* lower bound of the correction */

struct measured_there {
    const struct problem *problem;
    /* measured: time of the config / time of the reference kernel; NaN: not measured */
    double ratio;
    double distance; /* entry_distance() to the query's problem */
};

/* Returns the correction of the formula above; 1 without a measurement there. */
static double tiers_correct_model(const struct lookup *q, const struct record *config,
                                  const struct measured_there *e)
{
    struct daemon *d = q->d;
    double standard;
    if (!(e->ratio > 0) || defaults_choose(&d->defaults, q->target, e->problem, &d->scratch->config,
                                           &standard, NULL) < 0) {
        return 1;
    }
    double missed = e->ratio * standard / q->target->predict(e->problem, config, &d->device, NULL);
    if (!(missed > 0) || !isfinite(missed)) {
        return 1;
    }
    return missed > 1 ? missed : pow(fmax(missed, LEAST), 1 / (1 + e->distance));
}

/* Returns the expected time of the config / time of the default; NaN when the model cannot tell.
 * When even the largest correction would leave the ratio above `enough`, returns the model's ratio
 * uncorrected, which is quicker. Uses scratch->config. */
static double tiers_expected_ratio(const struct lookup *q, const struct record *config,
                                   const struct measured_there *e, double enough)
{
    double ratio = q->target->predict(q->problem, config, &q->d->device, NULL) / q->standard_us;
    bool in_reach = ratio * pow(LEAST, 1 / (1 + e->distance)) <= enough;
    return in_reach ? ratio * tiers_correct_model(q, config, e) : ratio;
}

/* Chooses the analytic default, and changes it to a config that the request allows. *within false:
 * no such config was found, and the default stays. */
static int choose_standard(const struct lookup *q, struct record *config, double *us, bool *within,
                           struct error *err)
{
    int status = defaults_choose(&q->d->defaults, q->target, q->problem, config, us, err);
    const struct allowed_place at = {.problem = q->problem,
                                     .target = q->target,
                                     .info = &q->d->device,
                                     .is_quarantined = is_quarantined_anywhere,
                                     .ctx = q};
    *within = status == 0 && allowed_within(q->request, &at, config);
    if (us && *within && request_is_restricted(q->request)) {
        *us = q->target->predict(q->problem, config, &q->d->device, NULL);
    }
    return status;
}

/* True when the analytic default may answer this request. Chooses the default at the first call. */
static bool standard_answers(struct lookup *q)
{
    struct record *config = &q->d->scratch->standard;
    if (q->standard == STANDARD_NOT_CHOSEN) {
        bool within;
        bool answers = choose_standard(q, config, &q->standard_us, &within, NULL) == 0 && within &&
                       !tiers_is_quarantined(q, NULL, config);
        q->standard = answers ? STANDARD_ANSWERS : STANDARD_DOES_NOT_ANSWER;
    }
    return q->standard == STANDARD_ANSWERS;
}

/* True when a config is expected to take at most `most` of the default's time. `e`: the config's
 * measurement for the key `key`. Also true when the model cannot tell. */
static bool is_no_slower(struct lookup *q, const struct record *config,
                         const struct measured_there *e, double most, const char *key)
{
    const struct record *standard = &q->d->scratch->standard;
    if (!standard_answers(q) || record_equal(config, standard)) {
        return true;
    }
    double ratio = tiers_expected_ratio(q, config, e, most);
    if (!isfinite(ratio) || ratio <= most) {
        return true;
    }
    if (!q->passed_over[0]) {
        /* the note names only the first row that is rejected, which is the nearest */
        snprintf(q->passed_over, sizeof(q->passed_over),
                 "; the config of %.6s is not expected to be faster (%.2f of the default's time)",
                 key, ratio);
    }
    return false;
}

/* True when a row was measured with today's source; compiler and launch ABI may differ. */
static bool is_of_source(const struct lookup *q, const char *stamp)
{
    const char *today = target_stamp(q->d, q->family, q->target);
    size_t n = strcspn(today, " ");
    return strcspn(stamp, " ") == n && strncmp(stamp, today, n) == 0;
}

/* Names the compiled kernel of the answer's config, where the cache directory has one: a search or
 * another client may have compiled it. Then the client need not compile. */
static void tiers_find_module(const struct lookup *q, struct answer *a)
{
    const struct device_info *info = &q->d->device;
    struct variant v;
    char hash[HASH_HEX];
    if (!a->module[0] && q->d->cache_dir && info->compiler[0] &&
        q->target->variant(q->problem, &a->config, info->arch, &v, NULL) == 0) {
        variant_hash(&v, info->compiler, hash);
        modules_id(q->d->cache_dir, hash, a->module);
    }
}

/* ---- the tiers ------------------------------------------------------------------------------- */

/* Answers from this key's own row, which does not serve the query. */
static bool own_row(struct lookup *q, const char *why, struct answer *out)
{
    struct cache *c = &q->d->cache;
    const struct cache_entry *e = cache_find(c, q->key);
    if (!e || !custom_answers(e, q->uid) || cache_answer(c, e, out, NULL) < 0) {
        return false;
    }
    memcpy(q->origin, q->key->id, HASH_HEX);
    bool serves = e->rank >= CACHE_SERVES;
    if (!is_allowed(q, out) || !is_legal(q, q->problem, out) ||
        tiers_is_quarantined(q, serves ? q->key->id : NULL, &out->config)) {
        return false;
    }
    if (serves && cache_verified(e, q->request->query.atol, q->request->query.rtol)) {
        /* the row serves; the query comes here since it wants the key tuned again */
        answer_note(out, "%s", why);
        return true;
    }
    if (serves) {
        /* the row serves, but was verified only under wider tolerances than the query's */
        snprintf(out->tier, sizeof(out->tier), "near");
        answer_note(out, "verified with atol %g and rtol %g only; %s", e->atol, e->rtol, why);
        return true;
    }
    const struct measured_there seen = {q->bucket, out->time_us / out->reference_us,
                                        is_of_source(q, out->stamp) ? 0 : OTHER_KERNEL};
    /* A pin measured with other kernels is still a person's choice: it need not be fast. */
    if (strcmp(out->source, "partial") == 0 ||
        (!e->manual && !is_no_slower(q, &out->config, &seen, 1, q->key->id))) {
        return false;
    }
    const char *how = strcmp(out->source, "imported") == 0 ? "imported, not measured here"
                      : answer_is_candidate(out)           ? "of the fleet, not confirmed here"
                                                           : "measured by other code";
    tiers_clear_measured(q, out, "near");
    answer_note(out, "%s; %s", how, why);
    return true;
}

static bool tiers_find_neighbour(struct lookup *q, const char *why, struct answer *out)
{
    struct cache *c = &q->d->cache;
    struct cache_entry *near[NEIGHBOURS];
    struct problem *other = &q->d->scratch->other;
    const struct query *asked = &q->request->query;
    float dims[CACHE_DIMS];
    entry_group(q->bucket, dims);
    size_t n = cache_near(c, q->key, q->bucket, NEIGHBOURS, near);
    for (size_t i = 0; i < n; i++) {
        if (!cache_verified(near[i], asked->atol, asked->rtol) ||
            cache_answer(c, near[i], out, NULL) < 0 || !tiers_config_fits(q, out) ||
            cache_problem(c, near[i], other, NULL) < 0) {
            continue;
        }
        const struct measured_there seen = {other, out->time_us / out->reference_us,
                                            entry_distance(near[i]->dims, dims)};
        if (!is_no_slower(q, &out->config, &seen, 1 - MARGIN, out->key)) {
            continue;
        }
        char key[HASH_HEX], fields[96];
        memcpy(key, out->key, sizeof(key));
        memcpy(q->origin, key, sizeof(key));
        tiers_put_difference(q->bucket, other, fields, sizeof(fields));
        if (!tiers_same_variant(q, other, &out->config)) {
            out->module[0] = 0;
        }
        tiers_clear_measured(q, out, "near");
        answer_note(out, "best of the nearest bucket %.6s (%s); %s", key,
                    fields[0] ? fields + 1 : "", why);
        return true;
    }
    return false;
}

static struct measured_there member_evidence(struct lookup *q, const struct portfolio_shape *shape)
{
    struct cache *c = &q->d->cache;
    struct problem *other = &q->d->scratch->other;
    float dims[CACHE_DIMS];
    const struct cache_entry *e = cache_find_id(c, shape->key, NULL);
    if (!e || cache_problem(c, e, other, NULL) < 0) {
        return (struct measured_there){.ratio = NAN};
    }
    bool alike = entry_group(q->bucket, dims) == e->in[LIST_GROUP].of;
    return (struct measured_there){other, (double)shape->ratio,
                                   entry_distance(dims, e->dims) + (alike ? 0 : OTHER_KERNEL)};
}

static bool find_in_portfolio(struct lookup *q, const char *why, struct answer *out)
{
    const struct portfolio *l = q->portfolio;
    const struct portfolio_shape *near[NEIGHBOURS];
    size_t n = portfolio_near(l, q->bucket, NEIGHBOURS, near);
    for (size_t i = 0; i < n; i++) {
        const struct measured_there seen = member_evidence(q, near[i]);
        if (portfolio_answer(l, near[i], out) == 0 && tiers_config_fits(q, out) &&
            is_no_slower(q, &out->config, &seen, 1 - MARGIN, near[i]->key)) {
            memcpy(q->origin, near[i]->key, HASH_HEX);
            tiers_clear_measured(q, out, "portfolio");
            snprintf(out->family, sizeof(out->family), "%s", q->family->name);
            answer_note(out,
                        "of the configs that are within %g %% of the best for all known shapes, "
                        "that of %.6s; %s",
                        l->bound_percent, near[i]->key, why);
            return true;
        }
    }
    return false;
}

static int tiers_choose_default(const struct lookup *q, const char *why, struct answer *out,
                                struct error *err)
{
    bool within;
    answer_init(out);
    int status = choose_standard(q, &out->config, NULL, &within, err);
    if (status < 0) {
        return status;
    }
    tiers_clear_measured(q, out, "default");
    snprintf(out->source, sizeof(out->source), "model");
    snprintf(out->family, sizeof(out->family), "%s", q->family->name);
    snprintf(out->stamp, sizeof(out->stamp), "%s", target_stamp(q->d, q->family, q->target));
    answer_note(out, "%s%s%s", why, q->passed_over,
                within ? "" : "; the analytic default is not what is allowed");
    if (tiers_is_quarantined(q, NULL, &out->config)) {
        return error_set(err, ERROR_QUARANTINED,
                         "the analytic default has crashed or hung the runner before (gemmctl "
                         "quarantine); wait for a tuning (%s)",
                         why);
    }
    return 0;
}

static int not_ours(const struct problem *p, const char *when, struct error *err)
{
    return error_set(err, ERROR_NOT_FOUND,
                     "nothing %s of this problem of %s, and gemmd cannot tune that op: put a "
                     "result first",
                     when, p->op_name);
}

int tiers_answer(struct tiers *t, const struct request *request, int64_t uid,
                 const struct problem *bucket, const struct key *k, const char *why,
                 struct answer *out, char origin[HASH_HEX], struct error *err)
{
    char none[HASH_HEX];
    const struct problem *problem = &request->problem;
    struct lookup q = {.d = t->daemon,
                       .portfolio = &t->portfolio,
                       .request = request,
                       .problem = problem,
                       .bucket = bucket,
                       .key = k,
                       .uid = uid,
                       .origin = origin ? origin : none};
    q.family = family_of_problem(problem);
    if (!q.family) {
        return not_ours(problem, bucket ? "is known" : "was known in the pinned generation", err);
    }
    int status = target_choose(q.d, problem, request->query.target, &q.target, err);
    if (status < 0) {
        return status;
    }
    if (!bucket || !(own_row(&q, why, out) || tiers_find_neighbour(&q, why, out) ||
                     find_in_portfolio(&q, why, out))) {
        q.origin[0] = 0;
        status = tiers_choose_default(&q, why, out, err);
    }
    if (status == 0) {
        tiers_find_module(&q, out);
    }
    return status;
}

/* Adds the config of scratch->hint to the n configs in `out`, unless `read` < 0 (scratch->hint
 * could not be read), the config is not valid here, or `out` has it. Returns the new number of
 * configs. */
static size_t tiers_add_hint(const struct lookup *q, int read, size_t n, size_t max,
                             struct record *out)
{
    const struct answer *a = &q->d->scratch->hint;
    if (read < 0 || n == max || !is_legal(q, q->bucket, a)) {
        return n;
    }
    for (size_t i = 0; i < n; i++) {
        if (record_equal(&out[i], &a->config)) {
            return n;
        }
    }
    record_copy(&out[n], &a->config);
    return n + 1;
}

const char *tiers_no_hint(struct daemon *d, const struct problem *bucket, const char *target,
                          const struct answer *a)
{
    struct lookup q = {.d = d, .problem = bucket, .bucket = bucket};
    if (target_choose(d, bucket, target, &q.target, NULL) < 0 || !is_legal(&q, bucket, a)) {
        return "it is none of today's kernels";
    }
    return tiers_is_quarantined(&q, NULL, &a->config) ? "its kernel is in quarantine" : NULL;
}

size_t tiers_hints(struct tiers *t, const struct problem *bucket, const struct key *k,
                   const char *target, size_t max, struct record *out)
{
    struct lookup q = {
        .d = t->daemon, .portfolio = &t->portfolio, .problem = bucket, .bucket = bucket, .key = k};
    q.family = family_of_problem(bucket);
    if (max == 0 || target_choose(q.d, bucket, target, &q.target, NULL) < 0) {
        return 0;
    }
    size_t n = 0;
    struct daemon *d = t->daemon;
    struct answer *hint = &d->scratch->hint;
    const struct cache_entry *own = cache_find(&d->cache, k);
    if (own) {
        n = tiers_add_hint(&q, cache_answer(&d->cache, own, hint, NULL), n, max, out);
    }
    const struct cache_entry *alike = cache_find(&d->alike, k);
    if (alike) {
        n = tiers_add_hint(&q, cache_answer(&d->alike, alike, hint, NULL), n, max, out);
    }
    struct cache_entry *near[NEIGHBOURS];
    size_t m = cache_near(&d->cache, k, bucket, NEIGHBOURS, near);
    for (size_t i = 0; i < m; i++) {
        n = tiers_add_hint(&q, cache_answer(&d->cache, near[i], hint, NULL), n, max, out);
    }
    const struct portfolio_shape *known[NEIGHBOURS];
    m = portfolio_near(q.portfolio, bucket, NEIGHBOURS, known);
    for (size_t i = 0; i < m; i++) {
        n = tiers_add_hint(&q, portfolio_answer(q.portfolio, known[i], hint), n, max, out);
    }
    return n;
}
