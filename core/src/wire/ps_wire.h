/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_wire.h: decodes, checks and builds frames (docs/spec/wire-format.md), and penstock's trailers
 * and EXT frames (docs/wire-extensions.md).
 *
 * All integers on the wire are little-endian. No function trusts its input: a datagram of any bytes
 * and any length is safe. The structures hold decoded values in host order. Unless stated, they
 * hold no pointer into the datagram. */
#ifndef PS_WIRE_H
#define PS_WIRE_H

#include <stdint.h>

#include "ps_frame.h"
#include "ps_types.h"

enum {
    PS_SM_SETUP = 0x80,
    PS_SM_EOS = 0x40,
    PS_SETUP_RESPONSE = 0x80,
    PS_SETUP_GROUP = 0x40,
    PS_RTTM_REPLY = 0x80,
    PS_ERR_HAS_TAG = 0x08,
    PS_ERR_IMAGE_REJECTED = 13 /* code of an ERR frame */
};
enum {
    PS_NAK_BYTES = 28,
    PS_SM_BYTES = 36,
    PS_SM_TAG_BYTES = 44,
    PS_ERR_BYTES = 40,
    PS_SETUP_BYTES = 40,
    PS_RTTM_BYTES = 40,
    PS_RSP_SETUP_BYTES = 20,
    PS_HEARTBEAT_BYTES = 32,
    PS_ERR_TEXT_MAX = 1023,
    PS_TTL_MAX = 255,
    PS_CONTROL_MAX = 512,
    /* longest name of a client or host in a trailer, in bytes of UTF-8 */
    PS_NAME_MAX = 32
};

/* Reasons for which a datagram is dropped; the metrics have a counter for each. */
enum ps_wire_fault {
    PS_WIRE_OK = 0,
    PS_WIRE_SHORT,
    PS_WIRE_NEGATIVE,
    PS_WIRE_BAD_VERSION,
    PS_WIRE_UNALIGNED,
    PS_WIRE_TRUNCATED,
    PS_WIRE_UNKNOWN_TYPE,
    PS_WIRE_BAD_FIELD,
    PS_WIRE_BAD_CHAIN,
    PS_WIRE_FAULTS
};

/* Capabilities (bits), as stated in trailers. */
enum {
    PS_CAP_PENSTOCK = 1,
    PS_CAP_ORDINALS = 2,
    /* SETUP: the sender requests PRESSURE frames (fc=nak); SM: the receiver sends PRESSURE frames
     * on request */
    PS_CAP_PRESSURE = 4,
    /* SETUP: the sender accepts NAK_LIST frames (ps_wire_nak_list.h) */
    PS_CAP_NAK_LIST = 8,
    /* SM: under NAK-strength control the receiver keeps up to a term of data beyond the consumed
     * position. */
    PS_CAP_KEEPS_TERM = 16,
    /* SETUP: the sender obeys credits and answers with CREDIT frames; SM: the receiver grants
     * credits if its applications request this */
    PS_CAP_CREDITS = 32
};

/* Flags of TLV WITHHOLD. */
enum {
    PS_CREDIT_FLAG_FROZEN = 1, /* no message may be admitted */
    PS_CREDIT_FLAG_ANSWER = 2  /* the receiver waits for a CREDIT frame of this epoch */
};

/* Flow control, as stated in trailers: the values of ps_flow_control. */
enum { PS_WIRE_FC_UNKNOWN = -1, PS_WIRE_FC_TAGGED = 3, PS_WIRE_FC_COUNT = 6 };

/* Policies, as stated in trailers: the values of ps_policy. */
enum { PS_WIRE_POLICY_NONE = 0, PS_WIRE_POLICY_COUNT = 6 };

/* TLVs of our trailers.  Unknown types are skipped. */
typedef struct ps_trailer {
    uint32_t capabilities; /* 0: no (valid) trailer: a plain Aeron peer */
    uint64_t daemon_id;
    uint64_t daemon_epoch;
    int64_t ordinal;          /* SETUP: messages before the stated position; -1 absent */
    int32_t flow_control;     /* SETUP: the sender's flow control; PS_WIRE_FC_UNKNOWN: absent */
    int64_t group_tag;        /* SETUP: tag of the receivers that the sender follows, if TAGGED */
    int32_t policy;           /* SETUP: ps_policy that receivers apply; 0: absent */
    int64_t depth_bytes;      /* SETUP: bytes that a reader may be behind under the policy; 0: the
                               * receiver's choice */
    int64_t credit_limit;     /* SM; -1 absent */
    int64_t released_ordinal; /* SM; -1 absent */
    uint32_t credit_epoch;    /* SM: valid if credit_messages > 0 */
    uint32_t credit_messages; /* SM: N, largest number of outstanding messages; 0: absent */
    uint32_t credit_flags;    /* SM: PS_CREDIT_FLAG_... */
    uint32_t fill_ppm;        /* SM */
    uint32_t reason;          /* SM: ps_cause that limits the receiver, 0 none */
    int64_t reason_client;    /* SM: limiting client id */
    int64_t reason_backlog_bytes;
    /* SM: name of the limiting client, and its host; empty when not stated.  Untrusted text without
     * control characters. */
    char client_name[PS_NAME_MAX + 1];
    char host[PS_NAME_MAX + 1];
    int64_t congestion_window; /* SM: congestion window, the bytes that may be in flight; 0: no such
                                * bound */
    int64_t pacing_rate;       /* SM: pacing rate in bytes a second, 0: none stated */
    int64_t rtt_ns;            /* SM: smoothed, 0 unknown */
    ps_relay_path_t relay_path; /* SETUP: relays that the stream has passed, the first one first */
} ps_trailer_t;

typedef struct ps_setup {
    int32_t term_offset, session_id, stream_id, initial_term_id, active_term_id, term_length, mtu,
        ttl;
    uint8_t flags;
    ps_trailer_t trailer;
} ps_setup_t;
typedef struct ps_sm {
    int32_t session_id, stream_id, term_id, term_offset, window;
    int64_t receiver_id, group_tag;
    uint8_t flags, has_group_tag;
    ps_trailer_t trailer;
} ps_sm_t;
typedef struct ps_nak {
    int32_t session_id, stream_id, term_id, term_offset, length;
} ps_nak_t;
typedef struct ps_rttm {
    int32_t session_id, stream_id;
    int64_t echo_ns, reception_delta_ns, receiver_id;
    uint8_t flags;
} ps_rttm_t;
typedef struct ps_err {
    int32_t session_id, stream_id;
    int64_t receiver_id, group_tag;
    int32_t code, text_length;
    uint8_t has_group_tag;
    const uint8_t *text; /* points into the datagram */
} ps_err_t;
typedef struct ps_rsp_setup {
    int32_t session_id, stream_id, response_session_id;
} ps_rsp_setup_t;
/* First frame of a DATA/PAD datagram. */
typedef struct ps_data {
    int32_t term_offset, session_id, stream_id, term_id;
    uint8_t flags;
    uint8_t is_heartbeat;
    uint16_t type;
} ps_data_t;

/* First check of every datagram (docs/spec/wire-format.md section 4, items 1 and 2). *type gets the
 * frame type. Returns ps_wire_fault. EXT frames with penstock's magic pass; for other EXT frames
 * the function returns PS_WIRE_UNKNOWN_TYPE. */
int ps_wire_check(const uint8_t *data, uint32_t length, uint16_t *type);

/* Call a decoder only after ps_wire_check has returned PS_WIRE_OK and the decoder's frame type.
 * Returns ps_wire_fault after the checks of docs/spec/wire-format.md section 4, item 3, that need
 * no stream state. */
int ps_wire_setup(const uint8_t *data, uint32_t length, ps_setup_t *out);
int ps_wire_sm(const uint8_t *data, uint32_t length, ps_sm_t *out);
int ps_wire_nak(const uint8_t *data, uint32_t length, ps_nak_t *out);
int ps_wire_rttm(const uint8_t *data, uint32_t length, ps_rttm_t *out);
int ps_wire_err(const uint8_t *data, uint32_t length, ps_err_t *out);
int ps_wire_rsp_setup(const uint8_t *data, uint32_t length, ps_rsp_setup_t *out);
int ps_wire_data(const uint8_t *data, uint32_t length, ps_data_t *out);
/* Walks the chain of a DATA/PAD datagram (not a heartbeat) against term_length. *span: the bytes of
 * stream that the chain covers, with the whole length of a final PAD. *messages: the number of DATA
 * frames with the END flag. Returns PS_WIRE_BAD_CHAIN or BAD_FIELD if a rule of item 3 is violated.
 * Bound: length / 32 frames. */
int ps_wire_chain(const uint8_t *data, uint32_t length, int32_t term_length, int32_t *span,
                  int32_t *messages);

/* data holds datagrams of `segment` bytes back to back; the last may be shorter. Returns the length
 * of the leading datagrams that contain whole DATA frames, contiguous in one term of one session;
 * they cover the same number of bytes of the stream. *messages: as above, for these datagrams.
 * Returns 0 if the first datagram is different, for example valid padding; then call ps_wire_chain.
 * Bound: length / 32 frames. */
uint32_t ps_wire_run(const uint8_t *data, uint32_t length, uint32_t segment, int32_t term_length,
                     int32_t *messages);
/* Like ps_wire_run, but the first 8 bytes are in first_word. */
uint32_t ps_wire_run_from(uint64_t first_word, const uint8_t *data, uint32_t length,
                          uint32_t segment, int32_t term_length, int32_t *messages);

/* Copies a text into a field of PS_NAME_MAX + 1 bytes. A longer text is cut between UTF-8
 * characters. `from` needs no NUL: at most PS_NAME_MAX bytes are read. */
void ps_name_copy(char *out, const char *from);
/* Builders write a frame into out (PS_CONTROL_MAX bytes) and return the length of the datagram.
 * trailer NULL: no trailer. */
uint32_t ps_wire_build_setup(uint8_t *out, const ps_setup_t *setup, const ps_trailer_t *trailer);
uint32_t ps_wire_build_sm(uint8_t *out, const ps_sm_t *sm, const ps_trailer_t *trailer);
uint32_t ps_wire_build_nak(uint8_t *out, const ps_nak_t *nak);
uint32_t ps_wire_build_rttm(uint8_t *out, const ps_rttm_t *rttm);
/* Text is cut to PS_CONTROL_MAX - 40. */
uint32_t ps_wire_build_err(uint8_t *out, const ps_err_t *err);
uint32_t ps_wire_build_heartbeat(uint8_t *out, int32_t session_id, int32_t stream_id,
                                 int32_t term_id, int32_t term_offset, uint8_t flags);

#endif
