/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemmd-runner. All of it is in runner_core, so that tests can run it in a forked child (options.c
 * has the command line, runner.h the conversation).
 *
 * Exit codes (enum runner_exit): 0 idle for long enough, or gemmd closed the socket; 1 --probe
 * found no device; 2 bad arguments; 3 the device is lost for this process; 4 gemmd sent what is no
 * message.
 */
#include "proto/std_files.h"
#include "runner/compile/apart.h"
#include "runner/runner.h"

int main(int argc, char **argv)
{
    std_files_open();
    apart_enable();
    return runner_main(argc, argv);
}
