package io.tidegate.spark;

import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.sql.streaming.StreamingQueryListener.QueryIdleEvent;
import org.apache.spark.sql.streaming.StreamingQueryListener.QueryProgressEvent;
import org.apache.spark.sql.streaming.StreamingQueryListener.QueryStartedEvent;
import org.apache.spark.sql.streaming.StreamingQueryListener.QueryTerminatedEvent;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Hears the streaming queries of all sessions and keeps their events for the controller.
 *
 * <p>A listener for streaming queries hears one session only. But every session sends the events of
 * its queries to the bus of the application as well, where this listener hears all of them.
 */
final class QueryListener extends SparkListener {
  private static final Logger log = LoggerFactory.getLogger(QueryListener.class);

  private final EventLog events;

  QueryListener(EventLog events) {
    this.events = events;
  }

  @Override
  public void onOtherEvent(SparkListenerEvent event) {
    try {
      hear(event);
    } catch (Throwable error) { // an error here would stop the application
      log.debug("An event could not be kept", error);
    }
  }

  private void hear(SparkListenerEvent event) {
    if (event instanceof QueryProgressEvent) {
      events.add("progress", ((QueryProgressEvent) event).progress().json());
    } else if (event instanceof QueryIdleEvent) {
      QueryIdleEvent idle = (QueryIdleEvent) event;
      String text = "{\"id\":\"%s\",\"runId\":\"%s\",\"timestamp\":\"%s\"}";
      events.add("idle", String.format(text, idle.id(), idle.runId(), idle.timestamp()));
    } else if (event instanceof QueryStartedEvent) {
      events.add("started", ((QueryStartedEvent) event).runId().toString());
    } else if (event instanceof QueryTerminatedEvent) {
      QueryTerminatedEvent ended = (QueryTerminatedEvent) event;
      String error = ended.exception().isDefined() ? ended.exception().get() : "";
      events.add("ended", ended.runId() + "\n" + error);
    }
  }
}
