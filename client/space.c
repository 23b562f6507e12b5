/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search space of a problem, without daemon and device: a user who plans a tuning on a laptop
 * sees the space that the GPU's gemmd would search.
 */
#include "client/ask.h"
#include "client/find.h"
#include "client/handle.h"
#include "kernels/device.h"
#include "kernels/space.h"
#include "proto/request.h"

static int space_count_configs(const struct request *q, const struct device_info *info, char **out,
                               struct error *err)
{
    const struct family *f = family_of_problem(&q->problem);
    const struct family_target *t;
    struct space space;
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    int r = family_target_choose(f, &q->problem, info, q->query.target, &t, err);
    if (r) {
        return r;
    }
    const struct space_setup setup = {t, &q->problem, info, q};
    r = space_begin(&space, &setup, false, err);
    r = r ? r : space_more(&space, UINT32_MAX, err);
    if (r == 0) {
        space_pack(&b, &space, f);
        r = wire_buf_to_json(&b, out, err);
    }
    space_deinit(&space);
    return r;
}

static int space_make_json(const struct ask *a, const char *device, char **out, struct error *err)
{
    struct device_info info;
    struct request request = {0};
    int r = ask_to_request(a, &request, err);
    r = r ? r : device ? device_probe(device, &info, err) : find_own_device(NULL, &info, err);
    r = r ? r : space_count_configs(&request, &info, out, err);
    request_deinit(&request);
    return r;
}

int gemmd_space(const char *device, const struct gemmd_problem *problem,
                const struct gemmd_query *query, char **result_json, struct gemmd_error *err)
{
    struct ask a;
    struct error e;
    int r = result_json ? 0 : error_set(&e, ERROR_INVALID, "result_json may not be NULL");
    if (r == 0) {
        *result_json = NULL;
    }
    r = r ? r : ask_problem(&a, problem, &e);
    r = r ? r : ask_query(&a, query, &e);
    r = r ? r : space_make_json(&a, device, result_json, &e);
    return handle_result(r, &e, err);
}
