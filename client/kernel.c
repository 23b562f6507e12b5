/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels in a job: fetched from the daemon in chunks and accepted only when their content has the
 * requested hash, or compiled in this process. The job loads kernels into its own CUDA context, and
 * launches them through kernels/launcher.h, through which the runner measured them. A loaded kernel
 * needs neither daemon nor handle.
 *
 * A compilation takes a second, so compiled kernels go through gemmd's module cache. When ranks
 * start together, one rank compiles while the other ranks wait; the next start finds the kernel
 * there. Without a cache directory that only this user can write to, each rank compiles for itself.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/answer.h"
#include "client/clock.h"
#include "client/find.h"
#include "client/handle.h"
#include "kernels/launcher.h"
#include "kernels/modules.h"
#include "proto/hash.h"

/* ---- images ---------------------------------------------------------------------------------- */

enum { IMAGE_BYTES_MAX = 256 * 1024 * 1024 };

struct image_read {
    const char *id;          /* hash of the image, which names it */
    const char *key;         /* the answer's key, whose problem the daemon tells; NULL: no key */
    struct problem made_for; /* the key's problem, as the daemon knows it */
    bool known;              /* made_for is filled in */
    char *data;              /* owned */
    int64_t size;            /* bytes of the whole image, as the first chunk says; 0: not known */
    int64_t have;
};

static int learn_size(struct image_read *m, const struct wire_obj *result, struct error *err)
{
    int64_t size = -1;
    wire_get_int(wire_find(result, "size"), &size);
    if (size < 1 || size > IMAGE_BYTES_MAX || (m->size && size != m->size)) {
        return error_set(err, ERROR_STORE,
                         "gemmd says that module %s has %lld bytes: it changed, or "
                         "is damaged",
                         m->id, (long long)size);
    }
    if (!m->size) {
        m->data = malloc((size_t)size);
        m->size = size;
    }
    return m->data ? 0
                   : error_set(err, ERROR_NO_MEMORY, "no memory for a module of %lld bytes",
                               (long long)size);
}

static int take_chunk(void *ctx, const struct wire_obj *result, struct error *err)
{
    struct image_read *m = ctx;
    int r = learn_size(m, result, err);
    if (r) {
        return r;
    }
    const void *data = NULL;
    size_t n = 0;
    if (!wire_get_bin(wire_find(result, "data"), &data, &n) || n == 0 ||
        n > (size_t)(m->size - m->have)) {
        return error_set(err, ERROR_STORE,
                         "gemmd gave %zu bytes of module %s where at most %lld are "
                         "left",
                         n, m->id, (long long)(m->size - m->have));
    }
    memcpy(m->data + m->have, data, n);
    m->have += (int64_t)n;
    if (wire_type_of(wire_find(result, "problem")) != WIRE_NIL) {
        m->known = problem_unpack(&m->made_for, wire_find(result, "problem"), NULL) == 0;
    }
    return 0;
}

static int check_hash(const struct image_read *m, struct error *err)
{
    char hex[HASH_HEX];
    hash128_hex(m->data, (size_t)m->size, hex);
    if (strcmp(hex, m->id) != 0) {
        return error_set(err, ERROR_STORE,
                         "module %s arrived with the content of %s: the daemon's "
                         "cache is damaged; evict its answers",
                         m->id, hex);
    }
    return 0;
}

/* Fetches the whole image within the default deadline. On success the caller frees m->data;
 * otherwise m->data is NULL. ERROR_NOT_FOUND, ERROR_STORE (content and name differ). */
static int module_fetch(struct gemmd *g, struct image_read *m, struct error *err)
{
    const int64_t deadline = handle_deadline(g, 0, false);
    WIRE_BUF_AUTO params = WIRE_BUF_NULL;
    int r = 0;
    while (r == 0 && (m->have == 0 || m->have != m->size)) {
        const bool asks = m->key && m->key[0] && m->have == 0;
        wire_buf_clear(&params);
        wire_put_map(&params, 2 + asks);
        wire_put_kv_str(&params, "id", m->id);
        wire_put_kv_int(&params, "offset", m->have);
        if (asks) {
            wire_put_kv_str(&params, "key", m->key);
        }
        r = handle_call(g, "module", &params, deadline, take_chunk, m, err);
    }
    r = r ? r : check_hash(m, err);
    if (r) {
        free(m->data);
        m->data = NULL;
    }
    return r;
}

int gemmd_module(struct gemmd *g, const char *module, void **data, size_t *size,
                 struct gemmd_error *err)
{
    struct error e;
    int r;
    if (!data || !size) {
        r = error_set(&e, ERROR_INVALID, "data and size may not be NULL");
    } else if (!module || strlen(module) != HASH_HEX - 1) {
        r = error_set(&e, ERROR_INVALID, "a module is named by 32 hex digits, not \"%.40s\"",
                      module ? module : "");
    } else {
        struct image_read m = {.id = module};
        r = module_fetch(g, &m, &e);
        if (r == 0) {
            *data = m.data;
            *size = (size_t)m.size;
        }
    }
    return handle_result(r, &e, err);
}

/* ---- launching ------------------------------------------------------------------------------- */

static struct launcher *kernel_get_launcher(struct gemmd_kernel *k)
{
    return (struct launcher *)(void *)k;
}

/* Loads into the current CUDA context, or the process for the CPU. */
static int kernel_make(const struct problem *p, const struct record *config, const void *image,
                       size_t size, struct gemmd_kernel **out, struct error *err)
{
    const struct family *f = family_of_problem(p);
    struct launcher *l = NULL;
    int r = f ? launcher_new(f, p, config, image, size, NULL, &l, err)
              : error_set(err, ERROR_UNKNOWN_OP,
                          "kernels of op %s cannot be launched by this library", p->op_name);
    *out = (struct gemmd_kernel *)(void *)l;
    return r;
}

struct gemmd_kernel *gemmd_kernel_free(struct gemmd_kernel *k)
{
    launcher_free(kernel_get_launcher(k));
    return NULL;
}

static int check_launch(const struct gemmd_kernel *k, const void *args, struct error *err)
{
    if (!k || !args) {
        return error_set(err, ERROR_INVALID, "there is no %s (NULL)", k ? "args" : "kernel");
    }
    return 0;
}

int gemmd_kernel_workspace(struct gemmd_kernel *k, const void *args, int64_t *bytes,
                           struct gemmd_error *err)
{
    struct error e;
    int r = check_launch(k, args, &e);
    if (r == 0 && !bytes) {
        r = error_set(&e, ERROR_INVALID, "there is no place for the bytes (NULL)");
    }
    r = r ? r : launcher_workspace(kernel_get_launcher(k), args, bytes, &e);
    return handle_result(r, &e, err);
}

int gemmd_kernel_launch(struct gemmd_kernel *k, const void *args, struct gemmd_error *err)
{
    struct error e;
    int r = check_launch(k, args, &e);
    r = r ? r : launcher_launch(kernel_get_launcher(k), args, &e);
    return handle_result(r, &e, err);
}

/* ---- compiled here --------------------------------------------------------------------------- */

struct recipe {
    struct problem problem;
    struct record config;
    struct device_info info;
    struct variant variant;
};

static int compile_find_device(const char *spec, struct device_info *out, struct error *err)
{
    if (!spec || strncmp(spec, "cpu", 3) == 0) {
        return find_own_device(spec, out, err);
    }
    if (find_current_cuda(out)) {
        return 0;
    }
    return error_set(err, ERROR_NO_DEVICE,
                     "no CUDA context is current in this thread, so no kernel can be made for %s: "
                     "call cudaSetDevice first",
                     spec);
}

static int compile_read_config(struct recipe *r, const struct family *f, const char *text,
                               const struct family_target **out, struct error *err)
{
    struct rejection why;
    int status = record_parse(&r->config, text, err);
    if (status) {
        return status;
    }
    *out = family_target_of_config(f, &r->problem, &r->info, &r->config, &why);
    return *out ? 0
                : error_set(err, why.code, "the config is not one of this library's kernels: %s",
                            why.text);
}

static int compile_plan_recipe(struct recipe *r, const char *device,
                               const struct gemmd_problem *problem, const char *config,
                               struct error *err)
{
    const struct family_target *t;
    int status = ask_to_problem(problem, &r->problem, err);
    status = status ? status : compile_find_device(device, &r->info, err);
    if (status) {
        return status;
    }
    const struct family *f = family_of_problem(&r->problem);
    if (!f) {
        return error_set(err, ERROR_UNKNOWN_OP, "kernels of op %s cannot be made by this library",
                         r->problem.op_name);
    }
    if (config && *config) {
        status = compile_read_config(r, f, config, &t, err);
    } else {
        status = family_target_choose(f, &r->problem, &r->info, NULL, &t, err);
        status = status ? status : t->choose(&r->problem, &r->info, &r->config, err);
    }
    return status ? status : t->variant(&r->problem, &r->config, r->info.arch, &r->variant, err);
}

static int compile_build_module(const struct recipe *r, struct modules_made *out, struct error *err)
{
    struct compiler *compiler;
    char cache_dir[PATHS_MAX], hash[HASH_HEX];
    struct error why = ERROR_NULL;
    int status = compiler_open(r->info.kind, &compiler, err);
    if (status) {
        return status;
    }
    variant_hash(&r->variant, compiler->ops->version(compiler), hash);
    if (paths_cache_dir(cache_dir, &why) || paths_check_cache_dir(cache_dir, &why)) {
        fprintf(stderr, "variant %s is not cached: %s\n", hash, why.text);
        status = compiler->ops->compile(compiler, &r->variant, &out->image, err);
    } else {
        const struct modules_order order = {.compiler = compiler,
                                            .cache_dir = cache_dir,
                                            .variant = &r->variant,
                                            .hash = hash,
                                            .wait_ms = MODULES_WAIT_MS};
        status = modules_make(&order, out, err);
    }
    compiler->ops->close(compiler);
    return status;
}

/* Refuses an image that is not the module `id` ("": any): a lock file names the kernel byte for
 * byte. */
static int compile_check_module(const struct image *image, const char *id, struct error *err)
{
    char hex[HASH_HEX];
    if (!id[0]) {
        return 0;
    }
    hash128_hex(image->data, image->size, hex);
    return strcmp(hex, id) == 0
               ? 0
               : error_set(
                     err, ERROR_CONFLICT,
                     "the compiler here makes module %s of the config, and the lock file names "
                     "module %s: install the gemmd and the compiler of the file's stamp",
                     hex, id);
}

/* Implements gemmd_kernel_compile. Of the pointers, `device` and `config` may be NULL. `module`:
 * the required hash of the image; "": any. */
static int kernel_compile(const char *device, const struct gemmd_problem *problem,
                          const char *config, const char *module, struct gemmd_kernel **out,
                          struct error *err)
{
    struct recipe r;
    struct modules_made made = {.found = false};
    int status = compile_plan_recipe(&r, device, problem, config, err);
    status = status ? status : compile_build_module(&r, &made, err);
    status = status ? status : compile_check_module(&made.image, module, err);
    status = status
                 ? status
                 : kernel_make(&r.problem, &r.config, made.image.data, made.image.size, out, err);
    image_deinit(&made.image);
    return status;
}

int gemmd_kernel_compile(const char *device, const struct gemmd_problem *problem,
                         const char *config, struct gemmd_kernel **out, struct gemmd_error *err)
{
    struct error e;
    struct ask a;
    int r = out ? 0 : error_set(&e, ERROR_INVALID, "there is no place for the kernel (NULL)");
    if (r == 0) {
        *out = NULL;
    }
    r = r ? r : ask_problem(&a, problem, &e);
    r = r ? r : kernel_compile(device, &a.problem, config, "", out, &e);
    return handle_result(r, &e, err);
}

/* ---- of an answer ---------------------------------------------------------------------------- */

/* Refuses an image that was compiled from other sources than this library has, by the answer's
 * stamp: such an image might expect another layout of the arguments. */
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
    return 0; /* the answer has no stamp, or this library no family for the op */
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

/* Makes in *out the problem `made_for` with p's properties that are compiled into a kernel (types,
 * mode, permutes). Keeps the sizes of made_for, because sizes may differ within a bucket and
 * between launches. False: the result is no legal problem. */
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

/* Refuses an image made for a problem with other types, mode or permutes than p: one whose variant
 * differs. The image itself does not name its problem, so a wrong image would run and give wrong
 * results. */
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
    return same ? 0
                : error_set(err, ERROR_CONFLICT,
                            "the answer and its kernel belong to another problem (types, mode, "
                            "permutes, config or one expert instead of several): ask for this one");
}

static int load_fetch_image(struct gemmd *g, const struct problem *p,
                            const struct gemmd_answer *answer, struct gemmd_kernel **out,
                            struct error *err)
{
    struct record config;
    struct image_read m = {.id = answer->module, .key = answer->key};
    int r = record_parse(&config, answer->config, err);
    r = r ? r : module_fetch(g, &m, err);
    r = r == 0 && m.known ? check_made_for(g, p, &config, &m.made_for, err) : r;
    r = r ? r : kernel_make(p, &config, m.data, (size_t)m.size, out, err);
    free(m.data);
    return r;
}

/* True for the faults of an image that gemmd has lost: the cache directory was emptied, had no room
 * for the image, or cannot be read. */
static bool is_lost(int status)
{
    return status == ERROR_NOT_FOUND || status == ERROR_IO;
}

/* Compiles the answer's kernel, and stores the kernel in the cache for the next caller. On a handle
 * with a lock file only the answer's own module will do. */
static int make_again(const struct gemmd *g, const struct gemmd_problem *problem,
                      const struct gemmd_answer *answer, struct gemmd_kernel **out,
                      struct error *err)
{
    struct error gone = *err;
    const char *target = answer->size >= STAMPED_SIZE ? answer->target : "";
    const char *device = !target[0] ? NULL : strcmp(target, "cpu") == 0 ? "cpu" : "cuda";
    int r =
        kernel_compile(device, problem, answer->config, g->joblock ? answer->module : "", out, err);
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
    /* a lock file's answers need no daemon, so a daemon that is away loses no kernel */
    const bool may_make = is_lost(r) || (g->joblock && r < 0 && r != ERROR_CONFLICT);
    return may_make && was_measured(answer) ? make_again(g, problem, answer, out, err) : r;
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
