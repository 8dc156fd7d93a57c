// SPDX-License-Identifier: Apache-2.0
package dev.penstock.interop;

import io.aeron.Aeron;
import io.aeron.FragmentAssembler;
import io.aeron.Image;
import io.aeron.Publication;
import io.aeron.Subscription;
import io.aeron.logbuffer.FragmentHandler;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * A server by the rule of {@code docs/request-reply.md}: answers a number of requests in capitals,
 * and "raise" with an error; reports "added" and "done".
 *
 * <pre>--dir= --channel= --stream= --count= [--timeout-s=60]</pre>
 */
public final class Answerer {
    private static final long ERROR = 1L << 31;

    private Answerer() {
    }

    public static void main(final String[] arguments) throws Exception {
        final Args args = new Args(arguments);
        final Aeron.Context context = new Aeron.Context().aeronDirectoryName(args.text("dir"));
        final int stream = (int) args.number("stream", 1001);
        final long count = args.number("count", 0);
        final long deadline = System.nanoTime() + args.number("timeout-s", 60) * 1_000_000_000L;
        final Map<Integer, Publication> replies = new HashMap<>();
        final long[] answered = new long[1];
        try (Aeron aeron = Aeron.connect(context);
            Subscription requests = aeron.addSubscription(args.text("channel"), stream)) {
            final FragmentHandler handler = new FragmentAssembler((buffer, offset, length, header) -> {
                final Publication publication = replies.computeIfAbsent(header.sessionId(),
                    session -> aeron.addPublication(
                        replyChannel(requests.imageBySessionId(session)), stream));
                final String text = buffer.getStringWithoutLengthUtf8(offset, length);
                final boolean failed = text.equals("raise");
                final String answer = failed ? "IllegalStateException\nno" : text.toUpperCase(Locale.ROOT);
                final long value = header.reservedValue() | (failed ? ERROR : 0);
                final byte[] bytes = answer.getBytes(StandardCharsets.UTF_8);
                while (publication.offer(new UnsafeBuffer(bytes), 0, bytes.length,
                    (termBuffer, termOffset, frameLength) -> value) < 0) {
                    if (System.nanoTime() > deadline) {
                        Report.event("timeout", "count", answered[0]);
                        System.exit(3);
                    }
                    Thread.yield();
                }
                answered[0]++;
            });
            Report.event("added", "registration", requests.registrationId());
            while (answered[0] < count) {
                if (requests.poll(handler, 10) == 0) {
                    if (System.nanoTime() > deadline) {
                        Report.event("timeout", "count", answered[0]);
                        System.exit(3);
                    }
                    Thread.sleep(1);
                }
            }
            Report.event("done", "count", answered[0]);
            System.in.read();
        }
    }

    /** To the address that the requests came from, at the port in the low bits of the session. */
    private static String replyChannel(final Image image) {
        final String source = image.sourceIdentity();
        final String host = source.substring(0, source.lastIndexOf(':'));
        return "aeron:udp?endpoint=" + host + ":" + (image.sessionId() & 0xFFFF);
    }
}
