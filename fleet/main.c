/* SPDX-License-Identifier: Apache-2.0 */
/* gemmd-fleet: reads its options, opens the database, connects, and ends in order (fleet.h). */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "fleet/fleet.h"
#include "fleet/log.h"
#include "proto/std_files.h"

enum { END_MS = 2000 }; /* time for the server to take leases back */

static void main_on_end_deadline(uv_timer_t *timer)
{
    uv_stop(timer->loop);
}

/* Waits for the statement under way, whose answer may be a lease; then the last step follows. */
static void main_on_signal(uv_signal_t *handle, int number)
{
    struct fleet *f = handle->data;
    f->ending = true;
    uv_timer_start(&f->patience, main_on_end_deadline, END_MS, 0);
    if (f->link.up) {
        steps_go_on(f);
    } else {
        uv_stop(&f->loop);
    }
}

static int main_begin(struct fleet *f, struct error *err)
{
    static const int numbers[] = {SIGTERM, SIGINT};
    f->page = calloc(FLEET_PAGE_MAX, sizeof(*f->page));
    if (!f->page || uv_loop_init(&f->loop)) {
        return error_set(err, ERROR_NO_MEMORY, "no memory");
    }
    uv_timer_init(&f->loop, &f->timer);
    uv_timer_init(&f->loop, &f->patience);
    f->timer.data = f->patience.data = f;
    f->link.conninfo = f->options.conninfo;
    snprintf(f->link.name, sizeof(f->link.name), "gemmd-fleet/%.63s", f->options.name);
    f->link.pause_ms = (unsigned)f->options.pause_ms;
    f->link.on_up = steps_on_up;
    f->link.on_down = steps_on_down;
    f->link.ctx = f;
    int r = link_init(&f->link, &f->loop, err);
    r = r ? r : file_open(f, err);
    for (int i = 0; r == 0 && i < 2; i++) {
        uv_signal_init(&f->loop, &f->signals[i]);
        f->signals[i].data = f;
        uv_signal_start(&f->signals[i], main_on_signal, numbers[i]);
    }
    return r;
}

int main(int argc, char **argv)
{
    static struct fleet fleet;
    struct error err = ERROR_NULL;
    std_files_open();
    signal(SIGPIPE, SIG_IGN);
    srandom((unsigned)time(NULL) ^ (unsigned)getpid() << 16);
    options_read(&fleet.options, argc, argv);
    int r = main_begin(&fleet, &err);
    if (r) {
        log_error("%s", err.text);
        return r == ERROR_BUSY ? OPTIONS_EXIT_BUSY : r == ERROR_INVALID ? OPTIONS_EXIT_USAGE : 1;
    }
    log_info("gemmd-fleet serves %s as %s", fleet.options.database, fleet.options.name);
    link_start(&fleet.link);
    uv_run(&fleet.loop, UV_RUN_DEFAULT);
    fleet.ending = true;
    link_end(&fleet.link);
    file_close(&fleet);
    free(fleet.page);
    return fleet.exit_status;
}
