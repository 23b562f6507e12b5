/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the device of --device, and its properties. */
#ifndef GEMMD_DAEMON_BASE_PROBE_H
#define GEMMD_DAEMON_BASE_PROBE_H

#include "proto/device.h"
#include "proto/error.h"

/* Runs `gemmd-runner --probe`, and waits at most `limit_ms` and two seconds for its end: only the
 * start of gemmd may wait so. A process that survives SIGKILL is left behind (orphans.c).
 * ERROR_NO_DEVICE; ERROR_IO: the runner cannot be started; ERROR_INTERNAL: it is of another
 * build. */
enum { PROBE_LIMIT_MS = 30 * 1000 };
int probe_device(const char *runner, const char *device, int64_t limit_ms, struct device_info *out,
                 struct error *err);

/* A device as JSON, for --expect of gemmd-runner; NULL: no memory. The caller frees the text. */
char *probe_device_text(const struct device_info *device);

#endif
