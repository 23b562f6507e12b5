/* SPDX-License-Identifier: Apache-2.0 */
/* What the device is. */
#ifndef GEMMD_DAEMON_PROBE_H
#define GEMMD_DAEMON_PROBE_H

#include "proto/device.h"
#include "proto/error.h"

/* Runs `gemmd-runner --probe` and waits for it, at most 30 s: for start-up only. ERROR_NO_DEVICE,
 * ERROR_IO: there is no such runner, ERROR_INTERNAL: it is no runner of this build. */
int probe_device(const char *runner, const char *device, struct device_info *out,
                 struct error *err);

/* A device as JSON, for --expect of gemmd-runner; NULL: there is no memory for that. To free. */
char *probe_device_text(const struct device_info *device);

#endif
