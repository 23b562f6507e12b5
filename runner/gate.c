/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The minimum-improvement gate. When a key with a measured best is tuned again, the winner must be
 * faster by a margin (`--min-gain` of gemmd, 1 % by default). Without the gate each tuning would
 * swap configs that differ only by noise, and jobs would load new kernels for nothing.
 *
 * The former best is always measured and takes part in all rounds of the finals. The gain is the
 * median over rounds of (other / former), so that drift affects both. A former best that is
 * illegal, quarantined, or fails in this run is replaced. The daemon decides which best the order
 * names as `former` (daemon/tuning/runner_order.c); other bests come as hints.
 */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runner/base/stats.h"
#include "runner/job_inner.h"

enum { ROUNDS_MAX = 16 };

static const char gone[] = "replaces the former best, which cannot run any more: ";

/* Writes to j->gate that the former best is replaced because it cannot run, with the reason; a long
 * reason is cut at the end of a word with "...". */
static void say_gone(struct job *j, const char *reason)
{
    size_t room = sizeof(j->gate) - sizeof(gone), n = strlen(reason);
    bool cut = n > room;
    for (n = cut ? room - strlen("...") : n; cut && n > 0 && reason[n] != ' '; n--) {
    }
    snprintf(j->gate, sizeof(j->gate), "%s%.*s%s", gone, (int)n, reason, cut ? "..." : "");
}

int gate_begin(struct job *j, struct error *err)
{
    const struct record *config = &j->order->former;
    struct rejection why;
    j->former = PLAN_NONE;
    if (config->n == 0) {
        return 0;
    }
    if (plan_check(&j->plan, config, &why)) {
        say_gone(j, why.text);
        return 0;
    }
    return allowed_config(&j->order->request, config) ? plan_add(&j->plan, config, &j->former, err)
                                                      : 0;
}

/* Per cent of the former best's time that the other config saves, by the median of the rounds'
 * ratios; negative: the other config is slower. */
static double gain_percent(const double other_us[], const double former_us[], uint32_t rounds)
{
    double ratios[ROUNDS_MAX];
    assert(rounds <= ROUNDS_MAX);
    for (uint32_t i = 0; i < rounds; i++) {
        ratios[i] = other_us[i] / former_us[i];
    }
    return 100 * (1 - stats_median(ratios, rounds));
}

static void say_stays(struct job *j, bool won, double gain)
{
    const char *word = gain < 0 ? "slower" : "faster";
    if (won) { /* the winner has the best score, but in the median round it may be slower */
        word = gain > 0 ? "faster, which is noise of the finals" : "slower";
        snprintf(j->gate, sizeof(j->gate),
                 "the former best stays: it won again; the next was %.2f %% %s", fabs(gain), word);
    } else {
        snprintf(j->gate, sizeof(j->gate),
                 "the former best stays: the winner was %.2f %% %s in the same finals, not faster "
                 "by more than %g %%",
                 fabs(gain), word, j->order->min_gain);
    }
}

bool gate_keeps(struct job *j, uint32_t winner, const double other_us[], const double former_us[],
                uint32_t rounds)
{
    bool won = winner == j->former;
    if (j->former == PLAN_NONE) {
        return false;
    }
    if (won && !other_us) {
        snprintf(j->gate, sizeof(j->gate), "the former best stays: nothing else came near it");
        return true;
    }
    if (!former_us) {
        snprintf(j->gate, sizeof(j->gate), "replaces the former best, which failed in this run");
        return false;
    }
    double gain = gain_percent(other_us, former_us, rounds);
    if (won || !(gain > j->order->min_gain)) {
        say_stays(j, won, gain);
        return true;
    }
    snprintf(j->gate, sizeof(j->gate),
             "replaces the former best: %.2f %% faster in the same finals (more than %g %%)", gain,
             j->order->min_gain);
    return false;
}
