package io.tidegate.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import com.sun.net.httpserver.HttpsConfigurator;
import com.sun.net.httpserver.HttpsServer;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.security.KeyStore;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.Semaphore;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import org.apache.spark.SparkContext;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Answers the controller: JSON over HTTP, with a token, on loopback or with TLS.
 *
 * <p>Everybody with the token may read. Only the controller that holds the {@link Lease} may change
 * anything. When the controller is gone, the agent keeps the last total that it requested.
 */
final class Agent {
  private static final Logger log = LoggerFactory.getLogger(Agent.class);

  /** The version of this interface; a controller refuses others. */
  static final int PROTOCOL = 1;

  /** Threads are made when they are needed; each watcher keeps one waiting for events. */
  private static final int THREADS = 32;

  private static final int WAITING = 8;
  private static final String REQUEST_LIMIT = "sun.net.httpserver.maxReqTime";
  private static final int LONGEST_BODY = 1 << 20;
  private static final long LONGEST_WAIT_MS = 25_000;
  private static final long CHECK_S = 5;
  private static final long LOOK_S = 1;

  private final Settings settings;
  private final Application application;
  private final Lease lease = new Lease();
  private final HttpServer server;
  private final String certificate; // as PEM; null: no TLS
  private final EventLog eventLog = new EventLog();
  private final QueryListener listener = new QueryListener(eventLog);
  private final Semaphore waiting = new Semaphore(WAITING);
  private final String instance = UUID.randomUUID().toString();
  private final ExecutorService workers = new ThreadPoolExecutor(
      0, THREADS, 60, TimeUnit.SECONDS, new SynchronousQueue<>(), named("agent"));
  private final ScheduledExecutorService clock =
      Executors.newScheduledThreadPool(2, named("agent-clock")); // to request a total may take long
  private final Map<String, Answer> answers = new HashMap<>();
  private Controller controller;
  private volatile String announced; // what was written to the file; null: nothing
  private final Object totals = new Object();
  private volatile Integer total; // null: nothing was requested yet

  private interface Answer {
    JsonNode to(Request request) throws Exception;
  }

  /** A request that was refused, with the status of HTTP and a sentence. */
  private static final class Refused extends Exception {
    final int status;

    Refused(int status, String why) {
      super(why);
      this.status = status;
    }
  }

  private static final class Request {
    final Map<String, String> query = new HashMap<>();
    final JsonNode body;
    final String key;

    Request(URI uri, JsonNode body, String key) {
      this.body = body;
      this.key = key;
      String text = uri.getQuery() == null ? "" : uri.getQuery();
      for (String pair : text.split("&")) {
        int at = pair.indexOf('=');
        if (at > 0) {
          query.put(pair.substring(0, at), pair.substring(at + 1));
        }
      }
    }

    long number(String name, long otherwise) {
      String text = query.get(name);
      return text == null || text.isEmpty() ? otherwise : Long.parseLong(text);
    }

    List<Integer> numbers(String name) {
      List<Integer> found = new ArrayList<>();
      for (String text : query.getOrDefault(name, "").split(",")) {
        if (!text.isEmpty()) {
          found.add(Integer.parseInt(text));
        }
      }
      return found;
    }

    JsonNode part(String name) throws Refused {
      JsonNode found = body.get(name);
      if (found == null) {
        throw new Refused(400, "the request has no " + name);
      }
      return found;
    }

    List<String> words(String name) throws Refused {
      List<String> found = new ArrayList<>();
      part(name).forEach(word -> found.add(word.asText()));
      return found;
    }
  }

  private Agent(SparkContext context, Settings settings) throws Exception {
    this.settings = settings;
    this.application = new Application(context);
    if (System.getProperty(REQUEST_LIMIT) == null) {
      System.setProperty(REQUEST_LIMIT, "30"); // seconds; a request that is half sent ends then
    }
    KeyStore keys = settings.keystore == null ? null : keys(settings);
    this.server = keys == null ? HttpServer.create() : secure(keys, settings);
    this.certificate = keys == null ? null : certificate(keys);
    InetSocketAddress address =
        new InetSocketAddress(InetAddress.getByName(settings.host), settings.port);
    try {
      server.bind(address, 16);
    } catch (IOException error) {
      String where = settings.host + ":" + settings.port;
      throw new IllegalArgumentException("it cannot listen on " + where + ": " + error.getMessage());
    }
    server.setExecutor(workers);
    server.createContext("/", this::handle);
    read("/v1/application", request -> about());
    read("/v1/executors", request -> application.executors());
    read("/v1/pods", request -> application.executorPods());
    read("/v1/may-create-pods", request -> application.mayCreatePods());
    read("/v1/queries", request -> application.queries());
    read("/v1/query-status", request -> application.queryStatus());
    read("/v1/state-operators", request -> application.stateOperators());
    read("/v1/jobs", request -> application.jobs((int) request.number("after", -1),
        (int) request.number("most", 1000), request.numbers("running")));
    read("/v1/active-jobs", request -> application.activeJobs());
    read("/v1/events", this::events);
    answers.put("POST /v1/stages", request -> application.stages(request.part("stages")));
    answers.put("POST /v1/task-lists", request -> application.taskLists(request.part("lists")));
    answers.put("POST /v1/executions",
        request -> application.executions(request.part("jobs")));
    answers.put("POST /v1/state-locations",
        request -> application.stateLocations(request.part("stores")));
    answers.put("POST /v1/controller", this::take);
    answers.put("DELETE /v1/controller", this::leave);
    change("/v1/total", request -> requestTotal(request));
    change("/v1/decommission", request ->
        application.decommission(request.words("ids"), request.part("why").asText()));
    change("/v1/kill", request -> application.kill(request.words("ids")));
  }

  static Agent start(SparkContext context, Settings settings) throws Exception {
    Agent agent = new Agent(context, settings);
    // The server's own thread is like the one that starts it: here a daemon, so that an application
    // whose main method returns ends.
    Thread starter = named("agent-start").newThread(agent.server::start);
    starter.start();
    starter.join();
    agent.clock.scheduleWithFixedDelay(agent::check, CHECK_S, CHECK_S, TimeUnit.SECONDS);
    agent.clock.scheduleWithFixedDelay(agent.listener::look, LOOK_S, LOOK_S, TimeUnit.SECONDS);
    log.warn("Tidegate's agent listens on {}", agent.url());
    if (settings.tokenIsRandom && settings.announce == null && settings.controller.isEmpty()) {
      log.warn("Nobody knows the token of Tidegate's agent: set spark.tidegate.agent.token.file or "
          + "spark.tidegate.agent.announce");
    }
    return agent;
  }

  String url() {
    return url(settings.host);
  }

  /** The address for a process on this machine. */
  private String nearUrl() {
    InetAddress address = server.getAddress().getAddress();
    return address.isAnyLocalAddress()
        ? url(InetAddress.getLoopbackAddress().getHostAddress())
        : url();
  }

  private String url(String host) {
    String scheme = settings.keystore == null ? "http" : "https";
    String name = host.contains(":") ? "[" + host + "]" : host;
    return scheme + "://" + name + ":" + server.getAddress().getPort();
  }

  /** Write the address to a file and start the controller, where the settings say so. */
  void announce(String id) {
    if (settings.announce != null) {
      ObjectNode text = application.json.createObjectNode();
      text.put("url", url()).put("application", id);
      if (settings.tokenIsRandom) {
        text.put("token", settings.token);
      }
      try {
        write(settings.announce, text.toString());
        announced = text.toString();
      } catch (IOException | RuntimeException error) {
        log.warn("spark.tidegate.agent.announce {} cannot be written: {}", settings.announce,
            error.toString());
      }
    }
    if (!settings.controller.isEmpty()) {
      Map<String, String> variables = new HashMap<>();
      variables.put("TIDEGATE_AGENT_URL", nearUrl());
      variables.put("TIDEGATE_AGENT_TOKEN", settings.token);
      if (certificate != null) {
        variables.put("TIDEGATE_AGENT_CERTIFICATE", certificate);
      }
      controller = new Controller(settings.controller, variables, this::childEnded);
      controller.start();
    }
  }

  private static void write(Path path, String text) throws IOException {
    Path folder = path.toAbsolutePath().getParent();
    Path part = Files.createTempFile(folder, "tidegate", ".part");
    Files.setPosixFilePermissions(part, PosixFilePermissions.fromString("rw-------"));
    Files.write(part, text.getBytes(StandardCharsets.UTF_8));
    Files.move(part, path, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
  }

  void stop() throws InterruptedException {
    clock.shutdownNow();
    server.stop(0); // from now on the controller finds nobody, and ends
    workers.shutdownNow();
    if (announced != null) {
      try {
        // A newer application may have announced itself there.
        if (Files.readString(settings.announce).equals(announced)) {
          Files.deleteIfExists(settings.announce);
        }
      } catch (IOException error) {
        log.debug("The announcement could not be removed", error);
      }
    }
    if (controller != null) {
      controller.stop();
    }
  }

  // --- requests -----------------------------------------------------------------------------

  private void read(String path, Answer answer) {
    answers.put("GET " + path, answer);
  }

  private void change(String path, Answer answer) {
    answers.put("POST " + path, request -> {
      if (!lease.renew(request.key)) {
        String holder = lease.holder();
        throw new Refused(409, holder == null
            ? "take control first: POST /v1/controller"
            : "the application is controlled by " + holder);
      }
      return answer.to(request);
    });
  }

  private void handle(HttpExchange exchange) throws IOException {
    int status = 200;
    JsonNode answer;
    try {
      answer = answer(exchange);
    } catch (Refused error) {
      status = error.status;
      answer = problem(error.getMessage());
    } catch (IllegalArgumentException error) { // a number that is none
      status = 400;
      answer = problem(String.valueOf(error.getMessage()));
    } catch (Throwable error) {
      status = 500;
      log.debug("A request failed", error);
      answer = problem(String.valueOf(error).lines().findFirst().orElse("an error"));
    }
    byte[] bytes = application.json.writeValueAsBytes(answer);
    exchange.getResponseHeaders().set("Content-Type", "application/json");
    exchange.getResponseHeaders().set("Tidegate-Instance", instance);
    exchange.getResponseHeaders().set("Tidegate-Time", Long.toString(System.currentTimeMillis()));
    exchange.sendResponseHeaders(status, bytes.length);
    exchange.getResponseBody().write(bytes);
    exchange.close();
  }

  private JsonNode answer(HttpExchange exchange) throws Exception {
    if (!known(exchange.getRequestHeaders().getFirst("Authorization"))) {
      throw new Refused(401, "the token is missing or wrong: send Authorization: Bearer TOKEN");
    }
    String path = exchange.getRequestMethod() + " " + exchange.getRequestURI().getPath();
    Answer answer = answers.get(path);
    if (answer == null) {
      throw new Refused(404, "there is no " + path);
    }
    String key = exchange.getRequestHeaders().getFirst("Tidegate-Controller");
    lease.renew(key);
    JsonNode body = application.json.nullNode();
    try (InputStream input = exchange.getRequestBody()) {
      byte[] bytes = input.readNBytes(LONGEST_BODY + 1);
      if (bytes.length > LONGEST_BODY) {
        throw new Refused(413, "the request has more than " + LONGEST_BODY + " bytes");
      }
      if (bytes.length > 0) {
        body = application.json.readTree(bytes);
      }
    } catch (com.fasterxml.jackson.core.JsonProcessingException error) {
      throw new Refused(400, "the request is not JSON");
    }
    return answer.to(new Request(exchange.getRequestURI(), body, key));
  }

  private boolean known(String given) {
    byte[] right = ("Bearer " + settings.token).getBytes(StandardCharsets.UTF_8);
    byte[] sent = String.valueOf(given).getBytes(StandardCharsets.UTF_8);
    return MessageDigest.isEqual(right, sent); // takes the same time wherever they differ
  }

  private JsonNode problem(String text) {
    return application.json.createObjectNode().put("error", text);
  }

  // --- answers ------------------------------------------------------------------------------

  private JsonNode about() {
    ObjectNode about = application.about().put("protocol", PROTOCOL);
    about.put("controller", lease.holder());
    about.put("total", total);
    return about.put("lastEvent", eventLog.last());
  }

  private JsonNode events(Request request) throws InterruptedException {
    long after = request.number("after", 0);
    long wait = Math.min(LONGEST_WAIT_MS, request.number("wait", 0));
    ObjectNode answer = application.json.createObjectNode();
    ArrayNode found = answer.putArray("events");
    long first = 0;
    listener.watch();
    boolean mayWait = waiting.tryAcquire();
    List<EventLog.Event> events;
    try {
      events = eventLog.after(after, mayWait ? wait : 0);
    } finally {
      if (mayWait) {
        waiting.release();
      }
    }
    for (EventLog.Event event : events) {
      first = first == 0 ? event.number : first;
      found.addObject().put("number", event.number).put("kind", event.kind)
          .put("text", event.text);
    }
    return answer.put("dropped", first == 0 ? 0 : first - after - 1);
  }

  private JsonNode take(Request request) throws Refused {
    sayLost(); // the next controller may come before the clock has noticed
    String name = request.part("name").asText();
    String child = request.body.path("id").asText("");
    String key = lease.take(name, child, request.part("seconds").asLong());
    if (key == null) {
      throw new Refused(409, "the application is already controlled by " + lease.holder());
    }
    log.warn("Tidegate: {} controls the executors", name);
    ObjectNode answer = application.json.createObjectNode().put("key", key);
    return answer.put("total", total);
  }

  /** Let the next controller in at once when the child process that was in control has ended. */
  private void childEnded(String child) {
    String holder = lease.ended(child);
    if (holder != null) {
      log.warn("Tidegate: {} has ended; {}", holder, kept());
    }
  }

  private void sayLost() {
    String lost = lease.lost();
    if (lost != null) {
      log.warn("Tidegate: {} has fallen silent; {}", lost, kept());
    }
  }

  private JsonNode leave(Request request) {
    String holder = lease.holder();
    lease.leave(request.key);
    if (holder != null && lease.holder() == null) {
      log.warn("Tidegate: {} has left; {}", holder, kept());
    }
    return application.json.createObjectNode();
  }

  private JsonNode requestTotal(Request request) throws Exception {
    JsonNode given = request.part("executors");
    if (!given.canConvertToInt() || !given.isIntegralNumber() || given.asInt() < 0) {
      throw new Refused(400, "executors is " + given + "; it must be a number from 0");
    }
    boolean acknowledged;
    synchronized (totals) { // a call that took long must not undo that of the next controller
      if (!lease.renew(request.key)) {
        throw new Refused(409, "another controller has taken over");
      }
      total = given.asInt();
      acknowledged = application.requestTotal(total);
    }
    return application.json.createObjectNode().put("acknowledged", acknowledged);
  }

  private String kept() {
    return total == null
        ? "nothing was requested"
        : "the total of executors stays at " + total + " until another controller comes";
  }

  /** Notice that the controller is gone, and keep the total that it requested last. */
  private void check() {
    try {
      sayLost();
      synchronized (totals) {
        if (total != null && lease.holder() == null && !application.stopped()) {
          application.requestTotal(total);
        }
      }
    } catch (Throwable error) {
      log.debug("The total could not be requested again", error);
    }
  }

  // --- set-up -------------------------------------------------------------------------------

  private static KeyStore keys(Settings settings) throws Exception {
    KeyStore store = KeyStore.getInstance("PKCS12");
    try (InputStream input = Files.newInputStream(settings.keystore)) {
      store.load(input, password(settings));
    } catch (IOException error) {
      throw new IllegalArgumentException("spark.tidegate.agent.tls.keystore " + settings.keystore
          + " cannot be used: " + error.getMessage());
    }
    return store;
  }

  private static char[] password(Settings settings) {
    String given = settings.keystorePassword;
    return given == null ? new char[0] : given.toCharArray();
  }

  /** The certificates of all keys as PEM, for the controller that this agent starts. */
  private static String certificate(KeyStore store) throws Exception {
    StringBuilder text = new StringBuilder();
    Base64.Encoder lines = Base64.getMimeEncoder(64, new byte[] {'\n'});
    for (String alias : Collections.list(store.aliases())) {
      if (store.isKeyEntry(alias)) {
        text.append("-----BEGIN CERTIFICATE-----\n")
            .append(lines.encodeToString(store.getCertificate(alias).getEncoded()))
            .append("\n-----END CERTIFICATE-----\n");
      }
    }
    return text.toString();
  }

  private static HttpServer secure(KeyStore store, Settings settings) throws Exception {
    KeyManagerFactory keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
    keys.init(store, password(settings));
    SSLContext context = SSLContext.getInstance("TLS");
    context.init(keys.getKeyManagers(), null, null);
    HttpsServer server = HttpsServer.create();
    server.setHttpsConfigurator(new HttpsConfigurator(context));
    return server;
  }

  private static ThreadFactory named(String name) {
    AtomicInteger number = new AtomicInteger();
    return task -> {
      Thread thread = new Thread(task, "tidegate-" + name + "-" + number.incrementAndGet());
      thread.setDaemon(true);
      return thread;
    };
  }
}
