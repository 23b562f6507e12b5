/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses the socket: the given path, $GEMMD_SOCKET, or by device, first in this user's runtime
 * directory, then in the system's (docs/protocol.md, "Discovery").
 */
#ifndef GEMMD_CLIENT_FIND_H
#define GEMMD_CLIENT_FIND_H

#include "proto/device.h"
#include "proto/paths.h"

enum { FIND_PLACES_MAX = 2, FIND_SPELLED = FIND_PLACES_MAX };

struct places {
    char device[64]; /* socket name: GPU UUID, "cpu", "replay-<name>"; "" when a path was given */
    bool given;      /* the path is the option's or $GEMMD_SOCKET */
    uint32_t n;      /* number of paths to try, in this order */
    char paths[FIND_PLACES_MAX + 1][PATHS_MAX]; /* the last: found by find_spelled() */
    struct error refused; /* why no path is in this user's own directory; code 0: not refused */
};

/* `socket` and `device` as in gemmd_options, may be NULL. ERROR_INVALID, ERROR_NO_DEVICE. */
int find_places(struct places *p, const char *socket, const char *device, struct error *err);

/* Finds a listening socket whose name spells the UUID of `p` in another way (a unit may shorten a
 * UUID): paths[FIND_SPELLED]. ERROR_UNREACHABLE: no such socket; ERROR_INVALID: several. */
int find_spelled(struct places *p, struct error *err);
/* Before a daemon is started: asks the driver for the whole UUID when p->device is a shortened one,
 * because the daemon names its socket by the whole UUID. */
int find_whole(struct places *p, struct error *err);

/* The current CUDA device of this thread, when the process uses CUDA; makes no context and loads no
 * library. False: no current device. */
bool find_current_cuda(struct device_info *out);
/* The number of this thread's current CUDA device, without its properties; -1: no current device.
 */
int find_current_index(void);

/* The device to use without a daemon: this thread's current CUDA device, the device of `spec`, or
 * the CPU. Always asks the device (a GPU through NVML). ERROR_INVALID: the caller misspelled the
 * spec. */
int find_own_device(const char *spec, struct device_info *out, struct error *err);

#endif
