/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors.
 *
 * Each function that can fail for a reason outside gemmd's code (input, disk, device, peer) returns
 * an int and takes a `struct error *`:
 *
 *   0         done
 *   negative  a fault: one of the ERROR_* codes below, forwarded untouched to the boundary that
 *             answers for the fault (a reply on the wire, an exit code). `struct error` holds an
 *             error message that the user can act on, written where the fault was first seen
 *   positive  an outcome named in the header of the function (STORE_MISS, SCAN_MORE), which the
 *             direct caller must handle
 *
 * The same list goes over the wire, and gemmd.h repeats the list: numbers and names are stable, new
 * codes are added at the end. `survives`: the connection can still be used.
 */
#ifndef GEMMD_PROTO_ERROR_H
#define GEMMD_PROTO_ERROR_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#define ERROR_LIST(X)                                                                              \
    /*  enum                 code  name on the wire       survives */                              \
    X(ERROR_INTERNAL, -1, "internal", true) /* a bug of gemmd */                                   \
    X(ERROR_INVALID, -2, "invalid", true)   /* a value out of its range */                         \
    X(ERROR_UNKNOWN_METHOD, -3, "unknown_method", true)                                            \
    X(ERROR_UNKNOWN_OP, -4, "unknown_op", true)                                                    \
    X(ERROR_UNKNOWN_FIELD, -5, "unknown_field", true)                                              \
    X(ERROR_CONFLICT, -6, "conflict", true)    /* values contradict */                             \
    X(ERROR_MALFORMED, -7, "malformed", false) /* not MessagePack-RPC */                           \
    X(ERROR_TOO_LARGE, -8, "too_large", false) /* message over a limit */                          \
    X(ERROR_VERSION, -9, "version", false)     /* no common protocol version */                    \
    X(ERROR_NOT_FOUND, -10, "not_found", true)                                                     \
    X(ERROR_DENIED, -11, "denied", true)     /* only the owner, or root, may do this */            \
    X(ERROR_BUSY, -12, "busy", true)         /* retry later */                                     \
    X(ERROR_DEADLINE, -13, "deadline", true) /* not done in the time given */                      \
    X(ERROR_CANCELLED, -14, "cancelled", true)                                                     \
    X(ERROR_NO_CONFIG, -15, "no_config", true)       /* no config is valid or works */             \
    X(ERROR_NO_DEVICE, -16, "no_device", true)       /* no GPU, driver, or device */               \
    X(ERROR_DEVICE_LOST, -17, "device_lost", true)   /* every call to the device fails */          \
    X(ERROR_NO_COMPILER, -18, "no_compiler", true)   /* NVRTC or cc missing */                     \
    X(ERROR_COMPILE, -19, "compile", true)           /* the compiler refused */                    \
    X(ERROR_RESOURCE, -20, "resource", true)         /* needs more registers or shared memory */   \
    X(ERROR_WRONG_RESULT, -21, "wrong_result", true) /* verification failed */                     \
    X(ERROR_HUNG, -22, "hung", true)                 /* a kernel or compiler did not end */        \
    X(ERROR_CRASHED, -23, "crashed", true)           /* a kernel or compiler crashed */            \
    X(ERROR_NO_MEMORY, -24, "no_memory", true)       /* host or device memory */                   \
    X(ERROR_DISK_FULL, -25, "disk_full", true)                                                     \
    X(ERROR_STORE, -26, "store", true)                /* database unreadable, or too new */        \
    X(ERROR_IO, -27, "io", true)                      /* a file or socket call failed */           \
    X(ERROR_UNREACHABLE, -28, "unreachable", false)   /* no daemon answers (client) */             \
    X(ERROR_DISCONNECTED, -29, "disconnected", false) /* the daemon went away (client) */          \
    X(ERROR_SHUTTING_DOWN, -30, "shutting_down", false)                                            \
    X(ERROR_QUARANTINED, -31, "quarantined", true) /* the variant hung or crashed before */

enum error_code {
#define X(name, code, text, survives) name = (code),
    ERROR_LIST(X)
#undef X
};

#define ERROR_TEXT_MAX 512

struct error {
    int code;                  /* 0: no error */
    char text[ERROR_TEXT_MAX]; /* one sentence, no trailing newline; cut with "..." when longer */
};

#define ERROR_NULL ((struct error){0})

/* Sets code and error message, and returns code, so that `return error_set(err, ...)` reads well.
 * `err` may be NULL. The trace hook (see below) is called. */
int error_set(struct error *err, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int error_vset(struct error *err, int code, const char *format, va_list args)
    __attribute__((format(printf, 3, 0)));

/* Puts "<context>: " in front of the error message; keeps and returns the code. */
int error_prefix(struct error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Wire name of a code ("invalid"); "internal" for numbers not in the list. Never NULL. */
const char *error_name(int code);
/* Code of a wire name; ERROR_INTERNAL when the name is unknown (a newer peer). */
int error_code_of(const char *name);
/* True when the connection can still be used after this error. */
bool error_survives(int code);

/* Called on every error_set. The daemon sets the hook to its debug log. May be NULL. */
extern void (*error_trace_hook)(int code, const char *text);

#endif
