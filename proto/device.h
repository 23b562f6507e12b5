/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Properties of a device. Devices of one `class` share answers. The driver is recorded, but is not
 * part of the class.
 */
#ifndef GEMMD_PROTO_DEVICE_H
#define GEMMD_PROTO_DEVICE_H

#include "proto/schema.h"

#define DEVICE_INFO_FIELDS(X, T)                                                                   \
    X(T, TEXT, kind, 16)   /* cuda | cpu | replay */                                               \
    X(T, TEXT, name, 96)   /* "NVIDIA H200", the CPU's model name */                               \
    X(T, TEXT, uuid, 64)   /* "GPU-..." ; "cpu" ; "replay-<name>": names the socket */             \
    X(T, TEXT, arch, 16)   /* compile target: "sm_90a", "x86_64" */                                \
    X(T, INT, index, 0)    /* CUDA ordinal at probe time */                                        \
    X(T, INT, sm_count, 0) /* SMs; CPU: threads used */                                            \
    X(T, INT, cc_major, 0) /* compute capability; CPU: 0 */                                        \
    X(T, INT, cc_minor, 0)                                                                         \
    X(T, INT, smem_optin, 0)  /* shared memory a block may opt in to, bytes; CPU: L2 per core */   \
    X(T, INT, smem_per_sm, 0) /* shared memory of one SM, bytes */                                 \
    X(T, INT, regs_per_block, 0)                                                                   \
    X(T, INT, warp_size, 0)                                                                        \
    X(T, INT, l2_bytes, 0)                                                                         \
    X(T, INT, memory_bytes, 0)                                                                     \
    X(T, INT, clock_khz, 0)                                                                        \
    X(T, INT, power_limit_w, 0) /* 0: not known */                                                 \
    X(T, TEXT, mig, 32)         /* MIG profile, "" when off */                                     \
    X(T, TEXT, driver, 32)      /* "580.159.03"; CPU: kernel release */                            \
    X(T, REAL, peak_tflops, 0)  /* reachable rate of dense bf16: from a table, or estimated */     \
    X(T, REAL, peak_gbps, 0)    /* reachable memory rate, GB/s */                                  \
    X(T, TEXT, compiler, 96)    /* "nvrtc 13.0", "cc 12.2.0 -O3 -march=native"; "" when missing */ \
    X(T, TEXT, class, 192)      /* made by device_class_format() */

SCHEMA_STRUCT(device_info, DEVICE_INFO_FIELDS);

/* The present state of a GPU, read from NVML. 0, "" and -1 mean "not known". */
#define DEVICE_HEALTH_FIELDS(X, T)                                                                 \
    X(T, INT, sm_mhz, 0)                                                                           \
    X(T, INT, memory_mhz, 0)                                                                       \
    X(T, INT, temperature_c, 0)                                                                    \
    X(T, INT, power_w, 0)                                                                          \
    X(T, TEXT, throttle, 48)   /* "power thermal ...": NVML's reasons for lower clocks */          \
    X(T, INT, busy_percent, 0) /* share of time in which others used the GPU; -1: not known */     \
    X(T, INT, processes, 0)    /* other processes with a CUDA context; -1: not known */            \
    X(T, INT, free_mib, 0)                                                                         \
    X(T, INT, total_mib, 0)

SCHEMA_STRUCT(device_health, DEVICE_HEALTH_FIELDS);

/* Makes info->class of name, arch, SM count, shared-memory opt-in, memory in GiB, MIG profile and
 * power limit: "NVIDIA H200/sm_90a/sm132/smem232448/mem140/mig-/pl700". */
void device_class_format(struct device_info *info);
/* True when two classes have the same architecture and number of SMs. Other differences (power
 * limit, memory, MIG profile, name) change all times, but hardly which config is fastest. */
bool device_class_alike(const char *a, const char *b);

/*
 * UUIDs of GPUs as users write them. CUDA_VISIBLE_DEVICES takes a UUID in upper or lower case, also
 * shortened to a unique beginning. gemmd does so wherever a UUID names a device. Names of sockets
 * have the canonical UUID: not shortened, with "GPU" or "MIG" and lower-case digits.
 */
/* length of a canonical UUID: GPU-8932f937-d72c-4106-c12f-20bd9faed9f6 */
enum { UUID_LENGTH = 40 };

/* The UUID in a device's spec ("cuda:GPU-8932F937", "MIG-..."), in canonical case, whole or
 * shortened. False: the spec has no UUID. */
bool uuid_of_spec(const char *spec, char out[UUID_LENGTH + 1]);
/* True when both UUIDs may name the same GPU: they are equal, or the one is a beginning of the
 * other. */
bool uuid_match(const char *a, const char *b);

#endif
