/* SPDX-License-Identifier: Apache-2.0 */
/* The reference on the CPU: the definition of ../reference.cu, a check run at a time. */
#include <stdint.h>
#include <string.h>

#include "kernels/families/quantise/quantise.h"
#include "kernels/fp8.h"

#define DEVICE static
#define REFERENCE_ON_CPU

static float bits_to_float(uint32_t v)
{
    float f;
    memcpy(&f, &v, sizeof(f));
    return f;
}

static uint32_t float_to_bits(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof(bits));
    return bits;
}

static unsigned to_e4m3(float value)
{
    return fp8_encode(value);
}

#include "kernels/families/quantise/reference.cu"

_Static_assert(sizeof(struct reference_params) == sizeof(struct quantise_reference),
               "reference.cu counts on this layout");

static void reference_run(const void *params, uint32_t check)
{
    struct reference_params p;
    memcpy(&p, params, sizeof(p));
    for (int64_t i = 0; i < p.length; i++) {
        p.out[check * p.length + i] = byte_at(&p, p.check_at[check] + i);
    }
}

int quantise_cpu_reference(const struct workload *w, void *const buffers[], const int64_t *check_at,
                           double *out, struct launch *launch, struct error *err)
{
    struct quantise_reference r;
    (void)err;
    quantise_fill_reference(w, buffers, check_at, out, &r);
    *launch = (struct launch){
        .grid = {w->n_checks, 1, 1}, .cpu_entry = reference_run, .params_bytes = sizeof(r)};
    memcpy(launch->params, &r, sizeof(r));
    return 0;
}
