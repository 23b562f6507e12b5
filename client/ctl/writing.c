/* SPDX-License-Identifier: Apache-2.0 */
/* What writers of foreign files share: the file itself, and rows that it has no place for. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/ctl/formats.h"

/* ---- files ---------------------------------------------------------------------------------- */

const char *writing_slash(const char *folder)
{
    size_t n = strlen(folder);
    return n > 0 && folder[n - 1] == '/' ? "" : "/";
}

static int make_folders(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        int r = mkdir(path, 0777) && errno != EEXIST ? errno : 0;
        if (r) {
            ctl_failed("cannot make %s: %s", path, strerror(r));
            *slash = '/';
            return FAILED;
        }
        *slash = '/';
    }
    return DONE;
}

static int save_whole(const char *path, const char *text)
{
    char *part = NULL;
    FILE *f = asprintf(&part, "%s.part%d", path, (int)getpid()) < 0 ? NULL : fopen(part, "we");
    bool failed = !f || fputs(text, f) == EOF;
    failed = (f && fclose(f)) || failed || rename(part, path);
    int code = failed ? ctl_failed("cannot write %s: %s", path, strerror(errno)) : DONE;
    if (failed && f) {
        unlink(part);
    }
    free(part);
    return code;
}

int writing_save(const char *path, const char *text)
{
    if (strcmp(path, "-") == 0) {
        return fputs(text, stdout) == EOF || fflush(stdout) ? ctl_failed("cannot write the result")
                                                            : DONE;
    }
    char *copy = strdup(path);
    int code = copy ? make_folders(copy) : ctl_failed("no memory");
    free(copy);
    return code ? code : save_whole(path, text);
}

/* ---- notices -------------------------------------------------------------------------------- */

void writing_skip(struct writing *w, const json_t *row, const char *why)
{
    char *problem = show_config(json_object_get(row, "problem")), *what;
    const char *key = json_string_value(json_object_get(row, "key"));
    const char *op = json_string_value(json_object_get(row, "op"));
    if (asprintf(&what, "%.8s %s %s", key ? key : "", op ? op : "", problem ? problem : "") >= 0) {
        notice_skip(w->skipped, what, why);
        free(what);
    }
    free(problem);
}
