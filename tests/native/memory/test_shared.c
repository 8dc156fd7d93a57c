/* SPDX-License-Identifier: Apache-2.0
 * test_shared.c: penstock.dat: layout checks, slots, waiting and waking. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>

#include "ps_account.h"
#include "ps_client_internal.h"
#include "stream.h"

static void slots_are_handed_out_and_come_back_clean(void)
{
    char directory[256];
    directory_make(directory, sizeof directory);
    ps_shared_t *shared = shared_make(directory);
    CHECK_EQ(ps_slot_count(shared, PS_SLOT_CLIENT), 4);
    for (int32_t i = 0; i < 4; i++) {
        CHECK_EQ(ps_slot_allocate(shared, PS_SLOT_CLIENT, 100 + i), i);
    }
    CHECK_EQ(ps_slot_allocate(shared, PS_SLOT_CLIENT, 104), PS_E_NO_SPACE);
    CHECK_EQ(ps_slot_id(shared, PS_SLOT_CLIENT, 2), 102);
    ps_slot_describe_client(shared, 2, 77, 1000, "a name");
    const uint32_t word = atomic_load(&shared->clients[2].futex_word);
    ps_slot_free(shared, PS_SLOT_CLIENT, 2);
    CHECK_EQ(ps_slot_id(shared, PS_SLOT_CLIENT, 2), 0);
    CHECK_EQ(ps_slot_allocate(shared, PS_SLOT_CLIENT, 105), 2);
    CHECK_EQ(shared->clients[2].pid, 0);
    CHECK_EQ(shared->clients[2].name[0], 0);
    /* an old waiter must not sleep on */
    CHECK(atomic_load(&shared->clients[2].futex_word) != word);
    CHECK_EQ(ps_slot_allocate(shared, PS_SLOT_CLIENT, 0), PS_E_INVALID);
    CHECK_EQ(ps_slot_allocate(shared, 17, 1), PS_E_INVALID);
    CHECK_EQ(ps_slot_id(shared, PS_SLOT_CLIENT, -1), 0);
    CHECK_EQ(ps_slot_id(shared, PS_SLOT_CLIENT, 4), 0);
    const int32_t image = ps_slot_allocate(shared, PS_SLOT_IMAGE, 9);
    CHECK_EQ(atomic_load(&shared->images[image].wake_position), INT64_MAX);
    CHECK_EQ(atomic_load(&shared->images[image].ordinal), -1);
    ps_shared_close(shared);
    directory_remove(directory);
}

/* A file system may count some blocks of its own. */
static bool is_near(int64_t memory, int64_t expected)
{
    return memory >= expected && memory <= expected + 32768;
}

/* Bytes of a mapping that this process has touched, whatever else is in memory. */
static int64_t resident(const void *from, int64_t length)
{
    const int fd = open("/proc/self/pagemap", O_RDONLY);
    CHECK(fd >= 0);
    int64_t pages = 0;
    for (int64_t page = 0; page < length / 4096; page++) {
        uint64_t entry = 0;
        const off_t at = (off_t)(((uintptr_t)from / 4096 + (uintptr_t)page) * sizeof entry);
        CHECK_EQ(pread(fd, &entry, sizeof entry, at), (ssize_t)sizeof entry);
        pages += (int64_t)(entry >> 63);
    }
    close(fd);
    return pages * 4096;
}

/* Whatever was noted: the memory goes, the neighbours' stays, and the next slot begins empty. */
static void memory_goes_back_with_the_slots(ps_shared_t *shared, const char *path, int64_t before)
{
    const int64_t one = (int64_t)sizeof(ps_history_t);
    memset(shared->image_histories, 0x5a, 164 * sizeof(ps_history_t));
    for (int32_t i = 0; i < 164; i += 2) {
        ps_slot_free(shared, PS_SLOT_IMAGE, i);
    }
    CHECK(is_near(memory_of(path), before + (164 + 82) * one));
    CHECK(resident(shared->image_histories, 164 * one) <= 82 * one);
    for (int32_t i = 0; i < 164; i += 2) {
        const uint8_t *kept = (const uint8_t *)&shared->image_histories[i + 1];
        CHECK(kept[0] == 0x5a && kept[one - 1] == 0x5a);
        CHECK_EQ(ps_slot_allocate(shared, PS_SLOT_IMAGE, 2000 + i), i);
        CHECK_EQ(atomic_load(&shared->image_histories[i].ring.count), 0);
        CHECK_EQ(atomic_load(&shared->image_histories[i].times.levels[9].count), 0);
    }
    CHECK(is_near(memory_of(path), before + 328 * one));
}

/* An adopted file: what lies in a history is a dead daemon's until a slot is taken anew. */
static void an_adopted_history_begins_empty(void)
{
    char directory[256];
    directory_make(directory, sizeof directory);
    ps_shared_t *shared = shared_make(directory);
    CHECK_EQ(ps_slot_allocate(shared, PS_SLOT_IMAGE, 9), 0);
    memset(shared->image_histories, 0x5a, 2 * sizeof(ps_history_t));
    ps_shared_close(shared);
    CHECK_EQ(ps_shared_open(directory, 0, &shared), PS_OK);
    CHECK_EQ(ps_slot_allocate(shared, PS_SLOT_IMAGE, 10), 1);
    CHECK_EQ(atomic_load(&shared->image_histories[1].ring.count), 0);
    CHECK_EQ(atomic_load(&shared->image_histories[1].times.levels[0].count), 0);
    CHECK_EQ(*(const uint8_t *)&shared->image_histories[0].ring, 0x5a);
    ps_slot_free(shared, PS_SLOT_IMAGE, 0);
    CHECK_EQ(ps_slot_allocate(shared, PS_SLOT_IMAGE, 11), 0);
    CHECK_EQ(atomic_load(&shared->image_histories[0].ring.count), 0);
    ps_shared_close(shared);
    directory_remove(directory);
}

static void memory_is_taken_with_the_slots(void)
{
    char directory[256];
    char path[300];
    directory_make(directory, sizeof directory);
    const ps_shared_params_t params = { .directory = directory,
                                        .clients = 256,
                                        .publications = 4096,
                                        .images = 4096,
                                        .subscribers = 8192,
                                        .groups = 64,
                                        .file_mode = 0600 };
    ps_shared_t *shared = NULL;
    CHECK_EQ(ps_shared_create(&params, &shared), PS_OK);
    snprintf(path, sizeof path, "%s/penstock.dat", directory);
    const int64_t before = memory_of(path);
    CHECK(before < 16 << 20 && (int64_t)shared->length > 40 << 20);
    for (int32_t i = 0; i < 164; i++) {
        CHECK_EQ(ps_slot_allocate(shared, PS_SLOT_PUBLICATION, 1 + i), i);
        CHECK_EQ(ps_slot_allocate(shared, PS_SLOT_IMAGE, 1000 + i), i);
    }
    const int64_t histories = 328 * (int64_t)sizeof(ps_history_t);
    CHECK(is_near(memory_of(path), before + histories));
    CHECK_EQ(resident(shared->publication_histories, 164 * (int64_t)sizeof(ps_history_t)), 0);
    CHECK_EQ(resident(shared->image_histories, 164 * (int64_t)sizeof(ps_history_t)), 0);
    memory_goes_back_with_the_slots(shared, path, before);
    ps_shared_close(shared);
    CHECK_EQ(ps_shared_open(directory, 0, &shared), PS_OK); /* a new daemon goes on */
    CHECK_EQ(ps_slot_allocate(shared, PS_SLOT_PUBLICATION, 500), 164);
    ps_slot_free(shared, PS_SLOT_PUBLICATION, 7);
    CHECK_EQ(ps_slot_allocate(shared, PS_SLOT_PUBLICATION, 501), 7);
    CHECK_EQ(unlink(path), 0); /* no more memory can be had: the slot stays free, untouched */
    CHECK_EQ(ps_slot_allocate(shared, PS_SLOT_PUBLICATION, 501), PS_E_SYSTEM);
    CHECK_EQ(ps_slot_id(shared, PS_SLOT_PUBLICATION, 165), 0);
    CHECK_EQ(ps_slot_allocate(shared, PS_SLOT_IMAGE, 501), PS_E_SYSTEM);
    ps_shared_close(shared);
    directory_remove(directory);
}

static void every_kind_lies_in_its_own_place(void)
{
    char directory[256];
    directory_make(directory, sizeof directory);
    ps_shared_t *shared = shared_make(directory);
    for (int32_t kind = PS_SLOT_CLIENT; kind <= PS_SLOT_GROUP; kind++) {
        for (int32_t i = 0; i < ps_slot_count(shared, kind); i++) {
            CHECK_EQ(ps_slot_allocate(shared, kind, kind * 1000 + i + 1), i);
        }
    }
    memset(shared->publication_histories, 0xff, 64 * sizeof(ps_history_t));
    memset(shared->image_histories, 0xff, 4 * sizeof(ps_history_t));
    for (int32_t kind = PS_SLOT_CLIENT; kind <= PS_SLOT_GROUP; kind++) {
        for (int32_t i = 0; i < ps_slot_count(shared, kind); i++) {
            CHECK_EQ(ps_slot_id(shared, kind, i), kind * 1000 + i + 1);
        }
    }
    CHECK((uint8_t *)(shared->image_histories + 4) <= shared->base + shared->length);
    CHECK((uintptr_t)shared->publication_histories % PS_HISTORY_PAGE == 0);
    CHECK((uintptr_t)shared->publications % PS_LINE == 0);
    ps_shared_close(shared);
    directory_remove(directory);
}

static void damage_header(const char *directory, off_t at, int code)
{
    char path[300];
    snprintf(path, sizeof path, "%s/penstock.dat", directory);
    const int fd = open(path, O_RDWR);
    CHECK(fd >= 0);
    uint8_t old = 0;
    CHECK_EQ(pread(fd, &old, 1, at), 1);
    const uint8_t bad = old ^ 0x40;
    CHECK_EQ(pwrite(fd, &bad, 1, at), 1);
    ps_shared_t *shared = NULL;
    const int got = ps_shared_open(directory, 1, &shared);
    if (code != 0) {
        CHECK_EQ(got, code);
    }
    CHECK(got < 0 && shared == NULL);
    CHECK_EQ(pwrite(fd, &old, 1, at), 1);
    close(fd);
}

static void damaged_headers_are_refused(void)
{
    char directory[256];
    directory_make(directory, sizeof directory);
    ps_shared_t *shared = shared_make(directory);
    ps_shared_set_state(shared, PS_DRIVER_RUNNING);
    damage_header(directory, 0, PS_E_VERSION);
    damage_header(directory, offsetof(ps_shared_header_t, version), PS_E_VERSION);
    for (off_t at = 0; at < (off_t)sizeof(ps_shared_header_t); at++) {
        damage_header(directory, at, 0); /* whichever byte: never opened */
    }
    ps_shared_t *reader = NULL;
    CHECK_EQ(ps_shared_open(directory, 1, &reader), PS_OK);
    CHECK_EQ(ps_shared_state(reader), PS_DRIVER_RUNNING);
    CHECK_EQ(ps_shared_epoch(reader), 3);
    CHECK_EQ(ps_shared_pid(reader), 42);
    CHECK_EQ(ps_slot_allocate(reader, PS_SLOT_CLIENT, 1), PS_E_INVALID); /* mapped read-only */
    ps_shared_close(reader);
    char path[300];
    snprintf(path, sizeof path, "%s/penstock.dat", directory);
    CHECK_EQ(truncate(path, 8192), 0);
    CHECK_EQ(ps_shared_open(directory, 1, &reader), PS_E_CORRUPT);
    CHECK_EQ(truncate(path, 10), 0);
    CHECK_EQ(ps_shared_open(directory, 1, &reader), PS_E_CORRUPT);
    directory_remove(directory);
    CHECK_EQ(ps_shared_open(directory, 1, &reader), PS_E_SYSTEM);
    ps_shared_close(shared);
}

static void impossible_counts_are_refused(void)
{
    char directory[256];
    directory_make(directory, sizeof directory);
    ps_shared_params_t params;
    memset(&params, 0, sizeof params);
    params.directory = directory;
    params.clients = params.images = params.subscribers = params.groups = 1;
    params.publications = 65;
    params.file_mode = 0640;
    ps_shared_t *shared = NULL;
    CHECK_EQ(ps_shared_create(&params, &shared), PS_E_INVALID);
    params.publications = 64;
    params.images = 65537;
    CHECK_EQ(ps_shared_create(&params, &shared), PS_E_INVALID);
    params.images = 1;
    CHECK_EQ(ps_shared_create(&params, &shared), PS_OK);
    ps_shared_t *second = NULL;
    CHECK_EQ(ps_shared_create(&params, &second), PS_E_SYSTEM);
    char path[300];
    struct stat info;
    snprintf(path, sizeof path, "%s/penstock.dat", directory);
    CHECK_EQ(stat(path, &info), 0);
    CHECK_EQ(info.st_mode & 0777, 0640);
    ps_shared_close(shared);
    directory_remove(directory);
}

static void pressure_is_read_from_the_slot(void)
{
    stream_t stream;
    stream_open(&stream, NULL);
    ps_publication_slot_t *slot = &stream.shared->publications[stream.publication_slot];
    atomic_store(&slot->cause, PS_CAUSE_SPY);
    atomic_store(&slot->blocked_ns[PS_CAUSE_SPY], 500);
    atomic_store(&slot->cause_culprit, 8);
    ps_pressure_view_t view;
    CHECK_EQ(ps_slot_read_pressure(stream.shared, stream.publication_slot, &view), PS_OK);
    CHECK_EQ(view.cause, PS_CAUSE_SPY);
    CHECK_EQ(view.blocked_ns[PS_CAUSE_SPY], 500);
    CHECK_EQ(view.culprit.id, 8);
    CHECK_EQ(view.stale, 0);
    atomic_store(&slot->account_sequence, 7); /* a writer that never ends */
    CHECK_EQ(ps_slot_read_pressure(stream.shared, stream.publication_slot, &view), PS_E_AGAIN);
    CHECK(view.stale == 1 && view.cause == PS_CAUSE_SPY && view.culprit.id == 8);
    atomic_store(&slot->cause_since_ns, 100);
    ps_account_adopt(slot, 0); /* a daemon that stopped in order */
    CHECK_EQ(ps_slot_read_pressure(stream.shared, stream.publication_slot, &view), PS_OK);
    CHECK_EQ(view.cause, PS_CAUSE_SPY);
    ps_account_adopt(slot, 300); /* it died after this time */
    CHECK_EQ(ps_slot_read_pressure(stream.shared, stream.publication_slot, &view), PS_OK);
    CHECK(view.cause == PS_CAUSE_DAEMON_AWAY && view.since_ns == 300 && view.culprit.id == 0);
    CHECK_EQ(view.blocked_ns[PS_CAUSE_SPY], 700);
    snprintf(slot->strategy, sizeof(slot->strategy), "nak");
    ps_account_bind(slot, PS_CAUSE_SPY, 9, &(ps_holder_t){ .client_slot = 4711, .counter_id = -1 },
                    600);
    CHECK_EQ(ps_slot_read_pressure(stream.shared, stream.publication_slot, &view), PS_OK);
    CHECK(view.culprit.id == 9 && view.culprit.pid == 0 && view.culprit.name[0] == 0);
    CHECK(strcmp(view.strategy, "nak") == 0);
    atomic_store(&slot->cause, 4711);
    CHECK_EQ(ps_slot_read_pressure(stream.shared, stream.publication_slot, &view), PS_OK);
    CHECK_EQ(view.cause, PS_CAUSE_NONE);
    CHECK_EQ(ps_slot_read_pressure(stream.shared, 64, &view), PS_E_INVALID);
    stream_close(&stream);
}

/* ---- waiting --------------------------------------------------------------------------------- */

static void what_happens_after_the_ticket_ends_the_sleep(void)
{
    stream_t stream;
    stream_open(&stream, NULL);
    const uint32_t ticket = ps_client_ticket(stream.client);
    ps_wake_client(stream.shared, stream.client_slot); /* nobody is parked yet */
    CHECK_EQ(ps_client_sleep(stream.client, ticket, -1), PS_OK);
    CHECK_EQ(ps_client_sleep(stream.client, ps_client_ticket(stream.client), 0), PS_E_TIMEOUT);
    CHECK_EQ(ps_client_sleep(stream.client, ps_client_ticket(stream.client), 1000), PS_E_TIMEOUT);
    CHECK_EQ(atomic_load(&stream.shared->clients[stream.client_slot].waiting), 0);
    ps_wake_client(stream.shared, -1);
    ps_wake_client(stream.shared, 4); /* out of range: ignored */
    stream_close(&stream);
}

typedef struct rally {
    ps_client_t *client;
    ps_shared_t *shared;
    int32_t slot;
    _Atomic int32_t ball;
    int64_t watches; /* the waiter's */
    int64_t written;
} rally_t;

enum { RALLY = 3000 };

static void *serve(void *argument)
{
    rally_t *rally = argument;
    for (int32_t i = 1; i <= RALLY; i++) {
        while (atomic_load(&rally->ball) != 2 * i - 1) {
            /* the other side's turn */
        }
        atomic_store(&rally->ball, 2 * i);
        ps_wake_client(rally->shared, rally->slot);
    }
    return NULL;
}

static void no_wake_up_is_lost(void)
{
    stream_t stream;
    stream_open(&stream, NULL);
    rally_t rally = { stream.client, stream.shared, stream.client_slot, 0, 0, 0 };
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, serve, &rally), 0);
    for (int32_t i = 1; i <= RALLY; i++) {
        atomic_store(&rally.ball, 2 * i - 1);
        for (;;) {
            const uint32_t ticket = ps_client_ticket(rally.client);
            if (atomic_load(&rally.ball) == 2 * i) {
                break;
            }
            CHECK_EQ(ps_client_sleep(rally.client, ticket, INT64_C(20000000000)), PS_OK);
        }
    }
    CHECK_EQ(pthread_join(thread, NULL), 0);
    stream_close(&stream);
}

/* As a loop of events waits: the flag, the look at the word, the descriptor. */
static void watch(rally_t *rally, int fd, int32_t ball)
{
    for (;;) {
        const uint32_t ticket = ps_client_ticket(rally->client);
        if (atomic_load(&rally->ball) == ball) {
            return;
        }
        const int32_t moved = ps_client_watch(rally->client, ticket, -1);
        rally->watches++;
        CHECK(moved == 0 || moved == 1);
        if (moved == 0) {
            struct pollfd poller = { .fd = fd, .events = POLLIN };
            uint64_t count;
            CHECK_EQ(poll(&poller, 1, 20000), 1);
            CHECK_EQ(read(fd, &count, sizeof count), (ssize_t)sizeof count);
            rally->written += (int64_t)count;
        }
    }
}

static void no_wake_up_of_a_loop_of_events_is_lost(void)
{
    stream_t stream;
    stream_open(&stream, NULL);
    const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    CHECK(fd >= 0);
    CHECK_EQ(ps_client_watch(stream.client, 0, -1), PS_E_INVALID); /* the lease has no eventfd */
    ps_slot_watch_client(stream.shared, stream.client_slot, fd);
    ps_slot_watch_client(stream.client->shared, stream.client_slot, fd);
    ps_slot_watch_client(stream.shared, -1, fd);
    ps_slot_watch_client(stream.shared, 4, fd); /* out of range: ignored */
    rally_t rally = { stream.client, stream.shared, stream.client_slot, 0, 0, 0 };
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, serve, &rally), 0);
    for (int32_t i = 1; i <= RALLY; i++) {
        atomic_store(&rally.ball, 2 * i - 1);
        watch(&rally, fd, 2 * i);
    }
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK(rally.written <= rally.watches); /* at most once for each watch */
    /* Without a watch nothing is written; the client's own wake-ups count too. */
    uint64_t count;
    atomic_store(&stream.shared->clients[stream.client_slot].waiting, 0);
    (void)read(fd, &count, sizeof count);
    ps_wake_client(stream.shared, stream.client_slot);
    CHECK_EQ(read(fd, &count, sizeof count), -1);
    CHECK_EQ(ps_client_watch(stream.client, ps_client_ticket(stream.client), 1000), 0);
    ps_client_wake(stream.client);
    ps_client_wake(stream.client);
    CHECK_EQ(read(fd, &count, sizeof count), (ssize_t)sizeof count);
    CHECK_EQ(count, 1);
    CHECK_EQ(close(fd), 0);
    stream_close(&stream);
}

static _Atomic int32_t signalled;

static void on_signal(int number)
{
    (void)number;
}

static void *keep_signalling(void *argument)
{
    const pthread_t waiter = *(const pthread_t *)argument;
    while (atomic_load(&signalled) == 0) {
        pthread_kill(waiter, SIGUSR1);
        sched_yield();
    }
    return NULL;
}

/* Only where waits have been short of late is a word waited for without the kernel. */
static void awaiting_follows_how_long_waits_were(void)
{
    stream_t stream;
    stream_open(&stream, NULL);
    uint32_t ticket = ps_client_ticket(stream.client);
    ps_client_wake(stream.client);
    CHECK_EQ(ps_client_await(stream.client, ticket), 0); /* nothing was learned yet: no look */
    for (int i = 0; i < 20; i++) {
        ticket = ps_client_ticket(stream.client);
        ps_client_wake(stream.client);
        CHECK_EQ(ps_client_sleep(stream.client, ticket, -1), PS_OK);
    }
    ticket = ps_client_ticket(stream.client);
    ps_client_wake(stream.client);
    CHECK_EQ(ps_client_await(stream.client, ticket), 1);
    ticket = ps_client_ticket(stream.client);
    CHECK_EQ(ps_client_await(stream.client, ticket), 0);    /* it gives up */
    CHECK_EQ(stream.client->awaited, (uint64_t)ticket + 1); /* and a sleep does not wait so again */
    ps_client_wake(stream.client);
    CHECK_EQ(ps_client_sleep(stream.client, ticket, -1), PS_OK);
    stream_close(&stream);
}

static void a_signal_ends_the_sleep(void)
{
    stream_t stream;
    stream_open(&stream, NULL);
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    CHECK_EQ(sigaction(SIGUSR1, &action, NULL), 0);
    pthread_t self = pthread_self();
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, keep_signalling, &self), 0);
    CHECK_EQ(ps_client_sleep(stream.client, ps_client_ticket(stream.client), -1), PS_E_INTERRUPTED);
    atomic_store(&signalled, 1);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(atomic_load(&stream.shared->clients[stream.client_slot].waiting), 0);
    stream_close(&stream);
}

static void application_counters_add_and_set(void)
{
    stream_t stream;
    stream_open(&stream, NULL);
    const int32_t id = ps_counter_allocate(stream.cnc, 1001, "k", 1, "mine", 4, 55, 5, 0, 10, 0);
    CHECK_EQ(ps_client_counter_add(stream.client, id, 5), 15);
    ps_client_counter_set(stream.client, id, -1);
    CHECK_EQ(ps_counter_get(stream.cnc, id), -1);
    CHECK_EQ(ps_client_counter_get(stream.client, id), -1);
    ps_client_counter_set(stream.client, ps_client_counter_count(stream.client), 3); /* ignored */
    ps_client_counter_set(stream.client, -1, 3);
    stream_close(&stream);
}

int main(void)
{
    RUN(slots_are_handed_out_and_come_back_clean);
    RUN(memory_is_taken_with_the_slots);
    RUN(an_adopted_history_begins_empty);
    RUN(every_kind_lies_in_its_own_place);
    RUN(damaged_headers_are_refused);
    RUN(impossible_counts_are_refused);
    RUN(pressure_is_read_from_the_slot);
    RUN(what_happens_after_the_ticket_ends_the_sleep);
    RUN(no_wake_up_is_lost);
    RUN(no_wake_up_of_a_loop_of_events_is_lost);
    RUN(awaiting_follows_how_long_waits_were);
    RUN(a_signal_ends_the_sleep);
    RUN(application_counters_add_and_set);
    return 0;
}
