/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "kernels/families/grouped_gemm/hopper/host/values.h"

#define HOPPER_NAME(name) #name,
const char *const hopper_field_names[FIELDS + 1] = {HOPPER_FIELDS(HOPPER_NAME) NULL};

/* Both are in order: one walk over the two. */
void hopper_values_read(const struct record *config, struct hopper_values *out)
{
    size_t field = 0;
    *out = (struct hopper_values){0};
    for (size_t i = 0; i < config->n && field < FIELDS; i++) {
        int ahead = -1;
        while (field < FIELDS &&
               (ahead = strcmp(hopper_field_names[field], config->fields[i].name)) < 0) {
            field++;
        }
        if (ahead == 0) {
            out->of[field++] = record_at(config, i);
        }
    }
}

bool hopper_says(const struct hopper_values *v, enum hopper_field f, const char *word)
{
    return v->of[f].type == VALUE_TEXT && strcmp(v->of[f].text, word) == 0;
}
