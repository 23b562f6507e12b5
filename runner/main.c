/* SPDX-License-Identifier: Apache-2.0 */
/* gemmd-runner. All code is in runner_core, so that tests can run the runner in a forked child.
 * options.c has the command line, runner.h the conversation and the exit codes (enum
 * runner_exit). */
#include "proto/std_files.h"
#include "runner/compile/apart.h"
#include "runner/runner.h"

int main(int argc, char **argv)
{
    std_files_open();
    apart_enable();
    return runner_main(argc, argv);
}
