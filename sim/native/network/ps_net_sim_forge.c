/* SPDX-License-Identifier: Apache-2.0
 * ps_net_sim_forge.c: a stranger on the network, which repeats what senders say to receivers under
 * an address of its own: SETUPs without their trailer, heartbeats that state an end or a
 * revocation, data with another payload.  A receiver follows its source: none of it may count.
 */
#include <stdlib.h>

#include "ps_net_sim.h"
#include "ps_wire_fields.h"

enum { STRANGER_NET = 255, STRANGERS = 4, STRANGER_PORT = 6660 };

bool ps_sim_is_stranger(const ps_addr_t *address)
{
    return address->family == 4 && address->ip[1] == STRANGER_NET;
}

bool ps_sim_is_forged(const ps_sim_packet_t *packet)
{
    return ps_sim_is_stranger(&packet->from);
}

ps_sim_packet_t *ps_sim_forge(ps_simnet_t *simnet, const ps_sim_packet_t *packet)
{
    const uint16_t type = packet->length >= PS_HEADER_BYTES ? ps_get_u16(packet->data + 6) : 0xFFFF;
    const size_t size = sizeof *packet + packet->length;
    if (packet->from.family != 4 ||
        (type != PS_TYPE_DATA && type != PS_TYPE_PAD && type != PS_TYPE_SETUP)) {
        return NULL; /* nothing for a receiver */
    }
    ps_sim_packet_t *copy = malloc(size);
    if (copy == NULL) {
        return NULL;
    }
    memcpy(copy, packet, size);
    copy->references = 1;
    copy->from.ip[0] = 10;
    copy->from.ip[1] = STRANGER_NET;
    copy->from.ip[2] = 0;
    copy->from.ip[3] = (uint8_t)(1 + ps_random_below(&simnet->random, STRANGERS));
    copy->from.port = STRANGER_PORT;
    const bool half = ps_random_below(&simnet->random, 2) == 0;
    if (type == PS_TYPE_SETUP) {
        copy->length = half ? PS_SETUP_BYTES : copy->length;
    } else if (copy->length == PS_HEARTBEAT_BYTES) {
        copy->data[5] |= (uint8_t)(half ? PS_FLAG_EOS : PS_FLAG_EOS | PS_FLAG_REVOKED);
    } else {
        copy->data[PS_HEADER_BYTES] ^= PS_SIM_FORGED_BITS;
    }
    return copy;
}
