/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes aiter's tuned CSV of gemm_a8w8_blockscale, a line for each (M, N, K):
 *
 *   gfx        the architecture; cu_num: its SMs. aiter uses only lines of the own device
 *   libtype    "gemmd"; kernelId: 0, since gemmd's kernels have no numbers
 *   kernelName the config, from which `import` makes the same config again
 *   splitK     the exponent of NUM_KSPLIT, a power of two
 *   us, tflops, bw (GB/s of each operand once), errRatio: 0, as gemmd serves no wrong kernel
 */
#include <stdio.h>
#include <string.h>

#include "client/ctl/formats.h"

static const char head[] = "gfx,cu_num,M,N,K,libtype,kernelId,splitK,us,kernelName,tflops,bw,"
                           "errRatio\n";

bool aiter_csv_takes(const json_t *best)
{
    return field_is(json_object_get(best, "problem"), "quant", "fp8_block");
}

/* The line of a row, malloc'ed. NULL, and the reason *why: the config has a text with a comma, or
 * no time. */
static char *aiter_csv_make_line(const struct writing *w, const json_t *best, const char **why)
{
    const json_t *p = json_object_get(best, "problem"), *config = json_object_get(best, "config");
    const double m = field_number(p, "M"), n = field_number(p, "N"), k = field_number(p, "K"),
                 us = field_number(best, "time_us");
    TEXT_AUTO *name = text_of_json(config);
    long long split = 0;
    while (2LL << split <= field_int(config, "NUM_KSPLIT")) {
        split++;
    }
    *why = us > 0 ? "a value of its config has a comma" : "it has no time";
    return us > 0 && !strpbrk(name, ",\n\r")
               ? text_format("%s,%lld,%.0f,%.0f,%.0f,gemmd,0,%lld,%.4f,%s,%.2f,%.2f,0.0\n", w->arch,
                             field_int(w->device, "sm_count"), m, n, k, split, us, name,
                             2 * m * n * k / us * 1e-6, (m * k + n * k + 2 * m * n) / us * 1e-3)
               : NULL;
}

void aiter_csv_add(struct writing *w, json_t *lines, json_t *best)
{
    const json_t *p = json_object_get(best, "problem");
    const char *why;
    TEXT_AUTO *line = aiter_csv_make_line(w, best, &why);
    char key[96];
    if (!line) {
        writing_skip(w, best, why);
        return;
    }
    snprintf(key, sizeof(key), "%lld %lld %lld", field_int(p, "M"), field_int(p, "N"),
             field_int(p, "K"));
    json_t *old = json_object_get(lines, key);
    json_t *before = json_object_get(old, "best");
    const bool slower = before && field_number(before, "time_us") <= field_number(best, "time_us");
    if (before) {
        writing_skip(w, slower ? best : before, "a faster row has the same M, N and K");
    }
    if (!slower) {
        json_object_set_new(lines, key,
                            json_pack("{sO, ss, sI, sI, sI}", "best", best, "line", line, "M",
                                      field_int(p, "M"), "N", field_int(p, "N"), "K",
                                      field_int(p, "K")));
    }
}

int aiter_csv_save(struct writing *w, const json_t *lines)
{
    static const char *const order[] = {"N", "K", "M", NULL};
    json_auto_t *rows = json_array();
    OBJECT_EACH(key, row, lines) {
        json_array_append(rows, row);
    }
    rows_sort(rows, order);
    char *text = text_copy(head);
    ARRAY_EACH(row, rows) {
        text = text_append(text, "%s", field_text(row, "line"));
    }
    char *path = text_format("%s%sa8w8_blockscale_tuned_gemm.csv", w->to, writing_slash(w->to));
    return writing_add_file(w, path, text, json_array_size(rows));
}
