/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Routing profiles: the rows of each expert. Times depend on them, so the profile is part of the
 * problem.
 *
 *   uniform         each token goes to topk distinct experts, all equally likely;
 *   zipf:<s>        the same with expert e chosen by weight (e + 1)^-s, without replacement;
 *   rows:<a,b,..>   as measured in a real run: the rows of each expert; they sum to M
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/families/grouped_gemm/grouped_gemm.h"

static const double SKEW_MAX = 8;

static int parse_rows(struct routing *r, const char *text, int64_t experts, int64_t rows,
                      struct error *err)
{
    int64_t n = 0, sum = 0;
    for (const char *at = text;;) {
        char *end;
        errno = 0;
        long long v = strtoll(at, &end, 10);
        if (end == at || errno || v < 0 || v > GEMM_SIZE_MAX || (*end && *end != ',')) {
            return error_set(
                err, ERROR_INVALID,
                "routing \"rows:...\" has \"%.20s\" where the rows "
                "of expert %lld should be: write whole numbers >= 0 with commas between",
                at, (long long)n);
        }
        if (n < experts) {
            r->rows[n] = v;
        }
        n++;
        sum += v;
        if (!*end) {
            break;
        }
        at = end + 1;
    }
    if (n != experts) {
        return error_set(err, ERROR_CONFLICT,
                         "routing gives the rows of %lld experts, but experts is %lld",
                         (long long)n, (long long)experts);
    }
    if (sum != rows) {
        return error_set(err, ERROR_CONFLICT, "routing gives %lld rows in all, but M is %lld",
                         (long long)sum, (long long)rows);
    }
    return 0;
}

int routing_parse(struct routing *r, const char *text, int64_t experts, int64_t rows,
                  struct error *err)
{
    memset(r, 0, sizeof(*r));
    if (strcmp(text, "uniform") == 0) {
        r->kind = ROUTING_UNIFORM;
        return 0;
    }
    if (strncmp(text, "zipf:", 5) == 0) {
        char *end;
        r->kind = ROUTING_ZIPF;
        r->skew = strtod(text + 5, &end);
        if (end == text + 5 || *end || !(r->skew >= 0 && r->skew <= SKEW_MAX)) {
            return error_set(err, ERROR_INVALID,
                             "routing is \"%.40s\": zipf takes a number from 0 "
                             "to %g, such as zipf:1.2",
                             text, SKEW_MAX);
        }
        /* turns -0 into 0: both are the same routing, so both must have the same key */
        r->skew += 0.0;
        return 0;
    }
    if (strncmp(text, "rows:", 5) == 0) {
        r->kind = ROUTING_ROWS;
        return parse_rows(r, text + 5, experts, rows, err);
    }
    return error_set(err, ERROR_INVALID,
                     "routing is \"%.40s\": use uniform, zipf:<s> or rows:<a,b,...>", text);
}

size_t routing_format(const struct routing *r, int64_t experts, char *out, size_t size)
{
    if (r->kind == ROUTING_UNIFORM) {
        return (size_t)snprintf(out, size, "uniform");
    }
    if (r->kind == ROUTING_ZIPF) {
        char number[64];
        value_format(&VALUE_OF_REAL(r->skew), number, sizeof(number));
        return (size_t)snprintf(out, size, "zipf:%s", number);
    }
    size_t n = (size_t)snprintf(out, size, "rows:");
    for (int64_t e = 0; e < experts; e++) {
        char *at = n < size ? out + n : NULL;
        n += (size_t)snprintf(at, at ? size - n : 0, e ? ",%lld" : "%lld", (long long)r->rows[e]);
    }
    return n;
}

/* Expected share of each expert. Weights are capped at one choice per token, as an expert gets a
 * token once; the excess goes to the other experts. */
static void routing_fill_shares(const struct gemm *v, double skew, double share[])
{
    bool capped[GEMM_EXPERTS_MAX] = {0};
    double left = (double)v->topk, weight[GEMM_EXPERTS_MAX];
    for (int64_t e = 0; e < v->experts; e++) {
        weight[e] = skew > 0 ? pow((double)(e + 1), -skew) : 1;
    }
    for (bool again = true; again;) {
        double sum = 0;
        again = false;
        for (int64_t e = 0; e < v->experts; e++) {
            sum += capped[e] ? 0 : weight[e];
        }
        for (int64_t e = 0; e < v->experts && left > 0; e++) {
            share[e] = capped[e] ? 1 : left * weight[e] / sum;
        }
        for (int64_t e = 0; e < v->experts; e++) {
            if (!capped[e] && share[e] >= 1) {
                capped[e] = true;
                left -= 1;
                again = left > 0;
            }
        }
    }
}

/* Rounds to whole numbers that sum to v->m; their running sum stays nearest to the running sum
 * of `exact`. */
static void round_rows(const struct gemm *v, const double exact[], int64_t rows[])
{
    int64_t given = 0;
    double sum = 0;
    for (int64_t e = 0; e < v->experts; e++) {
        sum += exact[e];
        int64_t upto = e + 1 == v->experts ? v->m : llround(sum);
        upto = upto < given ? given : upto > v->m ? v->m : upto;
        rows[e] = upto - given;
        given = upto;
    }
}

/* Returns true with each expert's given rows in rows[], or false with expected rows in exact[]. */
static bool read_profile(const struct gemm *v, double exact[], int64_t rows[])
{
    struct routing r;
    if (routing_parse(&r, v->routing, v->experts, v->m, NULL) == 0 && r.kind == ROUTING_ROWS) {
        memcpy(rows, r.rows, (size_t)v->experts * sizeof(rows[0]));
        return true;
    }
    memset(exact, 0, (size_t)v->experts * sizeof(exact[0]));
    routing_fill_shares(v, r.kind == ROUTING_ZIPF ? r.skew : 0, exact);
    for (int64_t e = 0; e < v->experts; e++) {
        exact[e] *= (double)v->tokens;
    }
    return false;
}

void gemm_expected_rows(const struct gemm *v, int64_t rows[])
{
    double exact[GEMM_EXPERTS_MAX];
    if (!read_profile(v, exact, rows)) {
        round_rows(v, exact, rows);
    }
}

double gemm_unevenness(const struct gemm *v)
{
    int64_t rows[GEMM_EXPERTS_MAX];
    double squares = 0;
    if (strcmp(v->routing, "uniform") == 0) {
        return 0; /* nearly every problem returns here */
    }
    gemm_expected_rows(v, rows);
    for (int64_t e = 0; e < v->experts; e++) {
        const double share = (double)rows[e] / (double)v->m;
        squares += share * share;
    }
    return fmax(0, log2(squares * (double)v->experts));
}

/* The value below which a standard normal variable lies with probability u; the error is at most
 * 5e-4 (Abramowitz and Stegun, 26.2.23). */
static double normal_quantile(double u)
{
    const double t = sqrt(-2 * log(fmin(u, 1 - u)));
    const double z = t - (2.515517 + t * (0.802853 + t * 0.010328)) /
                             (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)));
    return u < 0.5 ? -z : z;
}

/* The quantile u of the number of hits in n draws, each a hit with probability mean / n. A small
 * mean: of the Poisson distribution. */
static double drawn_quantile(double mean, double n, double u)
{
    enum { FEW = 16, MOST = 64 };
    if (mean >= FEW) {
        return fmax(0, mean + normal_quantile(u) * sqrt(mean * (1 - fmin(1, mean / n))));
    }
    double p = exp(-mean), sum = p;
    int k = 0;
    while (u > sum && k < MOST) {
        p *= mean / ++k;
        sum += p;
    }
    return fmin(k, n);
}

void gemm_typical_rows(const struct gemm *v, int64_t rows[])
{
    const double golden = 0.6180339887498949;
    double exact[GEMM_EXPERTS_MAX], sum = 0;
    if (read_profile(v, exact, rows)) {
        return;
    }
    for (int64_t e = 0; e < v->experts; e++) {
        const double u = fmod(((double)e + 0.5) * golden, 1);
        exact[e] = drawn_quantile(exact[e], (double)v->tokens, u);
        sum += exact[e];
    }
    for (int64_t e = 0; e < v->experts && sum > 0; e++) {
        exact[e] *= (double)v->m / sum;
    }
    round_rows(v, exact, rows);
}
