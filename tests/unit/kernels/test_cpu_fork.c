/* SPDX-License-Identifier: Apache-2.0 */
/* A fork at the moment when a process loads its first CPU kernel: the fork handlers are registered,
 * but not yet marked as registered. */
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "kernels/launcher.h"
#include "kernels/loading.h"

enum { IMAGE_MAX = 4 << 20 };

static struct {
    void *data;
    size_t size;
} image;
static atomic_bool slowly, registered, forked;

typedef int register_function(void (*)(void), void (*)(void), void (*)(void), void *);
register_function __register_atfork;

/* glibc's, behind pthread_atfork. */
int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *dso)
{
    void *symbol = dlsym(RTLD_NEXT, "__register_atfork");
    int r = ((register_function *)(uintptr_t)symbol)(prepare, parent, child, dso);
    if (atomic_exchange(&slowly, false)) {
        atomic_store(&registered, true);
        while (!atomic_load(&forked)) {
            usleep(1000);
        }
    }
    return r;
}

/* Reads the image of a kernel: any shared object will do. */
static void read_image(void)
{
    Dl_info info;
    assert_true(dladdr((void *)(uintptr_t)_cmocka_run_group_tests, &info));
    FILE *f = fopen(info.dli_fname, "rb");
    assert_non_null(f);
    image.data = malloc(IMAGE_MAX);
    assert_non_null(image.data);
    image.size = fread(image.data, 1, IMAGE_MAX, f);
    fclose(f);
}

static void *load(void *loaded)
{
    void *handle;
    struct error err;
    *(bool *)loaded = cpu_launch_backend.load(image.data, image.size, &handle, &err) == 0;
    if (*(bool *)loaded) {
        cpu_launch_backend.unload(handle);
    }
    return NULL;
}

/* The child also loads a kernel, and forks. */
static int in_child(void)
{
    bool loaded = false;
    int status = -1;
    alarm(10);
    load(&loaded);
    pid_t child = fork();
    if (child == 0) {
        alarm(10);
        load(&loaded);
        _exit(loaded ? 0 : 2);
    }
    return loaded && waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
}

static void test_a_fork_while_handlers_are_registered(void **state)
{
    (void)state;
    pthread_t thread;
    bool loaded = false;
    int status = -1;
    read_image();
    loading_watch_forks(); /* registered separately */
    atomic_store(&slowly, true);
    assert_int_equal(pthread_create(&thread, NULL, load, &loaded), 0);
    while (!atomic_load(&registered)) {
        usleep(1000);
    }
    pid_t child = fork();
    if (child == 0) {
        _exit(in_child());
    }
    atomic_store(&forked, true);
    assert_int_equal(waitpid(child, &status, 0), child);
    pthread_join(thread, NULL);
    assert_int_equal(status, 0);
    assert_true(loaded);
    free(image.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_fork_while_handlers_are_registered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
