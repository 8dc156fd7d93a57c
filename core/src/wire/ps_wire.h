/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_wire.h: decodes, checks and builds frames (docs/spec/wire-format.md), and penstock's trailers
 * and EXT frames (docs/wire-extensions.md).
 *
 * All integers on the wire are little-endian. No function trusts its input: a datagram of any bytes
 * and any length is safe. The structures hold decoded values in host order. Unless a comment states
 * otherwise, the structures of this header contain no pointer into the datagram. */
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
    /* Largest length of the name of a client or host in a trailer, in bytes of UTF-8. */
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

/* Capabilities that a peer states in its trailers, as bits. */
enum {
    PS_CAP_PENSTOCK = 1,
    PS_CAP_ORDINALS = 2,
    /* In a SETUP: the sender (with fc=nak) requests PRESSURE frames. In a status message: the
     * receiver sends PRESSURE frames if a sender requests them. */
    PS_CAP_PRESSURE = 4,
    /* In a SETUP: the sender accepts NAK_LIST frames (ps_wire_nak_list.h). */
    PS_CAP_NAK_LIST = 8,
    /* In a status message: under fc=nak, the receiver accepts up to one term of data beyond the
     * position that its readers have consumed. */
    PS_CAP_KEEPS_TERM = 16,
    /* In a SETUP: the sender sends only messages for which receivers granted credits, and answers
     * with CREDIT frames. In a status message: the receiver supports credits, and grants them if
     * one of its subscriptions has credits. */
    PS_CAP_CREDITS = 32
};

/* Flags of TLV WITHHOLD. */
enum {
    PS_CREDIT_FLAG_FROZEN = 1, /* no message may be admitted */
    PS_CREDIT_FLAG_ANSWER = 2  /* The receiver waits for a CREDIT frame in which the sender
                                * acknowledges the present credit epoch. */
};

/* Flow control of a sender, as its trailers state; the values are those of ps_flow_control. */
enum { PS_WIRE_FC_UNKNOWN = -1, PS_WIRE_FC_TAGGED = 3, PS_WIRE_FC_COUNT = 6 };

/* Policies, as stated in trailers: the values of ps_policy. */
enum { PS_WIRE_POLICY_NONE = 0, PS_WIRE_POLICY_COUNT = 6 };

/* The values of a penstock trailer. A decoder skips TLVs of unknown types. */
typedef struct ps_trailer {
    uint32_t capabilities; /* 0: the frame has no valid trailer, so the peer is Aeron */
    uint64_t daemon_id;
    uint64_t daemon_epoch;
    int64_t ordinal;         /* In a SETUP: number of messages before the position that the SETUP
                               * states; -1: absent */
    int32_t flow_control;    /* In a SETUP: flow control of the sender; PS_WIRE_FC_UNKNOWN:
                               * absent */
    int64_t group_tag;       /* In a SETUP with fc=tagged: tag of the receivers for which the
                               * sender waits */
    int32_t policy;          /* In a SETUP: policy (ps_policy) that the receivers apply to their
                               * readers; 0: absent */
    int64_t depth_bytes;     /* In a SETUP: number of bytes by which a reader may be behind the
                              * newest data under this policy; 0: the receiver chooses this
                              * number */
    uint32_t depth_messages; /* In a SETUP: the same as depth_bytes, as a number of messages; 0: no
                              * limit in messages */
    int64_t retention_bytes; /* In a SETUP: largest distance behind the newest data at which readers
                               * still get data; 0: no limit */
    int64_t retention_ns;    /* In a SETUP: largest age of data that readers still get; 0: no
                               * limit */
    int64_t credit_limit;    /* SM; -1 absent */
    int64_t released_ordinal; /* SM; -1 absent */
    uint32_t credit_epoch;    /* In a status message: epoch of the credits; valid if credit_messages
                               * > 0 */
    uint32_t credit_messages; /* In a status message: largest number of outstanding messages; 0: not
                               * stated. A message is outstanding from its sending until the return
                               * of its credit. */
    uint32_t credit_flags;    /* SM: PS_CREDIT_FLAG_... */
    uint32_t fill_ppm;        /* SM */
    uint32_t reason;          /* In a status message: the cause (ps_cause) that limits the receiver;
                               * 0: none. */
    int64_t reason_client;    /* SM: limiting client id */
    int64_t reason_backlog_bytes;
    /* In a status message: name of the client that limits the receiver, and name of this client's
     * host; empty if not stated. Untrusted text without control characters. */
    char client_name[PS_NAME_MAX + 1];
    char host[PS_NAME_MAX + 1];
    int64_t congestion_window;  /* In a status message: congestion window, the number of bytes that
                                 * may be in flight; 0: the receiver does not limit this number. */
    int64_t pacing_rate;        /* In a status message: pacing rate for the sender in bytes a
                                 * second; 0: not stated. */
    int64_t rtt_ns;             /* SM: smoothed, 0 unknown */
    ps_relay_path_t relay_path; /* In a SETUP: relays that the stream has passed, in this order. */
    uint32_t credit_weight;     /* In a SETUP: weight of the publication when several publications
                                 * share a pool of credits, at most PS_CREDIT_WEIGHT_MAX; 0: not
                                 * stated. */
    int32_t priority;           /* In a SETUP: priority of the publication, PS_PRIORITY_MIN to
                                 * PS_PRIORITY_MAX. A SETUP that states no priority counts as
                                 * priority 0. */
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
/* Header of the first frame in a datagram with DATA or PAD frames. */
typedef struct ps_data {
    int32_t term_offset, session_id, stream_id, term_id;
    uint8_t flags;
    uint8_t is_heartbeat;
    uint16_t type;
} ps_data_t;

/* Makes the first checks of a datagram (docs/spec/wire-format.md section 4, items 1 and 2). *type
 * gets the type of the first frame in the datagram. Returns ps_wire_fault. Accepts EXT frames with
 * penstock's magic number; for other EXT frames returns PS_WIRE_UNKNOWN_TYPE. */
int ps_wire_check(const uint8_t *data, uint32_t length, uint16_t *type);

/* Decoders. Call a decoder only after ps_wire_check has returned PS_WIRE_OK and the decoder's frame
 * type. A decoder makes those checks of docs/spec/wire-format.md section 4, item 3, that do not
 * need the state of the stream. It returns a ps_wire_fault. */
int ps_wire_setup(const uint8_t *data, uint32_t length, ps_setup_t *out);
int ps_wire_sm(const uint8_t *data, uint32_t length, ps_sm_t *out);
int ps_wire_nak(const uint8_t *data, uint32_t length, ps_nak_t *out);
int ps_wire_rttm(const uint8_t *data, uint32_t length, ps_rttm_t *out);
int ps_wire_err(const uint8_t *data, uint32_t length, ps_err_t *out);
int ps_wire_rsp_setup(const uint8_t *data, uint32_t length, ps_rsp_setup_t *out);
int ps_wire_data(const uint8_t *data, uint32_t length, ps_data_t *out);
/* Checks all frames of a datagram of DATA or PAD frames. The datagram must not be a heartbeat, and
 * its frames must fit into the term. *span gets the number of stream bytes that the frames cover.
 * For a PAD frame at the end, the whole length in its header counts. *messages gets the number of
 * messages that end in the datagram, plus the number of dropped messages that its PAD frames
 * replace. Returns PS_WIRE_BAD_CHAIN or PS_WIRE_BAD_FIELD if the datagram violates a rule of
 * docs/spec/wire-format.md section 4, item 3. Cost: visits at most length / 32 frames. */
int ps_wire_chain(const uint8_t *data, uint32_t length, int32_t term_length, int32_t *span,
                  int32_t *messages);

/* Checks joined datagrams: `data` has datagrams of `segment` bytes back to back; the last may be
 * shorter. A datagram is regular if it contains only whole DATA frames, and continues the previous
 * datagram in the same session and term. Returns the total length of the regular datagrams at the
 * beginning of `data`. The number of stream bytes in these datagrams is equal to this length.
 * *messages gets the number of DATA frames with the END flag in the regular datagrams. If the first
 * datagram is not regular (for example valid padding), returns 0, and the caller must call
 * ps_wire_chain. Cost: visits at most length / 32 frames. */
uint32_t ps_wire_run(const uint8_t *data, uint32_t length, uint32_t segment, int32_t term_length,
                     int32_t *messages);
/* Checks joined datagrams like ps_wire_run. The first 8 bytes of the first datagram are in
 * first_word, not in `data`. */
uint32_t ps_wire_run_from(uint64_t first_word, const uint8_t *data, uint32_t length,
                          uint32_t segment, int32_t term_length, int32_t *messages);

/* Copies a text into a field of PS_NAME_MAX + 1 bytes. The function cuts a longer text between two
 * UTF-8 characters. The function reads at most PS_NAME_MAX bytes of `from`, so `from` needs no NUL.
 */
void ps_name_copy(char *out, const char *from);
/* Each builder writes a frame into the buffer `out` of PS_CONTROL_MAX bytes, and returns the length
 * of the datagram. If `trailer` is NULL, the frame gets no trailer. */
uint32_t ps_wire_build_setup(uint8_t *out, const ps_setup_t *setup, const ps_trailer_t *trailer);
uint32_t ps_wire_build_sm(uint8_t *out, const ps_sm_t *sm, const ps_trailer_t *trailer);
uint32_t ps_wire_build_nak(uint8_t *out, const ps_nak_t *nak);
uint32_t ps_wire_build_rttm(uint8_t *out, const ps_rttm_t *rttm);
/* Writes an ERR frame; an error text longer than PS_CONTROL_MAX - 40 bytes is cut. */
uint32_t ps_wire_build_err(uint8_t *out, const ps_err_t *err);
uint32_t ps_wire_build_heartbeat(uint8_t *out, int32_t session_id, int32_t stream_id,
                                 int32_t term_id, int32_t term_offset, uint8_t flags);

#endif
