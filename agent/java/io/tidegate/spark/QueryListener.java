package io.tidegate.spark;

import org.apache.spark.SparkConf;
import org.apache.spark.sql.streaming.StreamingQueryListener;

/**
 * Hears the streaming queries of all sessions and keeps their events for the controller.
 *
 * <p>Spark creates one for each session, because {@link #register} names the class in the
 * configuration, so all of them write to the same {@link EventLog}.
 */
public final class QueryListener extends StreamingQueryListener {
  private static final String LISTENERS = "spark.sql.streaming.streamingQueryListeners";

  /** Name the listener in the configuration, before the first session is created. */
  static void register(SparkConf conf) {
    String name = QueryListener.class.getName();
    String others = conf.get(LISTENERS, "");
    if (!others.contains(name)) {
      conf.set(LISTENERS, others.isEmpty() ? name : others + "," + name);
    }
  }

  @Override
  public void onQueryStarted(QueryStartedEvent event) {
    EventLog.shared.add("started", event.runId().toString());
  }

  @Override
  public void onQueryProgress(QueryProgressEvent event) {
    EventLog.shared.add("progress", event.progress().json());
  }

  @Override
  public void onQueryIdle(QueryIdleEvent event) {
    String json =
        String.format(
            "{\"id\":\"%s\",\"runId\":\"%s\",\"timestamp\":\"%s\"}",
            event.id(), event.runId(), event.timestamp());
    EventLog.shared.add("idle", json);
  }

  @Override
  public void onQueryTerminated(QueryTerminatedEvent event) {
    String error = event.exception().isDefined() ? event.exception().get() : "";
    EventLog.shared.add("ended", event.runId() + "\n" + error);
  }
}
