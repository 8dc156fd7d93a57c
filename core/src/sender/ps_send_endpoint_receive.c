/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_send_endpoint_receive.c: receives datagrams of a send endpoint, and runs its timers: dynamic
 * destinations, silence. */
#include <string.h>

#include "ps_send_endpoint.h"
#include "ps_sender.h"

#define REPORT_INTERVAL_NS INT64_C(1000000000)

int32_t ps_send_endpoint_poll(ps_send_endpoint_t *endpoint, ps_on_datagram_fn on_datagram,
                              int64_t now_ns)
{
    int32_t seen = 0;
    ps_socket_t *const sockets[2] = { endpoint->data, endpoint->control };
    endpoint->poll_now = false;
    for (int32_t i = 0; i < 2; i++) {
        if (sockets[i] == NULL || (i == 0 && endpoint->control != NULL)) {
            continue; /* multicast: only the control group is read */
        }
        const int result =
            endpoint->ops->recv(sockets[i], PS_POLL_LIMIT, on_datagram, endpoint, now_ns);
        if (result < 0) {
            ps_send_endpoint_report_error(endpoint, result, now_ns);
        }
        seen += result > 0 ? result : 0;
    }
    if (endpoint->join_count > 0) {
        ps_send_endpoint_answer(endpoint, now_ns);
    }
    if (endpoint->grew) {
        endpoint->grew = false;
        ps_send_endpoint_store_count(endpoint);
        endpoint->due_ns = now_ns; /* its timeout is not known to the scan yet */
        ps_sender_due(endpoint->sender, now_ns);
        ps_sender_ready_endpoint(endpoint->sender, endpoint);
    }
    return seen;
}

static void refuse(ps_send_endpoint_t *endpoint, const ps_addr_t *from, int64_t now_ns)
{
    const int64_t refused = (int64_t)endpoint->destinations.refused;
    if (endpoint->refused_cell != NULL) {
        atomic_store_explicit(endpoint->refused_cell, refused, memory_order_release);
    }
    if (endpoint->full_reported_ns != 0 &&
        now_ns - endpoint->full_reported_ns < REPORT_INTERVAL_NS) {
        return;
    }
    const ps_event_t event = { .type = PS_EV_DESTINATION,
                               .kind = PS_KIND_SEND_ENDPOINT,
                               .id = endpoint->id,
                               .now_ns = now_ns,
                               .destination = {
                                   .source = *from, .refused = refused, .change = -1 } };
    if (ps_agent_emit(endpoint->sender->agent, &event)) {
        endpoint->full_reported_ns = now_ns;
    }
}

void ps_send_endpoint_heard(ps_send_endpoint_t *endpoint, const ps_sm_t *sm, int32_t heard,
                            const ps_addr_t *from, int64_t now_ns)
{
    ps_destinations_t *list = &endpoint->destinations;
    const int64_t again_ns = endpoint->context->params.setup_interval_ns;
    int verdict;
    endpoint->heard_ns = now_ns;
    endpoint->silence_reported_ns = now_ns;
    if (endpoint->params.mdc == PS_MDC_NONE) {
        return;
    }
    verdict = heard == PS_HEARD_JOIN ? ps_destinations_on_join(list, from, again_ns, now_ns)
                                     : ps_destinations_on_sm(list, sm->receiver_id, from,
                                                             heard == PS_HEARD_NAMES, now_ns);
    if (verdict == PS_DESTINATION_FULL) {
        refuse(endpoint, from, now_ns);
    } else if (verdict == PS_DESTINATION_ANSWER) {
        ps_send_endpoint_join(endpoint, from, now_ns);
    } else if (verdict == PS_DESTINATION_ADDED) {
        const ps_event_t event = { .type = PS_EV_DESTINATION,
                                   .kind = PS_KIND_SEND_ENDPOINT,
                                   .id = endpoint->id,
                                   .now_ns = now_ns,
                                   .destination = { .source = *from, .change = 1 } };
        (void)ps_agent_emit(endpoint->sender->agent, &event); /* a counter shows it too */
        endpoint->grew = true;
    }
}

static bool report_silence(ps_send_endpoint_t *endpoint, const ps_addr_t *of,
                           int64_t destination_id, int64_t now_ns)
{
    const ps_event_t event = { .type = PS_EV_SILENT,
                               .kind = PS_KIND_SEND_ENDPOINT,
                               .id = endpoint->id,
                               .now_ns = now_ns,
                               .silent = { .source = *of, .destination_id = destination_id } };
    return ps_agent_emit(endpoint->sender->agent, &event);
}

int64_t ps_send_endpoint_on_timer(ps_send_endpoint_t *endpoint, int64_t now_ns)
{
    const int64_t timeout_ns = endpoint->context->params.connection_timeout_ns;
    ps_destinations_t *list = &endpoint->destinations;
    ps_addr_t gone;
    if (endpoint->silence_reported_ns < 0) {
        endpoint->silence_reported_ns = now_ns;
    }
    while (ps_destinations_expire(list, timeout_ns, now_ns, &gone)) {
        const ps_event_t event = { .type = PS_EV_DESTINATION,
                                   .kind = PS_KIND_SEND_ENDPOINT,
                                   .id = endpoint->id,
                                   .now_ns = now_ns,
                                   .destination = { .source = gone, .change = 0 } };
        (void)ps_agent_emit(endpoint->sender->agent, &event);
        ps_send_endpoint_store_count(endpoint);
    }
    for (int32_t i = 0; !list->dynamic && i < list->count; i++) {
        ps_destination_t *item = &list->items[i];
        if (now_ns - item->reported_ns >= timeout_ns &&
            report_silence(endpoint, &item->address, item->id, now_ns)) {
            item->reported_ns = now_ns;
        }
    }
    const bool unicast = endpoint->params.mdc == PS_MDC_NONE && !endpoint->params.multicast;
    if (unicast && now_ns - endpoint->silence_reported_ns >= timeout_ns &&
        report_silence(endpoint, &endpoint->remote, -1, now_ns)) {
        endpoint->silence_reported_ns = now_ns;
    }
    int64_t due_ns = ps_destinations_next_ns(list, timeout_ns);
    const int64_t join_ns = ps_send_endpoint_join_timer(endpoint, now_ns);
    const int64_t drain_ns = ps_send_endpoint_drain_timer(endpoint, now_ns);
    due_ns = join_ns < due_ns ? join_ns : due_ns;
    due_ns = drain_ns < due_ns ? drain_ns : due_ns;
    if (unicast && endpoint->silence_reported_ns + timeout_ns < due_ns) {
        due_ns = endpoint->silence_reported_ns + timeout_ns;
    }
    return due_ns > now_ns ? due_ns : now_ns + PS_TICK_NS;
}
