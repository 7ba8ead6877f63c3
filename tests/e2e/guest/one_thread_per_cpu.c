/* Has one thread on each CPU of its container's own, and leaves CPUs before they are taken away.
 *
 * Usage: one_thread_per_cpu FOLDER LOG. FOLDER is the one in which the container is told its CPUs. What happens is
 * written to LOG, one line each: nanoseconds of CLOCK_MONOTONIC, what, and a text.
 *
 *   file   what assigned.cpuset says; "none" where there is no such folder
 *   cpus   Cpus_allowed_list of the main thread, which asks for no CPUs itself: the cpuset, seen from inside
 *   left   no thread is on other CPUs any more than these
 *   pinned there is a thread on each of these CPUs
 *   loose  a thread may run on other CPUs too: kernels before 6.2 undo every pin when the cpuset changes
 *   error  the kernel said no when a thread was pinned
 *   stray  a thread ran elsewhere than on its CPU although it was pinned
 *
 * Threads are pinned again at every event of the folder, not only when the text is another one. A thread is called after
 * its CPU (cpu7) from its first pin to its end, so that whoever looks from outside knows it too.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <time.h>
#include <unistd.h>

#define MOST 1024
#define TEXT 4096
#define PAUSE_MS 20 /* of a worker, between two pieces of work */
#define LOOK_MS 10  /* between two looks at the cpuset, of which nothing tells a change */

struct worker {
    pthread_t thread;
    atomic_int stop;
    atomic_int is_pinned; /* at least once */
    int is_there;
};

static struct worker workers[MOST];
static FILE *out;

static void say(const char *what, const char *format, ...)
{
    struct timespec now;
    va_list rest;
    char text[TEXT];
    clock_gettime(CLOCK_MONOTONIC, &now);
    va_start(rest, format);
    vsnprintf(text, sizeof text, format, rest);
    va_end(rest);
    fprintf(out, "%lld%09ld %s %s\n", (long long)now.tv_sec, now.tv_nsec, what, text);
}

static int parse(const char *text, cpu_set_t *set)
{
    CPU_ZERO(set);
    while (*text && *text != '\n') {
        char *end;
        long first = strtol(text, &end, 10), last = first;
        if (end == text)
            return -1;
        if (*end == '-')
            last = strtol(end + 1, &end, 10);
        for (long cpu = first; cpu <= last && cpu < MOST; cpu++)
            CPU_SET(cpu, set);
        text = *end == ',' ? end + 1 : end;
    }
    return 0;
}

static int text_of(const char *folder, char *text)
{
    char path[TEXT];
    snprintf(path, sizeof path, "%s/assigned.cpuset", folder);
    FILE *file = fopen(path, "re");
    if (!file)
        return -1;
    text[fread(text, 1, TEXT - 1, file)] = '\0';
    return fclose(file);
}

static void look_at_cpuset(cpu_set_t *known)
{
    cpu_set_t found;
    char line[TEXT];
    if (sched_getaffinity(0, sizeof found, &found) || CPU_EQUAL(&found, known))
        return;
    FILE *status = fopen("/proc/self/status", "re");
    while (status && fgets(line, sizeof line, status))
        if (!strncmp(line, "Cpus_allowed_list:\t", 19)) {
            line[strcspn(line, "\n")] = '\0';
            say("cpus", "%s", line + 19);
        }
    if (status)
        fclose(status);
    *known = found;
}

static cpu_set_t set_of(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    return set;
}

/* Tells whether the calling thread may run on one CPU only. */
static int is_on(int cpu)
{
    cpu_set_t found, own = set_of(cpu);
    return !sched_getaffinity(0, sizeof found, &found) && CPU_EQUAL(&found, &own);
}

static void *work(void *argument)
{
    struct worker *mine = argument;
    int cpu = mine - workers, was_loose = 0;
    cpu_set_t own = set_of(cpu);
    char name[16];
    const struct timespec pause = {0, PAUSE_MS * 1000000L};
    if (sched_setaffinity(0, sizeof own, &own)) {
        say("error", "CPU %d: %s", cpu, strerror(errno));
        return NULL;
    }
    snprintf(name, sizeof name, "cpu%d", cpu);
    pthread_setname_np(pthread_self(), name);
    atomic_store(&mine->is_pinned, 1);
    while (!atomic_load(&mine->stop)) {
        int before = is_on(cpu), at = sched_getcpu(), after = is_on(cpu);
        if (before && after && at != cpu)
            say("stray", "the thread of CPU %d ran on %d", cpu, at);
        if (!after && !was_loose)
            say("loose", "%d", cpu);
        was_loose = !after;
        nanosleep(&pause, NULL);
    }
    return NULL;
}

static void pin_again(void)
{
    for (int cpu = 0; cpu < MOST; cpu++) {
        cpu_set_t own = set_of(cpu);
        int problem;
        if (!workers[cpu].is_there || !atomic_load(&workers[cpu].is_pinned))
            continue;
        if ((problem = pthread_setaffinity_np(workers[cpu].thread, sizeof own, &own)))
            say("error", "CPU %d: %s", cpu, strerror(problem));
    }
}

static void follow(const char *text)
{
    cpu_set_t wanted;
    if (parse(text, &wanted)) {
        say("error", "no list of CPUs: %s", text);
        return;
    }
    for (int cpu = 0; cpu < MOST; cpu++)
        if (workers[cpu].is_there && !CPU_ISSET(cpu, &wanted))
            atomic_store(&workers[cpu].stop, 1);
    for (int cpu = 0; cpu < MOST; cpu++)
        if (workers[cpu].is_there && !CPU_ISSET(cpu, &wanted)) {
            pthread_join(workers[cpu].thread, NULL);
            workers[cpu].is_there = 0;
        }
    say("left", "%s", text);
    for (int cpu = 0; cpu < MOST; cpu++)
        if (!workers[cpu].is_there && CPU_ISSET(cpu, &wanted)) {
            atomic_store(&workers[cpu].stop, 0);
            atomic_store(&workers[cpu].is_pinned, 0);
            workers[cpu].is_there = !pthread_create(&workers[cpu].thread, NULL, work, &workers[cpu]);
        }
    say("pinned", "%s", text);
}

int main(int argc, char **argv)
{
    char text[TEXT], known[TEXT] = "?", events[TEXT];
    cpu_set_t cpuset;
    struct pollfd watch = {inotify_init1(IN_CLOEXEC), POLLIN, 0};
    if (argc != 3 || !(out = fopen(argv[2], "ae")))
        return 2;
    setvbuf(out, NULL, _IOLBF, TEXT);
    CPU_ZERO(&cpuset);
    int is_new = 0, is_told = inotify_add_watch(watch.fd, argv[1], IN_MOVED_TO) >= 0;
    if (!is_told)
        say("file", "none");
    for (;;) {
        /* In this order, so that a CPU that came before the text did is told before it. */
        int is_read = is_told && !text_of(argv[1], text);
        look_at_cpuset(&cpuset);
        if (is_read && strcmp(text, known)) {
            strcpy(known, text);
            say("file", "%s", text);
            follow(text);
        }
        if (is_new)
            pin_again();
        is_new = poll(&watch, 1, LOOK_MS) > 0;
        if (is_new && read(watch.fd, events, sizeof events) < 0 && errno != EINTR)
            return 1;
    }
}
