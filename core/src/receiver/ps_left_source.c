/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_left_source.c: remembers the source of a stream between two images (docs/decisions/0070). An
 * image that was outrun ends while its sender is alive, and the next SETUP makes a new image. If it
 * could be a stranger's, a single forged SETUP between the two images would win the stream.
 */
#include "ps_addr.h"
#include "ps_image.h"
#include "ps_receiver.h"

static ps_recv_left_source_t *find(ps_recv_endpoint_t *endpoint, int32_t destination,
                                   int32_t stream_id, int32_t session_id)
{
    for (int32_t i = 0; i < PS_RECV_LEFT_SOURCES; i++) {
        ps_recv_left_source_t *entry = &endpoint->left_sources[i];

        if (entry->source.family != 0 && entry->destination == destination &&
            entry->stream_id == stream_id && entry->session_id == session_id) {
            return entry;
        }
    }
    return NULL;
}

void ps_left_source_remember(const ps_image_t *image)
{
    ps_recv_endpoint_t *endpoint = image->endpoint;

    for (int32_t i = 0; endpoint != NULL && i < PS_RECV_DESTINATIONS_MAX; i++) {
        const ps_connection_t *connection = &image->connections[i];
        ps_recv_left_source_t *entry;

        if (!connection->confirmed || connection->eos || connection->source.family == 0 ||
            !ps_image_connection_live(image, i, image->receiver->now_ns)) {
            continue;
        }
        entry = find(endpoint, i, image->params.stream_id, image->params.session_id);
        if (entry == NULL) {
            entry = &endpoint->left_sources[endpoint->next_left_source];
            endpoint->next_left_source = (endpoint->next_left_source + 1) % PS_RECV_LEFT_SOURCES;
        }
        *entry = (ps_recv_left_source_t){ .heard_ns = connection->activity_ns,
                                          .source = connection->source,
                                          .stream_id = image->params.stream_id,
                                          .session_id = image->params.session_id,
                                          .destination = i };
    }
}

bool ps_left_source_admits(const ps_recv_destination_t *destination, int32_t stream_id,
                           int32_t session_id, const ps_addr_t *from)
{
    ps_recv_endpoint_t *endpoint = destination->endpoint;
    const ps_receiver_t *receiver = endpoint->receiver;
    const ps_recv_left_source_t *entry = find(endpoint, destination->index, stream_id, session_id);

    return entry == NULL || ps_addr_same_ip(&entry->source, from) ||
           receiver->now_ns - entry->heard_ns >= receiver->params->connection_timeout_ns;
}
