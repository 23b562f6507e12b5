/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `space` describes the configs of a search. A space may have hundreds of thousands of points, and
 * a point takes a microsecond to count. So the points are counted in slices of CHORE_NS, between
 * which other clients are served.
 */
#include "daemon/daemon.h"
#include "daemon/answers/target.h"
#include "daemon/methods/methods.h"
#include "daemon/methods/pending.h"
#include "kernels/space.h"

enum { SLICE_POINTS = 128 };

struct counting {
    struct pending pending; /* first member: its address is the struct's */
    struct chore chore;
    struct request request; /* owned: the problem and its restrictions */
    const struct family *family;
    struct space space; /* owned; borrows from request */
};

static void count_release_request(struct counting *x)
{
    chore_cancel(&x->chore);
    space_deinit(&x->space);
    request_deinit(&x->request);
}

static void count_finish_request(struct counting *x, int status, const struct error *err)
{
    if (status == 0) {
        space_pack(pending_result(&x->pending), &x->space, x->family);
    }
    count_release_request(x);
    if (status < 0) {
        pending_fail(&x->pending, err);
    } else {
        pending_drop(&x->pending);
    }
}

static void count_do_slice(struct chore *chore)
{
    struct counting *x = LIST_OF(chore, struct counting, chore);
    struct error err = ERROR_NULL;
    uint64_t until = uv_hrtime() + CHORE_NS;
    int status;
    do {
        status = space_more(&x->space, SLICE_POINTS, &err);
    } while (status == SPACE_MORE && uv_hrtime() < until);
    if (status == SPACE_MORE) {
        turns_chore(&x->pending.d->turns, chore);
    } else {
        count_finish_request(x, status, &err);
    }
}

static void count_client_gone(struct ticket *t)
{
    struct counting *x = LIST_OF(t, struct counting, pending.ticket);
    count_release_request(x);
    pending_drop(&x->pending);
}

/* Moves the scratch's request into x, since counting goes on after this turn of the loop. */
static int count_begin_request(struct counting *x, const struct family_target *t, struct error *err)
{
    struct request *given = &x->pending.d->scratch->request;
    x->request = *given;
    *given = (struct request){0};
    x->family = family_of_problem(&x->request.problem);
    const struct space_setup setup = {t, &x->request.problem, &x->pending.d->device, &x->request};
    return space_begin(&x->space, &setup, false, err);
}

int method_space(struct call *c, struct error *err)
{
    struct request *r = &c->d->scratch->request;
    const struct family_target *t = NULL;
    int status = request_unpack(r, c->params, err);
    status = status ? status : target_choose(c->d, &r->problem, r->query.target, &t, err);
    struct counting *x = status ? NULL : call_later(c, sizeof(*x), err);
    if (!x) {
        return err->code;
    }
    x->pending.ticket.gone = count_client_gone;
    chore_init(&x->chore, count_do_slice, &x->pending.asked.account->served);
    struct error why = ERROR_NULL;
    status = count_begin_request(x, t, &why);
    if (status < 0) {
        count_finish_request(x, status, &why);
    } else {
        count_do_slice(&x->chore);
    }
    return METHOD_LATER;
}
