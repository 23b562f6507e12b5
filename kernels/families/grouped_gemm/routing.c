/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Routing profiles: how many rows each expert gets. Times depend on it, so it is part of the
 * problem.
 *
 *   uniform         each token goes to topk distinct experts, all equally likely
 *   zipf:<s>        the same with expert e chosen by weight (e + 1)^-s, without replacement
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
                         "routing gives the rows of %lld experts, but experts "
                         "is %lld",
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
        return 0;
    }
    if (strncmp(text, "rows:", 5) == 0) {
        r->kind = ROUTING_ROWS;
        return parse_rows(r, text + 5, experts, rows, err);
    }
    return error_set(err, ERROR_INVALID,
                     "routing is \"%.40s\": use uniform, zipf:<s> or "
                     "rows:<a,b,...>",
                     text);
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

/* Expected share of each expert: weights capped at one choice per token (an expert gets a token
 * once), the excess spread over the others. */
static void shares(const struct grouped_gemm_problem *v, double skew, double share[])
{
    bool capped[GEMM_EXPERTS_MAX] = {0};
    double left = (double)v->topk;
    for (bool again = true; again;) {
        double sum = 0;
        again = false;
        for (int64_t e = 0; e < v->experts; e++) {
            sum += capped[e] ? 0 : pow((double)(e + 1), -skew);
        }
        for (int64_t e = 0; e < v->experts && left > 0; e++) {
            share[e] = capped[e] ? 1 : left * pow((double)(e + 1), -skew) / sum;
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

void grouped_gemm_expected_rows(const struct grouped_gemm_problem *v, int64_t rows[])
{
    struct routing r;
    if (routing_parse(&r, v->routing, v->experts, v->m, NULL) == 0 && r.kind == ROUTING_ROWS) {
        memcpy(rows, r.rows, (size_t)v->experts * sizeof(rows[0]));
        return;
    }
    double share[GEMM_EXPERTS_MAX] = {0}, exact = 0;
    shares(v, r.kind == ROUTING_ZIPF ? r.skew : 0, share);
    int64_t given = 0;
    for (int64_t e = 0; e < v->experts; e++) { /* whole numbers whose running sum stays nearest */
        exact += share[e] * (double)v->tokens;
        int64_t upto = e + 1 == v->experts ? v->m : llround(exact);
        upto = upto < given ? given : upto > v->m ? v->m : upto;
        rows[e] = upto - given;
        given = upto;
    }
}
