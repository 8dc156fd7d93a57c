/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_receiver.c: the receiver agent: creation, commands, duty cycle, timers.
 *
 * One duty cycle: read every socket, process the changed ("hot") images: request missing data, send
 * status messages, and wake their readers after one fence. Then, at most once a millisecond, run
 * the timers. Frames that go out are collected in the outbox and leave at the end. The cost of a
 * cycle follows the hot images and the sockets, not the open images. */
#include "ps_receiver.h"
#include "ps_assert.h"

#include <stdlib.h>
#include <string.h>

/* With more sockets than this, idle sockets are read less often. In the simulator all are read,
 * because a step without work ends the instant. */
enum { PS_POLL_ALL_LIMIT = 8, PS_POLL_IDLE_AFTER = 64, PS_POLL_IDLE_MASK = 7 };

/* ---- life ------------------------------------------------------------------------------------ */

int ps_receiver_create(const ps_context_t *context, ps_agent_t *agent, ps_receiver_t **out)
{
    const ps_driver_params_t *params = &context->params;
    ps_receiver_t *receiver = calloc(1, sizeof(*receiver));
    size_t limit = (size_t)params->shared->n_images;
    int code;

    if (receiver == NULL) {
        return ps_fail(PS_E_NO_MEMORY, "no memory for the receiver");
    }
    receiver->context = context;
    receiver->agent = agent;
    receiver->params = params;
    receiver->ops = params->net->ops;
    receiver->shared = params->shared;
    receiver->timer_due_ns = INT64_MAX;
    receiver->nak_due_ns = INT64_MAX;
    receiver->last_tick_ns = INT64_MIN / 2;
    receiver->images_limit = (int32_t)limit;
    receiver->images = calloc(limit + 1, sizeof(*receiver->images));
    receiver->hot = calloc(limit + 1, sizeof(*receiver->hot));
    receiver->releases_limit =
        (int32_t)limit + PS_RECEIVER_ENDPOINTS_MAX * (1 + PS_RECV_DESTINATIONS_MAX);
    receiver->releases = calloc((size_t)receiver->releases_limit, sizeof(*receiver->releases));
    ps_random_seed(&receiver->random, params->seed ^ UINT64_C(0x7265636569766572));
    if (receiver->images == NULL || receiver->hot == NULL || receiver->releases == NULL) {
        ps_receiver_destroy(receiver);
        return ps_fail(PS_E_NO_MEMORY, "no memory for %d images", params->shared->n_images);
    }
    code = ps_timers_init(&receiver->timers, receiver->images_limit + 1);
    if (code == PS_OK) {
        code = ps_half_open_init(&receiver->half_open, receiver->images_limit, params->seed);
    }
    if (code != PS_OK) {
        ps_receiver_destroy(receiver);
        return code;
    }
    *out = receiver;
    return PS_OK;
}

void ps_receiver_destroy(ps_receiver_t *receiver)
{
    if (receiver == NULL) {
        return;
    }
    for (int32_t i = 0; i < receiver->n_images; i++) {
        ps_image_free(receiver->images[i]);
    }
    for (int32_t i = 0; i < receiver->n_endpoints; i++) {
        ps_recv_endpoint_free(receiver->endpoints[i]);
    }
    ps_half_open_fini(&receiver->half_open);
    ps_timers_fini(&receiver->timers);
    free(receiver->images);
    free(receiver->hot);
    free(receiver->releases);
    free(receiver);
}

void ps_receiver_set_now(ps_receiver_t *receiver, int64_t now_ns)
{
    receiver->now_ns = now_ns > receiver->now_ns ? now_ns : receiver->now_ns;
}

void ps_receiver_on_command(ps_receiver_t *receiver, const ps_command_t *command)
{
    bool known =
        ps_image_on_command(receiver, command) || ps_recv_endpoint_on_command(receiver, command);

    PS_ASSERT(known);
    (void)known;
}

/* ---- faults ---------------------------------------------------------------------------------- */

void ps_receiver_faults(const ps_receiver_t *receiver, uint64_t out[PS_WIRE_FAULTS])
{
    for (int32_t i = 0; i < PS_WIRE_FAULTS; i++) {
        out[i] = atomic_load_explicit((_Atomic uint64_t *)(uintptr_t)&receiver->faults[i],
                                      memory_order_relaxed);
    }
}

/* ---- duty cycle ------------------------------------------------------------------------------ */

static void report_socket_error(ps_receiver_t *receiver, ps_recv_destination_t *destination,
                                int code)
{
    ps_event_t event = { .type = PS_EV_ENDPOINT_ERROR,
                         .kind = PS_KIND_RECV_ENDPOINT,
                         .id = destination->endpoint->params.id,
                         .now_ns = receiver->now_ns,
                         .error = { .code = code, .destination = destination->index } };

    if (receiver->now_ns < destination->error_due_ns) {
        return;
    }
    strncpy(event.error.text, ps_last_error(), sizeof(event.error.text) - 1);
    if (ps_agent_emit(receiver->agent, &event)) {
        destination->error_due_ns = receiver->now_ns + INT64_C(1000000000);
    }
}

static int receive(const ps_receiver_t *receiver, ps_recv_destination_t *destination)
{
    const ps_net_ops_t *ops = receiver->ops;

    return ops->recv_runs != NULL
               ? ops->recv_runs(destination->socket, PS_RECEIVER_RECV_LIMIT, ps_receiver_on_run,
                                &ps_receiver_direct, destination, receiver->now_ns)
               : ops->recv(destination->socket, PS_RECEIVER_RECV_LIMIT, ps_receiver_on_datagram,
                           destination, receiver->now_ns);
}

static int32_t poll_endpoint(ps_receiver_t *receiver, ps_recv_endpoint_t *endpoint, bool all)
{
    int32_t work = 0;

    for (int32_t i = 0; i < PS_RECV_DESTINATIONS_MAX; i++) {
        ps_recv_destination_t *destination = endpoint->destinations[i];
        int got;

        if (destination == NULL) {
            continue;
        }
        if (!all && destination->idle_polls > PS_POLL_IDLE_AFTER &&
            ((receiver->cycle + (uint64_t)endpoint->slot) & PS_POLL_IDLE_MASK) != 0) {
            continue;
        }
        got = receive(receiver, destination);
        if (got > 0) {
            destination->idle_polls = 0;
            destination->heard_ns = receiver->now_ns;
            work += got;
        } else {
            destination->idle_polls += destination->idle_polls < UINT32_MAX;
            if (got < 0) {
                report_socket_error(receiver, destination, got);
            }
        }
    }
    return work;
}

/* Wakes the readers of hot images with new data, after one fence for all. */
static void wake_readers(ps_receiver_t *receiver)
{
    bool any = false;

    for (int32_t i = 0; i < receiver->n_hot && !any; i++) {
        any = receiver->hot[i]->wake != 0;
    }
    if (!any) {
        return;
    }
    /* Pairs with the client's parked store: either it sees the frames or we see it parked. */
    atomic_thread_fence(memory_order_seq_cst);
    for (int32_t i = 0; i < receiver->n_hot; i++) {
        ps_image_t *image = receiver->hot[i];

        for (int32_t j = 0; image->wake && j < image->n_subscribers; j++) {
            ps_wake_client_fenced(receiver->shared, image->subscribers[j].client_slot);
        }
        image->wake = 0;
    }
}

static int32_t run_hot(ps_receiver_t *receiver)
{
    int32_t work = 0;
    int32_t kept = 0;
    int32_t granting = 0;

    receiver->nak_due_ns = INT64_MAX;
    for (int32_t i = 0; i < receiver->n_hot; i++) {
        ps_image_t *image = receiver->hot[i];
        bool stay = false;

        work += ps_image_cycle(image, receiver->now_ns, &stay);
        if (image->nak_due_ns < receiver->nak_due_ns) {
            receiver->nak_due_ns = image->nak_due_ns;
        }
        image->hot = stay || image->wake;
        if (image->hot) {
            receiver->hot[kept++] = image;
            granting += image->credits.readers > 0;
        }
    }
    receiver->n_hot = kept;
    receiver->n_granting = granting;
    return work;
}

static void run_timers(ps_receiver_t *receiver)
{
    const int64_t now_ns = receiver->now_ns;
    int64_t due_ns;

    receiver->last_tick_ns = now_ns;
    receiver->timer_due_ns = INT64_MAX;
    /* Each step moves one timer to a later time, so each image has at most one. */
    while (ps_timers_first_ns(&receiver->timers) <= now_ns) {
        ps_image_t *image = ps_image_of_timer(ps_timers_first(&receiver->timers));

        ps_image_tick(image, now_ns);
        ps_timers_set(&receiver->timers, &image->timer,
                      image->next_due_ns > now_ns ? image->next_due_ns : now_ns + 1);
    }
    due_ns = ps_timers_first_ns(&receiver->timers);
    for (int32_t i = 0; i < receiver->n_endpoints; i++) {
        ps_recv_endpoint_tick(receiver, receiver->endpoints[i], now_ns, &due_ns);
    }
    if (receiver->n_releases > 0) {
        ps_receiver_retry_releases(receiver);
        due_ns = receiver->n_releases > 0 ? now_ns : due_ns;
    }
    ps_receiver_timer(receiver, due_ns);
}

static void flush_counters(ps_receiver_t *receiver)
{
    if (receiver->bytes_received > 0) {
        ps_system_add(receiver->context, PS_SYS_BYTES_RECEIVED, receiver->bytes_received);
        receiver->bytes_received = 0;
    }
    if (receiver->sm_sent > 0) {
        ps_system_add(receiver->context, PS_SYS_SM_SENT, receiver->sm_sent);
        receiver->sm_sent = 0;
    }
    if (receiver->naks_sent > 0) {
        ps_system_add(receiver->context, PS_SYS_NAKS_SENT, receiver->naks_sent);
        receiver->naks_sent = 0;
    }
}

int32_t ps_receiver_do_work(ps_receiver_t *receiver, int64_t now_ns)
{
    bool all =
        receiver->n_destinations <= PS_POLL_ALL_LIMIT || receiver->params->threading == PS_INVOKER;
    int32_t work = 0;

    receiver->now_ns = now_ns;
    receiver->cycle++;
    for (int32_t i = 0; i < receiver->n_endpoints; i++) {
        work += poll_endpoint(receiver, receiver->endpoints[i], all);
    }
    work += run_hot(receiver);
    wake_readers(receiver);
    if (now_ns >= receiver->timer_due_ns && now_ns >= receiver->last_tick_ns + PS_TICK_NS) {
        run_timers(receiver);
        work++;
    }
    ps_receiver_flush(receiver);
    flush_counters(receiver);
    return work;
}

int64_t ps_receiver_next_deadline_ns(ps_receiver_t *receiver, int64_t now_ns)
{
    int64_t timer_ns = receiver->timer_due_ns;

    (void)now_ns;
    if (timer_ns != INT64_MAX && timer_ns < receiver->last_tick_ns + PS_TICK_NS) {
        timer_ns = receiver->last_tick_ns + PS_TICK_NS;
    }
    return timer_ns < receiver->nak_due_ns ? timer_ns : receiver->nak_due_ns;
}

bool ps_receiver_is_busy(const ps_receiver_t *receiver)
{
    return receiver->n_hot > 0;
}

bool ps_receiver_owes_credit(const ps_receiver_t *receiver)
{
    for (int32_t i = 0; receiver->n_granting > 0 && i < receiver->n_hot; i++) {
        if (ps_image_credit_is_due(receiver->hot[i])) {
            return true;
        }
    }
    return false;
}

bool ps_receiver_has_work(ps_receiver_t *receiver)
{
    for (int32_t i = 0; i < receiver->n_hot; i++) {
        if (ps_image_release_due(receiver->hot[i])) {
            return true;
        }
    }
    return false;
}
