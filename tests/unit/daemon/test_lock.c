/* SPDX-License-Identifier: Apache-2.0 */
/* Locks of a socket path and of a device. */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "common.h"
#include "daemon/session/server.h"
#include "proto/lockfile.h"

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

/* ---- devices --------------------------------------------------------------------------------- */

/* A folder with the runtime directory "run", and a device that no other test uses. */
struct host {
    struct folder f;
    char uuid[48], lock[160];
};

static void use_runtime_dir(const struct host *h, const char *name)
{
    char dir[96];
    snprintf(dir, sizeof(dir), "%s/%s", h->f.path, name);
    mkdir(dir, 0700);
    setenv("GEMMD_SYSTEM", "0", 1);
    setenv("XDG_RUNTIME_DIR", dir, 1);
}

static struct host host_make(void)
{
    struct host h = {.f = folder_make()};
    snprintf(h.uuid, sizeof(h.uuid), "GPU-test-%d", (int)getpid());
    snprintf(h.lock, sizeof(h.lock), "%s/run/gemmd/device-%s.lock", h.f.path, h.uuid);
    use_runtime_dir(&h, "run");
    return h;
}

static int lock_at(struct server *s, const struct host *h, const char *socket, struct error *err)
{
    char path[96];
    snprintf(path, sizeof(path), "%s/%s", h->f.path, socket);
    return server_lock(s, path, h->uuid, true, err);
}

/* Starts another daemon on the same device and waits for its locks. 0: fork failed. */
static pid_t daemon_elsewhere(const struct host *h, bool other_network)
{
    int ready[2];
    char said = 0;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct error err = ERROR_NULL;
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed test leaves no process behind */
        said = other_network && unshare(CLONE_NEWNET) < 0    ? 'n'
               : lock_at(&a, h, "elsewhere.sock", &err) == 0 ? 'y'
                                                             : 'n';
        _exit(write(ready[1], &said, 1) == 1 && said == 'y' ? pause() : 1);
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &said, 1), 1);
    close(ready[0]);
    if (said != 'y') {
        waitpid(pid, NULL, 0);
    }
    return said == 'y' ? pid : 0;
}

static void kill_hard(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void refused_naming(const struct host *h, pid_t holder)
{
    struct error err = ERROR_NULL;
    char who[32];
    snprintf(who, sizeof(who), "(pid %d", (int)holder);
    assert_int_equal(lock_at(&b, h, "here.sock", &err), ERROR_BUSY);
    assert_non_null(strstr(err.text, h->uuid));
    assert_non_null(strstr(err.text, who));
    assert_int_equal(b.device_lock.file, -1);
    server_deinit(&b);
}

static void a_device_has_one_daemon_wherever_its_socket_is(void **state)
{
    (void)state;
    struct host h = host_make();
    struct error err = ERROR_NULL;
    struct stat st;
    char path[96];
    assert_ok(lock_at(&a, &h, "1.sock", &err), &err);
    refused_naming(&h, getpid());
    assert_int_equal(stat(h.lock, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    snprintf(path, sizeof(path), "%s/run/gemmd", h.f.path);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0750);
    snprintf(path, sizeof(path), "%s/2.sock", h.f.path);
    assert_ok(server_lock(&b, path, h.uuid, false, &err), &err); /* without a device lock */
    server_deinit(&b);
    server_deinit(&a);
    assert_ok(lock_at(&b, &h, "2.sock", &err), &err);
    server_deinit(&b);
    folder_remove(&h.f);
}

static void a_lock_file_left_behind_is_no_obstacle(void **state)
{
    (void)state;
    struct host h = host_make();
    struct error err = ERROR_NULL;
    pid_t other = daemon_elsewhere(&h, false);
    assert_true(other > 0);
    refused_naming(&h, other);
    kill_hard(other);
    assert_int_equal(access(h.lock, F_OK), 0);
    assert_int_equal(lockfile_holder(h.lock, 0).pid, other);
    assert_ok(lock_at(&b, &h, "here.sock", &err), &err);
    assert_int_equal(lockfile_holder(h.lock, 0).pid, getpid());
    server_deinit(&b);
    folder_remove(&h.f);
}

/* A user who may read a lock file can take the lock. */
static void a_lock_file_is_closed_to_other_users(void **state)
{
    (void)state;
    struct host h = host_make();
    struct error err = ERROR_NULL;
    struct stat st;
    assert_ok(lock_at(&a, &h, "1.sock", &err), &err);
    server_deinit(&a);
    assert_int_equal(chmod(h.lock, 0644), 0); /* an older gemmd left the file with this mode */
    assert_ok(lock_at(&a, &h, "1.sock", &err), &err);
    assert_int_equal(stat(h.lock, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    server_deinit(&a);
    folder_remove(&h.f);
}

/* The holder of the lock has not written its pid; the pid in the file is of a dead process. */
static void a_dead_holder_is_not_named(void **state)
{
    (void)state;
    struct host h = host_make();
    struct error err = ERROR_NULL;
    char dead[32];
    pid_t other = daemon_elsewhere(&h, false);
    assert_true(other > 0);
    kill_hard(other);
    int fd = open(h.lock, O_RDONLY);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    assert_int_equal(lock_at(&b, &h, "here.sock", &err), ERROR_BUSY);
    snprintf(dead, sizeof(dead), "pid %d", (int)other);
    assert_null(strstr(err.text, dead));
    assert_non_null(strstr(err.text, "lslocks"));
    server_deinit(&b);
    close(fd);
    folder_remove(&h.f);
}

/* Daemons in containers with separate networks: only the lock file shows the conflict. */
static void containers_with_a_network_each_agree_on_the_file(void **state)
{
    (void)state;
    struct host h = host_make();
    pid_t other = daemon_elsewhere(&h, true);
    if (!other) {
        folder_remove(&h.f);
        skip(); /* needs root */
    }
    refused_naming(&h, other);
    kill_hard(other);
    folder_remove(&h.f);
}

/* Daemons with separate runtime directories: only the abstract socket name shows the conflict. */
static void users_with_a_directory_each_agree_on_the_name(void **state)
{
    (void)state;
    struct host h = host_make();
    pid_t other = daemon_elsewhere(&h, false);
    assert_true(other > 0);
    use_runtime_dir(&h, "of another user");
    refused_naming(&h, other);
    kill_hard(other);
    folder_remove(&h.f);
}

static void what_is_planted_in_the_locks_place_is_not_written_to(void **state)
{
    (void)state;
    static const char text[] = "data";
    struct host h = host_make();
    struct error err = ERROR_NULL;
    struct stat st;
    char precious[96];
    snprintf(precious, sizeof(precious), "%s/precious", h.f.path);
    int fd = open(precious, O_WRONLY | O_CREAT, 0600);
    assert_int_equal(write(fd, text, sizeof(text)), sizeof(text));
    close(fd);
    assert_ok(lock_at(&a, &h, "1.sock", &err), &err); /* makes the directory */
    server_deinit(&a);
    for (int hard = 0; hard < 2; hard++) {
        unlink(h.lock);
        assert_int_equal((hard ? link : symlink)(precious, h.lock), 0);
        assert_int_equal(lock_at(&a, &h, "1.sock", &err), ERROR_DENIED);
        assert_non_null(strstr(err.text, h.lock));
        assert_non_null(strstr(err.text, "remove it"));
        server_deinit(&a);
        assert_int_equal(stat(precious, &st), 0);
        assert_int_equal(st.st_size, sizeof(text));
    }
    folder_remove(&h.f);
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
        cmocka_unit_test(a_lock_file_left_behind_is_no_obstacle),
        cmocka_unit_test(a_lock_file_is_closed_to_other_users),
        cmocka_unit_test(a_dead_holder_is_not_named),
        cmocka_unit_test(containers_with_a_network_each_agree_on_the_file),
        cmocka_unit_test(users_with_a_directory_each_agree_on_the_name),
        cmocka_unit_test(what_is_planted_in_the_locks_place_is_not_written_to),
        cmocka_unit_test(a_path_that_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
