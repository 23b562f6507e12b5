/* SPDX-License-Identifier: Apache-2.0 */
/* Who owns a socket path and a device. */
#include "common.h"
#include "daemon/server.h"

static struct server a, b;

static void the_second_is_told_about_the_first(void **state)
{
    (void)state;
    struct folder f = folder_make();
    struct error err = ERROR_NULL;
    char path[96], pid[32];
    snprintf(path, sizeof(path), "%s/new/deep/x.sock", f.path);
    snprintf(pid, sizeof(pid), "pid %d", (int)getpid());
    assert_ok(server_lock(&a, path, "GPU-1", false, &err), &err);
    assert_int_equal(server_lock(&b, path, "GPU-1", false, &err), ERROR_BUSY);
    assert_non_null(strstr(err.text, pid));
    assert_non_null(strstr(err.text, path));
    server_deinit(&a);
    assert_ok(server_lock(&b, path, "GPU-1", false, &err), &err);
    server_deinit(&b);
    folder_remove(&f);
}

static void a_device_has_one_daemon_wherever_its_socket_is(void **state)
{
    (void)state;
    struct folder f = folder_make();
    struct error err = ERROR_NULL;
    char one[96], two[96], uuid[48], who[48];
    snprintf(one, sizeof(one), "%s/1.sock", f.path);
    snprintf(two, sizeof(two), "%s/2.sock", f.path);
    snprintf(uuid, sizeof(uuid), "GPU-test-%d", (int)getpid());
    assert_ok(server_lock(&a, one, uuid, true, &err), &err);
    assert_int_equal(server_lock(&b, two, uuid, true, &err), ERROR_BUSY);
    assert_non_null(strstr(err.text, uuid));
    snprintf(who, sizeof(who), "pid %d of user %d", (int)getpid(), (int)geteuid());
    assert_non_null(strstr(err.text, who));
    server_deinit(&b);
    assert_ok(server_lock(&b, two, uuid, false, &err), &err);
    server_deinit(&b);
    server_deinit(&a);
    folder_remove(&f);
}

static void a_path_that_does_not_fit_is_refused(void **state)
{
    (void)state;
    struct error err = ERROR_NULL;
    char path[160] = "/tmp/";
    memset(path + 5, 'x', 120);
    assert_int_equal(server_lock(&a, path, "cpu", false, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "107"));
    server_deinit(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_second_is_told_about_the_first),
        cmocka_unit_test(a_device_has_one_daemon_wherever_its_socket_is),
        cmocka_unit_test(a_path_that_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
