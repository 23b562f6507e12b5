/* SPDX-License-Identifier: Apache-2.0 */
/* The configuration file. Accepted values are within bounds; a refused file has an error text. */
#include "daemon/base/config.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct config c;
    static struct config_sources from;
    struct error err = ERROR_NULL;
    config_init(&c, &from);
    if (config_read(&c, &from, fuzz_file("gemmd.conf", data, n), true, &err)) {
        CHECK(err.text[0]);
        return 0;
    }
    for (size_t i = 0; i < CONFIG_KEYS; i++) {
        const struct config_key *k = &config_keys[i];
        const char *at = (const char *)&c + k->offset;
        int64_t number = 0;
        double real = 0;
        if (k->kind == CONFIG_INT) {
            memcpy(&number, at, sizeof(number));
            CHECK(number >= k->min && number <= k->max);
        } else if (k->kind == CONFIG_REAL) {
            memcpy(&real, at, sizeof(real));
            CHECK(real >= (double)k->min && real <= (double)k->max);
        } else if (k->kind == CONFIG_TEXT) {
            CHECK(memchr(at, 0, k->size));
            CHECK(!k->check || k->check(at, NULL) == 0);
        }
        CHECK(from.of[i][0]);
    }
    return 0;
}
