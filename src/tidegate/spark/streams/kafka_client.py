"""Kafka's Java client in the driver's JVM.

It is on the class path of every session with Spark's Kafka connector, so nothing else has to be
installed. Rows never pass through Python: the loop that sends them runs in the JVM.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from tidegate.errors import BackendError
from tidegate.spark.streams.checkpoints import Offsets
from tidegate.spark.streams.kafka_security import PLAIN_TEXT, KafkaSecurity

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["KafkaClient", "Publisher", "active_session", "check_servers"]

ANSWER_MS = 30_000
CONNECT_S = 5.0
TRANSACTION_MS = 60_000
"""Time after which the broker aborts the batch of a driver that has died, in milliseconds."""
_STRINGS = "org.apache.kafka.common.serialization.StringSerializer"
_CONNECTOR = (
    "this Spark session has no Kafka connector: start it with --packages "
    "org.apache.spark:spark-sql-kafka-0-10_2.13:<Spark's version>, or run make kafka and set "
    "spark.jars to tidegate.spark.local.kafka_jars.connector_jars()"
)


def active_session() -> SparkSession:
    """The Spark session of this process; BackendError when there is none."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is None:
        raise BackendError("Kafka is accessed through Spark: start a session first")
    return SparkSession.builder.getOrCreate()


class KafkaClient:
    """A cluster of brokers: topics, offsets, and batches that are published atomically.

    servers: brokers as ``host:port``, separated by commas. security: how to connect to them.
    """

    _shared: ClassVar[dict[tuple[str, KafkaSecurity, str], KafkaClient]] = {}
    _sharing = threading.Lock()

    @classmethod
    def of(cls, servers: str, security: KafkaSecurity = PLAIN_TEXT) -> KafkaClient:
        """The client of these servers, shared within a Spark application."""
        key = (servers, security, active_session().sparkContext.applicationId)
        with cls._sharing:
            if key not in cls._shared:
                cls._shared[key] = cls(servers, security)
            return cls._shared[key]

    def __init__(self, servers: str, security: KafkaSecurity = PLAIN_TEXT) -> None:
        from py4j.java_gateway import JavaPackage

        context = active_session().sparkContext
        assert context._jvm is not None and context._gateway is not None  # it is active
        self.servers, self._security = servers, security
        self._gateway, self._java = context._gateway, context._jvm.java
        self._kafka = context._jvm.org.apache.kafka
        if isinstance(self._kafka.clients.admin.AdminClient, JavaPackage):
            raise BackendError(_CONNECTOR)
        self._publishers: dict[str, Publisher] = {}
        check_servers(servers)
        with self._answers("be reached"):
            self._admin = self._kafka.clients.admin.AdminClient.create(self._settings())
            try:
                self._admin.describeCluster().nodes().get()
            except BaseException:
                # A client that is refused would try again, and log it, for ever.
                self._admin.close(self._java.time.Duration.ZERO)
                raise

    def _settings(self, **more: object) -> Any:
        settings = self._java.util.HashMap()
        settings.put("bootstrap.servers", self.servers)
        for name, text in self._security.settings:
            settings.put(name, text)
        settings.put("request.timeout.ms", str(ANSWER_MS * 2 // 3))
        settings.put("default.api.timeout.ms", str(ANSWER_MS))
        for key, value in more.items():
            settings.put(key.replace("_", "."), str(value))
        return settings

    @contextlib.contextmanager
    def _answers(self, what: str) -> Iterator[None]:
        """Turn a Java exception into a BackendError of one sentence."""
        from py4j.protocol import Py4JJavaError

        try:
            yield
        except Py4JJavaError as error:
            causes = [error.java_exception]
            while causes[-1].getCause() is not None:
                causes.append(causes[-1].getCause())
            texts = [str(cause.toString()) for cause in causes]
            said = self._security.without_secrets(texts[-1])
            # The stack of Java's errors could show settings, so it is left out where there are any.
            raise BackendError(
                f"Kafka at {self.servers} could not {what} ({said}): {_remedy(texts)}"
            ) from (None if self._security.settings else error)

    # Topics

    def partitions(self, topic: str) -> int | None:
        """Number of partitions of a topic, None when there is no such topic."""
        with self._answers("list its topics"):
            if not self._admin.listTopics().names().get().contains(topic):
                return None
        return self._partitions(topic)

    def _partitions(self, topic: str) -> int:
        with self._answers(f"describe {topic}"):
            found = self._admin.describeTopics([topic]).allTopicNames().get()
            return int(found[topic].partitions().size())

    def create(self, topic: str, partitions: int | None, settings: Mapping[str, str]) -> None:
        """Create a topic. partitions: None for the broker's default; settings: Kafka's settings."""
        optional = self._java.util.Optional
        count = optional.empty() if partitions is None else optional.of(partitions)
        new = self._kafka.clients.admin.NewTopic(topic, count, optional.empty())
        new.configs(dict(settings))
        with self._answers(f"create topic {topic}"):
            self._admin.createTopics([new]).all().get()

    def ends(self, topic: str, *, committed: bool = True) -> Offsets:
        """The offset after the last record, by partition.

        committed: as readers see it; False: including records that are not committed yet.
        """
        level = self._kafka.common.IsolationLevel
        isolation = level.READ_COMMITTED if committed else level.READ_UNCOMMITTED
        return self._offsets(topic, self._kafka.clients.admin.OffsetSpec.latest(), isolation)

    def wait_for(self, topic: str, ends: Offsets) -> None:
        """Wait until readers see records up to these offsets, which may lag behind a commit."""
        limit_s = time.monotonic() + ANSWER_MS / 1000
        while any(at < ends[p] for p, at in self.ends(topic).items()):
            if time.monotonic() > limit_s:
                return  # the records are committed, only not visible yet
            time.sleep(0.005)

    def starts(self, topic: str) -> Offsets:
        """The offset of the first record that is still stored, by partition."""
        isolation = self._kafka.common.IsolationLevel.READ_UNCOMMITTED
        return self._offsets(topic, self._kafka.clients.admin.OffsetSpec.earliest(), isolation)

    def _offsets(self, topic: str, which: Any, isolation: Any) -> Offsets:
        wanted = self._java.util.HashMap()
        for partition in range(self._partitions(topic)):
            wanted.put(self._at(topic, partition), which)
        options = self._kafka.clients.admin.ListOffsetsOptions(isolation)
        with self._answers(f"list the offsets of {topic}"):
            found = self._admin.listOffsets(wanted, options).all().get()
            return {int(at.partition()): int(found[at].offset()) for at in wanted.keySet()}

    def delete_before(self, topic: str, offsets: Offsets) -> None:
        """Remove the records before these offsets."""
        # Py4J does not find this method, because the class has another of the same name.
        kind = self._class("org.apache.kafka.clients.admin.RecordsToDelete")
        before = self._java.lang.invoke.MethodHandles.publicLookup().findStatic(
            kind,
            "beforeOffset",
            self._java.lang.invoke.MethodType.methodType(kind, self._java.lang.Long.TYPE),
        )
        wanted = self._java.util.HashMap()
        for partition, offset in offsets.items():
            wanted.put(self._at(topic, partition), before.invokeWithArguments([offset]))
        with self._answers(f"remove records of {topic}"):
            self._admin.deleteRecords(wanted).all().get()

    def _class(self, name: str) -> Any:
        loader = self._java.lang.Thread.currentThread().getContextClassLoader()
        return self._java.lang.Class.forName(name, True, loader)

    def _at(self, topic: str, partition: int) -> Any:
        return self._kafka.common.TopicPartition(topic, partition)

    # Batches

    def publisher(self, topic: str, producer: str) -> Publisher:
        """A publisher for the producer; earlier ones with this name can publish no more.

        Their open transactions are aborted, and transactions that were being committed complete.
        """
        settings = self._settings(
            transactional_id=_identity(topic, producer),
            transaction_timeout_ms=TRANSACTION_MS,
            delivery_timeout_ms=ANSWER_MS * 2,
            key_serializer=_STRINGS,
            value_serializer=_STRINGS,
            max_block_ms=ANSWER_MS,
            compression_type="lz4",
            linger_ms=5,
        )
        if (old := self._publishers.pop(_identity(topic, producer), None)) is not None:
            old.close()  # it is fenced off from now on
        with self._answers(f"accept batches of {producer}"):
            java = self._kafka.clients.producer.KafkaProducer(settings)
            java.initTransactions()
        made = Publisher(self, java, topic, producer)
        self._publishers[_identity(topic, producer)] = made
        return made

    def committed(self, topic: str, producer: str) -> tuple[int, str] | None:
        """Number of the producer's newest published batch, and the attempt that published it."""
        at = self._at(topic, 0)
        with self._answers(f"read what {producer} has published"):
            groups = self._admin.listConsumerGroupOffsets(_identity(topic, producer))
            found = groups.partitionsToOffsetAndMetadata().get().get(at)
        return None if found is None else (int(found.offset()) - 1, str(found.metadata()))

    def sender(self, java_producer: Any, topic: str, batch: str) -> Any:
        """A Java function that sends a row (key, value) as a record; for `List.forEach`.

        It is composed of the JVM's method handles, because a call from Python for each row would
        take a hundred times as long. In Java it would read
        ``row -> producer.send(new ProducerRecord(topic, null, null, row.get(0), row.get(1), h))``.
        """
        invoke = self._java.lang.invoke
        handles, kind = invoke.MethodHandles, invoke.MethodType.methodType
        look = handles.publicLookup()
        named = self._class

        def array(of: Any, *items: Any) -> Any:
            made = self._gateway.new_array(of, len(items))
            for place, item in enumerate(items):
                made[place] = item
            return made

        anything, objects = named("java.lang.Object"), self._java.lang.Object
        row, record = (
            named("org.apache.spark.sql.Row"),
            named("org.apache.kafka.clients.producer.ProducerRecord"),
        )
        header = self._kafka.common.header.internals.RecordHeader("tidegate", batch.encode())
        headers = self._java.util.ArrayList()
        headers.add(header)
        text, number = named("java.lang.String"), named("java.lang.Integer")
        fields = [text, number, named("java.lang.Long"), anything, anything]
        make = look.findConstructor(
            record, kind(self._java.lang.Void.TYPE, [*fields, named("java.lang.Iterable")])
        )
        make = handles.insertArguments(make, 5, array(objects, headers))
        make = handles.insertArguments(make, 0, array(objects, topic, None, None))
        get = look.findVirtual(row, "get", kind(anything, self._java.lang.Integer.TYPE))
        key, value = (handles.insertArguments(get, 1, array(objects, i)) for i in (0, 1))
        make = handles.filterArguments(make, 0, array(invoke.MethodHandle, key, value))
        both = array(self._gateway.jvm.int, 0, 0)  # key and value come from the same row
        make = handles.permuteArguments(make, kind(record, row), both)
        send = look.findVirtual(
            named("org.apache.kafka.clients.producer.Producer"),
            "send",
            kind(named("java.util.concurrent.Future"), record),
        ).bindTo(java_producer)
        send = handles.filterArguments(send, 0, array(invoke.MethodHandle, make))
        consumer = named("java.util.function.Consumer")
        return invoke.MethodHandleProxies.asInterfaceInstance(consumer, send)


class Publisher:
    """Publishes batches in transactions, one after the other; see `KafkaClient.publisher`."""

    def __init__(self, client: KafkaClient, java: Any, topic: str, producer: str) -> None:
        self._client, self._java = client, java
        self._topic, self._producer = topic, producer

    @contextlib.contextmanager
    def batch(self, name: str, batch_id: int, attempt: str, rows: Any) -> Iterator[None]:
        """Send rows; they and the batch's number become visible together, after the ``with`` block.

        name: name of the batch, in each record's header. rows: a Java list of rows (key, value). If
        the block fails, nothing is published and the publisher cannot be used any more.
        """
        kafka, noted = self._client._kafka.clients.consumer, self._client._java.util.HashMap()
        at = self._client._at(self._topic, 0)
        noted.put(at, kafka.OffsetAndMetadata(batch_id + 1, attempt))
        group = kafka.ConsumerGroupMetadata(_identity(self._topic, self._producer))
        try:
            with self._client._answers(f"accept batch {name}"):
                self._java.beginTransaction()
                rows.forEach(self._client.sender(self._java, self._topic, name))
                self._java.flush()
                # The number is stored as the offset of a consumer group without members, in the
                # same transaction as the rows. The call fails if a row could not be sent.
                self._java.sendOffsetsToTransaction(noted, group)
                yield
                self._java.commitTransaction()
        except BaseException:
            with contextlib.suppress(Exception):  # the connection may have failed
                self._java.abortTransaction()
            self.close()
            raise

    def close(self) -> None:
        """Close it and drop what it has not published."""
        with contextlib.suppress(Exception):
            self._java.close(self._client._java.time.Duration.ZERO)


def _remedy(texts: Sequence[str]) -> str:
    """What to do about an error. texts: Java's text of it and of its causes, the deepest last."""
    every = " ".join(texts)
    if "Fenced" in texts[-1] or "newer producer" in texts[-1]:
        return "another driver publishes under the same name: stop one of them"
    if "SaslAuthentication" in every:
        return "check user, password and mechanism"
    if "SslAuthentication" in every or "SSLHandshake" in every or "CertPath" in every:
        return (
            "check that the trust store has the broker's certificate, that the certificate names "
            "this address, and that the key store has one that the broker trusts"
        )
    if "Authorization" in every:
        return "give the user of Kafka the right to do so"
    if "ConfigException" in every or "Failed to load SSL" in every or "KeyStore" in every:
        return "check the settings and the passwords of the stores"
    return (
        "check that a broker is running there, that the address is right, and that the listener "
        "has the same security protocol"
    )


def check_servers(servers: str) -> None:
    """Raise BackendError when none of the servers answers; Kafka's client would retry for long.

    servers: brokers as ``host:port``, separated by commas.
    """
    why = ""
    for server in servers.split(","):
        host, _, port = server.rpartition(":")
        try:
            socket.create_connection((host, int(port)), CONNECT_S).close()
        except OSError as error:
            why = str(error)
        else:
            return
    raise BackendError(
        f"no broker answers at {servers} ({why}): start one (LocalBroker starts one for trials), "
        "or correct the address"
    )


def _identity(topic: str, producer: str) -> str:
    return f"tidegate.{topic}.{producer}"
