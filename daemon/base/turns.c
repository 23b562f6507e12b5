/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a round of turns in each round of the loop, by a uv_idle_t (turns.h). */
#include "daemon/base/turns.h"

static void run_round(uv_idle_t *idle);

void turns_init(struct turns *t, uv_loop_t *loop)
{
    list_init(&t->ready);
    list_init(&t->chores);
    t->slices = t->served = 0;
    uv_idle_init(loop, &t->idle);
    t->idle.data = t;
}

void turns_close(struct turns *t)
{
    uv_close((uv_handle_t *)&t->idle, NULL);
}

uint64_t turns_now(const struct turns *t)
{
    uint64_t now = uv_now(t->idle.loop);
    return now ? now : 1;
}

void turn_init(struct turn *t, bool (*take)(struct turn *t))
{
    list_init(&t->link);
    t->take = take;
}

void turn_cancel(struct turn *t)
{
    list_remove(&t->link);
}

void turns_ready(struct turns *t, struct turn *turn)
{
    list_remove(&turn->link);
    list_append(&t->ready, &turn->link);
    uv_idle_start(&t->idle, run_round);
}

void chore_init(struct chore *c, void (*run)(struct chore *c), uint64_t *served)
{
    list_init(&c->link);
    c->run = run;
    c->served = served;
}

void chore_cancel(struct chore *c)
{
    list_remove(&c->link);
}

void turns_chore(struct turns *t, struct chore *c)
{
    list_append(&t->chores, &c->link);
    uv_idle_start(&t->idle, run_round);
}

/* ---- a round --------------------------------------------------------------------------------- */

/* Moves the turns in `waiting`, which passed (`take` returned false), to the front of `ready`,
 * before turns that ran and are ready again. */
static void put_first(struct list *ready, struct list *waiting)
{
    while (!list_empty(waiting)) {
        struct list *node = waiting->prev;
        list_remove(node);
        list_append(ready->next, node);
    }
}

/* Runs each turn that was ready when the round began. */
static void take_turns(struct turns *t)
{
    struct list round, waiting;
    list_init(&round);
    list_init(&waiting);
    while (!list_empty(&t->ready)) {
        struct list *node = t->ready.next;
        list_remove(node);
        list_append(&round, node);
    }
    while (!list_empty(&round)) {
        struct turn *turn = LIST_OF(round.next, struct turn, link);
        list_remove(&turn->link);
        if (!turn->take(turn)) {
            list_append(&waiting, &turn->link);
        }
    }
    put_first(&t->ready, &waiting);
}

/* Returns the first chore of the user whose last slice is longest ago. */
static struct chore *next_chore(struct turns *t)
{
    struct chore *next = NULL;
    uint64_t oldest = UINT64_MAX;
    LIST_EACH(struct chore, c, &t->chores, link) {
        uint64_t served = c->served ? *c->served : t->served;
        if (served < oldest) {
            oldest = served;
            next = c;
        }
    }
    return next;
}

static void run_chore(struct turns *t)
{
    struct chore *c = next_chore(t);
    if (c) {
        *(c->served ? c->served : &t->served) = ++t->slices;
        list_remove(&c->link);
        c->run(c);
    }
}

static void run_round(uv_idle_t *idle)
{
    struct turns *t = idle->data;
    take_turns(t);
    run_chore(t);
    if (list_empty(&t->ready) && list_empty(&t->chores)) {
        uv_idle_stop(idle);
    }
}
