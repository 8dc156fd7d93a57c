/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_choices.h: strategies that a channel may choose, and states of the channel's subscribers. Also
 * the cffi declaration.
 */
#ifndef PS_CHOICES_H
#define PS_CHOICES_H

#include <stdint.h>

enum ps_flow_control {
    PS_FC_UNICAST = 0,
    PS_FC_MAX = 1,
    PS_FC_MIN = 2,
    PS_FC_TAGGED = 3,
    PS_FC_PRESSURE = 4,
    PS_FC_CUSTOM = 5
};
/* The sender limit that applies when a custom strategy has not answered in time. */
enum ps_fc_late { PS_FC_LATE_HOLD = 0, PS_FC_LATE_MAX = 1, PS_FC_LATE_MIN = 2 };

enum ps_congestion_control { PS_CC_STATIC = 0, PS_CC_CUBIC = 1, PS_CC_CUSTOM = 2 };
enum ps_loss_recovery { PS_LOSS_ALL_GAPS = 0, PS_LOSS_SINGLE_GAP = 1 };

enum ps_tether_state {
    PS_TETHER_ACTIVE = 0,
    PS_TETHER_LINGER = 1,
    PS_TETHER_RESTING = 2,
    PS_TETHER_CLOSED = 3
};

#endif
