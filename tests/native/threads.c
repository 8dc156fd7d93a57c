// SPDX-License-Identifier: Apache-2.0
/*
 * Linked to each test in place of pthread_create: ThreadSanitizer runs only the programs whose
 * sources begin a thread (Makefile: THREADED), so no other program may begin one.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *),
                          void *with);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *),
                          void *with);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *),
                          void *with)
{
    const char *threads = getenv("PENSTOCK_THREADS");
    if (threads != NULL && strcmp(threads, "no") == 0) {
        fputs("the program begins a thread, so ThreadSanitizer has to run it too: add what begins "
              "the thread to THREADED in tests/native/Makefile\n",
              stderr);
        abort();
    }
    return __real_pthread_create(thread, how, run, with);
}
