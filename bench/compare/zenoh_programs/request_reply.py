# SPDX-License-Identifier: Apache-2.0
"""Two requests to a server, one of which fails."""

import zenoh

PRICES = {b"ABC": b"10.5"}


def price_of(query):
    try:
        query.reply(query.key_expr, PRICES[query.payload.to_bytes()])
    except KeyError as error:
        query.reply_err(type(error).__name__)


with zenoh.open(zenoh.Config.from_json5("{scouting: {multicast: {enabled: false}}}")) as session:
    server = session.declare_queryable("prices", price_of)
    for symbol in (b"ABC", b"?"):
        (reply,) = session.get("prices", payload=symbol, timeout=5)
        print((reply.ok or reply.err).payload.to_string())
