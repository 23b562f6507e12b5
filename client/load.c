/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel of an answer: its image from the daemon, or compiled here where that is gone. */
#include <stdlib.h>
#include <string.h>

#include "client/answer.h"
#include "client/ask.h"
#include "client/handle.h"
#include "client/kernel.h"

/* The arguments that this library would lay out are those of its own kernels: an image that was
 * compiled from other sources might read them otherwise. Stamps say whose an image is. */
static int check_stamp(const struct problem *p, const char *stamp, struct error *err)
{
    const struct family *f = family_of_problem(p);
    char label[TARGET_MAX], own[STAMP_MAX];
    family_stamp_target(stamp, label);
    for (uint32_t i = 0; f && f->targets[i] && label[0]; i++) {
        if (strcmp(f->targets[i]->label, label) == 0) {
            family_stamp(f, f->targets[i], &(struct device_info){.kind = ""}, own);
            size_t n = strcspn(own, " ") + strlen(" abi=");
            n += strcspn(own + n, " ");
            return strncmp(own, stamp, n) == 0
                       ? 0
                       : error_set(err, ERROR_VERSION,
                                   "the kernel was compiled by a gemmd of other sources (%.40s; "
                                   "this library: %.*s): install one version of both, or compile "
                                   "it here",
                                   stamp, (int)n, own);
        }
    }
    return 0; /* an answer that says nothing, or an op that is not ours */
}

enum { STAMPED_SIZE = offsetof(struct gemmd_answer, stamp) + STAMP_MAX };

static bool was_measured(const struct gemmd_answer *answer)
{
    return strcmp(answer->tier, "exact") == 0;
}

static int load_make_variant(struct gemmd *g, const struct problem *p, const struct record *config,
                             struct variant *out, struct error *err)
{
    struct device_info info;
    struct rejection why;
    const struct family *f = family_of_problem(p);
    int r = session_device(&g->session, &info, err);
    const struct family_target *t =
        f && r == 0 ? family_target_of_config(f, p, &info, config, &why) : NULL;
    return t ? t->variant(p, config, info.arch, out, err) : ERROR_CONFLICT;
}

static bool is_dense(const struct problem *p)
{
    return record_int(&p->fields, "experts", 1) == 1;
}

/* `made_for` as it would have to be for p: its sizes may be others within a bucket, and a launch
 * may have others again; all else is compiled in. False: no such problem. */
static bool as_wanted(const struct problem *made_for, const struct problem *p, struct problem *out)
{
    struct record fields;
    if (is_dense(p) != is_dense(made_for)) {
        return false;
    }
    record_copy(&fields, &made_for->fields);
    for (size_t i = 0; p->op && i < p->op->n_fields; i++) {
        const struct op_field *f = &p->op->fields[i];
        struct value v;
        bool sized = f->type == VALUE_INT || (f->type == VALUE_TEXT && !f->choices);
        if (!sized && record_get(&p->fields, f->name, &v) &&
            record_set(&fields, f->name, v, NULL) < 0) {
            return false;
        }
    }
    return problem_make(out, p->op_name, &fields, NULL) == 0;
}

/* The image does not say what it computes: another problem's answer would be launched, and wrong.
 */
static int check_made_for(struct gemmd *g, const struct problem *p, const struct record *config,
                          const struct problem *made_for, struct error *err)
{
    struct problem wanted;
    struct variant of_it, of_wanted;
    bool same = strcmp(p->op_name, made_for->op_name) == 0 && as_wanted(made_for, p, &wanted) &&
                load_make_variant(g, made_for, config, &of_it, err) == 0 &&
                load_make_variant(g, &wanted, config, &of_wanted, err) == 0 &&
                strcmp(of_it.entry, of_wanted.entry) == 0 &&
                strcmp(of_it.options, of_wanted.options) == 0;
    return same
               ? 0
               : error_set(err, ERROR_CONFLICT,
                           "the answer is to another problem (types, mode, permutes, config or one "
                           "expert instead of several), and so is its kernel: ask for this one");
}

static int load_fetch_image(struct gemmd *g, const struct problem *p,
                            const struct gemmd_answer *answer, struct gemmd_kernel **out,
                            struct error *err)
{
    void *image = NULL;
    size_t size = 0;
    struct record config;
    struct problem made_for;
    bool known = false;
    const struct module_order order = {
        .id = answer->module, .key = answer->key, .made_for = &made_for, .known = &known};
    int r = record_parse(&config, answer->config, err);
    r = r ? r : module_fetch(g, &order, &image, &size, err);
    r = r == 0 && known ? check_made_for(g, p, &config, &made_for, err) : r;
    r = r ? r : kernel_make(p, &config, image, size, out, err);
    free(image);
    return r;
}

/* The cache directory was emptied, had no room when the answer was found, or cannot be read. */
static bool is_lost(int status)
{
    return status == ERROR_NOT_FOUND || status == ERROR_IO;
}

/* What is compiled here is kept there too, so that whoever comes next finds it. */
static int make_again(const struct gemmd_problem *problem, const struct gemmd_answer *answer,
                      struct gemmd_kernel **out, struct error *err)
{
    struct error gone = *err;
    const char *target = answer->size >= STAMPED_SIZE ? answer->target : "";
    const char *device = !target[0] ? NULL : strcmp(target, "cpu") == 0 ? "cpu" : "cuda";
    int r = kernel_compile(device, problem, answer->config, out, err);
    return r ? error_set(err, gone.code, "%.200s; nor can it be compiled here: %.240s", gone.text,
                         err->text)
             : 0;
}

static int load_open_kernel(struct gemmd *g, const struct gemmd_problem *problem,
                            const struct gemmd_answer *answer, struct gemmd_kernel **out,
                            struct error *err)
{
    struct problem p;
    const char *stamp = answer->size >= STAMPED_SIZE ? answer->stamp : "";
    int r = ask_to_problem(problem, &p, err);
    r = r ? r : check_stamp(&p, stamp, err);
    if (r) {
        return r;
    }
    r = answer->module[0] ? load_fetch_image(g, &p, answer, out, err)
                          : error_set(err, ERROR_NOT_FOUND, "gemmd could not keep the kernel");
    return is_lost(r) && was_measured(answer) ? make_again(problem, answer, out, err) : r;
}

static int load_check_answer(struct gemmd *g, const struct gemmd_answer *answer,
                             struct gemmd_kernel **out, struct error *err)
{
    if (!g) {
        return handle_enter(NULL, 0, err);
    }
    if (!out) {
        return error_set(err, ERROR_INVALID, "there is no place for the kernel (NULL)");
    }
    *out = NULL;
    int r = answer_check_size(answer, err);
    if (r == 0 && !answer->module[0] && !was_measured(answer)) {
        return error_set(err, ERROR_NOT_FOUND,
                         "the answer (tier %s) has no compiled kernel: ask gemmd "
                         "for one that was tuned, or see gemmd_kernel_compile",
                         answer->tier);
    }
    return r;
}

int gemmd_kernel_load(struct gemmd *g, const struct gemmd_problem *problem,
                      const struct gemmd_answer *answer, struct gemmd_kernel **out,
                      struct gemmd_error *err)
{
    struct error e;
    struct ask a;
    int r = load_check_answer(g, answer, out, &e);
    r = r ? r : ask_problem(&a, problem, &e);
    r = r ? r : load_open_kernel(g, &a.problem, answer, out, &e);
    return handle_result(r, &e, err);
}
