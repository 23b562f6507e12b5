/* SPDX-License-Identifier: Apache-2.0 */
/* What the device is. */
#ifndef GEMMD_DAEMON_BASE_PROBE_H
#define GEMMD_DAEMON_BASE_PROBE_H

#include "proto/device.h"
#include "proto/error.h"

/* Runs `gemmd-runner --probe` and waits for it, at most `limit_ms` and two seconds: for start-up
 * only. One that not even SIGKILL ends is left behind (orphans.h). ERROR_NO_DEVICE, ERROR_IO: there
 * is no such runner, ERROR_INTERNAL: it is no runner of this build. */
enum { PROBE_LIMIT_MS = 30 * 1000 };
int probe_device(const char *runner, const char *device, int64_t limit_ms, struct device_info *out,
                 struct error *err);

/* A device as JSON, for --expect of gemmd-runner; NULL: there is no memory for that. To free. */
char *probe_device_text(const struct device_info *device);

#endif
