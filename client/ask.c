/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "client/ask.h"
#include "kernels/family.h"
#include "proto/limits.h"
#include "proto/pack.h"

/* Of the first release: callers' structs are at least this large. */
enum {
    QUERY_SIZE_MIN = offsetof(struct gemmd_query, target),
    OP_WORD_MAX = 128,
};

/* Every answer is verified with these; a looser query is answered by them too. */
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

static int check_size(size_t size, size_t min, const char *name, struct error *err)
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

int ask_check_problem_size(const struct gemmd_problem *p, struct error *err)
{
    return check_size(p->size, ASK_PROBLEM_SIZE_MIN, "problem", err);
}

int ask_read_struct(void *ours, size_t size, const void *theirs, size_t their_size, size_t min,
                    const char *name, struct error *err)
{
    int r = check_size(their_size, min, name, err);
    if (r) {
        return r;
    }
    size_t known = their_size < size ? their_size : size;
    if (!all_zero((const char *)theirs + known, their_size - known)) {
        return error_set(err, ERROR_INVALID,
                         "struct gemmd_%s uses a field that this libgemmd (%s) "
                         "does not know: update it",
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
    if ((unsigned)a->query.wait > GEMMD_WAIT_CACHED) {
        return error_set(err, ERROR_INVALID, "wait is %d: use GEMMD_WAIT_TUNED, _NOW or _CACHED",
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

/* ---- to the wire ---------------------------------------------------------------------------- */

enum field_kind { FIELD_TEXT, FIELD_INT, FIELD_REAL, FIELD_FLAG, FIELD_JSON };

struct field {
    const char *name;
    enum field_kind kind;
    const char *text; /* TEXT and JSON; NULL: left out */
    int64_t integer;  /* INT and FLAG; 0: left out */
    double real;      /* REAL; 0: left out */
    bool always;
};

static bool is_given(const struct field *f)
{
    return f->always || f->text || f->integer || f->real != 0;
}

static int put_field(struct wire_buf *b, const struct field *f, struct error *err)
{
    wire_put_str(b, f->name);
    switch (f->kind) {
    case FIELD_TEXT:
        wire_put_str(b, f->text);
        break;
    case FIELD_INT:
        wire_put_int(b, f->integer);
        break;
    case FIELD_REAL:
        wire_put_real(b, f->real);
        break;
    case FIELD_FLAG:
        wire_put_bool(b, true);
        break;
    case FIELD_JSON:
        return wire_from_json(b, f->text, err) ? error_prefix(err, "%s_json", f->name) : 0;
    }
    return 0;
}

static size_t count_given(const struct field *fields, size_t n)
{
    size_t given = 0;
    for (size_t i = 0; i < n; i++) {
        given += is_given(&fields[i]);
    }
    return given;
}

static int put_given(struct wire_buf *b, const struct field *fields, size_t n, struct error *err)
{
    for (size_t i = 0; i < n; i++) {
        int r = is_given(&fields[i]) ? put_field(b, &fields[i], err) : 0;
        if (r) {
            return r;
        }
    }
    return 0;
}

/* "op NAME=VALUE ..." into op and record, without asking whether we know the op. */
static int split_text(const char *text, char op[OP_WORD_MAX], struct record *fields,
                      struct error *err)
{
    text += strspn(text, " \t\n");
    size_t n = strcspn(text, " \t\n,");
    if (n == 0 || n >= OP_WORD_MAX || memchr(text, '=', n)) {
        return error_set(err, ERROR_INVALID,
                         "a problem's text begins with its op, as in "
                         "\"grouped_gemm M=4096 N=1024 K=1024\": \"%.80s\"",
                         text);
    }
    memcpy(op, text, n);
    op[n] = '\0';
    return record_parse(fields, text + n, err);
}

static int pack_text(struct wire_buf *b, const char *text, struct error *err)
{
    char op[OP_WORD_MAX];
    struct record fields;
    struct value again;
    int r = split_text(text, op, &fields, err);
    if (r == 0 && record_get(&fields, "op", &again)) {
        r = error_set(err, ERROR_INVALID, "the op is the first word, %s: op= is given twice", op);
    }
    if (r) {
        return r;
    }
    wire_put_map(b, fields.n + 1);
    wire_put_kv_str(b, "op", op);
    for (size_t i = 0; i < fields.n; i++) {
        struct value v = record_at(&fields, i);
        wire_put_str(b, fields.fields[i].name);
        value_pack(b, &v);
    }
    return 0;
}

/* "rows:5,0,3" */
static void format_rows(const struct gemmd_problem *p, char out[RECORD_TEXT_MAX])
{
    size_t n = (size_t)snprintf(out, RECORD_TEXT_MAX, "rows:");
    for (int64_t e = 0; e < count_experts(p) && n < RECORD_TEXT_MAX; e++) {
        n += (size_t)snprintf(out + n, RECORD_TEXT_MAX - n, e ? ",%lld" : "%lld",
                              (long long)p->rows_per_expert[e]);
    }
}

enum { PROBLEM_FIELDS = 14 };

/* Sizes are always sent: a missing one then has the same sentence as a bad one. `rows` is where the
 * text of rows_per_expert goes. */
static void problem_fields(const struct gemmd_problem *p, char rows[RECORD_TEXT_MAX],
                           struct field out[PROBLEM_FIELDS])
{
    if (p->rows_per_expert) {
        format_rows(p, rows);
    }
    const struct field fields[PROBLEM_FIELDS] = {
        {"op", FIELD_TEXT, .text = "grouped_gemm"},
        {"mode", FIELD_TEXT, .text = p->mode ? p->mode : "forward"},
        {"dtype_in", FIELD_TEXT, .text = p->dtype_in},
        {"dtype_out", FIELD_TEXT, .text = p->dtype_out},
        {"M", FIELD_INT, .integer = p->m, .always = true},
        {"N", FIELD_INT, .integer = p->n, .always = true},
        {"K", FIELD_INT, .integer = p->k, .always = true},
        {"experts", FIELD_INT, .integer = p->experts},
        {"topk", FIELD_INT, .integer = p->topk},
        {"permute_x", FIELD_FLAG, .integer = p->permute_x},
        {"permute_y", FIELD_FLAG, .integer = p->permute_y},
        {"fuse_mul_post", FIELD_FLAG, .integer = p->fuse_mul_post},
        {"accumulate", FIELD_FLAG, .integer = p->accumulate},
        {"routing", FIELD_TEXT, .text = p->rows_per_expert ? rows : p->routing},
    };
    memcpy(out, fields, sizeof(fields));
}

/* Names as they are packed: a byte with the length, then the text. */
#define NAMED(head, name) head name, sizeof(head name) - 1

static void ask_put_int(struct wire_buf *b, const char *name, size_t n, int64_t v, bool always)
{
    if (v || always) {
        wire_put_raw(b, name, n);
        wire_put_int(b, v);
    }
}

static void ask_put_text(struct wire_buf *b, const char *name, size_t n, const char *v)
{
    if (v) {
        wire_put_raw(b, name, n);
        wire_put_str(b, v);
    }
}

static void put_flag(struct wire_buf *b, const char *name, size_t n, bool v)
{
    if (v) {
        wire_put_raw(b, name, n);
        wire_put_bool(b, true);
    }
}

/* What problem_fields and put_given make of a problem without rows_per_expert, without the list. */
static void pack_fields(struct wire_buf *b, const struct gemmd_problem *p)
{
    wire_put_map(b, 5u + !!p->dtype_in + !!p->dtype_out + !!p->experts + !!p->topk + p->permute_x +
                        p->permute_y + p->fuse_mul_post + p->accumulate + !!p->routing);
    ask_put_text(b, NAMED("\xa2", "op"), "grouped_gemm");
    ask_put_text(b, NAMED("\xa4", "mode"), p->mode ? p->mode : "forward");
    ask_put_text(b, NAMED("\xa8", "dtype_in"), p->dtype_in);
    ask_put_text(b, NAMED("\xa9", "dtype_out"), p->dtype_out);
    ask_put_int(b, NAMED("\xa1", "M"), p->m, true);
    ask_put_int(b, NAMED("\xa1", "N"), p->n, true);
    ask_put_int(b, NAMED("\xa1", "K"), p->k, true);
    ask_put_int(b, NAMED("\xa7", "experts"), p->experts, false);
    ask_put_int(b, NAMED("\xa4", "topk"), p->topk, false);
    put_flag(b, NAMED("\xa9", "permute_x"), p->permute_x);
    put_flag(b, NAMED("\xa9", "permute_y"), p->permute_y);
    put_flag(b, NAMED("\xad", "fuse_mul_post"), p->fuse_mul_post);
    put_flag(b, NAMED("\xaa", "accumulate"), p->accumulate);
    ask_put_text(b, NAMED("\xa7", "routing"), p->routing);
}

/* Both are of one length for the compiler: no call. */
#define PUT_INT(p, head, name, v)                                                                  \
    (memcpy((p), head name, sizeof(head name) - 1), pack_int((p) + sizeof(head name) - 1, (v)))
#define PUT_FLAG(p, head, name)                                                                    \
    (memcpy((p), head name, sizeof(head name) - 1), pack_bool((p) + sizeof(head name) - 1, true))

enum { USUAL_BYTES_MAX = 256, USUAL_MODE_MAX = 16 };

/* What pack_fields makes of a problem of numbers, flags and a mode, as most are: at once. False: it
 * is another one, nothing is put. */
static bool pack_usual(struct wire_buf *b, const struct gemmd_problem *p)
{
    uint8_t packed[USUAL_BYTES_MAX], *at = packed;
    const char *mode = p->mode ? p->mode : "forward";
    size_t n = strnlen(mode, USUAL_MODE_MAX);
    if (p->dtype_in || p->dtype_out || p->routing || n == USUAL_MODE_MAX) {
        return false;
    }
    at = pack_map_head(at, 5u + !!p->experts + !!p->topk + p->permute_x + p->permute_y +
                               p->fuse_mul_post + p->accumulate);
    memcpy(at, "\xa2op\xacgrouped_gemm\xa4mode", 21);
    at = pack_str_head(at + 21, n);
    for (size_t i = 0; i < n; i++) {
        if (mode[i] & 0x80) {
            return false; /* not ASCII: it has to be looked at */
        }
        *at++ = (uint8_t)mode[i];
    }
    at = PUT_INT(at, "\xa1", "M", p->m);
    at = PUT_INT(at, "\xa1", "N", p->n);
    at = PUT_INT(at, "\xa1", "K", p->k);
    at = p->experts ? PUT_INT(at, "\xa7", "experts", p->experts) : at;
    at = p->topk ? PUT_INT(at, "\xa4", "topk", p->topk) : at;
    at = p->permute_x ? PUT_FLAG(at, "\xa9", "permute_x") : at;
    at = p->permute_y ? PUT_FLAG(at, "\xa9", "permute_y") : at;
    at = p->fuse_mul_post ? PUT_FLAG(at, "\xad", "fuse_mul_post") : at;
    at = p->accumulate ? PUT_FLAG(at, "\xaa", "accumulate") : at;
    wire_put_raw(b, packed, (size_t)(at - packed));
    return true;
}

int ask_pack_problem(struct wire_buf *b, const struct gemmd_problem *p, struct error *err)
{
    if (p->text) {
        return pack_text(b, p->text, err);
    }
    if (!p->rows_per_expert) {
        if (!pack_usual(b, p)) {
            pack_fields(b, p);
        }
        return 0;
    }
    struct field fields[PROBLEM_FIELDS];
    char rows[RECORD_TEXT_MAX];
    problem_fields(p, rows, fields);
    wire_put_map(b, count_given(fields, PROBLEM_FIELDS));
    return put_given(b, fields, PROBLEM_FIELDS, err);
}

static const char *wait_name(enum gemmd_wait w)
{
    return w == GEMMD_WAIT_NOW ? "now" : w == GEMMD_WAIT_CACHED ? "cached" : "tuned";
}

int ask_pack(struct wire_buf *b, const struct ask *a, int64_t deadline_ms, struct error *err)
{
    const struct gemmd_query *q = &a->query;
    const struct field fields[] = {
        {"wait", FIELD_TEXT, .text = wait_name(q->wait)},
        {"deadline_ms", FIELD_INT, .integer = deadline_ms},
        {"progress", FIELD_FLAG, .integer = q->progress || q->flags & GEMMD_PROGRESS},
        {"again", FIELD_FLAG, .integer = (q->flags & GEMMD_AGAIN) != 0},
        {"strategy", FIELD_TEXT, .text = q->strategy},
        {"budget", FIELD_INT, .integer = q->budget},
        {"budget_ms", FIELD_INT, .integer = q->budget_ms},
        {"iters", FIELD_INT, .integer = q->iters},
        {"warmup", FIELD_INT, .integer = q->warmup},
        {"atol", FIELD_REAL, .real = q->atol},
        {"rtol", FIELD_REAL, .real = q->rtol},
        {"seed", FIELD_INT, .integer = q->seed},
        {"target", FIELD_TEXT, .text = q->target},
        {"bucket", FIELD_TEXT, .text = q->bucket},
        {"wall_ms", FIELD_INT, .integer = q->wall_ms},
        {"restrict", FIELD_JSON, .text = q->restrict_json},
        {"configs", FIELD_JSON, .text = q->configs_json},
    };
    size_t n = sizeof(fields) / sizeof(fields[0]);
    wire_put_map(b, count_given(fields, n) + 1);
    wire_put_str(b, "problem");
    int r = ask_pack_problem(b, &a->problem, err);
    return r ? r : put_given(b, fields, n, err);
}

/* ---- to a problem of ours ------------------------------------------------------------------- */

static int ask_read_fields(const struct gemmd_problem *p, char op[OP_WORD_MAX], struct record *out,
                           struct error *err)
{
    if (p->text) {
        return split_text(p->text, op, out, err);
    }
    struct field fields[PROBLEM_FIELDS];
    char rows[RECORD_TEXT_MAX];
    problem_fields(p, rows, fields);
    strcpy(op, fields[0].text);
    record_init(out);
    int r = 0;
    for (size_t i = 1; i < PROBLEM_FIELDS && r == 0; i++) {
        const struct field *f = &fields[i];
        struct value v = f->kind == FIELD_TEXT  ? VALUE_OF_TEXT(f->text)
                         : f->kind == FIELD_INT ? VALUE_OF_INT(f->integer)
                                                : VALUE_OF_BOOL(f->integer != 0);
        r = is_given(f) ? record_set(out, f->name, v, err) : 0;
    }
    return r;
}

void ask_know_ops(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, families_register);
}

int ask_to_problem(const struct gemmd_problem *p, struct problem *out, struct error *err)
{
    ask_know_ops();
    char op[OP_WORD_MAX];
    struct record fields;
    int r = ask_read_fields(p, op, &fields, err);
    return r ? r : problem_make(out, op, &fields, err);
}

int ask_to_request(const struct ask *a, struct wire_doc *doc, struct request *out,
                   struct error *err)
{
    struct problem checked; /* registers the ops, too */
    WIRE_BUF_AUTO params = WIRE_BUF_NULL;
    const struct wire_obj *map;
    int r = ask_to_problem(&a->problem, &checked, err);
    r = r ? r : ask_pack(&params, a, 0, err);
    if (r == 0 && params.failed) {
        r = error_set(err, ERROR_NO_MEMORY, "no memory for a request");
    }
    r = r ? r : wire_decode(doc, params.data, params.len, &map, err);
    return r ? r : request_unpack(out, map, err);
}
