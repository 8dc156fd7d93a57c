/* SPDX-License-Identifier: Apache-2.0 */
#include "ps_destinations.h"

#include <string.h>

bool ps_addr_equal(const ps_addr_t *a, const ps_addr_t *b)
{
    const size_t bytes = a->family == 6 ? 16 : 4;
    return a->family == b->family && a->port == b->port && memcmp(a->ip, b->ip, bytes) == 0;
}

static bool insert(ps_destinations_t *list, int64_t id, const ps_addr_t *address, int64_t now_ns)
{
    if (list->count == PS_DESTINATIONS_MAX) {
        return false;
    }
    list->items[list->count++] = (ps_destination_t){
        .id = id, .address = *address, .heard_ns = now_ns, .reported_ns = now_ns
    };
    return true;
}

static void erase(ps_destinations_t *list, int32_t index)
{
    list->count--;
    memmove(&list->items[index], &list->items[index + 1],
            (size_t)(list->count - index) * sizeof(list->items[0]));
}

bool ps_destinations_on_sm(ps_destinations_t *list, int64_t receiver_id, const ps_addr_t *from,
                           int64_t now_ns)
{
    for (int32_t i = 0; i < list->count; i++) {
        ps_destination_t *item = &list->items[i];
        /* Another receiver at the same address is the last one's successor: there is one socket,
         * and sending to it twice until the old one is forgotten would double the load. */
        const bool same =
            ps_addr_equal(&item->address, from) ||
            (item->bound && item->receiver_id == receiver_id && item->address.port == from->port);
        if (same) {
            item->bound = true;
            item->receiver_id = receiver_id;
            item->heard_ns = now_ns;
            item->reported_ns = now_ns;
            return false;
        }
    }
    if (!list->dynamic || !insert(list, -1, from, now_ns)) {
        return false;
    }
    list->items[list->count - 1].bound = true;
    list->items[list->count - 1].receiver_id = receiver_id;
    return true;
}

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
        list->items[index].address = *address;
        list->items[index].bound = false;
        list->items[index].heard_ns = now_ns;
        list->items[index].reported_ns = now_ns;
    }
    return index >= 0;
}

bool ps_destinations_expire(ps_destinations_t *list, int64_t timeout_ns, int64_t now_ns,
                            ps_addr_t *gone)
{
    for (int32_t i = 0; list->dynamic && i < list->count; i++) {
        if (now_ns - list->items[i].heard_ns >= timeout_ns) {
            *gone = list->items[i].address;
            erase(list, i);
            return true;
        }
    }
    return false;
}

int64_t ps_destinations_next_ns(const ps_destinations_t *list, int64_t timeout_ns)
{
    int64_t next_ns = INT64_MAX;
    for (int32_t i = 0; i < list->count; i++) {
        const ps_destination_t *item = &list->items[i];
        const int64_t due_ns = (list->dynamic ? item->heard_ns : item->reported_ns) + timeout_ns;
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
