/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading landscapes (the format is in replay.h) and looking things up in them. Each line is JSON,
 * taken through MessagePack by proto/, so that there is one reader of maps.
 *
 * A recorded failure of a compile or a load belongs to a variant, since that is all that is known
 * when it happens: its hash is computed here, by the target that the config is of.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/devices/replay/reader.h"
#include "proto/hash.h"

enum { TEXT_MAX = 4096 };

int reader_grow(void *array, uint32_t n, uint32_t *room, size_t size, struct error *err)
{
    if (n < *room) {
        return 0;
    }
    uint32_t more = *room ? *room * 2 : 64;
    void **at = array;
    void *moved = realloc(*at, more * size);
    if (!moved) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a landscape");
    }
    *at = moved;
    *room = more;
    return 0;
}

uint64_t replay_config_hash(const struct record *config)
{
    char text[TEXT_MAX];
    size_t n = record_format(config, text, sizeof(text));
    return hash64(text, n < sizeof(text) ? n : sizeof(text) - 1);
}

uint64_t replay_variant_hash(const struct variant *v)
{
    char text[OPTIONS_MAX + 128];
    int n = snprintf(text, sizeof(text), "%s %s %s %s", v->family, v->entry, v->arch, v->options);
    uint64_t hash = hash64(text, (size_t)n);
    return hash ? hash : 1;
}

/* ---- lines ----------------------------------------------------------------------------------- */

static int read_header(struct reader *r, const struct wire_obj *line, struct error *err)
{
    struct landscape *l = r->l;
    int64_t version = 0;
    if (!wire_get_int(wire_find(line, "gemmd_landscape"), &version) || (version != 1 && version != 2)) {
        return error_set(err, ERROR_INVALID, "the first line must hold \"gemmd_landscape\": 1 or 2");
    }
    int status =
        schema_decode(&device_info_schema, SCHEMA_STRICT, wire_find(line, "device"), &l->info, err);
    if (status) {
        return error_prefix(err, "device");
    }
    if (strcmp(l->info.kind, "cuda") != 0 && strcmp(l->info.kind, "cpu") != 0) {
        return error_set(err, ERROR_INVALID, "device: kind is \"%s\", not cuda or cpu",
                         l->info.kind);
    }
    wire_copy_str(wire_find(line, "note"), l->note, sizeof(l->note));
    wire_get_real(wire_find(line, "compile_ms"), &l->compile_ms);
    return 0;
}

static int read_problem(struct reader *r, const struct wire_obj *line, struct error *err)
{
    struct landscape *l = r->l;
    const struct wire_obj *given = wire_find(line, "problem");
    uint32_t room = l->room_problems;
    int status = table_end(r, err);
    status = status ? status : reader_grow(&l->problems, l->n_problems, &room, sizeof(*l->problems), err);
    status = status ? status
                    : reader_grow(&l->problem, l->n_problems, &l->room_problems, sizeof(*l->problem), err);
    char text[TEXT_MAX];
    struct problem *p = status ? NULL : &l->problem[l->n_problems];
    if (p && wire_type_of(given) == WIRE_STR) {
        status = wire_copy_str(given, text, sizeof(text))
                     ? problem_parse(p, text, err)
                     : error_set(err, ERROR_INVALID, "the problem's text is too long");
    } else if (p) {
        status = problem_unpack(p, given, err);
    }
    if (status) {
        return status;
    }
    problem_format(p, l->problems[l->n_problems++], sizeof(*l->problems));
    return table_begin(r, line, err);
}

static int read_config(const struct wire_obj *given, struct record *config, struct error *err)
{
    char text[TEXT_MAX];
    if (wire_type_of(given) != WIRE_STR) {
        return record_unpack(config, given, err);
    }
    if (!wire_copy_str(given, text, sizeof(text))) {
        return error_set(err, ERROR_INVALID, "the config's text is too long");
    }
    return record_parse(config, text, err);
}

int reader_sample(struct landscape *l, double us, struct error *err)
{
    int r = reader_grow(&l->samples, l->n_samples, &l->room_samples, sizeof(*l->samples), err);
    if (r == 0) {
        l->samples[l->n_samples++] = us;
    }
    return r;
}

static int read_samples(struct landscape *l, struct landscape_entry *e,
                        const struct wire_obj *samples, struct error *err)
{
    e->first = l->n_samples;
    e->n = (uint32_t)wire_count(samples);
    for (uint32_t i = 0; i < e->n; i++) {
        double us;
        if (!wire_get_real(wire_at(samples, i), &us) || !(us > 0)) {
            return error_set(err, ERROR_INVALID, "samples_us: element %u is no time", i);
        }
        int r = reader_sample(l, us, err);
        if (r) {
            return r;
        }
    }
    if (e->n == 0) {
        return error_set(err, ERROR_INVALID, "samples_us must hold at least one time");
    }
    e->us = l->samples[e->first];
    return 0;
}

uint64_t reader_variant(const struct landscape *l, const struct problem *p,
                        const struct record *config)
{
    const struct family *f = family_of_problem(p);
    const struct family_target *t = NULL;
    struct rejection why;
    struct variant v;
    if (f) {
        t = family_target_of_config(f, p, &l->info, config, &why);
    }
    if (f && !t) { /* recorded under other rules: what it would have been then */
        family_target_choose(f, p, &l->info, NULL, &t, NULL);
    }
    return t && t->variant(p, config, l->info.arch, &v, NULL) == 0 ? replay_variant_hash(&v) : 0;
}

int reader_failure(struct rejection *why, const struct wire_obj *line, struct error *err)
{
    char status[24] = "";
    *why = (struct rejection){0};
    wire_copy_str(wire_find(line, "status"), status, sizeof(status));
    why->code = error_code_of(status);
    if (strcmp(error_name(why->code), status) != 0 || why->code == ERROR_NOT_FOUND) {
        return error_set(err, ERROR_INVALID, "unknown status \"%s\"", status);
    }
    if (!wire_copy_str(wire_find(line, "reason"), why->text, sizeof(why->text))) {
        snprintf(why->text, sizeof(why->text), "recorded as %s, without a reason", status);
    }
    wire_copy_str(wire_find(line, "resource"), why->resource, sizeof(why->resource));
    snprintf(why->rule, sizeof(why->rule), "%s", why->resource[0] ? why->resource : status);
    wire_get_int(wire_find(line, "required"), &why->required);
    wire_get_int(wire_find(line, "limit"), &why->limit);
    return 0;
}

struct landscape_entry *reader_entry(struct landscape *l, const struct record *config,
                                     struct error *err)
{
    if (reader_grow(&l->entries, l->n_entries, &l->room_entries, sizeof(*l->entries), err)) {
        return NULL;
    }
    struct landscape_entry *e = &l->entries[l->n_entries++];
    *e = (struct landscape_entry){.problem = l->n_problems - 1,
                                  .config = replay_config_hash(config)};
    return e;
}

static int read_entry(struct reader *r, const struct wire_obj *line, struct error *err)
{
    struct landscape *l = r->l;
    struct record config;
    if (l->n_problems == 0) {
        return error_set(err, ERROR_INVALID, "a config must stand below its problem");
    }
    int s = read_config(wire_find(line, "config"), &config, err);
    struct landscape_entry *e = s ? NULL : reader_entry(l, &config, err);
    if (!e) {
        return s ? s : ERROR_NO_MEMORY;
    }
    const struct wire_obj *status = wire_find(line, "status");
    if (!status || wire_is_str(status, "ok") || wire_is_str(status, "aborted")) {
        return read_samples(l, e, wire_find(line, "samples_us"), err);
    }
    s = reader_failure(&e->why, line, err);
    e->status = e->why.code;
    e->variant = s ? 0 : reader_variant(l, &l->problem[e->problem], &config);
    return s;
}

static int read_synthetic(struct landscape *l, const struct wire_obj *given, struct error *err)
{
    int64_t seed = 0;
    l->synthetic = true;
    l->noise = 0.01;
    l->spread = 0.15;
    wire_get_int(wire_find(given, "seed"), &seed);
    wire_get_real(wire_find(given, "noise"), &l->noise);
    wire_get_real(wire_find(given, "spread"), &l->spread);
    wire_get_real(wire_find(given, "effects"), &l->effects);
    l->seed = (uint64_t)seed;
    if (!(l->noise >= 0 && l->noise < 1 && l->spread >= 0 && l->spread < 2 && l->effects >= 0 &&
          l->effects < 2)) {
        return error_set(err, ERROR_INVALID,
                         "synthetic: noise from 0 to 1, spread and effects from 0 to 2");
    }
    return 0;
}

static int read_fault(struct landscape *l, const struct wire_obj *line, struct error *err)
{
    int r = reader_grow(&l->faults, l->n_faults, &l->room_faults, sizeof(*l->faults), err);
    r = r ? r : fault_read(&l->faults[l->n_faults], line, err);
    l->n_faults += r == 0;
    return r;
}

static int read_object(struct reader *r, const struct wire_obj *line, struct error *err)
{
    if (wire_find(line, "fault")) {
        return read_fault(r->l, line, err);
    }
    if (r->faults_only) {
        return error_set(err, ERROR_INVALID, "only faults may stand here");
    }
    if (!r->l->info.kind[0]) {
        return read_header(r, line, err);
    }
    if (wire_find(line, "problem")) {
        return read_problem(r, line, err);
    }
    int status = table_read(r, line, err);
    if (status != TABLE_NONE) {
        return status;
    }
    if (wire_find(line, "config")) {
        return read_entry(r, line, err);
    }
    if (wire_find(line, "synthetic")) {
        return read_synthetic(r->l, wire_find(line, "synthetic"), err);
    }
    return error_set(err, ERROR_INVALID, "a line must hold problem, config, synthetic or fault");
}

static int read_line(struct reader *r, const char *text, struct error *err)
{
    const struct wire_obj *line;
    wire_buf_clear(&r->buf);
    int status = wire_from_json(&r->buf, text, err);
    status = status ? status : wire_decode(r->doc, r->buf.data, r->buf.len, &line, err);
    status = status ? status : read_object(r, line, err);
    return status ? error_prefix(err, "%s line %u", r->path, r->line) : 0;
}

/* ---- files ----------------------------------------------------------------------------------- */

static int read_lines(struct reader *r, FILE *f, struct error *err)
{
    char *text = NULL;
    size_t room = 0;
    int status = 0;
    while (status == 0 && getline(&text, &room, f) > 0) {
        r->line++;
        const char *at = text + strspn(text, " \t\r\n");
        if (*at && *at != '#') {
            status = read_line(r, at, err);
        }
    }
    free(text);
    return status;
}

static int read_file(struct landscape *l, const char *path, bool faults_only, struct error *err)
{
    struct reader r = {.l = l, .path = path, .faults_only = faults_only, .doc = wire_doc_new()};
    FILE *f = fopen(path, "re");
    int status;
    if (!f) {
        status = error_set(err, ERROR_NO_DEVICE, "cannot read the landscape %s: %s", path,
                           strerror(errno));
    } else {
        status = r.doc ? read_lines(&r, f, err)
                       : error_set(err, ERROR_NO_MEMORY, "no memory for a landscape");
        fclose(f);
    }
    struct error ignored = ERROR_NULL;
    int ended = table_end(&r, status ? &ignored : err);
    status = status ? status : ended;
    if (status == 0 && !l->info.kind[0]) {
        status = error_set(err, ERROR_INVALID, "%s is empty: it is no landscape", path);
    }
    wire_buf_deinit(&r.buf);
    wire_doc_free(r.doc);
    return status;
}

/* What tells a replayed device from a real one. */
static void mark(struct landscape *l, const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    int n = (int)strcspn(name, ".");
    struct device_info recorded = l->info;
    snprintf(l->info.uuid, sizeof(l->info.uuid), "replay-%.*s", n < 48 ? n : 48, name);
    for (char *c = l->info.uuid; *c; c++) {
        *c = strchr(" /\\\"'", *c) ? '_' : *c;
    }
    snprintf(l->info.compiler, sizeof(l->info.compiler), "replay %.80s", recorded.compiler);
    device_class_format(&recorded);
    snprintf(l->info.class, sizeof(l->info.class), "replay:%.184s", recorded.class);
}

static int compare(const void *a, const void *b)
{
    const struct landscape_entry *x = a, *y = b;
    if (x->problem != y->problem) {
        return x->problem < y->problem ? -1 : 1;
    }
    return (x->config > y->config) - (x->config < y->config);
}

static int compare_variants(const void *a, const void *b)
{
    const struct landscape_variant *x = a, *y = b;
    return (x->hash > y->hash) - (x->hash < y->hash);
}

static int sort(struct landscape *l, struct error *err)
{
    if (l->n_entries > 0) {
        qsort(l->entries, l->n_entries, sizeof(*l->entries), compare);
    }
    if (l->n_variants > 0) {
        qsort(l->variants, l->n_variants, sizeof(*l->variants), compare_variants);
    }
    l->failed = malloc((l->n_entries + 1) * sizeof(*l->failed));
    l->often = malloc((l->n_entries + 1) * sizeof(*l->often));
    if (!l->failed || !l->often) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a landscape");
    }
    for (uint32_t i = 0; i < l->n_entries; i++) {
        if (l->entries[i].variant) {
            l->failed[l->n_failed++] = i;
        }
        if (l->entries[i].each && l->entries[i].n) {
            l->often[l->n_often++] = i;
        }
    }
    return 0;
}

int landscape_load(const char *spec, struct landscape **out, struct error *err)
{
    const char *path = strchr(spec, ':');
    const char *overlay = getenv("GEMMD_REPLAY_FAULTS");
    *out = NULL;
    if (!path || !path[1]) {
        return error_set(err, ERROR_INVALID, "device \"%s\": name a landscape, replay:<file>",
                         spec);
    }
    struct landscape *l = calloc(1, sizeof(*l));
    if (!l) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a landscape");
    }
    int r = read_file(l, ++path, false, err);
    if (r == 0 && overlay && overlay[0]) {
        r = read_file(l, overlay, true, err);
    }
    if (r) {
        landscape_free(l);
        return r;
    }
    mark(l, path);
    r = sort(l, err);
    if (r) {
        landscape_free(l);
        return r;
    }
    *out = l;
    return 0;
}

struct landscape *landscape_free(struct landscape *l)
{
    if (l) {
        free(l->problems);
        free(l->problem);
        free(l->entries);
        free(l->failed);
        free(l->often);
        free(l->samples);
        free(l->variants);
        free(l->turns);
        free(l->faults);
        free(l);
    }
    return NULL;
}

/* ---- looking up ------------------------------------------------------------------------------ */

int landscape_problem(const struct landscape *l, const struct problem *p, uint32_t *out,
                      struct error *err)
{
    char text[sizeof(*l->problems)];
    problem_format(p, text, sizeof(text));
    for (*out = 0; *out < l->n_problems; ++*out) {
        if (strcmp(l->problems[*out], text) == 0) {
            return 0;
        }
    }
    if (l->synthetic) {
        return 0;
    }
    char first[200] = "nothing";
    if (l->n_problems) {
        snprintf(first, sizeof(first), "%s", l->problems[0]);
    }
    return error_set(err, ERROR_NOT_FOUND, "the landscape has no %.180s; it has %s%s", text, first,
                     l->n_problems > 1 ? " and others" : "");
}

const struct landscape_entry *landscape_entry(const struct landscape *l, uint32_t problem,
                                              const struct record *config)
{
    struct landscape_entry key = {.problem = problem, .config = replay_config_hash(config)};
    return l->n_entries ? bsearch(&key, l->entries, l->n_entries, sizeof(*l->entries), compare)
                        : NULL;
}

const struct landscape_entry *landscape_failure(const struct landscape *l, uint64_t variant,
                                                int status)
{
    for (uint32_t i = 0; i < l->n_failed; i++) {
        const struct landscape_entry *e = &l->entries[l->failed[i]];
        if (e->variant == variant && e->status == status) {
            return e;
        }
    }
    return NULL;
}

double landscape_compile_ms(const struct landscape *l, uint64_t variant)
{
    const struct landscape_variant key = {.hash = variant};
    const struct landscape_variant *v =
        l->n_variants ? bsearch(&key, l->variants, l->n_variants, sizeof(key), compare_variants)
                      : NULL;
    if (v || l->compile_ms > 0 || l->n_variants == 0) {
        return v ? v->compile_ms : l->compile_ms;
    }
    double sum = 0; /* of one that was not recorded: as most */
    for (uint32_t i = 0; i < l->n_variants; i++) {
        sum += l->variants[i].compile_ms;
    }
    return sum / l->n_variants;
}
