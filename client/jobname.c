/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names the job from the environment: of Slurm's job, else of torchrun's run id. torchrun gives the
 * id "none" to runs without an id, and each worker a session of its own. Then the parent of all
 * workers, torchrun itself, names the job.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/jobname.h"
#include "proto/hash.h"

/* Makes "kind:id". A long id keeps its beginning, and ends in a hash, so that two jobs have two
 * names. */
static void jobname_make(char out[SERVED_JOB_MAX], const char *kind, const char *id)
{
    enum { HASH_DIGITS = 8 };
    const int n = snprintf(out, SERVED_JOB_MAX, "%s:%s", kind, id);
    if (n >= SERVED_JOB_MAX) {
        snprintf(out + SERVED_JOB_MAX - HASH_DIGITS - 2, HASH_DIGITS + 2, "~%08x",
                 (unsigned)hash64(id, strlen(id)));
    }
    for (char *at = out; *at; at++) {
        *at = *at > ' ' && *at <= '~' ? *at : '_';
    }
}

void jobname_find(char out[SERVED_JOB_MAX])
{
    const char *slurm = getenv("SLURM_JOB_ID"), *run = getenv("TORCHELASTIC_RUN_ID");
    char pid[24];
    out[0] = '\0';
    if (slurm && *slurm) {
        jobname_make(out, "slurm", slurm);
    } else if (run && strcmp(run, "none") == 0) {
        snprintf(pid, sizeof(pid), "%ld", (long)getppid());
        jobname_make(out, "torchrun", pid);
    } else if (run && *run) {
        jobname_make(out, "torchelastic", run);
    }
}
