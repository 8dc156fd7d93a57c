/* SPDX-License-Identifier: Apache-2.0
 * ps_sim_stamp.h: channels with timestamps.  What a message must have of them when it is delivered:
 * at the place its channel names the time at which a datagram of it was sent, arrived or was read,
 * and nothing else changed.
 */
#ifndef PS_SIM_STAMP_H
#define PS_SIM_STAMP_H

#include "ps_sim_probe.h"

/* A datagram of a stream whose channel writes the time of sending has left. */
void ps_sim_stamp_sent(ps_probe_t *probe, int32_t host, const ps_sim_packet_t *packet,
                       enum ps_sim_kind kind, int64_t now_ns);
/* A socket did not take it: a spy may read it with the time at which it was to leave. */
void ps_sim_stamp_refused(ps_probe_t *probe, int32_t host, const uint8_t *bytes, uint32_t length,
                          int64_t now_ns);
/* Spies led its sender over [from, to). */
void ps_sim_stamp_passed(ps_probe_t *probe, const ps_probe_pub_t *model, int64_t from, int64_t to);
/* A driver is about to take a datagram that arrived at rx_ns. */
void ps_sim_stamp_read(ps_probe_t *probe, int32_t host, const ps_sim_packet_t *packet,
                       int64_t rx_ns, int64_t now_ns);
/* The message as it was published becomes the message as that host must get it: its timestamps are
 * taken over from what was delivered where they are right.  NULL, or what is wrong. */
const char *ps_sim_stamp_expected(ps_simworld_t *world, int32_t host, const ps_message_t *message,
                                  uint8_t *published);
void ps_sim_stamps_free(ps_simnet_t *simnet);

#endif
