/* SPDX-License-Identifier: Apache-2.0 */
/* The listening socket when there is no memory for who comes: the linker's --wrap brings callocs
 * here. */
#include <sys/socket.h>
#include <sys/un.h>

#include "common.h"
#include "daemon/base/turns.h"
#include "daemon/session/server.h"

static unsigned refused; /* callocs that are still to fail */

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);

void *__wrap_calloc(size_t n, size_t size)
{
    if (refused > 0) {
        refused--;
        return NULL;
    }
    return __real_calloc(n, size);
}

struct fixture {
    uv_loop_t loop;
    struct turns turns;
    struct poller poller;
    struct server server;
    struct folder folder;
};

static bool on_known(void *ctx, struct session *s, const uint8_t *data, size_t n)
{
    (void)ctx, (void)s, (void)data, (void)n;
    return false;
}

static void on_message(void *ctx, struct session *s, const uint8_t *data, size_t n, bool again)
{
    (void)ctx, (void)s, (void)data, (void)n, (void)again;
}

static void on_freed(void *ctx, struct session *s)
{
    (void)ctx, (void)s;
}

static int setup(void **state)
{
    static const struct session_hooks hooks = {
        .known = on_known, .message = on_message, .freed = on_freed};
    static const struct session_limits limits = {
        .sessions = 8, .message_ms = 1000, .answer_ms = 1000, .user = {.connections = 8}};
    struct fixture *f = calloc(1, sizeof(*f));
    struct error err = ERROR_NULL;
    char path[96];
    f->folder = folder_make();
    snprintf(path, sizeof(path), "%s/s", f->folder.path);
    assert_int_equal(uv_loop_init(&f->loop), 0);
    turns_init(&f->turns, &f->loop);
    assert_ok(poller_init(&f->poller, &f->loop, &err), &err);
    assert_ok(server_lock(&f->server, path, "", false, &err), &err);
    assert_ok(server_start(&f->server, &f->turns, &f->poller, "", &limits, &hooks, f, -1, &err),
              &err);
    *state = f;
    return 0;
}

static void on_stopped(struct server *s)
{
    (void)s;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    refused = 0;
    server_stop(&f->server, on_stopped);
    turns_close(&f->turns);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    server_deinit(&f->server);
    poller_deinit(&f->poller);
    assert_int_equal(uv_loop_close(&f->loop), 0);
    folder_remove(&f->folder);
    free(f);
    return 0;
}

static int come(struct fixture *f)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    strcpy(at.sun_path, f->server.path);
    assert_int_equal(connect(fd, (const struct sockaddr *)&at, sizeof(at)), 0);
    return fd;
}

static void turn(struct fixture *f)
{
    for (int i = 0; i < 5; i++) {
        uv_run(&f->loop, UV_RUN_NOWAIT);
    }
}

/* libuv takes no other connection before one that it has handed out is accepted. */
static void who_finds_no_memory_waits_for_it(void **state)
{
    struct fixture *f = *state;
    struct error err = ERROR_NULL;
    int fds[3];
    refused = 2;
    for (int i = 0; i < 3; i++) {
        fds[i] = come(f);
        turn(f);
        assert_int_equal(f->server.sessions.n, 0);
    }
    assert_int_equal(refused, 1); /* of the first alone: it is not tried all the time */
    for (unsigned met = 0; met < 2; met++) {
        assert_ok(server_mend(&f->server, "", &err), &err);
        turn(f);
        assert_int_equal(f->server.sessions.n, met ? 3 : 0);
    }
    for (int i = 0; i < 3; i++) {
        close(fds[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(who_finds_no_memory_waits_for_it, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
