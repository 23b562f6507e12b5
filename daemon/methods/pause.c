/* SPDX-License-Identifier: Apache-2.0 */
/* The method `pause`: a training job says that its GPU does nothing for some ms, in which gemmd may
 * tune. */
#include "daemon/methods/daemon_parts.h"
#include "daemon/methods/methods.h"

enum { PAUSE_MS_MAX = 60 * 1000 };

int method_pause(struct call *c, struct error *err)
{
    int64_t ms = 0;
    if (!wire_get_int(wire_find(c->params, "ms"), &ms) || ms < 1 || ms > PAUSE_MS_MAX) {
        return error_set(err, ERROR_INVALID, "'ms' of pause takes 1 to %d milliseconds",
                         PAUSE_MS_MAX);
    }
    int status = pauses_ask(&c->parts->tuning, c->s, c->id, ms, err);
    return status == PAUSES_LATER ? METHOD_LATER : status;
}
