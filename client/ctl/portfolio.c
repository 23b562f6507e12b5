/* SPDX-License-Identifier: Apache-2.0 */
/*
 * export --format portfolio: a small set of configs for all known shapes; no shape takes longer
 * than its best time plus a bound in percent. (aiter's DEFAULT.json has the most common winner
 * instead.) Rows of the list `portfolio` become one document: groups, their configs, and the shapes
 * of each config with their losses.
 */
#include <stdio.h>
#include <string.h>

#include "client/ctl/formats.h"

enum { PORTFOLIO_VERSION = 1 };

static const char *const group_fields[] = {
    "class", "op", "mode", "dtype_in", "dtype_out", "batch_invariant", "stamp"};

static bool portfolio_is_of_group(const json_t *group, const json_t *row)
{
    for (size_t i = 0; i < COUNT(group_fields); i++) {
        if (!json_equal(json_object_get(group, group_fields[i]),
                        json_object_get(row, group_fields[i]))) {
            return false;
        }
    }
    return true;
}

static json_t *new_group(const json_t *row)
{
    json_t *group = json_object();
    for (size_t i = 0; i < COUNT(group_fields); i++) {
        json_object_set(group, group_fields[i], json_object_get(row, group_fields[i]));
    }
    result_target(group);
    json_object_set(group, "shapes", json_object_get(row, "shapes"));
    json_object_set(group, "bound_percent", json_object_get(row, "bound_percent"));
    json_object_set_new(group, "max_regret_percent", json_real(0));
    json_object_set_new(group, "configs", json_array());
    return group;
}

static void portfolio_add_row(json_t *group, const json_t *row)
{
    json_t *configs = json_object_get(group, "configs");
    json_t *last = json_array_get(configs, json_array_size(configs) - 1);
    double regret = field_number(row, "regret_percent");
    if (!last || !json_equal(json_object_get(last, "config"), json_object_get(row, "config"))) {
        last = json_pack("{sO, s[]}", "config", json_object_get(row, "config"), "shapes");
        json_array_append_new(configs, last);
    }
    json_array_append_new(json_object_get(last, "shapes"),
                          json_pack("{sO, sO, sf}", "key", json_object_get(row, "key"), "problem",
                                    json_object_get(row, "problem"), "regret_percent", regret));
    if (regret > field_number(group, "max_regret_percent")) {
        json_object_set_new(group, "max_regret_percent", json_real(regret));
    }
}

/* Makes groups from the rows of the list, which come group by group, and within a group config by
 * config. */
static json_t *make_groups(const json_t *rows)
{
    json_t *groups = json_array();
    ARRAY_EACH(row, rows) {
        json_t *group = json_array_get(groups, json_array_size(groups) - 1);
        if (!group || !portfolio_is_of_group(group, row)) {
            group = new_group(row);
            json_array_append_new(groups, group);
        }
        portfolio_add_row(group, row);
    }
    return groups;
}

/* True when the group was measured with another kernel version. The daemon's hello has the stamp
 * (version) of its kernels for the op `stamp_op`. For another op, whose target may have the same
 * name, this stamp decides nothing. */
static bool portfolio_is_old(const json_t *group, const json_t *hello)
{
    const char *now = field_string(hello, "stamp");
    const char *stamp = field_string(group, "stamp");
    const char *target = field_string(group, "target");
    char word[64];
    snprintf(word, sizeof(word), "target=%s ", target ? target : "");
    if (!now || !stamp || !strstr(now, word) ||
        !field_is(group, "op", field_text(hello, "stamp_op"))) {
        return false;
    }
    const char *tolerances = strstr(stamp, " atol=");
    const size_t n = tolerances ? (size_t)(tolerances - stamp) : strlen(stamp);
    return strncmp(now, stamp, n) != 0 || now[n];
}

/* Prints a group's summary to stderr. The summary names a group that is not served because of
 * another kernel version. */
static void portfolio_print_remark(const struct subject *s, const json_t *group,
                                   const json_t *hello)
{
    const char *stamp = field_string(group, "stamp");
    const char *mode = field_string(group, "mode");     /* some ops have no mode */
    bool tolerances = stamp && strstr(stamp, " atol="); /* other tolerances than the default */
    if (!s->ctl.quiet) {
        fprintf(stderr, "%s%s%s: %zu configs for %lld shapes, at most %.2f %% behind the best%s\n",
                field_string(group, "op"), mode && *mode ? " " : "", mode ? mode : "",
                json_array_size(json_object_get(group, "configs")), field_int(group, "shapes"),
                field_number(group, "max_regret_percent"),
                portfolio_is_old(group, hello)
                    ? "; measured with other kernels or another compiler: not served"
                : tolerances ? "; verified with other tolerances than the usual"
                             : "");
    }
}

static int write_groups(struct subject *s, json_t *groups, const json_t *hello)
{
    if (json_array_size(groups) == 0) {
        return ctl_failed("nothing was written: no shape that is asked for has been measured");
    }
    ARRAY_EACH(group, groups) {
        portfolio_print_remark(s, group, hello);
    }
    json_auto_t *document =
        json_pack("{si, sO}", "gemmd_portfolio", PORTFOLIO_VERSION, "groups", groups);
    return writing_save_json(s->given[OWN_TO] ? s->given[OWN_TO] : "-", document);
}

int portfolio_export(struct subject *s)
{
    if (problems_given(&s->problems)) {
        return ctl_usage("a portfolio is of all known shapes: --where mode=dW chooses some of "
                         "them, options that say which problem cannot");
    }
    int code = ctl_connect(&s->ctl);
    json_auto_t *hello =
        code ? NULL : ctl_call(&s->ctl, "hello", json_pack("{si}", "version", 1), &code);
    json_t *class = (json_t *)(uintptr_t)field_value(hello, "device.class");
    if (class && !json_object_get(s->filter, "class")) {
        json_object_set(s->filter, "class", class);
    }
    json_auto_t *rows =
        hello ? ctl_list(&s->ctl, "portfolio", json_incref(s->filter), &code) : NULL;
    if (rows) {
        json_auto_t *groups = make_groups(rows);
        code = write_groups(s, groups, hello);
    }
    return code;
}
