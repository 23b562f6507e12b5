/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared libraries come into this process, and leave it, between loading_begin and loading_end, and
 * a fork() waits until that is over: its child, which lacks the thread that was loading, would find
 * the loader's lists half changed, and locks held by nobody.
 */
#ifndef GEMMD_KERNELS_LOADING_H
#define GEMMD_KERNELS_LOADING_H

/* One thread at a time; it may begin again within, and may fork (libcuda does, to make its device
 * files). So a fork takes this first of all locks: who takes others before a fork begins here
 * (client/handle.c), and nobody begins who holds one of those. */
void loading_begin(void);
void loading_end(void);

/* dlclose, when no fork is under way. */
void loading_close(void *library);

/* To be called before the first fork, by whoever begins in its handlers of forks. */
void loading_watch_forks(void);

#endif
