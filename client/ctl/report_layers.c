/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/report.h"

/* ---- sums ------------------------------------------------------------------------------------ */

void sums_add_row(struct sums *s, const json_t *row)
{
    const double us = field_number(row, "time_us"), floor_us = field_number(row, "floor_us");
    const double speedup = field_number(row, "speedup");
    s->keys++;
    s->doubted += *field_text(row, "doubt") != '\0';
    if (us > 0 && floor_us > 0) {
        s->with_floor++;
        s->time_us += us;
        s->floor_us += floor_us;
        s->loss_us += us > floor_us ? us - floor_us : 0;
    }
    if (speedup > 0) {
        s->with_speedup++;
        s->log_speedup += log(speedup);
    }
}

static void sums_add(struct sums *s, const struct sums *more)
{
    s->keys += more->keys;
    s->doubted += more->doubted;
    s->with_speedup += more->with_speedup;
    s->with_floor += more->with_floor;
    s->log_speedup += more->log_speedup;
    s->time_us += more->time_us;
    s->floor_us += more->floor_us;
    s->loss_us += more->loss_us;
}

double sums_floor_percent(const struct sums *s)
{
    return s->time_us > 0 ? 100 * s->floor_us / s->time_us : 0;
}

double sums_speedup(const struct sums *s)
{
    return s->with_speedup > 0 ? exp(s->log_speedup / (double)s->with_speedup) : 0;
}

/* ---- layers ---------------------------------------------------------------------------------- */

void layers_init(struct layers *l)
{
    *l = (struct layers){.index = json_object(), .texts = json_object()};
}

void layers_deinit(struct layers *l)
{
    json_decref(l->index);
    json_decref(l->texts);
    free(l->all);
}

/* Returns a copy of the text that lives as long as the layers; equal texts share a copy. */
static const char *layers_keep_text(struct layers *l, const char *text)
{
    if (!json_object_get(l->texts, text)) {
        json_object_set_new(l->texts, text, json_string(text));
    }
    const char *kept = json_string_value(json_object_get(l->texts, text));
    return kept ? kept : "";
}

/* Finds the layer with the sizes of `like`, or appends a layer without answers. NULL: no memory. */
static struct layer *layers_find(struct layers *l, const struct layer *like)
{
    TEXT_AUTO *id =
        text_format("%s/%s/%s/%lld/%lld/%lld/%lld/%s", like->class, like->op, like->mode,
                    like->experts, like->topk, like->N, like->K, like->flags);
    const json_t *at = json_object_get(l->index, id);
    struct layer *found = at ? &l->all[json_integer_value(at)] : NULL;
    if (!found && l->n == l->room) {
        const size_t room = l->room ? 2 * l->room : 64;
        struct layer *more = realloc(l->all, room * sizeof(*more));
        l->all = more ? more : l->all;
        l->room = more ? room : l->room;
    }
    if (!found && l->n < l->room) {
        json_object_set_new(l->index, id, json_integer((json_int_t)l->n));
        found = &l->all[l->n++];
        *found = (struct layer){.class = layers_keep_text(l, like->class),
                                .op = layers_keep_text(l, like->op),
                                .mode = layers_keep_text(l, like->mode),
                                .flags = layers_keep_text(l, like->flags),
                                .experts = like->experts,
                                .topk = like->topk,
                                .N = like->N,
                                .K = like->K};
    }
    return found;
}

static void layer_add(struct layer *l, const struct layer *more)
{
    l->least_m = l->layers == 0 || more->least_m < l->least_m ? more->least_m : l->least_m;
    l->most_m = more->most_m > l->most_m ? more->most_m : l->most_m;
    l->layers += more->layers;
    sums_add(&l->sums, &more->sums);
}

bool layers_add_row(struct layers *l, const json_t *row)
{
    const json_t *problem = json_object_get(row, "problem");
    const char *op = field_text(row, "op");
    const bool custom = result_is_custom(op); /* any fields: all keys are a layer */
    const long long m = custom ? 0 : field_int(problem, "M");
    struct layer like = {.class = field_text(row, "class"),
                         .op = op,
                         .mode = custom ? "" : field_text(problem, "mode"),
                         .flags = custom ? "" : field_text(row, "flags"),
                         .least_m = m,
                         .most_m = m,
                         .layers = 1};
    if (!custom) {
        like.experts = field_int(problem, "experts");
        like.topk = field_int(problem, "topk");
        like.N = field_int(problem, "N");
        like.K = field_int(problem, "K");
    }
    sums_add_row(&like.sums, row);
    struct layer *layer = layers_find(l, &like);
    if (layer) {
        const size_t layers = layer->layers;
        layer_add(layer, &like);
        layer->layers = layers ? layers : 1;
    }
    return layer;
}

/* ---- names ----------------------------------------------------------------------------------- */

static const char *layers_find_model(const json_t *models, const struct layer *l)
{
    TEXT_AUTO *id = text_format("%lld/%lld/%lld/%lld", l->experts, l->topk, l->N, l->K);
    return json_string_value(json_object_get(models, id));
}

static json_t *layers_make_name(const json_t *models, const struct layer *l)
{
    const char *name = layers_find_model(models, l);
    return name             ? json_string(name)
           : l->K == 0      ? json_string(l->op)
           : l->N == 0      ? json_sprintf("%s %lld", l->op, l->K)
           : l->experts > 1 ? json_sprintf("%lld x %lld, %lld experts", l->N, l->K, l->experts)
                            : json_sprintf("%lld x %lld", l->N, l->K);
}

void layers_name_row(const json_t *models, json_t *row)
{
    const json_t *problem = json_object_get(row, "problem");
    const char *op = field_text(row, "op");
    const bool custom = result_is_custom(op);
    const struct layer l = {.op = op,
                            .experts = field_int(problem, "experts"),
                            .topk = field_int(problem, "topk"),
                            .N = custom ? 0 : field_int(problem, "N"),
                            .K = custom ? 0 : field_int(problem, "K")};
    json_object_set_new(row, "name", layers_make_name(models, &l));
    if (l.N == 0) { /* rows_derive_best put the op's name into "mode" */
        json_object_set_new(row, "mode", json_string(custom ? "" : field_text(problem, "mode")));
    }
}

/* ---- rows ------------------------------------------------------------------------------------ */

static int layers_compare_loss(const void *a, const void *b)
{
    const struct layer *x = a, *y = b;
    const double loss = y->sums.loss_us - x->sums.loss_us;
    return loss > 0   ? 1
           : loss < 0 ? -1
                      : (x->sums.keys < y->sums.keys) - (x->sums.keys > y->sums.keys);
}

/* "4096", or "512 - 4096". */
static json_t *layer_show_range(const struct layer *l)
{
    return l->least_m == l->most_m ? json_sprintf("%lld", l->most_m)
                                   : json_sprintf("%lld - %lld", l->least_m, l->most_m);
}

static void layer_set_count(json_t *row, const char *name, long long v)
{
    if (v > 0) {
        json_object_set_new(row, name, json_integer(v));
    }
}

/* Takes over `name`. */
static json_t *layer_make_row(const struct layer *l, json_t *name, int place)
{
    json_t *row =
        json_pack("{si, so, ss, ss, ss, sI, sI, sI}", "place", place, "name", name, "class",
                  l->class, "mode", l->mode, "flags", l->flags, "keys", (json_int_t)l->sums.keys,
                  "doubted", (json_int_t)l->sums.doubted, "order",
                  (json_int_t)(strcmp(l->mode, "forward") == 0 ? 0
                               : strcmp(l->mode, "dX") == 0    ? 1
                                                               : 2));
    layer_set_count(row, "E", l->experts);
    layer_set_count(row, "topk", l->topk);
    layer_set_count(row, "N", l->N);
    layer_set_count(row, "K", l->K);
    if (l->most_m > 0) {
        json_object_set_new(row, "M", layer_show_range(l));
    }
    if (l->sums.with_speedup > 0) {
        json_object_set_new(row, "speedup", json_real(sums_speedup(&l->sums)));
    }
    if (l->sums.with_floor > 0) {
        json_object_set_new(row, "floor_percent", json_real(sums_floor_percent(&l->sums)));
        json_object_set_new(row, "loss_us", json_real(l->sums.loss_us));
    }
    return row;
}

/* Appends the sums of the layers from `from` on, by device class, experts and mode. */
static void layers_list_rest(const struct layer *from, size_t n, json_t *rows)
{
    struct layers rest;
    layers_init(&rest);
    for (size_t i = 0; i < n; i++) {
        const struct layer like = {.class = from[i].class,
                                   .op = from[i].op,
                                   .mode = from[i].mode,
                                   .flags = "",
                                   .experts = from[i].experts};
        struct layer *layer = layers_find(&rest, &like);
        if (layer) {
            layer_add(layer, &from[i]);
        }
    }
    for (size_t i = 0; i < rest.n; i++) {
        json_t *name = json_sprintf("%zu other layers", rest.all[i].layers);
        json_array_append_new(rows, layer_make_row(&rest.all[i], name, 2));
    }
    layers_deinit(&rest);
}

json_t *layers_list(const struct layers *l, size_t most, const json_t *models)
{
    static const char *const order[] = {"place", "model", "E",     "topk",  "N",
                                        "K",     "class", "flags", "order", NULL};
    json_t *rows = json_array();
    const size_t shown = l->n < most ? l->n : most;
    struct layer *sorted = malloc((l->n + 1) * sizeof(*sorted));
    if (!sorted || l->n == 0) {
        free(sorted);
        return rows;
    }
    memcpy(sorted, l->all, l->n * sizeof(*sorted));
    qsort(sorted, l->n, sizeof(*sorted), layers_compare_loss);
    for (size_t i = 0; i < shown; i++) {
        const struct layer *at = &sorted[i];
        const char *model = layers_find_model(models, at);
        json_t *row = layer_make_row(at, layers_make_name(models, at), model ? 0 : 1);
        json_object_set_new(row, "model", json_string(model ? model : ""));
        json_array_append_new(rows, row);
    }
    layers_list_rest(sorted + shown, l->n - shown, rows);
    rows_sort(rows, order);
    free(sorted);
    return rows;
}
