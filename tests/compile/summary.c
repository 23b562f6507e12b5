/* SPDX-License-Identifier: Apache-2.0 */
/* The table counts only variants of today's space, not results of earlier sources or rules. */
#include "tests/compile/summary.h"

#include <stdio.h>
#include <string.h>

enum { BINS = 5, REASONS_MAX = 16, EXAMPLES = 3 };
static const int64_t bin_end[BINS] = {0, 4, 8, 16, INT64_MAX};

struct row {
    uint32_t variants, done, ok, spilling[BINS];
    int64_t least_registers, most_registers, cubin;
    double seconds;
};

struct reason {
    char name[48];
    uint32_t n;
};

static void add_result(struct row *row, const struct result *r)
{
    row->done++;
    row->ok += r->outcome == OUTCOME_OK;
    row->seconds += r->seconds;
    row->cubin = r->cubin > row->cubin ? r->cubin : row->cubin;
    if (r->registers < 0) {
        return; /* not reported */
    }
    int bin = 0;
    while (r->spills > bin_end[bin]) {
        bin++;
    }
    row->spilling[bin]++;
    bool first = row->most_registers == 0;
    row->least_registers =
        first || r->registers < row->least_registers ? r->registers : row->least_registers;
    row->most_registers = r->registers > row->most_registers ? r->registers : row->most_registers;
}

/* Counts the variants of a kind, shared or not; NULL: of all kinds, each variant once. */
static struct row row_of(const struct kinds *k, const struct results *r, const struct kind *kind)
{
    struct row row = {0};
    uint32_t first = kind ? kind->first : 0, end = kind ? first + kind->n : k->n;
    for (uint32_t i = first; i < end; i++) {
        if (!kind && k->entries[i].again) {
            continue;
        }
        row.variants++;
        const struct result *found = results_find(r, k->entries[i].hash);
        if (found) {
            add_result(&row, found);
        }
    }
    return row;
}

static void print_row(const char *name, const struct row *r)
{
    printf("%-20s %8u %8u %8u %7u", name, r->variants, r->done, r->ok, r->done - r->ok);
    for (int i = 0; i < BINS; i++) {
        printf(" %6u", r->spilling[i]);
    }
    printf("   %3lld-%3lld %9.1f %6.3f %7lld\n", (long long)r->least_registers,
           (long long)r->most_registers, r->seconds, r->done ? r->seconds / r->done : 0,
           (long long)r->cubin);
}

/* ---- refusals ------------------------------------------------------------------------------- */

static struct reason *reason_of(struct reason all[], uint32_t *n, const char *name)
{
    for (uint32_t i = 0; i < *n; i++) {
        if (strcmp(all[i].name, name) == 0) {
            return &all[i];
        }
    }
    struct reason *r = &all[*n < REASONS_MAX ? (*n)++ : REASONS_MAX - 1];
    snprintf(r->name, sizeof(r->name), "%s", name);
    return r;
}

/* Prints the first refusals and failures of each reason, then the counts. Returns the total. */
static uint32_t print_refused(const struct kinds *k, const struct results *r)
{
    struct reason reasons[REASONS_MAX] = {0};
    uint32_t n = 0, all = 0;
    for (uint32_t i = 0; i < k->n; i++) {
        const struct entry *e = &k->entries[i];
        const struct result *found = results_find(r, e->hash);
        if (!found || e->again || found->outcome == OUTCOME_OK) {
            continue;
        }
        all++;
        struct reason *reason = reason_of(reasons, &n, found->reason);
        if (reason->n++ < EXAMPLES) {
            printf("%s: %s: %lld registers, %lld bytes spilled: %s\n", found->reason,
                   k->kinds[e->kind].name, (long long)found->registers, (long long)found->spills,
                   e->config);
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        printf("refused for %s: %u\n", reasons[i].name, reasons[i].n);
    }
    return all;
}

uint32_t summary_print(const struct kinds *k, const struct results *r)
{
    struct row all = row_of(k, r, NULL);
    printf("%-20s %8s %8s %8s %7s %6s %6s %6s %6s %6s   %7s %9s %6s %7s\n", "kind", "variants",
           "compiled", "ok", "refused", "spill0", "<=4", "<=8", "<=16", "more", "regs", "core-s",
           "each", "cubin");
    for (uint32_t i = 0; i < k->n_kinds; i++) {
        struct row row = row_of(k, r, &k->kinds[i]);
        print_row(k->kinds[i].name, &row);
    }
    print_row("all", &all);
    return print_refused(k, r);
}
