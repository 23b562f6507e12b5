/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files and spaces of other tuners. A tile has the properties of a kernel that such files can
 * express; gemmctl names and counts everything else, and drops nothing silently.
 *
 *   compat.c        spaces that other tuners enumerate
 *   tile.c          gemmd's configs as tiles, and tiles as configs of gemmd's kernels
 *   unsloth.c       writes the CSV of Unsloth's MoE tuning; unsloth_read.c reads the CSV
 *   aiter.c         writes aiter's JSON: M classes of one (N, K); aiter_read.c reads the JSON
 *   writing.c       `export --format`, and functions that its writers share
 *   foreign_in.c    `import --format`; import.c: sends rows to the daemon, for gemmd's format too
 *   portfolio.c     `export --format portfolio`: few configs for all known shapes
 *   notices.c       skipped rows and their reasons
 */
#ifndef GEMMD_CLIENT_CTL_FORMATS_H
#define GEMMD_CLIENT_CTL_FORMATS_H

#include "client/ctl/ctl.h"

enum { WHY_MAX = 256 };

/* ---- compat.c ------------------------------------------------------------------------------- */

/* Prints the modes' spaces (NULL: all) as the method `space` gives them, with legal `configs`. */
int compat_space(const char *name, const char *modes, bool json, int (*print)(const json_t *space));

/* The modes and their TMA loads, in the order of the CSV's columns. */
enum { UNSLOTH_MODES = 3 };
extern const struct unsloth_mode {
    const char *name, *loads[2];
} unsloth_modes[UNSLOTH_MODES];

/* ---- tile.c --------------------------------------------------------------------------------- */

/* A tile is an object {"BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "num_warps" (that multiply),
 * "num_stages", "GROUP_SIZE_M" (0: not given), "NUM_KSPLIT", "use_tma_store" (optional)}. */
/* Returns the tile of a gemmd config as a new reference; NULL, and the reason in `why`, when the
 * other format cannot express the config. Counts in `left_out` (name: count) the parameters that a
 * tile lacks but that change only the kernel's speed. */
json_t *tile_of_config(const json_t *config, json_t *left_out, char why[WHY_MAX]);
/* Configs of the kernels `target` for a problem of `mode` that come nearest to the tile, nearest
 * first: a JSON array; empty when the target has no such tile. A value that the kernels lack
 * becomes the nearest value that they have, and `changed` (name: count) counts the name. */
json_t *tile_configs(const json_t *tile, const char *target, const char *mode, json_t *changed);

/* ---- notices.c ------------------------------------------------------------------------------ */

/* Adds to `skipped`, [{"what", "why", "n"}], an entry per reason; `what` is the first row. */
void notice_skip(json_t *skipped, const char *what, const char *why);
void notices_print(const json_t *skipped);
/* "a, b, c" of an object's names; malloc'ed. */
char *notice_names(const json_t *object);
json_int_t notice_count(json_t *counts, const char *name, json_int_t more);

/* ---- formats -------------------------------------------------------------------------------- */

struct writing;

/* A format of another tuner. */
struct format {
    const char *name;
    /* Reads the whole file or nothing: NULL after an error message with the line. The contents:
     *   mode     of all problems
     *   N, K     of all problems, when the file says them; else absent or 0
     *   entries  the configs, [{"line", "tile", ...}], in the order in which they are tried:
     *            "flags": flags that must equal the problem's
     *            "speedup", "triton_time": the speed, if the file says it
     *            "class": the class of M, "bound": its largest M, 0 without such a bound
     *   unused   fields of the file that no gemmd kernel knows (name: count) */
    json_t *(*read)(const char *path);
    /* The entry of the class for M rows, by the format's rule; NULL: no class. A format without
     * this function has no classes of M: each entry is for all problems. */
    const json_t *(*find)(const json_t *entries, int64_t m);
    int (*write)(struct writing *w, const char *arch);
};
extern const struct format format_unsloth, format_aiter;

json_t *unsloth_read(const char *path);
json_t *aiter_read(const char *path);
const json_t *aiter_find(const json_t *entries, int64_t m);

/* ---- writing -------------------------------------------------------------------------------- */

struct writing {
    struct subject *s; /* borrowed: connected */
    const char *to;    /* borrowed; NULL: stdout */
    json_t *rows;      /* borrowed: bests */
    json_t *report;    /* borrowed: the document of --json; its members follow */
    json_t *files;     /* [{"path", "rows", ...}] */
    json_t *skipped;   /* see notices */
    json_t *left_out;  /* parameters without a counterpart */
    json_t *notes;     /* remarks for the user */
    bool incomplete;   /* some answers are unsaved, and a warning was printed */
};
const char *writing_slash(const char *folder);
/* writing.c. Makes the folders, then the file. The file gets its name only when complete, so an
 * earlier file survives a failure. "-" is stdout. */
int writing_save(const char *path, const char *text);
int writing_save_json(const char *path, const json_t *document);
/* Adds the row's key and problem to w->skipped. */
void writing_skip(struct writing *w, const json_t *row, const char *why);

int export_foreign(struct subject *s, const struct format *format);
/* portfolio.c: gemmd's own format, one document. */
int portfolio_export(struct subject *s);
int import_foreign(struct subject *s, const struct format *format);
/* import.c: sends rows in the form of `list` of best; adds "imported", "trials" and "skipped" to
 * total. `trust`: the rows answer at once. */
int import_rows(struct ctl *ctl, const json_t *rows, bool trust, json_t *total);

#endif
