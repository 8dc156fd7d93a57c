// SPDX-License-Identifier: Apache-2.0
package dev.penstock.interop;

import io.aeron.Aeron;
import io.aeron.FragmentAssembler;
import io.aeron.Publication;
import io.aeron.Subscription;
import io.aeron.logbuffer.FragmentHandler;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.ThreadLocalRandom;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * A requester by the rule of {@code docs/request-reply.md}: sends "request 1", "request 2", ... one
 * after another, then "raise"; reports each "reply" and "error", then "done".
 *
 * <pre>--dir= --channel= --reply-host= --stream= --count= [--timeout-s=60]</pre>
 */
public final class Asker {
    private static final long ERROR = 1L << 31;

    private Asker() {
    }

    public static void main(final String[] arguments) throws Exception {
        final Args args = new Args(arguments);
        final Aeron.Context context = new Aeron.Context().aeronDirectoryName(args.text("dir"));
        final int stream = (int) args.number("stream", 1001);
        final long count = args.number("count", 0);
        final long deadline = System.nanoTime() + args.number("timeout-s", 60) * 1_000_000_000L;
        try (Aeron aeron = Aeron.connect(context);
            Subscription replies = aeron.addSubscription(
                "aeron:udp?endpoint=" + args.text("reply-host") + ":0", stream)) {
            while (replies.localSocketAddresses().isEmpty()) {
                pause(deadline);
            }
            final String address = replies.localSocketAddresses().get(0);
            final int port = Integer.parseInt(address.substring(address.lastIndexOf(':') + 1));
            final int session = ThreadLocalRandom.current().nextInt() & 0xFFFF0000 | port;
            try (Publication requests = aeron.addPublication(
                args.text("channel") + "|session-id=" + session, stream)) {
                for (long counter = 1; counter <= count + 1; counter++) {
                    final String text = counter > count ? "raise" : "request " + counter;
                    ask(requests, replies, session, counter, text, deadline);
                }
            }
            Report.event("done", "count", count);
        }
    }

    private static void ask(final Publication requests, final Subscription replies,
        final int session, final long counter, final String text, final long deadline)
        throws InterruptedException {
        final long value = (long) session << 32 | counter;
        final byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        while (requests.offer(new UnsafeBuffer(bytes), 0, bytes.length,
            (termBuffer, termOffset, frameLength) -> value) < 0) {
            pause(deadline);
        }
        final boolean[] answered = new boolean[1];
        final FragmentHandler handler = new FragmentAssembler((buffer, offset, length, header) -> {
            if ((header.reservedValue() & ~ERROR) == value) {
                answered[0] = true;
                final boolean failed = (header.reservedValue() & ERROR) != 0;
                final String reply = buffer.getStringWithoutLengthUtf8(offset, length);
                Report.event(failed ? "error" : "reply", "text", reply.replace('\n', '|'));
            }
        });
        while (!answered[0]) {
            if (replies.poll(handler, 10) == 0) {
                pause(deadline);
            }
        }
    }

    private static void pause(final long deadline) throws InterruptedException {
        if (System.nanoTime() > deadline) {
            Report.event("timeout", "count", 0);
            System.exit(3);
        }
        Thread.sleep(1);
    }
}
