/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fill RUNNER DEVICE DATABASE COUNT: a database in which the first COUNT problems of problems.h
 * have answers that a gemmd of this build serves on DEVICE: right class, right stamp. Through
 * store/, as the daemon writes, in transactions of a thousand.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ask.h"
#include "daemon/base/probe.h"
#include "daemon/cache/answer.h"
#include "kernels/family.h"
#include "store/store.h"
#include "tests/bench/serving/problems.h"

enum { GROUP = 1000 };

static _Noreturn void fail(const struct error *err)
{
    fprintf(stderr, "fill: %s\n", err->text);
    exit(1);
}

/* Remembers the stamp of the last target, because family_stamp hashes the target's whole source. */
static const char *stamp_of(const struct family *f, const struct family_target *t,
                            const struct device_info *device)
{
    static const struct family_target *last;
    static char stamp[STAMP_MAX];
    if (t != last) {
        family_stamp(f, t, device, stamp);
        last = t;
    }
    return stamp;
}

static void make_best(struct best *b, const struct device_info *device, int i)
{
    static struct problem p, bucket;
    static struct key key;
    struct error err = ERROR_NULL;
    struct gemmd_problem given = bench_problem(i);
    const struct family_target *t;
    if (ask_to_problem(&given, &p, &err)) {
        fail(&err);
    }
    problem_bucket(&p, BUCKET_SQRT2, &bucket);
    const struct family *f = family_of_problem(&bucket);
    if (key_make(&key, &bucket, device->class, &err) ||
        family_target_choose(f, &bucket, device, NULL, &t, &err)) {
        fail(&err);
    }
    key_id(&key);
    memset(b, 0, sizeof(*b));
    memcpy(b->key, key.id, sizeof(b->key));
    strcpy(b->op, bucket.op_name);
    strcpy(b->family, f->name);
    record_copy(&b->problem, &bucket.fields);
    strcpy(b->class, device->class);
    strcpy(b->source, "tuned");
    bench_config(i, &b->config);
    hash128_hex(&i, sizeof(i), b->module);
    b->time_us = bench_time_us(i);
    b->spread = 0.0125;
    b->reference_us = 1.5 * b->time_us;
    best_work(b, f, &bucket, device);
    b->atol = b->rtol = 1e-2;
    b->measured = 48;
    strcpy(b->stamp, stamp_of(f, t, device));
    b->created_s = 1763700000 + i;
}

static void write_all(struct store *s, const struct device_info *device, int count)
{
    static struct best best;
    struct error err = ERROR_NULL;
    for (int i = 0; i < count; i++) {
        if (i % GROUP == 0 && store_begin(s, &err)) {
            fail(&err);
        }
        make_best(&best, device, i);
        if (store_publish(s, &best, &err)) {
            fail(&err);
        }
        if ((i % GROUP == GROUP - 1 || i == count - 1) && store_commit(s, &err)) {
            fail(&err);
        }
    }
}

int main(int argc, char **argv)
{
    static struct device_info device;
    struct error err = ERROR_NULL;
    int count = argc == 5 ? atoi(argv[4]) : 0;
    if (count < 1 || count > PROBLEMS_MAX) {
        fprintf(stderr, "usage: fill RUNNER DEVICE DATABASE COUNT (1 to %d)\n", PROBLEMS_MAX);
        return 2;
    }
    families_register();
    if (probe_device(argv[1], argv[2], PROBE_LIMIT_MS, &device, &err)) {
        fail(&err);
    }
    const struct store_options o = {.path = argv[3]};
    struct store *s;
    if (store_open(&o, &s, &err)) {
        fail(&err);
    }
    struct event scheme = {.created_s = 1763700000, .kind = "bucket_scheme", .text = "sqrt2"};
    if (store_add_event(s, &scheme, &err)) {
        fail(&err);
    }
    write_all(s, &device, count);
    store_close(s);
    return 0;
}
