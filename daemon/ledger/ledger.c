/* SPDX-License-Identifier: Apache-2.0 */
/* What is said of a ledger that takes nothing now (ledger.h). */
#include "daemon/ledger/ledger.h"

int ledger_refused(int status, struct error *err)
{
    switch (status) {
    case ERROR_BUSY:
        return error_set(err, status,
                         "too much waits for the database: nothing was changed; try again, see "
                         "`gemmctl status`");
    case ERROR_NO_MEMORY:
        return error_set(err, status, "no memory to ask the ledger");
    case ERROR_SHUTTING_DOWN:
        return error_set(err, status, "gemmd is stopping");
    default:
        return error_set(err, status, "the ledger takes nothing now");
    }
}
