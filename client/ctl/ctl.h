/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemmctl: declarations that its files share. gemmctl uses libgemmd through gemmd.h only, like any
 * other program. proto/ is linked into gemmctl itself.
 *
 * main.c has the list of commands; ask.c, pin.c, evict.c, listing.c, space.c, transfer.c, verify.c,
 * runner.c, why.c, moe.c and daemon.c have the commands, by theme; formats.h declares the files of
 * other tuners.
 *
 * Every command makes JSON first; a table is a view of the JSON. Results go to stdout, everything
 * else to stderr. A failure ends in one error message, "gemmctl: ..."; "after the error message"
 * below means that the function printed the message.
 *
 *   base.h      the connection and its errors, texts, JSON fields, notices about skipped rows
 *   problems.h  options: which problems, and how to search
 *   subject.h   a command and its input; the commands
 *   table.h     tables
 *   rows.h      rows of answers and of the database
 */
#ifndef GEMMD_CLIENT_CTL_CTL_H
#define GEMMD_CLIENT_CTL_CTL_H

#include "client/ctl/base.h"
#include "client/ctl/problems.h"
#include "client/ctl/rows.h"
#include "client/ctl/subject.h"
#include "client/ctl/table.h"

#endif
