/* SPDX-License-Identifier: Apache-2.0
 * The policy and the weight that a SETUP states (docs/wire-extensions.md). */
#include "check.h"
#include "ps_types.h"
#include "ps_wire_fields.h"

static const ps_trailer_t stated = { .capabilities = PS_CAP_PENSTOCK,
                                     .ordinal = 7,
                                     .flow_control = PS_WIRE_FC_TAGGED,
                                     .group_tag = -77,
                                     .policy = PS_WIRE_POLICY_COUNT - 1,
                                     .depth_bytes = INT64_C(1) << 33,
                                     .depth_messages = 1 << 30,
                                     .relay_path = { .count = 2, .ids = { 4, 5 } },
                                     .credit_weight = 7 };

/* A policy of a later version is none, and a negative depth is no depth. An earlier version wrote 0
 * in place of the depth in messages: no limit. */
static void test_a_policy_comes_back_or_is_none(void)
{
    static const struct {
        uint32_t policy;
        int64_t depth;
        int32_t read;
        int64_t read_depth;
        uint32_t messages, read_messages;
    } rows[] = { { 5, 4096, 5, 4096, 0, 0 },
                 { 5, 4096, 5, 4096, 20, 20 },
                 { 5, 0, 5, 0, UINT32_MAX, UINT32_MAX },
                 { 1, 0, 1, 0, 0, 0 },
                 { PS_WIRE_POLICY_COUNT, 4096, 0, 0, 20, 0 },
                 { UINT32_MAX, 4096, 0, 0, 20, 0 },
                 { 5, -1, 5, 0, 20, 20 },
                 { 0, 4096, 0, 0, 20, 0 } };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint8_t out[PS_TRAILER_MAX];
        ps_trailer_t read;
        const uint32_t length = ps_trailer_write_setup(out, &stated);
        uint32_t at = PS_TRAILER_HEADER_BYTES;
        while (ps_get_u16(out + at) != PS_TLV_POLICY) {
            at += PS_TLV_HEADER_BYTES + ps_get_u16(out + at + 2);
        }
        CHECK_EQ(ps_get_u32(out + at + 16), stated.depth_messages);
        ps_put_u32(out + at + 4, rows[i].policy);
        ps_put_i64(out + at + 8, rows[i].depth);
        ps_put_u32(out + at + 16, rows[i].messages);
        ps_trailer_read(out, length, &read);
        CHECK_EQ(read.policy, rows[i].read);
        CHECK_EQ(read.depth_bytes, rows[i].read_depth);
        CHECK_EQ(read.depth_messages, rows[i].read_messages);
    }
}

static void test_a_weight_comes_back_or_is_cut(void)
{
    static const struct {
        uint32_t weight, read;
    } rows[] = { { 0, 0 }, { 1, 1 }, { 1000, 1000 }, { 1001, 1000 }, { UINT32_MAX, 1000 } };
    ps_trailer_t read;
    uint8_t out[PS_TRAILER_MAX];
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const uint32_t length = ps_trailer_write_setup(out, &stated);
        const uint32_t at = length - PS_TLV_HEADER_BYTES - 4;
        CHECK_EQ(ps_get_u16(out + at), PS_TLV_CREDIT_WEIGHT);
        ps_put_u32(out + at + PS_TLV_HEADER_BYTES, rows[i].weight);
        ps_trailer_read(out, length, &read);
        CHECK_EQ(read.credit_weight, rows[i].read);
    }
    ps_trailer_t none = stated;
    none.credit_weight = 0;
    CHECK_EQ(ps_trailer_write_setup(out, &stated) - ps_trailer_write_setup(out, &none), 8);
    ps_trailer_read(out, ps_trailer_write_sm(out, &stated), &read);
    CHECK_EQ(read.credit_weight, 0); /* a sender's word */
}

/* A foreign priority is cut to the range that a channel may state. */
static void test_a_priority_comes_back_or_is_cut(void)
{
    static const int32_t rows[][2] = { { -1, -1 },     { 1000, 1000 },       { -1000, -1000 },
                                       { 1001, 1000 }, { INT32_MIN, -1000 }, { INT32_MAX, 1000 },
                                       { 0, 0 } };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        ps_trailer_t with = stated;
        uint8_t out[PS_TRAILER_MAX];
        ps_trailer_t read;
        with.priority = 1;
        const uint32_t length = ps_trailer_write_setup(out, &with);
        const uint32_t at = length - PS_TLV_HEADER_BYTES - 4;
        CHECK_EQ(ps_get_u16(out + at), PS_TLV_PRIORITY);
        ps_put_u32(out + at + PS_TLV_HEADER_BYTES, (uint32_t)rows[i][0]);
        ps_trailer_read(out, length, &read);
        CHECK_EQ(read.priority, rows[i][1]);
        with.priority = 0;
        CHECK_EQ(length - ps_trailer_write_setup(out, &with), 8);
    }
}

/* A negative limit is none. */
static void test_a_retention_comes_back_or_is_none(void)
{
    static const int64_t rows[][4] = { { 4096, 0, 4096, 0 },
                                       { 0, 1, 0, 1 },
                                       { INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX },
                                       { -1, INT64_MIN, 0, 0 } };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        ps_trailer_t with = stated;
        uint8_t out[PS_TRAILER_MAX];
        ps_trailer_t read;
        with.retention_bytes = with.retention_ns = 1;
        const uint32_t length = ps_trailer_write_setup(out, &with);
        uint32_t at = PS_TRAILER_HEADER_BYTES;
        while (ps_get_u16(out + at) != PS_TLV_RETENTION) {
            at += PS_TLV_HEADER_BYTES + ps_get_u16(out + at + 2);
        }
        ps_put_i64(out + at + 4, rows[i][0]);
        ps_put_i64(out + at + 12, rows[i][1]);
        ps_trailer_read(out, length, &read);
        CHECK_EQ(read.retention_bytes, rows[i][2]);
        CHECK_EQ(read.retention_ns, rows[i][3]);
    }
}

int main(void)
{
    RUN(test_a_weight_comes_back_or_is_cut);
    RUN(test_a_priority_comes_back_or_is_cut);
    RUN(test_a_retention_comes_back_or_is_none);
    RUN(test_a_policy_comes_back_or_is_none);
    return 0;
}
