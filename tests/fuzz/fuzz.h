/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the fuzz targets. Each target is one file with LLVMFuzzerTestOneInput. Linked with
 * driver.c, a target replays files and folders: the test, with any compiler. Linked with
 * -fsanitize=fuzzer, a target searches for new inputs. run.sh does so and reports the coverage.
 */
#ifndef GEMMD_TESTS_FUZZ_H
#define GEMMD_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* An assert that release builds keep. */
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition);         \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* Copies the bytes up to a NUL. malloc'ed to the byte, so that ASan reports an overrun. */
static inline char *fuzz_text(const uint8_t *data, size_t n)
{
    char *text = strndup((const char *)data, n);
    CHECK(text);
    return text;
}

/* This process's folder, in /dev/shm if writable, else /tmp. exit() removes the folder. */
const char *fuzz_folder(void);
/* Overwrites <folder>/<name>. Returns the path, valid until the next call. */
const char *fuzz_file(const char *name, const void *data, size_t n);

#endif
