/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Learns the errors of the analytic model of the target "hopper" from recorded landscapes.
 *
 *   teach OUT FOLDER...
 *       writes OUT (hopper/model/corrections_h200.txt) from all landscapes in the FOLDERs, with the
 *       compiled constants
 */
#include <math.h>
#include <stdio.h>

#include "kernels/family.h"
#include "tests/model/learn.h"

static const char *const head =
    "# SPDX-License-Identifier: Apache-2.0\n"
    "# Written by tests/model/refit.py from landscapes recorded on an NVIDIA H200: change those.\n"
    "# A mode, and its traits as number:always,rows,weight in hundred-thousandths: model.h\n"
    "# says what a trait and its three aspects are.\n";
enum { LINE_MOST = 100 };

static struct hopper_corrections lessons;

static void write_mode(FILE *f, int mode)
{
    const char *name = gemm_mode_name((enum gemm_mode)mode);
    int column = 0;
    for (uint32_t t = 0; t < HOPPER_TRAITS; t++) {
        const float *by = lessons.by[mode][t];
        const long always = lroundf(by[0] * 1e5f), rows = lroundf(by[1] * 1e5f),
                   weight = lroundf(by[2] * 1e5f);
        char cell[64];
        if (!always && !rows && !weight) {
            continue;
        }
        const int n = snprintf(cell, sizeof(cell), " %u:%ld,%ld,%ld", t, always, rows, weight);
        if (column == 0 || column + n > LINE_MOST) {
            column = fprintf(f, "%s%s", column ? "\n" : "", name) - (column > 0);
        }
        column += n;
        fputs(cell, f);
    }
    fputs("\n", f);
}

static int write_all(const char *path)
{
    FILE *f = fopen(path, "w");
    if (!f) {
        perror(path);
        return 1;
    }
    fputs(head, f);
    for (int mode = 0; mode < HOPPER_MODES; mode++) {
        write_mode(f, mode);
    }
    return fclose(f) ? 1 : 0;
}

int main(int argc, char **argv)
{
    struct lectures l = {.n = 0};
    bool good = argc > 2;
    families_register();
    if (!good) {
        fprintf(stderr, "usage: see the head of tests/model/teach.c\n");
        return 2;
    }
    for (int i = 2; good && i < argc; i++) {
        good = lectures_add(&l, argv[i]);
    }
    good = good && learn(&l, NULL, &lessons) && write_all(argv[1]) == 0;
    printf("%u landscapes\n", l.n);
    lectures_close(&l);
    return good ? 0 : 1;
}
