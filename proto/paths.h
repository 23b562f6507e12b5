/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where things are, for daemon and clients alike (reference: docs/protocol.md, "Discovery").
 * System mode (root, or GEMMD_SYSTEM=1; GEMMD_SYSTEM=0 says no): /run/gemmd, /var/lib/gemmd,
 * /var/cache/gemmd.
 * User mode: $XDG_RUNTIME_DIR/gemmd (or /tmp/gemmd-$UID, 0700 and ours, when it is unset or
 * missing), $XDG_STATE_HOME/gemmd, $XDG_CACHE_HOME/gemmd.
 */
#ifndef GEMMD_PROTO_PATHS_H
#define GEMMD_PROTO_PATHS_H

#include "proto/error.h"

enum { PATHS_MAX = 1024 };

int paths_runtime_dir(char out[PATHS_MAX], struct error *err);
int paths_state_dir(char out[PATHS_MAX], struct error *err);
int paths_cache_dir(char out[PATHS_MAX], struct error *err);
/* Whether kernels that are there may be loaded into this process: by the rule of trust.h, nobody
 * but us and root can write there. A folder that is not there yet is fine. */
int paths_check_cache_dir(const char *path, struct error *err);
/* <runtime dir>/<name>.sock, or $GEMMD_SOCKET. ERROR_INVALID when longer than SOCKET_PATH_MAX (the
 * kernel would cut it silently). */
int paths_socket(const char *name, char out[PATHS_MAX], struct error *err);
int paths_check_socket(const char *path, struct error *err); /* only the length */
/* mkdir -p with mode for what it creates, by the rule of trust.h. Not even our private group may
 * write to the last part. */
int paths_make_dir(const char *path, unsigned mode, struct error *err);

#endif
