/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Learns from recorded landscapes what the analytic model of the target "hopper" errs by.
 *
 *   teach OUT FOLDER...
 *       writes OUT (hopper/model/corrections_h200.h) from all landscapes in the FOLDERs, with the
 * constants that are compiled in
 */
#include <math.h>
#include <stdio.h>

#include "kernels/family.h"
#include "tests/model/learn.h"

static const char *const head =
    "/* SPDX-License-Identifier: Apache-2.0 */\n"
    "/* Written by tests/model/refit.py from recorded landscapes: change those, not this. */\n"
    "#ifndef GEMMD_KERNELS_FAMILIES_HOPPER_LESSONS_H\n"
    "#define GEMMD_KERNELS_FAMILIES_HOPPER_LESSONS_H\n\n"
    "#include \"kernels/families/grouped_gemm/hopper/model/corrections.h\"\n\n"
    "/* NVIDIA H200. By mode, trait and aspect. */\n"
    "const struct hopper_lessons hopper_lessons_h200 = {.by = {\n";
static const char *const modes[HOPPER_MODES] = {"GEMM_FORWARD", "GEMM_DX", "GEMM_DW"};

static struct hopper_lessons lessons;

static void write_mode(FILE *f, int mode)
{
    fprintf(f, "    [%s] = {\n", modes[mode]);
    for (uint32_t t = 0; t < HOPPER_TRAITS; t++) {
        const float *by = lessons.by[mode][t];
        if (fabsf(by[0]) + fabsf(by[1]) + fabsf(by[2]) > 0) {
            fprintf(f, "        [%u] = {%.5ff, %.5ff, %.5ff},\n", t, (double)by[0], (double)by[1],
                    (double)by[2]);
        }
    }
    fputs("    },\n", f);
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
    fputs("}};\n\n#endif\n", f);
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
