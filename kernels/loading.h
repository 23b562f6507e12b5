/* SPDX-License-Identifier: Apache-2.0 */
/* Shared libraries are loaded and unloaded between loading_begin and loading_end; a fork() waits
 * for loading_end. The child of a fork lacks the loading thread: it would find the loader's lists
 * half changed, and locks that no thread will release. */
#ifndef GEMMD_KERNELS_LOADING_H
#define GEMMD_KERNELS_LOADING_H

/* Lock and unlock: one thread loads at a time. That thread may call loading_begin again within, and
 * may fork (libcuda forks to make its device files). Lock order: before every lock that a fork
 * handler takes (client/handle.c). */
void loading_begin(void);
void loading_end(void);

/* Calls dlclose while no fork is under way. */
void loading_close(void *library);

/* Registers the fork handlers. Call before registering fork handlers that call loading_begin. */
void loading_watch_forks(void);

#endif
