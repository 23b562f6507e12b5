/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The migration steps from each schema version to the next. A release adds steps and never changes
 * a released step.
 *
 * The columns of version 1 are the fields of proto/message.h in order (a test compares), then
 * `checksum`. Columns of later versions follow; rows of before hold the default there.
 * docs/store.md describes the columns. Ids are AUTOINCREMENT: a number is never given again, also
 * after its row was removed, because clients keep generations. Unknown text is stored as '', an
 * unknown number as 0; an unknown time and a reference to no row are stored as NULL.
 */
#include "store/db.h"
#include "store/store.h"

static const char *const version1_sql[] = {
    "CREATE TABLE device (\n"
    "  kind TEXT NOT NULL, name TEXT NOT NULL, uuid TEXT PRIMARY KEY NOT NULL, arch TEXT NOT "
    "NULL,\n"
    "  cuda_index INTEGER NOT NULL, sm_count INTEGER NOT NULL, cc_major INTEGER NOT NULL,\n"
    "  cc_minor INTEGER NOT NULL, smem_optin INTEGER NOT NULL, smem_per_sm INTEGER NOT NULL,\n"
    "  regs_per_block INTEGER NOT NULL, warp_size INTEGER NOT NULL, l2_bytes INTEGER NOT NULL,\n"
    "  memory_bytes INTEGER NOT NULL, clock_khz INTEGER NOT NULL, power_limit_w INTEGER NOT NULL,\n"
    "  mig TEXT NOT NULL, driver TEXT NOT NULL, peak_tflops REAL, peak_gbps REAL,\n"
    "  compiler TEXT NOT NULL, class TEXT NOT NULL, checksum INTEGER NOT NULL) STRICT;\n",

    "CREATE TABLE run (\n"
    "  id INTEGER PRIMARY KEY AUTOINCREMENT, device TEXT NOT NULL, driver TEXT NOT NULL,\n"
    "  compiler TEXT NOT NULL, build TEXT NOT NULL, pid INTEGER NOT NULL,\n"
    "  started_s INTEGER NOT NULL, ended_s INTEGER NOT NULL, ending TEXT NOT NULL,\n"
    "  checksum INTEGER NOT NULL) STRICT;\n",

    "CREATE TABLE trial (\n"
    "  id INTEGER PRIMARY KEY AUTOINCREMENT, run INTEGER REFERENCES run(id), key TEXT NOT NULL,\n"
    "  family TEXT NOT NULL, config TEXT NOT NULL, variant TEXT NOT NULL, module TEXT NOT NULL,\n"
    "  stage TEXT NOT NULL, status TEXT NOT NULL, resource TEXT NOT NULL,\n"
    "  required INTEGER NOT NULL, limit_value INTEGER NOT NULL, reason TEXT NOT NULL,\n"
    "  time_us REAL, ratio REAL, q25_us REAL, q75_us REAL, predicted_us REAL, compile_ms REAL,\n"
    "  max_error REAL, rel_norm REAL, reference INTEGER NOT NULL, samples_us TEXT NOT NULL,\n"
    "  stamp TEXT NOT NULL, created_s INTEGER NOT NULL, checksum INTEGER NOT NULL) STRICT;\n"
    "CREATE INDEX trial_key ON trial(key, id);\n",

    "CREATE TABLE module (\n"
    "  id TEXT NOT NULL, variant TEXT NOT NULL, family TEXT NOT NULL, target TEXT NOT NULL,\n"
    "  compiler TEXT NOT NULL, flags TEXT NOT NULL, source TEXT NOT NULL, entry TEXT NOT NULL,\n"
    "  registers INTEGER NOT NULL, spill_bytes INTEGER NOT NULL, smem_static INTEGER NOT NULL,\n"
    "  size INTEGER NOT NULL, compile_ms REAL, created_s INTEGER NOT NULL,\n"
    "  used_s INTEGER NOT NULL, checksum INTEGER NOT NULL, PRIMARY KEY (id, variant)) STRICT;\n",

    "CREATE TABLE best (\n"
    "  generation INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL, op TEXT NOT NULL,\n"
    "  family TEXT NOT NULL, problem TEXT NOT NULL, class TEXT NOT NULL, source TEXT NOT NULL,\n"
    "  config TEXT NOT NULL, module TEXT NOT NULL, trial INTEGER REFERENCES trial(id),\n"
    "  time_us REAL, spread REAL, reference_us REAL, flops REAL, bytes REAL, floor_us REAL,\n"
    "  atol REAL, rtol REAL, measured INTEGER NOT NULL, stamp TEXT NOT NULL,\n"
    "  uid INTEGER NOT NULL, created_s INTEGER NOT NULL, checksum INTEGER NOT NULL) STRICT;\n"
    "CREATE INDEX best_key ON best(key, generation);\n"
    "CREATE INDEX best_trial ON best(trial);\n",

    "CREATE TABLE quarantine (\n"
    "  id INTEGER PRIMARY KEY AUTOINCREMENT, variant TEXT NOT NULL, module TEXT NOT NULL,\n"
    "  family TEXT NOT NULL, config TEXT NOT NULL, key TEXT NOT NULL, class TEXT NOT NULL,\n"
    "  driver TEXT NOT NULL, status TEXT NOT NULL, reason TEXT NOT NULL, deaths INTEGER NOT NULL,\n"
    "  created_s INTEGER NOT NULL, checksum INTEGER NOT NULL) STRICT;\n"
    "CREATE INDEX quarantine_class ON quarantine(class, driver, variant);\n",

    "CREATE TABLE event (\n"
    "  id INTEGER PRIMARY KEY AUTOINCREMENT, created_s INTEGER NOT NULL, kind TEXT NOT NULL,\n"
    "  uid INTEGER NOT NULL, text TEXT NOT NULL, checksum INTEGER NOT NULL) STRICT;\n",

    "CREATE TABLE lease (\n"
    "  key TEXT PRIMARY KEY NOT NULL, owner TEXT NOT NULL, boot TEXT NOT NULL,\n"
    "  until_ms INTEGER NOT NULL, taken_s INTEGER NOT NULL) STRICT;\n",

    "CREATE VIEW current_best AS SELECT b.* FROM best AS b\n"
    "  WHERE b.generation = (SELECT max(generation) FROM best WHERE key = b.key);\n",

    "CREATE VIEW best_readable AS SELECT\n"
    "  substr(b.key, 1, 12) AS key, b.op,\n"
    "  json_extract(b.problem, '$.mode') AS mode, json_extract(b.problem, '$.M') AS M,\n"
    "  json_extract(b.problem, '$.N') AS N, json_extract(b.problem, '$.K') AS K,\n"
    "  json_extract(b.problem, '$.experts') AS experts,\n"
    "  json_extract(b.problem, '$.topk') AS topk,\n"
    "  b.source, round(b.time_us, 2) AS time_us,\n"
    "  round(b.flops / b.time_us * 1e-6, 1) AS tflops,\n"
    "  round(b.bytes / b.time_us * 1e-3, 1) AS gbps,\n"
    "  round(100 * b.floor_us / b.time_us, 1) AS floor_percent,\n"
    "  round(b.reference_us / b.time_us, 2) AS speedup,\n"
    "  round(100 * b.spread, 1) AS spread_percent, b.measured,\n"
    "  json_extract(b.config, '$.BLOCK_SIZE_M') || 'x' ||\n"
    "  json_extract(b.config, '$.BLOCK_SIZE_N') || 'x' ||\n"
    "  json_extract(b.config, '$.BLOCK_SIZE_K') AS block,\n"
    "  json_extract(b.config, '$.num_warps') AS warps,\n"
    "  json_extract(b.config, '$.num_stages') AS stages,\n"
    "  (SELECT group_concat(key || '=' || CASE type WHEN 'true' THEN 'true' WHEN 'false' THEN\n"
    "    'false' ELSE atom END, ' ') FROM json_each(b.config)) AS config,\n"
    "  round((unixepoch() - b.created_s) / 86400.0, 1) AS age_days,\n"
    "  b.class, b.generation\n"
    "  FROM current_best AS b;\n",

    "CREATE VIEW slowest AS SELECT * FROM best_readable\n"
    "  WHERE floor_percent IS NOT NULL ORDER BY floor_percent;\n",

    "CREATE VIEW stale AS SELECT substr(b.key, 1, 12) AS key, b.op, b.family, b.class,\n"
    "  b.source, b.stamp, n.stamp AS newest_stamp,\n"
    "  round((unixepoch() - b.created_s) / 86400.0, 1) AS age_days, b.generation\n"
    "  FROM current_best AS b\n"
    "  JOIN (SELECT family, class, stamp, max(generation) FROM best WHERE source <> 'imported'\n"
    "        GROUP BY family, class) AS n ON n.family = b.family AND n.class = b.class\n"
    "  WHERE b.stamp <> n.stamp;\n",

    "PRAGMA application_id = 1734700397;\n" /* 0x67656d6d */
    "PRAGMA user_version = 1;\n",
    NULL};

/* Conditions under which a trial was measured, and disturbances of a best's measurement. */
static const char *const version2_sql[] = {
    "ALTER TABLE trial ADD COLUMN sm_mhz INTEGER NOT NULL DEFAULT 0;\n",
    "ALTER TABLE trial ADD COLUMN temperature_c INTEGER NOT NULL DEFAULT 0;\n",
    "ALTER TABLE trial ADD COLUMN power_w INTEGER NOT NULL DEFAULT 0;\n",
    "ALTER TABLE trial ADD COLUMN throttle TEXT NOT NULL DEFAULT '';\n",
    "ALTER TABLE best ADD COLUMN doubt TEXT NOT NULL DEFAULT '';\n",
    "PRAGMA user_version = 2;\n",
    NULL};

/* `stale` compares a best's stamp (kernel version) with the newest stamp of the same target. A
 * class may have several targets of a family (on sm_90a hopper and portable), each with a separate
 * stamp. */

/* The word after "target=" in a stamp, or ''. */
#define BEHIND "substr(stamp, instr(stamp, 'target=') + 7)"
#define TARGET                                                                                     \
    "CASE WHEN instr(stamp, 'target=') > 0\n"                                                      \
    "     THEN substr(" BEHIND ", 1, instr(" BEHIND " || ' ', ' ') - 1) ELSE '' END"

/* `counted`: condition for rows whose stamps count. */
#define STALE_VIEW(counted)                                                                        \
    "CREATE VIEW stale AS\n"                                                                       \
    "  WITH newest AS (SELECT family, class, " TARGET " AS target, stamp, max(generation)\n"       \
    "                  FROM best WHERE " counted " GROUP BY 1, 2, 3),\n"                           \
    "       current AS (SELECT *, " TARGET " AS target FROM current_best)\n"                       \
    "  SELECT substr(b.key, 1, 12) AS key, b.op, b.family, b.class, b.target, b.source, "          \
    "b.stamp,\n"                                                                                   \
    "  n.stamp AS newest_stamp,\n"                                                                 \
    "  round((unixepoch() - b.created_s) / 86400.0, 1) AS age_days, b.generation\n"                \
    "  FROM current AS b JOIN newest AS n USING (family, class, target)\n"                         \
    "  WHERE b.stamp <> n.stamp;\n"
#define MEASURED_HERE "source <> 'imported' AND (source <> 'fleet' OR trial IS NOT NULL)"

static const char *const version3_sql[] = {
    "DROP VIEW IF EXISTS stale;\n" STALE_VIEW("source <> 'imported'"),

    "PRAGMA user_version = 3;\n", NULL};

/* Several daemons write the same file as equals. `change` records the changes of each commit, and
 * `wanted` holds searches that wait at a daemon and that another daemon may carry out. */
static const char *const version4_sql[] = {
    "CREATE TABLE change (\n"
    "  seq INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, name TEXT NOT NULL,\n"
    "  writer TEXT NOT NULL) STRICT;\n",

    "CREATE TABLE wanted (\n"
    "  key TEXT NOT NULL, owner TEXT NOT NULL, boot TEXT NOT NULL, class TEXT NOT NULL,\n"
    "  uid INTEGER NOT NULL, search BLOB NOT NULL, since_s INTEGER NOT NULL,\n"
    "  PRIMARY KEY (key, owner)) STRICT;\n",

    "PRAGMA user_version = 4;\n", NULL};

/* `served` sums the answers that training jobs got. The evidence of an answer of a lower tier is
 * the measured time of its config and of the key's best, as ratios to the reference kernel of their
 * runs. The config of the tier default is the reference kernel's. */

/* A trial's stamp is the best's, or begins with it and names tolerances. */
#define SAME_STAMP "(t.stamp = b.stamp OR instr(t.stamp, b.stamp || ' atol=') = 1)"

/* `measured`: condition for bests that count as evidence. */
#define SERVED_EVIDENCE_VIEW(measured)                                                             \
    "CREATE VIEW served_evidence AS SELECT *, served_us - best_us AS lost_us FROM (SELECT s.*,\n"  \
    "  b.source AS best_source, b.created_s AS best_s, b.time_us AS best_us,\n"                    \
    "  CASE WHEN b.config = s.config THEN b.time_us ELSE coalesce(\n"                              \
    "    b.reference_us * (SELECT t.ratio FROM trial AS t WHERE t.key = s.key AND\n"               \
    "      t.config = s.config AND t.status = 'ok' AND t.ratio > 0 AND " SAME_STAMP "\n"           \
    "      ORDER BY t.id DESC LIMIT 1),\n"                                                         \
    "    iif(s.tier = 'default', b.reference_us, NULL)) END AS served_us\n"                        \
    "  FROM served AS s LEFT JOIN best AS b ON b.generation =\n"                                   \
    "    (SELECT max(generation) FROM best WHERE key = s.key) AND b.time_us > 0 AND\n"             \
    "    b.reference_us > 0 AND " measured ");\n"

static const char *const version5_sql[] = {
    "CREATE TABLE served (\n"
    "  id INTEGER PRIMARY KEY AUTOINCREMENT, uid INTEGER NOT NULL, job TEXT NOT NULL,\n"
    "  key TEXT NOT NULL, tier TEXT NOT NULL, op TEXT NOT NULL, problem TEXT NOT NULL,\n"
    "  config TEXT NOT NULL, answers INTEGER NOT NULL, first_s INTEGER NOT NULL,\n"
    "  last_s INTEGER NOT NULL, checksum INTEGER NOT NULL) STRICT;\n"
    "CREATE INDEX served_job ON served(uid, job, key);\n"
    "CREATE INDEX served_last ON served(last_s);\n",

    "CREATE VIEW job AS SELECT min(id) AS id, uid, job, min(first_s) AS first_s,\n"
    "  max(last_s) AS last_s, sum(answers) AS answers,\n"
    "  sum(iif(tier = 'exact', answers, 0)) AS exact,\n"
    "  sum(iif(tier = 'near', answers, 0)) AS near,\n"
    "  sum(iif(tier = 'portfolio', answers, 0)) AS portfolio,\n"
    "  sum(iif(tier = 'default', answers, 0)) AS defaults,\n"
    "  count(DISTINCT nullif(key, '')) AS keys\n"
    "  FROM served GROUP BY uid, job;\n",

    SERVED_EVIDENCE_VIEW("b.source IN ('tuned', 'manual')"),

    "PRAGMA user_version = 5;\n", NULL};

/* gemmd-fleet: leases that it decides, its own state (`fleet`), and the numbers of the fleet's rows
 * (`fleet_row`). The view `stale` ignores stamps of rows that were not measured here, and
 * `served_evidence` accepts the fleet's rows that were measured here. */
static const char *const version6_sql[] = {
    "ALTER TABLE lease ADD COLUMN state TEXT NOT NULL DEFAULT 'held';\n",
    "ALTER TABLE lease ADD COLUMN class TEXT NOT NULL DEFAULT '';\n",
    "ALTER TABLE lease ADD COLUMN stamp TEXT NOT NULL DEFAULT '';\n",
    "ALTER TABLE lease ADD COLUMN fence INTEGER NOT NULL DEFAULT 0;\n",
    "ALTER TABLE lease ADD COLUMN asker TEXT NOT NULL DEFAULT '';\n",

    "CREATE TABLE fleet (\n"
    "  id INTEGER PRIMARY KEY CHECK (id = 1), server TEXT NOT NULL, state TEXT NOT NULL,\n"
    "  since_s INTEGER NOT NULL, text TEXT NOT NULL, epoch TEXT NOT NULL,\n"
    "  cursor INTEGER NOT NULL, host INTEGER NOT NULL, counters TEXT NOT NULL) STRICT;\n",

    "CREATE TABLE fleet_row (\n"
    "  seq INTEGER PRIMARY KEY, key TEXT NOT NULL, generation INTEGER NOT NULL,\n"
    "  origin TEXT NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL,\n"
    "  reported INTEGER NOT NULL DEFAULT 0) STRICT;\n"
    "CREATE INDEX fleet_row_key ON fleet_row(key, seq);\n"
    "CREATE INDEX fleet_row_generation ON fleet_row(generation);\n",

    "DROP VIEW IF EXISTS stale;\n" STALE_VIEW(MEASURED_HERE),

    "DROP VIEW IF EXISTS served_evidence;\n" SERVED_EVIDENCE_VIEW(
        "(b.source IN ('tuned', 'manual') OR (b.source = 'fleet' AND b.trial IS NOT NULL))"),

    "PRAGMA user_version = 6;\n",
    NULL};

const char *const *const version_steps[STORE_SCHEMA_VERSION] = {
    version1_sql, version2_sql, version3_sql, version4_sql, version5_sql, version6_sql};
