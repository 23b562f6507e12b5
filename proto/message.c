/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "proto/message.h"

SCHEMA_DEFINE(query, QUERY_FIELDS);
SCHEMA_DEFINE(answer, ANSWER_FIELDS);
SCHEMA_DEFINE(progress, PROGRESS_FIELDS);
SCHEMA_DEFINE(run, RUN_FIELDS);
SCHEMA_DEFINE(trial, TRIAL_FIELDS);
SCHEMA_DEFINE(module, MODULE_FIELDS);
SCHEMA_DEFINE(best, BEST_FIELDS);
SCHEMA_DEFINE(quarantine, QUARANTINE_FIELDS);
SCHEMA_DEFINE(event, EVENT_FIELDS);
SCHEMA_DEFINE(served_row, SERVED_FIELDS);
SCHEMA_DEFINE(runner_hello, RUNNER_HELLO_FIELDS);
SCHEMA_DEFINE(attempt, ATTEMPT_FIELDS);
SCHEMA_DEFINE(tune_result, TUNE_RESULT_FIELDS);

bool best_is_brought(const struct best *b)
{
    return strcmp(b->source, "imported") == 0 || strcmp(b->source, "trusted") == 0;
}

bool best_is_candidate(const struct best *b)
{
    return strcmp(b->source, "fleet") == 0 && b->trial == 0;
}

bool answer_is_candidate(const struct answer *a)
{
    return strcmp(a->source, "fleet") == 0 && !a->module[0];
}
