/* SPDX-License-Identifier: Apache-2.0
 * ps_shared.c: penstock.dat: making, checking, slots, wake-ups. */

#include "ps_set_up.h"

#include "ps_shared.h"

#include <limits.h>
#include <linux/futex.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ps_error.h"
#include "ps_file.h"
#include "ps_wake.h"

enum { PS_HEADER_REGION = 4096, PS_DRIVER_REGION = 4096, PS_SLOTS_MAX = 65536 };
_Static_assert(sizeof(ps_shared_header_t) <= PS_HEADER_REGION, "layout");
_Static_assert(sizeof(ps_driver_slot_t) <= PS_DRIVER_REGION, "layout");
_Static_assert(PS_DIRTY_WORDS * 64 * 64 == PS_SLOTS_MAX, "a bit for each word of the bitmap");

/* The memory of a history: unknown (a dead daemon's), a hole that reads as zeroes, or there, with
 * what its last slot left. */
enum { PS_BACKING_UNKNOWN = 0, PS_BACKING_HOLE = 1, PS_BACKING_THERE = 2 };

static const char ps_shared_name[] = "penstock.dat";

/* ---- layout ---------------------------------------------------------------------------------- */

static uint64_t ps_lines(uint64_t bytes)
{
    return (bytes + PS_LINE - 1) & ~(uint64_t)(PS_LINE - 1);
}

/* Fills sizes and offsets from the counts.  Counts are at most 65536: nothing overflows. */
static void ps_shared_plan(ps_shared_header_t *plan)
{
    plan->version = PS_SHARED_VERSION;
    plan->header_bytes = sizeof(ps_shared_header_t);
    plan->index_entries = PS_INDEX_ENTRIES;
    plan->client_bytes = sizeof(ps_client_slot_t);
    plan->publication_bytes = sizeof(ps_publication_slot_t);
    plan->image_bytes = sizeof(ps_image_slot_t);
    plan->subscriber_bytes = sizeof(ps_subscriber_slot_t);
    plan->group_bytes = sizeof(ps_group_slot_t);
    plan->history_bytes = sizeof(ps_history_t);
    uint64_t at = PS_HEADER_REGION + PS_DRIVER_REGION;
    plan->dirty_offset = at;
    at += ps_lines((uint64_t)plan->publications / 8);
    plan->client_offset = at;
    at += (uint64_t)plan->clients * plan->client_bytes;
    plan->publication_offset = at;
    at += (uint64_t)plan->publications * plan->publication_bytes;
    plan->image_offset = at;
    at += (uint64_t)plan->images * plan->image_bytes;
    plan->subscriber_offset = at;
    at += (uint64_t)plan->subscribers * plan->subscriber_bytes;
    plan->group_offset = at;
    at += ps_lines((uint64_t)plan->groups * plan->group_bytes);
    at = (at + PS_HISTORY_PAGE - 1) & ~(uint64_t)(PS_HISTORY_PAGE - 1);
    plan->history_offset = at;
    at += ((uint64_t)plan->publications + (uint64_t)plan->images) * plan->history_bytes;
    plan->file_bytes = at;
}

static int ps_count_ok(int32_t count)
{
    return count >= 1 && count <= PS_SLOTS_MAX;
}

static int ps_counts_check(const ps_shared_header_t *plan)
{
    if (!ps_count_ok(plan->clients) || !ps_count_ok(plan->publications) ||
        !ps_count_ok(plan->images) || !ps_count_ok(plan->subscribers) ||
        !ps_count_ok(plan->groups) || plan->publications % 64 != 0) {
        return ps_fail(PS_E_INVALID,
                       "slot counts must be in 1..65536, publications a multiple of 64: clients "
                       "%d, "
                       "publications %d, images %d, subscribers %d, groups %d",
                       plan->clients, plan->publications, plan->images, plan->subscribers,
                       plan->groups);
    }
    return PS_OK;
}

static ps_shared_t *ps_shared_attach(uint8_t *base, const ps_shared_header_t *plan,
                                     int32_t read_only)
{
    ps_shared_t *shared = calloc(1, sizeof *shared);
    if (shared == NULL) {
        ps_fail(PS_E_NO_MEMORY, "no memory for a handle of %s", ps_shared_name);
        return NULL;
    }
    shared->backing = calloc((size_t)plan->publications + (size_t)plan->images, 1);
    if (shared->backing == NULL) {
        free(shared);
        ps_fail(PS_E_NO_MEMORY, "no memory for a handle of %s", ps_shared_name);
        return NULL;
    }
    shared->watch_fds = malloc((size_t)plan->clients * sizeof *shared->watch_fds);
    if (shared->watch_fds == NULL) {
        free(shared->backing);
        free(shared);
        ps_fail(PS_E_NO_MEMORY, "no memory for the eventfds of %d clients", plan->clients);
        return NULL;
    }
    for (int32_t i = 0; i < plan->clients; i++) {
        atomic_init(&shared->watch_fds[i], -1);
    }
    shared->base = base;
    shared->length = plan->file_bytes;
    shared->header = (void *)base;
    shared->driver = (void *)(base + PS_HEADER_REGION);
    shared->dirty = (void *)(base + plan->dirty_offset);
    shared->clients = (void *)(base + plan->client_offset);
    shared->publications = (void *)(base + plan->publication_offset);
    shared->images = (void *)(base + plan->image_offset);
    shared->subscribers = (void *)(base + plan->subscriber_offset);
    shared->groups = (void *)(base + plan->group_offset);
    shared->publication_histories = (void *)(base + plan->history_offset);
    shared->image_histories = shared->publication_histories + plan->publications;
    shared->n_clients = plan->clients;
    shared->n_publications = plan->publications;
    shared->n_images = plan->images;
    shared->n_subscribers = plan->subscribers;
    shared->n_groups = plan->groups;
    shared->read_only = read_only;
    return shared;
}

int ps_shared_create(const ps_shared_params_t *params, ps_shared_t **out)
{
    *out = NULL;
    ps_shared_header_t plan;
    memset(&plan, 0, sizeof plan);
    plan.clients = params->clients;
    plan.publications = params->publications;
    plan.images = params->images;
    plan.subscribers = params->subscribers;
    plan.groups = params->groups;
    int code = ps_counts_check(&plan);
    if (code != PS_OK) {
        return code;
    }
    ps_shared_plan(&plan);
    char path[PS_PATH_BYTES];
    code = ps_file_join(path, params->directory, ps_shared_name);
    if (code != PS_OK) {
        return code;
    }
    uint8_t *base = NULL;
    /* Histories are most of the file: they have memory while their slots are taken. */
    const ps_file_range_t later = { (int64_t)plan.history_offset, (int64_t)plan.file_bytes };
    code = ps_file_make(path, (int64_t)plan.file_bytes, params->file_mode, &later, 1, &base);
    if (code != PS_OK) {
        return code;
    }
    ps_shared_t *shared = ps_shared_attach(base, &plan, 0);
    if (shared == NULL) {
        ps_file_unmap(base, plan.file_bytes);
        unlink(path);
        return PS_E_NO_MEMORY;
    }
    memset(shared->backing, PS_BACKING_HOLE, (size_t)plan.publications + (size_t)plan.images);
    memcpy(shared->path, path, sizeof path);
    memcpy(base, &plan, sizeof plan); /* magic still 0 */
    ps_driver_slot_t *driver = shared->driver;
    driver->id = params->daemon_id;
    driver->receiver_id_base = params->receiver_id_base;
    driver->pid = params->pid;
    driver->start_ms = params->start_ms;
    atomic_store_explicit(&driver->state, PS_DRIVER_STARTING, memory_order_relaxed);
    atomic_store_explicit(&driver->epoch, params->daemon_epoch, memory_order_relaxed);
    __atomic_store_n(&shared->header->magic, PS_SHARED_MAGIC, __ATOMIC_RELEASE);
    *out = shared;
    return PS_OK;
}

/* The file must be exactly what this version would have made for its counts. */
static int ps_shared_check(const ps_shared_header_t *header, uint64_t length, const char *path)
{
    if (header->magic != PS_SHARED_MAGIC || header->version != PS_SHARED_VERSION) {
        return ps_fail(PS_E_VERSION, "%s is not a penstock file of version %d (version %u)", path,
                       PS_SHARED_VERSION, header->version);
    }
    if (ps_counts_check(header) != PS_OK) {
        return ps_fail(PS_E_CORRUPT, "%s: impossible slot counts", path);
    }
    ps_shared_header_t plan;
    memset(&plan, 0, sizeof plan);
    plan.magic = PS_SHARED_MAGIC;
    plan.clients = header->clients;
    plan.publications = header->publications;
    plan.images = header->images;
    plan.subscribers = header->subscribers;
    plan.groups = header->groups;
    ps_shared_plan(&plan);
    if (memcmp(&plan, header, sizeof plan) != 0) {
        return ps_fail(PS_E_VERSION, "%s: layout differs from this version's", path);
    }
    if (plan.file_bytes != length) {
        return ps_fail(PS_E_CORRUPT, "%s: %llu bytes, %llu expected", path,
                       (unsigned long long)length, (unsigned long long)plan.file_bytes);
    }
    return PS_OK;
}

int ps_shared_open(const char *directory, int32_t read_only, ps_shared_t **out)
{
    *out = NULL;
    char path[PS_PATH_BYTES];
    int code = ps_file_join(path, directory, ps_shared_name);
    if (code != PS_OK) {
        return code;
    }
    uint8_t *base = NULL;
    uint64_t length = 0;
    code = ps_file_map(path, read_only, PS_HEADER_REGION + PS_DRIVER_REGION, &base, &length);
    if (code != PS_OK) {
        return code;
    }
    ps_shared_header_t copy;
    /* Acquire pairs with the release of the magic in ps_shared_create. */
    const uint64_t magic =
        __atomic_load_n(&((ps_shared_header_t *)(void *)base)->magic, __ATOMIC_ACQUIRE);
    memcpy(&copy, base, sizeof copy);
    copy.magic = magic;
    code = ps_shared_check(&copy, length, path);
    ps_shared_t *shared = code == PS_OK ? ps_shared_attach(base, &copy, read_only) : NULL;
    if (shared == NULL) {
        ps_file_unmap(base, length);
        return code != PS_OK ? code : PS_E_NO_MEMORY;
    }
    memcpy(shared->path, path, sizeof path);
    *out = shared;
    return PS_OK;
}

void ps_shared_adopt(ps_shared_t *shared, const ps_shared_params_t *params)
{
    ps_driver_slot_t *driver = shared->driver;
    atomic_store_explicit(&driver->state, PS_DRIVER_STARTING, memory_order_release);
    driver->id = params->daemon_id;
    driver->receiver_id_base = params->receiver_id_base;
    driver->pid = params->pid;
    driver->start_ms = params->start_ms;
    atomic_store_explicit(&driver->sender_parked, 0, memory_order_seq_cst);
    atomic_store_explicit(&driver->receiver_parked, 0, memory_order_seq_cst);
    atomic_store_explicit(&driver->epoch, params->daemon_epoch, memory_order_release);
}

void ps_shared_close(ps_shared_t *shared)
{
    if (shared != NULL) {
        ps_file_unmap(shared->base, shared->length);
        free(shared->backing);
        free(shared->watch_fds);
        free(shared);
    }
}

/* ---- driver slot ----------------------------------------------------------------------------- */

void ps_shared_set_state(ps_shared_t *shared, int32_t state)
{
    atomic_store_explicit(&shared->driver->state, state, memory_order_release);
}

int32_t ps_shared_state(const ps_shared_t *shared)
{
    return atomic_load_explicit(&shared->driver->state, memory_order_acquire);
}

uint64_t ps_shared_epoch(const ps_shared_t *shared)
{
    return atomic_load_explicit(&shared->driver->epoch, memory_order_acquire);
}

int64_t ps_shared_pid(const ps_shared_t *shared)
{
    return shared->driver->pid;
}

void ps_shared_set_storage(ps_shared_t *shared, int64_t budget_bytes, int64_t used_bytes)
{
    atomic_store_explicit(&shared->driver->storage_budget_bytes, budget_bytes,
                          memory_order_relaxed);
    atomic_store_explicit(&shared->driver->storage_used_bytes, used_bytes, memory_order_relaxed);
}

/* ---- slots ----------------------------------------------------------------------------------- */

typedef struct ps_slots {
    uint8_t *base;
    size_t bytes;
    int32_t count;
} ps_slots_t;

/* Every slot begins with its id. */
static ps_slots_t ps_slots_of(const ps_shared_t *shared, int32_t kind)
{
    switch (kind) {
    case PS_SLOT_CLIENT:
        return (ps_slots_t){ (uint8_t *)shared->clients, sizeof(ps_client_slot_t),
                             shared->n_clients };
    case PS_SLOT_PUBLICATION:
        return (ps_slots_t){ (uint8_t *)shared->publications, sizeof(ps_publication_slot_t),
                             shared->n_publications };
    case PS_SLOT_IMAGE:
        return (ps_slots_t){ (uint8_t *)shared->images, sizeof(ps_image_slot_t), shared->n_images };
    case PS_SLOT_SUBSCRIBER:
        return (ps_slots_t){ (uint8_t *)shared->subscribers, sizeof(ps_subscriber_slot_t),
                             shared->n_subscribers };
    case PS_SLOT_GROUP:
        return (ps_slots_t){ (uint8_t *)shared->groups, sizeof(ps_group_slot_t), shared->n_groups };
    default: return (ps_slots_t){ NULL, 0, 0 };
    }
}

static _Atomic int64_t *ps_slot_id_cell(const ps_slots_t *slots, int32_t index)
{
    return (_Atomic int64_t *)(void *)(slots->base + (size_t)index * slots->bytes);
}

static void ps_slot_reset_client(ps_client_slot_t *slot)
{
    /* The futex word keeps its value: an old waiter must not mistake a reset value for a new
     * one. */
    const uint32_t word = atomic_load_explicit(&slot->futex_word, memory_order_relaxed);
    memset((uint8_t *)slot + sizeof slot->id, 0, sizeof *slot - sizeof slot->id);
    atomic_store_explicit(&slot->futex_word, word + 1, memory_order_relaxed);
}

static void ps_slot_reset(ps_shared_t *shared, int32_t kind, const ps_slots_t *slots, int32_t index)
{
    uint8_t *at = slots->base + (size_t)index * slots->bytes;
    if (kind == PS_SLOT_CLIENT) {
        ps_slot_reset_client(&shared->clients[index]);
        return;
    }
    memset(at + sizeof(int64_t), 0, slots->bytes - sizeof(int64_t));
    if (kind == PS_SLOT_PUBLICATION) {
        atomic_store_explicit(&shared->publications[index].wake_position, INT64_MAX,
                              memory_order_relaxed);
        atomic_fetch_and_explicit(&shared->dirty[index / 64], ~(UINT64_C(1) << (index % 64)),
                                  memory_order_relaxed);
    } else if (kind == PS_SLOT_IMAGE) {
        shared->images[index].join_ordinal = -1;
        atomic_store_explicit(&shared->images[index].ordinal, -1, memory_order_relaxed);
        atomic_store_explicit(&shared->images[index].wake_position, INT64_MAX,
                              memory_order_relaxed);
    }
}

/* The history of a slot, NULL: slots of this kind have none. */
static ps_history_t *ps_history_of(const ps_shared_t *shared, int32_t kind, int32_t index,
                                   uint8_t **backing)
{
    switch (kind) {
    case PS_SLOT_PUBLICATION:
        *backing = &shared->backing[index];
        return &shared->publication_histories[index];
    case PS_SLOT_IMAGE:
        *backing = &shared->backing[shared->n_publications + index];
        return &shared->image_histories[index];
    default: return NULL;
    }
}

/* Gives an empty history memory.  It touches none that is zero: most images of a flood of SETUPs
 * never note anything (docs/decisions/0160). */
static int ps_history_take(ps_shared_t *shared, int32_t kind, int32_t index)
{
    uint8_t *backing;
    ps_history_t *history = ps_history_of(shared, kind, index, &backing);
    if (history == NULL) {
        return PS_OK;
    }
    if (*backing != PS_BACKING_THERE) {
        const int code = ps_file_reserve_in(shared->path, (const uint8_t *)history - shared->base,
                                            sizeof *history);
        if (code != PS_OK) {
            return code;
        }
    }
    if (*backing != PS_BACKING_HOLE) {
        memset(&history->ring, 0, sizeof history->ring);
        ps_times_reset(&history->times);
    }
    *backing = PS_BACKING_THERE;
    return PS_OK;
}

/* If the file system cannot release memory, it stays for the slot's next owner. So does a history
 * that shares a page with its neighbour, on a processor with larger pages: the kernel rounds the
 * length up and would clear the neighbour too. */
static void ps_history_release(ps_shared_t *shared, int32_t kind, int32_t index)
{
    uint8_t *backing;
    ps_history_t *history = ps_history_of(shared, kind, index, &backing);
    if (history != NULL && *backing != PS_BACKING_HOLE &&
        sizeof *history % (size_t)sysconf(_SC_PAGESIZE) == 0 &&
        madvise(history, sizeof *history, MADV_REMOVE) == 0) {
        *backing = PS_BACKING_HOLE;
    }
}

/* Returns the lowest free index, or -1. All slots below `free_from` are taken, so that the search
 * does not pass them each time. Another process may have written the slots, so the search does not
 * rely on this: it goes round all slots. */
static int32_t ps_slot_lowest_free(ps_shared_t *shared, int32_t kind, const ps_slots_t *slots)
{
    int32_t *free_from = &shared->free_from[kind];
    int32_t index = *free_from;
    for (int32_t left = slots->count; left > 0; left--) {
        if (atomic_load_explicit(ps_slot_id_cell(slots, index), memory_order_relaxed) == 0) {
            *free_from = index;
            return index;
        }
        index = index + 1 < slots->count ? index + 1 : 0;
    }
    return -1;
}

int32_t ps_slot_allocate(ps_shared_t *shared, int32_t kind, int64_t id)
{
    const ps_slots_t slots = ps_slots_of(shared, kind);
    if (slots.base == NULL || id == 0 || shared->read_only) {
        return ps_fail(PS_E_INVALID, "slot kind %d, id %lld", kind, (long long)id);
    }
    const int32_t index = ps_slot_lowest_free(shared, kind, &slots);
    if (index < 0) {
        return ps_fail(PS_E_NO_SPACE, "all %d slots of kind %d are taken", slots.count, kind);
    }
    const int code = ps_history_take(shared, kind, index);
    if (code != PS_OK) {
        return code;
    }
    ps_slot_reset(shared, kind, &slots, index);
    /* Release: a process that sees the id sees the zeroed slot. */
    atomic_store_explicit(ps_slot_id_cell(&slots, index), id, memory_order_release);
    return index;
}

void ps_slot_free(ps_shared_t *shared, int32_t kind, int32_t index)
{
    const ps_slots_t slots = ps_slots_of(shared, kind);
    if (index >= 0 && index < slots.count && !shared->read_only) {
        ps_history_release(shared, kind, index);
        atomic_store_explicit(ps_slot_id_cell(&slots, index), 0, memory_order_release);
        if (index < shared->free_from[kind]) {
            shared->free_from[kind] = index;
        }
    }
}

int32_t ps_slot_count(const ps_shared_t *shared, int32_t kind)
{
    return ps_slots_of(shared, kind).count;
}

int64_t ps_slot_id(const ps_shared_t *shared, int32_t kind, int32_t index)
{
    const ps_slots_t slots = ps_slots_of(shared, kind);
    if (index < 0 || index >= slots.count) {
        return 0;
    }
    return atomic_load_explicit(ps_slot_id_cell(&slots, index), memory_order_acquire);
}

void ps_slot_describe_client(ps_shared_t *shared, int32_t index, int64_t pid, int64_t uid,
                             const char *name)
{
    if (index < 0 || index >= shared->n_clients || shared->read_only) {
        return;
    }
    ps_client_slot_t *slot = &shared->clients[index];
    slot->pid = pid;
    slot->uid = uid;
    slot->epoch = ps_shared_epoch(shared);
    snprintf(slot->name, sizeof slot->name, "%s", name != NULL ? name : "");
}

int ps_slot_read_image(const ps_shared_t *shared, int32_t image_slot, ps_image_view_t *out)
{
    if (image_slot < 0 || image_slot >= shared->n_images) {
        return ps_fail(PS_E_INVALID, "image slot %d of %d", image_slot, shared->n_images);
    }
    const ps_image_slot_t *slot = &shared->images[image_slot];
    *out = (ps_image_view_t){
        .id = atomic_load_explicit(&slot->id, memory_order_acquire),
        .session_id = slot->session_id,
        .stream_id = slot->stream_id,
        .gaps = atomic_load_explicit(&slot->gaps, memory_order_relaxed),
        .fill_ppm = atomic_load_explicit(&slot->fill_ppm, memory_order_relaxed),
        .lost_bytes = atomic_load_explicit(&slot->lost_bytes, memory_order_relaxed),
        .rtt_ns = atomic_load_explicit(&slot->rtt_ns, memory_order_relaxed),
        .window_bytes = atomic_load_explicit(&slot->window_bytes, memory_order_relaxed),
        .congestion_window = atomic_load_explicit(&slot->congestion_window, memory_order_relaxed),
    };
    return PS_OK;
}

/* ---- waking clients -------------------------------------------------------------------------- */

/* The slow half of a wake-up, for a sleeping thread or a watching event loop. */
static __attribute__((noinline)) void wake_waiting(ps_shared_t *shared, int32_t index,
                                                   uint64_t waiting)
{
    ps_client_slot_t *slot = &shared->clients[index];
    if ((uint32_t)waiting != 0) {
        syscall(SYS_futex, &slot->futex_word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    }
    if ((waiting & PS_WATCHED) == 0) {
        return;
    }
    const int32_t fd = atomic_load_explicit(&shared->watch_fds[index], memory_order_acquire);
    /* The waker that clears the flag writes: once per transition. */
    if (fd >= 0 && (atomic_fetch_and_explicit(&slot->waiting, ~PS_WATCHED, memory_order_seq_cst) &
                    PS_WATCHED) != 0) {
        const uint64_t one = 1;
        const ssize_t written = write(fd, &one, sizeof one);
        (void)written; /* full: a wake-up is pending anyway */
    }
}

void ps_slot_watch_client(ps_shared_t *shared, int32_t index, int32_t fd)
{
    if (index >= 0 && index < shared->n_clients) {
        atomic_store_explicit(&shared->watch_fds[index], fd, memory_order_release);
    }
}

void ps_wake_client_fenced(ps_shared_t *shared, int32_t client_slot)
{
    if (client_slot < 0 || client_slot >= shared->n_clients) {
        return;
    }
    ps_client_slot_t *slot = &shared->clients[client_slot];
    /* The word moves even when no thread waits: a waiter that took its ticket before and parks
     * later must not sleep.  Pairs with waiting + 1, then the kernel's check of the word, in
     * ps_client_sleep, and with PS_WATCHED, then the check of the word, in ps_client_watch: all
     * sequentially consistent, so one of the two sees the other. */
    atomic_fetch_add_explicit(&slot->futex_word, 1, memory_order_seq_cst);
    const uint64_t waiting = atomic_load_explicit(&slot->waiting, memory_order_seq_cst);
    if (waiting != 0) {
        wake_waiting(shared, client_slot, waiting);
    }
}

/* The fetch-add of the called function is the fence. */
void ps_wake_client(ps_shared_t *shared, int32_t client_slot)
{
    ps_wake_client_fenced(shared, client_slot);
}

void ps_slot_wake_client(ps_shared_t *shared, int32_t index)
{
    ps_wake_client_fenced(shared, index);
}
