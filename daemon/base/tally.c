/* SPDX-License-Identifier: Apache-2.0 */
/* Tallies (tally.h). The jobs are a list, and the sums of a job an array, since both are few. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/tally.h"
#include "proto/hash.h"

/* A sum of answers. `fields` is a part of its row: MessagePack pairs of key, tier, op, problem and
 * config. Sums with equal fields are one sum. */
struct tally_sum {
    uint64_t hash;
    int64_t answers, first_s, last_s;
    size_t n;
    uint8_t fields[];
};

void tallies_init(struct tallies *t)
{
    *t = (struct tallies){.n = 0};
    list_init(&t->all);
}

static void tally_free(struct tallies *t, struct tally *x)
{
    for (size_t i = 0; i < x->n; i++) {
        free(x->sums[i]);
    }
    free(x->sums);
    list_remove(&x->link);
    free(x);
    t->n--;
}

void tallies_deinit(struct tallies *t)
{
    while (!list_empty(&t->all)) {
        tally_free(t, LIST_OF(t->all.next, struct tally, link));
    }
    wire_buf_deinit(&t->scratch);
}

/* ---- counting -------------------------------------------------------------------------------- */

static struct tally *tallies_add(struct tallies *t, uid_t uid, const char *job, uint64_t now_ms)
{
    struct tally *x = calloc(1, sizeof(*x));
    if (x) {
        x->uid = uid;
        x->began_ms = x->exact_ms = now_ms;
        snprintf(x->job, sizeof(x->job), "%s", job);
        list_append(&t->all, &x->link);
        t->n++;
    }
    return x;
}

struct tally *tallies_find(struct tallies *t, uid_t uid, const char *job, uint64_t now_ms)
{
    unsigned of_user = 0;
    LIST_EACH(struct tally, x, &t->all, link) {
        of_user += x->uid == uid;
        if (x->uid == uid && strcmp(x->job, job) == 0) {
            return x;
        }
    }
    t->is_crowded = t->is_crowded || of_user >= TALLY_USER_JOBS / 2 || t->n >= TALLY_JOBS / 2;
    const bool has_room = of_user < TALLY_USER_JOBS && t->n < TALLY_JOBS;
    /* the tally "" of a user is beyond the limits: a user has a single one */
    return has_room || !job[0] ? tallies_add(t, uid, job, now_ms)
                               : tallies_find(t, uid, "", now_ms);
}

/* Packs the fields of a sum; without `a->key` those of the sum of further keys. */
static void tally_pack_fields(struct wire_buf *b, const struct tally_answer *a, bool has_key)
{
    wire_buf_clear(b);
    b->failed = false;
    wire_put_kv_str(b, "key", has_key ? a->key : "");
    wire_put_kv_str(b, "tier", a->tier);
    wire_put_kv_str(b, "op", has_key ? a->op : "");
    for (int i = 0; i < 2; i++) {
        const struct record *r = !has_key ? NULL : i ? a->config : a->problem;
        wire_put_str(b, i ? "config" : "problem");
        if (r) {
            record_pack(b, r);
        } else {
            wire_put_map(b, 0);
        }
    }
}

static struct tally_sum *tally_find_sum(struct tally *x, const struct wire_buf *fields)
{
    const uint64_t hash = hash64(fields->data, fields->len);
    for (size_t i = 0; i < x->n; i++) {
        struct tally_sum *sum = x->sums[i];
        if (sum->hash == hash && sum->n == fields->len &&
            memcmp(sum->fields, fields->data, sum->n) == 0) {
            return sum;
        }
    }
    return NULL;
}

static struct tally_sum *tally_add_sum(struct tally *x, const struct wire_buf *fields)
{
    enum { GRAIN = 8 };
    if (x->n % GRAIN == 0) {
        struct tally_sum **grown = realloc(x->sums, (x->n + GRAIN) * sizeof(struct tally_sum *));
        if (!grown) {
            return NULL;
        }
        x->sums = grown;
    }
    struct tally_sum *sum = calloc(1, sizeof(*sum) + fields->len);
    if (sum) {
        sum->hash = hash64(fields->data, fields->len);
        sum->n = fields->len;
        memcpy(sum->fields, fields->data, fields->len);
        x->sums[x->n++] = sum;
    }
    return sum;
}

void tally_count(struct tallies *t, struct tally *x, const struct tally_answer *a)
{
    struct wire_buf *fields = &t->scratch;
    tally_pack_fields(fields, a, true);
    struct tally_sum *sum = fields->failed ? NULL : tally_find_sum(x, fields);
    if (!sum && (x->n >= TALLY_SUMS || fields->len > TALLY_SUM_BYTES)) {
        t->is_crowded = true;
        tally_pack_fields(fields, a, false);
        sum = fields->failed ? NULL : tally_find_sum(x, fields);
    }
    sum = sum || fields->failed ? sum : tally_add_sum(x, fields);
    if (sum) {
        sum->first_s = sum->answers && sum->first_s < a->first_s ? sum->first_s : a->first_s;
        sum->last_s = sum->last_s > a->last_s ? sum->last_s : a->last_s;
        sum->answers += a->answers;
    }
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void tally_pack_row(const struct tally *x, const struct tally_sum *sum,
                           struct wire_buf *page)
{
    wire_put_map(page, 10);
    wire_put_kv_int(page, "uid", (int64_t)x->uid);
    wire_put_kv_str(page, "job", x->job);
    wire_put_raw(page, sum->fields, sum->n);
    wire_put_kv_int(page, "answers", sum->answers);
    wire_put_kv_int(page, "first_s", sum->first_s);
    wire_put_kv_int(page, "last_s", sum->last_s);
}

/* Moves the count of exact answers into a sum, so that it becomes a row. */
static void tally_settle_exact(struct tallies *t, struct tally *x, uint64_t now_ms, int64_t now_s)
{
    const struct tally_answer a = {.key = "",
                                   .tier = "exact",
                                   .op = "",
                                   .answers = (int64_t)x->exact,
                                   .first_s = now_s - (int64_t)((now_ms - x->began_ms) / 1000),
                                   .last_s = now_s - (int64_t)((now_ms - x->exact_ms) / 1000)};
    if (x->exact) {
        tally_count(t, x, &a);
        x->exact = 0;
    }
}

uint32_t tallies_pack_page(struct tallies *t, uint64_t now_ms, int64_t now_s, struct wire_buf *page)
{
    uint32_t rows = 0;
    t->is_crowded = false;
    while (!list_empty(&t->all) && rows < TALLY_PAGE_ROWS) {
        struct tally *x = LIST_OF(t->all.next, struct tally, link);
        tally_settle_exact(t, x, now_ms, now_s);
        for (; x->n > 0 && rows < TALLY_PAGE_ROWS; rows++) {
            struct tally_sum *sum = x->sums[--x->n];
            tally_pack_row(x, sum, page);
            free(sum);
        }
        if (x->n == 0) {
            tally_free(t, x);
        }
    }
    return rows;
}
