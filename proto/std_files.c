/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "proto/std_files.h"

void std_files_open(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) {
            /* It gets this number, the lowest that is free. */
            int made = open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
            (void)made; /* without it, the program is as badly off as it was */
        }
    }
}
