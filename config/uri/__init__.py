# SPDX-License-Identifier: Apache-2.0
"""Channel URIs: their types, their grammar, and which parameters can be combined."""

from penstock.config.uri._credits import AUTO as AUTO_CREDITS
from penstock.config.uri._credits import (
    MAX_CREDITS,
    check_strategy,
    read_credit_policy,
    read_credits,
    room_of,
)
from penstock.config.uri._credits import POLICIES as CREDIT_POLICIES
from penstock.config.uri._depth import FORM as DEPTH_FORM
from penstock.config.uri._depth import Depth, read_depth
from penstock.config.uri._rules import check_destination, check_publication, check_subscription
from penstock.config.uri._values import (
    FANOUTS,
    POLICIES,
    RESERVED_VALUE_OFFSET,
    SUB_POLICIES,
    Address,
    ChannelError,
    CongestionControl,
    ControlMode,
    FlowControl,
    Group,
    Interface,
    Media,
    Rate,
    SessionTag,
    Tags,
    read_congestion_control,
    read_fanin,
    read_fanout,
    read_flow_control,
    read_policy,
    read_rate,
    read_sub_policy,
)
from penstock.config.uri.channel import MAX_URI_CHARS, PARAMETERS, REFUSED, ChannelUri, parse

__all__ = [
    "AUTO_CREDITS",
    "CREDIT_POLICIES",
    "DEPTH_FORM",
    "FANOUTS",
    "MAX_CREDITS",
    "MAX_URI_CHARS",
    "PARAMETERS",
    "POLICIES",
    "REFUSED",
    "RESERVED_VALUE_OFFSET",
    "SUB_POLICIES",
    "Address",
    "ChannelError",
    "ChannelUri",
    "CongestionControl",
    "ControlMode",
    "Depth",
    "FlowControl",
    "Group",
    "Interface",
    "Media",
    "Rate",
    "SessionTag",
    "Tags",
    "check_destination",
    "check_publication",
    "check_strategy",
    "check_subscription",
    "parse",
    "read_congestion_control",
    "read_credit_policy",
    "read_credits",
    "read_depth",
    "read_fanin",
    "read_fanout",
    "read_flow_control",
    "read_policy",
    "read_rate",
    "read_sub_policy",
    "room_of",
]
