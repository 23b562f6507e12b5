/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metrics: the counters of all daemons of this host as one text for a monitoring system.
 *
 * Each daemon gives its text, with labels that name its GPU. A family (all samples of a metric)
 * must stand in one piece, so the texts are merged family by family.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "client/ctl/formats.h"
#include "proto/text.h"

enum { PATIENCE_MS = 2000 };

struct gathered {
    bool openmetrics;
    json_t *families;         /* owned: {name: {"head": lines # TYPE, # HELP, # UNIT; "samples"}} */
    size_t daemons, answered; /* sockets that were asked; daemons that gave their metrics */
};

/* ---- families -------------------------------------------------------------------------------- */

static void metrics_add_line(json_t *family, const char *part, const char *line)
{
    json_object_set_new(family, part, json_sprintf("%s%s\n", field_text(family, part), line));
}

/* Adds a daemon's text, which is cut into lines. A family's lines that begin with # are those of
 * the first daemon that has the family. */
static void metrics_add_text(struct gathered *x, char *text)
{
    json_t *family = NULL;
    bool is_new = false;
    for (char *line, *rest = text; (line = strsep(&rest, "\n"));) {
        char name[128];
        if (sscanf(line, "# TYPE %127s", name) == 1) {
            text_utf8_clean(name,
                            strlen(name)); /* the end of a long name may be half a character */
            is_new = !json_object_get(x->families, name);
            if (is_new) {
                json_object_set_new(x->families, name, json_object());
            }
            family = json_object_get(x->families, name);
        }
        if (family && *line && *line != '#') {
            metrics_add_line(family, "samples", line);
        } else if (family && is_new && *line && strcmp(line, "# EOF") != 0) {
            metrics_add_line(family, "head", line);
        }
    }
}

/* The socket's path as a label's value: \, " and the end of a line have escapes. malloc'ed. */
static char *metrics_escape_label(const char *value)
{
    char *out = text_copy("");
    for (; *value; value++) {
        const bool special = strchr("\\\"\n", *value) != NULL;
        out = text_append(out, "%s%c", special ? "\\" : "", *value == '\n' ? 'n' : *value);
    }
    text_utf8_clean(out, strlen(out));
    return out;
}

static void metrics_add_up(struct gathered *x, const char *socket, bool up)
{
    TEXT_AUTO *label = metrics_escape_label(socket),
              *text = text_format("# TYPE gemmd_up gauge\n"
                                  "# HELP gemmd_up 1 when the daemon of this socket answers.\n"
                                  "gemmd_up{socket=\"%s\"} %d",
                                  label, up);
    metrics_add_text(x, text);
}

/* ---- daemons --------------------------------------------------------------------------------- */

static void metrics_remark_failure(const struct ctl *c, const char *socket,
                                   const struct gemmd_error *e)
{
    if (!c->quiet) {
        text_remark("no metrics of the daemon on %s: %s", socket, e->text);
    }
}

/* True when another daemon of the same device has given its metrics: the samples would have the
 * same labels, and a monitoring system would refuse them all. */
static bool metrics_has_device(const struct gathered *x, const char *text)
{
    const char *at = strstr(text, "\ngemmd_build_info{");
    const char *end = at ? strstr(at, ",version=") : NULL;
    bool has = false;
    OBJECT_EACH(name, family, end ? x->families : NULL) {
        const char *samples = field_text(family, "samples");
        has = has || memmem(samples, strlen(samples), at + 1, (size_t)(end - at - 1));
    }
    return has;
}

/* Adds the metrics of the daemon that `c` names; `socket`: its path, for messages and gemmd_up. */
static void metrics_ask_daemon(struct gathered *x, const struct ctl *c, const char *socket)
{
    struct ctl own = *c;
    struct gemmd_error e = {0};
    own.patience_ms = PATIENCE_MS;
    bool up = ctl_try(&own, &e) == 0;
    json_auto_t *result =
        up ? ctl_try_call(&own, "metrics", json_pack("{sb}", "openmetrics", x->openmetrics), &e)
           : NULL;
    TEXT_AUTO *text = result ? text_copy(field_text(result, "text")) : NULL;
    if (!result) {
        /* an older gemmd refuses the method, and is up */
        up = up && e.code != GEMMD_DISCONNECTED && e.code != GEMMD_DEADLINE;
        metrics_remark_failure(c, socket, &e);
    }
    x->daemons++;
    x->answered += text != NULL;
    if (text && metrics_has_device(x, text)) {
        snprintf(e.text, sizeof(e.text), "another daemon of the same device has given its own");
        metrics_remark_failure(c, socket, &e);
    } else if (text) {
        metrics_add_text(x, text);
    }
    metrics_add_up(x, socket, up);
    gemmd_close(own.g);
}

static void metrics_ask_all(struct gathered *x, const struct ctl *c)
{
    const char *given = c->socket ? c->socket : getenv("GEMMD_SOCKET");
    if (given && *given) {
        metrics_ask_daemon(x, c, given);
        return;
    }
    if (c->named_device && strcmp(c->named_device, "any") != 0) {
        metrics_ask_daemon(x, c, c->named_device);
        return;
    }
    json_auto_t *found = every_list_sockets();
    ARRAY_EACH(daemon, found) {
        struct ctl one = *c;
        one.socket = field_string(daemon, "socket");
        one.device = NULL;
        metrics_ask_daemon(x, &one, one.socket);
    }
}

/* ---- the command ----------------------------------------------------------------------------- */

static char *metrics_join(const struct gathered *x)
{
    char *text = text_copy("");
    OBJECT_EACH(name, family, x->families) {
        text = text_append(text, "%s%s", field_text(family, "head"), field_text(family, "samples"));
    }
    return x->openmetrics ? text_append(text, "# EOF\n") : text;
}

static int metrics_write(struct subject *s, const struct gathered *x, const char *text)
{
    const char *path = s->given[OWN_TO];
    if (s->ctl.json) {
        return ctl_print_json(json_pack("{ss, sI, sI}", "text", text, "daemons",
                                        (json_int_t)x->daemons, "answered",
                                        (json_int_t)x->answered));
    }
    umask(022); /* a new file gets the mode 0644: node_exporter runs as another user */
    return writing_save(path ? path : "-", text);
}

static int metrics_run(struct subject *s)
{
    struct gathered x = {.openmetrics = !s->given[OWN_TO], .families = json_object()};
    metrics_ask_all(&x, &s->ctl);
    TEXT_AUTO *text = metrics_join(&x);
    /* The file is written also when no daemon answers, so that alerts see it. */
    int code = metrics_write(s, &x, text);
    if (code == DONE && x.daemons == 0) {
        code = every_say_none();
    } else if (code == DONE && x.answered == 0) {
        ctl_name_error("unreachable");
        ctl_failed("no daemon gave its metrics");
        code = UNREACHABLE;
    }
    json_decref(x.families);
    return code;
}

static const struct argp_option metrics_options[] = {
    {"textfile", OWN_KEY + OWN_TO, "PATH", 0,
     "write to PATH in the older text format of Prometheus, which node_exporter reads; the old "
     "file "
     "is replaced at once by the whole new file; -: stdout",
     1},
    {0},
};

const struct command command_metrics = {
    .name = "metrics",
    .help = "counters of all daemons of this host, for monitoring",
    .run = metrics_run,
    .doc = "Prints the counters of all daemons of this host as OpenMetrics; of one daemon with "
           "--socket, --device or $GEMMD_SOCKET. gemmd_up is 0 for a socket whose daemon does not "
           "answer.",
    .options = metrics_options,
    .parts = {&ctl_argp},
};
