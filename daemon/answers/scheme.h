/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bucket scheme belongs to the database: keys made under one scheme mean nothing under another.
 * It is written down as the database's first event (kind "bucket_scheme"), and what is asked for
 * must agree with it.
 */
#ifndef GEMMD_DAEMON_ANSWERS_SCHEME_H
#define GEMMD_DAEMON_ANSWERS_SCHEME_H

#include "daemon/daemon.h"

/* Sets daemon.scheme, then calls back: 0, or ERROR_INVALID (the setting is not what the database
 * has) and others. */
int scheme_settle(struct daemon *d,
                  void (*done)(struct daemon *d, int status, const struct error *err),
                  struct error *err);

#endif
