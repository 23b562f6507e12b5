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
#include <stdint.h>

struct list {
    struct list *prev, *next; /* borrowed */
};

#define LIST_OF(node, type, member) ((type *)((uintptr_t)(node)-offsetof(type, member)))

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

#define LIST_NODE(x, type, member) ((struct list *)((uintptr_t)(x) + offsetof(type, member)))

/* `x` is each object of a list of `type` in turn, through its node `member`. The body may remove
 * `x`, and no other object. */
#define LIST_EACH(type, x, head, member)                                                           \
    for (type *x = LIST_OF((head)->next, type, member),                                            \
              *x##_next = LIST_OF(LIST_NODE(x, type, member)->next, type, member);                 \
         LIST_NODE(x, type, member) != (head);                                                     \
         x = x##_next, x##_next = LIST_OF(LIST_NODE(x, type, member)->next, type, member))

#endif
