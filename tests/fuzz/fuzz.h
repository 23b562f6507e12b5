/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the fuzz targets share. Each is one file with LLVMFuzzerTestOneInput; linked with driver.c
 * it replays files and folders (that is the test, with any compiler), linked with -fsanitize=fuzzer
 * it searches for more. tests/fuzz/run.sh builds and runs them all, and says what they covered.
 */
#ifndef GEMMD_TESTS_FUZZ_H
#define GEMMD_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* An assert that is also there in a release build. */
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition);         \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* The bytes as a text that ends with NUL; malloc'ed to the byte, so that an overrun is seen. */
static inline char *fuzz_text(const uint8_t *data, size_t n)
{
    char *text = strndup((const char *)data, n);
    CHECK(text);
    return text;
}

/* A folder of this process, in memory where there is such a place. Gone when the process ends
 * well. */
const char *fuzz_folder(void);
/* Writes <folder>/<name>, anew; returns its path, good until the next call. */
const char *fuzz_file(const char *name, const void *data, size_t n);

#endif
