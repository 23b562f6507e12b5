/* SPDX-License-Identifier: Apache-2.0 */
/* Injected faults: a landscape, or the file $GEMMD_REPLAY_FAULTS, makes the replay device fail. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "kernels/devices/replay/replay.h"

static const char *const stage_names[] = {"prepare", "compile", "load", "verify", "time"};
enum { N_STAGES = sizeof(stage_names) / sizeof(stage_names[0]) };

#define BIT(stage) (1u << (stage))
#define ANY                                                                                        \
    (BIT(STAGE_PREPARE) | BIT(STAGE_COMPILE) | BIT(STAGE_LOAD) | BIT(STAGE_VERIFY) |               \
     BIT(STAGE_TIME))

static const struct {
    const char *name;
    enum fault_kind kind;
    enum fault_stage usual;
    unsigned stages;
    int code;
    const char *text;
} kinds[] = {
    {"crash", FAULT_CRASH, STAGE_VERIFY, ANY, 0, NULL},
    {"hang", FAULT_HANG, STAGE_TIME, ANY, 0, NULL},
    {"wrong", FAULT_WRONG, STAGE_VERIFY, BIT(STAGE_VERIFY), 0, NULL},
    {"slow_compile", FAULT_SLOW_COMPILE, STAGE_COMPILE, BIT(STAGE_COMPILE), 0, NULL},
    {"device_lost", FAULT_ERROR, STAGE_TIME, ANY & ~BIT(STAGE_COMPILE), ERROR_DEVICE_LOST,
     "the device was lost"},
    {"no_memory", FAULT_ERROR, STAGE_PREPARE, ANY & ~BIT(STAGE_COMPILE), ERROR_NO_MEMORY,
     "no device memory"},
    {"resource", FAULT_ERROR, STAGE_LOAD, BIT(STAGE_LOAD), ERROR_RESOURCE,
     "the launch would not fit"},
    {"compile", FAULT_ERROR, STAGE_COMPILE, BIT(STAGE_COMPILE), ERROR_COMPILE,
     "the compiler refused the variant"},
};
enum { N_KINDS = sizeof(kinds) / sizeof(kinds[0]) };

/* ---- reading --------------------------------------------------------------------------------- */

static int read_stage(struct fault *f, const struct wire_obj *line, unsigned allowed,
                      struct error *err)
{
    char name[16];
    const struct wire_obj *given = wire_find(line, "stage");
    if (wire_type_of(given) == WIRE_NIL) {
        return 0;
    }
    if (wire_copy_str(given, name, sizeof(name))) {
        for (int i = 0; i < N_STAGES; i++) {
            if (strcmp(stage_names[i], name) == 0 && (allowed & BIT(i))) {
                f->stage = (enum fault_stage)i;
                return 0;
            }
        }
    }
    return error_set(err, ERROR_INVALID,
                     "this fault cannot happen in that stage: see kernels/devices/replay/replay.h");
}

int fault_read(struct fault *f, const struct wire_obj *line, struct error *err)
{
    char name[24] = "";
    int at = 0;
    memset(f, 0, sizeof(*f));
    wire_copy_str(wire_find(line, "fault"), name, sizeof(name));
    while (at < N_KINDS && strcmp(kinds[at].name, name) != 0) {
        at++;
    }
    if (at == N_KINDS) {
        return error_set(err, ERROR_INVALID, "unknown fault \"%s\"", name);
    }
    f->kind = kinds[at].kind;
    f->stage = kinds[at].usual;
    f->code = kinds[at].code;
    f->text = kinds[at].text;
    f->ms = 1000;
    wire_get_int(wire_find(line, "ms"), &f->ms);
    const struct wire_obj *once = wire_find(line, "once");
    if (wire_type_of(once) != WIRE_NIL && !wire_copy_str(once, f->once, sizeof(f->once))) {
        return error_set(err, ERROR_INVALID, "\"once\" must be the path of a file");
    }
    int r = read_stage(f, line, kinds[at].stages, err);
    const struct wire_obj *config = wire_find(line, "config");
    record_init(&f->pattern);
    return r || wire_type_of(config) == WIRE_NIL ? r : replay_read_record(&f->pattern, config, err);
}

/* ---- matching -------------------------------------------------------------------------------- */

static bool in_config(const struct record *pattern, const struct record *config)
{
    for (uint32_t i = 0; i < pattern->n; i++) {
        struct value want = record_at(pattern, i), have;
        if (!record_get(config, pattern->fields[i].name, &have) || !value_equal(&want, &have)) {
            return false;
        }
    }
    return true;
}

/* The text after "-DNAME=" in a variant's options, ignoring case; NULL: not found. */
static const char *find_option(const char *options, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = options; *at;) {
        size_t word = strcspn(at, " ");
        if (word > n + 2 && strncmp(at, "-D", 2) == 0 && strncasecmp(at + 2, name, n) == 0 &&
            at[n + 2] == '=') {
            return at + n + 3;
        }
        at += word + (at[word] == ' ');
    }
    return NULL;
}

static bool option_is(const char *option, const struct value *v)
{
    char text[64];
    if (v->type == VALUE_BOOL) {
        snprintf(text, sizeof(text), "%d", v->flag);
    } else {
        value_format(v, text, sizeof(text));
    }
    size_t n = strcspn(option, " ");
    return strlen(text) == n && strncmp(option, text, n) == 0;
}

/* True when the variant's options have the pattern's values. Run-time parameters, which options
 * lack, are ignored; but at least one parameter of the pattern must be an option. */
static bool in_variant(const struct record *pattern, const struct variant *v)
{
    uint32_t known = 0;
    for (uint32_t i = 0; i < pattern->n; i++) {
        struct value want = record_at(pattern, i);
        const char *option = find_option(v->options, pattern->fields[i].name);
        if (option && !option_is(option, &want)) {
            return false;
        }
        known += option != NULL;
    }
    return known > 0 || pattern->n == 0;
}

static bool fault_is_due(const struct fault *f)
{
    if (!f->once[0]) {
        return true;
    }
    int fd = open(f->once, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
    if (fd >= 0) {
        close(fd);
    }
    return fd >= 0;
}

const struct fault *fault_find(const struct landscape *l, enum fault_stage stage,
                               const struct record *config, const struct variant *v)
{
    for (uint32_t i = 0; i < l->n_faults; i++) {
        const struct fault *f = &l->faults[i];
        bool hits = config ? in_config(&f->pattern, config)
                    : v    ? in_variant(&f->pattern, v)
                           : f->pattern.n == 0;
        if (f->stage == stage && hits && fault_is_due(f)) {
            return f;
        }
    }
    return NULL;
}

/* ---- happening ------------------------------------------------------------------------------- */

int fault_happen(const struct fault *f, struct error *err)
{
    if (!f) {
        return 0;
    }
    switch (f->kind) {
    case FAULT_CRASH:
        signal(SIGSEGV, SIG_DFL); /* a sanitizer's handler would end the process otherwise */
        raise(SIGSEGV);           /* in this thread */
        break;
    case FAULT_HANG:
        for (;;) {
            pause();
        }
    case FAULT_SLOW_COMPILE:
        device_sleep_ms((double)f->ms);
        break;
    case FAULT_ERROR:
        return error_set(err, f->code, "replay: %s in stage %s", f->text, stage_names[f->stage]);
    case FAULT_WRONG:
        break;
    }
    return 0;
}
