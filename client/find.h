/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which socket: the one named, $GEMMD_SOCKET, or by device, in this user's runtime directory and
 * then in the system's (docs/protocol.md, "Discovery").
 */
#ifndef GEMMD_CLIENT_FIND_H
#define GEMMD_CLIENT_FIND_H

#include "proto/device.h"
#include "proto/paths.h"

enum { FIND_PLACES_MAX = 2, FIND_SPELLED = FIND_PLACES_MAX };

struct places {
    char device[64]; /* socket name: GPU UUID, "cpu", "replay-<name>"; "" when a path was named */
    uint32_t n;
    char paths[FIND_PLACES_MAX + 1][PATHS_MAX]; /* the last: find_spelled */
};

/* `socket` and `device` as in gemmd_options, may be NULL. ERROR_INVALID, ERROR_NO_DEVICE. */
int find_places(struct places *p, const char *socket, const char *device, struct error *err);

/* Somebody listens on a socket that spells the UUID of `p` in another way, as a unit that is named
 * by a part of it does: paths[FIND_SPELLED]. ERROR_UNREACHABLE: nobody; ERROR_INVALID: several. */
int find_spelled(struct places *p, struct error *err);
/* Before a daemon is started: asks the driver for the rest of a shortened UUID, since the daemon
 * will listen where the whole one says. */
int find_whole(struct places *p, struct error *err);

/* The CUDA device that is current in this thread, when the process uses CUDA at all; makes no
 * context and loads no library. False: there is none. */
bool find_current_cuda(struct device_info *out);
/* Its number, cheaply; -1: there is none. */
int find_current_index(void);

/* The device that is used without a daemon: this thread's current CUDA device, the one that `spec`
 * names, or the CPU. Looked at anew: on a GPU, NVML is opened for it. ERROR_INVALID: the spec is
 * misspelled, the caller's mistake. */
int find_own_device(const char *spec, struct device_info *out, struct error *err);

#endif
