/* SPDX-License-Identifier: Apache-2.0 */
/* Answers from rows (answer.h). Rates (tflops, gbps) divide the least work that the bucket needs by
 * the time. So the rates of two configs of a key compare, and a rate above the device's peak shows
 * a broken clock. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "daemon/cache/answer.h"

void answer_init(struct answer *a)
{
    memset(a, 0, offsetof(struct answer, config));
    record_init(&a->config);
    memset(a->module, 0, sizeof(*a) - offsetof(struct answer, module));
    a->time_us = a->spread = a->reference_us = a->tflops = a->gbps = a->floor_us = NAN;
}

/* work / time, scaled; NaN when either is unknown. */
static double answer_rate_of(double work, double time_us, double scale)
{
    return work > 0 && time_us > 0 ? work / time_us * scale : NAN;
}

static const char SLOWER[] = "slower than the reference of its run: ";

/* Adds a note to an answer that is slower than the reference kernel: a pin, or another row that was
 * not chosen for speed. Less than 2 % is noise and gets no note. */
static void note_slower(struct answer *a)
{
    const double ratio = a->reference_us / a->time_us; /* NaN when a time is unknown */
    if (!a->note[0] && ratio < 0.98) {
        answer_note(a, "%s%.2f of its speed, %.4g us against %.4g us", SLOWER, ratio, a->time_us,
                    a->reference_us);
    }
}

#define COPY_TEXT(to, from) snprintf((to), sizeof(to), "%s", (from))

void answer_of_best(struct answer *a, const struct best *b, bool saved)
{
    char says[DOUBT_MAX];
    answer_init(a);
    COPY_TEXT(a->key, b->key);
    COPY_TEXT(a->tier, "exact");
    COPY_TEXT(a->source, b->source);
    COPY_TEXT(a->family, b->family);
    record_copy(&a->config, &b->config);
    if (!best_is_brought(b)) {
        /* the module of a row from `put` or `import` lies on the machine that measured the row */
        COPY_TEXT(a->module, b->module);
    }
    a->time_us = b->time_us;
    a->spread = b->spread;
    a->reference_us = b->reference_us;
    a->tflops = answer_rate_of(b->flops, b->time_us, 1e-6);
    a->gbps = answer_rate_of(b->bytes, b->time_us, 1e-3);
    a->floor_us = b->floor_us > 0 ? b->floor_us : NAN;
    a->measured = b->measured;
    a->generation = b->generation;
    a->saved = saved;
    COPY_TEXT(a->stamp, b->stamp);
    a->created_s = b->created_s;
    confidence_is_low(b, says);
    answer_note(a, "%s", says);
    note_slower(a);
}

/* The reverse of answer_rate_of: returns the work that the rate was made from. NaN: unknown, as in
 * rows without a family. */
static double answer_work_of(double rate_, double time_us, double scale)
{
    return rate_ > 0 && time_us > 0 ? rate_ * time_us / scale : NAN;
}

void best_of_answer(struct best *b, const struct answer *a, const struct problem *bucket,
                    const char *class_)
{
    memset(b, 0, sizeof(*b));
    memcpy(b->key, a->key, sizeof(b->key));
    COPY_TEXT(b->op, bucket->op_name);
    COPY_TEXT(b->family, a->family);
    record_copy(&b->problem, &bucket->fields);
    COPY_TEXT(b->class, class_);
    COPY_TEXT(b->source, a->source);
    record_copy(&b->config, &a->config);
    COPY_TEXT(b->module, a->module);
    b->time_us = a->time_us;
    b->spread = a->spread;
    b->reference_us = a->reference_us;
    const struct family *f = family_of_problem(bucket);
    if (f) {
        f->work(bucket, &b->flops, &b->bytes);
    } else {
        b->flops = answer_work_of(a->tflops, a->time_us, 1e-6);
        b->bytes = answer_work_of(a->gbps, a->time_us, 1e-3);
    }
    b->floor_us = a->floor_us;
    b->measured = a->measured;
    b->generation = a->generation;
    COPY_TEXT(b->stamp, a->stamp);
    b->created_s = a->created_s;
    if (strncmp(a->note, SLOWER, strlen(SLOWER)) != 0) {
        COPY_TEXT(b->doubt, a->note);
    }
}

void best_work(struct best *b, const struct family *f, const struct problem *bucket,
               const struct device_info *device)
{
    f->work(bucket, &b->flops, &b->bytes);
    b->floor_us = family_floor_us(f, bucket, device);
}

void answer_note(struct answer *a, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(a->note, sizeof(a->note), format, args);
    va_end(args);
}

void trial_times_unknown(struct trial *t)
{
    t->time_us = t->ratio = t->q25_us = t->q75_us = t->predicted_us = t->compile_ms = NAN;
    t->max_error = t->rel_norm = NAN;
}
