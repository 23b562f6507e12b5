/* SPDX-License-Identifier: Apache-2.0 */
/* The child's side of apart.h: the process that compiles, one variant at a time. */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "runner/base/self.h"
#include "runner/compile/apart.h"

enum { LOOK_MS = 5, STOP_MS = 5000 };

static struct {
    pthread_mutex_t lock;
    struct compiler *compiler;     /* borrowed; NULL: not opened yet */
    const struct variant *variant; /* borrowed: the variant being compiled, or NULL */
    bool gone;                     /* the parent has closed the socket */
} now = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Records in `now` the variant that is being compiled. False: the parent has gone, so the compile
 * must not begin. */
static bool apart_child_begin_compile(struct compiler *c, const struct variant *v)
{
    pthread_mutex_lock(&now.lock);
    const bool going = !now.gone;
    now.compiler = c;
    now.variant = going ? v : NULL;
    pthread_mutex_unlock(&now.lock);
    return going;
}

static void apart_child_end_compile(void)
{
    pthread_mutex_lock(&now.lock);
    now.variant = NULL;
    pthread_mutex_unlock(&now.lock);
}

/* Stops the current compile. False: no compile runs, or it cannot be stopped. */
static bool apart_child_stop_compile(void)
{
    pthread_mutex_lock(&now.lock);
    now.gone = true;
    const bool can = now.variant && now.compiler->ops->stop;
    if (can) {
        now.compiler->ops->stop(now.compiler, now.variant);
    }
    pthread_mutex_unlock(&now.lock);
    return can;
}

/* Ends the child when the parent closes the socket, also during a compile or while a library is
 * being opened. A compile that can be stopped is stopped, so that it removes its files. The loop
 * repeats the stop, since the compiler may not have started yet. */
static void *apart_child_watch_parent(void *arg)
{
    const short gone = POLLRDHUP | POLLHUP | POLLERR | POLLNVAL;
    struct pollfd f = {.fd = *(int *)arg, .events = POLLRDHUP};
    while (poll(&f, 1, -1) < 0 || !(f.revents & gone)) {
    }
    for (int waited = 0; waited < STOP_MS && apart_child_stop_compile(); waited += LOOK_MS) {
        nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000L}, NULL);
    }
    _exit(0);
    return NULL;
}

static int apart_child_compile(struct compiler *c, const struct variant *v, struct image *image,
                               struct error *err)
{
    if (!apart_child_begin_compile(c, v)) {
        return error_set(err, ERROR_HUNG, "the compiler was stopped");
    }
    int r = c->ops->compile(c, v, image, err);
    apart_child_end_compile();
    return r;
}

static bool apart_child_answer(struct compiler *c, int fd, const struct variant *v)
{
    struct apart_answer a = {.code = 0};
    struct error err = ERROR_NULL;
    a.code = apart_child_compile(c, v, &a.image, &err);
    snprintf(a.compiler, sizeof(a.compiler), "%s", c->ops->version(c));
    snprintf(a.text, sizeof(a.text), "%s", err.text);
    const bool sent = apart_send(fd, &a, sizeof(a), a.image.data, a.image.size);
    image_deinit(&a.image);
    return sent;
}

int apart_child(const char *spec, int fd)
{
    struct compiler *c = NULL;
    struct error err = ERROR_NULL;
    pthread_t watcher;
    struct variant v;
    void *source;
    size_t n;
    self_begin(fd);
    prctl(PR_SET_NAME, "gemmd-compile");
    int r = pthread_create(&watcher, NULL, apart_child_watch_parent, &fd)
                ? error_set(&err, ERROR_NO_MEMORY, "no thread")
                : compiler_open(spec, &c, &err);
    if (r) {
        fprintf(stderr, "gemmd-runner: a compiler's process cannot begin: %s\n", err.text);
        return 1;
    }
    bool going = true;
    while (going && apart_receive(fd, &v, sizeof(v), &source, &n)) {
        v.source = source;
        going = apart_child_answer(c, fd, &v);
        free(source);
    }
    c->ops->close(c);
    return 0;
}
