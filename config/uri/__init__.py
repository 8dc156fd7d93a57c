# SPDX-License-Identifier: Apache-2.0
"""Channel URIs: their types, their grammar and the rules between parameters."""

from penstock.config.uri._rules import check_destination, check_publication, check_subscription
from penstock.config.uri._values import (
    RESERVED_VALUE_OFFSET,
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
    read_flow_control,
    read_rate,
)
from penstock.config.uri.channel import MAX_URI_CHARS, PARAMETERS, REFUSED, ChannelUri, parse

__all__ = [
    "MAX_URI_CHARS",
    "PARAMETERS",
    "REFUSED",
    "RESERVED_VALUE_OFFSET",
    "Address",
    "ChannelError",
    "ChannelUri",
    "CongestionControl",
    "ControlMode",
    "FlowControl",
    "Group",
    "Interface",
    "Media",
    "Rate",
    "SessionTag",
    "Tags",
    "check_destination",
    "check_publication",
    "check_subscription",
    "parse",
    "read_congestion_control",
    "read_flow_control",
    "read_rate",
]
