/* Keeps a program on the CPUs that its container has, and follows when a resize changes them.
 *
 * Build: cc -O2 -Wall -o follow follow.c
 * Run it in a container that is told its CPUs (docs/reference/assigned-cpus.md).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

/* Reads a list such as 0-3,8 into a set; an empty list leaves the set empty. */
static int parse(const char *text, cpu_set_t *set)
{
    CPU_ZERO(set);
    while (*text) {
        char *end;
        long first = strtol(text, &end, 10), last = first;
        if (end == text)
            return -1;
        if (*end == '-')
            last = strtol(end + 1, &end, 10);
        for (long cpu = first; cpu <= last; cpu++)
            if (cpu >= 0 && cpu < CPU_SETSIZE)
                CPU_SET(cpu, set);
        if (*end == ',')
            end++;
        else if (*end && *end != '\n')
            return -1;
        else
            break;
        text = end;
    }
    return 0;
}

static int look(const char *folder, char *text, size_t size)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/assigned.cpuset", folder);
    FILE *file = fopen(path, "re");
    if (!file)
        return -1;
    size_t length = fread(text, 1, size - 1, file);
    text[length] = '\0';
    return fclose(file);
}

int main(int argc, char **argv)
{
    const char *folder = argc > 1 ? argv[1] : "/run/mooring-assigned";
    char text[65536], known[65536] = "?", events[4096];
    cpu_set_t set;
    int watch = inotify_init1(IN_CLOEXEC);
    /* The watch comes before the first look, so that no change falls in between. */
    if (watch < 0 || inotify_add_watch(watch, folder, IN_MOVED_TO) < 0) {
        perror(folder);
        return 1;
    }
    for (;;) {
        if (look(folder, text, sizeof text) || parse(text, &set)) {
            fprintf(stderr, "%s: no list of CPUs\n", folder);
            return 1;
        }
        /* Threads that are to be spread over the CPUs are pinned one by one here. A text that comes again says that the
         * cpuset has changed: kernels before 6.2 undo every pin then. */
        if (CPU_COUNT(&set) && sched_setaffinity(0, sizeof set, &set))
            perror("sched_setaffinity");
        if (strcmp(text, known)) {
            strcpy(known, text);
            printf("CPUs: %s\n", *text ? text : "those of everybody");
            fflush(stdout);
        }
        if (read(watch, events, sizeof events) < 0 && errno != EINTR) {
            perror("inotify");
            return 1;
        }
    }
}
