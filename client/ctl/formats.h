/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files and spaces of other tuners. struct tile has the properties of a kernel that such files can
 * express; gemmctl names and counts everything else, and drops nothing silently.
 *
 *   compat.c        spaces that other tuners enumerate
 *   tile.c          gemmd's configs as tiles, and tiles as configs of gemmd's kernels
 *   unsloth.c       writes the CSV of Unsloth's MoE tuning; unsloth_read.c reads the CSV
 *   aiter.c         writes aiter's JSON: M classes of one (N, K); aiter_read.c reads the JSON
 *   writing.c       `export --format`, and functions that its writers share
 *   foreign_in.c    `import --format`; import.c: sends rows to the daemon, for gemmd's format too
 *   portfolio.c     `export --format portfolio`: few configs for all known shapes
 *   notices.c       skipped rows and their reasons; entries of files
 */
#ifndef GEMMD_CLIENT_CTL_FORMATS_H
#define GEMMD_CLIENT_CTL_FORMATS_H

#include "client/ctl/ctl.h"

enum { WHY_MAX = 256, AITER_CLASSES_MAX = 256 };

/* ---- compat.c ------------------------------------------------------------------------------- */

/* Prints the modes' spaces (NULL: all) as the method `space` gives them, with legal `configs`. */
int compat_space(const char *name, const char *modes, bool json, int (*print)(const json_t *space));

/* The modes and their TMA loads, in the order of the CSV's columns. */
enum { UNSLOTH_MODES = 3 };
extern const struct unsloth_mode {
    const char *name, *loads[2];
} unsloth_modes[UNSLOTH_MODES];

/* ---- tile.c --------------------------------------------------------------------------------- */

struct tile {
    int64_t m, n, k, warps, stages; /* block sizes; warps that multiply */
    int64_t group;                  /* GROUP_SIZE_M; 0: not given */
    int64_t split;                  /* NUM_KSPLIT; 1: no split */
    int tma_store;                  /* -1: not given */
};

/* The tile of a gemmd config. False, and `why`, when the config has no counterpart. Counts in
 * `left_out` (name: count) the parameters that have no counterpart but only steer the kernel. */
bool tile_of_config(const json_t *config, struct tile *out, json_t *left_out, char why[WHY_MAX]);
/* Configs of the kernels `target` for a problem of `mode` that come nearest to the tile, nearest
 * first: a JSON array; empty when the target has no such tile. A value that the kernels lack
 * becomes the nearest value that they have, and `changed` (name: count) counts the name. */
json_t *tile_configs(const struct tile *t, const char *target, const char *mode, json_t *changed);

/* ---- notices.c ------------------------------------------------------------------------------ */

/* Adds to `skipped`, [{"what", "why", "n"}], an entry per reason; `what` is the first row. */
void notice_skip(json_t *skipped, const char *what, const char *why);
void notices_print(const json_t *skipped);
/* "a, b, c" of an object's names; malloc'ed. */
char *notice_names(const json_t *object);
/* notice_count adds `more` to the name's count and returns the new count. notice_counts: "a (2), b
 * (1)" of all counts, malloc'ed. */
json_int_t notice_count(json_t *counts, const char *name, json_int_t more);
char *notice_counts(const json_t *counts);

/* ---- contents of a file ---------------------------------------------------------------------- */

/* text_read_file; NULL after the error message. */
char *foreign_read_file(const char *path);

/* One config of a file, and the problems that the config is for. */
struct entry {
    struct tile tile;
    int line;
    double speedup, time_ms; /* Unsloth: rows are tried from the highest speedup down */
    int permute_x, permute_y, fuse_mul_post; /* Unsloth: must equal the problem's */
    char class[32];                          /* aiter: class of M; "" otherwise */
};
struct entries {
    struct entry *all; /* owned */
    size_t n;
    char mode[16];          /* the file's mode */
    int64_t n_size, k_size; /* aiter: from the file's name; 0: not given */
    json_t *unused;         /* owned: fields of the file that no gemmd kernel knows (name: count) */
};
void foreign_entries_deinit(struct entries *e);
struct entry *entries_add(struct entries *e);

/* Both read the whole file or nothing: 0, or FAILED after an error message with the line. */
int unsloth_read(const char *path, struct entries *out);
int aiter_read(const char *path, struct entries *out);
/* The file's class for M rows, by the format's rule; NULL: no class. */
const struct entry *aiter_find(const struct entries *e, int64_t m);
/* Largest M of a class; 0: the class has no such bound. */
int64_t aiter_bound(const char *class);

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
int unsloth_write(struct writing *w);
int aiter_write(struct writing *w, const char *arch);

/* The separator between a folder's path and a file name. */
const char *writing_slash(const char *folder);
/* writing.c. Makes the folders, then the file. The file gets its name only when complete, so an
 * earlier file survives a failure. "-" is stdout. */
int writing_save(const char *path, const char *text);
int writing_save_json(const char *path, const json_t *document);
/* Adds the row's key and problem to w->skipped. */
void writing_skip(struct writing *w, const json_t *row, const char *why);

int export_foreign(struct subject *s, const char *format);
/* portfolio.c: gemmd's own format, one document. */
int portfolio_export(struct subject *s);
int import_foreign(struct subject *s, const char *format);
/* import.c: sends rows in the form of `list` of best; adds "imported", "trials" and "skipped" to
 * total. `trust`: the rows answer at once. */
int import_rows(struct ctl *ctl, const json_t *rows, bool trust, json_t *total);

#endif
