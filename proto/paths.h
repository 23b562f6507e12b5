/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Paths of the daemon and its clients (reference: docs/protocol.md, "Discovery"). System mode
 * (root, or GEMMD_SYSTEM=1; never with GEMMD_SYSTEM=0): /run/gemmd, /var/lib/gemmd,
 * /var/cache/gemmd. User mode: $XDG_RUNTIME_DIR/gemmd, $XDG_STATE_HOME/gemmd,
 * $XDG_CACHE_HOME/gemmd. When $XDG_RUNTIME_DIR is unset or missing: /tmp/gemmd-$UID, 0700 and owned
 * by the user.
 */
#ifndef GEMMD_PROTO_PATHS_H
#define GEMMD_PROTO_PATHS_H

#include <stdbool.h>

#include "proto/error.h"

enum { PATHS_MAX = 1024 };

#define SYSTEM_RUNTIME_DIR "/run/gemmd" /* of daemons of root */
int paths_runtime_dir(char out[PATHS_MAX], struct error *err);
int paths_state_dir(char out[PATHS_MAX], struct error *err);
int paths_cache_dir(char out[PATHS_MAX], struct error *err); /* $GEMMD_CACHE_DIR wins in any mode */
/* Checks that this process may load kernels from the folder: by the rule of trust.h only the user
 * and root can write there. A missing folder passes. */
int paths_check_cache_dir(const char *path, struct error *err);
/* Writes <runtime dir>/<name>.sock, or $GEMMD_SOCKET. ERROR_INVALID when longer than
 * SOCKET_PATH_MAX (the kernel would cut it silently). */
int paths_socket(const char *name, char out[PATHS_MAX], struct error *err);
int paths_check_socket(const char *path, struct error *err); /* checks only the length */
/* mkdir -p by the rule of trust.h, with `mode` for new folders. Not even the user's private group
 * may write to the last folder. */
int paths_make_dir(const char *path, unsigned mode, struct error *err);

/* True for a regular file that this process may execute. */
bool paths_is_program(const char *path);
/* Makes <folder of this process's program>/<place>. False: no room. */
bool paths_make_near(const char *place, char out[PATHS_MAX]);
/* The same. False also when no program is there. */
bool paths_find_near(const char *place, char out[PATHS_MAX]);
/* gemmd-runner near this process's program: in the same folder, at the installed place, or in the
 * build tree. False: `out` is the last of these paths. */
bool paths_find_runner(char out[PATHS_MAX]);

#endif
