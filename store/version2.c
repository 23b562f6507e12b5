/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Version 2: under which conditions a trial was measured, and what disturbed the measurement of a
 * best. New columns stand behind `checksum`; in old rows they hold nothing.
 */
#include "store/db.h"

const char *const version2_sql[] = {
    "ALTER TABLE trial ADD COLUMN sm_mhz INTEGER NOT NULL DEFAULT 0;\n",
    "ALTER TABLE trial ADD COLUMN temperature_c INTEGER NOT NULL DEFAULT 0;\n",
    "ALTER TABLE trial ADD COLUMN power_w INTEGER NOT NULL DEFAULT 0;\n",
    "ALTER TABLE trial ADD COLUMN throttle TEXT NOT NULL DEFAULT '';\n",
    "ALTER TABLE best ADD COLUMN doubt TEXT NOT NULL DEFAULT '';\n",
    "PRAGMA user_version = 2;\n",
    NULL};
