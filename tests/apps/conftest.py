"""The applications' tests share the session of the other Spark tests."""

from tests.spark.conftest import spark  # noqa: F401
