/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "client/ask.h"
#include "kernels/family.h"
#include "proto/limits.h"

/* Sizes of the first release: callers' structs are at least this large. */
enum {
    QUERY_SIZE_MIN = offsetof(struct gemmd_query, target),
    OP_WORD_MAX = 128,
};

/* The tolerances of a query that names none. A query with these or looser tolerances accepts an
 * answer that was verified with these. */
#define TOLERANCE 1e-2

/* ---- reading -------------------------------------------------------------------------------- */

static bool all_zero(const char *at, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (at[i]) {
            return false;
        }
    }
    return true;
}

int ask_check_size(size_t size, size_t min, const char *name, struct error *err)
{
    char upper[16] = "";
    if (size >= min) {
        return 0;
    }
    for (size_t i = 0; name[i] && i < sizeof(upper) - 1; i++) {
        upper[i] = (char)toupper((unsigned char)name[i]);
    }
    return error_set(err, ERROR_INVALID, "struct gemmd_%s has size %zu: begin with GEMMD_%s_INIT",
                     name, size, upper);
}

int ask_read_struct(void *ours, size_t size, const void *theirs, size_t their_size, size_t min,
                    const char *name, struct error *err)
{
    int r = ask_check_size(their_size, min, name, err);
    if (r) {
        return r;
    }
    size_t known = their_size < size ? their_size : size;
    if (!all_zero((const char *)theirs + known, their_size - known)) {
        return error_set(err, ERROR_INVALID,
                         "struct gemmd_%s uses a field unknown to this libgemmd (%s): update "
                         "libgemmd",
                         name, gemmd_version());
    }
    memcpy(ours, theirs, known);
    return 0;
}

static int64_t count_experts(const struct gemmd_problem *p)
{
    return p->experts > 0 ? p->experts : 1;
}

static int ask_check_rows(const struct gemmd_problem *p, struct error *err)
{
    if (!p->rows_per_expert || p->text) {
        return 0;
    }
    if (p->routing) {
        return error_set(err, ERROR_CONFLICT,
                         "routing is \"%.40s\" and rows_per_expert is given: one of them says it",
                         p->routing);
    }
    if (count_experts(p) > GEMM_EXPERTS_MAX) {
        return error_set(err, ERROR_INVALID, "experts is %lld: at most %d are supported",
                         (long long)p->experts, GEMM_EXPERTS_MAX);
    }
    return 0;
}

int ask_problem(struct ask *a, const struct gemmd_problem *p, struct error *err)
{
    if (!p) {
        return error_set(err, ERROR_INVALID, "there is no struct gemmd_problem (NULL)");
    }
    a->problem = (struct gemmd_problem)GEMMD_PROBLEM_INIT;
    int r = ask_read_struct(&a->problem, sizeof(a->problem), p, p->size, ASK_PROBLEM_SIZE_MIN,
                            "problem", err);
    a->problem.mode = a->problem.mode ? a->problem.mode : "forward";
    return r ? r : ask_check_rows(&a->problem, err);
}

int ask_query(struct ask *a, const struct gemmd_query *q, struct error *err)
{
    a->query = (struct gemmd_query)GEMMD_QUERY_INIT;
    int r =
        q ? ask_read_struct(&a->query, sizeof(a->query), q, q->size, QUERY_SIZE_MIN, "query", err)
          : 0;
    if (r) {
        return r;
    }
    if ((unsigned)a->query.wait > GEMMD_WAIT_BOUNDARY) {
        return error_set(err, ERROR_INVALID,
                         "wait is %d: use GEMMD_WAIT_TUNED, _NOW, _CACHED or _BOUNDARY",
                         (int)a->query.wait);
    }
    if (a->query.deadline_ms < 0) {
        return error_set(err, ERROR_INVALID, "deadline_ms is %d: use 0 (the default) or more",
                         a->query.deadline_ms);
    }
    return 0;
}

bool ask_is_plain(const struct gemmd_query *q)
{
    return !q->restrict_json && !q->configs_json && !q->target && !q->bucket &&
           (q->atol == 0 || q->atol >= TOLERANCE) && (q->rtol == 0 || q->rtol >= TOLERANCE);
}

bool ask_is_bare(const struct gemmd_query *q)
{
    return ask_is_plain(q) && q->atol <= TOLERANCE && q->rtol <= TOLERANCE;
}

/* ---- to the wire ---------------------------------------------------------------------------- */

enum field_kind { FIELD_TEXT, FIELD_SIZE, FIELD_INT, FIELD_REAL, FIELD_FLAG, FIELD_JSON };

/* A field of a caller's struct. A field that is NULL, 0 or false is not sent. Only M, N and K
 * (FIELD_SIZE) are always sent, so that a missing size gets the same error message as a bad one. */
struct field {
    const char *packed; /* the name on the wire: a byte with the length, then the text */
    enum field_kind kind;
    size_t at; /* offset in the struct */
};

/* The name on the wire; the struct's name of a JSON field has the suffix "_json" besides. */
#define FIELD_NAME(f) ((f)->packed + 1)
#define FIELD_ROW(type, head, name, kind, member)                                                  \
    {                                                                                              \
        head name, FIELD_##kind, offsetof(struct type, member)                                     \
    }

static const struct field problem_fields[] = {
    FIELD_ROW(gemmd_problem, "\xa4", "mode", TEXT, mode),
    FIELD_ROW(gemmd_problem, "\xa8", "dtype_in", TEXT, dtype_in),
    FIELD_ROW(gemmd_problem, "\xa9", "dtype_out", TEXT, dtype_out),
    FIELD_ROW(gemmd_problem, "\xa1", "M", SIZE, m),
    FIELD_ROW(gemmd_problem, "\xa1", "N", SIZE, n),
    FIELD_ROW(gemmd_problem, "\xa1", "K", SIZE, k),
    FIELD_ROW(gemmd_problem, "\xa7", "experts", INT, experts),
    FIELD_ROW(gemmd_problem, "\xa4", "topk", INT, topk),
    FIELD_ROW(gemmd_problem, "\xa9", "permute_x", FLAG, permute_x),
    FIELD_ROW(gemmd_problem, "\xa9", "permute_y", FLAG, permute_y),
    FIELD_ROW(gemmd_problem, "\xad", "fuse_mul_post", FLAG, fuse_mul_post),
    FIELD_ROW(gemmd_problem, "\xaa", "accumulate", FLAG, accumulate),
    FIELD_ROW(gemmd_problem, "\xaf", "batch_invariant", FLAG, batch_invariant),
    FIELD_ROW(gemmd_problem, "\xa7", "routing", TEXT, routing),
    FIELD_ROW(gemmd_problem, "\xa5", "quant", TEXT, quant),
};
static const struct field query_fields[] = {
    FIELD_ROW(gemmd_query, "\xa8", "strategy", TEXT, strategy),
    FIELD_ROW(gemmd_query, "\xa6", "budget", INT, budget),
    FIELD_ROW(gemmd_query, "\xa9", "budget_ms", INT, budget_ms),
    FIELD_ROW(gemmd_query, "\xa5", "iters", INT, iters),
    FIELD_ROW(gemmd_query, "\xa6", "warmup", INT, warmup),
    FIELD_ROW(gemmd_query, "\xa4", "atol", REAL, atol),
    FIELD_ROW(gemmd_query, "\xa4", "rtol", REAL, rtol),
    FIELD_ROW(gemmd_query, "\xa4", "seed", INT, seed),
    FIELD_ROW(gemmd_query, "\xa6", "target", TEXT, target),
    FIELD_ROW(gemmd_query, "\xa6", "bucket", TEXT, bucket),
    FIELD_ROW(gemmd_query, "\xa7", "wall_ms", INT, wall_ms),
    FIELD_ROW(gemmd_query, "\xa8", "restrict", JSON, restrict_json),
    FIELD_ROW(gemmd_query, "\xa7", "configs", JSON, configs_json),
};
enum {
    PROBLEM_FIELDS = sizeof(problem_fields) / sizeof(problem_fields[0]),
    QUERY_FIELDS = sizeof(query_fields) / sizeof(query_fields[0]),
};

/* Reads a field's value. False: the field has its default, and is not sent. */
static bool ask_read_field(const struct field *f, const void *from, struct value *out)
{
    const void *at = (const char *)from + f->at;
    switch (f->kind) {
    case FIELD_SIZE:
    case FIELD_INT:
        *out = VALUE_OF_INT(*(const int64_t *)at);
        return out->integer || f->kind == FIELD_SIZE;
    case FIELD_REAL:
        *out = VALUE_OF_REAL(*(const double *)at);
        return out->real != 0;
    case FIELD_FLAG:
        *out = VALUE_OF_BOOL(*(const bool *)at);
        return out->flag;
    default:
        *out = VALUE_OF_TEXT(*(const char *const *)at);
        return out->text != NULL;
    }
}

/* Appends the fields as pairs of a map, and adds their number to *count. */
static int ask_put_fields(struct wire_buf *b, const struct field *fields, size_t n,
                          const void *from, size_t *count, struct error *err)
{
    for (size_t i = 0; i < n; i++) {
        struct value v;
        if (!ask_read_field(&fields[i], from, &v)) {
            continue;
        }
        ++*count;
        wire_put_raw(b, fields[i].packed, 1 + (fields[i].packed[0] & 31));
        if (fields[i].kind != FIELD_JSON) {
            value_pack(b, &v);
        } else if (wire_from_json(b, v.text, err)) {
            return error_prefix(err, "%s_json", FIELD_NAME(&fields[i]));
        }
    }
    return 0;
}

/* Packs a problem's text, "op NAME=VALUE ..."; any op is accepted. */
static int pack_text(struct wire_buf *b, const char *text, struct error *err)
{
    struct record fields;
    struct value again;
    text += strspn(text, " \t\n");
    size_t n = strcspn(text, " \t\n,");
    if (n == 0 || n >= OP_WORD_MAX || memchr(text, '=', n)) {
        return error_set(err, ERROR_INVALID,
                         "a problem's text begins with its op, as in "
                         "\"grouped_gemm mode=forward M=4096 N=1024 K=1024\": \"%.80s\"",
                         text);
    }
    int r = record_parse(&fields, text + n, err);
    if (r) {
        return r;
    }
    if (record_get(&fields, "op", &again)) {
        return error_set(err, ERROR_INVALID, "the op is the first word, %.*s: op= is given twice",
                         (int)n, text);
    }
    wire_put_map(b, fields.n + 1);
    wire_put_str(b, "op");
    wire_put_strn(b, text, n);
    record_pack_fields(b, &fields);
    return 0;
}

/* Returns the problem with its rows_per_expert as `routing`, "rows:5,0,3", written into `text`. A
 * problem without rows_per_expert is returned unchanged. */
static struct gemmd_problem ask_name_rows(const struct gemmd_problem *p, char text[RECORD_TEXT_MAX])
{
    struct gemmd_problem out = *p;
    if (!p->rows_per_expert) {
        return out;
    }
    size_t n = (size_t)snprintf(text, RECORD_TEXT_MAX, "rows:");
    for (int64_t e = 0; e < count_experts(p) && n < RECORD_TEXT_MAX; e++) {
        n += (size_t)snprintf(text + n, RECORD_TEXT_MAX - n, e ? ",%lld" : "%lld",
                              (long long)p->rows_per_expert[e]);
    }
    out.routing = text;
    return out;
}

int ask_pack_problem(struct wire_buf *b, const struct gemmd_problem *p, struct error *err)
{
    char rows[RECORD_TEXT_MAX];
    if (p->text) {
        return pack_text(b, p->text, err);
    }
    const struct gemmd_problem named = ask_name_rows(p, rows);
    WIRE_BUF_AUTO fields = WIRE_BUF_NULL;
    size_t count = 1;
    int r = ask_put_fields(&fields, problem_fields, PROBLEM_FIELDS, &named, &count, err);
    wire_put_map(b, count);
    wire_put_kv_str(b, "op", "grouped_gemm");
    wire_put_raw(b, fields.data, fields.len);
    b->failed = b->failed || fields.failed;
    return r;
}

const char *ask_wait_name(enum gemmd_wait wait)
{
    static const char *const names[] = {"tuned", "now", "cached", "boundary"};
    return names[wait];
}

int ask_pack(struct wire_buf *b, const struct ask *a, int64_t deadline_ms, struct error *err)
{
    const struct gemmd_query *q = &a->query;
    const bool progress = q->progress || q->flags & GEMMD_PROGRESS, again = q->flags & GEMMD_AGAIN;
    WIRE_BUF_AUTO fields = WIRE_BUF_NULL;
    size_t count = 2 + (deadline_ms != 0) + progress + again;
    int r = ask_put_fields(&fields, query_fields, QUERY_FIELDS, q, &count, err);
    wire_put_map(b, count);
    wire_put_str(b, "problem");
    r = r ? r : ask_pack_problem(b, &a->problem, err);
    wire_put_kv_str(b, "wait", ask_wait_name(q->wait));
    if (deadline_ms) {
        wire_put_kv_int(b, "deadline_ms", deadline_ms);
    }
    if (progress) {
        wire_put_kv_bool(b, "progress", true);
    }
    if (again) {
        wire_put_kv_bool(b, "again", true);
    }
    wire_put_raw(b, fields.data, fields.len);
    b->failed = b->failed || fields.failed;
    return r;
}

static int ask_refuse_many(const char *name, const char *suffix, struct error *err)
{
    return error_set(err, ERROR_INVALID,
                     "many problems cannot be asked for with %s%s: ask for each by gemmd_get, or "
                     "leave it out",
                     name, suffix);
}

int ask_check_bare(const struct gemmd_query *q, struct error *err)
{
    for (size_t i = 0; i < QUERY_FIELDS; i++) {
        const struct field *f = &query_fields[i];
        struct value v;
        if (f->at != offsetof(struct gemmd_query, target) && ask_read_field(f, q, &v)) {
            return ask_refuse_many(FIELD_NAME(f), f->kind == FIELD_JSON ? "_json" : "", err);
        }
    }
    return q->flags & GEMMD_AGAIN ? ask_refuse_many("GEMMD_AGAIN", "", err) : 0;
}

/* ---- to a problem of ours ------------------------------------------------------------------- */

void ask_know_ops(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, families_register);
}

/* Decodes a packed map. *doc owns the map; the caller frees *doc, also after an error. */
static int ask_decode(const struct wire_buf *packed, struct wire_doc **doc,
                      const struct wire_obj **map, struct error *err)
{
    *doc = wire_doc_new();
    return *doc && !packed->failed ? wire_decode(*doc, packed->data, packed->len, map, err)
                                   : error_set(err, ERROR_NO_MEMORY, "no memory for a request");
}

int ask_to_problem(const struct gemmd_problem *p, struct problem *out, struct error *err)
{
    WIRE_BUF_AUTO packed = WIRE_BUF_NULL;
    struct wire_doc *doc = NULL;
    const struct wire_obj *map;
    ask_know_ops();
    int r = ask_pack_problem(&packed, p, err);
    r = r ? r : ask_decode(&packed, &doc, &map, err);
    r = r ? r : problem_unpack(out, map, err);
    wire_doc_free(doc);
    return r;
}

int ask_to_request(const struct ask *a, struct request *out, struct error *err)
{
    WIRE_BUF_AUTO packed = WIRE_BUF_NULL;
    struct wire_doc *doc = NULL;
    const struct wire_obj *map;
    ask_know_ops();
    int r = ask_pack(&packed, a, 0, err);
    r = r ? r : ask_decode(&packed, &doc, &map, err);
    r = r ? r : request_unpack(out, map, err);
    wire_doc_free(doc);
    return r;
}
