/* SPDX-License-Identifier: Apache-2.0 */
/* Makes keys, counts answers, and adds events for all parts (daemon.h). */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "daemon/daemon.h"

int daemon_key(struct daemon *d, struct error *err)
{
    struct scratch *x = d->scratch;
    enum bucket_scheme scheme = d->scheme;
    const char *asked = x->request.query.bucket;
    int status = asked[0] ? bucket_scheme_parse(asked, &scheme, err) : 0;
    if (status < 0) {
        return status;
    }
    problem_bucket(&x->request.problem, scheme, &x->bucket);
    return key_make(&x->key, &x->bucket, d->device.class, err);
}

const char *const tier_names[TIERS] = {"exact", "near", "portfolio", "default"};

void daemon_count_answer(struct daemon *d, const struct answer *a)
{
    enum tier t = TIER_EXACT;
    while (t < TIER_DEFAULT && strcmp(a->tier, tier_names[t]) != 0) {
        t++;
    }
    d->answers[t]++;
}

void daemon_event(struct daemon *d, const char *kind, int64_t uid, const char *format, ...)
{
    struct event e = {.created_s = time(NULL), .uid = uid};
    va_list args;
    va_start(args, format);
    vsnprintf(e.text, sizeof(e.text), format, args);
    va_end(args);
    snprintf(e.kind, sizeof(e.kind), "%s", kind);
    if (d->ledger) {
        ledger_add_event(d->ledger, &e);
    }
}
