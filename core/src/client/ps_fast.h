/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_fast.h: the functions of the core that other extensions call: the Python fast path (core/fast,
 * `penstock._fast`) and the load loops (`penstock._core_bench`). The core's symbols are hidden in
 * `penstock._core`, so another extension cannot link to them. Python loads such an extension after
 * the core. The extension then gets this table of functions, and checks the version and the size of
 * the table. */
#ifndef PS_FAST_H
#define PS_FAST_H

#include <stddef.h>
#include <stdint.h>

#include "penstock.h"

/* If you add a function, add it at the end of the table. If you change a function's signature,
 * change the version. */
typedef struct ps_fast_table {
    uint32_t version;
    uint32_t size; /* sizeof(ps_fast_table_t) */
    int64_t (*pub_offer)(ps_pub_t *pub, const void *data, size_t length, int64_t reserved_value);
    int64_t (*pub_offer_batch)(ps_pub_t *pub, const uint8_t *base, const int64_t *offsets,
                               int32_t count, int32_t *accepted);
    int64_t (*pub_offer_strided)(ps_pub_t *pub, const uint8_t *base, int64_t stride, int32_t count,
                                 int32_t *accepted);
    int32_t (*sub_poll)(ps_sub_t *sub, ps_message_t *out, int32_t limit, int32_t flags);
    void (*sub_rewind)(ps_sub_t *sub, const ps_message_t *messages, int32_t count, int32_t from);
    void (*sub_release)(ps_sub_t *sub);
    int32_t (*sub_has_data)(const ps_sub_t *sub);
    int32_t (*img_poll)(ps_img_t *image, ps_message_t *out, int32_t limit, int32_t flags);
    int (*img_rewind)(ps_img_t *image, int64_t position);
    void (*img_release)(ps_img_t *image);
    int32_t (*img_has_data)(const ps_img_t *image);
    uint32_t (*client_ticket)(ps_client_t *client);
    int (*client_sleep)(ps_client_t *client, uint32_t ticket, int64_t timeout_ns);
    int64_t (*messages_bytes)(const ps_message_t *messages, int32_t count);
    void (*messages_gather)(const ps_message_t *messages, int32_t count, int64_t *offsets,
                            uint8_t *data);
    void (*messages_columns)(const ps_message_t *messages, int32_t count, int64_t *positions,
                             int32_t *session_ids, int64_t *reserved_values);
    int32_t (*client_await)(ps_client_t *client, uint32_t ticket);
    void (*pub_want_room)(ps_pub_t *pub);
    int64_t (*pub_available_window)(const ps_pub_t *pub);
    /* Stores the error text that ps_last_error returns in this thread; returns `code`. */
    int (*fail)(int code, const char *format, ...);
    int64_t (*pub_unthrottle)(ps_pub_t *pub);
    int64_t (*pub_credits)(const ps_pub_t *pub);
} ps_fast_table_t;

enum ps_fast_version { PS_FAST_VERSION = 1 };

/* Returns the table of functions; never NULL, and valid while the core is loaded. */
const ps_fast_table_t *ps_fast_table(void);

#endif
