/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared libraries come into this process, and leave it, between loading_begin and loading_end, and
 * a fork() waits until that is over: its child, which lacks the thread that was loading, would find
 * the loader's lists half changed, and locks held by nobody.
 */
#ifndef GEMMD_KERNELS_LOADING_H
#define GEMMD_KERNELS_LOADING_H

/* One thread at a time; it may begin again within, and may fork (libcuda does, to make its device
 * files). No lock that a fork takes may be taken within. */
void loading_begin(void);
void loading_end(void);

/* Who takes locks of its own before a fork, and may load while it holds them, calls this before its
 * pthread_atfork: then its locks are taken first. */
void loading_watch_forks(void);

#endif
