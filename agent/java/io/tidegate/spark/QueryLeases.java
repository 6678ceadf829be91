package io.tidegate.spark;

import static io.tidegate.spark.Internals.call;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardCopyOption;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Renews the leases of the fenced queries in this driver, and stops a query whose lease is over.
 *
 * <p>The checkpoint of a fenced query is a symbolic link {@code NAME~fence/epoch-8}. The manager of
 * the fleet replaces it by a file when the query is to run elsewhere, and then waits for the lease in
 * {@code epoch-8.lease} before it starts the query again. A renewal counts only if the link is still
 * there after the lease was written, and then from the time before it was written. A file system
 * that hangs keeps one thread per query, but not the thread that watches the deadlines.
 */
final class QueryLeases {
  private static final Logger log = LoggerFactory.getLogger(QueryLeases.class);
  private static final Pattern EPOCH = Pattern.compile("epoch-[0-9]+");
  private static final long LOOK_MS = 200;
  private static final double DEFAULT_S = 30; // the same in fence.py
  private static final double MOST_S = 86_400;
  private static final int RENEWALS = 5; // in the time of one lease
  private static final long SETTLE_MS = 1000; // Python workers of a query end after it
  private static final ObjectMapper json = new ObjectMapper();

  private final Map<String, Held> held = new HashMap<>(); // by run
  private volatile boolean stopped;

  /** Begin to watch, in a daemon thread. */
  void start() {
    background("tidegate-leases", this::watch);
  }

  /** End all threads. The leases of queries that still run are not released. */
  void stop() {
    stopped = true;
  }

  private static void background(String name, Runnable work) {
    Thread thread = new Thread(work, name);
    thread.setDaemon(true);
    thread.start();
  }

  private void watch() {
    while (!stopped) {
      try {
        look();
      } catch (Throwable error) { // nothing here may disturb the server
        log.debug("The streaming queries could not be listed", error);
      }
      pause(LOOK_MS);
    }
  }

  private void look() throws Exception {
    Set<String> active = new HashSet<>();
    for (Object query : Internals.activeQueries()) {
      String run = String.valueOf(call(query, "runId"));
      active.add(run);
      if (!held.containsKey(run)) {
        Path link = fenced(String.valueOf(call(query, "resolvedCheckpointRoot")));
        held.put(run, new Held(query, link));
      }
    }
    held.entrySet().removeIf(entry -> {
      Held one = entry.getValue();
      if (active.contains(entry.getKey())) {
        one.check();
        return false;
      }
      one.ended = true;
      return true;
    });
  }

  /** The link of a fenced checkpoint, null for any other. */
  private static Path fenced(String root) {
    org.apache.hadoop.fs.Path path = new org.apache.hadoop.fs.Path(root);
    String scheme = path.toUri().getScheme();
    boolean here = scheme == null || scheme.equals("file");
    boolean epoch = EPOCH.matcher(path.getName()).matches() && path.getParent() != null;
    if (!here || !epoch || !path.getParent().getName().endsWith("~fence")) {
      return null;
    }
    return Paths.get(path.toUri().getPath());
  }

  private static void pause(long millis) {
    try {
      Thread.sleep(millis);
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
    }
  }

  /** A query and its lease. */
  private final class Held {
    private final Object query;
    private final Path link;
    private volatile long deadlineNanos;
    private volatile boolean ended;
    private volatile boolean stopping;
    private long leaseNanos;
    private long renewals;

    Held(Object query, Path link) {
      this.query = query;
      this.link = link;
      // Until the lease has been read. It began when the manager granted it, a moment ago.
      leaseNanos = (long) (DEFAULT_S * 1e9);
      deadlineNanos = System.nanoTime() + leaseNanos;
      if (link != null) {
        background("tidegate-lease-" + link.getParent().getFileName(), this::renew);
      }
    }

    /** Stop the query if its time is over; called in the thread that watches. */
    void check() {
      if (link != null && System.nanoTime() - deadlineNanos >= 0) {
        end("its lease could not be renewed");
      }
    }

    private synchronized void end(String why) {
      if (stopping || ended) {
        return;
      }
      stopping = true;
      log.warn("The query with the checkpoint {} is stopped: {}", link, why);
      background("tidegate-stop", () -> {
        try {
          call(query, "stop");
        } catch (Throwable error) {
          log.warn("The query with the checkpoint {} did not stop: {}", link, error.toString());
          stopping = false; // tried again
        }
      });
    }

    private void renew() {
      boolean failed = false;
      boolean known = false;
      long beganNanos = System.nanoTime();
      while (!ended && !stopped) {
        try {
          if (!known) {
            readLength(beganNanos);
            known = true;
          }
          if (!Files.isSymbolicLink(link)) {
            end("its epoch is over");
          } else if (!stopping) {
            long nowNanos = System.nanoTime();
            renewals++;
            write("held");
            if (Files.isSymbolicLink(link)) {
              deadlineNanos = nowNanos + leaseNanos;
            }
          }
          failed = false;
        } catch (IOException | RuntimeException error) {
          if (!failed) {
            log.warn("The lease {} could not be renewed: {}", link, error.toString());
          }
          failed = true;
        }
        pause(Math.max(LOOK_MS, TimeUnit.NANOSECONDS.toMillis(leaseNanos) / RENEWALS));
      }
      if (ended) {
        pause(SETTLE_MS);
        try {
          write("released");
        } catch (IOException | RuntimeException error) {
          log.debug("The lease {} could not be released", link, error);
        }
      }
    }

    /** Read how long the lease is; the manager has written it. */
    private void readLength(long beganNanos) throws IOException {
      JsonNode plain = json.readTree(Files.readAllBytes(lease()));
      double seconds = plain.path("lease_s").asDouble(DEFAULT_S);
      leaseNanos = (long) ((seconds <= MOST_S ? Math.max(1, seconds) : DEFAULT_S) * 1e9);
      deadlineNanos = beganNanos + leaseNanos;
    }

    private Path lease() {
      return link.resolveSibling(link.getFileName() + ".lease");
    }

    private void write(String state) throws IOException {
      Map<String, Object> plain = new HashMap<>();
      plain.put("epoch", link.getFileName().toString().substring("epoch-".length()));
      plain.put("lease_s", leaseNanos / 1e9);
      plain.put("state", state);
      plain.put("renewals", renewals);
      Path part = link.resolveSibling("." + link.getFileName() + "." + UUID.randomUUID());
      try {
        Files.write(part, json.writeValueAsString(plain).getBytes(StandardCharsets.UTF_8));
        Files.move(part, lease(), StandardCopyOption.ATOMIC_MOVE);
      } finally {
        Files.deleteIfExists(part);
      }
    }
  }
}
