/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon must outlive the process that starts it, and must not become its child: a training job
 * does not expect to reap unknown children. So a shell is spawned in a session of its own. The
 * shell starts gemmd in the background, writes the pid to a pipe and ends; init adopts gemmd.
 *
 * Because of a file lock only a single process starts a daemon at a time: eight ranks that find no
 * daemon start one. The lock belongs to the open file, so a child of fork() would hold the lock as
 * long as the child lives. Therefore the child calls start_end() for its copies of all starts, also
 * of other threads' (client/handle.c).
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/clock.h"
#include "client/link.h"
#include "proto/lockfile.h"
#include "proto/paths.h"
#include "proto/trust.h"

enum { POLL_MS = 10, LAST_WORDS_MAX = 300 };

/* Protects `locked` and `held` of every start: a child of fork() must find the two consistent. */
pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- the program ---------------------------------------------------------------------------- */

static bool in_path(char out[PATHS_MAX])
{
    const char *at = getenv("PATH");
    while (at && *at) {
        int length = (int)strcspn(at, ":");
        if (length > 0 && snprintf(out, PATHS_MAX, "%.*s/gemmd", length, at) < PATHS_MAX &&
            paths_is_program(out)) {
            return true;
        }
        at += length + (at[length] == ':');
    }
    return false;
}

static int find_program(char out[PATHS_MAX], struct error *err)
{
    const char *named = getenv("GEMMD_DAEMON");
    if (named && *named) {
        if (snprintf(out, PATHS_MAX, "%s", named) >= PATHS_MAX || !paths_is_program(out)) {
            return error_set(err, ERROR_UNREACHABLE,
                             "GEMMD_DAEMON=%s is not a program that can be "
                             "run",
                             named);
        }
        return 0;
    }
    if (paths_find_near("gemmd", out) || in_path(out)) {
        return 0;
    }
    return error_set(err, ERROR_UNREACHABLE,
                     "cannot start gemmd: it is neither beside this program "
                     "nor in PATH; set GEMMD_DAEMON to its path");
}

/* ---- lock and log --------------------------------------------------------------------------- */

/* Refuses a socket in a folder that gemmd will refuse, for example another user's. Else a failed
 * start would leave root's log and lock where the right user cannot use them. */
static int start_check_socket(const char *socket, struct error *err)
{
    const char *slash = strrchr(socket, '/');
    char dir[PATHS_MAX];
    if (!slash || slash == socket) {
        return 0;
    }
    snprintf(dir, sizeof(dir), "%.*s", (int)(slash - socket), socket);
    int r = trust_folder(dir, TRUST_STRICT, 0, NULL, err);
    return r < 0 ? error_prefix(err, "cannot start gemmd") : 0;
}

static int name_files(struct start *s, struct error *err)
{
    char dir[PATHS_MAX];
    int r = start_check_socket(s->socket, err);
    r = r ? r : paths_state_dir(dir, err);
    struct error why = ERROR_NULL;
    if (r || paths_make_dir(dir, 0700, &why)) {
        return r ? r
                 : error_set(err, why.code, "%.300s; set XDG_STATE_HOME to another place",
                             why.text);
    }
    const char *slash = strrchr(s->socket, '/');
    const char *base = slash ? slash + 1 : s->socket;
    int length = (int)strcspn(base, ".");
    if (snprintf(s->log, PATHS_MAX, "%s/%.*s.log", dir, length, base) >= PATHS_MAX ||
        snprintf(s->lock, PATHS_MAX, "%s/%.*s.start", dir, length, base) >= PATHS_MAX) {
        return error_set(err, ERROR_INVALID, "the state directory's path is too long: %s", dir);
    }
    return 0;
}

static int start_try_lock(struct start *s, struct error *err)
{
    pthread_mutex_lock(&start_lock);
    int r = lockfile_take(s->lock, NULL, &s->held, err);
    s->locked = r == 0;
    pthread_mutex_unlock(&start_lock);
    return r;
}

static int take_lock(struct start *s, int64_t until, struct error *err)
{
    int r;
    while ((r = start_try_lock(s, err)) == LOCKFILE_HELD) {
        if (clock_ns() >= s->deadline) {
            return error_set(err, ERROR_DEADLINE,
                             "another process has been starting gemmd for too "
                             "long (it holds %s)",
                             s->lock);
        }
        if (clock_ns() >= until) {
            return CLOCK_PASSED;
        }
        clock_sleep(clock_after_ms(POLL_MS));
    }
    return r;
}

/* Copies the last line that the daemon wrote to its log since the start, or "". */
static void start_read_last_words(const struct start *s, char out[LAST_WORDS_MAX])
{
    out[0] = '\0';
    int fd;
    if (trust_open(s->log, O_RDONLY, 0, &fd, NULL)) {
        return;
    }
    off_t end = lseek(fd, 0, SEEK_END);
    off_t from = end - (LAST_WORDS_MAX - 1);
    from = from > s->log_from ? from : s->log_from;
    ssize_t n = pread(fd, out, LAST_WORDS_MAX - 1, from);
    close(fd);
    n = n > 0 ? n : 0;
    while (n > 0 && out[n - 1] == '\n') {
        n--;
    }
    out[n] = '\0';
    char *line = strrchr(out, '\n');
    if (line) {
        memmove(out, line + 1, strlen(line + 1) + 1);
    }
}

/* ---- running the daemon --------------------------------------------------------------------- */

static void prepare_files(posix_spawn_file_actions_t *files, int log, int pid_pipe)
{
    posix_spawn_file_actions_init(files);
    posix_spawn_file_actions_addopen(files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(files, pid_pipe, 1);
    posix_spawn_file_actions_adddup2(files, log, 2);
    posix_spawn_file_actions_addclosefrom_np(files, 3);
}

static void prepare_attributes(posix_spawnattr_t *attributes)
{
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_init(attributes);
    posix_spawnattr_setsigmask(attributes, &none);
    posix_spawnattr_setsigdefault(attributes, &all);
    posix_spawnattr_setflags(attributes,
                             POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
}

static int run_shell(struct start *s, int log, int pid_pipe)
{
    const char *argv[10] = {"sh", "-c", "\"$@\" >&2 & echo $!", "gemmd-start", s->program};
    int n = 5;
    if (*s->device) {
        argv[n++] = "--device";
        argv[n++] = s->device;
    }
    if (s->pass_socket) {
        argv[n++] = "--socket";
        argv[n++] = s->socket;
    }
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    prepare_files(&files, log, pid_pipe);
    prepare_attributes(&attributes);
    pid_t shell;
    int r = posix_spawn(&shell, "/bin/sh", &files, &attributes, (char *const *)(uintptr_t)argv,
                        environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    if (r == 0) {
        while (waitpid(shell, NULL, 0) < 0 && errno == EINTR) {
        }
    }
    return r;
}

static int start_launch_daemon(struct start *s, struct error *err)
{
    int ends[2], log;
    if (pipe2(ends, O_CLOEXEC) < 0) {
        return error_set(err, ERROR_IO, "cannot make a pipe: %s", strerror(errno));
    }
    /* The log is opened after the pipe: when this process has closed 1 or 2, the pipe must get the
     * lower descriptor, not the log. */
    int r = trust_open(s->log, O_WRONLY | O_CREAT | O_APPEND, 0640, &log, err);
    if (r) {
        close(ends[0]);
        close(ends[1]);
        return error_prefix(err, "cannot write gemmd's log");
    }
    s->log_from = lseek(log, 0, SEEK_END);
    r = run_shell(s, log, ends[1]);
    close(log);
    close(ends[1]);
    char text[32] = "";
    ssize_t n = r == 0 ? read(ends[0], text, sizeof(text) - 1) : 0;
    close(ends[0]);
    s->pid = n > 0 ? (pid_t)strtol(text, NULL, 10) : 0;
    if (s->pid <= 0) {
        return error_set(err, ERROR_IO, "cannot run %s: %s", s->program,
                         r ? strerror(r) : "the shell did not say its pid");
    }
    return 0;
}

static int wait_until_it_listens(const struct start *s, int64_t until, struct error *err)
{
    char words[LAST_WORDS_MAX];
    while (!link_listens(s->socket)) {
        if (lockfile_has_ended(s->pid)) {
            start_read_last_words(s, words);
            return error_set(err, ERROR_UNREACHABLE, "gemmd ended at once%s%s (its log is %s)",
                             words[0] ? ": " : "", words, s->log);
        }
        if (clock_ns() >= s->deadline) {
            return error_set(err, ERROR_DEADLINE,
                             "gemmd (pid %d) was started but does not answer "
                             "yet (its log is %s)",
                             (int)s->pid, s->log);
        }
        if (clock_ns() >= until) {
            return CLOCK_PASSED;
        }
        clock_sleep(clock_after_ms(POLL_MS));
    }
    return 0;
}

/* ---- from step to step ---------------------------------------------------------------------- */

void start_end(struct start *s)
{
    pthread_mutex_lock(&start_lock);
    if (s->locked) {
        close(s->held);
    }
    *s = (struct start){.pid = 0};
    pthread_mutex_unlock(&start_lock);
}

static int start_advance_launch(struct start *s, int64_t until, struct error *err)
{
    int r = 0;
    if (!s->program[0]) {
        r = find_program(s->program, err);
        r = r ? r : name_files(s, err);
    }
    if (r == 0 && !s->locked) {
        r = take_lock(s, until, err);
    }
    if (r == 0 && s->pid == 0) {
        if (link_listens(s->socket)) { /* the lock's former holder has started a daemon */
            return 0;
        }
        r = start_launch_daemon(s, err);
    }
    return r ? r : wait_until_it_listens(s, until, err);
}

int start_daemon(struct start *s, int64_t until, struct error *err)
{
    int r = start_advance_launch(s, until, err);
    if (r != CLOCK_PASSED) {
        start_end(s);
    }
    return r;
}
