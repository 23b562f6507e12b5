/* SPDX-License-Identifier: Apache-2.0 */
/* Limits of the protocol and of problems. docs/protocol.md repeats them; a test compares. */
#ifndef GEMMD_PROTO_LIMITS_H
#define GEMMD_PROTO_LIMITS_H

enum {
    PROTOCOL_VERSION = 1,
    KEY_VERSION = 1,

    REQUEST_BYTES_MAX = 64 * 1024,              /* one request or notification from a client */
    RESPONSE_BYTES_MAX = 1024 * 1024,           /* one response or notification to a client */
    RUNNER_MESSAGE_BYTES_MAX = 8 * 1024 * 1024, /* between gemmd and its own runner */
    MESSAGE_DEPTH_MAX = 8,                      /* levels of nested arrays and maps in a message */
    MODULE_CHUNK_BYTES = 256 * 1024,            /* bytes of a module in a `module` response */
    PAGE_ROWS_MAX = 256,                        /* rows of a list response */
    MANY_MAX = 256,                             /* problems of one get_many request */

    SOCKET_PATH_MAX = 107, /* sun_path less its terminating zero */

    /* grouped_gemm; used by the field table in kernels/families/grouped_gemm */
    GEMM_SIZE_MAX = 1 << 30, /* M, N, K each (a TMA tensor map of experts' rows has 2^30 rows) */
    GEMM_EXPERTS_MAX = 1024,
    GEMM_TOPK_MAX = 256,
};

/* Most elements of an operand: with more, kernels' sums of 64-bit byte offsets might overflow. */
#define GEMM_ELEMENTS_MAX (INT64_C(1) << 40)

#endif
