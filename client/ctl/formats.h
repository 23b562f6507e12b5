/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files and spaces of other tuners. A tile has the properties of a kernel that such files can
 * express; gemmctl names and counts everything else, and drops nothing silently.
 *
 *   compat.c        spaces that other tuners enumerate
 *   tile.c          gemmd's configs as tiles, and tiles as configs of gemmd's kernels
 *   unsloth.c       writes the CSV of Unsloth's MoE tuning; unsloth_read.c reads the CSV
 *   aiter.c         writes aiter's JSON: M classes of one (N, K); aiter_read.c reads the JSON
 *   aiter_csv.c     writes aiter's tuned CSV; aiter_csv_read.c reads the CSV and lists of shapes
 *   fused_moe.c     writes vLLM's and sglang's JSON of MoE configs; fused_moe_read.c reads the JSON
 *   t4.c            writes Kernel Tuner's T4 JSON; t4_read.c reads the JSON
 *   wisdom.c        writes Kernel Launcher's wisdom files; wisdom_read.c reads the files
 *   tunable.c       TunableOp's lists of shapes, both ways: `--shapes` reads the list
 *   writing.c       `export --format`, and functions that its writers share
 *   foreign_in.c    `import --format` of tiles; import.c: sends rows to the daemon, for all formats
 *   custom.c        custom ops: their rows and trials for writers, and problems for readers
 *   custom_in.c     `import --format` of custom ops' rows
 *   portfolio.c     `export --format portfolio`: few configs for all known shapes
 */
#ifndef GEMMD_CLIENT_CTL_FORMATS_H
#define GEMMD_CLIENT_CTL_FORMATS_H

#include "client/ctl/ctl.h"
#include "proto/record.h"

enum { WHY_MAX = 256 };

/* ---- compat.c ------------------------------------------------------------------------------- */

/* Prints the modes' spaces (NULL: all) as the method `space` gives them, with legal `configs`. */
int compat_space(const char *name, const char *modes, bool json,
                 void (*print)(const json_t *space));

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

/* ---- formats -------------------------------------------------------------------------------- */

struct format;
struct writing;

/* A file to read into rows of a custom op. */
struct custom_file {
    const struct format *format;
    const char *path;      /* borrowed */
    const json_t *problem; /* borrowed: of --problem, {"op", ...}; NULL: not given */
    const json_t *fields;  /* borrowed: of --fields; NULL: not given */
};

/* A format of another tuner. A format has `read`, or `read_rows`, or neither. */
struct format {
    const char *name;
    /* Reads a file into `out`, {"entries": [], "unusable": [], "unused": {}}. 0, or FAILED after an
     * error message with the line. The contents:
     *   mode     of all problems
     *   N, K     of all problems, when the file says them; else absent or 0
     *   op       of all problems, "gemm_a8w8_blockscale"; absent: products without quantisation
     *   unusable lines without an entry, as of notice_skip()
     *   entries  the configs, [{"line", "tile", ...}], in the order in which they are tried:
     *            "problem": the only problem of the entry, in all entries or in none
     *            "config": gemmd's own, in place of "tile"; "device": of this "arch" and "sm_count"
     *            "flags": flags that must equal the problem's
     *            "speedup", "triton_time": the speed, if the file says it
     *            "class": the class of M, "bound": its largest M, 0 without such a bound
     *   unused   fields of the file that no gemmd kernel knows (name: count) */
    int (*read)(const char *path, json_t *out);
    /* The entry of the class for M rows, by the format's rule; NULL: no class. A format without
     * this function has no classes of M: each entry is for all problems. */
    const json_t *(*find)(const json_t *entries, int64_t m);
    /* Reads configs of custom ops into `out`, {"rows": [], "unused": {}}. 0, or FAILED after an
     * error message.
     *   rows     in the form of gemmd's export: {"op", "problem", "config", "time_us", "trials"}; a
     *            row without trials is a hint. "device": the name of the device of the measurements
     *   unused   fields of the file that rows lack (name: count) */
    int (*read_rows)(const struct custom_file *f, json_t *out);
    int (*write)(struct writing *w);
    bool has_fields; /* --fields says where problems have the format's fields */
};
extern const struct format format_unsloth, format_aiter, format_vllm, format_sglang, format_t4,
    format_wisdom, format_tunableop;

/* fused_moe_read.c. The parameters that each config of vLLM's and sglang's files has: whole
 * numbers. */
enum { FUSED_MOE_PARAMS = 6 };
extern const char *const fused_moe_params[FUSED_MOE_PARAMS];
/* Reads a value of --fields that refers to a field of the problem, "N/2": the field's name, and a
 * divisor. False: the value is no reference. */
bool fused_moe_reference(const json_t *fields, const char *field, char name[RECORD_NAME_MAX],
                         int64_t *divisor);
int fused_moe_read(const struct custom_file *f, json_t *out);
/* Statuses of trials, and their names in T4. */
enum { T4_OUTCOMES = 5 };
extern const struct t4_outcome {
    const char *status, *invalidity;
} t4_outcomes[T4_OUTCOMES];
int t4_read(const struct custom_file *f, json_t *out);
int wisdom_read(const struct custom_file *f, json_t *out);
/* tunable.c. Adds the problems of TunableOp's list `csv`, whose first line is the current one, to
 * `rows`, in the form of problems.all. 0, or USAGE after the error message. */
bool tunable_is_list(const struct csv *csv);
int tunable_read(struct csv *csv, const struct problems *p, json_t *rows);

int unsloth_read(const char *path, json_t *out);
/* The kernels of aiter's JSON: the files' names begin with "GEMM-" and `name`. */
enum { AITER_KERNELS = 2 };
extern const struct aiter_kernel {
    const char *name, *folder, *op; /* op NULL: operands of 16 bits */
} aiter_kernels[AITER_KERNELS];
int aiter_read(const char *path, json_t *out);
/* aiter_csv_read.c. A file of tuned lines; and the list of shapes `csv`, as tunable_read. */
int aiter_csv_read(const char *path, json_t *out);
bool aiter_is_list(const struct csv *csv);
int aiter_read_list(struct csv *csv, const struct problems *p, json_t *rows);
const json_t *aiter_find(const json_t *entries, int64_t m);

/* ---- writing -------------------------------------------------------------------------------- */

struct writing {
    struct subject *s; /* borrowed: connected */
    const struct format *format;
    const char *to;       /* borrowed; NULL: stdout */
    const char *arch;     /* borrowed: the device's, or "unknown" */
    const json_t *device; /* borrowed: of `status` */
    json_t *rows;         /* borrowed: bests */
    json_t *report;       /* borrowed: the document of --json; its members follow */
    json_t *files;        /* written so far: [{"path", "rows", ...}] */
    json_t *skipped;      /* rows that the format cannot express: notice_skip() */
    json_t *left_out;     /* parameters that the format lacks (name: count) */
    json_t *notes;        /* remarks for the user */
    bool incomplete;      /* some answers are unsaved, and a warning was printed */
};
const char *writing_slash(const char *folder);
/* writing.c. Makes the folders, then the file. The file gets its name only when complete, so an
 * earlier file survives a failure. "-" is stdout. */
int writing_save(const char *path, const char *text);
int writing_save_bytes(const char *path, const void *data, size_t size);
int writing_save_json(const char *path, const json_t *document);
/* Saves a file, adds it to w->files, and frees `path` and `text`. */
int writing_add_file(struct writing *w, char *path, char *text, size_t rows);
/* Adds the row's key and problem to w->skipped. */
void writing_skip(struct writing *w, const json_t *row, const char *why);

/* aiter_csv.c. True for an answer that the CSV, not the JSON, is for; adds its line to `lines`;
 * writes the file. */
bool aiter_csv_takes(const json_t *best);
void aiter_csv_add(struct writing *w, json_t *lines, json_t *best);
int aiter_csv_save(struct writing *w, const json_t *lines);

/* ---- custom ops ------------------------------------------------------------------------------ */

/* Adds its trials to each row of a custom op, newest first, because an import keeps the first trial
 * of a config. Clients that choose among configs, such as gemmd.triton, need all trials. */
int custom_add_trials(struct ctl *c, const json_t *rows);
/* The rows of custom ops with their trials, as a new array; skips other rows. Problems lack the
 * field `user`: rows of several users for one problem become the fastest of these rows, with the
 * trials of all, one for each config, oldest first. NULL and *code on failure. */
json_t *custom_rows(struct writing *w, int *code);
/* The trials of a row with status ok, fastest first, as a new array. */
json_t *custom_sort_trials(const json_t *row);
/* Gives a row the config and the time of its fastest trial; nothing when no trial is ok. */
void custom_choose_best(json_t *row);
/* True when the answer of `row` is to replace the answer of `before`, another user's for the same
 * problem: it is faster. */
bool custom_is_faster(const json_t *row, const json_t *before);

/* A copy of --problem, or else a problem of `op`. */
json_t *custom_make_problem(const struct custom_file *f, const char *op);
/* Makes the members "op" and "problem" of a row from a problem with its op. Takes over `problem`.
 */
json_t *custom_make_row(json_t *problem);
/* Reads a config, and drops members that are null; a new reference. NULL after an error message
 * that begins with `where`: a name or a value is none that gemmd's configs can have. */
json_t *custom_read_config(const json_t *object, const char *where);
/* A field of a problem: its own, or else of the texts `arguments` and `constants` of gemmd.triton's
 * problems, "N=4096,x.dtype=...". A new reference; NULL: no such field. custom_set replaces the
 * field in the same place, or adds a field. */
json_t *custom_find(const json_t *problem, const char *name);
void custom_set(json_t *problem, const char *name, const json_t *value);
/* Write and read a time as "2026-01-31 12:00:00+00:00" (malloc'ed). False: the text is no time. */
char *custom_write_time(int64_t unix_s);
bool custom_read_time(const char *text, int64_t *unix_s);

int export_foreign(struct subject *s, const struct format *format);
/* portfolio.c: gemmd's own format, one document. */
int portfolio_export(struct subject *s);
int import_foreign(struct subject *s, const struct format *format);
int import_custom(struct subject *s, const struct format *format);
/* import.c: sends rows in the form of `list` of best; adds "imported", "trials" and "skipped" to
 * total. `trust`: the rows answer at once. */
int import_rows(struct ctl *ctl, const json_t *rows, bool trust, json_t *total);
/* transfer.c. The document of an export, owned. */
json_t *transfer_make_document(const json_t *status, json_t *rows);
/* Prints the result of an import, also of an import that failed with `code`, and takes it over.
 * Returns the exit code. */
int transfer_print_import(const struct ctl *c, json_t *total, int code);

#endif
