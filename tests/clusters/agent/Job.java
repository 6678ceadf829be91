import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardCopyOption;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.streaming.StreamingQuery;
import org.apache.spark.sql.streaming.Trigger;

/**
 * The twin of tests/clusters/job.py: rows that wait, until told to stop.
 *
 * <p>It reads the files of FOLDER/in. Each row keeps a slot busy for some milliseconds. It knows
 * nothing of Tidegate. FOLDER/application has the id of the running application; FOLDER/stop ends
 * it.
 */
public final class Job {
  private static final int ROW_MS = 12;

  private Job() {}

  public static void main(String[] words) throws Exception {
    Path folder = Paths.get(words[0]);
    SparkSession spark = SparkSession.builder().appName("rows that wait").getOrCreate();
    spark.sparkContext().setLogLevel("WARN");
    Dataset<Row> rows = spark.readStream().text(folder.resolve("in").toString()).repartition(8);
    String wait = "reflect('java.lang.Thread', 'sleep', " + ROW_MS + "L) as waited";
    StreamingQuery query =
        rows.selectExpr(wait)
            .writeStream()
            .format("noop")
            .queryName("rows")
            .trigger(Trigger.ProcessingTime("1 second"))
            .option("checkpointLocation", folder.resolve("checkpoint").toString())
            .start();
    Path made = folder.resolve(".application");
    Files.writeString(made, spark.sparkContext().applicationId());
    Files.move(made, folder.resolve("application"), StandardCopyOption.ATOMIC_MOVE);
    while (!Files.exists(folder.resolve("stop")) && query.isActive()) {
      Thread.sleep(200);
    }
    if (query.exception().isDefined()) {
      System.err.println("the query failed: " + query.exception().get());
      System.exit(1);
    }
    query.stop();
    spark.stop();
  }
}
