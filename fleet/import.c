/* SPDX-License-Identifier: Apache-2.0 */
/* Checks rows of other hosts (import.h). */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "fleet/import.h"
#include "proto/problem.h"
#include "proto/scan.h"

static const char CUSTOM[] = "custom:"; /* ops without kernels: rows of users of a single host */

bool import_read_uuid(const char *text, char out[HASH_HEX])
{
    size_t n = 0;
    for (; *text; text++) {
        if (*text != '-' && n < HASH_HEX - 1) {
            out[n++] = *text;
        } else if (*text != '-') {
            return false;
        }
    }
    out[n] = '\0';
    return hash_is_hex(out);
}

void import_clean_text(char *text)
{
    for (; *text; text++) {
        *text = *text >= ' ' && *text < 127 ? *text : '?';
    }
}

int import_decode(const struct schema *schema, const char *json, void *out, struct error *err)
{
    WIRE_BUF_AUTO packed = WIRE_BUF_NULL;
    const struct wire_obj *map = NULL;
    struct scan scan;
    size_t used;
    struct wire_doc *doc = wire_doc_new();
    int r = doc ? 0 : error_set(err, ERROR_NO_MEMORY, "no memory for a row of the fleet");
    r = r ? r : wire_from_json(&packed, json, err);
    if (r == 0) { /* bounds the depth, and so the memory of the decoder */
        scan_init(&scan, IMPORT_BYTES_MAX);
        r = scan_feed(&scan, packed.data, packed.len, &used, err);
    }
    r = r ? r : wire_decode(doc, packed.data, packed.len, &map, err);
    if (r == 0 && wire_type_of(map) != WIRE_MAP) {
        r = error_set(err, ERROR_INVALID, "it is no JSON object");
    }
    r = r ? r : schema_decode(schema, SCHEMA_LENIENT, map, out, err);
    wire_doc_free(doc);
    return r;
}

/* A number from 0 on, or unknown. */
static bool import_is_amount(double x)
{
    return isnan(x) || (isfinite(x) && x >= 0);
}

static bool import_is_time(double x)
{
    return isfinite(x) && x > 0;
}

static int import_check_numbers(struct best *b, struct error *err)
{
    const int64_t now = time(NULL);
    if (!import_is_time(b->time_us) || !import_is_time(b->reference_us)) {
        return error_set(err, ERROR_INVALID, "its times are not positive numbers");
    }
    if (!import_is_amount(b->spread) || !import_is_amount(b->flops) ||
        !import_is_amount(b->bytes) || !import_is_amount(b->floor_us) ||
        !import_is_amount(b->atol) || !import_is_amount(b->rtol) || b->measured < 0) {
        return error_set(err, ERROR_INVALID, "it has a number below 0, or an infinite number");
    }
    /* hosts' clocks differ */
    b->created_s = b->created_s < 0 ? 0 : b->created_s > now ? now : b->created_s;
    return 0;
}

static int import_check_key(const struct best *b, const char *key, struct error *err)
{
    struct problem bucket = {.op = NULL};
    struct key k;
    if (strcmp(b->key, key) != 0) {
        return error_set(err, ERROR_INVALID, "it is stored under another key");
    }
    snprintf(bucket.op_name, sizeof(bucket.op_name), "%s", b->op);
    record_copy(&bucket.fields, &b->problem);
    int r = key_make(&k, &bucket, b->class, err);
    if (r == 0) {
        key_id(&k);
        r = strcmp(k.id, key) == 0
                ? 0
                : error_set(err, ERROR_INVALID, "its key does not follow from its problem");
    }
    return r;
}

int import_read_row(const char *json, const char *key, struct best *out, struct error *err)
{
    if (strlen(json) > IMPORT_BYTES_MAX) {
        return error_set(err, ERROR_INVALID, "it has more than %d bytes", IMPORT_BYTES_MAX);
    }
    int r = import_decode(&best_schema, json, out, err);
    if (r) {
        return r == ERROR_NO_MEMORY ? r
                                    : error_set(err, ERROR_INVALID, "it is not of a row's form");
    }
    if (!out->family[0] || strncmp(out->op, CUSTOM, sizeof(CUSTOM) - 1) == 0) {
        return error_set(err, ERROR_INVALID, "its op has no kernels of gemmd");
    }
    if (out->config.n == 0 || record_format(&out->config, NULL, 0) >= CONFIG_TEXT_MAX) {
        return error_set(err, ERROR_INVALID, "its config is empty or too long");
    }
    if (!out->stamp[0] || !out->class[0]) {
        return error_set(err, ERROR_INVALID, "it has no stamp or no device class");
    }
    r = import_check_numbers(out, err);
    return r ? r : import_check_key(out, key, err);
}
