/* SPDX-License-Identifier: Apache-2.0 */
/* Candidates: rows of the fleet that are not confirmed here (tuning.h). */
#include <math.h>

#include "daemon/answers/target.h"
#include "daemon/base/log.h"
#include "daemon/tuning/tuning.h"

/* A confirmed row may be slower than the fleet's row promised by this factor. */
static const double SLOWER_MAX = 1.10;

bool confirm_is_due(struct daemon *d, const char *key, const struct problem *bucket,
                    const struct cache_entry *e)
{
    struct answer *a = &d->scratch->answer;
    return e->candidate && cache_answer(&d->cache, e, a, NULL) == 0 &&
           target_has_kernels(d, bucket, a->stamp) && !target_is_quarantined(d, key, a, bucket);
}

void confirm_begin(struct job *j)
{
    if (j->ordered_candidate) {
        j->confirms = true;
        j->candidate = j->ordered_candidate;
        j->promised = j->ordered_promise;
    }
}

void confirm_prepare(struct job *j, const struct cache_entry *e, const struct answer *a)
{
    const double ratio = a->time_us / a->reference_us;
    j->confirms = e->candidate;
    j->candidate = e->generation;
    /* a row that names no time of the default must be no slower than the default */
    j->promised = isfinite(ratio) ? ratio : 1;
}

/* ---- refusal --------------------------------------------------------------------------------- */

static void confirm_on_refused(void *ctx, int status, const struct best *b, bool saved,
                               const struct error *err)
{
    if (status < 0) {
        log_warning("a row of the fleet is not refused: %s", err ? err->text : error_name(status));
    }
}

/* True when the error says something about the config, and nothing about this host or this
 * moment. */
static bool confirm_blames_row(int code)
{
    static const int codes[] = {
        ERROR_INVALID,  ERROR_UNKNOWN_FIELD, ERROR_CONFLICT, ERROR_NO_CONFIG, ERROR_COMPILE,
        ERROR_RESOURCE, ERROR_WRONG_RESULT,  ERROR_HUNG,     ERROR_CRASHED,   ERROR_QUARANTINED};
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        if (codes[i] == code) {
            return true;
        }
    }
    return false;
}

void confirm_failed(struct tuning *x, struct job *j, int code, const char *reason)
{
    struct daemon *d = x->daemon;
    if (!j->confirms) {
        return;
    }
    j->confirms = false;
    if (!confirm_blames_row(code)) {
        return;
    }
    x->fleet.refused++;
    daemon_event(d, "refused", j->uid, "%s: the fleet's row failed here: %.200s", j->key, reason);
    int status = ledger_refuse(d->ledger, j->key, j->candidate, reason, confirm_on_refused, x);
    if (status < 0) {
        confirm_on_refused(x, status, NULL, false, NULL);
    }
}

int confirm_judge_result(const struct job *j, const struct tune_result *r, struct error *err)
{
    const double ratio = r->time_us / r->reference_us;
    if (!j->confirms || !(ratio > SLOWER_MAX * j->promised)) {
        return 0;
    }
    const bool noisy = j->doubt[0] || r->spread > SLOWER_MAX - 1;
    return error_set(err, noisy ? ERROR_BUSY : ERROR_NO_CONFIG,
                     "%.0f %% slower than promised: %.2f of the default's time here (%.4g us of "
                     "%.4g us), and %.2f there%s",
                     100 * (ratio / j->promised - 1), ratio, r->time_us, r->reference_us,
                     j->promised, noisy ? "; but something disturbed the measurement here" : "");
}
