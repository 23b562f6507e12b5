/* SPDX-License-Identifier: Apache-2.0 */
/* The process that compiles. */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "daemon/runner/apart.h"
#include "daemon/runner/apart_wire.h"
#include "daemon/runner/self.h"

/* A compile that never ends must not outlive who wants it, nor a library that cannot be opened. */
static void *watch(void *arg)
{
    const short gone = POLLRDHUP | POLLHUP | POLLERR | POLLNVAL;
    struct pollfd f = {.fd = *(int *)arg, .events = POLLRDHUP};
    while (poll(&f, 1, -1) < 0 || !(f.revents & gone)) {
    }
    _exit(0);
    return NULL;
}

static bool answer(struct compiler *c, int fd, const struct apart_frame *f)
{
    struct image image = {0};
    struct error err = ERROR_NULL;
    struct variant v;
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    int r = apart_get_variant(f->map, &v)
                ? c->ops->compile(c, &v, &image, &err)
                : error_set(&err, ERROR_INTERNAL, "a compiler's process was given no variant");
    apart_put_answer(&b, c->ops->version(c), r, &image, &err);
    image_deinit(&image);
    return apart_send(fd, &b);
}

int apart_child(const char *spec, int fd)
{
    struct compiler *c = NULL;
    struct error err = ERROR_NULL;
    pthread_t watcher;
    struct apart_frame f;
    self_begin(fd);
    prctl(PR_SET_NAME, "gemmd-compile");
    int r = pthread_create(&watcher, NULL, watch, &fd)
                ? error_set(&err, ERROR_NO_MEMORY, "no thread")
                : compiler_open(spec, &c, &err);
    if (r) {
        fprintf(stderr, "gemmd-runner: a compiler's process cannot begin: %s\n", err.text);
        return 1;
    }
    bool going = true;
    while (going && apart_receive(fd, &f)) {
        going = answer(c, fd, &f);
        apart_frame_deinit(&f);
    }
    c->ops->close(c);
    return 0;
}
