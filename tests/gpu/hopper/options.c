/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/hopper/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct options options = {
    .stages = "check,time",
    .shapes_file = "tests/data/shapes/moe.csv",
    .shards = 1,
    .seed = 1,
    .soak = 500,
    .sample = 10,
    .samples = 7,
    .jobs = 2,
    .tokens = 4096,
    .seconds = 120,
    .limit = 240,
    .gap_ms = 8,
    .silence = 10,
    .fork = true,
    .splits = true,
};

static const struct {
    const char *name;
    const char **to;
} texts[] = {
    {"--cubins", &options.cubins},     {"--out", &options.out},
    {"--json", &options.json},         {"--journal", &options.journal},
    {"--stages", &options.stages},     {"--shapes", &options.shapes_file},
    {"--kind", &options.kind},         {"--tile", &options.tile},
    {"--variants", &options.variants}, {"--with", &options.with},
};
static const struct {
    const char *name;
    int *to;
} numbers[] = {
    {"--soak", &options.soak}, {"--sample", &options.sample}, {"--samples", &options.samples},
    {"--jobs", &options.jobs}, {"--tokens", &options.tokens},
};
static const struct {
    const char *name;
    double *to;
} reals[] = {
    {"--seconds", &options.seconds},
    {"--limit", &options.limit},
    {"--gap-ms", &options.gap_ms},
    {"--silence", &options.silence},
};

#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

static _Noreturn void refuse(const char *name, const char *value, const char *takes)
{
    fprintf(stderr, "%s %s: %s\n", name, value ? value : "", takes);
    exit(2);
}

static double number_of(const char *name, const char *value)
{
    char *end;
    double v = strtod(value, &end);
    if (end == value || *end || v < 0) {
        refuse(name, value, "takes a number, not below 0");
    }
    return v;
}

static bool read_table(const char *name, const char *value)
{
    for (size_t i = 0; i < COUNT(texts); i++) {
        if (strcmp(name, texts[i].name) == 0) {
            *texts[i].to = value;
            return true;
        }
    }
    for (size_t i = 0; i < COUNT(numbers); i++) {
        if (strcmp(name, numbers[i].name) == 0) {
            *numbers[i].to = (int)number_of(name, value);
            return true;
        }
    }
    for (size_t i = 0; i < COUNT(reals); i++) {
        if (strcmp(name, reals[i].name) == 0) {
            *reals[i].to = number_of(name, value);
            return true;
        }
    }
    return false;
}

static void read_one(const char *name, const char *value)
{
    if (strcmp(name, "--compile") == 0 || strcmp(name, "--compile-space") == 0) {
        options.command = strcmp(name, "--compile") == 0 ? COMPILE : COMPILE_SPACE;
        options.cubins = value;
    } else if (strcmp(name, "--seed") == 0) {
        options.seed = strtoull(value, NULL, 0);
    } else if (strcmp(name, "--fork") == 0) {
        options.fork = strcmp(value, "no") != 0;
    } else if (strcmp(name, "--splits") == 0) {
        options.splits = strcmp(value, "no") != 0;
    } else if (strcmp(name, "--shard") == 0) {
        if (sscanf(value, "%d/%d", &options.shard, &options.shards) != 2 || options.shard < 0 ||
            options.shard >= options.shards) {
            refuse(name, value, "takes i/n, 0 <= i < n, such as 0/4");
        }
    } else if (strcmp(name, "--shape") == 0) {
        if (options.n_free_shapes == FREE_SHAPES_MAX) {
            refuse(name, value, "is one too many");
        }
        options.free_shapes[options.n_free_shapes++] = value;
    } else {
        refuse(name, value, "is no option of hopper_bench (main.c lists them)");
    }
}

void options_read(int argc, char **argv)
{
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 == argc) {
            refuse(argv[i], NULL, "needs a value");
        }
        if (!read_table(argv[i], argv[i + 1])) {
            read_one(argv[i], argv[i + 1]);
        }
    }
    if (!options.cubins) {
        fprintf(stderr, "usage: hopper_bench --compile DIR | --compile-space DIR | --cubins DIR "
                        "[options]\n");
        exit(2);
    }
}

static bool contains(const char *list, const char *name)
{
    const size_t n = strlen(name);
    for (const char *at = list; *at; at += strcspn(at, ","), at += *at == ',') {
        if (strcspn(at, ",") == n && memcmp(at, name, n) == 0) {
            return true;
        }
    }
    return false;
}

void options_require(const char *option, const char *list, bool (*known)(const char *name))
{
    if (!list) {
        return;
    }
    for (const char *at = list; *at; at += *at == ',') {
        const size_t n = strcspn(at, ",");
        char name[64] = "";
        memcpy(name, at, n < sizeof(name) ? n : sizeof(name) - 1);
        if (!known(name)) {
            refuse(option, name, "there is none of this name");
        }
        at += n;
    }
}

bool options_stage(const char *name)
{
    return contains(options.stages, name);
}

bool options_kind(const char *name)
{
    return !options.kind || contains(options.kind, name);
}

bool options_tile(const char *name)
{
    return !options.tile || contains(options.tile, name);
}
