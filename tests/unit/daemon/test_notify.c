/* SPDX-License-Identifier: Apache-2.0 */
/* The messages to systemd, and the settings from systemd. */
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "common.h"
#include "daemon/base/notify.h"

static void a_datagram_to_the_manager(void **state)
{
    (void)state;
    struct folder f = folder_make();
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    char text[64] = "";
    snprintf(name.sun_path, sizeof(name.sun_path), "%s/notify", f.path);
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&name, sizeof(name)), 0);
    setenv("NOTIFY_SOCKET", name.sun_path, 1);
    notify_send("READY=1");
    assert_int_equal(recv(fd, text, sizeof(text), MSG_DONTWAIT), 7);
    assert_string_equal(text, "READY=1");
    setenv("NOTIFY_SOCKET", "relative", 1);
    notify_send("READY=1");
    unsetenv("NOTIFY_SOCKET");
    notify_send("READY=1");
    assert_int_equal(recv(fd, text, sizeof(text), MSG_DONTWAIT), -1);
    close(fd);
    folder_remove(&f);
}

static void a_socket_from_the_manager_is_for_us_only(void **state)
{
    (void)state;
    char pid[16];
    int kept = dup(3);
    assert_int_equal(dup2(2, 3), 3);
    setenv("LISTEN_FDS", "1", 1);
    setenv("LISTEN_PID", "1", 1);
    assert_int_equal(notify_listen_fd(), -1);
    snprintf(pid, sizeof(pid), "%d", (int)getpid());
    setenv("LISTEN_PID", pid, 1);
    assert_int_equal(notify_listen_fd(), 3);
    assert_int_equal(fcntl(3, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    assert_null(getenv("LISTEN_PID"));
    assert_int_equal(notify_listen_fd(), -1);
    if (kept >= 0) {
        dup2(kept, 3);
        close(kept);
    }
}

static void the_watchdog_is_fed_twice_in_its_time(void **state)
{
    (void)state;
    char pid[16];
    snprintf(pid, sizeof(pid), "%d", (int)getpid());
    assert_int_equal(notify_watchdog_ms(), 0);
    setenv("WATCHDOG_USEC", "30000000", 1);
    setenv("WATCHDOG_PID", pid, 1);
    assert_int_equal(notify_watchdog_ms(), 15000);
    assert_null(getenv("WATCHDOG_USEC"));
    setenv("WATCHDOG_USEC", "30000000", 1);
    setenv("WATCHDOG_PID", "1", 1);
    assert_int_equal(notify_watchdog_ms(), 0);
    setenv("WATCHDOG_USEC", "1500", 1);
    assert_int_equal(notify_watchdog_ms(), 1);
    setenv("WATCHDOG_USEC", "soon", 1);
    assert_int_equal(notify_watchdog_ms(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_datagram_to_the_manager),
        cmocka_unit_test(a_socket_from_the_manager_is_for_us_only),
        cmocka_unit_test(the_watchdog_is_fed_twice_in_its_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
