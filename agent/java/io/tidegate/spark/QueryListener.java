package io.tidegate.spark;

import static io.tidegate.spark.Internals.call;

import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.WeakHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.spark.sql.streaming.StreamingQueryListener;
import org.apache.spark.sql.streaming.StreamingQueryProgress;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Hears the streaming queries of all sessions and keeps their events for the controller.
 *
 * <p>A listener for streaming queries hears one session only, so this one joins the session of each
 * query that it finds. A listener on the bus of the application would hear all of them, but Spark
 * would call it for every task, too, and that costs more than the rest of the agent. While nobody
 * asks for events, no session is joined.
 */
final class QueryListener extends StreamingQueryListener {
  private static final Logger log = LoggerFactory.getLogger(QueryListener.class);
  private static final long FORGOTTEN_NANOS = TimeUnit.SECONDS.toNanos(60);

  private final EventLog events;
  private final Set<Object> sessions = Collections.newSetFromMap(new WeakHashMap<>());
  private final Set<String> started = new HashSet<>(); // runs
  private final Map<String, String> last = new HashMap<>(); // time of the last progress, by run
  private boolean watching;
  private long askedNanos;

  QueryListener(EventLog events) {
    this.events = events;
  }

  /** Somebody wants events from now on; those of all running queries are heard. */
  void watch() {
    synchronized (this) {
      askedNanos = System.nanoTime();
      if (watching) {
        return;
      }
    }
    look();
  }

  /**
   * Join the sessions of new queries.
   *
   * <p>What such a query did before is added, if it has begun since the last look. A session that is
   * joined for the first look has queries that have run for long, whose past nobody asked for.
   */
  void look() {
    try {
      synchronized (this) {
        boolean before = watching;
        watching = System.nanoTime() - askedNanos < FORGOTTEN_NANOS;
        if (!watching) {
          return;
        }
        for (Object query : Internals.activeQueries()) {
          Object session = call(query, "sparkSession");
          if (sessions.add(session)) {
            call(call(session, "streams"), "addListener", this);
            if (before) {
              addPast(session);
            }
          }
        }
      }
    } catch (Throwable error) { // a session may end while it is joined
      log.debug("A session could not be joined", error);
    }
  }

  private void addPast(Object session) throws Exception {
    for (Object query : (Object[]) call(call(session, "streams"), "active")) {
      addStart(String.valueOf(call(query, "runId")));
      for (Object progress : (Object[]) call(query, "recentProgress")) {
        addProgress((StreamingQueryProgress) progress);
      }
    }
  }

  private void addStart(String run) {
    if (started.add(run)) {
      events.add("started", run);
    }
  }

  private void addProgress(StreamingQueryProgress progress) {
    String run = progress.runId().toString();
    String before = last.put(run, progress.timestamp());
    if (before == null || before.compareTo(progress.timestamp()) < 0) {
      events.add("progress", progress.json());
    } else {
      last.put(run, before); // of the past, and added already
    }
  }

  @Override
  public synchronized void onQueryStarted(QueryStartedEvent event) {
    addStart(event.runId().toString());
  }

  @Override
  public synchronized void onQueryProgress(QueryProgressEvent event) {
    addProgress(event.progress());
  }

  @Override
  public void onQueryIdle(QueryIdleEvent event) {
    String text = "{\"id\":\"%s\",\"runId\":\"%s\",\"timestamp\":\"%s\"}";
    events.add("idle", String.format(text, event.id(), event.runId(), event.timestamp()));
  }

  @Override
  public synchronized void onQueryTerminated(QueryTerminatedEvent event) {
    String run = event.runId().toString();
    started.remove(run);
    last.remove(run);
    String error = event.exception().isDefined() ? event.exception().get() : "";
    events.add("ended", run + "\n" + error);
  }
}
