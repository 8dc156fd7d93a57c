/* SPDX-License-Identifier: Apache-2.0
 * ps_cause.h: the causes that can block a stream. Also a cffi declaration. */
#ifndef PS_CAUSE_H
#define PS_CAUSE_H

/* Causes (docs/spec/rules.md section 6). If two limits block a stream at the same position, the
 * sender reports the cause with the lower value. */
enum ps_cause {
    PS_CAUSE_NONE = 0,
    PS_CAUSE_RECEIVER_WINDOW = 1,
    PS_CAUSE_GROUP_STRATEGY = 2,
    PS_CAUSE_CONGESTION_WINDOW = 3,
    PS_CAUSE_NAK_RATE = 4,
    PS_CAUSE_CREDIT = 5,
    PS_CAUSE_SCHEDULER = 6,
    PS_CAUSE_GOVERNOR = 7,
    PS_CAUSE_RATE_LIMIT = 8,
    PS_CAUSE_TERM_ROTATION = 9,
    PS_CAUSE_NO_RECEIVER = 10,
    PS_CAUSE_SLOW_SUBSCRIBER = 11,
    PS_CAUSE_SPY = 12,
    PS_CAUSE_LOSS_REPAIR = 13,
    PS_CAUSE_SOCKET = 14,
    PS_CAUSE_BLOCKED_CLAIM = 15,
    PS_CAUSE_JOIN_HOLD = 16,
    PS_CAUSE_STORAGE = 17,
    PS_CAUSE_DAEMON_AWAY = 18,
    PS_CAUSE_COUNT = 32
};

#endif
