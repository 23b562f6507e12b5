/* SPDX-License-Identifier: Apache-2.0 */
/* Reads landscapes (replay.h has the format). proto/ converts each JSON line to MessagePack, so
 * that one reader of maps is enough. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/devices/replay/reader.h"

enum { TEXT_MAX = 4096 };

/* ---- lines ----------------------------------------------------------------------------------- */

static int landscape_read_header(struct reader *r, const struct wire_obj *line, struct error *err)
{
    struct landscape *l = r->l;
    int64_t version = 0;
    if (!wire_get_int(wire_find(line, "gemmd_landscape"), &version) ||
        (version != 1 && version != 2)) {
        return error_set(err, ERROR_INVALID,
                         "the first line must hold \"gemmd_landscape\": 1 or 2");
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
    wire_get_real(wire_find(line, "compile_ms"), &l->compile_ms);
    return 0;
}

static int read_problem(struct reader *r, const struct wire_obj *line, struct error *err)
{
    struct landscape *l = r->l;
    const struct wire_obj *given = wire_find(line, "problem");
    char text[TEXT_MAX];
    int status = table_end(r, err);
    status = status ? status : reader_grow(&l->problems, l->n_problems, sizeof(*l->problems), err);
    if (status) {
        return status;
    }
    struct landscape_problem *p = &l->problems[l->n_problems];
    *p = (struct landscape_problem){.first_turn = l->n_turns};
    record_init(&p->reference);
    if (wire_type_of(given) != WIRE_STR) {
        status = problem_unpack(&p->problem, given, err);
    } else if (wire_copy_str(given, text, sizeof(text))) {
        status = problem_parse(&p->problem, text, err);
    } else {
        status = error_set(err, ERROR_INVALID, "the problem's text is too long");
    }
    l->n_problems += status == 0;
    return status ? status : table_begin(r, line, err);
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

static int read_entry(struct reader *r, const struct wire_obj *line, struct error *err)
{
    struct landscape *l = r->l;
    struct record config;
    if (l->n_problems == 0) {
        return error_set(err, ERROR_INVALID, "a config must stand below its problem");
    }
    int s = replay_read_record(&config, wire_find(line, "config"), err);
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
    e->variant = s ? 0 : reader_variant(l, &l->problems[e->problem].problem, &config);
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
    l->seed = (uint64_t)seed;
    if (!(l->noise >= 0 && l->noise < 1 && l->spread >= 0 && l->spread < 2)) {
        return error_set(err, ERROR_INVALID, "synthetic: noise from 0 to 1, spread from 0 to 2");
    }
    return 0;
}

static int read_fault(struct landscape *l, const struct wire_obj *line, struct error *err)
{
    int r = reader_grow(&l->faults, l->n_faults, sizeof(*l->faults), err);
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
        return landscape_read_header(r, line, err);
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

static int landscape_read_line(struct reader *r, const char *text, struct error *err)
{
    const struct wire_obj *line;
    wire_buf_clear(&r->buf);
    int status = wire_from_json(&r->buf, text, err);
    status = status ? status : wire_decode(r->doc, r->buf.data, r->buf.len, &line, err);
    status = status ? status : read_object(r, line, err);
    return status ? error_prefix(err, "%s line %u", r->path, r->line) : 0;
}

/* ---- files ----------------------------------------------------------------------------------- */

static int cannot_read(const char *path, int number, struct error *err)
{
    return error_set(err, ERROR_NO_DEVICE, "cannot read the landscape %s: %s", path,
                     number == EISDIR ? "it is a directory, not a file" : strerror(number));
}

static int read_lines(struct reader *r, FILE *f, struct error *err)
{
    char *text = NULL;
    size_t room = 0;
    int status = 0;
    while (status == 0 && getline(&text, &room, f) > 0) {
        r->line++;
        const char *at = text + strspn(text, " \t\r\n");
        if (*at && *at != '#') {
            status = landscape_read_line(r, at, err);
        }
    }
    /* ferror: the file is a directory, which can be opened, but not read */
    if (status == 0 && ferror(f)) {
        status = cannot_read(r->path, errno, err);
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
        status = cannot_read(path, errno, err);
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

static void landscape_mark_device(struct landscape *l, const char *path)
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

int landscape_load(const char *spec, struct landscape **out, struct error *err)
{
    const char *path = strchr(spec, ':');
    const char *overlay = getenv("GEMMD_REPLAY_FAULTS"), *speed = getenv("GEMMD_REPLAY_SPEED");
    *out = NULL;
    if (!path || !path[1]) {
        return error_set(err, ERROR_INVALID, "device \"%s\": name a landscape, replay:<file>",
                         spec);
    }
    struct landscape *l = calloc(1, sizeof(*l));
    if (!l) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a landscape");
    }
    l->speed = speed ? strtod(speed, NULL) : 0;
    int r = read_file(l, ++path, false, err);
    if (r == 0 && overlay && overlay[0]) {
        r = read_file(l, overlay, true, err);
    }
    r = r ? r : landscape_settle(l, err);
    if (r) {
        landscape_free(l);
        return r;
    }
    landscape_mark_device(l, path);
    *out = l;
    return 0;
}
