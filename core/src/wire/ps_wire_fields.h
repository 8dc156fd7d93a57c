/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_wire_fields.h: loads and stores of unaligned little-endian fields, and the constants of
 * penstock's trailers and EXT frames (docs/wire-extensions.md). Private to ps_wire*.c and their
 * tests. */
#ifndef PS_WIRE_FIELDS_H
#define PS_WIRE_FIELDS_H

#include <stdint.h>
#include <string.h>

#include "ps_wire.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "logs and frames are little-endian");

#define PS_TRAILER_MAGIC UINT32_C(0x4b545350) /* "PSTK" */
#define PS_EXT_MAGIC     UINT32_C(0x58545350) /* "PSTX" */
enum {
    PS_TRAILER_VERSION = 1,
    PS_TRAILER_HEADER_BYTES = 8,
    PS_TLV_HEADER_BYTES = 4,
    PS_TRAILER_MAX = 256,
    PS_EXT_VERSION = 1,
    PS_EXT_HEADER_BYTES = 24
};

enum ps_tlv_type {
    PS_TLV_CAPABILITIES = 1,
    PS_TLV_DAEMON = 2,
    PS_TLV_ORDINAL = 3,
    PS_TLV_CREDIT_LIMIT = 4,
    PS_TLV_RELEASED_ORDINAL = 5,
    PS_TLV_FILL = 6,
    PS_TLV_REASON = 7,
    PS_TLV_POLICY = 8,
    PS_TLV_STRATEGY = 9,
    PS_TLV_WITHHOLD = 12,
    PS_TLV_CREDIT_EPOCH = 14,
    PS_TLV_CONGESTION = 17,
    PS_TLV_CLIENT_NAME = 18,
    PS_TLV_RELAY_PATH = 19,
    PS_TLV_CREDIT_WEIGHT = 20,
    PS_TLV_RETENTION = 21,
    PS_TLV_PRIORITY = 22
};

/* Subtypes of EXT frames. A host sends an EXT frame of a subtype only to a peer whose trailer
 * states the capability for this subtype (PS_CAP_...). */
enum ps_ext_subtype {
    PS_EXT_PRESSURE = 1,
    PS_EXT_CREDIT = 2,
    PS_EXT_HEARTBEAT_BUNDLE = 3,
    PS_EXT_SM_BUNDLE = 4,
    PS_EXT_NAK_LIST = 5
};

static inline uint16_t ps_get_u16(const uint8_t *at)
{
    uint16_t value;
    memcpy(&value, at, sizeof value);
    return value;
}
static inline uint32_t ps_get_u32(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}
static inline int32_t ps_get_i32(const uint8_t *at)
{
    int32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}
static inline int64_t ps_get_i64(const uint8_t *at)
{
    int64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}
static inline uint64_t ps_get_u64(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}
static inline void ps_put_u16(uint8_t *at, uint16_t value)
{
    memcpy(at, &value, sizeof value);
}
static inline void ps_put_u32(uint8_t *at, uint32_t value)
{
    memcpy(at, &value, sizeof value);
}
static inline void ps_put_i32(uint8_t *at, int32_t value)
{
    memcpy(at, &value, sizeof value);
}
static inline void ps_put_i64(uint8_t *at, int64_t value)
{
    memcpy(at, &value, sizeof value);
}

/* Sets *out to the values for a frame without a trailer: capabilities 0, and all other fields
 * unknown. */
void ps_trailer_clear(ps_trailer_t *out);
/* Reads a trailer from the `length` bytes after a frame. If the trailer is malformed or not
 * penstock's, sets *out as ps_trailer_clear does. Cost: reads at most length / 4 TLVs. */
void ps_trailer_read(const uint8_t *data, uint32_t length, ps_trailer_t *out);
/* Write the trailer of a SETUP, or of a status message. Return the number of bytes written, at most
 * PS_TRAILER_MAX; 0 if `trailer` is NULL or states no capabilities. */
uint32_t ps_trailer_write_setup(uint8_t *out, const ps_trailer_t *trailer);
uint32_t ps_trailer_write_sm(uint8_t *out, const ps_trailer_t *trailer);

#endif
