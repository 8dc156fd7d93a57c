/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_destinations.c: see ps_destinations.h. Destinations are in a dense array, which a send walks.
 * Two maps find a destination, and a list ordered by the last status message finds the one that
 * falls silent first. */

#include "ps_destinations.h"

#include <stdlib.h>
#include <string.h>

#include "ps_error.h"

int ps_destinations_init(ps_destinations_t *list, bool dynamic, uint64_t salt)
{
    const int32_t limit = dynamic ? PS_DESTINATIONS_DYNAMIC_MAX : PS_DESTINATIONS_MANUAL_MAX;
    *list = (ps_destinations_t){
        .dynamic = dynamic, .limit = limit, .oldest = -1, .newest = -1, .salt = salt
    };
    list->items = calloc((size_t)limit, sizeof(*list->items));
    int code = list->items == NULL ? ps_fail(PS_E_NO_MEMORY, "no memory for %d destinations", limit)
                                   : PS_OK;
    if (code == PS_OK) {
        code = ps_map_init(&list->by_address, limit, salt);
    }
    if (code == PS_OK) {
        code = ps_map_init(&list->by_receiver, limit, ~salt);
    }
    return code;
}

void ps_destinations_fini(ps_destinations_t *list)
{
    free(list->items);
    list->items = NULL;
    ps_map_fini(&list->by_address);
    ps_map_fini(&list->by_receiver);
}

/* ---- keys ------------------------------------------------------------------------------------ */

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* Salted from the first word on, because peers choose addresses and must not be able to find two
 * with one key. */
static uint64_t address_key(const ps_destinations_t *list, const ps_addr_t *address)
{
    uint64_t words[2] = { 0, 0 };
    memcpy(words, address->ip, address->family == 6 ? 16 : 4);
    uint64_t key = mix(words[0] ^ list->salt);
    key = mix(key ^ words[1]);
    return mix(key ^ ((uint64_t)address->port << 8) ^ (uint64_t)address->family);
}

static uint64_t receiver_key(const ps_destinations_t *list, int64_t receiver_id, uint16_t port)
{
    return mix(mix((uint64_t)receiver_id ^ list->salt) ^ port);
}

/* ---- the list -------------------------------------------------------------------------------- */

static void unlink_item(ps_destinations_t *list, int32_t index)
{
    const ps_destination_t *item = &list->items[index];
    *(item->older >= 0 ? &list->items[item->older].newer : &list->oldest) = item->newer;
    *(item->newer >= 0 ? &list->items[item->newer].older : &list->newest) = item->older;
}

static void link_newest(ps_destinations_t *list, int32_t index)
{
    ps_destination_t *item = &list->items[index];
    item->older = list->newest;
    item->newer = -1;
    *(list->newest >= 0 ? &list->items[list->newest].newer : &list->oldest) = index;
    list->newest = index;
}

/* A key that another item holds stays with that item. */
static void enter(ps_destinations_t *list, int32_t index)
{
    const ps_destination_t *item = &list->items[index];
    const uint64_t address = address_key(list, &item->address);
    if (ps_map_get(&list->by_address, address) == 0) {
        (void)ps_map_put(&list->by_address, address, index + 1);
    }
    if (item->bound) {
        const uint64_t receiver = receiver_key(list, item->receiver_id, item->address.port);
        if (ps_map_get(&list->by_receiver, receiver) == 0) {
            (void)ps_map_put(&list->by_receiver, receiver, index + 1);
        }
    }
}

static void leave(ps_destinations_t *list, int32_t index)
{
    const ps_destination_t *item = &list->items[index];
    const uint64_t address = address_key(list, &item->address);
    if (ps_map_get(&list->by_address, address) == index + 1) {
        ps_map_remove(&list->by_address, address);
    }
    if (item->bound) {
        const uint64_t receiver = receiver_key(list, item->receiver_id, item->address.port);
        if (ps_map_get(&list->by_receiver, receiver) == index + 1) {
            ps_map_remove(&list->by_receiver, receiver);
        }
    }
}

static bool insert(ps_destinations_t *list, int64_t id, const ps_addr_t *address, int64_t now_ns)
{
    if (list->count == list->limit) {
        return false;
    }
    const int32_t index = list->count++;
    list->items[index] = (ps_destination_t){
        .id = id, .address = *address, .heard_ns = now_ns, .reported_ns = now_ns
    };
    link_newest(list, index);
    enter(list, index);
    return true;
}

static void erase(ps_destinations_t *list, int32_t index)
{
    const int32_t last = list->count - 1;
    leave(list, index);
    unlink_item(list, index);
    if (index != last) { /* the last one moves into the hole */
        leave(list, last);
        ps_destination_t *item = &list->items[index];
        *item = list->items[last];
        *(item->older >= 0 ? &list->items[item->older].newer : &list->oldest) = index;
        *(item->newer >= 0 ? &list->items[item->newer].older : &list->newest) = index;
        list->count--;
        enter(list, index);
        return;
    }
    list->count--;
}

static int32_t find_address(const ps_destinations_t *list, const ps_addr_t *address)
{
    const int32_t index = ps_map_get(&list->by_address, address_key(list, address)) - 1;
    return index >= 0 && ps_addr_equal(&list->items[index].address, address) ? index : -1;
}

bool ps_destinations_has(const ps_destinations_t *list, const ps_addr_t *address)
{
    return find_address(list, address) >= 0;
}

/* A new receiver at the same address replaces the old one. There is one socket, and sending to it
 * twice until the old receiver expires would double the load. The same receiver at another address
 * of its host is known too. */
static int32_t find_sender(const ps_destinations_t *list, int64_t receiver_id,
                           const ps_addr_t *from)
{
    int32_t index = find_address(list, from);
    for (int32_t i = 0; index < 0 && !list->dynamic && i < list->count; i++) {
        const ps_destination_t *item = &list->items[i]; /* two may have one address: few, so walk */
        if (ps_addr_equal(&item->address, from) ||
            (item->bound && item->receiver_id == receiver_id && item->address.port == from->port)) {
            index = i;
        }
    }
    if (index < 0 && list->dynamic) {
        index = ps_map_get(&list->by_receiver, receiver_key(list, receiver_id, from->port)) - 1;
        if (index >= 0 && (list->items[index].receiver_id != receiver_id ||
                           list->items[index].address.port != from->port)) {
            index = -1;
        }
    }
    return index;
}

static void hear(ps_destinations_t *list, int32_t index, int64_t now_ns)
{
    ps_destination_t *item = &list->items[index];
    item->heard_ns = now_ns;
    item->reported_ns = now_ns;
    if (list->newest != index) {
        unlink_item(list, index);
        link_newest(list, index);
    }
}

static void bind(ps_destinations_t *list, int32_t index, int64_t receiver_id)
{
    ps_destination_t *item = &list->items[index];
    if (item->bound && item->receiver_id == receiver_id) {
        return;
    }
    leave(list, index);
    item->bound = true;
    item->receiver_id = receiver_id;
    enter(list, index);
}

/* ---- provisional places ---------------------------------------------------------------------- */

static int32_t find_provisional(const ps_destinations_t *list, const ps_addr_t *address)
{
    for (int32_t i = 0; i < list->provisional_count; i++) {
        if (ps_addr_equal(&list->provisional[i].address, address)) {
            return i;
        }
    }
    return -1;
}

static void erase_provisional(ps_destinations_t *list, int32_t index)
{
    list->provisional_count--;
    memmove(&list->provisional[index], &list->provisional[index + 1],
            (size_t)(list->provisional_count - index) * sizeof(list->provisional[0]));
}

/* Makes room for one more place: removes the oldest place of the same IP address, else the oldest
 * of all. */
static void make_room(ps_destinations_t *list, const ps_addr_t *from)
{
    const size_t bytes = from->family == 6 ? 16 : 4;
    int32_t same = 0;
    int32_t oldest = 0;
    for (int32_t i = list->provisional_count - 1; i >= 0; i--) {
        const ps_addr_t *address = &list->provisional[i].address;
        if (address->family == from->family && memcmp(address->ip, from->ip, bytes) == 0) {
            same++;
            oldest = i;
        }
    }
    if (same >= PS_PROVISIONAL_PER_ADDRESS) {
        erase_provisional(list, oldest);
    } else if (list->provisional_count == PS_PROVISIONAL_MAX) {
        erase_provisional(list, 0);
    }
}

int ps_destinations_on_join(ps_destinations_t *list, const ps_addr_t *from, int64_t again_ns,
                            int64_t now_ns)
{
    const int32_t known = find_address(list, from);
    ps_provisional_t place = { .address = *from, .heard_ns = now_ns, .answered_ns = now_ns };
    if (known >= 0) {
        hear(list, known, now_ns);
        return PS_DESTINATION_KNOWN;
    }
    if (!list->dynamic) {
        return PS_DESTINATION_KNOWN;
    }
    const int32_t index = find_provisional(list, from);
    bool answer = true;
    if (index >= 0) {
        const int64_t answered_ns = list->provisional[index].answered_ns;
        answer = now_ns - answered_ns >= again_ns;
        place.answered_ns = answer ? now_ns : answered_ns;
        erase_provisional(list, index);
    } else {
        make_room(list, from);
    }
    list->provisional[list->provisional_count++] = place;
    return answer ? PS_DESTINATION_ANSWER : PS_DESTINATION_KNOWN;
}

int ps_destinations_on_sm(ps_destinations_t *list, int64_t receiver_id, const ps_addr_t *from,
                          bool names, int64_t now_ns)
{
    const int32_t known = find_sender(list, receiver_id, from);
    if (known >= 0) {
        bind(list, known, receiver_id);
        hear(list, known, now_ns);
        return PS_DESTINATION_KNOWN;
    }
    if (!list->dynamic || !names) {
        return PS_DESTINATION_KNOWN;
    }
    if (!insert(list, -1, from, now_ns)) {
        list->refused++;
        return PS_DESTINATION_FULL;
    }
    bind(list, list->count - 1, receiver_id);
    const int32_t index = find_provisional(list, from);
    if (index >= 0) {
        erase_provisional(list, index);
    }
    return PS_DESTINATION_ADDED;
}

/* ---- manual ---------------------------------------------------------------------------------- */

static int32_t find(const ps_destinations_t *list, int64_t id)
{
    for (int32_t i = 0; i < list->count; i++) {
        if (list->items[i].id == id) {
            return i;
        }
    }
    return -1;
}

bool ps_destinations_add(ps_destinations_t *list, int64_t id, const ps_addr_t *address,
                         int64_t now_ns)
{
    return find(list, id) < 0 && insert(list, id, address, now_ns);
}

bool ps_destinations_remove(ps_destinations_t *list, int64_t id)
{
    const int32_t index = find(list, id);
    if (index >= 0) {
        erase(list, index);
    }
    return index >= 0;
}

bool ps_destinations_set(ps_destinations_t *list, int64_t id, const ps_addr_t *address,
                         int64_t now_ns)
{
    const int32_t index = find(list, id);
    if (index >= 0) {
        leave(list, index);
        list->items[index].address = *address;
        list->items[index].bound = false;
        enter(list, index);
        hear(list, index, now_ns);
    }
    return index >= 0;
}

/* ---- time ------------------------------------------------------------------------------------ */

bool ps_destinations_expire(ps_destinations_t *list, int64_t timeout_ns, int64_t now_ns,
                            ps_addr_t *gone)
{
    while (list->provisional_count > 0 &&
           now_ns - list->provisional[0].heard_ns >= PS_PROVISIONAL_NS) {
        erase_provisional(list, 0);
    }
    if (!list->dynamic || list->oldest < 0 ||
        now_ns - list->items[list->oldest].heard_ns < timeout_ns) {
        return false;
    }
    *gone = list->items[list->oldest].address;
    erase(list, list->oldest);
    return true;
}

int64_t ps_destinations_next_ns(const ps_destinations_t *list, int64_t timeout_ns)
{
    int64_t next_ns = INT64_MAX;
    if (list->dynamic) {
        if (list->oldest >= 0) {
            next_ns = list->items[list->oldest].heard_ns + timeout_ns;
        }
        if (list->provisional_count > 0) {
            const int64_t due_ns = list->provisional[0].heard_ns + PS_PROVISIONAL_NS;
            next_ns = due_ns < next_ns ? due_ns : next_ns;
        }
        return next_ns;
    }
    for (int32_t i = 0; i < list->count; i++) {
        const int64_t due_ns = list->items[i].reported_ns + timeout_ns;
        next_ns = due_ns < next_ns ? due_ns : next_ns;
    }
    return next_ns;
}

int32_t ps_destinations_send(ps_destinations_t *list, const ps_net_ops_t *ops, ps_socket_t *socket,
                             const ps_dgram_t *dgrams, int32_t count, int64_t now_ns,
                             int32_t *errors)
{
    int32_t least = count;
    const int32_t n = list->count;
    list->start = list->start + 1 < n ? list->start + 1 : 0;
    for (int32_t k = 0; k < n; k++) {
        const int32_t i = list->start + k < n ? list->start + k : list->start + k - n;
        const int taken = ops->send(socket, &list->items[i].address, dgrams, count, now_ns);
        if (taken < 0) {
            (*errors)++;
        } else if (taken < least) {
            least = taken;
        }
    }
    return least;
}
