/* SPDX-License-Identifier: Apache-2.0
 * ps_sim_stamp.h: checks channels with timestamps. In a delivered message, the bytes at the offset
 * that the channel names must be the time at which one of its datagrams was sent, arrived or was
 * read. No other byte of the message may change. */
#ifndef PS_SIM_STAMP_H
#define PS_SIM_STAMP_H

#include "ps_sim_probe.h"

/* Records a sent datagram of a stream whose messages contain the time of sending. */
void ps_sim_stamp_sent(ps_probe_t *probe, int32_t host, const ps_sim_packet_t *packet,
                       enum ps_sim_kind kind, int64_t now_ns);
/* Records that a socket did not accept a datagram. If a spy reads a message of this datagram, the
 * message may contain the time of this failed attempt to send it. */
void ps_sim_stamp_refused(ps_probe_t *probe, int32_t host, const uint8_t *bytes, uint32_t length,
                          int64_t now_ns);
/* Records that the sender moved its position from `from` to `to` without sending the data between.
 * The sender does so while only spies read the stream. */
void ps_sim_stamp_passed(ps_probe_t *probe, const ps_probe_pub_t *model, int64_t from, int64_t to);
/* Records that a driver is about to read a datagram. The datagram arrived at rx_ns. */
void ps_sim_stamp_read(ps_probe_t *probe, int32_t host, const ps_sim_packet_t *packet,
                       int64_t rx_ns, int64_t now_ns);
/* Changes `published`, the content of a published message, to the content that the host must
 * deliver. For this purpose, the function checks the timestamps in the delivered `message` and
 * copies these timestamps into `published`. `estranged`: a stranger may have changed the message
 * after it was sent; `published` then gets the timestamp that was sent. Returns NULL, or the text
 * of an error. */
const char *ps_sim_stamp_expected(const ps_probe_t *probe, int32_t host,
                                  const ps_message_t *message, bool estranged, uint8_t *published);
void ps_sim_stamps_free(ps_probe_t *probe);

#endif
