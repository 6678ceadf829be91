package io.tidegate.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.spark.SparkContext;

/**
 * Two questions to the API server of Kubernetes, asked with the client that the driver itself uses.
 *
 * <p>An API server that is away must not hold up a controller: an answer that takes longer than a
 * few seconds is null, and nothing is asked while another question hangs.
 */
final class Kubernetes {
  private static final long ANSWER_S = 3;
  private static final String REVIEWS =
      "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

  private final SparkContext context;
  private final ObjectMapper json;
  private final String namespace;
  private final ExecutorService asking =
      Executors.newSingleThreadExecutor(
          work -> {
            Thread thread = new Thread(work, "tidegate-kubernetes");
            thread.setDaemon(true);
            return thread;
          });
  private Future<String> question;

  Kubernetes(SparkContext context, ObjectMapper json) {
    this.context = context;
    this.json = json;
    this.namespace = context.conf().get("spark.kubernetes.namespace", "default");
  }

  /** The executor pods of the application, null without Kubernetes or an answer. */
  JsonNode executorPods() throws Exception {
    String selector = "spark-app-selector=" + context.applicationId() + ",spark-role=executor";
    String path = "/api/v1/namespaces/" + namespace + "/pods?labelSelector="
        + URLEncoder.encode(selector, StandardCharsets.UTF_8);
    JsonNode answer = ask(path, null);
    return answer == null ? null : answer.get("items");
  }

  /** Whether the account of the driver may create pods, null without an answer. */
  JsonNode mayCreatePods() throws Exception {
    Map<String, Object> review = Map.of(
        "apiVersion", "authorization.k8s.io/v1",
        "kind", "SelfSubjectAccessReview",
        "spec", Map.of("resourceAttributes",
            Map.of("namespace", namespace, "verb", "create", "resource", "pods")));
    JsonNode answer = ask(REVIEWS, review);
    return answer == null ? null : answer.path("status").get("allowed");
  }

  /** An answer of the API server. review: what to post, null to read. */
  private synchronized JsonNode ask(String path, Object review) throws Exception {
    if (!context.master().startsWith("k8s") || (question != null && !question.isDone())) {
      return null;
    }
    Object client = Internals.field(Internals.call(context, "schedulerBackend"), "kubernetesClient");
    question = asking.submit(() -> (String) (review == null
        ? Internals.call(client, "raw", path)
        : Internals.call(client, "raw", path, "POST", review)));
    try {
      return json.readTree(question.get(ANSWER_S, TimeUnit.SECONDS));
    } catch (TimeoutException | ExecutionException error) {
      return null;
    }
  }
}
