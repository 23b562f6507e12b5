/* SPDX-License-Identifier: Apache-2.0 */
/*
 * docs/store.md is an interface. Every statement in the document runs on a filled database and
 * finds rows, through the C API and, where installed, through the sqlite3 shell. The document names
 * every column.
 */
#include <stdio.h>
#include <unistd.h>

#include "store/inner.h"
#include "tests/unit/store/fixture.h"

static char *doc;

static int read_doc(void **state)
{
    (void)state;
    FILE *f = fopen(STORE_DOC, "r");
    if (!f) {
        return -1;
    }
    doc = calloc(1, 200000);
    size_t n = fread(doc, 1, 200000 - 1, f);
    fclose(f);
    return n > 0 ? 0 : -1;
}

static int free_doc(void **state)
{
    (void)state;
    free(doc);
    return 0;
}

/* Finds the next ```sql block after *at. False: no block is left. */
static bool next_sql(const char **at, char *out, size_t size)
{
    static const char fence[] = "\n```sql\n";
    const char *begin = strstr(*at, fence);
    if (!begin) {
        return false;
    }
    begin += sizeof(fence) - 1;
    const char *end = strstr(begin, "\n```");
    assert_non_null(end);
    assert_true((size_t)(end - begin) < size);
    memcpy(out, begin, (size_t)(end - begin));
    out[end - begin] = 0;
    *at = end;
    return true;
}

static void run_it(sqlite3 *h, const char *sql)
{
    sqlite3_stmt *st;
    const char *rest;
    if (sqlite3_prepare_v2(h, sql, -1, &st, &rest) != SQLITE_OK) {
        fail_msg("%s\n%s", sql, sqlite3_errmsg(h));
    }
    assert_int_equal(strspn(rest, " \n"), strlen(rest)); /* a single statement per block */
    int rows = 0, rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        rows++;
    }
    if (rc != SQLITE_DONE || rows == 0) {
        fail_msg("%s\n%d rows, %s", sql, rows, sqlite3_errmsg(h));
    }
    sqlite3_finalize(st);
}

/* Runs the statement in the shell, as the page says: sqlite3 -readonly FILE. */
static void run_in_shell(const struct fixture *f, const char *sql)
{
    char path[128], command[400];
    fixture_path(f, ".sql", path);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "%s\n", sql);
    fclose(file);
    snprintf(command, sizeof(command), "sqlite3 -bail -readonly '%s' < '%s'", f->path, path);
    FILE *shell = popen(command, "r");
    assert_non_null(shell);
    int n = 0;
    for (int c; (c = fgetc(shell)) != EOF; n++) {
    }
    int code = pclose(shell);
    if (code || n == 0) {
        fail_msg("%s\n%s: exit %d, %d bytes", sql, command, code, n);
    }
}

static void statements(const struct fixture *f, bool shell)
{
    char sql[4000];
    sqlite3 *h;
    int n = 0;
    assert_int_equal(sqlite3_open_v2(f->path, &h, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    for (const char *at = doc; next_sql(&at, sql, sizeof(sql)); n++) {
        run_it(h, sql);
        if (shell) {
            run_in_shell(f, sql);
        }
    }
    sqlite3_close(h);
    assert_true(n >= 10);
}

static void statements_run_beside_the_daemon_and_after_it(void **state)
{
    struct fixture *f = *state;
    bool shell = system("command -v sqlite3 >/dev/null 2>&1") == 0;
    struct store *s = fixture_open(f);
    fixture_fill(s);
    statements(f, shell);
    store_close(s);
    statements(f, shell);
    if (!shell) {
        print_message(
            "the sqlite3 shell is not installed: statements ran through the C API only\n");
    }
}

/* True: the text has `word` between backquotes, alone or in a list. */
static bool named(const char *word)
{
    char quoted[80];
    snprintf(quoted, sizeof(quoted), "`%s`", word);
    return strstr(doc, quoted) != NULL;
}

static void every_table_and_column_is_described(void **state)
{
    struct fixture *f = *state;
    sqlite3 *h; /* opened as a person would: our own connection does not trust the views */
    sqlite3_stmt *st;
    store_close(fixture_open(f));
    assert_int_equal(sqlite3_open_v2(f->path, &h, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(h,
                                        "SELECT t.name, t.type, c.name FROM sqlite_schema AS t,"
                                        " pragma_table_info(t.name) AS c WHERE t.type IN"
                                        " ('table', 'view') AND t.name NOT LIKE 'sqlite_%'",
                                        -1, &st, NULL),
                     SQLITE_OK);
    int n = 0, rc;
    for (; (rc = sqlite3_step(st)) == SQLITE_ROW; n++) {
        const char *table = (const char *)sqlite3_column_text(st, 0);
        const char *type = (const char *)sqlite3_column_text(st, 1);
        const char *column = (const char *)sqlite3_column_text(st, 2);
        char heading[80];
        snprintf(heading, sizeof(heading), "\n### %s", table);
        if (strcmp(type, "view") == 0 ? !named(table) : !strstr(doc, heading)) {
            fail_msg("%s %s is not described", type, table);
        }
        if (!named(column)) {
            fail_msg("column %s of %s is not described", column, table);
        }
    }
    assert_int_equal(rc, SQLITE_DONE);
    assert_true(n > 150);
    sqlite3_finalize(st);
    sqlite3_close(h);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        T(statements_run_beside_the_daemon_and_after_it),
        T(every_table_and_column_is_described),
    };
    return cmocka_run_group_tests(tests, read_doc, free_doc);
}
