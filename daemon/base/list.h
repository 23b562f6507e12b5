/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A doubly linked ring through the objects themselves. The head of a list is also a node. An empty
 * head points at itself, and so does a node that is in no list, so removing a node twice is
 * harmless.
 */
#ifndef GEMMD_DAEMON_BASE_LIST_H
#define GEMMD_DAEMON_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
    struct list *prev, *next; /* borrowed */
};

#define LIST_OF(node, type, member) ((type *)(void *)((char *)(node)-offsetof(type, member)))

static inline void list_init(struct list *l)
{
    l->prev = l->next = l;
}

static inline bool list_empty(const struct list *l)
{
    return l->next == l;
}

static inline void list_append(struct list *head, struct list *node)
{
    node->prev = head->prev;
    node->next = head;
    head->prev->next = node;
    head->prev = node;
}

static inline void list_remove(struct list *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    list_init(node);
}

/* The body may remove `node`, and no other node. */
#define LIST_EACH(node, head)                                                                      \
    for (struct list *node = (head)->next, *node##_next = node->next; node != (head);              \
         node = node##_next, node##_next = node->next)

#endif
