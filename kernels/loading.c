/* SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <features.h>
#include <pthread.h>

#include "kernels/loading.h"

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void loading_before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void loading_after_fork(void)
{
    pthread_mutex_unlock(&lock);
}

/* Initialises the mutex again instead of unlocking it: the mutex's owner is the parent's thread,
 * and the child's thread has another id. */
static void loading_after_fork_child(void)
{
    lock = (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
}

static void loading_register_forks(void)
{
    pthread_atfork(loading_before_fork, loading_after_fork, loading_after_fork_child);
}

void loading_watch_forks(void)
{
    pthread_once(&once, loading_register_forks);
}

void loading_begin(void)
{
    loading_watch_forks();
    pthread_mutex_lock(&lock);
}

void loading_end(void)
{
    pthread_mutex_unlock(&lock);
}

/* glibc before 2.36 holds an internal lock while it calls fork handlers; dlclose takes this lock,
 * too. With these releases a lock here could deadlock. */
void loading_close(void *library)
{
#if __GLIBC_PREREQ(2, 36)
    loading_begin();
    dlclose(library);
    loading_end();
#else
    dlclose(library);
#endif
}
