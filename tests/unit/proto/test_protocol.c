/* SPDX-License-Identifier: Apache-2.0 */
/* Implementations in other languages follow docs/protocol.md: its tables must agree with the
 * code. */
#include <stdio.h>
#include <stdlib.h>

#include "proto/message.h"
#include "tests/unit/proto/common.h"

static char *doc; /* owned */

static int set_up(void **state)
{
    (void)state;
    FILE *f = fopen(PROTOCOL_DOC, "rb");
    if (!f) {
        return -1;
    }
    enum { LARGEST = 1 << 20 };
    doc = calloc(1, LARGEST);
    size_t n = doc ? fread(doc, 1, LARGEST - 1, f) : 0;
    fclose(f);
    return n > 0 ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    free(doc);
    return 0;
}

static void expect(const char *text)
{
    if (!strstr(doc, text)) {
        fail_msg("docs/protocol.md does not say: %s", text);
    }
}

static void test_limits(void **state)
{
    (void)state;
    static const struct {
        const char *what;
        int limit;
        const char *unit;
    } rows[] = {
        {"request or notification to the daemon", REQUEST_BYTES_MAX, " bytes"},
        {"response or notification to the client", RESPONSE_BYTES_MAX, " bytes"},
        {"nesting", MESSAGE_DEPTH_MAX, " arrays and maps"},
        {"rows of one `list` response", PAGE_ROWS_MAX, ""},
        {"problems of one `get_many`", MANY_MAX, ""},
        {"bytes of one `module` response", MODULE_CHUNK_BYTES, ""},
        {"socket path", SOCKET_PATH_MAX, " bytes"},
        {"fields of a problem or config", RECORD_FIELDS_MAX, ""},
        {"name of a field", RECORD_NAME_MAX - 1, " bytes"},
        {"text values of a problem or config, each with a 0 byte", RECORD_TEXT_MAX, " bytes"},
        {"config of `put`, `record` or `import`, as one-line text", CONFIG_TEXT_MAX - 1, " bytes"},
        {"`reason` of a trial", sizeof(((struct trial *)0)->reason) - 1, " bytes"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char row[200];
        snprintf(row, sizeof(row), "| %s | %d%s |", rows[i].what, rows[i].limit, rows[i].unit);
        expect(row);
    }
    char title[64];
    snprintf(title, sizeof(title), "The gemmd protocol, version %d", PROTOCOL_VERSION);
    expect(title);
}

static void test_errors(void **state)
{
    (void)state;
    for (int code = -1; code >= ERROR_QUARANTINED; code--) {
        char row[100];
        bool of_client = code == ERROR_UNREACHABLE || code == ERROR_DISCONNECTED;
        if (of_client) {
            snprintf(row, sizeof(row), "`%s`", error_name(code));
        } else {
            snprintf(row, sizeof(row), "| `%s` | %s |", error_name(code),
                     error_survives(code) ? "yes" : "no");
        }
        expect(row);
    }
}

static void test_names_of_fields(void **state)
{
    (void)state;
    static const struct schema *const all[] = {&query_schema, &answer_schema, &progress_schema};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        for (size_t j = 0; j < all[i]->n; j++) {
            char name[64];
            snprintf(name, sizeof(name), "`%s`", all[i]->fields[j].name);
            expect(name);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_names_of_fields),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
