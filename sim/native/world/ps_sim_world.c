/* SPDX-License-Identifier: Apache-2.0
 * ps_sim_world.c: virtual time.  It jumps from one event to the next: an arrival, a driver's timer,
 * an application's turn.  Only the hosts that an event concerns are stepped, and a host is stepped
 * at most once in its cycle, as a thread with that much work per turn would be.
 */
#include <stdlib.h>

#include "ps_client_publication.h"
#include "ps_driver_state.h"
#include "ps_sim_world.h"

enum { MAX_IDLE_STEPS = 100000 };

int ps_simworld_create(ps_simnet_t *simnet, ps_simworld_t **out)
{
    ps_simworld_t *world = calloc(1, sizeof *world);
    if (world == NULL) {
        return ps_fail(PS_E_NO_MEMORY, "simulator: no memory for a world");
    }
    world->simnet = simnet;
    for (int32_t i = 0; i < PS_SIM_MAX_HOSTS; i++) {
        world->slots[i].control_ns = INT64_MAX;
        world->slots[i].deadline_ns = INT64_MAX;
        world->slots[i].cycle_ns = 1;
    }
    *out = world;
    return PS_OK;
}

void ps_simworld_destroy(ps_simworld_t *world)
{
    if (world != NULL) {
        if (world->observer != NULL) {
            world->observer->free(world->observer_context);
        }
        ps_sim_apps_free(world);
        free(world);
    }
}

int ps_simworld_set_driver(ps_simworld_t *world, int32_t host, ps_driver_t *driver,
                           int64_t cycle_ns)
{
    if (host < 0 || host >= world->simnet->host_count || cycle_ns < 1) {
        return ps_fail(PS_E_INVALID, "simulator: no such host, or a cycle below 1 ns");
    }
    ps_sim_slot_t *slot = &world->slots[host];
    if (world->observer != NULL) {
        world->observer->driver_set(world->observer_context, host);
    }
    slot->lives += driver != NULL;
    slot->driver = driver;
    slot->cycle_ns = cycle_ns;
    slot->ready_ns = world->now_ns;
    slot->deadline_ns = INT64_MAX;
    slot->control_ns = INT64_MAX;
    slot->touched = driver != NULL;
    return PS_OK;
}

void ps_simworld_set_control_ns(ps_simworld_t *world, int32_t host, int64_t deadline_ns)
{
    world->slots[host].control_ns = deadline_ns;
}

void ps_simworld_touch(ps_simworld_t *world, int32_t host)
{
    world->slots[host].touched = true;
}

static bool has_events(const ps_sim_slot_t *slot)
{
    return slot->driver != NULL && (!ps_ring_is_empty(&slot->driver->agents[0].events) ||
                                    !ps_ring_is_empty(&slot->driver->agents[1].events));
}

int32_t ps_simworld_wants_control(const ps_simworld_t *world, int32_t host, int64_t now_ns)
{
    const ps_sim_slot_t *slot = &world->slots[host];
    return slot->driver != NULL && now_ns >= slot->control_from_ns &&
           (slot->control_ns <= now_ns || has_events(slot));
}

void ps_simworld_hold_control(ps_simworld_t *world, int32_t host, int64_t until_ns)
{
    world->slots[host].control_from_ns = until_ns;
}

/* ---- one moment ------------------------------------------------------------------------------ */

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t slot_due_ns(const ps_sim_slot_t *slot, int64_t world_now_ns)
{
    if (slot->driver == NULL) {
        return INT64_MAX;
    }
    const int64_t step_ns =
        slot->touched ? slot->ready_ns : later(slot->deadline_ns, slot->ready_ns);
    const int64_t control_ns = has_events(slot) ? world_now_ns : slot->control_ns;
    return earlier(step_ns, later(control_ns, slot->control_from_ns));
}

static int64_t next_ns(const ps_simworld_t *world)
{
    int64_t next = ps_simnet_next_event_ns(world->simnet);
    for (int32_t i = 0; i < world->simnet->host_count; i++) {
        next = earlier(next, slot_due_ns(&world->slots[i], world->now_ns));
    }
    for (int32_t i = 0; i < world->publisher_count; i++) {
        next = earlier(next, ps_sim_publisher_due_ns(world, &world->publishers[i]));
    }
    for (int32_t i = 0; i < world->subscriber_count; i++) {
        next = earlier(next, ps_sim_subscriber_due_ns(&world->subscribers[i]));
    }
    return next;
}

static int32_t step(ps_simworld_t *world, int32_t host, int64_t now_ns)
{
    if (world->observer != NULL) {
        world->observer->step_begins(world->observer_context, host, now_ns);
    }
    const int32_t work = ps_driver_step(world->slots[host].driver, now_ns);
    world->steps++;
    if (world->observer != NULL) {
        world->observer->stepped(world->observer_context, host, work, now_ns);
    }
    return work;
}

int32_t ps_simworld_step(ps_simworld_t *world, int32_t host, int64_t now_ns)
{
    world->now_ns = now_ns;
    return step(world, host, now_ns);
}

/* Steps the host when it is due.  false: it requests ever and does nothing. */
static bool step_slot(ps_simworld_t *world, int32_t host, int64_t now_ns)
{
    ps_sim_slot_t *slot = &world->slots[host];
    ps_sim_host_t *place = &world->simnet->hosts[host];
    slot->stepped = false;
    if (place->touched) {
        place->touched = false;
        slot->touched = true;
        slot->idle_steps = 0;
    }
    if (slot->driver == NULL || now_ns < slot->ready_ns ||
        (!slot->touched && now_ns < slot->deadline_ns)) {
        return true;
    }
    const bool worked = step(world, host, now_ns) > 0;
    slot->stepped = true;
    slot->touched = worked;
    slot->ready_ns = now_ns + slot->cycle_ns;
    slot->deadline_ns = ps_driver_next_deadline_ns(slot->driver, now_ns);
    slot->idle_steps = worked ? 0 : slot->idle_steps + 1;
    return slot->idle_steps < MAX_IDLE_STEPS || slot->deadline_ns > slot->ready_ns;
}

static void act(ps_simworld_t *world, int64_t now_ns)
{
    for (int32_t i = 0; i < world->subscriber_count; i++) {
        ps_sim_subscriber_t *subscriber = &world->subscribers[i];
        ps_sim_slot_t *slot = &world->slots[subscriber->params.host];
        if ((slot->stepped || ps_sim_subscriber_due_ns(subscriber) <= now_ns) &&
            ps_sim_subscriber_act(world, i, now_ns)) {
            slot->touched = true;
            slot->idle_steps = 0;
        }
    }
    for (int32_t i = 0; i < world->publisher_count; i++) {
        ps_sim_publisher_t *publisher = &world->publishers[i];
        ps_sim_slot_t *slot = &world->slots[publisher->params.host];
        if ((slot->stepped || ps_sim_publisher_due_ns(world, publisher) <= now_ns) &&
            ps_sim_publisher_act(world, publisher, now_ns)) {
            slot->touched = true;
            slot->idle_steps = 0;
        }
    }
}

/* ---- applications in Python ------------------------------------------------------------------ */

int ps_simworld_await(ps_simworld_t *world, ps_client_t *client, uint32_t ticket)
{
    if (world->wait_count >= PS_SIM_MAX_APPS) {
        return ps_fail(PS_E_NO_SPACE, "simulator: more than %d clients wait", PS_SIM_MAX_APPS);
    }
    world->waits[world->wait_count++] = (ps_sim_wait_t){ .client = client, .ticket = ticket };
    return PS_OK;
}

void ps_simworld_await_nobody(ps_simworld_t *world)
{
    world->wait_count = 0;
}

void ps_simworld_set_clock(ps_simworld_t *world, ps_pub_t *pub)
{
    ps_pub_set_clock(pub, &world->now_ns);
}

static bool woken(const ps_simworld_t *world)
{
    for (int32_t i = 0; i < world->wait_count; i++) {
        if (ps_client_ticket(world->waits[i].client) != world->waits[i].ticket) {
            return true;
        }
    }
    return false;
}

int32_t ps_simworld_run(ps_simworld_t *world, int64_t until_ns, int64_t *now_ns)
{
    world->now_ns = *now_ns;
    for (;;) {
        if (woken(world)) {
            return PS_SIMWORLD_WOKEN;
        }
        const int64_t at_ns = later(next_ns(world), world->now_ns);
        if (at_ns >= until_ns) {
            world->now_ns = later(until_ns, world->now_ns);
            *now_ns = world->now_ns;
            return PS_SIMWORLD_TIME;
        }
        world->now_ns = at_ns;
        *now_ns = at_ns;
        (void)ps_simnet_advance(world->simnet, at_ns);
        bool control = false;
        for (int32_t i = 0; i < world->simnet->host_count; i++) {
            if (!step_slot(world, i, at_ns)) {
                ps_sim_violate(world, "host %d does not come to rest at %lld ns", i,
                               (long long)at_ns);
                return PS_SIMWORLD_STUCK;
            }
            control = control || ps_simworld_wants_control(world, i, at_ns);
        }
        act(world, at_ns);
        if (control) {
            return PS_SIMWORLD_CONTROL;
        }
    }
}

uint64_t ps_simworld_steps(const ps_simworld_t *world)
{
    return world->steps;
}
