/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/ctl/ctl.h"
#include "proto/device.h"

/* ---- options -------------------------------------------------------------------------------- */

enum { KEY_SOCKET = 0x1000, KEY_DEVICE, KEY_JSON, KEY_GENERATION, KEY_PIN, KEY_WIDE, KEY_COLUMNS };

static const struct argp_option output_options[] = {
    {0, 0, 0, 0, "For every command:", -1},
    {"json", KEY_JSON, 0, 0, "one JSON document instead of tables", 0},
    {"quiet", 'q', 0, 0, "no progress, no remarks", 0},
    {0},
};

static const struct argp_option options[] = {
    {0, 0, 0, 0, "For every command:", -1},
    {"socket", KEY_SOCKET, "PATH", 0,
     "the daemon's socket (default: $GEMMD_SOCKET, else by device)", 0},
    {"device", KEY_DEVICE, "DEVICE", 0,
     "the daemon's device: cuda:0, cuda:GPU-<uuid>, cpu, replay:<file>, or replay-<name> of a "
     "running daemon (default: $GEMMD_DEVICE, else the only daemon that runs)",
     0},
    {"json", KEY_JSON, 0, 0, "one JSON document instead of tables", 0},
    /* only commands with pin_argp take --generation; the others refuse it, with the reason */
    {"generation", KEY_GENERATION, "N|now", OPTION_HIDDEN, 0, 0},
    {"quiet", 'q', 0, 0, "no progress, no remarks", 0},
    {0},
};

static const struct argp_option pin_options[] = {
    {"generation", KEY_PIN, "N|now|fleet:N", 0,
     "answers as they are in this generation of the database, or at this number of the fleet, as a "
     "job that is pinned to it gets them (default: $GEMMD_GENERATION, else the newest)",
     2},
    {0},
};

static const struct argp_option view_options[] = {
    {0, 0, 0, 0, "Which columns:", 6},
    {"wide", KEY_WIDE, 0, 0, "all columns and whole values (default: what fits the terminal)", 0},
    {"columns", KEY_COLUMNS, "A,B", 0, "these columns, with whole values", 0},
    {0},
};

/* True for a number and "now", also behind "fleet:". */
static bool ctl_is_generation(const char *text)
{
    static const char fleet[] = "fleet:";
    text += strncmp(text, fleet, strlen(fleet)) == 0 ? strlen(fleet) : 0;
    return strcmp(text, "now") == 0 || (*text && strspn(text, "0123456789") == strlen(text));
}

static error_t ctl_parse_option(int key, char *arg, struct argp_state *state)
{
    struct ctl *c = &((struct subject *)state->input)->ctl;
    switch (key) {
    case KEY_SOCKET:
        if (!*arg) { /* libgemmd would choose another daemon */
            argp_error(state, "--socket takes a path, not \"\"");
        }
        c->socket = arg;
        break;
    case KEY_DEVICE:
        c->device = c->named_device = arg;
        break;
    case KEY_GENERATION:
        argp_error(state, "--generation is about the answers of get and verify: this command is "
                          "about what the database has now");
        break;
    case KEY_PIN:
        if (!ctl_is_generation(arg)) {
            argp_error(state,
                       "--generation takes now or a whole number, fleet:N or fleet:now, not \"%s\"",
                       arg);
        }
        c->generation = arg;
        break;
    case KEY_JSON:
        c->json = true;
        break;
    case KEY_WIDE:
        c->wide = true;
        break;
    case KEY_COLUMNS:
        c->columns = arg;
        break;
    case 'q':
        c->quiet = true;
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

const struct argp output_argp = {.options = output_options, .parser = ctl_parse_option};
const struct argp view_argp = {.options = view_options, .parser = ctl_parse_option};
const struct argp pin_argp = {.options = pin_options, .parser = ctl_parse_option};
const struct argp ctl_argp = {.options = options, .parser = ctl_parse_option};

/* ---- failing -------------------------------------------------------------------------------- */

/* The error for --json when a failed command has printed no document. */
static struct {
    bool wanted, printed;
    char name[32]; /* of the first failure; "": none */
    char text[1024];
    char heard[1024]; /* the beginning of the text that this gemmctl wrote to stderr */
    size_t n;
    const char *label; /* borrowed: the daemon that error messages name; NULL: none */
} outcome;

void ctl_name_error(const char *name)
{
    if (!outcome.text[0]) {
        snprintf(outcome.name, sizeof(outcome.name), "%s", name);
    }
}

static void ctl_note_failure(const char *name, const char *text)
{
    if (!outcome.text[0]) {
        if (!outcome.name[0]) {
            ctl_name_error(name);
        }
        snprintf(outcome.text, sizeof(outcome.text), "%s", text);
    }
}

__attribute__((format(printf, 2, 0))) static void say(const char *name, const char *format,
                                                      va_list args)
{
    TEXT_AUTO *text = text_visible(text_vformat(format, args));
    ctl_note_failure(name, text);
    text_remark("gemmctl: %s%s%s", outcome.label ? outcome.label : "", outcome.label ? ": " : "",
                text);
}

int ctl_usage(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say("usage", format, args);
    va_end(args);
    return USAGE;
}

int ctl_failed(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say("failed", format, args);
    va_end(args);
    return FAILED;
}

/* Receives the text that argp and getopt print to the variable `stderr`: their error messages
 * become the error of the --json document. */
static ssize_t write_stderr(void *ctx, const char *text, size_t n)
{
    const size_t room = sizeof(outcome.heard) - 1 - outcome.n, some = n < room ? n : room;
    memcpy(outcome.heard + outcome.n, text, some);
    outcome.n += some;
    return write(STDERR_FILENO, text, n);
}

void ctl_want_error(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        outcome.wanted = outcome.wanted || strcmp(argv[i], "--json") == 0;
    }
    FILE *f = outcome.wanted
                  ? fopencookie(NULL, "w", (cookie_io_functions_t){.write = write_stderr})
                  : NULL;
    if (f) {
        setvbuf(f, NULL, _IONBF, 0);
        stderr = f;
    }
}

json_t *ctl_error(void)
{
    return outcome.text[0] ? json_pack("{ss, ss}", "name", outcome.name, "message", outcome.text)
                           : NULL;
}

json_t *ctl_take_error(void)
{
    json_t *error = ctl_error();
    outcome.text[0] = outcome.name[0] = '\0';
    return error;
}

void ctl_set_label(const char *label)
{
    outcome.label = label;
}

void ctl_printed(void)
{
    outcome.printed = true;
}

void ctl_print_error(int code)
{
    if (code == DONE || !outcome.wanted || outcome.printed) {
        return;
    }
    if (!outcome.text[0]) { /* "gemmctl get: --top takes ..." */
        outcome.heard[strcspn(outcome.heard, "\n")] = '\0';
        const char *text = strstr(outcome.heard, ": ");
        ctl_note_failure(code == USAGE ? "usage" : "failed", text ? text + 2 : outcome.heard);
    }
    json_t *error = ctl_error();
    ctl_print_json(json_pack("{so*}", "error", error));
}

int ctl_fail(const struct gemmd_error *e)
{
    static const char start[] =
        "; start one with `gemmctl start`, and the same --socket if one is named";
    ctl_name_error(gemmd_error_name(e->code));
    const bool alone = e->code == GEMMD_UNREACHABLE && !outcome.label;
    ctl_failed("%s%s", e->text, alone ? start : "");
    return e->code == GEMMD_BUSY ? BUSY
           : e->code == GEMMD_UNREACHABLE || e->code == GEMMD_DISCONNECTED ||
                   e->code == GEMMD_SHUTTING_DOWN
               ? UNREACHABLE
               : FAILED;
}

int ctl_fail_waiting(const struct gemmd_error *e, int deadline_ms)
{
    int code = ctl_fail(e);
    return e->code == GEMMD_DEADLINE && deadline_ms == 0 ? UNREACHABLE : code;
}

/* ---- connecting and calling ----------------------------------------------------------------- */

struct gemmd_options ctl_options(const struct ctl *c)
{
    struct gemmd_options o = GEMMD_OPTIONS_INIT;
    o.socket = c->socket;
    o.device = c->device;
    o.step_ms = c->step_ms;
    o.generation = c->pinned ? c->generation : ""; /* "": ignores $GEMMD_GENERATION, too */
    return o;
}

int ctl_try(struct ctl *c, struct gemmd_error *e)
{
    struct gemmd_options o = ctl_options(c);
    o.device = c->device ? c->device : "any";
    o.deadline_ms = c->patience_ms;
    return gemmd_connect(&c->g, &o, e);
}

int ctl_connect(struct ctl *c)
{
    struct gemmd_error e;
    if (c->g) {
        return DONE;
    }
    return ctl_try(c, &e) ? ctl_fail_waiting(&e, 0) : ctl_check_device(c);
}

static bool names_threads(const char *spec)
{
    return strncmp(spec, "cpu:", 4) == 0;
}

static bool has_threads(const char *spec, const json_t *device)
{
    return !names_threads(spec) || strtoll(spec + 4, NULL, 10) == field_int(device, "sm_count");
}

/* True when the spec of --device may name the daemon's device. gemmctl does not look at the local
 * devices, so cuda:0 may name any GPU. */
static bool is_device(const char *spec, const json_t *device)
{
    const char *kind = field_string(device, "kind");
    const char *uuid = field_string(device, "uuid");
    if (!kind || !uuid) {
        return true;
    }
    /* A daemon that replays a recording reports the kind of the recorded device. */
    kind = strncmp(uuid, "replay-", 7) == 0 ? "replay" : kind;
    char named[UUID_LENGTH + 1];
    if (uuid_of_spec(spec, named)) {
        return uuid_match(named, uuid);
    }
    if (strncmp(spec, "replay-", 7) == 0) {
        return strcmp(spec, uuid) == 0;
    }
    size_t n = strcspn(spec, ":");
    return strlen(kind) == n && strncmp(spec, kind, n) == 0 && has_threads(spec, device);
}

static int fail_device(const struct ctl *c, const json_t *status)
{
    const json_t *device = json_object_get(status, "device");
    const char *socket = field_text(status, "socket"), *spec = c->named_device;
    if (names_threads(spec) && is_device("cpu", device)) {
        return ctl_usage("the daemon on %s has %lld of the CPU's threads, and %s is meant: ask for "
                         "cpu, or stop that one, or give the other a --socket of its own",
                         socket, field_int(device, "sm_count"), spec);
    }
    return ctl_usage("the daemon on %s is of another device than %s, of %s (%s): leave out "
                     "--device for that one, or %s for the other",
                     socket, spec, field_text(device, "uuid"), field_text(device, "name"),
                     c->socket ? "--socket" : "unset GEMMD_SOCKET");
}

int ctl_check_device(struct ctl *c)
{
    const char *from = getenv("GEMMD_SOCKET");
    const char *socket = c->socket ? c->socket : from, *spec = c->named_device;
    const bool given = socket && *socket;
    /* A socket that was found by the device's name belongs to the device. Only the number of CPU
     * threads is not part of that name, so a spec with threads is checked. */
    if (!spec || strcmp(spec, "any") == 0 || (!given && !names_threads(spec))) {
        return DONE;
    }
    int code = DONE;
    json_auto_t *status = ctl_call(c, "status", NULL, &code);
    if (status && !is_device(spec, json_object_get(status, "device"))) {
        code = fail_device(c, status);
    }
    return code;
}

static json_t *take_json(char *text, struct gemmd_error *e)
{
    json_t *j = json_loads(text, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    gemmd_free(text);
    if (!j) {
        e->code = GEMMD_MALFORMED;
        snprintf(e->text, sizeof(e->text), "the daemon's answer is not JSON");
    }
    return j;
}

/* Prints the error of a call. The daemon's error message may begin with the method's name: prints
 * the command's name instead. */
static int fail_call(struct ctl *c, const char *method, const struct gemmd_error *e)
{
    static const struct {
        const char *method, *command;
    } others[] = {{"shutdown", "stop"}, {"unquarantine", "quarantine --clear"}};
    const size_t n = strlen(method);
    c->failed = e->code;
    for (size_t i = 0; i < COUNT(others); i++) {
        if (strcmp(method, others[i].method) == 0 && strncmp(e->text, method, n) == 0 &&
            e->text[n] == ' ') {
            struct gemmd_error said = *e;
            snprintf(said.text, sizeof(said.text), "%s%s", others[i].command, e->text + n);
            return ctl_fail(&said);
        }
    }
    return ctl_fail(e);
}

int ctl_finish(struct ctl *c, int r, struct gemmd_error *e)
{
    while (r == GEMMD_WAITING && !stops_came()) {
        r = gemmd_wait(c->g, NULL, e);
    }
    if (r == GEMMD_WAITING) {
        gemmd_cancel(c->g);
    }
    return r;
}

json_t *ctl_try_call(struct ctl *c, const char *method, json_t *params, struct gemmd_error *e)
{
    TEXT_AUTO *text = text_dump(params, JSON_REAL_PRECISION(17));
    char *result = NULL;
    int r = ctl_finish(c, gemmd_call(c->g, method, text, 0, &result, NULL, NULL, e), e);
    json_decref(params);
    e->code = r;
    return r ? NULL : take_json(result, e);
}

json_t *ctl_call(struct ctl *c, const char *method, json_t *params, int *code)
{
    struct gemmd_error e;
    json_t *result = ctl_try_call(c, method, params, &e);
    if (!result) { /* after a signal, the command itself prints why it ends */
        *code = e.code == GEMMD_WAITING ? FAILED : fail_call(c, method, &e);
    }
    return result;
}

/* Prints the failure of a list. For an unknown column, adds a hint: columns of problems and configs
 * have prefixes. */
static int fail_list(const char *what, const struct gemmd_error *e)
{
    const bool unknown = e->code == GEMMD_UNKNOWN_FIELD;
    const bool problem = unknown && list_has("best,history", what);
    if (!unknown || !list_has("best,history,trials,quarantine", what)) {
        return ctl_fail(e);
    }
    ctl_name_error(gemmd_error_name(e->code));
    return ctl_failed("%s%s; parameters of the config are config.BLOCK_SIZE_M, ...", e->text,
                      problem ? "; fields of the problem are problem.M, problem.mode, ..." : "");
}

json_t *ctl_list(struct ctl *c, const char *what, json_t *filter, int *code)
{
    TEXT_AUTO *text = text_dump(filter, JSON_REAL_PRECISION(17));
    char *rows = NULL;
    struct gemmd_error e;
    int r = gemmd_list(c->g, what, text, &rows, &e);
    json_decref(filter);
    json_t *list = r ? NULL : take_json(rows, &e);
    if (!list) {
        *code = fail_list(what, &e);
    }
    return list;
}

int ctl_print_json(json_t *j)
{
    ctl_printed();
    int r = json_dumpf(j, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(17) | JSON_ENCODE_ANY);
    json_decref(j);
    if (r || putchar('\n') == EOF || fflush(stdout)) {
        return ctl_failed("cannot write the result: %s", strerror(errno));
    }
    return DONE;
}

double ctl_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}
