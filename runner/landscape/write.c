/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of a landscape, built as MessagePack and printed as JSON by proto/, as replay reads them.
 * Times are whole hundredths of a microsecond, configs are indices into the tunables' values. So a
 * space of 4,000 points fits into 200 KiB. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/build.h"
#include "proto/wire.h"
#include "runner/landscape/recorder.h"

static int put_line(struct landscape_recorder *s, struct wire_buf *b, struct error *err)
{
    char *text = NULL;
    int r = wire_buf_to_json(b, &text, err);
    if (r == 0 && fprintf(s->file, "%s\n", text) < 0) {
        r = error_set(err, ERROR_IO, "cannot write %s: %s", s->order->path, strerror(errno));
    }
    free(text);
    return r;
}

static void put_times(struct wire_buf *b, const double *us, uint32_t n)
{
    wire_put_array(b, n);
    for (uint32_t i = 0; i < n; i++) {
        wire_put_int(b, llround(us[i] * 100));
    }
}

static void landscape_put_params(struct wire_buf *b, const struct space *s)
{
    wire_put_array(b, s->n_params);
    for (uint32_t i = 0; i < s->n_params; i++) {
        const struct param *p = &s->params[i];
        wire_put_map(b, 3);
        wire_put_kv_str(b, "name", p->name);
        wire_put_kv_bool(b, "run_time", p->run_time);
        wire_put_str(b, "values");
        wire_put_array(b, p->n);
        for (uint32_t k = 0; k < p->n; k++) {
            value_pack(b, &p->values[k]);
        }
    }
}

static void put_indices(struct wire_buf *b, const struct landscape_recorder *s, uint32_t point,
                        bool all)
{
    uint32_t n = s->space.n_params;
    while (!all && n > 0 && s->space.params[n - 1].run_time) {
        n--;
    }
    wire_put_array(b, n);
    for (uint32_t i = 0; i < n; i++) {
        wire_put_int(b, s->space.points[point].at[i]);
    }
}

static int landscape_put_problem(struct landscape_recorder *s, struct error *err)
{
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    char problem[1024], reference[CONFIG_TEXT_MAX], stamp[STAMP_MAX];
    problem_format(&s->problem, problem, sizeof(problem));
    record_format(&s->reference, reference, sizeof(reference));
    family_stamp(s->family, s->target, &s->device->info, stamp);
    wire_put_map(&b, 8);
    wire_put_kv_str(&b, "problem", problem);
    wire_put_kv_int(&b, "seed", LANDSCAPE_SEED);
    wire_put_kv_real(&b, "reference_us", s->reference_us);
    wire_put_kv_str(&b, "reference", reference);
    wire_put_kv_str(&b, "stamp", stamp);
    wire_put_kv_int(&b, "space", s->space.n);
    wire_put_kv_int(&b, "variants", s->n_variants);
    wire_put_str(&b, "params");
    landscape_put_params(&b, &s->space);
    return put_line(s, &b, err);
}

int landscape_write_header(struct landscape_recorder *s, struct error *err)
{
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    wire_put_map(&b, 4);
    wire_put_kv_int(&b, "gemmd_landscape", 2);
    wire_put_kv_str(&b, "note", s->order->note ? s->order->note : "");
    wire_put_kv_str(&b, "gemmd", build_id);
    wire_put_str(&b, "device");
    schema_encode(&b, &device_info_schema, &s->device->info);
    int r = put_line(s, &b, err);
    return r ? r : landscape_put_problem(s, err);
}

static int64_t landscape_now_ms(const struct landscape_recorder *s)
{
    return (int64_t)(landscape_clock(s) - s->began_ms);
}

int landscape_write_reference(struct landscape_recorder *s, const double *us, uint32_t n,
                              struct error *err)
{
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    wire_put_map(&b, 2);
    wire_put_str(&b, "reference");
    put_times(&b, us, n);
    wire_put_kv_int(&b, "at_ms", landscape_now_ms(s));
    return put_line(s, &b, err);
}

static void put_failure(struct wire_buf *b, const struct rejection *why)
{
    wire_put_kv_str(b, "status", error_name(why->code));
    wire_put_kv_str(b, "reason", why->text);
    if (why->resource[0]) {
        wire_put_kv_str(b, "resource", why->resource);
        wire_put_kv_int(b, "required", why->required);
        wire_put_kv_int(b, "limit", why->limit);
    }
}

static size_t failure_fields(const struct rejection *why)
{
    return why->resource[0] ? 5 : 2;
}

static void put_shot(struct wire_buf *b, const struct landscape_shot *shot)
{
    if (shot->why.code) {
        wire_put_map(b, failure_fields(&shot->why));
        put_failure(b, &shot->why);
    } else {
        put_times(b, shot->us, shot->n);
    }
}

/* Writes an entry for each run-time setting; nil where the variant has no point with the setting,
 * or the point was not measured. */
static void put_shots(struct wire_buf *b, const struct landscape_recorder *s,
                      const struct landscape_points *v, const struct landscape_shot *shots)
{
    uint32_t i = 0;
    wire_put_array(b, s->n_settings);
    for (uint32_t k = 0; k < s->n_settings; k++) {
        bool is_point = i < v->n && landscape_setting(s, v->first + i) == k;
        if (is_point && (shots[i].n > 0 || shots[i].why.code)) {
            put_shot(b, &shots[i]);
        } else {
            wire_put_nil(b);
        }
        i += is_point;
    }
}

int landscape_write_variant(struct landscape_recorder *s, const struct landscape_points *v,
                            double compile_ms, const struct landscape_shot *shots,
                            const struct rejection *why, struct error *err)
{
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    wire_put_map(&b, 3 + (shots ? 1 : failure_fields(why)));
    wire_put_str(&b, "variant");
    put_indices(&b, s, v->first, false);
    wire_put_kv_int(&b, "compile_ms", llround(compile_ms));
    wire_put_kv_int(&b, "at_ms", landscape_now_ms(s));
    if (shots) {
        wire_put_str(&b, "times");
        put_shots(&b, s, v, shots);
    } else {
        put_failure(&b, why);
    }
    return put_line(s, &b, err);
}

int landscape_write_final(struct landscape_recorder *s, uint32_t point, const double *us,
                          uint32_t blocks, uint32_t each, struct error *err)
{
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    wire_put_map(&b, 2);
    wire_put_str(&b, "final");
    put_indices(&b, s, point, true);
    wire_put_str(&b, "blocks");
    wire_put_array(&b, blocks);
    for (uint32_t i = 0; i < blocks; i++) {
        put_times(&b, us + i * each, each);
    }
    return put_line(s, &b, err);
}

int landscape_write_end(struct landscape_recorder *s, struct error *err)
{
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    wire_put_map(&b, 1);
    wire_put_str(&b, "end");
    wire_put_map(&b, 5);
    wire_put_kv_int(&b, "variants", s->done);
    wire_put_kv_int(&b, "points", s->points);
    wire_put_kv_int(&b, "failed", s->failed);
    wire_put_kv_int(&b, "device_ms", landscape_now_ms(s));
    wire_put_kv_int(&b, "compile_ms", llround(s->compile_ms));
    return put_line(s, &b, err);
}
