/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the bucket scheme of the database, or records it in a new database (target.h). */
#include <string.h>

#include "daemon/answers/target.h"

static const char KIND[] = "bucket_scheme";
static void (*settled)(struct daemon *d, int status, const struct error *err);

static int scheme_check_agreement(struct daemon *d, const char *stored, struct error *err)
{
    const char *asked = d->config->bucket;
    if (asked[0] && stored[0] && strcmp(asked, stored) != 0) {
        return error_set(
            err, ERROR_INVALID,
            "the keys of %s were rounded by bucket scheme %s, but the setting `bucket` is %s (see "
            "gemmd --print-config): drop it, or give --database another file",
            d->database, stored, asked);
    }
    const char *name = stored[0] ? stored : asked[0] ? asked : "sqrt2";
    int status = bucket_scheme_parse(name, &d->scheme, err);
    if (status == 0 && !stored[0]) {
        daemon_event(d, KIND, 0, "%s", name);
    }
    return status;
}

static void on_events(void *ctx, int status, const void *rows, size_t n, int64_t total,
                      const struct error *err)
{
    struct daemon *d = ctx;
    struct error local = ERROR_NULL;
    const struct wire_obj *array = NULL;
    char stored[16] = "";
    if (status == 0) {
        err = &local;
        status = wire_decode(d->doc, rows, n, &array, &local);
    }
    if (status == 0) {
        if (wire_count(array)) {
            wire_copy_str(wire_find(wire_at(array, 0), "text"), stored, sizeof(stored));
        }
        status = scheme_check_agreement(d, stored, &local);
    }
    settled(d, status, err);
}

int scheme_settle(struct daemon *d,
                  void (*done)(struct daemon *d, int status, const struct error *err),
                  struct error *err)
{
    struct record *filter = &d->scratch->config;
    settled = done;
    record_init(filter);
    record_put_text(filter, "kind", KIND);
    record_put_text(filter, "sort", "id");
    record_put_int(filter, "limit", 1);
    int status = ledger_list(d->ledger, LEDGER_OURS, "events", filter, 4096, on_events, d);
    return status < 0 ? error_set(err, ERROR_STORE, "the database %s cannot be read", d->database)
                      : 0;
}
