/* SPDX-License-Identifier: Apache-2.0
 * ps_messages.c: the results of a poll as columns. */
#include <string.h>

#include "penstock.h"

int64_t ps_messages_bytes(const ps_message_t *messages, int32_t count)
{
    int64_t total = 0;
    for (int32_t i = 0; i < count; i++) {
        total += messages[i].length;
    }
    return total;
}

void ps_messages_gather(const ps_message_t *messages, int32_t count, int64_t *offsets,
                        uint8_t *data)
{
    int64_t used = 0;
    for (int32_t i = 0; i < count; i++) {
        const size_t length = (size_t)messages[i].length;
        offsets[i] = used;
        if (length == 32) { /* small fixed sizes are frequent in batches: no call */
            memcpy(data + used, messages[i].data, 32);
        } else if (length > 0) {
            memcpy(data + used, messages[i].data, length);
        }
        used += messages[i].length;
    }
    offsets[count] = used;
}

void ps_messages_columns(const ps_message_t *messages, int32_t count, int64_t *positions,
                         int32_t *session_ids, int64_t *reserved_values)
{
    for (int32_t i = 0; i < count; i++) {
        positions[i] = messages[i].position;
        session_ids[i] = messages[i].session_id;
        reserved_values[i] = messages[i].reserved_value;
    }
}
