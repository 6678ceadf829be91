"""SASL and TLS to Kafka: how they are described, and both ways on a real broker."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.certificates import Pair, self_signed
from tidegate.errors import BackendError, InputError
from tidegate.spark.local.broker import LocalBroker
from tidegate.spark.local.kafka_jars import broker_jars
from tidegate.spark.local.processes import java_program
from tidegate.spark.streams import kafka_client
from tidegate.spark.streams.kafka import KafkaTopic
from tidegate.spark.streams.kafka_client import KafkaClient
from tidegate.spark.streams.kafka_security import PLAIN_TEXT, KafkaSecurity, read_security
from tidegate.spark.streams.locations import check_location, open_topic
from tidegate.testing.topics import ROWS, ids, sample_rows

USER, PASSWORD = "shop", 'ebb "and\\flow; 7'
SCRAM_USER, SCRAM_PASSWORD = "depot", "spring-tide-4711"
STORE_PASSWORD = "neap-tide-4711"
SECRETS = (PASSWORD, SCRAM_PASSWORD, STORE_PASSWORD)
VARIABLES = [f"TIDEGATE_KAFKA_{what}PASSWORD" for what in ("", "TRUSTSTORE_", "KEYSTORE_")]
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def shown(error: BaseException) -> str:
    """All that a traceback of an error would show of its messages."""
    text = ""
    link: BaseException | None = error
    while link is not None:
        text += f"{link!r} {link}"
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return text


# --- descriptions -----------------------------------------------------------------------------


@pytest.fixture
def secret(tmp_path: Path) -> str:
    path = tmp_path / "password"
    path.write_text(PASSWORD + "\n")
    path.chmod(0o600)
    return str(path)


def test_sasl_with_a_password_of_a_file_or_of_the_environment(
    secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"security": "sasl_plaintext", "mechanism": "plain", "user": USER}
    found = read_security(given | {"password_file": secret})
    assert dict(found.settings) == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{PLAIN} username="shop" password="ebb \\"and\\\\flow; 7";',
    }
    monkeypatch.setenv("TIDEGATE_KAFKA_PASSWORD", PASSWORD)
    assert read_security(given) == found and hash(read_security(given)) == hash(found)
    assert found.for_spark()["kafka.sasl.mechanism"] == "PLAIN"
    assert str(found) == "SASL_PLAINTEXT with PLAIN"
    assert "ebb" not in f"{found!r}{found}"
    said = f"cannot read {dict(found.settings)['sasl.jaas.config']} or {PASSWORD}"
    assert found.without_secrets(said) == "cannot read … or …"
    scram = read_security(given | {"mechanism": "SCRAM-SHA-256"})
    assert "scram.ScramLoginModule required" in dict(scram.settings)["sasl.jaas.config"]


def test_pem_files_are_sent_along_and_stores_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = self_signed(tmp_path)
    certificate, key = pair.certificate.read_text(), pair.key.read_text()
    given = {"security": "SSL", "truststore": str(pair.certificate)}
    assert dict(read_security(given).settings) == {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": certificate,
    }
    both = tmp_path / "both.pem"
    both.write_text(key + certificate)
    apart = {"keystore": str(pair.certificate), "keystore_key": str(pair.key)}
    for keystore in (apart, {"keystore": str(both)}):
        found = dict(read_security({"security": "SSL"} | keystore).settings)
        assert found["ssl.keystore.type"] == "PEM"
        assert found["ssl.keystore.certificate.chain"] == certificate.strip()
        assert found["ssl.keystore.key"] == key.strip()
    assert key.strip() not in repr(read_security({"security": "SSL"} | apart))
    store = tmp_path / "trust.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed and more")
    monkeypatch.chdir(tmp_path)
    jks = read_security({"security": "SSL", "truststore": "trust.jks"})
    assert dict(jks.settings)["ssl.truststore.location"] == str(store)
    assert dict(jks.settings)["ssl.truststore.type"] == "JKS"
    store.write_bytes(b"\x30\x82 and more")
    with pytest.raises(InputError, match="TIDEGATE_KAFKA_TRUSTSTORE_PASSWORD"):
        read_security({"security": "SSL", "truststore": "trust.jks"})
    monkeypatch.setenv("TIDEGATE_KAFKA_TRUSTSTORE_PASSWORD", STORE_PASSWORD)
    p12 = read_security({"security": "SSL", "truststore": "trust.jks"})
    assert dict(p12.settings)["ssl.truststore.type"] == "PKCS12"
    assert STORE_PASSWORD not in repr(p12)
    assert p12.without_secrets(STORE_PASSWORD) == "…"


def test_a_file_of_kafka_describes_all_other_mechanisms(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "# of our cluster\nbootstrap.servers=a:9093\nsecurity.protocol=SASL_SSL\n"
        "sasl.mechanism = OAUTHBEARER\n"
        'sasl.jaas.config=org.example.Login required \\\n   clientSecret="ebb" ;\n'
    )
    found = read_security({"security_file": str(file)})
    assert dict(found.settings) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": 'org.example.Login required clientSecret="ebb" ;',
    }
    (said,) = caplog.messages
    assert "not about security: bootstrap.servers" in said
    assert found.without_secrets("the ebb") == "the …"
    file.write_text("sasl.mechanism=PLAIN\n")
    with pytest.raises(InputError, match=r"security.protocol in .*client.properties is None"):
        read_security({"security_file": str(file)})
    file.write_text("security.protocol=SSL\nssl.truststore.location=/nowhere/trust.jks\n")
    with pytest.raises(InputError, match=r"ssl.truststore.location in .*No such file"):
        read_security({"security_file": str(file)})
    with pytest.raises(InputError, match="user is 'u'; it must be left out with security_file"):
        read_security({"security_file": str(file), "user": "u"})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"security": "TLS"}, "security is 'TLS'; it must be PLAINTEXT or SSL or"),
        ({"user": "u"}, "security is None"),
        ({"security": "SASL_SSL"}, "mechanism is None"),
        ({"security": "SASL_SSL", "mechanism": "GSSAPI"}, "security_file"),
        ({"security": "SASL_SSL", "mechanism": "PLAIN"}, "user is None"),
        ({"security": "SASL_SSL", "mechanism": "PLAIN", "user": "u"}, "TIDEGATE_KAFKA_PASSWORD"),
        ({"security": "SSL", "user": "u"}, "left out with SSL"),
        ({"security": "PLAINTEXT", "truststore": "x"}, "left out with PLAINTEXT"),
        ({"security": "SSL", "truststore": "/nowhere/x"}, "a readable file"),
        ({"security": "SSL", "truststore": __file__}, "PEM, PKCS 12 or JKS"),
        ({"security": "SSL", "keystore_key": "x"}, "give the keystore"),
        ({"security": "SSL", "truststore_password_file": "x"}, "give the truststore too"),
    ],
)
def test_what_is_missing_or_does_not_fit_is_a_sentence(given: dict[str, str], said: str) -> None:
    with pytest.raises(InputError) as raised:
        read_security(given)
    assert said in str(raised.value)


def test_a_key_that_kafka_cannot_read_is_named(tmp_path: Path) -> None:
    pair = self_signed(tmp_path)
    old = tmp_path / "old.key"
    old.write_text(pair.key.read_text().replace("PRIVATE KEY", "EC PRIVATE KEY"))
    given = {"security": "SSL", "keystore": str(pair.certificate), "keystore_key": str(old)}
    with pytest.raises(InputError, match=r"keystore_key is .*pkcs8"):
        read_security(given)
    del given["keystore_key"]
    with pytest.raises(InputError, match=r"keystore is .*a key in PKCS 8"):
        read_security(given)


@pytest.mark.parametrize(
    "location",
    [
        "kafka://shop:hush-hush@a:9093",
        "kafka://a:9093?user=shop&password=hush-hush",
        "kafka://a:9093?truststore_password=hush-hush",
    ],
)
def test_a_password_in_a_location_is_refused_and_not_repeated(location: str) -> None:
    with pytest.raises(InputError, match="_file") as raised:
        check_location(location)
    assert "hush" not in shown(raised.value)


# --- a real broker ----------------------------------------------------------------------------


@dataclass
class Secured:
    """A broker with listeners for SASL and TLS, and what its clients need."""

    broker: LocalBroker
    files: Path
    client: Pair

    def location(self, protocol: str, **settings: object) -> str:
        given = "&".join(f"{key}={value}" for key, value in settings.items())
        return f"kafka://{self.broker.address(protocol)}/{protocol.lower()}?security={protocol}&{given}"


def keytool(*words: object) -> None:
    program = Path(java_program()).with_name("keytool")
    command = [str(program) if program.exists() else "keytool", *map(str, words)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    try:
        broker_jars()
    except BackendError as error:
        pytest.skip(str(error))
    files = tmp_path_factory.mktemp("kafka-security")
    for name, text in (("shop", PASSWORD), ("depot", SCRAM_PASSWORD), ("store", STORE_PASSWORD)):
        (files / name).write_text(text + "\n")
        (files / name).chmod(0o600)
    opens = ("-storetype", "PKCS12", "-storepass:file", files / "store")
    own = ("-alias", "broker", "-keystore", files / "broker.p12", *opens)
    keytool(
        "-genkeypair", *own, "-keyalg", "EC", "-groupname", "secp256r1", "-dname", "CN=broker",
        "-ext", "SAN=IP:127.0.0.1", "-validity", 2,
    )  # fmt: skip
    keytool("-exportcert", "-rfc", *own, "-file", files / "broker.pem")
    client = self_signed(files, "client")
    for store, certificate in (("trust", files / "broker.pem"), ("clients", client.certificate)):
        keytool(
            "-importcert", "-noprompt", "-alias", "it", "-file", certificate,
            "-keystore", files / f"{store}.p12", *opens,
        )  # fmt: skip
    word = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
    sasl = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "plain.sasl.jaas.config": f'{PLAIN} user_{USER}="{word}";',
        "scram-sha-512.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
    }
    tls = {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(files / "broker.p12"),
        "ssl.keystore.password": STORE_PASSWORD,
        "ssl.key.password": STORE_PASSWORD,
    }
    asks = {
        "ssl.client.auth": "required",
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.location": str(files / "clients.p12"),
        "ssl.truststore.password": STORE_PASSWORD,
    }
    listeners: Mapping[str, Mapping[str, str]] = {
        "SASL_PLAINTEXT": sasl,
        "SASL_SSL": sasl | tls,
        "SSL": tls | asks,
    }
    with LocalBroker(listeners=listeners) as broker:
        yield Secured(broker, files, client)


def ways(secured: Secured) -> dict[str, str]:
    """Locations by how a client connects."""
    files = secured.files
    described = files / "client.properties"
    described.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{SCRAM_USER}" password="{SCRAM_PASSWORD}";\n'
        f"ssl.truststore.location={files / 'trust.p12'}\nssl.truststore.type=PKCS12\n"
        f"ssl.truststore.password={STORE_PASSWORD}\n"
    )
    shop = {"mechanism": "PLAIN", "user": USER, "password_file": files / "shop"}
    trust = {"truststore": files / "trust.p12", "truststore_password_file": files / "store"}
    pem = {"keystore": secured.client.certificate, "keystore_key": secured.client.key}
    by_file = f"kafka://{secured.broker.address('SASL_SSL')}/described?security_file={described}"
    return {
        "SASL without TLS": secured.location("SASL_PLAINTEXT", **shop),
        "SASL with TLS": secured.location("SASL_SSL", **shop, **trust),
        "certificates in PEM": secured.location("SSL", truststore=files / "broker.pem", **pem),
        "SCRAM by a file of Kafka": by_file,
    }


@pytest.mark.java
@pytest.mark.parametrize("way", range(4))
def test_tidegate_and_spark_write_and_read(
    way: int,
    spark: SparkSession,
    secured: Secured,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    name, location = list(ways(secured).items())[way]
    if "SCRAM" in name:
        add_user(secured)
    # Tidegate's own client: it creates the topic, and publishes in transactions.
    topic = open_topic(location, "items", ROWS, tmp_path / "topics")
    assert isinstance(topic, KafkaTopic)
    topic.append(sample_rows(0, 20))
    topic.append(sample_rows(20, 5))
    assert ids(topic.frame(spark)) == Counter(range(25)), "Spark's connector reads"
    found: list[Any] = []
    query = (
        topic.read(spark, "reader", tmp_path / "checkpoint")
        .writeStream.foreachBatch(lambda rows, _: found.extend(rows.collect()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert Counter(row["id"] for row in found) == Counter(range(25)), "as a stream too"
    assert topic.lag_items("reader") == 0

    # Somebody else's topic: Spark's connector writes, Tidegate counts.
    options = {"kafka.bootstrap.servers": topic.servers} | topic._security.for_spark()
    topic._client.create(f"{topic.name}-clicks", 1, {})
    rows = spark.createDataFrame([('{"id": 1}',), ('{"id": 2}',)], "value string")
    rows.write.format("kafka").options(**options, topic=f"{topic.name}-clicks").save()
    clicks = open_topic(location, "items-clicks", ROWS)
    assert ids(clicks.frame(spark)) == Counter((1, 2))
    assert clicks.arrived_items() == 2

    # Nothing that is kept or shown has a secret.
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    status = spark._jsparkSession.sharedState().statusStore()
    listed = status.executionsList()
    plans = [
        str(listed.apply(n).physicalPlanDescription()) + str(listed.apply(n).details())
        for n in range(listed.size())
    ]
    assert any("items" in plan for plan in plans), "Spark's page shows the query"
    shown = f"{topic!r}{vars(topic)}{topic._client!r}{caplog.text}{plans}{location}"
    for secret in SECRETS:
        assert secret not in shown and not any(secret.encode() in text for text in written)


def add_user(secured: Secured) -> None:
    """A user with a password that the broker keeps as a hash."""
    client = KafkaClient.of(secured.broker.address())
    admin = client._kafka.clients.admin
    kind = admin.ScramCredentialInfo(admin.ScramMechanism.SCRAM_SHA_512, 4096)
    user = admin.UserScramCredentialUpsertion(SCRAM_USER, kind, SCRAM_PASSWORD)
    client._admin.alterUserScramCredentials([user]).all().get()


@pytest.mark.java
def test_what_the_broker_refuses_is_one_sentence(
    spark: SparkSession, secured: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = secured.files
    wrong = tmp_path / "wrong"
    wrong.write_text("wrong-and-wrong")
    wrong.chmod(0o600)
    shop = {"mechanism": "PLAIN", "user": USER}
    trust = {"truststore": files / "trust.p12", "truststore_password_file": files / "store"}
    other = self_signed(tmp_path, "other")
    stranger = {"keystore": other.certificate, "keystore_key": other.key}
    known = {"truststore": files / "broker.pem"}
    for protocol, settings, said in (
        ("SASL_PLAINTEXT", shop | {"password_file": wrong}, "check user, password and mechanism"),
        ("SASL_SSL", shop | {"password_file": wrong} | trust, "check user, password and mechanism"),
        (
            "SASL_SSL",
            shop | {"password_file": files / "shop", "truststore": other.certificate},
            "check that the trust store has the broker's certificate",
        ),
        ("SSL", known | stranger, "the key store has one that the broker trusts"),
        (
            "SASL_SSL",
            shop | {"password_file": files / "shop"} | trust | {"truststore_password_file": wrong},
            "check the settings and the passwords of the stores",
        ),
    ):
        location = secured.location(protocol, **settings)
        with pytest.raises(BackendError) as raised:
            open_topic(location, "refused", ROWS, tmp_path / "topics")
        text = shown(raised.value)
        assert said in str(raised.value) and "\n" not in str(raised.value), str(raised.value)
        assert f"Kafka at {secured.broker.address(protocol)} could not" in text
        assert not any(secret in text for secret in (*SECRETS, "wrong-and-wrong"))
    monkeypatch.setattr(kafka_client, "ANSWER_MS", 3000)
    plain = f"kafka://{secured.broker.address('SASL_PLAINTEXT')}"
    with pytest.raises(BackendError, match="the same security protocol"):
        open_topic(plain, "refused", ROWS, tmp_path / "topics")


def test_nothing_changes_without_security() -> None:
    assert read_security({}) is PLAIN_TEXT
    assert PLAIN_TEXT.for_spark() == {} and str(KafkaSecurity()) == "PLAINTEXT"
