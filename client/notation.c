/* SPDX-License-Identifier: Apache-2.0 */
/* Configs described for people and programs: the short notation, and the exactness of results. */
#include "kernels/notation.h"

#include <stdlib.h>
#include <string.h>

#include "client/ask.h"
#include "client/handle.h"

static int config_find_problem(const struct gemmd_problem *problem, struct problem *p,
                               const struct family **f, struct error *err)
{
    struct ask a;
    int r = ask_problem(&a, problem, err);
    r = r ? r : ask_to_problem(&a.problem, p, err);
    *f = r ? NULL : family_of_problem(p);
    return r;
}

/* 0, or ERROR_NO_MEMORY. */
static int config_copy(const char *text, char **out, struct error *err)
{
    *out = strdup(text);
    return *out ? 0 : error_set(err, ERROR_NO_MEMORY, "no memory for a config");
}

static int config_shorten(const struct gemmd_problem *problem, const char *target,
                          const char *config, char **out, struct error *err)
{
    struct problem p;
    struct record record;
    const struct family *f;
    char text[NOTATION_MAX];
    int r = config_find_problem(problem, &p, &f, err);
    r = r ? r : record_parse(&record, config, err);
    for (const struct family_target *const *t = r || !f ? NULL : f->targets; t && *t; t++) {
        if ((!target || strcmp((*t)->label, target) == 0) &&
            notation_write(*t, &p, &record, text)) {
            return config_copy(text, out, err);
        }
    }
    return r;
}

static int config_expand(const struct gemmd_problem *problem, const char *target, const char *text,
                         char **out, struct error *err)
{
    struct problem p;
    struct record record;
    const struct family *f;
    if (!notation_is_short(text)) {
        return config_copy(text, out, err);
    }
    int r = config_find_problem(problem, &p, &f, err);
    r = r ? r : notation_read(f, target, &p, text, &record, err);
    if (r) {
        return r;
    }
    const size_t size = record_format(&record, NULL, 0) + 1;
    *out = malloc(size);
    if (!*out) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a config");
    }
    record_format(&record, *out, size);
    return 0;
}

int gemmd_config_shorten(const struct gemmd_problem *problem, const char *target,
                         const char *config, char **text, struct gemmd_error *err)
{
    struct error e;
    if (!config || !text) {
        error_set(&e, ERROR_INVALID, "config and text may not be NULL");
        return handle_result(ERROR_INVALID, &e, err);
    }
    *text = NULL;
    return handle_result(config_shorten(problem, target, config, text, &e), &e, err);
}

int gemmd_config_expand(const struct gemmd_problem *problem, const char *target, const char *text,
                        char **config, struct gemmd_error *err)
{
    struct error e;
    if (!text || !config) {
        error_set(&e, ERROR_INVALID, "text and config may not be NULL");
        return handle_result(ERROR_INVALID, &e, err);
    }
    *config = NULL;
    return handle_result(config_expand(problem, target, text, config, &e), &e, err);
}

static int config_find_exactness(const struct gemmd_problem *problem, const char *target,
                                 const char *config, struct exactness *out, struct error *err)
{
    struct problem p;
    struct record record;
    const struct family *f;
    int r = config_find_problem(problem, &p, &f, err);
    r = r ? r : record_parse(&record, config, err);
    for (const struct family_target *const *t = r || !f ? NULL : f->targets; t && *t; t++) {
        if (strcmp((*t)->label, target) == 0 && (*t)->exactness) {
            (*t)->exactness(&p, &record, out);
        }
    }
    return r;
}

int gemmd_config_exactness(const struct gemmd_problem *problem, const char *target,
                           const char *config, struct gemmd_exactness *out, struct gemmd_error *err)
{
    struct error e;
    struct exactness exact = {0};
    int r = !target || !config || !out
                ? error_set(&e, ERROR_INVALID, "target, config and out may not be NULL")
                : ask_check_size(out->size, sizeof(*out), "exactness", &e);
    r = r ? r : config_find_exactness(problem, target, config, &exact, &e);
    if (r == 0) {
        out->runs = exact.runs;
        out->batches = exact.batches;
        memcpy(out->order, exact.order, sizeof(out->order));
    }
    return handle_result(r, &e, err);
}
