/* SPDX-License-Identifier: Apache-2.0
 * ps_pub_admit.c: streams that admit by message: a publisher takes an ordinal before it reserves
 * space, and returns it if the message is not published.  Streams without a message rate never get
 * here. */
#include "ps_client_publication.h"
#include "ps_spend.h"

int64_t ps_pub_take(ps_pub_t *pub, int64_t wanted, uint32_t *epoch)
{
    const int64_t limit = atomic_load_explicit(&pub->slot->ordinal_limit, memory_order_acquire);
    const int64_t taken = ps_spend(&pub->slot->spend, limit, wanted, pub->exclusive, epoch);
    if (PS_LIKELY(taken > 0)) {
        return taken;
    }
    if (taken < 0) {
        return PS_ADMIN_ACTION;
    }
    const int64_t position = pub->exclusive
                                 ? ((int64_t)pub->term_count << pub->log.shift) + pub->term_offset
                                 : ps_log_producer_position(&pub->log);
    const int64_t code = ps_pub_refuse(pub, position);
    return code == PS_BACK_PRESSURED ? PS_RATE_LIMITED : code;
}

void ps_pub_untake(ps_pub_t *pub, int64_t count, uint32_t epoch)
{
    if (count > 0) {
        ps_spend_return(&pub->slot->spend, count, pub->exclusive, epoch);
    }
}

int64_t ps_pub_publish_metered(ps_pub_t *pub, const ps_iov_t *pieces, int64_t length,
                               int64_t reserved_value)
{
    uint32_t epoch = 0;
    const int64_t taken = ps_pub_take(pub, 1, &epoch);
    if (taken <= 0) {
        return taken;
    }
    const int64_t position = ps_pub_publish_admitted(pub, pieces, length, reserved_value);
    ps_pub_untake(pub, position <= 0, epoch);
    return position;
}

int64_t ps_pub_ordinal_limit(const ps_pub_t *pub)
{
    return pub->metered ? atomic_load_explicit(&pub->slot->ordinal_limit, memory_order_acquire)
                        : INT64_MAX;
}
