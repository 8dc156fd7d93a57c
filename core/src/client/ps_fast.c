/* SPDX-License-Identifier: Apache-2.0
 * ps_fast.c: see ps_fast.h. */
#include "ps_fast.h"

#include "ps_error.h"

static const ps_fast_table_t table = {
    .version = PS_FAST_VERSION,
    .size = sizeof(ps_fast_table_t),
    .pub_offer = ps_pub_offer,
    .pub_offer_batch = ps_pub_offer_batch,
    .pub_offer_strided = ps_pub_offer_strided,
    .sub_poll = ps_sub_poll,
    .sub_rewind = ps_sub_rewind,
    .sub_release = ps_sub_release,
    .sub_has_data = ps_sub_has_data,
    .img_poll = ps_img_poll,
    .img_rewind = ps_img_rewind,
    .img_release = ps_img_release,
    .img_has_data = ps_img_has_data,
    .client_ticket = ps_client_ticket,
    .client_sleep = ps_client_sleep,
    .messages_bytes = ps_messages_bytes,
    .messages_gather = ps_messages_gather,
    .messages_columns = ps_messages_columns,
    .client_await = ps_client_await,
    .pub_want_room = ps_pub_want_room,
    .pub_available_window = ps_pub_available_window,
    .fail = ps_fail,
    .pub_unthrottle = ps_pub_unthrottle,
    .pub_credits = ps_pub_credits,
};

const ps_fast_table_t *ps_fast_table(void)
{
    return &table;
}
