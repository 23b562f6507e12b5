/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Hopper template alone on a GPU: right results, the same results in every launch, times. Needs
 * only the driver, and either a folder of cubins compiled elsewhere or NVRTC.
 *
 *   hopper_bench --compile DIR [--jobs N]         the first set's variants, without a GPU;
 *   hopper_bench --compile-space DIR [--jobs N] [--variants PATTERN] [--shard I/N]
 *                                                 all variants of the space, likewise;
 *   hopper_bench --cubins DIR [--stages check,time] [options].
 *
 *   check      every tile x kind x shape against a reference in double precision, guards, NaN;
 *   soak       --soak N launches of each variant (500; of some twenty times as many), whose results
 *              must be bit-identical
 *   variants   every variant of the space once, against the reference
 *   sample     a few variants for compute-sanitizer (--sample N; sanitize.sh);
 *   time       the rows of moe.csv: single launches after an idle gap, behind a spinning kernel,
 *              with other data in L2
 *
 * Exit status: 0 all right, 1 a wrong result, 3 out of time, 77 no Hopper GPU. --jobs processes
 * run ahead and compile variants that DIR lacks.
 *
 *   --out FILE               a copy of the output;
 *   --kind NAMES, --tile NAMES  some of the first set's kinds, tiles (cases.c), commas between;
 *   --seconds S              limit of each of the stages soak, variants and time;
 *   --limit S                limit of all stages together;
 *   --journal FILE           soak, variants: a line per variant's verdict; the next run skips these
 *                            variants;
 *   --shard I/N              check, soak, variants: only part I of N (check: of its shapes);
 *   --variants PATTERN       only matching kinds of the space, such as 'dW*.bf16*';
 *   --seed N                 draws the soaked tenth of the space, the sample, and values that a
 *                            variant leaves open;
 *   --json FILE              time: a record for every measured time;
 *   --tokens N, --shapes CSV time: only rows with N tokens (0: all); rows of this file;
 *   --shape "M N K E topk"   time: this shape instead; repeatable;
 *   --with FIELDS            time: adds fields to each config, such as "w_eviction=evict_first";
 *                            illegal configs are not timed;
 *   --samples N, --gap-ms G  time: samples per config, idle ms before each sample;
 *   --silence S              a child without a finished step for S seconds hangs (10);
 *   --fork no                everything in one process, for debuggers and sanitizers;
 *   --splits no              sample: no variants that split sums
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/gpu/hopper/cases.h"
#include "tests/gpu/hopper/compile.h"
#include "tests/gpu/hopper/cubins.h"
#include "tests/gpu/hopper/journal.h"
#include "tests/gpu/hopper/options.h"
#include "tests/gpu/hopper/report.h"
#include "tests/gpu/hopper/watch.h"

static bool is_kind(const char *name)
{
    return kind_named(name) >= 0;
}

static bool is_tile(const char *name)
{
    return tile_named(name) >= 0;
}

static void require_fields(const char *with)
{
    struct record fields;
    struct error err = ERROR_NULL;
    if (with && record_parse(&fields, with, &err)) {
        fprintf(stderr, "--with %s: %s\n", with, err.text);
        exit(2);
    }
}

int main(int argc, char **argv)
{
    families_register();
    options_read(argc, argv);
    options_require("--kind", options.kind, is_kind);
    options_require("--tile", options.tile, is_tile);
    require_fields(options.with);
    options_require("--stages", options.stages, watch_knows);
    report_open();
    cubins_open();
    switch (options.command) {
    case COMPILE:
        return compile_first_set();
    case COMPILE_SPACE:
        return compile_space();
    case RUN:
        break;
    }
    journal_open();
    return watch_run();
}
