/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The record of a compiled variant, <cache>/records/<variant>. An input that begins with '=' is the
 * whole file. The fuzz target puts the right hash before every other input, so that libFuzzer gets
 * past the hash check. modules_find must return the stored image or no image.
 */
#include "kernels/modules.h"
#include "proto/hash.h"
#include "tests/fuzz/fuzz.h"

static const char variant[] = "00112233445566778899aabbccddeeff";
static const char content[] = "the image of a variant";

/* Stores a good image and a record. Creates the folders. */
static void put(void)
{
    struct error err = ERROR_NULL;
    struct image i = {.data = strdup(content), .size = strlen(content)};
    CHECK(i.data);
    memcpy(i.meta.variant, variant, sizeof(variant));
    CHECK(modules_put(fuzz_folder(), &i, "so", &err) == 0);
    image_deinit(&i);
}

static void write_record(const uint8_t *data, size_t n)
{
    char name[64];
    uint8_t *file = malloc(HASH_HEX + n);
    bool whole = n > 0 && data[0] == '=';
    CHECK(file);
    hash128_hex(data, n, (char *)file);
    file[HASH_HEX - 1] = '\n';
    memcpy(file + HASH_HEX, data, n);
    snprintf(name, sizeof(name), "records/%s", variant);
    fuzz_file(name, whole ? data + 1 : file, whole ? n - 1 : HASH_HEX + n);
    free(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static bool made;
    struct error err = ERROR_NULL;
    struct image out;
    if (!made) {
        put();
        made = true;
    }
    write_record(data, n);
    int r = modules_find(fuzz_folder(), variant, &out, &err);
    CHECK(r >= 0 || err.text[0]);
    if (r == 0) {
        CHECK(out.size == strlen(content) && memcmp(out.data, content, out.size) == 0);
        CHECK(strcmp(out.meta.variant, variant) == 0);
    } else {
        CHECK(!out.data && (r != MODULES_REFUSED || err.code < 0));
    }
    image_deinit(&out);
    return 0;
}
