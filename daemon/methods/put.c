/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The methods `put` and `import`: rows that other programs measured. For "custom:" ops such a row
 * is the answer, but an import does not replace a faster row. For ops with kernels of gemmd the row
 * is a hint until this daemon measures its config. Such a row never replaces a row that serves its
 * key.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "daemon/answers/learn.h"
#include "daemon/answers/target.h"
#include "daemon/answers/tiers.h"
#include "daemon/base/log.h"
#include "daemon/cache/answer.h"
#include "daemon/methods/methods.h"
#include "daemon/methods/daemon_parts.h"
#include "daemon/methods/pending.h"
#include "store/store.h"

/* Checks that a config's one-line text is not too long, and that the op's kernels can run the
 * config. */
static int check_config(struct daemon *d, const struct problem *bucket, const struct record *config,
                        struct error *err)
{
    const struct family *f = family_of_problem(bucket);
    struct rejection why;
    if (config->n == 0) {
        return error_set(err, ERROR_INVALID, "the config is empty: it must name its parameters");
    }
    if (record_format(config, NULL, 0) >= CONFIG_TEXT_MAX) {
        return error_set(err, ERROR_INVALID, "a config is at most %d bytes of text",
                         CONFIG_TEXT_MAX - 1);
    }
    /* It is enough that some target of the device takes the config: an answer of the portable
     * kernel is useful also on a device with a better target. For an op without kernels nothing is
     * checked. */
    if (f && family_target_find(f, &d->device, NULL) &&
        !family_target_of_config(f, bucket, &d->device, config, &why)) {
        return error_set(err, why.code, "%s", why.text);
    }
    return 0;
}

/* Fills the row's fields that follow from the problem. The caller has set config and times of `b`,
 * and the other fields to 0. */
static void put_fill_row(struct daemon *d, struct best *b, const struct problem *bucket,
                         const struct key *k, int64_t uid)
{
    const struct family *f = family_of_problem(bucket);
    memcpy(b->key, k->id, sizeof(b->key));
    snprintf(b->op, sizeof(b->op), "%s", bucket->op_name);
    snprintf(b->family, sizeof(b->family), "%s", f ? f->name : "");
    record_copy(&b->problem, &bucket->fields);
    memcpy(b->class, d->device.class, sizeof(b->class));
    snprintf(b->source, sizeof(b->source), "imported");
    if (f) {
        best_work(b, f, bucket, &d->device);
    } else { /* an unknown number is 0 here and becomes NaN, since 0 would look like a result */
        b->flops = b->flops > 0 ? b->flops : NAN;
        b->bytes = b->bytes > 0 ? b->bytes : NAN;
        b->floor_us = b->floor_us > 0 ? b->floor_us : NAN;
    }
    b->uid = uid;
    b->created_s = b->created_s ? b->created_s : time(NULL);
}

static bool is_trusted_already(struct daemon *d, const struct key *k)
{
    struct answer *a = &d->scratch->answer;
    const struct cache_entry *e = cache_find(&d->cache, k);
    return e && cache_answer(&d->cache, e, a, NULL) == 0 && strcmp(a->source, "trusted") == 0;
}

/* Refuses a row when the key's answer outranks it, or when the user may add no further key. A user
 * replaces only rows of that user, since other rows may answer all users. *known becomes the
 * generation of the key's cached row: with it the ledger can refuse the write when a newer row has
 * come. */
static int check_rank(struct daemon *d, const struct key *k, const struct problem *bucket,
                      int64_t uid, int64_t *known, struct error *err)
{
    const struct cache_entry *e = cache_find(&d->cache, k);
    *known = e ? e->generation : 0;
    if (custom_check_room(d, k->id, uid, err) < 0) {
        return ERROR_DENIED;
    }
    if (!e || custom_is(bucket)) {
        return 0;
    }
    if (e->rank >= CACHE_SERVES && is_trusted_already(d, k)) {
        return error_set(err, ERROR_CONFLICT,
                         "key %.12s has an answer that gemmd's owner trusts, which a put or an "
                         "import without trust does not push out; `tune` measures the key here, "
                         "`pin` decides it, or `evict` it first",
                         k->id);
    }
    if (e->rank >= CACHE_SERVES) {
        return store_outranked(k->id, err);
    }
    bool own = custom_is_owner(uid) || (e->brought && (int64_t)e->uid == uid);
    return own ? 0 : store_belongs_to_another(k->id, err);
}

static void put_learn_row(struct daemon *d, int status, const struct best *b, bool saved,
                          const struct error *err)
{
    if (status < 0 && status != ERROR_CONFLICT && err) {
        log_warning("an imported row is not saved: %s", err->text);
    }
    if (b) {
        learn_best(d, b, saved);
    }
}

/* True for a number from 0 on, and for NaN, which means unknown. */
static bool is_amount(double x)
{
    return isnan(x) || (x >= 0 && isfinite(x));
}

/* ---- put ------------------------------------------------------------------------------------- */

static void put_put_answer(struct wire_buf *b, struct daemon *d, const struct best *best,
                           bool saved)
{
    struct answer *a = &d->scratch->answer;
    struct problem *bucket = &d->scratch->other;
    const char *why = NULL;
    answer_of_best(a, best, saved);
    if (best->family[0]) {
        if (problem_make(bucket, best->op, &best->problem, NULL) == 0) {
            why = tiers_no_hint(d, bucket, NULL, a);
        }
        snprintf(a->tier, sizeof(a->tier), "near");
        answer_note(a, "a hint until it is measured here%s%s%s",
                    custom_is_owner(best->uid) ? "" : ", and for you alone",
                    why ? "; but no tuning tries it: " : "", why ? why : "");
    }
    schema_encode(b, &answer_schema, a);
}

static void on_put(void *ctx, int status, const struct best *b, bool saved, const struct error *err)
{
    struct pending *p = ctx;
    put_learn_row(p->d, status, b, saved, err);
    if (!b) {
        pending_fail(p, err);
        return;
    }
    struct lease *lease = leases_of(&p->parts->leases, p->ticket.session, b->key);
    put_put_answer(pending_result(p), p->d, b, saved);
    pending_drop(p);
    if (lease) {
        lease_end(lease);
    }
}

int method_put(struct call *c, struct error *err)
{
    struct daemon *d = c->d;
    struct scratch *x = d->scratch;
    struct best *b = &x->best;
    const struct wire_obj *time_us = wire_find(c->params, "time_us");
    int status = call_problem(c, CUSTOM_WRITE, err);
    memset(b, 0, sizeof(*b));
    status = status ? status : call_config(c, &b->config, err);
    status = status ? status : check_config(d, &x->bucket, &b->config, err);
    if (status < 0) {
        return status;
    }
    b->time_us = b->spread = b->reference_us = NAN;
    if (wire_type_of(time_us) != WIRE_NIL &&
        (!wire_get_real(time_us, &b->time_us) || !is_amount(b->time_us) || b->time_us == 0)) {
        return error_set(err, ERROR_INVALID, "'time_us' must be a positive number, or nil");
    }
    status = check_rank(d, &x->key, &x->bucket, c->s->uid, &b->generation, err);
    if (status < 0) {
        return status;
    }
    put_fill_row(d, b, &x->bucket, &x->key, c->s->uid);
    struct pending *p = call_keep(c, 1, err) ? NULL : call_later(c, sizeof(*p), err);
    return p ? pending_asked(p, ledger_publish(d->ledger, b, on_put, p), err) : err->code;
}

/* ---- import ---------------------------------------------------------------------------------- */

enum { SKIPPED_MAX = 256, BUNDLE_TEXT_MAX = 200 };

struct importing {
    struct pending pending; /* first member: its address is the struct's */
    unsigned left;
    int64_t imported, trials;
    bool trust;
    char bundle[BUNDLE_TEXT_MAX]; /* text of the event, in place of the usual text; "": none */
    uint32_t n_skipped;
    struct wire_buf skipped; /* owned: maps {row, message} of skipped rows */
    struct imported {
        /* the context for the ledger's answer about a row or about its trials */
        struct importing *all;
    } rows[SKIPPED_MAX];
    uint32_t n_fit;
    struct fit { /* submitted rows that needed no rounding to their bucket */
        char key[HASH_HEX];
        double us;
    } fit[SKIPPED_MAX];
};

static void finish_import(struct importing *x)
{
    struct wire_buf skipped = x->skipped;
    struct wire_buf *b = pending_result(&x->pending);
    if (x->bundle[0]) {
        daemon_event(x->pending.d, "bundle", x->pending.uid, "%s", x->bundle);
    } else {
        daemon_event(x->pending.d, "import", x->pending.uid,
                     "%lld rows imported, %u skipped, %lld trials of custom ops",
                     (long long)x->imported, x->n_skipped, (long long)x->trials);
    }
    if (b) {
        wire_put_map(b, 2 + (x->trials > 0));
        wire_put_kv_int(b, "imported", x->imported);
        if (x->trials > 0) {
            wire_put_kv_int(b, "trials", x->trials);
        }
        wire_put_str(b, "skipped");
        wire_put_array(b, x->n_skipped);
        wire_put_raw(b, skipped.data, skipped.len);
    }
    pending_drop(&x->pending);
    wire_buf_deinit(&skipped);
}

static void import_skip_row(struct importing *x, size_t row, const char *why)
{
    x->n_skipped++;
    wire_put_map(&x->skipped, 2);
    wire_put_kv_int(&x->skipped, "row", (int64_t)row);
    wire_put_kv_str(&x->skipped, "message", why);
}

static void import_count_done(struct importing *x)
{
    if (--x->left == 0) {
        finish_import(x);
    }
}

static void on_imported(void *ctx, int status, const struct best *b, bool saved,
                        const struct error *err)
{
    struct imported *row = ctx;
    struct importing *x = row->all;
    put_learn_row(x->pending.d, status, b, saved, err);
    x->imported += b != NULL;
    if (!b) {
        import_skip_row(x, (size_t)(row - x->rows), err ? err->text : "no memory");
    }
    import_count_done(x);
}

static void put_on_trials(void *ctx, int64_t kept, const struct error *err)
{
    struct imported *row = ctx;
    struct importing *x = row->all;
    x->trials += kept;
    if (err) {
        import_skip_row(x, (size_t)(row - x->rows), err->text);
    }
    import_count_done(x);
}

/* Imports trials of a custom op, so that configs that another daemon measured are not measured
 * again. Trials of ops with kernels are not imported: they compare only within their run. A row
 * without a config brings only trials. */
static int import_trials(struct importing *x, const struct wire_obj *trials, size_t row,
                         const struct key *k, struct error *err)
{
    x->left++;
    int status = record_bring(x->pending.d, k->id, trials, put_on_trials, &x->rows[row], err);
    x->left -= status < 0;
    return status;
}

/* Checks the numbers of a row from a file, which may be wrong. */
static int put_check_numbers(struct best *b, struct error *err)
{
    enum { CLOCK_SKEW_S = 24 * 3600 };
    const struct {
        const char *name;
        double value;
    } amounts[] = {
        {"time_us", b->time_us}, {"spread", b->spread}, {"reference_us", b->reference_us},
        {"flops", b->flops},     {"bytes", b->bytes},   {"floor_us", b->floor_us},
        {"atol", b->atol},       {"rtol", b->rtol}};
    for (size_t i = 0; i < sizeof(amounts) / sizeof(amounts[0]); i++) {
        if (!is_amount(amounts[i].value)) {
            return error_set(err, ERROR_INVALID, "%s = %g: it must be a number from 0 on, or nil",
                             amounts[i].name, amounts[i].value);
        }
    }
    if (b->measured < 0) {
        return error_set(err, ERROR_INVALID, "measured = %lld: it must be 0 or more",
                         (long long)b->measured);
    }
    if (b->created_s < 0 || b->created_s > time(NULL) + CLOCK_SKEW_S) {
        return error_set(err, ERROR_INVALID,
                         "created_s = %lld: it must be Unix seconds, and not in the future",
                         (long long)b->created_s);
    }
    return 0;
}

/* The last row of a key that this import has submitted, or NULL. */
static const struct fit *find_fit(const struct importing *x, const char *key)
{
    for (uint32_t i = x->n_fit; i > 0; i--) {
        if (strcmp(x->fit[i - 1].key, key) == 0) {
            return &x->fit[i - 1];
        }
    }
    return NULL;
}

/* Makes a row of another problem in the bucket a hint for the bucket: the row's times become
 * unknown. Refuses the row when the bucket has a row of its own. */
static int take_rounded(const struct importing *x, const struct key *k, struct best *b,
                        struct error *err)
{
    if (cache_find(&x->pending.d->cache, k) || find_fit(x, k->id)) {
        return error_set(err, ERROR_CONFLICT,
                         "its sizes are rounded here to those of key %.12s, which has a row of "
                         "its own",
                         k->id);
    }
    b->time_us = b->spread = b->reference_us = NAN;
    b->measured = 0;
    b->floor_us = 0;
    return 0;
}

/* For an import with trust: checks that a row of device class class_ may answer here without a new
 * measurement. */
static int check_trust(struct daemon *d, const struct best *b, const struct problem *bucket,
                       const char *class_, struct error *err)
{
    if (!device_class_alike(class_, d->device.class)) {
        return error_set(err, ERROR_CONFLICT,
                         "the row is of a device of another architecture or number of SMs (%s), "
                         "which is not to be trusted",
                         class_);
    }
    if (family_of_problem(bucket) && strcmp(b->source, "tuned") != 0 &&
        strcmp(b->source, "manual") != 0 && strcmp(b->source, "trusted") != 0 &&
        (strcmp(b->source, "fleet") != 0 || best_is_candidate(b))) {
        return error_set(err, ERROR_CONFLICT,
                         "the row (source %s) answered no query in its database: import it "
                         "without trust, as a hint",
                         b->source);
    }
    if (family_of_problem(bucket) && !target_is_of_today(d, bucket, b->stamp)) {
        return error_set(err, ERROR_CONFLICT,
                         "the row was measured with other kernels or another compiler (%s): import "
                         "it without trust, as a hint",
                         b->stamp);
    }
    return 0;
}

/* True if a row with this time is to leave a row in its place. */
static bool is_slower(double us, double known_us)
{
    return known_us > 0 && !(us > 0 && us <= known_us);
}

/* Refuses a row of a custom op that is slower than the key's row, or has no time where the key's
 * row has one. The key's row may be of the same import. Of a refused row the trials are imported.
 */
static int import_check_time(struct importing *x, const struct best *b, const struct key *k,
                             const struct wire_obj *trials, size_t row, struct error *err)
{
    struct daemon *d = x->pending.d;
    struct answer *a = &d->scratch->answer;
    const struct cache_entry *e = cache_find(&d->cache, k);
    const struct fit *before = find_fit(x, k->id);
    if (!(before && is_slower(b->time_us, before->us)) &&
        !(e && cache_answer(&d->cache, e, a, NULL) == 0 && is_slower(b->time_us, a->time_us))) {
        return 0;
    }
    int status = trials ? import_trials(x, trials, row, k, err) : 0;
    return status
               ? status
               : error_set(err, ERROR_CONFLICT, "key %.12s has a faster row, which stays", k->id);
}

enum { IMPORT_NOT_NOW = 1 };

/* Imports a row. A row of another device class keeps its class unless trusted: the row serves
 * daemons of that class, and is a hint where the class is alike. Each row is visited twice: the
 * first pass (`late` false) imports rows that need no rounding to their bucket, the second the
 * others. IMPORT_NOT_NOW: this pass leaves the row out. */
static int import_row(struct importing *x, const struct wire_obj *row, size_t number, bool late,
                      struct error *err)
{
    struct daemon *d = x->pending.d;
    struct scratch *s = d->scratch;
    struct best *b = &s->best;
    struct problem *p = &s->other;
    int status = schema_decode(&best_schema, SCHEMA_LENIENT, row, b, err);
    status = status ? status : put_check_numbers(b, err);
    status = status ? status : problem_make(p, b->op, &b->problem, err);
    if (status < 0) {
        return late ? IMPORT_NOT_NOW : status; /* the first pass has reported the error */
    }
    char class_[sizeof(b->class)], from[sizeof(b->class)];
    snprintf(from, sizeof(from), "%s", b->class[0] ? b->class : d->device.class);
    const struct wire_obj *trials = family_of_problem(p) ? NULL : wire_find(row, "trials");
    problem_bucket(p, d->scheme, &s->bucket);
    const bool rounded = b->time_us > 0 && !record_equal(&p->fields, &s->bucket.fields);
    if (rounded != late) {
        return IMPORT_NOT_NOW;
    }
    memcpy(class_, x->trust ? d->device.class : from, sizeof(class_));
    bool ours = strcmp(class_, d->device.class) == 0;
    status = x->trust ? check_trust(d, b, &s->bucket, from, err) : 0;
    status = status ? status : key_make(&s->key, &s->bucket, class_, err);
    if (status < 0) {
        return status;
    }
    key_id(&s->key);
    if (trials && b->config.n == 0) {
        return import_trials(x, trials, number, &s->key, err);
    }
    status = ours ? check_config(d, &s->bucket, &b->config, err) : 0;
    status = status || !rounded ? status : take_rounded(x, &s->key, b, err);
    /* The row keeps the exporter's values, except numbers that name rows of the exporter's
     * database. */
    b->generation = b->trial = 0;
    if (status == 0 && ours && !(x->trust && is_trusted_already(d, &s->key))) {
        status = check_rank(d, &s->key, &s->bucket, x->pending.uid, &b->generation, err);
        status = status || family_of_problem(p)
                     ? status
                     : import_check_time(x, b, &s->key, trials, number, err);
    }
    if (status == 0 && !ours && family_of_problem(p) &&
        !device_class_alike(class_, d->device.class)) {
        status = error_set(err, ERROR_CONFLICT,
                           "the row is of a device of another architecture or number of SMs (%s): "
                           "import it through the gemmd of such a device",
                           class_);
    }
    if (status < 0) {
        return status;
    }
    double floor_us = b->floor_us;
    if (!family_of_problem(p)) {
        b->atol = b->rtol = 0; /* gemmd does not verify custom ops: any tolerance is met */
    }
    put_fill_row(d, b, &s->bucket, &s->key, x->pending.uid);
    if (x->trust && !rounded) {
        snprintf(b->source, sizeof(b->source), "trusted");
        snprintf(b->doubt, sizeof(b->doubt), "trusted, not measured here but on %.110s", from);
    }
    b->floor_us = floor_us > 0 ? floor_us : b->floor_us;
    memcpy(b->class, class_, sizeof(b->class));
    if (!rounded) {
        x->fit[x->n_fit].us = b->time_us;
        memcpy(x->fit[x->n_fit++].key, s->key.id, HASH_HEX);
    }
    status = ledger_publish(d->ledger, b, on_imported, &x->rows[number]);
    if (status < 0) {
        return ledger_refused(status, err);
    }
    x->left++;
    return trials ? import_trials(x, trials, number, &s->key, err) : 0;
}

static void import_all_rows(struct importing *x, const struct wire_obj *rows, bool late)
{
    for (size_t i = 0; i < wire_count(rows); i++) {
        struct error why = ERROR_NULL;
        x->rows[i].all = x;
        if (import_row(x, wire_at(rows, i), i, late, &why) < 0) {
            import_skip_row(x, i, why.text);
        }
    }
}

int method_import(struct call *c, struct error *err)
{
    const struct wire_obj *rows = wire_find(c->params, "rows");
    const struct wire_obj *bundle = wire_find(c->params, "bundle");
    char event[BUNDLE_TEXT_MAX] = "";
    bool trusted = false;
    int status = call_flag(c, "trust", &trusted, err);
    if (status == 0 && bundle && !wire_copy_str(bundle, event, sizeof(event))) {
        status = error_set(err, ERROR_INVALID, "'bundle' must be text of at most %d bytes",
                           BUNDLE_TEXT_MAX - 1);
    }
    if (status == 0 && (wire_type_of(rows) != WIRE_ARRAY || wire_count(rows) > SKIPPED_MAX)) {
        status = error_set(err, ERROR_INVALID,
                           "'rows' must be a list of at most %d rows as `list` of best gives them",
                           SKIPPED_MAX);
    }
    struct importing *x = status ? NULL : call_later(c, sizeof(*x), err);
    if (!x) {
        return err->code;
    }
    /* counts this function as a row, so that the import ends only when all rows are submitted */
    x->left = 1;
    x->trust = trusted;
    memcpy(x->bundle, event, sizeof(event));
    import_all_rows(x, rows, false);
    import_all_rows(x, rows, true);
    import_count_done(x);
    return METHOD_LATER;
}
