/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/std_files.h"

void std_files_open(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) {
            /* open returns this number, the lowest free descriptor. */
            int made = open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
            (void)made; /* after a failure the descriptor stays closed */
        }
    }
}

int std_files_impatient(void)
{
    struct stat st;
    if (fstat(STDERR_FILENO, &st) < 0 || !(S_ISFIFO(st.st_mode) || isatty(STDERR_FILENO))) {
        return -1;
    }
    return open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}
