/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files and spaces of other tuners. What a file of theirs can say of a kernel is struct tile; what
 * it cannot say is named and counted, never dropped in silence.
 *
 *   compat.c        spaces that others enumerate
 *   tile.c          our configs as tiles, and tiles as configs of our kernels
 *   unsloth.c       the CSV of Unsloth's MoE tuning, written; unsloth_read.c: read
 *   aiter.c         aiter's JSON: M classes of one (N, K), written; aiter_read.c: read
 *   writing.c       `export --format`, and what its writers share
 *   foreign_in.c    `import --format`; import.c: rows to the daemon, ours too
 *   portfolio.c     `export --format portfolio`: few configs for all known shapes
 *   notices.c       what was skipped, and why; and entries of files
 */
#ifndef GEMMD_CLIENT_CTL_FORMATS_H
#define GEMMD_CLIENT_CTL_FORMATS_H

#include "client/ctl/ctl.h"

enum { WHY_MAX = 256, AITER_CLASSES_MAX = 256 };

/* ---- compat.c ------------------------------------------------------------------------------- */

/* The spaces of the modes (NULL: of all), in the form of the method `space`, and the legal
 * `configs` beside each. */
int compat_space(const char *name, const char *modes, bool json, int (*print)(const json_t *space));

/* The modes, and the TMA loads of each, in the order of the CSV's columns. */
enum { UNSLOTH_MODES = 3 };
extern const struct unsloth_mode {
    const char *name, *loads[2];
} unsloth_modes[UNSLOTH_MODES];

/* ---- tile.c --------------------------------------------------------------------------------- */

struct tile {
    int64_t m, n, k, warps, stages; /* warps that multiply */
    int64_t group;                  /* GROUP_SIZE_M; 0: not said */
    int64_t split;                  /* NUM_KSPLIT; 1: sums are whole */
    int tma_store;                  /* -1: not said */
};

/* The tile of a config of ours. False, and why: it has no counterpart. The names of parameters that
 * have none, but only steer the kernel, are added to the object `left_out` (name: count). */
bool tile_of_config(const json_t *config, struct tile *out, json_t *left_out, char why[WHY_MAX]);
/* Configs of the kernels `target` for a problem of `mode` that come nearest to the tile, the
 * nearest first: a JSON array; empty when that target has no such tile. Each value that the kernels
 * lack becomes the nearest value that they have, and `changed` counts the name (name: count). */
json_t *tile_configs(const struct tile *t, const char *target, const char *mode, json_t *changed);

/* ---- notices.c ------------------------------------------------------------------------------ */

/* What was skipped: [{"what", "why", "n"}], one row per reason, `what` being the first one's. */
void notice_skip(json_t *skipped, const char *what, const char *why);
void notices_print(const json_t *skipped);
/* "a, b, c" of an object's names; malloc'ed. */
char *notice_names(const json_t *object);
/* So many more of the name in an object of counts, and how many there are then; and "a (2), b (1)"
 * of the object, malloc'ed. */
json_int_t notice_count(json_t *counts, const char *name, json_int_t more);
char *notice_counts(const json_t *counts);

/* ---- what a file holds ---------------------------------------------------------------------- */

/* text_read_file; NULL after the sentence. */
char *foreign_read_file(const char *path);

/* One config of a file, and which problems it is for. */
struct entry {
    struct tile tile;
    int line;
    double speedup, time_ms;                 /* Unsloth: rows are tried from the best down */
    int permute_x, permute_y, fuse_mul_post; /* Unsloth: must be the problem's */
    char class[32];                          /* aiter: of M; "" otherwise */
};
struct entries {
    struct entry *all; /* owned */
    size_t n;
    char mode[16];          /* that the file is about */
    int64_t n_size, k_size; /* aiter: of the file's name; 0: not said */
    json_t *unused; /* owned: what the file says and no kernel of ours knows (name: count) */
};
void foreign_entries_deinit(struct entries *e);
struct entry *entries_add(struct entries *e);

/* Both read all or nothing: 0, or FAILED after a sentence with the line. */
int unsloth_read(const char *path, struct entries *out);
int aiter_read(const char *path, struct entries *out);
/* The class that a file has for M rows, by the format's own rule; NULL: none. */
const struct entry *aiter_find(const struct entries *e, int64_t m);
/* Largest M of a class, or 0: it has no such bound. */
int64_t aiter_bound(const char *class);

/* ---- writing -------------------------------------------------------------------------------- */

struct writing {
    struct subject *s; /* borrowed: connected */
    const char *to;    /* borrowed; NULL: stdout */
    json_t *rows;      /* borrowed: bests */
    json_t *report;    /* borrowed: what --json shows; of it: */
    json_t *files;     /* [{"path", "rows", ...}] */
    json_t *skipped;   /* see notices */
    json_t *left_out;  /* parameters without a counterpart */
    json_t *notes;     /* sentences */
    bool incomplete;   /* some answers are not in the database: it was said */
};
int unsloth_write(struct writing *w);
int aiter_write(struct writing *w, const char *arch);

/* What stands between a folder as it was given and a name in it. */
const char *writing_slash(const char *folder);
/* writing.c. Makes the folders, then the file, under its name only when it is whole: what stood
 * there outlives a failure. "-" is stdout. */
int writing_save(const char *path, const char *text);
int writing_save_json(const char *path, const json_t *document);
/* Begins a row of `skipped` with the key and the problem. */
void writing_skip(struct writing *w, const json_t *row, const char *why);

int export_foreign(struct subject *s, const char *format);
/* portfolio.c: our own format, one document. */
int portfolio_export(struct subject *s);
int import_foreign(struct subject *s, const char *format);
/* import.c: rows as `list` of best gives them; adds up "imported", "trials" and "skipped" into
 * total. `trust`: they answer. */
int import_rows(struct ctl *ctl, const json_t *rows, bool trust, json_t *total);

#endif
