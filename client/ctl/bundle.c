/* SPDX-License-Identifier: Apache-2.0 */
/* gemmctl bundle: create and verify (bundle.h has the form of a bundle). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/ctl/bundle.h"
#include "proto/hash.h"

/* ---- create ---------------------------------------------------------------------------------- */

struct making {
    struct subject *s; /* borrowed */
    FILE *files;       /* the part of the archive behind the signature */
    json_t *manifest;  /* owned */
    int code;          /* of the first failure */
};

static void bundle_add(struct making *m, const char *name, const void *data, size_t size)
{
    char hash[SHA256_HEX];
    struct error e;
    if (m->code == DONE && signing_hash(data, size, hash, &e)) {
        m->code = ctl_failed("%s", e.text);
    } else if (m->code == DONE) {
        archive_add(m->files, name, data, size);
        json_array_append_new(
            json_object_get(m->manifest, "files"),
            json_pack("{ss, sI, ss}", "name", name, "size", (json_int_t)size, "sha256", hash));
    }
}

static void bundle_add_json(struct making *m, const char *name, const json_t *document)
{
    TEXT_AUTO *text = text_dump(document, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
    bundle_add(m, name, text, strlen(text));
}

static void bundle_add_trials(struct making *m, const json_t *rows)
{
    json_auto_t *all = json_array();
    ARRAY_EACH(row, rows) {
        json_t *key = json_object_get(row, "key");
        json_auto_t *trials =
            m->code ? NULL
                    : ctl_list(&m->s->ctl, "trials",
                               json_pack("{sO, ss}", "key", key, "sort", "id"), &m->code);
        json_array_extend(all, trials);
    }
    bundle_add_json(m, "trials.json", all);
}

static void bundle_add_module(struct making *m, const char *id)
{
    struct gemmd_error e;
    char name[ARCHIVE_NAME_MAX];
    void *image = NULL;
    size_t size;
    int r = gemmd_module(m->s->ctl.g, id, &image, &size, &e);
    if (r == GEMMD_NOT_FOUND) {
        text_remark("module %s is no longer in the cache, and is left out", id);
    } else if (r) {
        m->code = ctl_fail(&e);
    } else {
        snprintf(name, sizeof(name), "modules/%s", id);
        bundle_add(m, name, image, size);
    }
    gemmd_free(image);
}

static void bundle_add_modules(struct making *m, const json_t *rows)
{
    json_auto_t *done = json_object();
    ARRAY_EACH(row, rows) {
        const char *id = field_text(row, "module");
        if (m->code == DONE && hash_is_hex(id) && notice_count(done, id, 1) == 1) {
            bundle_add_module(m, id);
        }
    }
}

static json_t *bundle_list_stamps(const json_t *rows)
{
    json_auto_t *found = json_object();
    json_t *stamps = json_array();
    ARRAY_EACH(row, rows) {
        if (notice_count(found, field_text(row, "stamp"), 1) == 1) {
            json_array_append_new(stamps, json_string(field_text(row, "stamp")));
        }
    }
    return stamps;
}

/* Signs the manifest, and writes the whole bundle. */
static int bundle_write(struct making *m, const char *key, const char *path, const void *files,
                        size_t size)
{
    unsigned char signature[SIGNATURE_BYTES];
    char signer[SIGNER_HEX];
    size_t length;
    struct error e;
    TEXT_AUTO *whole = NULL, *text = text_dump(m->manifest, JSON_INDENT(1));
    if (signing_sign(key, text, strlen(text), signature, signer, &e)) {
        return ctl_failed("%s", e.text);
    }
    FILE *f = open_memstream(&whole, &length);
    bool made = f != NULL;
    if (f) {
        archive_add(f, "manifest.json", text, strlen(text));
        archive_add(f, "manifest.sig", signature, sizeof(signature));
        fwrite(files, 1, size, f);
        archive_end(f);
        made = !ferror(f);
        made = fclose(f) == 0 && made;
    }
    int code =
        made ? writing_save_bytes(path, whole, length) : ctl_failed("no memory for %s", path);
    if (code == DONE && !m->s->ctl.quiet) {
        fprintf(stderr, "generation %lld of signer %s, %lld rows written to %s\n",
                field_int(m->manifest, "generation"), signer, field_int(m->manifest, "rows"), path);
    }
    return code;
}

/* Signs some bytes: a wrong key fails before the trials of many keys are read. */
static int bundle_check_key(struct subject *s)
{
    unsigned char signature[SIGNATURE_BYTES];
    char signer[SIGNER_HEX];
    struct error e;
    return signing_sign(s->given[OWN_KEY_FILE], "", 0, signature, signer, &e)
               ? ctl_failed("%s", e.text)
               : DONE;
}

/* Takes over rows. */
static int bundle_make(struct subject *s, const char *path, const json_t *status, json_t *rows)
{
    TEXT_AUTO *files = NULL;
    size_t size;
    const char *note = s->given[OWN_NOTE];
    struct making m = {.s = s, .files = open_memstream(&files, &size)};
    m.manifest = json_pack(
        "{si, sO*, sI, sO*, sO*, sO*, ss, sI, so, s[]}", "gemmd_bundle", BUNDLE_VERSION,
        "generation", json_object_get(status, "generation"), "created_s", (json_int_t)time(NULL),
        "build", json_object_get(status, "build"), "device", json_object_get(status, "device"),
        "bucket_scheme", json_object_get(status, "bucket_scheme"), "note", note ? note : "", "rows",
        (json_int_t)json_array_size(rows), "stamps", bundle_list_stamps(rows), "files");
    m.code = m.files && m.manifest ? bundle_check_key(s) : ctl_failed("no memory");
    m.code = m.code ? m.code : custom_add_trials(&s->ctl, rows);
    json_auto_t *document = transfer_make_document(status, rows);
    bundle_add_json(&m, "rows.json", document);
    bundle_add_trials(&m, rows);
    if (s->given[OWN_MODULES]) {
        bundle_add_modules(&m, rows);
    }
    bool made = m.files && fclose(m.files) == 0;
    m.code = m.code || made ? m.code : ctl_failed("no memory for %s", path);
    m.code = m.code ? m.code : bundle_write(&m, s->given[OWN_KEY_FILE], path, files, size);
    json_decref(m.manifest);
    json_decref(rows);
    return m.code;
}

static int bundle_create(struct subject *s, const char *path)
{
    int code = ctl_connect(&s->ctl);
    /* The status comes first, so that rows saved between the two calls are in the bundle. */
    json_auto_t *status = code ? NULL : listing_status(s, &code);
    json_t *rows = status ? ctl_list(&s->ctl, "best", json_incref(s->filter), &code) : NULL;
    if (rows) {
        code = bundle_make(s, path, status, rows);
        code = code ? code
                    : unsaved_fail(status, unsaved_there(status), "this bundle", "make the bundle");
    }
    return code;
}

/* ---- open ------------------------------------------------------------------------------------ */

bool bundle_next(const struct bundle *b, struct archive *a, struct archive_file *out)
{
    *a = (struct archive){b->data, b->size, a->at};
    return archive_next(a, out, NULL) == 0;
}

/* Checks the signature of the first two files, and reads the manifest. */
static int bundle_read_manifest(struct bundle *b, const char *public_key, struct archive *a,
                                struct error *err)
{
    struct archive_file manifest, signature;
    json_error_t why;
    int r = archive_next(a, &manifest, err);
    if (r || strcmp(manifest.name, "manifest.json") != 0) {
        return error_set(err, ERROR_INVALID,
                         "it is no bundle of gemmctl, or its beginning is "
                         "damaged");
    }
    r = archive_next(a, &signature, err);
    if (r == 0 &&
        (strcmp(signature.name, "manifest.sig") != 0 || signature.size != SIGNATURE_BYTES)) {
        r = ARCHIVE_END;
    }
    if (r) {
        return r < 0 ? r : error_set(err, ERROR_INVALID, "it has no signature");
    }
    r = signing_verify(public_key, manifest.data, manifest.size, signature.data, b->signer, err);
    if (r) {
        return r;
    }
    b->manifest =
        json_loadb((const char *)manifest.data, manifest.size, JSON_REJECT_DUPLICATES, &why);
    const long long version = field_int(b->manifest, "gemmd_bundle");
    if (version != BUNDLE_VERSION) {
        return error_set(err, ERROR_INVALID,
                         "it is a bundle of version %lld, this gemmctl reads version %d", version,
                         BUNDLE_VERSION);
    }
    return 0;
}

/* Compares the next file of the archive with its entry in the manifest. */
static int bundle_check_file(struct archive *a, const json_t *entry, struct error *err)
{
    struct archive_file f;
    char hash[SHA256_HEX];
    const char *name = field_text(entry, "name");
    int r = archive_next(a, &f, err);
    if (r == 0 && strcmp(f.name, name) != 0) {
        r = error_set(err, ERROR_INVALID, "it has %s in the place of %s", f.name, name);
    } else if (r == ARCHIVE_END) {
        r = error_set(err, ERROR_INVALID, "%s is missing: it was cut short", name);
    }
    r = r ? r : signing_hash(f.data, f.size, hash, err);
    if (r == 0 && strcmp(hash, field_text(entry, "sha256")) != 0) {
        r = error_set(err, ERROR_INVALID, "%s is damaged: its SHA-256 is not that of the manifest",
                      name);
    }
    const char *id = strncmp(name, "modules/", 8) == 0 ? name + 8 : NULL;
    if (r == 0 && id) {
        hash128_hex(f.data, f.size, hash);
        if (strcmp(hash, id) != 0) {
            r = error_set(err, ERROR_INVALID,
                          "module %s has the content of module %s: the bundle was made wrong", id,
                          hash);
        }
    }
    return r;
}

static int bundle_check(struct bundle *b, const char *public_key, struct error *err)
{
    struct archive a = {b->data, b->size, 0};
    struct archive_file more;
    int r = bundle_read_manifest(b, public_key, &a, err);
    ARRAY_EACH(entry, json_object_get(b->manifest, "files")) {
        r = r ? r : bundle_check_file(&a, entry, err);
    }
    if (r) {
        return r;
    }
    r = archive_next(&a, &more, err);
    return r == ARCHIVE_END ? 0
           : r < 0          ? r
                   : error_set(err, ERROR_INVALID, "it has a file %s that the manifest lacks",
                               more.name);
}

int bundle_open(struct bundle *b, const char *path, const char *public_key)
{
    struct error e;
    *b = (struct bundle){.data = NULL};
    b->data = (unsigned char *)text_read_bytes(path, &b->size, &e);
    if (!b->data) {
        return ctl_failed("%s", e.text);
    }
    return bundle_check(b, public_key, &e) ? ctl_failed("%s: %s", path, e.text) : DONE;
}

void bundle_close(struct bundle *b)
{
    json_decref(b->manifest);
    free(b->data);
}

json_t *bundle_read_json(const struct bundle *b, const char *name)
{
    struct archive a = {.at = 0};
    struct archive_file f;
    json_error_t why = {.text = "there is no such file"};
    json_t *j = NULL;
    while (!j && bundle_next(b, &a, &f)) {
        if (strcmp(f.name, name) == 0) {
            j = json_loadb((const char *)f.data, f.size, JSON_REJECT_DUPLICATES, &why);
        }
    }
    if (!j) {
        ctl_failed("%s of the bundle cannot be read: %s", name, why.text);
    }
    return j;
}

/* ---- verify ---------------------------------------------------------------------------------- */

static size_t bundle_count_modules(const struct bundle *b)
{
    size_t n = 0;
    ARRAY_EACH(f, json_object_get(b->manifest, "files")) {
        n += strncmp(field_text(f, "name"), "modules/", 8) == 0;
    }
    return n;
}

static int bundle_show(struct subject *s, const struct bundle *b)
{
    static const struct column lines[] = {
        {"signer", "signer"},
        {"generation", "generation"},
        {"age", "created_s", show_age},
        {"note", "note"},
        {"build", "build"},
        {"device class", "device.class"},
        {"bucket scheme", "bucket_scheme"},
        {"rows", "rows"},
        {"modules", "modules"},
        {"stamps", "stamps", show_values},
    };
    json_object_set_new(b->manifest, "signer", json_string(b->signer));
    json_object_set_new(b->manifest, "modules", json_integer((json_int_t)bundle_count_modules(b)));
    if (s->ctl.json) {
        return ctl_print_json(json_incref(b->manifest));
    }
    for (size_t i = 0; i < COUNT(lines); i++) {
        (isatty(STDOUT_FILENO) ? table_print_folded : table_print_line)(&lines[i], b->manifest);
    }
    return DONE;
}

/* ---- the command ----------------------------------------------------------------------------- */

static int bundle_run_read(struct subject *s, const char *action, const char *path)
{
    struct bundle b;
    const char *key = s->given[OWN_PUBLIC_KEY];
    if (!key) {
        return ctl_usage("whose bundle may it be? give --public-key FILE, the signer's public key");
    }
    int code = bundle_open(&b, path, key);
    if (code == DONE) {
        code = strcmp(action, "verify") == 0 ? bundle_show(s, &b) : bundle_install(s, &b);
    }
    bundle_close(&b);
    return code;
}

/* Refuses options that the action ignores. */
static int bundle_check_options(const struct subject *s, const char *action)
{
    static const struct {
        const char *actions, *name;
        enum own_option option;
    } takes[] = {{"create", "key", OWN_KEY_FILE}, {"create", "modules", OWN_MODULES},
                 {"create", "note", OWN_NOTE},    {"verify,install", "public-key", OWN_PUBLIC_KEY},
                 {"install", "trust", OWN_TRUST}, {"install", "force", OWN_FORCE}};
    for (size_t i = 0; i < COUNT(takes); i++) {
        if (s->given[takes[i].option] && !list_has(takes[i].actions, action)) {
            return ctl_usage("--%s goes with bundle %s, not with %s", takes[i].name,
                             takes[i].actions, action);
        }
    }
    return json_object_size(s->filter) && strcmp(action, "create") != 0
               ? ctl_usage("--where, --sort, --top and --offset go with bundle create, not with %s",
                           action)
               : DONE;
}

static int bundle_run(struct subject *s)
{
    const char *action = s->paths[0];
    char hash[SHA256_HEX];
    struct error e;
    if (signing_hash("", 0, hash, &e)) { /* a build without libcrypto */
        return ctl_failed("%s", e.text);
    }
    if (!list_has("create,verify,install", action)) {
        return ctl_usage("bundle takes create, verify or install, and a file, not \"%s\"", action);
    }
    if (s->n_paths != 2) {
        return s->n_paths < 2 ? ctl_usage("which file? gemmctl bundle %s FILE", action)
                              : ctl_usage("\"%s\" is too much", s->paths[2]);
    }
    if (bundle_check_options(s, action)) {
        return USAGE;
    }
    if (strcmp(action, "create") != 0) {
        return bundle_run_read(s, action, s->paths[1]);
    }
    if (!s->given[OWN_KEY_FILE]) {
        return ctl_usage("a bundle is signed: give --key FILE, a private key (openssl genpkey "
                         "-algorithm ed25519 -out FILE)");
    }
    return bundle_create(s, s->paths[1]);
}

static const struct argp_option bundle_options[] = {
    {"key", OWN_KEY + OWN_KEY_FILE, "FILE", 0, "create: sign with this private key (Ed25519, PEM)",
     3},
    {"modules", OWN_KEY + OWN_MODULES, 0, 0, "create: with the compiled kernels of the rows", 3},
    {"note", OWN_KEY + OWN_NOTE, "TEXT", 0, "create: a text for people", 3},
    {"public-key", OWN_KEY + OWN_PUBLIC_KEY, "FILE", 0,
     "verify, install: the public key of the signer", 3},
    {"trust", OWN_KEY + OWN_TRUST, 0, 0,
     "install: the rows answer at once, marked as trusted, until they are measured here", 3},
    {"force", OWN_KEY + OWN_FORCE, 0, 0,
     "install: also a bundle that is older than the installed bundle of the signer", 3},
    {0},
};

const struct command command_bundle = {
    .name = "bundle",
    .help = "move results in a signed file",
    .run = bundle_run,
    .args_doc = "create|verify|install FILE",
    .doc =
        "create: writes the current answers, their trials and their stamps into a file, and "
        "signs it. verify: checks every byte and shows what the file has. install: verifies, and "
        "imports the rows as `gemmctl import` does; compiled kernels go into the daemon's cache "
        "directory when their row fits the kernels and the compiler of this host. Pins nothing.",
    .options = bundle_options,
    .parts = {&files_argp, &filter_argp, &ctl_argp},
};
