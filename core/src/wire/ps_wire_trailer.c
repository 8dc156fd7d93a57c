/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_wire_trailer.c: trailers after SETUP and SM frames (docs/wire-extensions.md).
 *
 *   0      4    5    6        8
 *   | PSTK | v  | 0  | length | TLV TLV ...          length counts the header
 *   TLV: u16 type, u16 length of value, value
 *
 * A trailer states facts and requests nothing, so repeats and losses do no harm. Invalid bytes mean
 * "a plain Aeron peer" and never an error of the frame before. */
#include "ps_assert.h"

#include "ps_cause.h"
#include "ps_wire_fields.h"

enum { RELAY_ID_BYTES = 8 };
enum { NAMES_HEADER = 2 }; /* u8 length of the client's name, u8 length of the host's */

void ps_trailer_clear(ps_trailer_t *out)
{
    memset(out, 0, sizeof *out);
    out->ordinal = -1;
    out->flow_control = PS_WIRE_FC_UNKNOWN;
    out->credit_limit = -1;
    out->released_ordinal = -1;
}

/* Ordinals below zero have no meaning but "unknown". */
static int64_t ordinal_of(const uint8_t *value)
{
    const int64_t ordinal = ps_get_i64(value);
    return ordinal < 0 ? -1 : ordinal;
}

/* Replaces control characters, so that a terminal can show the text safely. */
static char printable(uint8_t byte)
{
    return byte < 0x20 || byte == 0x7f ? '?' : (char)byte;
}

void ps_name_copy(char *out, const char *from)
{
    size_t length = strnlen(from, PS_NAME_MAX);
    if (length == PS_NAME_MAX) { /* perhaps cut: back to where a character begins */
        size_t start = length - 1;
        while (start > 0 && ((uint8_t)from[start] & 0xc0) == 0x80) {
            start--;
        }
        const uint8_t first = (uint8_t)from[start];
        const size_t whole = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
        length = start + whole <= length ? length : start;
    }
    memcpy(out, from, length);
    out[length] = '\0';
}

static int64_t positive(int64_t value)
{
    return value > 0 ? value : 0;
}

/* Bytes a known TLV needs, 0 for an unknown one. */
static uint32_t needed(uint16_t type)
{
    switch (type) {
    case PS_TLV_CAPABILITIES:
    case PS_TLV_CREDIT_WEIGHT:
    case PS_TLV_PRIORITY:
    case PS_TLV_FILL: return 4;
    case PS_TLV_DAEMON: return 16;
    case PS_TLV_ORDINAL:
    case PS_TLV_CREDIT_LIMIT:
    case PS_TLV_RELEASED_ORDINAL:
    case PS_TLV_RELAY_PATH: /* one id or more */
    case PS_TLV_CREDIT_EPOCH: return 8;
    case PS_TLV_WITHHOLD: return 4;
    case PS_TLV_CLIENT_NAME: return NAMES_HEADER;
    case PS_TLV_STRATEGY: return 12;
    case PS_TLV_RETENTION:
    case PS_TLV_POLICY: return 16;
    case PS_TLV_REASON: return 20;
    case PS_TLV_CONGESTION: return 24;
    default: return 0;
    }
}

/* Reads the names. If a length exceeds the value or the limit of a name, the names count as
 * absent. */
static void take_names(const uint8_t *value, uint32_t size, ps_trailer_t *out)
{
    const uint32_t client = value[0];
    const uint32_t host = value[1];

    if (client > PS_NAME_MAX || host > PS_NAME_MAX || NAMES_HEADER + client + host > size) {
        return;
    }
    for (uint32_t i = 0; i < client; i++) {
        out->client_name[i] = printable(value[NAMES_HEADER + i]);
    }
    for (uint32_t i = 0; i < host; i++) {
        out->host[i] = printable(value[NAMES_HEADER + client + i]);
    }
    out->client_name[client] = '\0';
    out->host[host] = '\0';
}

static void take_strategy(const uint8_t *value, ps_trailer_t *out)
{
    const uint32_t flow_control = ps_get_u32(value);

    /* One of a later version: none that we know. */
    out->flow_control =
        flow_control < PS_WIRE_FC_COUNT ? (int32_t)flow_control : PS_WIRE_FC_UNKNOWN;
    out->group_tag = out->flow_control == PS_WIRE_FC_TAGGED ? ps_get_i64(value + 4) : 0;
}

/* A policy of a later version counts as none, and so do its depths. */
static void take_policy(const uint8_t *value, ps_trailer_t *out)
{
    const uint32_t policy = ps_get_u32(value);

    out->policy = policy < PS_WIRE_POLICY_COUNT ? (int32_t)policy : PS_WIRE_POLICY_NONE;
    out->depth_bytes = out->policy == PS_WIRE_POLICY_NONE ? 0 : positive(ps_get_i64(value + 4));
    out->depth_messages = out->policy == PS_WIRE_POLICY_NONE ? 0 : ps_get_u32(value + 12);
}

/* A longer path than a relay may state is cut. Bound: PS_RELAYS_MAX. */
static void take_relay_path(const uint8_t *value, uint32_t size, ps_trailer_t *out)
{
    const uint32_t stated = size / RELAY_ID_BYTES;

    memset(&out->relay_path, 0, sizeof out->relay_path); /* a second one replaces the first */
    out->relay_path.count = stated < PS_RELAYS_MAX ? (int32_t)stated : PS_RELAYS_MAX;
    for (int32_t i = 0; i < out->relay_path.count; i++) {
        out->relay_path.ids[i] = ps_get_u64(value + i * RELAY_ID_BYTES);
    }
}

static uint32_t at_most(uint32_t value, uint32_t most)
{
    return value < most ? value : most;
}

static int32_t within(int32_t value, int32_t least, int32_t most)
{
    const int32_t raised = value > least ? value : least;
    return raised < most ? raised : most;
}

static void take(uint16_t type, const uint8_t *value, uint32_t size, ps_trailer_t *out)
{
    switch (type) {
    case PS_TLV_CAPABILITIES: out->capabilities = ps_get_u32(value); break;
    case PS_TLV_DAEMON:
        out->daemon_id = (uint64_t)ps_get_i64(value);
        out->daemon_epoch = (uint64_t)ps_get_i64(value + 8);
        break;
    case PS_TLV_ORDINAL: out->ordinal = ordinal_of(value); break;
    case PS_TLV_STRATEGY: take_strategy(value, out); break;
    case PS_TLV_POLICY: take_policy(value, out); break;
    case PS_TLV_RETENTION:
        out->retention_bytes = positive(ps_get_i64(value));
        out->retention_ns = positive(ps_get_i64(value + 8));
        break;
    case PS_TLV_CREDIT_LIMIT: out->credit_limit = ordinal_of(value); break;
    case PS_TLV_RELEASED_ORDINAL: out->released_ordinal = ordinal_of(value); break;
    case PS_TLV_CREDIT_EPOCH:
        out->credit_epoch = ps_get_u32(value);
        out->credit_messages = ps_get_u32(value + 4);
        break;
    case PS_TLV_WITHHOLD: out->credit_flags = ps_get_u32(value); break;
    case PS_TLV_FILL: out->fill_ppm = at_most(ps_get_u32(value), 1000000); break;
    case PS_TLV_CREDIT_WEIGHT:
        out->credit_weight = at_most(ps_get_u32(value), PS_CREDIT_WEIGHT_MAX);
        break;
    case PS_TLV_PRIORITY:
        out->priority = within((int32_t)ps_get_u32(value), PS_PRIORITY_MIN, PS_PRIORITY_MAX);
        break;
    case PS_TLV_REASON:
        out->reason = ps_get_u32(value);
        out->reason_client = ps_get_i64(value + 4);
        out->reason_backlog_bytes = ps_get_i64(value + 12);
        if (out->reason >= PS_CAUSE_COUNT) { /* a cause of a later version: no cause we know */
            out->reason = PS_CAUSE_NONE;
        }
        if (out->reason_backlog_bytes < 0) {
            out->reason_backlog_bytes = 0;
        }
        break;
    case PS_TLV_CLIENT_NAME: take_names(value, size, out); break;
    case PS_TLV_RELAY_PATH: take_relay_path(value, size, out); break;
    case PS_TLV_CONGESTION:
        out->congestion_window = positive(ps_get_i64(value));
        out->pacing_rate = positive(ps_get_i64(value + 8));
        out->rtt_ns = positive(ps_get_i64(value + 16));
        break;
    default: break; /* of a later version */
    }
}

/* Reads the TLVs into out; false: they do not fit. Bound: the length. */
static bool take_all(const uint8_t *data, uint32_t end, ps_trailer_t *out)
{
    for (uint32_t at = PS_TRAILER_HEADER_BYTES; at < end;) {
        if (end - at < PS_TLV_HEADER_BYTES) {
            return false;
        }
        const uint16_t type = ps_get_u16(data + at);
        const uint32_t size = ps_get_u16(data + at + 2);
        at += PS_TLV_HEADER_BYTES;
        if (size > end - at || size < needed(type)) {
            return false;
        }
        take(type, data + at, size, out);
        at += size;
    }
    return true;
}

void ps_trailer_read(const uint8_t *data, uint32_t length, ps_trailer_t *out)
{
    PS_ASSERT(out != NULL);
    ps_trailer_clear(out);
    if (length < PS_TRAILER_HEADER_BYTES || ps_get_u32(data) != PS_TRAILER_MAGIC ||
        data[4] != PS_TRAILER_VERSION) {
        return;
    }
    const uint32_t end = ps_get_u16(data + 6);
    if (end < PS_TRAILER_HEADER_BYTES || end > length) {
        return;
    }
    if (!take_all(data, end, out) || (out->capabilities & PS_CAP_PENSTOCK) == 0) {
        ps_trailer_clear(out); /* nothing of it counts */
    }
}

/* ---- writing --------------------------------------------------------------------------------- */

typedef struct cursor {
    uint8_t *base;
    uint32_t used;
} cursor_t;

static uint8_t *tlv(cursor_t *cursor, uint16_t type, uint16_t size)
{
    PS_ASSERT(cursor->used + PS_TLV_HEADER_BYTES + size <= PS_TRAILER_MAX);
    uint8_t *at = cursor->base + cursor->used;
    ps_put_u16(at, type);
    ps_put_u16(at + 2, size);
    cursor->used += PS_TLV_HEADER_BYTES + (uint32_t)size;
    return at + PS_TLV_HEADER_BYTES;
}

static void tlv_u32(cursor_t *cursor, uint16_t type, uint32_t value)
{
    ps_put_u32(tlv(cursor, type, 4), value);
}

static void tlv_ordinal(cursor_t *cursor, uint16_t type, int64_t value)
{
    if (value >= 0) {
        ps_put_i64(tlv(cursor, type, 8), value);
    }
}

static void begin(cursor_t *cursor, uint8_t *out, const ps_trailer_t *trailer)
{
    cursor->base = out;
    cursor->used = PS_TRAILER_HEADER_BYTES;
    ps_put_u32(out, PS_TRAILER_MAGIC);
    out[4] = PS_TRAILER_VERSION;
    out[5] = 0;
    tlv_u32(cursor, PS_TLV_CAPABILITIES, trailer->capabilities);
    uint8_t *daemon = tlv(cursor, PS_TLV_DAEMON, 16);
    ps_put_i64(daemon, (int64_t)trailer->daemon_id);
    ps_put_i64(daemon + 8, (int64_t)trailer->daemon_epoch);
}

static uint32_t end(cursor_t *cursor)
{
    ps_put_u16(cursor->base + 6, (uint16_t)cursor->used);
    return cursor->used;
}

static void tlv_relay_path(cursor_t *cursor, const ps_relay_path_t *path)
{
    PS_ASSERT(path->count > 0 && path->count <= PS_RELAYS_MAX);
    uint8_t *ids = tlv(cursor, PS_TLV_RELAY_PATH, (uint16_t)(path->count * RELAY_ID_BYTES));
    for (int32_t i = 0; i < path->count; i++) {
        ps_put_i64(ids + i * RELAY_ID_BYTES, (int64_t)path->ids[i]);
    }
}

uint32_t ps_trailer_write_setup(uint8_t *out, const ps_trailer_t *trailer)
{
    if (trailer == NULL || (trailer->capabilities & PS_CAP_PENSTOCK) == 0) {
        return 0;
    }
    cursor_t cursor;
    begin(&cursor, out, trailer);
    tlv_ordinal(&cursor, PS_TLV_ORDINAL, trailer->ordinal);
    if (trailer->flow_control != PS_WIRE_FC_UNKNOWN) {
        uint8_t *strategy = tlv(&cursor, PS_TLV_STRATEGY, 12);
        ps_put_u32(strategy, (uint32_t)trailer->flow_control);
        ps_put_i64(strategy + 4,
                   trailer->flow_control == PS_WIRE_FC_TAGGED ? trailer->group_tag : 0);
    }
    if (trailer->policy != PS_WIRE_POLICY_NONE) {
        uint8_t *policy = tlv(&cursor, PS_TLV_POLICY, 16);
        ps_put_u32(policy, (uint32_t)trailer->policy);
        ps_put_i64(policy + 4, trailer->depth_bytes);
        ps_put_u32(policy + 12, trailer->depth_messages);
    }
    if (trailer->retention_bytes > 0 || trailer->retention_ns > 0) {
        uint8_t *retention = tlv(&cursor, PS_TLV_RETENTION, 16);
        ps_put_i64(retention, trailer->retention_bytes);
        ps_put_i64(retention + 8, trailer->retention_ns);
    }
    if (trailer->relay_path.count > 0) {
        tlv_relay_path(&cursor, &trailer->relay_path);
    }
    if (trailer->credit_weight > 0) {
        tlv_u32(&cursor, PS_TLV_CREDIT_WEIGHT, trailer->credit_weight);
    }
    if (trailer->priority != 0) {
        tlv_u32(&cursor, PS_TLV_PRIORITY, (uint32_t)trailer->priority);
    }
    return end(&cursor);
}

static uint32_t text_length(const char *text)
{
    return (uint32_t)strnlen(text, PS_NAME_MAX);
}

static void tlv_names(cursor_t *cursor, const ps_trailer_t *trailer)
{
    const uint32_t client = text_length(trailer->client_name);
    const uint32_t host = text_length(trailer->host);
    uint8_t *names = tlv(cursor, PS_TLV_CLIENT_NAME, (uint16_t)(NAMES_HEADER + client + host));
    names[0] = (uint8_t)client;
    names[1] = (uint8_t)host;
    memcpy(names + NAMES_HEADER, trailer->client_name, client);
    memcpy(names + NAMES_HEADER + client, trailer->host, host);
}

uint32_t ps_trailer_write_sm(uint8_t *out, const ps_trailer_t *trailer)
{
    if (trailer == NULL || (trailer->capabilities & PS_CAP_PENSTOCK) == 0) {
        return 0;
    }
    cursor_t cursor;
    begin(&cursor, out, trailer);
    tlv_ordinal(&cursor, PS_TLV_CREDIT_LIMIT, trailer->credit_limit);
    tlv_ordinal(&cursor, PS_TLV_RELEASED_ORDINAL, trailer->released_ordinal);
    if (trailer->credit_messages > 0) {
        uint8_t *credit = tlv(&cursor, PS_TLV_CREDIT_EPOCH, 8);
        ps_put_u32(credit, trailer->credit_epoch);
        ps_put_u32(credit + 4, trailer->credit_messages);
        if (trailer->credit_flags != 0) {
            tlv_u32(&cursor, PS_TLV_WITHHOLD, trailer->credit_flags);
        }
    }
    tlv_u32(&cursor, PS_TLV_FILL, trailer->fill_ppm);
    if (trailer->reason != PS_CAUSE_NONE) {
        uint8_t *reason = tlv(&cursor, PS_TLV_REASON, 20);
        ps_put_u32(reason, trailer->reason);
        ps_put_i64(reason + 4, trailer->reason_client);
        ps_put_i64(reason + 12, trailer->reason_backlog_bytes);
        if (trailer->client_name[0] != '\0') {
            tlv_names(&cursor, trailer);
        }
    }
    if (trailer->congestion_window > 0) {
        uint8_t *congestion = tlv(&cursor, PS_TLV_CONGESTION, 24);
        ps_put_i64(congestion, trailer->congestion_window);
        ps_put_i64(congestion + 8, trailer->pacing_rate);
        ps_put_i64(congestion + 16, trailer->rtt_ns);
    }
    return end(&cursor);
}
