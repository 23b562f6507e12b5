/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/hopper/tools.h"

#include <string.h>

extern const char hopper_tools_source[];

void tools_variant(struct variant *v)
{
    *v = (struct variant){.family = "tools",
                          .kind = "cuda",
                          .arch = "sm_90a",
                          .entry = "tools",
                          .source = hopper_tools_source};
    hash128_hex(v->source, strlen(v->source), v->source_hash);
}
