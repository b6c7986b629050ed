"""What is told of a client's error: enough to act on, and no secret."""

import pytest
from obstore.exceptions import GenericError, PermissionDeniedError

from daft_twinwds.errors import StorageError
from daft_twinwds.shards.failures import failure_of, to_error
from daft_twinwds.shards.options import ENVIRONMENT
from daft_twinwds.shards.storage import MissingObjectError
from daft_twinwds.shards.urls import Url


class AnswerError(Exception):
    """As the errors of HTTP libraries: with the answer hung on."""

    def __init__(self, status: int) -> None:
        super().__init__("hunter2")
        self.response = type("Response", (), {"status_code": status})()


@pytest.mark.parametrize(
    ("error", "reason", "is_final"),
    [
        (
            GenericError(
                "performing GET http://h/x?sig=hunter2 - status code: 503 Slow Down: hunter2"
            ),
            "503 Slow Down",
            False,
        ),
        (
            GenericError("status code: 403 Forbidden: <Code>SignatureDoesNotMatch</Code>hunter2"),
            "403 Forbidden, SignatureDoesNotMatch",
            True,
        ),
        (GenericError("kind: Connect, hunter2"), "no connection could be made", False),
        (GenericError("kind: Timeout, hunter2"), "no bytes came in time", False),
        (GenericError("kind: Decode, hunter2"), "the connection broke off", False),
        (GenericError("hunter2"), "GenericError: the connection failed", False),
        (PermissionDeniedError("hunter2"), "403 Forbidden", True),
        (FileNotFoundError("hunter2"), "404 Not Found", True),
        (PermissionError("hunter2"), "403 Forbidden", True),
        (ConnectionResetError("hunter2"), "ConnectionResetError: the connection failed", False),
        (AnswerError(429), "429", False),
        (AnswerError(404), "404", True),
        (ValueError("Could not parse path: hunter2"), "the name has a part that is empty", True),
        (ValueError("hunter2"), "ValueError", True),
        (IsADirectoryError("hunter2"), "IsADirectoryError", True),
    ],
)
def test_kind_and_status_are_told_and_nothing_else(
    error: Exception, reason: str, is_final: bool
) -> None:
    failure = failure_of(error)

    assert failure.reason.startswith(reason)
    assert "hunter2" not in failure.reason
    assert failure.is_final == is_final


@pytest.mark.parametrize(
    ("status", "url", "cure"),
    [
        (404, "s3://b/x", "check the path"),
        (403, "s3://b/x", "requester_pays=True"),
        (403, "https://h/x", "bearer_token"),
        (403, "gs://b/x", "check the credentials in io_config or the environment"),
        (301, "s3://b/x", "region_name"),
        (416, "s3://b/x", "read the dataset again"),
        (503, "s3://b/x", "try again later"),
        (400, "s3://b/x", "check the path and io_config"),
    ],
)
def test_the_cure_fits_the_status(status: int, url: str, cure: str) -> None:
    failure = failure_of(AnswerError(status))

    error = to_error(failure, where="x: reading", url=Url.parse(url), options=ENVIRONMENT, tries=1)

    assert isinstance(error, StorageError)
    assert isinstance(error, MissingObjectError) == (status == 404)
    assert str(error).startswith(f"x: reading failed ({status}); expected ")
    assert cure in str(error)
    assert str(error.__cause__) == str(status)
