/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any row that a ledger takes, decoded: on the wire (wire.c) and on the writer's thread.
 * Which one it is, its verb's schema says; rows that wait are packed (they are mostly much
 * smaller).
 */
#ifndef GEMMD_DAEMON_LEDGER_ROW_H
#define GEMMD_DAEMON_LEDGER_ROW_H

#include "proto/message.h"

union ledger_row {
    struct best best;
    struct trial trial;
    struct module module;
    struct quarantine quarantine;
    struct run run;
    struct event event;
    struct device_info device;
};

#endif
