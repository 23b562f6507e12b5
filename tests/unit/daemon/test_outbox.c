/* SPDX-License-Identifier: Apache-2.0 */
/* What is kept for a keeper that does not answer. */
#include <stdlib.h>

#include "common.h"
#include "daemon/ledger/outbox.h"

static const struct outgoing_kind kind_rows = {.kept = true};
static const struct outgoing_kind kind_few = {.kept = true, .most = 3};
static const struct outgoing_kind kind_now = {.most = 3};

static void on_drained(struct outbox *b)
{
    (void)b;
}

static void on_closed(uv_handle_t *handle)
{
    (void)handle;
}

static int submit(struct outbox *b, const struct outgoing_kind *kind)
{
    struct outgoing *o = outgoing_new(b, kind, NULL);
    assert_non_null(o);
    wire_put_nil(&o->params);
    return outbox_submit(b, o);
}

static void of_some_kinds_only_so_many_wait(void **state)
{
    (void)state;
    uv_loop_t loop;
    struct outbox b;
    struct error gone = {.code = ERROR_SHUTTING_DOWN, .text = "the end"};
    assert_int_equal(uv_loop_init(&loop), 0);
    outbox_init(&b, &loop, NULL, "/no/database", 1000, on_drained);
    for (int silent = 0; silent < 2; silent++) {
        b.silent_ms = (uint64_t)silent;
        assert_int_equal(submit(&b, &kind_now), silent ? ERROR_BUSY : 0);
        assert_int_equal(submit(&b, &kind_few), 0);
        assert_int_equal(submit(&b, &kind_rows), 0);
        assert_int_equal(submit(&b, &kind_rows), 0);
        assert_int_equal(submit(&b, &kind_few), ERROR_BUSY); /* whoever it is that waits */
        assert_int_equal(submit(&b, &kind_now), ERROR_BUSY);
        assert_int_equal(submit(&b, &kind_rows), 0); /* these are few by themselves */
        outbox_fail(&b, &gone);
        assert_int_equal(b.n, 0);
    }
    outbox_deinit(&b, on_closed);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_some_kinds_only_so_many_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
