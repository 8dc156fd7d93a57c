// SPDX-License-Identifier: Apache-2.0
package dev.penstock.interop;

import io.aeron.Aeron;
import io.aeron.Publication;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * Publishes the messages of (seed, sizes) and reports "added", "connected", "done".  Stays until
 * its standard input ends, so that the test decides when the stream ends.
 *
 * <pre>--dir= --channel= --stream= --count= --seed= --sizes=LOW-HIGH [--exclusive=1]
 * [--pause-at=N] [--destination=CHANNEL]... [--timeout-s=60]</pre>
 *
 * With {@code --pause-at} it reports "paused" before that message and waits for a byte.
 */
public final class Pub {
    private Pub() {
    }

    public static void main(final String[] arguments) throws Exception {
        final Args args = new Args(arguments);
        final Aeron.Context context = new Aeron.Context().aeronDirectoryName(args.text("dir"));
        final int stream = (int) args.number("stream", 1001);
        final String channel = args.text("channel");
        try (Aeron aeron = Aeron.connect(context);
            Publication publication = args.number("exclusive", 0) != 0
                ? aeron.addExclusivePublication(channel, stream)
                : aeron.addPublication(channel, stream)) {
            for (final String destination : args.all("destination")) {
                publication.addDestination(destination);
            }
            Report.event("added", "session", publication.sessionId(),
                "maxMessage", publication.maxMessageLength());
            publish(publication, args);
            while (System.in.read() >= 0) {
                Thread.onSpinWait();
            }
        }
    }

    private static void publish(final Publication publication, final Args args) throws Exception {
        final long deadline = System.nanoTime() + args.number("timeout-s", 60) * 1_000_000_000L;
        final Messages messages = new Messages(args.number("seed", 1), args.text("sizes", "32"));
        final Messages.Hash hash = new Messages.Hash();
        while (!publication.isConnected()) {
            pause(deadline, "connect");
        }
        Report.event("connected", "session", publication.sessionId());
        final long pause = args.number("pause-at", -1);
        final long count = args.number("count", 0);
        for (long i = 0; i < count; i++) {
            if (i == pause) {
                Report.event("paused", "position", publication.position());
                System.in.read();
            }
            final byte[] message = messages.message();
            final UnsafeBuffer buffer = new UnsafeBuffer(message);
            hash.add(message);
            long position = publication.offer(buffer);
            while (position < 0) {
                if (position != Publication.BACK_PRESSURED && position != Publication.ADMIN_ACTION
                    && position != Publication.NOT_CONNECTED) {
                    throw new IllegalStateException(Publication.errorString(position));
                }
                pause(deadline, "offer message " + i);
                position = publication.offer(buffer);
            }
        }
        Report.event("done", "count", count, "sha256", hash.hex(),
            "position", publication.position());
    }

    private static void pause(final long deadline, final String what) throws InterruptedException {
        if (System.nanoTime() > deadline) {
            Report.event("timeout", "in", what);
            System.exit(3);
        }
        Thread.sleep(1);
    }
}
