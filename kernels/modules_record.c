/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The report on a variant beside its image: one small file each, <cache>/records/<variant>. The
 * file is the hash of the rest in hex, a newline, and the rest: two MessagePack maps. The first has
 * the fields below, the second the database's row of a module (proto/message.h).
 *
 * A refusal is a verdict of the compiler and of gemmd's own rules about spills, so it holds only
 * for the build that wrote the record.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "kernels/modules_inner.h"
#include "proto/build.h"
#include "proto/hash.h"
#include "proto/scan.h"

#define ABOUT_FIELDS(X, T)                                                                         \
    X(T, INT, code, 0) /* 0: an image; else the error code of the refusal */                       \
    X(T, TEXT, text, ERROR_TEXT_MAX)                                                               \
    X(T, TEXT, build, 64)                                                                          \
    X(T, TEXT, suffix, 16)                                                                         \
    X(T, TEXT, log, sizeof(((struct image *)0)->log))
SCHEMA_STRUCT(about, ABOUT_FIELDS);
SCHEMA_DEFINE(about, ABOUT_FIELDS);

enum { HEAD = HASH_HEX }; /* 32 digits and the newline */

static int write_packed(const char *path, struct wire_buf *packed, struct error *err)
{
    char head[HASH_HEX];
    WIRE_BUF_AUTO file = WIRE_BUF_NULL;
    hash128_hex(packed->data, packed->len, head);
    head[HEAD - 1] = '\n';
    wire_put_raw(&file, head, HEAD);
    wire_put_raw(&file, packed->data, packed->len);
    return packed->failed || file.failed
               ? error_set(err, ERROR_NO_MEMORY, "no memory for a module's record")
               : modules_write(path, file.data, file.len, err);
}

int record_write(const char *cache_dir, const struct image *image, const char *suffix,
                 const struct error *why, struct error *err)
{
    char folder[PATH_MAX], path[PATH_MAX];
    struct about about = {.code = why ? why->code : 0};
    WIRE_BUF_AUTO packed = WIRE_BUF_NULL;
    snprintf(about.text, sizeof(about.text), "%s", why ? why->text : "");
    snprintf(about.build, sizeof(about.build), "%s", build_id);
    snprintf(about.suffix, sizeof(about.suffix), "%s", suffix);
    snprintf(about.log, sizeof(about.log), "%s", image->log);
    wire_put_array(&packed, 2);
    schema_encode(&packed, &about_schema, &about);
    schema_encode(&packed, &module_schema, &image->meta);
    int r = modules_folder(cache_dir, "records", true, folder, err);
    r = r ? r : modules_path(path, err, "%s/%s", folder, image->meta.variant);
    return r ? r : write_packed(path, &packed, err);
}

/* ---- reading -------------------------------------------------------------------------------- */

static bool modules_unpack_about(const struct wire_obj *all, const char *variant,
                                 struct about *about, struct module *meta)
{
    return wire_count(all) == 2 &&
           schema_decode(&about_schema, SCHEMA_LENIENT, wire_at(all, 0), about, NULL) == 0 &&
           schema_decode(&module_schema, SCHEMA_LENIENT, wire_at(all, 1), meta, NULL) == 0 &&
           strcmp(meta->variant, variant) == 0;
}

static bool is_whole(const struct image *file)
{
    char head[HASH_HEX];
    if (file->size <= HEAD) {
        return false;
    }
    hash128_hex((const char *)file->data + HEAD, file->size - HEAD, head);
    head[HEAD - 1] = '\n';
    return memcmp(file->data, head, HEAD) == 0;
}

/* True when decoding the data cannot take much memory: five bytes could make msgpack-c allocate
 * gigabytes. The record's hash detects damage, not malice. */
static bool is_bounded(const void *data, size_t n)
{
    struct scan s;
    size_t used = 0;
    scan_init(&s, n);
    return scan_feed(&s, data, n, &used, NULL) == SCAN_DONE && used == n;
}

/* False: not a valid record of this variant. */
static bool modules_decode_record(const struct image *file, const char *variant,
                                  struct about *about, struct module *meta)
{
    const struct wire_obj *all;
    const char *packed = (const char *)file->data + HEAD;
    size_t n = file->size - HEAD;
    struct wire_doc *doc = is_whole(file) && is_bounded(packed, n) ? wire_doc_new() : NULL;
    bool good = doc && wire_decode(doc, packed, n, &all, NULL) == 0 &&
                modules_unpack_about(all, variant, about, meta);
    wire_doc_free(doc);
    return good;
}

static int modules_judge_about(const struct about *a, struct error *err)
{
    if (a->code == 0) {
        return 0;
    }
    if (strcmp(a->build, build_id) != 0) {
        return MODULES_MISS;
    }
    error_set(err, (int)a->code, "%s", a->text);
    return MODULES_REFUSED;
}

int record_read(const char *cache_dir, const char *variant, struct image *out, char suffix[16],
                struct error *err)
{
    char path[PATH_MAX];
    struct image file = {0};
    int r = modules_file(cache_dir, "records", variant, path, err);
    r = r ? r : modules_read_file(path, &file, err);
    if (r) {
        return r;
    }
    struct about *a = calloc(1, sizeof(*a));
    bool good = a && modules_decode_record(&file, variant, a, &out->meta);
    r = good ? modules_judge_about(a, err) : MODULES_MISS;
    if (a && !good) {
        modules_damaged(path);
    }
    if (r == MODULES_MISS && a) {
        modules_forget(cache_dir, variant);
    } else if (a) {
        snprintf(out->log, sizeof(out->log), "%s", a->log);
        snprintf(suffix, 16, "%s", a->suffix);
    }
    if (r == MODULES_REFUSED) { /* updates the record's mtime, its last use, as for an image */
        utimensat(AT_FDCWD, path, NULL, 0);
    }
    free(a);
    image_deinit(&file);
    return r;
}
