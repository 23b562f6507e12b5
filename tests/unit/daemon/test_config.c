/* SPDX-License-Identifier: Apache-2.0 */
/* Settings: read, refused with file and line, shown with their sources. */
#include "common.h"
#include "daemon/base/config.h"

static struct config config;
static struct config_sources from;
static struct folder folder;
static char path[128];

static int setup(void **state)
{
    (void)state;
    folder = folder_make();
    snprintf(path, sizeof(path), "%s/gemmd.conf", folder.path);
    config_init(&config, &from);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    folder_remove(&folder);
    return 0;
}

static int read_bytes(const char *bytes, size_t n, struct error *err)
{
    FILE *f = fopen(path, "w");
    fwrite(bytes, 1, n, f);
    fclose(f);
    *err = ERROR_NULL;
    config_init(&config, &from);
    return config_read(&config, &from, path, true, err);
}

static int read_text(const char *text, struct error *err)
{
    return read_bytes(text, strlen(text), err);
}

static const char *source_of(const char *name)
{
    for (int i = 0; i < CONFIG_KEYS; i++) {
        if (strcmp(config_keys[i].name, name) == 0) {
            return from.of[i];
        }
    }
    fail_msg("no key %s", name);
    return NULL;
}

static void defaults_hold(void **state)
{
    (void)state;
    assert_string_equal(config.log_level, "info");
    assert_int_equal(config.linger_ms, 5000);
    assert_false(config.offline);
    assert_true(config.min_gain == 1);
    assert_string_equal(source_of("linger-ms"), "default");
}

static void a_file_is_read_and_remembered_by_line(void **state)
{
    struct error err;
    char line[160];
    (void)state;
    assert_ok(read_text("# ops\n[gemmd]\nbucket = pow2 ; as ever\n\nlinger-ms=250\noffline = yes\n",
                        &err),
              &err);
    assert_string_equal(config.bucket, "pow2");
    assert_int_equal(config.linger_ms, 250);
    assert_true(config.offline);
    snprintf(line, sizeof(line), "%s:5", path);
    assert_string_equal(source_of("linger-ms"), line);
    assert_ok(config_set(&config, &from, "linger-ms", "7", "command line", &err), &err);
    assert_int_equal(config.linger_ms, 7);
    assert_ok(config_set(&config, &from, "min-gain", "0.25", "command line", &err), &err);
    assert_true(config.min_gain == 0.25);
    assert_string_equal(source_of("linger-ms"), "command line");
}

static void refused(const char *text, int code, const char *word, int line)
{
    struct error err;
    char place[160];
    assert_int_equal(read_text(text, &err), code);
    snprintf(place, sizeof(place), "%s:%d", path, line);
    if (!strstr(err.text, word) || !strstr(err.text, place)) {
        fail_msg("'%s' and '%s' are not in: %s", word, place, err.text);
    }
}

static void unknown_settings_are_refused_with_their_line(void **state)
{
    (void)state;
    refused("[gemmd]\nbucket = pow2\ncolour = red\n", ERROR_UNKNOWN_FIELD, "colour", 3);
    refused("[gemmd]\nlinger-ms = soon\n", ERROR_INVALID, "soon", 2);
    refused("[gemmd]\nmax-connections = 0\n", ERROR_INVALID, "from 1", 2);
    refused("[gemmd]\nmin-gain = -1\n", ERROR_INVALID, "from 0 to 100", 2);
    refused("[gemmd]\nmin-gain = nan\n", ERROR_INVALID, "from 0 to 100", 2);
    refused("[gemmd]\nmin-gain = 1%\n", ERROR_INVALID, "a number", 2);
    refused("[gemmd]\noffline = perhaps\n", ERROR_INVALID, "true or false", 2);
    refused("[gemmd]\nlog-level = info\nbucket = log\n", ERROR_INVALID, "'log'", 3);
    refused("[gemmd]\nlog-level = loud\n", ERROR_INVALID, "\"loud\"", 2);
    refused("[other]\nbucket = pow2\n", ERROR_UNKNOWN_FIELD, "[other]", 2);
    refused("[gemmd]\nthis is nothing\n", ERROR_INVALID, "key = value", 2);
    refused("bucket = pow2\n", ERROR_UNKNOWN_FIELD, "write [gemmd] above", 1);
}

static void a_setting_stands_once_in_a_file(void **state)
{
    struct error err;
    (void)state;
    refused("[gemmd]\nlinger-ms = 1\nbucket = pow2\nlinger-ms = 1\n", ERROR_CONFLICT,
            "linger-ms is set in line 2 already", 4);
    assert_ok(read_text("[gemmd]\nlinger-ms = 1\n", &err), &err);
    assert_ok(config_set(&config, &from, "linger-ms", "2", "command line", &err), &err);
    assert_ok(config_set(&config, &from, "linger-ms", "3", "command line", &err), &err);
    assert_int_equal(config.linger_ms, 3);
}

static void a_zero_byte_is_refused(void **state)
{
    static const char bytes[] = "[gemmd]\nlinger-ms = 3\0000\n";
    struct error err;
    (void)state;
    assert_int_equal(read_bytes(bytes, sizeof(bytes) - 1, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "gemmd.conf:2: the line has a zero byte"));
}

static void a_line_has_room_for_the_longest_value_and_any_remark(void **state)
{
    struct error err;
    char value[PATHS_MAX], remark[3000], text[8192];
    (void)state;
    memset(value, 'v', sizeof(value));
    value[sizeof(value) - 1] = '\0';
    memset(remark, 'r', sizeof(remark));
    remark[sizeof(remark) - 1] = '\0';
    snprintf(text, sizeof(text), "# %s\n[gemmd]\ndatabase = %s ; %s\nsocket\t:a;b = c \t;d\n",
             remark, value, remark);
    assert_ok(read_text(text, &err), &err);
    assert_string_equal(config.database, value);
    assert_string_equal(config.socket, "a;b = c");
    snprintf(text, sizeof(text), "[gemmd]\ndatabase = %sv\n", value);
    refused(text, ERROR_INVALID, "database is longer than 1023 bytes", 2);
}

static void a_missing_file_matters_only_when_it_was_named(void **state)
{
    (void)state;
    struct error err = ERROR_NULL;
    assert_int_equal(config_read(&config, &from, "/nonexistent/x.conf", false, &err), 0);
    assert_int_equal(config_read(&config, &from, "/nonexistent/x.conf", true, &err), ERROR_IO);
    assert_non_null(strstr(err.text, "/nonexistent/x.conf"));
}

static void text_that_does_not_fit_is_refused(void **state)
{
    struct error err = ERROR_NULL;
    char group[100];
    (void)state;
    memset(group, 'g', sizeof(group) - 1);
    group[sizeof(group) - 1] = 0;
    assert_int_equal(config_set(&config, &from, "group", group, "x", &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "63 bytes"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(defaults_hold, setup, teardown),
        cmocka_unit_test_setup_teardown(a_file_is_read_and_remembered_by_line, setup, teardown),
        cmocka_unit_test_setup_teardown(unknown_settings_are_refused_with_their_line, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_setting_stands_once_in_a_file, setup, teardown),
        cmocka_unit_test_setup_teardown(a_zero_byte_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(a_line_has_room_for_the_longest_value_and_any_remark, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_missing_file_matters_only_when_it_was_named, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(text_that_does_not_fit_is_refused, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
