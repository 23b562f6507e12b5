/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Learns from recorded landscapes what the analytic model of the target "hopper" errs by.
 *
 *   teach OUT FOLDER...
 *       writes OUT (hopper/model/corrections_h200.csv) from all landscapes in the FOLDERs, with the
 *       constants that are compiled in
 */
#include <math.h>
#include <stdio.h>

#include "kernels/family.h"
#include "tests/model/learn.h"

static const char *const head = "# SPDX-License-Identifier: Apache-2.0\n"
                                "# Written by tests/model/refit.py from landscapes recorded on an "
                                "NVIDIA H200: change those, not "
                                "this.\n"
                                "# corrections.h says what a trait and its three aspects are.\n"
                                "mode,trait,always,rows,weight\n";

static struct hopper_corrections lessons;

static void write_mode(FILE *f, int mode)
{
    for (uint32_t t = 0; t < HOPPER_TRAITS; t++) {
        const float *by = lessons.by[mode][t];
        if (fabsf(by[0]) + fabsf(by[1]) + fabsf(by[2]) > 0) {
            fprintf(f, "%s,%u,%.5f,%.5f,%.5f\n", gemm_mode_name((enum gemm_mode)mode), t,
                    (double)by[0], (double)by[1], (double)by[2]);
        }
    }
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
