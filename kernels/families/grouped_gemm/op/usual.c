/* SPDX-License-Identifier: Apache-2.0 */
/* The usual problems: every mode with each of its permutes and types, in four sizes. Four are
 * enough: a variant does not contain the sizes, which only change slightly which configs are legal
 * and good. */
#include <stdio.h>

#include "kernels/families/grouped_gemm/grouped_gemm.h"

static const struct {
    const char *fields;
    bool rare;
} usual_modes[] = {
    {"mode=forward", false},
    {"mode=forward permute_x=true", false},
    {"mode=forward permute_y=true", false},
    {"mode=forward permute_y=true fuse_mul_post=true", true},
    {"mode=dX", false},
    {"mode=dX permute_x=true", false},
    {"mode=dX permute_y=true", false},
    {"mode=dW", false},
    {"mode=dW permute_x=true", false},
    {"mode=dW permute_y=true", false},
};
static const struct {
    const char *fields;
    bool rare;
} usual_types[] = {
    {"dtype_in=bf16", false},
    {"dtype_in=fp16", true},
    {"dtype_in=fp32", true},
    {"dtype_in=bf16 dtype_out=fp32", true},
    {"dtype_in=fp16 dtype_out=fp32", true},
    {"quant=fp8_block", true},
    {"quant=fp8_row", true},
    {"quant=fp8_block dtype_out=fp32", true},
    {"quant=fp8_row dtype_out=fp32", true},
};
static const char *const usual_sizes[] = {
    "M=65536 N=8192 K=8192 experts=8 topk=2",
    "M=65536 N=8192 K=8192 experts=128 topk=8",
    "M=65536 N=2048 K=2048 experts=1024 topk=8",
    "M=64 N=2048 K=2048 experts=8 topk=2",
};

enum {
    MODES = sizeof(usual_modes) / sizeof(usual_modes[0]),
    TYPES = sizeof(usual_types) / sizeof(usual_types[0]),
    SIZES = sizeof(usual_sizes) / sizeof(usual_sizes[0]),
};

bool gemm_write_usual(uint32_t i, char *text, size_t size, bool *is_rare)
{
    const uint32_t mode = i / SIZES % MODES, type = i / SIZES / MODES;
    if (type >= TYPES) {
        return false;
    }
    *is_rare = usual_modes[mode].rare || usual_types[type].rare;
    snprintf(text, size, "grouped_gemm %s %s %s", usual_modes[mode].fields,
             usual_types[type].fields, usual_sizes[i % SIZES]);
    return true;
}
