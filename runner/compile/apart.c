/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between parent and child, and the parent's side: the runner, which has variants
 * compiled. */
#include "runner/compile/apart.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runner/base/self.h"

enum { QUIT_MS = 1000, LOOK_MS = 5 };
static const size_t BODY_MOST = 1u << 30; /* bytes; a message that says more is invalid */

struct worker { /* a child */
    int fd;     /* of the socket to the child */
    pid_t pid;
    const struct variant *variant; /* borrowed: the variant being compiled */
    bool stopped;                  /* stop_apart() was called for this compile */
    struct worker *next;
};

struct apart {
    struct compiler base; /* first member: callers see this as the compiler; base.ops is &ops */
    /* the inner compiler's ops, with compile, stop, close and version replaced */
    struct compiler_ops ops;
    struct compiler *inner; /* owned */
    char *spec;             /* owned */
    pthread_mutex_t lock;
    struct worker *idle, *busy; /* owned lists */
    /* true when children cannot be used, so that this process compiles */
    atomic_bool broken;
};

static bool enabled;
static struct apart *opened; /* the compiler that was opened last, for apart_quit() */

void apart_enable(void)
{
    /* with SIGCHLD ignored, waitpid could not return a child's exit status */
    signal(SIGCHLD, SIG_DFL);
    enabled = true;
}

/* ---- messages -------------------------------------------------------------------------------- */

static bool send_all(int fd, const void *data, size_t n)
{
    for (const char *at = data; n > 0;) {
        ssize_t sent = send(fd, at, n, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR) {
            return false;
        }
        at += sent > 0 ? sent : 0;
        n -= sent > 0 ? (size_t)sent : 0;
    }
    return true;
}

static bool receive_all(int fd, void *data, size_t n)
{
    for (char *at = data; n > 0;) {
        ssize_t got = recv(fd, at, n, 0);
        if (got == 0 || (got < 0 && errno != EINTR)) {
            return false;
        }
        at += got > 0 ? got : 0;
        n -= got > 0 ? (size_t)got : 0;
    }
    return true;
}

bool apart_send(int fd, const void *head, size_t size, const void *body, size_t n)
{
    return send_all(fd, head, size) && send_all(fd, &n, sizeof(n)) && send_all(fd, body, n);
}

bool apart_receive(int fd, void *head, size_t size, void **body, size_t *n)
{
    *body = NULL;
    if (!receive_all(fd, head, size) || !receive_all(fd, n, sizeof(*n)) || *n > BODY_MOST) {
        return false;
    }
    char *bytes = malloc(*n + 1);
    if (!bytes || !receive_all(fd, bytes, *n)) {
        free(bytes);
        return false;
    }
    bytes[*n] = '\0';
    *body = bytes;
    return true;
}

/* ---- children -------------------------------------------------------------------------------- */

/* Closes the socket, which ends the child; kills a child that does not end. Returns the status of
 * waitpid(). */
static int apart_end_worker(struct worker *w)
{
    int status = 0, waited = 0;
    pid_t r;
    close(w->fd);
    while ((r = waitpid(w->pid, &status, WNOHANG)) == 0 || (r < 0 && errno == EINTR)) {
        nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000L}, NULL);
        waited += LOOK_MS;
        if (waited == QUIT_MS) {
            kill(w->pid, SIGKILL);
        }
    }
    free(w);
    return status;
}

static struct worker *apart_start_worker(struct apart *a, struct error *err)
{
    struct worker *w = calloc(1, sizeof(*w));
    const char *const args[] = {"gemmd-runner", "--compile", "--device", a->spec,
                                "--fd",         SELF_FD,     NULL};
    if (!w) {
        error_set(err, ERROR_NO_MEMORY, "no memory");
        return NULL;
    }
    if (self_start(args, &w->fd, &w->pid, err)) {
        free(w);
        return NULL;
    }
    return w;
}

static struct worker *take_idle(struct apart *a)
{
    pthread_mutex_lock(&a->lock);
    struct worker *w = a->idle;
    a->idle = w ? w->next : NULL;
    pthread_mutex_unlock(&a->lock);
    return w;
}

/* Takes an idle child for a compile. When *fresh is true, or no idle child is alive, starts a new
 * child and sets *fresh. */
static struct worker *apart_take_worker(struct apart *a, bool *fresh, struct error *err)
{
    struct worker *w;
    while (!*fresh && (w = take_idle(a))) {
        siginfo_t info = {.si_pid = 0};
        const int ended = WEXITED | WSTOPPED; /* a child stopped by SIGSTOP would never compile */
        if (waitid(P_PID, (id_t)w->pid, &info, ended | WNOHANG | WNOWAIT) == 0 &&
            info.si_pid == 0) {
            return w;
        }
        if (info.si_code == CLD_STOPPED) {
            kill(w->pid, SIGKILL);
        }
        apart_end_worker(w);
    }
    *fresh = true;
    return apart_start_worker(a, err);
}

static void set_busy(struct apart *a, struct worker *w, const struct variant *v)
{
    pthread_mutex_lock(&a->lock);
    w->variant = v;
    w->next = a->busy;
    a->busy = w;
    pthread_mutex_unlock(&a->lock);
}

/* Takes a child off the busy list after a compile. True: the child is idle and may be used again.
 * False: the caller must end the child. well: the child has answered. */
static bool set_done(struct apart *a, struct worker *w, bool well)
{
    pthread_mutex_lock(&a->lock);
    struct worker **at = &a->busy;
    while (*at != w) {
        at = &(*at)->next;
    }
    *at = w->next;
    well = well && !w->stopped;
    if (well) {
        w->next = a->idle;
        a->idle = w;
    }
    pthread_mutex_unlock(&a->lock);
    return well;
}

/* Shuts down the child's socket, as if this process had ended: the child may have files to remove.
 * The thread in apart_ask_worker then ends the child. */
static void stop_apart(struct compiler *c, const struct variant *v)
{
    struct apart *a = (struct apart *)c;
    pthread_mutex_lock(&a->lock);
    for (struct worker *w = a->busy; w; w = w->next) {
        if (w->variant == v) {
            w->stopped = true;
            shutdown(w->fd, SHUT_RDWR);
        }
    }
    pthread_mutex_unlock(&a->lock);
}

/* ---- compiling ------------------------------------------------------------------------------- */

static void apart_give_up_children(struct apart *a, const char *why)
{
    if (!atomic_exchange(&a->broken, true)) {
        fprintf(stderr,
                "gemmd-runner: compiling in this process from now on, which takes longer: %s\n",
                why);
    }
}

enum ending { ANSWERED, STOPPED, CRASHED, KILLED, ENDED, OTHER_COMPILER };

static enum ending ending_of(int status)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
    for (size_t i = 0; WIFSIGNALED(status) && i < sizeof(faults) / sizeof(faults[0]); i++) {
        if (WTERMSIG(status) == faults[i]) {
            return CRASHED;
        }
    }
    return WIFSIGNALED(status) ? KILLED : ENDED;
}

/* Moves the image or the error of a child's answer to the caller. Returns the compiler's result. */
static int apart_take_answer(const struct apart_answer *from, void *data, size_t n,
                             struct image *out, struct error *err)
{
    *out = from->image;
    out->data = from->code ? NULL : data;
    out->size = from->code ? 0 : n;
    if (from->code) {
        free(data);
        return error_set(err, from->code, "%s", from->text);
    }
    return 0;
}

/* Asks a child to compile. *r: the status in the answer; *status: how a child without an answer
 * ended. */
static enum ending apart_ask_worker(struct apart *a, struct worker *w, const struct variant *v,
                                    struct image *out, int *r, int *status, struct error *err)
{
    struct apart_answer answer;
    void *data = NULL;
    size_t n;
    set_busy(a, w, v);
    const bool answered = apart_send(w->fd, v, sizeof(*v), v->source, strlen(v->source)) &&
                          apart_receive(w->fd, &answer, sizeof(answer), &data, &n);
    const bool same = answered && strcmp(answer.compiler, a->inner->ops->version(a->inner)) == 0;
    if (same) {
        *r = apart_take_answer(&answer, data, n, out, err);
    } else {
        free(data);
    }
    const bool well = set_done(a, w, same), stopped = !well && w->stopped;
    if (!well) {
        *status = apart_end_worker(w);
    }
    return same ? ANSWERED : answered ? OTHER_COMPILER : stopped ? STOPPED : ending_of(*status);
}

/* Only a crash of a fresh child, which has compiled nothing before, is the variant's fault. So when
 * a used child ends without an answer, a fresh child tries again. When a signal from outside kills
 * two fresh children, memory is short, which is no fault of the variant. */
static int compile_apart(struct compiler *c, const struct variant *v, struct image *out,
                         struct error *err)
{
    struct apart *a = (struct apart *)c;
    for (int killed = 0, tries = 0; !a->broken; tries++) {
        struct error why = ERROR_NULL;
        bool fresh = tries > 0;
        int r = 0, status = 0;
        struct worker *w = apart_take_worker(a, &fresh, &why);
        if (!w) {
            apart_give_up_children(a, why.text);
            continue;
        }
        *out = (struct image){0};
        switch (apart_ask_worker(a, w, v, out, &r, &status, err)) {
        case ANSWERED:
            return r;
        case STOPPED:
            return error_set(err, ERROR_HUNG, "the compiler was stopped");
        case OTHER_COMPILER:
            apart_give_up_children(a, "the compiler has been replaced");
            break;
        case CRASHED:
            if (fresh) {
                return error_set(err, ERROR_CRASHED, "the compiler crashed: signal %d (%s)",
                                 WTERMSIG(status), strsignal(WTERMSIG(status)));
            }
            break;
        case KILLED:
            if (fresh && killed++) {
                return error_set(err, ERROR_NO_MEMORY,
                                 "the compiler's process was killed twice (signal %d), as it is "
                                 "where memory is short",
                                 WTERMSIG(status));
            }
            break;
        case ENDED:
            if (fresh) {
                error_set(&why, ERROR_IO, "a compiler's process ended with status %d",
                          WEXITSTATUS(status));
                apart_give_up_children(a, why.text);
            }
            break;
        }
    }
    return a->inner->ops->compile(a->inner, v, out, err);
}

/* ---- the compiler ---------------------------------------------------------------------------- */

static const char *version_apart(const struct compiler *c)
{
    const struct apart *a = (const struct apart *)c;
    return a->inner->ops->version(a->inner);
}

/* Shuts the sockets of all idle children down at once, then waits for each child. */
static void end_idle(struct apart *a)
{
    pthread_mutex_lock(&a->lock);
    struct worker *w = a->idle;
    a->idle = NULL;
    pthread_mutex_unlock(&a->lock);
    for (struct worker *i = w; i; i = i->next) {
        shutdown(i->fd, SHUT_RDWR);
    }
    while (w) {
        struct worker *next = w->next;
        apart_end_worker(w);
        w = next;
    }
}

/* Ends all children; no call of compile or stop may be under way. */
static void close_apart(struct compiler *c)
{
    struct apart *a = (struct apart *)c;
    end_idle(a);
    a->inner->ops->close(a->inner);
    pthread_mutex_destroy(&a->lock);
    free(a->spec);
    opened = opened == a ? NULL : opened;
    free(a);
}

void apart_quit(void)
{
    if (opened) {
        end_idle(opened);
    }
}

int apart_open(const char *spec, struct compiler **out, struct error *err)
{
    struct compiler *inner;
    *out = NULL;
    int r = compiler_open(spec, &inner, err);
    if (r || !enabled || !inner->ops->apart) {
        *out = inner;
        return r;
    }
    struct apart *a = calloc(1, sizeof(*a));
    char *copy = strdup(spec);
    if (!a || !copy) {
        free(a);
        free(copy);
        inner->ops->close(inner);
        return error_set(err, ERROR_NO_MEMORY, "no memory for a compiler");
    }
    a->ops = *inner->ops;
    a->ops.open = NULL;
    a->ops.close = close_apart;
    a->ops.version = version_apart;
    a->ops.compile = compile_apart;
    a->ops.stop = stop_apart;
    a->base.ops = &a->ops;
    a->inner = inner;
    a->spec = copy;
    pthread_mutex_init(&a->lock, NULL);
    opened = a;
    *out = &a->base;
    return 0;
}
