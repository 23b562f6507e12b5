/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/model/measured.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sys/stat.h>

#include <jansson.h>

#include "tests/model/described.h"
#include "tests/model/learn.h"
#include "tests/unit/cuda/h200.h"

const struct device_info measured_h200 = {H200_FIELDS};

static bool fault(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    return false;
}

static bool read_configs(struct measured *m, const json_t *list)
{
    m->n_configs = (uint32_t)json_array_size(list);
    m->configs = calloc(m->n_configs + 1, sizeof(*m->configs));
    for (uint32_t i = 0; m->configs && i < m->n_configs; i++) {
        const char *text = json_string_value(json_array_get(list, i));
        struct error err = ERROR_NULL;
        if (!text || record_parse(&m->configs[i], text, &err)) {
            return fault(text ? text : "configs", err.text);
        }
    }
    return m->configs != NULL;
}

static bool read_time(struct measured *m, struct measured_problem *p, const json_t *row)
{
    const json_int_t config = json_integer_value(json_array_get(row, 0));
    struct rejection why;
    if (!json_is_array(row) || config < 0 || config >= m->n_configs) {
        return fault("times", "a row is not [config, microseconds, least]");
    }
    struct measured_time *t = &p->times[p->n];
    t->config = &m->configs[config];
    t->us = json_number_value(json_array_get(row, 1));
    t->least = json_number_value(json_array_get(row, 2));
    if (!(t->us > 0)) {
        return fault("times", "a time is not a number above 0");
    }
    if (hopper_check(&p->problem, t->config, &measured_h200, &why)) {
        return fault("a measured config is not legal", why.text);
    }
    hopper_tile_make(&p->facts.v, t->config, &t->tile);
    p->best = fmin(p->best, t->us);
    p->n++;
    return true;
}

static bool read_problem(struct measured *m, struct measured_problem *p, const json_t *row)
{
    struct error err = ERROR_NULL;
    char text[512];
    const char *model = json_string_value(json_object_get(row, "model"));
    const char *layer = json_string_value(json_object_get(row, "layer"));
    const char *problem = json_string_value(json_object_get(row, "problem"));
    const json_t *times = json_object_get(row, "times");
    if (!model || !layer || !problem || json_array_size(times) == 0) {
        return fault("problems", "a row lacks model, layer, problem or times");
    }
    snprintf(p->model, sizeof(p->model), "%s", model);
    snprintf(p->layer, sizeof(p->layer), "%s", layer);
    p->tokens = (int)json_integer_value(json_object_get(row, "tokens"));
    const json_t *weight = json_object_get(row, "weight");
    p->weight = weight ? json_number_value(weight) : 1;
    snprintf(text, sizeof(text), "grouped_gemm %s", problem);
    if (problem_parse(&p->problem, text, &err) ||
        gemm_workload_init(&p->workload, &p->problem, MEASURED_SEED, &err)) {
        return fault(text, err.text);
    }
    hopper_facts_init(&p->facts, &p->problem, &measured_h200, &p->workload);
    hopper_facts_init(&p->typical, &p->problem, &measured_h200, NULL);
    p->times = calloc(json_array_size(times), sizeof(*p->times));
    p->best = INFINITY;
    for (size_t i = 0; p->times && i < json_array_size(times); i++) {
        if (!read_time(m, p, json_array_get(times, i))) {
            return false;
        }
    }
    return p->times != NULL;
}

static bool read_all(struct measured *m, const json_t *root)
{
    const json_t *list = json_object_get(root, "problems");
    if (!read_configs(m, json_object_get(root, "configs")) || json_array_size(list) == 0) {
        return false;
    }
    m->problems = calloc(json_array_size(list), sizeof(*m->problems));
    for (size_t i = 0; m->problems && i < json_array_size(list); i++) {
        if (!read_problem(m, &m->problems[m->n++], json_array_get(list, i))) {
            return false;
        }
    }
    return m->problems != NULL;
}

/* ---- landscapes ------------------------------------------------------------------------------ */

static const double FAR = 1.25; /* as in collect.py: slower points are left out */

static bool take_lecture(struct measured_problem *p, const struct lecture *l)
{
    snprintf(p->model, sizeof(p->model), "%.*s", (int)sizeof(p->model) - 1, l->name);
    snprintf(p->layer, sizeof(p->layer), "landscape");
    p->problem = l->problem;
    p->weight = 1;
    p->facts = l->facts;
    described_facts(&p->typical, &p->problem, &l->info, NULL);
    p->times = calloc(l->n, sizeof(*p->times));
    p->best = INFINITY;
    for (uint32_t i = 0; i < l->n; i++) {
        p->best = fmin(p->best, l->us[i]);
    }
    for (uint32_t i = 0; p->times && i < l->n; i++) {
        if (l->us[i] <= FAR * p->best) {
            p->times[p->n++] =
                (struct measured_time){.tile = l->tiles[i], .us = l->us[i], .least = l->us[i]};
        }
    }
    return p->times != NULL;
}

static bool measured_open_folder(struct measured *m, const char *path)
{
    struct lectures l = {.n = 0};
    bool good = lectures_add(&l, path);
    m->problems = calloc(l.n + 1, sizeof(*m->problems));
    for (uint32_t i = 0; good && m->problems && i < l.n; i++) {
        good = take_lecture(&m->problems[m->n++], &l.all[i]);
    }
    good = good && m->problems;
    lectures_close(&l);
    return good || (measured_close(m), false);
}

bool measured_open(struct measured *m, const char *path)
{
    json_error_t why;
    struct stat st;
    *m = (struct measured){0};
    families_register();
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        return measured_open_folder(m, path);
    }
    json_t *root = json_load_file(path, 0, &why);
    if (!root) {
        return fault(path, why.text);
    }
    bool ok = read_all(m, root);
    json_decref(root);
    if (!ok) {
        fault(path, "not what collect.py writes");
        measured_close(m);
    }
    return ok;
}

void measured_close(struct measured *m)
{
    for (uint32_t i = 0; i < m->n; i++) {
        if (m->problems[i].workload.state) {
            gemm_workload_deinit(&m->problems[i].workload);
        }
        free(m->problems[i].times);
    }
    free(m->problems);
    free(m->configs);
    *m = (struct measured){0};
}
