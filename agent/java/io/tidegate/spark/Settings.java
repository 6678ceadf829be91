package io.tidegate.spark;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.attribute.PosixFilePermission;
import java.security.SecureRandom;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.SparkConf;

/**
 * The settings of the agent, from Spark's configuration and the environment.
 *
 * <ul>
 *   <li>{@code spark.tidegate.agent.host}: the address to listen on; default 127.0.0.1. Any other
 *       needs TLS.
 *   <li>{@code spark.tidegate.agent.port}: the port; default 0, any free one.
 *   <li>{@code spark.tidegate.agent.token.file}: a file with the token that controllers must send,
 *       or the environment variable TIDEGATE_AGENT_TOKEN; default: a random one. Files with secrets
 *       that others may read are refused.
 *   <li>{@code spark.tidegate.agent.announce}: a file to which the agent writes its address, the id
 *       of the application and a random token, readable by its owner only; default: none.
 *   <li>{@code spark.tidegate.agent.tls.keystore} and {@code .tls.password.file}: a PKCS12 key
 *       store and a file with its password.
 *   <li>{@code spark.tidegate.controller}: a command to run beside the driver as the controller, as
 *       words or as a JSON list; default: none.
 * </ul>
 */
final class Settings {
  private static final String PREFIX = "spark.tidegate.";
  private static final int SHORTEST_TOKEN = 12;

  /** Rights to a secret that nobody may have. In a pod, the group of its file may read it. */
  private static final Set<PosixFilePermission> OF_OTHERS = EnumSet.of(
      PosixFilePermission.GROUP_WRITE,
      PosixFilePermission.OTHERS_READ,
      PosixFilePermission.OTHERS_WRITE,
      PosixFilePermission.OTHERS_EXECUTE);

  final String host;
  final int port;
  final String token;
  final boolean tokenIsRandom;
  final Path announce;
  final Path keystore;
  final String keystorePassword;
  final List<String> controller;

  private Settings(SparkConf conf) throws IOException {
    host = conf.get(PREFIX + "agent.host", "127.0.0.1");
    port = number(conf, PREFIX + "agent.port");
    String given = secret(conf, PREFIX + "agent.token.file", "TIDEGATE_AGENT_TOKEN");
    tokenIsRandom = given == null;
    token = tokenIsRandom ? random() : checked(given);
    announce = path(conf, PREFIX + "agent.announce");
    keystore = path(conf, PREFIX + "agent.tls.keystore");
    keystorePassword =
        secret(conf, PREFIX + "agent.tls.password.file", "TIDEGATE_AGENT_TLS_PASSWORD");
    controller = words(conf.get(PREFIX + "controller", ""));
    if (!address(host).isLoopbackAddress() && keystore == null) {
      throw new IllegalArgumentException(
          PREFIX + "agent.host is " + host + "; an address that others can reach needs TLS: set "
              + PREFIX + "agent.tls.keystore, or use 127.0.0.1");
    }
  }

  static Settings read(SparkConf conf) throws IOException {
    return new Settings(conf);
  }

  private static int number(SparkConf conf, String key) {
    String text = conf.get(key, "0").trim();
    try {
      int port = Integer.parseInt(text);
      if (port >= 0 && port <= 65535) {
        return port;
      }
    } catch (NumberFormatException error) {
      // the same remedy
    }
    throw new IllegalArgumentException(key + " is " + text + "; it must be from 0 to 65535");
  }

  private static InetAddress address(String host) {
    try {
      return InetAddress.getByName(host);
    } catch (UnknownHostException error) {
      throw new IllegalArgumentException(PREFIX + "agent.host is " + host + "; no such host");
    }
  }

  private static Path path(SparkConf conf, String key) {
    String text = conf.get(key, "").trim();
    return text.isEmpty() ? null : Paths.get(text);
  }

  /** A secret from a file or the environment; never from Spark's settings, which others can see. */
  private static String secret(SparkConf conf, String key, String variable) {
    Path file = path(conf, key);
    String text;
    try {
      text = file == null ? System.getenv(variable) : Files.readString(file);
      if (file != null && othersMayUse(file)) {
        throw new IllegalArgumentException(key + " " + file + " can be read or written by others; "
            + "run chmod 600 " + file + ", or in a pod mount it with defaultMode 0440");
      }
    } catch (IOException error) {
      throw new IllegalArgumentException(key + " " + file + " cannot be read");
    }
    if (text == null) {
      return null;
    }
    if (text.trim().isEmpty()) {
      throw new IllegalArgumentException(
          (file == null ? variable : key + " " + file) + " is empty; write the secret into it");
    }
    return text.trim();
  }

  /** Whether more than the owner may write a file, or more than the owner and the group read it. */
  private static boolean othersMayUse(Path file) throws IOException {
    if (!Files.isRegularFile(file)) {
      return false; // a pipe has nothing to read later
    }
    try {
      // The mode is that of the file, also where Kubernetes mounts a link to it.
      Set<PosixFilePermission> allowed = Files.getPosixFilePermissions(file);
      return allowed.stream().anyMatch(OF_OTHERS::contains);
    } catch (UnsupportedOperationException error) {
      return false; // a file system without modes
    }
  }

  private static String checked(String token) {
    boolean plain = token.chars().allMatch(character -> character >= ' ' && character <= '~');
    if (token.length() < SHORTEST_TOKEN || !plain) {
      throw new IllegalArgumentException(PREFIX + "agent.token.file or TIDEGATE_AGENT_TOKEN must "
          + "have at least " + SHORTEST_TOKEN + " printable ASCII characters; "
          + "use a long random word");
    }
    return token;
  }

  private static List<String> words(String text) throws IOException {
    String command = text.trim();
    if (command.startsWith("[")) {
      return Arrays.asList(new ObjectMapper().readValue(command, String[].class));
    }
    return command.isEmpty() ? List.of() : Arrays.asList(command.split("\\s+"));
  }

  private static String random() {
    byte[] bytes = new byte[32];
    new SecureRandom().nextBytes(bytes);
    StringBuilder text = new StringBuilder();
    for (byte value : bytes) {
      text.append(String.format("%02x", value));
    }
    return text.toString();
  }
}
