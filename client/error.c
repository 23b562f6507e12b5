/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemmd.h repeats the codes of proto/error.h, since it must stand alone. Here is what keeps the two
 * lists one.
 */
#include "client/gemmd.h"
#include "proto/build.h"
#include "proto/error.h"

#define SAME(name) _Static_assert((int)GEMMD_##name == (int)ERROR_##name, "gemmd.h: " #name)
SAME(INTERNAL);
SAME(INVALID);
SAME(UNKNOWN_METHOD);
SAME(UNKNOWN_OP);
SAME(UNKNOWN_FIELD);
SAME(CONFLICT);
SAME(MALFORMED);
SAME(TOO_LARGE);
_Static_assert((int)GEMMD_VERSION_MISMATCH == (int)ERROR_VERSION, "gemmd.h: VERSION_MISMATCH");
SAME(NOT_FOUND);
SAME(DENIED);
SAME(BUSY);
SAME(DEADLINE);
SAME(CANCELLED);
SAME(NO_CONFIG);
SAME(NO_DEVICE);
SAME(DEVICE_LOST);
SAME(NO_COMPILER);
SAME(COMPILE);
SAME(RESOURCE);
SAME(WRONG_RESULT);
SAME(HUNG);
SAME(CRASHED);
SAME(NO_MEMORY);
SAME(DISK_FULL);
SAME(STORE);
SAME(IO);
SAME(UNREACHABLE);
SAME(DISCONNECTED);
SAME(SHUTTING_DOWN);
SAME(QUARANTINED);

/* A code added to proto/error.h must be added above and to gemmd.h. */
#define COUNT(name, code, text, survives) +1
_Static_assert((0 ERROR_LIST(COUNT)) == 31, "gemmd.h lacks a code of proto/error.h");

_Static_assert(sizeof(((struct gemmd_error *)0)->text) == ERROR_TEXT_MAX, "gemmd.h: error text");

const char *gemmd_error_name(int code)
{
    return code == 0 ? "ok" : error_name(code);
}

bool gemmd_error_survives(int code)
{
    return error_survives(code);
}

const char *gemmd_version(void)
{
    return GEMMD_VERSION;
}
