"""What the API answers instead of a result: one shape, one place where errors become statuses."""

from typing import Any

from pydantic import BaseModel, Field

from latent.errors import GtsError, NotFoundError

__all__ = [
    "DeadlineError",
    "DrainingError",
    "ErrorBody",
    "ErrorResponse",
    "NotReadyError",
    "OverloadedError",
    "ServiceError",
    "WorkerError",
    "as_service_error",
]


class ErrorBody(BaseModel):
    """What went wrong, for people and for programs."""

    type: str = Field(description="invalid_request, overloaded, unavailable or internal.")
    message: str
    param: str | None = Field(None, description="The field that is wrong, where one is.")
    code: str = Field(description="Which error exactly; stable.")


class ErrorResponse(BaseModel):
    """The body of every answer that is not a 2xx."""

    error: ErrorBody


class ServiceError(Exception):
    """An error with its status; subclasses fix both."""

    status, type, code = 500, "internal", "internal"

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        type: str | None = None,
        code: str | None = None,
        param: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status or self.status
        self.type = type or self.type
        self.code = code or self.code
        self.param = param
        self.retry_after = retry_after

    def body(self) -> dict[str, Any]:
        """Give the JSON body."""
        error = ErrorBody(type=self.type, message=str(self), param=self.param, code=self.code)
        return ErrorResponse(error=error).model_dump()

    def headers(self) -> dict[str, str]:
        """Give the headers that go with it."""
        return {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}


class OverloadedError(ServiceError):
    """Too many lanes wait already."""

    status, type, code = 429, "overloaded", "queue_full"


class NotReadyError(ServiceError):
    """No worker is up yet, or again."""

    status, type, code = 503, "unavailable", "not_ready"


class DrainingError(ServiceError):
    """The server is shutting down."""

    status, type, code = 503, "unavailable", "draining"


class DeadlineError(ServiceError):
    """The deadline passed with nothing to show."""

    status, type, code = 504, "unavailable", "deadline"


class WorkerError(ServiceError):
    """The device failed on this request; details stay in the log."""

    code = "worker_failed"


def as_service_error(error: GtsError) -> ServiceError:
    """Give a domain error its status."""
    if isinstance(error, NotFoundError) and error.param == "model":
        return ServiceError(
            str(error), status=404, type="invalid_request", code="model_not_found", param="model"
        )
    return ServiceError(
        str(error), status=422, type="invalid_request", code="invalid_field", param=error.param
    )
