/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Landscapes of the replay device, with their injected faults. When a landscape loads, look-ups of
 * every problem, config and sample in the file must work.
 */
#include <math.h>

#include "kernels/devices/replay/replay.h"
#include "kernels/family.h"
#include "tests/fuzz/fuzz.h"

static void check_entry(const struct landscape *l, const struct landscape_entry *e)
{
    uint64_t state = 1;
    struct noise noise;
    CHECK(e->problem < l->n_problems);
    CHECK(e->first <= l->n_samples && e->n <= l->n_samples - e->first);
    if (e->status == 0) {
        noise_visit(l, e, &state, &noise);
        noise_draw(&noise, &state);
    } else {
        CHECK(e->why.text[0]);
        landscape_failure(l, e->variant, e->status);
    }
}

static void check_landscape(const struct landscape *l)
{
    struct error err = ERROR_NULL;
    CHECK(l->info.kind[0] && l->info.class[0]);
    for (uint32_t i = 0; i < l->n_problems; i++) {
        uint32_t at;
        CHECK(landscape_problem(l, &l->problems[i].problem, &at, &err) == 0 && at <= i);
        noise_drift(l, i, 7, 1000);
    }
    for (uint32_t i = 0; i < l->n_entries; i++) {
        CHECK(i == 0 || l->entries[i - 1].problem <= l->entries[i].problem);
        check_entry(l, &l->entries[i]);
    }
    for (uint32_t i = 0; i < l->n_variants; i++) {
        landscape_compile_ms(l, l->variants[i].hash);
    }
    for (uint32_t i = 0; i < l->n_faults; i++) {
        fault_find(l, l->faults[i].stage, &l->faults[i].pattern, NULL);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static bool registered;
    char spec[512];
    struct landscape *l;
    struct error err = ERROR_NULL;
    if (!registered) {
        families_register();
        registered = true;
    }
    snprintf(spec, sizeof(spec), "replay:%s", fuzz_file("landscape.jsonl", data, n));
    if (landscape_load(spec, &l, &err) == 0) {
        check_landscape(l);
        landscape_free(l);
    } else {
        CHECK(err.text[0]);
    }
    return 0;
}
