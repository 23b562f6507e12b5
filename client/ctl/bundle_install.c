/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemmctl bundle install. The daemon keeps the generation of each installed bundle as an event of
 * kind "bundle", "<signer> generation <N>: ...": so an older bundle of the same signer is known.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/ctl/bundle.h"
#include "proto/hash.h"
#include "proto/paths.h"

/* ---- generations ----------------------------------------------------------------------------- */

static int bundle_check_age(struct subject *s, const struct bundle *b)
{
    int code = DONE;
    long long newest = -1, n;
    const long long own = field_int(b->manifest, "generation");
    char signer[SIGNER_HEX];
    json_auto_t *events = ctl_list(&s->ctl, "events", json_pack("{ss}", "kind", "bundle"), &code);
    ARRAY_EACH(event, events) {
        if (sscanf(field_text(event, "text"), "%16s generation %lld", signer, &n) == 2 &&
            strcmp(signer, b->signer) == 0) {
            newest = n > newest ? n : newest;
        }
    }
    if (code == DONE && own < newest && !s->given[OWN_FORCE]) {
        code =
            ctl_failed("the bundle is of generation %lld, and generation %lld of the same signer "
                       "is installed: --force installs the older bundle",
                       own, newest);
    }
    return code;
}

static void bundle_note_installed(struct subject *s, const struct bundle *b, const json_t *total)
{
    int code;
    json_t *params =
        json_pack("{s[], so}", "rows", "bundle",
                  json_sprintf("%s generation %lld: %lld rows", b->signer,
                               field_int(b->manifest, "generation"), field_int(total, "imported")));
    json_decref(ctl_call(&s->ctl, "import", params, &code));
}

/* ---- modules --------------------------------------------------------------------------------- */

/* The suffix of an image's file in the cache directory (kernels/modules.h). */
static const char *bundle_module_suffix(const unsigned char *image, size_t size)
{
    enum { MACHINE_AT = 18, EM_CUDA = 190 };
    const bool elf = size > MACHINE_AT && memcmp(image, "\177ELF", 4) == 0;
    return !elf ? "replay" : image[MACHINE_AT] == EM_CUDA ? "cubin" : "so";
}

/* True when a row of this database names the module and has today's stamp. */
static bool bundle_module_fits(struct subject *s, const char *id)
{
    int code = DONE;
    struct gemmd_error e;
    json_auto_t *rows =
        ctl_list(&s->ctl, "best", json_pack("{ss, si}", "module", id, "limit", 1), &code);
    json_t *row = json_array_get(rows, 0);
    json_auto_t *why = row ? ctl_try_call(&s->ctl, "why",
                                          json_pack("{sO}", "key", json_object_get(row, "key")), &e)
                           : NULL;
    return why && field_is_true(why, "stamp.fits") &&
           field_is(why, "stamp.row", field_text(row, "stamp"));
}

/* Writes an image into the folder, unless it is there. The file belongs to the folder's owner, as
 * if the daemon had written it. */
static int bundle_write_module(const char *folder, const char *id, const struct archive_file *f)
{
    char path[PATHS_MAX], part[PATHS_MAX + 32];
    struct stat st;
    const char *suffix = bundle_module_suffix(f->data, f->size);
    if (snprintf(path, sizeof(path), "%s/%s.%s", folder, id, suffix) >= PATHS_MAX) {
        return ctl_failed("the path of the cache directory is too long");
    }
    if (stat(path, &st) == 0 && (size_t)st.st_size == f->size) {
        return DONE;
    }
    snprintf(part, sizeof(part), "%s.%d.part", path, (int)getpid());
    unlink(part);
    FILE *out = fopen(part, "wex");
    bool failed = !out || stat(folder, &st) || fwrite(f->data, 1, f->size, out) != f->size;
    failed = failed || (geteuid() == 0 && fchown(fileno(out), st.st_uid, st.st_gid));
    failed = failed || fflush(out) || fsync(fileno(out));
    failed = (out && fclose(out)) || failed || rename(part, path);
    if (failed) {
        const int why = errno;
        unlink(part);
        return ctl_failed("cannot write %s: %s", path, strerror(why));
    }
    return DONE;
}

static int bundle_make_folder(const char *cache, char out[PATHS_MAX])
{
    struct stat st;
    if (stat(cache, &st) || snprintf(out, PATHS_MAX, "%s/modules", cache) >= PATHS_MAX) {
        return ctl_failed("the daemon's cache directory %s cannot be seen from here", cache);
    }
    if (mkdir(out, 0755) == 0 && geteuid() == 0 && chown(out, st.st_uid, st.st_gid)) {
        return ctl_failed("cannot make %s: %s", out, strerror(errno));
    }
    return DONE;
}

/* Counts the modules that are in the cache directory now. */
static int bundle_install_modules(struct subject *s, const struct bundle *b, const json_t *status,
                                  long long *n)
{
    char folder[PATHS_MAX];
    struct archive a = {.at = 0};
    struct archive_file f;
    int code = DONE;
    while (code == DONE && bundle_next(b, &a, &f)) {
        const char *id = strncmp(f.name, "modules/", 8) == 0 ? f.name + 8 : "";
        if (!hash_is_hex(id) || !bundle_module_fits(s, id)) {
            continue;
        }
        code = bundle_make_folder(field_text(status, "cache.path"), folder);
        code = code ? code : bundle_write_module(folder, id, &f);
        *n += code == DONE;
    }
    return code;
}

/* ---- the whole ------------------------------------------------------------------------------- */

int bundle_install(struct subject *s, const struct bundle *b)
{
    long long modules = 0;
    json_auto_t *document = bundle_read_json(b, "rows.json");
    int code = document ? ctl_connect(&s->ctl) : FAILED;
    code = code ? code : bundle_check_age(s, b);
    json_auto_t *status = code ? NULL : unsaved_status(&s->ctl);
    json_t *total = json_pack("{si, s[]}", "imported", 0, "skipped");
    code =
        code ? code
             : import_rows(&s->ctl, json_object_get(document, "rows"), s->given[OWN_TRUST], total);
    if (code == DONE) {
        bundle_note_installed(s, b, total);
    }
    /* The rows answer also when a kernel cannot be written: gemmd compiles the kernel again. */
    const int kernels = code ? code : bundle_install_modules(s, b, status, &modules);
    json_object_set_new(total, "modules", json_integer(modules));
    json_object_set_new(total, "error", ctl_error()); /* NULL is not set */
    code = transfer_print_import(&s->ctl, total, code);
    return code ? code : kernels;
}
