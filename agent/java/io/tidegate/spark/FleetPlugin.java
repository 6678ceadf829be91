package io.tidegate.spark;

import java.util.Collections;
import java.util.Map;
import org.apache.spark.SparkContext;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.api.plugin.SparkPlugin;

/**
 * Stops the queries of a fleet on this server when the fleet has replaced them.
 *
 * <p>Switch it on with {@code --conf spark.plugins=io.tidegate.spark.FleetPlugin} on a Spark Connect
 * server that a fleet uses as an endpoint. It has no settings, listens nowhere, and concerns only
 * queries whose checkpoint is a fence of Tidegate. See {@link QueryLeases}.
 */
public final class FleetPlugin implements SparkPlugin {
  @Override
  public DriverPlugin driverPlugin() {
    return new InDriver();
  }

  @Override
  public ExecutorPlugin executorPlugin() {
    return null; // executors need nothing of it
  }

  private static final class InDriver implements DriverPlugin {
    private final QueryLeases leases = new QueryLeases();

    @Override
    public Map<String, String> init(SparkContext context, PluginContext plugin) {
      leases.start();
      return Collections.emptyMap();
    }

    @Override
    public void shutdown() {
      leases.stop();
    }
  }
}
