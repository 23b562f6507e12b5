/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of answers: the fields of the daemon's answer, and columns derived from them. */
#include <math.h>
#include <string.h>

#include "client/ctl/ctl.h"

static json_t *results_make_real(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

json_t *result_of_answer(const json_t *problem, const struct gemmd_answer *a)
{
    struct error e;
    json_t *config = text_to_json(a->config, &e);
    json_t *row = json_pack(
        "{sO, ss, ss, ss, ss, so, ss, so, so, so, so, so, so, sI, sI, sI, sb, ss, ss, ss}",
        "problem", problem, "key", a->key, "tier", a->tier, "source", a->source, "family",
        a->family, "config", config ? config : json_string(a->config), "module", a->module,
        "time_us", results_make_real(a->time_us), "spread", results_make_real(a->spread),
        "reference_us", results_make_real(a->reference_us), "tflops", results_make_real(a->tflops),
        "gbps", results_make_real(a->gbps), "floor_us", results_make_real(a->floor_us), "measured",
        (json_int_t)a->measured, "generation", (json_int_t)a->generation, "created_s",
        (json_int_t)a->created_s, "saved", a->saved, "note", a->note, "target", a->target, "stamp",
        a->stamp);
    result_derive(row);
    exactness_add(row);
    return row;
}

json_t *result_of_error(const json_t *problem, const struct gemmd_error *e)
{
    json_t *row = json_pack("{sO, s{ss, ss}}", "problem", problem, "error", "name",
                            gemmd_error_name(e->code), "message", e->text);
    result_derive(row);
    return row;
}

json_t *result_problem(const json_t *row)
{
    json_t *problem = json_copy(json_object_get(row, "problem"));
    json_object_set(problem, "op", json_object_get(row, "op")); /* NULL is not set */
    return problem;
}

/* ---- derived columns ------------------------------------------------------------------------ */

/* The column FLAGS of another op: the fields without a column of their own. Of gemmd's ops, these
 * are the fields that say more than the op's name and false. */
static json_t *fields_of(const char *op, const json_t *problem)
{
    static const char *const columns[] = {"op", "mode", "M", "K", "experts", "topk"};
    json_auto_t *fields = json_copy((json_t *)(uintptr_t)problem);
    json_t *v;
    const char *name;
    void *next;
    for (size_t i = 0; i < COUNT(columns); i++) {
        if (i == 0 || !result_is_custom(op)) {
            json_object_del(fields, columns[i]);
        }
    }
    json_object_foreach_safe(fields, next, name, v)
    {
        const char *text = json_string_value(v);
        if (!result_is_custom(op) && (json_is_false(v) || (text && op && strcmp(text, op) == 0))) {
            json_object_del(fields, name);
        }
    }
    TEXT_AUTO *text = text_of_json(fields);
    return json_string(text);
}

/* The column FLAGS: fields of the problem that do not have their default, in short words. */
static json_t *results_list_flags(const json_t *problem)
{
    static const char *const flags[] = {"permute_x", "permute_y", "fuse_mul_post", "accumulate",
                                        "batch_invariant"};
    const char *quant = field_text(problem, "quant");
    const bool scaled = *quant && strcmp(quant, "none") != 0; /* then quant says dtype_in, too */
    const char *const texts[][2] = {{scaled ? "quant" : "dtype_in", "bf16"},
                                    {"routing", "uniform"}};
    const char *in = scaled ? "" : field_text(problem, "dtype_in");
    const char *to = field_text(problem, "dtype_out");
    TEXT_AUTO *out = text_copy("");
    for (size_t i = 0; i < COUNT(flags); i++) {
        if (field_is_true(problem, flags[i])) {
            out = text_append(out, " %s", flags[i]);
        }
    }
    for (size_t i = 0; i < COUNT(texts); i++) {
        const char *v = field_text(problem, texts[i][0]);
        if (*v && strcmp(v, texts[i][1]) != 0) { /* "rows:..." is too long for a table */
            out = text_append(out, " %s", strncmp(v, "rows:", 5) == 0 ? "rows:..." : v);
        }
    }
    if (*to && strcmp(to, "same") != 0 && strcmp(to, *in ? in : "bf16") != 0) {
        out = text_append(out, " -> %s", to);
    }
    return json_string(out + (*out == ' '));
}

static void set_ratio(json_t *row, const char *name, const char *above, double scale)
{
    const json_t *a = json_object_get(row, above), *time = json_object_get(row, "time_us");
    bool known = json_is_number(a) && json_is_number(time) && json_number_value(time) > 0 &&
                 json_number_value(a) > 0;
    json_object_set_new(
        row, name,
        known ? results_make_real(scale * json_number_value(a) / json_number_value(time))
              : json_null());
}

void result_target(json_t *row)
{
    const char *stamp = field_string(row, "stamp");
    const char *at = stamp ? strstr(stamp, "target=") : NULL;
    if (at) {
        at += strlen("target=");
        json_object_set_new(row, "target", json_stringn(at, strcspn(at, " ")));
    }
}

bool result_is_custom(const char *op)
{
    return op && strncmp(op, "custom:", 7) == 0;
}

bool result_is_product(const char *op, const json_t *problem)
{
    return !op || (!result_is_custom(op) && json_object_get(problem, "N"));
}

/* The column MODE of another op: its name, and its mode if it has one. */
static json_t *results_name_op(const char *op, const json_t *mode)
{
    return json_is_string(mode) ? json_sprintf("%s %s", op, json_string_value(mode))
                                : json_string(op);
}

void result_derive(json_t *row)
{
    const json_t *problem = json_object_get(row, "problem");
    const char *op = field_string(problem, "op");
    op = op ? op : field_string(row, "op");
    const json_t *mode = json_object_get(problem, "mode");
    bool product = result_is_product(op, problem);
    json_object_set_new(
        row, "mode", product ? json_incref((json_t *)(uintptr_t)mode) : results_name_op(op, mode));
    json_object_set_new(row, "flags",
                        product ? results_list_flags(problem) : fields_of(op, problem));
    set_ratio(row, "floor_percent", "floor_us", 100);
    set_ratio(row, "speedup", "reference_us", 1);
    result_target(row);
}

/* ---- the table ------------------------------------------------------------------------------ */

/* Sets experts or topk (`name`) of a matrix product to 1, when the user left it out. */
static void results_set_count(json_t *problem, const char *name)
{
    if (problem && result_is_product(field_string(problem, "op"), problem) &&
        !json_object_get(problem, name)) {
        json_object_set_new(problem, name, json_integer(1));
    }
}

void results_print(const struct ctl *c, const json_t *rows)
{
    ARRAY_EACH(row, rows) {
        results_set_count(json_object_get(row, "problem"), "experts");
        results_set_count(json_object_get(row, "problem"), "topk");
    }
    rows_print(c, "answers", rows);
}
