/* SPDX-License-Identifier: Apache-2.0 */
/* The request fields that make two searches the same or different. */
#include "common.h"
#include "daemon/tuning/job.h"

static struct request request;
static struct wire_doc *doc;

static int setup(void **state)
{
    (void)state;
    families_register();
    doc = wire_doc_new();
    return doc ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    doc = wire_doc_free(doc);
    return 0;
}

static uint64_t identity(const char *json, bool pin)
{
    WIRE_BUF_AUTO params = WIRE_BUF_NULL;
    WIRE_BUF_AUTO search = WIRE_BUF_NULL;
    const struct wire_obj *map;
    struct error err = ERROR_NULL;
    assert_ok(wire_from_json(&params, json, &err), &err);
    assert_ok(wire_decode(doc, params.data, params.len, &map, &err), &err);
    assert_ok(request_unpack(&request, map, &err), &err);
    assert_ok(job_pack(&search, &request, &err), &err);
    request_deinit(&request);
    return job_identity(&search, pin);
}

#define PROBLEM                                                                                    \
    "\"problem\": {\"op\": \"gemm\", \"mode\": \"forward\", \"M\": 64, \"N\": 64, \"K\": 64}"

static void how_one_waits_is_not_part_of_the_search(void **state)
{
    (void)state;
    uint64_t plain = identity("{" PROBLEM "}", false);
    assert_true(plain == identity("{" PROBLEM ", \"wait\": \"now\"}", false));
    assert_true(plain == identity("{" PROBLEM ", \"deadline_ms\": 5, \"progress\": true}", false));
    assert_true(plain ==
                identity("{" PROBLEM ", \"again\": true, \"strategy\": \"ranked\"}", false));
}

static void what_is_searched_is(void **state)
{
    (void)state;
    uint64_t plain = identity("{" PROBLEM "}", false);
    assert_true(plain != identity("{" PROBLEM ", \"budget\": 5}", false));
    assert_true(plain != identity("{" PROBLEM ", \"rtol\": 0.001}", false));
    assert_true(plain != identity("{" PROBLEM ", \"strategy\": \"exhaustive\"}", false));
    assert_true(plain != identity("{" PROBLEM ", \"restrict\": {\"num_warps\": 4}}", false));
    assert_true(plain != identity("{" PROBLEM "}", true));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(how_one_waits_is_not_part_of_the_search),
        cmocka_unit_test(what_is_searched_is),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
